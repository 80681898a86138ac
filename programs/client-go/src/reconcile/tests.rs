//! What is said of single reconciles.

use std::sync::Arc;

use gotrace::{Role, account::Account, governor::Cut, program::Assemble as _, values::Datum};

use super::{Assembler, COUNTERS, Reconcile};
use crate::{
    Event, Values,
    requests::{Finished, Made},
    table::Function,
    values::Value,
};

/// Addresses of the metrics of two queues.
const DEPLOYMENT: (u64, &str) = (0x100, "deployment");
const REPLICASET: (u64, &str) = (0x200, "replicaset");
/// Address of what counts the first one's retries.
const RETRIES: u64 = 0x108;

fn event(time_ns: u64, goroutine: u64, function: Function, (metrics, name): (u64, &str)) -> Event {
    let mut values = Values::default().with(Value::Metrics, metrics);
    if function != Done {
        values.set(Value::Queue, name);
    }
    Event {
        target: 1,
        time_ns,
        goroutine,
        depth: 0,
        function,
        role: Role::Entry,
        took_ns: 0,
        last_loss: 0,
        values,
    }
}

fn of_key(mut event: Event, parts: &[&str]) -> Event {
    let parts = parts.iter().map(|part| Some((*part).to_owned())).collect();
    event.values.set(Value::Key, Datum::Texts(parts));
    event
}

fn of_word(mut event: Event, word: u64) -> Event {
    event.values.set(Value::Word, word);
    event
}

fn call(time_ns: u64, goroutine: u64, function: Function, key: &str) -> Event {
    of_key(event(time_ns, goroutine, function, DEPLOYMENT), &[key])
}

fn after(events: impl IntoIterator<Item = Event>) -> Assembler {
    let mut assembler = Assembler::default();
    events.into_iter().for_each(|event| assembler.on(event));
    assembler
}

/// The reconciles that are over.
pub(super) fn finished(assembler: &mut Assembler) -> Vec<Reconcile> {
    assembler.take_finished().iter().filter_map(Finished::reconcile).cloned().collect()
}

/// What comes of events, and nothing of which is left open.
fn reconciles(events: impl IntoIterator<Item = Event>) -> Vec<Reconcile> {
    let mut assembler = after(events);
    let finished = finished(&mut assembler);
    assembler.exit(1);
    assert_eq!(assembler.account().open(), 0);
    finished
}

fn times(reconciles: &[Reconcile]) -> Vec<(Option<u64>, u64, u64)> {
    reconciles.iter().map(|reconcile| (reconcile.added_ns, reconcile.start_ns, reconcile.end_ns)).collect()
}

fn counts(assembler: &Assembler) -> Vec<String> {
    let of_queues = |counter: &str| COUNTERS[..2].iter().any(|own| own.name == counter);
    let counts = assembler.counts().into_iter().filter(|count| of_queues(count.counter));
    counts.map(|count| format!("{}{:?} {}", count.counter, count.labels, count.total)).collect()
}

use Function::{Add, Count, Done, Get, Retry};

#[test]
fn a_reconcile_is_what_a_worker_does_with_a_key() {
    let finished = reconciles([
        call(10, 1, Add, "default/a"),
        call(30, 2, Get, "default/a"),
        call(90, 2, Done, "default/a"),
    ]);
    let expected = Reconcile {
        target: 1,
        queue: Arc::from("deployment"),
        key: Some("default/a".to_owned()),
        added_ns: Some(10),
        seen_ns: 30,
        start_ns: 30,
        end_ns: 90,
        retried: false,
        made: Made::default(),
        incomplete: false,
        events: 3,
    };
    assert_eq!(finished[0].waited_ns(), Some(20));
    assert_eq!(finished, [expected]);
}

#[test]
fn the_hit_at_which_a_key_is_taken_may_have_the_time_of_its_addition() {
    let mut get = Event { role: Role::Metric, took_ns: 3, ..call(30, 2, Get, "a") };
    get.values.set(Value::Since, 10);
    let mut assembler = after([get, call(90, 2, Done, "a")]);
    // The process takes the time of the wait when the hit is over.
    let finished = finished(&mut assembler);
    assert_eq!((finished[0].waited_ns(), finished[0].events), (Some(23), 2));
    assert_eq!(counts(&assembler)[0], r#"workqueue_adds["deployment"] 1"#);
    assembler.exit(1);
    assert_eq!(assembler.account().open(), 0);
}

#[test]
fn the_hit_at_the_end_may_have_the_time_at_which_the_key_was_taken() {
    let get = || {
        let mut get = Event { role: Role::Metric, took_ns: 3, ..call(50_000_030, 2, Get, "a") };
        get.values.set(Value::Since, 10_u64);
        get
    };
    let done = |since: u64| {
        let mut done = Event { role: Role::Metric, took_ns: 2, ..call(50_000_090, 2, Done, "a") };
        done.values.set(Value::Since, since);
        done
    };
    let times = |since| times(&reconciles([get(), done(since)]));
    // The process takes the end when the hit is over.
    assert_eq!(times(50_000_028), [(Some(5), 50_000_028, 50_000_092)]);
    assert_eq!(times(50_000_040), [(Some(7), 50_000_030, 50_000_092)], "a start after the hit");
    assert_eq!(times(0), [(Some(0), 40_000_030, 50_000_092)], "a start that is too early");
}

#[test]
fn parts_of_a_key_are_joined() {
    let parts = ["default", "a"];
    let finished = reconciles([
        of_key(event(1, 1, Get, DEPLOYMENT), &parts),
        of_key(event(2, 1, Done, DEPLOYMENT), &parts),
    ]);
    assert_eq!(finished[0].key.as_deref(), Some("default/a"));
}

#[test]
fn a_key_that_is_added_while_it_is_worked_on_waits_for_the_next_reconcile() {
    let finished = reconciles([
        call(10, 1, Add, "a"),
        call(20, 2, Get, "a"),
        call(30, 1, Add, "a"),
        call(40, 2, Done, "a"),
        call(50, 3, Get, "a"),
        call(60, 3, Done, "a"),
    ]);
    assert_eq!(times(&finished), [(Some(10), 20, 40), (Some(30), 50, 60)]);
}

#[test]
fn another_goroutine_may_be_done_with_a_key() {
    let finished = reconciles([
        call(1, 1, Get, "a"),
        call(2, 1, Get, "b"),
        call(3, 7, Done, "b"),
        call(4, 8, Done, "a"),
    ]);
    assert_eq!(times(&finished), [(None, 2, 3), (None, 1, 4)]);
}

#[test]
fn the_same_key_in_two_queues_is_two_reconciles() {
    let other = |time_ns, function| of_key(event(time_ns, 2, function, REPLICASET), &["a"]);
    let finished = reconciles([call(1, 1, Get, "a"), other(2, Get), call(3, 1, Done, "a"), other(4, Done)]);
    let queues: Vec<_> = finished.iter().map(|reconcile| (&*reconcile.queue, reconcile.end_ns)).collect();
    assert_eq!(queues, [("deployment", 3), ("replicaset", 4)]);
}

#[test]
fn a_pointer_is_a_key_without_a_name() {
    let word =
        |time_ns, goroutine, function, word| of_word(event(time_ns, goroutine, function, DEPLOYMENT), word);
    let finished =
        reconciles([word(1, 1, Add, 5), word(2, 2, Get, 5), word(3, 2, Get, 6), word(4, 9, Done, 5)]);
    assert_eq!(times(&finished), [(Some(1), 2, 4)]);
    assert_eq!(finished[0].key, None);
}

#[test]
fn a_key_that_was_not_read_is_paired_by_its_goroutine() {
    let finished = reconciles([
        event(1, 1, Get, DEPLOYMENT),
        event(2, 2, Get, DEPLOYMENT),
        event(3, 1, Done, DEPLOYMENT),
        event(4, 2, Done, DEPLOYMENT),
    ]);
    assert_eq!(times(&finished), [(None, 1, 3), (None, 2, 4)]);
}

#[test]
fn a_copy_behind_an_any_is_paired_by_its_goroutine() {
    let word = |time_ns, function, word| of_word(event(time_ns, 1, function, DEPLOYMENT), word);
    assert_eq!(times(&reconciles([word(1, Get, 5), word(2, Done, 6)])), [(None, 1, 2)]);
}

#[test]
fn of_two_unknown_keys_on_one_goroutine_none_is_paired() {
    let mut assembler =
        after([event(1, 1, Get, DEPLOYMENT), event(2, 1, Get, DEPLOYMENT), event(3, 1, Done, DEPLOYMENT)]);
    assert_eq!((finished(&mut assembler), assembler.stats().stray_ends), (Vec::new(), 1));
}

#[test]
fn a_key_that_was_cut_is_shown_and_not_compared() {
    let finished = reconciles([
        call(1, 3, Add, "long…"),
        call(2, 1, Get, "long…"),
        call(3, 2, Get, "long…"),
        call(4, 1, Done, "long…"),
    ]);
    assert_eq!(times(&finished), [(None, 2, 4)]);
    assert_eq!(finished[0].key.as_deref(), Some("long…"));
}

#[test]
fn a_key_of_which_a_part_is_missing_is_not_compared() {
    let mut part = event(1, 1, Get, DEPLOYMENT);
    part.values.set(Value::Key, [Some("default".to_owned()), None]);
    let finished = reconciles([part, of_key(event(2, 1, Done, DEPLOYMENT), &["default", "a"])]);
    assert_eq!(times(&finished), [(None, 1, 2)]);
    assert_eq!(finished[0].key, None);
}

#[test]
fn the_end_of_another_key_ends_nothing() {
    let mut assembler = after([call(1, 1, Get, "a"), call(2, 1, Done, "b")]);
    assert_eq!((finished(&mut assembler), assembler.stats().stray_ends), (Vec::new(), 1));
}

#[test]
fn a_reconcile_is_retried_on_its_goroutine_and_in_its_queue() {
    let retry = |goroutine, name| event(2, goroutine, Retry, (RETRIES, name));
    let of = |retry| {
        let finished = reconciles([call(1, 1, Get, "a"), retry, call(3, 1, Done, "a")]);
        (finished[0].retried, finished[0].events)
    };
    assert_eq!(of(retry(1, "deployment")), (true, 3));
    assert_eq!(of(retry(2, "deployment")), (false, 2));
    assert_eq!(of(retry(1, "replicaset")), (false, 2));
}

#[test]
fn additions_and_retries_are_counted_by_queue() {
    let assembler = after([
        call(1, 1, Add, "a"),
        call(2, 1, Add, "b"),
        event(3, 1, Add, REPLICASET),
        event(4, 1, Retry, (RETRIES, "deployment")),
    ]);
    let expected = [
        r#"workqueue_adds["deployment"] 2"#,
        r#"workqueue_retries["deployment"] 1"#,
        r#"workqueue_adds["replicaset"] 1"#,
        r#"workqueue_retries["replicaset"] 0"#,
    ];
    assert_eq!(counts(&assembler), expected);
}

#[test]
fn the_name_of_a_queue_is_remembered_until_its_memory_has_another() {
    let mut nameless = call(3, 1, Add, "b");
    nameless.values.take(Value::Queue);
    let assembler = after([call(1, 1, Add, "a"), nameless, event(4, 1, Add, (DEPLOYMENT.0, "job"))]);
    let counts = counts(&assembler);
    assert_eq!(
        [&*counts[0], &counts[2]],
        [r#"workqueue_adds["deployment"] 2"#, r#"workqueue_adds["job"] 1"#]
    );
}

#[test]
fn what_is_open_when_records_are_lost_ends_incomplete() {
    let lost = |event| Event { last_loss: 1, ..event };
    let mut assembler = after([
        call(1, 1, Add, "b"),
        call(2, 1, Get, "a"),
        lost(call(3, 1, Done, "a")),
        lost(call(4, 1, Get, "b")),
    ]);
    let first = finished(&mut assembler);
    assert_eq!(times(&first), [(None, 2, 2)]);
    assert!(first[0].incomplete);
    assembler.exit(1);
    // Its addition is not known any more: between the two it may have been taken and added again.
    assert_eq!(times(&finished(&mut assembler)), [(None, 4, 4)]);
    let account = Account { events: 4, in_attempts: 2, stray: 1, waiting: 1, ..Account::default() };
    assert_eq!(assembler.account(), account);
    assert_eq!(assembler.stats().incomplete_attempts, 2);
}

#[test]
fn a_key_that_is_taken_twice_was_done_in_between() {
    let finished = reconciles([call(1, 1, Get, "a"), call(5, 2, Get, "a"), call(6, 2, Done, "a")]);
    let ends: Vec<_> = finished.iter().map(|reconcile| (reconcile.start_ns, reconcile.incomplete)).collect();
    assert_eq!(ends, [(1, true), (5, false)]);
}

#[test]
fn what_is_silent_for_an_hour_is_given_up() {
    const HOUR: u64 = 3_600_000_000_000;
    let mut assembler = after([call(1, 1, Add, "a"), call(2, 1, Get, "b")]);
    assembler.expire(HOUR);
    assert_eq!(assembler.account().open(), 2);
    assembler.expire(HOUR + 3);
    assert_eq!(assembler.account().open(), 0);
    assert!(finished(&mut assembler)[0].incomplete);
}

#[test]
fn processes_do_not_share_queues() {
    let mut other = call(2, 1, Done, "a");
    other.target = 2;
    let mut assembler = after([call(1, 1, Get, "a"), other]);
    assembler.exit(2);
    assert_eq!((finished(&mut assembler), assembler.stats().stray_ends), (Vec::new(), 1));
}

#[test]
fn a_key_is_replaced_where_recordings_hide_names() {
    let mut values = call(1, 1, Get, "default/a").values;
    <crate::ClientGo as gotrace::Program>::redact(&mut values, &mut |kind, name| {
        *name = format!("{kind} {name}");
    });
    assert_eq!(values.take_texts(Value::Key), [Some("key default/a".to_owned())]);
    let mut without = event(1, 1, Get, DEPLOYMENT).values;
    <crate::ClientGo as gotrace::Program>::redact(&mut without, &mut |_, _| {});
    assert_eq!(without, event(1, 1, Get, DEPLOYMENT).values);
}

/// The queue says how much it has had.
fn reading(time_ns: u64, added: u64, done: u64) -> Event {
    let mut event = event(time_ns, 9, Count, DEPLOYMENT);
    event.values.set(Value::Added, added);
    event.values.set(Value::Handled, done);
    event
}

fn counted(assembler: &mut Assembler) -> Vec<(String, u64)> {
    assembler.take_finished();
    let counts =
        assembler.counts().into_iter().filter(|count| count.labels[0] == "deployment" && count.total > 0);
    counts.map(|count| (count.labels.last().expect("it has one").clone(), count.total)).collect()
}

fn totals(list: &[(&str, u64)]) -> Vec<(String, u64)> {
    list.iter().map(|(label, total)| ((*label).to_owned(), *total)).collect()
}

#[test]
fn what_a_queue_counted_since_the_first_reading_is_counted_as_idle() {
    let mut assembler =
        after([reading(1, 10, 1 << 63 | 7), reading(2, 13, 12), reading(3, 13, 1 << 63 | 13)]);
    assert_eq!(counted(&mut assembler), totals(&[("deployment", 3), ("idle", 6)]));
    assembler.exit(1);
    // Another process may have the same number.
    assembler.on(reading(4, 20, 20));
    assert_eq!(counted(&mut assembler), totals(&[("deployment", 3), ("idle", 6)]));
}

#[test]
fn what_was_seen_is_not_counted_again() {
    let mut assembler = after([
        call(1, 1, Add, "a"),
        reading(2, 10, 7),
        call(3, 2, Get, "a"),
        call(4, 1, Add, "b"),
        call(5, 2, Done, "a"),
        reading(6, 11, 8),
    ]);
    // No request was seen, so nothing is known to be idle.
    assert_eq!(counted(&mut assembler), totals(&[("deployment", 2), ("busy", 1)]));
    assembler.on(reading(7, 12, 9));
    assert_eq!(counted(&mut assembler), totals(&[("deployment", 3), ("idle", 1), ("busy", 1)]));
}

#[test]
fn a_reconcile_that_was_given_up_is_counted_once() {
    let lost = |event| Event { last_loss: 1, ..event };
    let end = |events: Vec<Event>| {
        counted(&mut after([reading(1, 5, 5), call(2, 1, Get, "a")].into_iter().chain(events)))
    };
    let incomplete = totals(&[("incomplete", 1)]);
    // Its end was lost.
    assert_eq!(end(vec![lost(reading(3, 5, 6))]), incomplete);
    // It ends later.
    assert_eq!(
        end(vec![lost(reading(3, 5, 5)), lost(call(4, 1, Done, "a")), lost(reading(5, 5, 6))]),
        incomplete
    );
}

#[test]
fn counters_of_another_queue_in_the_same_memory_begin_anew() {
    let other = |mut event: Event| {
        event.values.set(Value::Queue, "job");
        event
    };
    let mut assembler = after([reading(1, 5, 5), other(reading(2, 100, 100)), other(reading(3, 101, 101))]);
    assert_eq!(counted(&mut assembler), []);
    let of_job = assembler.counts().into_iter().filter(|count| count.labels[0] == "job" && count.total > 0);
    assert_eq!(of_job.map(|count| count.total).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_reading_that_failed_counts_nothing() {
    let mut failed = reading(2, 9, 9);
    failed.values.take(Value::Handled);
    let mut assembler = after([reading(1, 5, 5), failed, reading(3, 6, 6)]);
    assert_eq!(counted(&mut assembler), totals(&[("deployment", 1), ("idle", 1)]));
    assert_eq!((assembler.account().unrelated, assembler.account().open()), (3, 0));
}

#[test]
fn what_is_open_when_calls_are_cut_is_given_up_where_counters_go_on() {
    let mut assembler =
        after([reading(1, 5, 5), call(2, 1, Get, "a"), of_key(event(3, 2, Get, REPLICASET), &["a"])]);
    assembler.cut(1, 4, Cut::Samples);
    assert_eq!(assembler.take_finished(), []);
    assembler.cut(1, 5, Cut::QueueMoves);
    let finished = finished(&mut assembler);
    assert_eq!((times(&finished), finished[0].incomplete), (vec![(None, 2, 2)], true));
}
