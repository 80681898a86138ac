//! The values that probes read in kube-scheduler.

use gotrace::values;

values! {
    /// A value that a probe reads.
    pub enum Value;

    /// Address of the `CycleState`, equal in both cycles of an attempt.
    CycleState: Number,
    /// Address of the Pod; changes once, when the Pod is assumed.
    Pod: Number,
    /// Address of the `QueuedPodInfo`.
    QueuedPodInfo: Number,
    /// `metadata.name`.
    PodName: Text,
    /// `metadata.namespace`.
    PodNamespace: Text,
    /// `metadata.uid`.
    PodUid: Text,
    /// `spec.schedulerName`, the profile.
    Profile: Text,
    /// Number of attempts, this one included.
    Attempts: Number,
    /// Time at which the Pod was added to the queue.
    QueueTimestamp: Time,
    /// The chosen Node.
    NodeName: Text,
    /// `Status.code`; a nil `*Status` reads as 0, Success. For an error: 0 for nil, otherwise 1.
    StatusCode: Signed,
    /// The first of `Status.reasons`. For an error: its message, or the name of its type.
    StatusReason: Text,
    /// `Status.plugin`.
    StatusPlugin: Text,
    /// Name of the called plugin.
    Plugin: Name,
    /// Time of the Pod's first attempt.
    FirstAttempt: Time,
    /// End of the Pod's backoff, if it has a monotonic reading.
    BackoffExpiration: Time,
    /// The second word of the same `time.Time`: without a monotonic reading, seconds since year 1.
    BackoffExpirationSeconds: Number,
    /// Whether a `PreEnqueue` plugin gates the Pod (1.33).
    Gated: Flag,
    /// The queue that the Pod enters: `active`, `backoff` or `unschedulable`.
    Queue: Text,
    /// The event that moved the Pod into the queue.
    QueueEvent: Text,
    /// The plugin that holds the Pod out of the queues; empty if none does.
    Gate: Text,
    /// Number of labels of a metric.
    Labels: Number,
    /// Length of the hinted Node's name; 0 without a hint.
    HintLength: Number,
    /// `ScheduleResult.EvaluatedNodes`.
    EvaluatedNodes: Number,
    /// `ScheduleResult.FeasibleNodes`.
    FeasibleNodes: Number,
    /// Number of Nodes that `PreFilter` restricts the search to; 0 both without a restriction and for a
    /// restriction to no Node.
    RestrictedTo: Number,
    /// Message of the Pod's condition.
    Message: LongText,
    /// The Node that preemption frees.
    PreemptionNode: Text,
    /// Number of victims.
    Victims: Number,
    /// The Nodes with the highest scores.
    Scores: Top,
    /// Rejection statuses of Nodes, by name.
    Statuses: Entries,
    /// Name of the Pod group.
    GroupName: Text,
    /// Namespace of the Pod group.
    GroupNamespace: Text,
    /// Number of the group's Pods to schedule; 0 for a group of groups.
    GroupSize: Number,
    /// Name of the placement tried for a group.
    PlacementName: Text,
    /// Reason of the condition.
    ConditionReason: Text,
    /// The extender's URL, up to the verb.
    ExtenderUrl: Text,
    /// The verb appended to the extender's URL; empty where the extender is not called.
    ExtenderVerb: Text,
    /// Scheduling continues if the extender fails.
    Ignorable: Flag,
    /// Number of Nodes sent to an extender, or passed by it.
    Nodes: Number,
    /// Address of the API call, equal where it is queued and where it is executed.
    ApiCall: Number,
    /// Address of the preemption candidate, equal where it is chosen and where its victims are evicted.
    PreemptionCandidate: Number,
    /// Start of the returning call, `CLOCK_MONOTONIC`, nanoseconds.
    StartedNs: Number,
    /// The call ends in a panic.
    Panics: Flag,
    /// Names of the first victims, as far as readable. May hold more entries than there are victims.
    VictimNames: Texts,
}
