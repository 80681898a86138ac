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
    Role,
    account::{Account, Stats},
    governor::Cut,
    pipeline::Found,
    program::{Assemble as _, Function as _},
    recording::{Line, Reader, Replay, Step},
};
use kube_scheduler::{
    Event, KubeScheduler,
    attempt::{Assembler, Attempt, Call, Code, Outcome, Pod},
    attempt_log::AttemptLog,
    explain,
    spans::build,
    table::Function,
    values::Value,
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
fn what_is_kept_of_an_attempt_tells_what_its_trace_tells() {
    for (version, _) in STREAMS {
        for (attempt, anchor) in replay(version).attempts {
            let trace = build(&attempt, anchor, Origin::default());
            let log = AttemptLog::new(1);
            log.add(&trace);
            let report = log.report(&attempt.pod.namespace, &attempt.pod.name, true, 0);
            assert_eq!(report.attempts, [explain::Account::of(&trace)], "{version}");
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

/// The events of a recording, with what the binding cycle has said itself since: of which Pod it is, on which Node, and whether it
/// succeeded.
fn events(version: &str, attempts: &[Attempt]) -> Vec<Event> {
    let file = File::open(path(version)).expect("it is in the repository");
    let reader = Reader::<_, KubeScheduler>::new(BufReader::new(file)).expect("it has a header");
    let event = |line| if let Line::Event(event) = line { Some(event.into_owned()) } else { None };
    let lines = reader.map(|line| line.expect("it is whole"));
    let mut events: Vec<Event> = lines.filter_map(event).collect();
    for event in events.iter_mut().filter(|event| event.function == Function::BindingCycle) {
        let is_it = |call: &Call| {
            call.function == event.function && [call.start_ns, call.end_ns].contains(&event.time_ns)
        };
        let of =
            attempts.iter().find(|attempt| attempt.calls.iter().any(is_it)).expect("it is in an attempt");
        if event.role == Role::Entry {
            event.values.set(Value::PodUid, of.pod.uid.clone());
            event.values.set(Value::NodeName, of.node.clone());
        } else {
            event.values.set(Value::StatusCode, u64::from(of.outcome != Outcome::Scheduled));
        }
    }
    events
}

/// What counts of attempts are by, and what a root has at least: Pod, number, result, profile and Node.
type Root = (String, Option<u64>, String, String, Option<String>);

fn roots<'a>(attempts: impl IntoIterator<Item = &'a Attempt>) -> Vec<Root> {
    let root = |attempt: &Attempt| {
        let result = match &attempt.outcome {
            Outcome::Scheduled => "Scheduled".to_owned(),
            Outcome::Failed { code, .. } => code.map_or_else(String::new, |code| code.to_string()),
            Outcome::Unknown => panic!("{attempt:?} has no result"),
        };
        let Pod { uid, profile, .. } = attempt.pod.clone();
        (uid, attempt.number, result, profile, attempt.node.clone())
    };
    let mut roots: Vec<_> = attempts.into_iter().map(root).collect();
    roots.sort();
    roots
}

/// Replays events, where `cut` says before which something else is cut; what is cut does not come.
fn replay_cut(events: &[Event], cut: impl Fn(usize) -> Option<Cut>) -> Vec<Attempt> {
    let (mut assembler, mut is_cut) = (Assembler::default(), Cut::Nothing);
    for (place, event) in events.iter().enumerate() {
        if let Some(to) = cut(place) {
            is_cut = to;
            assembler.cut(event.target, event.time_ns, to);
        }
        if is_cut.keeps_detail(event.function.detail_at(event.role)) {
            assembler.on(event.clone());
        }
    }
    let last = events.last().expect("it has events");
    assembler.expire(last.time_ns + 120_000_000_000);
    assembler.exit(last.target);
    let stats = assembler.stats();
    assert_eq!(
        (stats.incomplete_attempts, stats.unwound_calls, stats.orphan_calls, stats.orphan_facts),
        (0, 0, 0, 0)
    );
    assert_eq!(assembler.account().open(), 0);
    let attempts = assembler.take_finished();
    assert!(attempts.iter().all(|attempt| !attempt.incomplete));
    attempts
}

#[test]
fn without_phases_there_are_as_many_attempts_with_the_same_results() {
    for (version, _) in STREAMS {
        let whole: Vec<_> = replay(version).attempts.into_iter().map(|(attempt, _)| attempt).collect();
        let events = events(version, &whole);
        for cut in Cut::ALL {
            let attempts = replay_cut(&events, |place| (place == 0).then_some(cut));
            assert_eq!(roots(&attempts), roots(&whole), "{version} without {}", cut.name());
            assert!(attempts.iter().all(|attempt| attempt.cut == cut));
        }
        let attempts = replay_cut(&events, |place| (place == 0).then_some(Cut::Phases));
        for attempt in &attempts {
            let calls: Vec<_> = attempt.calls.iter().map(|call| call.function).collect();
            let is_bound = attempt.outcome == Outcome::Scheduled;
            assert_eq!(calls, vec![Function::BindingCycle; usize::from(is_bound)], "{version}");
            let hits = if is_bound { 3 } else { 2 };
            assert_eq!(attempt.events, hits, "{version}: {attempt:?}");
        }
    }
}

#[test]
fn phases_that_go_or_come_back_in_the_middle_of_an_attempt_change_no_result() {
    for (version, _) in STREAMS {
        let whole: Vec<_> = replay(version).attempts.into_iter().map(|(attempt, _)| attempt).collect();
        let events = events(version, &whole);
        for at in (1..events.len()).step_by(3) {
            for [before, after] in [[Cut::Nothing, Cut::Phases], [Cut::Phases, Cut::Nothing]] {
                let attempts = replay_cut(&events, |place| match place {
                    0 => Some(before),
                    place => (place == at).then_some(after),
                });
                assert_eq!(roots(&attempts), roots(&whole), "{version}: {before:?} before event {at}");
            }
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
