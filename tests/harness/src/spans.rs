//! What the Collector wrote: a request of OTLP's JSON per line.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

/// What tells several daemons of a test apart: an attribute of the resource.
pub const DAEMON: &str = "test.daemon";

/// A span that the Collector received.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    pub trace_id: String,
    pub span_id: String,
    /// Empty for a root.
    #[serde(default)]
    pub parent_span_id: String,
    pub name: String,
    #[serde(deserialize_with = "nanoseconds")]
    pub start_time_unix_nano: u64,
    #[serde(deserialize_with = "nanoseconds")]
    pub end_time_unix_nano: u64,
    #[serde(default)]
    attributes: Vec<Attribute>,
    #[serde(default)]
    pub trace_state: String,
    /// Who made the Pod.
    #[serde(skip)]
    pub links: Vec<Link>,
    /// The annotation that each of these comes from.
    #[serde(skip)]
    pub link_annotations: Vec<String>,
    /// Whose annotation it is; empty for the Pod's own.
    #[serde(skip)]
    pub link_owners: Vec<String>,
    /// The Pod's attempt before this one.
    #[serde(skip)]
    pub previous: Option<Link>,
    /// What tells about the configuration of the attempt's scheduler.
    #[serde(skip)]
    pub configuration: Option<Link>,
    /// The attempt that it is of.
    #[serde(skip)]
    pub attempt: Option<Link>,
    #[serde(default, rename = "links")]
    all_links: Vec<AnyLink>,
    #[serde(default)]
    status: Status,
    /// What is said about its failure.
    #[serde(skip)]
    pub status_message: String,
    /// The scheduler's process id, from the resource: other schedulers on this machine are traced as well.
    #[serde(skip)]
    pub pid: String,
    /// The hash of the scheduler's configuration, from the resource.
    #[serde(skip)]
    pub configuration_hash: String,
    /// Which of several daemons made it, where its resource says so.
    #[serde(skip)]
    pub daemon: String,
    /// The instrumentation scope: who made the span.
    #[serde(skip)]
    pub scope: String,
}

/// The context that a span is linked to.
#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Link {
    pub trace_id: String,
    pub span_id: String,
    pub trace_state: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    message: String,
}

/// A link with what it says of itself.
#[derive(Deserialize)]
struct AnyLink {
    #[serde(flatten)]
    link: Link,
    #[serde(default)]
    attributes: Vec<Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    key: String,
    /// An object of one member, whose name is the type.
    value: BTreeMap<String, Value>,
}

/// Name of the span that tells of a scheduler's configuration.
pub const CONFIGURATION: &str = "SchedulerConfiguration";

impl Span {
    /// Whether it is of an attempt or a group of them.
    pub fn is_root(&self) -> bool {
        self.parent_span_id.is_empty() && !self.outlasts() && self.name != CONFIGURATION
    }

    /// Whether it is something that its attempt did not wait for.
    pub fn outlasts(&self) -> bool {
        self.parent_span_id.is_empty() && (self.name == "preemptPod" || self.name.starts_with("api call: "))
    }

    /// Whether its end was not seen.
    pub fn is_incomplete(&self) -> bool {
        self.attribute("schedspan.incomplete") == "true"
    }

    pub fn nanoseconds(&self) -> u64 {
        self.end_time_unix_nano.saturating_sub(self.start_time_unix_nano)
    }

    /// Whether the other span begins and ends inside of this one.
    pub fn holds(&self, other: &Self) -> bool {
        self.start_time_unix_nano <= other.start_time_unix_nano
            && other.end_time_unix_nano <= self.end_time_unix_nano
    }

    /// An attribute's value as text; empty if it is not there.
    pub fn attribute(&self, key: &str) -> String {
        text(&self.attributes, key)
    }

    /// An attribute's values; empty if it is not there.
    pub fn list(&self, key: &str) -> Vec<String> {
        let attribute = self.attributes.iter().find(|attribute| attribute.key == key);
        let values = attribute.and_then(|attribute| attribute.value.get("arrayValue")?["values"].as_array());
        let text = |value: &Value| value["stringValue"].as_str().unwrap_or_default().to_owned();
        values.map(|values| values.iter().map(text).collect()).unwrap_or_default()
    }

    /// With its links told apart.
    fn sorted(mut self) -> Self {
        self.status_message = std::mem::take(&mut self.status.message);
        for AnyLink { link, attributes } in std::mem::take(&mut self.all_links) {
            match text(&attributes, "k8s.scheduler.link").as_str() {
                "previous attempt" => self.previous = Some(link),
                "configuration" => self.configuration = Some(link),
                "attempt" => self.attempt = Some(link),
                _ => {
                    self.links.push(link);
                    self.link_annotations.push(text(&attributes, "schedspan.link.annotation"));
                    self.link_owners.push(text(&attributes, "schedspan.link.owner"));
                }
            }
        }
        self
    }

    /// The Pod of a root.
    pub fn pod(&self) -> String {
        self.attribute("k8s.pod.name")
    }
}

fn text(attributes: &[Attribute], key: &str) -> String {
    let attribute = attributes.iter().find(|attribute| attribute.key == key);
    match attribute.and_then(|attribute| attribute.value.values().next()) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

/// The spans in the Collector's file that came after the first `skip` bytes.
///
/// # Errors
///
/// If a line is no request of OTLP.
pub fn read(path: &Path, skip: u64) -> Result<Vec<Span>> {
    let mut text = String::new();
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(skip))?;
    file.read_to_string(&mut text)?;
    let mut spans = Vec::new();
    // The last line may still be on its way.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        spans.append(&mut request(line).with_context(|| format!("not a request of OTLP: {line}"))?);
    }
    Ok(spans)
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

fn request(line: &str) -> Result<Vec<Span>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Request {
        resource_spans: Vec<ResourceSpans>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ResourceSpans {
        resource: Resource,
        scope_spans: Vec<ScopeSpans>,
    }
    #[derive(Deserialize)]
    struct Resource {
        #[serde(default)]
        attributes: Vec<Attribute>,
    }
    #[derive(Deserialize)]
    struct ScopeSpans {
        #[serde(default)]
        scope: Scope,
        spans: Vec<Span>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Scope {
        name: String,
    }
    let mut spans = Vec::new();
    for ResourceSpans { resource, scope_spans } in serde_json::from_str::<Request>(line)?.resource_spans {
        let [pid, daemon, hash] =
            ["process.pid", DAEMON, "k8s.scheduler.config.hash"].map(|key| text(&resource.attributes, key));
        for ScopeSpans { scope, spans: of_scope } in scope_spans {
            let of_scope = of_scope.into_iter();
            let (pid, daemon, hash, scope) = (&pid, &daemon, &hash, &scope.name);
            spans.extend(of_scope.map(|span| Span {
                pid: pid.clone(),
                daemon: daemon.clone(),
                configuration_hash: hash.clone(),
                scope: scope.clone(),
                ..span.sorted()
            }));
        }
    }
    Ok(spans)
}

/// JSON of protobuf writes 64-bit numbers as text.
fn nanoseconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"process.pid","value":{"intValue":"7"}}]},"scopeSpans":[{"scope":{"name":"s"},"spans":[
        {"traceId":"01","spanId":"02","parentSpanId":"","name":"SchedulePod","kind":1,
         "startTimeUnixNano":"1000","endTimeUnixNano":"3000",
         "attributes":[{"key":"k8s.pod.name","value":{"stringValue":"a"}},{"key":"n","value":{"intValue":"3"}},
                       {"key":"ms","value":{"doubleValue":0.5}}],
         "links":[{"traceId":"03","spanId":"04","traceState":"x=y"},{"traceId":"05","spanId":"06",
         "attributes":[{"key":"k8s.scheduler.link","value":{"stringValue":"previous attempt"}}]},
         {"traceId":"01","spanId":"07","attributes":[{"key":"k8s.scheduler.link","value":{"stringValue":"attempt"}}]}],"status":{}},
        {"traceId":"01","spanId":"05","parentSpanId":"02","name":"filter","startTimeUnixNano":"1500",
         "endTimeUnixNano":"3001","status":{}}]}]}]}"#;

    #[test]
    fn spans_are_read_with_attributes_and_links() {
        let spans = request(LINE).unwrap();
        let [root, child] = &spans[..] else { panic!("{} spans", spans.len()) };
        assert!(root.is_root() && !child.is_root());
        assert_eq!([root.pod(), root.attribute("n"), root.attribute("ms")], ["a", "3", "0.5"]);
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
    fn a_line_that_is_still_being_written_is_left_for_later() {
        let path = std::env::temp_dir().join(format!("xtask-spans-{}", std::process::id()));
        let line = LINE.replace('\n', "");
        std::fs::write(&path, format!("skipped\n{line}\n{{\"resourceSp")).unwrap();
        let spans = read(&path, 8);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(spans.unwrap().len(), 2);
    }
}
