//! Compares the assembled attempts with what happened.

use std::collections::{HashMap, HashSet};

use gotrace::{
    Role,
    account::{Account, Stats},
    program::Assemble as _,
};
use spans::{Anchor, Gatherer, Origin, Trace};

use super::{
    model::not_a_call,
    script::{Key, Troubles},
};
use crate::{
    Event,
    attempt::{Assembler, Attempt, Subject},
    spans::build,
    table::Function,
    values::Value,
};

const ANCHOR: Anchor = Anchor { unix_ns_at_zero: 1_000 };

pub(super) fn assemble(events: Vec<Event>, troubles: Troubles) -> (Vec<Attempt>, Stats, Account) {
    let mut assembler = Assembler::default();
    let count = events.len() as u64;
    for event in events {
        assembler.on(event);
    }
    assert!(assembler.account().open() <= count, "nothing is counted twice: {:?}", assembler.account());
    if !troubles.losses {
        // No call waits for victims that were being deleted already. A loss at the very end shows in no record.
        assembler.expire(11_000_000_000);
    }
    for target in 0..4 {
        assembler.exit(target);
    }
    (assembler.take_finished(), assembler.stats(), assembler.account())
}

pub(super) fn key(attempt: &Attempt) -> Key {
    let (name, number) = match &attempt.subject {
        Subject::Group { group, .. } => (&group.name, 0),
        _ => (&attempt.pod.uid, attempt.number.expect("the script wrote it")),
    };
    (attempt.target, name.trim_start_matches("uid-").parse().expect("the script wrote it"), number)
}

pub(super) fn of_calls(attempt: &Attempt) -> u64 {
    attempt.calls.iter().map(|call| call.events).sum()
}

/// Every event is in a span, an attribute of one, or counted as lost; and counted once.
pub(super) fn check_account(
    delivered: &[Event],
    attempts: &[Attempt],
    stats: Stats,
    account: Account,
    troubles: Troubles,
) {
    let count = |is: &dyn Fn(&Event) -> bool| delivered.iter().filter(|event| is(event)).count() as u64;
    assert_eq!(account.events, delivered.len() as u64);
    assert_eq!(account.open(), 0, "{account:?}");
    assert_eq!(account.in_attempts, attempts.iter().map(|attempt| attempt.events).sum::<u64>());
    assert_eq!((stats.table_full, account.no_room), (0, 0));
    let Stats { orphan_moves, orphan_facts, .. } = stats;
    // Calls: those in the attempts.
    let of_lost_calls = account.stray + account.orphaned - orphan_moves - orphan_facts;
    let assembled_calls: u64 = attempts.iter().map(of_calls).sum();
    // After a loss or a panic the attempt of an API call may be unknown.
    let calls = count(&|event| !not_a_call(event.function));
    let unclaimed = calls - (assembled_calls + of_lost_calls);
    assert!(unclaimed == 0 || troubles.losses || troubles.panics);
    assert_eq!(account.stray, stats.stray_ends);
    // Pods.
    let popped = |event: &Event| {
        event.function == Function::Pop && event.values.number(Value::QueuedPodInfo).is_some()
    };
    let pods: HashSet<_> = delivered.iter().filter(|event| popped(event)).map(pod_of).collect();
    // One Pod of a group is popped, or none.
    let begins = |attempt: &&Attempt| match attempt.subject {
        Subject::Member(_) => pods.contains(&(attempt.target, Some(attempt.pod.uid.clone()))),
        Subject::Pod | Subject::Group { .. } => true,
    };
    let group = |event: &Event| event.function == Function::PodGroup && event.role == Role::Entry;
    let begun = count(&|event| popped(event) || group(event));
    assert_eq!(begun, attempts.iter().filter(begins).count() as u64 + stats.skipped);
    // The other events of attempts.
    let others = count(&|event| not_a_call(event.function)) - begun;
    let assembled: u64 =
        attempts.iter().map(|attempt| attempt.events - u64::from(begins(&attempt)) - of_calls(attempt)).sum();
    let Account { skipped, unrelated, waiting, .. } = account;
    let lost = orphan_moves + orphan_facts + waiting + (unrelated - unclaimed) + skipped - stats.skipped;
    assert_eq!(others, assembled + lost);
}

pub(super) fn pod_of(event: &Event) -> (u32, Option<String>) {
    (event.target, event.values.text(Value::PodUid).map(str::to_owned))
}

/// Every group comes with its Pods, and every span is inside its parent.
pub(in super::super) fn check_traces(attempts: &[Attempt]) {
    let mut gatherer = Gatherer::default();
    for attempt in attempts {
        assert!(attempt.start_ns <= attempt.end_ns, "{attempt:?}");
        for trace in gatherer.take(build(attempt, ANCHOR, Origin::default())) {
            check_spans(&trace);
        }
    }
    assert!(gatherer.rest().is_empty(), "a group comes after its Pods");
}

/// Every span has a parent and is inside it.
fn check_spans(trace: &Trace) {
    let spans: HashMap<_, _> = trace.spans.iter().map(|span| (span.span_id, span)).collect();
    assert_eq!(spans.len(), trace.spans.len());
    for span in &trace.spans {
        assert!(span.start_unix_ns <= span.end_unix_ns, "{span:?}");
        if let Some(parent) = span.parent_id {
            let parent = spans[&parent];
            assert!(
                parent.start_unix_ns <= span.start_unix_ns && span.end_unix_ns <= parent.end_unix_ns,
                "{span:?} is not inside of {parent:?}"
            );
        }
    }
}

/// The calls of an attempt are those that happened.
pub(super) fn check_calls(attempt: &Attempt, truth: &[(Function, u64, Option<u64>)]) {
    for call in &attempt.calls {
        assert!(call.start_ns <= call.end_ns, "{call:?}");
        let made =
            truth.iter().find(|(function, start, _)| (*function, *start) == (call.function, call.start_ns));
        let Some((.., end)) = made else { panic!("{call:?} is not of this attempt: {truth:?}") };
        assert!(!call.returned || *end == Some(call.end_ns), "{call:?} ended at {end:?}");
    }
    let whole = attempt.calls.len() == truth.len() && attempt.calls.iter().all(|call| call.returned);
    assert!(whole || attempt.incomplete, "{attempt:?} does not say that it lacks something of {truth:?}");
}

/// The calls of an attempt are in the order of their ends.
pub(super) fn check_order(attempt: &Attempt, delivered: &[Event]) {
    let place = |time_ns| delivered.iter().position(|event| event.time_ns == time_ns);
    let places: Vec<_> = attempt.calls.iter().map(|call| place(call.end_ns)).collect();
    assert!(places.is_sorted(), "{places:?} of {attempt:?}");
}

/// The previous attempt is an earlier one of the same Pod in the same process.
pub(super) fn check_links(attempts: &[Attempt]) {
    let started: HashMap<(u32, u64), Key> = attempts
        .iter()
        .filter(|attempt| attempt.subject == Subject::Pod)
        .map(|attempt| ((attempt.target, attempt.start_ns), key(attempt)))
        .collect();
    for attempt in attempts {
        let Some(previous) = &attempt.previous else { continue };
        let (process, pod, number) = started[&(attempt.target, previous.start_ns)];
        assert_eq!((process, pod), (key(attempt).0, key(attempt).1));
        assert!(number < key(attempt).2);
    }
}
