//! Finished traces for those who watch the daemon now, such as the clients of `/api/v1/traces`.

use std::sync::{Arc, OnceLock};

use tokio::sync::broadcast::{self, Receiver, Sender, error::RecvError};

use super::{Filter, stdout};
use crate::Trace;

/// Traces that a watcher may be behind. Then it loses the oldest.
const CAPACITY: usize = 256;

/// Shows traces to any number of watchers. Without one it costs nothing. Clones show to the same watchers.
#[derive(Clone, Debug)]
pub struct Live(Sender<Arc<Shown>>);

/// A trace that is shown. Its text is made once, for the first watcher that wants it.
#[derive(Debug)]
struct Shown {
    trace: Trace,
    resource: Arc<[u8]>,
    json: OnceLock<Arc<str>>,
}

/// Sees the traces that end from now on.
#[derive(Debug)]
pub struct Watcher {
    shown: Receiver<Arc<Shown>>,
    filter: Filter,
}

/// What a watcher sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A trace, as `TracesData` of OTLP in JSON, without a newline.
    Trace(Arc<str>),
    /// So many traces ended that were not seen, because the watcher was too slow. Some of them may not have passed its filter.
    Lost(u64),
}

impl Default for Live {
    fn default() -> Self {
        Self(broadcast::channel(CAPACITY).0)
    }
}

impl Live {
    /// Begins to watch.
    #[must_use]
    pub fn watch(&self, filter: Filter) -> Watcher {
        Watcher { shown: self.0.subscribe(), filter }
    }

    /// Shows a trace. The resource is asked for only if there is a watcher.
    pub(super) fn show(&self, trace: &Trace, resource: impl FnOnce() -> Arc<[u8]>) {
        if self.0.receiver_count() > 0 {
            let shown = Shown { trace: trace.clone(), resource: resource(), json: OnceLock::new() };
            // An error means that the last watcher has gone meanwhile.
            let _gone = self.0.send(Arc::new(shown));
        }
    }
}

impl Watcher {
    /// Waits for the next trace that passes the filter; `None` when the daemon ends.
    pub async fn next(&mut self) -> Option<Seen> {
        loop {
            match self.shown.recv().await {
                Ok(shown) if self.filter.keeps(&shown.trace) => return Some(Seen::Trace(shown.json())),
                Ok(_) => {}
                Err(RecvError::Lagged(traces)) => return Some(Seen::Lost(traces)),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

impl Shown {
    fn json(&self) -> Arc<str> {
        let Self { trace, resource, json } = self;
        Arc::clone(json.get_or_init(|| stdout::json(trace, resource).trim_end().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{scheduled, unschedulable};

    fn resource() -> Arc<[u8]> {
        Arc::default()
    }

    #[tokio::test]
    async fn a_watcher_sees_what_passes_its_filter_from_then_on() {
        let live = Live::default();
        live.show(&scheduled(), || panic!("it has no watcher"));
        let mut failed = live.watch(Filter { failed: true, ..Filter::default() });
        let mut all = live.watch(Filter::default());
        live.show(&scheduled(), resource);
        live.show(&unschedulable(), resource);
        let text = |seen| match seen {
            Some(Seen::Trace(json)) => json,
            other => panic!("{other:?}"),
        };
        assert_eq!(&*text(failed.next().await), stdout::json(&unschedulable(), &resource()).trim_end());
        let first = text(all.next().await);
        assert_eq!(&*first, stdout::json(&scheduled(), &resource()).trim_end());
        assert!(!first.contains('\n'));
        drop((live, text(all.next().await)));
        assert_eq!((all.next().await, failed.next().await), (None, None));
    }

    #[tokio::test]
    async fn a_slow_watcher_loses_the_oldest_and_is_told_how_many() {
        let live = Live::default();
        let mut slow = live.watch(Filter::default());
        for _ in 0..CAPACITY + 3 {
            live.show(&scheduled(), resource);
        }
        assert_eq!(slow.next().await, Some(Seen::Lost(3)));
        for _ in 0..CAPACITY {
            assert!(matches!(slow.next().await, Some(Seen::Trace(_))));
        }
    }
}
