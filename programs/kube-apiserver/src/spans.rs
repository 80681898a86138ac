//! Spans out of stored Pods. Pure.
//!
//! The trace is that of the Pod's lifecycle, and the root is below the root of that: both ids follow from the Pod's UID, so that no
//! daemon has to tell another.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;

use ::spans::{
    Anchor, ApiStep, AttributeValue, Origin, Source, Span, SpanKind, Status, Story, Trace, TraceKind,
    attributes, identity,
    story::{Extras, add_monotonic},
    text::Name,
};
use tracecontext::RemoteContext;

use crate::storage::{Call, Pod, Stored};

type Attributes = Vec<(&'static str, AttributeValue)>;

impl Story for Stored {
    fn pod_uid(&self) -> Option<&str> {
        // No context is needed: the trace follows from the UID.
        None
    }

    fn trace(&self, anchor: Anchor, _: Origin, extras: Extras) -> Trace {
        let Self { target, pod: Pod { uid, owner, .. }, calls, end_ns, .. } = self;
        let kind = TraceKind::PodStorage;
        let trace_id = extras.lifecycle.of(identity::lifecycle_id(uid), owner.as_deref());
        let last_ns = calls.iter().map(|call| call.end_ns.unwrap_or(call.start_ns)).max();
        let last_ns = last_ns.unwrap_or_default().max(*end_ns);
        // Steps come before the webhooks that they call.
        let mut calls: Vec<(u64, u64, &Call)> = calls
            .iter()
            .map(|call| (call.start_ns, call.end_ns.unwrap_or(last_ns).max(call.start_ns), call))
            .collect();
        calls.sort_by_key(|(start_ns, end_ns, _)| (*start_ns, Reverse(*end_ns)));
        let start_ns = calls.first().map_or(last_ns, |(start_ns, ..)| *start_ns);
        let seed = identity::trace_id(&[kind.name(), uid].join("/"), start_ns, *target);
        let id = |number: usize| identity::span_id(&seed, number as u64);
        let root = Span {
            kind: SpanKind::Root(kind),
            span_id: id(0),
            parent_id: None,
            name: kind.name().into(),
            start_unix_ns: anchor.unix(start_ns),
            end_unix_ns: anchor.unix(last_ns),
            attributes: self.attributes().into(),
            events: Vec::new(),
            links: Vec::new(),
            status: Status::Unset,
        };
        let mut spans = vec![root];
        for step in calls.iter().filter(|(.., call)| call.step != ApiStep::Webhook) {
            spans.push(step.2.span(anchor, id(spans.len()), id(0), (step.0, step.1)));
        }
        let steps = spans.len();
        for (start_ns, end_ns, call) in calls.iter().filter(|(.., call)| call.step == ApiStep::Webhook) {
            // The two times are taken one after the other, so that the webhook's may lie a little outside.
            let middle_ns = anchor.unix(start_ns.midpoint(*end_ns));
            let around = spans[1..steps]
                .iter()
                .find(|step| (step.start_unix_ns..step.end_unix_ns).contains(&middle_ns));
            let parent = around.unwrap_or(&spans[0]);
            let (first_ns, last_ns) = (parent.start_unix_ns, parent.end_unix_ns);
            let mut span = call.span(anchor, id(spans.len()), parent.span_id, (*start_ns, *end_ns));
            span.start_unix_ns = span.start_unix_ns.clamp(first_ns, last_ns);
            span.end_unix_ns = span.end_unix_ns.clamp(span.start_unix_ns, last_ns);
            spans.push(span);
        }
        let parent = Some(RemoteContext::sampled(trace_id, identity::lifecycle_root(uid)));
        let (source, beside) = (Source::OtherProgram(*target), Vec::new());
        let mut trace = Trace { kind, source, trace_id, parent, selected: None, names: None, spans, beside };
        if extras.monotonic {
            add_monotonic(&mut trace, anchor);
        }
        trace
    }
}

impl Stored {
    fn attributes(&self) -> Attributes {
        let Self { target: _, pod, user, calls: _, end_ns: _, left_out, incomplete, events: _ } = self;
        let Pod { uid, namespace, name, owner: _, manager } = pod;
        let mut list: Attributes = [
            (attributes::POD_NAMESPACE, namespace),
            (attributes::POD_NAME, name),
            (attributes::POD_UID, uid),
        ]
        .map(|(key, text)| (key, text.as_str().into()))
        .into();
        list.extend(user.as_deref().map(|user| (attributes::USER, user.into())));
        list.extend(manager.as_deref().map(|manager| (attributes::OBJECT_MANAGER, manager.into())));
        let left_out = (*left_out > 0).then(|| vec![format!("calls: {left_out}")]);
        list.extend(left_out.map(|list| (attributes::LEFT_OUT, AttributeValue::Strings(list))));
        list.extend(incomplete.then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
        list
    }
}

impl Call {
    fn span(
        &self,
        anchor: Anchor,
        span_id: [u8; 8],
        parent: [u8; 8],
        (start_ns, end_ns): (u64, u64),
    ) -> Span {
        let Self { step, start_ns: _, end_ns: seen_ns, webhook, code, failed } = self;
        let name = match webhook {
            Some(webhook) => Name::new(::spans::names::WEBHOOK, webhook.clone()),
            None => step.name().into(),
        };
        let mut list = Attributes::new();
        list.extend(webhook.as_deref().map(|webhook| (attributes::WEBHOOK, webhook.into())));
        // 0 stands for no answer.
        let code = code.filter(|code| *code > 0);
        list.extend(code.map(|code| (attributes::HTTP_STATUS, code.into())));
        list.extend(seen_ns.is_none().then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
        let why = || code.map_or_else(|| "failed".to_owned(), |code| format!("HTTP status {code}"));
        Span {
            kind: SpanKind::Api(*step),
            span_id,
            parent_id: Some(parent),
            name,
            start_unix_ns: anchor.unix(start_ns),
            end_unix_ns: anchor.unix(end_ns),
            attributes: list.into(),
            events: Vec::new(),
            links: Vec::new(),
            status: if *failed { Status::Error(why()) } else { Status::Unset },
        }
    }
}
