//! Assembles events into attempts: from `Pop` to the late work after the end.
//!
//! # Layout
//!
//! * [`calls`]: entries, ends and panics on one goroutine. [`turns`]: plugins that a phase calls one after
//!   the other.
//! * [`queues`]: Pods before they are popped. [`in_queue`]: what runs for them there. [`groups`]: Pods that are scheduled as a group.
//! * [`samples`]: the shares of plugins that run on many Nodes. [`windows`]: those whose calls were timed.
//! * [`cuts`]: what is left out so that tracing stays within its budget.
//! * [`late`]: work on goroutines that the attempt does not wait for.

mod calls;
mod cuts;
mod groups;
mod in_queue;
mod late;
mod queues;
mod samples;
mod turns;
mod windows;

use std::{collections::BTreeMap, mem, sync::Arc};

use gotrace::{
    Role,
    account::{Books as BooksOf, Count, Losses},
    code::Sampled,
    governor::Cut,
    program::{Assemble, Detail},
    window::Window,
};
use interned::Interner;
use smallvec::{SmallVec, smallvec};

pub(crate) use self::queues::{POPPED_FROM_BACKOFF, moved};
use self::{
    calls::Open,
    cuts::Cuts,
    groups::Membership,
    in_queue::{QueuePhases, Running, Signed},
    late::Late,
    queues::{QueueMoves, Queued},
    samples::Samples,
    turns::{Orders, Turn},
};
pub use self::{
    in_queue::{QUEUE_PHASE_CALLS, QUEUE_PHASE_NANOSECONDS},
    queues::QUEUE_INCOMING_PODS,
};
use super::{Attempt, Call, Code, Outcome, Pod, Preemption, Previous, Subject};
use crate::{
    Event, HashMap, KubeScheduler, Values,
    table::{Fact, Function, Part, Stage},
    values::Value,
};

/// Shared by all processes: lent to the process whose event is handled, which costs as much as two pointers.
type Books = Box<BooksOf<Attempt>>;

/// Addresses and numbers: an attempt of a single Pod has one or two of each.
type Few = SmallVec<[u64; 2]>;

/// Open attempts; with gang scheduling thousands wait on Permit together.
const MAX_ATTEMPTS: usize = 65_536;
/// Goroutines remembered: one per binding cycle.
const MAX_GOROUTINES: usize = 65_536;
/// Pods remembered as waiting in the active queue.
const MAX_ENQUEUED: usize = 262_144;
/// Goroutines that are putting a Pod into a queue.
const MAX_MOVING: usize = 4_096;
/// Signatures of Pods that are in a queue already, or not yet.
const MAX_SIGNED: usize = 65_536;
/// Moves remembered of one Pod between two attempts, and extension points that ran: the first and the last ones.
const MAX_MOVES: usize = 16;
/// Pods whose last attempt is remembered, to link the next one to it.
const MAX_PENDING: usize = 65_536;
/// Open calls per goroutine: the deepest real nesting is four.
const MAX_OPEN: usize = 32;
/// Room for the calls of a successful attempt, so that they are not moved as they grow.
const USUAL_CALLS: usize = 48;
/// Calls per attempt, and unassigned calls per goroutine.
const MAX_CALLS: usize = 1_024;
/// After a binding cycle that ended without `PostBind`, its failure is handled at once.
const FAILURE_FOLLOWS_NS: u64 = 10_000_000_000;
/// After the loop has gone on to the next Pod, a binding cycle begins at once.
const BINDING_FOLLOWS_NS: u64 = 60 * 1_000_000_000;
/// The longest that Permit may wait is 15 minutes
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/framework/runtime/framework.go>,
/// `maxTimeout`); an attempt without events for twice as long is lost.
const SILENCE_NS: u64 = 30 * 60 * 1_000_000_000;

/// CPU time of the scheduler by phase and plugin, nanoseconds: samples, times the time between two of them.
pub const CPU_NANOSECONDS: &str = "scheduler_cpu_nanoseconds";

/// Assembles events into attempts.
#[derive(Debug, Default)]
pub struct Assembler {
    processes: HashMap<u32, Process>,
    books: Books,
    queue_moves: QueueMoves,
    queue_phases: QueuePhases,
    losses: Losses,
    /// The samples of each process. A loss of records leaves them alone.
    samples: HashMap<u32, Box<Samples>>,
    /// CPU time of processes that have ended.
    cpu_before: BTreeMap<(Arc<str>, Option<Arc<str>>), u64>,
}

#[derive(Debug, Default)]
struct Process {
    /// How many processes share the room of each table.
    sharers: usize,
    next_id: u64,
    attempts: HashMap<u64, Building>,
    goroutines: HashMap<u64, Goroutine>,
    by_state: HashMap<u64, u64>,
    by_pod: HashMap<u64, u64>,
    /// By the UID of the Pod.
    by_uid: HashMap<String, u64>,
    /// By the address of the `QueuedPodInfo`.
    queued: HashMap<u64, Box<Queued>>,
    /// The queue entry that a goroutine is putting into a queue.
    moving: HashMap<u64, u64>,
    /// Extension points that run while a Pod waits, by goroutine.
    running_in_queue: HashMap<u64, Running>,
    /// The last signature by the address of the Pod, until that enters a queue.
    signed: HashMap<u64, Signed>,
    /// Names of queue events and of plugins that hold Pods.
    names: Interner<str>,
    /// When a goroutine took a Pod out of the backoff queue, to return it from `Pop`.
    popped_from_backoff: HashMap<u64, u64>,
    /// The last attempt of a Pod, by UID, or of a group, if it was not bound.
    pending: HashMap<String, Previous>,
    late: Late,
    orders: Orders,
    cuts: Cuts,
    /// The assembler's samples of this process, while it handles an event.
    samples: Box<Samples>,
    /// The assembler's books, while this process handles an event.
    books: Books,
}

#[derive(Debug, Default)]
struct Goroutine {
    attempt: Option<u64>,
    last_ns: u64,
    /// It runs one plugin or extender call beside the attempt's own goroutine.
    worker: bool,
    open: Vec<Open>,
    /// Calls that ended before their attempt was known.
    closed: Vec<Call>,
    /// Plugins of a phase that is only reported at its end.
    turns: Vec<Turn>,
}

#[derive(Debug)]
struct Building {
    attempt: Attempt,
    stage: Progress,
    last_ns: u64,
    /// Its binding goroutine is known, so the scheduling loop no longer works on it.
    binding: bool,
    /// Up to 1.36 the Pod that `Pop` returns may be one of a group; later, a group is popped as such.
    may_be_of_group: bool,
    states: Few,
    pods: Few,
    /// Goroutines that it ran on.
    goroutines: Few,
    /// Late calls on other goroutines that have not ended.
    outstanding: u64,
    part: Membership,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Popped, and no call yet.
    Popped,
    /// The loop has gone on to the next Pod, and phases were cut: it is bound, or it was skipped.
    Left,
    /// In its scheduling cycle.
    Scheduling,
    /// The scheduling cycle is over: binding comes next, or failure handling.
    Scheduled,
    /// The binding cycle is over and did not succeed.
    NotBound,
    /// The failure is being handled.
    Failing,
}

impl Assembler {
    /// Lends the assembler's books to a process while `work` runs.
    fn with<T>(books: &mut Books, process: &mut Process, work: impl FnOnce(&mut Process) -> T) -> T {
        mem::swap(&mut process.books, books);
        let result = work(process);
        mem::swap(&mut process.books, books);
        result
    }

    /// Drops everything that is open in a process. What is cut of it stays cut.
    fn discard(&mut self, target: u32) -> Cuts {
        let Some(mut process) = self.processes.remove(&target) else { return Cuts::default() };
        Self::with(&mut self.books, &mut process, Process::exit);
        process.cuts
    }
}

impl Assemble<KubeScheduler> for Assembler {
    type Output = Attempt;

    fn on(&mut self, event: Event) {
        if self.losses.came(event.target, event.last_loss) {
            let cuts = self.discard(event.target);
            self.processes.entry(event.target).or_default().cuts = cuts;
        }
        let Self { processes, books, queue_moves, queue_phases, losses, samples, cpu_before: _ } = self;
        books.account.events += 1;
        queue_moves.count(&event.values);
        let process = processes.entry(event.target).or_default();
        queue_phases.count(&event, process);
        process.sharers = losses.processes();
        let mut samples = samples.get_mut(&event.target);
        if let Some(samples) = &mut samples {
            mem::swap(&mut process.samples, samples);
        }
        Self::with(books, process, |process| process.on(event));
        if let Some(samples) = samples {
            mem::swap(&mut process.samples, samples);
        }
    }

    fn sample(&mut self, sample: Sampled) {
        self.samples.entry(sample.target).or_default().add(sample);
    }

    fn window(&mut self, window: Window<Function>) {
        self.take_window(window);
    }

    fn cut(&mut self, target: u32, time_ns: u64, cut: Cut) {
        let Self { processes, books, .. } = self;
        Self::with(books, processes.entry(target).or_default(), |process| process.cut(time_ns, cut));
    }

    fn expire(&mut self, now_ns: u64) {
        let Self { processes, books, .. } = self;
        for process in processes.values_mut() {
            Self::with(books, process, |process| process.expire(now_ns));
        }
    }

    fn exit(&mut self, target: u32) {
        self.discard(target);
        self.losses.exit(target);
        for (pair, ns) in self.samples.remove(&target).unwrap_or_default().total_ns {
            samples::bounded(&mut self.cpu_before, &pair, ns);
        }
    }

    fn books(&self) -> &BooksOf<Attempt> {
        &self.books
    }

    fn books_mut(&mut self) -> &mut BooksOf<Attempt> {
        &mut self.books
    }

    fn counts(&self) -> Vec<Count> {
        let mut cpu = self.cpu_before.clone();
        for samples in self.samples.values() {
            for (pair, ns) in &samples.total_ns {
                samples::bounded(&mut cpu, pair, *ns);
            }
        }
        let cpu = cpu.into_iter().map(|((phase, plugin), total)| Count {
            counter: CPU_NANOSECONDS,
            labels: vec![phase.to_string(), plugin.as_deref().unwrap_or_default().to_owned()],
            total,
        });
        self.queue_moves.counts().into_iter().chain(self.queue_phases.counts()).chain(cpu).collect()
    }
}

impl Process {
    fn on(&mut self, event: Event) {
        if !self.cuts.sees(&event) {
            // It was on its way when that was cut, or comes before all the others.
            self.books.account.unrelated += 1;
            return;
        }
        let part = event.function.about();
        match part {
            Part::EntersQueue { active } => self.enqueue(&event, active),
            Part::CountsMove => self.queue_move(event),
            Part::InQueue(_) => self.in_queue(&event),
            Part::Pop => self.pop(event),
            Part::Fact(fact) => self.take_fact(fact, event),
            // No probe of it sends an event.
            Part::Timed => self.books.account.unrelated += 1,
            Part::QueuesApiCall => {
                let role = event.role;
                self.queue_api_call(&event, role);
            }
            Part::Group => match event.role {
                Role::Entry => self.begin_group(event),
                Role::ReturnSite | Role::NextEntry | Role::Ret | Role::InTurn | Role::Metric => {
                    self.end_group(&event);
                }
            },
            Part::Phase(..)
            | Part::Stage(..)
            | Part::Plugin { .. }
            | Part::Extender { .. }
            | Part::Late(..) => match event.role {
                Role::Entry => self.enter(event),
                Role::InTurn => self.take_turn(event),
                Role::Metric => self.take_whole(event),
                Role::ReturnSite | Role::NextEntry | Role::Ret => self.leave(event),
            },
        }
    }

    fn expire(&mut self, now_ns: u64) {
        self.expire_late(now_ns);
        let silent = |goroutine: &Goroutine| now_ns.saturating_sub(goroutine.last_ns) > SILENCE_NS;
        self.end_goroutines(silent);
        let silent: Vec<u64> = self
            .attempts
            .iter()
            .filter(|(_, building)| {
                let patience = match building.stage {
                    Progress::NotBound => FAILURE_FOLLOWS_NS,
                    Progress::Left => BINDING_FOLLOWS_NS,
                    Progress::Popped | Progress::Scheduling | Progress::Scheduled | Progress::Failing => {
                        SILENCE_NS
                    }
                };
                now_ns.saturating_sub(building.last_ns) > patience
            })
            .map(|(id, _)| *id)
            .collect();
        for id in silent {
            self.abandon(id);
        }
    }

    /// Ends a process and its attempts.
    fn exit(&mut self) {
        self.end_goroutines(|_| true);
        self.late.distrust();
        // Pods of a group are handed over before the group.
        self.late.close();
        self.expire_late(u64::MAX);
        let waiting = self.queued.values().map(|queued| queued.events).sum::<u64>();
        self.books.account.waiting +=
            waiting + self.popped_from_backoff.len() as u64 + self.events_in_queue();
        let mut open: Vec<u64> = self.attempts.keys().copied().collect();
        open.sort_unstable();
        for id in open {
            self.abandon(id);
        }
    }
}

impl Process {
    /// The part of a table's limit that is this process's: one that fills a table takes nothing from the others.
    fn room(&self, limit: usize) -> usize {
        limit / self.sharers.max(1)
    }

    /// Records a fact about the attempt that the goroutine is on.
    fn take_fact(&mut self, fact: Fact, event: Event) {
        let Event { time_ns, goroutine, mut values, .. } = event;
        let id = self.goroutines.get(&goroutine).and_then(Goroutine::on);
        let Some((id, building)) = id.and_then(|id| Some((id, self.attempts.get_mut(&id)?))) else {
            if self.cuts.may_be_unseen(time_ns) {
                // Its attempt has ended without it.
                self.books.account.unrelated += 1;
            } else {
                self.books.stats.orphan_facts += 1;
                self.books.account.orphaned += 1;
            }
            return;
        };
        building.seen(time_ns);
        building.attempt.events += 1;
        let attempt = &mut building.attempt;
        match fact {
            Fact::Preemption => {
                let victims = values.number(Value::Victims).unwrap_or_default();
                let count = usize::try_from(victims).unwrap_or(usize::MAX);
                let names = values.take_texts(Value::VictimNames).into_iter().take(count).flatten().collect();
                let node = values.take_text(Value::PreemptionNode).unwrap_or_default();
                attempt.preemption = Some(Preemption { node, victims, names });
                if let Some(candidate @ 1..) = values.number(Value::PreemptionCandidate) {
                    building.outstanding += victims.min(MAX_CALLS as u64);
                    self.late.preempts(candidate, id);
                }
            }
            Fact::Scores => attempt.scores = values.take_top(Value::Scores).or(attempt.scores.take()),
            Fact::RejectedNodes => attempt.take_statuses(&mut values),
            Fact::NodeHint => {
                attempt.batched = values.number(Value::HintLength).is_some_and(|length| length > 0);
            }
            Fact::FailureMessage => {
                // Without a condition, the call only writes a nominated Node.
                if let Outcome::Failed { reason, .. } = &mut attempt.outcome
                    && let Some(message) = values.take_text(Value::Message).filter(|text| !text.is_empty())
                {
                    *reason = message;
                }
            }
            Fact::Placement => building.take_placement_name(&values),
            Fact::GroupCondition => building.take_condition(values),
        }
    }

    fn pop(&mut self, event: Event) {
        let Event { target, time_ns, goroutine, role, values, .. } = event;
        self.leave_attempt(goroutine, time_ns);
        let from_backoff = self.popped_from_backoff.remove(&goroutine);
        let pod = values.number(Value::Pod);
        let Some(entry @ 1..) = values.number(Value::QueuedPodInfo) else {
            // The queue is closed.
            self.books.account.unrelated += 1;
            from_backoff.into_iter().for_each(|_| self.books.orphan_move());
            return;
        };
        let full = self.attempts.len() >= self.room(MAX_ATTEMPTS);
        if full || self.goroutines.len() >= self.room(MAX_GOROUTINES) {
            self.books.no_room(1 + u64::from(from_backoff.is_some()));
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        let mut queued = self.take_queued(Some(entry));
        if let Some(time_ns) = from_backoff {
            queued.pop_from_backoff(time_ns, self.names.intern(POPPED_FROM_BACKOFF));
        }
        queued.events += 1;
        let attempt = self.attempt_of_pod(target, time_ns, values, queued);
        self.by_uid.insert(attempt.pod.uid.clone(), id);
        // `Pop` itself returned, not `scheduleOnePod` began.
        let may_be_of_group = role != Role::Entry;
        self.attempts.insert(id, Building { may_be_of_group, ..Building::new(attempt, goroutine) });
        self.learn(id, None, pod);
        let goroutine = self.goroutines.entry(goroutine).or_default();
        (goroutine.attempt, goroutine.last_ns) = (Some(id), time_ns);
    }

    /// A new attempt of the Pod that these values describe.
    fn attempt_of_pod(
        &mut self,
        target: u32,
        time_ns: u64,
        mut values: Values,
        mut queued: Queued,
    ) -> Attempt {
        if let Some((call, events)) = self.take_signature(values.number(Value::Pod)) {
            queued.ran(call, events);
        }
        let uid = values.take_text(Value::PodUid).unwrap_or_default();
        let mut attempt = Attempt {
            previous: self.pending.remove(&uid),
            pod: Pod {
                uid,
                name: values.take_text(Value::PodName).unwrap_or_default(),
                namespace: values.take_text(Value::PodNamespace).unwrap_or_default(),
                profile: values.take_text(Value::Profile).unwrap_or_default(),
            },
            number: values.number(Value::Attempts),
            first_attempt: values.number(Value::FirstAttempt),
            queue_timestamp: values.number(Value::QueueTimestamp),
            calls: Vec::with_capacity(USUAL_CALLS),
            ..queued.attempt(target, time_ns)
        };
        attempt.cut = self.cuts.of(&attempt);
        attempt
    }

    /// Settles the attempt that the scheduling loop leaves for the next Pod.
    fn leave_attempt(&mut self, goroutine: u64, now_ns: u64) {
        let current = self.goroutines.get(&goroutine).and_then(|goroutine| goroutine.attempt);
        if let Some(id) = current.filter(|id| self.is_group(*id)) {
            self.books.stats.incomplete_attempts += 1;
            // Attempts that are being bound end on their own.
            self.abandon_members(id, |building| !building.binding);
            return self.leave_group(goroutine, id, now_ns);
        }
        let Some(mut previous) = self.goroutines.remove(&goroutine) else { return };
        self.unwind(&mut previous, 0, now_ns);
        self.give_up(&mut previous);
        let Some(id) = previous.attempt else { return };
        let Some(building) = self.attempts.get_mut(&id).filter(|building| !building.binding) else { return };
        if !building.attempt.cut.keeps_detail(Detail::Phases) {
            // The end of its scheduling cycle, or all of it, was not seen.
            match building.stage {
                Progress::Popped => building.leave(Progress::Left, now_ns),
                Progress::Scheduling => building.leave(Progress::Scheduled, now_ns),
                Progress::Left | Progress::Scheduled | Progress::NotBound | Progress::Failing => {}
            }
        }
        if ![Progress::Left, Progress::Scheduled].contains(&building.stage) {
            self.abandon(id);
        }
    }

    /// Counts a goroutine's unclaimed calls as orphaned, unless they may be of an attempt that was not wholly seen.
    fn give_up(&mut self, goroutine: &mut Goroutine) {
        let Goroutine { closed, turns, .. } = goroutine;
        let calls = (closed.len() + turns.len()) as u64;
        let events = closed.drain(..).map(|call| call.events).sum::<u64>() + turns.drain(..).count() as u64;
        let is_cut = |building: &Building| !building.attempt.cut.keeps_detail(Detail::Phases);
        let may_be_unseen =
            || self.cuts.may_be_unseen(goroutine.last_ns) || self.attempts.values().any(is_cut);
        if calls > 0 && may_be_unseen() {
            self.books.account.unrelated += events;
        } else {
            self.books.stats.orphan_calls += calls;
            self.books.account.orphaned += events;
        }
    }

    /// Closes the calls of goroutines without further events: they never returned.
    fn end_goroutines(&mut self, over: impl Fn(&Goroutine) -> bool) {
        let mut numbers: Vec<u64> = self
            .goroutines
            .iter()
            .filter(|(_, goroutine)| over(goroutine))
            .map(|(number, _)| *number)
            .collect();
        numbers.sort_unstable();
        for number in numbers {
            let Some(mut goroutine) = self.goroutines.remove(&number) else { continue };
            let building = goroutine.attempt.and_then(|id| self.attempts.get(&id));
            let last = building.map_or(goroutine.last_ns, |building| building.last_ns);
            self.unwind(&mut goroutine, 0, last);
            self.give_up(&mut goroutine);
        }
    }

    /// Records the addresses that identify an attempt. Addresses are reused after a garbage collection, so
    /// the newest owner wins.
    fn learn(&mut self, id: u64, state: Option<u64>, pod: Option<u64>) {
        let Some(building) = self.attempts.get_mut(&id) else { return };
        for (address, index, own) in
            [(state, &mut self.by_state, &mut building.states), (pod, &mut self.by_pod, &mut building.pods)]
        {
            if let Some(address @ 1..) = address
                && index.insert(address, id) != Some(id)
                && own.len() < MAX_CALLS
            {
                own.push(address);
            }
        }
    }

    /// Ends an attempt whose end was not seen.
    fn abandon(&mut self, id: u64) {
        self.abandon_members(id, |_| true);
        let Some(building) = self.attempts.get_mut(&id) else { return };
        if [Progress::Popped, Progress::Left].contains(&building.stage) {
            self.books.stats.skipped += 1;
            self.books.account.skipped += building.attempt.events;
            if let Some(Building { part, last_ns, .. }) = self.forget(id) {
                self.left(&part, last_ns, false);
            }
            return;
        }
        building.attempt.incomplete = true;
        let last = building.last_ns;
        if building.stage != Progress::Failing {
            self.will_be_tried_again(id);
        }
        self.books.stats.incomplete_attempts += 1;
        self.finish(id, last);
    }

    /// Remembers this attempt, to link the Pod's next attempt to it.
    fn will_be_tried_again(&mut self, id: u64) {
        let Some(Building { attempt, .. }) = self.attempts.get(&id) else { return };
        let identity = attempt.identity().into_owned();
        // Without a UID the Pod is unknown.
        if identity.is_empty() {
            return;
        }
        let previous = Previous { start_ns: attempt.start_ns, group: attempt.group().cloned() };
        if self.pending.len() >= self.room(MAX_PENDING) {
            // Most entries are of deleted Pods.
            self.pending.clear();
        }
        self.pending.insert(identity, previous);
    }

    fn finish(&mut self, id: u64, end_ns: u64) {
        let numbers = self.attempts.get_mut(&id).map(|building| mem::take(&mut building.goroutines));
        for number in numbers.into_iter().flatten() {
            // Calls open on other goroutines never return, or not to this attempt.
            let Some(mut goroutine) = self.goroutines.remove(&number) else { continue };
            if goroutine.attempt == Some(id) {
                self.unwind(&mut goroutine, 0, end_ns);
                self.give_up(&mut goroutine);
            } else {
                self.unwind_of(&mut goroutine, id, end_ns);
                self.goroutines.insert(number, goroutine);
            }
        }
        if let Some(Building { mut attempt, last_ns, part, outstanding, .. }) = self.forget(id) {
            // A goroutine's clock never goes back, but a recording may be inconsistent.
            if let Subject::Member(group) = &attempt.subject {
                attempt.start_ns = attempt.start_ns.max(group.start_ns);
            }
            attempt.end_ns = end_ns.max(last_ns).max(attempt.start_ns);
            for call in &mut attempt.calls {
                call.start_ns = call.start_ns.max(attempt.start_ns);
                call.end_ns = call.end_ns.max(call.start_ns);
                attempt.end_ns = attempt.end_ns.max(call.end_ns);
            }
            if outstanding > 0 && self.late.has_room() {
                self.late.wait(id, attempt, part, outstanding);
            } else {
                self.hand_over(attempt, &part);
            }
        }
    }

    fn hand_over(&mut self, attempt: Attempt, part: &Membership) {
        self.books.account.in_attempts += attempt.events;
        let (end_ns, bound) = (attempt.end_ns, attempt.outcome == Outcome::Scheduled);
        self.books.finished.push(attempt);
        // The group is handed over after its Pods.
        self.left(part, end_ns, bound);
    }

    fn forget(&mut self, id: u64) -> Option<Building> {
        let building = self.attempts.remove(&id)?;
        if self.by_uid.get(&building.attempt.pod.uid) == Some(&id) {
            self.by_uid.remove(&building.attempt.pod.uid);
        }
        for (index, own) in [(&mut self.by_state, &building.states), (&mut self.by_pod, &building.pods)] {
            for address in own {
                if index.get(address) == Some(&id) {
                    index.remove(address);
                }
            }
        }
        Some(building)
    }
}

impl Goroutine {
    /// The attempt that the innermost open call belongs to.
    fn on(&self) -> Option<u64> {
        self.open.last().and_then(|open| open.owner).or(self.attempt)
    }

    /// Start of the first call without an attempt.
    fn began(&self) -> Option<u64> {
        let closed = self.closed.iter().map(|call| call.start_ns);
        self.open.iter().map(|open| open.start_ns).chain(closed).min()
    }
}

impl Building {
    fn new(attempt: Attempt, goroutine: u64) -> Self {
        Self {
            last_ns: attempt.start_ns,
            attempt,
            stage: Progress::Popped,
            binding: false,
            may_be_of_group: false,
            states: Few::new(),
            pods: Few::new(),
            goroutines: smallvec![goroutine],
            outstanding: 0,
            part: Membership::Alone,
        }
    }

    /// The scheduling loop has gone on to the next Pod.
    fn leave(&mut self, stage: Progress, now_ns: u64) {
        self.stage = stage;
        self.seen(now_ns);
    }

    /// Events of different goroutines may arrive slightly out of order.
    fn seen(&mut self, time_ns: u64) {
        self.last_ns = self.last_ns.max(time_ns);
    }

    fn enter(&mut self, function: Function, time_ns: u64, values: &Values) {
        self.seen(time_ns);
        if let Some(node) = values.text(Value::NodeName) {
            self.attempt.node = Some(node.to_owned());
        }
        self.tried(function, values.number(Value::CycleState));
        match function.about().stage() {
            Some(Stage::Member) => {
                if self.stage == Progress::Popped {
                    self.attempt.start_ns = time_ns;
                    self.stage = Progress::Scheduling;
                }
            }
            Some(Stage::SchedulingCycle) => self.stage = Progress::Scheduling,
            Some(Stage::BindingCycle) => {
                self.stage = Progress::Scheduled;
                self.attempt.nodes =
                    values.number(Value::EvaluatedNodes).zip(values.number(Value::FeasibleNodes));
            }
            Some(Stage::HandleFailure) => {
                self.stage = Progress::Failing;
                self.attempt.outcome = Outcome::Failed {
                    code: values.signed(Value::StatusCode).map(Code),
                    reason: values.text(Value::StatusReason).unwrap_or_default().to_owned(),
                    plugin: values.text(Value::StatusPlugin).unwrap_or_default().to_owned(),
                };
            }
            Some(Stage::PlacementTrial) | None => {}
        }
    }
}
