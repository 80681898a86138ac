//! Spans as Jaeger's query API shows them: read from its answers, and made of what a Collector has stored. Both are one object per span.
//! <https://opentelemetry.io/docs/specs/otel/compatibility/jaeger/>
//!
//! Jaeger has no nanoseconds, and of a link neither attributes nor trace state.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use harness::spans::hex;
use opentelemetry_proto::tonic::{
    common::v1::{ArrayValue, InstrumentationScope, KeyValue, any_value::Value as Attribute},
    resource::v1::Resource,
    trace::v1::{
        ResourceSpans, ScopeSpans, Span,
        span::{Event, SpanKind},
        status::StatusCode,
    },
};
use serde_json::{Value, json};

use crate::checks::text;

/// Spans by trace and span id.
pub(super) type Spans = BTreeMap<[String; 2], Value>;

/// The largest number that JavaScript has exactly; Jaeger writes larger ones as strings.
const EXACT: i64 = (1 << 53) - 1;
const SERVICE: &str = "service.name";
/// A reference to the parent.
const CHILD_OF: &str = "CHILD_OF";

/// What Jaeger should show of what a Collector has stored.
pub(super) fn of_collector(stored: Vec<ResourceSpans>) -> Result<Spans> {
    let mut spans = Spans::new();
    for ResourceSpans { resource, scope_spans, .. } in stored {
        let process = process(&resource.unwrap_or_default())?;
        for ScopeSpans { scope, spans: of_scope, .. } in scope_spans {
            let scope = scope.unwrap_or_default();
            for span in of_scope {
                let shown = span_shown(&span, &scope, &process)
                    .with_context(|| format!("a span of the Collector's: {span:?}"))?;
                let ids = [&span.trace_id, &span.span_id].map(|id| hex(id));
                ensure!(spans.insert(ids, shown).is_none(), "a span is stored twice: {span:?}");
            }
        }
    }
    let ids: BTreeSet<_> = spans.keys().cloned().collect();
    for ([trace, _], span) in &mut spans {
        // The span of a Pod's creator, which Jaeger does not have.
        let parent = list(span, "references").find(|reference| reference["refType"] == CHILD_OF);
        let parent = parent.map(|reference| text(reference, "/spanID").to_owned());
        if let Some(parent) = parent.filter(|parent| !ids.contains(&[trace.clone(), parent.clone()])) {
            span["warnings"] =
                json!([format!("invalid parent span IDs={parent}; skipping clock skew adjustment")]);
        }
    }
    Ok(spans)
}

/// The spans of an answer of Jaeger's `/api/traces`.
pub(super) fn of_jaeger(answer: &Value) -> Result<Spans> {
    let mut spans = Spans::new();
    for trace in list(answer, "data") {
        for span in list(trace, "spans") {
            let ids = ["/traceID", "/spanID"].map(|id| text(span, id).to_owned());
            let process = &trace["processes"][text(span, "/processID")];
            let logs = list(span, "logs")
                .map(|log| Ok(json!({ "timestamp": log["timestamp"], "fields": tags_read(log, "fields")? })));
            let shown = json!({
                "operationName": span["operationName"],
                "startTime": span["startTime"],
                "duration": span["duration"],
                "references": sorted(list(span, "references").cloned().collect()),
                "tags": tags_read(span, "tags")?,
                "logs": logs.collect::<Result<Vec<_>>>()?,
                "process": { "serviceName": process["serviceName"], "tags": tags_read(process, "tags")? },
                "warnings": span["warnings"],
            });
            ensure!(spans.insert(ids, shown).is_none(), "Jaeger shows a span twice: {span}");
        }
    }
    Ok(spans)
}

/// What Jaeger should show, and what it shows, where these differ: by span, then by field.
pub(super) fn differences(expected: &Spans, shown: &Spans) -> Vec<String> {
    let mut differences = Vec::new();
    for (ids, span) in expected {
        let Some(other) = shown.get(ids) else {
            differences.push(format!("{ids:?} is missing: {span}"));
            continue;
        };
        let fields = span.as_object().into_iter().flatten();
        let differ = fields.filter(|(field, value)| other[field.as_str()] != **value);
        differences.extend(differ.map(|(field, value)| {
            format!(
                "{ids:?} {}: {field} is {} instead of {value}",
                text(span, "/operationName"),
                other[field.as_str()]
            )
        }));
    }
    let more = shown.iter().filter(|(ids, _)| !expected.contains_key(*ids));
    differences.extend(more.map(|(ids, span)| format!("{ids:?} is only in Jaeger: {span}")));
    differences
}

// === What OTLP has, in Jaeger's words ===

fn span_shown(span: &Span, scope: &InstrumentationScope, process: &Value) -> Result<Value> {
    let mut references = Vec::new();
    if !span.parent_span_id.is_empty() {
        references.push(reference(CHILD_OF, &span.trace_id, &span.parent_span_id));
    }
    let links = span.links.iter();
    references.extend(links.map(|link| reference("FOLLOWS_FROM", &link.trace_id, &link.span_id)));

    let kind = match span.kind() {
        SpanKind::Unspecified => "",
        SpanKind::Internal => "internal",
        SpanKind::Server => "server",
        SpanKind::Client => "client",
        SpanKind::Producer => "producer",
        SpanKind::Consumer => "consumer",
    };
    let status = span.status.clone().unwrap_or_default();
    let code = match status.code() {
        StatusCode::Unset => "",
        StatusCode::Ok => "OK",
        StatusCode::Error => "ERROR",
    };
    let mut tags = tags(&span.attributes)?;
    for (key, value) in [
        ("span.kind", kind),
        ("otel.status_code", code),
        ("otel.status_description", &status.message),
        ("otel.scope.name", &scope.name),
        ("otel.scope.version", &scope.version),
        ("w3c.tracestate", &span.trace_state),
    ] {
        if !value.is_empty() {
            tags.push(tag(key, "string", value));
        }
    }
    if status.code() == StatusCode::Error {
        tags.push(tag("error", "bool", true));
    }
    let logs = span.events.iter().map(log);
    Ok(json!({
        "operationName": span.name,
        "startTime": span.start_time_unix_nano / 1000,
        "duration": (span.end_time_unix_nano - span.start_time_unix_nano) / 1000,
        "references": sorted(references),
        "tags": sorted(tags),
        "logs": logs.collect::<Result<Vec<_>>>()?,
        "process": process,
        "warnings": null,
    }))
}

fn log(event: &Event) -> Result<Value> {
    let mut fields = tags(&event.attributes)?;
    fields.push(tag("event", "string", event.name.as_str()));
    Ok(json!({ "timestamp": event.time_unix_nano / 1000, "fields": sorted(fields) }))
}

fn process(resource: &Resource) -> Result<Value> {
    let mut tags = tags(&resource.attributes)?;
    let service =
        tags.iter().position(|tag| tag["key"] == SERVICE).context("a resource without a service")?;
    let service = tags.remove(service);
    Ok(json!({ "serviceName": service["value"], "tags": sorted(tags) }))
}

fn tags(attributes: &[KeyValue]) -> Result<Vec<Value>> {
    let shown = |KeyValue { key, value, .. }: &KeyValue| {
        let value = value.as_ref().and_then(|value| value.value.as_ref());
        Ok(match value.with_context(|| format!("the attribute {key} has no value"))? {
            Attribute::StringValue(text) => tag(key, "string", text.as_str()),
            Attribute::BoolValue(value) => tag(key, "bool", *value),
            Attribute::DoubleValue(value) => tag(key, "float64", *value),
            Attribute::IntValue(number) => {
                let is_exact = (-EXACT..=EXACT).contains(number);
                let value: Value = if is_exact { (*number).into() } else { number.to_string().into() };
                tag(key, "int64", value)
            }
            Attribute::ArrayValue(list) => tag(key, "string", strings(list)?.to_string()),
            other @ (Attribute::KvlistValue(_)
            | Attribute::BytesValue(_)
            | Attribute::StringValueStrindex(_)) => {
                bail!("schedspan makes no attribute as {key}: {other:?}")
            }
        })
    };
    attributes.iter().map(shown).collect()
}

/// A list of strings, which is all that schedspan makes.
fn strings(list: &ArrayValue) -> Result<Value> {
    let text = |item: Option<&Attribute>| match item {
        Some(Attribute::StringValue(text)) => Ok(Value::from(text.as_str())),
        Some(_) | None => bail!("{item:?} is in a list"),
    };
    list.values.iter().map(|item| text(item.value.as_ref())).collect()
}

fn reference(kind: &str, trace: &[u8], span: &[u8]) -> Value {
    json!({ "refType": kind, "traceID": hex(trace), "spanID": hex(span) })
}

fn tag(key: &str, kind: &str, value: impl Into<Value>) -> Value {
    json!({ "key": key, "type": kind, "value": value.into() })
}

// === Both ===

fn tags_read(of: &Value, field: &str) -> Result<Value> {
    let read = |read: &Value| {
        let [key, kind] = ["/key", "/type"].map(|field| text(read, field));
        let value = if kind == "float64" { float(&read["value"])? } else { read["value"].clone() };
        Ok(tag(key, kind, value))
    };
    Ok(sorted(list(of, field).map(read).collect::<Result<_>>()?))
}

/// `2` and `2.0` are the same.
fn float(value: &Value) -> Result<Value> {
    value.as_f64().map(Value::from).with_context(|| format!("{value} is not a number"))
}

fn list<'a>(of: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    of[field].as_array().into_iter().flatten()
}

/// In an order of our own: theirs says nothing.
fn sorted(mut values: Vec<Value>) -> Value {
    values.sort_by_cached_key(Value::to_string);
    values.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: &str = r#"{"resourceSpans":[{"resource":{"attributes":[
        {"key":"service.name","value":{"stringValue":"kube-scheduler"}},{"key":"process.pid","value":{"intValue":"7"}}]},
        "scopeSpans":[{"scope":{"name":"schedspan","version":"1"},"spans":[{"traceId":"01","spanId":"02","parentSpanId":"03","name":"filter",
        "kind":1,"startTimeUnixNano":"1999","endTimeUnixNano":"4000","traceState":"x=y","status":{"code":2,"message":"no"},
        "attributes":[{"key":"whole","value":{"doubleValue":2}},{"key":"list","value":{"arrayValue":{"values":[{"stringValue":"a"}]}}},
        {"key":"large","value":{"intValue":"9007199254740993"}}],
        "events":[{"name":"rejected","timeUnixNano":"2500","attributes":[{"key":"all","value":{"boolValue":true}}]}],
        "links":[{"traceId":"04","spanId":"05"}]}]}]}]}"#;
    const ANSWER: &str = r#"{"data":[{"traceID":"01","processes":{"p1":{"serviceName":"kube-scheduler","tags":[
        {"key":"process.pid","type":"int64","value":7}]}},"spans":[{"traceID":"01","spanID":"02","operationName":"filter","processID":"p1",
        "references":[{"refType":"CHILD_OF","traceID":"01","spanID":"03"},{"refType":"FOLLOWS_FROM","traceID":"04","spanID":"05"}],
        "startTime":1,"duration":2,"warnings":["invalid parent span IDs=03; skipping clock skew adjustment"],"logs":[{"timestamp":2,"fields":[
        {"key":"event","type":"string","value":"rejected"},{"key":"all","type":"bool","value":true}]}],"tags":[
        {"key":"span.kind","type":"string","value":"internal"},{"key":"w3c.tracestate","type":"string","value":"x=y"},
        {"key":"otel.scope.name","type":"string","value":"schedspan"},{"key":"otel.scope.version","type":"string","value":"1"},
        {"key":"otel.status_code","type":"string","value":"ERROR"},{"key":"otel.status_description","type":"string","value":"no"},
        {"key":"error","type":"bool","value":true},{"key":"whole","type":"float64","value":2.0},
        {"key":"list","type":"string","value":"[\"a\"]"},{"key":"large","type":"int64","value":"9007199254740993"}]}]}]}"#;

    fn both() -> (Spans, Spans) {
        let stored = of_collector(harness::spans::request(STORED).unwrap()).unwrap();
        (stored, of_jaeger(&serde_json::from_str(ANSWER).unwrap()).unwrap())
    }

    #[test]
    fn the_same_span_is_the_same_from_both() {
        let (stored, shown) = both();
        assert_eq!((stored.len(), differences(&stored, &shown)), (1, vec![]));
    }

    #[test]
    fn every_field_that_differs_and_every_lone_span_is_named() {
        let (stored, mut shown) = both();
        let [_, empty] = [&shown, &Spans::new()].map(|shown| differences(&stored, shown));
        assert!(matches!(&*empty, [only] if only.contains("is missing")), "{empty:?}");
        assert!(differences(&Spans::new(), &shown)[0].contains("is only in Jaeger"));
        let ids = ["01", "02"].map(str::to_owned);
        for field in
            ["operationName", "startTime", "duration", "references", "tags", "logs", "process", "warnings"]
        {
            let was = shown.get_mut(&ids).unwrap()[field].take();
            shown.get_mut(&ids).unwrap()[field] = "other".into();
            let found = differences(&stored, &shown);
            assert!(
                matches!(&*found, [only] if only.contains(&format!(": {field} is \"other\""))),
                "{found:?}"
            );
            shown.get_mut(&ids).unwrap()[field] = was;
        }
    }
}
