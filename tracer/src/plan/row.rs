//! What a row of the table of probed functions is made of.

use serde::{Deserialize, Serialize};

/// What a probed function is to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Function {
    /// A Pod enters the active queue.
    Enqueue,
    /// A Pod enters the backoff queue.
    EnqueueBackoff,
    /// A Pod enters the unschedulable Pods.
    EnqueueUnschedulable,
    /// The scheduler counts a Pod that enters a queue, and says which and why.
    QueueMove,
    /// A Pod leaves the queue: its attempt begins.
    Pop,
    /// The part of an attempt that runs one Pod at a time.
    SchedulingCycle,
    /// Takes the state of all Nodes from the cache.
    Snapshot,
    /// Whether a Node is known that did for a Pod of the same kind (1.35 and later).
    NodeHint,
    /// A group of Pods is scheduled as one (1.36 and later, with its feature gate on).
    PodGroup,
    /// A Pod of a group is tried, to see whether the group fits; tried once more for each placement.
    PodGroupMember,
    /// The scheduler turns to a part of the cluster that may hold the whole group.
    Placement,
    /// All Pods of a group are tried, on that part of the cluster or on all of it.
    PlacementTrial,
    /// `PlacementGenerate` plugins: which parts of the cluster may hold the group.
    PlacementGenerate,
    /// `PlacementFeasible` plugins: whether it is worth going on (1.37 and later).
    PlacementFeasible,
    /// `PlacementScore` plugins: which of the parts is best.
    PlacementScore,
    /// What is done for a group that does not fit: preemption for all of it.
    PodGroupPostFilter,
    /// The group's condition is written: it says how the attempt came out.
    PodGroupCondition,
    /// `PreFilter` plugins.
    PreFilter,
    /// `Filter` plugins on all Nodes. May run twice: first for a nominated Node alone.
    Filter,
    /// `PostFilter` plugins, preemption among them.
    PostFilter,
    /// Victims are chosen, and the Node for which they go.
    Preemption,
    /// One victim is made to go; from 1.33 on by default when the attempt is over already.
    PreemptPod,
    /// A call of the API server is put into the queue of those that others make (1.34 and later, with its feature gate on).
    ApiCallAdd,
    /// Such a call binds the Pod.
    PodBindingCall,
    /// Such a call writes the Pod's condition or its nominated Node.
    PodStatusPatchCall,
    /// `PreScore` plugins.
    PreScore,
    /// `Score` plugins on all feasible Nodes.
    Score,
    /// All Nodes have their totals, extenders' scores included.
    Prioritize,
    /// An extender is asked which Nodes will do.
    ExtenderFilter,
    /// An extender is asked for its scores.
    ExtenderPrioritize,
    /// An extender binds the Pod.
    ExtenderBind,
    /// An extender is asked which victims will do.
    ExtenderPreemption,
    /// `Reserve` plugins.
    Reserve,
    /// `Unreserve` of `Reserve` plugins: what was reserved is given back.
    Unreserve,
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
    /// The Pod's condition is written: it says why the attempt failed.
    FailureMessage,
    /// One plugin's `PreFilter`.
    PreFilterPlugin,
    /// One plugin's `PostFilter`.
    PostFilterPlugin,
    /// One plugin's `PreScore`.
    PreScorePlugin,
    /// One plugin's `NormalizeScore`.
    NormalizeScorePlugin,
    /// One plugin's `Reserve`.
    ReservePlugin,
    /// One plugin's `Unreserve`.
    UnreservePlugin,
    /// One plugin's `Permit`.
    PermitPlugin,
    /// One plugin's `PreBindPreFlight`.
    PreBindPreFlightPlugin,
    /// One plugin's `PreBind`.
    PreBindPlugin,
    /// One plugin's `Bind`.
    BindPlugin,
    /// One plugin's `PostBind`.
    PostBindPlugin,
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
    /// Address of the type descriptor of the plugin that is called.
    PluginType,
    /// First word of the `time.Time` of the Pod's first attempt.
    FirstAttempt,
    /// Into which queue the Pod goes.
    Queue,
    /// Why it goes there.
    QueueEvent,
    /// How many labels a metric has.
    Labels,
    /// Length of the hinted Node's name; 0 for no hint.
    HintLength,
    /// `ScheduleResult.EvaluatedNodes`.
    EvaluatedNodes,
    /// `ScheduleResult.FeasibleNodes`.
    FeasibleNodes,
    /// To how many Nodes `PreFilter` restricts the search; 0 for no restriction, and for none at all.
    RestrictedTo,
    /// The condition's message.
    Message,
    /// The Node for which victims go.
    PreemptionNode,
    /// How many victims there are.
    Victims,
    /// Name of the first victim.
    FirstVictim,
    /// Name of the second victim.
    SecondVictim,
    /// Name of the third victim.
    ThirdVictim,
    /// The Nodes with the best scores.
    Scores,
    /// Why Nodes would not do.
    Statuses,
    /// Name of the group of Pods.
    GroupName,
    /// Namespace of the group of Pods.
    GroupNamespace,
    /// How many Pods of the group are to be scheduled.
    GroupSize,
    /// Name of the part of the cluster that is tried for a group.
    PlacementName,
    /// The condition's reason.
    ConditionReason,
    /// The URL that an extender is asked at, up to the verb.
    ExtenderUrl,
    /// What comes behind it: empty where the extender is not asked.
    ExtenderVerb,
    /// Whether the scheduler goes on without the extender's answer; the lowest byte of the word.
    Ignorable,
    /// How many Nodes an extender is told about, or lets pass.
    Nodes,
    /// Address of the type descriptor of what an `error` holds; 0 for nil.
    ErrorType,
    /// The message of an `error`, if it begins with it: where it does not, the name of its type.
    ErrorMessage,
    /// The same of what the API server answered.
    ApiErrorMessage,
    /// Address of what is asked of the API server: the same where it is queued and where it is done.
    ApiCall,
    /// Address of the candidate for preemption: the same where it is chosen and where its victims are made to go.
    PreemptionCandidate,
    /// First word of the `time.Time` at which the call began.
    StartWall,
    /// Its second word: nanoseconds since the process began, near enough.
    StartMonotonic,
    /// The first eight bytes of the name of a `Status.code`, and whatever comes behind a shorter one.
    CodeName,
    /// Length of that name.
    CodeNameLength,
    /// Where a closure returns to: into its function, unless a panic runs it.
    ReturnAddress,
}

/// What client-go makes of an answer that is a failure:
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go#L36-L40>.
pub(crate) const STATUS_ERROR: &str = "*errors.StatusError";
/// Types of errors that begin with their message: <https://github.com/golang/go/blob/go1.26.5/src/errors/errors.go#L68-L70>,
/// <https://github.com/golang/go/blob/go1.26.5/src/fmt/errors.go#L66-L92>.
pub(crate) const MESSAGE_FIRST: [&str; 3] = ["*errors.errorString", "*fmt.wrapError", "*fmt.wrapErrors"];

/// How a function's parameters and results are found: signatures are read, not assumed.
#[derive(Clone, Copy)]
pub(super) enum Signature {
    /// Nothing is read there.
    Unused,
    /// A method of the interface `framework.Framework`.
    Framework(&'static str),
    /// A field of a struct that holds a function, a closure of this one: package, struct, field.
    FuncField(&'static str, &'static str, &'static str),
    /// A method of an interface in one of these packages, which moved.
    Interface(&'static [&'static str], &'static str, &'static str),
    /// A field of `Scheduler` that holds a function.
    SchedulerField(&'static str),
    /// A method of the interface that is the first parameter of functions of this type.
    InterfaceOf(&'static str, &'static str),
    /// A method of the interface that a field of a struct holds, or a slice of them: package, struct, field, method.
    FieldOf(&'static str, &'static str, &'static str, &'static str),
    /// Returns first what this method of `framework.Framework` does. Its parameters are not known.
    ResultsOf(&'static str),
    /// A function with these parameters, which nothing in the executable spells out; its argument info must agree.
    Declared(&'static [&'static str]),
    /// Calls a method of the plugins in a list: the field of `frameworkImpl` that holds them, and the method, by way of
    /// another that returns an interface. Context and plugin come first, then what the method takes.
    PluginMethod(&'static str, &'static [&'static str]),
}

/// Where a hit says that a function has been called.
#[derive(Clone, Copy)]
pub(super) enum Begin {
    /// The call itself means nothing.
    Unused,
    /// At its entry.
    Entry,
    /// Where the call before it in the same phase has ended, or the phase has begun: nothing else is done in between. Its end
    /// then tells what the entry would have told. As [`Begin::Entry`] where who was called cannot be read any more at the end.
    InTurn,
    /// When the function calls this one for the first time: what it does before is not part of what the scheduler's own
    /// metric times. Nothing can be read there.
    FirstCall(&'static str),
    /// When the function has called this one for the first time: as [`Begin::FirstCall`], a little later. For functions that
    /// take long from the end of what is timed to their own.
    AfterFirstCall(&'static str),
    /// Where functions of these packages call it.
    CallsIn(&'static [&'static str]),
}

/// Where the end of a call is seen.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// Only the entry matters.
    Unused,
    /// At the cheapest instruction after each call in the scheduler's own package; `ret` where there is none.
    Return,
    /// At the entry of the function that always comes next; as [`End::Return`] where there is none of that name. What is read
    /// are its parameters, which are one of these lists; nothing where its arguments agree with none.
    NextEntry(&'static str, &'static [&'static [&'static str]]),
    /// Where the function, or a closure of it that runs as it returns, takes the time for the scheduler's own metric: when the
    /// call began is an argument there, and the label in this place says how it came out, so that one hit tells it all. As
    /// [`Row::begin`] and [`End::Return`] where there is no such place, or where its status is wanted and no label can be read.
    Metric(u32),
    /// There as well, where what the entry tells is needed: it is for what has no status. As [`End::Return`] where there is no
    /// such place.
    AtMetric,
}

/// One value to read.
#[derive(Clone, Copy)]
pub(super) struct Want {
    pub(super) value: Value,
    /// The parameter or result, by any of these type strings: they moved between packages.
    pub(super) of: &'static [&'static str],
    /// Fields to go through from there; embedded ones are found by themselves. `*` stands for the first element of a
    /// slice, `*1` for the second and so on, `#` for the length of a slice or map.
    pub(super) path: &'static [&'static str],
    pub(super) seen_as: SeenAs,
}

/// What a parameter or result is taken for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SeenAs {
    /// What its type says.
    Declared,
    /// A plugin, whose own type is looked for, behind the wrapper that counts its calls where there is one.
    Plugin,
    /// The receiver, which no signature lists.
    Receiver,
    /// The last of several of that type.
    Last,
    /// An interface, of which the type of what it holds is looked for.
    InterfaceType,
    /// An interface that holds a pointer to this struct: package and name.
    PointerTo(&'static str, &'static str),
    /// The scores of all Nodes.
    Scores,
    /// The statuses of the Nodes that would not do.
    Statuses,
}

/// One function; of several rows about the same, the first that the executable can follow.
pub(super) struct Row {
    pub(super) function: Function,
    /// Full symbol names, newest first: the first that the executable has is taken.
    pub(super) symbols: &'static [&'static str],
    pub(super) signature: Signature,
    pub(super) begin: Begin,
    /// What to read when it is called.
    pub(super) at_entry: &'static [Want],
    pub(super) end: End,
    pub(super) at_end: &'static [Want],
    /// The Kubernetes minor that brought it, where older ones do without.
    pub(super) since: Option<u32>,
    /// What a user misses without it.
    pub(super) without: &'static str,
}
