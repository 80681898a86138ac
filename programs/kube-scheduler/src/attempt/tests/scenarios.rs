//! Scenarios written by hand: one attempt, two, or a group, each with something special.

use std::sync::Arc;

use gotrace::{
    Role,
    account::Stats,
    decode::{Entries, Listed},
    program::Assemble as _,
};

use super::{LOOP, event, status};
use crate::{
    Event, Values,
    attempt::{Assembler, Attempt, Code, InQueue, Outcome, Preemption, Previous, QueueCall, Subject},
    table::Function,
    values::Value,
};

/// The outcome of an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Bound,
    Unschedulable,
    /// Fails in the binding cycle.
    NotBound,
}

/// The events of one attempt on the scheduling loop, and those on its binding goroutine, without times.
pub(super) struct Scene {
    pub(super) scheduling: Vec<Event>,
    pub(super) binding: Vec<Event>,
}

/// A call and its return.
fn call(list: &mut Vec<Event>, goroutine: u64, function: Function, depth: u64, entry: Values, end: Values) {
    list.push(event(goroutine, function, Role::Entry, depth, entry));
    list.push(event(goroutine, function, Role::ReturnSite, depth, end));
}

/// The scheduler handles a failure with this code.
fn fail(list: &mut Vec<Event>, goroutine: u64, depth: u64, code: i64) {
    list.push(event(goroutine, Function::HandleFailure, Role::Entry, depth, status(code)));
    list.push(event(goroutine, Function::HandleFailure, Role::Ret, depth, Values::default()));
}

/// The queue's information about a Pod.
pub(super) fn queued(number: u64, pod: u64) -> Values {
    Values::default()
        .with(Value::QueuedPodInfo, 0x2000 + number)
        .with(Value::Pod, pod)
        .with(Value::PodUid, format!("uid-{number}"))
        .with(Value::Attempts, 1)
}

/// An attempt. Its number selects its addresses of a `pool`: attempts with the same addresses do not overlap.
pub(super) fn scene(number: u64, fate: Fate, pool: u64) -> Scene {
    let none = Values::default;
    let (state, place) = (0x1000 + number % pool, number % pool);
    let (pod, assumed) = (0x8000 + place, 0xf000 + place);
    let known = |pod: u64| none().with(Value::CycleState, state).with(Value::Pod, pod);
    let mut scheduling = vec![
        event(LOOP, Function::Pop, Role::ReturnSite, 50, queued(number, pod)),
        event(LOOP, Function::SchedulingCycle, Role::Entry, 100, none()),
    ];
    call(&mut scheduling, LOOP, Function::PreFilter, 200, known(pod), status(0));
    call(&mut scheduling, LOOP, Function::Filter, 200, none(), none());
    let (last, of, code) = match fate {
        Fate::Unschedulable => (Function::PostFilter, pod, 2),
        Fate::Bound | Fate::NotBound => (Function::Reserve, assumed, 0),
    };
    call(&mut scheduling, LOOP, last, 150, known(of), status(code));
    scheduling.push(event(LOOP, Function::SchedulingCycle, Role::ReturnSite, 100, none()));
    let mut binding = Vec::new();
    if fate == Fate::Unschedulable {
        fail(&mut scheduling, LOOP, 100, 2);
        return Scene { scheduling, binding };
    }
    let goroutine = 100 + number;
    binding.push(event(goroutine, Function::BindingCycle, Role::Entry, 60, none()));
    let wait = none().with(Value::Pod, assumed);
    call(&mut binding, goroutine, Function::WaitOnPermit, 90, wait, status(0));
    call(&mut binding, goroutine, Function::PreBind, 90, known(assumed), status(0));
    if fate == Fate::Bound {
        call(&mut binding, goroutine, Function::PostBind, 90, known(assumed), none());
    }
    binding.push(event(goroutine, Function::BindingCycle, Role::ReturnSite, 60, none()));
    if fate == Fate::NotBound {
        fail(&mut binding, goroutine, 70, 1);
    }
    Scene { scheduling, binding }
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

#[test]
fn a_call_that_panics_is_closed_as_unwound_and_the_next_one_is_right() {
    let Scene { mut scheduling, binding } = scene(0, Fate::Bound, 1);
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
fn a_process_that_ends_leaves_only_incomplete_attempts() {
    let Scene { scheduling, .. } = scene(0, Fate::Bound, 1);
    let half = scheduling.len() / 2;
    let (attempts, stats) = assemble(scheduling.into_iter().take(half));
    assert_eq!((attempts.len(), stats.incomplete_attempts), (1, 1));
    assert_eq!(attempts[0].outcome, Outcome::Unknown);
}

#[test]
fn an_attempt_that_is_silent_for_too_long_is_given_up() {
    let mut assembler = Assembler::default();
    let Scene { scheduling, .. } = scene(0, Fate::Bound, 1);
    for event in scheduling {
        assembler.on(event);
    }
    assembler.expire(60_000_000_000);
    assert!(assembler.take_finished().is_empty(), "Permit may wait for minutes");
    assembler.expire(31 * 60_000_000_000);
    assert_eq!(assembler.take_finished().len(), 1);
}

/// Plays attempts one after the other.
pub(super) fn play(scenes: impl IntoIterator<Item = Scene>) -> (Vec<Attempt>, Stats) {
    let events =
        scenes.into_iter().flat_map(|Scene { scheduling, binding }| scheduling.into_iter().chain(binding));
    assemble(events.enumerate().map(|(time, event)| Event { time_ns: time as u64, ..event }))
}

pub(super) fn entered(goroutine: u64, function: Function, entry: u64) -> Event {
    let values = Values::default().with(Value::QueuedPodInfo, entry);
    event(goroutine, function, Role::Entry, 10, values)
}

pub(super) fn counted(goroutine: u64, queue: &str, reason: &str) -> Event {
    let values = Values::default()
        .with(Value::Queue, queue.to_owned())
        .with(Value::QueueEvent, reason.to_owned())
        .with(Value::Labels, 2);
    event(goroutine, Function::QueueMove, Role::Entry, 10, values)
}

#[test]
fn a_pod_has_its_queue_history_and_its_previous_attempt() {
    let mut first = scene(0, Fate::Unschedulable, 1);
    let mut second = scene(1, Fate::Bound, 1);
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

/// A phase that runs while a Pod waits. Its metric says when it began, which is after the entry.
fn in_queue(function: Function, entry: Values, code: i64, (start_ns, end_ns): (u64, u64)) -> [Event; 2] {
    let end = status(code).with(Value::StartedNs, start_ns);
    [
        Event { time_ns: start_ns - 1, ..event(7, function, Role::Entry, 40, entry) },
        Event { time_ns: end_ns, ..event(7, function, Role::Metric, 60, end) },
    ]
}

fn pre_enqueue(code: i64, times: (u64, u64)) -> [Event; 2] {
    let entry = Values::default().with(Value::QueuedPodInfo, 0x2000).with(Value::Pod, 0x8000);
    in_queue(Function::PreEnqueue, entry, code, times)
}

fn sign(pod: u64, times: (u64, u64)) -> [Event; 2] {
    in_queue(Function::Sign, Values::default().with(Value::Pod, pod), 0, times)
}

fn queue_call(function: Function, (start_ns, end_ns): (u64, u64)) -> QueueCall {
    QueueCall { function, start_ns, end_ns, code: Some(Code::SUCCESS), gate: None, returned: true }
}

/// The first attempt of the Pod with the `QueuedPodInfo` 0x2000, after these events.
fn after(events: impl IntoIterator<Item = Event>) -> (InQueue, Stats) {
    let Scene { scheduling, binding } = scene(0, Fate::Bound, 1);
    let attempt = scheduling.into_iter().chain(binding).map(|event| Event { time_ns: 10_000, ..event });
    let (attempts, stats) = assemble(events.into_iter().chain(attempt));
    let [attempt] = attempts.as_slice() else { panic!("one attempt was made: {attempts:?}") };
    (attempt.in_queue.clone(), stats)
}

#[test]
fn a_pod_has_what_ran_for_it_in_the_queue() {
    let events = [sign(0x8000, (10, 54)), pre_enqueue(0, (60, 62))].into_iter().flatten();
    let (in_queue, stats) =
        after(events.chain([Event { time_ns: 65, ..entered(7, Function::Enqueue, 0x2000) }]));
    assert_eq!(stats, Stats::default());
    let calls = vec![queue_call(Function::Sign, (10, 54)), queue_call(Function::PreEnqueue, (60, 62))];
    assert_eq!(in_queue, InQueue { calls, pre_enqueue_ns: 2, sign_ns: 44, ..InQueue::default() });
}

#[test]
fn one_event_tells_of_a_call_in_the_queue_what_two_do() {
    let two = [sign(0x8000, (10, 54)), pre_enqueue(3, (60, 62))];
    let one = two.clone().map(|[entry, end]| {
        let of_entry = [Value::QueuedPodInfo, Value::Pod].map(|value| (value, entry.values.number(value)));
        let values = of_entry.into_iter().fold(end.values, |values, (value, word)| values.with(value, word));
        Event { values, ..end }
    });
    let entered = Event { time_ns: 65, ..entered(7, Function::Enqueue, 0x2000) };
    let (in_queue, stats) = after(one.into_iter().chain([entered.clone()]));
    assert_eq!(
        (&in_queue, &stats),
        (&after(two.into_iter().flatten().chain([entered])).0, &Stats::default())
    );
    assert_eq!(in_queue.calls.len(), 2);
}

#[test]
fn a_gate_has_its_plugins_name_and_the_time_for_which_it_held_the_pod() {
    let gated = |time_ns, gate: &str| {
        let entered = entered(7, Function::EnqueueUnschedulable, 0x2000);
        Event { time_ns, values: entered.values.with(Value::Gate, gate.to_owned()), ..entered }
    };
    let events = pre_enqueue(0, (100, 102))
        .into_iter()
        .chain([gated(103, "SchedulingGates")])
        .chain(pre_enqueue(0, (500, 502)))
        .chain([gated(503, "Quota")])
        .chain(pre_enqueue(0, (900, 902)))
        .chain([Event { time_ns: 903, ..entered(7, Function::Enqueue, 0x2000) }, gated(904, "")]);
    let (in_queue, _) = after(events);
    // The scheduler's metric says Success of each.
    let told: Vec<_> = in_queue.calls.iter().map(|call| (call.code, call.gate.as_deref())).collect();
    assert_eq!(told, [(None, Some("SchedulingGates")), (None, Some("Quota")), (Some(Code::SUCCESS), None)]);
    assert_eq!((in_queue.held_ns, in_queue.held_since, in_queue.pre_enqueue_ns), (398 + 398, None, 6));
}

#[test]
fn up_to_1_33_the_status_says_that_a_pod_is_held() {
    let (in_queue, _) = after([pre_enqueue(3, (100, 102)), pre_enqueue(0, (702, 703))].into_iter().flatten());
    assert_eq!((in_queue.held_ns, in_queue.calls[0].gate.as_deref()), (600, None));
}

#[test]
fn a_signature_belongs_to_the_pod_that_was_signed() {
    // Another Pod, the Pod again while it waits, and the Pod in an attempt, as in 1.35.
    let events =
        [sign(0x9000, (10, 20)), sign(0x8000, (30, 40)), sign(0x8000, (50, 60))].into_iter().flatten();
    let (in_queue, stats) = after(events);
    assert_eq!(in_queue.calls, [queue_call(Function::Sign, (50, 60))]);
    assert_eq!(stats, Stats::default());
    let Scene { scheduling, binding } = scene(0, Fate::Bound, 1);
    let signed = sign(0x8000, (10, 20)).map(|event| Event { goroutine: LOOP, ..event });
    let during = scheduling.into_iter().chain(signed).chain(binding);
    let (attempts, stats) = assemble(during);
    assert_eq!((attempts[0].in_queue.calls.len(), stats), (0, Stats::default()));
}

#[test]
fn a_pod_at_the_address_of_one_that_is_being_bound_has_its_signature() {
    let Scene { scheduling, binding } = scene(0, Fate::Bound, 1);
    // Its Pod is where the first attempt's was, which the API server's answer has replaced.
    let next = scene(1, Fate::Unschedulable, 2).scheduling.into_iter().map(|event| {
        let moved = event.values.number(Value::Pod).map(|_| 0x8000);
        Event { values: event.values.with(Value::Pod, moved), ..event }
    });
    let events = scheduling.into_iter().chain(sign(0x8000, (10, 20))).chain(next).chain(binding);
    let (attempts, stats) = assemble(events);
    let signed = attempts.iter().map(|attempt| (attempt.pod.uid.as_str(), attempt.in_queue.calls.len()));
    assert_eq!((signed.collect::<Vec<_>>(), stats), (vec![("uid-1", 1), ("uid-0", 0)], Stats::default()));
}

#[test]
fn a_phase_in_the_queue_without_its_other_half_is_lost() {
    let [entry, end] = pre_enqueue(0, (10, 20));
    let [signing, signed] = sign(0x8000, (30, 40));
    for (events, lost) in [
        (vec![end.clone()], 1),
        (vec![entry.clone(), entry.clone(), end], 1),
        (vec![entry, signed], 2),
        // Its end may still come.
        (vec![signing], 0),
    ] {
        let (_, stats) = after(events);
        assert_eq!(stats, Stats { orphan_moves: lost, ..Stats::default() });
    }
}

#[test]
fn the_first_and_the_last_phases_in_the_queue_are_kept_and_all_are_summed() {
    let many = (1..=20).flat_map(|number| pre_enqueue(0, (100 * number, 100 * number + 2)));
    let (in_queue, _) = after(many);
    let starts: Vec<_> = in_queue.calls.iter().map(|call| call.start_ns / 100).collect();
    assert_eq!(starts, [1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 16, 17, 18, 19, 20]);
    assert_eq!((in_queue.left_out, in_queue.pre_enqueue_ns), (4, 40));
}

#[test]
fn a_pod_that_is_discarded_when_popped_is_no_loss() {
    let mut one = scene(0, Fate::Bound, 1);
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
fn the_first_and_the_last_of_many_moves_are_kept() {
    let mut one = scene(0, Fate::Bound, 1);
    let moves = (0..40).flat_map(|number| {
        [entered(7, Function::EnqueueUnschedulable, 0x2000), counted(7, "unschedulable", &number.to_string())]
    });
    one.scheduling.splice(0..0, moves);
    let (attempts, _) = play([one]);
    let Attempt { moves, moves_left_out, .. } = &attempts[0];
    assert_eq!((moves.len() as u64 + moves_left_out, moves_left_out), (40, &24));
    assert_eq!((&*moves[0].event, moves.last().map(|last| &*last.event)), ("0", Some("39")));
}

#[test]
fn a_plugin_on_a_goroutine_of_its_own_belongs_to_the_attempt_whose_state_it_gets() {
    let mut one = scene(0, Fate::Bound, 1);
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
fn a_call_that_began_before_the_attempt_is_not_part_of_it() {
    // The plugin of an ended attempt calls another one, with addresses that the next attempt has as well.
    let known = |plugin: &str| {
        Values::default().with(Value::CycleState, 0x1000).with(Value::Plugin, Arc::<str>::from(plugin))
    };
    let plugin = |plugin, role, depth| event(500, Function::NormalizeScorePlugin, role, depth, known(plugin));
    let mut one = scene(0, Fate::Bound, 1);
    let place = one.scheduling.iter().position(|event| event.function == Function::Reserve).expect("it ran");
    one.scheduling.splice(
        place..place,
        [
            plugin("Inner", Role::Entry, 20),
            plugin("Inner", Role::ReturnSite, 20),
            event(500, Function::NormalizeScorePlugin, Role::ReturnSite, 10, Values::default()),
        ],
    );
    let late = event(500, Function::NormalizeScorePlugin, Role::Entry, 10, Values::default());
    one.scheduling.insert(0, late);
    let (attempts, stats) = play([one]);
    let [attempt] = attempts.as_slice() else { panic!("one attempt was made: {attempts:?}") };
    assert!(attempt.calls.iter().all(|call| call.plugin.is_none()), "{:?}", attempt.calls);
    assert!(stats.orphan_calls > 0, "{stats:?}");
}

#[test]
fn an_attempt_is_batched_if_it_is_given_a_node() {
    for (hint, batched) in [(None, false), (Some(0), false), (Some(6), true)] {
        let mut one = scene(0, Fate::Bound, 1);
        let values =
            hint.map_or_else(Values::default, |hint| Values::default().with(Value::HintLength, hint));
        one.scheduling.insert(4, event(LOOP, Function::NodeHint, Role::Entry, 300, values));
        let (attempts, _) = play([one]);
        assert_eq!(attempts[0].batched, batched, "{hint:?}");
    }
}

#[test]
fn a_scheduled_pod_has_the_nodes_that_it_did_not_fit_on() {
    let mut one = scene(0, Fate::Bound, 1);
    one.scheduling
        .insert(4, event(LOOP, Function::RejectedNodes, Role::Entry, 300, rejecting(3, &["a", "b", "c"])));
    let (attempts, _) = play([one]);
    let statuses = attempts[0].statuses.as_deref().expect("they were read");
    assert_eq!((statuses.keys, &statuses.listed), (3, &vec![listed(&["a", "b", "c"])]));
}

#[test]
fn names_of_nodes_stay_if_they_are_read_again_without() {
    let mut one = scene(0, Fate::Bound, 1);
    let read =
        |ns, keys, names| event(LOOP, Function::RejectedNodes, Role::Entry, ns, rejecting(keys, names));
    one.scheduling.splice(4..4, [read(300, 2, &["a", "b"]), read(310, 3, &[])]);
    let (attempts, _) = play([one]);
    let statuses = attempts[0].statuses.as_deref().expect("they were read");
    assert_eq!((statuses.keys, &statuses.listed), (3, &vec![listed(&["a", "b"])]));
}

fn rejecting(keys: u64, names: &[&str]) -> Values {
    let listed = if names.is_empty() { Vec::new() } else { vec![listed(names)] };
    let entries = Entries { keys, looked_at: keys, listed, ..Entries::default() };
    Values::default().with(Value::Statuses, entries)
}

fn listed(names: &[&str]) -> Listed {
    let keys = names.iter().map(|name| Arc::from(*name)).collect();
    Listed { name: Some("NodeResourcesFit".into()), code: 2, texts: Vec::new(), keys }
}

#[test]
fn a_plugin_with_one_record_began_where_the_one_before_it_ended() {
    let mut one = scene(0, Fate::Bound, 2);
    let place =
        one.scheduling.iter().position(|event| event.function == Function::PreFilter).expect("it ran");
    let turn = |plugin: &str| {
        let values =
            Values::default().with(Value::Plugin, Arc::<str>::from(plugin)).with(Value::StatusCode, 5);
        event(LOOP, Function::PreFilterPlugin, Role::InTurn, 300, values)
    };
    one.scheduling.splice(place + 1..place + 1, ["NodePorts", "NodeAffinity"].map(turn));
    // In the next attempt the second one panics, and so the phase does not end.
    let mut two = scene(1, Fate::Bound, 2);
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
    let shown: Vec<_> =
        [first, second, phase].map(|call| (call.plugin.as_deref(), call.code)).into_iter().collect();
    assert_eq!(
        shown,
        [
            (Some("NodePorts"), Some(Code::SKIP)),
            (Some("NodeAffinity"), Some(Code::SKIP)),
            (None, Some(Code::SUCCESS))
        ]
    );
    // The plugin after the first is known.
    let [first, phase] = calls(1)[..] else { panic!("a plugin and a phase: {attempts:?}") };
    assert!(first.returned && !phase.returned);
    assert_eq!((first.plugin.as_deref(), phase.plugin.as_deref()), (Some("NodePorts"), Some("NodeAffinity")));
    assert_eq!(stats, Stats { unwound_calls: 1, ..Stats::default() });
    // A plugin whose phase is unknown has no span.
    let mut three = scene(2, Fate::Bound, 3);
    three.scheduling.insert(place, turn("NodePorts"));
    let (attempts, stats) = play([three]);
    assert!(attempts[0].calls.iter().all(|call| call.plugin.is_none()));
    assert_eq!(stats, Stats { orphan_calls: 1, ..Stats::default() });
}

#[test]
fn a_failure_has_the_written_condition_and_the_victims() {
    let mut one = scene(0, Fate::Unschedulable, 1);
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

/// A group of three Pods, of which the first is popped: all are tried, the first two are bound.
fn group_scene() -> Scene {
    let on_loop = |function, role, depth, values| event(LOOP, function, role, depth, values);
    let none = Values::default;
    let member = |pod| queued(pod, 0x8000 + pod);
    let known = |pod: u64| none().with(Value::CycleState, 0x1000 + pod).with(Value::Pod, 0x8000 + pod);
    let group =
        none().with(Value::GroupName, "gang").with(Value::GroupNamespace, "ns").with(Value::GroupSize, 3);
    let mut scheduling = vec![
        on_loop(Function::Pop, Role::ReturnSite, 50, member(0)),
        on_loop(Function::PodGroup, Role::Entry, 60, group),
    ];
    call(&mut scheduling, LOOP, Function::Snapshot, 100, none(), none());
    scheduling.push(on_loop(Function::PlacementTrial, Role::Entry, 80, none()));
    // The third is never tried.
    for pod in 0..2 {
        scheduling.push(on_loop(Function::PodGroupMember, Role::Entry, 100, member(pod)));
        call(&mut scheduling, LOOP, Function::PreFilter, 200, known(pod), none());
        call(&mut scheduling, LOOP, Function::Filter, 200, none(), none());
        call(&mut scheduling, LOOP, Function::Reserve, 200, known(pod), none());
        scheduling.push(on_loop(Function::PodGroupMember, Role::ReturnSite, 100, none()));
    }
    for pod in (0..2).rev() {
        call(&mut scheduling, LOOP, Function::Unreserve, 90, known(pod), none());
    }
    scheduling.push(on_loop(Function::PlacementTrial, Role::ReturnSite, 80, none()));
    for pod in 0..2 {
        call(&mut scheduling, LOOP, Function::Reserve, 100, known(pod), none());
    }
    let failure = member(2).with(Value::StatusCode, 2);
    scheduling.push(on_loop(Function::HandleFailure, Role::Entry, 100, failure));
    scheduling.push(on_loop(Function::HandleFailure, Role::Ret, 100, none()));
    let scheduled = none().with(Value::ConditionReason, "Scheduled");
    scheduling.push(on_loop(Function::PodGroupCondition, Role::Entry, 300, scheduled));
    scheduling.push(on_loop(Function::PodGroup, Role::ReturnSite, 60, none()));
    let mut binding = Vec::new();
    for pod in 0..2 {
        let goroutine = 100 + pod;
        binding.push(event(goroutine, Function::BindingCycle, Role::Entry, 60, known(pod)));
        call(&mut binding, goroutine, Function::PostBind, 90, known(pod), none());
        binding.push(event(goroutine, Function::BindingCycle, Role::ReturnSite, 60, none()));
    }
    Scene { scheduling, binding }
}

#[test]
fn a_group_of_pods_is_an_attempt_and_so_is_each_of_its_pods() {
    let (attempts, stats) = play([group_scene()]);
    let [third, first, second, group] = attempts.as_slice() else { panic!("four attempts: {attempts:?}") };
    assert_eq!(stats, Stats::default());
    let Subject::Group { group: gang, size, scheduled } = &group.subject else {
        panic!("{:?}", group.subject)
    };
    assert_eq!((gang.identity().as_str(), *size, *scheduled), ("ns/gang", Some(3), 2));
    assert_eq!([&*group.pod.namespace, &*group.pod.name], ["ns", "gang"]);
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

/// A group of groups with the Pods of [`group_scene`], whose groups get these conditions.
fn group_of_groups(reasons: &[&'static str]) -> Attempt {
    let Scene { mut scheduling, binding } = group_scene();
    // From 1.37 on, the queue has groups instead of their Pods.
    let popped = scheduling.remove(0);
    assert_eq!(popped.function, Function::Pop);
    scheduling[0].values.set(Value::GroupSize, 0);
    let condition = |reason: &&'static str| {
        let values = Values::default().with(Value::ConditionReason, *reason);
        event(LOOP, Function::PodGroupCondition, Role::Entry, 300, values)
    };
    let place = scheduling.iter().position(|event| event.function == Function::PodGroupCondition);
    let place = place.expect("it has a condition");
    scheduling.splice(place..=place, reasons.iter().map(condition));
    let (attempts, stats) = play([Scene { scheduling, binding }]);
    assert_eq!(stats, Stats::default());
    attempts
        .into_iter()
        .find(|attempt| matches!(attempt.subject, Subject::Group { .. }))
        .expect("it is traced")
}

#[test]
fn a_group_of_groups_has_the_pods_of_all_and_the_result_of_the_whole() {
    let group = group_of_groups(&["Unschedulable", "Scheduled"]);
    assert!(
        matches!(group.subject, Subject::Group { size: Some(3), scheduled: 2, .. }),
        "{:?}",
        group.subject
    );
    // The scheduler writes the conditions in any order.
    let scheduled = [&["Scheduled", "Unschedulable"][..], &["SchedulerError", "Scheduled"]];
    for reasons in scheduled {
        assert_eq!(group_of_groups(reasons).outcome, Outcome::Scheduled, "{reasons:?}");
    }
    let failed = [
        (&["Unschedulable", "Unschedulable"][..], Code::UNSCHEDULABLE),
        (&["Unschedulable", "SchedulerError"], Code::ERROR),
        (&["SchedulerError", "Unschedulable"], Code::ERROR),
    ];
    for (reasons, expected) in failed {
        let outcome = group_of_groups(reasons).outcome;
        let Outcome::Failed { code, .. } = outcome else { panic!("{reasons:?}: {outcome:?}") };
        assert_eq!(code, Some(expected), "{reasons:?}");
    }
}

#[test]
fn a_pod_of_a_group_does_not_begin_before_its_group() {
    let group = event(LOOP, Function::PodGroup, Role::Entry, 60, Values::default());
    let failed = event(LOOP, Function::HandleFailure, Role::Entry, 100, queued(1, 0x8000));
    // The clock of a recording may go back.
    let (attempts, _) = assemble([Event { time_ns: 10, ..group }, Event { time_ns: 7, ..failed }]);
    let times: Vec<_> = attempts.iter().map(|attempt| (attempt.start_ns, attempt.end_ns)).collect();
    assert_eq!(times, [(10, 10), (10, 10)]);
}

#[test]
fn an_abandoned_group_is_incomplete() {
    let mut group = group_scene();
    group.scheduling.pop();
    let (attempts, stats) = play([group, scene(7, Fate::Bound, 1)]);
    assert_eq!(stats, Stats { incomplete_attempts: 1, ..Stats::default() });
    let incomplete: Vec<_> = attempts.iter().filter(|attempt| attempt.incomplete).collect();
    let [group] = incomplete.as_slice() else { panic!("one is incomplete: {incomplete:?}") };
    assert!(matches!(group.subject, Subject::Group { .. }));
}

#[test]
fn a_pod_that_is_popped_before_its_failure_has_been_handled_is_linked_all_the_same() {
    let mut first = scene(0, Fate::NotBound, 2);
    let mut second = scene(1, Fate::Bound, 2);
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
fn a_panicked_binding_goroutine_does_not_get_the_calls_of_the_next_user_of_its_addresses() {
    let mut first = scene(0, Fate::Bound, 1);
    let mut second = scene(1, Fate::Bound, 1);
    // `WaitOnPermit` was its last record.
    first.binding.truncate(3);
    // `WaitOnPermit` is the first record with the assumed Pod's address.
    second.scheduling.retain(|event| event.function != Function::Reserve);
    let (attempts, _) = play([first, second]);
    let [second, first] = attempts.as_slice() else { panic!("two attempts were made: {attempts:?}") };
    assert_eq!((&second.outcome, second.incomplete), (&Outcome::Scheduled, false));
    assert!(second.calls.iter().any(|call| call.function == Function::WaitOnPermit));
    assert_eq!((&first.outcome, first.incomplete), (&Outcome::Unknown, true));
    assert!(first.end_ns < second.start_ns);
}

/// A failed attempt with a call to the API server that ends after the attempt.
fn failed_with_api_call(added: i64) -> Vec<Event> {
    let call = Values::default().with(Value::ApiCall, 0x9000).with(Value::PodUid, "uid-1");
    let code = |code| Values::default().with(Value::StatusCode, code);
    let mut events = scene(1, Fate::Unschedulable, 8).scheduling;
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
fn an_attempt_waits_for_its_api_call_and_ends_with_it() {
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
fn an_attempt_waits_only_for_calls_that_are_made_and_never_for_ever() {
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
    // The call comes nevertheless, and belongs to no attempt.
    events[events.len() - 2..].iter().for_each(|event| assembler.on(event.clone()));
    assert_eq!(
        (assembler.take_finished().len(), assembler.stats(), assembler.account().unrelated),
        (0, Stats::default(), 2)
    );
}

#[test]
fn an_attempt_whose_scheduler_ends_before_its_api_call_is_incomplete() {
    let mut assembler = Assembler::default();
    let events = failed_with_api_call(0);
    events[..events.len() - 2].iter().for_each(|event| assembler.on(event.clone()));
    assembler.exit(0);
    let attempts = assembler.take_finished();
    assert_eq!((attempts.len(), attempts[0].incomplete), (1, true));
}

#[test]
fn a_pod_bound_by_an_extender_has_no_phase_that_did_not_run() {
    let url = Some("http://extender".to_owned());
    let asked = Values::default().with(Value::ExtenderUrl, url);
    let mut one = scene(1, Fate::Bound, 8);
    let at = one.binding.len() - 3;
    let ends = event(101, Function::ExtenderBind, Role::Ret, 120, Values::default());
    one.binding.splice(at..at, [event(101, Function::ExtenderBind, Role::Entry, 120, asked), ends]);
    let (attempts, stats) = play([one]);
    assert_eq!((attempts[0].outcome.clone(), stats), (Outcome::Scheduled, Stats::default()));
    let call = attempts[0].calls.iter().find(|call| call.function == Function::ExtenderBind);
    let extender = call.and_then(|call| call.extender.as_ref()).expect("it was asked");
    assert_eq!((extender.url.as_str(), extender.verb.as_str()), ("http://extender", ""));
}

#[test]
fn a_phase_whose_end_does_not_say_when_it_began_is_one_call_from_its_entry_on() {
    let one = |role: Role, depth: u64| {
        let mut one = scene(1, Fate::Bound, 8);
        let ends = one.binding.iter_mut().filter(|event| event.role != Role::Entry);
        ends.filter(|event| event.function == Function::PreBind).for_each(|event| {
            (event.role, event.depth) = (role, event.depth + depth);
        });
        play([one])
    };
    // The metric is taken in a closure, deeper in the stack.
    assert_eq!(one(Role::Metric, 40), one(Role::ReturnSite, 0));
}
