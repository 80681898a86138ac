//! Reads the spans that the Collector received: a `TracesData` of OTLP as JSON per line.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use anyhow::{Context as _, Result};
use opentelemetry_proto::tonic::{
    common::v1::{KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{self as otlp, ResourceSpans, ScopeSpans, TracesData},
};

/// The resource attribute that distinguishes several daemons in one test.
pub const DAEMON: &str = "test.daemon";

/// A span that the Collector received.
#[derive(Clone, Default)]
pub struct Span {
    /// In hexadecimal, as all ids here.
    pub trace_id: String,
    pub span_id: String,
    /// Empty for a root.
    pub parent_span_id: String,
    pub name: String,
    pub start_time_unix_nano: u64,
    pub end_time_unix_nano: u64,
    attributes: Vec<KeyValue>,
    pub trace_state: String,
    /// Links to the contexts of those who created the Pod.
    pub links: Vec<Link>,
    /// The annotation that each of `links` was read from.
    pub link_annotations: Vec<String>,
    /// The owner that the annotation is of; empty for the Pod itself.
    pub link_owners: Vec<String>,
    /// What reconciles and the objects that they wrote have to do with each other.
    pub related: Vec<Related>,
    /// The previous attempt of the Pod.
    pub previous: Option<Link>,
    /// The span of the scheduler's configuration.
    pub configuration: Option<Link>,
    /// The attempt that the span belongs to.
    pub attempt: Option<Link>,
    pub status_message: String,
    /// The scheduler's process id, from the resource: other schedulers on this machine are traced as well.
    pub pid: String,
    /// `service.name`, from the resource.
    pub service: String,
    /// The hash of the scheduler's configuration, from the resource.
    pub configuration_hash: String,
    /// The daemon that made the span, if the resource has [`DAEMON`].
    pub daemon: String,
    /// The name of the instrumentation scope.
    pub scope: String,
}

/// The context that a span is linked to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    pub trace_id: String,
    pub span_id: String,
    pub trace_state: String,
}

/// A link between a reconcile and what it wrote, or who wrote its object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Related {
    /// `request`, `pod`, `creator` or `writer`.
    pub what: String,
    /// `uid` or `name`.
    pub evidence: String,
    pub link: Link,
}

/// The name of the span of a scheduler's configuration.
pub const CONFIGURATION: &str = "SchedulerConfiguration";

impl Span {
    /// Whether it is the root of an attempt or of a group of attempts.
    pub fn is_root(&self) -> bool {
        self.parent_span_id.is_empty() && !self.outlasts() && !self.precedes() && self.name != CONFIGURATION
    }

    /// Whether it is before its attempt: a stay in a queue, or a phase that runs meanwhile.
    pub fn precedes(&self) -> bool {
        self.name.starts_with("queue: ") || ["preEnqueue", "sign"].contains(&self.name.as_str())
    }

    /// Whether it is a call that its attempt does not wait for.
    pub fn outlasts(&self) -> bool {
        self.parent_span_id.is_empty() && (self.name == "preemptPod" || self.name.starts_with("api call: "))
    }

    /// Whether its end is missing.
    pub fn is_incomplete(&self) -> bool {
        self.attribute("schedspan.incomplete") == "true"
    }

    pub fn nanoseconds(&self) -> u64 {
        self.end_time_unix_nano.saturating_sub(self.start_time_unix_nano)
    }

    /// Whether the other span begins and ends within this one.
    pub fn holds(&self, other: &Self) -> bool {
        self.start_time_unix_nano <= other.start_time_unix_nano
            && other.end_time_unix_nano <= self.end_time_unix_nano
    }

    /// The value of an attribute as text; empty if there is none.
    pub fn attribute(&self, key: &str) -> String {
        text(&self.attributes, key)
    }

    /// The values of a list attribute; empty if there is none.
    pub fn list(&self, key: &str) -> Vec<String> {
        match value(&self.attributes, key) {
            Some(Value::ArrayValue(list)) => {
                list.values.iter().filter_map(|item| item.value.as_ref()).map(shown).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The Pod of a root.
    pub fn pod(&self) -> String {
        self.attribute("k8s.pod.name")
    }
}

// === What OTLP has ===

impl Span {
    /// A span of this scope and resource.
    fn of(span: otlp::Span, scope: &str, resource: &[KeyValue]) -> Self {
        let mut read = Self {
            trace_id: hex(&span.trace_id),
            span_id: hex(&span.span_id),
            parent_span_id: hex(&span.parent_span_id),
            name: span.name,
            start_time_unix_nano: span.start_time_unix_nano,
            end_time_unix_nano: span.end_time_unix_nano,
            attributes: span.attributes,
            trace_state: span.trace_state,
            status_message: span.status.map(|status| status.message).unwrap_or_default(),
            pid: text(resource, "process.pid"),
            service: text(resource, "service.name"),
            configuration_hash: text(resource, "k8s.scheduler.config.hash"),
            daemon: text(resource, DAEMON),
            scope: scope.to_owned(),
            ..Self::default()
        };
        for otlp::span::Link { trace_id, span_id, trace_state, attributes, .. } in span.links {
            let link = Link { trace_id: hex(&trace_id), span_id: hex(&span_id), trace_state };
            match text(&attributes, "k8s.scheduler.link").as_str() {
                "previous attempt" => read.previous = Some(link),
                "configuration" => read.configuration = Some(link),
                "attempt" => read.attempt = Some(link),
                what @ ("request" | "pod" | "creator" | "writer") => {
                    let (what, evidence) = (what.to_owned(), text(&attributes, "schedspan.link.evidence"));
                    read.related.push(Related { what, evidence, link });
                }
                _ => {
                    read.links.push(link);
                    read.link_annotations.push(text(&attributes, "schedspan.link.annotation"));
                    read.link_owners.push(text(&attributes, "schedspan.link.owner"));
                }
            }
        }
        read
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()
}

fn text(attributes: &[KeyValue], key: &str) -> String {
    value(attributes, key).map(shown).unwrap_or_default()
}

fn shown(value: &Value) -> String {
    match value {
        Value::StringValue(text) => text.clone(),
        Value::BoolValue(value) => value.to_string(),
        Value::IntValue(value) => value.to_string(),
        Value::DoubleValue(value) => value.to_string(),
        other => format!("{other:?}"),
    }
}

/// An id, as text.
pub fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the spans in the Collector's file from this offset on.
///
/// # Errors
///
/// If the file cannot be read or a line is not OTLP.
pub fn read(path: &Path, skip: u64) -> Result<Vec<Span>> {
    Ok(stored(path, skip)?.into_iter().flat_map(of_resource).collect())
}

/// Reads all that is in the Collector's file from this offset on.
///
/// # Errors
///
/// As for [`read`].
pub fn stored(path: &Path, skip: u64) -> Result<Vec<ResourceSpans>> {
    let mut text = String::new();
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(skip))?;
    file.read_to_string(&mut text)?;
    let mut stored = Vec::new();
    // The Collector may still be writing the last line.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        stored.append(&mut request(line).with_context(|| format!("not a line of OTLP: {line}"))?);
    }
    Ok(stored)
}

/// How many spans are in the Collector's file. It is read line by line: there may be more than memory has room for.
///
/// # Errors
///
/// If the file cannot be read or a line is not OTLP.
pub fn count(path: &Path) -> Result<u64> {
    let mut count = 0;
    for line in BufReader::new(File::open(path)?).lines() {
        let line = line?;
        let resources = request(&line).with_context(|| format!("not a line of OTLP: {line}"))?;
        let scopes = resources.iter().flat_map(|resource| &resource.scope_spans);
        count += scopes.map(|scope| scope.spans.len() as u64).sum::<u64>();
    }
    Ok(count)
}

/// The names of a span and of those above it, up to another one that need not be there; `None` until all are there.
pub fn ancestors<'a>(spans: &'a [Span], span_id: &str, top: &Link) -> Option<Vec<&'a str>> {
    let (mut names, mut next) = (Vec::new(), span_id);
    while next != top.span_id {
        let span = spans.iter().find(|span| span.trace_id == top.trace_id && span.span_id == next)?;
        names.push(span.name.as_str());
        next = &span.parent_span_id;
    }
    Some(names)
}

/// What is in a line of the Collector's file.
///
/// # Errors
///
/// If it is not OTLP.
pub fn request(line: &str) -> Result<Vec<ResourceSpans>> {
    let mut json = serde_json::from_str(line)?;
    complete(&mut json);
    let TracesData { resource_spans } = serde_json::from_value(json)?;
    Ok(resource_spans)
}

fn of_resource(ResourceSpans { resource, scope_spans, .. }: ResourceSpans) -> Vec<Span> {
    let Resource { attributes: resource, .. } = resource.unwrap_or_default();
    let mut spans = Vec::new();
    for ScopeSpans { scope, spans: of_scope, .. } in scope_spans {
        let scope = scope.unwrap_or_default().name;
        spans.extend(of_scope.into_iter().map(|span| Span::of(span, &scope, &resource)));
    }
    spans
}

/// Adds the empty lists that protobuf's JSON omits and opentelemetry-proto requires: `"arrayValue":{}`.
fn complete(json: &mut serde_json::Value) {
    match json {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                if ["arrayValue", "kvlistValue"].contains(&key.as_str())
                    && let Some(list) = value.as_object_mut()
                {
                    list.entry("values").or_insert_with(|| serde_json::Value::Array(Vec::new()));
                }
                complete(value);
            }
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(complete),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"process.pid","value":{"intValue":"7"}}]},"scopeSpans":[{"scope":{"name":"s"},"spans":[
        {"traceId":"01","spanId":"02","parentSpanId":"","name":"SchedulePod","kind":1,
         "startTimeUnixNano":"1000","endTimeUnixNano":"3000",
         "attributes":[{"key":"k8s.pod.name","value":{"stringValue":"a"}},{"key":"n","value":{"intValue":"3"}},
                       {"key":"ms","value":{"doubleValue":0.5}},{"key":"whole","value":{"doubleValue":2}},
                       {"key":"empty","value":{"arrayValue":{}}},
                       {"key":"list","value":{"arrayValue":{"values":[{"stringValue":"b"},{"stringValue":"c"}]}}}],
         "links":[{"traceId":"03","spanId":"04","traceState":"x=y"},{"traceId":"05","spanId":"06",
         "attributes":[{"key":"k8s.scheduler.link","value":{"stringValue":"previous attempt"}}]},
         {"traceId":"01","spanId":"07","attributes":[{"key":"k8s.scheduler.link","value":{"stringValue":"attempt"}}]}],"status":{}},
        {"traceId":"01","spanId":"05","parentSpanId":"02","name":"filter","startTimeUnixNano":"1500",
         "endTimeUnixNano":"3001","status":{}}]}]}]}"#;

    #[test]
    fn spans_are_read_with_attributes_and_links() {
        let spans: Vec<_> = request(LINE).unwrap().into_iter().flat_map(of_resource).collect();
        let [root, child] = &spans[..] else { panic!("{} spans", spans.len()) };
        assert!(root.is_root() && !child.is_root());
        assert_eq!([root.pod(), root.attribute("n"), root.attribute("ms")], ["a", "3", "0.5"]);
        assert_eq!((root.attribute("whole").as_str(), root.list("list").join(" ").as_str()), ("2", "b c"));
        assert!(root.list("empty").is_empty() && root.list("absent").is_empty());
        assert_eq!((root.pid.as_str(), child.pid.as_str()), ("7", "7"));
        assert_eq!((root.scope.as_str(), child.scope.as_str()), ("s", "s"));
        assert_eq!((root.attribute("absent"), root.nanoseconds()), (String::new(), 2000));
        let link = Link { trace_id: "03".into(), span_id: "04".into(), trace_state: "x=y".into() };
        assert_eq!((&root.links, child.links.len()), (&vec![link], 0));
        assert_eq!(root.previous.as_ref().map(|link| link.trace_id.as_str()), Some("05"));
        assert_eq!(root.attempt.as_ref().map(|link| link.span_id.as_str()), Some("07"));
        assert!(root.holds(root) && !root.holds(child));
    }

    #[test]
    fn an_incomplete_last_line_is_skipped() {
        let path = std::env::temp_dir().join(format!("schedspan-spans-{}", std::process::id()));
        let line = LINE.replace('\n', "");
        std::fs::write(&path, format!("skipped\n{line}\n{{\"resourceSp")).unwrap();
        let spans = read(&path, 8);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(spans.unwrap().len(), 2);
    }
}
