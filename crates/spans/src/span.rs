//! Spans as they leave the pure part of the program: plain data, made of times and words.

use std::borrow::Cow;

use tracecontext::RemoteContext;

use crate::{
    attributes,
    kind::{SpanKind, TraceKind},
};

/// A span that another one is linked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Which span.
    pub context: RemoteContext,
    /// What it is to this one.
    pub relation: Relation,
}

/// What a linked span is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Whoever made the Pod.
    Cause {
        /// The annotation that says so.
        annotation: String,
        /// Whose annotation it is, where it is not the Pod's own, as `ReplicaSet/web-7c5ddbdf54`.
        owner: Option<String>,
    },
    /// The root of the Pod's attempt before this one.
    PreviousAttempt,
    /// The root of the attempt that asked for something which outlasts it, or that a Pod's life tells in short.
    Attempt,
    /// What tells since when the attempt's scheduler has made attempts, and with which configuration.
    Configuration,
}

/// Where a Pod comes from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// Who made it, by preference.
    pub causes: Vec<Link>,
    /// Whether the first of these is the parent of the attempt's root, and no link.
    pub parent: bool,
    /// What else is told about it. On the root.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Which of the selectors that were asked about it satisfies, a bit each; `None` if the Pod is not known.
    pub selected: Option<u64>,
}

/// Something that happened at a moment of a span.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What.
    pub name: &'static str,
    /// When, in nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// Attributes by key.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

/// Which process a trace is of: spans are exported with its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A traced process, by its number: that of its records.
    Process(u32),
    /// schedspan itself.
    Schedspan,
}

/// One trace: the root first, parents before their children, stays in queues last.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// What it is about.
    pub kind: TraceKind,
    /// Which process it is of.
    pub source: Source,
    /// Identifies the trace.
    pub trace_id: [u8; 16],
    /// The span of somebody else that those without a parent here are below, if they are.
    pub parent: Option<RemoteContext>,
    /// [`Origin::selected`]; of several Pods of all of them.
    pub selected: Option<u64>,
    /// The spans. There is at least the root.
    pub spans: Vec<Span>,
}

/// One span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// What it shows.
    pub kind: SpanKind,
    /// Identifies the span.
    pub span_id: [u8; 8],
    /// The parent's identity in the same trace; `None` for the root.
    pub parent_id: Option<[u8; 8]>,
    /// As KEP-5927 names it.
    pub name: Cow<'static, str>,
    /// Start, in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// End, in nanoseconds since the Unix epoch; not before the start.
    pub end_unix_ns: u64,
    /// Attributes by key, in the order in which people want to read them.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// What happened meanwhile.
    pub events: Vec<Event>,
    /// Spans that this one is linked to.
    pub links: Vec<Link>,
    /// How it ended.
    pub status: Status,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are OpenTelemetry's own")]
pub enum AttributeValue {
    String(Cow<'static, str>),
    Int(i64),
    Double(f64),
    Bool(bool),
    Strings(Vec<String>),
}

/// Status of a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Nothing went wrong.
    #[default]
    Unset,
    /// Something did; the description says what.
    Error(String),
}

impl From<u64> for AttributeValue {
    /// The integer; [`i64::MAX`] if it is larger.
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<&str> for AttributeValue {
    /// A copy of it.
    fn from(value: &str) -> Self {
        Self::String(Cow::Owned(value.to_owned()))
    }
}

impl Trace {
    /// The span of the whole attempt.
    #[must_use]
    pub fn root(&self) -> &Span {
        &self.spans[0]
    }

    /// The root, and in a group's trace those of the Pods' parts.
    pub fn roots(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|span| matches!(span.kind, SpanKind::Root(_)))
    }
}

impl Span {
    /// Nanoseconds from start to end.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.end_unix_ns.saturating_sub(self.start_unix_ns)
    }

    /// Whether the attempt, or the life of a Pod, that it is the root of came to nothing.
    #[must_use]
    pub fn came_to_nothing(&self) -> bool {
        let is = |key, values: &[&str]| matches!(self.attribute(key), Some(AttributeValue::String(text)) if values.contains(&&**text));
        match self.attribute(attributes::LIFECYCLE_RESULT) {
            Some(_) => is(attributes::LIFECYCLE_RESULT, &["Failed", "Deleted"]),
            None => !is(attributes::RESULT, &["Success"]),
        }
    }

    /// An attribute by its key.
    #[must_use]
    pub fn attribute(&self, key: &str) -> Option<&AttributeValue> {
        self.attributes.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

impl std::fmt::Display for AttributeValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::String(value) => f.write_str(value),
            Self::Int(value) => write!(f, "{value}"),
            Self::Double(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Strings(values) => f.write_str(&values.join(", ")),
        }
    }
}
