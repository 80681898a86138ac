//! What the API server says of a Pod without a Node.

use std::sync::Arc;

/// A Pod without a Node. What many Pods have in common is one text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `spec.schedulerName`.
    pub scheduler: Arc<str>,
    /// `metadata.creationTimestamp`, microseconds since the Unix epoch.
    pub created_unix_us: u64,
    /// Names in `spec.schedulingGates`.
    pub gates: Vec<String>,
    /// The group in `spec.schedulingGroup`.
    pub group: Option<Arc<str>>,
    /// The condition `PodScheduled`, if it is false.
    pub condition: Option<Condition>,
}

/// Why a Pod is not scheduled, as its status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Such as `Unschedulable` or `SchedulingGated`.
    pub reason: Arc<str>,
    /// The scheduler's message.
    pub message: Arc<str>,
    /// `lastTransitionTime`, microseconds since the Unix epoch.
    pub since_unix_us: u64,
}
