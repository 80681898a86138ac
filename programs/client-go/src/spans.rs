//! Spans out of reconciles. Pure.

#[cfg(test)]
mod tests;

use spans::{
    Anchor, AttributeValue, Origin, Status, Story, Trace, TraceKind, attributes,
    story::{Extras, Single},
};

use crate::{reconcile::Reconcile, requests};

impl Reconcile {
    /// What it is known by, beside its process and when it was first seen.
    fn about(&self) -> [&str; 2] {
        [&self.queue, self.key.as_deref().unwrap_or_default()]
    }

    /// The id of its trace.
    pub(crate) fn trace_id(&self) -> [u8; 16] {
        Single::id(TraceKind::Reconcile, &self.about(), self.target, self.seen_ns)
    }
}

impl Story for Reconcile {
    fn pod_uid(&self) -> Option<&str> {
        None
    }

    fn is_idle(&self) -> bool {
        Self::is_idle(self)
    }

    fn trace(&self, anchor: Anchor, _: Origin, extras: Extras) -> Trace {
        let Self { target, queue, key, start_ns, end_ns, retried, made, incomplete, .. } = self;
        let mut list = vec![(attributes::WORKQUEUE, AttributeValue::from(&**queue))];
        list.extend(key.as_deref().map(|key| (attributes::WORKQUEUE_KEY, key.into())));
        let wait_ms = self.waited_ns().map(|ns| AttributeValue::Double(ns as f64 / 1e6));
        list.extend(wait_ms.map(|ms| (attributes::WORKQUEUE_WAIT_MS, ms)));
        list.push((attributes::WORKQUEUE_RETRIED, AttributeValue::Bool(*retried)));
        list.extend(incomplete.then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
        let single = Single {
            kind: TraceKind::Reconcile,
            trace_id: self.trace_id(),
            target: *target,
            times: [*start_ns, *end_ns],
            attributes: list.into(),
            status: Status::Unset,
        };
        requests::spans::trace(single, made, anchor, extras)
    }
}
