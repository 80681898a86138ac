//! Metrics of the watches of Pods, and of writes to them.

use telemetry::{Counters, Gauge, Registry};
use tracecontext::Refusal;

telemetry::labels! {
    /// Why a Pod is lost to its lifecycle, or to `schedspan queue`. The unit is Pods.
    pub Loss {
        /// The table of Pods is full.
        TableFull = "life_table_full",
        /// Only attempts of the Pod are known: the API server has not sent it.
        Unknown = "life_unknown",
        /// The table of Pods without a Node is full.
        PendingFull = "pending_table_full",
    }
}

telemetry::labels! {
    /// How the lifecycle of a Pod ended.
    pub LifecycleEnd {
        /// The Pod is ready.
        Ready = "Ready",
        /// The Pod runs, and has no condition that says whether it is ready.
        Running = "Running",
        /// All containers ended with success.
        Succeeded = "Succeeded",
        /// A container failed for good, or the Pod was refused.
        Failed = "Failed",
        /// The Pod was deleted before.
        Deleted = "Deleted",
        /// Another daemon traces the Pod's scheduler, and exports the lifecycle.
        Elsewhere = "elsewhere",
    }
}

telemetry::labels! {
    /// How the search for the context of a Pod went.
    pub Lookup {
        /// The Pod carries a context.
        Found = "found",
        /// The Pod carries none, and one of its owners does.
        Owner = "owner",
        /// The Pod carries no valid context.
        None = "none",
        /// The Pod was not seen in time.
        Unknown = "unknown",
    }
}

telemetry::labels! {
    /// What became of the write of an attempt's context into its Pod.
    pub Write {
        /// The Pod has the context.
        Written = "written",
        /// The Pod had the annotation before it was scheduled. No request is made.
        Present = "present",
        /// Another client has written the annotation meanwhile.
        Conflict = "conflict",
        /// The Pod is gone, or another Pod has its name.
        Gone = "gone",
        /// The Pod was not seen before it was scheduled: whether it has the annotation is not known.
        Unknown = "unknown",
        /// The Pod is for another scheduler or on another Node than its attempt says: the attempt is not believed.
        Unlike = "unlike",
        /// The limit of that second is reached.
        Rate = "rate",
        /// The API server does not keep up.
        QueueFull = "queue_full",
        /// The right is missing.
        Forbidden = "forbidden",
        /// Any other failure.
        Failed = "failed",
    }
}

/// Metrics of Pods. Clones are handles of the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    lookups: Counters<Lookup>,
    refused: Counters<Refusal>,
    writes: Counters<Write>,
    watch_up: Gauge,
    lifecycles: Counters<LifecycleEnd>,
    followed: Gauge,
    lifecycle_watch_up: Gauge,
    losses: Counters<Loss>,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self {
            lookups: registry.counters(
                "context_lookups",
                "Searches for the context of a Pod, by result",
                "result",
            ),
            refused: registry.counters(
                "annotations_refused",
                "Pods with an annotation that is no valid context, by reason",
                "reason",
            ),
            writes: registry.counters(
                "context_writes",
                "Pods that were to get the context of their attempt, by result",
                "result",
            ),
            watch_up: registry.gauge(
                "context_watch_up",
                "Whether the API server answers the watch of Pods, if there is a need for one",
            ),
            lifecycles: registry.counters(
                "lifecycles",
                "Pods followed to their end, by how that was",
                "result",
            ),
            followed: registry.gauge("lifecycles_followed", "Pods that are followed now"),
            lifecycle_watch_up: registry
                .gauge("lifecycle_watch_up", "Whether the API server answers the watch of all Pods"),
            losses: registry.losses(),
        }
    }

    /// Counts a search for the context of a Pod.
    pub fn looked_up(&self, result: Lookup) {
        self.lookups.add(result, 1);
    }

    /// Counts a Pod whose annotation is refused.
    pub fn refused(&self, reason: Refusal) {
        self.refused.add(reason, 1);
    }

    /// Counts a Pod that was to get the context of its attempt.
    pub fn wrote(&self, result: Write) {
        self.writes.add(result, 1);
    }

    /// Sets whether the API server answers the watch of Pods.
    pub fn set_watch_up(&self, up: bool) {
        self.watch_up.set(up.into());
    }

    /// Counts a Pod that was followed to its end.
    pub fn ended(&self, end: LifecycleEnd) {
        self.lifecycles.add(end, 1);
    }

    /// Sets how many Pods are followed now.
    pub fn set_followed(&self, pods: usize) {
        self.followed.set(pods as i64);
    }

    /// Sets whether the API server answers the watch of all Pods.
    pub fn set_lifecycle_watch_up(&self, up: bool) {
        self.lifecycle_watch_up.set(up.into());
    }

    /// Counts a Pod that is lost.
    pub fn lost(&self, cause: Loss) {
        self.losses.add(cause, 1);
    }
}
