//! Example traces, for tests.

use tracecontext::RemoteContext;

use crate::{
    AttributeValue, Attributes, Cycle, Link, Phase, Relation, Source, Span, SpanKind, Status, Trace,
    TraceKind, attributes, names::PLUGIN, text::Name,
};

/// 2026-11-21T00:00:00Z
const START: u64 = 1_795_219_200_000_000_000;

struct Tree(Trace);

impl Tree {
    fn new(microseconds: u64, pod: &'static str, result: &'static str) -> Self {
        let attributes = vec![
            (attributes::POD_NAMESPACE, AttributeValue::String("default".into())),
            (attributes::POD_NAME, AttributeValue::String(pod.into())),
            (attributes::POD_UID, AttributeValue::String("3f2a7c1e-0001-4b4b-8b8b-0123456789ab".into())),
            (attributes::PROFILE, AttributeValue::String("default-scheduler".into())),
            (attributes::RESULT, AttributeValue::String(result.into())),
            (attributes::ATTEMPT, AttributeValue::Int(1)),
            (attributes::QUEUE_WAIT_MS, AttributeValue::Double(12.25)),
        ];
        let kind = TraceKind::Attempt;
        let mut tree = Self(Trace {
            kind,
            source: Source::Process(7),
            trace_id: [0xab; 16],
            parent: None,
            selected: None,
            spans: Vec::new(),
            names: None,
            beside: Vec::new(),
        });
        tree.span(SpanKind::Root(kind), kind.name(), None, 0, microseconds);
        tree.0.spans[0].attributes = attributes.into();
        tree
    }

    /// Returns the span's number.
    fn span(
        &mut self,
        kind: SpanKind,
        name: &'static str,
        parent: Option<usize>,
        start: u64,
        microseconds: u64,
    ) -> usize {
        let number = self.0.spans.len();
        self.0.spans.push(Span {
            kind,
            span_id: (number as u64 + 1).to_be_bytes(),
            parent_id: parent.map(|parent| self.0.spans[parent].span_id),
            name: name.into(),
            start_unix_ns: START + start * 1000,
            end_unix_ns: START + (start + microseconds) * 1000,
            attributes: Attributes::new(),
            events: Vec::new(),
            links: Vec::new(),
            status: Status::Unset,
        });
        number
    }

    fn cycle(&mut self, cycle: Cycle, start: u64, microseconds: u64) -> usize {
        self.span(SpanKind::Cycle(cycle), cycle.name(), Some(0), start, microseconds)
    }

    fn phase(&mut self, phase: Phase, cycle: usize, start: u64, microseconds: u64) -> usize {
        self.span(SpanKind::Phase(phase), phase.name(), Some(cycle), start, microseconds)
    }
}

/// An attempt with the proportions of a real one.
#[must_use]
pub fn scheduled() -> Trace {
    let mut tree = Tree::new(5110, "web-0", "Success");
    let cycle = tree.cycle(Cycle::Scheduling, 5, 1900);
    for (phase, start, microseconds) in [
        (Phase::PreFilter, 60, 143),
        (Phase::Filter, 210, 669),
        (Phase::PreScore, 900, 113),
        (Phase::Score, 1020, 667),
        (Phase::Reserve, 1800, 25),
        (Phase::Permit, 1830, 3),
    ] {
        tree.phase(phase, cycle, start, microseconds);
    }
    let cycle = tree.cycle(Cycle::Binding, 1910, 3200);
    for (phase, start, microseconds) in [
        (Phase::PreBindPreFlight, 1915, 4),
        (Phase::PreBind, 1930, 8),
        (Phase::Bind, 1950, 3000),
        (Phase::PostBind, 4960, 9),
    ] {
        tree.phase(phase, cycle, start, microseconds);
    }
    let root = &mut tree.0.spans[0];
    root.attributes.push((attributes::SELECTED_NODE, AttributeValue::String("node-3".into())));
    let context = RemoteContext {
        trace_id: [0xcd; 16],
        span_id: [0xef; 8],
        flags: 1,
        trace_state: "rojo=1,congo=2".into(),
    };
    let relation = Relation::Cause { annotation: "tracing.k8s.io/traceparent".into(), owner: None };
    root.links.push(Link { context, relation });
    tree.0
}

/// The same with calls of so many plugins in Reserve.
#[must_use]
pub fn with_plugins(number: usize) -> Trace {
    let mut trace = scheduled();
    let reserve = SpanKind::Phase(Phase::Reserve);
    let reserve = trace.spans.iter().find(|span| span.kind == reserve).expect("it is there").clone();
    trace.spans.extend((0..number).map(|number| Span {
        kind: SpanKind::Plugin,
        span_id: (1_000 + number as u64).to_be_bytes(),
        parent_id: Some(reserve.span_id),
        name: Name::new(PLUGIN, format!("Plugin{number}")),
        attributes: [(attributes::EXTENSION_POINT, "Reserve".into())].into_iter().collect(),
        ..reserve.clone()
    }));
    trace
}

/// An attempt that found no Node.
#[must_use]
pub fn unschedulable() -> Trace {
    let mut tree = Tree::new(820, "big", "Unschedulable");
    let cycle = tree.cycle(Cycle::Scheduling, 4, 790);
    tree.phase(Phase::PreFilter, cycle, 20, 80);
    let filter = tree.phase(Phase::Filter, cycle, 110, 400);
    let post_filter = tree.phase(Phase::PostFilter, cycle, 520, 250);
    let result = |code: &'static str| (attributes::RESULT, AttributeValue::String(code.into()));
    tree.0.spans[filter].attributes.push(result("Unschedulable"));
    tree.0.spans[post_filter].attributes.push(result("Error"));
    tree.0.spans[post_filter].status = Status::Error("no victims".into());
    let reason = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims \
                  found for incoming pod.";
    tree.0.spans[0].status = Status::Error(reason.into());
    tree.0
}
