//! What a program's assembler gives, before it is a trace.

use std::fmt;

use crate::{
    AttributeValue, Attributes, Origin, Source, Span, SpanKind, Status, Trace, TraceKind, attributes,
    identity::{self, LifecycleTrace},
};

/// What `CLOCK_REALTIME` says when `CLOCK_MONOTONIC` says zero, nanoseconds. One anchor serves all spans of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// Nanoseconds since the Unix epoch.
    pub unix_ns_at_zero: u64,
}

impl Anchor {
    /// The Unix time at which `CLOCK_MONOTONIC` says this.
    #[must_use]
    pub fn unix(self, monotonic_ns: u64) -> u64 {
        self.unix_ns_at_zero.saturating_add(monotonic_ns)
    }
}

/// What a trace says beyond what it always says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Each stay in a queue as a span.
    pub queue_spans: bool,
    /// On each span when it began and ended by `CLOCK_MONOTONIC`: the wall clock may be set meanwhile.
    pub monotonic: bool,
    /// Whose trace lifecycles of Pods are in.
    pub lifecycle: LifecycleTrace,
}

/// Something that has ended, of which a trace is made. Whatever the program, the rest of the daemon sees this.
pub trait Story: fmt::Debug + Send {
    /// The UID of the Pod whose contexts the trace is linked to; `None` where no contexts are looked up.
    fn pod_uid(&self) -> Option<&str>;

    /// Its trace.
    fn trace(&self, anchor: Anchor, origin: Origin, extras: Extras) -> Trace;

    /// Whether nothing came of it: it is counted, and has a trace only if that is asked for.
    fn is_idle(&self) -> bool {
        false
    }
}

/// What has ended, as a single span.
#[derive(Clone, Debug)]
pub struct Single {
    /// The kind of the trace, which names the span.
    pub kind: TraceKind,
    /// The id of its trace: [`Self::id`].
    pub trace_id: [u8; 16],
    /// Which process.
    pub target: u32,
    /// When it began and ended, nanoseconds by `CLOCK_MONOTONIC`.
    pub times: [u64; 2],
    /// The span's attributes.
    pub attributes: Attributes,
    /// The span's status.
    pub status: Status,
}

impl Single {
    /// The trace id of what is about this, and was first seen in this process at this time, nanoseconds by `CLOCK_MONOTONIC`.
    #[must_use]
    pub fn id(kind: TraceKind, about: &[&str], target: u32, seen_ns: u64) -> [u8; 16] {
        identity::trace_id(&[&[kind.name()], about].concat().join("/"), seen_ns, target)
    }

    /// Its trace.
    #[must_use]
    pub fn trace(self, anchor: Anchor, extras: Extras) -> Trace {
        let Self { kind, trace_id, target, times: [start_ns, end_ns], attributes, status } = self;
        let root = Span {
            kind: SpanKind::Root(kind),
            span_id: identity::span_id(&trace_id, 0),
            parent_id: None,
            name: kind.name().into(),
            start_unix_ns: anchor.unix(start_ns),
            end_unix_ns: anchor.unix(end_ns),
            attributes,
            events: Vec::new(),
            links: Vec::new(),
            status,
        };
        let (source, spans) = (Source::OtherProgram(target), vec![root]);
        let (names, beside) = (None, Vec::new());
        let mut trace = Trace { kind, source, trace_id, parent: None, selected: None, spans, names, beside };
        if extras.monotonic {
            add_monotonic(&mut trace, anchor);
        }
        trace
    }
}

/// Says on each span when it began and ended by `CLOCK_MONOTONIC`, which other tracers on the same machine can say as well.
pub fn add_monotonic(trace: &mut Trace, anchor: Anchor) {
    for span in &mut trace.spans {
        for (key, unix_ns) in
            [(attributes::MONOTONIC_START, span.start_unix_ns), (attributes::MONOTONIC_END, span.end_unix_ns)]
        {
            let monotonic_ns = unix_ns.saturating_sub(anchor.unix_ns_at_zero);
            span.attributes.push((key, AttributeValue::from(monotonic_ns)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::scheduled;

    #[test]
    fn a_single_span_has_an_id_of_what_it_is_about() {
        let id = |about: &[&str], target, seen_ns| Single::id(TraceKind::PodStart, about, target, seen_ns);
        let ids = [id(&["a"], 1, 5), id(&["b"], 1, 5), id(&["a"], 2, 5), id(&["a"], 1, 6)];
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len());
        assert_eq!(id(&["a"], 1, 5), ids[0]);
        let single = Single {
            kind: TraceKind::PodStart,
            trace_id: ids[0],
            target: 1,
            times: [5, 7],
            attributes: Attributes::new(),
            status: Status::Unset,
        };
        let anchor = Anchor { unix_ns_at_zero: 100 };
        let trace = single.clone().trace(anchor, Extras::default());
        let root = trace.root();
        assert_eq!((trace.trace_id, root.start_unix_ns, root.end_unix_ns), (ids[0], 105, 107));
        assert!(root.attributes.is_empty());
        let trace = single.trace(anchor, Extras { monotonic: true, ..Extras::default() });
        assert_eq!(trace.root().attribute(attributes::MONOTONIC_START), Some(&AttributeValue::Int(5)));
    }

    #[test]
    fn each_span_says_when_it_was_by_the_other_clock() {
        let mut trace = scheduled();
        let anchor = Anchor { unix_ns_at_zero: trace.root().start_unix_ns - 1_000 };
        assert_eq!(anchor.unix(1_000), trace.root().start_unix_ns);
        add_monotonic(&mut trace, anchor);
        for (span, plain) in trace.spans.iter().zip(scheduled().spans) {
            let (start, end) = (plain.start_unix_ns, plain.end_unix_ns);
            let of = |unix_ns| Some(AttributeValue::from(unix_ns - anchor.unix_ns_at_zero));
            assert_eq!(span.attribute(attributes::MONOTONIC_START), of(start).as_ref());
            assert_eq!(span.attribute(attributes::MONOTONIC_END), of(end).as_ref());
            assert_eq!(span.attributes.len(), plain.attributes.len() + 2);
        }
    }
}
