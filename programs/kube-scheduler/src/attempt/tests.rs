//! Generated schedules: whatever the interleaving of goroutines, the attempts are those that were made.

use std::{collections::HashMap, sync::Arc};

use proptest::{collection::vec, prelude::*};

use gotrace::{
    Role,
    assemble::{Assemble as _, Stats},
};

use super::{Assembler, Attempt, Code, Outcome, Preemption, Previous, Subject, schedules::check_trace};
use crate::{Event, Values, table::Function, values::Value};

const LOOP: u64 = 1;

/// How a generated attempt comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Bound,
    Unschedulable,
    /// Fails in the binding cycle.
    NotBound,
    /// Popped, and left alone.
    Skipped,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        4 => Just(Fate::Bound),
        2 => Just(Fate::Unschedulable),
        1 => Just(Fate::NotBound),
        1 => Just(Fate::Skipped),
    ];
    vec(fate, 1..12)
}

/// The events of one attempt on the scheduling loop, and those on its binding goroutine, without times.
struct Script {
    scheduling: Vec<Event>,
    binding: Vec<Event>,
}

fn event(goroutine: u64, function: Function, role: Role, depth: u64, values: Values) -> Event {
    Event { target: 0, time_ns: 0, took_ns: 0, goroutine, depth, function, role, last_loss: 0, values }
}

/// `pool` addresses serve all attempts: they are used again once their owners are gone.
fn script(number: u64, fate: Fate, pool: u64) -> Script {
    let state = Some(0x1000 + number % pool);
    let pod = Some(0x8000 + number % pool);
    let assumed = Some(0xf000 + number % pool);
    let goroutine = 100 + number;
    let known = |pod| Values::default().with(Value::CycleState, state).with(Value::Pod, pod);
    let status = |code| Values::default().with(Value::StatusCode, code);
    let mut scheduling = vec![event(
        LOOP,
        Function::Pop,
        Role::ReturnSite,
        50,
        Values::default()
            .with(Value::QueuedPodInfo, 0x2000 + number)
            .with(Value::Pod, pod)
            .with(Value::PodUid, format!("uid-{number}"))
            .with(Value::Attempts, 1),
    )];
    let call = |list: &mut Vec<Event>, goroutine, function, depth, entry, end| {
        list.push(event(goroutine, function, Role::Entry, depth, entry));
        list.push(event(goroutine, function, Role::ReturnSite, depth, end));
    };
    let fail = |list: &mut Vec<Event>, goroutine, depth, code| {
        list.push(event(goroutine, Function::HandleFailure, Role::Entry, depth, status(code)));
        list.push(event(goroutine, Function::HandleFailure, Role::Ret, depth, Values::default()));
    };
    let mut binding = Vec::new();
    if fate != Fate::Skipped {
        scheduling.push(event(LOOP, Function::SchedulingCycle, Role::Entry, 100, Values::default()));
        call(&mut scheduling, LOOP, Function::PreFilter, 200, known(pod), status(0));
        call(&mut scheduling, LOOP, Function::Filter, 200, Values::default(), Values::default());
        if fate == Fate::Unschedulable {
            call(&mut scheduling, LOOP, Function::PostFilter, 150, known(pod), status(2));
        } else {
            call(&mut scheduling, LOOP, Function::Reserve, 150, known(assumed), status(0));
        }
        scheduling.push(event(LOOP, Function::SchedulingCycle, Role::ReturnSite, 100, Values::default()));
        if fate == Fate::Unschedulable {
            fail(&mut scheduling, LOOP, 100, 2);
        } else {
            binding.push(event(goroutine, Function::BindingCycle, Role::Entry, 60, Values::default()));
            let wait = Values::default().with(Value::Pod, assumed);
            call(&mut binding, goroutine, Function::WaitOnPermit, 90, wait, status(0));
            call(&mut binding, goroutine, Function::PreBind, 90, known(assumed), status(0));
            if fate == Fate::Bound {
                call(&mut binding, goroutine, Function::PostBind, 90, known(assumed), Values::default());
            }
            binding.push(event(goroutine, Function::BindingCycle, Role::ReturnSite, 60, Values::default()));
            if fate == Fate::NotBound {
                fail(&mut binding, goroutine, 70, 1);
            }
        }
    }
    Script { scheduling, binding }
}

/// One order that could have happened: the loop is serial, a binding goroutine starts after its scheduling cycle.
/// Returns the events with their attempts' numbers; the time of an event is its place.
fn interleave(fates: &[Fate], choices: &[u8], pool: u64) -> Vec<(u64, Event)> {
    let mut scripts = fates.iter().enumerate().map(|(number, fate)| (number as u64, *fate)).peekable();
    let mut scheduling: Vec<(u64, Event)> = Vec::new();
    let mut binding: Vec<(u64, Vec<Event>)> = Vec::new();
    let mut pending: Option<(u64, Vec<Event>)> = None;
    let mut order = Vec::new();
    let mut choices = choices.iter().cycle();
    let mut live: HashMap<u64, u64> = HashMap::new();
    loop {
        if scheduling.is_empty() {
            binding.extend(pending.take().filter(|(_, events)| !events.is_empty()));
            // An address is free for another attempt only when its owner is over.
            live.retain(|_, owner| binding.iter().any(|(number, _)| number == owner));
            let ready = scripts.peek().is_some_and(|(number, _)| !live.contains_key(&(number % pool)));
            if ready && let Some((number, fate)) = scripts.next() {
                let Script { scheduling: events, binding: later } = script(number, fate, pool);
                scheduling = events.into_iter().rev().map(|event| (number, event)).collect();
                pending = Some((number, later));
                live.insert(number % pool, number);
            } else if binding.is_empty() {
                break;
            }
        }
        let lanes = usize::from(!scheduling.is_empty()) + binding.len();
        let lane = usize::from(*choices.next().unwrap_or(&0)) % lanes;
        let next = if lane == 0 && !scheduling.is_empty() {
            scheduling.pop()
        } else {
            let index = (lane - usize::from(!scheduling.is_empty())) % binding.len();
            let (number, events) = &mut binding[index];
            let next = (*number, events.remove(0));
            if events.is_empty() {
                binding.remove(index);
            }
            Some(next)
        };
        order.extend(next);
    }
    for (time, (_, event)) in order.iter_mut().enumerate() {
        event.time_ns = time as u64;
    }
    order
}

/// What was really called in each attempt, as (function, start, end).
fn truth(order: &[(u64, Event)]) -> HashMap<u64, Vec<(Function, u64, u64)>> {
    let mut calls: HashMap<u64, Vec<(Function, u64, u64)>> = HashMap::new();
    let mut open: HashMap<(u64, Function), u64> = HashMap::new();
    for (number, event) in order {
        match event.role {
            _ if event.function == Function::Pop => {}
            Role::Entry => {
                open.insert((*number, event.function), event.time_ns);
            }
            _ => {
                let start = open[&(*number, event.function)];
                calls.entry(*number).or_default().push((event.function, start, event.time_ns));
            }
        }
    }
    calls
}

fn number(attempt: &Attempt) -> u64 {
    attempt.pod.uid.trim_start_matches("uid-").parse().expect("the script wrote it")
}

fn assemble(events: impl IntoIterator<Item = Event>) -> (Vec<Attempt>, Stats) {
    let mut assembler = Assembler::default();
    for event in events {
        assembler.on(event);
    }
    assembler.exit(0);
    let (attempts, account) = (assembler.take_finished(), assembler.account());
    assert_eq!(account.open(), 0, "{account:?}");
    assert_eq!(account.in_attempts, attempts.iter().map(|attempt| attempt.events).sum::<u64>());
    (attempts, assembler.stats())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_interleaving_gives_the_attempts_that_were_made(
        fates in fates(), choices in vec(any::<u8>(), 1..64), pool in 1u64..6,
    ) {
        let order = interleave(&fates, &choices, pool);
        let truth = truth(&order);
        let (attempts, stats) = assemble(order.into_iter().map(|(_, event)| event));
        let skipped = fates.iter().filter(|fate| **fate == Fate::Skipped).count();
        prop_assert_eq!(stats, Stats { skipped: skipped as u64, ..Stats::default() });
        prop_assert_eq!(attempts.len(), fates.len() - skipped);
        for attempt in attempts {
            let made = number(&attempt);
            let expected = match fates[made as usize] {
                Fate::Bound => Outcome::Scheduled,
                Fate::Unschedulable => failed(2),
                Fate::NotBound => failed(1),
                Fate::Skipped => unreachable!("a skipped Pod makes no attempt"),
            };
            prop_assert_eq!(&attempt.outcome, &expected);
            prop_assert!(!attempt.incomplete);
            let calls: Vec<_> = attempt.calls.iter().map(|c| (c.function, c.start_ns, c.end_ns)).collect();
            prop_assert_eq!(&calls, &truth[&made]);
        }
    }

    #[test]
    fn lost_records_never_pair_what_does_not_belong_together(
        fates in fates(), choices in vec(any::<u8>(), 1..64), pool in 1u64..6,
        drops in vec(0u8..8, 1..64),
    ) {
        let order = interleave(&fates, &choices, pool);
        let truth = truth(&order);
        let mut losses = 0;
        let mut kept = Vec::new();
        for ((_, mut event), drop) in order.into_iter().zip(drops.iter().cycle()) {
            if *drop == 0 {
                losses += 1;
            } else {
                event.last_loss = losses;
                kept.push(event);
            }
        }
        let (attempts, _) = assemble(kept);
        for attempt in attempts {
            let made = &truth.get(&number(&attempt)).cloned().unwrap_or_default();
            for call in attempt.calls.iter().filter(|call| call.returned) {
                prop_assert!(made.contains(&(call.function, call.start_ns, call.end_ns)), "{:?}", call);
            }
            prop_assert!(attempt.incomplete || attempt.calls.len() == made.len());
            prop_assert!(attempt.end_ns >= attempt.start_ns);
        }
    }

    #[test]
    fn nothing_that_a_ring_buffer_could_hold_makes_it_panic(
        raw in vec((0u64..4, 0usize..22, 0u8..4, 0u64..5, 0u64..4, 0u64..4, any::<bool>()), 0..200),
    ) {
        let functions = [
            Function::Enqueue, Function::Pop, Function::SchedulingCycle, Function::PreFilter, Function::Filter,
            Function::PostFilter, Function::PreScore, Function::Score, Function::Reserve, Function::Permit,
            Function::BindingCycle, Function::PreBindPreFlight, Function::WaitOnPermit, Function::PreBind,
            Function::Bind, Function::PostBind, Function::HandleFailure, Function::QueueMove, Function::Preemption,
            Function::FailureMessage, Function::NormalizeScorePlugin, Function::PreBindPlugin,
        ];
        let roles = [Role::Entry, Role::ReturnSite, Role::NextEntry, Role::Ret];
        let events = raw.into_iter().enumerate().map(|(time, (goroutine, function, role, depth, state, pod, lost))| Event {
            // The clocks of two CPUs may disagree, and a file may say anything.
            time_ns: (time as u64) ^ state,
            took_ns: u64::from(lost),
            last_loss: u64::from(lost),
            ..event(goroutine, functions[function], roles[usize::from(role)], depth, Values::default().with(Value::CycleState, (state > 0).then_some(state)).with(Value::Pod, (pod > 0).then_some(pod)).with(Value::QueuedPodInfo, pod).with(Value::StatusCode, state.cast_signed()).with(Value::Queue, "active".to_owned()).with(Value::QueueEvent, if state == 1 { "PopFromBackoffQ" } else { "NodeAdd" }.to_owned()).with(Value::Labels, 2))
        });
        let (attempts, _) = assemble(events);
        for attempt in attempts {
            prop_assert!(attempt.calls.iter().all(|call| call.end_ns >= call.start_ns));
            check_trace(&attempt);
        }
    }
}

fn failed(code: i64) -> Outcome {
    Outcome::Failed { code: Some(Code(code)), reason: String::new(), plugin: String::new() }
}

#[test]
fn a_call_that_panics_is_closed_as_unwound_and_the_next_one_is_right() {
    let Script { mut scheduling, binding } = script(0, Fate::Bound, 1);
    // Filter's end never comes: the panic was recovered further up.
    scheduling.retain(|event| !(event.function == Function::Filter && event.role == Role::ReturnSite));
    let events = scheduling.into_iter().chain(binding).enumerate();
    let (attempts, stats) = assemble(events.map(|(time, event)| Event { time_ns: time as u64, ..event }));
    let [attempt] = attempts.as_slice() else { panic!("one attempt was made: {attempts:?}") };
    let filter = attempt.calls.iter().find(|call| call.function == Function::Filter).expect("it began");
    assert!(!filter.returned && attempt.incomplete);
    let reserve = attempt.calls.iter().find(|call| call.function == Function::Reserve).expect("it ran");
    assert!(reserve.returned && reserve.start_ns >= filter.end_ns);
    assert_eq!((stats.unwound_calls, attempt.outcome.clone()), (1, Outcome::Scheduled));
}

#[test]
fn a_process_that_ends_leaves_incomplete_attempts_and_nothing_else() {
    let Script { scheduling, .. } = script(0, Fate::Bound, 1);
    let half = scheduling.len() / 2;
    let (attempts, stats) = assemble(scheduling.into_iter().take(half));
    assert_eq!((attempts.len(), stats.incomplete_attempts), (1, 1));
    assert_eq!(attempts[0].outcome, Outcome::Unknown);
}

#[test]
fn an_attempt_that_is_silent_for_too_long_is_given_up() {
    let mut assembler = Assembler::default();
    let Script { scheduling, .. } = script(0, Fate::Bound, 1);
    for event in scheduling {
        assembler.on(event);
    }
    assembler.expire(60_000_000_000);
    assert!(assembler.take_finished().is_empty(), "Permit may wait for minutes");
    assembler.expire(31 * 60_000_000_000);
    assert_eq!(assembler.take_finished().len(), 1);
}

/// Plays the scripts of attempts one after the other.
fn play(scripts: impl IntoIterator<Item = Script>) -> (Vec<Attempt>, Stats) {
    let events =
        scripts.into_iter().flat_map(|Script { scheduling, binding }| scheduling.into_iter().chain(binding));
    assemble(events.enumerate().map(|(time, event)| Event { time_ns: time as u64, ..event }))
}

fn entered(goroutine: u64, function: Function, entry: u64) -> Event {
    let values = Values::default().with(Value::QueuedPodInfo, entry);
    event(goroutine, function, Role::Entry, 10, values)
}

fn counted(goroutine: u64, queue: &str, reason: &str) -> Event {
    let values = Values::default()
        .with(Value::Queue, queue.to_owned())
        .with(Value::QueueEvent, reason.to_owned())
        .with(Value::Labels, 2);
    event(goroutine, Function::QueueMove, Role::Entry, 10, values)
}

#[test]
fn a_pod_comes_with_its_way_through_the_queues_and_with_its_last_attempt() {
    let mut first = script(0, Fate::Unschedulable, 1);
    let mut second = script(1, Fate::Bound, 1);
    for event in [&mut first.scheduling[0], &mut second.scheduling[0]] {
        event.values.set(Value::QueuedPodInfo, 0x2000);
        event.values.set(Value::PodUid, "uid-0");
    }
    // An informer's goroutine moves this Pod and another one.
    let moves = [
        entered(7, Function::EnqueueUnschedulable, 0x2000),
        counted(7, "unschedulable", "ScheduleAttemptFailure"),
        entered(7, Function::EnqueueBackoff, 0x2000),
        counted(7, "backoff", "NodeAdd"),
        entered(8, Function::Enqueue, 0x9999),
        counted(8, "active", "UnscheduledPodAdd"),
        // Another metric of the same kind.
        counted(7, "NodeResourcesFit", "Queue"),
    ];
    let popped = counted(LOOP, "active", "PopFromBackoffQ");
    first.binding.extend(moves);
    first.binding.push(popped);
    let (attempts, stats) = play([first, second]);
    let [first, second] = attempts.as_slice() else { panic!("two attempts were made: {attempts:?}") };
    assert_eq!(
        (&first.previous, second.previous.as_ref().map(|previous| previous.start_ns)),
        (&None, Some(first.start_ns))
    );
    let moves: Vec<_> =
        second.moves.iter().map(|entry| format!("{}: {}", entry.queue, entry.event)).collect();
    assert_eq!(
        moves,
        ["unschedulable: ScheduleAttemptFailure", "backoff: NodeAdd", "active: PopFromBackoffQ"]
    );
    assert_eq!((second.enqueued_ns, stats), (None, Stats::default()));
}

#[test]
fn a_pod_that_the_scheduler_discards_as_it_pops_it_is_no_loss() {
    let mut one = script(0, Fate::Bound, 1);
    let popped = || counted(LOOP, "active", "PopFromBackoffQ");
    one.scheduling.splice(0..0, [popped(), popped()]);
    let mut assembler = Assembler::default();
    let events = one.scheduling.into_iter().chain(one.binding);
    events.enumerate().for_each(|(time, event)| assembler.on(Event { time_ns: time as u64, ..event }));
    let attempts = assembler.take_finished();
    let moves: Vec<_> = attempts[0].moves.iter().map(|entry| entry.time_ns).collect();
    assert_eq!((moves, assembler.stats()), (vec![1], Stats::default()));
    assert_eq!((assembler.account().skipped, assembler.account().open()), (1, 0));
}

#[test]
fn of_many_moves_the_first_and_the_last_are_kept() {
    let mut one = script(0, Fate::Bound, 1);
    let moves = (0..40).flat_map(|number| {
        [entered(7, Function::EnqueueUnschedulable, 0x2000), counted(7, "unschedulable", &number.to_string())]
    });
    one.scheduling.splice(0..0, moves);
    let (attempts, _) = play([one]);
    let Attempt { moves, moves_left_out, .. } = &attempts[0];
    assert_eq!((moves.len() as u64 + moves_left_out, moves_left_out), (40, &24));
    assert_eq!((moves[0].event.as_str(), moves.last().map(|last| last.event.as_str())), ("0", Some("39")));
}

#[test]
fn a_plugin_on_a_goroutine_of_its_own_belongs_to_the_attempt_whose_state_it_gets() {
    let mut one = script(0, Fate::Bound, 1);
    let known = Values::default()
        .with(Value::CycleState, 0x1000)
        .with(Value::Plugin, Arc::<str>::from("NodeAffinity"));
    let place = one.scheduling.iter().position(|event| event.function == Function::Reserve).expect("it ran");
    one.scheduling.splice(
        place..place,
        [
            event(500, Function::NormalizeScorePlugin, Role::Entry, 10, known),
            event(500, Function::NormalizeScorePlugin, Role::ReturnSite, 10, Values::default()),
        ],
    );
    let (attempts, stats) = play([one]);
    let [attempt] = attempts.as_slice() else { panic!("one attempt was made: {attempts:?}") };
    let call = attempt.calls.iter().find(|call| call.plugin.is_some()).expect("the plugin ran");
    assert_eq!(
        (call.function, call.plugin.as_deref()),
        (Function::NormalizeScorePlugin, Some("NodeAffinity"))
    );
    // The attempt went on after it.
    assert_eq!((&attempt.outcome, stats), (&Outcome::Scheduled, Stats::default()));
}

#[test]
fn a_plugin_that_is_told_about_at_its_end_began_where_the_one_before_it_ended() {
    let mut one = script(0, Fate::Bound, 2);
    let place =
        one.scheduling.iter().position(|event| event.function == Function::PreFilter).expect("it ran");
    let turn = |plugin: &str| {
        let values =
            Values::default().with(Value::Plugin, Arc::<str>::from(plugin)).with(Value::StatusCode, 5);
        event(LOOP, Function::PreFilterPlugin, Role::InTurn, 300, values)
    };
    one.scheduling.splice(place + 1..place + 1, ["NodePorts", "NodeAffinity"].map(turn));
    // In the next attempt the second one panics, and so the phase does not end.
    let mut two = script(1, Fate::Bound, 2);
    two.scheduling.splice(place + 1..place + 2, [turn("NodePorts")]);
    let (attempts, stats) = play([one, two]);
    let calls = |number: usize| {
        let of_phase = [Function::PreFilter, Function::PreFilterPlugin];
        let calls = attempts[number].calls.iter().filter(move |call| of_phase.contains(&call.function));
        calls.collect::<Vec<_>>()
    };
    let [first, second, phase] = calls(0)[..] else { panic!("two plugins and a phase: {attempts:?}") };
    assert_eq!((first.start_ns, second.start_ns), (phase.start_ns, first.end_ns));
    assert!(first.start_ns < first.end_ns && second.end_ns < phase.end_ns);
    let told: Vec<_> =
        [first, second, phase].map(|call| (call.plugin.as_deref(), call.code)).into_iter().collect();
    assert_eq!(
        told,
        [
            (Some("NodePorts"), Some(Code::SKIP)),
            (Some("NodeAffinity"), Some(Code::SKIP)),
            (None, Some(Code::SUCCESS))
        ]
    );
    // It is known who comes after the first.
    let [first, phase] = calls(1)[..] else { panic!("a plugin and a phase: {attempts:?}") };
    assert!(first.returned && !phase.returned);
    assert_eq!((first.plugin.as_deref(), phase.plugin.as_deref()), (Some("NodePorts"), Some("NodeAffinity")));
    assert_eq!(stats, Stats { unwound_calls: 1, ..Stats::default() });
    // Nothing is told of a plugin whose phase is not known.
    let mut three = script(2, Fate::Bound, 3);
    three.scheduling.insert(place, turn("NodePorts"));
    let (attempts, stats) = play([three]);
    assert!(attempts[0].calls.iter().all(|call| call.plugin.is_none()));
    assert_eq!(stats, Stats { orphan_calls: 1, ..Stats::default() });
}

#[test]
fn a_failure_tells_the_condition_that_is_written_and_who_must_go() {
    let mut one = script(0, Fate::Unschedulable, 1);
    let end = one.scheduling.len() - 1;
    let message = Values::default().with(Value::Message, "0/3 nodes are available".to_owned());
    one.scheduling.insert(end, event(LOOP, Function::FailureMessage, Role::Entry, 300, message));
    // Nothing but a nominated Node is written.
    let empty = Values::default().with(Value::Message, String::new());
    one.scheduling.insert(end + 1, event(LOOP, Function::FailureMessage, Role::Entry, 300, empty));
    let names = ["a", "b", "left over from other memory"].map(|name| Some(name.to_owned()));
    let preemption = Values::default()
        .with(Value::PreemptionNode, "node-1".to_owned())
        .with(Value::Victims, 2)
        .with(Value::VictimNames, names);
    let place =
        one.scheduling.iter().position(|event| event.function == Function::PostFilter).expect("it ran");
    one.scheduling.insert(place + 1, event(LOOP, Function::Preemption, Role::Entry, 400, preemption));
    let (attempts, _) = play([one]);
    let Outcome::Failed { reason, .. } = &attempts[0].outcome else { panic!("{:?}", attempts[0].outcome) };
    assert_eq!(reason, "0/3 nodes are available");
    let names = ["a", "b"].map(str::to_owned).to_vec();
    assert_eq!(attempts[0].preemption, Some(Preemption { node: "node-1".to_owned(), victims: 2, names }));
}

/// What the loop does for a group of three Pods, of which the first is popped: all are tried, the first two are bound.
fn group_script() -> (Vec<Event>, Vec<Event>) {
    let on_loop = |function, role, depth, values| event(LOOP, function, role, depth, values);
    let state = |pod: u64| Some(0x1000 + pod);
    let address = |pod: u64| Some(0x8000 + pod);
    let known = |pod| Values::default().with(Value::CycleState, state(pod)).with(Value::Pod, address(pod));
    let member = |pod: u64| {
        Values::default()
            .with(Value::QueuedPodInfo, 0x2000 + pod)
            .with(Value::Pod, address(pod))
            .with(Value::PodUid, format!("uid-{pod}"))
            .with(Value::Attempts, 1)
    };
    let call = |list: &mut Vec<Event>, goroutine, function, depth, entry| {
        list.push(event(goroutine, function, Role::Entry, depth, entry));
        list.push(event(goroutine, function, Role::ReturnSite, depth, Values::default()));
    };
    let group = Values::default()
        .with(Value::GroupName, "gang".to_owned())
        .with(Value::GroupNamespace, "ns".to_owned())
        .with(Value::GroupSize, 3);
    let mut list = vec![
        on_loop(Function::Pop, Role::ReturnSite, 50, member(0)),
        on_loop(Function::PodGroup, Role::Entry, 60, group),
    ];
    call(&mut list, LOOP, Function::Snapshot, 100, Values::default());
    list.push(on_loop(Function::PlacementTrial, Role::Entry, 80, Values::default()));
    // The third is never tried.
    for pod in 0..2 {
        list.push(on_loop(Function::PodGroupMember, Role::Entry, 100, member(pod)));
        call(&mut list, LOOP, Function::PreFilter, 200, known(pod));
        call(&mut list, LOOP, Function::Filter, 200, Values::default());
        call(&mut list, LOOP, Function::Reserve, 200, known(pod));
        list.push(on_loop(Function::PodGroupMember, Role::ReturnSite, 100, Values::default()));
    }
    for pod in (0..2).rev() {
        call(&mut list, LOOP, Function::Unreserve, 90, known(pod));
    }
    list.push(on_loop(Function::PlacementTrial, Role::ReturnSite, 80, Values::default()));
    for pod in 0..2 {
        call(&mut list, LOOP, Function::Reserve, 100, known(pod));
    }
    let failure = member(2).with(Value::StatusCode, 2);
    list.push(on_loop(Function::HandleFailure, Role::Entry, 100, failure));
    list.push(on_loop(Function::HandleFailure, Role::Ret, 100, Values::default()));
    let scheduled = Values::default().with(Value::ConditionReason, "Scheduled".to_owned());
    list.push(on_loop(Function::PodGroupCondition, Role::Entry, 300, scheduled));
    list.push(on_loop(Function::PodGroup, Role::ReturnSite, 60, Values::default()));
    let mut binding = Vec::new();
    for pod in 0..2 {
        let goroutine = 100 + pod;
        binding.push(event(goroutine, Function::BindingCycle, Role::Entry, 60, known(pod)));
        call(&mut binding, goroutine, Function::PostBind, 90, known(pod));
        binding.push(event(goroutine, Function::BindingCycle, Role::ReturnSite, 60, Values::default()));
    }
    (list, binding)
}

#[test]
fn a_group_of_pods_is_an_attempt_and_so_is_each_of_its_pods() {
    let (list, binding) = group_script();
    let (attempts, stats) = play([Script { scheduling: list, binding }]);
    let [third, first, second, group] = attempts.as_slice() else { panic!("four attempts: {attempts:?}") };
    assert_eq!(stats, Stats::default());
    let Subject::Group { group: gang, size, scheduled } = &group.subject else {
        panic!("{:?}", group.subject)
    };
    assert_eq!((gang.identity().as_str(), *size, *scheduled), ("ns/gang", Some(3), 2));
    assert_eq!((&group.outcome, group.start_ns), (&Outcome::Scheduled, gang.start_ns));
    let functions = |attempt: &Attempt| attempt.calls.iter().map(|call| call.function).collect::<Vec<_>>();
    assert_eq!(functions(group), [Function::Snapshot, Function::PlacementTrial]);
    for (number, attempt) in [first, second].into_iter().enumerate() {
        assert_eq!(attempt.pod.uid, format!("uid-{number}"));
        assert_eq!(
            (&attempt.subject, &attempt.outcome),
            (&Subject::Member(gang.clone()), &Outcome::Scheduled)
        );
        assert_eq!(attempt.chosen_trial, Some(0));
        let tried = [Function::PreFilter, Function::Filter, Function::Reserve, Function::PodGroupMember];
        let rest = [Function::Unreserve, Function::Reserve, Function::PostBind, Function::BindingCycle];
        assert_eq!(functions(attempt), [tried, rest].concat());
    }
    assert_eq!((third.pod.uid.as_str(), functions(third)), ("uid-2", vec![Function::HandleFailure]));
    assert!(group.end_ns >= second.end_ns, "the group ends with the last of its Pods");
}

#[test]
fn a_group_that_the_scheduler_turned_from_is_incomplete() {
    let (mut list, binding) = group_script();
    list.pop();
    let (attempts, stats) = play([Script { scheduling: list, binding }, script(7, Fate::Bound, 1)]);
    assert_eq!(stats, Stats { incomplete_attempts: 1, ..Stats::default() });
    let incomplete: Vec<_> = attempts.iter().filter(|attempt| attempt.incomplete).collect();
    let [group] = incomplete.as_slice() else { panic!("one is incomplete: {incomplete:?}") };
    assert!(matches!(group.subject, Subject::Group { .. }));
}

#[test]
fn a_pod_that_is_popped_before_its_failure_has_been_handled_is_linked_all_the_same() {
    let mut first = script(0, Fate::NotBound, 2);
    let mut second = script(1, Fate::Bound, 2);
    second.scheduling[0].values.set(Value::PodUid, "uid-0");
    // The Pod is back in the queue, and its condition is being written.
    let handled = first.binding.pop().expect("its failure is handled");
    second.scheduling.push(handled);
    let (attempts, stats) = play([first, second]);
    let [first, second] = attempts.as_slice() else { panic!("two attempts were made: {attempts:?}") };
    assert_eq!(second.previous, Some(Previous { start_ns: first.start_ns, group: None }));
    assert_eq!(stats, Stats::default());
}

#[test]
fn a_binding_goroutine_that_panicked_does_not_get_the_calls_of_whoever_has_its_addresses_next() {
    let mut first = script(0, Fate::Bound, 1);
    let mut second = script(1, Fate::Bound, 1);
    // `WaitOnPermit` was the last that was heard of it.
    first.binding.truncate(3);
    // The assumed Pod's address is first heard of in `WaitOnPermit`.
    second.scheduling.retain(|event| event.function != Function::Reserve);
    let (attempts, _) = play([first, second]);
    let [second, first] = attempts.as_slice() else { panic!("two attempts were made: {attempts:?}") };
    assert_eq!((&second.outcome, second.incomplete), (&Outcome::Scheduled, false));
    assert!(second.calls.iter().any(|call| call.function == Function::WaitOnPermit));
    assert_eq!((&first.outcome, first.incomplete), (&Outcome::Unknown, true));
    assert!(first.end_ns < second.start_ns);
}

/// A failed attempt that asks the API server for something; the answer comes when it is over.
fn failed_with_api_call(added: i64) -> Vec<Event> {
    let call = Values::default().with(Value::ApiCall, 0x9000).with(Value::PodUid, "uid-1");
    let code = |code| Values::default().with(Value::StatusCode, code);
    let mut events = script(1, Fate::Unschedulable, 8).scheduling;
    let end = events.pop().expect("the failure has been handled");
    events.extend([
        event(LOOP, Function::ApiCallAdd, Role::Entry, 300, call.clone()),
        event(LOOP, Function::ApiCallAdd, Role::Ret, 300, code(added)),
        end,
    ]);
    if added == 0 {
        events.extend([
            event(900, Function::PodStatusPatchCall, Role::Entry, 20, call),
            event(900, Function::PodStatusPatchCall, Role::Ret, 20, code(1)),
        ]);
    }
    for (number, event) in events.iter_mut().enumerate() {
        event.time_ns = number as u64;
    }
    events
}

#[test]
fn an_attempt_waits_for_what_it_asked_of_the_api_server_and_ends_when_it_ended() {
    let mut assembler = Assembler::default();
    let mut events = failed_with_api_call(0);
    let last = events.pop().expect("there are events");
    let (asked_ns, answered_ns) = (events[events.len() - 4].time_ns, last.time_ns);
    events.into_iter().for_each(|event| assembler.on(event));
    assert!(assembler.take_finished().is_empty());
    assembler.on(last);
    let attempts = assembler.take_finished();
    let call = attempts[0].calls.last().expect("there are calls");
    assert_eq!(
        (call.function, call.end_ns, call.code),
        (Function::PodStatusPatchCall, answered_ns, Some(Code::ERROR))
    );
    assert_eq!(call.api_call.as_ref().and_then(|call| call.queued_ns), Some(asked_ns));
    assert_eq!(attempts[0].end_ns, answered_ns - 2);
    assert!(!attempts[0].incomplete);
    assert_eq!((assembler.stats(), assembler.account().open()), (Stats::default(), 0));
}

#[test]
fn an_attempt_waits_for_no_call_that_is_not_made_and_for_none_for_ever() {
    let mut assembler = Assembler::default();
    failed_with_api_call(1).into_iter().for_each(|event| assembler.on(event));
    assert_eq!(assembler.take_finished().len(), 1);
    let mut assembler = Assembler::default();
    let events = failed_with_api_call(0);
    events[..events.len() - 2].iter().for_each(|event| assembler.on(event.clone()));
    assembler.expire(1_000_000_000);
    assert!(assembler.take_finished().is_empty());
    assembler.expire(11_000_000_000);
    assert_eq!(assembler.take_finished().len(), 1);
    // It comes all the same, and is nobody's.
    events[events.len() - 2..].iter().for_each(|event| assembler.on(event.clone()));
    assert_eq!(
        (assembler.take_finished().len(), assembler.stats(), assembler.account().unrelated),
        (0, Stats::default(), 2)
    );
}

#[test]
fn an_attempt_says_that_it_lacks_the_call_that_it_waited_for_when_its_scheduler_ended() {
    let mut assembler = Assembler::default();
    let events = failed_with_api_call(0);
    events[..events.len() - 2].iter().for_each(|event| assembler.on(event.clone()));
    assembler.exit(0);
    let attempts = assembler.take_finished();
    assert_eq!((attempts.len(), attempts[0].incomplete), (1, true));
}

#[test]
fn what_an_extender_bound_has_no_end_of_a_phase_that_did_not_run() {
    let url = Some("http://extender".to_owned());
    let asked = Values::default().with(Value::ExtenderUrl, url);
    let mut one = script(1, Fate::Bound, 8);
    let at = one.binding.len() - 3;
    let next = event(101, Function::Bind, Role::NextEntry, 7, Values::default());
    let ends = event(101, Function::ExtenderBind, Role::Ret, 120, Values::default());
    one.binding.splice(at..at, [event(101, Function::ExtenderBind, Role::Entry, 120, asked), ends, next]);
    let (attempts, stats) = play([one]);
    assert_eq!((attempts[0].outcome.clone(), stats), (Outcome::Scheduled, Stats::default()));
    let call = attempts[0].calls.iter().find(|call| call.function == Function::ExtenderBind);
    let extender = call.and_then(|call| call.extender.as_ref()).expect("it was asked");
    assert_eq!((extender.url.as_str(), extender.verb.as_str()), ("http://extender", ""));
}
