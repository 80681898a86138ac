//! Recordings of real schedulers, one per generation of signatures: a replay yields the expected attempts.
//!
//! The streams in `tests/streams` were recorded by `schedspan record --pid PID --redact`, each on a cluster
//! of two Nodes, where:
//!
//! * three Pods (`pod-1` to `pod-3`) and one that fills the first Node (`pod-4`) are bound;
//! * an unschedulable Pod (`pod-5`) is retried whenever the cluster changes;
//! * a Pod of a higher priority (`pod-6`) preempts `pod-4` and is bound in its place;
//! * a larger Node joins, and `pod-5` is bound there;
//! * another Pod is unschedulable.

use std::{
    collections::HashMap,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use gotrace::{
    account::{Account, Stats},
    pipeline::Found,
    recording::{Replay, Step},
};
use kube_scheduler::{
    KubeScheduler,
    attempt::{Attempt, Code, Outcome},
    spans::build,
    table::Function,
};
use spans::{Anchor, Origin, SpanKind};

/// Version, and the attempts sorted by end: Pod, number of the attempt, whether it was bound.
type Expected = (&'static str, &'static [(&'static str, u64, bool)]);

/// A Pod popped from the backoff queue (1.33 and later) is retried sooner, and may need one more attempt.
const STREAMS: [Expected; 5] = [
    (
        "1.29",
        &[
            ("pod-1", 1, true),
            ("pod-2", 1, true),
            ("pod-3", 1, true),
            ("pod-4", 1, true),
            ("pod-5", 1, false),
            ("pod-6", 1, false),
            ("pod-5", 2, false),
            ("pod-6", 2, true),
            ("pod-5", 3, true),
            ("pod-8", 1, false),
        ],
    ),
    (
        "1.33",
        &[
            ("pod-1", 1, true),
            ("pod-2", 1, true),
            ("pod-3", 1, true),
            ("pod-4", 1, true),
            ("pod-5", 1, false),
            ("pod-6", 1, false),
            ("pod-5", 2, false),
            ("pod-5", 3, false),
            ("pod-6", 2, true),
            ("pod-5", 4, true),
            ("pod-7", 1, false),
        ],
    ),
    (
        "1.34",
        &[
            ("pod-1", 1, true),
            ("pod-2", 1, true),
            ("pod-3", 1, true),
            ("pod-4", 1, true),
            ("pod-5", 1, false),
            ("pod-6", 1, false),
            ("pod-5", 2, false),
            ("pod-5", 3, false),
            ("pod-6", 2, true),
            ("pod-5", 4, true),
            ("pod-7", 1, false),
        ],
    ),
    (
        "1.36",
        &[
            ("pod-1", 1, true),
            ("pod-2", 1, true),
            ("pod-3", 1, true),
            ("pod-4", 1, true),
            ("pod-5", 1, false),
            ("pod-6", 1, false),
            ("pod-5", 2, false),
            ("pod-6", 2, true),
            ("pod-5", 3, true),
            ("pod-7", 1, false),
        ],
    ),
    (
        "1.37",
        &[
            ("pod-1", 1, true),
            ("pod-2", 1, true),
            ("pod-3", 1, true),
            ("pod-4", 1, true),
            ("pod-5", 1, false),
            ("pod-6", 1, false),
            ("pod-5", 2, false),
            ("pod-6", 2, true),
            ("pod-5", 3, true),
            ("pod-7", 1, false),
        ],
    ),
];

fn path(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/streams/{version}.jsonl"))
}

struct Replayed {
    found: Vec<Found>,
    attempts: Vec<(Attempt, Anchor)>,
    stats: Stats,
    account: Account,
    events: u64,
    losses: u64,
}

fn replay(version: &str) -> Replayed {
    let file = File::open(path(version)).expect("it is in the repository");
    let mut replay = Replay::<_, KubeScheduler>::new(BufReader::new(file)).expect("it has a header");
    let (mut found, mut attempts) = (Vec::new(), Vec::new());
    for step in replay.by_ref() {
        match step.expect("it is whole") {
            Step::Found(process) => found.push(*process),
            Step::Finished(attempt, clocks) => {
                attempts.push((attempt, Anchor { unix_ns_at_zero: clocks.unix_ns_at_zero }));
            }
            Step::Gone(_) => {}
        }
    }
    let (stats, account) = (replay.pipeline().stats(), replay.pipeline().account());
    let losses = replay.end().map_or(0, |end| end.losses.values().sum());
    Replayed { found, attempts, stats, account, events: replay.events(), losses }
}

#[test]
fn streams_yield_the_expected_attempts() {
    for (version, expected) in STREAMS {
        let Replayed { found, attempts, .. } = replay(version);
        let [found] = found.as_slice() else { panic!("{version}: one scheduler was recorded: {found:?}") };
        let of = found.identity.kubernetes_version.as_deref().unwrap_or_default();
        assert!(of.starts_with(&format!("v{version}.")), "{of} is no {version}");
        let made: Vec<_> = attempts
            .iter()
            .map(|(attempt, _)| {
                let Attempt { pod, number, outcome, node, incomplete, .. } = attempt;
                assert!(!incomplete, "{version}: {attempt:?}");
                let bound = match outcome {
                    Outcome::Scheduled => node.is_some(),
                    Outcome::Failed { code: Some(Code::UNSCHEDULABLE), reason, .. } if !reason.is_empty() => {
                        false
                    }
                    _ => panic!("{version}: {attempt:?}"),
                };
                (pod.name.as_str(), number.expect("it is read"), bound)
            })
            .collect();
        assert_eq!(made, expected, "{version}");
    }
}

#[test]
fn every_event_is_in_a_span_or_an_attribute_of_one() {
    for (version, _) in STREAMS {
        let Replayed { stats, account, events, losses, attempts, .. } = replay(version);
        assert_eq!((stats, losses), (Stats::default(), 0), "{version}");
        let in_attempts = attempts.iter().map(|(attempt, _)| attempt.events).sum();
        let Account { unrelated, waiting, .. } = account;
        let expected = Account { events, in_attempts, unrelated, waiting, ..Account::default() };
        assert_eq!(account, expected, "{version}");
        assert_eq!(account.open(), 0, "{version}");
    }
}

#[test]
fn every_span_is_inside_its_parent_and_every_plugin_has_its_name() {
    for (version, _) in STREAMS {
        for (attempt, anchor) in replay(version).attempts {
            let trace = build(&attempt, anchor, Origin::default());
            let spans: HashMap<_, _> = trace.spans.iter().map(|span| (span.span_id, span)).collect();
            for span in &trace.spans {
                // The eviction of victims after the attempt has no parent, like the root.
                let parent = span.parent_id.map_or(span, |parent| spans[&parent]);
                assert!(
                    parent.start_unix_ns <= span.start_unix_ns && span.end_unix_ns <= parent.end_unix_ns,
                    "{version}: {span:?} is not inside of {parent:?}"
                );
                assert!(!span.name.as_str().ends_with('?'), "{version}: {span:?} has no name");
            }
            let named = |name: &str| trace.spans.iter().any(|span| span.name == name);
            assert!(
                named("schedulingCycle") && named("preFilter") && named("filter"),
                "{version}: {trace:?}"
            );
            assert!(trace.spans.iter().any(|span| span.kind == SpanKind::Plugin), "{version}: {trace:?}");
            let bound = attempt.outcome == Outcome::Scheduled;
            assert_eq!((named("bind"), named("postBind")), (bound, bound), "{version}");
            assert_eq!(
                (named("postFilter"), named("handleSchedulingFailure")),
                (!bound, !bound),
                "{version}"
            );
        }
    }
}

#[test]
fn attempts_link_to_their_predecessors() {
    for (version, _) in STREAMS {
        let mut last = HashMap::new();
        let attempts = replay(version).attempts;
        assert!(
            attempts.iter().any(|(attempt, _)| attempt.number > Some(1)),
            "{version}: the stream does not test"
        );
        for (attempt, anchor) in &attempts {
            let trace = build(attempt, *anchor, Origin::default());
            let linked: Vec<_> =
                trace.root().links.iter().map(|link| (link.context.trace_id, link.context.span_id)).collect();
            let previous = last.insert(&attempt.pod.uid, (trace.trace_id, trace.root().span_id));
            assert_eq!(linked, previous.into_iter().collect::<Vec<_>>(), "{version}: {attempt:?}");
            assert_eq!(previous.is_some(), attempt.number > Some(1), "{version}: {attempt:?}");
        }
    }
}

#[test]
fn preemption_names_victim_and_node() {
    for (version, _) in STREAMS {
        let attempts = replay(version).attempts;
        let node_of = |pod: &str| {
            let bound =
                attempts.iter().find(|(attempt, _)| attempt.pod.name == pod && attempt.node.is_some());
            bound.and_then(|(attempt, _)| attempt.node.clone()).unwrap_or_default()
        };
        let preempting: Vec<_> =
            attempts.iter().filter_map(|(attempt, _)| attempt.preemption.clone()).collect();
        let [preemption] = preempting.as_slice() else { panic!("{version}: {preempting:?}") };
        assert_eq!(preemption.names, ["pod-4"], "{version}");
        assert_eq!((preemption.node.clone(), preemption.victims), (node_of("pod-4"), 1), "{version}");
        assert_eq!(node_of("pod-6"), node_of("pod-4"), "{version}");
    }
}

#[test]
fn plugins_on_worker_goroutines_are_traced() {
    for (version, _) in STREAMS {
        let attempts = replay(version).attempts;
        let normalized = attempts
            .iter()
            .flat_map(|(attempt, _)| &attempt.calls)
            .filter(|call| call.function == Function::NormalizeScorePlugin);
        assert!(normalized.clone().count() > 0, "{version}: the stream does not test");
        assert!(normalized.clone().all(|call| call.returned && call.plugin.is_some()), "{version}");
    }
}
