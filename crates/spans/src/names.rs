//! Names of spans.

/// The root of an attempt, and of each Pod of a group.
pub const ROOT: &str = "SchedulePod";
/// The root of an attempt of a group.
pub const GROUP_ROOT: &str = "SchedulePodGroup";
/// The root of a Pod lifecycle.
pub const LIFECYCLE: &str = "PodLifecycle";
/// From the start of a scheduler to its first attempt.
pub const CONFIGURATION_ROOT: &str = "SchedulerConfiguration";
/// Prefix of a plugin's span.
pub const PLUGIN: &str = "plugin: ";
/// The preemption of one victim.
pub const PREEMPT_POD: &str = "preemptPod";
/// Prefix of an extender's span.
pub const EXTENDER: &str = "extender: ";
