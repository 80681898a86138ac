//! Something is cut while attempts run: there are as many of them, with the same results, and none shows what is not whole.

use std::collections::{BTreeMap, HashMap, HashSet};

use gotrace::{
    account::{Account, Stats},
    governor::Cut,
    program::{Assemble as _, Function as _},
};
use proptest::{collection::vec, prelude::*};

use super::{
    Case, cases,
    checks::{assemble, check_traces, key},
    model::Schedule,
    script::{Choices, Key, Troubles},
};
use crate::{
    Event,
    attempt::{Assembler, Attempt, Outcome, Subject, tests::config},
    table::Function,
};

/// Assembles events; before each, `cut` may say that something else is cut from there on. Of what is cut, comes what `comes` says.
fn assemble_cut(
    events: &[Event],
    mut cut: impl FnMut(usize) -> Option<Cut>,
    mut comes: impl FnMut() -> bool,
) -> (Vec<Attempt>, Stats, Account) {
    let mut assembler = Assembler::default();
    let mut cuts: HashMap<u32, Cut> = HashMap::new();
    for (place, event) in events.iter().enumerate() {
        let is_cut = cuts.entry(event.target).or_default();
        if let Some(to) = cut(place) {
            *is_cut = to;
            assembler.cut(event.target, event.time_ns, to);
        }
        if is_cut.keeps_detail(event.function.detail_at(event.role)) || comes() {
            assembler.on(event.clone());
        }
    }
    assembler.expire(11_000_000_000);
    (0..4).for_each(|target| assembler.exit(target));
    (assembler.take_finished(), assembler.stats(), assembler.account())
}

/// What roots say of results, and whether the Pod is one of a group. A failure has its first reason; the message of the Pod's condition is
/// known if the phases are.
fn results(attempts: &[Attempt]) -> BTreeMap<Key, (Outcome, Option<String>, bool)> {
    let result = |attempt: &Attempt| {
        let mut outcome = attempt.outcome.clone();
        if let Outcome::Failed { reason, .. } = &mut outcome {
            reason.clear();
        }
        let node = attempt.node.clone().filter(|_| outcome == Outcome::Scheduled);
        (key(attempt), (outcome, node, matches!(attempt.subject, Subject::Member(_))))
    };
    attempts.iter().map(result).collect()
}

/// The events of a case, without faults.
fn played(Case { processes, pods, what, order }: &Case) -> (Schedule, Vec<Event>) {
    let (mut what, mut order) = (Choices::new(what), Choices::new(order));
    let schedule = Schedule::of(*processes, *pods, &mut what, &mut order, Troubles::default());
    let delivered = schedule.delivered(&mut order, Troubles::default());
    (schedule, delivered)
}

proptest! {
    #![proptest_config(config(8_000))]

    #[test]
    fn whatever_is_cut_attempts_are_the_same_and_show_only_what_is_whole(
        case in cases(),
        cuts in vec(any::<u8>(), 1..48),
        comes in vec(any::<bool>(), 1..48),
    ) {
        let (schedule, delivered) = played(&case);
        let (whole, uncut, _) = assemble(delivered.clone(), Troubles::default());
        let (mut choices, mut comes) = (Choices::new(&cuts), comes.iter().cycle());
        let cut = |_| choices.one_in(5).then(|| Cut::ALL[choices.below(Cut::ALL.len())]);
        let (attempts, stats, account) = assemble_cut(&delivered, cut, || comes.next() == Some(&true));
        prop_assert_eq!(results(&attempts), results(&whole));
        prop_assert_eq!(attempts.len(), whole.len());
        check_traces(&attempts);
        prop_assert_eq!(account.open(), 0, "{:?}", account);
        prop_assert_eq!((stats.unwound_calls, stats.incomplete_attempts, stats.table_full), (0, 0, 0));
        prop_assert_eq!(stats.skipped, uncut.skipped);
        let truth = schedule.truth();
        for attempt in &attempts {
            prop_assert!(!attempt.incomplete, "{attempt:?}");
            let made = truth.get(&key(attempt)).map_or(&[][..], Vec::as_slice);
            for call in &attempt.calls {
                let shown = (call.function, call.start_ns, Some(call.end_ns));
                prop_assert!(made.contains(&shown), "{call:?} is not one of {made:?}");
            }
            let shown = |made: &(_, u64, _)| {
                attempt.calls.iter().any(|call| (call.function, call.start_ns) == (made.0, made.1))
            };
            for made in made.iter().filter(|made| !shown(made)) {
                prop_assert!(!attempt.cut.keeps_detail(made.0.whole_detail()), "{made:?} is not in {attempt:?}");
            }
        }
    }

    #[test]
    fn phases_may_go_and_come_back_at_any_moment_and_roots_stay_the_same(
        case in cases(),
        switch in any::<prop::sample::Index>(),
        goes in any::<bool>(),
    ) {
        let (_, delivered) = played(&case);
        let (whole, uncut, _) = assemble(delivered.clone(), Troubles::default());
        let at = switch.index(delivered.len());
        let (first, then) = if goes { (Cut::Nothing, Cut::Phases) } else { (Cut::Phases, Cut::Nothing) };
        let mut told = HashMap::new();
        let cut = |place: usize| {
            let now = if place < at { first } else { then };
            (told.insert(delivered[place].target, now) != Some(now)).then_some(now)
        };
        let (attempts, stats, account) = assemble_cut(&delivered, cut, || false);
        prop_assert_eq!(results(&attempts), results(&whole));
        prop_assert_eq!(account.open(), 0, "{:?}", account);
        prop_assert_eq!((stats.unwound_calls, stats.incomplete_attempts, stats.skipped), (0, 0, uncut.skipped));
        prop_assert_eq!((stats.orphan_calls, stats.orphan_facts, stats.table_full), (0, 0, 0));
        check_traces(&attempts);
        for attempt in &attempts {
            prop_assert!(!attempt.incomplete, "{attempt:?}");
            prop_assert_eq!(&attempt.pod.uid, &format!("uid-{}", key(attempt).1).repeat(usize::from(attempt.number.is_some())));
        }
    }

    #[test]
    fn without_phases_an_attempt_has_a_root_and_its_binding_cycle_at_most(case in cases()) {
        let (schedule, delivered) = played(&case);
        let mut told = HashSet::new();
        let cut = |place: usize| told.insert(delivered[place].target).then_some(Cut::Phases);
        let (attempts, _, account) = assemble_cut(&delivered, cut, || false);
        let truth = schedule.truth();
        prop_assert_eq!(account.open(), 0);
        for attempt in &attempts {
            prop_assert_eq!(attempt.cut, Cut::Phases);
            prop_assert_eq!((attempt.enqueued_ns, attempt.moves.len()), (None, 0));
            let made = &truth[&key(attempt)];
            let of = |function| made.iter().find(|(made, ..)| *made == function);
            for call in &attempt.calls {
                prop_assert!([Function::BindingCycle, Function::PodGroupMember].contains(&call.function));
                prop_assert!(made.contains(&(call.function, call.start_ns, Some(call.end_ns))));
            }
            let ended = match (of(Function::HandleFailure), of(Function::BindingCycle)) {
                (Some((_, failed, _)), _) => Some(*failed),
                (None, Some((.., bound))) => *bound,
                (None, None) => None,
            };
            let is_single = attempt.subject == Subject::Pod;
            prop_assert!(!is_single || Some(attempt.end_ns) == ended, "{attempt:?} ends at {ended:?}");
        }
    }
}
