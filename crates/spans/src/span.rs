//! Traces and spans as plain data.

use std::sync::Arc;

use smallvec::SmallVec;
use tracecontext::RemoteContext;

use crate::{
    attributes,
    kind::{SpanKind, TraceKind},
    text::{Name, Text},
};

/// A span that another one is linked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The linked span.
    pub context: RemoteContext,
    /// How it is related to this one.
    pub relation: Relation,
}

/// The relation of a linked span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The span that created the Pod.
    Cause {
        /// Key of the annotation that carries its context.
        annotation: String,
        /// The owner that has the annotation, as `ReplicaSet/web-7c5ddbdf54`; `None` for the Pod itself.
        owner: Option<String>,
    },
    /// The root of the Pod's attempt before this one.
    PreviousAttempt,
    /// The root of the attempt that started a call which outlasts it, or that a lifecycle summarizes.
    Attempt,
    /// The span with the configuration of the attempt's scheduler.
    Configuration,
    /// The request that created, deleted or evicted the Pod.
    Request(Evidence),
    /// What the request did to a Pod, in the trace of the Pod.
    Pod(Evidence),
    /// The root of the reconcile that created the object which this one is about.
    Creator(Evidence),
    /// The root of the reconcile that wrote that object last.
    Writer(Evidence),
}

/// What says that two objects are the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Their UIDs.
    Uid,
    /// Their kinds, namespaces and names.
    Name,
}

impl Evidence {
    /// The value of [`attributes::LINK_EVIDENCE`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uid => "uid",
            Self::Name => "name",
        }
    }
}

impl Relation {
    /// The value of [`attributes::LINK`]; `None` for a cause.
    #[must_use]
    pub const fn name(&self) -> Option<&'static str> {
        match self {
            Self::Cause { .. } => None,
            Self::PreviousAttempt => Some("previous attempt"),
            Self::Attempt => Some("attempt"),
            Self::Configuration => Some("configuration"),
            Self::Request(_) => Some("request"),
            Self::Pod(_) => Some("pod"),
            Self::Creator(_) => Some("creator"),
            Self::Writer(_) => Some("writer"),
        }
    }

    /// What the link is known by, where that is said.
    #[must_use]
    pub const fn evidence(&self) -> Option<Evidence> {
        match self {
            Self::Cause { .. } | Self::PreviousAttempt | Self::Attempt | Self::Configuration => None,
            Self::Request(evidence)
            | Self::Pod(evidence)
            | Self::Creator(evidence)
            | Self::Writer(evidence) => Some(*evidence),
        }
    }
}

/// The origin of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// The spans that created it, in order of preference.
    pub causes: Vec<Link>,
    /// Whether the first cause is the parent of the attempt's root instead of a link.
    pub parent: bool,
    /// Further attributes of the root.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// The selectors that match the Pod, one bit each; `None` if the Pod is not known.
    pub selected: Option<u64>,
}

/// An event within a span.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Name of the event.
    pub name: &'static str,
    /// Time in nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// Attributes by key.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

/// Which process a trace is of: spans are exported with its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A scheduler's process, by its number: that of its records.
    Process(u32),
    /// A process as what else it runs, by its number. The same process may have a scheduler as well.
    OtherProgram(u32),
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
    /// The remote parent of the spans that have no parent in this trace.
    pub parent: Option<RemoteContext>,
    /// [`Origin::selected`]; in a group's trace that of all Pods together.
    pub selected: Option<u64>,
    /// The spans; never empty.
    pub spans: Vec<Span>,
    /// Names that are too many for an attribute: kept beside the spans, and not exported.
    pub names: Option<Box<Names>>,
    /// Parts of other traces that are known by this one: they are exported if this one is, and have no parts of their own.
    pub beside: Vec<Self>,
}

/// Names, by what was said of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// How many names there are, in the lists or not.
    pub total: u64,
    /// The lists, longest first.
    pub lists: Vec<NameList>,
}

/// Names of which the same was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    /// Who said it, if that is known.
    pub by: Option<Arc<str>>,
    /// What the result was.
    pub result: String,
    /// Why.
    pub reasons: Vec<Arc<str>>,
    /// The names, in alphabetical order.
    pub names: Vec<Arc<str>>,
}

/// Attributes of a span by key. Those of a phase or a plugin that succeeds take no allocation.
pub type Attributes = SmallVec<[(&'static str, AttributeValue); 3]>;

/// One span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// What it shows.
    pub kind: SpanKind,
    /// Identifies the span.
    pub span_id: [u8; 8],
    /// The parent's identity in the same trace; `None` for the root.
    pub parent_id: Option<[u8; 8]>,
    /// Name of the span.
    pub name: Name,
    /// Start, in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// End, in nanoseconds since the Unix epoch; not before the start.
    pub end_unix_ns: u64,
    /// Attributes by key, in the order in which they are shown.
    pub attributes: Attributes,
    /// Events within the span.
    pub events: Vec<Event>,
    /// Links to other spans.
    pub links: Vec<Link>,
    /// Status at the end.
    pub status: Status,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are OpenTelemetry's own")]
pub enum AttributeValue {
    String(Text),
    Int(i64),
    Double(f64),
    Bool(bool),
    Strings(Vec<String>),
}

/// Status of a span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// No error.
    #[default]
    Unset,
    /// An error, with its description.
    Error(String),
}

impl From<u64> for AttributeValue {
    /// The integer; [`i64::MAX`] if it is larger.
    fn from(value: u64) -> Self {
        Self::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<&str> for AttributeValue {
    fn from(value: &str) -> Self {
        Self::String(Text::Owned(value.into()))
    }
}

impl From<&Arc<str>> for AttributeValue {
    fn from(value: &Arc<str>) -> Self {
        Self::String(Text::Shared(Arc::clone(value)))
    }
}

impl Trace {
    /// The span of the whole trace.
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

    /// Whether the attempt, the lifecycle or the reconcile of this root did not succeed. A reconcile that asks to be called again
    /// did not.
    #[must_use]
    pub fn did_not_succeed(&self) -> bool {
        if self.kind == SpanKind::Root(TraceKind::Reconcile) {
            let retried = self.attribute(attributes::WORKQUEUE_RETRIED) == Some(&AttributeValue::Bool(true));
            return retried || self.status != Status::Unset;
        }
        let is = |key, values: &[&str]| matches!(self.attribute(key), Some(AttributeValue::String(text)) if values.contains(&&**text));
        match self.attribute(attributes::LIFECYCLE_RESULT) {
            Some(_) => is(attributes::LIFECYCLE_RESULT, &["Failed", "Deleted", "Rejected", "Unfinished"]),
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
