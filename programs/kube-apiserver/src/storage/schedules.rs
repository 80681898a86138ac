//! Schedules that could have happened, out of bytes: whatever the interleaving, the panic or the loss, nothing is part of another Pod's
//! creation, and no event is left unaccounted for.

use std::collections::HashMap;

use gotrace::{Role, program::Assemble as _};
use proptest::{collection::vec, prelude::*};

use super::{
    Assembler,
    tests::{of_object, of_patch, of_request},
};
use crate::{Event, Values, table::Function, values::Value};

/// Requests side by side.
const REQUESTS: u64 = 4;
/// Goroutines of webhooks are numbered from here on.
const WEBHOOKS: u64 = 1_000;
/// The goroutine that starts a request's one has its number and this.
const HANDLERS: u64 = 1_000_000;
const DEPTH: u64 = 100;

/// A request as it is.
#[derive(Clone, Debug, Default)]
struct Truth {
    /// Ends of the calls that it has made, and whether each is a write.
    calls: Vec<u64>,
    /// Whether there was a step of admission.
    is_admitted: bool,
    /// Since when it writes.
    storing: Option<u64>,
}

#[derive(Default)]
struct Run {
    /// The goroutine of each request that is open.
    open: HashMap<u64, u64>,
    /// By goroutine.
    truth: HashMap<u64, Truth>,
    /// Goroutines of requests that stored a Pod.
    stored: Vec<u64>,
    /// How many ended otherwise.
    others: u64,
    events: Vec<Event>,
    time_ns: u64,
    goroutines: u64,
    last_loss: u64,
    /// Whether a write had no end.
    unwound: bool,
}

impl Run {
    fn hit(&mut self, lose: bool, goroutine: u64, (function, role): (Function, Role), values: Values) {
        if lose {
            self.last_loss += 1;
            return;
        }
        let (time_ns, last_loss) = (self.time_ns, self.last_loss);
        self.events.push(Event {
            target: 1,
            time_ns,
            goroutine,
            depth: DEPTH,
            function,
            role,
            took_ns: 0,
            last_loss,
            values,
        });
    }

    /// Ends a request: the next one is on another goroutine.
    fn over(&mut self, slot: u64, is_stored: bool) {
        let Some(goroutine) = self.open.remove(&slot) else { return };
        if is_stored {
            self.stored.push(goroutine);
        } else if self.truth.get(&goroutine).is_some_and(|truth| !truth.calls.is_empty()) {
            self.others += 1;
        }
    }

    /// What happens, by the bytes.
    fn of(bytes: &[u8], losses: bool) -> Self {
        let mut run = Self::default();
        for choice in bytes.chunks_exact(3) {
            let (what, slot, lot) = (choice[0] % 13, u64::from(choice[1]) % REQUESTS, choice[2]);
            let lose = losses && lot % 16 == 15;
            run.time_ns += 10;
            let goroutine = *run.open.entry(slot).or_insert_with(|| {
                run.goroutines += 1;
                run.goroutines
            });
            let time_ns = run.time_ns;
            let truth = run.truth.entry(goroutine).or_default();
            let entry = |function| (function, Role::Entry);
            match what {
                0..=3 if truth.storing.is_none() => {
                    let rejects = what == 3 && lot.is_multiple_of(4);
                    let length = if what.is_multiple_of(2) { 5 } else { 8 };
                    let values = of_request("CREATE", 5)
                        .with(Value::User, format!("user-{goroutine}"))
                        .with(Value::StepLength, length)
                        .with(Value::Parent, HANDLERS + goroutine)
                        .with(Value::Rejected, rejects);
                    truth.calls.push(time_ns);
                    truth.is_admitted = true;
                    run.hit(lose, goroutine, entry(Function::Step), values);
                    if rejects {
                        run.over(slot, false);
                    }
                }
                // The second is on a goroutine that the request's has started, which is known by a step.
                4 | 5 if truth.storing.is_none() && !truth.calls.is_empty() => {
                    truth.calls.push(time_ns);
                    let on = if what == 4 { goroutine } else { WEBHOOKS + time_ns };
                    let parent = if what == 4 { WEBHOOKS - 1 } else { goroutine };
                    let values = of_request("CREATE", 2)
                        .with(Value::Webhook, format!("webhook-{goroutine}"))
                        .with(Value::Parent, parent);
                    run.hit(lose, on, entry(Function::Webhook), values);
                }
                6 | 7 if truth.storing.is_none() => {
                    truth.storing = Some(time_ns);
                    let values =
                        of_object(&format!("/pods/shop/pod-{goroutine}"), &format!("uid-{goroutine}"));
                    run.hit(lose, goroutine, entry(Function::Store), values);
                }
                8 | 9 if truth.storing.take().is_some() => {
                    let failed = lot.is_multiple_of(4);
                    truth.calls.push(time_ns);
                    let values = Values::default().with(Value::Failed, u64::from(failed));
                    run.hit(lose, goroutine, (Function::Store, Role::Ret), values);
                    if !failed {
                        run.over(slot, true);
                    }
                }
                // An object of another kind, on a goroutine of its own.
                10 => {
                    let on = WEBHOOKS + time_ns;
                    run.hit(lose, on, entry(Function::Store), of_object("/jobs/shop/once", "uid"));
                    run.time_ns += 1;
                    run.hit(losses && lot % 16 == 7, on, (Function::Store, Role::Ret), Values::default());
                }
                // A panic, or the end of the request.
                11 if truth.storing.is_none() || losses => {
                    run.unwound |= truth.storing.is_some();
                    run.over(slot, false);
                }
                // The end of a server-side apply.
                12 if truth.storing.is_none() && truth.is_admitted => {
                    let is_new = !lot.is_multiple_of(4);
                    let values = of_patch(&format!("pod-{goroutine}"), &format!("uid-{goroutine}"))
                        .with(Value::Created, is_new);
                    run.hit(lose, HANDLERS + goroutine, (Function::Patch, Role::ReturnSite), values);
                    run.over(slot, is_new);
                }
                0.. => {}
            }
        }
        run
    }

    fn check(&self) {
        let mut assembler = Assembler::default();
        self.events.iter().for_each(|event| assembler.on(event.clone()));
        assembler.exit(1);
        let all = assembler.take_finished();
        let (stats, account) = (assembler.stats(), assembler.account());
        assert_eq!((account.open(), account.events), (0, self.events.len() as u64));
        assert_eq!((assembler.requests.len(), assembler.others.len()), (0, 0));
        let events: u64 = all.iter().map(|stored| stored.events).sum();
        assert_eq!((account.in_attempts, account.no_room, account.stray), (events, 0, stats.stray_ends));
        for stored in &all {
            let goroutine = stored.pod.uid.trim_start_matches("uid-");
            assert_eq!(stored.pod.name, format!("pod-{goroutine}"));
            assert!(stored.user.as_ref().is_none_or(|user| *user == format!("user-{goroutine}")));
            for webhook in stored.calls.iter().filter_map(|call| call.webhook.as_ref()) {
                assert_eq!(*webhook, format!("webhook-{goroutine}"));
            }
            let truth = &self.truth[&goroutine.parse::<u64>().expect("it is a number")];
            let ends: Vec<_> = stored.calls.iter().filter_map(|call| call.end_ns).collect();
            assert!(ends.iter().all(|end| truth.calls.contains(end)), "{ends:?} of {truth:?}");
            if self.last_loss == 0 && !stored.incomplete {
                assert_eq!(ends, truth.calls);
            }
        }
        if self.last_loss == 0 && !self.unwound {
            let complete = all.iter().filter(|stored| !stored.incomplete).count();
            let writing = self.open.values().filter(|open| self.truth[open].storing.is_some()).count();
            assert_eq!((complete, all.len() - complete), (self.stored.len(), writing));
            assert_eq!((stats.stray_ends, stats.unwound_calls), (0, writing as u64));
            let open = self.open.values().map(|open| &self.truth[open]);
            let open = open.filter(|truth| truth.storing.is_none() && !truth.calls.is_empty()).count() as u64;
            assert_eq!(stats.skipped, self.others + open);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_pod_has_its_calls(bytes in vec(any::<u8>(), 0..600)) {
        Run::of(&bytes, false).check();
    }

    #[test]
    fn whatever_is_lost_no_call_is_part_of_another_pod(bytes in vec(any::<u8>(), 0..600)) {
        Run::of(&bytes, true).check();
    }

    #[test]
    fn whatever_comes_is_accounted_for(
        events in vec((1..3_u32, 0..4_u64, 0..4_usize, 0..3_u64, 0..4_u64, 0..4_u64, 0..2_u64), 0..200),
    ) {
        let mut assembler = Assembler::default();
        let count = events.len() as u64;
        for (time_ns, (target, goroutine, function, depth, parent, what, last_loss)) in (1..).zip(events) {
            let function = <Function as gotrace::program::Function>::ALL[function];
            let (key, uid) = [("/pods/shop/web", "uid"), ("/pods/shop/web", ""), ("/jobs/shop/web", "uid"), ("", "")][what as usize];
            let mut values = of_patch("web", uid).with(Value::Key, key).with(Value::Failed, what % 2);
            for (value, number) in [
                (Value::StepLength, [5, 8, 8, 0][what as usize]),
                (Value::SubresourceLength, what / 3),
                (Value::Parent, parent),
                (Value::Elapsed, what),
                (Value::VersionLength, what),
            ] {
                values.set(value, number);
            }
            let values = values
                .with(Value::Operation, "CREATE")
                .with(Value::Resource, "pods")
                .with(Value::Rejected, what == 2);
            let role = if parent % 2 == 1 { Role::Ret } else { Role::Entry };
            assembler.on(Event { target, time_ns, goroutine, depth, function, role, took_ns: 0, last_loss, values });
        }
        assembler.exit(1);
        assembler.exit(2);
        assert_eq!((assembler.account().events, assembler.account().open()), (count, 0));
    }
}

#[test]
fn a_schedule_is_what_an_api_server_does() {
    // Changed; checked by a webhook; let pass; stored.
    let run = Run::of(&[0, 0, 1, 5, 0, 1, 1, 0, 1, 6, 0, 1, 8, 0, 1], false);
    let functions: Vec<_> = run.events.iter().map(|event| (event.function, event.role)).collect();
    let expected = [
        (Function::Step, Role::Entry),
        (Function::Webhook, Role::Entry),
        (Function::Step, Role::Entry),
        (Function::Store, Role::Entry),
        (Function::Store, Role::Ret),
    ];
    assert_eq!((functions, run.stored), (expected.to_vec(), vec![1]));
}
