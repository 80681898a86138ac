//! Spans as they are read from files.

use std::{collections::BTreeMap, sync::Arc};

use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{TracesData, status::StatusCode},
};
use serde_json::json;

use super::{Error, Shown};
use spans::attributes;

/// Most spans of one side: those of 25,000 attempts.
pub(super) const MAX_SPANS: usize = 1_000_000;
/// Most attributes of a span that are read.
const MAX_ATTRIBUTES: usize = 64;
/// Most bytes of an attribute's value, and of a status message, that are read.
const MAX_VALUE: usize = 1024;
/// Most reasons of a span's events that are read.
const MAX_REASONS: usize = 8;

/// One span.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// Identifies the trace.
    pub trace_id: Vec<u8>,
    /// Identifies the span.
    pub span_id: Vec<u8>,
    /// Identifies the parent; empty for a root.
    pub parent_id: Vec<u8>,
    /// Its name.
    pub name: String,
    /// `service.name` of its resource.
    pub service: Arc<str>,
    /// Start and end, nanoseconds since the Unix epoch.
    pub wall: [u64; 2],
    /// Start and end by `CLOCK_MONOTONIC`, nanoseconds, if the span has attributes of it.
    pub monotonic: Option<[u64; 2]>,
    /// Attributes as text, without those of time.
    pub attributes: BTreeMap<String, String>,
    /// Whether its status is an error.
    pub failed: bool,
    /// The status message.
    pub message: String,
    /// Why its container waited or ended, by the span's events: each reason once, in order.
    pub reasons: Vec<String>,
}

impl Span {
    /// An attribute as text; empty if it is missing.
    #[must_use]
    pub fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }

    /// What it shows.
    #[must_use]
    pub fn shows(&self) -> Shown {
        Shown::by_name(&self.name)
    }

    /// The kind by which spans are matched: the name, and for a call of a plugin its extension point.
    #[must_use]
    pub fn kind(&self) -> String {
        match self.attribute(attributes::EXTENSION_POINT) {
            "" => self.name.clone(),
            point => format!("{} ({point})", self.name),
        }
    }
}

/// Adds the spans of a message, or those of one instrumentation scope.
pub(super) fn take(message: TracesData, scope: Option<&str>, spans: &mut Vec<Span>) -> Result<(), Error> {
    let of_services = message.resource_spans.into_iter().flat_map(|of_resource| {
        let attributes = of_resource.resource.map(|resource| texts(&resource.attributes)).unwrap_or_default();
        let service: Arc<str> = attributes.get("service.name").map_or("", String::as_str).into();
        of_resource.scope_spans.into_iter().map(move |of_scope| (of_scope, Arc::clone(&service)))
    });
    for (of_scope, service) in of_services {
        let name = of_scope.scope.map(|scope| scope.name).unwrap_or_default();
        if scope.is_some_and(|scope| scope != name) {
            continue;
        }
        if spans.len() + of_scope.spans.len() > MAX_SPANS {
            return Err(Error::TooMany { limit: MAX_SPANS });
        }
        spans.extend(of_scope.spans.into_iter().filter_map(|span| {
            let mut attributes = texts(&span.attributes);
            if attributes.contains_key(attributes::SHARE) {
                // Not a call, but what is known of many: it has no twin.
                return None;
            }
            let mut time = |key| attributes.remove(key)?.parse().ok();
            let monotonic = [time(attributes::MONOTONIC_START), time(attributes::MONOTONIC_END)];
            let status = span.status.unwrap_or_default();
            let mut reasons = Vec::new();
            for event in span.events.iter().flat_map(|event| &event.attributes) {
                let reason = event.value.as_ref().filter(|_| event.key == attributes::REASON).map(text);
                reasons
                    .extend(reason.filter(|reason| reasons.len() < MAX_REASONS && !reasons.contains(reason)));
            }
            Some(Span {
                trace_id: span.trace_id,
                span_id: span.span_id,
                parent_id: span.parent_span_id,
                name: span.name,
                service: Arc::clone(&service),
                wall: [span.start_time_unix_nano, span.end_time_unix_nano],
                monotonic: if let [Some(start), Some(end)] = monotonic { Some([start, end]) } else { None },
                attributes,
                failed: status.code == StatusCode::Error as i32,
                message: short(status.message),
                reasons,
            })
        }));
    }
    Ok(())
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |attribute: &KeyValue| Some((attribute.key.clone(), text(attribute.value.as_ref()?)));
    attributes.iter().take(MAX_ATTRIBUTES).filter_map(text).collect()
}

/// The elements of a list are separated as people do: they are names, or texts of schedspan.
fn text(value: &AnyValue) -> String {
    short(match &value.value {
        None => String::new(),
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(value)) => value.to_string(),
        Some(Value::DoubleValue(value)) => value.to_string(),
        Some(Value::ArrayValue(list)) => list.values.iter().map(text).collect::<Vec<_>>().join(", "),
        Some(other) => json!(other).to_string(),
    })
}

fn short(mut text: String) -> String {
    if text.len() > MAX_VALUE {
        text.truncate(text.floor_char_boundary(MAX_VALUE));
    }
    text
}
