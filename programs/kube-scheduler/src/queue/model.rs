//! The Pods of each scheduler, by the moves that were seen.

use std::{collections::BTreeSet, sync::Arc};

use gotrace::{
    Role,
    governor::Cut,
    pipeline::Clocks,
    program::{Detail, Function as _},
    recording::Line,
};
use interned::Interner;
use spans::{Source, Trace, TraceKind, attributes, text::cut};

use crate::{
    Event, HashMap, KubeScheduler, Values,
    attempt::{POPPED_FROM_BACKOFF, moved},
    explain::Account,
    table::{Part, Stage},
    values::Value,
};

/// Pods that are kept, of all schedulers together: a Pod takes some 300 bytes. The scheduler's own documentation calls
/// 5,000 Pods in a queue many.
pub(super) const MAX_PODS: usize = 20_000;
/// Goroutines that are putting a Pod into a queue.
const MAX_MOVING: usize = 4_096;
/// Profiles of a scheduler.
const MAX_PROFILES: usize = 64;
/// Characters kept of the message of a failure.
const MAX_MESSAGE: usize = 512;
/// Rejecting plugins kept of a failure.
const MAX_PLUGINS: usize = 16;
/// A Pod whose attempt has not ended after twice the longest wait on Permit: its end was lost.
const LONGEST_ATTEMPT_NS: u64 = 30 * 60 * 1_000_000_000;
/// A Pod for whose attempt there may be no trace any more makes room for another one after this time.
const SHORT_ATTEMPT_NS: u64 = 60 * 1_000_000_000;
/// Between year 1, the zero of a `time.Time` without a monotonic reading, and 1970.
/// <https://github.com/golang/go/blob/go1.26.5/src/time/time.go#L504-L514>
const YEAR_1_TO_1970_S: u64 = (1969 * 365 + 1969 / 4 - 1969 / 100 + 1969 / 400) * 86_400;
/// 1970 to 2500: later is no backoff.
const LATEST_S: u64 = 530 * 366 * 86_400;
/// Defaults of `podInitialBackoffSeconds` and `podMaxBackoffSeconds`
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/backend/queue/scheduling_queue.go>,
/// `DefaultPodInitialBackoffDuration`).
const BACKOFF_S: (u64, u64) = (1, 10);
const NS_PER_S: u64 = 1_000_000_000;

/// All schedulers.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) processes: HashMap<u32, Process>,
    pub(super) clocks: Clocks,
    /// Entries of Pods for which there was no room.
    pub(super) left_out: u64,
}

/// One scheduler process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// By UID.
    pub(super) pods: HashMap<Box<str>, Box<Entry>>,
    /// What Pods have in common.
    texts: Interner<str>,
    whys: Interner<Why>,
    /// The UID of the Pod that a goroutine is putting into a queue.
    moving: HashMap<u64, Box<str>>,
    /// The profiles that it is known to have.
    pub(super) profiles: BTreeSet<String>,
    /// Whether it reports which queue a Pod has entered, as it does at full detail.
    pub(super) counts_moves: bool,
    /// When it took a Pod or a group last, `CLOCK_MONOTONIC`, and its namespace and name.
    pub(super) last_taken: Option<(u64, String)>,
    /// Number of Pods and groups that it took.
    pub(super) taken: u64,
    last_loss: u64,
    /// What is cut of its tracing.
    cut: Cut,
    /// Another scheduler process handles Pods that are in its queue.
    pub(super) stands_by: bool,
}

/// A Pod in a queue.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) namespace: Arc<str>,
    pub(super) name: Box<str>,
    pub(super) profile: Option<Arc<str>>,
    pub(super) place: Place,
    /// Since when it is there, `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) since_ns: u64,
    /// The last event about it.
    pub(super) seen_ns: u64,
    /// The scheduler has counted the entry, which it does only if the Pod really enters.
    pub(super) counted: bool,
    /// The event that moved it there.
    pub(super) event: Arc<str>,
    /// Number of attempts.
    pub(super) attempts: Option<u64>,
    pub(super) backoff: Option<Backoff>,
    /// The plugin that gates it, where the scheduler says that.
    pub(super) gate: Option<Arc<str>>,
    pub(super) failure: Option<Failure>,
    /// Records of its process were lost after the last event about it.
    pub(super) doubtful: bool,
}

/// Where a Pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Active,
    Backoff,
    Unschedulable,
    Gated,
    /// Out of the queue, in an attempt.
    Taken,
    /// Its attempt has failed, and its way back into a queue was not seen.
    Unseen,
}

/// When a backoff ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff {
    /// Nanoseconds since the Unix epoch.
    pub(super) until_unix_ns: u64,
    /// Read from the scheduler; else computed from its defaults.
    pub(super) exact: bool,
}

/// The last failed attempt.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) why: Arc<Why>,
    /// End of the attempt, microseconds since the Unix epoch.
    pub(super) unix_us: u64,
}

/// Why an attempt failed, which is often the same for many Pods.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Why {
    pub(super) plugins: Vec<String>,
    pub(super) message: String,
}

impl Model {
    pub(super) fn line(&mut self, line: &Line<'_, KubeScheduler>) {
        match line {
            Line::Event(event) => self.event(event),
            Line::Found(found) => {
                let process = self.processes.entry(found.target).or_default();
                process.pid = found.pid;
            }
            Line::Gone { target } => drop(self.processes.remove(target)),
            Line::Clocks(clocks) => self.clocks(*clocks),
            Line::Cut { target, time_ns: _, cut } => {
                self.processes.entry(*target).or_default().cut(*cut);
            }
            Line::Header(_) | Line::Sample(_) | Line::Window(_) | Line::End(_) => {}
        }
    }

    /// A tick: forgets attempts whose end was lost.
    fn clocks(&mut self, clocks: Clocks) {
        self.clocks = clocks;
        let is_lost = |entry: &Entry| {
            entry.place == Place::Taken
                && clocks.monotonic_ns.saturating_sub(entry.since_ns) > LONGEST_ATTEMPT_NS
        };
        for process in self.processes.values_mut() {
            process.pods.retain(|_, entry| !is_lost(entry));
        }
    }

    pub(super) fn configured(&mut self, target: u32, profiles: &[String]) {
        if let Some(process) = self.processes.get_mut(&target) {
            profiles.iter().take(MAX_PROFILES).for_each(|profile| process.has_profile(profile));
        }
    }

    fn event(&mut self, event: &Event) {
        let room = MAX_PODS / self.processes.len().max(1);
        let unix_ns = self.clocks.unix_ns_at_zero.saturating_add(event.time_ns);
        let process = self.processes.entry(event.target).or_default();
        if std::mem::replace(&mut process.last_loss, event.last_loss) != event.last_loss {
            process.pods.values_mut().for_each(|entry| entry.doubtful = true);
            process.moving.clear();
        }
        if !process.cut.keeps_detail(event.function.detail_at(event.role)) {
            // It was on its way when that was cut.
            return;
        }
        let has_room = match event.function.about() {
            Part::EntersQueue { active } => process.enter(event, active, unix_ns, room),
            Part::CountsMove => {
                process.count(event);
                true
            }
            // The queue is closed if there is no Pod.
            Part::Pop => {
                event.values.number(Value::QueuedPodInfo).unwrap_or_default() == 0
                    || process.take(event, true, room)
            }
            Part::Stage(Stage::Member, _) => event.role != Role::Entry || process.take(event, false, room),
            Part::Group => {
                if event.role == Role::Entry {
                    process.take_group(event);
                }
                true
            }
            Part::InQueue(_)
            | Part::QueuesApiCall
            | Part::Fact(_)
            | Part::Phase(..)
            | Part::Stage(..)
            | Part::Plugin { .. }
            | Part::Extender { .. }
            | Part::Timed
            | Part::Late(..) => true,
        };
        self.left_out += u64::from(!has_room);
    }

    /// Whether an event is about a queue.
    pub(super) fn is_about_queue(event: &Event) -> bool {
        match event.function.about() {
            Part::EntersQueue { .. } | Part::CountsMove | Part::Pop | Part::Group => true,
            Part::Stage(stage, _) => stage == Stage::Member,
            Part::InQueue(_)
            | Part::QueuesApiCall
            | Part::Fact(_)
            | Part::Phase(..)
            | Part::Plugin { .. }
            | Part::Extender { .. }
            | Part::Timed
            | Part::Late(..) => false,
        }
    }

    /// Takes the result of an attempt. It comes later than the Pod's way back into a queue.
    pub(super) fn attempt(&mut self, trace: &Trace) {
        match trace.kind {
            TraceKind::Attempt => {}
            TraceKind::GroupAttempt
            | TraceKind::Configuration
            | TraceKind::Lifecycle
            | TraceKind::Reconcile
            | TraceKind::PodStart
            | TraceKind::PodStorage
            | TraceKind::PodCreation
            | TraceKind::PodDeletion
            | TraceKind::PodEviction
            | TraceKind::Command => return,
        }
        let Source::Process(target) = trace.source else { return };
        let Some(process) = self.processes.get_mut(&target) else { return };
        let root = trace.root();
        let Some(uid) = root.attribute(attributes::POD_UID).map(ToString::to_string) else { return };
        if !root.did_not_succeed() {
            process.pods.remove(&*uid);
            return;
        }
        let Some(entry) = process.pods.get_mut(&*uid) else { return };
        let account = Account::of(trace);
        if entry.place == Place::Taken && entry.attempts == account.attempt {
            entry.place = Place::Unseen;
        }
        let mut plugins: Vec<String> =
            account.rejected_by.into_iter().map(|rejection| rejection.plugin).take(MAX_PLUGINS).collect();
        plugins.sort();
        plugins.dedup();
        let why = Why { plugins, message: cut(&account.message, MAX_MESSAGE).to_owned() };
        entry.failure = Some(Failure { why: process.whys.intern(why), unix_us: root.end_unix_ns / 1_000 });
    }
}

impl Process {
    /// From here on, this is cut of its tracing.
    fn cut(&mut self, cut: Cut) {
        let before = std::mem::replace(&mut self.cut, cut);
        let changes = |detail| before.keeps_detail(detail) != cut.keeps_detail(detail);
        // Entries into the active queue are seen with the phases.
        let (moves, entries) = (changes(Detail::Full), changes(Detail::Phases));
        if moves || entries {
            // Where Pods have moved meanwhile is not known.
            for entry in self.pods.values_mut() {
                entry.doubtful = true;
                let may_have_moved = match entry.place {
                    Place::Backoff | Place::Unschedulable => true,
                    Place::Gated => entries,
                    Place::Active | Place::Taken | Place::Unseen => false,
                };
                if may_have_moved {
                    entry.place = Place::Unseen;
                }
            }
            self.moving.clear();
            self.counts_moves = false;
        }
    }

    pub(super) fn has_profile(&mut self, profile: &str) {
        if self.profiles.len() < MAX_PROFILES && !self.profiles.contains(profile) {
            self.profiles.insert(profile.to_owned());
        }
    }

    /// The entry of the Pod that an event is about; `None` without room, or if the event names no Pod.
    fn entry(&mut self, event: &Event, room: usize) -> Result<Option<(Box<str>, &mut Entry)>, ()> {
        let text = |value| event.values.text(value).unwrap_or_default();
        let (uid, namespace, name) = (text(Value::PodUid), text(Value::PodNamespace), text(Value::PodName));
        if !is_uid(uid) || !is_name(namespace) || !is_name(name) {
            return Ok(None);
        }
        if !self.pods.contains_key(uid) && self.pods.len() >= room {
            let late = event.time_ns.saturating_sub(SHORT_ATTEMPT_NS);
            self.pods.retain(|_, entry| entry.place != Place::Taken || entry.since_ns > late);
            if self.pods.len() >= room {
                return Err(());
            }
        }
        let entry = self.pods.entry(uid.into()).or_default();
        if entry.name.is_empty() {
            (entry.namespace, entry.name) = (self.texts.intern(namespace), name.into());
        }
        entry.seen_ns = event.time_ns;
        entry.doubtful = false;
        if let Some(attempts) = event.values.number(Value::Attempts) {
            entry.attempts = Some(attempts);
        }
        Ok(Some((uid.into(), entry)))
    }

    /// A Pod enters a queue. Returns whether there was room.
    fn enter(&mut self, event: &Event, active: bool, unix_ns: u64, room: usize) -> bool {
        self.moving.remove(&event.goroutine);
        let values = &event.values;
        let gate = values.text(Value::Gate).filter(|plugin| !plugin.is_empty());
        let gate = gate.map(|plugin| self.texts.intern(plugin));
        let (uid, entry) = match self.entry(event, room) {
            Ok(Some(found)) => found,
            // A group of Pods.
            Ok(None) => return true,
            Err(()) => return false,
        };
        let gated = gate.is_some() || values.flag(Value::Gated) == Some(true);
        let place = match (active, gated, values.number(Value::BackoffExpirationSeconds)) {
            (true, ..) => Place::Active,
            (false, true, _) => Place::Gated,
            (false, false, Some(_)) => Place::Backoff,
            // Up to 1.32 it may be another queue, which the scheduler counts next.
            (false, false, None) => Place::Unschedulable,
        };
        entry.enter(place, event.time_ns);
        if gated {
            entry.gate = gate;
        }
        entry.backoff = backoff(values, unix_ns);
        if self.moving.len() >= MAX_MOVING {
            // Entries of ended goroutines.
            self.moving.clear();
        }
        self.moving.insert(event.goroutine, uid);
        true
    }

    /// The scheduler counts the Pod that the goroutine has put into a queue.
    fn count(&mut self, event: &Event) {
        let Some((queue, why)) = moved(&event.values) else { return };
        self.counts_moves = true;
        // The goroutine has put another Pod into a queue before.
        if why == POPPED_FROM_BACKOFF {
            return;
        }
        let uid = self.moving.remove(&event.goroutine);
        let Some(entry) = uid.and_then(|uid| self.pods.get_mut(&uid)) else { return };
        let place = match queue {
            "active" => Place::Active,
            "backoff" => Place::Backoff,
            _ if entry.place == Place::Gated => Place::Gated,
            _ => Place::Unschedulable,
        };
        entry.enter(place, event.time_ns);
        if !std::mem::replace(&mut entry.counted, true) {
            // Before, a plugin may have gated it.
            entry.since_ns = event.time_ns;
        }
        entry.seen_ns = event.time_ns;
        entry.event = self.texts.intern(why);
    }

    /// A Pod leaves the queue. Returns whether there was room.
    fn take(&mut self, event: &Event, by_itself: bool, room: usize) -> bool {
        if let Some(profile) = event.values.text(Value::Profile).filter(|profile| is_name(profile)) {
            self.has_profile(profile);
        }
        let text = |value| event.values.text(value).unwrap_or_default();
        if by_itself {
            let name = format!("{}/{}", text(Value::PodNamespace), text(Value::PodName));
            self.taken(event.time_ns, name);
        }
        let profile = event.values.text(Value::Profile).map(|profile| self.texts.intern(profile));
        match self.entry(event, room) {
            Ok(Some((_, entry))) => {
                entry.enter(Place::Taken, event.time_ns);
                entry.profile = profile;
                entry.backoff = None;
                true
            }
            Ok(None) => true,
            Err(()) => false,
        }
    }

    fn take_group(&mut self, event: &Event) {
        let text = |value| event.values.text(value).unwrap_or_default();
        let name = format!("{}/{}", text(Value::GroupNamespace), text(Value::GroupName));
        self.taken(event.time_ns, name);
    }

    fn taken(&mut self, time_ns: u64, name: String) {
        self.last_taken = Some((time_ns, name));
        self.taken += 1;
        self.stands_by = false;
    }
}

impl Entry {
    /// Moves it, or leaves it where it has been.
    fn enter(&mut self, place: Place, time_ns: u64) {
        let stays = self.place == place && self.since_ns > 0;
        if !stays {
            self.since_ns = time_ns;
            self.counted = false;
            self.event = Arc::default();
        }
        self.place = place;
        if place != Place::Gated {
            self.gate = None;
        }
    }
}

/// The end of a backoff: read from the scheduler, or computed as it computes it, for a Pod whose attempt has failed now if
/// nothing else is said.
fn backoff(values: &Values, unix_ns: u64) -> Option<Backoff> {
    let seconds = values
        .number(Value::BackoffExpirationSeconds)
        .and_then(|seconds| seconds.checked_sub(YEAR_1_TO_1970_S))
        .filter(|seconds| (1..LATEST_S).contains(seconds));
    let read = values.number(Value::BackoffExpiration).or(seconds.map(|seconds| seconds * NS_PER_S));
    if let Some(until_unix_ns) = read.filter(|read| *read > 0) {
        return Some(Backoff { until_unix_ns, exact: true });
    }
    let (first, longest) = BACKOFF_S;
    let failed = values.number(Value::Attempts)?.checked_sub(1)?;
    let wait = if failed < 4 { first << failed } else { longest };
    let since = values.number(Value::QueueTimestamp).filter(|since| *since > 0).unwrap_or(unix_ns);
    Some(Backoff { until_unix_ns: since.saturating_add(wait * NS_PER_S), exact: false })
}

/// Whether a text can be a UID. What else is read of a group of Pods in their place is none.
fn is_uid(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

/// Whether all characters are allowed in a Kubernetes name.
fn is_name(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-.".contains(&c);
    (1..=253).contains(&text.len()) && text.bytes().all(allowed)
}
