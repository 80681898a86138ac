//! The functions of kube-scheduler that are probed, one row each. A new probe is a new row.
//!
//! Names, meaning and order of the calls are those of
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/schedule_one.go> and
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/framework/runtime/framework.go>.

use super::row::{Begin, End, Function, Row, SeenAs, Signature, Value, Want};

/// Takes the time since a start, for the scheduler's metrics.
pub(super) const METRIC: &str = "k8s.io/kubernetes/pkg/scheduler/metrics.SinceInSeconds";
/// Chooses a metric by its labels.
pub(super) const LABELLED: &str = "k8s.io/component-base/metrics.(*HistogramVec).WithLabelValues";
/// Since when, the time is taken.
pub(super) const METRIC_WANTS: &[Want] = &[
    want(Value::StartWall, &["time.Time"], &["wall"]),
    want(Value::StartMonotonic, &["time.Time"], &["ext"]),
];
/// The labels of the metric of extension points are the point, the status and the profile.
const STATUS_LABEL: u32 = 1;
/// Package of the scheduling loop.
pub(super) const SCHEDULER: &str = "k8s.io/kubernetes/pkg/scheduler";
/// Package of what plugins and scheduler share.
pub(super) const FRAMEWORK: &str = "k8s.io/kubernetes/pkg/scheduler/framework";
/// Package of what runs the plugins.
pub(super) const RUNTIME: &str = "k8s.io/kubernetes/pkg/scheduler/framework/runtime";
/// Packages of the queue: it has moved.
pub(super) const QUEUES: [&str; 2] =
    ["k8s.io/kubernetes/pkg/scheduler/backend/queue", "k8s.io/kubernetes/pkg/scheduler/internal/queue"];

const CYCLE_STATE: &[&str] = &["framework.CycleState", "*framework.CycleState"];
const QUEUED_POD_INFO: &[&str] = &["*framework.QueuedPodInfo"];
const QUEUED_ENTITY_INFO: &[&str] = &["framework.QueuedEntityInfo"];
const POD: &[&str] = &["*v1.Pod"];
const STATUS: &[&str] = &["*framework.Status"];
const STRING: &[&str] = &["string"];

const STATE: Want = want(Value::CycleState, CYCLE_STATE, &[]);
/// All Nodes' scores, and of each the plugins'.
const SCORES: Want =
    Want { seen_as: SeenAs::Scores, ..want(Value::Scores, &["[]framework.NodePluginScores"], &[]) };
/// A map up to 1.31, later what holds one.
const STATUSES: Want = Want {
    seen_as: SeenAs::Statuses,
    ..want(Value::Statuses, &["framework.NodeToStatusReader", "framework.NodeToStatusMap"], &[])
};
const THE_POD: Want = want(Value::Pod, POD, &[]);
const NODE: Want = want(Value::NodeName, STRING, &[]);
const CODE: Want = want(Value::StatusCode, STATUS, &["code"]);
const REASON: Want = want(Value::StatusReason, STATUS, &["reasons", "*"]);
const PLUGIN: Want = Want { seen_as: SeenAs::Plugin, ..want(Value::PluginType, &[], &[]) };

const fn want(value: Value, of: &'static [&'static str], path: &'static [&'static str]) -> Want {
    Want { value, of, path, seen_as: SeenAs::Declared }
}

const fn of_queued(value: Value, path: &'static [&'static str]) -> Want {
    want(value, QUEUED_POD_INFO, path)
}

/// A phase that the framework runs.
const fn phase(
    function: Function,
    symbols: &'static [&'static str],
    method: &'static str,
    at_entry: &'static [Want],
    without: &'static str,
) -> Row {
    Row {
        function,
        symbols,
        signature: Signature::Framework(method),
        begin: Begin::Entry,
        at_entry,
        end: End::Return,
        at_end: &[CODE],
        since: None,
        without,
    }
}

/// One plugin's part in a phase that calls its plugins one after the other.
const fn plugin(
    function: Function,
    symbols: &'static [&'static str],
    list: &'static str,
    methods: &'static [&'static str],
) -> Row {
    Row {
        function,
        symbols,
        signature: Signature::PluginMethod(list, methods),
        begin: Begin::InTurn,
        at_entry: &[PLUGIN],
        end: End::Return,
        at_end: &[CODE, REASON],
        since: None,
        without: "no spans of plugins in this phase",
    }
}

/// What is different where they may run beside each other, on goroutines of their own.
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

/// A Pod enters the active queue.
const ENQUEUE: Row = Row {
    function: Function::Enqueue,
    symbols: &[],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[of_queued(Value::QueuedPodInfo, &[])],
    end: End::Unused,
    at_end: &[],
    since: None,
    without: "no `k8s.scheduler.queue_wait_ms`",
};

const ENQUEUE_BACKOFF: Row = Row { function: Function::EnqueueBackoff, without: NO_MOVES, ..ENQUEUE };
const ENQUEUE_UNSCHEDULABLE: Row =
    Row { function: Function::EnqueueUnschedulable, without: NO_MOVES, ..ENQUEUE };
const NO_MOVES: &str = "Pods whose ways through the queues have gaps";

/// An attempt begins.
const POP: Row = Row {
    function: Function::Pop,
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

/// Its URL, its verbs and whether it may fail are in its struct:
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/extender.go#L46-L57>.
const EXTENDER: &[&str] = &["*scheduler.HTTPExtender"];
const ERROR: &[&str] = &["error"];
const ERROR_TYPE: Want = Want { seen_as: SeenAs::InterfaceType, ..want(Value::ErrorType, ERROR, &[]) };
const ERROR_MESSAGE: Want =
    Want { seen_as: SeenAs::PointerTo("errors", "errorString"), ..want(Value::ErrorMessage, ERROR, &["s"]) };
const NODES: Want = want(
    Value::Nodes,
    &["[]framework.NodeInfo", "[]*framework.NodeInfo", "[]*v1.Node"], // from 1.34 on; from 1.30 on; 1.29
    &["#"],
);

const fn of_extender(value: Value, path: &'static [&'static str]) -> Want {
    of_receiver(value, EXTENDER, path)
}

/// Asks an extender over HTTP. The end is seen where the method returns, which costs nothing where there are no extenders,
/// and next to nothing beside a request.
const fn extender(
    function: Function,
    symbols: &'static [&'static str],
    method: &'static str,
    at_entry: &'static [Want],
) -> Row {
    Row {
        function,
        symbols,
        signature: Signature::FieldOf(SCHEDULER, "Scheduler", "Extenders", method),
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

/// What a call of the API server that others make came to.
const API_ERROR_MESSAGE: Want = Want {
    seen_as: SeenAs::PointerTo("k8s.io/apimachinery/pkg/api/errors", "StatusError"),
    ..want(Value::ApiErrorMessage, ERROR, &["ErrStatus", "Message"])
};
/// The scheduler's interfaces moved in 1.35.
const FRAMEWORKS: &[&str] = &["k8s.io/kube-scheduler/framework", FRAMEWORK];

const fn of_receiver(value: Value, of: &'static [&'static str], path: &'static [&'static str]) -> Want {
    Want { seen_as: SeenAs::Receiver, ..want(value, of, path) }
}

/// A call of the API server that was queued is made. All of it is in slow functions: their `ret` costs next to nothing.
const API_CALL: Row = Row {
    function: Function::ApiCallAdd,
    symbols: &[],
    signature: Signature::Interface(FRAMEWORKS, "APICall", "Execute"),
    begin: Begin::Entry,
    at_entry: &[],
    end: End::Return,
    at_end: &[ERROR_TYPE, API_ERROR_MESSAGE],
    since: Some(34),
    without: "no spans of asynchronous API calls",
};
const BINDING_CALL: &[&str] = &["*apicalls.PodBindingCall"];
const STATUS_PATCH_CALL: &[&str] = &["*apicalls.PodStatusPatchCall"];

/// A victim is made to go: a patch of its status, and a deletion.
const PREEMPT_POD: Row = Row {
    function: Function::PreemptPod,
    symbols: &[],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[
        CANDIDATE_ADDRESS,
        Want { seen_as: SeenAs::Last, ..want(Value::PodName, POD, &["Name"]) },
        Want { seen_as: SeenAs::Last, ..want(Value::PodUid, POD, &["UID"]) },
    ],
    end: End::Return,
    at_end: &[ERROR_TYPE, API_ERROR_MESSAGE],
    since: Some(32),
    without: "no spans of what is done to victims",
};
const CANDIDATE_ADDRESS: Want = want(Value::PreemptionCandidate, &["preemption.Candidate"], &[]);

/// The package of the queue has moved.
macro_rules! queue {
    ($package:literal, $method:literal) => {
        concat!("k8s.io/kubernetes/pkg/scheduler/", $package, "/queue.", $method)
    };
}

const QUEUED: &str = "*k8s.io/kubernetes/pkg/scheduler/framework.QueuedPodInfo";
const QUEUED_ENTITY: &str = "k8s.io/kubernetes/pkg/scheduler/framework.QueuedEntityInfo";
const ANY_QUEUED: &[&str] = &[QUEUED_POD_INFO[0], QUEUED_ENTITY_INFO[0]];
const SCHEDULE_RESULT: &[&str] = &["scheduler.ScheduleResult"];
const LABELS: &[&str] = &["[]string"];
const LOGGER: &str = "github.com/go-logr/logr.Logger";
const CONTEXT: &str = "context.Context";
/// What holds the chosen Node and its victims.
const CANDIDATE: (&str, &str) = ("k8s.io/kubernetes/pkg/scheduler/framework/preemption", "candidate");

const fn of_candidate(value: Value, path: &'static [&'static str]) -> Want {
    Want {
        seen_as: SeenAs::PointerTo(CANDIDATE.0, CANDIDATE.1),
        ..want(value, &["preemption.Candidate"], path)
    }
}

/// Who must go, and from where.
const VICTIMS: &[Want] = &[
    of_candidate(Value::Victims, &["victims", "Pods", "#"]),
    of_candidate(Value::PreemptionNode, &["name"]),
    of_candidate(Value::FirstVictim, &["victims", "Pods", "*", "Name"]),
    // Where there are fewer, what is read here is not looked at.
    of_candidate(Value::SecondVictim, &["victims", "Pods", "*1", "Name"]),
    of_candidate(Value::ThirdVictim, &["victims", "Pods", "*2", "Name"]),
];

/// Victims are chosen.
const PREEMPTION: Row = Row {
    function: Function::Preemption,
    symbols: &[],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[VICTIMS[0], VICTIMS[1], VICTIMS[2], VICTIMS[3], VICTIMS[4], CANDIDATE_ADDRESS],
    end: End::Unused,
    at_end: &[],
    since: None,
    without: "no victims of preemption",
};

/// The part of an attempt that runs beside others.
const BINDING_CYCLE: Row = Row {
    function: Function::BindingCycle,
    symbols: &[scheduler!("bindingCycle")],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[],
    end: End::Return,
    at_end: &[],
    since: None,
    without: "no `bindingCycle` span, and successful attempts have no end",
};
const BINDING: &[Want] = &[
    STATE,
    want(Value::EvaluatedNodes, SCHEDULE_RESULT, &["EvaluatedNodes"]),
    want(Value::FeasibleNodes, SCHEDULE_RESULT, &["FeasibleNodes"]),
];
const FRAMEWORK_INTERFACE: &str = "k8s.io/kubernetes/pkg/scheduler/framework.Framework";
const PODS_TO_ACTIVATE: &str = "*k8s.io/kubernetes/pkg/scheduler/framework.PodsToActivate";

/// The message of a failure is written down.
const FAILURE_MESSAGE: Row = Row {
    function: Function::FailureMessage,
    symbols: &["k8s.io/kubernetes/pkg/scheduler.updatePod"],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[want(Value::Message, &["*v1.PodCondition"], &["Message"])],
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
    want(value, &["*framework.QueuedPodGroupInfo"], path)
}

/// A part of what is done for a group of Pods, of which nothing is read.
const OF_GROUP: Row = Row {
    function: Function::PodGroup,
    symbols: &[],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[],
    end: End::Return,
    at_end: &[],
    since: Some(36),
    without: "",
};

/// A Pod of a group is tried.
const MEMBER: Row = Row {
    function: Function::PodGroupMember,
    symbols: &[scheduler!("podGroupPodSchedulingAlgorithm")],
    at_entry: POPPED,
    without: "no attempts of Pods that are scheduled as a group",
    ..OF_GROUP
};

/// How a group's attempt came out is written down.
const CONDITION_OF_GROUP: Row = Row {
    function: Function::PodGroupCondition,
    symbols: &[scheduler!("updatePodGroupCondition")],
    at_entry: &[
        want(Value::ConditionReason, &["*v1.Condition"], &["Reason"]),
        want(Value::Message, &["*v1.Condition"], &["Message"]),
    ],
    end: End::Unused,
    without: "no results of groups of Pods",
    ..OF_GROUP
};

pub(super) const TABLE: &[Row] = &[
    Row {
        symbols: &[queue!("backend", "(*unlockedActiveQueue).add")], // 1.33 to 1.36
        signature: Signature::InterfaceOf("func(queue.unlockedActiveQueuer)", "add"),
        ..ENQUEUE
    },
    Row {
        symbols: &[queue!("backend", "(*activeQueue).add")], // 1.37
        signature: Signature::FieldOf(
            "k8s.io/kubernetes/pkg/scheduler/backend/queue",
            "PriorityQueue",
            "activeQ",
            "add",
        ),
        // What enters may also be a group of Pods: its address is never that of a Pod that leaves.
        at_entry: &[want(Value::QueuedPodInfo, QUEUED_ENTITY_INFO, &[])],
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
        symbols: &[queue!("internal", "(*PriorityQueue).addToActiveQ")], // 1.29 and 1.30
        signature: Signature::Declared(&[LOGGER, QUEUED]),
        ..ENQUEUE
    },
    Row {
        symbols: &[queue!("backend", "(*backoffQueue).add")], // from 1.33 on
        signature: Signature::FieldOf(QUEUES[0], "PriorityQueue", "backoffQ", "add"),
        at_entry: &[want(Value::QueuedPodInfo, ANY_QUEUED, &[])],
        ..ENQUEUE_BACKOFF
    },
    Row {
        symbols: &[
            queue!("backend", "(*PriorityQueue).addUnschedulableWithoutQueueingHint"), // 1.32
            queue!("internal", "(*PriorityQueue).addUnschedulableWithoutQueueingHint"), // 1.29 to 1.31
        ],
        signature: Signature::Declared(&[LOGGER, QUEUED, "int64"]),
        at_entry: &[of_queued(Value::QueuedPodInfo, &[])],
        ..ENQUEUE_BACKOFF
    },
    Row {
        symbols: &[queue!("backend", "(*unschedulableEntities).addOrUpdate")], // 1.37
        signature: Signature::Declared(&[QUEUED_ENTITY, "bool", "string", "*int"]),
        at_entry: &[want(Value::QueuedPodInfo, QUEUED_ENTITY_INFO, &[])],
        ..ENQUEUE_UNSCHEDULABLE
    },
    Row {
        symbols: &[queue!("backend", "(*unschedulablePods).addOrUpdate")], // 1.36
        signature: Signature::Declared(&[QUEUED, "bool", "string"]),
        ..ENQUEUE_UNSCHEDULABLE
    },
    Row {
        symbols: &[
            queue!("backend", "(*unschedulablePods).addOrUpdate"), // 1.34 and 1.35
            queue!("backend", "(*UnschedulablePods).addOrUpdate"), // 1.33
        ],
        signature: Signature::Declared(&[QUEUED, "string"]),
        ..ENQUEUE_UNSCHEDULABLE
    },
    Row {
        symbols: &[
            queue!("backend", "(*PriorityQueue).requeuePodViaQueueingHint"), // 1.32
            queue!("internal", "(*PriorityQueue).requeuePodViaQueueingHint"), // 1.29 to 1.31
        ],
        // The strategy is a number.
        signature: Signature::Declared(&[LOGGER, QUEUED, "int", "string"]),
        ..ENQUEUE_UNSCHEDULABLE
    },
    Row {
        function: Function::QueueMove,
        symbols: &["k8s.io/component-base/metrics.(*CounterVec).WithLabelValues"],
        signature: Signature::Declared(&["[]string"]),
        begin: Begin::CallsIn(&QUEUES),
        at_entry: &[
            want(Value::Labels, LABELS, &["#"]),
            want(Value::Queue, LABELS, &["*"]),
            want(Value::QueueEvent, LABELS, &["*1"]),
        ],
        end: End::Unused,
        at_end: &[],
        since: None,
        without: "no reasons why Pods entered a queue",
    },
    Row {
        symbols: &[
            queue!("backend", "(*PriorityQueue).Pop"),  // from 1.32 on
            queue!("internal", "(*PriorityQueue).Pop"), // 1.29 to 1.31
        ],
        signature: Signature::SchedulerField("NextPod"),
        // It blocks while the queue is empty: when it began means nothing.
        at_end: POPPED,
        ..POP
    },
    Row {
        // From 1.37 on, what is popped may be a group: the next function takes Pods alone.
        symbols: &[scheduler!("scheduleOnePod")],
        signature: Signature::Declared(&["context.Context", QUEUED]),
        begin: Begin::Entry,
        at_entry: POPPED,
        end: End::Unused,
        ..POP
    },
    Row {
        function: Function::SchedulingCycle,
        symbols: &[scheduler!("schedulingCycle")],
        signature: Signature::Unused,
        begin: Begin::Entry,
        at_entry: &[],
        end: End::Return,
        at_end: &[],
        since: None,
        without: "no `schedulingCycle` span",
    },
    Row {
        function: Function::Snapshot,
        symbols: &[
            "k8s.io/kubernetes/pkg/scheduler/backend/cache.(*cacheImpl).UpdateSnapshot",
            "k8s.io/kubernetes/pkg/scheduler/internal/cache.(*cacheImpl).UpdateSnapshot", // 1.29 to 1.31
        ],
        signature: Signature::FieldOf(SCHEDULER, "Scheduler", "Cache", "UpdateSnapshot"),
        begin: Begin::Entry,
        at_entry: &[],
        end: End::Return,
        at_end: &[],
        since: None,
        without: "no `snapshot` span",
    },
    Row {
        function: Function::NodeHint,
        // It is told which Node was hinted: the first of its strings.
        symbols: run!("StoreScheduleResults"),
        signature: Signature::Framework("StoreScheduleResults"),
        begin: Begin::Entry,
        at_entry: &[want(Value::HintLength, STRING, &["#"])],
        end: End::Unused,
        at_end: &[],
        since: Some(35),
        without: "no `k8s.scheduler.batched`",
    },
    Row {
        function: Function::PodGroup,
        symbols: &[scheduler!("scheduleOnePodGroup")],
        signature: Signature::Declared(&[CONTEXT, QUEUED_GROUP]),
        begin: Begin::Entry,
        at_entry: &[
            of_group(Value::QueuedPodInfo, &[]),
            of_group(Value::GroupName, &["Name"]),
            of_group(Value::GroupNamespace, &["Namespace"]),
            of_group(Value::GroupSize, &["QueuedPodInfos", "#"]),
        ],
        end: End::Return,
        at_end: &[],
        since: Some(36),
        without: "attempts of Pods that are scheduled as a group are taken for those of one Pod",
    },
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
        // 1.36. How to run `PostFilter` plugins is a number.
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
    Row {
        function: Function::Placement,
        symbols: &["k8s.io/kubernetes/pkg/scheduler/backend/cache.(*Snapshot).AssumePlacement"],
        signature: Signature::Declared(&["*k8s.io/kube-scheduler/framework.Placement"]),
        begin: Begin::Entry,
        at_entry: &[want(Value::PlacementName, &["*framework.Placement"], &["Name"])],
        end: End::Unused,
        without: "no names of placements",
        ..OF_GROUP
    },
    Row {
        function: Function::PlacementTrial,
        symbols: &[scheduler!("podGroupSchedulingDefaultAlgorithm")],
        without: "no `placement` spans",
        ..OF_GROUP
    },
    Row {
        since: Some(36),
        ..phase(
            Function::PlacementGenerate,
            run!("RunPlacementGeneratePlugins"),
            "RunPlacementGeneratePlugins",
            &[],
            "no `placementGenerate` span",
        )
    },
    Row {
        since: Some(37),
        ..phase(
            Function::PlacementFeasible,
            run!("RunPlacementFeasiblePlugins"),
            "RunPlacementFeasiblePlugins",
            &[],
            "no `placementFeasible` span",
        )
    },
    Row {
        since: Some(36),
        ..phase(
            Function::PlacementScore,
            run!("RunPlacementScorePlugins"),
            "RunPlacementScorePlugins",
            &[],
            "no `placementScore` span",
        )
    },
    Row {
        since: Some(36),
        ..phase(
            Function::PodGroupPostFilter,
            run!("RunPodGroupPostFilterPlugins"), // 1.37
            "RunPodGroupPostFilterPlugins",
            &[],
            "no `podGroupPostFilter` span",
        )
    },
    Row {
        function: Function::PodGroupPostFilter,
        symbols: &[scheduler!("runWorkloadAwarePreemption")], // 1.36
        without: "no `podGroupPostFilter` span",
        ..OF_GROUP
    },
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
    Row {
        at_end: &[CODE, want(Value::RestrictedTo, &["*framework.PreFilterResult"], &["NodeNames", "#"])],
        ..phase(
            Function::PreFilter,
            run!("RunPreFilterPlugins"),
            "RunPreFilterPlugins",
            &[STATE, THE_POD],
            "no `preFilter` span",
        )
    },
    Row {
        function: Function::Filter,
        symbols: &[scheduler!("findNodesThatPassFilters")],
        signature: Signature::Unused,
        // Before it, lists for all Nodes are allocated.
        begin: Begin::FirstCall("time.Now"),
        at_entry: &[],
        end: End::Metric(STATUS_LABEL),
        at_end: &[],
        since: None,
        without: "no `filter` span",
    },
    phase(
        Function::PostFilter,
        run!("RunPostFilterPlugins"),
        "RunPostFilterPlugins",
        &[THE_POD, STATUSES],
        "no `postFilter` span",
    ),
    Row {
        // 1.36 and later. With the gate of asynchronous preemption switched off nobody calls it, and no victims are seen.
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
        // Up to 1.32. Its victims have gone when it returns.
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
    Row {
        symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/preemption.NewExecutor.func1"], // 1.36 and later
        signature: Signature::FuncField(CANDIDATE.0, "Executor", "PreemptPod"),
        ..PREEMPT_POD
    },
    Row {
        symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/preemption.NewEvaluator.func1"], // 1.32 to 1.35
        signature: Signature::FuncField(CANDIDATE.0, "Evaluator", "PreemptPod"),
        ..PREEMPT_POD
    },
    Row {
        symbols: &["k8s.io/kubernetes/pkg/scheduler/backend/api_dispatcher.(*APIDispatcher).Add"],
        signature: Signature::Interface(FRAMEWORKS, "APIDispatcher", "Add"),
        at_entry: &[want(Value::ApiCall, &["framework.APICall"], &[])],
        at_end: &[ERROR_TYPE],
        ..API_CALL
    },
    Row {
        function: Function::PodBindingCall,
        symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/api_calls.(*PodBindingCall).Execute"],
        at_entry: &[
            of_receiver(Value::ApiCall, BINDING_CALL, &[]),
            of_receiver(Value::PodUid, BINDING_CALL, &["binding", "UID"]),
        ],
        ..API_CALL
    },
    Row {
        function: Function::PodStatusPatchCall,
        symbols: &["k8s.io/kubernetes/pkg/scheduler/framework/api_calls.(*PodStatusPatchCall).Execute"],
        at_entry: &[
            of_receiver(Value::ApiCall, STATUS_PATCH_CALL, &[]),
            of_receiver(Value::PodUid, STATUS_PATCH_CALL, &["podUID"]),
        ],
        ..API_CALL
    },
    Row {
        end: End::Metric(STATUS_LABEL),
        ..phase(
            Function::PreScore,
            run!("RunPreScorePlugins"),
            "RunPreScorePlugins",
            &[STATE, THE_POD],
            "no `preScore` span",
        )
    },
    Row {
        begin: Begin::AfterFirstCall("time.Now"),
        end: End::Metric(STATUS_LABEL),
        ..phase(Function::Score, run!("RunScorePlugins"), "RunScorePlugins", &[], "no `score` span")
    },
    Row {
        function: Function::Prioritize,
        symbols: &["k8s.io/kubernetes/pkg/scheduler.prioritizeNodes"],
        signature: Signature::ResultsOf("RunScorePlugins"),
        begin: Begin::Unused,
        at_entry: &[],
        end: End::Return,
        at_end: &[SCORES],
        since: None,
        without: "no `k8s.scheduler.candidates`",
    },
    Row {
        at_end: &[ERROR_TYPE, ERROR_MESSAGE, NODES],
        ..extender(
            Function::ExtenderFilter,
            extender!("Filter"),
            "Filter",
            &[
                of_extender(Value::ExtenderUrl, &["extenderURL"]),
                of_extender(Value::ExtenderVerb, &["filterVerb"]),
                of_extender(Value::Ignorable, &["ignorable"]),
                NODES,
            ],
        )
    },
    // On a goroutine of its own for each extender.
    extender(
        Function::ExtenderPrioritize,
        extender!("Prioritize"),
        "Prioritize",
        &[
            of_extender(Value::ExtenderUrl, &["extenderURL"]),
            of_extender(Value::ExtenderVerb, &["prioritizeVerb"]),
            of_extender(Value::Ignorable, &["ignorable"]),
            NODES,
            THE_POD,
        ],
    ),
    extender(
        Function::ExtenderBind,
        extender!("Bind"),
        "Bind",
        &[
            of_extender(Value::ExtenderUrl, &["extenderURL"]),
            of_extender(Value::ExtenderVerb, &["bindVerb"]),
            of_extender(Value::Ignorable, &["ignorable"]),
        ],
    ),
    extender(
        Function::ExtenderPreemption,
        extender!("ProcessPreemption"),
        "ProcessPreemption",
        &[
            of_extender(Value::ExtenderUrl, &["extenderURL"]),
            of_extender(Value::ExtenderVerb, &["preemptVerb"]),
            of_extender(Value::Ignorable, &["ignorable"]),
            want(Value::Nodes, &["map[string]*v1.Victims"], &["#"]),
        ],
    ),
    phase(
        Function::Reserve,
        run!("RunReservePluginsReserve"),
        "RunReservePluginsReserve",
        &[STATE, THE_POD, NODE],
        "no `reserve` span and no `k8s.scheduler.selected_node`",
    ),
    Row {
        end: End::AtMetric,
        at_end: &[],
        ..phase(
            Function::Unreserve,
            run!("RunReservePluginsUnreserve"),
            "RunReservePluginsUnreserve",
            // Of a group of Pods, it says whose.
            &[STATE, THE_POD],
            "no `unreserve` span",
        )
    },
    Row {
        end: End::Metric(STATUS_LABEL),
        ..phase(
            Function::Permit,
            run!("RunPermitPlugins"),
            "RunPermitPlugins",
            &[STATE, THE_POD],
            "no `permit` span",
        )
    },
    Row {
        signature: Signature::Declared(&[
            CONTEXT,
            "k8s.io/kube-scheduler/framework.CycleState", // 1.34 and later
            FRAMEWORK_INTERFACE,
            "k8s.io/kubernetes/pkg/scheduler.ScheduleResult",
            QUEUED,
            "time.Time",
            PODS_TO_ACTIVATE,
        ]),
        at_entry: BINDING,
        ..BINDING_CYCLE
    },
    Row {
        signature: Signature::Declared(&[
            CONTEXT,
            "*k8s.io/kubernetes/pkg/scheduler/framework.CycleState", // up to 1.33
            FRAMEWORK_INTERFACE,
            "k8s.io/kubernetes/pkg/scheduler.ScheduleResult",
            QUEUED,
            "time.Time",
            PODS_TO_ACTIVATE,
        ]),
        at_entry: BINDING,
        ..BINDING_CYCLE
    },
    // What is read there can be done without.
    BINDING_CYCLE,
    Row {
        since: Some(34),
        end: End::Metric(STATUS_LABEL),
        ..phase(
            Function::PreBindPreFlight,
            run!("RunPreBindPreFlights"),
            "RunPreBindPreFlights",
            &[STATE, THE_POD],
            "no `preBindPreFlight` span",
        )
    },
    Row {
        // The metric, of those that waited alone, has no other label.
        end: End::Metric(0),
        ..phase(
            Function::WaitOnPermit,
            run!("WaitOnPermit"),
            "WaitOnPermit",
            &[THE_POD],
            "no `waitOnPermit` span",
        )
    },
    Row {
        end: End::Metric(STATUS_LABEL),
        ..phase(
            Function::PreBind,
            run!("RunPreBindPlugins"),
            "RunPreBindPlugins",
            &[STATE, THE_POD],
            "no `preBind` span",
        )
    },
    Row {
        // Its only caller does nothing but return the status through a deferred call of `finishBinding`, which gets it.
        end: End::NextEntry(
            scheduler!("finishBinding"),
            &[
                &[LOGGER, FRAMEWORK_INTERFACE, POD_TYPE, "string", "*k8s.io/kube-scheduler/framework.Status"],
                &[
                    LOGGER,
                    FRAMEWORK_INTERFACE,
                    POD_TYPE,
                    "string",
                    "*k8s.io/kubernetes/pkg/scheduler/framework.Status", // up to 1.33
                ],
            ],
        ),
        ..phase(Function::Bind, run!("RunBindPlugins"), "RunBindPlugins", &[STATE, THE_POD], "no `bind` span")
    },
    Row {
        end: End::Metric(STATUS_LABEL),
        at_end: &[],
        ..phase(
            Function::PostBind,
            run!("RunPostBindPlugins"),
            "RunPostBindPlugins",
            &[STATE, THE_POD],
            "no `postBind` span, and successful attempts cannot be told from failed ones",
        )
    },
    Row {
        function: Function::HandleFailure,
        symbols: &[scheduler!("handleSchedulingFailure")],
        signature: Signature::SchedulerField("FailureHandler"),
        begin: Begin::Entry,
        at_entry: &[
            CODE,
            REASON,
            want(Value::StatusPlugin, STATUS, &["plugin"]),
            // Whose failure it is, says the attempt; but of a group of Pods, some may fail that were not tried.
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
    plugin(Function::PreFilterPlugin, run!("runPreFilterPlugin"), "preFilterPlugins", &["PreFilter"]),
    plugin(Function::PostFilterPlugin, run!("runPostFilterPlugin"), "postFilterPlugins", &["PostFilter"]),
    plugin(Function::PreScorePlugin, run!("runPreScorePlugin"), "preScorePlugins", &["PreScore"]),
    Row {
        begin: Begin::Entry,
        at_entry: AT_ENTRY_BESIDE,
        ..plugin(
            Function::NormalizeScorePlugin,
            run!("runScoreExtension"),
            "scorePlugins",
            &["ScoreExtensions", "NormalizeScore"],
        )
    },
    plugin(Function::ReservePlugin, run!("runReservePluginReserve"), "reservePlugins", &["Reserve"]),
    Row {
        at_end: &[],
        ..plugin(
            Function::UnreservePlugin,
            run!("runReservePluginUnreserve"),
            "reservePlugins",
            &["Unreserve"],
        )
    },
    plugin(Function::PermitPlugin, run!("runPermitPlugin"), "permitPlugins", &["Permit"]),
    Row {
        since: Some(34),
        ..plugin(
            Function::PreBindPreFlightPlugin,
            run!("runPreBindPreFlight"),
            "preBindPlugins",
            &["PreBindPreFlight"],
        )
    },
    // From 1.36 on several may run at once.
    Row {
        begin: Begin::Entry,
        at_entry: AT_ENTRY_BESIDE,
        ..plugin(Function::PreBindPlugin, run!("runPreBindPlugin"), "preBindPlugins", &["PreBind"])
    },
    plugin(Function::BindPlugin, run!("runBindPlugin"), "bindPlugins", &["Bind"]),
    Row {
        at_end: &[],
        ..plugin(Function::PostBindPlugin, run!("runPostBindPlugin"), "postBindPlugins", &["PostBind"])
    },
];
