//! Spans as Jaeger's query API shows them: read from its answers, and made of what a Collector has stored. Both are one object per span.
//! <https://opentelemetry.io/docs/specs/otel/compatibility/jaeger/>
//!
//! Jaeger has no nanoseconds, and of a link neither attributes nor trace state.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::checks::text;

/// Spans by trace and span id.
pub(super) type Spans = BTreeMap<[String; 2], Value>;

/// The largest number that JavaScript has exactly; Jaeger writes larger ones as strings.
const EXACT: i64 = (1 << 53) - 1;
/// The value of `span.kind`, by OTLP's number.
const KINDS: [&str; 6] = ["", "internal", "server", "client", "producer", "consumer"];
/// The value of `otel.status_code`, by OTLP's number.
const STATUS: [&str; 3] = ["", "OK", "ERROR"];
const SERVICE: &str = "service.name";
/// A reference to the parent.
const CHILD_OF: &str = "CHILD_OF";

/// The spans of a Collector's file: OTLP as JSON, a request per line.
pub(super) fn of_collector(stored: &str) -> Result<Spans> {
    let mut spans = Spans::new();
    for line in stored.lines() {
        let request: Value = serde_json::from_str(line)?;
        for resource in list(&request, "resourceSpans") {
            let process = process(&resource["resource"])?;
            for scope in list(resource, "scopeSpans") {
                for span in list(scope, "spans") {
                    let ids = ["/traceId", "/spanId"].map(|id| text(span, id).to_owned());
                    let shown = span_shown(span, &scope["scope"], &process)
                        .with_context(|| format!("a span of the Collector's: {span}"))?;
                    ensure!(spans.insert(ids, shown).is_none(), "a span is stored twice: {span}");
                }
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

fn span_shown(span: &Value, scope: &Value, process: &Value) -> Result<Value> {
    let [start, end] = ["/startTimeUnixNano", "/endTimeUnixNano"].map(|time| nanoseconds(span, time));
    let (start, end) = (start?, end?);
    let mut references = Vec::new();
    if !text(span, "/parentSpanId").is_empty() {
        references.push(reference(CHILD_OF, text(span, "/traceId"), text(span, "/parentSpanId")));
    }
    let links = list(span, "links");
    references
        .extend(links.map(|link| reference("FOLLOWS_FROM", text(link, "/traceId"), text(link, "/spanId"))));

    let [kind, status] = [&span["kind"], &span["status"]["code"]].map(|code| code.as_u64().unwrap_or(0));
    let named = |names: &[&'static str], code: u64| {
        names.get(usize::try_from(code)?).copied().with_context(|| format!("an unknown number {code}"))
    };
    let status = named(&STATUS, status)?;
    let mut tags = attributes(span)?;
    for (key, value) in [
        ("span.kind", named(&KINDS, kind)?),
        ("otel.status_code", status),
        ("otel.status_description", text(span, "/status/message")),
        ("otel.scope.name", text(scope, "/name")),
        ("otel.scope.version", text(scope, "/version")),
        ("w3c.tracestate", text(span, "/traceState")),
    ] {
        if !value.is_empty() {
            tags.push(tag(key, "string", value));
        }
    }
    if status == "ERROR" {
        tags.push(tag("error", "bool", true));
    }
    let logs = list(span, "events").map(|event| {
        let mut fields = attributes(event)?;
        fields.push(tag("event", "string", event["name"].clone()));
        let timestamp = nanoseconds(event, "/timeUnixNano")? / 1000;
        Ok(json!({ "timestamp": timestamp, "fields": sorted(fields) }))
    });
    Ok(json!({
        "operationName": span["name"],
        "startTime": start / 1000,
        "duration": (end - start) / 1000,
        "references": sorted(references),
        "tags": sorted(tags),
        "logs": logs.collect::<Result<Vec<_>>>()?,
        "process": process,
        "warnings": null,
    }))
}

fn process(resource: &Value) -> Result<Value> {
    let mut tags = attributes(resource)?;
    let service =
        tags.iter().position(|tag| tag["key"] == SERVICE).context("a resource without a service")?;
    let service = tags.remove(service);
    Ok(json!({ "serviceName": service["value"], "tags": sorted(tags) }))
}

fn attributes(of: &Value) -> Result<Vec<Value>> {
    let read = |attribute: &Value| {
        let value = attribute["value"].as_object().context("an attribute without a value")?;
        let (kind, value) = value.iter().next().context("an empty value")?;
        let (kind, value) = match kind.as_str() {
            "stringValue" => ("string", value.clone()),
            "boolValue" => ("bool", value.clone()),
            "doubleValue" => ("float64", float(value)?),
            "intValue" => {
                let number: i64 = value.as_str().context("an integer is a string")?.parse()?;
                let is_exact = (-EXACT..=EXACT).contains(&number);
                ("int64", if is_exact { number.into() } else { number.to_string().into() })
            }
            "arrayValue" => ("string", Value::String(plain(value)?.to_string())),
            _ => bail!("schedspan makes no attribute with a {kind}"),
        };
        Ok(tag(text(attribute, "/key"), kind, value))
    };
    list(of, "attributes").map(read).collect()
}

/// A list of strings, which is all that schedspan makes.
fn plain(array: &Value) -> Result<Value> {
    let text =
        |item: &Value| item["stringValue"].as_str().context("an item that is not a string").map(Value::from);
    list(array, "values").map(text).collect()
}

fn nanoseconds(of: &Value, field: &str) -> Result<u64> {
    text(of, field).parse().with_context(|| format!("no time at {field}"))
}

fn reference(kind: &str, trace: &str, span: &str) -> Value {
    json!({ "refType": kind, "traceID": trace, "spanID": span })
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
        let stored = of_collector(&STORED.replace('\n', "")).unwrap();
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
