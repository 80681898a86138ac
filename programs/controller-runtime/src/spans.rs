//! Spans out of reconciles. Pure.

#[cfg(test)]
mod tests;

use client_go::requests;
use spans::{
    Anchor, AttributeValue, Origin, Status, Story, Trace, TraceKind, attributes,
    story::{Extras, Single},
};

use crate::reconcile::{Outcome, Reconcile};

impl Reconcile {
    /// What it is known by, beside its process and its beginning.
    fn about(&self) -> [&str; 3] {
        ["controller", &self.controller, self.request.as_deref().unwrap_or_default()]
    }

    /// The id of its trace.
    pub(crate) fn trace_id(&self) -> [u8; 16] {
        Single::id(TraceKind::Reconcile, &self.about(), self.target, self.start_ns)
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
        let Self {
            target,
            controller,
            request,
            start_ns,
            end_ns,
            outcome,
            message,
            panicked,
            made,
            incomplete,
        } = self;
        let mut list = vec![(attributes::CONTROLLER, AttributeValue::from(&**controller))];
        list.extend(request.as_deref().map(|request| (attributes::CONTROLLER_REQUEST, request.into())));
        list.extend(outcome.map(|outcome| (attributes::CONTROLLER_RESULT, outcome.name().into())));
        if let Some(Outcome::RequeueAfter(ns)) = outcome {
            let ms = AttributeValue::Double(*ns as f64 / 1e6);
            list.push((attributes::CONTROLLER_REQUEUE_AFTER_MS, ms));
        }
        list.extend(panicked.then_some((attributes::CONTROLLER_PANICKED, AttributeValue::Bool(true))));
        list.extend(incomplete.then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
        let single = Single {
            kind: TraceKind::Reconcile,
            trace_id: self.trace_id(),
            target: *target,
            times: [*start_ns, *end_ns],
            attributes: list.into(),
            status: match outcome {
                Some(Outcome::Error) => Status::Error(message.clone().unwrap_or_default()),
                Some(Outcome::Success | Outcome::Requeue | Outcome::RequeueAfter(_)) | None => Status::Unset,
            },
        };
        requests::spans::trace(single, made, anchor, extras)
    }
}
