//! Possible schedules, generated from bytes: whatever the interleaving, the loss or the panic, assembled attempts are
//! true, and every event is accounted for.

mod checks;
mod cuts;
mod model;
mod script;

use std::collections::BTreeMap;

use gotrace::account::{Account, Stats};
use proptest::{collection::vec, prelude::*};

pub(super) use self::checks::check_traces;
use self::{
    checks::{assemble, check_account, check_calls, check_links, check_order, key},
    model::{Schedule, waiting},
    script::{Choices, Key, Troubles},
};
use super::config;
use crate::{Event, attempt::Attempt, table::Function, values::Value};

/// The number of processes and Pods, what they do, and in which order.
#[derive(Clone, Debug)]
struct Case {
    processes: u32,
    pods: u64,
    what: Vec<u8>,
    order: Vec<u8>,
}

fn cases() -> impl Strategy<Value = Case> {
    let bytes = || vec(any::<u8>(), 0..48);
    (1u32..3, 1u64..4, bytes(), bytes()).prop_map(|(processes, pods, what, order)| Case {
        processes,
        pods,
        what,
        order,
    })
}

/// Plays a case, and checks what holds whatever goes wrong.
fn check(case: &Case, troubles: Troubles) -> (Schedule, Vec<Event>, Vec<Attempt>, Stats, Account) {
    let Case { processes, pods, what, order } = case;
    let (mut what, mut order) = (Choices::new(what), Choices::new(order));
    let schedule = Schedule::of(*processes, *pods, &mut what, &mut order, troubles);
    let delivered = schedule.delivered(&mut order, troubles);
    let (attempts, stats, account) = assemble(delivered.clone(), troubles);
    let truth = schedule.truth();
    for attempt in &attempts {
        check_calls(attempt, truth.get(&key(attempt)).map_or(&[], Vec::as_slice));
    }
    check_traces(&attempts);
    check_links(&attempts);
    check_account(&delivered, &attempts, stats, account, troubles);
    (schedule, delivered, attempts, stats, account)
}

proptest! {
    #![proptest_config(config(8_000))]

    #[test]
    fn without_faults_every_attempt_is_exact(case in cases()) {
        let (schedule, delivered, attempts, stats, account) = check(&case, Troubles::default());
        prop_assert_eq!((account.stray, account.orphaned, account.waiting), (0, 0, waiting(&schedule)));
        let mut popped: BTreeMap<Key, usize> = BTreeMap::new();
        for (key, _, event) in &schedule.order {
            if event.function == Function::Pop && event.values.number(Value::Pod).is_some() {
                popped.insert(*key, 0);
            } else if [Function::PodGroup, Function::PodGroupMember].contains(&event.function)
                || event.function == Function::HandleFailure && event.values.text(Value::PodUid).is_some()
            {
                *popped.entry(*key).or_default() += 1;
            } else if let Some(events) = popped.get_mut(key) {
                *events += 1;
            }
        }
        // A Pod that was popped and discarded has no more events.
        let skipped = popped.values().filter(|events| **events == 0).count() as u64;
        prop_assert_eq!(stats, Stats { skipped, ..Stats::default() });
        let tried: Vec<Key> = popped.iter().filter(|(_, events)| **events > 0).map(|(key, _)| *key).collect();
        let mut assembled: Vec<Key> = attempts.iter().map(key).collect();
        assembled.sort_unstable();
        prop_assert_eq!(assembled, tried);
        let outcomes = schedule.outcomes();
        for attempt in &attempts {
            prop_assert!(!attempt.incomplete);
            prop_assert_eq!(Some(&attempt.outcome), outcomes.get(&key(attempt)), "{:?}", attempt);
            check_order(attempt, &delivered);
            prop_assert_eq!(attempt.previous.is_some(), attempt.number > Some(1));
        }
    }
}
proptest! {
    #![proptest_config(config(4_000))]

    #[test]
    fn lost_records_are_counted_and_the_other_attempts_are_exact(case in cases()) {
        check(&case, Troubles { losses: true, panics: false });
    }

    #[test]
    fn panics_leave_calls_without_an_end_and_the_rest_is_exact(case in cases()) {
        let (_, _, _, stats, _) = check(&case, Troubles { losses: false, panics: true });
        prop_assert_eq!(stats.stray_ends, 0);
    }

    #[test]
    fn panics_with_losses_make_no_false_statement(case in cases()) {
        check(&case, Troubles { losses: true, panics: true });
    }
}
