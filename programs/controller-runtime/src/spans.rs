//! Spans out of reconciles. Pure.

#[cfg(test)]
mod tests;

use spans::{
    Anchor, AttributeValue, Origin, Source, Span, SpanKind, Status, Story, Trace, TraceKind, attributes,
    identity,
    story::{Extras, add_monotonic},
};

use crate::reconcile::{Outcome, Reconcile};

impl Story for Reconcile {
    fn pod_uid(&self) -> Option<&str> {
        None
    }

    fn trace(&self, anchor: Anchor, _: Origin, extras: Extras) -> Trace {
        let Self { target, controller, request, start_ns, end_ns, outcome, message, panicked, incomplete } =
            self;
        let kind = TraceKind::Reconcile;
        let what = [kind.name(), "controller", controller, request.as_deref().unwrap_or_default()].join("/");
        let trace_id = identity::trace_id(&what, *start_ns, *target);
        let mut list = vec![(attributes::CONTROLLER, AttributeValue::from(&**controller))];
        list.extend(request.as_deref().map(|request| (attributes::CONTROLLER_REQUEST, request.into())));
        list.extend(outcome.map(|outcome| (attributes::CONTROLLER_RESULT, outcome.name().into())));
        if let Some(Outcome::RequeueAfter(ns)) = outcome {
            let ms = AttributeValue::Double(*ns as f64 / 1e6);
            list.push((attributes::CONTROLLER_REQUEUE_AFTER_MS, ms));
        }
        list.extend(panicked.then_some((attributes::CONTROLLER_PANICKED, AttributeValue::Bool(true))));
        list.extend(incomplete.then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
        let root = Span {
            kind: SpanKind::Root(kind),
            span_id: identity::span_id(&trace_id, 0),
            parent_id: None,
            name: kind.name().into(),
            start_unix_ns: anchor.unix(*start_ns),
            end_unix_ns: anchor.unix(*end_ns),
            attributes: list.into(),
            events: Vec::new(),
            links: Vec::new(),
            status: match outcome {
                Some(Outcome::Error) => Status::Error(message.clone().unwrap_or_default()),
                Some(Outcome::Success | Outcome::Requeue | Outcome::RequeueAfter(_)) | None => Status::Unset,
            },
        };
        let (source, spans) = (Source::Process(*target), vec![root]);
        let mut trace = Trace { kind, source, trace_id, parent: None, selected: None, names: None, spans };
        if extras.monotonic {
            add_monotonic(&mut trace, anchor);
        }
        trace
    }
}
