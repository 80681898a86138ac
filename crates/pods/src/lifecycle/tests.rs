//! Lifecycles as indented text, in milliseconds since the Pod's creation; and hostile Pods.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use spans::{
    AttributeValue, Link, Origin, Phase, Relation, Source, Span, SpanKind, Status, Trace, TraceKind,
    attributes,
    identity::{LifecycleTrace, lifecycle_id, lifecycle_root},
    names::{LIFECYCLE, ROOT},
};
use telemetry::Registry;
use tracecontext::RemoteContext;

use super::{
    attempt::Attempt,
    pod::Pod,
    progress::{Common, Progress},
    table::Table,
    tree::build,
};
use crate::Metrics;

/// 2026-11-21T00:00:00Z
const START_S: u64 = 1_795_219_200;
const MS: u64 = 1_000_000;
const START: u64 = START_S * 1000 * MS;

fn at(ms: u64) -> u64 {
    START + ms * MS
}

fn second(seconds: u64) -> String {
    format!("2026-11-21T00:00:{seconds:02}Z")
}

fn pod(status: &Value) -> Value {
    json!({
        "metadata": {
            "uid": "u", "name": "web-0", "namespace": "shop", "creationTimestamp": second(0),
            "ownerReferences": [
                { "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "o", "controller": true },
            ],
        },
        "spec": {
            "schedulerName": "default-scheduler", "priority": 5, "priorityClassName": "high",
            "containers": [{ "name": "main", "image": "nginx:1.29" }, { "name": "log", "image": "fluent:4" }],
            "initContainers": [{ "name": "schema", "image": "migrate:2" }],
            "volumes": [
                { "name": "a", "configMap": { "name": "x" } },
                { "name": "b", "persistentVolumeClaim": { "claimName": "data-web-0" } },
                { "name": "c", "configMap": { "name": "y" } },
            ],
        },
        "status": status,
    })
}

fn condition(kind: &str, seconds: u64) -> Value {
    json!({ "type": kind, "status": "True", "lastTransitionTime": second(seconds) })
}

fn read(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

fn span(id: u8, parent: Option<u8>, kind: SpanKind, name: &'static str, from: u64, to: u64) -> Span {
    Span {
        kind,
        span_id: [id; 8],
        parent_id: parent.map(|id| [id; 8]),
        name: name.into(),
        start_unix_ns: at(from),
        end_unix_ns: at(to),
        attributes: spans::Attributes::new(),
        events: vec![],
        links: vec![],
        status: Status::Unset,
    }
}

/// An attempt, from when to when.
fn attempt(number: i64, from: u64, to: u64, result: &'static str) -> Trace {
    let kind = TraceKind::Attempt;
    let mut root = span(1, None, SpanKind::Root(kind), kind.name(), from, to);
    root.attributes = vec![
        (attributes::POD_UID, "u".into()),
        (attributes::RESULT, result.into()),
        (attributes::ATTEMPT, AttributeValue::Int(number)),
        (attributes::QUEUE_TOTAL_WAIT_MS, AttributeValue::Double(10.0)),
    ]
    .into();
    let mut spans = vec![root, span(2, Some(1), SpanKind::Phase(Phase::Bind), "bind", to - 4, to - 2)];
    if result == "Success" {
        spans[0].attributes.push((attributes::SELECTED_NODE, "node-1".into()));
        let mut volumes = span(3, Some(2), SpanKind::Plugin, "plugin: VolumeBinding", from + 2, from + 4);
        volumes.attributes = vec![
            (attributes::PLUGIN_NAME, "VolumeBinding".into()),
            (attributes::EXTENSION_POINT, "preBind".into()),
        ]
        .into();
        spans.push(volumes);
    } else {
        spans[0].status = Status::Error(format!("{result}: no room"));
    }
    Trace {
        kind,
        source: Source::Process(1),
        trace_id: [number as u8 + 1; 16],
        parent: None,
        selected: None,
        names: None,
        beside: Vec::new(),
        spans,
    }
}

/// Name, beginning, end, and what is remarkable.
fn tree(trace: &Trace) -> String {
    let mut text = String::new();
    for span in &trace.spans {
        let depth = std::iter::successors(span.parent_id, |id| {
            trace.spans.iter().find(|span| span.span_id == *id).and_then(|span| span.parent_id)
        });
        let is = |key| span.attribute(key) == Some(&AttributeValue::Bool(true));
        let ms = |ns: u64| (ns as i64 - START as i64) / MS as i64;
        text += &format!(
            "{}{} {}..{}{}{}{}\n",
            "  ".repeat(depth.count()),
            span.name,
            ms(span.start_unix_ns),
            ms(span.end_unix_ns),
            if is(attributes::INCOMPLETE) { " incomplete" } else { "" },
            if is(attributes::TIME_MOVED) { " moved" } else { "" },
            match &span.status {
                Status::Unset => String::new(),
                Status::Error(reason) => format!(" ({reason})"),
            }
        );
    }
    text
}

fn text(span: &Span, key: &str) -> String {
    span.attribute(key).map(ToString::to_string).unwrap_or_default()
}

/// What becomes of Pods, each seen at a time, with these attempts.
fn progress(looks: &[(u64, Value)], attempts: Vec<Trace>) -> Trace {
    let mut progress = Progress::new(START);
    for (ms, pod) in looks {
        progress.see(&read(pod), at(*ms), &mut Common::default());
    }
    for trace in attempts {
        progress.attempt(Attempt::of(&trace).unwrap().1, true);
    }
    build("u", &progress, Origin::default(), LifecycleTrace::Pod).unwrap()
}

fn bound(mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = "node-1".into();
    pod
}

/// As a kubelet reports it: times in whole seconds, with the statuses of containers at the end.
fn ready() -> Value {
    bound(pod(&json!({
        "phase": "Running", "qosClass": "Burstable", "startTime": second(1),
        "conditions": [
            condition("PodScheduled", 1), condition("PodReadyToStartContainers", 2), condition("Initialized", 4),
            condition("ContainersReady", 9), condition("Ready", 9),
        ],
        "initContainerStatuses": [{
            "name": "schema", "restartCount": 0,
            "state": { "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": second(3), "finishedAt": second(4) } },
        }],
        "containerStatuses": [
            { "name": "log", "restartCount": 0, "state": { "running": { "startedAt": second(5) } } },
            {
                "name": "main", "restartCount": 1, "state": { "running": { "startedAt": second(8) } },
                "lastState": { "terminated": { "exitCode": 3, "reason": "Error", "startedAt": second(5), "finishedAt": second(6) } },
            },
        ],
    })))
}

#[test]
fn the_lifecycle_of_a_ready_pod_begins_with_its_creation() {
    let pending = json!({ "phase": "Pending" });
    let attempts = vec![attempt(1, 40, 60, "Unschedulable"), attempt(2, 1_100, 1_140, "Success")];
    let trace = progress(&[(20, pod(&pending)), (9_300, ready())], attempts);
    let expected = "\
PodLifecycle 20..9300
  queued 20..40
  SchedulePod 40..60 (Unschedulable: no room)
  queued 60..1100
  SchedulePod 1100..1140
    bind volume claims 1102..1104
  kubelet 1138..1999
  sandbox 1999..2999
  init: schema 2999..4999
  container: main 4999..8999
  container: log 4999..5999
  ready 8999..9300
";
    assert_eq!(tree(&trace), expected);
    let root = trace.root();
    for (key, value) in [
        (attributes::POD_NAME, "web-0"),
        (attributes::POD_NAMESPACE, "shop"),
        (attributes::POD_UID, "u"),
        (attributes::LIFECYCLE_RESULT, "Ready"),
        (attributes::NODE, "node-1"),
        (attributes::PROFILE, "default-scheduler"),
        (attributes::LIFECYCLE_ATTEMPTS, "2"),
        (attributes::LIFECYCLE_RESTARTS, "1"),
        (attributes::IMAGES, "migrate:2, nginx:1.29, fluent:4"),
        (attributes::CONTAINERS, "2"),
        (attributes::INIT_CONTAINERS, "1"),
        (attributes::VOLUMES, "3"),
        (attributes::VOLUME_KINDS, "configMap: 2, persistentVolumeClaim: 1"),
        (attributes::CLAIMS, "data-web-0"),
        (attributes::OWNERS, "StatefulSet/web"),
        (attributes::PRIORITY, "5"),
        (attributes::PRIORITY_CLASS, "high"),
        (attributes::LEFT_OUT, ""),
    ] {
        assert_eq!(text(root, key), value, "{key}");
    }
    let named = |name: &str| trace.spans.iter().find(|span| span.name == name).unwrap();
    let main = named("container: main");
    assert_eq!(
        (text(main, attributes::IMAGE), text(main, attributes::CONTAINER_RESTARTS)),
        ("nginx:1.29".into(), "1".into())
    );
    let events: Vec<_> = main.events.iter().map(|event| (event.name, event.unix_ns)).collect();
    assert_eq!(events, [("ended", at(6_999) + MS - 1)]);
    // The moment within the second is not known.
    assert_eq!(
        named("kubelet").attribute(attributes::TIME_UNCERTAIN_MS),
        Some(&AttributeValue::Double(861.999_999))
    );
    assert_eq!(named(ROOT).attribute(attributes::TIME_UNCERTAIN_MS), None);
}

#[test]
fn attempts_are_linked_to_their_own_traces_and_the_root_to_the_creator_of_the_pod() {
    let mut progress = Progress::new(START);
    progress.see(&read(&ready()), at(9_300), &mut Common::default());
    progress.attempt(Attempt::of(&attempt(1, 40, 60, "Success")).unwrap().1, true);
    let context =
        |id| RemoteContext { trace_id: [id; 16], span_id: [id; 8], flags: 1, trace_state: "a=1".into() };
    let cause = |id| {
        let relation = Relation::Cause { annotation: "traceparent".into(), owner: None };
        Link { context: context(id), relation }
    };
    let origin = |parent| Origin { causes: vec![cause(7), cause(8)], parent, ..Origin::default() };
    let linked = build("u", &progress, origin(false), LifecycleTrace::Pod).unwrap();
    assert_eq!((&linked.root().links, &linked.parent), (&vec![cause(7), cause(8)], &None));
    let below = build("u", &progress, origin(true), LifecycleTrace::Pod).unwrap();
    assert_eq!((&below.root().links, &below.parent), (&vec![cause(8)], &Some(context(7))));
    assert_eq!(below.trace_id, [7; 16]);
    assert_ne!(linked.trace_id, [7; 16]);
    let shared = build("u", &progress, origin(false), LifecycleTrace::Owner).unwrap();
    assert_eq!((shared.trace_id, shared.root().span_id), (lifecycle_id("o"), lifecycle_root("u")));
    assert_eq!((&shared.spans, linked.trace_id), (&linked.spans, lifecycle_id("u")));
    assert_eq!(build("u", &progress, origin(true), LifecycleTrace::Owner).unwrap(), below);
    assert_eq!(
        linked,
        build("u", &progress, origin(false), LifecycleTrace::Pod).unwrap(),
        "the same Pod has the same ids"
    );
    let short = linked.spans.iter().find(|span| span.name == ROOT).unwrap();
    assert_eq!((short.links[0].context.trace_id, short.links[0].context.span_id), ([2; 16], [1; 8]));
}

#[test]
fn the_phases_that_a_pod_did_not_reach_are_incomplete() {
    let gates = |names: &[&str]| {
        let mut pod = pod(&json!({ "phase": "Pending" }));
        pod["spec"]["schedulingGates"] = names.iter().map(|name| json!({ "name": name })).collect();
        pod
    };
    let starting = bound(pod(&json!({
        "phase": "Pending", "startTime": second(1), "conditions": [condition("PodScheduled", 1), condition("PodReadyToStartContainers", 2)],
        "initContainerStatuses": [{ "name": "schema", "state": { "waiting": { "reason": "ImagePullBackOff" } } }],
    })));
    let success = || vec![attempt(1, 1_040, 1_060, "Success")];
    for (looks, attempts, expected) in [
        (vec![gates(&["a"])], vec![], "PodLifecycle 5..5000\n  gated 5..5000 incomplete\n"),
        (
            vec![gates(&["a"]), gates(&[])],
            vec![attempt(1, 1_040, 1_060, "Unschedulable")],
            "PodLifecycle 5..5000\n  gated 5..1005\n  queued 1005..1040\n  SchedulePod 1040..1060 (Unschedulable: no room)\n  queued 1060..5000 incomplete\n",
        ),
        (
            vec![pod(&json!({ "phase": "Pending" })), starting],
            success(),
            "PodLifecycle 5..5000\n  queued 5..1040\n  SchedulePod 1040..1060\n    bind volume claims 1042..1044\n  kubelet 1058..1058\n  sandbox 1058..1058\n  init: schema 1058..5000 incomplete\n",
        ),
    ] {
        let mut progress = Progress::new(START);
        for (number, pod) in looks.iter().enumerate() {
            progress.see(&read(pod), at(5 + 1_000 * number as u64), &mut Common::default());
        }
        for trace in attempts {
            progress.attempt(Attempt::of(&trace).unwrap().1, true);
        }
        progress.gone(at(5_000));
        let trace = build("u", &progress, Origin::default(), LifecycleTrace::Pod).unwrap();
        let found = tree(&trace).replace(" moved", "");
        assert_eq!(found, expected);
        assert_eq!(text(trace.root(), attributes::LIFECYCLE_RESULT), "Deleted");
    }
}

#[test]
fn a_pod_waits_again_only_if_its_last_attempt_does_not_outlast_it() {
    let failed = attempt(1, 1_040, 1_060, "Unschedulable");
    for (attempts, gone, expected) in [
        (vec![], 5, "PodLifecycle 5..5\n  queued 5..5 incomplete\n"),
        (
            vec![failed],
            1_050,
            "PodLifecycle 5..1060\n  queued 5..1040\n  SchedulePod 1040..1060 (Unschedulable: no room)\n",
        ),
    ] {
        let mut progress = Progress::new(START);
        progress.see(&read(&pod(&json!({ "phase": "Pending" }))), at(5), &mut Common::default());
        for trace in attempts {
            progress.attempt(Attempt::of(&trace).unwrap().1, true);
        }
        progress.gone(at(gone));
        let trace = build("u", &progress, Origin::default(), LifecycleTrace::Pod).unwrap();
        assert_eq!(tree(&trace), expected);
    }
}

#[test]
fn a_job_and_one_that_fails_end_with_their_containers() {
    let job = |phase: &str, code: i64| {
        let mut pod = bound(pod(&json!({
            "phase": phase, "reason": if code == 0 { "" } else { "Evicted" }, "message": if code == 0 { "" } else { "no memory" },
            "startTime": second(1), "conditions": [condition("PodScheduled", 1)],
            "containerStatuses": [{ "name": "main", "state": { "terminated": {
                "exitCode": code, "reason": "Done", "startedAt": second(2), "finishedAt": second(5) } } }],
        })));
        pod["spec"]["initContainers"] = json!([]);
        pod["spec"]["containers"] = json!([{ "name": "main", "image": "job" }]);
        pod
    };
    for (phase, code, expected) in [
        (
            "Succeeded",
            0,
            "PodLifecycle 0..5999\n  queued 0..1040\n  SchedulePod 1040..1060\n    bind volume claims 1042..1044\n  kubelet 1058..1999\n  container: main 1999..5999\n",
        ),
        (
            "Failed",
            9,
            "PodLifecycle 0..5999 (Evicted: no memory)\n  queued 0..1040\n  SchedulePod 1040..1060\n    bind volume claims 1042..1044\n  kubelet 1058..1999\n  container: main 1999..5999 (exit code 9)\n",
        ),
    ] {
        let trace = progress(
            &[(0, Value::Null), (6_200, job(phase, code))].map(|(ms, mut seen): (u64, Value)| {
                if seen.is_null() {
                    seen = job(phase, code);
                    seen["status"] = json!({ "phase": "Pending" });
                }
                (ms, seen)
            }),
            vec![attempt(1, 1_040, 1_060, "Success")],
        );
        assert_eq!(tree(&trace), expected);
        let main = trace.spans.last().unwrap();
        let events: Vec<_> = main.events.iter().map(|event| event.name).collect();
        assert_eq!((events, text(main, attributes::EXIT_CODE)), (vec!["started", "ended"], code.to_string()));
    }
}

#[test]
fn impossible_times_are_moved_and_marked() {
    // The Node's clock is an hour behind, and the API server's a minute ahead.
    let mut early = ready();
    early["status"]["startTime"] = "2026-11-20T23:00:01Z".into();
    early["metadata"]["creationTimestamp"] = "2026-11-21T00:01:00Z".into();
    let trace = progress(&[(20, early)], vec![attempt(1, 40, 60, "Success")]);
    let moved = |name: &str| {
        trace.spans.iter().any(|span| span.name == *name && span.attribute(attributes::TIME_MOVED).is_some())
    };
    assert!(moved(LIFECYCLE) && moved("kubelet"), "{}", tree(&trace));
    well_formed(&trace);
}

#[test]
fn pods_are_followed_exported_and_forgotten() {
    let registry = Registry::default();
    let mut table = Table::new(Metrics::new(&registry));
    let named = |uid: &str, mut pod: Value| {
        pod["metadata"]["uid"] = uid.into();
        read(&pod)
    };
    let of = |uid: &str, result| {
        let mut trace = attempt(1, 40, 60, result);
        trace.spans[0].attributes[0].1 = uid.into();
        trace
    };
    let pending = pod(&json!({ "phase": "Pending" }));
    for uid in ["ours", "elsewhere", "waits", "listed", "deleted"] {
        assert!(table.seen(&named(uid, pending.clone()), at(0)));
        assert!(!table.seen(&named(uid, pending.clone()), at(1)));
    }
    // It runs already, since an unknown time.
    assert!(!table.seen(&named("old", ready()), at(0)));
    table.attempt(&of("ours", "Success"), at(70));
    table.attempt(&of("deleted", "Unschedulable"), at(70));
    table.attempt(&of("early", "Success"), at(70));
    for uid in ["ours", "elsewhere", "early"] {
        table.seen(&named(uid, ready()), at(9_000));
    }
    table.gone(&named("deleted", pending.clone()), at(9_000));
    let due = |table: &mut Table, ms, last| {
        let mut due: Vec<_> = table.due(at(ms), last).into_iter().map(|(uid, _)| uid.into_string()).collect();
        due.sort();
        due
    };
    assert!(due(&mut table, 9_100, false).is_empty(), "attempts may come yet");
    assert_eq!(due(&mut table, 12_000, false), ["deleted", "early", "ours"]);
    assert!(due(&mut table, 24_000, false).is_empty());
    // A list without one of them.
    table.list_begins();
    table.seen(&named("waits", pending.clone()), at(25_000));
    table.list_ends(at(25_000));
    table.attempt(&of("listed", "Unschedulable"), at(25_000));
    table.attempt(&of("ghost", "Success"), at(25_000));
    assert_eq!(due(&mut table, 25_000, true), ["listed"]);
    let text = registry.encode();
    for (result, count) in [("Ready", 2), ("Deleted", 2), ("elsewhere", 1), ("Failed", 0)] {
        let line = format!("schedspan_lifecycles_total{{result=\"{result}\"}} {count}\n");
        assert!(text.contains(&line), "{line} is not in {text}");
    }
    assert!(text.contains("schedspan_lifecycles_followed 1\n"), "{text}");
}

#[test]
fn without_a_list_pods_known_by_attempts_alone_are_dropped_and_counted() {
    let registry = Registry::default();
    let mut table = Table::new(Metrics::new(&registry));
    table.list_begins();
    table.attempt(&attempt(1, 0, 50, "Success"), at(70));
    assert!(table.due(at(60_000), false).is_empty(), "the list may bring it");
    table.list_fails();
    let unknown = || {
        let mut losses = registry.lost().into_iter();
        losses.find_map(|(cause, lost)| (cause == "life_unknown").then_some(lost))
    };
    assert_eq!(unknown(), Some(0));
    assert!(table.due(at(60_000), false).is_empty());
    assert_eq!(unknown(), Some(1));
}

#[test]
fn pods_of_one_template_share_what_they_have_in_common() {
    let mut common = Common::default();
    let mut shape = |name: &str, image: &str| {
        let mut pod = read(&ready());
        pod.metadata.name = Some(name.to_owned());
        pod.spec.containers[0].image = image.to_owned();
        let mut progress = Progress::new(START);
        progress.see(&pod, at(5), &mut common);
        progress.about.expect("the Pod was seen").shape
    };
    let first = shape("web-0", "web:1");
    assert!(Arc::ptr_eq(&first, &shape("web-1", "web:1")));
    assert!(!Arc::ptr_eq(&first, &shape("web-2", "web:2")));
}

#[test]
fn the_number_of_followed_pods_is_bounded() {
    let registry = Registry::default();
    let mut table = Table::new(Metrics::new(&registry));
    let mut pending = pod(&json!({ "phase": "Pending" }));
    for number in 0..20_010 {
        pending["metadata"]["uid"] = format!("{number}").into();
        table.seen(&read(&pending), at(0));
    }
    let lost = registry.lost().into_iter().find(|(cause, _)| *cause == "life_table_full");
    assert_eq!(lost, Some(("life_table_full", 10)));
    table.list_begins();
    table.list_ends(at(0));
    assert!(table.due(at(0), true).is_empty(), "none of them had an attempt");
    pending["metadata"]["uid"] = "again".into();
    assert!(table.seen(&read(&pending), at(0)), "there is room again");
}

/// The spans are a tree; each is in its parent's time, and none ends before it begins. All is within bounds.
fn well_formed(trace: &Trace) {
    assert!(trace.spans.len() <= 200, "{} spans", trace.spans.len());
    let mut seen = std::collections::HashSet::new();
    for (number, span) in trace.spans.iter().enumerate() {
        assert!(seen.insert(span.span_id), "two spans are one");
        assert!(span.start_unix_ns <= span.end_unix_ns, "{span:?}");
        assert_eq!(span.parent_id.is_none(), number == 0);
        if let Some(parent) = span.parent_id {
            let parent =
                trace.spans[..number].iter().find(|other| other.span_id == parent).expect("it is before");
            assert!(parent.start_unix_ns <= span.start_unix_ns && span.end_unix_ns <= parent.end_unix_ns);
        }
        assert!(span.attributes.len() <= 40 && span.events.len() <= 16 && span.links.len() <= 8);
        for event in &span.events {
            assert!((span.start_unix_ns..=span.end_unix_ns).contains(&event.unix_ns));
        }
        for (key, value) in &span.attributes {
            match value {
                AttributeValue::Strings(list) => {
                    assert!(list.len() <= 32, "{key}");
                    assert!(list.iter().all(|text| text.len() <= 256), "{key}");
                }
                AttributeValue::String(text) => assert!(text.len() <= 256, "{key}"),
                _ => {}
            }
        }
    }
}

/// Times as a hostile status may have them, and texts without end.
fn time() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..60_u64).prop_map(|seconds| second(seconds).into()),
        Just(json!("0001-01-01T00:00:00Z")),
        Just(json!("9999-12-31T23:59:59Z")),
        Just(json!("1969-12-31T23:59:59Z")),
        Just(json!("yesterday")),
        Just(Value::Null),
    ]
}

fn container() -> impl Strategy<Value = (Value, Value, Value)> {
    let name = prop_oneof!["[a-e]", Just("é".repeat(300)), Just(String::new())];
    let run = || (any::<i64>(), time(), time());
    let state =
        (proptest::option::of(run()), proptest::option::of(run()), proptest::option::of(run()), any::<i64>());
    (name, state, any::<bool>()).prop_map(|(name, (running, ended, before, restarts), sidecar)| {
        let run = |(code, from, to): &(i64, Value, Value)| {
            json!({ "exitCode": code, "reason": name, "startedAt": from, "finishedAt": to })
        };
        let mut state = json!({ "waiting": { "reason": name } });
        if let Some(running) = &running {
            state["running"] = run(running);
        }
        if let Some(ended) = &ended {
            state["terminated"] = run(ended);
        }
        let last = before.as_ref().map_or_else(|| json!({}), |before| json!({ "terminated": run(before) }));
        let policy = if sidecar { json!("Always") } else { Value::Null };
        let spec = json!({ "name": name, "image": name.repeat(3), "restartPolicy": policy });
        (spec, json!({ "name": name, "restartCount": restarts, "state": state, "lastState": last }), json!(name))
    })
}

fn hostile() -> impl Strategy<Value = Value> {
    let containers = || proptest::collection::vec(container(), 0..70);
    let kinds =
        ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready", "Other"];
    let condition = (proptest::sample::select(kinds.to_vec()), any::<bool>(), time())
        .prop_map(|(kind, holds, time)| json!({ "type": kind, "status": if holds { "True" } else { "False" }, "lastTransitionTime": time }));
    let phases = ["", "Pending", "Running", "Succeeded", "Failed", "Unknown", "else"];
    (
        (containers(), containers(), proptest::collection::vec(condition, 0..9)),
        (proptest::sample::select(phases.to_vec()), time(), 0..60_u64, proptest::option::of("[a-z]{1,3}")),
        (0..40_usize, 0..40_usize, "[a-z]{0,4}"),
    )
        .prop_map(|((init, main, conditions), (phase, start, created, node), (gates, volumes, word))| {
            let specs = |list: &[(Value, Value, Value)]| list.iter().map(|(spec, ..)| spec.clone()).collect::<Vec<_>>();
            let statuses = |list: &[(Value, Value, Value)]| list.iter().map(|(_, status, _)| status.clone()).collect::<Vec<_>>();
            let volume = |number: usize| match number % 3 {
                0 => json!({ "name": word, "persistentVolumeClaim": { "claimName": word.repeat(100) } }),
                1 => json!({ format!("{word}{number}"): { "deep": [1, 2, { "x": null }] } }),
                _ => json!({}),
            };
            json!({
                "metadata": { "uid": "u", "name": word, "creationTimestamp": second(created) },
                "spec": {
                    "nodeName": node, "priority": i64::MIN,
                    "schedulingGates": vec![json!({ "name": word.repeat(200) }); gates],
                    "initContainers": specs(&init), "containers": specs(&main),
                    "volumes": (0..volumes).map(volume).collect::<Vec<_>>(),
                },
                "status": {
                    "phase": phase, "reason": word, "message": word.repeat(500), "startTime": start, "conditions": conditions,
                    "initContainerStatuses": statuses(&init), "containerStatuses": statuses(&main),
                },
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_spans_of_any_pod_are_a_tree_within_bounds(
        looks in proptest::collection::vec((hostile(), 0..60_000_u64), 1..6),
        attempts in proptest::collection::vec((0..60_000_u64, 10..9_000_u64, any::<bool>()), 0..50),
    ) {
        let mut table = Table::new(Metrics::new(&Registry::default()));
        for (pod, ms) in &looks {
            table.seen(&read(pod), at(*ms));
        }
        for (from, length, success) in attempts {
            let trace = attempt(1, from, from + length, if success { "Success" } else { "Error" });
            table.attempt(&trace, at(from));
        }
        table.gone(&read(&looks[0].0), at(60_000));
        for (uid, progress) in table.due(at(0), true) {
            prop_assert!(progress.bytes() < 200_000, "{} bytes", progress.bytes());
            if let Some(trace) = build(&uid, &progress, Origin::default(), LifecycleTrace::Owner) {
                well_formed(&trace);
            }
        }
    }
}
