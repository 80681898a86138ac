//! The functions of kube-scheduler that are probed, one row each. A new probe is a new row.
//!
//! Names, meaning and order of the calls are those of
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/schedule_one.go> and
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/framework/runtime/framework.go>.

use serde::Serialize;

/// Takes the time since a start, for the scheduler's metrics.
pub(super) const METRIC: &str = "k8s.io/kubernetes/pkg/scheduler/metrics.SinceInSeconds";
/// Package of the scheduling loop.
pub(super) const SCHEDULER: &str = "k8s.io/kubernetes/pkg/scheduler";

/// What a probed function is to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Function {
    /// A Pod enters the active queue.
    Enqueue,
    /// A Pod leaves the queue: its attempt begins.
    Pop,
    /// The part of an attempt that runs one Pod at a time.
    SchedulingCycle,
    /// `PreFilter` plugins.
    PreFilter,
    /// `Filter` plugins on all Nodes. May run twice: first for a nominated Node alone.
    Filter,
    /// `PostFilter` plugins, preemption among them.
    PostFilter,
    /// `PreScore` plugins.
    PreScore,
    /// `Score` plugins on all feasible Nodes.
    Score,
    /// `Reserve` plugins.
    Reserve,
    /// `Permit` plugins.
    Permit,
    /// The part of an attempt that runs beside the next attempts.
    BindingCycle,
    /// Whether `PreBind` plugins have anything to do (1.34 and later).
    PreBindPreFlight,
    /// Waits for what a `Permit` plugin asked to wait for.
    WaitOnPermit,
    /// `PreBind` plugins.
    PreBind,
    /// `Bind` plugins.
    Bind,
    /// `PostBind` plugins.
    PostBind,
    /// What is done about an attempt that failed.
    HandleFailure,
}

/// A value read at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Value {
    /// Address of the `CycleState`: the same in both cycles of an attempt.
    CycleState,
    /// Address of the Pod: it changes once, when the Pod is assumed.
    Pod,
    /// Address of the entry in the queue.
    QueuedPodInfo,
    /// `metadata.name`.
    PodName,
    /// `metadata.namespace`.
    PodNamespace,
    /// `metadata.uid`.
    PodUid,
    /// `spec.schedulerName`: the profile.
    Profile,
    /// How many attempts there have been, this one included.
    Attempts,
    /// First word of the `time.Time` at which the Pod was put into the queue.
    QueueTimestamp,
    /// The Node that was chosen.
    NodeName,
    /// `Status.code`; a nil `*Status` reads as 0, Success.
    StatusCode,
    /// The first of `Status.reasons`.
    StatusReason,
    /// `Status.plugin`.
    StatusPlugin,
}

/// How a function's parameters and results are found: signatures are read, not assumed.
#[derive(Clone, Copy)]
pub(super) enum Signature {
    /// Nothing is read there.
    Unused,
    /// A method of the interface `framework.Framework`.
    Framework(&'static str),
    /// A field of `Scheduler` that holds a function.
    SchedulerField(&'static str),
    /// A method of the interface that is the first parameter of functions of this type.
    InterfaceOf(&'static str, &'static str),
    /// A method of the interface that a field of a struct holds: package, struct, field, method.
    FieldOf(&'static str, &'static str, &'static str, &'static str),
    /// A method with these parameters, which nothing in the executable spells out; its argument info must agree.
    Declared(&'static [&'static str]),
}

/// Where the end of a call is seen.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// Only the entry matters.
    Unused,
    /// At the cheapest instruction after each call in the scheduler's own package; `ret` where there is none.
    Return,
    /// At the entry of the function that always comes next; as [`End::Return`] where there is none of that name.
    NextEntry(&'static str),
    /// Where a closure of the function, run as it returns, takes the time for the scheduler's own metric; as
    /// [`End::Return`] where there is none. Nothing can be read there.
    Metric,
}

/// One value to read.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub(super) value: Value,
    /// The parameter or result, by any of these type strings: they moved between packages.
    pub(super) of: &'static [&'static str],
    /// Fields to go through from there; embedded ones are found by themselves.
    pub(super) path: &'static [&'static str],
}

/// One function; of several rows about the same, the first that the executable can follow.
pub(super) struct Row {
    pub(super) function: Function,
    /// Full symbol names, newest first: the first that the executable has is taken.
    pub(super) symbols: &'static [&'static str],
    pub(super) signature: Signature,
    /// What to read when it is called; `None` where the call itself means nothing.
    pub(super) at_entry: Option<&'static [Want]>,
    /// The call begins, for us, when the function calls this one for the first time: what it does before is not part of
    /// what the scheduler's own metric times. Nothing can be read there.
    pub(super) begins_with: Option<&'static str>,
    pub(super) end: End,
    pub(super) at_end: &'static [Want],
    /// The Kubernetes minor that brought it, where older ones do without.
    pub(super) since: Option<u32>,
    /// What a user misses without it.
    pub(super) without: &'static str,
}

const CYCLE_STATE: &[&str] = &["framework.CycleState", "*framework.CycleState"];
const QUEUED_POD_INFO: &[&str] = &["*framework.QueuedPodInfo"];
const POD: &[&str] = &["*v1.Pod"];
const STATUS: &[&str] = &["*framework.Status"];
const STRING: &[&str] = &["string"];

const STATE: Want = Want { value: Value::CycleState, of: CYCLE_STATE, path: &[] };
const THE_POD: Want = Want { value: Value::Pod, of: POD, path: &[] };
const NODE: Want = Want { value: Value::NodeName, of: STRING, path: &[] };
const CODE: Want = Want { value: Value::StatusCode, of: STATUS, path: &["code"] };

const fn of_queued(value: Value, path: &'static [&'static str]) -> Want {
    Want { value, of: QUEUED_POD_INFO, path }
}

const fn of_status(value: Value, path: &'static [&'static str]) -> Want {
    Want { value, of: STATUS, path }
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
        begins_with: None,
        at_entry: Some(at_entry),
        end: End::Return,
        at_end: &[CODE],
        since: None,
        without,
    }
}

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
    begins_with: None,
    at_entry: Some(&[of_queued(Value::QueuedPodInfo, &[])]),
    end: End::Unused,
    at_end: &[],
    since: None,
    without: "no `k8s.scheduler.queue_wait_ms`",
};

/// An attempt begins.
const POP: Row = Row {
    function: Function::Pop,
    symbols: &[],
    signature: Signature::Unused,
    begins_with: None,
    at_entry: None,
    end: End::Return,
    at_end: &[],
    since: None,
    without: "no attempts at all: nothing says which Pod is being scheduled",
};

const POPPED: &[Want] = &[
    of_queued(Value::QueuedPodInfo, &[]),
    of_queued(Value::Attempts, &["Attempts"]),
    of_queued(Value::QueueTimestamp, &["Timestamp", "wall"]),
    of_queued(Value::Pod, &["Pod"]),
    of_queued(Value::PodName, &["Pod", "Name"]),
    of_queued(Value::PodNamespace, &["Pod", "Namespace"]),
    of_queued(Value::PodUid, &["Pod", "UID"]),
    of_queued(Value::Profile, &["Pod", "Spec", "SchedulerName"]),
];

/// The package of the queue has moved.
macro_rules! queue {
    ($package:literal, $method:literal) => {
        concat!("k8s.io/kubernetes/pkg/scheduler/", $package, "/queue.", $method)
    };
}

const QUEUED: &str = "*k8s.io/kubernetes/pkg/scheduler/framework.QueuedPodInfo";
const LOGGER: &str = "github.com/go-logr/logr.Logger";

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
        at_entry: Some(&[Want {
            value: Value::QueuedPodInfo,
            of: &["framework.QueuedEntityInfo"],
            path: &[],
        }]),
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
        symbols: &[
            queue!("backend", "(*PriorityQueue).Pop"),  // from 1.32 on
            queue!("internal", "(*PriorityQueue).Pop"), // 1.29 to 1.31
        ],
        signature: Signature::SchedulerField("NextPod"),
        // It blocks while the queue is empty: when it began means nothing.
        at_entry: None,
        at_end: POPPED,
        ..POP
    },
    Row {
        // From 1.37 on, what is popped may be a group: the next function takes Pods alone.
        symbols: &[scheduler!("scheduleOnePod")],
        signature: Signature::Declared(&["context.Context", QUEUED]),
        at_entry: Some(POPPED),
        end: End::Unused,
        ..POP
    },
    Row {
        function: Function::SchedulingCycle,
        symbols: &[scheduler!("schedulingCycle")],
        signature: Signature::Unused,
        begins_with: None,
        at_entry: Some(&[]),
        end: End::Return,
        at_end: &[],
        since: None,
        without: "no `schedulingCycle` span",
    },
    phase(
        Function::PreFilter,
        run!("RunPreFilterPlugins"),
        "RunPreFilterPlugins",
        &[STATE, THE_POD],
        "no `preFilter` span",
    ),
    Row {
        function: Function::Filter,
        symbols: &[scheduler!("findNodesThatPassFilters")],
        signature: Signature::Unused,
        // Before it, lists for all Nodes are allocated.
        begins_with: Some("time.Now"),
        at_entry: Some(&[]),
        // After it, a context is cancelled.
        end: End::Metric,
        at_end: &[],
        since: None,
        without: "no `filter` span",
    },
    phase(
        Function::PostFilter,
        run!("RunPostFilterPlugins"),
        "RunPostFilterPlugins",
        &[STATE, THE_POD],
        "no `postFilter` span",
    ),
    phase(
        Function::PreScore,
        run!("RunPreScorePlugins"),
        "RunPreScorePlugins",
        &[STATE, THE_POD],
        "no `preScore` span",
    ),
    Row {
        begins_with: Some("time.Now"),
        ..phase(Function::Score, run!("RunScorePlugins"), "RunScorePlugins", &[], "no `score` span")
    },
    phase(
        Function::Reserve,
        run!("RunReservePluginsReserve"),
        "RunReservePluginsReserve",
        &[STATE, THE_POD, NODE],
        "no `reserve` span and no `k8s.scheduler.selected_node`",
    ),
    phase(
        Function::Permit,
        run!("RunPermitPlugins"),
        "RunPermitPlugins",
        &[STATE, THE_POD],
        "no `permit` span",
    ),
    Row {
        function: Function::BindingCycle,
        symbols: &[scheduler!("bindingCycle")],
        signature: Signature::Unused,
        begins_with: None,
        at_entry: Some(&[]),
        end: End::Return,
        at_end: &[],
        since: None,
        without: "no `bindingCycle` span, and successful attempts have no end",
    },
    Row {
        since: Some(34),
        ..phase(
            Function::PreBindPreFlight,
            run!("RunPreBindPreFlights"),
            "RunPreBindPreFlights",
            &[STATE, THE_POD],
            "no `preBindPreFlight` span",
        )
    },
    phase(Function::WaitOnPermit, run!("WaitOnPermit"), "WaitOnPermit", &[THE_POD], "no `waitOnPermit` span"),
    phase(
        Function::PreBind,
        run!("RunPreBindPlugins"),
        "RunPreBindPlugins",
        &[STATE, THE_POD],
        "no `preBind` span",
    ),
    Row {
        // Its only caller does nothing but return the status through a deferred call of `finishBinding`.
        end: End::NextEntry(scheduler!("finishBinding")),
        at_end: &[],
        ..phase(Function::Bind, run!("RunBindPlugins"), "RunBindPlugins", &[STATE, THE_POD], "no `bind` span")
    },
    Row {
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
        begins_with: None,
        at_entry: Some(&[
            CODE,
            of_status(Value::StatusReason, &["reasons", "*"]),
            of_status(Value::StatusPlugin, &["plugin"]),
        ]),
        end: End::Return,
        at_end: &[],
        since: None,
        without: "failed attempts have no result and no end",
    },
];
