//! Attempts out of events: which call belongs to which Pod, when it began and ended, and how the attempt came out.
//!
//! Pure: events in, attempts out, no clock and no I/O.
//!
//! # How calls are joined
//!
//! * A goroutine pairs a call's entry with its end, by function and stack depth; nothing else is concluded from it.
//! * The scheduling loop is one goroutine that handles one Pod after the other: what happens on it between two
//!   returns of `Pop` is one attempt.
//! * The binding cycle runs on a goroutine of its own. Its calls carry the attempt's `CycleState`, or the assumed
//!   Pod, whose addresses were learned in the scheduling cycle.
//! * A group of Pods is an attempt of its own, and each of its Pods has one within it. The loop turns from one to the other
//!   and back: a call that names its Pod or `CycleState` is that Pod's, what it calls is as well, and the rest is the group's.

mod assembler;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt, sync::Arc};

use gotrace::decode::{Entries, Top};

pub(crate) use self::assembler::moved;
pub use self::assembler::{Assembler, QUEUE_INCOMING_PODS};
use crate::table::Function;

/// Who an attempt is about.
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

/// A group of Pods that are scheduled as one, and when that was tried.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/schedule_one_podgroup.go>
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct PodGroup {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// When the scheduler turned to it, `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
}

/// What an attempt is made for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// A Pod by itself.
    #[default]
    Pod,
    /// A Pod of a group.
    Member(Arc<PodGroup>),
    /// A group: its Pods have attempts of their own.
    Group {
        /// Which one.
        group: Arc<PodGroup>,
        /// How many of its Pods were to be scheduled.
        size: Option<u64>,
        /// How many of these were bound.
        scheduled: u64,
    },
}

/// The attempt before another one, of the same Pod or group by the same process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Previous {
    /// When it began, `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// The group that it was made within.
    pub group: Option<Arc<PodGroup>>,
}

/// One pass of one Pod, or of one group, through the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Which scheduler process.
    pub target: u32,
    /// What it is made for.
    pub subject: Subject,
    /// Which Pod; of a group name, namespace and profile.
    pub pod: Pod,
    /// 1 for the first attempt.
    pub number: Option<u64>,
    /// When `Pop` returned, or a Pod of a group was first tried, `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// When the binding cycle or the handling of the failure ended; of a group, when those of all its Pods had.
    pub end_ns: u64,
    /// The attempt before this one.
    pub previous: Option<Previous>,
    /// When the Pod entered the active queue, if that was seen.
    pub enqueued_ns: Option<u64>,
    /// How the Pod went through the queues since its last attempt, oldest first: the first and the last of many.
    pub moves: Vec<Move>,
    /// How many moves in between are left out.
    pub moves_left_out: u64,
    /// When the Pod's first attempt could have begun, nanoseconds since the Unix epoch.
    pub first_attempt: Option<u64>,
    /// When the Pod was put into the scheduling queue, nanoseconds since the Unix epoch: at first by its creation,
    /// later by the end of its last attempt.
    pub queue_timestamp: Option<u64>,
    /// The Node that was chosen.
    pub node: Option<String>,
    /// How many Nodes were looked at, and how many of them would do.
    pub nodes: Option<(u64, u64)>,
    /// Whether the Node of a Pod of the same kind was tried first.
    pub batched: bool,
    /// To how many Nodes `PreFilter` plugins restricted the search.
    pub restricted_to: Option<u64>,
    /// The Nodes with the best scores.
    pub scores: Option<Box<Top>>,
    /// Why Nodes would not do.
    pub statuses: Option<Box<Entries>>,
    /// Who must go so that the Pod can come.
    pub preemption: Option<Preemption>,
    /// The calls, in the order of their ends.
    pub calls: Vec<Call>,
    /// Of a Pod of a group: which of the times that it was tried came to be, counted from 0.
    pub chosen_trial: Option<usize>,
    /// How it came out.
    pub outcome: Outcome,
    /// Whether something of it was lost: a call without an end, or an end that was never seen.
    pub incomplete: bool,
    /// How many events it came about by: `Pop`, the beginnings and ends of its calls, and what else was told about it.
    pub events: u64,
}

impl PodGroup {
    /// What all attempts of the group have in common.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Attempt {
    /// What the attempts of one Pod, or of one group, have in common: the Pod's UID, or namespace and name of the group.
    #[must_use]
    pub fn identity(&self) -> String {
        match &self.subject {
            Subject::Group { group, .. } => group.identity(),
            Subject::Pod | Subject::Member(_) => self.pod.uid.clone(),
        }
    }

    /// The group that it is made for, or within.
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
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// `active`, `backoff` or `unschedulable`.
    pub queue: String,
    /// Why: what the scheduler's metric `queue_incoming_pods_total` says.
    pub event: String,
}

/// Victims, and the Node that they free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preemption {
    /// The Node.
    pub node: String,
    /// How many victims there are.
    pub victims: u64,
    /// The first ones' names.
    pub names: Vec<String>,
}

/// One call of a probed function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which function.
    pub function: Function,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub end_ns: u64,
    /// The plugin whose function it is, the placement that it tries, or the plugin that a phase was in when it was left.
    pub plugin: Option<Arc<str>>,
    /// The status that it returned, where it was read.
    pub code: Option<Code>,
    /// The first reason of that status; empty where it has none.
    pub reason: String,
    /// What an extender was asked.
    pub extender: Option<Box<Extender>>,
    /// What was asked of the API server.
    pub api_call: Option<Box<ApiCall>>,
    /// Whether the end was seen; otherwise it is when the call was found to be over.
    pub returned: bool,
    /// How many events it came about by: its beginning, its end, or one that told of both.
    pub events: u64,
}

/// What the scheduler asks of the API server for an attempt, on another goroutine: it may outlast the attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiCall {
    /// UID of the Pod that it is about: the attempt's, or a victim.
    pub pod_uid: String,
    /// Name of a victim.
    pub victim: Option<String>,
    /// When it was put into the dispatcher's queue, `CLOCK_MONOTONIC`, nanoseconds.
    pub queued_ns: Option<u64>,
}

/// What the scheduler asks an extender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extender {
    /// The URL up to the verb, which is what the scheduler calls it by.
    pub url: String,
    /// What is behind it; empty where the extender is not asked.
    pub verb: String,
    /// Whether the scheduler goes on without an answer.
    pub ignorable: bool,
    /// How many Nodes it was told about.
    pub nodes: Option<u64>,
    /// How many of them it let pass.
    pub passed: Option<u64>,
}

/// How an attempt came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The Pod was bound.
    Scheduled,
    /// The scheduler handled a failure.
    Failed {
        /// The failure's status code.
        code: Option<Code>,
        /// What the scheduler writes into the Pod's condition, or else the first reason of the status.
        reason: String,
        /// The plugin that the status names, if it does.
        plugin: String,
    },
    /// Its end was not seen.
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

    /// Whether a plugin rejected the Pod: what the scheduler counts as unschedulable.
    #[must_use]
    pub fn is_rejected(self) -> bool {
        [Self::UNSCHEDULABLE, Self::UNSCHEDULABLE_AND_UNRESOLVABLE, Self::PENDING].contains(&self)
    }
}

impl From<Code> for Cow<'static, str> {
    fn from(code: Code) -> Self {
        Cow::Borrowed(match code {
            Code::SUCCESS => "Success",
            Code::ERROR => "Error",
            Code::UNSCHEDULABLE => "Unschedulable",
            Code::UNSCHEDULABLE_AND_UNRESOLVABLE => "UnschedulableAndUnresolvable",
            Code::WAIT => "Wait",
            Code::SKIP => "Skip",
            Code::PENDING => "Pending",
            Code(code) => return Cow::Owned(format!("Code({code})")),
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Cow::from(*self))
    }
}
