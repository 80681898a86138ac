//! What is said of stored Pods.

use ::spans::{
    Anchor, ApiStep, Origin, Status, Story as _, Trace, TraceKind,
    export::{Style, waterfall},
    identity::{self, LifecycleTrace},
    story::Extras,
};

use crate::storage::{Call, Pod, Stored};

const ANCHOR: Anchor = Anchor { unix_ns_at_zero: 1_000_000_000 };

fn call(step: ApiStep, (start_ns, end_ns): (u64, u64)) -> Call {
    Call { step, start_ns, end_ns: Some(end_ns), webhook: None, code: None, failed: false }
}

fn webhook(name: &str, code: u64, times: (u64, u64)) -> Call {
    let failed = code != 200;
    Call { webhook: Some(name.to_owned()), code: Some(code), failed, ..call(ApiStep::Webhook, times) }
}

/// By their ends. The first webhook seems to begin before its step.
fn stored() -> Stored {
    Stored {
        target: 3,
        pod: Pod {
            uid: "uid".to_owned(),
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
            owner: Some("owner".to_owned()),
            manager: Some("kubectl".to_owned()),
        },
        user: Some("alice".to_owned()),
        calls: vec![
            webhook("changes", 500, (95, 150)),
            call(ApiStep::Mutation, (100, 160)),
            webhook("checks", 200, (170, 190)),
            webhook("checks too", 200, (171, 195)),
            call(ApiStep::Validation, (165, 200)),
            call(ApiStep::Storage, (210, 300)),
        ],
        end_ns: 300,
        left_out: 0,
        incomplete: false,
        events: 7,
    }
}

fn build(stored: &Stored) -> Trace {
    stored.trace(ANCHOR, Origin::default(), Extras::default())
}

#[test]
fn webhooks_are_below_the_step_that_calls_them() {
    let trace = build(&stored());
    let told: Vec<_> = trace
        .spans
        .iter()
        .map(|span| {
            let parent = trace.spans.iter().find(|parent| Some(parent.span_id) == span.parent_id);
            (span.name.to_string(), parent.map(|parent| parent.name.to_string()))
        })
        .collect();
    let below = |name: &str, parent: &str| (name.to_owned(), Some(parent.to_owned()));
    assert_eq!(
        told,
        [
            ("StorePod".to_owned(), None),
            below("mutating admission", "StorePod"),
            below("validating admission", "StorePod"),
            below("Create etcd3", "StorePod"),
            below("webhook: changes", "mutating admission"),
            below("webhook: checks", "validating admission"),
            below("webhook: checks too", "validating admission"),
        ]
    );
    assert_eq!(trace.spans[4].status, Status::Error("HTTP status 500".to_owned()));
}

#[test]
fn every_span_is_within_its_parent() {
    let trace = build(&stored());
    for span in &trace.spans[1..] {
        let parent = trace.spans.iter().find(|parent| Some(parent.span_id) == span.parent_id).unwrap();
        let within = parent.start_unix_ns <= span.start_unix_ns && span.end_unix_ns <= parent.end_unix_ns;
        assert!(within && span.start_unix_ns <= span.end_unix_ns, "{span:?}");
    }
    assert_eq!(trace.root().duration_ns(), 205);
}

#[test]
fn the_root_says_who_asked_for_which_pod() {
    let root = build(&stored()).root().clone();
    let list: Vec<_> = root.attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let expected = [
        "k8s.namespace.name=shop",
        "k8s.pod.name=web-0",
        "k8s.pod.uid=uid",
        "user.name=alice",
        "k8s.object.manager=kubectl",
    ];
    assert_eq!(list, expected);
    assert_eq!(root.status, Status::Unset);
}

#[test]
fn a_waterfall_says_who_asked() {
    let ms = |times: (u64, u64)| (times.0 * 1_000_000 / 100, times.1 * 1_000_000 / 100);
    let calls = vec![
        webhook("sidecars.example.com", 200, ms((4, 255))),
        call(ApiStep::Mutation, ms((0, 302))),
        webhook("limits.example.com", 200, ms((330, 4_396))),
        call(ApiStep::Validation, ms((325, 4_418))),
        call(ApiStep::Storage, ms((4_466, 4_810))),
    ];
    let end_ns = ms((0, 4_810)).1;
    let style = Style { width: 110, colour: false, plugins: false };
    let text = waterfall(&build(&Stored { calls, end_ns, ..stored() }), &style);
    let (head, rows) = text.split_once('\n').unwrap();
    assert!(head.starts_with("shop/web-0  stored  48.1 ms  by alice with kubectl  trace "), "{text}");
    for name in
        ["StorePod ", "├─ mutating admission ", "│  └─ webhook: limits.example.com ", "└─ Create etcd3 "]
    {
        assert!(rows.lines().any(|row| row.starts_with(name)), "{text}");
    }
}

#[test]
fn it_is_in_the_trace_of_the_pods_lifecycle_and_below_its_root() {
    let trace = build(&stored());
    assert_eq!((trace.kind, trace.trace_id), (TraceKind::PodStorage, identity::lifecycle_id("uid")));
    assert_eq!(trace.parent.map(|parent| parent.span_id), Some(identity::lifecycle_root("uid")));
    let extras = Extras { lifecycle: LifecycleTrace::Owner, ..Extras::default() };
    let of_owner = stored().trace(ANCHOR, Origin::default(), extras);
    assert_eq!(of_owner.trace_id, identity::lifecycle_id("owner"));
    assert_eq!(of_owner.parent.as_ref().map(|parent| parent.span_id), Some(identity::lifecycle_root("uid")));
    let ids = |trace: &Trace| trace.spans.iter().map(|span| span.span_id).collect::<Vec<_>>();
    assert_eq!(ids(&of_owner), ids(&build(&stored())));
}

#[test]
fn a_pod_by_server_side_apply_has_no_write_and_is_stored_when_the_patch_is_over() {
    let mut stored = stored();
    stored.calls.truncate(5);
    stored.pod.manager = None;
    let trace = build(&stored);
    assert_eq!(trace.root().duration_ns(), 205);
    assert!(trace.spans.iter().all(|span| span.name != "Create etcd3"));
    assert!(trace.root().attribute("k8s.object.manager").is_none());
}

#[test]
fn a_write_without_an_end_is_incomplete() {
    let mut stored = stored();
    stored.calls[5].end_ns = None;
    (stored.end_ns, stored.incomplete) = (210, true);
    let trace = build(&stored);
    let write = trace.spans.iter().find(|span| span.name == "Create etcd3").unwrap();
    assert_eq!(write.duration_ns(), 0);
    for span in [trace.root(), write] {
        assert_eq!(span.attribute("schedspan.incomplete").map(ToString::to_string).as_deref(), Some("true"));
    }
}
