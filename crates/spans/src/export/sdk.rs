//! Traces as the OpenTelemetry SDK's spans.

use std::{
    str::FromStr as _,
    sync::LazyLock,
    time::{Duration, SystemTime},
};

use opentelemetry::{
    Array, InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId, Value,
    trace::{Event, Link, SpanContext, SpanKind, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::{self as model, AttributeValue, Relation, Span, Status, Trace, TraceKind, attributes};

static SCOPE: LazyLock<InstrumentationScope> = LazyLock::new(|| {
    InstrumentationScope::builder("schedspan").with_version(env!("CARGO_PKG_VERSION")).build()
});

/// The spans of a trace, all of them sampled: the decision is made before.
pub(super) fn span_data(trace: Trace) -> impl Iterator<Item = SpanData> {
    let trace_state = trace.parent.as_ref().map(|parent| vendors(&parent.trace_state)).unwrap_or_default();
    let parent = trace.parent.map(|parent| parent.span_id);
    trace.spans.into_iter().map(move |span| convert(trace.trace_id, parent, &trace_state, span))
}

/// `parent` is the remote parent of spans without one in the trace.
fn convert(trace_id: [u8; 16], parent: Option<[u8; 8]>, trace_state: &TraceState, span: Span) -> SpanData {
    let context = |id| {
        let trace_id = TraceId::from_bytes(trace_id);
        SpanContext::new(trace_id, id, TraceFlags::SAMPLED, false, trace_state.clone())
    };
    let span_kind = kind(&span);
    let mut links = SpanLinks::default();
    links.links.extend(span.links.iter().map(link));
    let mut events = SpanEvents::default();
    events.events.extend(
        span.events
            .into_iter()
            .map(|event| Event::new(event.name, time(event.unix_ns), key_values(event.attributes), 0)),
    );
    SpanData {
        span_context: context(SpanId::from_bytes(span.span_id)),
        parent_span_id: span.parent_id.or(parent).map_or(SpanId::INVALID, SpanId::from_bytes),
        parent_span_is_remote: span.parent_id.is_none() && parent.is_some(),
        span_kind,
        name: span.name,
        start_time: time(span.start_unix_ns),
        end_time: time(span.end_unix_ns),
        attributes: key_values(span.attributes),
        dropped_attributes_count: 0,
        events,
        links,
        status: match span.status {
            Status::Unset => opentelemetry::trace::Status::Unset,
            Status::Error(description) => opentelemetry::trace::Status::error(description),
        },
        instrumentation_scope: SCOPE.clone(),
    }
}

/// The kinds of `component-base/tracing`: `StartReconcileSpan` makes consumers, `Start` internal spans.
fn kind(span: &Span) -> SpanKind {
    match span.kind {
        model::SpanKind::Root(TraceKind::Attempt | TraceKind::GroupAttempt | TraceKind::Reconcile)
            if span.parent_id.is_none() =>
        {
            SpanKind::Consumer
        }
        model::SpanKind::Root(
            TraceKind::Attempt
            | TraceKind::GroupAttempt
            | TraceKind::Configuration
            | TraceKind::Lifecycle
            | TraceKind::Reconcile,
        )
        | model::SpanKind::Cycle(_)
        | model::SpanKind::Phase(_)
        | model::SpanKind::Plugin
        | model::SpanKind::Extender
        | model::SpanKind::ApiCall
        | model::SpanKind::Victim
        | model::SpanKind::Placement
        | model::SpanKind::Trial
        | model::SpanKind::QueueStay
        | model::SpanKind::Stage(_)
        | model::SpanKind::Other => SpanKind::Internal,
    }
}

fn key_values(attributes: Vec<(&'static str, AttributeValue)>) -> Vec<KeyValue> {
    attributes.into_iter().map(|(key, value)| KeyValue::new(key, attribute(value))).collect()
}

fn link(link: &model::Link) -> Link {
    let model::Link { context: remote, relation } = link;
    let context = SpanContext::new(
        TraceId::from_bytes(remote.trace_id),
        SpanId::from_bytes(remote.span_id),
        TraceFlags::new(remote.flags),
        true,
        vendors(&remote.trace_state),
    );
    let attributes = match relation {
        Relation::PreviousAttempt => vec![KeyValue::new(attributes::LINK, "previous attempt")],
        Relation::Attempt => vec![KeyValue::new(attributes::LINK, "attempt")],
        Relation::Configuration => vec![KeyValue::new(attributes::LINK, "configuration")],
        Relation::Cause { annotation, owner } => {
            let owner = owner.as_ref().map(|owner| KeyValue::new(attributes::LINK_OWNER, owner.clone()));
            let annotation = KeyValue::new(attributes::LINK_ANNOTATION, annotation.clone());
            [annotation].into_iter().chain(owner).collect()
        }
    };
    Link::new(context, attributes, 0)
}

/// The `tracestate`, which was validated when it was read.
fn vendors(text: &str) -> TraceState {
    TraceState::from_str(text).unwrap_or_default()
}

pub(super) fn attribute(value: AttributeValue) -> Value {
    match value {
        AttributeValue::String(value) => value.into(),
        AttributeValue::Int(value) => value.into(),
        AttributeValue::Double(value) => value.into(),
        AttributeValue::Bool(value) => value.into(),
        AttributeValue::Strings(values) => {
            Value::Array(Array::String(values.into_iter().map(Into::into).collect()))
        }
    }
}

fn time(unix_ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(unix_ns)
}
