//! Bounds of tables and of waiting.

use gotrace::{
    Role,
    account::{Account, Count, Stats},
    program::Assemble as _,
};

use super::{
    LOOP, event,
    scenarios::{Fate, counted, queued, scene},
};
use crate::{
    Event, Values,
    attempt::{Assembler, Attempt, QUEUE_INCOMING_PODS, QUEUE_PHASE_CALLS, QUEUE_PHASE_NANOSECONDS},
    table::Function,
    values::Value,
};

/// Ends the process: all events are accounted for.
fn to_the_end(events: impl IntoIterator<Item = Event>) -> (Vec<Attempt>, Stats, Account) {
    let mut assembler = Assembler::default();
    events.into_iter().for_each(|event| assembler.on(event));
    assembler.exit(0);
    assert_eq!(assembler.account().open(), 0, "{:?}", assembler.account());
    (assembler.take_finished(), assembler.stats(), assembler.account())
}

/// Begins and ends of calls of the loop, all in its attempt.
fn begun(depths: impl Iterator<Item = u64>, ends: bool) -> Vec<Event> {
    let mut events = vec![
        event(LOOP, Function::Pop, Role::ReturnSite, 50, queued(1, 0x8000)),
        event(LOOP, Function::SchedulingCycle, Role::Entry, 100, Values::default()),
    ];
    for depth in depths {
        events.push(event(LOOP, Function::PreFilter, Role::Entry, depth, Values::default()));
        if ends {
            events.push(event(LOOP, Function::PreFilter, Role::ReturnSite, depth, Values::default()));
        }
    }
    events
}

#[test]
fn a_goroutine_has_32_open_calls() {
    let (attempts, stats, account) = to_the_end(begun((0..31).map(|depth| 200 + depth), false));
    assert_eq!((attempts[0].calls.len(), stats.table_full, account.no_room), (32, 0, 0));
    let (attempts, stats, account) = to_the_end(begun((0..36).map(|depth| 200 + depth), false));
    assert_eq!((attempts[0].calls.len(), stats.table_full, account.no_room), (32, 5, 5));
}

#[test]
fn an_attempt_has_1024_calls() {
    let (attempts, stats, account) = to_the_end(begun((0..1_023).map(|_| 200), true));
    assert_eq!((attempts[0].calls.len(), stats.table_full, account.no_room), (1_024, 0, 0));
    let (attempts, stats, account) = to_the_end(begun((0..1_030).map(|_| 200), true));
    // The scheduling cycle as well, whose end is that of the process.
    assert_eq!((attempts[0].calls.len(), stats.table_full, account.no_room), (1_024, 7, 13));
}

#[test]
fn a_process_has_65536_attempts() {
    let pop = |number: u64| event(number, Function::Pop, Role::ReturnSite, 50, queued(number, number));
    let (_, stats, account) = to_the_end((1..=65_536).map(pop));
    assert_eq!((stats.table_full, account.no_room), (0, 0));
    // One of them comes from the backoff queue.
    let from_backoff = counted(65_538, "active", "PopFromBackoffQ");
    let (_, stats, account) = to_the_end((1..=65_537).map(pop).chain([from_backoff, pop(65_538)]));
    assert_eq!((stats.table_full, account.no_room), (2, 3));
}

#[test]
fn a_process_that_fills_a_table_leaves_the_others_their_part() {
    let pop = |target: u32, number: u64| Event {
        target,
        ..event(number, Function::Pop, Role::ReturnSite, 50, queued(number, number))
    };
    let mut assembler = Assembler::default();
    assembler.on(pop(1, 1));
    (1..=40_000).for_each(|number| assembler.on(pop(2, number)));
    assert_eq!(assembler.account().no_room, 40_000 - 32_768);
    (2..=32_768).for_each(|number| assembler.on(pop(1, number)));
    assert_eq!(assembler.account().no_room, 40_000 - 32_768);
    assembler.on(pop(1, 32_769));
    assert_eq!(assembler.account().no_room, 40_001 - 32_768);
    // When the other process has ended, the whole table is this one's.
    assembler.exit(2);
    assembler.on(pop(1, 32_769));
    assert_eq!(assembler.account().no_room, 40_001 - 32_768);
}

#[test]
fn a_loss_in_one_process_leaves_the_attempts_of_another_alone() {
    let scene = scene(1, Fate::Bound, 1);
    let events = || scene.scheduling.iter().chain(&scene.binding).cloned();
    let mut assembler = Assembler::default();
    // Of the second process, a record is lost in the scheduling cycle.
    for (number, event) in (0..).zip(events()) {
        assembler.on(event.clone());
        assembler.on(Event { target: 1, last_loss: u64::from(number > 4), ..event });
    }
    let (whole, cut): (Vec<_>, Vec<_>) =
        assembler.take_finished().into_iter().partition(|attempt| attempt.target == 0);
    assert!(matches!(&whole[..], [attempt] if !attempt.incomplete), "{whole:?}");
    assert!(!cut.is_empty() && cut.iter().all(|attempt| attempt.incomplete), "{cut:?}");
}

#[test]
fn at_most_4096_goroutines_are_known_to_pop_from_the_backoff_queue() {
    let taken = |number: u64| counted(number, "active", "PopFromBackoffQ");
    let (_, stats, account) = to_the_end((1..=4_096).map(taken));
    assert_eq!((stats.table_full, account.no_room, account.waiting), (0, 0, 4_096));
    let (_, stats, account) = to_the_end((1..=4_097).map(taken));
    assert_eq!((stats.table_full, account.no_room, account.waiting), (4_096, 4_096, 1));
}

#[test]
fn a_missing_failure_is_waited_for_less_long_than_a_permit() {
    let mut scene = scene(1, Fate::NotBound, 1);
    // Neither its beginning nor its end.
    scene.binding.truncate(scene.binding.len() - 2);
    let mut assembler = Assembler::default();
    scene.scheduling.into_iter().chain(scene.binding).for_each(|event| assembler.on(event));
    assembler.expire(10_000_000_000);
    assert_eq!(assembler.take_finished().len(), 0);
    assembler.expire(10_000_000_001);
    let attempts = assembler.take_finished();
    assert_eq!((attempts.len(), attempts[0].incomplete), (1, true));
    assert_eq!(assembler.stats(), Stats { incomplete_attempts: 1, ..Stats::default() });
}

#[test]
fn entries_into_queues_are_counted_by_queue_and_event() {
    let mut assembler = Assembler::default();
    let mut other = counted(7, "active", "NodeAdd");
    other.values.set(Value::Labels, 3);
    let events = [
        counted(7, "active", "NodeAdd"),
        counted(8, "active", "NodeAdd"),
        counted(7, "backoff", "NodeAdd"),
        counted(7, "unschedulable", "ScheduleAttemptFailure"),
        // Other metrics.
        counted(7, "NodeResourcesFit", "NodeAdd"),
        other,
    ];
    events.into_iter().for_each(|event| assembler.on(event));
    let count = |queue: &str, event: &str, total| Count {
        counter: QUEUE_INCOMING_PODS.name,
        labels: vec![queue.to_owned(), event.to_owned()],
        total,
    };
    let expected = [
        count("active", "NodeAdd", 2),
        count("backoff", "NodeAdd", 1),
        count("unschedulable", "ScheduleAttemptFailure", 1),
    ];
    assert_eq!(assembler.counts(), expected);
}

#[test]
fn phases_in_the_queue_are_counted_by_status_whether_or_not_their_entry_was_seen() {
    let mut assembler = Assembler::default();
    let end = |function, code: Option<i64>| {
        let values = Values::default().with(Value::StatusCode, code).with(Value::StartedNs, 5);
        Event { time_ns: 8, ..event(7, function, Role::Metric, 60, values) }
    };
    let entry = event(7, Function::PreEnqueue, Role::Entry, 40, Values::default());
    let ends = [Some(0), Some(0), Some(3), Some(99), None].map(|code| end(Function::PreEnqueue, code));
    for event in [entry].into_iter().chain(ends).chain([end(Function::Sign, None)]) {
        assembler.on(event);
    }
    let calls = |phase: &str, status: &str, total| Count {
        counter: QUEUE_PHASE_CALLS.name,
        labels: vec![phase.to_owned(), status.to_owned()],
        total,
    };
    let nanoseconds = |phase: &str, total| Count {
        counter: QUEUE_PHASE_NANOSECONDS.name,
        labels: vec![phase.to_owned()],
        total,
    };
    let expected = [
        calls("preEnqueue", "unknown", 2),
        calls("preEnqueue", "Success", 2),
        calls("preEnqueue", "UnschedulableAndUnresolvable", 1),
        calls("sign", "Success", 1),
        nanoseconds("preEnqueue", 15),
        nanoseconds("sign", 3),
    ];
    assert_eq!(assembler.counts(), expected);
}

#[test]
fn signatures_that_no_pod_takes_are_forgotten_without_a_loss() {
    let sign = |pod: u64| {
        let entry = Values::default().with(Value::Pod, pod);
        [
            event(7, Function::Sign, Role::Entry, 40, entry),
            event(7, Function::Sign, Role::Metric, 60, Values::default()),
        ]
    };
    let (_, stats, account) = to_the_end((1..=65_540).flat_map(sign));
    assert_eq!((stats, account.waiting), (Stats::default(), 2 * 65_540));
}

#[test]
fn queue_events_beyond_512_names_are_counted_together() {
    let mut assembler = Assembler::default();
    for _ in 0..2 {
        (0..515).for_each(|number| assembler.on(counted(7, "active", &format!("event-{number}"))));
    }
    let counts = assembler.counts();
    let of = |event: &str| counts.iter().find(|count| count.labels[1] == event).map(|count| count.total);
    assert_eq!((counts.len(), of("event-0"), of("event-511")), (513, Some(2), Some(2)));
    assert_eq!((of("event-512"), of("other")), (None, Some(6)));
}
