//! Assembles events into attempts: which call belongs to which Pod, when it began and ended, and the
//! attempt's outcome.
//!
//! Pure: events in, attempts out, no clock and no I/O.
//!
//! # How calls are joined
//!
//! * A goroutine pairs a call's entry with its end, by function and stack depth, and by nothing else.
//! * The scheduling loop is one goroutine that handles one Pod after the other: its calls between two
//!   returns of `Pop` belong to one attempt.
//! * The binding cycle runs on its own goroutine. Its calls carry the attempt's `CycleState` or the assumed
//!   Pod, whose addresses were recorded in the scheduling cycle.
//! * A Pod group has an attempt, and each of its Pods has one within it. The loop alternates between them: a
//!   call that carries a Pod or a `CycleState` belongs to that Pod, as do the calls it makes; the rest belong
//!   to the group.

mod assembler;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt, sync::Arc};

use gotrace::{
    decode::{Entries, Top},
    governor::Cut,
    window::Calls,
};
use spans::text::Text;

pub use self::assembler::{
    Assembler, CPU_NANOSECONDS, QUEUE_INCOMING_PODS, QUEUE_PHASE_CALLS, QUEUE_PHASE_NANOSECONDS,
};
pub(crate) use self::assembler::{POPPED_FROM_BACKOFF, moved};
use crate::{Values, table::Function, values::Value};

/// The Pod that an attempt is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `spec.schedulerName`.
    pub profile: String,
}

/// A Pod group that is scheduled as one, and when scheduling it began.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/schedule_one_podgroup.go>
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct PodGroup {
    /// Name of the group.
    pub name: String,
    /// Namespace of the group.
    pub namespace: String,
    /// Start of the group's attempt, `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
}

/// The subject of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// A single Pod.
    #[default]
    Pod,
    /// A Pod of a group.
    Member(Arc<PodGroup>),
    /// A group; its Pods have attempts of their own.
    Group {
        /// The group.
        group: Arc<PodGroup>,
        /// Number of its Pods to schedule.
        size: Option<u64>,
        /// Number of these that were bound.
        scheduled: u64,
    },
}

/// The previous attempt of the same Pod or group by the same process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Previous {
    /// Start, `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// The group whose attempt contains it.
    pub group: Option<Arc<PodGroup>>,
}

/// One attempt to schedule a Pod or a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Target number of the scheduler process.
    pub target: u32,
    /// A single Pod, a Pod of a group, or a group.
    pub subject: Subject,
    /// The Pod; for a group only name, namespace and profile.
    pub pod: Pod,
    /// Number of the attempt, 1 for the first.
    pub number: Option<u64>,
    /// When `Pop` returned, or when a Pod of a group was first tried; `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// When the binding cycle or the failure handling ended; without phases, when the failure handling began; for a group, when those of
    /// all its Pods ended.
    pub end_ns: u64,
    /// The previous attempt, for a link to it.
    pub previous: Option<Previous>,
    /// When the Pod entered the active queue; `None` if the entry was not seen.
    pub enqueued_ns: Option<u64>,
    /// The Pod's queue moves since its last attempt, oldest first. Of many, only the first and the last ones.
    pub moves: Vec<Move>,
    /// Number of moves left out in between.
    pub moves_left_out: u64,
    /// What ran for the Pod since its last attempt, while it waited.
    pub in_queue: InQueue,
    /// When the Pod's first attempt could have begun, nanoseconds since the Unix epoch.
    pub first_attempt: Option<u64>,
    /// When the Pod was added to the scheduling queue, nanoseconds since the Unix epoch: after its creation
    /// at first, then after its last attempt.
    pub queue_timestamp: Option<u64>,
    /// The chosen Node.
    pub node: Option<String>,
    /// Numbers of evaluated and of feasible Nodes.
    pub nodes: Option<(u64, u64)>,
    /// The Node of a Pod with the same signature was tried first.
    pub batched: bool,
    /// Number of Nodes that `PreFilter` plugins restricted the search to.
    pub restricted_to: Option<u64>,
    /// The Nodes with the highest scores.
    pub scores: Option<Box<Top>>,
    /// Rejection statuses of Nodes, and their names.
    pub statuses: Option<Box<Entries>>,
    /// Victims to evict so that the Pod fits.
    pub preemption: Option<Preemption>,
    /// The calls, sorted by end.
    pub calls: Vec<Call>,
    /// Shares of plugins in phases that run them on many Nodes.
    pub shares: Vec<Shares>,
    /// Whether the calls of plugins on Nodes were all timed one by one; `None` if that was not tried.
    pub window: Option<bool>,
    /// For a Pod of a group: the index of the trial whose result was used, from 0.
    pub chosen_trial: Option<usize>,
    /// The most that was cut while it ran, or of the way of its Pod through the queue.
    pub cut: Cut,
    /// Bound, failed, or unknown.
    pub outcome: Outcome,
    /// Records were lost: a call without an end, or an attempt whose end was not seen.
    pub incomplete: bool,
    /// Number of events in the attempt: `Pop`, the beginnings and ends of its calls, and facts about it.
    pub events: u64,
}

impl PodGroup {
    /// `namespace/name`, equal for all attempts of the group.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Attempt {
    /// Takes the statuses of Nodes, if they are among these values. Those of before may be the only ones with names: soon after one
    /// walk over a map, the next one is without.
    pub(crate) fn take_statuses(&mut self, values: &mut Values) {
        let Some(mut statuses) = values.take_entries(Value::Statuses) else { return };
        if let Some(before) = self.statuses.take().filter(|_| statuses.listed.is_empty()) {
            statuses.listed = before.listed;
        }
        self.statuses = Some(statuses);
    }

    /// Identity common to the attempts of one Pod or group: the Pod's UID, or the group's namespace and name.
    #[must_use]
    pub fn identity(&self) -> Cow<'_, str> {
        match &self.subject {
            Subject::Group { group, .. } => group.identity().into(),
            Subject::Pod | Subject::Member(_) => self.pod.uid.as_str().into(),
        }
    }

    /// The group that the attempt is for, or within.
    #[must_use]
    pub fn group(&self) -> Option<&Arc<PodGroup>> {
        match &self.subject {
            Subject::Pod => None,
            Subject::Member(group) | Subject::Group { group, .. } => Some(group),
        }
    }
}

/// A Pod's entry into a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Time of the entry, `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// `active`, `backoff` or `unschedulable`.
    pub queue: &'static str,
    /// The event, as in the scheduler's metric `queue_incoming_pods_total`.
    pub event: Arc<str>,
}

/// Extension points that ran for a Pod while it was in no attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InQueue {
    /// The calls, in the order of their ends. Of many, only the first and the last ones.
    pub calls: Vec<QueueCall>,
    /// Number of calls left out in between.
    pub left_out: u64,
    /// Time in all calls of `PreEnqueue`, nanoseconds.
    pub pre_enqueue_ns: u64,
    /// Time in all calls of `Sign`, nanoseconds.
    pub sign_ns: u64,
    /// Time for which `PreEnqueue` plugins held the Pod, up to the last call, nanoseconds.
    pub held_ns: u64,
    /// End of the last call, if it did not let the Pod pass; `CLOCK_MONOTONIC`, nanoseconds.
    pub held_since: Option<u64>,
}

/// One call of such an extension point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueCall {
    /// [`Function::PreEnqueue`] or [`Function::Sign`].
    pub function: Function,
    /// Start, `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// End, `CLOCK_MONOTONIC`, nanoseconds.
    pub end_ns: u64,
    /// The status, where it is known.
    pub code: Option<Code>,
    /// The plugin that does not let the Pod pass (1.34 and later).
    pub gate: Option<Arc<str>>,
    /// Whether it returned; a panic ended it otherwise.
    pub returned: bool,
}

/// Victims, and the Node that their eviction frees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preemption {
    /// Name of the Node.
    pub node: String,
    /// Number of victims.
    pub victims: u64,
    /// Names of the first victims.
    pub names: Vec<String>,
}

/// One call of a probed function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The probed function.
    pub function: Function,
    /// Start, `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// End, `CLOCK_MONOTONIC`, nanoseconds.
    pub end_ns: u64,
    /// Name of the plugin, or of the placement tried, or of the plugin that a phase was in when a panic left
    /// it.
    pub plugin: Option<Arc<str>>,
    /// The returned status code, where it was read.
    pub code: Option<Code>,
    /// The first reason of that status; empty without one.
    pub reason: String,
    /// The request to an extender.
    pub extender: Option<Box<Extender>>,
    /// The request to the API server.
    pub api_call: Option<Box<ApiCall>>,
    /// The return was seen; otherwise `end_ns` is when the call was found to be over.
    pub returned: bool,
    /// Number of events of the call: its entry and its end, or a single one that reports both.
    pub events: u64,
}

/// How the time of a phase is divided among its plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The phase.
    pub function: Function,
    /// Start of the phase's call, `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// What the shares are parts of.
    pub basis: Basis,
    /// Samples of the phase, those of its plugins among them; in a window, the time of all calls of plugins, nanoseconds.
    pub amount: u64,
    /// The plugins, the greatest share first.
    pub plugins: Vec<Share>,
}

/// What shares are parts of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Of samples of the attempt's own phase.
    Attempt,
    /// Of samples of this phase in all attempts of the process in the last minute: the attempt's own were too few.
    LastMinute,
    /// Of the time of the attempt's own calls, each of which was timed.
    Window,
}

impl Basis {
    /// Value of [`SHARE_BASIS`](spans::attributes::SHARE_BASIS).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempt => "sampled",
            Self::LastMinute => "profile",
            Self::Window => "exact",
        }
    }
}

/// A plugin's part of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Name of the plugin.
    pub plugin: Arc<str>,
    /// Number of samples; in a window, the time of its calls, nanoseconds.
    pub amount: u64,
    /// The calls, in a window.
    pub calls: Option<Box<Calls>>,
}

/// A request to the API server on another goroutine, which may outlast the attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiCall {
    /// UID of the Pod it is about: the attempt's, or a victim.
    pub pod_uid: String,
    /// Name of a victim.
    pub victim: Option<String>,
    /// When it entered the dispatcher's queue, `CLOCK_MONOTONIC`, nanoseconds.
    pub queued_ns: Option<u64>,
}

/// A request to an extender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extender {
    /// The URL up to the verb, which is also the extender's name.
    pub url: String,
    /// The verb appended to the URL; empty where the extender is not called.
    pub verb: String,
    /// Scheduling continues if the extender fails.
    pub ignorable: bool,
    /// Number of Nodes sent to the extender.
    pub nodes: Option<u64>,
    /// Number of Nodes that it passed.
    pub passed: Option<u64>,
}

/// Outcome of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The Pod was bound.
    Scheduled,
    /// The scheduler handled a failure.
    Failed {
        /// Status code of the failure.
        code: Option<Code>,
        /// Message of the Pod's condition, or else the first reason of the status.
        reason: String,
        /// The plugin that the status names; empty without one.
        plugin: String,
    },
    /// The end was not seen.
    #[default]
    Unknown,
}

/// A status code of the scheduling framework.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/kube-scheduler/framework/interface.go>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub i64);

#[expect(missing_docs, reason = "the names are the framework's own")]
impl Code {
    pub const SUCCESS: Self = Self(0);
    pub const ERROR: Self = Self(1);
    pub const UNSCHEDULABLE: Self = Self(2);
    pub const UNSCHEDULABLE_AND_UNRESOLVABLE: Self = Self(3);
    pub const WAIT: Self = Self(4);
    pub const SKIP: Self = Self(5);
    pub const PENDING: Self = Self(6);

    /// Whether a plugin rejected the Pod, which the scheduler counts as unschedulable.
    #[must_use]
    pub fn is_rejected(self) -> bool {
        [Self::UNSCHEDULABLE, Self::UNSCHEDULABLE_AND_UNRESOLVABLE, Self::PENDING].contains(&self)
    }
}

impl From<Code> for Text {
    fn from(code: Code) -> Self {
        Self::Static(match code {
            Code::SUCCESS => "Success",
            Code::ERROR => "Error",
            Code::UNSCHEDULABLE => "Unschedulable",
            Code::UNSCHEDULABLE_AND_UNRESOLVABLE => "UnschedulableAndUnresolvable",
            Code::WAIT => "Wait",
            Code::SKIP => "Skip",
            Code::PENDING => "Pending",
            Code(code) => return format!("Code({code})").into(),
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Text::from(*self))
    }
}
