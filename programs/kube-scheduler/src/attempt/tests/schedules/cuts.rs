//! Something is cut while attempts run: there are as many of them, with the same results, and none shows what is not whole.

use std::collections::{BTreeMap, HashMap};

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
    attempt::{Assembler, Attempt, Outcome, tests::config},
};

/// Assembles events, of which something is cut at some moments. What is cut may come or not.
fn assemble_cut(events: &[Event], choices: &mut Choices<'_>) -> (Vec<Attempt>, Stats, Account) {
    let mut assembler = Assembler::default();
    let mut cuts: HashMap<u32, Cut> = HashMap::new();
    for event in events {
        let cut = cuts.entry(event.target).or_default();
        if choices.one_in(5) {
            *cut = Cut::ALL[choices.below(Cut::ALL.len())];
            assembler.cut(event.target, event.time_ns, *cut);
        }
        if cut.keeps_detail(event.function.detail()) || choices.one_in(2) {
            assembler.on(event.clone());
        }
    }
    assembler.expire(11_000_000_000);
    (0..4).for_each(|target| assembler.exit(target));
    (assembler.take_finished(), assembler.stats(), assembler.account())
}

fn outcomes(attempts: &[Attempt]) -> BTreeMap<Key, Outcome> {
    attempts.iter().map(|attempt| (key(attempt), attempt.outcome.clone())).collect()
}

proptest! {
    #![proptest_config(config(40_000))]

    #[test]
    fn whatever_is_cut_attempts_are_the_same_and_show_only_what_is_whole(
        case in cases(),
        cuts in vec(any::<u8>(), 1..48),
    ) {
        let Case { processes, pods, what, order } = &case;
        let (mut what, mut order) = (Choices::new(what), Choices::new(order));
        let troubles = Troubles::default();
        let schedule = Schedule::of(*processes, *pods, &mut what, &mut order, troubles);
        let delivered = schedule.delivered(&mut order, troubles);
        let (whole, uncut, _) = assemble(delivered.clone(), troubles);
        let (attempts, stats, account) = assemble_cut(&delivered, &mut Choices::new(&cuts));
        prop_assert_eq!(outcomes(&attempts), outcomes(&whole));
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
                prop_assert!(!attempt.cut.keeps_detail(made.0.detail()), "{made:?} is not in {attempt:?}");
            }
        }
    }
}
