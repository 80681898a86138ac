//! The Pods of the API, and the clock: where lives come from, and when they are told.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use futures::{StreamExt as _, pin_mut, stream};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use spans::{Trace, text::sentence};
use tokio::{
    select,
    sync::{
        Notify,
        mpsc::{self, Receiver},
    },
    time::interval,
};
use tracing::{info, warn};

use super::{life::Life, pod::Pod, table::Lives, tree};
use crate::{Metrics, context::PodContexts};

/// How often it is looked what is over.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Lives that wait for their contexts at once, and for the exporters.
const WAITING: usize = 256;

/// The lives of Pods, followed by tasks in the background. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Lifecycles {
    lives: Arc<Mutex<Lives>>,
    contexts: PodContexts,
    wait: Duration,
    /// Nothing comes any more.
    over: Arc<Notify>,
}

impl Lifecycles {
    /// Starts to follow Pods, within a tokio runtime; what is over comes out of the receiver. A Pod's context is waited for so
    /// long.
    ///
    /// Where no API server is known, it says so once, and nothing comes.
    #[must_use]
    pub fn start(contexts: &PodContexts, wait: Duration, metrics: Metrics) -> (Self, Receiver<Trace>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        let lives = Arc::new(Mutex::new(Lives::new(metrics.clone())));
        let lifecycles = Self { lives, contexts: contexts.clone(), wait, over: Arc::default() };
        match contexts.client() {
            Some((client, url)) => {
                drop(tokio::spawn(watch(client, url, lifecycles.clone(), metrics)));
            }
            None => warn!("no API server is known, so the lives of Pods are not known; give a kubeconfig"),
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
                    let due = lifecycles.lives().due(now(), false);
                    let mut traces = stream::iter(due).map(|life| lifecycles.told(life)).buffered(WAITING);
                    while let Some(trace) = traces.next().await {
                        let Some(trace) = trace else { continue };
                        // Who does not wait any more does not matter.
                        let _gone = sender.send(trace).await;
                    }
                }
            }
        }));
        (lifecycles, receiver)
    }

    /// An attempt was traced.
    pub fn attempt(&self, trace: &Trace) {
        self.lives().attempt(trace, now());
    }

    /// What is over and has not come out of the receiver, when nothing comes any more.
    pub async fn rest(&self, receiver: &mut Receiver<Trace>) -> Vec<Trace> {
        self.over.notify_one();
        let mut rest = Vec::new();
        // It is closed when those have come that were on their way.
        while let Some(trace) = receiver.recv().await {
            rest.push(trace);
        }
        let due = self.lives().due(now(), true);
        let told = stream::iter(due).map(|life| self.told(life)).buffered(WAITING);
        rest.extend(told.filter_map(async |trace| trace).collect::<Vec<_>>().await);
        rest
    }

    async fn told(&self, (uid, life): (Box<str>, Life)) -> Option<Trace> {
        let origin = self.contexts.origin(&uid, self.wait).await;
        tree::build(&uid, &life, origin)
    }

    fn lives(&self) -> MutexGuard<'_, Lives> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watches all Pods for ever: what a Pod becomes is in its status, and a selector of phases would miss the last of it.
async fn watch(client: Client, url: String, lifecycles: Lifecycles, metrics: Metrics) {
    let events = watcher(Api::<Pod>::all(client), watcher::Config::default()).default_backoff();
    pin_mut!(events);
    let mut down = false;
    while let Some(event) = events.next().await {
        let mut lives = lifecycles.lives();
        match &event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                // Contexts have a watch of their own, of Pods without a Node.
                if lives.seen(pod, now()) && pod.spec.node_name.is_some() {
                    lifecycles.contexts.learn(&pod.metadata, pod.spec.priority_class_name.as_deref());
                }
            }
            Ok(Event::Delete(pod)) => lives.gone(pod, now()),
            Ok(Event::Init) => lives.list_begins(),
            Ok(Event::InitDone) => lives.list_ends(now()),
            Err(error) => {
                lives.list_fails();
                if !down {
                    warn!(
                        "cannot watch all Pods at {url}, so their lives are not known until it works again: {}; check \
                         that the API server runs and that `list` and `watch` of pods are granted",
                        sentence(error)
                    );
                }
            }
        }
        // It begins anew before it knows whether somebody answers.
        if !matches!(event, Ok(Event::Init)) {
            if down && event.is_ok() {
                info!("the API server answers again, the lives of Pods are known");
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
