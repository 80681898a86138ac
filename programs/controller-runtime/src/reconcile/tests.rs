//! What is said of single reconciles.

use gotrace::{
    Role,
    account::{Account, Stats},
    program::Assemble as _,
};

use client_go::requests::{Finished, Made};

use super::{Assembler, COUNTERS, MAX_CONTROLLERS, MAX_OPEN, Outcome, Reconcile};
use crate::{ControllerRuntime, Event, Values, table::Function, values::Value};

const DEPTH: u64 = 200;

fn event(time_ns: u64, goroutine: u64, role: Role, values: Values) -> Event {
    Event {
        target: 1,
        time_ns,
        goroutine,
        depth: DEPTH,
        function: Function::Reconcile,
        role,
        took_ns: 0,
        last_loss: 0,
        values,
    }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn begin(time_ns: u64, goroutine: u64, controller: &str, request: [&str; 2]) -> Event {
    let values =
        Values::default().with(Value::Controller, controller).with(Value::Request, request.map(text));
    event(time_ns, goroutine, Role::Entry, values)
}

fn returned(requeue: bool, after_ns: i64, failed: u64) -> Values {
    Values::default()
        .with(Value::Requeue, requeue)
        .with(Value::RequeueAfter, after_ns)
        .with(Value::Failed, failed)
}

fn end(time_ns: u64, goroutine: u64, values: Values) -> Event {
    event(time_ns, goroutine, Role::ReturnSite, values)
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

/// The one reconcile that ends so.
fn ended(values: Values) -> Reconcile {
    let mut assembler = after([begin(10, 7, "web", ["default", "a"]), end(30, 7, values)]);
    let mut finished = finished(&mut assembler);
    assert_eq!((finished.len(), assembler.account().open()), (1, 0));
    finished.remove(0)
}

fn counts(assembler: &Assembler) -> Vec<String> {
    let of_controllers = |counter: &str| COUNTERS[..2].iter().any(|own| own.name == counter);
    let counts = assembler.counts().into_iter().filter(|count| of_controllers(count.counter));
    counts.map(|count| format!("{}{:?} {}", count.counter, count.labels, count.total)).collect()
}

#[test]
fn a_reconcile_has_controller_request_and_times() {
    let expected = Reconcile {
        target: 1,
        controller: "web".into(),
        request: text("default/a"),
        start_ns: 10,
        end_ns: 30,
        outcome: Some(Outcome::Success),
        message: None,
        panicked: false,
        made: Made::default(),
        incomplete: false,
    };
    assert_eq!(ended(returned(false, 0, 0)), expected);
}

#[test]
fn the_result_is_the_one_that_controller_runtime_counts() {
    let outcome = |requeue, after_ns, failed| ended(returned(requeue, after_ns, failed)).outcome;
    assert_eq!(outcome(false, 0, 0), Some(Outcome::Success));
    assert_eq!(outcome(true, 0, 0), Some(Outcome::Requeue));
    assert_eq!(outcome(true, 5, 0), Some(Outcome::RequeueAfter(5)));
    assert_eq!(outcome(false, -5, 0), Some(Outcome::Success));
    assert_eq!(outcome(true, -5, 0), Some(Outcome::Requeue));
    assert_eq!(outcome(true, 5, 1), Some(Outcome::Error));
    assert_eq!(ended(Values::default()).outcome, None, "nothing could be read");
}

#[test]
fn an_error_has_its_message_and_one_of_the_api_server_too() {
    let message = |own: &str, of_status: &str| {
        let values = returned(false, 0, 1).with(Value::Message, own).with(Value::StatusMessage, of_status);
        ended(values).message
    };
    assert_eq!(message("no", "*errors.errorString"), text("no"));
    assert_eq!(message("*errors.StatusError", "it is gone"), text("it is gone"));
    assert_eq!(message("*example.Error", "*example.Error"), text("*example.Error"));
    let values = returned(false, 0, 0).with(Value::Message, "left over");
    assert_eq!(ended(values).message, None, "it has not failed");
}

#[test]
fn a_panic_that_was_recovered_is_said_and_counted() {
    for (message, panicked) in [
        ("panic: no [recovered]", true),
        ("panic: a long cau…", true),
        ("panic: no", false),
        ("no panic: [recovered]", false),
    ] {
        let mut assembler = after([
            begin(1, 7, "web", ["default", "a"]),
            end(2, 7, returned(false, 0, 1).with(Value::Message, message)),
        ]);
        assert_eq!(finished(&mut assembler)[0].panicked, panicked, "{message}");
        let panics = format!("controller_panics[\"web\"] {}", u64::from(panicked));
        assert_eq!(counts(&assembler), [r#"controller_reconciles["web", "error"] 1"#, &panics]);
    }
}

#[test]
fn a_request_without_a_namespace_is_a_name() {
    let mut assembler = after([begin(1, 7, "node", ["", "a"]), end(2, 7, returned(false, 0, 0))]);
    assert_eq!(finished(&mut assembler)[0].request.as_deref(), Some("a"));
}

#[test]
fn goroutines_do_not_share_reconciles() {
    let mut assembler = after([
        begin(1, 7, "web", ["default", "a"]),
        begin(2, 8, "web", ["default", "b"]),
        end(3, 7, returned(false, 0, 0)),
        end(4, 8, returned(true, 0, 0)),
    ]);
    let finished = finished(&mut assembler);
    let times: Vec<_> = finished.iter().map(|reconcile| (reconcile.start_ns, reconcile.end_ns)).collect();
    assert_eq!(times, [(1, 3), (2, 4)]);
}

#[test]
fn an_end_at_another_depth_is_not_the_reconciles() {
    let other = Event { depth: DEPTH + 8, ..end(2, 7, returned(false, 0, 0)) };
    let mut assembler = after([begin(1, 7, "web", ["default", "a"]), other]);
    assert_eq!((finished(&mut assembler), assembler.stats().stray_ends), (Vec::new(), 1));
    assembler.on(end(3, 7, returned(false, 0, 0)));
    assert_eq!(finished(&mut assembler)[0].end_ns, 3);
}

#[test]
fn what_is_open_when_records_are_lost_ends_incomplete() {
    let lost = |event| Event { last_loss: 1, ..event };
    let mut assembler = after([begin(1, 7, "web", ["default", "a"]), lost(end(3, 7, returned(false, 0, 0)))]);
    let finished = finished(&mut assembler);
    assert!(finished[0].incomplete && finished[0].outcome.is_none());
    let account = Account { events: 2, in_attempts: 1, stray: 1, ..Account::default() };
    let stats = Stats { incomplete_attempts: 1, stray_ends: 1, ..Stats::default() };
    assert_eq!((assembler.account(), assembler.stats()), (account, stats));
    assert!(counts(&assembler).is_empty(), "what is not over is not counted");
}

#[test]
fn what_is_silent_for_an_hour_is_given_up() {
    const HOUR: u64 = 3_600_000_000_000;
    let mut assembler = after([begin(1, 7, "web", ["default", "a"])]);
    assembler.expire(HOUR + 1);
    assert_eq!(assembler.account().open(), 1);
    assembler.expire(HOUR + 2);
    assert_eq!(assembler.account().open(), 0);
    assert!(finished(&mut assembler)[0].incomplete);
}

#[test]
fn processes_do_not_share_reconciles() {
    let mut assembler = after([begin(1, 7, "web", ["default", "a"])]);
    assembler.on(Event { target: 2, ..end(2, 7, returned(false, 0, 0)) });
    assert_eq!((finished(&mut assembler), assembler.stats().stray_ends), (Vec::new(), 1));
    assembler.exit(1);
    assert_eq!(assembler.account().open(), 0);
}

#[test]
fn the_number_of_open_reconciles_is_bounded() {
    let open = |goroutine| begin(goroutine, goroutine, "web", ["default", "a"]);
    let mut assembler = after((1..=MAX_OPEN as u64 + 2).map(open));
    assert_eq!((assembler.account().no_room, assembler.stats().table_full), (2, 2));
    assembler.exit(1);
    assert_eq!((finished(&mut assembler).len(), assembler.account().open()), (MAX_OPEN, 0));
}

#[test]
fn the_number_of_names_is_bounded() {
    let reconcile = |number: usize| {
        let name = format!("web-{number}");
        [begin(1, 7, &name, ["default", "a"]), end(2, 7, returned(false, 0, 0))]
    };
    let assembler = after((0..MAX_CONTROLLERS + 3).flat_map(reconcile));
    let counts = counts(&assembler);
    assert_eq!(counts.len(), 2 * (MAX_CONTROLLERS + 1));
    assert!(counts.contains(&r#"controller_reconciles["other", "success"] 3"#.to_owned()));
}

#[test]
fn names_and_messages_are_replaced_where_recordings_hide_them() {
    let redacted = |mut values: Values| {
        <ControllerRuntime as gotrace::Program>::redact(&mut values, &mut |kind, name| {
            *name = format!("{kind} {}", name.len());
        });
        values
    };
    let mut values = redacted(begin(1, 7, "web", ["default", "a"]).values);
    assert_eq!(values.take_text(Value::Controller), text("controller 3"));
    assert_eq!(values.take_texts(Value::Request), [text("request 7"), text("request 1")]);
    let failed = |message: &str| returned(true, 5, 1).with(Value::Message, message);
    let mut values = redacted(failed("no").with(Value::StatusMessage, "gone"));
    assert_eq!(values.take_text(Value::Message), text("message 2"));
    assert_eq!(values.take_text(Value::StatusMessage), text("message 4"));
    assert_eq!(values, returned(true, 5, 1));
    assert_eq!(
        ended(redacted(failed("panic: no [recovered]"))).message,
        text("panic: message 2 [recovered]")
    );
}
