//! The probed functions of kube-scheduler: how each is found, what is read there, from which level of detail
//! on, and which span it becomes below which. A new probe is a new entry here.
//!
//! Names, meaning and order of the calls are those of
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/schedule_one.go> and
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/framework/runtime/framework.go>.

use gotrace::{
    functions,
    plan::{Begin, End, EntriesOf, Field, Interface, Row as RowOf, SeenAs, Signature, TopOf, Want as WantOf},
    program::Turn,
};
use spans::{Cycle, Phase, SpanKind, names};

use crate::values::Value;

type Row = RowOf<Value>;
type Want = WantOf<Value>;

/// Index of the status among the labels of the extension points' metric: point, status, profile.
const STATUS_LABEL: u32 = 1;
/// Package of the scheduling loop.
pub(crate) const SCHEDULER: &str = "k8s.io/kubernetes/pkg/scheduler";
/// Package shared by plugins and scheduler.
pub(crate) const FRAMEWORK: &str = "k8s.io/kubernetes/pkg/scheduler/framework";
/// Package of the framework that runs the plugins.
pub(crate) const RUNTIME: &str = "k8s.io/kubernetes/pkg/scheduler/framework/runtime";
/// Packages of the queue, which moved in 1.32.
pub(crate) const QUEUES: [&str; 2] =
    ["k8s.io/kubernetes/pkg/scheduler/backend/queue", "k8s.io/kubernetes/pkg/scheduler/internal/queue"];

const CYCLE_STATE: &[&str] = &["framework.CycleState", "*framework.CycleState"];
const QUEUED_POD_INFO: &[&str] = &["*framework.QueuedPodInfo"];
const QUEUED_ENTITY_INFO: &[&str] = &["framework.QueuedEntityInfo"];
const POD: &[&str] = &["*v1.Pod"];
const STATUS: &[&str] = &["*framework.Status"];
/// The plugin that a status is from; the second name up to 1.28.
const STATUS_PLUGIN: &str = "plugin|failedPlugin";
const STRING: &[&str] = &["string"];

const STATE: Want = Want::declared(Value::CycleState, CYCLE_STATE, &[]);
/// Total scores of the Nodes, each with the scores of its plugins.
const SCORES: Want = Want {
    seen_as: SeenAs::TopOf(TopOf { key: "TotalScore", label: "Name", parts: ("Scores", "Name", "Score") }),
    ..Want::declared(Value::Scores, &["[]framework.NodePluginScores"], &[])
};
/// A map up to 1.31, later a struct that holds one.
const STATUSES: Want = Want {
    seen_as: SeenAs::EntriesOf(EntriesOf {
        holder: (FRAMEWORK, "NodeToStatus", "nodeToStatus", "absentNodesStatus"),
        fields: ("code", STATUS_PLUGIN, "reasons"),
    }),
    ..Want::declared(
        Value::Statuses,
        &["framework.NodeToStatusReader", "framework.NodeToStatusMap", "*framework.NodeToStatus"],
        &[],
    )
};
const THE_POD: Want = Want::declared(Value::Pod, POD, &[]);
const NODE: Want = Want::declared(Value::NodeName, STRING, &[]);
const CODE: Want = Want::declared(Value::StatusCode, STATUS, &["code"]);
const REASON: Want = Want::declared(Value::StatusReason, STATUS, &["reasons", "*"]);
const PLUGIN: Want = Want {
    seen_as: SeenAs::Implementation { wrapper: (RUNTIME, "instrumented") },
    ..Want::declared(Value::Plugin, &[], &[])
};
/// `profile.Map`, from the scheduler name to its framework.
pub(crate) const FRAMEWORK_METHODS: Interface =
    Interface::ElementOf(Field(SCHEDULER, "Scheduler", "Profiles"));

const fn of_queued(value: Value, path: &'static [&'static str]) -> Want {
    Want::declared(value, QUEUED_POD_INFO, path)
}

/// A phase run by the framework.
const fn phase(
    symbols: &'static [&'static str],
    method: &'static str,
    at_entry: &'static [Want],
    without: &'static str,
) -> Row {
    Row {
        symbols,
        signature: Signature::Method(FRAMEWORK_METHODS, method),
        begin: Begin::Entry,
        at_entry,
        end: End::Return,
        at_end: &[CODE],
        since: None,
        without,
    }
}

/// One plugin's call in a phase that calls its plugins one after the other.
const fn plugin(
    symbols: &'static [&'static str],
    list: &'static str,
    methods: &'static [&'static str],
) -> Row {
    Row {
        symbols,
        signature: Signature::CallerOf(Field(RUNTIME, "frameworkImpl", list), methods),
        begin: Begin::InTurn,
        at_entry: &[PLUGIN],
        end: End::Return,
        at_end: &[CODE, REASON],
        since: None,
        without: "no spans of plugins in this phase",
    }
}

/// One plugin's call on one Node.
const fn timed(
    symbols: &'static [&'static str],
    list: &'static str,
    methods: &'static [&'static str],
) -> Row {
    Row {
        begin: Begin::Entry,
        at_end: &[CODE],
        without: "no exact windows of this phase",
        ..plugin(symbols, list, methods)
    }
}

/// Values at entry of plugins that may run concurrently, on goroutines of their own.
const AT_ENTRY_BESIDE: &[Want] = &[PLUGIN, STATE, THE_POD];

macro_rules! run {
    ($method:literal) => {
        &[concat!("k8s.io/kubernetes/pkg/scheduler/framework/runtime.(*frameworkImpl).", $method)]
    };
}

macro_rules! scheduler {
    ($method:literal) => {
        concat!("k8s.io/kubernetes/pkg/scheduler.(*Scheduler).", $method)
    };
}

/// Which Pod enters a queue. Its address alone says that only once it is popped.
const QUEUED_POD: [Want; 4] = [
    of_queued(Value::QueuedPodInfo, &[]),
    of_queued(Value::PodUid, &["Pod", "UID"]),
    of_queued(Value::PodName, &["Pod", "Name"]),
    of_queued(Value::PodNamespace, &["Pod", "Namespace"]),
];
/// The same where the parameter is an interface (1.37). If it holds a group, the strings are no names.
const ENTITY: [Want; 4] = [
    Want::declared(Value::QueuedPodInfo, QUEUED_ENTITY_INFO, &[]),
    of_entity(Value::PodUid, &["Pod", "UID"]),
    of_entity(Value::PodName, &["Pod", "Name"]),
    of_entity(Value::PodNamespace, &["Pod", "Namespace"]),
];

const fn of_entity(value: Value, path: &'static [&'static str]) -> Want {
    Want {
        seen_as: SeenAs::PointerTo(FRAMEWORK, "QueuedPodInfo"),
        ..Want::declared(value, QUEUED_ENTITY_INFO, path)
    }
}

/// Which Pod, and what its backoff follows from where the scheduler does not keep the end of it (up to 1.32).
const FAILED: &[Want] =
    &[QUEUED_POD[0], QUEUED_POD[1], QUEUED_POD[2], QUEUED_POD[3], of_queued(Value::Attempts, &["Attempts"])];
/// The same, and when its last attempt ended.
const FAILED_BEFORE: &[Want] = &[
    QUEUED_POD[0],
    QUEUED_POD[1],
    QUEUED_POD[2],
    QUEUED_POD[3],
    of_queued(Value::Attempts, &["Attempts"]),
    of_queued(Value::QueueTimestamp, &["Timestamp", "wall"]),
];

/// Entry of a Pod into the active queue.
const ENQUEUE: Row = Row {
    symbols: &[],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &QUEUED_POD,
    end: End::Unused,
    at_end: &[],
    since: None,
    without: "no `k8s.scheduler.queue_wait_ms`",
};

/// Entry of a Pod into another queue.
const ENQUEUE_ELSEWHERE: Row = Row { without: "Pods whose ways through the queues have gaps", ..ENQUEUE };

/// Entry of a Pod into the backoff queue, where that is a type of its own (from 1.33 on).
const ENQUEUE_BACKOFF: Row = Row {
    signature: Signature::Method(Interface::In(Field(QUEUES[0], "PriorityQueue", "backoffQ")), "add"),
    ..ENQUEUE_ELSEWHERE
};

/// Which Pod, and the plugin that gates it; empty if it is unschedulable.
const UNSCHEDULABLE: &[Want] = &[
    QUEUED_POD[0],
    QUEUED_POD[1],
    QUEUED_POD[2],
    QUEUED_POD[3],
    of_queued(Value::Gate, &["GatingPlugin"]),
    of_queued(Value::Attempts, &["Attempts"]),
];

/// Start of an attempt.
const POP: Row = Row {
    symbols: &[],
    signature: Signature::Unused,
    begin: Begin::Unused,
    at_entry: &[],
    end: End::Return,
    at_end: &[],
    since: None,
    without: "no attempts at all: nothing says which Pod is being scheduled",
};

const POPPED: &[Want] = &[
    of_queued(Value::QueuedPodInfo, &[]),
    of_queued(Value::Attempts, &["Attempts"]),
    of_queued(Value::QueueTimestamp, &["Timestamp", "wall"]),
    of_queued(Value::FirstAttempt, &["InitialAttemptTimestamp", "wall"]),
    of_queued(Value::Pod, &["Pod"]),
    of_queued(Value::PodName, &["Pod", "Name"]),
    of_queued(Value::PodNamespace, &["Pod", "Namespace"]),
    of_queued(Value::PodUid, &["Pod", "UID"]),
    of_queued(Value::Profile, &["Pod", "Spec", "SchedulerName"]),
];

/// Error type that client-go returns for a failure response:
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go#L36-L40>.
const STATUS_ERROR: &str = "*errors.StatusError";

/// The extender's URL, verbs and whether it is ignorable are fields of its struct:
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/extender.go#L46-L57>.
const EXTENDER: &[&str] = &["*scheduler.HTTPExtender"];
const ERROR: &[&str] = &["error"];
const ERROR_TYPE: Want = Want::failure(Value::StatusCode);
const ERROR_MESSAGE: Want = Want::message(Value::StatusReason);
const NODES: Want = Want::declared(
    Value::Nodes,
    &["[]framework.NodeInfo", "[]*framework.NodeInfo", "[]*v1.Node"], // from 1.34 on; from 1.30 on; up to 1.29
    &["#"],
);

const fn of_extender(value: Value, path: &'static [&'static str]) -> Want {
    Want::of_receiver(value, EXTENDER, path)
}

/// A request to an extender over HTTP. The end is probed at the method's `ret`: no cost without extenders,
/// and a negligible one next to a request.
const fn extender(symbols: &'static [&'static str], method: &'static str, at_entry: &'static [Want]) -> Row {
    Row {
        symbols,
        signature: Signature::Method(
            Interface::ElementOf(Field(SCHEDULER, "Scheduler", "Extenders")),
            method,
        ),
        begin: Begin::Entry,
        at_entry,
        end: End::Return,
        at_end: &[ERROR_TYPE, ERROR_MESSAGE],
        since: None,
        without: "no spans of extenders",
    }
}

macro_rules! extender {
    ($method:literal) => {
        &[concat!("k8s.io/kubernetes/pkg/scheduler.(*HTTPExtender).", $method)]
    };
}

/// Error message of an asynchronous API call.
const API_ERROR_MESSAGE: Want = Want {
    seen_as: SeenAs::MessageOf {
        of: ("k8s.io/apimachinery/pkg/api/errors", "StatusError"),
        types: &[STATUS_ERROR],
    },
    ..Want::declared(Value::StatusReason, ERROR, &["ErrStatus", "Message"])
};
/// Packages of the scheduler's interfaces, which moved in 1.35.
const FRAMEWORKS: &[&str] = &["k8s.io/kube-scheduler/framework", FRAMEWORK];

/// Execution of a queued API call. The functions are slow, so the cost of a `ret` probe is negligible.
const API_CALL: Row = Row {
    symbols: &[],
    signature: Signature::Method(Interface::Named(FRAMEWORKS, "APICall"), "Execute"),
    begin: Begin::Entry,
    at_entry: &[],
    end: End::Return,
    at_end: &[ERROR_TYPE, API_ERROR_MESSAGE],
    since: Some(34),
    without: "no spans of asynchronous API calls",
};
const BINDING_CALL: &[&str] = &["*apicalls.PodBindingCall"];
const STATUS_PATCH_CALL: &[&str] = &["*apicalls.PodStatusPatchCall"];

/// Eviction of a victim: a patch of its status, and a deletion.
const PREEMPT_POD: Row = Row {
    symbols: &[],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[
        CANDIDATE_ADDRESS,
        Want { seen_as: SeenAs::Last, ..Want::declared(Value::PodName, POD, &["Name"]) },
        Want { seen_as: SeenAs::Last, ..Want::declared(Value::PodUid, POD, &["UID"]) },
    ],
    end: End::Return,
    at_end: &[ERROR_TYPE, API_ERROR_MESSAGE],
    since: Some(32),
    without: "no spans of what is done to victims",
};
const CANDIDATE_ADDRESS: Want = Want::declared(Value::PreemptionCandidate, &["preemption.Candidate"], &[]);

/// Symbol in a package of the queue, whose path has changed.
macro_rules! queue {
    ($package:literal, $method:literal) => {
        concat!("k8s.io/kubernetes/pkg/scheduler/", $package, "/queue.", $method)
    };
}

const QUEUED: &str = "*k8s.io/kubernetes/pkg/scheduler/framework.QueuedPodInfo";
const QUEUED_ENTITY: &str = "k8s.io/kubernetes/pkg/scheduler/framework.QueuedEntityInfo";
const SCHEDULE_RESULT: &[&str] = &["scheduler.ScheduleResult"];
const LABELS: &[&str] = &["[]string"];
const LOGGER: &str = "github.com/go-logr/logr.Logger";
const CONTEXT: &str = "context.Context";
/// The struct of the chosen Node and its victims.
const CANDIDATE: (&str, &str) = ("k8s.io/kubernetes/pkg/scheduler/framework/preemption", "candidate");

const fn of_candidate(value: Value, path: &'static [&'static str]) -> Want {
    Want {
        seen_as: SeenAs::PointerTo(CANDIDATE.0, CANDIDATE.1),
        ..Want::declared(value, &["preemption.Candidate"], path)
    }
}

/// Victims and the Node they are on.
const VICTIMS: &[Want] = &[
    of_candidate(Value::Victims, &["victims", "Pods", "#"]),
    of_candidate(Value::PreemptionNode, &["name"]),
    of_candidate(Value::VictimNames, &["victims", "Pods", "*", "Name"]),
    // With fewer victims, the values read here are ignored.
    of_candidate(Value::VictimNames, &["victims", "Pods", "*1", "Name"]),
    of_candidate(Value::VictimNames, &["victims", "Pods", "*2", "Name"]),
];

const NODE_TO_STATUS: &str = "*k8s.io/kubernetes/pkg/scheduler/framework.NodeToStatus";
const NODE_TO_STATUS_MAP: &str =
    "k8s.io/kubernetes/pkg/scheduler/framework.FitError#Diagnosis#NodeToStatusMap";

/// The call that asks extenders, with these types of the Nodes that fit and of the statuses of the others.
macro_rules! after_filter {
    ($nodes:literal, $statuses:ident) => {
        Row {
            symbols: &["k8s.io/kubernetes/pkg/scheduler.findNodesThatPassExtenders"],
            signature: Signature::Declared(&[CONTEXT, "[]framework.Extender", POD_TYPE, $nodes, $statuses]),
            begin: Begin::Entry,
            at_entry: &[THE_POD, STATUSES],
            end: End::Unused,
            at_end: &[],
            since: None,
            without: "no Nodes that a scheduled Pod did not fit",
        }
    };
}

/// Choice of the victims.
const PREEMPTION: Row = Row {
    symbols: &[],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[VICTIMS[0], VICTIMS[1], VICTIMS[2], VICTIMS[3], VICTIMS[4], CANDIDATE_ADDRESS],
    end: End::Unused,
    at_end: &[],
    since: None,
    without: "no victims of preemption",
};

/// The part of an attempt that runs concurrently with the next attempts.
const BINDING_CYCLE: Row = Row {
    symbols: &[scheduler!("bindingCycle")],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[],
    end: End::Return,
    at_end: &[],
    since: None,
    without: "no `bindingCycle` span, and successful attempts have no end",
};
/// Which Pod, and its Node; by the UID the attempt is known that nothing else has been seen of.
const BINDING: &[Want] = &[
    STATE,
    QUEUED_POD[1],
    Want::declared(Value::NodeName, SCHEDULE_RESULT, &["SuggestedHost"]),
    Want::declared(Value::EvaluatedNodes, SCHEDULE_RESULT, &["EvaluatedNodes"]),
    Want::declared(Value::FeasibleNodes, SCHEDULE_RESULT, &["FeasibleNodes"]),
];
/// What the binding cycle takes from 1.34 on.
const BINDS: &[&str] = &[
    CONTEXT,
    "k8s.io/kube-scheduler/framework.CycleState",
    FRAMEWORK_INTERFACE,
    "k8s.io/kubernetes/pkg/scheduler.ScheduleResult",
    QUEUED,
    "time.Time",
    PODS_TO_ACTIVATE,
];
/// What it takes up to 1.33.
const BINDS_BY_POINTER: &[&str] = &[
    CONTEXT,
    "*k8s.io/kubernetes/pkg/scheduler/framework.CycleState",
    FRAMEWORK_INTERFACE,
    "k8s.io/kubernetes/pkg/scheduler.ScheduleResult",
    QUEUED,
    "time.Time",
    PODS_TO_ACTIVATE,
];
const FRAMEWORK_INTERFACE: &str = "k8s.io/kubernetes/pkg/scheduler/framework.Framework";
const PODS_TO_ACTIVATE: &str = "*k8s.io/kubernetes/pkg/scheduler/framework.PodsToActivate";

/// Update of the Pod's condition with the failure message.
const FAILURE_MESSAGE: Row = Row {
    symbols: &["k8s.io/kubernetes/pkg/scheduler.updatePod"],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[Want::declared(Value::Message, &["*v1.PodCondition"], &["Message"])],
    end: End::Unused,
    at_end: &[],
    since: None,
    without: "only the first reason of a failure",
};

const CLIENT: &str = "k8s.io/client-go/kubernetes.Interface";
const POD_TYPE: &str = "*k8s.io/api/core/v1.Pod";
const CONDITION: &str = "*k8s.io/api/core/v1.PodCondition";

const QUEUED_GROUP: &str = "*k8s.io/kubernetes/pkg/scheduler/framework.QueuedPodGroupInfo";
const STATE_TYPE: &str = "*k8s.io/kubernetes/pkg/scheduler/framework.CycleState";
const GROUP_CONDITION: &str = "*k8s.io/apimachinery/pkg/apis/meta/v1.Condition";

const fn of_group(value: Value, path: &'static [&'static str]) -> Want {
    Want::declared(value, &["*framework.QueuedPodGroupInfo"], path)
}

/// A step in scheduling a Pod group, without captured values.
const OF_GROUP: Row = Row {
    symbols: &[],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[],
    end: End::Return,
    at_end: &[],
    since: Some(36),
    without: "",
};

/// Trial of a Pod of a group.
const MEMBER: Row = Row {
    symbols: &[scheduler!("podGroupPodSchedulingAlgorithm")],
    at_entry: POPPED,
    without: "no attempts of Pods that are scheduled as a group",
    ..OF_GROUP
};

/// Update of the group's condition with the outcome of its attempt.
const CONDITION_OF_GROUP: Row = Row {
    symbols: &[scheduler!("updatePodGroupCondition")],
    at_entry: &[
        Want::declared(Value::ConditionReason, &["*v1.Condition"], &["Reason"]),
        Want::declared(Value::Message, &["*v1.Condition"], &["Message"]),
    ],
    end: End::Unused,
    without: "no results of groups of Pods",
    ..OF_GROUP
};

/// Role of a function in an attempt, and the span of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Entry of a Pod into a queue.
    EntersQueue {
        /// The queue is the active queue.
        active: bool,
    },
    /// The scheduler counts a Pod's queue entry.
    CountsMove,
    /// A phase that runs while the Pod waits, in no attempt.
    InQueue(Phase),
    /// A Pod leaves the queue and its attempt begins.
    Pop,
    /// Start of a group's attempt.
    Group,
    /// An API call enters the queue of the asynchronous dispatcher.
    QueuesApiCall,
    /// A fact about the goroutine's current attempt, which becomes attributes.
    Fact(Fact),
    /// A phase, with a span below its parent call, or below the root without one.
    Phase(Phase, Option<Function>),
    /// Like `Phase`, for a call that changes the attempt's stage.
    Stage(Stage, Option<Function>),
    /// One plugin's call in a phase.
    Plugin {
        /// Name of the extension point.
        point: &'static str,
        /// The phase that calls the plugin.
        phase: Function,
        /// Whether it may run concurrently, on a goroutine of its own.
        beside: bool,
    },
    /// A request to an extender.
    Extender {
        /// Name of the extension point.
        point: &'static str,
        /// The call that makes the request.
        part_of: Function,
        /// Whether it may run concurrently, on a goroutine of its own.
        beside: bool,
    },
    /// Late work for this call, which may outlast the call and the attempt.
    Late(Late, Function),
    /// A call that is only timed, in attempts with a window: see `TURN`.
    Timed,
}

/// A fact about an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Whether the scheduler has a Node hint from a Pod with the same signature.
    NodeHint,
    /// The highest scores of Nodes.
    Scores,
    /// The Nodes that plugins rejected.
    RejectedNodes,
    /// Victims, and the Node that their eviction frees.
    Preemption,
    /// Message of the Pod's condition.
    FailureMessage,
    /// The placement that a group is tried on.
    Placement,
    /// Outcome of a group's attempt.
    GroupCondition,
}

/// A call that changes an attempt's stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Trial of all Pods of a group.
    PlacementTrial,
    /// Trial of one Pod of a group.
    Member,
    /// The part of an attempt that runs for one Pod at a time.
    SchedulingCycle,
    /// The part of an attempt that runs concurrently with the next attempts.
    BindingCycle,
    /// Failure handling.
    HandleFailure,
}

/// Late work: work for an attempt that may outlast it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Eviction of a victim of preemption.
    PreemptPod,
    /// API call that binds the Pod.
    PodBinding,
    /// API call that patches the Pod's status.
    PodStatusPatch,
}

impl Part {
    /// Kind of the span; `None` without a span.
    #[must_use]
    pub const fn shows(self) -> Option<SpanKind> {
        Some(match self {
            Self::EntersQueue { .. }
            | Self::CountsMove
            | Self::Pop
            | Self::Group
            | Self::QueuesApiCall
            | Self::Timed
            | Self::Fact(_) => return None,
            Self::Phase(phase, _) | Self::InQueue(phase) => SpanKind::Phase(phase),
            Self::Stage(Stage::PlacementTrial, _) => SpanKind::Placement,
            Self::Stage(Stage::Member, _) => SpanKind::Trial,
            Self::Stage(Stage::SchedulingCycle, _) => SpanKind::Cycle(Cycle::Scheduling),
            Self::Stage(Stage::BindingCycle, _) => SpanKind::Cycle(Cycle::Binding),
            Self::Stage(Stage::HandleFailure, _) => SpanKind::Phase(Phase::HandleSchedulingFailure),
            Self::Plugin { .. } => SpanKind::Plugin,
            Self::Extender { .. } => SpanKind::Extender,
            Self::Late(Late::PreemptPod, _) => SpanKind::Victim,
            Self::Late(Late::PodBinding | Late::PodStatusPatch, _) => SpanKind::ApiCall,
        })
    }

    /// Name of the span, or the extension point of a plugin or an extender. `None` without a span.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::EntersQueue { .. }
            | Self::CountsMove
            | Self::Pop
            | Self::Group
            | Self::QueuesApiCall
            | Self::Timed
            | Self::Fact(_) => return None,
            Self::Phase(phase, _) | Self::InQueue(phase) => phase.name(),
            Self::Stage(Stage::PlacementTrial, _) => names::PLACEMENT,
            Self::Stage(Stage::Member, _) => names::TRIAL,
            Self::Stage(Stage::SchedulingCycle, _) => Cycle::Scheduling.name(),
            Self::Stage(Stage::BindingCycle, _) => Cycle::Binding.name(),
            Self::Stage(Stage::HandleFailure, _) => Phase::HandleSchedulingFailure.name(),
            Self::Plugin { point, .. } | Self::Extender { point, .. } => point,
            Self::Late(Late::PreemptPod, _) => names::PREEMPT_POD,
            Self::Late(Late::PodBinding, _) => names::POD_BINDING,
            Self::Late(Late::PodStatusPatch, _) => names::POD_STATUS_PATCH,
        })
    }

    /// The enclosing call; `None` below the root, and without a span.
    #[must_use]
    pub const fn parent(self) -> Option<Function> {
        match self {
            Self::EntersQueue { .. }
            | Self::CountsMove
            | Self::InQueue(_)
            | Self::Pop
            | Self::Group
            | Self::QueuesApiCall
            | Self::Timed
            | Self::Fact(_) => None,
            Self::Phase(_, parent) | Self::Stage(_, parent) => parent,
            Self::Plugin { phase: parent, .. }
            | Self::Extender { part_of: parent, .. }
            | Self::Late(_, parent) => Some(parent),
        }
    }

    /// Whether it may run concurrently, on a goroutine of its own.
    #[must_use]
    pub const fn runs_beside(self) -> bool {
        match self {
            Self::Plugin { beside, .. } | Self::Extender { beside, .. } => beside,
            Self::EntersQueue { .. }
            | Self::CountsMove
            | Self::InQueue(_)
            | Self::Pop
            | Self::Group
            | Self::QueuesApiCall
            | Self::Timed
            | Self::Fact(_)
            | Self::Phase(..)
            | Self::Stage(..)
            | Self::Late(..) => false,
        }
    }

    /// The stage of an attempt that the call represents, if any.
    #[must_use]
    pub const fn stage(self) -> Option<Stage> {
        if let Self::Stage(stage, ..) = self { Some(stage) } else { None }
    }

    /// Whether it is late work.
    #[must_use]
    pub const fn is_late(self) -> bool {
        matches!(self, Self::Late(..))
    }

    /// The phase that calls the plugin, if that calls its plugins one after the other.
    #[must_use]
    pub const fn serial_phase(self) -> Option<Function> {
        if let Self::Plugin { phase, beside: false, .. } = self { Some(phase) } else { None }
    }
}

/// In an attempt with a window, each call of a `Filter` and `Score` plugin is timed. The dry run of preemption calls `Filter`
/// plugins too: those calls are in no phase `filter`.
pub(crate) const TURN: Turn<Function> = Turn {
    turn: Function::SchedulingCycle,
    timed: &[(Function::FilterPlugin, Function::Filter), (Function::ScorePlugin, Function::Score)],
};

functions! {
    /// A probed function.
    pub enum Function: Part, Value;

    /// Entry of a Pod into the active queue.
    Enqueue {
        detail: Phases,
        about: Part::EntersQueue { active: true },
        rows: [
            Row {
                symbols: &[queue!("backend", "(*unlockedActiveQueue).add")], // 1.33 to 1.36
                signature: Signature::Method(Interface::FirstParameterOf("func(queue.unlockedActiveQueuer)"), "add"),
                ..ENQUEUE
            },
            Row {
                symbols: &[queue!("backend", "(*activeQueue).add")], // 1.37
                signature: Signature::Method(Interface::In(Field("k8s.io/kubernetes/pkg/scheduler/backend/queue", "PriorityQueue", "activeQ")), "add"),
                // A Pod group may enter too. Its address never equals that of a popped Pod.
                at_entry: &ENTITY,
                ..ENQUEUE
            },
            Row {
                symbols: &[
                    queue!("backend", "(*PriorityQueue).moveToActiveQ"), // 1.32
                    queue!("internal", "(*PriorityQueue).moveToActiveQ"), // 1.31
                ],
                signature: Signature::Declared(&[LOGGER, QUEUED, "string"]),
                ..ENQUEUE
            },
            Row {
                symbols: &[queue!("internal", "(*PriorityQueue).addToActiveQ")], // 1.28 to 1.30
                signature: Signature::Declared(&[LOGGER, QUEUED]),
                ..ENQUEUE
            },
        ],
    }
    /// Entry of a Pod into the backoff queue.
    EnqueueBackoff {
        detail: Full,
        about: Part::EntersQueue { active: false },
        rows: [
            Row {
                symbols: &[queue!("backend", "(*backoffQueue).add")], // 1.33 to 1.36
                at_entry: &[
                    QUEUED_POD[0],
                    QUEUED_POD[1],
                    QUEUED_POD[2],
                    QUEUED_POD[3],
                    of_queued(Value::Attempts, &["Attempts"]),
                    of_queued(Value::BackoffExpiration, &["BackoffExpiration", "wall"]),
                    of_queued(Value::BackoffExpirationSeconds, &["BackoffExpiration", "ext"]),
                ],
                ..ENQUEUE_BACKOFF
            },
            Row {
                symbols: &[queue!("backend", "(*backoffQueue).add")], // 1.37
                at_entry: &[
                    ENTITY[0],
                    ENTITY[1],
                    ENTITY[2],
                    ENTITY[3],
                    of_entity(Value::Attempts, &["Attempts"]),
                    of_entity(Value::BackoffExpiration, &["BackoffExpiration", "wall"]),
                    of_entity(Value::BackoffExpirationSeconds, &["BackoffExpiration", "ext"]),
                ],
                ..ENQUEUE_BACKOFF
            },
            Row {
                symbols: &[
                    queue!("backend", "(*PriorityQueue).addUnschedulableWithoutQueueingHint"), // 1.32
                    queue!("internal", "(*PriorityQueue).addUnschedulableWithoutQueueingHint"), // 1.28 to 1.31
                ],
                signature: Signature::Declared(&[LOGGER, QUEUED, "int64"]),
                at_entry: FAILED,
                ..ENQUEUE_ELSEWHERE
            },
        ],
    }
    /// Entry of a Pod into the unschedulable Pods.
    EnqueueUnschedulable {
        detail: Full,
        about: Part::EntersQueue { active: false },
        rows: [
            Row {
                symbols: &[queue!("backend", "(*unschedulableEntities).addOrUpdate")], // 1.37
                signature: Signature::Declared(&[QUEUED_ENTITY, "bool", "string", "*int"]),
                at_entry: &[
                    ENTITY[0],
                    ENTITY[1],
                    ENTITY[2],
                    ENTITY[3],
                    of_entity(Value::Gate, &["GatingPlugin"]),
                    of_entity(Value::Attempts, &["Attempts"]),
                ],
                ..ENQUEUE_ELSEWHERE
            },
            Row {
                symbols: &[queue!("backend", "(*unschedulablePods).addOrUpdate")], // 1.36
                signature: Signature::Declared(&[QUEUED, "bool", "string"]),
                at_entry: UNSCHEDULABLE,
                ..ENQUEUE_ELSEWHERE
            },
            Row {
                symbols: &[queue!("backend", "(*unschedulablePods).addOrUpdate")], // 1.34 and 1.35
                signature: Signature::Declared(&[QUEUED, "string"]),
                at_entry: UNSCHEDULABLE,
                ..ENQUEUE_ELSEWHERE
            },
            Row {
                symbols: &[queue!("backend", "(*UnschedulablePods).addOrUpdate")], // 1.33
                signature: Signature::Declared(&[QUEUED, "string"]),
                at_entry: &[
                    QUEUED_POD[0],
                    QUEUED_POD[1],
                    QUEUED_POD[2],
                    QUEUED_POD[3],
                    of_queued(Value::Gated, &["Gated"]),
                    of_queued(Value::Attempts, &["Attempts"]),
                ],
                ..ENQUEUE_ELSEWHERE
            },
            Row {
                symbols: &[
                    queue!("backend", "(*PriorityQueue).requeuePodViaQueueingHint"), // 1.32
                    queue!("internal", "(*PriorityQueue).requeuePodViaQueueingHint"), // 1.28 to 1.31
                ],
                // The strategy is an integer.
                signature: Signature::Declared(&[LOGGER, QUEUED, "int", "string"]),
                at_entry: FAILED_BEFORE,
                ..ENQUEUE_ELSEWHERE
            },
        ],
    }
    /// The scheduler counts a Pod's queue entry, with queue and event.
    QueueMove {
        detail: Full,
        about: Part::CountsMove,
        rows: [
            Row {
                symbols: &["k8s.io/component-base/metrics.(*CounterVec).WithLabelValues"],
                signature: Signature::Declared(&["[]string"]),
                begin: Begin::CallsIn(&QUEUES),
                at_entry: &[
                    Want::declared(Value::Labels, LABELS, &["#"]),
                    Want::declared(Value::Queue, LABELS, &["*"]),
                    Want::declared(Value::QueueEvent, LABELS, &["*1"]),
                ],
                end: End::Unused,
                at_end: &[],
                since: None,
                without: "no reasons why Pods entered a queue",
            },
        ],
    }
    /// `PreEnqueue` plugins, which decide whether a Pod may enter the active or the backoff queue.
    // Runs for each Pod that an event moves, so it belongs to the level that shows these moves.
    PreEnqueue {
        detail: Full,
        about: Part::InQueue(Phase::PreEnqueue),
        rows: [
            Row {
                symbols: &[
                    queue!("backend", "(*PriorityQueue).runPreEnqueuePluginsForPod"), // 1.37
                    queue!("backend", "(*PriorityQueue).runPreEnqueuePlugins"), // 1.32 to 1.36
                    queue!("internal", "(*PriorityQueue).runPreEnqueuePlugins"), // 1.28 to 1.31
                ],
                signature: Signature::Declared(&[CONTEXT, QUEUED]),
                begin: Begin::Entry,
                at_entry: &[of_queued(Value::QueuedPodInfo, &[]), of_queued(Value::Pod, &["Pod"])],
                end: End::MetricWithArguments(STATUS_LABEL),
                at_end: &[],
                since: None,
                without: "no `preEnqueue` spans, and Pods that are held do not say by which plugin",
            },
        ],
    }
    /// `Sign` plugins, whose signature says which Pods are alike; for each Pod that is created or changed.
    Sign {
        detail: Full,
        about: Part::InQueue(Phase::Sign),
        rows: [
            Row {
                since: Some(36),
                // The metric is recorded later, so no label is on the stack. It is always Success.
                end: End::MetricWithArguments(STATUS_LABEL),
                at_end: &[],
                ..phase(run!("SignPod"), "SignPod", &[THE_POD], "no `sign` spans")
            },
        ],
    }
    /// A Pod leaves the queue and its attempt begins.
    Pop {
        detail: Attempts,
        about: Part::Pop,
        rows: [
            Row {
                symbols: &[
                    queue!("backend", "(*PriorityQueue).Pop"),  // from 1.32 on
                    queue!("internal", "(*PriorityQueue).Pop"), // 1.28 to 1.31
                ],
                signature: Signature::Called(Field(SCHEDULER, "Scheduler", "NextPod")),
                // `Pop` blocks while the queue is empty, so its begin means nothing.
                at_end: POPPED,
                ..POP
            },
            Row {
                // From 1.37 on, `Pop` may return a group; this function takes Pods only.
                symbols: &[scheduler!("scheduleOnePod")],
                signature: Signature::Declared(&["context.Context", QUEUED]),
                begin: Begin::Entry,
                at_entry: POPPED,
                end: End::Unused,
                ..POP
            },
        ],
    }
    /// The part of an attempt that runs for one Pod at a time.
    SchedulingCycle {
        detail: Phases,
        about: Part::Stage(Stage::SchedulingCycle, Some(Function::PodGroupMember)),
        rows: [
            Row {
                symbols: &[scheduler!("schedulingCycle")],
                signature: Signature::Unused,
                begin: Begin::Entry,
                at_entry: &[],
                end: End::Return,
                at_end: &[],
                since: None,
                without: "no `schedulingCycle` span",
            },
        ],
    }
    /// Update of the Node snapshot from the cache.
    Snapshot {
        detail: Phases,
        about: Part::Phase(Phase::Snapshot, Some(Function::SchedulingCycle)),
        rows: [
            Row {
                symbols: &[
                    "k8s.io/kubernetes/pkg/scheduler/backend/cache.(*cacheImpl).UpdateSnapshot",
                    "k8s.io/kubernetes/pkg/scheduler/internal/cache.(*cacheImpl).UpdateSnapshot", // 1.28 to 1.31
                ],
                signature: Signature::Method(Interface::In(Field(SCHEDULER, "Scheduler", "Cache")), "UpdateSnapshot"),
                begin: Begin::Entry,
                at_entry: &[],
                end: End::Return,
                at_end: &[],
                since: None,
                without: "no `snapshot` span",
            },
        ],
    }
    /// Whether the scheduler has a Node hint from a Pod with the same signature (1.35 and later).
    NodeHint {
        detail: Full,
        about: Part::Fact(Fact::NodeHint),
        rows: [
            Row {
                // The first string argument is the hinted Node.
                symbols: run!("StoreScheduleResults"),
                signature: Signature::Method(FRAMEWORK_METHODS, "StoreScheduleResults"),
                begin: Begin::Entry,
                at_entry: &[Want::declared(Value::HintLength, STRING, &["#"])],
                end: End::Unused,
                at_end: &[],
                since: Some(35),
                without: "no `k8s.scheduler.batched`",
            },
        ],
    }
    /// Scheduling of a Pod group (1.36 and later, with its feature gate on).
    PodGroup {
        detail: Attempts,
        about: Part::Group,
        rows: [
            Row {
                symbols: &[scheduler!("scheduleOnePodGroup")],
                signature: Signature::Declared(&[CONTEXT, QUEUED_GROUP]),
                begin: Begin::Entry,
                at_entry: &[
                    of_group(Value::QueuedPodInfo, &[]),
                    of_group(Value::GroupName, &["Name"]),
                    of_group(Value::GroupNamespace, &["Namespace"]),
                    // Of a group of groups (1.37) 0: its Pods are its groups'.
                    of_group(Value::GroupSize, &["UnscheduledPods", "#"]),
                ],
                end: End::Return,
                at_end: &[],
                since: Some(36),
                without: "attempts of Pods that are scheduled as a group are taken for those of one Pod",
            },
        ],
    }
    /// Trial of a Pod of a group, to see whether the group fits; repeated for each placement.
    // A Pod of a group has no scheduling cycle of its own.
    PodGroupMember {
        detail: Attempts,
        about: Part::Stage(Stage::Member, None),
        rows: [
            Row {
                signature: Signature::Declared(&[
                    CONTEXT,
                    FRAMEWORK_INTERFACE,
                    STATE_TYPE,
                    "*k8s.io/kubernetes/pkg/scheduler/framework.PodGroupInfo", // 1.37
                    QUEUED,
                ]),
                ..MEMBER
            },
            Row {
                // 1.36. How to run `PostFilter` plugins is an integer.
                signature: Signature::Declared(&[
                    CONTEXT,
                    FRAMEWORK_INTERFACE,
                    STATE_TYPE,
                    QUEUED_GROUP,
                    QUEUED,
                    "int",
                ]),
                ..MEMBER
            },
        ],
    }
    /// Switch to a placement, a part of the cluster that may hold the whole group.
    Placement {
        detail: Phases,
        about: Part::Fact(Fact::Placement),
        rows: [
            Row {
                symbols: &["k8s.io/kubernetes/pkg/scheduler/backend/cache.(*Snapshot).AssumePlacement"],
                signature: Signature::Declared(&["*k8s.io/kube-scheduler/framework.Placement"]),
                begin: Begin::Entry,
                at_entry: &[Want::declared(Value::PlacementName, &["*framework.Placement"], &["Name"])],
                end: End::Unused,
                without: "no names of placements",
                ..OF_GROUP
            },
        ],
    }
    /// Trial of all Pods of a group, on a placement or on the whole cluster.
    PlacementTrial {
        detail: Phases,
        about: Part::Stage(Stage::PlacementTrial, None),
        rows: [
            Row {
                symbols: &[scheduler!("podGroupSchedulingDefaultAlgorithm")],
                without: "no `placement` spans",
                ..OF_GROUP
            },
        ],
    }
    /// `PlacementGenerate` plugins, which generate the placements that may hold the group.
    // Called for the group, whose Pods have spans of their own.
    PlacementGenerate {
        detail: Phases,
        about: Part::Phase(Phase::PlacementGenerate, None),
        rows: [
            Row {
                since: Some(36),
                ..phase(run!("RunPlacementGeneratePlugins"),
                    "RunPlacementGeneratePlugins",
                    &[],
                    "no `placementGenerate` span",
                )
            },
        ],
    }
    /// `PlacementFeasible` plugins, which decide whether to continue (1.37 and later).
    PlacementFeasible {
        detail: Phases,
        about: Part::Phase(Phase::PlacementFeasible, Some(Function::PlacementTrial)),
        rows: [
            Row {
                since: Some(37),
                ..phase(run!("RunPlacementFeasiblePlugins"),
                    "RunPlacementFeasiblePlugins",
                    &[],
                    "no `placementFeasible` span",
                )
            },
        ],
    }
    /// `PlacementScore` plugins, which rate the placements.
    PlacementScore {
        detail: Phases,
        about: Part::Phase(Phase::PlacementScore, None),
        rows: [
            Row {
                since: Some(36),
                ..phase(run!("RunPlacementScorePlugins"),
                    "RunPlacementScorePlugins",
                    &[],
                    "no `placementScore` span",
                )
            },
        ],
    }
    /// `PostFilter` for a group that does not fit: preemption for the whole group.
    PodGroupPostFilter {
        detail: Phases,
        about: Part::Phase(Phase::PodGroupPostFilter, None),
        rows: [
            Row {
                since: Some(36),
                ..phase(run!("RunPodGroupPostFilterPlugins"), // 1.37
                    "RunPodGroupPostFilterPlugins",
                    &[],
                    "no `podGroupPostFilter` span",
                )
            },
            Row {
                symbols: &[scheduler!("runWorkloadAwarePreemption")], // 1.36
                without: "no `podGroupPostFilter` span",
                ..OF_GROUP
            },
        ],
    }
    /// Update of the group's condition, with the outcome of its attempt.
    PodGroupCondition {
        detail: Attempts,
        about: Part::Fact(Fact::GroupCondition),
        rows: [
            Row {
                signature: Signature::Declared(&[
                    CONTEXT,
                    "*k8s.io/kubernetes/pkg/scheduler/framework.PodGroupInfo", // 1.37
                    GROUP_CONDITION,
                ]),
                ..CONDITION_OF_GROUP
            },
            Row {
                signature: Signature::Declared(&[CONTEXT, QUEUED_GROUP, GROUP_CONDITION]), // 1.36
                ..CONDITION_OF_GROUP
            },
        ],
    }
    /// `PreFilter` plugins.
    PreFilter {
        detail: Phases,
        about: Part::Phase(Phase::PreFilter, Some(Function::SchedulingCycle)),
        rows: [
            Row {
                at_end: &[CODE, Want::declared(Value::RestrictedTo, &["*framework.PreFilterResult"], &["NodeNames", "#"])],
                ..phase(run!("RunPreFilterPlugins"),
                    "RunPreFilterPlugins",
                    &[STATE, THE_POD],
                    "no `preFilter` span",
                )
            },
        ],
    }
    /// `Filter` plugins on all Nodes. May run twice: first for a nominated Node only.
    Filter {
        detail: Phases,
        about: Part::Phase(Phase::Filter, Some(Function::SchedulingCycle)),
        rows: [
            Row {
                symbols: &[scheduler!("findNodesThatPassFilters")],
                signature: Signature::Unused,
                // Lists for all Nodes are allocated before this call.
                begin: Begin::FirstCall("time.Now"),
                at_entry: &[],
                end: End::Metric(STATUS_LABEL),
                at_end: &[],
                since: None,
                without: "no `filter` span",
            },
        ],
    }
    /// The Nodes that plugins rejected, once `Filter` is over and before extenders are asked.
    // If all are rejected, `PostFilter` has them as well, with those that extenders rejected.
    RejectedNodes {
        detail: Maps,
        about: Part::Fact(Fact::RejectedNodes),
        rows: [
            after_filter!("[]framework.NodeInfo", NODE_TO_STATUS), // 1.34 and later
            after_filter!("[]*framework.NodeInfo", NODE_TO_STATUS), // 1.32 and 1.33
            // Up to 1.31. Up to 1.29 the first is a slice of Nodes, which takes as many words.
            after_filter!("[]*framework.NodeInfo", NODE_TO_STATUS_MAP),
        ],
    }
    /// `PostFilter` plugins, including preemption.
    PostFilter {
        detail: Phases,
        about: Part::Phase(Phase::PostFilter, Some(Function::SchedulingCycle)),
        rows: [
            phase(run!("RunPostFilterPlugins"),
                "RunPostFilterPlugins",
                &[THE_POD, STATUSES],
                "no `postFilter` span",
            ),
        ],
    }
    /// Dry run of preemption on all candidate Nodes.
    DryRunPreemption {
        detail: Plugins,
        about: Part::Phase(Phase::DryRunPreemption, Some(Function::PostFilterPlugin)),
        rows: [
            // Takes milliseconds, and only failed attempts call it: the cost of a `ret` probe is negligible.
            Row {
                symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/preemption.(*Evaluator).DryRunPreemption"],
                signature: Signature::Unused,
                begin: Begin::Entry,
                at_entry: &[],
                end: End::Return,
                at_end: &[],
                since: None,
                without: "no `dryRunPreemption` span",
            },
        ],
    }
    /// Choice of the victims and their Node.
    Preemption {
        detail: Plugins,
        about: Part::Fact(Fact::Preemption),
        rows: [
            Row {
                // 1.36 and later. Not called, and no victims are seen, with the gate of asynchronous
                // preemption off.
                symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/preemption.(*Executor).prepareCandidateAsync"],
                signature: Signature::Declared(&[
                    "k8s.io/kubernetes/pkg/scheduler/framework/preemption.Candidate",
                    "k8s.io/kubernetes/pkg/scheduler/framework/preemption.ExecutorPreemptor",
                    "string",
                ]),
                ..PREEMPTION
            },
            Row {
                symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/preemption.(*Evaluator).prepareCandidateAsync"], // 1.33 to 1.35
                signature: Signature::Declared(&[
                    "k8s.io/kubernetes/pkg/scheduler/framework/preemption.Candidate",
                    POD_TYPE,
                    "string",
                ]),
                ..PREEMPTION
            },
            Row {
                // Up to 1.32. Returns after the eviction of the victims.
                symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/preemption.(*Evaluator).prepareCandidate"],
                at_entry: VICTIMS,
                signature: Signature::Declared(&[
                    CONTEXT,
                    "k8s.io/kubernetes/pkg/scheduler/framework/preemption.Candidate",
                    POD_TYPE,
                    "string",
                ]),
                ..PREEMPTION
            },
        ],
    }
    /// Eviction of one victim; from 1.33 on by default after the end of the attempt.
    PreemptPod {
        detail: Plugins,
        about: Part::Late(Late::PreemptPod, Function::PostFilterPlugin),
        rows: [
            Row {
                symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/preemption.NewExecutor.func1"], // 1.36 and later
                signature: Signature::Closure(Field(CANDIDATE.0, "Executor", "PreemptPod")),
                ..PREEMPT_POD
            },
            Row {
                symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/preemption.NewEvaluator.func1"], // 1.32 to 1.35
                signature: Signature::Closure(Field(CANDIDATE.0, "Evaluator", "PreemptPod")),
                ..PREEMPT_POD
            },
        ],
    }
    /// An API call enters the queue of the asynchronous dispatcher (1.34 and later, with its feature gate
    /// on).
    ApiCallAdd {
        detail: Plugins,
        about: Part::QueuesApiCall,
        rows: [
            Row {
                symbols: &["k8s.io/kubernetes/pkg/scheduler/backend/api_dispatcher.(*APIDispatcher).Add"],
                signature: Signature::Method(Interface::Named(FRAMEWORKS, "APIDispatcher"), "Add"),
                at_entry: &[Want::declared(Value::ApiCall, &["framework.APICall"], &[])],
                at_end: &[ERROR_TYPE],
                ..API_CALL
            },
        ],
    }
    /// Asynchronous API call that binds the Pod.
    PodBindingCall {
        detail: Plugins,
        about: Part::Late(Late::PodBinding, Function::BindPlugin),
        rows: [
            Row {
                symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/api_calls.(*PodBindingCall).Execute"],
                at_entry: &[
                    Want::of_receiver(Value::ApiCall, BINDING_CALL, &[]),
                    Want::of_receiver(Value::PodUid, BINDING_CALL, &["binding", "UID"]),
                ],
                ..API_CALL
            },
        ],
    }
    /// Asynchronous API call that writes the Pod's condition or nominated Node.
    PodStatusPatchCall {
        detail: Plugins,
        about: Part::Late(Late::PodStatusPatch, Function::HandleFailure),
        rows: [
            Row {
                symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/api_calls.(*PodStatusPatchCall).Execute"],
                at_entry: &[
                    Want::of_receiver(Value::ApiCall, STATUS_PATCH_CALL, &[]),
                    Want::of_receiver(Value::PodUid, STATUS_PATCH_CALL, &["podUID"]),
                ],
                ..API_CALL
            },
        ],
    }
    /// `PreScore` plugins.
    PreScore {
        detail: Phases,
        about: Part::Phase(Phase::PreScore, Some(Function::SchedulingCycle)),
        rows: [
            Row {
                end: End::Metric(STATUS_LABEL),
                ..phase(run!("RunPreScorePlugins"),
                    "RunPreScorePlugins",
                    &[STATE, THE_POD],
                    "no `preScore` span",
                )
            },
        ],
    }
    /// `Score` plugins on all feasible Nodes.
    Score {
        detail: Phases,
        about: Part::Phase(Phase::Score, Some(Function::SchedulingCycle)),
        rows: [
            Row {
                begin: Begin::AfterFirstCall("time.Now"),
                end: End::Metric(STATUS_LABEL),
                ..phase(run!("RunScorePlugins"), "RunScorePlugins", &[], "no `score` span")
            },
        ],
    }
    /// Totals of all Nodes, including the scores of extenders.
    Prioritize {
        detail: Full,
        about: Part::Fact(Fact::Scores),
        rows: [
            Row {
                symbols: &["k8s.io/kubernetes/pkg/scheduler.prioritizeNodes"],
                signature: Signature::ResultsOf(FRAMEWORK_METHODS, "RunScorePlugins"),
                begin: Begin::Unused,
                at_entry: &[],
                end: End::Return,
                at_end: &[SCORES],
                since: None,
                without: "no `k8s.scheduler.candidates`",
            },
        ],
    }
    /// Request to an extender to filter Nodes.
    // Made after the phase, which the scheduler times separately.
    ExtenderFilter {
        detail: Phases,
        about: Part::Extender { point: "filter", part_of: Function::SchedulingCycle, beside: false },
        rows: [
            Row {
                at_end: &[ERROR_TYPE, ERROR_MESSAGE, NODES],
                ..extender(extender!("Filter"),
                    "Filter",
                    &[
                        of_extender(Value::ExtenderUrl, &["extenderURL"]),
                        of_extender(Value::ExtenderVerb, &["filterVerb"]),
                        of_extender(Value::Ignorable, &["ignorable"]),
                        NODES,
                    ],
                )
            },
        ],
    }
    /// Request to an extender to score Nodes.
    ExtenderPrioritize {
        detail: Phases,
        about: Part::Extender { point: "prioritize", part_of: Function::SchedulingCycle, beside: true },
        rows: [
            // Each extender runs on a goroutine of its own.
            extender(extender!("Prioritize"),
                "Prioritize",
                &[
                    of_extender(Value::ExtenderUrl, &["extenderURL"]),
                    of_extender(Value::ExtenderVerb, &["prioritizeVerb"]),
                    of_extender(Value::Ignorable, &["ignorable"]),
                    NODES,
                    THE_POD,
                ],
            ),
        ],
    }
    /// Request to an extender to bind the Pod.
    // Replaces the `Bind` phase.
    ExtenderBind {
        detail: Phases,
        about: Part::Extender { point: "bind", part_of: Function::BindingCycle, beside: false },
        rows: [
            extender(extender!("Bind"),
                "Bind",
                &[
                    of_extender(Value::ExtenderUrl, &["extenderURL"]),
                    of_extender(Value::ExtenderVerb, &["bindVerb"]),
                    of_extender(Value::Ignorable, &["ignorable"]),
                ],
            ),
        ],
    }
    /// Request to an extender to restrict the victims of preemption.
    ExtenderPreemption {
        detail: Phases,
        about: Part::Extender { point: "processPreemption", part_of: Function::PostFilterPlugin, beside: false },
        rows: [
            extender(extender!("ProcessPreemption"),
                "ProcessPreemption",
                &[
                    of_extender(Value::ExtenderUrl, &["extenderURL"]),
                    of_extender(Value::ExtenderVerb, &["preemptVerb"]),
                    of_extender(Value::Ignorable, &["ignorable"]),
                    Want::declared(Value::Nodes, &["map[string]*v1.Victims"], &["#"]),
                ],
            ),
        ],
    }
    /// `Reserve` plugins.
    Reserve {
        detail: Phases,
        about: Part::Phase(Phase::Reserve, Some(Function::SchedulingCycle)),
        rows: [
            phase(run!("RunReservePluginsReserve"),
                "RunReservePluginsReserve",
                &[STATE, THE_POD, NODE],
                "no `reserve` span and no `k8s.scheduler.selected_node`",
            ),
        ],
    }
    /// `Unreserve` of `Reserve` plugins, which release what they reserved.
    // Part of the scheduling cycle after a failure of `Permit` or `Reserve`; otherwise between the binding
    // cycle and its failure handling.
    Unreserve {
        detail: Phases,
        about: Part::Phase(Phase::Unreserve, Some(Function::SchedulingCycle)),
        rows: [
            Row {
                end: End::AtMetric,
                at_end: &[],
                ..phase(run!("RunReservePluginsUnreserve"),
                    "RunReservePluginsUnreserve",
                    // For a Pod group, these identify the Pod.
                    &[STATE, THE_POD],
                    "no `unreserve` span",
                )
            },
        ],
    }
    /// `Permit` plugins.
    Permit {
        detail: Phases,
        about: Part::Phase(Phase::Permit, Some(Function::SchedulingCycle)),
        rows: [
            Row {
                end: End::Metric(STATUS_LABEL),
                ..phase(run!("RunPermitPlugins"),
                    "RunPermitPlugins",
                    &[STATE, THE_POD],
                    "no `permit` span",
                )
            },
        ],
    }
    /// The part of an attempt that runs concurrently with the next attempts.
    BindingCycle {
        detail: Attempts,
        about: Part::Stage(Stage::BindingCycle, None),
        rows: [
            Row {
                signature: Signature::DeclaredWith(BINDS, &["*k8s.io/kube-scheduler/framework.Status"]),
                at_entry: BINDING,
                at_end: &[CODE],
                ..BINDING_CYCLE
            },
            Row {
                signature: Signature::DeclaredWith(
                    BINDS_BY_POINTER,
                    &["*k8s.io/kubernetes/pkg/scheduler/framework.Status"],
                ),
                at_entry: BINDING,
                at_end: &[CODE],
                ..BINDING_CYCLE
            },
            // Where the result is not known, or the parameters are by debug information only.
            Row { signature: Signature::Declared(BINDS), at_entry: BINDING, ..BINDING_CYCLE },
            // Fallback without captured values, which are optional.
            BINDING_CYCLE,
        ],
    }
    /// Whether `PreBind` plugins have any work (1.34 and later).
    PreBindPreFlight {
        detail: Phases,
        about: Part::Phase(Phase::PreBindPreFlight, Some(Function::BindingCycle)),
        rows: [
            Row {
                since: Some(34),
                end: End::Metric(STATUS_LABEL),
                ..phase(run!("RunPreBindPreFlights"),
                    "RunPreBindPreFlights",
                    &[STATE, THE_POD],
                    "no `preBindPreFlight` span",
                )
            },
        ],
    }
    /// Wait for the `Permit` plugins that returned Wait.
    WaitOnPermit {
        detail: Phases,
        about: Part::Phase(Phase::WaitOnPermit, Some(Function::BindingCycle)),
        rows: [
            Row {
                // The metric, recorded only for Pods that waited, has no other label.
                end: End::Metric(0),
                ..phase(run!("WaitOnPermit"),
                    "WaitOnPermit",
                    &[THE_POD],
                    "no `waitOnPermit` span",
                )
            },
        ],
    }
    /// `PreBind` plugins.
    PreBind {
        detail: Phases,
        about: Part::Phase(Phase::PreBind, Some(Function::BindingCycle)),
        rows: [
            Row {
                end: End::Metric(STATUS_LABEL),
                ..phase(run!("RunPreBindPlugins"),
                    "RunPreBindPlugins",
                    &[STATE, THE_POD],
                    "no `preBind` span",
                )
            },
        ],
    }
    /// `Bind` plugins.
    Bind {
        detail: Phases,
        about: Part::Phase(Phase::Bind, Some(Function::BindingCycle)),
        rows: [
            Row {
                end: End::Metric(STATUS_LABEL),
                ..phase(run!("RunBindPlugins"), "RunBindPlugins", &[STATE, THE_POD], "no `bind` span")
            },
        ],
    }
    /// `PostBind` plugins.
    PostBind {
        detail: Phases,
        about: Part::Phase(Phase::PostBind, Some(Function::BindingCycle)),
        rows: [
            Row {
                end: End::Metric(STATUS_LABEL),
                at_end: &[],
                ..phase(run!("RunPostBindPlugins"),
                    "RunPostBindPlugins",
                    &[STATE, THE_POD],
                    "no `postBind` span, and successful attempts cannot be distinguished from failed ones",
                )
            },
        ],
    }
    /// Failure handling of an attempt.
    // KEP-5927 has no span for it, but it takes time: it calls the API server to set the Pod's condition.
    // The scheduler's own metric of an attempt that fails ends at its beginning, and so does the attempt where its end is not seen.
    HandleFailure {
        detail: Attempts,
        end: Phases,
        about: Part::Stage(Stage::HandleFailure, None),
        rows: [
            Row {
                symbols: &[scheduler!("handleSchedulingFailure")],
                signature: Signature::Called(Field(SCHEDULER, "Scheduler", "FailureHandler")),
                begin: Begin::Entry,
                at_entry: &[
                    CODE,
                    REASON,
                    Want::declared(Value::StatusPlugin, STATUS, &[STATUS_PLUGIN]),
                    // The attempt identifies the Pod; but Pods of a group may fail untried.
                    of_queued(Value::Pod, &["Pod"]),
                    of_queued(Value::PodUid, &["Pod", "UID"]),
                    of_queued(Value::PodName, &["Pod", "Name"]),
                    of_queued(Value::Attempts, &["Attempts"]),
                    of_queued(Value::QueuedPodInfo, &[]),
                ],
                end: End::Return,
                at_end: &[],
                since: None,
                without: "failed attempts have no result and no end",
            },
        ],
    }
    /// Update of the Pod's condition, with the reason of the failure.
    FailureMessage {
        detail: Phases,
        about: Part::Fact(Fact::FailureMessage),
        rows: [
            Row {
                signature: Signature::Declared(&[
                    CONTEXT,
                    CLIENT,
                    "k8s.io/kube-scheduler/framework.APICacher",
                    POD_TYPE,
                    CONDITION,
                    "*k8s.io/kube-scheduler/framework.NominatingInfo", // 1.35 and later
                ]),
                ..FAILURE_MESSAGE
            },
            Row {
                signature: Signature::Declared(&[
                    CONTEXT,
                    CLIENT,
                    "k8s.io/kubernetes/pkg/scheduler/framework.APICacher",
                    POD_TYPE,
                    CONDITION,
                    "*k8s.io/kubernetes/pkg/scheduler/framework.NominatingInfo", // 1.34
                ]),
                ..FAILURE_MESSAGE
            },
            Row {
                signature: Signature::Declared(&[
                    CONTEXT,
                    CLIENT,
                    POD_TYPE,
                    CONDITION,
                    "*k8s.io/kubernetes/pkg/scheduler/framework.NominatingInfo", // up to 1.33
                ]),
                ..FAILURE_MESSAGE
            },
        ],
    }
    /// One plugin's `PreFilter`.
    PreFilterPlugin {
        detail: Plugins,
        about: Part::Plugin { point: "preFilter", phase: Function::PreFilter, beside: false },
        rows: [
            plugin(run!("runPreFilterPlugin"), "preFilterPlugins", &["PreFilter"]),
        ],
    }
    /// One plugin's `PostFilter`.
    PostFilterPlugin {
        detail: Plugins,
        about: Part::Plugin { point: "postFilter", phase: Function::PostFilter, beside: false },
        rows: [
            plugin(run!("runPostFilterPlugin"), "postFilterPlugins", &["PostFilter"]),
        ],
    }
    /// One plugin's `PreScore`.
    PreScorePlugin {
        detail: Plugins,
        about: Part::Plugin { point: "preScore", phase: Function::PreScore, beside: false },
        rows: [
            plugin(run!("runPreScorePlugin"), "preScorePlugins", &["PreScore"]),
        ],
    }
    /// One plugin's `Filter` on one Node.
    FilterPlugin {
        detail: Windows,
        about: Part::Timed,
        rows: [
            timed(run!("runFilterPlugin"), "filterPlugins", &["Filter"]),
        ],
    }
    /// One plugin's `Score` of one Node.
    ScorePlugin {
        detail: Windows,
        about: Part::Timed,
        rows: [
            timed(run!("runScorePlugin"), "scorePlugins", &["Score"]),
        ],
    }
    /// One plugin's `NormalizeScore`.
    NormalizeScorePlugin {
        detail: Plugins,
        about: Part::Plugin { point: "normalizeScore", phase: Function::Score, beside: true },
        rows: [
            Row {
                begin: Begin::Entry,
                at_entry: AT_ENTRY_BESIDE,
                ..plugin(run!("runScoreExtension"),
                    "scorePlugins",
                    &["ScoreExtensions", "NormalizeScore"],
                )
            },
        ],
    }
    /// One plugin's `Reserve`.
    ReservePlugin {
        detail: Plugins,
        about: Part::Plugin { point: "reserve", phase: Function::Reserve, beside: false },
        rows: [
            plugin(run!("runReservePluginReserve"), "reservePlugins", &["Reserve"]),
        ],
    }
    /// One plugin's `Unreserve`.
    UnreservePlugin {
        detail: Plugins,
        about: Part::Plugin { point: "unreserve", phase: Function::Unreserve, beside: false },
        rows: [
            Row {
                at_end: &[],
                ..plugin(run!("runReservePluginUnreserve"),
                    "reservePlugins",
                    &["Unreserve"],
                )
            },
        ],
    }
    /// One plugin's `Permit`.
    PermitPlugin {
        detail: Plugins,
        about: Part::Plugin { point: "permit", phase: Function::Permit, beside: false },
        rows: [
            plugin(run!("runPermitPlugin"), "permitPlugins", &["Permit"]),
        ],
    }
    /// One plugin's `PreBindPreFlight`.
    PreBindPreFlightPlugin {
        detail: Plugins,
        about: Part::Plugin { point: "preBindPreFlight", phase: Function::PreBindPreFlight, beside: false },
        rows: [
            Row {
                since: Some(34),
                ..plugin(run!("runPreBindPreFlight"),
                    "preBindPlugins",
                    &["PreBindPreFlight"],
                )
            },
        ],
    }
    /// One plugin's `PreBind`.
    PreBindPlugin {
        detail: Plugins,
        about: Part::Plugin { point: "preBind", phase: Function::PreBind, beside: true },
        rows: [
            // From 1.36 on several may run concurrently.
            Row {
                begin: Begin::Entry,
                at_entry: AT_ENTRY_BESIDE,
                ..plugin(run!("runPreBindPlugin"), "preBindPlugins", &["PreBind"])
            },
        ],
    }
    /// One plugin's `Bind`.
    BindPlugin {
        detail: Plugins,
        about: Part::Plugin { point: "bind", phase: Function::Bind, beside: false },
        rows: [
            plugin(run!("runBindPlugin"), "bindPlugins", &["Bind"]),
        ],
    }
    /// One plugin's `PostBind`.
    PostBindPlugin {
        detail: Plugins,
        about: Part::Plugin { point: "postBind", phase: Function::PostBind, beside: false },
        rows: [
            // A panic there ends the scheduler: which plugin it was is then known, even if none had ever returned.
            Row {
                begin: Begin::Entry,
                at_end: &[],
                ..plugin(run!("runPostBindPlugin"), "postBindPlugins", &["PostBind"])
            },
        ],
    }
}
