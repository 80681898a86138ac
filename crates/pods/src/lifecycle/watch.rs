//! The watch of all Pods, and the clock that says when a lifecycle is complete.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use futures::{StreamExt as _, pin_mut, stream};
use kube::{Api, Client, runtime::watcher::Event};
use spans::{Trace, identity::LifecycleTrace, text::sentence};
use tokio::{
    select,
    sync::{
        Notify,
        mpsc::{self, Receiver},
    },
    time::interval,
};
use tracing::{info, warn};

use super::{pod::Pod, progress::Progress, table::Table, tree};
use crate::{Metrics, api, context::PodContexts};

/// Interval of the search for complete lifecycles.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Lifecycles that wait for their contexts, and for the exporters, at once.
const WAITING: usize = 256;

/// Follows Pods in background tasks. Clones are handles of the same table.
#[derive(Clone, Debug)]
pub struct Lifecycles {
    table: Arc<Mutex<Table>>,
    contexts: PodContexts,
    of: LifecycleTrace,
    wait: Duration,
    /// Wakes the task that sends, for the last time.
    over: Arc<Notify>,
}

impl Lifecycles {
    /// Starts to follow Pods as soon as their contexts are needed, within a tokio runtime. The receiver gets the traces of complete lifecycles. `wait` limits the wait
    /// for the context of each Pod, and `of` says whose trace each is in.
    ///
    /// Without an API server it logs that once, and sends nothing.
    #[must_use]
    pub fn start(
        contexts: &PodContexts,
        of: LifecycleTrace,
        wait: Duration,
        metrics: Metrics,
    ) -> (Self, Receiver<Trace>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        contexts.follow();
        let table = Arc::new(Mutex::new(Table::new(metrics.clone())));
        let lifecycles = Self { table, contexts: contexts.clone(), of, wait, over: Arc::default() };
        match contexts.client() {
            Some((client, url)) => {
                let lifecycles = lifecycles.clone();
                drop(tokio::spawn(async move {
                    lifecycles.contexts.needed().await;
                    watch(client, url, lifecycles, metrics).await;
                }));
            }
            None => warn!("no API server is known, so there are no Pod lifecycles; give a kubeconfig"),
        }
        drop(tokio::spawn({
            let lifecycles = lifecycles.clone();
            async move {
                let mut looks = interval(LOOK_INTERVAL);
                loop {
                    select! {
                        _ = looks.tick() => {}
                        () = lifecycles.over.notified() => return,
                    }
                    let due = lifecycles.table().due(now(), false);
                    let mut traces =
                        stream::iter(due).map(|progress| lifecycles.trace(progress)).buffered(WAITING);
                    while let Some(trace) = traces.next().await {
                        let Some(trace) = trace else { continue };
                        // The receiver may be gone.
                        let _gone = sender.send(trace).await;
                    }
                }
            }
        }));
        (lifecycles, receiver)
    }

    /// Takes a traced attempt.
    pub fn attempt(&self, trace: &Trace) {
        self.table().attempt(trace, now());
    }

    /// Stops, and returns the complete lifecycles that the receiver has not taken.
    pub async fn rest(&self, receiver: &mut Receiver<Trace>) -> Vec<Trace> {
        self.over.notify_one();
        let mut rest = Vec::new();
        // The channel closes after the traces in flight.
        while let Some(trace) = receiver.recv().await {
            rest.push(trace);
        }
        let due = self.table().due(now(), true);
        let traces = stream::iter(due).map(|progress| self.trace(progress)).buffered(WAITING);
        rest.extend(traces.filter_map(async |trace| trace).collect::<Vec<_>>().await);
        rest
    }

    async fn trace(&self, (uid, progress): (Box<str>, Box<Progress>)) -> Option<Trace> {
        let origin = self.contexts.origin(&uid, self.wait).await;
        tree::build(&uid, &progress, origin, self.of)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches all Pods, for ever. A selector by phase would miss the last status of a Pod.
async fn watch(client: Client, url: String, lifecycles: Lifecycles, metrics: Metrics) {
    let events = api::watch(Api::<Pod>::all(client), None);
    pin_mut!(events);
    let mut down = false;
    while let Some(event) = events.next().await {
        let mut table = lifecycles.table();
        match &event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                // The watch for contexts sees only Pods without a Node.
                if table.seen(pod, now()) && pod.spec.node_name.is_some() {
                    lifecycles.contexts.learn(&pod.metadata, pod.spec.priority_class_name.as_deref());
                }
            }
            Ok(Event::Delete(pod)) => table.gone(pod, now()),
            Ok(Event::Init) => table.list_begins(),
            Ok(Event::InitDone) => table.list_ends(now()),
            Err(error) => {
                table.list_fails();
                if !down {
                    warn!(
                        "cannot watch all Pods at {url}, so there are no Pod lifecycles until it works again: {}; check \
                         that the API server runs and that `list` and `watch` of pods are granted",
                        sentence(error)
                    );
                }
            }
        }
        // A new list begins before it is known whether the API server answers.
        if !matches!(event, Ok(Event::Init)) {
            if down && event.is_ok() {
                info!("the API server answers again: Pods are followed");
            }
            down = event.is_err();
            metrics.set_lifecycle_watch_up(!down);
        }
    }
}

/// Nanoseconds since the Unix epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
