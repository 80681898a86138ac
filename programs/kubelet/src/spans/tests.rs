//! What is said of a start.

use ::spans::{
    Anchor, NodeStep, Origin, Status, Story as _, Trace, TraceKind,
    identity::{self, LifecycleTrace},
    story::Extras,
};

use crate::start::{Call, End, Start};

const ANCHOR: Anchor = Anchor { unix_ns_at_zero: 1_000_000_000 };

fn call(step: NodeStep, parent: Option<usize>, (start_ns, end_ns): (u64, u64)) -> Call {
    Call { parent, end_ns: Some(end_ns), ..Call::new(step, start_ns) }
}

fn named(call: Call, container: &str, id: &str) -> Call {
    Call { container: Some(container.to_owned()), id: Some(id.to_owned()), ..call }
}

/// A container that is started, ends, and is started again.
fn start() -> Start {
    let image =
        |parent, times| Call { image: Some("shop:1".to_owned()), ..call(NodeStep::Image, parent, times) };
    let calls = vec![
        Call { number: Some(2), ..call(NodeStep::Sync, None, (100, 200)) },
        Call { number: Some(1), ..call(NodeStep::Sandbox, Some(0), (110, 130)) },
        Call { id: Some("5a".to_owned()), ..call(NodeStep::RunPodSandbox, Some(1), (111, 129)) },
        named(call(NodeStep::InitContainer, Some(0), (140, 190)), "schema", "c1"),
        image(Some(3), (141, 150)),
        call(NodeStep::PullImage, Some(4), (142, 149)),
        named(call(NodeStep::StartContainer, Some(3), (160, 180)), "schema", "c1"),
        named(call(NodeStep::InitContainer, Some(0), (191, 199)), "schema", "c2"),
        image(Some(7), (192, 193)),
        Call {
            number: Some(1),
            result: Some(1),
            container: Some("web".to_owned()),
            ..call(NodeStep::Probe, None, (300, 310))
        },
    ];
    Start {
        target: 3,
        uid: "uid".into(),
        name: Some("web".to_owned()),
        namespace: Some("default".to_owned()),
        owner: Some("owner".to_owned()),
        start_ns: 90,
        end_ns: 350,
        end: End::Ready,
        calls,
        left_out: 0,
        incomplete: false,
        events: 20,
    }
}

fn build(start: &Start) -> Trace {
    start.trace(ANCHOR, Origin::default(), Extras::default())
}

/// Each span with its attributes, as far below the root as it is.
fn told(trace: &Trace) -> Vec<String> {
    let depth = |span: &::spans::Span| {
        let mut above = span.parent_id;
        std::iter::from_fn(|| {
            let parent = trace.spans.iter().find(|parent| Some(parent.span_id) == above)?;
            above = parent.parent_id;
            Some("  ")
        })
        .collect::<String>()
    };
    let line = |span: &::spans::Span| {
        let list = span.attributes.iter().map(|(key, value)| format!(" {key}={value}"));
        format!("{}{}{}", depth(span), span.name, list.collect::<String>())
    };
    trace.spans.iter().map(line).collect()
}

#[test]
fn a_start_is_a_tree_of_what_was_done() {
    let expected = [
        "StartPod k8s.namespace.name=default k8s.pod.name=web k8s.pod.uid=uid schedspan.lifecycle.result=Ready",
        "  syncPod k8s.pod.update_type=create",
        "    sandbox k8s.pod.sandbox.attempt=1",
        "      RunPodSandbox k8s.pod.sandbox.id=5a rpc.system=grpc rpc.service=runtime.v1.RuntimeService rpc.method=RunPodSandbox",
        "    init: schema k8s.container.name=schema container.id=c1 k8s.container.restart_count=0",
        "      image container.image.name=shop:1 container.image.pulled=true",
        "        PullImage rpc.system=grpc rpc.service=runtime.v1.ImageService rpc.method=PullImage",
        "      StartContainer k8s.container.name=schema container.id=c1 rpc.system=grpc rpc.service=runtime.v1.RuntimeService rpc.method=StartContainer",
        "    init: schema k8s.container.name=schema container.id=c2 k8s.container.restart_count=1",
        "      image container.image.name=shop:1 container.image.pulled=false",
        "  probe k8s.container.name=web k8s.container.probe.type=readiness k8s.container.probe.result=failure",
    ];
    let trace = build(&start());
    assert_eq!(told(&trace), expected);
    let root = trace.root();
    assert_eq!((root.start_unix_ns, root.end_unix_ns), (1_000_000_090, 1_000_000_350));
    let events: Vec<_> = root.events.iter().map(|event| (event.name, event.unix_ns)).collect();
    assert_eq!(events, [("ready", 1_000_000_350)]);
}

#[test]
fn a_start_is_in_the_trace_of_the_pods_lifecycle_below_its_root() {
    let trace = build(&start());
    let id = identity::lifecycle_id("uid");
    assert_eq!((trace.kind, trace.trace_id), (TraceKind::PodStart, id));
    let parent = trace.parent.as_ref().map(|parent| (parent.trace_id, parent.span_id));
    assert_eq!(parent, Some((id, identity::span_id(&id, 0))));
    assert_eq!(trace.root().parent_id, None);
}

#[test]
fn it_is_in_the_trace_of_the_pods_owner_if_that_is_asked_for() {
    let extras = Extras { lifecycle: LifecycleTrace::Owner, ..Extras::default() };
    let of = |start: &Start| start.trace(ANCHOR, Origin::default(), extras);
    let (own, shared) = (build(&start()), of(&start()));
    let id = identity::lifecycle_id("owner");
    let parent = shared.parent.as_ref().map(|parent| (parent.trace_id, parent.span_id));
    assert_eq!((shared.trace_id, parent), (id, Some((id, identity::lifecycle_root("uid")))));
    assert_eq!(shared.root().span_id, own.root().span_id);
    let alone = of(&Start { owner: None, ..start() });
    assert_eq!((alone.trace_id, alone.parent), (own.trace_id, own.parent), "a Pod without an owner");
}

#[test]
fn no_other_start_of_the_pod_has_the_same_spans() {
    let ids = |start: &Start| build(start).spans.iter().map(|span| span.span_id).collect::<Vec<_>>();
    let own = ids(&start());
    assert_eq!(own, ids(&start()));
    for other in [
        Start { start_ns: 91, ..start() },
        Start { target: 4, ..start() },
        Start { uid: "b".into(), ..start() },
    ] {
        assert!(ids(&other).iter().all(|id| !own.contains(id)), "{other:?}");
    }
}

#[test]
fn what_failed_says_why() {
    let mut start = Start { end: End::Rejected, ..start() };
    start.calls[0] =
        Call { failure: Some("OutOfcpu".to_owned()), ..call(NodeStep::Admission, None, (90, 95)) };
    start.calls[1].failure = Some(String::new());
    let trace = build(&start);
    let statuses: Vec<_> = trace.spans.iter().take(4).map(|span| span.status.clone()).collect();
    let error = |text: &str| Status::Error(text.to_owned());
    assert_eq!(statuses, [error("OutOfcpu"), error("OutOfcpu"), error("failed"), Status::Unset]);
    assert_eq!(trace.root().events, []);
    for (end, expected) in [
        (End::Failed, error("Failed")),
        (End::Unfinished, error("Unfinished")),
        (End::Deleted, Status::Unset),
    ] {
        let start = Start { end, calls: Vec::new(), ..start.clone() };
        assert_eq!(build(&start).root().status, expected);
    }
}

#[test]
fn what_is_not_known_is_said() {
    let mut start = Start { incomplete: true, left_out: 3, name: None, namespace: None, ..start() };
    start.calls = vec![Call { end_ns: None, ..call(NodeStep::Volumes, None, (100, 0)) }];
    let expected = [
        "StartPod k8s.pod.uid=uid schedspan.lifecycle.result=Ready schedspan.left_out=calls: 3 schedspan.incomplete=true",
        "  volumes schedspan.incomplete=true",
    ];
    let trace = build(&start);
    assert_eq!(told(&trace), expected);
    assert_eq!(trace.spans[1].end_unix_ns, trace.root().end_unix_ns);
}
