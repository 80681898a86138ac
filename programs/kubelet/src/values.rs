//! What is read at the sites of the kubelet.

gotrace::values! {
    /// A value read at a site.
    pub enum Value;

    /// UID of the Pod.
    PodUid: Text,
    /// Name of the Pod.
    PodName: Text,
    /// Namespace of the Pod.
    PodNamespace: Text,
    /// UID of the Pod's first owner.
    OwnerUid: Text,
    /// Why the Pod is synced: a `SyncPodType`.
    SyncType: Number,
    /// Number of the sandbox, from 0.
    Attempt: Number,
    /// Which container of the Pod it is about, such as `spec.initContainers{schema}`.
    FieldPath: Text,
    /// Address of the container in one of its Pod's lists.
    ContainerAt: Number,
    /// Address of the list of the Pod's init containers; 0 if there is none.
    InitContainersAt: Number,
    /// Address of the list of its containers.
    ContainersAt: Number,
    /// Address of the list of its ephemeral containers; 0 if there is none.
    EphemeralContainersAt: Number,
    /// Name of the container.
    Container: Text,
    /// Name of the image.
    Image: Text,
    /// The runtime's id of a sandbox or a container.
    Id: Text,
    /// Which probe it is: a `probeType`.
    ProbeType: Number,
    /// What the probe says: a `Result`.
    ProbeResult: Signed,
    /// Whether the Pod is admitted.
    Admitted: Flag,
    /// Why it is not.
    Reason: Text,
    /// 1 if the call failed.
    Failed: Number,
    /// Message of the error.
    Message: Text,
    /// The Pod's phase.
    Phase: Text,
    /// How many conditions the Pod has.
    Conditions: Number,
    /// Length of the third condition's type.
    ThirdType: Number,
    /// Length of the third condition's status.
    ThirdStatus: Number,
    /// Length of the fourth condition's type.
    FourthType: Number,
    /// Length of the fourth condition's status.
    FourthStatus: Number,
    /// Length of the fifth condition's type.
    FifthType: Number,
    /// Length of the fifth condition's status.
    FifthStatus: Number,
}
