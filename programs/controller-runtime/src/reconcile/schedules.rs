//! Schedules that could have happened, out of bytes: whatever the interleaving or the loss, no reconcile is paired wrongly, and no
//! event is left unaccounted for.

use std::collections::{BTreeMap, HashMap};

use gotrace::{Role, account::Stats, program::Assemble as _};
use proptest::{collection::vec, prelude::*};

use super::{Assembler, Outcome, tests::finished};
use crate::{Event, Values, table::Function, values::Value};

/// A reconcile as it was.
struct Truth {
    request: String,
    end: Option<(u64, Outcome)>,
}

#[derive(Default)]
struct Run {
    events: Vec<Event>,
    /// By the time of the beginning.
    truth: BTreeMap<u64, Truth>,
    /// Ends that are seen.
    counted: BTreeMap<&'static str, u64>,
    last_loss: u64,
}

const WORKERS: u8 = 4;

impl Run {
    /// What happens, by the bytes: each worker of a process begins and ends reconciles, one after the other.
    fn of(bytes: &[u8], losses: bool) -> Self {
        let mut run = Self::default();
        let mut open: HashMap<(u32, u64), u64> = HashMap::new();
        for (time_ns, choice) in (1_u64..).zip(bytes.chunks_exact(2)) {
            let (target, goroutine) = (u32::from(choice[0] % 2), u64::from(choice[0] / 2 % WORKERS));
            let lose = losses && choice[1] % 16 == 15;
            let key = (target, goroutine);
            let values = match open.remove(&key) {
                None => {
                    let name = format!("object-{time_ns}");
                    run.truth.insert(time_ns, Truth { request: format!("default/{name}"), end: None });
                    open.insert(key, time_ns);
                    let request = [Some("default".to_owned()), Some(name)];
                    Values::default().with(Value::Controller, "web").with(Value::Request, request)
                }
                Some(begin) => {
                    let (outcome, requeue, after, failed) = match choice[1] % 4 {
                        0 => (Outcome::Success, false, 0, 0),
                        1 => (Outcome::Requeue, true, 0, 0),
                        2 => (Outcome::RequeueAfter(time_ns), false, time_ns.cast_signed(), 0),
                        _ => (Outcome::Error, true, 5, 1),
                    };
                    if let Some(truth) = run.truth.get_mut(&begin) {
                        truth.end = Some((time_ns, outcome));
                    }
                    if !lose {
                        *run.counted.entry(outcome.name()).or_default() += 1;
                    }
                    Values::default()
                        .with(Value::Requeue, requeue)
                        .with(Value::RequeueAfter, after)
                        .with(Value::Failed, failed)
                }
            };
            if lose {
                run.last_loss += 1;
                continue;
            }
            let role = if open.contains_key(&key) { Role::Entry } else { Role::ReturnSite };
            let (function, depth, took_ns, last_loss) = (Function::Reconcile, 8, 0, run.last_loss);
            run.events.push(Event {
                target,
                time_ns,
                goroutine,
                depth,
                function,
                role,
                took_ns,
                last_loss,
                values,
            });
        }
        run
    }

    fn check(self, losses: bool) {
        let mut assembler = Assembler::default();
        let events = self.events.len() as u64;
        self.events.into_iter().for_each(|event| assembler.on(event));
        assembler.exit(0);
        assembler.exit(1);
        let account = assembler.account();
        assert_eq!((account.events, account.open()), (events, 0));
        let finished = finished(&mut assembler);
        for reconcile in &finished {
            let truth = &self.truth[&reconcile.start_ns];
            assert_eq!(reconcile.request.as_ref(), Some(&truth.request));
            if !reconcile.incomplete {
                assert_eq!(reconcile.outcome.map(|outcome| (reconcile.end_ns, outcome)), truth.end);
            }
            if !losses {
                assert_eq!(reconcile.incomplete, truth.end.is_none());
            }
        }
        if !losses {
            assert_eq!(finished.len(), self.truth.len());
            let incomplete = self.truth.values().filter(|truth| truth.end.is_none()).count() as u64;
            assert_eq!(assembler.stats(), Stats { incomplete_attempts: incomplete, ..Stats::default() });
            let counts =
                assembler.counts().into_iter().filter(|count| count.counter == "controller_reconciles");
            let counted: BTreeMap<String, u64> =
                counts.map(|count| (count.labels[1].clone(), count.total)).collect();
            let expected = self.counted.iter().map(|(result, total)| ((*result).to_owned(), *total));
            assert_eq!(counted, expected.collect());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_reconcile_is_found_and_timed(bytes in vec(any::<u8>(), 0..400)) {
        Run::of(&bytes, false).check(false);
    }

    #[test]
    fn whatever_is_lost_no_reconcile_is_paired_wrongly(bytes in vec(any::<u8>(), 0..400)) {
        Run::of(&bytes, true).check(true);
    }

    #[test]
    fn whatever_comes_is_accounted_for(
        events in vec((1..3_u32, 0..3_u64, 0..2_u64, any::<bool>(), 0..2_u64), 0..200),
    ) {
        let mut assembler = Assembler::default();
        let count = events.len() as u64;
        for (time_ns, (target, goroutine, depth, begins, last_loss)) in (1..).zip(events) {
            let role = if begins { Role::Entry } else { Role::Ret };
            let (function, took_ns, values) = (Function::Reconcile, 0, Values::default());
            assembler.on(Event { target, time_ns, goroutine, depth, function, role, took_ns, last_loss, values });
        }
        assembler.exit(1);
        assembler.exit(2);
        assert_eq!((assembler.account().events, assembler.account().open()), (count, 0));
    }
}
