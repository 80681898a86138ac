//! Traces as bytes of OTLP: <https://github.com/open-telemetry/opentelemetry-proto/blob/v1.9.0/opentelemetry/proto/trace/v1/trace.proto>.
//!
//! A trace is encoded once, when it is queued: as the field `spans` of a `ScopeSpans`. A request puts such bytes behind those of
//! their resource and scope.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use bytes_utils::SegmentedBuf;
use hyper::body::{Buf as _, Bytes};

use super::protobuf::{Writer, first_length, length_of_uint, length_with_head};
use crate::{
    ApiStep, AttributeValue, Event, Link, Relation, Source, Span, SpanKind, Status, Trace, TraceKind,
    attributes,
};

/// The field `spans` of `ScopeSpans`.
const SPANS: u32 = 2;

/// Values of `SpanKind`.
const INTERNAL: u64 = 1;
const CLIENT: u64 = 3;
const CONSUMER: u64 = 5;
/// The value `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// Bits of `flags`. All spans are sampled: the decision is made before.
const SAMPLED: u32 = 1;
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The field `scope` of each `ScopeSpans`.
static SCOPE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    const SCOPE: u32 = 1;
    const NAME: u32 = 1;
    const VERSION: u32 = 2;
    let mut bytes = Vec::new();
    Writer(&mut bytes).message(SCOPE, |scope| {
        scope.bytes(NAME, b"schedspan");
        scope.bytes(VERSION, env!("CARGO_PKG_VERSION").as_bytes());
    });
    bytes
});

/// Maximum number of bytes that are reserved for a trace before it is encoded.
const MAX_ROOM: usize = 1 << 16;

/// Spans of one trace.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    /// What requests are ordered by.
    source: Source,
    /// As [`resource`] makes it.
    resource: Arc<[u8]>,
    pub(super) spans: u64,
    /// Shared with the request that sends them.
    bytes: Bytes,
}

impl Encoded {
    /// Reserves `room` bytes, and sets it for the next trace.
    pub(super) fn new(trace: &Trace, resource: Arc<[u8]>, room: &mut usize) -> Self {
        let mut bytes = Vec::with_capacity(*room);
        spans(trace, &mut bytes);
        *room = bytes.len().max(*room - *room / 16).min(MAX_ROOM);
        let (spans, bytes) = (trace.spans.len() as u64, bytes.into_boxed_slice().into());
        Self { source: trace.source, resource, spans, bytes }
    }

    /// The memory that it takes.
    pub(super) fn size(&self) -> u64 {
        (size_of::<Self>() + self.bytes.len()) as u64
    }

    /// The halves of a trace that is too large for a request; `None` if it has one span.
    fn halves(self) -> Option<(Self, Self)> {
        let first = self.spans / 2;
        let middle = (0..first).fold(0, |start, _| start + first_length(&self.bytes[start..]));
        let mut rest = self.clone();
        rest.spans -= first;
        let bytes = rest.bytes.split_to(middle);
        (first > 0).then(|| (Self { spans: first, bytes, ..self }, rest))
    }
}

/// Traces as bytes for the spool, and the number of their spans. Each has the lengths of its resource and spans, the number of
/// its spans, its resource if the one before it has another, and its spans.
pub(super) fn pack(traces: &mut [Encoded]) -> (Vec<u8>, u64) {
    traces.sort_by_key(|trace| trace.source);
    let (mut out, mut before) = (Vec::new(), None);
    for Encoded { source: _, resource, spans, bytes } in &*traces {
        let resource: &[u8] = if before == Some(resource) { &[] } else { before.insert(resource) };
        for number in [resource.len() as u64, bytes.len() as u64, *spans] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(resource);
        out.extend_from_slice(bytes);
    }
    (out, traces.iter().map(|trace| trace.spans).sum())
}

/// Reads what [`pack`] made; `None` if it made something else.
pub(super) fn unpack(mut bytes: &[u8]) -> Option<Vec<Encoded>> {
    fn number(bytes: &mut &[u8]) -> Option<u64> {
        let (number, rest) = bytes.split_first_chunk()?;
        *bytes = rest;
        Some(u64::from_le_bytes(*number))
    }
    fn part<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
        let (part, rest) = bytes.split_at_checked(length.try_into().ok()?)?;
        *bytes = rest;
        Some(part)
    }
    let (mut traces, mut resource) = (Vec::new(), None::<Arc<[u8]>>);
    while !bytes.is_empty() {
        let (of_resource, of_spans) = (number(&mut bytes)?, number(&mut bytes)?);
        let spans = number(&mut bytes)?;
        let own = part(&mut bytes, of_resource)?;
        if !own.is_empty() {
            resource = Some(own.into());
        }
        let resource = resource.clone()?;
        let bytes = Bytes::copy_from_slice(part(&mut bytes, of_spans)?);
        // Its order within a request is that of the entry.
        traces.push(Encoded { source: Source::Schedspan, resource, spans, bytes });
    }
    Some(traces)
}

/// The field `resource` of `ResourceSpans`.
pub(in crate::export) fn resource<'a>(
    attributes: impl Iterator<Item = (&'a str, &'a AttributeValue)>,
) -> Arc<[u8]> {
    const RESOURCE: u32 = 1;
    const ATTRIBUTES: u32 = 1;
    let mut bytes = Vec::new();
    Writer(&mut bytes).message(RESOURCE, |resource| {
        for (key, value) in attributes {
            key_value(resource, ATTRIBUTES, key, value);
        }
    });
    bytes.into()
}

/// An `ExportTraceServiceRequest`. It has each resource once, and shares the bytes of the traces.
pub(super) fn request(traces: &mut [Encoded]) -> SegmentedBuf<Bytes> {
    const RESOURCE_SPANS: u32 = 1;
    const SCOPE_SPANS: u32 = 2;
    traces.sort_by_key(|trace| trace.source);
    let mut request = SegmentedBuf::new();
    for of_resource in traces.chunk_by(|one, next| one.resource == next.resource) {
        let resource = &of_resource[0].resource;
        let scope_spans = SCOPE.len() + of_resource.iter().map(|trace| trace.bytes.len()).sum::<usize>();
        let resource_spans = resource.len() + length_with_head(SCOPE_SPANS, scope_spans);
        let mut head = Vec::new();
        let mut writer = Writer(&mut head);
        writer.head(RESOURCE_SPANS, resource_spans);
        writer.0.extend_from_slice(resource);
        writer.head(SCOPE_SPANS, scope_spans);
        writer.0.extend_from_slice(&SCOPE);
        request.push(head.into());
        request.extend(of_resource.iter().map(|trace| trace.bytes.clone()));
    }
    request
}

/// An `ExportTraceServiceRequest` of one trace, as the daemon makes it: `resource` is
/// [`Resource::encode`](crate::export::Resource::encode)'s. Reserves `room` bytes, and sets it for the next trace.
#[must_use]
pub fn encode(trace: &Trace, resource: &Arc<[u8]>, room: &mut usize) -> Vec<u8> {
    let mut request = request(&mut [Encoded::new(trace, Arc::clone(resource), room)]);
    request.copy_to_bytes(request.remaining()).into()
}

/// Two parts of traces that are too large for one request: by traces, or by the spans of a single one; `None` for a single span.
pub(super) fn split(mut traces: Vec<Encoded>) -> Option<(Vec<Encoded>, Vec<Encoded>)> {
    if traces.len() > 1 {
        let rest = traces.split_off(traces.len() / 2);
        return Some((traces, rest));
    }
    let (first, rest) = traces.pop()?.halves()?;
    Some((vec![first], vec![rest]))
}

fn spans(trace: &Trace, out: &mut Vec<u8>) {
    const TRACE_ID: u32 = 1;
    const SPAN_ID: u32 = 2;
    const TRACE_STATE: u32 = 3;
    const PARENT_SPAN_ID: u32 = 4;
    const NAME: u32 = 5;
    const KIND: u32 = 6;
    const START: u32 = 7;
    const END: u32 = 8;
    const ATTRIBUTES: u32 = 9;
    const EVENTS: u32 = 11;
    const LINKS: u32 = 13;
    const STATUS: u32 = 15;
    const FLAGS: u32 = 16;

    let remote = trace.parent.as_ref();
    let vendors = remote.map(|remote| vendors(&remote.trace_state)).unwrap_or_default();
    let mut writer = Writer(out);
    for span in &trace.spans {
        let remote_parent = remote.filter(|_| span.parent_id.is_none()).map(|remote| remote.span_id);
        writer.message(SPANS, |out| {
            out.bytes(TRACE_ID, &trace.trace_id);
            out.bytes(SPAN_ID, &span.span_id);
            if !vendors.is_empty() {
                out.bytes(TRACE_STATE, vendors.as_bytes());
            }
            if let Some(parent) = span.parent_id.or(remote_parent) {
                out.bytes(PARENT_SPAN_ID, &parent);
            }
            out.texts(NAME, span.name.parts());
            out.uint(KIND, kind(span));
            out.fixed64(START, span.start_unix_ns);
            out.fixed64(END, span.end_unix_ns);
            for (key, value) in &span.attributes {
                key_value(out, ATTRIBUTES, key, value);
            }
            for event in &span.events {
                out.message(EVENTS, |out| write_event(out, event));
            }
            for link in &span.links {
                out.message(LINKS, |out| write_link(out, link));
            }
            out.message(STATUS, |out| write_status(out, &span.status));
            let is_remote = if remote_parent.is_some() { IS_REMOTE } else { 0 };
            out.fixed32(FLAGS, SAMPLED | HAS_IS_REMOTE | is_remote);
        });
    }
}

/// The kinds of `component-base/tracing`: `StartReconcileSpan` makes consumers, `Start` internal spans.
fn kind(span: &Span) -> u64 {
    match span.kind {
        SpanKind::Root(TraceKind::Attempt | TraceKind::GroupAttempt | TraceKind::Reconcile)
            if span.parent_id.is_none() =>
        {
            CONSUMER
        }
        SpanKind::Node(step) if step.service().is_some() => CLIENT,
        SpanKind::Request | SpanKind::Api(ApiStep::Webhook | ApiStep::Storage) => CLIENT,
        SpanKind::Root(
            TraceKind::Attempt
            | TraceKind::GroupAttempt
            | TraceKind::Configuration
            | TraceKind::Lifecycle
            | TraceKind::Reconcile
            | TraceKind::PodStart
            | TraceKind::PodStorage
            | TraceKind::PodCreation
            | TraceKind::PodDeletion
            | TraceKind::PodEviction
            | TraceKind::Command,
        )
        | SpanKind::Cycle(_)
        | SpanKind::Phase(_)
        | SpanKind::Plugin
        | SpanKind::Share
        | SpanKind::Extender
        | SpanKind::ApiCall
        | SpanKind::Victim
        | SpanKind::Placement
        | SpanKind::Trial
        | SpanKind::QueueStay
        | SpanKind::Stage(_)
        | SpanKind::Node(_)
        | SpanKind::Api(ApiStep::Mutation | ApiStep::Validation)
        | SpanKind::Other => INTERNAL,
    }
}

fn write_event(out: &mut Writer<'_>, Event { name, unix_ns, attributes }: &Event) {
    const TIME: u32 = 1;
    const NAME: u32 = 2;
    const ATTRIBUTES: u32 = 3;
    out.fixed64(TIME, *unix_ns);
    out.bytes(NAME, name.as_bytes());
    for (key, value) in attributes {
        key_value(out, ATTRIBUTES, key, value);
    }
}

fn write_link(out: &mut Writer<'_>, Link { context, relation }: &Link) {
    const TRACE_ID: u32 = 1;
    const SPAN_ID: u32 = 2;
    const TRACE_STATE: u32 = 3;
    const ATTRIBUTES: u32 = 4;
    const FLAGS: u32 = 6;
    out.bytes(TRACE_ID, &context.trace_id);
    out.bytes(SPAN_ID, &context.span_id);
    let vendors = vendors(&context.trace_state);
    if !vendors.is_empty() {
        out.bytes(TRACE_STATE, vendors.as_bytes());
    }
    let mut attribute = |key, value: &str| write_text(out, ATTRIBUTES, key, value);
    if let Some(name) = relation.name() {
        attribute(attributes::LINK, name);
    }
    if let Some(evidence) = relation.evidence() {
        attribute(attributes::LINK_EVIDENCE, evidence.name());
    }
    match relation {
        Relation::Cause { annotation, owner } => {
            attribute(attributes::LINK_ANNOTATION, annotation);
            if let Some(owner) = owner {
                attribute(attributes::LINK_OWNER, owner);
            }
        }
        Relation::PreviousAttempt
        | Relation::Attempt
        | Relation::Configuration
        | Relation::Request(_)
        | Relation::Pod(_)
        | Relation::Creator(_)
        | Relation::Writer(_) => {}
    }
    out.fixed32(FLAGS, u32::from(context.flags) | HAS_IS_REMOTE | IS_REMOTE);
}

fn write_status(out: &mut Writer<'_>, status: &Status) {
    const MESSAGE: u32 = 2;
    const CODE: u32 = 3;
    match status {
        Status::Unset => {}
        Status::Error(message) => {
            if !message.is_empty() {
                out.bytes(MESSAGE, message.as_bytes());
            }
            out.uint(CODE, ERROR);
        }
    }
}

/// A `tracestate` without the spaces that W3C allows around its members.
fn vendors(text: &str) -> Cow<'_, str> {
    if !text.contains([' ', '\t']) {
        return text.into();
    }
    let members = text.split(',').map(|member| member.trim_matches([' ', '\t']));
    members.filter(|member| !member.is_empty()).collect::<Vec<_>>().join(",").into()
}

/// A `KeyValue` with a string.
fn write_text(out: &mut Writer<'_>, field: u32, key: &str, value: &str) {
    key_value_head(out, field, key, length_with_head(STRING, value.len()));
    out.bytes(STRING, value.as_bytes());
}

/// A `KeyValue`. Its value is always written, even if it is the default of its type.
fn key_value(out: &mut Writer<'_>, field: u32, key: &str, value: &AttributeValue) {
    const BOOL: u32 = 2;
    const INT: u32 = 3;
    const DOUBLE: u32 = 4;
    const ARRAY: u32 = 5;
    const VALUES: u32 = 1;
    match value {
        AttributeValue::String(value) => write_text(out, field, key, value),
        AttributeValue::Bool(value) => {
            let value = u64::from(*value);
            key_value_head(out, field, key, length_of_uint(BOOL, value));
            out.uint(BOOL, value);
        }
        AttributeValue::Int(value) => {
            let value = value.cast_unsigned();
            key_value_head(out, field, key, length_of_uint(INT, value));
            out.uint(INT, value);
        }
        AttributeValue::Double(value) => {
            key_value_head(out, field, key, LENGTH_OF_DOUBLE);
            out.fixed64(DOUBLE, value.to_bits());
        }
        AttributeValue::Strings(values) => {
            let of = |value: &String| length_with_head(STRING, value.len());
            let all = values.iter().map(|value| length_with_head(VALUES, of(value))).sum();
            key_value_head(out, field, key, length_with_head(ARRAY, all));
            out.head(ARRAY, all);
            for value in values {
                out.head(VALUES, of(value));
                out.bytes(STRING, value.as_bytes());
            }
        }
    }
}

/// The field `string_value` of `AnyValue`.
const STRING: u32 = 1;
/// Bytes of its field `double_value`.
const LENGTH_OF_DOUBLE: usize = 9;

/// A `KeyValue` up to the content of its value. Its lengths are known before, so that nothing is moved once it is written.
fn key_value_head(out: &mut Writer<'_>, field: u32, key: &str, length: usize) {
    const KEY: u32 = 1;
    const VALUE: u32 = 2;
    out.head(field, length_with_head(KEY, key.len()) + length_with_head(VALUE, length));
    out.bytes(KEY, key.as_bytes());
    out.head(VALUE, length);
}

#[cfg(test)]
mod tests;
