//! The trace contexts in the annotations of Pods, by a watch of Pods.
//!
//! Only Pods without a Node are watched: attempts are made for those only. The watch of a Pod ends when it gets a Node, but a
//! bounded cache keeps its context for the attempts that end a little later. Only the contexts are kept of a Pod, the selectors
//! that it matches, the kinds of terms in its spec, and its owner if owners are enabled; and of Pods without a Node why they have
//! none, if that is asked for.

mod options;
mod owners;
mod pending;
mod pod;
mod terms;

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    fmt,
    hash::{BuildHasher as _, RandomState},
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, pin_mut};
use kube::{
    Api, Client, Resource as _,
    api::ListParams,
    core::ObjectMeta,
    runtime::watcher::{self, Event},
};
use quick_cache::{Weighter, sync::Cache};
use siphasher::sip128::SipHasher13;
use spans::{
    AttributeValue, Link, Origin, Pending, Relation, attributes, sample::Selector, terms::Terms,
    text::sentence,
};
use telemetry::Label as _;
use tokio::{
    sync::{Notify, SetOnce},
    time::{Instant, timeout_at},
};
use tower::service_fn;
use tracecontext::annotations::{self, Carriers, Recovered, Refused};
use tracing::{info, warn};

pub use self::options::{Mode, Options};
pub use self::pod::PodWith;
use self::{
    owners::{Nearest, Owner, Owners},
    pending::PendingPods,
    pod::Pod,
};
use crate::{Lookup, Loss, Metrics, api};

/// Most Pods in the cache that wait, if none carries a context; the least used are evicted first. Kubernetes supports 150,000 Pods
/// in a cluster.
const CAPACITY: usize = 200_000;
/// Bytes of a Pod without a context in the cache.
const POD_BYTES: u64 = 64;
/// Most bytes of the cache.
const MAX_BYTES: u64 = CAPACITY as u64 * POD_BYTES;
/// Pods in the cache that do not wait any more.
const MAX_LEFT: usize = 8_000;
/// How long they are known, unless lifecycles are followed: attempts end a little after their Pods leave.
const LEFT_FOR: Duration = Duration::from_secs(120);
/// Selects Pods without a Node.
const UNASSIGNED: &str = "spec.nodeName=";
/// Consecutive failures after which the API server counts as down: a single one is a restart or a cut connection, and shorter
/// than the wait of an attempt.
const DOWN: u32 = 2;
/// Stands for a wait without end.
const FOREVER: Duration = Duration::from_secs(1 << 32);
/// Why Pods cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no way to the API server.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// A key of an annotation, or a member of baggage, is not valid.
    #[error("{0}")]
    Key(String),
}

/// The trace contexts of Pods, kept up to date by a background task. Clones are handles of the same cache.
#[derive(Clone, Debug)]
pub struct PodContexts(Arc<Shared>);

struct Shared {
    pods: Cache<Key, Entry, Weight>,
    /// Those that do not wait any more, in the order in which they left, and when: seconds since [`Shared::began`].
    left: Mutex<VecDeque<(Key, u32)>>,
    /// Lifecycles are followed, which end minutes later.
    follows: AtomicBool,
    began: Instant,
    keys: (u64, u64),
    carriers: Carriers,
    /// Names of attributes for the selected members of baggage.
    members: Vec<&'static str>,
    selectors: Vec<Selector>,
    mode: Mode,
    /// Set if owners are enabled and an API server is known.
    owners: OnceLock<Owners>,
    /// The Pods without a Node, if they are asked for.
    pending: Option<Mutex<PendingPods>>,
    /// Warnings that are logged already: keys of annotations, and kinds of owners.
    logged: Mutex<HashSet<String>>,
    /// Whether all Pods without a Node have been listed once.
    listed: AtomicBool,
    /// Wakes waiting lookups: a Pod came, the list is complete, or the API server is down.
    changed: Notify,
    /// Consecutive failures of the watch.
    failures: AtomicU32,
    metrics: Metrics,
    /// The client for requests beside the watch, and the URL of the API server.
    client: OnceLock<(Client, String)>,
    /// Somebody asks for the Pods.
    needed: SetOnce<()>,
}

/// A keyed hash of a UID: 16 bytes whatever the UID is, and collisions cannot be chosen. As two words: the alignment of one would
/// cost each Pod 16 bytes.
type Key = (u64, u64);

/// A Pod in the cache.
#[derive(Clone, Debug, Default)]
struct Entry {
    known: Option<Arc<Known>>,
    terms: Terms,
}

/// What is known of a Pod beside its terms. Most Pods have none of it.
#[derive(Debug)]
struct Known {
    found: Recovered,
    /// Whether it has the annotation [`annotations::TRACEPARENT_KEY`], valid or not.
    annotated: bool,
    owner: Option<Arc<Owner>>,
    selected: u64,
}

/// Approximate size of an entry, in bytes.
#[derive(Clone)]
struct Weight;

impl Weighter<Key, Entry> for Weight {
    fn weight(&self, _: &Key, entry: &Entry) -> u64 {
        let bytes = entry.known.as_ref().map_or(0, |known| {
            let Recovered { causes, baggage, initial } = &known.found;
            let states: usize = causes.iter().map(|cause| cause.context.trace_state.len()).sum();
            let values: usize =
                baggage.iter().map(|(_, value)| size_of::<(u8, String)>() + value.len()).sum();
            size_of::<Known>()
                + size_of_val(&**causes)
                + states
                + values
                + initial.as_deref().map_or(0, str::len)
        });
        POD_BYTES + bytes as u64
    }
}

impl PodContexts {
    /// Starts the watch within a tokio runtime, and returns at once.
    ///
    /// Without a kubeconfig it uses `KUBECONFIG`, `~/.kube/config` or the service account. Without any of these it logs that once,
    /// and knows no Pod. It watches from [`PodContexts::need`] on, and retries an API server that does not answer. With `pending` it
    /// reads whole Pods, for [`PodContexts::pending`].
    ///
    /// # Errors
    ///
    /// When the given kubeconfig cannot be used, or a key is not valid.
    pub async fn start(
        options: &Options,
        selectors: Vec<Selector>,
        pending: bool,
        metrics: Metrics,
    ) -> Result<Self, Error> {
        let carriers = options.carriers().map_err(Error::Key)?;
        let server = match api::client(options.kubeconfig.clone()).await {
            Ok(server) => Some(server),
            Err(error @ (api::Error::NoServer(_) | api::Error::Client { .. })) => {
                warn!("{error}; without, spans get no links");
                None
            }
            Err(error @ api::Error::Kubeconfig { .. }) => return Err(error.into()),
        };
        let hasher = RandomState::new();
        // Leaks once per process, as many strings as there are arguments.
        let members = carriers.baggage().iter().map(|name| &*name.clone().leak()).collect();
        let whole =
            pending || selectors.iter().any(|selector| matches!(selector, Selector::PriorityClass(_)));
        metrics.set_watch_up(true);
        let shared = Arc::new(Shared {
            pods: Cache::with_weighter(CAPACITY, MAX_BYTES, Weight),
            // It has all its room from the start, which costs memory only where it is used: growing, it would take room for twice as many.
            left: Mutex::new(VecDeque::with_capacity(MAX_LEFT + 1)),
            follows: AtomicBool::new(false),
            began: Instant::now(),
            keys: (hasher.hash_one(0), hasher.hash_one(1)),
            carriers,
            members,
            selectors,
            mode: options.context_mode,
            owners: OnceLock::new(),
            pending: pending.then(Mutex::default),
            logged: Mutex::default(),
            listed: AtomicBool::new(false),
            changed: Notify::new(),
            failures: AtomicU32::new(if server.is_some() { 0 } else { DOWN }),
            metrics,
            client: OnceLock::new(),
            needed: SetOnce::new(),
        });
        if let Some((client, url)) = server {
            if options.context_owners {
                let owners = Owners::new(client.clone(), shared.carriers.clone());
                shared.owners.get_or_init(|| owners);
            }
            let _of_new = shared.client.set((client.clone(), url.clone()));
            let client = reporting(client, &shared);
            let shared = Arc::clone(&shared);
            drop(tokio::spawn(async move {
                shared.needed.wait().await;
                if whole {
                    watch::<true>(client, url, shared).await;
                } else {
                    watch::<false>(client, url, shared).await;
                }
            }));
        }
        Ok(Self(shared))
    }

    /// Starts the watch, unless it runs. A daemon beside a kubelet alone needs none, and the API server of a large cluster could not
    /// serve one to each node.
    pub fn need(&self) {
        if self.0.needed.set(()).is_ok() {
            self.0.metrics.set_watch_up(false);
        }
    }

    /// Waits for [`PodContexts::need`].
    pub(crate) async fn needed(&self) {
        self.0.needed.wait().await;
    }

    /// Waits for the first list of Pods, at most `wait`, and not for an API server that does not answer.
    ///
    /// A Pod that is bound before the list is never seen, so tracing begins after it.
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

    /// Looks up the origin of a Pod, and counts the result.
    ///
    /// Returns at once if the Pod is known or the API server is down. Otherwise it waits for the watch, and for the Pod's owner if
    /// necessary, at most `wait`.
    pub async fn lookup(&self, uid: &str, wait: Duration) -> Origin {
        let (origin, result) = self.find(uid, wait).await;
        self.0.metrics.looked_up(result);
        origin
    }

    /// The same without counting, for a further lookup of the same Pod.
    pub async fn origin(&self, uid: &str, wait: Duration) -> Origin {
        self.find(uid, wait).await.0
    }

    /// All Pods without a Node; `None` if they were not asked for, were not listed yet, are too many, or the API server does
    /// not answer.
    #[must_use]
    pub fn pending(&self) -> Option<Vec<Arc<Pending>>> {
        let shared = &*self.0;
        let answers = shared.listed.load(Ordering::Relaxed) && shared.failures.load(Ordering::Relaxed) == 0;
        let pending = shared.pending.as_ref().filter(|_| answers)?;
        pending.lock().unwrap_or_else(PoisonError::into_inner).all()
    }

    /// A client of the API server, and its URL.
    pub(crate) fn client(&self) -> Option<(Client, String)> {
        self.0.client.get().cloned()
    }

    /// Pods are asked for until their lifecycles end.
    pub(crate) fn follow(&self) {
        self.0.follows.store(true, Ordering::Relaxed);
    }

    /// Adds a Pod that the watch does not see because it has a Node.
    pub(crate) fn learn(&self, metadata: &ObjectMeta, priority_class: Option<&str>) {
        self.0.learn(metadata, priority_class, None);
        self.0.leaves(metadata, Instant::now());
        self.0.changed.notify_waiters();
    }

    async fn find(&self, uid: &str, wait: Duration) -> (Origin, Lookup) {
        // A very long wait would overflow the deadline.
        let deadline = Instant::now().checked_add(wait).unwrap_or_else(|| Instant::now() + FOREVER);
        let shared = &*self.0;
        let Ok(Some(Entry { known, terms })) = timeout_at(deadline, shared.known(uid)).await else {
            // Where the API server is silent, nothing speaks against the Pod.
            let answers =
                shared.listed.load(Ordering::Relaxed) && shared.failures.load(Ordering::Relaxed) == 0;
            let attributes =
                answers.then_some((attributes::UNVERIFIED, AttributeValue::Bool(true))).into_iter().collect();
            return (Origin { attributes, ..Origin::default() }, Lookup::Unknown);
        };
        let Some(known) = known else {
            let attributes = terms.attribute().into_iter().collect();
            return (Origin { attributes, selected: Some(0), ..Origin::default() }, Lookup::None);
        };
        let answer = match (&known.owner, shared.owners.get()) {
            (Some(owner), Some(owners)) => {
                timeout_at(deadline, owners.nearest(shared, owner)).await.ok().flatten()
            }
            _ => None,
        };
        let (found, owner) = match &answer {
            Some(Nearest { owner, found }) => (&**found, Some(owner)),
            None => (&known.found, None),
        };
        let result = match (found.causes.is_empty(), owner) {
            (true, _) => Lookup::None,
            (false, None) => Lookup::Found,
            (false, Some(_)) => Lookup::Owner,
        };
        let origin = shared.origin(found, owner);
        // `initial` is always the Pod's own.
        let initial = known.found.initial.as_deref().map(|initial| (attributes::INITIAL, initial.into()));
        let attributes = origin.attributes.into_iter().chain(initial).chain(terms.attribute()).collect();
        (Origin { attributes, selected: Some(known.selected), ..origin }, result)
    }

    /// Whether a Pod has KEP-5915's annotation, valid or not; `None` where the Pod was not seen.
    pub(crate) fn annotated(&self, uid: &str) -> Option<bool> {
        let Entry { known, terms: _ } = self.0.pods.get(&self.0.key(uid))?;
        Some(known.is_some_and(|known| known.annotated))
    }
}

impl Shared {
    fn key(&self, uid: &str) -> Key {
        let hash = SipHasher13::new_with_keys(self.keys.0, self.keys.1).hash(uid.as_bytes());
        (hash.h1, hash.h2)
    }

    async fn known(&self, uid: &str) -> Option<Entry> {
        let key = self.key(uid);
        loop {
            // Subscribed before the lookup, so that no change in between is missed.
            let changed = self.changed.notified();
            if let Some(entry) = self.pods.get(&key) {
                return Some(entry);
            }
            if self.failures.load(Ordering::Relaxed) >= DOWN {
                return None;
            }
            changed.await;
        }
    }

    fn origin(&self, found: &Recovered, owner: Option<&String>) -> Origin {
        let cause = |cause: &annotations::Cause| {
            let annotation = self.carriers.key(cause);
            let relation = Relation::Cause { annotation, owner: owner.cloned() };
            Link { context: cause.context.clone(), relation }
        };
        let member =
            |(index, value): &(u8, String)| (self.members[usize::from(*index)], value.as_str().into());
        Origin {
            causes: found.causes.iter().map(cause).collect(),
            parent: self.mode == Mode::Parent,
            attributes: found.baggage.iter().map(member).collect(),
            selected: None,
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

    /// Adds a Pod to the cache, or replaces it; the caller wakes lookups. Who does not know its terms leaves those that are known.
    fn learn(&self, metadata: &ObjectMeta, priority_class: Option<&str>, terms: Option<Terms>) {
        let Some(uid) = &metadata.uid else { return };
        let key = self.key(uid);
        let none = BTreeMap::new();
        let (found, refused) = self.carriers.recover(metadata.annotations.as_ref().unwrap_or(&none));
        let before = self.pods.get(&key);
        // A known Pod was reported when it came.
        if before.is_none() {
            for refused in refused {
                let [namespace, name] =
                    [&metadata.namespace, &metadata.name].map(|text| text.as_deref().unwrap_or_default());
                self.refuse(&refused, || format!("the Pod {namespace}/{name}"));
            }
        }
        let selected = self.selectors.iter().enumerate();
        let holds = |selector: &Selector| u64::from(pod::selected(selector, metadata, priority_class));
        let selected = selected.map(|(bit, selector)| holds(selector) << bit).sum();
        let owners = self.owners.get().filter(|_| found.causes.is_empty());
        let owner = owners.and_then(|owners| owners.of(self, metadata));
        let all = metadata.annotations.as_ref();
        let annotated = all.is_some_and(|all| all.contains_key(annotations::TRACEPARENT_KEY));
        let known = (found != Recovered::default() || annotated || owner.is_some() || selected != 0)
            .then(|| Arc::new(Known { found, annotated, owner, selected }));
        let terms = terms.or(before.map(|before| before.terms)).unwrap_or_default();
        self.pods.insert(key, Entry { known, terms });
    }

    /// A Pod does not wait any more.
    fn leaves(&self, metadata: &ObjectMeta, now: Instant) {
        let Some(uid) = &metadata.uid else { return };
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let now = u32::try_from(now.saturating_duration_since(self.began).as_secs()).unwrap_or(u32::MAX);
        left.push_back((self.key(uid), now));
        let ends = !self.follows.load(Ordering::Relaxed);
        let over = |since| ends && u64::from(now.saturating_sub(since)) > LEFT_FOR.as_secs();
        while let Some((oldest, since)) = left.front()
            && (left.len() > MAX_LEFT || over(*since))
        {
            self.pods.remove(oldest);
            left.pop_front();
        }
    }

    /// Counts a refused annotation, and logs the first one of each key.
    fn refuse(&self, refused: &Refused, whose: impl FnOnce() -> String) {
        let Refused { key, value, reason } = refused;
        self.metrics.refused(*reason);
        if self.log_once(key) {
            let (whose, reason) = (whose(), reason.label());
            warn!("{whose} has no valid trace context in `{key}`: {value:?} ({reason}); logged once a key");
        }
    }

    fn cannot_ask(&self, plural: &str, error: &kube::Error) {
        if self.log_once(plural) {
            // The client's message would contain the whole response.
            let why = match error {
                kube::Error::Api(status) => status.message.clone(),
                error => sentence(error),
            };
            warn!(
                "cannot get {plural}, so their Pods get no links through them: {why}; check that `get` of {plural} is \
                 granted, as `context.owners` of the chart does; logged once"
            );
        }
    }

    fn with_pending<T>(&self, work: impl FnOnce(&mut PendingPods) -> T) -> Option<T> {
        let pending = self.pending.as_ref()?;
        Some(work(&mut pending.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn log_once(&self, what: &str) -> bool {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("pods", &self.pods.len()).finish_non_exhaustive()
    }
}

/// Requests one Pod of the API server, and returns the server's URL.
///
/// # Errors
///
/// When no API server is known, or it does not answer or refuses. The message says in one line what to do.
pub async fn try_once(kubeconfig: Option<PathBuf>) -> Result<String, String> {
    let mut config = api::config(kubeconfig).await.map_err(|error| error.to_string())?;
    config.read_timeout = Some(api::CONNECT_TIMEOUT);
    let url = config.cluster_url.to_string();
    let client = api::connect(config).map_err(|error| error.to_string())?;
    let one = ListParams::default().limit(1).fields(UNASSIGNED);
    match Api::<Pod<false>>::all(client).list_metadata(&one).await {
        Ok(_) => Ok(url),
        Err(error) => Err(format!(
            "{url}: {}; check that the API server runs and that `list` and `watch` of pods are granted",
            sentence(&error)
        )),
    }
}

/// The client of the watch alone: its responses show whether contexts can be looked up.
fn reporting(client: Client, shared: &Arc<Shared>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let shared = Arc::clone(shared);
    // The watcher reports failures and Pods, but not that a broken watch works again.
    let service = service_fn(move |request| {
        let (client, shared) = (client.clone(), Arc::clone(&shared));
        async move {
            let response = client.send(request).await?;
            if response.status().is_success() {
                shared.answered();
            }
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, namespace)
}

/// Watches for ever. Lists in pages and then watches, which every API server supports; one without the feature gate of the
/// streaming list would refuse that.
async fn watch<const WHOLE: bool>(client: Client, url: String, shared: Arc<Shared>) {
    let pods = Api::<Pod<WHOLE>>::all(client);
    let events = api::watch(pods, Some(UNASSIGNED));
    pin_mut!(events);
    loop {
        // Lookups are woken once for all events that have come.
        let event = match events.next().now_or_never() {
            Some(event) => event,
            None => {
                shared.changed.notify_waiters();
                events.next().await
            }
        };
        let Some(event) = event else { return };
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                shared.learn(pod.meta(), pod.priority_class(), Some(pod.terms()));
                let has_room = shared.with_pending(|pending| pending.seen(&pod)).unwrap_or(true);
                if !has_room {
                    shared.metrics.lost(Loss::PendingFull);
                }
            }
            // A Pod that gets its Node leaves the selector, as a deletion that has the Pod as it was before: nothing new, unless the Pod is
            // so quick that it is seen only then.
            // <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go>,
            // `convertToWatchEvent`
            Ok(Event::Delete(pod)) => {
                let is_known = shared.with_pending(|pending| pending.gone(&pod)).unwrap_or(false);
                if !is_known {
                    shared.learn(pod.meta(), pod.priority_class(), Some(pod.terms()));
                }
                shared.leaves(pod.meta(), Instant::now());
            }
            Ok(Event::InitDone) => {
                shared.with_pending(PendingPods::list_ends);
                shared.listed.store(true, Ordering::Relaxed);
                shared.changed.notify_waiters();
            }
            Ok(Event::Init) => drop(shared.with_pending(PendingPods::list_begins)),
            Err(error) => shared.failed(&url, &error),
        }
    }
}

#[cfg(test)]
mod tests;
