//! Events in any order and with any values, of which something is cut at any time: nothing panics, each is accounted for, and the
//! attempts are well-formed.

use gotrace::{Role, governor::Cut, program::Assemble as _, program::Function as _};
use proptest::{collection::vec, option, prelude::*, sample::select};

use super::{config, event, schedules::check_traces};
use crate::{Event, Values, attempt::Assembler, table::Function, values::Value};

const ROLES: [Role; 6] =
    [Role::Entry, Role::ReturnSite, Role::NextEntry, Role::Ret, Role::InTurn, Role::Metric];

/// Few different values, so that some events match by accident.
fn values() -> impl Strategy<Value = Values> {
    let few = || option::of(0u64..4);
    let text = |texts: &'static [&'static str]| option::of(select(texts));
    let numbers = (few(), few(), few(), few(), few(), few(), few(), option::of(0u64..300));
    let texts = (
        text(&["uid-1", "uid-2"]),
        text(&["active", "backoff", "NodeResourcesFit"]),
        text(&["PopFromBackoffQ", "NodeAdd"]),
        text(&["gang", "crew"]),
        text(&["", "why"]),
        text(&["Scheduled", "Unschedulable"]),
    );
    (numbers, texts, option::of(any::<bool>())).prop_map(|(numbers, texts, panics)| {
        let (state, pod, entry, code, call, candidate, labels, started) = numbers;
        let (uid, queue, why, group, message, condition) = texts;
        Values::default()
            .with(Value::CycleState, state.filter(|state| *state > 0))
            .with(Value::Pod, pod.filter(|pod| *pod > 0))
            .with(Value::QueuedPodInfo, entry)
            .with(Value::StatusCode, code)
            .with(Value::ApiCall, call)
            .with(Value::PreemptionCandidate, candidate)
            .with(Value::Victims, candidate)
            .with(Value::Labels, labels)
            .with(Value::StartedNs, started)
            .with(Value::PodUid, uid)
            .with(Value::Queue, queue)
            .with(Value::QueueEvent, why)
            .with(Value::GroupName, group)
            .with(Value::Message, message)
            .with(Value::ConditionReason, condition)
            .with(Value::Panics, panics)
    })
}

proptest! {
    #![proptest_config(config(2_000))]

    #[test]
    fn nothing_that_a_ring_buffer_could_hold_makes_it_panic(
        raw in vec(
            (0u64..4, select(Function::ALL), select(&ROLES[..]), 0u64..5, 0u64..4, any::<bool>(), values()),
            0..200,
        ),
        cuts in vec(option::weighted(0.1, select(&Cut::ALL[..])), 1..50),
    ) {
        let mut assembler = Assembler::default();
        let mut cuts = cuts.into_iter().cycle();
        for (time, (goroutine, function, role, depth, skew, lost, values)) in raw.into_iter().enumerate() {
            cuts.next().flatten().into_iter().for_each(|cut| assembler.cut(0, time as u64, cut));
            assembler.on(Event {
                // The clocks of two CPUs may disagree, and a file may say anything.
                time_ns: (time as u64) ^ skew,
                took_ns: lost.into(),
                last_loss: lost.into(),
                ..event(goroutine, function, role, depth, values)
            });
        }
        assembler.exit(0);
        let (attempts, account) = (assembler.take_finished(), assembler.account());
        prop_assert_eq!(account.open(), 0, "{:?}", account);
        prop_assert_eq!(account.in_attempts, attempts.iter().map(|attempt| attempt.events).sum::<u64>());
        for attempt in &attempts {
            prop_assert!(attempt.calls.iter().all(|call| call.end_ns >= call.start_ns));
        }
        check_traces(&attempts);
    }
}
