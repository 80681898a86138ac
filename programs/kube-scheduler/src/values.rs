//! What is read at the sites of kube-scheduler.

use gotrace::values;

values! {
    /// A value read at a site.
    pub enum Value;

    /// Address of the `CycleState`: the same in both cycles of an attempt.
    CycleState: Number,
    /// Address of the Pod: it changes once, when the Pod is assumed.
    Pod: Number,
    /// Address of the entry in the queue.
    QueuedPodInfo: Number,
    /// `metadata.name`.
    PodName: Text,
    /// `metadata.namespace`.
    PodNamespace: Text,
    /// `metadata.uid`.
    PodUid: Text,
    /// `spec.schedulerName`: the profile.
    Profile: Text,
    /// How many attempts there have been, this one included.
    Attempts: Number,
    /// When the Pod was put into the queue.
    QueueTimestamp: Time,
    /// The Node that was chosen.
    NodeName: Text,
    /// `Status.code`; a nil `*Status` reads as 0, Success. Of an error: 0 for nil, else 1.
    StatusCode: Signed,
    /// The first of `Status.reasons`. Of an error its message, or else the name of its type.
    StatusReason: Text,
    /// `Status.plugin`.
    StatusPlugin: Text,
    /// The plugin that is called.
    Plugin: Name,
    /// When the Pod was first tried.
    FirstAttempt: Time,
    /// Into which queue the Pod goes.
    Queue: Text,
    /// Why it goes there.
    QueueEvent: Text,
    /// How many labels a metric has.
    Labels: Number,
    /// Length of the hinted Node's name; 0 for no hint.
    HintLength: Number,
    /// `ScheduleResult.EvaluatedNodes`.
    EvaluatedNodes: Number,
    /// `ScheduleResult.FeasibleNodes`.
    FeasibleNodes: Number,
    /// To how many Nodes `PreFilter` restricts the search; 0 for no restriction, and for none at all.
    RestrictedTo: Number,
    /// The condition's message.
    Message: LongText,
    /// The Node for which victims go.
    PreemptionNode: Text,
    /// How many victims there are.
    Victims: Number,
    /// The Nodes with the best scores.
    Scores: Top,
    /// Why Nodes would not do.
    Statuses: Entries,
    /// Name of the group of Pods.
    GroupName: Text,
    /// Namespace of the group of Pods.
    GroupNamespace: Text,
    /// How many Pods of the group are to be scheduled.
    GroupSize: Number,
    /// Name of the part of the cluster that is tried for a group.
    PlacementName: Text,
    /// The condition's reason.
    ConditionReason: Text,
    /// The URL that an extender is asked at, up to the verb.
    ExtenderUrl: Text,
    /// What comes behind it: empty where the extender is not asked.
    ExtenderVerb: Text,
    /// Whether the scheduler goes on without the extender's answer.
    Ignorable: Flag,
    /// How many Nodes an extender is told about, or lets pass.
    Nodes: Number,
    /// Address of what is asked of the API server: the same where it is queued and where it is done.
    ApiCall: Number,
    /// Address of the candidate for preemption: the same where it is chosen and where its victims are made to go.
    PreemptionCandidate: Number,
    /// When the call began that is over, `CLOCK_MONOTONIC`, nanoseconds.
    StartedNs: Number,
    /// Whether a panic is its end.
    Panics: Flag,
    /// Names of the first victims, as far as they could be read; there may be fewer victims.
    VictimNames: Texts,
}
