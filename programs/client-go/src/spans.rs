//! Spans out of reconciles. Pure.

#[cfg(test)]
mod tests;

use spans::{
    Anchor, AttributeValue, Origin, Source, Span, SpanKind, Status, Story, Trace, TraceKind, attributes,
    identity,
    story::{Extras, add_monotonic},
};

use crate::reconcile::Reconcile;

impl Story for Reconcile {
    fn pod_uid(&self) -> Option<&str> {
        None
    }

    fn trace(&self, anchor: Anchor, _: Origin, extras: Extras) -> Trace {
        let Self { target, queue, key, start_ns, end_ns, retried, incomplete, .. } = self;
        let kind = TraceKind::Reconcile;
        let what = [kind.name(), queue, key.as_deref().unwrap_or_default()].join("/");
        let trace_id = identity::trace_id(&what, *start_ns, *target);
        let mut list = vec![(attributes::WORKQUEUE, AttributeValue::from(&**queue))];
        list.extend(key.as_deref().map(|key| (attributes::WORKQUEUE_KEY, key.into())));
        let wait_ms = self.waited_ns().map(|ns| AttributeValue::Double(ns as f64 / 1e6));
        list.extend(wait_ms.map(|ms| (attributes::WORKQUEUE_WAIT_MS, ms)));
        list.push((attributes::WORKQUEUE_RETRIED, AttributeValue::Bool(*retried)));
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
            status: Status::Unset,
        };
        let (source, spans) = (Source::Process(*target), vec![root]);
        let mut trace = Trace { kind, source, trace_id, parent: None, selected: None, spans, names: None };
        if extras.monotonic {
            add_monotonic(&mut trace, anchor);
        }
        trace
    }
}
