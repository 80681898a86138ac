//! Large and small roll-outs.

use std::collections::BTreeMap;

use proptest::prelude::*;
use telemetry::Registry;
use tracecontext::RemoteContext;

use super::*;
use crate::{Evidence, SpanKind, Status, fixtures::scheduled};

const OWNER: [u8; 16] = [7; 16];

/// A trace of a Pod or a reconcile with one span, in that of the owner.
fn trace(kind: TraceKind, uid: &str, result: &str, seconds: u64) -> Trace {
    let mut root =
        Span { links: Vec::new(), status: Status::Unset, parent_id: None, ..scheduled().spans.remove(0) };
    root.kind = SpanKind::Root(kind);
    root.span_id = crate::identity::creation_id(uid);
    root.end_unix_ns = root.start_unix_ns + seconds * 1_000_000_000;
    root.attributes = [(attributes::POD_UID, uid.into())].into_iter().collect();
    if !result.is_empty() {
        root.attributes.push((attributes::LIFECYCLE_RESULT, result.into()));
    }
    let (source, spans) = (Source::Schedspan, vec![root]);
    Trace {
        kind,
        source,
        trace_id: OWNER,
        parent: None,
        selected: None,
        spans,
        names: None,
        beside: Vec::new(),
    }
}

fn lifecycle(number: u64, result: &str, seconds: u64) -> Trace {
    trace(TraceKind::Lifecycle, &format!("pod-{number}"), result, seconds)
}

/// A reconcile that creates these Pods.
fn reconcile(numbers: std::ops::Range<u64>) -> Trace {
    writes(TraceKind::PodCreation, numbers)
}

/// A reconcile that does this to these Pods.
fn writes(kind: TraceKind, numbers: std::ops::Range<u64>) -> Trace {
    let mut reconcile = trace(TraceKind::Reconcile, "", "", 1);
    for number in numbers {
        let creation = trace(kind, &format!("pod-{number}"), "", 1);
        let context = RemoteContext::sampled(OWNER, creation.root().span_id);
        let link = Link { context, relation: Relation::Pod(Evidence::Uid) };
        let request = Span { kind: SpanKind::Request, links: vec![link], ..creation.root().clone() };
        reconcile.spans.push(request);
        reconcile.beside.push(creation);
    }
    reconcile
}

struct Daemon {
    owners: Owners,
    registry: Registry,
    now: Instant,
}

impl Daemon {
    fn new() -> Self {
        let registry = Registry::default();
        Self {
            owners: Owners::new(LifecycleTrace::Owner, Metrics::new(&registry)),
            registry,
            now: Instant::now(),
        }
    }

    fn sends(&mut self, traces: impl IntoIterator<Item = Trace>) -> Vec<Trace> {
        traces.into_iter().flat_map(|trace| self.owners.take(trace, self.now)).collect()
    }

    /// What the metric says is left out.
    fn counted(&self) -> BTreeMap<&'static str, u64> {
        let text = self.registry.encode();
        let count = |what: &LeftOut| {
            let start = format!("schedspan_owner_trace_left_out_total{{what=\"{}\"}} ", what.label());
            let line =
                text.lines().find_map(|line| line.strip_prefix(&start)).expect("it is there from the start");
            (what.label(), line.parse().expect("a number"))
        };
        LeftOut::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect()
    }
}

fn uids(traces: &[Trace]) -> Vec<&str> {
    traces.iter().map(|trace| text(trace.root(), attributes::POD_UID)).collect()
}

fn said(trace: &Trace) -> String {
    trace.root().attribute(attributes::LEFT_OUT).map(ToString::to_string).unwrap_or_default()
}

#[test]
fn a_small_roll_out_is_whole() {
    let mut daemon = Daemon::new();
    let sent = daemon.sends((0..FIRST).map(|number| lifecycle(number, "Ready", 3)));
    assert_eq!(sent.len() as u64, FIRST);
    let sent = daemon.sends([reconcile(0..FIRST)]);
    assert_eq!((sent[0].beside.len() as u64, sent[0].spans.len() as u64), (FIRST, FIRST + 1));
    assert!(sent.iter().all(|trace| said(trace).is_empty()) && daemon.counted().is_empty());
}

#[test]
fn of_a_large_one_the_first_the_failed_the_slowest_and_the_last_are_there_and_the_others_counted() {
    let mut daemon = Daemon::new();
    let mut sent = daemon.sends((0..500).map(|number| match number {
        300 => lifecycle(number, "Failed", 2),
        400 => lifecycle(number, "Ready", 90),
        _ => lifecycle(number, "Ready", 3),
    }));
    assert_eq!(daemon.owners.quiet(daemon.now + QUIET - Duration::from_secs(1)), []);
    sent.extend(daemon.owners.quiet(daemon.now + QUIET));
    let uids = uids(&sent);
    assert!(
        (0..FIRST).chain([300, 400, 499]).all(|number| uids.contains(&&*format!("pod-{number}"))),
        "{uids:?}"
    );
    assert!(sent.len() < 150, "{}", sent.len());
    let left_out = 500 - sent.len() as u64;
    assert_eq!(daemon.counted(), BTreeMap::from([("lifecycle", left_out)]));
    assert_eq!(said(&sent[sent.len() - 1]), format!("lifecycles of this owner: {left_out}"));
}

#[test]
fn of_many_that_failed_some_are_there() {
    let mut daemon = Daemon::new();
    let start = |number: u64| trace(TraceKind::PodStart, &format!("pod-{number}"), "Unfinished", 1_800);
    let mut sent = daemon.sends((0..200).map(start));
    sent.extend(daemon.owners.rest());
    assert!(sent.len() as u64 >= FIRST && sent.len() < 100, "{}", sent.len());
    assert_eq!(daemon.counted(), BTreeMap::from([("failed_start", 200 - sent.len() as u64)]));
}

#[test]
fn pods_that_are_slower_and_slower_are_not_all_there() {
    let mut daemon = Daemon::new();
    let sent = daemon.sends((0..2_000).map(|number| lifecycle(number, "Ready", 10 + number)));
    assert!(sent.len() < 250, "{}", sent.len());
    let slowest =
        sent.iter().map(|trace| trace.root().duration_ns()).max().unwrap_or_default() / 1_000_000_000;
    assert!(slowest * (SLOWER + 1) / SLOWER >= 2_009, "{slowest}");
}

#[test]
fn creations_leave_a_reconcile_with_their_requests_and_its_root_says_how_many() {
    let mut daemon = Daemon::new();
    let sent = daemon.sends([reconcile(0..500)]);
    let [reconcile] = &sent[..] else { panic!("{} traces", sent.len()) };
    assert_eq!(reconcile.spans.len(), reconcile.beside.len() + 1);
    assert!(reconcile.beside.len() < 150);
    let left_out = 500 - reconcile.beside.len();
    assert_eq!(said(reconcile), format!("creations of this owner: {left_out}"));
    assert_eq!(daemon.counted(), BTreeMap::from([("creation", left_out as u64)]));
}

#[test]
fn deletions_and_evictions_leave_a_reconcile_too() {
    let mut daemon = Daemon::new();
    let of = [(TraceKind::PodDeletion, 0..400), (TraceKind::PodEviction, 400..500)];
    let sent = daemon.sends(of.map(|(kind, pods)| writes(kind, pods)));
    let stayed: usize = sent.iter().map(|reconcile| reconcile.beside.len()).sum();
    assert!((32..150).contains(&stayed), "{stayed} are there");
    assert_eq!(daemon.counted()["removal"], 500 - stayed as u64);
}

#[test]
fn what_was_done_to_pods_by_no_reconcile_is_bounded() {
    for (kind, what) in [
        (TraceKind::PodStorage, "storage"),
        (TraceKind::PodDeletion, "removal"),
        (TraceKind::PodEviction, "removal"),
    ] {
        let mut daemon = Daemon::new();
        let sent = daemon.sends((0..500).map(|number| trace(kind, &format!("pod-{number}"), "", 1)));
        assert!((32..150).contains(&sent.len()), "{} are there", sent.len());
        // The last one may follow.
        assert!(daemon.counted()[what] + sent.len() as u64 + 1 >= 500);
        let alone = |number: u64| {
            let uid = format!("pod-{number}");
            Trace { trace_id: lifecycle_id(&uid), ..trace(kind, &uid, "", 1) }
        };
        assert_eq!(daemon.sends((0..500).map(alone)).len(), 500, "Pods without an owner");
    }
}

#[test]
fn a_reconcile_of_which_no_creation_stays_is_left_out_unless_it_is_the_last() {
    let mut daemon = Daemon::new();
    let mut sent = daemon.sends((0..500).map(|number| reconcile(number..number + 1)));
    assert!(sent.len() < 150 && sent.iter().all(|reconcile| reconcile.beside.len() == 1));
    let without = 500 - sent.len() as u64;
    sent.extend(daemon.owners.rest());
    let last = &sent[sent.len() - 1];
    if last.beside.is_empty() {
        assert_eq!(
            said(last),
            format!("creations of this owner: {without}, reconciles of this owner: {}", without - 1)
        );
    }
    assert_eq!(daemon.counted()["creation"], without);
}

#[test]
fn what_is_in_no_trace_of_an_owner_is_not_bounded() {
    let mut daemon = Daemon::new();
    let alone = |number: u64| {
        let trace = lifecycle(number, "Ready", 1);
        Trace { trace_id: lifecycle_id(&format!("pod-{number}")), ..trace }
    };
    let below = |number| Trace {
        parent: Some(RemoteContext::sampled(OWNER, [1; 8])),
        ..lifecycle(number, "Ready", 1)
    };
    let other = |_| Trace { beside: Vec::new(), ..reconcile(0..1) };
    let sent = daemon.sends((0..300).map(alone).chain((0..300).map(below)).chain((0..300).map(other)));
    assert_eq!((sent.len(), daemon.owners.by_trace.len()), (900, 0));
}

#[test]
fn pods_with_traces_of_their_own_are_not_counted() {
    let mut daemon = Daemon::new();
    daemon.owners = Owners::new(LifecycleTrace::Pod, Metrics::new(&Registry::default()));
    assert_eq!(daemon.sends((0..300).map(|number| lifecycle(number, "Ready", 1))).len(), 300);
    assert!(daemon.owners.by_trace.is_empty());
}

#[test]
fn the_last_of_a_process_that_ends_is_sent_before() {
    let mut daemon = Daemon::new();
    let of = |number: u64| {
        let source = Source::OtherProgram(number as u32 % 2);
        Trace { source, ..lifecycle(number, "Ready", 1) }
    };
    daemon.sends((0..500).map(of));
    let held = |daemon: &Daemon| daemon.owners.held_spans;
    let other = Source::OtherProgram(5);
    assert_eq!((daemon.owners.gone(other).len(), held(&daemon)), (0, 1));
    let ended: usize = (0..2).map(|process| daemon.owners.gone(Source::OtherProgram(process)).len()).sum();
    assert_eq!((ended, held(&daemon)), (1, 0));
}

#[test]
fn owners_and_what_waits_are_bounded() {
    let mut daemon = Daemon::new();
    for number in 0..MAX_OWNERS as u64 + 10 {
        let mut trace_id = OWNER;
        trace_id[..8].copy_from_slice(&number.to_be_bytes());
        daemon.now += Duration::from_millis(1);
        daemon.sends((0..FIRST + 8).map(|number| {
            let mut trace = Trace { trace_id, ..lifecycle(number, "Ready", 1) };
            trace.spans.resize(if number < FIRST { 1 } else { 64 }, trace.spans[0].clone());
            trace
        }));
    }
    let Owners { by_trace, held_spans, .. } = &daemon.owners;
    let held = by_trace.values().flat_map(|owner| &owner.parts).filter_map(|part| part.held.as_deref());
    let held: usize = held.map(size).sum();
    assert_eq!((by_trace.len(), *held_spans), (MAX_OWNERS, held));
    assert!(held > 0 && held <= MAX_HELD_SPANS, "{held}");
}

proptest! {
    #[test]
    fn a_pod_that_is_chosen_among_many_is_chosen_among_fewer(uid in "[0-9a-f]{8}", many in 1..5_000_u64, fewer in 1..5_000_u64) {
        if fewer <= many && is_chosen(&uid, many) {
            prop_assert!(is_chosen(&uid, fewer));
        }
    }

    #[test]
    fn each_trace_is_sent_once_or_counted(results in proptest::collection::vec(0..3_u64, 0..400)) {
        let mut daemon = Daemon::new();
        let all = results.len();
        let traces = results.iter().enumerate().map(|(number, seconds)| {
            lifecycle(number as u64, if *seconds == 0 { "Failed" } else { "Ready" }, *seconds)
        });
        let mut sent = daemon.sends(traces);
        sent.extend(daemon.owners.rest());
        let mut uids = uids(&sent);
        uids.sort_unstable();
        uids.dedup();
        prop_assert_eq!((uids.len(), sent.len() as u64 + daemon.counted().values().sum::<u64>()), (sent.len(), all as u64));
    }
}

/// A Pod that is not chosen as the one with this number.
fn not_chosen(number: u64) -> u64 {
    (1_000..).find(|pod| !is_chosen(&format!("pod-{pod}"), number)).expect("half of them are not")
}

#[test]
fn a_pod_is_slow_if_it_takes_more_than_a_quarter_longer_than_the_slowest_before() {
    for (nanoseconds, is_there) in [(5_000_000_000, false), (5_000_000_001, true)] {
        let mut daemon = Daemon::new();
        daemon.sends((0..FIRST).map(|number| lifecycle(number, "Ready", 4)));
        let mut slow = lifecycle(not_chosen(FIRST + 1), "Ready", 0);
        slow.spans[0].end_unix_ns += nanoseconds;
        assert_eq!(!daemon.sends([slow]).is_empty(), is_there, "{nanoseconds}");
    }
}

#[test]
fn the_first_reconciles_that_fail_are_there_whatever_succeeded_before() {
    let mut daemon = Daemon::new();
    daemon.sends([reconcile(0..500)]);
    let failed = (0..10).map(|number| {
        let pod = not_chosen(501) + number;
        let mut failed = reconcile(pod..pod + 1);
        failed.spans[0].status = Status::Error("conflict".to_owned());
        failed
    });
    assert_eq!(daemon.sends(failed).len(), 10);
}

#[test]
fn starts_that_succeeded_are_counted_apart_from_those_that_failed() {
    let mut daemon = Daemon::new();
    let start = |number: u64| trace(TraceKind::PodStart, &format!("pod-{number}"), "Ready", 1);
    daemon.sends((0..200).map(start));
    assert_eq!(daemon.counted().into_keys().collect::<Vec<_>>(), ["start"]);
}

#[test]
fn what_waits_may_fill_the_room_but_not_exceed_it() {
    for (spans, left_out) in [(MAX_HELD_SPANS, 0), (MAX_HELD_SPANS + 1, 1)] {
        let mut daemon = Daemon::new();
        daemon.sends((0..FIRST).map(|number| lifecycle(number, "Ready", 1)));
        let mut last = lifecycle(not_chosen(FIRST + 1), "Ready", 1);
        last.spans.resize(spans, last.spans[0].clone());
        assert!(daemon.sends([last]).is_empty());
        assert_eq!(daemon.counted().values().sum::<u64>(), left_out);
        assert_eq!(daemon.owners.rest().len() as u64, 1 - left_out);
    }
}

#[test]
fn what_is_left_out_follows_what_the_root_says_already() {
    let mut daemon = Daemon::new();
    let mut reconcile = reconcile(0..500);
    let known = AttributeValue::Strings(vec!["2 Pods elsewhere".to_owned()]);
    reconcile.spans[0].attributes.push((attributes::LEFT_OUT, known));
    let sent = daemon.sends([reconcile]);
    let lines = sent[0].root().attributes.iter().filter(|(key, _)| *key == attributes::LEFT_OUT);
    let [(_, AttributeValue::Strings(lines))] = lines.collect::<Vec<_>>()[..] else { panic!("not one list") };
    assert_eq!((lines.len(), &*lines[0]), (2, "2 Pods elsewhere"));
}

#[test]
fn the_spans_of_a_trace_are_its_own_and_those_beside_it() {
    assert_eq!(size(&reconcile(0..3)), 1 + 3 + 3);
}
