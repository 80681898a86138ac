//! The events after which the scheduler looks again at a Pod that a plugin rejected or gates.

/// Plugins of Kubernetes 1.36, by name, and the events that they register for: of 1.29 to 1.37 these differ in details only.
/// A plugin may still find that an event does not help this Pod.
/// <https://github.com/kubernetes/kubernetes/tree/v1.36.4/pkg/scheduler/framework/plugins>, `EventsToRegister`
const EVENTS: [(&str, &[&str]); 20] = [
    ("DefaultPreemption", &["the victims of its preemption are gone"]),
    (
        "DynamicResources",
        &["a ResourceClaim, DeviceClass or ResourceSlice is added or changed", "a Node is added"],
    ),
    ("GangScheduling", &["a Pod of its group is added", "its group is added"]),
    (
        "InterPodAffinity",
        &["a Pod is added, gets other labels, or is deleted", "a Node is added or gets other labels"],
    ),
    ("NodeAffinity", &["a Node is added or gets other labels"]),
    ("NodeDeclaredFeatures", &["a Node is added or declares other features", "the Pod is changed"]),
    ("NodeName", &["a Node is added"]),
    ("NodePorts", &["a Pod with the same host port is deleted", "a Node is added"]),
    ("NodeResourcesFit", &["a Pod on a Node is deleted or asks for less", "a Node is added or offers more"]),
    ("NodeUnschedulable", &["a Node is added or uncordoned", "the Pod gets a toleration"]),
    (
        "NodeVolumeLimits",
        &["a CSINode is added or changed", "a Pod or a VolumeAttachment is deleted", "a claim is added"],
    ),
    (
        "PodTopologySpread",
        &[
            "a Pod is added, gets other labels, or is deleted",
            "a Node is added, deleted, or gets other labels or taints",
        ],
    ),
    ("SchedulingGates", &["the last of the Pod's scheduling gates is removed"]),
    ("TaintToleration", &["a Node is added or gets other taints", "the Pod gets a toleration"]),
    (
        "VolumeBinding",
        &[
            "a PersistentVolumeClaim, PersistentVolume or StorageClass is added or changed",
            "a Node, CSINode, CSIDriver or CSIStorageCapacity is added or changed",
        ],
    ),
    (
        "VolumeRestrictions",
        &["a Pod with the same volume is deleted", "a Node or a PersistentVolumeClaim is added"],
    ),
    (
        "VolumeZone",
        &[
            "a PersistentVolumeClaim or PersistentVolume is added or changed",
            "a StorageClass or a Node is added",
        ],
    ),
    // Up to 1.32, by the volumes of cloud providers.
    ("AzureDiskLimits", &["a CSINode is added or changed", "a Pod is deleted"]),
    ("EBSLimits", &["a CSINode is added or changed", "a Pod is deleted"]),
    ("GCEPDLimits", &["a CSINode is added or changed", "a Pod is deleted"]),
];

/// The events that may wake a Pod which this plugin rejected; `None` for a plugin that is not known.
pub(super) fn of(plugin: &str) -> Option<&'static [&'static str]> {
    EVENTS.iter().find(|(name, _)| *name == plugin).map(|(_, events)| *events)
}
