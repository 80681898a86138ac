//! The attempts to schedule Pods that the cluster's daemons show while a command runs.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, future::join_all};
use reach::{Reach, events};
use spans::{Trace, TraceKind, attributes, screen, text::sentence};
use tokio::{task::JoinHandle, time::timeout};

/// Path of a daemon's traces.
const TRACES: &str = "/api/v1/traces";
/// Time until the daemons are reached. kubectl does not wait longer.
const REACH_TIME: Duration = Duration::from_secs(5);
/// Attempts of all Pods that are kept, the last ones.
const MAX_ATTEMPTS: usize = 4000;

/// Collects attempts until it is dropped.
#[derive(Debug, Default)]
pub struct Attempts {
    seen: Arc<Mutex<VecDeque<Trace>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Attempts {
    /// Begins to collect the attempts of all daemons of a cluster, or of the one at a URL. Without one it says so, and collects nothing.
    pub async fn watch(options: &reach::Options) -> Self {
        let mut attempts = Self::default();
        let streams = timeout(REACH_TIME, async {
            let reach = Reach::of(options, true).await?;
            let streams = join_all(reach.daemons().iter().map(|daemon| daemon.stream(TRACES, &[]))).await;
            anyhow::Ok(streams)
        });
        let why = match streams.await {
            Ok(Ok(streams)) => {
                let mut why = None;
                for stream in streams {
                    match stream {
                        Ok(body) => {
                            let seen = Arc::clone(&attempts.seen);
                            attempts.tasks.push(tokio::spawn(async move {
                                let mut events = Box::pin(events(body));
                                while let Some(Ok(event)) = events.next().await {
                                    if event.name.is_empty() {
                                        keep(&seen, &event.data);
                                    }
                                }
                            }));
                        }
                        Err(error) => why = Some(sentence(error.as_ref())),
                    }
                }
                why
            }
            Ok(Err(error)) => Some(sentence(error.as_ref())),
            Err(_) => Some(format!("no daemon answers within {} s", REACH_TIME.as_secs())),
        };
        if let Some(why) = why {
            screen::complain(&format!("attempts to schedule are not shown, or not all: {why}"));
        }
        attempts
    }

    /// Whether there is a daemon.
    #[must_use]
    pub fn are_collected(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Whether an attempt has bound the Pod with this UID.
    #[must_use]
    pub fn have_bound(&self, uid: &str) -> bool {
        let binds =
            |trace: &Trace| is(trace, attributes::POD_UID, uid) && is(trace, attributes::RESULT, "Success");
        lock(&self.seen).iter().any(binds)
    }

    /// All that were collected, by their beginning.
    #[must_use]
    pub fn all(&self) -> Vec<Trace> {
        let mut all: Vec<_> = lock(&self.seen).iter().cloned().collect();
        all.sort_by_key(|trace| trace.root().start_unix_ns);
        all
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn lock(seen: &Mutex<VecDeque<Trace>>) -> MutexGuard<'_, VecDeque<Trace>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the attempts of a message. A message that cannot be read is of another version: its attempts are missing, as those of no daemon.
fn keep(seen: &Mutex<VecDeque<Trace>>, json: &str) {
    let traces = spandiff::whole::traces(json).unwrap_or_default();
    let mut seen = lock(seen);
    for trace in traces.into_iter().filter(|trace| trace.kind == TraceKind::Attempt) {
        if seen.len() == MAX_ATTEMPTS {
            seen.pop_front();
        }
        seen.push_back(trace);
    }
}

fn is(trace: &Trace, key: &str, value: &str) -> bool {
    trace.root().attribute(key).is_some_and(|found| found.to_string() == value)
}
