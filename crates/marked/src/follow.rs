//! Pods that come of written objects, until they are Ready.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant, SystemTime},
};

use futures::{
    StreamExt as _,
    stream::{BoxStream, select_all},
};
use k8s_openapi::{
    api::{apps::v1::ReplicaSet, batch::v1::Job},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use pods::lifecycle::{Followed, Pod};
use serde::de::DeserializeOwned;
use serde_json::Value;
use spans::{
    screen,
    text::{clean, sentence},
};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    attempts::Attempts,
    proxy::Written,
    written::{Progress, State, carries, progress, state},
};

/// Interval of looks at the written objects.
const INTERVAL: Duration = Duration::from_millis(250);
/// Looks in a row that find the objects ready and the same number of Pods.
const ROUNDS: u32 = 1;
/// The same if there are no Pods, as of a Deployment of size 0.
const ROUNDS_WITHOUT_PODS: u32 = 8;
/// Longest wait for the attempts of Pods that are Ready: a daemon shows them a moment after their end.
const ATTEMPTS_TIME: Duration = Duration::from_secs(3);
/// Pods whose owners are looked up, and owners.
const MAX_KNOWN: usize = 10_000;

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Pods by namespace and name.
    pub pods: BTreeMap<String, Life>,
    /// Whether all are Ready.
    pub ready: bool,
    /// Whether anything that was written makes Pods.
    pub makes_pods: bool,
    /// Their lifecycles.
    pub followed: Followed,
    /// Whether there are more than can be followed.
    pub too_many: bool,
}

/// The way of a Pod to Ready.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its UID.
    pub uid: String,
    /// Its state.
    pub state: State,
    /// Its Node.
    pub node: Option<String>,
    /// Why it is Pending, by the scheduler.
    pub message: Option<String>,
    /// Whether it carries the trace in an annotation.
    pub carries: bool,
}

/// Why Pods cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] kube::Error),
    /// Pods cannot be watched.
    #[error(
        "cannot watch Pods of namespace {namespace}: {reason}; check that `list` and `watch` of pods are granted"
    )]
    Watch {
        /// Their namespace.
        namespace: String,
        /// Why.
        reason: String,
    },
}

/// Follows what was written until its Pods are Ready, one of them has failed, or the time is over. Prints each step.
///
/// # Errors
///
/// When Pods cannot be watched.
pub async fn follow(
    client: &Client,
    written: &Written,
    trace_id: &str,
    attempts: &Attempts,
    time: Duration,
) -> Result<Outcome, Error> {
    let begin = written.since.unwrap_or_else(Instant::now);
    let (outcome, owners) = (Outcome::default(), Owners::default());
    let mut follower = Follower { client, written, trace_id, begin, owners, outcome };
    let mut open = BTreeSet::new();
    let mut events = select_all(Vec::<BoxStream<'static, (String, watcher::Result<Event<Pod>>)>>::new());
    let mut looks = interval(INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut rounds, mut last) = (0, None);
    loop {
        tokio::select! {
            // Pods first: what is known of them decides whether this is the end.
            biased;
            Some((namespace, event)) = events.next() => {
                follower.take(&namespace, event).await?;
                continue;
            }
            _ = looks.tick() => {}
        }
        let outcome = &mut follower.outcome;
        let mut ready = true;
        for object in &written.objects {
            match progress(&get(client, &object.path).await?) {
                Progress::None => continue,
                Progress::Waiting => ready = false,
                Progress::Ready => {}
            }
            outcome.makes_pods = true;
            if open.insert(&*object.namespace) {
                let pods: Api<Pod> = Api::namespaced(client.clone(), &object.namespace);
                let namespace = object.namespace.clone();
                let watch = watcher(pods, watcher::Config::default()).default_backoff();
                events.push(watch.map(move |event| (namespace.clone(), event)).boxed());
            }
        }
        let failed = outcome.pods.values().any(|life| life.state == State::Failed);
        // The watch may be behind the objects: the number of Pods has to stay the same for a while.
        let count = ready.then_some(outcome.pods.len());
        rounds = if count.is_some() && count == last { rounds + 1 } else { 0 };
        last = count;
        let settled = rounds >= if outcome.pods.is_empty() { ROUNDS_WITHOUT_PODS } else { ROUNDS };
        outcome.ready = settled && outcome.pods.values().all(|life| life.state.is_reached());
        let over = begin.elapsed() >= time;
        if !outcome.makes_pods || outcome.ready || failed || over {
            outcome.wait(attempts, if over { Duration::ZERO } else { ATTEMPTS_TIME }).await;
            return Ok(follower.outcome);
        }
    }
}

/// An object, or nothing if it is gone.
async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request(request).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
        answer => answer,
    }
}

/// Whether a Pod is not from before. The API server's times are whole seconds.
fn is_new(pod: &Pod, since: Option<SystemTime>) -> bool {
    let created = pod.meta().creation_timestamp.as_ref().map(|time| SystemTime::from(time.0));
    created.zip(since).is_none_or(|(created, since)| created >= since)
}

/// What is known of Pods and their owners, by UID.
#[derive(Default)]
struct Owners {
    /// Whether a Pod comes of a written object.
    pods: HashMap<String, bool>,
    /// The controller of a Pod's controller.
    above: HashMap<String, Option<String>>,
}

/// What Pods are followed with.
struct Follower<'a> {
    client: &'a Client,
    written: &'a Written,
    trace_id: &'a str,
    /// The first write.
    begin: Instant,
    owners: Owners,
    outcome: Outcome,
}

impl Follower<'_> {
    /// Takes an event of the watch.
    async fn take(&mut self, namespace: &str, event: watcher::Result<Event<Pod>>) -> Result<(), Error> {
        match event {
            Ok(Event::Init | Event::InitDone) => {}
            Ok(Event::InitApply(pod) | Event::Apply(pod)) => {
                let own = is_new(&pod, self.written.server_time)
                    && (carries(&pod, self.trace_id) || self.comes_of(&pod).await?);
                if own {
                    let now_ns = self.written.skew.unix_ns(SystemTime::now());
                    self.outcome.see(&pod, self.trace_id, self.begin.elapsed(), now_ns);
                }
            }
            Ok(Event::Delete(pod)) => {
                self.outcome.pods.remove(&key(&pod));
                let now_ns = self.written.skew.unix_ns(SystemTime::now());
                self.outcome.followed.gone(&pod.uid().unwrap_or_default(), now_ns);
            }
            Err(error) if is_final(&error) => {
                return Err(Error::Watch { namespace: namespace.to_owned(), reason: sentence(&error) });
            }
            // The watch begins again.
            Err(_) => {}
        }
        Ok(())
    }

    /// Whether a Pod is one of the written objects, or a controller among its owners is.
    async fn comes_of(&mut self, pod: &Pod) -> kube::Result<bool> {
        let Self { client, written, owners, .. } = self;
        let is_written = |uid: &str| written.objects.iter().any(|object| object.uid == uid);
        let uid = pod.uid().unwrap_or_default();
        if is_written(&uid) {
            return Ok(true);
        }
        if let Some(known) = owners.pods.get(&uid) {
            return Ok(*known);
        }
        let Some(owner) = pod.owner_references().iter().find(|owner| owner.controller == Some(true)) else {
            return Ok(false);
        };
        let comes = is_written(&owner.uid) || {
            let above = match owners.above.get(&owner.uid) {
                Some(above) => above.clone(),
                None => {
                    let namespace = pod.namespace().unwrap_or_default();
                    let above = match owner.kind.as_str() {
                        "ReplicaSet" => controller::<ReplicaSet>(client, &namespace, owner).await?,
                        "Job" => controller::<Job>(client, &namespace, owner).await?,
                        _ => None,
                    };
                    if owners.above.len() < MAX_KNOWN {
                        owners.above.insert(owner.uid.clone(), above.clone());
                    }
                    above
                }
            };
            above.is_some_and(|uid| is_written(&uid))
        };
        if owners.pods.len() < MAX_KNOWN {
            owners.pods.insert(uid, comes);
        }
        Ok(comes)
    }
}

/// UID of the controller of a Pod's controller.
async fn controller<K>(
    client: &Client,
    namespace: &str,
    owner: &OwnerReference,
) -> kube::Result<Option<String>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let object = Api::<K>::namespaced(client.clone(), namespace).get_metadata_opt(&owner.name).await?;
    let above = object.and_then(|object| {
        object
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid.clone())
    });
    Ok(above)
}

impl Outcome {
    /// Notes how far a Pod is, and prints it if that is news.
    fn see(&mut self, pod: &Pod, trace_id: &str, after: Duration, now_ns: u64) {
        if !self.followed.see(pod, now_ns) {
            self.too_many = true;
            return;
        }
        let name = key(pod);
        let node = pod.node().map(str::to_owned);
        let unscheduled = pod.condition("PodScheduled").filter(|(holds, _)| !holds);
        let message =
            unscheduled.map(|(_, message)| message.to_owned()).filter(|message| !message.is_empty());
        let uid = pod.uid().unwrap_or_default();
        let life = Life { uid, state: state(pod), node, message, carries: carries(pod, trace_id) };
        let news = self.pods.get(&name).is_none_or(|known| {
            known.state != life.state || (life.message.is_some() && life.message != known.message)
        });
        if news {
            screen::complain(&format!("{:>8.1} s  {}", after.as_secs_f64(), life.line(&clean(&name))));
        }
        self.pods.insert(name, life);
    }

    /// Waits for the attempts that bound the Pods.
    async fn wait(&self, attempts: &Attempts, time: Duration) {
        let deadline = Instant::now() + time;
        let lacks = || self.pods.values().any(|life| life.node.is_some() && !attempts.have_bound(&life.uid));
        while attempts.are_collected() && Instant::now() < deadline && lacks() {
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// How many Pods are Ready.
    #[must_use]
    pub fn result(&self) -> String {
        let (all, ready) =
            (self.pods.len(), self.pods.values().filter(|life| life.state.is_reached()).count());
        match all {
            1 if ready == 1 => "1 Pod is Ready".to_owned(),
            _ => format!("{ready} of {all} Pods are Ready"),
        }
    }
}

/// Namespace and name of a Pod.
fn key(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

/// Whether an error comes again: the user has not the right.
fn is_final(error: &watcher::Error) -> bool {
    let source = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error,
        watcher::Error::WatchError(status) => return [401, 403].contains(&status.code),
        watcher::Error::NoResourceVersion => return false,
    };
    matches!(source, kube::Error::Api(status) if [401, 403].contains(&status.code))
}

impl Life {
    fn line(&self, name: &str) -> String {
        let Self { uid: _, state, node, message, carries: _ } = self;
        let more = match state {
            State::Pending => message.as_deref().map(|message| format!(": {}", clean(message))),
            State::Scheduled => node.as_deref().map(|node| format!(" on {}", clean(node))),
            State::Running | State::Ready | State::Succeeded | State::Failed => None,
        };
        format!("{name} {}{}", state.word(), more.unwrap_or_default())
    }
}
