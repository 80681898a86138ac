//! What is said of a reconcile.

use client_go::requests::{Made, Object, Request};
use spans::{Anchor, Origin, Status, Story as _, Trace, TraceKind, story::Extras};

use crate::reconcile::{Outcome, Reconcile};

const ANCHOR: Anchor = Anchor { unix_ns_at_zero: 1_000_000_000 };

fn build(reconcile: &Reconcile) -> Trace {
    reconcile.trace(ANCHOR, Origin::default(), Extras::default())
}

fn reconcile() -> Reconcile {
    Reconcile {
        target: 3,
        controller: "certificate".into(),
        request: Some("default/web".to_owned()),
        start_ns: 3_500_000,
        end_ns: 9_000_000,
        outcome: Some(Outcome::RequeueAfter(2_500_000)),
        message: None,
        panicked: false,
        made: Made::default(),
        incomplete: false,
    }
}

fn attributes(reconcile: &Reconcile) -> String {
    let trace = build(reconcile);
    let list = trace.root().attributes.iter().map(|(key, value)| format!("{key}={value}"));
    list.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_reconcile_is_a_trace_of_one_span() {
    let trace = build(&reconcile());
    let root = trace.root();
    assert_eq!((trace.kind, trace.spans.len(), &*root.name.as_str()), (TraceKind::Reconcile, 1, "Reconcile"));
    assert_eq!((root.start_unix_ns, root.end_unix_ns), (1_003_500_000, 1_009_000_000));
    assert_eq!(root.status, Status::Unset);
    let expected = "k8s.controller.name=certificate k8s.controller.request=default/web \
                    k8s.controller.result=requeue_after k8s.controller.requeue_after_ms=2.5";
    assert_eq!(attributes(&reconcile()), expected);
}

#[test]
fn an_error_is_the_status_and_a_panic_is_said() {
    let message = || Some("panic: no [recovered]".to_owned());
    let failed = Reconcile { outcome: Some(Outcome::Error), message: message(), ..reconcile() };
    assert_eq!(build(&failed).root().status, Status::Error("panic: no [recovered]".to_owned()));
    assert!(attributes(&failed).ends_with("k8s.controller.result=error"));
    let panicked = Reconcile { panicked: true, ..failed };
    assert!(attributes(&panicked).ends_with("k8s.controller.result=error k8s.controller.panicked=true"));
}

#[test]
fn what_is_not_known_has_no_attribute() {
    let unknown = Reconcile { request: None, outcome: None, incomplete: true, ..reconcile() };
    assert_eq!(attributes(&unknown), "k8s.controller.name=certificate schedspan.incomplete=true");
    assert_eq!(build(&unknown).root().status, Status::Unset);
}

#[test]
fn a_reconcile_is_idle_if_it_succeeded_and_certainly_wrote_nothing() {
    let read = |method: &str| Request {
        method: Some(method.to_owned()),
        status: Some(200),
        path: Some("/api/v1/pods".to_owned()),
        ..Request::default()
    };
    let of =
        |requests| Reconcile { made: Made { requests, are_seen: true, ..Made::default() }, ..reconcile() };
    for (of, expected) in [
        (of(vec![]), true),
        (of(vec![read("GET")]), true),
        (of(vec![read("PATCH")]), false),
        (Reconcile { outcome: Some(Outcome::Success), ..of(vec![]) }, true),
        (Reconcile { outcome: Some(Outcome::Requeue), ..of(vec![]) }, false),
        (Reconcile { outcome: Some(Outcome::Error), ..of(vec![]) }, false),
        (Reconcile { outcome: None, incomplete: true, ..of(vec![]) }, false),
        (reconcile(), false),
    ] {
        assert_eq!(of.is_idle(), expected, "{of:?}");
    }
}

#[test]
fn a_pod_that_it_creates_says_which_controller_did() {
    let object = Object { typ: "*v1.Pod".into(), uid: "u".to_owned(), ..Object::default() };
    let request = Request {
        method: Some("POST".to_owned()),
        status: Some(201),
        path: Some("/api/v1/pods".to_owned()),
        object: Some(object),
        ..Request::default()
    };
    let made = Made { requests: vec![request], ..Made::default() };
    let trace = build(&Reconcile { made, ..reconcile() });
    let list = trace.beside[0].root().attributes.iter().map(|(key, value)| format!("{key}={value}"));
    let expected = "k8s.pod.uid=u k8s.controller.name=certificate k8s.controller.request=default/web";
    assert_eq!(list.collect::<Vec<_>>().join(" "), expected);
}

#[test]
fn the_same_reconcile_has_the_same_ids_and_no_other_has() {
    let ids = |reconcile: &Reconcile| build(reconcile).trace_id;
    assert_eq!(ids(&reconcile()), ids(&reconcile()));
    for other in [
        Reconcile { target: 4, ..reconcile() },
        Reconcile { controller: "job".into(), ..reconcile() },
        Reconcile { request: None, ..reconcile() },
        Reconcile { start_ns: 3_500_001, ..reconcile() },
    ] {
        assert_ne!(ids(&other), ids(&reconcile()));
    }
}
