//! The summary of an attempt, for the lifecycle of its Pod. Pure.

use spans::{AttributeValue, Phase, Span, SpanKind, Status, Trace, TraceKind, attributes};

use super::text::{MAX_TEXT, short};

/// A traced attempt to schedule the Pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    /// The ids of its own trace and of the root there.
    pub(super) root: ([u8; 16], [u8; 8]),
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// When the Pod was bound; `None` if it was not.
    pub(super) bound_ns: Option<u64>,
    /// Whether the Pod may have been bound: true as well if the result is unknown.
    pub(super) may_have_bound: bool,
    /// Start and end of the binding of its volume claims.
    pub(super) volumes: Option<(u64, u64)>,
    /// When the Pod entered the scheduler's queues.
    pub(super) queued_ns: Option<u64>,
    /// Attributes that are copied from the attempt's root.
    pub(super) attributes: Box<[(&'static str, AttributeValue)]>,
    pub(super) queue_attributes: Box<[(&'static str, AttributeValue)]>,
    pub(super) status: Status,
}

const OF_ATTEMPT: [&str; 3] = [attributes::ATTEMPT, attributes::RESULT, attributes::SELECTED_NODE];
const OF_QUEUE: [&str; 4] = [
    attributes::QUEUE_EVENT,
    attributes::QUEUE_WAIT_MS,
    attributes::QUEUE_BACKOFF_MS,
    attributes::QUEUE_UNSCHEDULABLE_MS,
];

impl Attempt {
    /// The attempt of a trace, and the Pod's UID; `None` for other kinds of traces and without a UID.
    pub(super) fn of(trace: &Trace) -> Option<(&str, Self)> {
        let root = trace.root();
        let Some(AttributeValue::String(uid)) =
            root.attribute(attributes::POD_UID).filter(|_| trace.kind == TraceKind::Attempt)
        else {
            return None;
        };
        let again = |keys: &[&'static str]| {
            let of_root = |key: &&'static str| Some((*key, shown(root.attribute(key)?)));
            keys.iter().filter_map(of_root).collect()
        };
        let span = |wanted: fn(&Span) -> bool| trace.spans.iter().rfind(|span| wanted(span));
        let result = root.attribute(attributes::RESULT).map(ToString::to_string);
        let success = result.as_deref() == Some("Success");
        let bind = span(|span| span.kind == SpanKind::Phase(Phase::Bind)).filter(|_| success);
        let volumes = span(|span| {
            let is = |key, value| span.attribute(key).is_some_and(|found| found.to_string() == value);
            span.kind == SpanKind::Plugin
                && is(attributes::PLUGIN_NAME, "VolumeBinding")
                && is(attributes::EXTENSION_POINT, Phase::PreBind.name())
        });
        let waited = match root.attribute(attributes::QUEUE_TOTAL_WAIT_MS) {
            Some(AttributeValue::Double(ms)) => Some((ms * 1e6) as u64),
            _ => None,
        };
        let attempt = Self {
            root: (trace.trace_id, root.span_id),
            start_ns: root.start_unix_ns,
            end_ns: root.end_unix_ns.max(root.start_unix_ns),
            bound_ns: bind.map(|bind| bind.end_unix_ns).or(success.then_some(root.end_unix_ns)),
            may_have_bound: success || result.is_none(),
            volumes: volumes.map(|span| (span.start_unix_ns, span.end_unix_ns)),
            queued_ns: waited.map(|waited| root.start_unix_ns.saturating_sub(waited)),
            attributes: again(&OF_ATTEMPT),
            queue_attributes: again(&OF_QUEUE),
            status: match &root.status {
                Status::Unset => Status::Unset,
                Status::Error(reason) => Status::Error(short(reason, &mut 0)),
            },
        };
        Some((uid, attempt))
    }

    /// Approximate size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let attributes = self.attributes.iter().chain(&self.queue_attributes);
        let texts = attributes.map(|(_, value)| size_of::<(&str, AttributeValue)>() + length(value));
        let status = match &self.status {
            Status::Unset => 0,
            Status::Error(reason) => reason.len(),
        };
        size_of::<Self>() + texts.sum::<usize>() + status
    }
}

fn shown(value: &AttributeValue) -> AttributeValue {
    match value {
        AttributeValue::String(text) if text.len() > MAX_TEXT => {
            AttributeValue::String(short(text, &mut 0).into())
        }
        other => other.clone(),
    }
}

fn length(value: &AttributeValue) -> usize {
    if let AttributeValue::String(text) = value { text.len() } else { 0 }
}
