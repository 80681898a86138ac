//! Keys of the attributes that spans carry.
//!
//! `k8s.*` without `scheduler` are OpenTelemetry's semantic conventions, `k8s.scheduler.*` are KEP-5927's and, where it
//! names none, in its manner.

/// Name of the Pod. On the root.
pub const POD_NAME: &str = "k8s.pod.name";
/// Namespace of the Pod. On the root.
pub const POD_NAMESPACE: &str = "k8s.namespace.name";
/// UID of the Pod: what the traces of its attempts have in common. On the root.
pub const POD_UID: &str = "k8s.pod.uid";
/// Scheduling profile: the Pod's `spec.schedulerName`. On the root and on phases.
pub const PROFILE: &str = "k8s.scheduler.profile";
/// The extension point that the span shows. On phases.
pub const PHASE: &str = "k8s.scheduler.phase";
/// How it ended: a name of a `framework.Code`, such as `Success`, `Unschedulable`, `Error`. On the root and on phases.
pub const RESULT: &str = "k8s.scheduler.result";
/// The Node that was chosen. On the root.
pub const SELECTED_NODE: &str = "k8s.scheduler.selected_node";
/// Number of the attempt, from 1. On the root.
pub const ATTEMPT: &str = "k8s.scheduler.attempt";
/// How long the Pod was in the active queue before the attempt, milliseconds: KEP-5927's words. On the root, when the Pod
/// was seen to enter it; a Pod that is popped from the backoff queue (1.33 and later) was never in it.
pub const QUEUE_WAIT_MS: &str = "k8s.scheduler.queue_wait_ms";
/// How long the Pod was in any queue before the attempt, milliseconds: since it was created, or since its last attempt
/// ended. On the root.
pub const QUEUE_TOTAL_WAIT_MS: &str = "k8s.scheduler.queue.total_wait_ms";
/// True where records of the span's own calls were lost.
pub const INCOMPLETE: &str = "schedspan.incomplete";
