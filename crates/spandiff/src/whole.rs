//! Whole traces as schedspan makes them, read again for a terminal: of a daemon that shows them as OTLP.

use std::collections::HashMap;

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span as Read, TracesData, span::Link as ReadLink, status::StatusCode},
};
use spans::{AttributeValue, Evidence, Link, Relation, Source, Span, SpanKind, Status, Trace, attributes};
use tracecontext::RemoteContext;

use crate::{Shown, read::complete};

/// Attributes that a waterfall shows. Others are left out.
const KEYS: [&str; 44] = [
    attributes::ATTEMPT,
    attributes::CONFIG_CHANGED,
    attributes::CONFIG_DIFFERENCE,
    attributes::CONFIG_PROFILES,
    attributes::CONTROLLER,
    attributes::CONTROLLER_PANICKED,
    attributes::CONTROLLER_REQUEST,
    attributes::CONTROLLER_REQUEUE_AFTER_MS,
    attributes::CONTROLLER_RESULT,
    attributes::EVALUATED_NODES,
    attributes::EXTENSION_POINT,
    attributes::FEASIBLE_NODES,
    attributes::IMAGE,
    attributes::INCOMPLETE,
    attributes::LIFECYCLE_ATTEMPTS,
    attributes::LIFECYCLE_RESTARTS,
    attributes::LIFECYCLE_RESULT,
    attributes::MESSAGE,
    attributes::NODE,
    attributes::PLACEMENT,
    attributes::PLUGIN_NAME,
    attributes::POD_GROUP,
    attributes::POD_GROUP_SCHEDULED,
    attributes::POD_GROUP_SIZE,
    attributes::POD_NAME,
    attributes::POD_NAMESPACE,
    attributes::POD_UID,
    attributes::PREEMPTION_NODE,
    attributes::PREEMPTION_VICTIMS,
    attributes::PREEMPTION_VICTIM_NAMES,
    attributes::QUEUE_BACKOFF_MS,
    attributes::QUEUE_MOVES,
    attributes::QUEUE_UNSCHEDULABLE_MS,
    attributes::QUEUE_WAIT_MS,
    attributes::RESTRICTED_TO_NODES,
    attributes::RESULT,
    attributes::SELECTED_NODE,
    attributes::TRIAL_CHOSEN,
    attributes::VOLUMES,
    attributes::WORKQUEUE,
    attributes::WORKQUEUE_KEY,
    attributes::WORKQUEUE_RETRIED,
    attributes::WORKQUEUE_WAIT_MS,
    attributes::QUEUE_TOTAL_WAIT_MS,
];
/// Most spans of a trace.
const MAX_SPANS: usize = 100_000;

/// Why a message cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not OTLP.
    #[error("it is not an OTLP `TracesData` in JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// An id has another length.
    #[error("an id has not the length of one")]
    Id,
    /// There are too many.
    #[error("it has more than {MAX_SPANS} spans")]
    TooMany,
}

/// The traces of a message, an OTLP `TracesData` in JSON. Traces without a root of schedspan's are left out.
///
/// # Errors
///
/// When the message is malformed or too large.
pub fn traces(json: &str) -> Result<Vec<Trace>, Error> {
    let mut value = serde_json::from_str(json)?;
    complete(&mut value);
    let message: TracesData = serde_json::from_value(value)?;
    let scopes = message.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    let (mut order, mut by_id) = (Vec::new(), HashMap::<[u8; 16], Vec<Span>>::new());
    for (number, read) in scopes.flat_map(|scope| scope.spans).enumerate() {
        if number >= MAX_SPANS {
            return Err(Error::TooMany);
        }
        let trace_id = id(&read.trace_id)?;
        let spans = by_id.entry(trace_id).or_insert_with(|| {
            order.push(trace_id);
            Vec::new()
        });
        spans.push(span(read)?);
    }
    let whole = |trace_id| {
        let mut spans = by_id.remove(&trace_id)?;
        let first = spans.iter().position(|span| matches!(span.kind, SpanKind::Root(_)))?;
        spans.swap(0, first);
        let SpanKind::Root(kind) = spans[0].kind else { return None };
        let known: Vec<_> = spans.iter().map(|span| span.span_id).collect();
        for span in &mut spans {
            // The parent of the root is the client's span.
            span.parent_id = span.parent_id.filter(|parent| known.contains(parent));
        }
        Some(Trace {
            kind,
            source: Source::Schedspan,
            trace_id,
            parent: None,
            selected: None,
            spans,
            names: None,
            beside: Vec::new(),
        })
    };
    Ok(order.into_iter().filter_map(whole).collect())
}

fn id<const BYTES: usize>(bytes: &[u8]) -> Result<[u8; BYTES], Error> {
    bytes.try_into().map_err(|_| Error::Id)
}

fn span(read: Read) -> Result<Span, Error> {
    let kind = match Shown::by_name(&read.name) {
        Shown::Known(kind) => kind,
        Shown::Filter | Shown::Create | Shown::SyncPod | Shown::Unknown => SpanKind::Other,
    };
    let failed = read.status.filter(|status| status.code == StatusCode::Error as i32);
    Ok(Span {
        kind,
        span_id: id(&read.span_id)?,
        parent_id: if read.parent_span_id.is_empty() { None } else { Some(id(&read.parent_span_id)?) },
        name: read.name.into(),
        start_unix_ns: read.start_time_unix_nano,
        end_unix_ns: read.end_time_unix_nano.max(read.start_time_unix_nano),
        attributes: read.attributes.into_iter().filter_map(attribute).collect(),
        // A waterfall does not show them.
        events: Vec::new(),
        links: read.links.into_iter().map(link).collect::<Result<_, _>>()?,
        status: failed.map_or(Status::Unset, |status| Status::Error(status.message)),
    })
}

fn attribute(KeyValue { key, value, .. }: KeyValue) -> Option<(&'static str, AttributeValue)> {
    let key = KEYS.into_iter().find(|known| *known == key)?;
    let text = |value: AnyValue| match value.value {
        Some(Value::StringValue(text)) => Some(text),
        Some(_) | None => None,
    };
    let value = match value?.value? {
        Value::StringValue(text) => AttributeValue::String(text.into()),
        Value::IntValue(number) => AttributeValue::Int(number),
        Value::DoubleValue(number) => AttributeValue::Double(number),
        Value::BoolValue(value) => AttributeValue::Bool(value),
        Value::ArrayValue(list) => {
            AttributeValue::Strings(list.values.into_iter().filter_map(text).collect())
        }
        // schedspan makes none of these.
        _ => return None,
    };
    Some((key, value))
}

fn link(read: ReadLink) -> Result<Link, Error> {
    let text = |key: &str| {
        let of_key = read.attributes.iter().find(|attribute| attribute.key == key)?;
        match &of_key.value.as_ref()?.value {
            Some(Value::StringValue(text)) => Some(text.clone()),
            Some(_) | None => None,
        }
    };
    let evidence = match text(attributes::LINK_EVIDENCE).as_deref() {
        Some("uid") => Evidence::Uid,
        Some(_) | None => Evidence::Name,
    };
    let relation = match text(attributes::LINK).as_deref() {
        Some("previous attempt") => Relation::PreviousAttempt,
        Some("attempt") => Relation::Attempt,
        Some("configuration") => Relation::Configuration,
        Some("request") => Relation::Request(evidence),
        Some("pod") => Relation::Pod(evidence),
        Some("creator") => Relation::Creator(evidence),
        Some("writer") => Relation::Writer(evidence),
        Some(_) | None => Relation::Cause {
            annotation: text(attributes::LINK_ANNOTATION).unwrap_or_default(),
            owner: text(attributes::LINK_OWNER),
        },
    };
    let context = RemoteContext {
        trace_id: id(&read.trace_id)?,
        span_id: id(&read.span_id)?,
        flags: u8::try_from(read.flags & 0xff).unwrap_or_default(),
        trace_state: read.trace_state,
    };
    Ok(Link { context, relation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_trace_of_schedspan_is_left_out_or_an_error() {
        let message =
            |span: &str| format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{span}]}}]}}]}}"#);
        assert!(traces(r#"{"resourceSpans":[]}"#).is_ok_and(|traces| traces.is_empty()));
        assert!(traces("nonsense").is_err() && traces("[1]").is_err());
        let of = |trace: &str, name: &str| {
            message(&format!(
                r#"{{"traceId":"{trace}","spanId":"0102030405060708","name":"{name}","startTimeUnixNano":"5","endTimeUnixNano":"1"}}"#
            ))
        };
        let id = "0102030405060708090a0b0c0d0e0f10";
        assert_eq!(traces(&of(id, "other")).unwrap(), []);
        let attempts = traces(&of(id, "SchedulePod")).unwrap();
        assert_eq!((attempts.len(), attempts[0].root().duration_ns()), (1, 0));
        assert!(matches!(traces(&of("01", "SchedulePod")), Err(Error::Id)));
    }
}
