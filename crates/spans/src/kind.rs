//! What traces and spans are about. Readers match on these, never on names.

use crate::names;

/// Declares an enum whose variants have a name each, and the list of all variants. A variant cannot be missing in either.
macro_rules! named {
    (
        $(#[$of_kind:meta])*
        pub enum $kind:ident;
        $(#[$of_name:meta])*
        fn name;
        $($(#[$of_variant:meta])* $variant:ident: $name:expr,)*
    ) => {
        $(#[$of_kind])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $kind {
            $($(#[$of_variant])* $variant,)*
        }

        impl $kind {
            /// All variants, as they are declared.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            $(#[$of_name])*
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}
pub(crate) use named;

named! {
    /// What a trace is about.
    pub enum TraceKind;
    /// Name of the root.
    fn name;

    /// An attempt to schedule a Pod, or the part of a group's trace that one Pod of the group is.
    Attempt: names::ROOT,
    /// An attempt to schedule a group of Pods. Holds an [`TraceKind::Attempt`] for each.
    GroupAttempt: names::GROUP_ROOT,
    /// The configuration of a scheduler that begins to make attempts.
    Configuration: names::CONFIGURATION_ROOT,
    /// A Pod until it is Ready.
    Lifecycle: names::LIFECYCLE,
    /// What a worker does with a key that it takes out of a work queue, or a controller with a request.
    Reconcile: names::RECONCILE,
    /// What a kubelet does to start a Pod, in the trace of the Pod's [`TraceKind::Lifecycle`].
    PodStart: names::POD_START,
    /// The request that created a Pod, in the trace of the Pod's [`TraceKind::Lifecycle`].
    PodCreation: names::POD_CREATION,
    /// What the API server does to store a new Pod, in the trace of the Pod's [`TraceKind::Lifecycle`].
    PodStorage: names::POD_STORAGE,
    /// The request that deleted a Pod, in the trace of the Pod's [`TraceKind::Lifecycle`].
    PodDeletion: names::POD_DELETION,
    /// The request that evicted a Pod, in the trace of the Pod's [`TraceKind::Lifecycle`].
    PodEviction: names::POD_EVICTION,
    /// A command of kubectl, until the Pods that come of its requests are Ready. Holds a [`TraceKind::Lifecycle`] for each.
    Command: names::COMMAND,
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
    /// A plugin's share of a phase by samples. It is no call: it begins with the phase and is as long as its share.
    Share,
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
    /// A step of a kubelet in starting a Pod.
    Node(NodeStep),
    /// A step of the API server in storing a new Pod.
    Api(ApiStep),
    /// A request to the API server, by the reconcile that it is part of.
    Request,
    /// A span of another program, or several spans that are shown as one.
    Other,
}

named! {
    /// A cycle of an attempt.
    pub enum Cycle;
    /// Name of the span.
    fn name;

    /// Finds a Node, one Pod at a time.
    Scheduling: "schedulingCycle",
    /// Binds the Pod, beside the next attempts.
    Binding: "bindingCycle",
}

named! {
    /// A phase of an attempt: an extension point, or another step of the scheduler that takes time.
    #[expect(missing_docs, reason = "the variants are the names of kube-scheduler's phases")]
    pub enum Phase;
    /// Name of the span, and value of `k8s.scheduler.phase`.
    fn name;

    Snapshot: "snapshot",
    PreFilter: "preFilter",
    Filter: "filter",
    PostFilter: "postFilter",
    DryRunPreemption: "dryRunPreemption",
    PreScore: "preScore",
    Score: "score",
    Reserve: "reserve",
    Unreserve: "unreserve",
    Permit: "permit",
    WaitOnPermit: "waitOnPermit",
    PreBindPreFlight: "preBindPreFlight",
    PreBind: "preBind",
    Bind: "bind",
    PostBind: "postBind",
    HandleSchedulingFailure: "handleSchedulingFailure",
    PlacementGenerate: "placementGenerate",
    PlacementFeasible: "placementFeasible",
    PlacementScore: "placementScore",
    PodGroupPostFilter: "podGroupPostFilter",
    PreEnqueue: "preEnqueue",
    Sign: "sign",
}

named! {
    /// A stage of a Pod lifecycle.
    pub enum Stage;
    /// Name of the span; of a container what its own name follows.
    fn name;

    /// From the creation to the end of the last scheduling gate.
    Gated: "gated",
    /// In the scheduler's queues.
    Queued: "queued",
    /// An attempt to schedule the Pod, which has a trace of its own.
    Attempt: names::ROOT,
    /// The binding of the Pod's volume claims, within an attempt.
    VolumeClaims: "bind volume claims",
    /// From the binding until the kubelet has accepted the Pod.
    Kubelet: "kubelet",
    /// Until the sandbox is ready.
    Sandbox: "sandbox",
    /// An init container.
    InitContainer: "init",
    /// A container.
    Container: "container",
    /// From the last container's start to the Pod's readiness.
    Ready: "ready",
}

named! {
    /// A step of a kubelet in starting a Pod.
    pub enum NodeStep;
    /// Name of the span; of a container what its own name follows.
    fn name;

    /// Decides whether the Pod fits on the node.
    Admission: "admit",
    /// Compares the Pod with what runs, and starts what lacks.
    Sync: "syncPod",
    /// Waits for the volumes.
    Volumes: "volumes",
    /// Makes the sandbox with its network.
    Sandbox: "sandbox",
    /// Starts an init container.
    InitContainer: "init",
    /// Starts a container.
    Container: "container",
    /// Sees to it that an image is there.
    Image: "image",
    /// Probes a container.
    Probe: "probe",
    /// Call of the container runtime: makes a sandbox.
    RunPodSandbox: "RunPodSandbox",
    /// Call of the container runtime: pulls an image.
    PullImage: "PullImage",
    /// Call of the container runtime: makes a container.
    CreateContainer: "CreateContainer",
    /// Call of the container runtime: starts a container.
    StartContainer: "StartContainer",
}

named! {
    /// A step of the API server in storing a new Pod.
    pub enum ApiStep;
    /// Name of the span; of a webhook what its own name follows.
    fn name;

    /// Admission changes the Pod.
    Mutation: "mutating admission",
    /// Admission lets it pass, or not.
    Validation: "validating admission",
    /// The call of a webhook of either kind.
    Webhook: "webhook",
    /// The write to etcd, by the name that the API server's own span for it has.
    Storage: "Create etcd3",
}

impl NodeStep {
    /// The service of the container runtime's interface that a call is of; `None` for steps of the kubelet itself.
    /// <https://github.com/kubernetes/cri-api/blob/v0.36.4/pkg/apis/runtime/v1/api.proto>
    #[must_use]
    pub const fn service(self) -> Option<&'static str> {
        match self {
            Self::RunPodSandbox | Self::CreateContainer | Self::StartContainer => {
                Some("runtime.v1.RuntimeService")
            }
            Self::PullImage => Some("runtime.v1.ImageService"),
            Self::Admission
            | Self::Sync
            | Self::Volumes
            | Self::Sandbox
            | Self::InitContainer
            | Self::Container
            | Self::Image
            | Self::Probe => None,
        }
    }
}
