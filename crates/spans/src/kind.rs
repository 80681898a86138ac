//! What traces and spans are about. Readers match on these, never on names.

use crate::names;

/// What a trace is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceKind {
    /// An attempt to schedule a Pod, or the part of a group's trace that one Pod of the group is.
    Attempt,
    /// An attempt to schedule a group of Pods. Holds an [`TraceKind::Attempt`] for each.
    GroupAttempt,
    /// The configuration of a scheduler that begins to make attempts.
    Configuration,
    /// A Pod until it is Ready.
    Lifecycle,
    /// What a worker does with a key that it takes out of a work queue.
    Reconcile,
}

/// What a span shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanKind {
    /// The whole of a trace. In a group's trace each Pod's part has one as well, below that of the group.
    Root(TraceKind),
    /// A cycle of an attempt, which holds phases.
    Cycle(Cycle),
    /// A phase of an attempt.
    Phase(Phase),
    /// One plugin's call in a phase.
    Plugin,
    /// A request to an extender.
    Extender,
    /// A call of the API server that an attempt asked for and that may outlast it.
    ApiCall,
    /// The preemption of one victim.
    Victim,
    /// The trial of a group on one placement.
    Placement,
    /// The trial of one Pod of a group.
    Trial,
    /// A Pod's stay in one of the scheduler's queues, before the attempt.
    QueueStay,
    /// A stage of a Pod lifecycle.
    Stage(Stage),
    /// A span of another program, or several spans that are shown as one.
    Other,
}

/// A cycle of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cycle {
    /// Finds a Node, one Pod at a time.
    Scheduling,
    /// Binds the Pod, beside the next attempts.
    Binding,
}

/// A phase of an attempt: an extension point, or another step of the scheduler that takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the variants are the names of kube-scheduler's phases")]
pub enum Phase {
    Snapshot,
    PreFilter,
    Filter,
    PostFilter,
    DryRunPreemption,
    PreScore,
    Score,
    Reserve,
    Unreserve,
    Permit,
    WaitOnPermit,
    PreBindPreFlight,
    PreBind,
    Bind,
    PostBind,
    HandleSchedulingFailure,
    PlacementGenerate,
    PlacementFeasible,
    PlacementScore,
    PodGroupPostFilter,
}

/// A stage of a Pod lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// From the creation to the end of the last scheduling gate.
    Gated,
    /// In the scheduler's queues.
    Queued,
    /// An attempt to schedule the Pod, which has a trace of its own.
    Attempt,
    /// The binding of the Pod's volume claims, within an attempt.
    VolumeClaims,
    /// From the binding until the kubelet has accepted the Pod.
    Kubelet,
    /// Until the sandbox is ready.
    Sandbox,
    /// An init container.
    InitContainer,
    /// A container.
    Container,
    /// From the last container's start to the Pod's readiness.
    Ready,
}

impl TraceKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Attempt, Self::GroupAttempt, Self::Configuration, Self::Lifecycle, Self::Reconcile];

    /// Name of the root.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attempt => names::ROOT,
            Self::GroupAttempt => names::GROUP_ROOT,
            Self::Configuration => names::CONFIGURATION_ROOT,
            Self::Lifecycle => names::LIFECYCLE,
            Self::Reconcile => names::RECONCILE,
        }
    }
}

impl Cycle {
    /// All cycles.
    pub const ALL: [Self; 2] = [Self::Scheduling, Self::Binding];

    /// Name of the span.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheduling => "schedulingCycle",
            Self::Binding => "bindingCycle",
        }
    }
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 20] = [
        Self::Snapshot,
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::DryRunPreemption,
        Self::PreScore,
        Self::Score,
        Self::Reserve,
        Self::Unreserve,
        Self::Permit,
        Self::WaitOnPermit,
        Self::PreBindPreFlight,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
        Self::HandleSchedulingFailure,
        Self::PlacementGenerate,
        Self::PlacementFeasible,
        Self::PlacementScore,
        Self::PodGroupPostFilter,
    ];

    /// Name of the span, and value of `k8s.scheduler.phase`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snapshot => "snapshot",
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::DryRunPreemption => "dryRunPreemption",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::Reserve => "reserve",
            Self::Unreserve => "unreserve",
            Self::Permit => "permit",
            Self::WaitOnPermit => "waitOnPermit",
            Self::PreBindPreFlight => "preBindPreFlight",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
            Self::HandleSchedulingFailure => "handleSchedulingFailure",
            Self::PlacementGenerate => "placementGenerate",
            Self::PlacementFeasible => "placementFeasible",
            Self::PlacementScore => "placementScore",
            Self::PodGroupPostFilter => "podGroupPostFilter",
        }
    }
}

impl Stage {
    /// All stages.
    pub const ALL: [Self; 9] = [
        Self::Gated,
        Self::Queued,
        Self::Attempt,
        Self::VolumeClaims,
        Self::Kubelet,
        Self::Sandbox,
        Self::InitContainer,
        Self::Container,
        Self::Ready,
    ];

    /// Name of the span; of a container what its own name follows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gated => "gated",
            Self::Queued => "queued",
            Self::Attempt => names::ROOT,
            Self::VolumeClaims => "bind volume claims",
            Self::Kubelet => "kubelet",
            Self::Sandbox => "sandbox",
            Self::InitContainer => "init",
            Self::Container => "container",
            Self::Ready => "ready",
        }
    }
}
