//! The trace context of whoever created a Pod, from the Pod's annotations, by a watch of Pods.
//!
//! Only Pods without a Node are watched: an attempt is always of such a one. The Pod's going to a Node ends
//! the watch of it, but not the memory of its context, which a bounded cache holds for the attempts that end
//! a little later. Of a Pod nothing but the context is kept.

mod pod;
mod traceparent;

use std::{
    collections::HashSet,
    hash::{BuildHasher as _, RandomState},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::http::Response;
use futures::{FutureExt as _, Stream, StreamExt as _, pin_mut};
use kube::{
    Api, Client, Config, Resource as _, ResourceExt as _,
    api::ListParams,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use quick_cache::sync::Cache;
use siphasher::sip128::SipHasher13;
use tokio::{sync::Notify, task::yield_now, time::sleep};
use tower::util::MapResponseLayer;
use tracing::{info, warn};

use self::pod::Pod;
pub use self::traceparent::{TRACEPARENT, TRACESTATE, traceparent, tracestate};
use crate::{
    metrics::{Lookup, Metrics, Refusal},
    trace::RemoteContext,
    words::sentence,
};

/// Pods remembered, some 60 bytes each; the least used are forgotten first. More than a cluster may have
/// waiting: 150,000 Pods are all that Kubernetes supports in one.
const CAPACITY: usize = 200_000;
/// Selects Pods without a Node.
const UNASSIGNED: &str = "spec.nodeName=";
/// Failures in a row from which on the API server counts as down: one alone is a restart or a cut connection,
/// and over before a finished attempt is tired of waiting.
const DOWN: u32 = 2;
/// For the API server to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long what the watch brings is left in the connection, once that was read empty: reading it one by one costs
/// several times as much. Nobody notices that a context comes so much later.
const GATHER: Duration = Duration::from_millis(50);
/// How often the task of the connection gets its turn to bring more, before it counts as read empty; it takes one.
const TURNS: usize = 3;
/// Characters of a refused annotation that a log line shows.
const SHOWN: usize = 64;

/// Why Pods cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There was a file to be used, and it is of no use.
    #[error("cannot use the kubeconfig `{}`: {reason}; give the path of a valid one", path.display())]
    Kubeconfig {
        /// As it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// The trace contexts of Pods, kept up to date by a task in the background.
#[derive(Clone, Debug)]
pub struct PodContexts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// By the hash of the UID: 16 bytes whatever the UID looks like, and nobody can choose which ones
    /// collide.
    contexts: Cache<u128, Option<Arc<RemoteContext>>>,
    keys: (u64, u64),
    /// Whether all Pods without a Node have been listed once.
    listed: AtomicBool,
    /// Wakes who waits: a Pod came, the list is through, or the API server went.
    changed: Notify,
    /// Failures of the watch in a row.
    failures: AtomicU32,
    metrics: Metrics,
}

impl PodContexts {
    /// Starts the watch, within a tokio runtime, and does not wait for it.
    ///
    /// Without a kubeconfig it takes what the environment gives: `KUBECONFIG`, `~/.kube/config`, the service
    /// account. Where there is nothing at all, it says so once and knows no Pod. An API server that does not
    /// answer is no error: it is asked again until it does.
    ///
    /// # Errors
    ///
    /// When the given kubeconfig cannot be used.
    pub async fn start(kubeconfig: Option<PathBuf>, metrics: Metrics) -> Result<Self, Error> {
        let config = match kubeconfig {
            Some(path) => Some(read(&path).await.map_err(|reason| Error::Kubeconfig { path, reason })?),
            None => Config::infer()
                .await
                .inspect_err(|error| {
                    warn!("no API server is known, so spans get no links: {error}; give a kubeconfig");
                })
                .ok(),
        };
        let hasher = RandomState::new();
        let shared = Arc::new(Shared {
            contexts: Cache::new(CAPACITY),
            keys: (hasher.hash_one(0), hasher.hash_one(1)),
            listed: AtomicBool::new(false),
            changed: Notify::new(),
            failures: AtomicU32::new(if config.is_some() { 0 } else { DOWN }),
            metrics,
        });
        if let Some(config) = config {
            let url = config.cluster_url.to_string();
            match client(config, &shared) {
                Ok(client) => drop(tokio::spawn(watch(client, url, Arc::clone(&shared)))),
                Err(error) => {
                    shared.failures.store(DOWN, Ordering::Relaxed);
                    warn!(
                        "no connection to {url} can be made, so spans get no links: {error}; check the kubeconfig"
                    );
                }
            }
        }
        Ok(Self(shared))
    }

    /// Waits for the first list of Pods, but not longer than `wait`, nor for an API server that does not answer.
    ///
    /// A Pod that is bound before the list is asked for is never seen: who traces after it misses none.
    pub async fn listed(&self, wait: Duration) {
        let listed = async {
            loop {
                let changed = self.0.changed.notified();
                if self.0.listed.load(Ordering::Relaxed) || self.0.failures.load(Ordering::Relaxed) > 0 {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(wait, listed).await.is_err() {
            warn!("the API server has not listed the Pods in {wait:?}: the first spans may miss their links");
        }
    }

    /// The context of a Pod, if it carries one.
    ///
    /// Answers at once when the Pod is known, or when the API server does not answer; else waits for the
    /// watch to bring the Pod, but not longer than `wait`.
    pub async fn lookup(&self, uid: &str, wait: Duration) -> Option<RemoteContext> {
        let known = tokio::time::timeout(wait, self.0.known(uid)).await.ok().flatten();
        self.0.metrics.looked_up(match &known {
            Some(Some(_)) => Lookup::Found,
            Some(None) => Lookup::None,
            None => Lookup::Unknown,
        });
        known.flatten().map(Arc::unwrap_or_clone)
    }
}

impl Shared {
    fn key(&self, uid: &str) -> u128 {
        SipHasher13::new_with_keys(self.keys.0, self.keys.1).hash(uid.as_bytes()).as_u128()
    }

    async fn known(&self, uid: &str) -> Option<Option<Arc<RemoteContext>>> {
        let key = self.key(uid);
        loop {
            // Before the look, so that what changes after the look wakes it.
            let changed = self.changed.notified();
            if let Some(context) = self.contexts.get(&key) {
                return Some(context);
            }
            if self.failures.load(Ordering::Relaxed) >= DOWN {
                return None;
            }
            changed.await;
        }
    }

    fn answered(&self) {
        if self.failures.swap(0, Ordering::Relaxed) >= DOWN {
            info!("the API server answers again, spans get links");
        }
        self.metrics.set_watch_up(true);
    }

    fn failed(&self, url: &str, error: &watcher::Error) {
        self.metrics.set_watch_up(false);
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == DOWN {
            warn!(
                "cannot watch Pods at {url}, so spans get no links until it works again: {}; check that the API \
                 server runs and that `list` and `watch` of pods are granted",
                sentence(error)
            );
        }
        self.changed.notify_waiters();
    }

    /// Remembers a Pod; returns what was refused of it, if it is a new one.
    fn learn(&self, pod: &Pod) -> Vec<(Refusal, String)> {
        let Some(uid) = &pod.meta().uid else { return Vec::new() };
        let (key, mut refused) = (self.key(uid), Vec::new());
        let mut refuse = |value: &str, reason| refused.push((reason, value.chars().take(SHOWN).collect()));
        let annotation = |key| pod.annotations().get(key).map(String::as_str);
        let context = annotation(TRACEPARENT).and_then(|value| {
            let mut context = traceparent(value).map_err(|reason| refuse(value, reason)).ok()?;
            let state = annotation(TRACESTATE).unwrap_or_default();
            context.trace_state =
                tracestate(state).map_err(|reason| refuse(state, reason)).unwrap_or_default();
            Some(Arc::new(context))
        });
        if self.contexts.contains_key(&key) {
            refused.clear();
        }
        self.contexts.insert(key, context);
        self.changed.notify_waiters();
        refused
    }
}

/// Asks the API server once for a Pod, and says which server that is.
///
/// # Errors
///
/// If none is known, or it does not answer, or refuses; with what to do, in a line.
pub async fn try_once(kubeconfig: Option<PathBuf>) -> Result<String, String> {
    let mut config = match kubeconfig {
        Some(path) => read(&path).await.map_err(|reason| Error::Kubeconfig { path, reason }.to_string())?,
        None => Config::infer()
            .await
            .map_err(|error| format!("no API server is known: {}; give a kubeconfig", sentence(&error)))?,
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(CONNECT_TIMEOUT);
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config)
        .map_err(|error| format!("{url}: {}; check the kubeconfig", sentence(&error)))?;
    let one = ListParams::default().limit(1).fields(UNASSIGNED);
    match Api::<Pod>::all(client).list_metadata(&one).await {
        Ok(_) => Ok(url),
        Err(error) => Err(format!(
            "{url}: {}; check that the API server runs and that `list` and `watch` of pods are granted",
            sentence(&error)
        )),
    }
}

async fn read(path: &Path) -> Result<Config, Box<dyn std::error::Error + Send + Sync>> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

fn client(mut config: Config, shared: &Arc<Shared>) -> kube::Result<Client> {
    // The watch asks again by itself, and says so when it must.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let shared = Arc::clone(shared);
    // The watcher tells of failures and of Pods, but not that a broken watch stands again.
    let answers = MapResponseLayer::new(move |response: Response<_>| {
        if response.status().is_success() {
            shared.answered();
        }
        response
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&answers).build())
}

/// Watches for ever. Lists in pages and then watches, which every API server can; the streaming list cannot
/// be relied upon: where its feature gate is off, the API server refuses the request.
async fn watch(client: Client, url: String, shared: Arc<Shared>) {
    let pods = Api::<Pod>::all(client);
    let unassigned = watcher::Config::default().fields(UNASSIGNED);
    let events = watcher(pods, unassigned).default_backoff();
    pin_mut!(events);
    let mut told = HashSet::new();
    while let Some(event) = next(&mut events).await {
        match event {
            // To the selector, a Pod that got its Node is deleted; it may come so quickly that this is all we
            // see of it.
            Ok(Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod)) => {
                for (reason, value) in shared.learn(&pod) {
                    shared.metrics.refused(reason);
                    if told.insert(reason) {
                        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
                        warn!(
                            ?reason,
                            "the Pod {namespace}/{name} has no valid trace context: {value:?}; said once a reason"
                        );
                    }
                }
            }
            Ok(Event::InitDone) => {
                shared.listed.store(true, Ordering::Relaxed);
                shared.changed.notify_waiters();
            }
            Ok(Event::Init) => {}
            Err(error) => shared.failed(&url, &error),
        }
    }
}

/// The next event, after a pause where none is there.
async fn next<S: Stream + Unpin>(events: &mut S) -> Option<S::Item> {
    for _ in 0..TURNS {
        if let Some(event) = events.next().now_or_never() {
            return event;
        }
        yield_now().await;
    }
    sleep(GATHER).await;
    events.next().await
}

#[cfg(test)]
mod tests;
