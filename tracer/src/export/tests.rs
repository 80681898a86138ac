use super::*;
use crate::trace::{AttributeValue, Link, Relation, RemoteContext, Span, Status, attributes};

/// 2026-11-21T00:00:00Z
const START: u64 = 1_795_219_200_000_000_000;

struct Tree(Trace);

impl Tree {
    fn new(name: &'static str, microseconds: u64, pod: &'static str, result: &'static str) -> Self {
        let attributes = vec![
            (attributes::POD_NAMESPACE, AttributeValue::String("default".into())),
            (attributes::POD_NAME, AttributeValue::String(pod.into())),
            (attributes::POD_UID, AttributeValue::String("3f2a7c1e-0001-4b4b-8b8b-0123456789ab".into())),
            (attributes::PROFILE, AttributeValue::String("default-scheduler".into())),
            (attributes::RESULT, AttributeValue::String(result.into())),
            (attributes::ATTEMPT, AttributeValue::Int(1)),
            (attributes::QUEUE_WAIT_MS, AttributeValue::Double(12.25)),
        ];
        let mut tree =
            Self(Trace { target: 7, trace_id: [0xab; 16], parent: None, selected: None, spans: Vec::new() });
        tree.span(name, None, 0, microseconds);
        tree.0.spans[0].attributes = attributes;
        tree
    }

    /// Returns the span's number.
    fn span(&mut self, name: &'static str, parent: Option<usize>, start: u64, microseconds: u64) -> usize {
        let number = self.0.spans.len();
        self.0.spans.push(Span {
            span_id: (number as u64 + 1).to_be_bytes(),
            parent_id: parent.map(|parent| self.0.spans[parent].span_id),
            name: name.into(),
            start_unix_ns: START + start * 1000,
            end_unix_ns: START + (start + microseconds) * 1000,
            attributes: Vec::new(),
            events: Vec::new(),
            links: Vec::new(),
            status: Status::Unset,
        });
        number
    }
}

/// An attempt with the proportions of a real one.
pub(crate) fn scheduled() -> Trace {
    let mut tree = Tree::new("SchedulePod", 5110, "web-0", "Success");
    let cycle = tree.span("schedulingCycle", Some(0), 5, 1900);
    for (name, start, microseconds) in [
        ("preFilter", 60, 143),
        ("filter", 210, 669),
        ("preScore", 900, 113),
        ("score", 1020, 667),
        ("reserve", 1800, 25),
        ("permit", 1830, 3),
    ] {
        tree.span(name, Some(cycle), start, microseconds);
    }
    let cycle = tree.span("bindingCycle", Some(0), 1910, 3200);
    for (name, start, microseconds) in
        [("preBindPreFlight", 1915, 4), ("preBind", 1930, 8), ("bind", 1950, 3000), ("postBind", 4960, 9)]
    {
        tree.span(name, Some(cycle), start, microseconds);
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

/// An attempt that found no Node.
pub(crate) fn unschedulable() -> Trace {
    let mut tree = Tree::new("SchedulePod", 820, "big", "Unschedulable");
    let cycle = tree.span("schedulingCycle", Some(0), 4, 790);
    tree.span("preFilter", Some(cycle), 20, 80);
    let filter = tree.span("filter", Some(cycle), 110, 400);
    let post_filter = tree.span("postFilter", Some(cycle), 520, 250);
    let result = |code: &'static str| (attributes::RESULT, AttributeValue::String(code.into()));
    tree.0.spans[filter].attributes.push(result("Unschedulable"));
    tree.0.spans[post_filter].attributes.push(result("Error"));
    tree.0.spans[post_filter].status = Status::Error("no victims".into());
    let reason = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims \
                  found for incoming pod.";
    tree.0.spans[0].status = Status::Error(reason.into());
    tree.0
}

pub(super) fn item(trace: Trace) -> Item {
    let resource = Resource::of_process(
        trace.target,
        42,
        "/usr/local/bin/kube-scheduler".as_ref(),
        "go1.26.4",
        Some("v1.36.4"),
    );
    Item { resource: resource.to_sdk(), trace: Arc::new(trace) }
}

/// A queue, with what is sent into it.
pub(super) fn queue(
    capacity: u64,
    causes: Causes,
    run: impl FnOnce(Queue) -> JoinHandle<()>,
) -> (Sinks, Metrics) {
    let metrics = Metrics::default();
    let sink = Sink::open(capacity, causes, &metrics, run);
    let sinks = Sinks {
        sinks: RwLock::new(Some(vec![sink])),
        resources: RwLock::default(),
        metrics: metrics.clone(),
    };
    (sinks, metrics)
}

pub(super) fn lost(metrics: &Metrics) -> Vec<(&'static str, u64)> {
    metrics.losses().into_iter().filter(|(_, lost)| *lost > 0).collect()
}

#[tokio::test]
async fn what_a_full_queue_cannot_hold_is_lost_and_so_is_what_is_left_at_the_end() {
    let spans = scheduled().spans.len() as u64;
    let (sinks, metrics) = queue(2 * spans + 1, otlp::CAUSES, |queue| {
        tokio::spawn(async move {
            let _queue = queue;
            std::future::pending::<()>().await;
        })
    });
    for _ in 0..5 {
        sinks.send(scheduled());
    }
    assert_eq!(lost(&metrics), [("export_queue_full", 3 * spans)]);
    sinks.shutdown(Duration::ZERO).await;
    sinks.send(scheduled());
    assert_eq!(lost(&metrics), [("export_queue_full", 3 * spans), ("shutdown", 3 * spans)]);
}

#[test]
fn a_resource_says_which_process_it_is() {
    let Item { resource, .. } = item(scheduled());
    for (key, value) in [
        ("service.name", "kube-scheduler"),
        ("service.version", "v1.36.4"),
        ("process.pid", "42"),
        ("process.executable.name", "kube-scheduler"),
        ("process.executable.path", "/usr/local/bin/kube-scheduler"),
        ("process.runtime.name", "go"),
        ("process.runtime.version", "go1.26.4"),
        ("k8s.scheduler.version", "v1.36.4"),
    ] {
        assert_eq!(resource.get(&key.into()).unwrap().to_string(), value, "{key}");
    }
}
