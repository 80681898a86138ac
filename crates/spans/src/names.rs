//! Names of spans, for those who make spans.

/// The root of an attempt, and of each Pod of a group.
pub const ROOT: &str = "SchedulePod";
/// The root of an attempt of a group.
pub const GROUP_ROOT: &str = "SchedulePodGroup";
/// The root of a Pod lifecycle.
pub const LIFECYCLE: &str = "PodLifecycle";
/// The root of what a kubelet does to start a Pod.
pub const POD_START: &str = "StartPod";
/// The creation of a Pod, by the request of a reconcile.
pub const POD_CREATION: &str = "create Pod";
/// The root of what the API server does to store a new Pod.
pub const POD_STORAGE: &str = "StorePod";
/// Prefix of the call of a webhook.
pub const WEBHOOK: &str = "webhook: ";
/// The deletion of a Pod, by the request of a reconcile.
pub const POD_DELETION: &str = "delete Pod";
/// The eviction of a Pod, by the request of a reconcile.
pub const POD_EVICTION: &str = "evict Pod";
/// The root of a reconcile.
pub const RECONCILE: &str = "Reconcile";
/// The root of a command, which its arguments follow.
pub const COMMAND: &str = "kubectl";
/// From the start of a scheduler to its first attempt.
pub const CONFIGURATION_ROOT: &str = "SchedulerConfiguration";
/// Prefix of a plugin's span.
pub const PLUGIN: &str = "plugin: ";
/// Prefix of an extender's span.
pub const EXTENDER: &str = "extender: ";
/// Prefix of a call of the API server.
pub const API_CALL: &str = "api call: ";
/// The call that binds a Pod.
pub const POD_BINDING: &str = "api call: pod_binding";
/// The call that sets a Pod's condition.
pub const POD_STATUS_PATCH: &str = "api call: pod_status_patch";
/// The preemption of one victim.
pub const PREEMPT_POD: &str = "preemptPod";
/// The trial of a group on one placement.
pub const PLACEMENT: &str = "placement";
/// The trial of one Pod of a group.
pub const TRIAL: &str = "trial";
/// Prefix of a stay in a queue.
pub const QUEUE: &str = "queue: ";
