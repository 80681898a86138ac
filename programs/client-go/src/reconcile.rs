//! Reconciles out of events: what was taken out of which queue, how long it had waited there, and how long it took.
//!
//! Pure: events in, reconciles out, no clock and no I/O. Calls are joined so:
//!
//! * A key is in one worker's hands at a time: queue and key pair `get` with `done`, on whatever goroutine that is, and `add`
//!   with `get`, unless `get` has the time at which the key was added.
//! * Of a key that is not known the goroutine does: a worker takes the next key when it is done with the one before.
//! * A retry is the reconcile's that is open on its goroutine, if that is of the same queue. Others are timers of a controller.
//! * What a queue has counted itself, and no event has shown, is counted where its counters are read: as reconciles of which nothing came.
//! * Which requests are a reconcile's: [`crate::requests`].

#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, mem, sync::Arc};

use gotrace::{
    Detail, Role,
    account::{Books, Count, Counter, Losses},
    governor::Cut,
    program::Assemble,
};

use crate::{
    ClientGo, Event, Values,
    requests::{self, Began, Finished, Made, OnGoroutine, Requests, Step},
    table::Part,
    values::Value,
};

/// Queues, and their names: kube-controller-manager has 50. Names of more are counted as [`OTHER`]. Processes share this limit,
/// and the next ones, in equal parts.
const MAX_QUEUES: usize = 4_096;
const OTHER: &str = "other";
/// Keys remembered as waiting, in all queues.
const MAX_WAITING: usize = 262_144;
/// Reconciles that can be open at once, of all queues.
const MAX_OPEN: usize = 16_384;
/// The bit of a histogram's count that is no part of it.
const HOT: u64 = 1 << 63;
/// The longest time, as far as it is believed, from a worker's taking of a key to the hit that shows it.
const LONGEST_TAKE_NS: u64 = 10_000_000;
/// A reconcile, or a wait in a queue, that is silent for so long is lost.
const SILENCE_NS: u64 = 60 * 60 * 1_000_000_000;

/// What schedspan counts of each queue, as the process's own metrics `workqueue_adds_total` and `workqueue_retries_total` do, and
/// `workqueue_work_duration_seconds_count`.
pub const COUNTERS: [Counter; 6] = [
    Counter { name: "workqueue_adds", help: "Keys that were added to a work queue", labels: &["queue"] },
    Counter { name: "workqueue_retries", help: "Keys that a work queue adds later", labels: &["queue"] },
    requests::counter(
        "workqueue_requests",
        "API requests of processes with work queues, by the reconcile that made them",
    ),
    Counter {
        name: "workqueue_reconciles",
        help: "Reconciles of a work queue's keys that are over",
        labels: &["queue", "result"],
    },
    requests::objects("workqueue_objects"),
    requests::removals("workqueue_pod_removals"),
];

/// What came of a reconcile: the values of the label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It wrote nothing, no request failed, and it did not ask to be called again.
    Idle,
    /// It wrote, or a request failed, or its requests are not known.
    Busy,
    /// It asked to be called again, as it does after a failure.
    Retried,
    /// Its end was not seen.
    Incomplete,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Idle, Self::Busy, Self::Retried, Self::Incomplete];

    const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Retried => "retried",
            Self::Incomplete => "incomplete",
        }
    }
}

/// A worker's handling of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconcile {
    /// Which process.
    pub target: u32,
    /// The queue's name.
    pub queue: Arc<str>,
    /// What it is about, such as `namespace/name`, where that could be read.
    pub key: Option<String>,
    /// When the key was added to the queue, if that was seen. All times are nanoseconds by `CLOCK_MONOTONIC`.
    pub added_ns: Option<u64>,
    /// When it was first seen.
    pub seen_ns: u64,
    /// When the worker took it.
    pub start_ns: u64,
    /// When the worker was through with it, or was seen last.
    pub end_ns: u64,
    /// Whether it asked to be called again, as it does after a failure.
    pub retried: bool,
    /// Whether its end was not seen.
    pub incomplete: bool,
    /// The API requests that it made.
    pub made: Made,
    /// How many events it came about by, without those of its requests.
    pub events: u64,
}

impl Reconcile {
    /// How long the key had been in the queue, nanoseconds.
    #[must_use]
    pub fn waited_ns(&self) -> Option<u64> {
        Some(self.start_ns.saturating_sub(self.added_ns?))
    }

    /// Corrects the start to the process's own, which is before the hit. The wait in the queue keeps its length.
    fn began_at(&mut self, start_ns: u64) {
        let early_ns = self.start_ns.saturating_sub(start_ns).min(LONGEST_TAKE_NS);
        self.start_ns -= early_ns;
        self.added_ns = self.added_ns.map(|added_ns| added_ns.saturating_sub(early_ns));
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self { incomplete: true, .. } => Outcome::Incomplete,
            Self { retried: true, .. } => Outcome::Retried,
            Self { made, .. } if made.is_idle() => Outcome::Idle,
            Self { .. } => Outcome::Busy,
        }
    }

    /// Whether nothing came of it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outcome() == Outcome::Idle
    }
}

/// Puts events together to reconciles.
#[derive(Debug, Default)]
pub struct Assembler {
    /// By process and address of their metrics.
    queues: BTreeMap<(u32, u64), Queue>,
    /// By the queue's name.
    counts: BTreeMap<Arc<str>, Totals>,
    requests: Requests,
    books: Books<Finished<Reconcile>>,
    losses: Losses,
}

/// What a queue is counted by.
#[derive(Debug, Default)]
struct Totals {
    adds: u64,
    retries: u64,
    reconciles: [u64; Outcome::ALL.len()],
}

#[derive(Debug, Default)]
struct Queue {
    /// Empty where it could not be read.
    name: Arc<str>,
    /// When what waits in it was added.
    added: BTreeMap<Item, u64>,
    open: Vec<Open>,
    counted: Option<Counters>,
}

/// How many keys were added to a queue, and how many are done: what it says itself, and what was seen since. It is locked while it says
/// that, as it is when a key is added or done.
#[derive(Clone, Copy, Debug)]
struct Counters {
    added: u64,
    done: u64,
}

#[derive(Debug)]
struct Open {
    /// Its number among reconciles.
    number: u64,
    goroutine: u64,
    item: Option<Item>,
    reconcile: Reconcile,
}

impl Open {
    /// It is over, by one more event; or by none, where that was not seen.
    fn finish(self, requests: &mut Requests, books: &mut Books<Finished<Reconcile>>, end_ns: Option<u64>) {
        let Self { number, mut reconcile, .. } = self;
        let seen_ns = end_ns.unwrap_or(reconcile.end_ns);
        reconcile.made = requests.end_reconcile(number, books);
        let last_ns = reconcile.made.requests.iter().map(|request| request.end_ns);
        reconcile.events += u64::from(end_ns.is_some());
        reconcile.incomplete = end_ns.is_none();
        reconcile.end_ns = end_ns.or(last_ns.max()).unwrap_or(seen_ns).max(reconcile.start_ns);
        books.stats.incomplete_attempts += u64::from(reconcile.incomplete);
        books.account.in_attempts += reconcile.events;
        books.finished.push(Finished::Reconcile(reconcile));
    }
}

/// What a key is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// All its strings.
    Key(String),
    /// A number or an address. That of a copy, behind an `any`, may be another one.
    Word(u64),
}

impl Item {
    /// The key for people, and what it is known by: nothing where a part of it is missing or was cut.
    fn take(values: &mut Values) -> (Option<String>, Option<Self>) {
        let parts: Option<Vec<String>> = values.take_texts(Value::Key).into_iter().collect();
        let Some(parts) = parts else { return (None, None) };
        if parts.is_empty() {
            return (None, values.number(Value::Word).map(Self::Word));
        }
        let key = parts.join("/");
        let is_whole = parts.iter().all(|part| !part.ends_with('…'));
        (Some(key.clone()), is_whole.then_some(Self::Key(key)))
    }
}

impl Queue {
    fn take(&mut self, is: impl Fn(&Open) -> bool) -> Option<Open> {
        let place = self.open.iter().position(is)?;
        Some(self.open.swap_remove(place))
    }

    fn end(
        &mut self,
        open: Open,
        requests: &mut Requests,
        books: &mut Books<Finished<Reconcile>>,
        end_ns: Option<u64>,
    ) {
        self.counted.iter_mut().for_each(|counted| counted.done += 1);
        open.finish(requests, books, end_ns);
    }

    /// The reconcile that ends: the key's; else, unless two keys differ, the only one on the goroutine.
    fn done(&mut self, goroutine: u64, item: Option<&Item>) -> Option<Open> {
        let same = |open: &Open| item.is_some() && open.item.as_ref() == item;
        let differ = |open: &Open| matches!((&open.item, item), (Some(Item::Key(_)), Some(Item::Key(_))));
        let may_be = |open: &Open| open.goroutine == goroutine && !differ(open);
        let only = self.open.iter().filter(|open| may_be(open)).count() == 1;
        self.take(same).or_else(|| if only { self.take(may_be) } else { None })
    }
}

impl Assembler {
    fn totals<'a>(counts: &'a mut BTreeMap<Arc<str>, Totals>, queue: &Arc<str>) -> &'a mut Totals {
        let has_room = counts.len() < MAX_QUEUES || counts.contains_key(queue);
        let queue = if has_room { Arc::clone(queue) } else { OTHER.into() };
        counts.entry(queue).or_default()
    }

    fn take(&mut self, event: Event) {
        let part = event.function.about();
        if let Part::Request(step) = part {
            return self.request(step, event);
        }
        let Event { target, time_ns, took_ns, goroutine, role, mut values, .. } = event;
        let Self { queues, counts, requests, books, losses } = self;
        let own = || queues.range((target, 0)..=(target, u64::MAX)).map(|(_, queue)| queue);
        let waiting: usize = own().map(|queue| queue.added.len()).sum();
        let open: usize = own().map(|queue| queue.open.len()).sum();
        let key = (target, values.number(Value::Metrics).unwrap_or_default());
        if own().count() >= losses.part(MAX_QUEUES) && !queues.contains_key(&key) {
            return books.no_room(1);
        }
        let queue = queues.entry(key).or_default();
        // All reconciles share the name, until the memory is another queue's.
        let other = values.take_text(Value::Queue).filter(|name| **name != *queue.name);
        queue.counted = queue.counted.filter(|_| other.is_none());
        queue.name = other.map_or_else(|| Arc::clone(&queue.name), Arc::from);
        let name = Arc::clone(&queue.name);
        let (key, item) = Item::take(&mut values);
        match part {
            Part::Add => {
                queue.counted.iter_mut().for_each(|counted| counted.added += 1);
                if waiting >= losses.part(MAX_WAITING) {
                    books.no_room(1);
                } else if let Some(item) = item {
                    // The one before was taken, and that was not seen.
                    let lost = u64::from(queue.added.insert(item, time_ns).is_some());
                    books.stats.orphan_moves += lost;
                    books.account.orphaned += lost;
                } else {
                    // Nothing will say that it is taken.
                    books.account.unrelated += 1;
                }
                Self::totals(counts, &name).adds += 1;
            }
            Part::Get => {
                let addition_ns = item.as_ref().and_then(|item| queue.added.remove(item));
                // The process takes the end of the wait when the hit is over.
                let since_ns = values.number(Value::Since).map(|at| at.saturating_sub(took_ns));
                let added_ns = since_ns.or(addition_ns);
                if role == Role::Metric {
                    queue.counted.iter_mut().for_each(|counted| counted.added += 1);
                    Self::totals(counts, &name).adds += 1;
                }
                // The one before was done, and that was not seen.
                let lost = queue.take(|open| item.is_some() && open.item == item);
                lost.into_iter().for_each(|lost| queue.end(lost, requests, books, None));
                if open >= losses.part(MAX_OPEN) {
                    books.account.waiting += u64::from(addition_ns.is_some());
                    return books.no_room(1);
                }
                let [start_ns, end_ns] = [time_ns; 2];
                let began = Reconcile { seen_ns: time_ns, start_ns, end_ns, ..Reconcile::default() };
                let events = 1 + u64::from(addition_ns.is_some());
                let reconcile = Reconcile { target, queue: name, key, added_ns, events, ..began };
                let Reconcile { queue: name, key, .. } = &reconcile;
                let (trace_id, key) = (reconcile.trace_id(), key.as_deref());
                let number = requests.begin_reconcile(Began { target, trace_id, name, key });
                queue.open.push(Open { number, goroutine, item, reconcile });
            }
            Part::Done => match queue.done(goroutine, item.as_ref()) {
                Some(mut open) => {
                    if let Some(at) = values.number(Value::Since) {
                        open.reconcile.began_at(at);
                    }
                    // The process takes the end when the hit is over.
                    queue.end(open, requests, books, Some(time_ns.saturating_add(took_ns)));
                }
                None => {
                    books.stray_end();
                }
            },
            Part::Retry => self.retry(target, goroutine, time_ns, &name),
            Part::Count => {
                books.account.unrelated += 1;
                let read = [Value::Added, Value::Handled].map(|value| values.number(value));
                let [Some(added), Some(handled)] = read else { return };
                let done = handled & !HOT;
                // What was before the first reading is of no interest. A reconcile that was given up may be done later.
                let before = queue.counted.unwrap_or(Counters { added, done });
                queue.counted =
                    Some(Counters { added: added.max(before.added), done: done.max(before.done) });
                let totals = Self::totals(counts, &name);
                totals.adds += added.saturating_sub(before.added);
                totals.reconciles[Outcome::Idle as usize] += done.saturating_sub(before.done);
            }
            Part::Request(_) => {}
        }
    }

    /// Part of a request: of the reconcile that is open on its goroutine, or on the one that started that.
    fn request(&mut self, step: Step, event: Event) {
        let Self { queues, requests, books, losses, .. } = self;
        let own = queues.range((event.target, 0)..=(event.target, u64::MAX));
        let own = own.flat_map(|(_, queue)| &queue.open);
        let on = |goroutine| {
            let on_it = own.clone().filter(|open| open.goroutine == goroutine);
            OnGoroutine::of(on_it.map(|open| open.number))
        };
        requests.on(step, event, books, on, |limit| losses.part(limit));
    }

    /// A key of the queue with this name is added later: by the reconcile that is open on the goroutine, or by a timer.
    fn retry(&mut self, target: u32, goroutine: u64, time_ns: u64, name: &Arc<str>) {
        Self::totals(&mut self.counts, name).retries += 1;
        let queues = self.queues.range_mut((target, 0)..=(target, u64::MAX));
        let mut open = queues
            .flat_map(|(_, queue)| &mut queue.open)
            .filter(|open| open.goroutine == goroutine && open.reconcile.queue == *name);
        match (open.next(), open.next()) {
            (Some(Open { reconcile, .. }), None) => {
                (reconcile.retried, reconcile.end_ns) = (true, time_ns);
                reconcile.events += 1;
            }
            _ => self.books.account.unrelated += 1,
        }
    }

    /// Gives up what was last seen before this time, of some processes.
    fn give_up(&mut self, of: impl Fn(u32) -> bool, before_ns: u64) {
        self.give_up_queues(|target, _| of(target), before_ns);
        self.requests.give_up(of, before_ns, &mut self.books);
    }

    /// Gives up what was last seen before this time, of some queues.
    fn give_up_queues(&mut self, of: impl Fn(u32, &Queue) -> bool, before_ns: u64) {
        let Self { queues, requests, books, .. } = self;
        queues.retain(|(target, _), queue| {
            if of(*target, queue) {
                let silent = queue.open.extract_if(.., |open| open.reconcile.end_ns < before_ns);
                for open in silent.collect::<Vec<_>>() {
                    queue.end(open, requests, books, None);
                }
                let silent = queue.added.extract_if(.., |_, added_ns| *added_ns < before_ns);
                books.account.waiting += silent.count() as u64;
            }
            !queue.open.is_empty() || !queue.added.is_empty() || queue.counted.is_some()
        });
    }
}

impl Assemble<ClientGo> for Assembler {
    type Output = Finished<Reconcile>;

    fn on(&mut self, event: Event) {
        if self.losses.came(event.target, event.last_loss) {
            self.give_up(|of| of == event.target, u64::MAX);
        }
        self.books.account.events += 1;
        self.take(event);
    }

    fn cut(&mut self, target: u32, _: u64, cut: Cut) {
        if !cut.keeps_detail(Detail::Idle) {
            self.give_up_queues(|of, queue| of == target && queue.counted.is_some(), u64::MAX);
        }
    }

    fn expire(&mut self, now_ns: u64) {
        self.give_up(|_| true, now_ns.saturating_sub(SILENCE_NS));
    }

    fn exit(&mut self, target: u32) {
        self.give_up(|of| of == target, u64::MAX);
        self.queues.retain(|(of, _), _| *of != target);
        self.requests.exit(target);
        self.losses.exit(target);
    }

    fn take_finished(&mut self) -> Vec<Finished<Reconcile>> {
        let finished = mem::take(&mut self.books.finished);
        for reconcile in finished.iter().filter_map(Finished::reconcile) {
            Self::totals(&mut self.counts, &reconcile.queue).reconciles[reconcile.outcome() as usize] += 1;
        }
        finished
    }

    fn books(&self) -> &Books<Finished<Reconcile>> {
        &self.books
    }

    fn books_mut(&mut self) -> &mut Books<Finished<Reconcile>> {
        &mut self.books
    }

    fn counts(&self) -> Vec<Count> {
        let [adds, retries, requests, reconciles, objects, removals] = COUNTERS.map(|counter| counter.name);
        let of_queue = |(queue, totals): (&Arc<str>, &Totals)| {
            let count = |counter, labels: &[&str], total| {
                let labels = [&[&**queue], labels].concat().into_iter().map(str::to_owned).collect();
                Count { counter, labels, total }
            };
            let by_outcome = Outcome::ALL.into_iter().zip(totals.reconciles);
            let by_outcome = by_outcome.map(|(outcome, total)| count(reconciles, &[outcome.name()], total));
            let [adds, retries] = [count(adds, &[], totals.adds), count(retries, &[], totals.retries)];
            [adds, retries].into_iter().chain(by_outcome).collect::<Vec<_>>()
        };
        self.counts
            .iter()
            .flat_map(of_queue)
            .chain(self.requests.counts([requests, objects, removals]))
            .collect()
    }
}
