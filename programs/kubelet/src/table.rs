//! The functions that are probed: the steps by which the kubelet starts a Pod, and its calls of the container runtime.
//!
//! Names, meaning and order of the calls are those of
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/kubelet.go>,
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/kuberuntime/kuberuntime_manager.go> and
//! <https://github.com/kubernetes/cri-client/blob/v0.36.4/pkg/remote_runtime.go>.

use ::spans::NodeStep;
use gotrace::plan::{self, Begin, End, Field, Interface, Signature};

use crate::values::Value;

type Row = plan::Row<Value>;
type Want = plan::Want<Value>;

/// Package of the kubelet itself.
const KUBELET: &str = "k8s.io/kubernetes/pkg/kubelet";
/// Syncs a Pod.
pub(crate) const SYNC: &str = "k8s.io/kubernetes/pkg/kubelet.(*Kubelet).SyncPod";

const POD: &[&str] = &["*v1.Pod"];
const STRING: &[&str] = &["string"];
const SANDBOX: &[&str] = &["*v1.PodSandboxConfig"];
const STATUS: &[&str] = &["*v1.PodStatus"];
const CONTEXT: &str = "context.Context";
const POD_TYPE: &str = "*k8s.io/api/core/v1.Pod";
const STATUS_TYPE: &str = "*k8s.io/api/core/v1.PodStatus";

const UID: Want = Want::declared(Value::PodUid, POD, &["UID"]);
const NAME: Want = Want::declared(Value::PodName, POD, &["Name"]);
const NAMESPACE: Want = Want::declared(Value::PodNamespace, POD, &["Namespace"]);
const OWNER: Want = Want::declared(Value::OwnerUid, POD, &["OwnerReferences", "*", "UID"]);
const UID_OF_SANDBOX: Want = Want::declared(Value::PodUid, SANDBOX, &["Metadata", "Uid"]);
const ID: Want = Want::declared(Value::Id, STRING, &[]);
const FAILED: Want = Want::failure(Value::Failed);
const MESSAGE: Want = Want::message(Value::Message);

const fn of_status(value: Value, path: &'static [&'static str]) -> Want {
    Want::declared(value, STATUS, path)
}

const fn of_container(value: Value, path: &'static [&'static str]) -> Want {
    Want::declared(value, &["*v1.Container"], path)
}

/// A call from its entry to its `ret`: next to what it does, two hits are nothing.
const fn call(
    symbols: &'static [&'static str],
    signature: Signature,
    at_entry: &'static [Want],
    at_end: &'static [Want],
    without: &'static str,
) -> Row {
    let (begin, end) = (Begin::Entry, End::Return);
    Row { symbols, signature, begin, at_entry, end, at_end, since: None, without }
}

/// A call whose end says nothing.
const fn entry(
    symbols: &'static [&'static str],
    signature: Signature,
    at_entry: &'static [Want],
    without: &'static str,
) -> Row {
    Row { end: End::Unused, ..call(symbols, signature, at_entry, &[], without) }
}

const fn of(package: &'static [&'static str], interface: &'static str, method: &'static str) -> Signature {
    Signature::Method(Interface::Named(package, interface), method)
}

/// A method of the container runtime: <https://github.com/kubernetes/cri-api/blob/v0.36.4/pkg/apis/services.go>.
const fn of_runtime(field: &'static str, method: &'static str) -> Signature {
    let package = "k8s.io/kubernetes/pkg/kubelet/kuberuntime";
    Signature::Method(Interface::In(Field(package, "kubeGenericRuntimeManager", field)), method)
}

/// The client of the container runtime, which moved in 1.31. The kubelet measures the calls of this one.
macro_rules! runtime {
    ($method:literal) => {
        &[
            concat!("k8s.io/cri-client/pkg.(*remoteRuntimeService).", $method),
            concat!("k8s.io/kubernetes/pkg/kubelet/cri/remote.(*remoteRuntimeService).", $method),
        ]
    };
}

const ADMIT: Row = call(
    &["k8s.io/kubernetes/pkg/kubelet/allocation.(*manager).AddPod"],
    of(&["k8s.io/kubernetes/pkg/kubelet/allocation"], "Manager", "AddPod"),
    &[UID, NAME, NAMESPACE, OWNER],
    &[Want::declared(Value::Admitted, &["bool"], &[]), Want::declared(Value::Reason, STRING, &[])],
    "no spans `admit`, and Pods that are not admitted are not seen",
);
const CONTAINER: Row = call(
    &["k8s.io/kubernetes/pkg/kubelet/kuberuntime.(*kubeGenericRuntimeManager).startContainer"],
    Signature::DeclaredWith(STARTS, STARTED),
    &[UID],
    &[FAILED, MESSAGE],
    "no spans of containers",
);
const STARTS: &[&str] = &[
    CONTEXT,
    "string",
    "*k8s.io/cri-api/pkg/apis/runtime/v1.PodSandboxConfig",
    // `*startSpec`, which no type descriptor describes.
    "unsafe.Pointer",
    POD_TYPE,
    "*k8s.io/kubernetes/pkg/kubelet/container.PodStatus",
    "[]v1.Secret",
    "string",
    "[]string",
    "map[string]*v1.ImageSpec",
];
const STARTED: &[&str] = &["string", "error"];
const IMAGE: Row = call(
    &["k8s.io/kubernetes/pkg/kubelet/images.(*imageManager).EnsureImageExists"],
    of(&["k8s.io/kubernetes/pkg/kubelet/images"], "ImageManager", "EnsureImageExists"),
    &[
        UID,
        Want::declared(Value::FieldPath, &["*v1.ObjectReference"], &["FieldPath"]),
        Want::declared(Value::Image, STRING, &[]),
    ],
    &[FAILED, MESSAGE],
    "no spans `image`, and init containers look like others",
);

/// What a function is to the start of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A step of it, with a span.
    Step(NodeStep),
    /// The kubelet says what the Pod's status is.
    Status,
    /// The Pod is to end.
    Termination,
}

gotrace::functions! {
    /// A probed function of the kubelet.
    pub enum Function: Part, Value;

    /// The Pod is admitted to the node, or not. The first that happens to a Pod, also to those that run when the kubelet
    /// starts.
    Admit { detail: Phases, about: Part::Step(NodeStep::Admission), rows: [
        ADMIT,
        // Up to 1.33, where it also says whether a Pod that runs can be resized.
        Row {
            symbols: &["k8s.io/kubernetes/pkg/kubelet.(*Kubelet).canAdmitPod"],
            signature: Signature::DeclaredWith(&["[]*v1.Pod", POD_TYPE], &["bool", "string", "string"]),
            ..ADMIT
        },
    ] }
    /// The Pod is compared with what runs, and what lacks is started. Again and again, as long as the Pod is on the node.
    Sync { detail: Phases, about: Part::Step(NodeStep::Sync), rows: [call(
        &[SYNC],
        of(&[KUBELET], "podSyncer", "SyncPod"),
        &[Want::declared(Value::SyncType, &["types.SyncPodType"], &[]), UID, NAME, NAMESPACE, OWNER],
        &[FAILED, MESSAGE],
        "no spans `syncPod`, and Pods that are admitted without being seen are not traced",
    )] }
    /// Waits until the Pod's volumes are mounted.
    Volumes { detail: Phases, about: Part::Step(NodeStep::Volumes), rows: [call(
        &["k8s.io/kubernetes/pkg/kubelet/volumemanager.(*volumeManager).WaitForAttachAndMount"],
        of(&["k8s.io/kubernetes/pkg/kubelet/volumemanager"], "VolumeManager", "WaitForAttachAndMount"),
        &[UID],
        &[FAILED, MESSAGE],
        "no spans `volumes`",
    )] }
    /// Makes the sandbox with its network. The runtime's call below it says whether that failed.
    Sandbox { detail: Phases, about: Part::Step(NodeStep::Sandbox), rows: [call(
        &["k8s.io/kubernetes/pkg/kubelet/kuberuntime.(*kubeGenericRuntimeManager).createPodSandbox"],
        Signature::Declared(&[CONTEXT, POD_TYPE, "uint32"]),
        &[Want::declared(Value::Attempt, &["uint32"], &[]), UID],
        &[],
        "no spans `sandbox`",
    )] }
    /// Pulls the image of a container, makes it and starts it.
    Container { detail: Phases, about: Part::Step(NodeStep::Container), rows: [
        CONTAINER,
        // Up to 1.30, without images as volumes.
        Row { signature: Signature::DeclaredWith(STARTS.split_at(STARTS.len() - 1).0, STARTED), ..CONTAINER },
    ] }
    /// Sees to it that an image is there.
    Image { detail: Phases, about: Part::Step(NodeStep::Image), rows: [
        IMAGE,
        // Up to 1.30, where no argument says which kind of container it is for: the container lies in one of the Pod's lists.
        Row {
            at_entry: &[
                UID,
                of_container(Value::Container, &["Name"]),
                of_container(Value::Image, &["Image"]),
                of_container(Value::ContainerAt, &[]),
                Want::declared(Value::InitContainersAt, POD, &["Spec", "InitContainers"]),
                Want::declared(Value::ContainersAt, POD, &["Spec", "Containers"]),
                Want::declared(Value::EphemeralContainersAt, POD, &["Spec", "EphemeralContainers"]),
            ],
            ..IMAGE
        },
    ] }
    /// Probes a container.
    Probe { detail: Phases, about: Part::Step(NodeStep::Probe), rows: [call(
        &["k8s.io/kubernetes/pkg/kubelet/prober.(*prober).probe"],
        Signature::DeclaredWith(
            &[
                CONTEXT,
                "int",
                POD_TYPE,
                "k8s.io/api/core/v1.PodStatus",
                "k8s.io/api/core/v1.Container",
                "k8s.io/kubernetes/pkg/kubelet/container.ContainerID",
            ],
            &["int", "error"],
        ),
        &[Want::declared(Value::ProbeType, &["int"], &[]), UID, Want::declared(Value::Container, &["v1.Container"], &["Name"])],
        &[Want::declared(Value::ProbeResult, &["int"], &[]), FAILED, MESSAGE],
        "no spans of probes",
    )] }
    /// The runtime makes a sandbox.
    RunPodSandbox { detail: Phases, about: Part::Step(NodeStep::RunPodSandbox), rows: [call(
        runtime!("RunPodSandbox"),
        of_runtime("runtimeService", "RunPodSandbox"),
        &[UID_OF_SANDBOX],
        &[ID, FAILED, MESSAGE],
        "no spans `RunPodSandbox`",
    )] }
    /// The runtime pulls an image.
    PullImage { detail: Phases, about: Part::Step(NodeStep::PullImage), rows: [call(
        &[
            "k8s.io/cri-client/pkg.(*remoteImageService).PullImage",
            "k8s.io/kubernetes/pkg/kubelet/cri/remote.(*remoteImageService).PullImage",
        ],
        of_runtime("imageService", "PullImage"),
        &[UID_OF_SANDBOX, Want::declared(Value::Image, &["*v1.ImageSpec"], &["Image"])],
        &[FAILED, MESSAGE],
        "no spans `PullImage`",
    )] }
    /// The runtime makes a container.
    CreateContainer { detail: Phases, about: Part::Step(NodeStep::CreateContainer), rows: [call(
        runtime!("CreateContainer"),
        of_runtime("runtimeService", "CreateContainer"),
        &[UID_OF_SANDBOX, Want::declared(Value::Container, &["*v1.ContainerConfig"], &["Metadata", "Name"])],
        &[ID, FAILED, MESSAGE],
        "no spans `CreateContainer`",
    )] }
    /// The runtime starts a container.
    StartContainer { detail: Phases, about: Part::Step(NodeStep::StartContainer), rows: [call(
        runtime!("StartContainer"),
        of_runtime("runtimeService", "StartContainer"),
        &[ID],
        &[FAILED, MESSAGE],
        "no spans `StartContainer`",
    )] }
    /// The status that the kubelet has for a Pod: at each sync, and when a probe changes it. Its conditions are those of others
    /// first, then those of the kubelet in this order: PodReadyToStartContainers, Initialized, Ready.
    Status { detail: Phases, about: Part::Status, rows: [entry(
        &["k8s.io/kubernetes/pkg/kubelet/status.normalizeStatus"],
        Signature::Declared(&[POD_TYPE, STATUS_TYPE]),
        &[
            UID,
            of_status(Value::Phase, &["Phase"]),
            of_status(Value::Conditions, &["Conditions", "#"]),
            of_status(Value::ThirdType, &["Conditions", "*2", "Type", "#"]),
            of_status(Value::ThirdStatus, &["Conditions", "*2", "Status", "#"]),
            of_status(Value::FourthType, &["Conditions", "*3", "Type", "#"]),
            of_status(Value::FourthStatus, &["Conditions", "*3", "Status", "#"]),
            of_status(Value::FifthType, &["Conditions", "*4", "Type", "#"]),
            of_status(Value::FifthStatus, &["Conditions", "*4", "Status", "#"]),
        ],
        "no start of a Pod ends before its time is over",
    )] }
    /// The containers of a Pod are to end.
    Terminate { detail: Phases, about: Part::Termination, rows: [entry(
        &["k8s.io/kubernetes/pkg/kubelet.(*Kubelet).SyncTerminatingPod"],
        of(&[KUBELET], "podSyncer", "SyncTerminatingPod"),
        &[UID],
        "the start of a Pod that is deleted ends late",
    )] }
}
