//! What an attempt has of the time before something was cut, and before it began.

use gotrace::{governor::Cut, program::Assemble as _};

use super::scenarios::{Fate, Scene, counted, entered, scene};
use crate::{
    Event,
    attempt::{Assembler, Attempt},
    table::Function,
    values::Value,
};

/// The attempt of [`scene`] after what was done before it.
fn attempt_after(before: impl FnOnce(&mut Assembler)) -> Attempt {
    let mut assembler = Assembler::default();
    before(&mut assembler);
    let Scene { mut scheduling, binding } = scene(0, Fate::Bound, 1);
    scheduling[0].values.set(Value::QueueTimestamp, 66);
    scheduling[0].values.set(Value::FirstAttempt, 77);
    for (time_ns, event) in (100..).zip(scheduling.into_iter().chain(binding)) {
        assembler.on(Event { time_ns, ..event });
    }
    assembler.exit(0);
    assert_eq!(assembler.account().open(), 0, "{:?}", assembler.account());
    let [attempt] = <[_; 1]>::try_from(assembler.take_finished()).expect("one attempt was made");
    attempt
}

fn at(time_ns: u64, event: Event) -> Event {
    Event { time_ns, ..event }
}

fn moves(attempt: &Attempt) -> Vec<String> {
    attempt.moves.iter().map(|entry| format!("{}: {}", entry.queue, entry.event)).collect()
}

#[test]
fn an_attempt_has_what_the_queue_knows_of_its_pod() {
    let attempt = attempt_after(|assembler| {
        assembler.on(at(5, entered(7, Function::Enqueue, 0x2000)));
        assembler.on(at(6, counted(7, "active", "NodeAdd")));
    });
    let Attempt { enqueued_ns, queue_timestamp, first_attempt, .. } = attempt;
    assert_eq!([enqueued_ns, queue_timestamp, first_attempt], [5, 66, 77].map(Some));
    assert_eq!(moves(&attempt), ["active: NodeAdd"]);
}

#[test]
fn a_move_that_began_before_moves_were_cut_is_no_pods() {
    let attempt = attempt_after(|assembler| {
        assembler.on(at(1, entered(7, Function::EnqueueBackoff, 0x2000)));
        assembler.cut(0, 2, Cut::QueueMoves);
        assembler.cut(0, 3, Cut::Nothing);
        assembler.on(at(4, counted(7, "backoff", "NodeAdd")));
    });
    assert_eq!(moves(&attempt), Vec::<String>::new());
}

#[test]
fn of_a_pod_that_waited_while_phases_were_cut_nothing_before_is_known() {
    let attempt = attempt_after(|assembler| {
        assembler.on(at(5, entered(7, Function::Enqueue, 0x2000)));
        assembler.on(at(6, counted(7, "active", "NodeAdd")));
        assembler.cut(0, 7, Cut::Phases);
        assembler.cut(0, 8, Cut::Nothing);
    });
    assert_eq!((attempt.enqueued_ns, moves(&attempt)), (None, vec![]));
}
