//! Spans out of reconciles. Pure.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use gotrace::pipeline::Clocks;
use spans::{AttributeValue, Source, Span, SpanKind, Status, Trace, TraceKind, attributes, identity};

use crate::reconcile::Reconcile;

/// Makes the trace of a reconcile: one span.
#[must_use]
pub fn build(reconcile: &Reconcile, clocks: Clocks) -> Trace {
    let Reconcile { target, queue, key, start_ns, end_ns, retried, incomplete, .. } = reconcile;
    let kind = TraceKind::Reconcile;
    let what = [kind.name(), queue, key.as_deref().unwrap_or_default()].join("/");
    let trace_id = identity::trace_id(&what, *start_ns, *target);
    let unix = |ns: u64| clocks.unix_ns_at_zero.saturating_add(ns);
    let mut list = vec![(attributes::WORKQUEUE, AttributeValue::from(&**queue))];
    list.extend(key.as_deref().map(|key| (attributes::WORKQUEUE_KEY, key.into())));
    let wait = |ns: u64| (attributes::WORKQUEUE_WAIT_MS, AttributeValue::Double(ns as f64 / 1e6));
    list.extend(reconcile.waited_ns().map(wait));
    list.push((attributes::WORKQUEUE_RETRIED, AttributeValue::Bool(*retried)));
    list.extend(incomplete.then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
    let root = Span {
        kind: SpanKind::Root(kind),
        span_id: identity::span_id(&trace_id, 0),
        parent_id: None,
        name: Cow::Borrowed(kind.name()),
        start_unix_ns: unix(*start_ns),
        end_unix_ns: unix(*end_ns),
        attributes: list,
        events: Vec::new(),
        links: Vec::new(),
        status: Status::Unset,
    };
    let (source, spans) = (Source::Process(*target), vec![root]);
    Trace { kind, source, trace_id, parent: None, selected: None, spans }
}
