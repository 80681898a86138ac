//! Puts together what is known of each Pod, and says which schedulers stand still.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use spans::{Condition, Pending};

use super::{
    Look,
    model::{Entry, Model, Place, Process},
    wakes,
};
use crate::explain::rejecting_plugins;

/// Version of the JSON schema. Changes when a field is removed or changes its meaning, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;
/// Pods in an answer.
const MAX_PODS: usize = 10_000;
/// A scheduler stands still if it has taken nothing for this time from a queue that is not empty. A slow attempt with a
/// thousand Nodes takes a second.
const STANDS_STILL_US: u64 = 15_000_000;
/// The time that the watch of Pods may be behind the scheduler.
const BEHIND_US: u64 = 5_000_000;
/// A Pod that the scheduler has not counted as active after this time is gated (up to 1.32).
const COUNTED_AFTER_US: u64 = 1_000_000;
/// The plugin that gates Pods with `spec.schedulingGates`.
const GATES: &str = "SchedulingGates";
/// The plugin that gates Pods of a group until it is complete (1.35 and later).
const GANG: &str = "GangScheduling";
/// The condition's reason of a Pod with scheduling gates.
const GATED: &str = "SchedulingGated";

/// Where all Pods without a Node wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Time of the answer by the daemon's clock, microseconds since the Unix epoch; so are all times.
    pub now_unix_us: u64,
    /// Whether the API server says which Pods there are. If not, deleted Pods may be among these, and others may be missing.
    pub api: bool,
    /// The traced schedulers.
    pub schedulers: Vec<Scheduler>,
    /// The Pods, by reason and then by name.
    pub pods: Vec<Waiting>,
    /// Number of Pods that are left out because there are too many.
    pub left_out: u64,
}

/// A traced scheduler process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scheduler {
    /// Its process id on its node.
    pub pid: u32,
    /// The profiles that it is known to have.
    pub profiles: Vec<String>,
    /// Number of Pods and groups that it took from its queue since it was traced.
    pub taken: u64,
    /// When it took the last one.
    pub last_taken_unix_us: Option<u64>,
    /// Namespace and name of the last one.
    pub last_taken: String,
    /// Set if it stands still.
    pub stall: Option<Stall>,
}

/// A scheduler takes nothing from a queue that is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stall {
    /// Since when.
    pub since_unix_us: u64,
    /// Number of Pods that wait for it.
    pub pods: u64,
    /// How many of these have not even entered its queue, as far as it was seen.
    pub not_queued: u64,
}

/// A Pod that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub pod: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `spec.schedulerName`; empty if it is not known.
    pub profile: String,
    /// The scheduler process in whose queue it is.
    pub pid: Option<u32>,
    /// Why it is not tried.
    pub reason: Reason,
    /// Since when.
    pub since_unix_us: Option<u64>,
    /// When its backoff ends.
    pub until_unix_us: Option<u64>,
    /// `until_unix_us` was read from the scheduler; else it is computed from the default configuration.
    pub until_is_exact: bool,
    /// The plugins that rejected or gate it.
    pub plugins: Vec<String>,
    /// Its scheduling gates.
    pub gates: Vec<String>,
    /// The group that it belongs to.
    pub group: Option<String>,
    /// The message of its last failure.
    pub message: String,
    /// Number of attempts.
    pub attempts: Option<u64>,
    /// When the last failed attempt ended, or was first reported.
    pub failed_unix_us: Option<u64>,
    /// The event that moved it where it is, as in the scheduler's metric `queue_incoming_pods_total`.
    pub event: String,
    /// What would wake it, by plugin.
    pub wakes: Vec<Wake>,
    /// Where this knowledge comes from.
    pub from: From,
}

/// Why a Pod is not tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// It is ready, and waits for its turn.
    Active,
    /// It is being tried, or bound.
    Trying,
    /// Its last attempt failed, and it waits until a time.
    Backoff,
    /// Plugins rejected it, and it waits for an event.
    Unschedulable,
    /// Its last attempt failed, and the queue that it is in was not seen.
    Failed,
    /// A `PreEnqueue` plugin does not let it into the queue.
    Gated,
    /// Its group is not complete.
    Group,
    /// It has had no attempt, and was not seen in a queue.
    #[default]
    Unseen,
    /// No traced scheduler has its profile.
    Foreign,
}

/// Where the knowledge of a Pod comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum From {
    /// The moves in the scheduler's queue, and its attempts.
    Scheduler,
    /// These, and the Pod's object.
    Both,
    /// The Pod's object only: it was in the queue before it was traced, or is not in one.
    #[default]
    Api,
}

/// What would wake a Pod that a plugin rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    /// Name of the plugin.
    pub plugin: String,
    /// The events that it waits for; empty if these are not known.
    pub events: Vec<String>,
}

impl Waiting {
    /// What it is sorted by.
    fn place(&self) -> (Reason, String, String, String) {
        (self.reason, self.namespace.clone(), self.pod.clone(), self.uid.clone())
    }
}

impl Reason {
    /// All reasons, in the order of an answer.
    pub const ALL: [Self; 9] = [
        Self::Active,
        Self::Trying,
        Self::Backoff,
        Self::Unschedulable,
        Self::Failed,
        Self::Gated,
        Self::Group,
        Self::Unseen,
        Self::Foreign,
    ];
}

/// The clock of moves, and now.
#[derive(Clone, Copy)]
struct Time {
    now_unix_us: u64,
    unix_ns_at_zero: u64,
}

impl Time {
    fn unix_us(self, monotonic_ns: u64) -> u64 {
        self.unix_ns_at_zero.saturating_add(monotonic_ns) / 1_000
    }

    /// Microseconds since a move.
    fn age_us(self, monotonic_ns: u64) -> u64 {
        self.now_unix_us.saturating_sub(self.unix_us(monotonic_ns))
    }
}

impl Answer {
    /// See [`Queues::answer`](super::Queues::answer).
    pub(super) fn of(model: &mut Model, now_unix_us: u64, pending: Option<&[Arc<Pending>]>) -> Self {
        let known = Known::of(model, now_unix_us, pending);
        let seen = known
            .seen
            .iter()
            .map(|(uid, (process, entry))| of_entry(uid, process, entry, known.object(uid), known.time));
        let objects = known.others().map(|pod| of_object(pod, &known.profiles));
        let mut pods: Vec<Waiting> = seen.chain(objects).collect();
        pods.sort_by_cached_key(Waiting::place);
        let left_out = pods.len().saturating_sub(MAX_PODS) as u64;
        pods.truncate(MAX_PODS);
        Self { pods, left_out, ..known.without_pods() }
    }

    /// See [`Queues::look`](super::Queues::look).
    pub(super) fn look(model: &mut Model, now_unix_us: u64, pending: Option<&[Arc<Pending>]>) -> Look {
        let known = Known::of(model, now_unix_us, pending);
        let seen = known.seen.iter().map(|(uid, (process, entry))| {
            let (reason, _gate) = reason(process, entry, known.object(uid), known.time);
            reason
        });
        let objects = known.others().map(|pod| reason_of_object(pod, &known.profiles));
        let mut counts = BTreeMap::new();
        for reason in seen.chain(objects) {
            *counts.entry(reason).or_default() += 1;
        }
        Look { answer: known.without_pods(), counts }
    }

    /// One answer of those of several daemons, or `None` without any: that of the scheduler which takes Pods, and what only others know.
    #[must_use]
    pub fn merged(mut answers: Vec<Self>) -> Option<Self> {
        answers.sort_by_key(|answer| {
            answer.schedulers.iter().fold(0_u64, |sum, scheduler| sum.saturating_add(scheduler.taken))
        });
        let mut all = answers.pop()?;
        for other in answers {
            all.schedulers.extend(other.schedulers);
            let mut known: HashMap<String, Waiting> =
                other.pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
            // Another node's scheduler may have the profile.
            for pod in all.pods.iter_mut().filter(|pod| pod.reason == Reason::Foreign) {
                if let Some(other) = known.remove(&pod.uid).filter(|other| other.reason != Reason::Foreign) {
                    *pod = other;
                }
            }
        }
        all.pods.sort_by_cached_key(Waiting::place);
        Some(all)
    }

    /// The Pods of a namespace, or all; and of a name, or all.
    #[must_use]
    pub fn only(mut self, namespace: Option<&str>, pod: Option<&str>) -> Self {
        self.pods.retain(|waiting| {
            namespace.is_none_or(|namespace| waiting.namespace == namespace)
                && pod.is_none_or(|pod| waiting.pod == pod)
        });
        self
    }

    /// Number of Pods by reason, without those that have none.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Reason, usize> {
        let mut counts = BTreeMap::new();
        for pod in &self.pods {
            *counts.entry(pod.reason).or_default() += 1;
        }
        counts
    }

    /// The schedulers that stand still.
    pub fn stalls(&self) -> impl Iterator<Item = (&Scheduler, &Stall)> {
        self.schedulers.iter().filter_map(|scheduler| Some((scheduler, scheduler.stall.as_ref()?)))
    }

    /// Seconds for which the scheduler that has stood still for longest does; 0 if none does.
    #[must_use]
    pub fn stalled_seconds(&self) -> u64 {
        let since = self.stalls().map(|(_, stall)| stall.since_unix_us).min();
        since.map_or(0, |since| self.now_unix_us.saturating_sub(since) / 1_000_000)
    }
}

/// What is known of all Pods that wait.
struct Known<'a> {
    model: &'a Model,
    time: Time,
    pending: Option<&'a [Arc<Pending>]>,
    by_uid: Option<HashMap<&'a str, &'a Pending>>,
    /// The Pods that were seen in a queue.
    seen: HashMap<&'a str, (&'a Process, &'a Entry)>,
    profiles: HashSet<&'a str>,
}

impl<'a> Known<'a> {
    fn of(model: &'a mut Model, now_unix_us: u64, pending: Option<&'a [Arc<Pending>]>) -> Self {
        let time = Time { now_unix_us, unix_ns_at_zero: model.clocks.unix_ns_at_zero };
        let by_uid: Option<HashMap<&str, &Pending>> =
            pending.map(|pods| pods.iter().map(|pod| (&*pod.uid, &**pod)).collect());
        if let Some(by_uid) = &by_uid {
            forget(model, by_uid, time);
        }
        let model = &*model;
        // The newest word on a Pod counts: of several schedulers, one may stand by.
        let mut seen: HashMap<&str, (&Process, &Entry)> = HashMap::new();
        for process in model.processes.values() {
            for (uid, entry) in &process.pods {
                let rank = |process: &Process, entry: &Entry| {
                    (process.last_taken.as_ref().map(|(time_ns, _)| *time_ns), entry.seen_ns, process.pid)
                };
                let newer = seen.get(&**uid).is_none_or(|(of, other)| rank(process, entry) > rank(of, other));
                if newer {
                    seen.insert(uid, (process, entry));
                }
            }
        }
        let profiles = model
            .processes
            .values()
            .flat_map(|process| process.profiles.iter().map(String::as_str))
            .collect();
        Self { model, time, pending, by_uid, seen, profiles }
    }

    /// What the API server says of a Pod.
    fn object(&self, uid: &str) -> Option<&'a Pending> {
        self.by_uid.as_ref().and_then(|by_uid| by_uid.get(uid).copied())
    }

    /// The Pods that were not seen in a queue.
    fn others(&self) -> impl Iterator<Item = &'a Pending> {
        self.pending.into_iter().flatten().map(|pod| &**pod).filter(|pod| !self.seen.contains_key(&*pod.uid))
    }

    fn without_pods(&self) -> Answer {
        let Self { model, time, pending, by_uid, seen, profiles: _ } = self;
        let mut schedulers: Vec<_> = model
            .processes
            .values()
            .map(|process| Scheduler {
                pid: process.pid,
                profiles: process.profiles.iter().cloned().collect(),
                taken: process.taken,
                last_taken_unix_us: process.last_taken.as_ref().map(|(time_ns, _)| time.unix_us(*time_ns)),
                last_taken: process.last_taken.as_ref().map(|(_, name)| name.clone()).unwrap_or_default(),
                stall: stall(process, by_uid.as_ref(), |uid| seen.contains_key(uid), *time),
            })
            .collect();
        schedulers.sort_by_key(|scheduler| scheduler.pid);
        Answer {
            schema_version: SCHEMA_VERSION,
            now_unix_us: time.now_unix_us,
            api: pending.is_some(),
            schedulers,
            pods: Vec::new(),
            left_out: 0,
        }
    }
}

/// Forgets Pods that the API server does not have without a Node, and takes what it says of their profiles.
fn forget(model: &mut Model, by_uid: &HashMap<&str, &Pending>, time: Time) {
    for process in model.processes.values_mut() {
        let (mut profiles, mut stands_by) = (HashSet::new(), false);
        process.pods.retain(|uid, entry| {
            let object = by_uid.get(&**uid);
            if let Some(object) = object {
                profiles.insert(Arc::clone(&object.scheduler));
                entry.profile = Some(Arc::clone(&object.scheduler));
            }
            let gone = object.is_none() && time.age_us(entry.seen_ns) > BEHIND_US;
            let waits = entry.place == Place::Active && entry.failure.is_none();
            // Another process has tried it, or bound it.
            stands_by |= waits && (gone || object.is_some_and(|object| failure(object).is_some()));
            !gone
        });
        profiles.iter().for_each(|profile| process.has_profile(profile));
        process.stands_by |= stands_by && process.last_taken.is_none();
    }
}

/// What a scheduler has reported if it could not schedule a Pod.
fn failure(pod: &Pending) -> Option<&Condition> {
    pod.condition.as_ref().filter(|condition| &*condition.reason != GATED)
}

/// Whether a scheduler takes nothing from a queue that is not empty.
fn stall(
    process: &Process,
    by_uid: Option<&HashMap<&str, &Pending>>,
    is_known: impl Fn(&str) -> bool,
    time: Time,
) -> Option<Stall> {
    let began = process.last_taken.is_some();
    // A scheduler that stands by fills its queue as well. Only the API server says whether another scheduler takes from it.
    if !began && (process.stands_by || by_uid.is_none()) {
        return None;
    }
    let mut since = Vec::new();
    for (uid, entry) in &process.pods {
        if !waits_for_turn(process, entry, time) || entry.doubtful {
            continue;
        }
        if let Some(by_uid) = by_uid {
            match by_uid.get(&**uid) {
                Some(object) if began || failure(object).is_none() => {}
                Some(_) | None => continue,
            }
        }
        since.push(time.unix_us(entry.since_ns));
    }
    let queued = since.len();
    for pod in by_uid.into_iter().flat_map(HashMap::values) {
        let ready = pod.gates.is_empty() && pod.condition.is_none() && pod.group.is_none();
        if ready && process.profiles.contains(&*pod.scheduler) && !is_known(&pod.uid) {
            since.push(pod.created_unix_us);
        }
    }
    let first = since.iter().copied().min()?;
    let last_taken = process.last_taken.as_ref().map_or(0, |(time_ns, _)| time.unix_us(*time_ns));
    let since_unix_us = first.max(last_taken);
    let stands_still = time.now_unix_us.saturating_sub(since_unix_us) >= STANDS_STILL_US;
    let pods = since.len() as u64;
    stands_still.then(|| Stall { since_unix_us, pods, not_queued: pods - queued as u64 })
}

/// Whether a Pod is in the active queue. Up to 1.32 it may have been on its way there, and gated.
fn waits_for_turn(process: &Process, entry: &Entry, time: Time) -> bool {
    entry.place == Place::Active && !is_held_back(process, entry, time)
}

fn is_held_back(process: &Process, entry: &Entry, time: Time) -> bool {
    process.counts_moves
        && entry.place == Place::Active
        && !(entry.counted || entry.doubtful)
        && time.age_us(entry.since_ns) > COUNTED_AFTER_US
}

/// Why a Pod that was seen in a queue is not tried, and the plugin that gates it, if one does and is known.
fn reason<'a>(
    process: &Process,
    entry: &'a Entry,
    object: Option<&Pending>,
    time: Time,
) -> (Reason, Option<&'a str>) {
    let is_gated = entry.place == Place::Gated || is_held_back(process, entry, time);
    let gate = match &entry.gate {
        Some(gate) => Some(&**gate),
        // Up to 1.33 the scheduler does not keep which plugin it is.
        None if is_gated => object.filter(|object| !object.gates.is_empty()).map(|_| GATES),
        None => None,
    };
    let reason = match entry.place {
        _ if is_gated && gate == Some(GANG) => Reason::Group,
        _ if is_gated => Reason::Gated,
        Place::Active | Place::Gated => Reason::Active,
        Place::Backoff => Reason::Backoff,
        Place::Unschedulable => Reason::Unschedulable,
        Place::Taken => Reason::Trying,
        Place::Unseen => Reason::Failed,
    };
    (reason, gate)
}

/// A Pod that was seen in a queue.
fn of_entry(uid: &str, process: &Process, entry: &Entry, object: Option<&Pending>, time: Time) -> Waiting {
    let (reason, gate) = reason(process, entry, object, time);
    let is_gated = matches!(reason, Reason::Gated | Reason::Group);
    let told = entry.failure.as_ref().map(|failure| &*failure.why);
    // An attempt before it was traced is known by the condition only.
    let said = object.and_then(failure);
    let message = match (told.map_or("", |told| &told.message), said) {
        ("", Some(condition)) => condition.message.to_string(),
        (message, _) => message.to_owned(),
    };
    let failed_before = entry.failure.is_some() || entry.attempts.is_some_and(|attempts| attempts > 0);
    let plugins = match told.filter(|told| !told.plugins.is_empty()) {
        _ if is_gated => gate.map(str::to_owned).into_iter().collect(),
        Some(told) => told.plugins.clone(),
        None => rejecting_plugins(&message),
    };
    let until = entry.backoff.filter(|_| reason == Reason::Backoff);
    let waits_for_event = is_gated || reason == Reason::Unschedulable;
    Waiting {
        namespace: entry.namespace.to_string(),
        pod: entry.name.to_string(),
        uid: uid.to_owned(),
        profile: entry.profile.as_deref().unwrap_or_default().to_owned(),
        pid: Some(process.pid),
        reason,
        since_unix_us: Some(time.unix_us(entry.since_ns)),
        until_unix_us: until.map(|until| until.until_unix_ns / 1_000),
        until_is_exact: until.is_some_and(|until| until.exact),
        wakes: if waits_for_event { wakes_of(&plugins) } else { Vec::new() },
        plugins,
        gates: object.map(|object| object.gates.clone()).unwrap_or_default(),
        group: object.and_then(|object| object.group.as_deref().map(str::to_owned)),
        message,
        attempts: entry.attempts,
        failed_unix_us: entry
            .failure
            .as_ref()
            .map(|failure| failure.unix_us)
            .or(said.filter(|_| failed_before).map(|condition| condition.since_unix_us)),
        event: entry.event.to_string(),
        from: if object.is_some() { From::Both } else { From::Scheduler },
    }
}

/// Why a Pod that is known by its object only is not tried.
fn reason_of_object(pod: &Pending, profiles: &HashSet<&str>) -> Reason {
    match failure(pod) {
        _ if !pod.gates.is_empty() => Reason::Gated,
        Some(_) => Reason::Failed,
        None if !profiles.contains(&*pod.scheduler) => Reason::Foreign,
        None if pod.group.is_some() => Reason::Group,
        None => Reason::Unseen,
    }
}

/// A Pod that is known by its object only.
fn of_object(pod: &Pending, profiles: &HashSet<&str>) -> Waiting {
    let Pending { uid, namespace, name, scheduler, created_unix_us, gates, group, condition: _ } = pod;
    let tried = failure(pod);
    let reason = reason_of_object(pod, profiles);
    let message = tried.map(|condition| condition.message.to_string()).unwrap_or_default();
    let plugins = match reason {
        Reason::Gated => vec![GATES.to_owned()],
        Reason::Failed => rejecting_plugins(&message),
        Reason::Active
        | Reason::Trying
        | Reason::Backoff
        | Reason::Unschedulable
        | Reason::Group
        | Reason::Unseen
        | Reason::Foreign => Vec::new(),
    };
    let since = tried.map_or(*created_unix_us, |condition| condition.since_unix_us);
    Waiting {
        namespace: namespace.to_string(),
        pod: name.to_string(),
        uid: uid.to_string(),
        profile: scheduler.to_string(),
        reason,
        since_unix_us: Some(since),
        wakes: wakes_of(&plugins),
        plugins,
        gates: gates.clone(),
        group: group.as_deref().map(str::to_owned),
        message,
        failed_unix_us: tried.map(|condition| condition.since_unix_us),
        from: From::Api,
        ..Waiting::default()
    }
}

fn wakes_of(plugins: &[String]) -> Vec<Wake> {
    let wake = |plugin: &String| Wake {
        plugin: plugin.clone(),
        events: wakes::of(plugin).into_iter().flatten().map(|event| (*event).to_owned()).collect(),
    };
    plugins.iter().map(wake).collect()
}
