//! What is said of a reconcile.

use spans::{Anchor, Origin, Story as _, Trace, TraceKind, story::Extras};

use crate::{reconcile::Reconcile, requests::Made};

const ANCHOR: Anchor = Anchor { unix_ns_at_zero: 1_000_000_000 };

fn build(reconcile: &Reconcile) -> Trace {
    reconcile.trace(ANCHOR, Origin::default(), Extras::default())
}

fn reconcile() -> Reconcile {
    Reconcile {
        target: 3,
        queue: "deployment".into(),
        key: Some("default/web".to_owned()),
        added_ns: Some(1_000_000),
        seen_ns: 3_500_000,
        start_ns: 3_500_000,
        end_ns: 9_000_000,
        retried: true,
        made: Made::default(),
        incomplete: false,
        events: 4,
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
    let expected = "k8s.workqueue.name=deployment k8s.workqueue.key=default/web k8s.workqueue.wait_ms=2.5 \
                    k8s.workqueue.retried=true";
    assert_eq!(attributes(&reconcile()), expected);
}

#[test]
fn what_is_not_known_has_no_attribute() {
    let unknown = Reconcile { key: None, added_ns: None, retried: false, incomplete: true, ..reconcile() };
    let expected = "k8s.workqueue.name=deployment k8s.workqueue.retried=false schedspan.incomplete=true";
    assert_eq!(attributes(&unknown), expected);
}

#[test]
fn the_same_reconcile_has_the_same_ids_and_no_other_has() {
    let ids = |reconcile: &Reconcile| build(reconcile).trace_id;
    assert_eq!(ids(&reconcile()), ids(&reconcile()));
    for other in [
        Reconcile { target: 4, ..reconcile() },
        Reconcile { queue: "job".into(), ..reconcile() },
        Reconcile { key: None, ..reconcile() },
        Reconcile { seen_ns: 3_500_001, ..reconcile() },
    ] {
        assert_ne!(ids(&other), ids(&reconcile()));
    }
}
