//! Schedules that could have happened, out of bytes: whatever the interleaving or the loss, no reconcile is paired wrongly, and no
//! event is left unaccounted for.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use gotrace::{
    Role,
    account::{Account, Stats},
    program::Assemble as _,
    values::Datum,
};
use proptest::{collection::vec, prelude::*};

use super::{Assembler, Reconcile, tests::finished};
use crate::{Event, Values, table::Function, values::Value};

/// How the keys of a queue are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    /// As strings.
    Strings,
    /// As strings; a goroutine takes them and hands them over to others.
    HandedOver,
    /// As addresses.
    Pointers,
    /// As addresses, of copies when they are done.
    Copies,
    /// As strings. The hit at which one is taken has the time of its addition.
    Timed,
    /// Not at all.
    Unknown,
}

/// A queue as client-go has it.
struct Queue {
    keys: Keys,
    waiting: VecDeque<u64>,
    dirty: BTreeSet<u64>,
    /// What is worked on: by which goroutine, and which reconcile that is.
    processing: BTreeMap<u64, (u64, usize)>,
    /// When keys were added that were not taken since.
    added: HashMap<u64, u64>,
}

/// A reconcile as it was.
#[derive(Clone, Debug)]
struct Truth {
    queue: usize,
    added_ns: Option<u64>,
    start_ns: u64,
    end_ns: Option<u64>,
    retried: bool,
}

#[derive(Default)]
struct Run {
    truth: Vec<Truth>,
    additions: BTreeMap<String, u64>,
    retries: BTreeMap<String, u64>,
    events: Vec<Event>,
    time_ns: u64,
    target: u32,
    /// One more for each record that is lost.
    last_loss: u64,
}

const QUEUES: [Keys; 6] =
    [Keys::Strings, Keys::HandedOver, Keys::Pointers, Keys::Copies, Keys::Timed, Keys::Unknown];
/// Goroutines that take keys, of each queue.
const WORKERS: usize = 2;

fn name(queue: usize) -> String {
    format!("queue-{queue}")
}

impl Run {
    fn hit(&mut self, lose: bool, goroutine: u64, function: Function, queue: usize, key: Option<u64>) -> u64 {
        self.time_ns += 10;
        if lose {
            self.last_loss += 1;
            return self.time_ns;
        }
        let address = 0x1000 * (queue as u64 + 1) + if function == Function::Retry { 8 } else { 0 };
        let mut values = Values::default().with(Value::Metrics, address);
        if function != Function::Done {
            values.set(Value::Queue, name(queue));
        }
        match (key, QUEUES[queue]) {
            (Some(key), Keys::Strings | Keys::HandedOver | Keys::Timed) => {
                let parts = vec![Some("default".to_owned()), Some(format!("object-{key}"))];
                values.set(Value::Key, Datum::Texts(parts));
            }
            (Some(key), Keys::Pointers) => values.set(Value::Word, key),
            (Some(key), Keys::Copies) => {
                values.set(Value::Word, key + if function == Function::Done { 1_000_000 } else { 0 });
            }
            (Some(_), Keys::Unknown) | (None, _) => {}
        }
        let (target, time_ns, last_loss) = (self.target, self.time_ns, self.last_loss);
        let (role, depth, took_ns) = (Role::Entry, 0, 0);
        self.events.push(Event {
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
        time_ns
    }

    /// What happens, by the bytes.
    fn of(bytes: &[u8], losses: bool) -> Self {
        let mut run = Self::default();
        let mut queues = run.process();
        for choice in bytes.chunks_exact(3) {
            let (what, which, lot) = (choice[0] % 16, usize::from(choice[1]), u64::from(choice[2]));
            let lose = losses && choice[2] % 32 == 31;
            let number = which % queues.len();
            let key = lot % 5;
            let worker = (1 + number * WORKERS + usize::from(choice[2]) % WORKERS) as u64;
            let queue = &mut queues[number];
            match what {
                0..=4 => {
                    if !queue.dirty.insert(key) {
                        continue;
                    }
                    let time_ns = if queue.keys == Keys::Timed {
                        run.time_ns += 10;
                        run.time_ns
                    } else {
                        *run.additions.entry(name(number)).or_default() += u64::from(!lose);
                        run.hit(lose, 100, Function::Add, number, Some(key))
                    };
                    queue.added.insert(key, time_ns);
                    if !queue.processing.contains_key(&key) {
                        queue.waiting.push_back(key);
                    }
                }
                5..=8 => {
                    let is_busy = queue.processing.values().any(|(goroutine, _)| *goroutine == worker);
                    if is_busy && queue.keys != Keys::HandedOver {
                        continue;
                    }
                    let Some(key) = queue.waiting.pop_front() else { continue };
                    let start_ns = run.hit(lose, worker, Function::Get, number, Some(key));
                    queue.dirty.remove(&key);
                    queue.processing.insert(key, (worker, run.truth.len()));
                    let added_ns = queue.added.remove(&key);
                    if let (Keys::Timed, false, Some(event), Some(at)) =
                        (queue.keys, lose, run.events.last_mut(), added_ns)
                    {
                        event.role = Role::Metric;
                        event.values.set(Value::Since, at);
                        *run.additions.entry(name(number)).or_default() += 1;
                    }
                    run.truth.push(Truth { queue: number, added_ns, start_ns, end_ns: None, retried: false });
                }
                9..=13 => {
                    let place = lot as usize % queue.processing.len().max(1);
                    let Some((key, (goroutine, id))) =
                        queue.processing.iter().nth(place).map(|(key, value)| (*key, *value))
                    else {
                        continue;
                    };
                    queue.processing.remove(&key);
                    let by = if queue.keys == Keys::HandedOver { 200 + lot % 3 } else { goroutine };
                    run.truth[id].end_ns = Some(run.hit(lose, by, Function::Done, number, Some(key)));
                    if queue.dirty.contains(&key) {
                        queue.waiting.push_back(key);
                    }
                }
                14 if queue.keys != Keys::HandedOver => {
                    let mut own = queue.processing.values().filter(|(goroutine, _)| *goroutine == worker);
                    let (reconcile, more) = (own.next(), own.next());
                    run.hit(lose, worker, Function::Retry, number, None);
                    *run.retries.entry(name(number)).or_default() += u64::from(!lose);
                    if let (Some((_, id)), None) = (reconcile, more) {
                        run.truth[*id].retried |= !lose;
                    }
                }
                // The process ends, and another one begins.
                15 => queues = run.process(),
                _ => {}
            }
        }
        run
    }

    fn process(&mut self) -> Vec<Queue> {
        self.target += 1;
        let queue = |keys| Queue {
            keys,
            waiting: VecDeque::new(),
            dirty: BTreeSet::new(),
            processing: BTreeMap::new(),
            added: HashMap::new(),
        };
        QUEUES.map(queue).into()
    }

    /// What the assembler makes of it.
    fn assemble(&self) -> (Vec<Reconcile>, Assembler) {
        let mut assembler = Assembler::default();
        let mut target = 0;
        for event in &self.events {
            if event.target != target {
                assembler.exit(target);
                target = event.target;
            }
            assembler.on(event.clone());
        }
        assembler.exit(target);
        (finished(&mut assembler), assembler)
    }

    fn check(&self, losses: bool) {
        let (reconciles, assembler) = self.assemble();
        let (stats, account) = (assembler.stats(), assembler.account());
        assert_eq!((account.open(), account.events), (0, self.events.len() as u64));
        let in_reconciles: u64 = reconciles.iter().map(|reconcile| reconcile.events).sum();
        let incomplete = reconciles.iter().filter(|reconcile| reconcile.incomplete).count() as u64;
        assert_eq!((account.in_attempts, stats.incomplete_attempts), (in_reconciles, incomplete));
        assert_eq!((account.stray, account.orphaned), (stats.stray_ends, stats.orphan_moves));
        let by_start: HashMap<u64, &Truth> = self.truth.iter().map(|truth| (truth.start_ns, truth)).collect();
        for reconcile in &reconciles {
            let truth = by_start[&reconcile.start_ns];
            assert_eq!(*reconcile.queue, *name(truth.queue));
            if !reconcile.incomplete {
                assert_eq!(Some(reconcile.end_ns), truth.end_ns, "{truth:?}");
            }
            if reconcile.added_ns.is_some() {
                assert_eq!(reconcile.added_ns, truth.added_ns, "{truth:?}");
            }
            assert!(truth.retried || !reconcile.retried, "{truth:?}");
            if !losses {
                assert_eq!(reconcile.incomplete, truth.end_ns.is_none(), "{truth:?}");
                assert_eq!(reconcile.retried, truth.retried, "{truth:?}");
                let is_known = QUEUES[truth.queue] != Keys::Unknown;
                assert_eq!(reconcile.added_ns, truth.added_ns.filter(|_| is_known), "{truth:?}");
            }
        }
        if !losses {
            assert_eq!(reconciles.len(), self.truth.len());
            assert_eq!(stats, Stats { incomplete_attempts: incomplete, ..Stats::default() });
            let Account { stray, orphaned, no_room, .. } = account;
            assert_eq!((stray, orphaned, no_room), (0, 0, 0));
        }
        let mut counted = [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()];
        let counters = ["workqueue_adds", "workqueue_retries", "workqueue_reconciles"];
        for count in assembler
            .counts()
            .into_iter()
            .filter(|count| count.total > 0 && count.labels[0].starts_with("queue-"))
        {
            let place = counters.iter().position(|counter| *counter == count.counter);
            let place = place.expect("no other counter has a queue's name");
            *counted[place].entry(count.labels[0].clone()).or_default() += count.total;
        }
        let mut over = BTreeMap::new();
        for reconcile in reconciles.iter().filter(|reconcile| !reconcile.queue.is_empty()) {
            *over.entry(reconcile.queue.to_string()).or_default() += 1;
        }
        let seen = |counts: &BTreeMap<String, u64>| {
            counts
                .iter()
                .filter(|(_, total)| **total > 0)
                .map(|(name, total)| (name.clone(), *total))
                .collect()
        };
        assert_eq!(counted, [seen(&self.additions), seen(&self.retries), over]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_reconcile_is_found_and_timed(bytes in vec(any::<u8>(), 0..600)) {
        Run::of(&bytes, false).check(false);
    }

    #[test]
    fn whatever_is_lost_no_reconcile_is_paired_wrongly(bytes in vec(any::<u8>(), 0..600)) {
        Run::of(&bytes, true).check(true);
    }

    #[test]
    fn whatever_comes_is_accounted_for(
        events in vec((1..3_u32, 0..3_u64, 0..5_usize, 0..3_u64, 0..3_u64, 0..2_u64), 0..200),
    ) {
        let mut assembler = Assembler::default();
        let count = events.len() as u64;
        for (time_ns, (target, goroutine, function, metrics, key, last_loss)) in (1..).zip(events) {
            let function = <Function as gotrace::program::Function>::ALL[function];
            let values = Values::default().with(Value::Metrics, metrics);
            let values = match key {
                0 => values,
                1 => values.with(Value::Word, key).with(Value::Queue, "a").with(Value::Added, key).with(Value::Handled, key),
                _ => values.with(Value::Key, [Some(key.to_string())]),
            };
            let (role, depth, took_ns) = (Role::Entry, 0, 0);
            assembler.on(Event { target, time_ns, goroutine, depth, function, role, took_ns, last_loss, values });
        }
        assembler.exit(1);
        assembler.exit(2);
        assert_eq!((assembler.account().events, assembler.account().open()), (count, 0));
    }
}
