mod groups;
mod late;
mod turns;

use std::sync::Arc;

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};

use self::{
    groups::Part,
    late::{Late, is_late},
    turns::{Orders, Turn, Turns},
};
use super::{ApiCall, Attempt, Call, Code, Extender, Move, Outcome, Pod, Preemption, Previous};
use crate::{
    plan::{Function, Role},
    record::{Event, Values},
};

/// For keys that are addresses and numbers, with some ten look-ups an event: the standard hash was half of the work. Seeded at
/// random as well, and the tables are bounded.
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// Attempts that can be open at once in one process; with gang scheduling thousands wait on Permit together.
const MAX_ATTEMPTS: usize = 65_536;
/// Goroutines remembered at once in one process: one per binding cycle.
const MAX_GOROUTINES: usize = 65_536;
/// Pods remembered as waiting in the active queue of one process.
const MAX_ENQUEUED: usize = 262_144;
/// Goroutines that are just putting a Pod into a queue.
const MAX_MOVING: usize = 4_096;
/// Moves remembered of one Pod between two attempts: the first and the last of them.
const MAX_MOVES: usize = 16;
/// Pods whose last attempt is remembered, so that the next one can be linked to it.
const MAX_PENDING: usize = 65_536;
/// Open calls on one goroutine: the deepest true nesting is four.
const MAX_OPEN: usize = 32;
/// Calls of one attempt, and calls of a goroutine that belong to no attempt yet.
const MAX_CALLS: usize = 1_024;
/// A binding cycle that ended without `PostBind` is followed at once by the handling of its failure.
const FAILURE_FOLLOWS_NS: u64 = 10_000_000_000;
/// The longest that Permit may wait is 15 minutes
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/framework/runtime/framework.go>,
/// `maxTimeout`); an attempt that is silent for twice as long is lost.
const SILENCE_NS: u64 = 30 * 60 * 1_000_000_000;

/// The values of the label `queue`.
const QUEUES: [&str; 3] = ["active", "backoff", "unschedulable"];
/// The event of a Pod that is taken out of the backoff queue because no other is ready.
const POPPED_FROM_BACKOFF: &str = "PopFromBackoffQ";

/// Puts events together to attempts.
#[derive(Debug, Default)]
pub struct Assembler {
    processes: HashMap<u32, Process>,
    finished: Vec<Attempt>,
    stats: Stats,
    account: Account,
    last_loss: u64,
}

/// What became of events that are in no complete attempt. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Stats {
    /// Pods that were popped and not scheduled, such as those that are being deleted.
    pub skipped: u64,
    /// Ends without an open call: sites may be reached by other ways than the call's return.
    pub stray_ends: u64,
    /// Loss: calls that were left without a return: panics, or their end was lost.
    pub unwound_calls: u64,
    /// Loss: calls that no attempt could be found for.
    pub orphan_calls: u64,
    /// Loss: attempts whose end was not seen.
    pub incomplete_attempts: u64,
    /// Loss: entries of Pods into a queue whose Pod is not known.
    pub orphan_moves: u64,
    /// Loss: what was told about an attempt that is not known.
    pub orphan_facts: u64,
    /// Loss: attempts, goroutines, calls or queue entries for which there was no room.
    pub table_full: u64,
}

/// What became of each event. Once nothing is open any more, the rest adds up to [`Account::events`], to the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Account {
    /// All that came.
    pub events: u64,
    /// In attempts that have ended: the beginning or the end of a span, or something told on one.
    pub in_attempts: u64,
    /// Of Pods that were popped and not scheduled, or discarded before they left the queue.
    pub skipped: u64,
    /// About nothing that is traced: another metric than the queue's, or a `Pop` that returned no Pod.
    pub unrelated: u64,
    /// Ends without an open call.
    pub stray: u64,
    /// Calls, facts and moves that no attempt claimed.
    pub orphaned: u64,
    /// Moves of Pods that were not popped as long as they could be followed.
    pub waiting: u64,
    /// There was no room.
    pub no_room: u64,
}

impl Account {
    /// Events that are not accounted for yet: of attempts that go on, of calls that have not returned, of Pods in a queue.
    #[must_use]
    pub fn open(&self) -> u64 {
        let Self { events, in_attempts, skipped, unrelated, stray, orphaned, waiting, no_room } = self;
        events - (in_attempts + skipped + unrelated + stray + orphaned + waiting + no_room)
    }
}

#[derive(Debug, Default)]
struct Process {
    next_id: u64,
    attempts: HashMap<u64, Building>,
    goroutines: HashMap<u64, Goroutine>,
    by_state: HashMap<u64, u64>,
    by_pod: HashMap<u64, u64>,
    /// By the address of the entry in the queue.
    queued: HashMap<u64, Queued>,
    /// Which entry a goroutine is putting into a queue.
    moving: HashMap<u64, u64>,
    /// When a goroutine took a Pod out of the backoff queue, which it is about to return.
    popped_from_backoff: HashMap<u64, u64>,
    /// The last attempt of a Pod, by UID, or of a group, if it was not bound.
    pending: HashMap<String, Previous>,
    late: Late,
    orders: Orders,
}

/// A Pod in the queues.
#[derive(Debug, Default)]
struct Queued {
    /// When it entered the active queue.
    active_ns: Option<u64>,
    moves: Vec<Move>,
    left_out: u64,
    /// How many events it came about by.
    events: u64,
}

#[derive(Debug, Default)]
struct Goroutine {
    attempt: Option<u64>,
    last_ns: u64,
    /// Whether it serves one plugin of an attempt, beside the goroutine that the attempt is on.
    worker: bool,
    open: Vec<Open>,
    /// Calls that ended before it was known whose they are.
    closed: Vec<Call>,
    /// Plugins of a phase that tells of itself at its end.
    turns: Vec<Turn>,
}

#[derive(Debug)]
struct Open {
    function: Function,
    start_ns: u64,
    depth: u64,
    plugin: Option<Arc<str>>,
    extender: Option<Box<Extender>>,
    api_call: Option<Box<ApiCall>>,
    /// Whose it is, where that is not what the goroutine is on: a Pod of the group.
    owner: Option<u64>,
    turns: Turns,
    /// How many events told of its beginning: none where its end does.
    events: u64,
}

#[derive(Debug)]
struct Building {
    attempt: Attempt,
    stage: Stage,
    last_ns: u64,
    /// Whether its binding goroutine is known: then the scheduling loop has nothing to do with it any more.
    binding: bool,
    states: Vec<u64>,
    pods: Vec<u64>,
    /// Those that it was on.
    goroutines: Vec<u64>,
    /// What is done for it on other goroutines and has not come to its end.
    outstanding: u64,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Out of the queue, nothing tried yet.
    Popped,
    /// In its scheduling cycle.
    Scheduling,
    /// The scheduling cycle is over: binding comes next, or the handling of a failure.
    Scheduled,
    /// The binding cycle is over, and did not succeed.
    NotBound,
    /// The failure is being handled.
    Failing,
}

impl Assembler {
    /// Takes the next event. Events must come in the order of the ring buffer: each goroutine's own order.
    pub fn on(&mut self, event: Event) {
        if event.last_loss != self.last_loss {
            self.last_loss = event.last_loss;
            self.distrust();
        }
        self.account.events += 1;
        let Self { processes, finished, stats, account, .. } = self;
        let process = processes.entry(event.target).or_default();
        let mut context = Context { finished, stats, account };
        match (event.function, event.role) {
            (Function::Enqueue | Function::EnqueueBackoff | Function::EnqueueUnschedulable, _) => {
                process.enqueue(&event, &mut context);
            }
            (Function::QueueMove, _) => process.queue_move(event, &mut context),
            (Function::Pop, _) => process.pop(event, &mut context),
            (
                Function::Preemption
                | Function::FailureMessage
                | Function::NodeHint
                | Function::Prioritize
                | Function::Placement
                | Function::PodGroupCondition,
                _,
            ) => process.tell(event, &mut context),
            (Function::ApiCallAdd, role) => process.queue_api_call(&event, role, &mut context),
            (Function::PodGroup, Role::Entry) => process.begin_group(event, &mut context),
            (Function::PodGroup, _) => process.end_group(&event, &mut context),
            (_, Role::Entry) => process.enter(event, &mut context),
            (_, Role::InTurn) => process.take_turn(event, &mut context),
            (_, Role::Metric) => process.take_whole(event, &mut context),
            (_, Role::ReturnSite | Role::NextEntry | Role::Ret) => process.leave(event, &mut context),
        }
    }

    /// The attempts that have ended since the last call.
    pub fn take_finished(&mut self) -> Vec<Attempt> {
        std::mem::take(&mut self.finished)
    }

    /// Gives up what has been silent for too long; `now_ns` is `CLOCK_MONOTONIC`.
    pub fn expire(&mut self, now_ns: u64) {
        let Self { processes, finished, stats, account, .. } = self;
        let mut context = Context { finished, stats, account };
        for process in processes.values_mut() {
            process.expire_late(now_ns, &mut context);
            let silent = |goroutine: &Goroutine| now_ns.saturating_sub(goroutine.last_ns) > SILENCE_NS;
            process.end_goroutines(silent, &mut context);
            let silent: Vec<u64> = process
                .attempts
                .iter()
                .filter(|(_, building)| {
                    let patience =
                        if building.stage == Stage::NotBound { FAILURE_FOLLOWS_NS } else { SILENCE_NS };
                    now_ns.saturating_sub(building.last_ns) > patience
                })
                .map(|(id, _)| *id)
                .collect();
            for id in silent {
                process.abandon(id, &mut context);
            }
        }
    }

    /// A process has ended: so have its attempts.
    pub fn exit(&mut self, target: u32) {
        let Some(mut process) = self.processes.remove(&target) else { return };
        let Self { finished, stats, account, .. } = self;
        let mut context = Context { finished, stats, account };
        process.end_goroutines(|_| true, &mut context);
        process.late.distrust();
        // Pods of a group are handed over before the group is.
        process.late.close();
        process.expire_late(u64::MAX, &mut context);
        let waiting = process.queued.values().map(|queued| queued.events).sum::<u64>();
        context.account.waiting += waiting + process.popped_from_backoff.len() as u64;
        let mut open: Vec<u64> = process.attempts.keys().copied().collect();
        open.sort_unstable();
        for id in open {
            process.abandon(id, &mut context);
        }
    }

    /// Records were lost: an end that comes now may belong to a beginning that did not, and the other way round. So
    /// everything that is open is given up.
    fn distrust(&mut self) {
        let mut targets: Vec<u32> = self.processes.keys().copied().collect();
        targets.sort_unstable();
        for target in targets {
            self.exit(target);
        }
    }

    /// What became of the rest.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// What became of each event.
    #[must_use]
    pub fn account(&self) -> Account {
        self.account
    }
}

/// Where a process's results go.
struct Context<'a> {
    finished: &'a mut Vec<Attempt>,
    stats: &'a mut Stats,
    account: &'a mut Account,
}

impl Context<'_> {
    fn no_room(&mut self, events: u64) {
        self.stats.table_full += 1;
        self.account.no_room += events;
    }

    fn stray_end(&mut self) {
        self.stats.stray_ends += 1;
        self.account.stray += 1;
    }

    fn orphan_move(&mut self) {
        self.stats.orphan_moves += 1;
        self.account.orphaned += 1;
    }
}

impl Process {
    fn enqueue(&mut self, event: &Event, context: &mut Context<'_>) {
        let Some(entry) = event.values.queued_pod_info else {
            context.orphan_move();
            return;
        };
        if self.queued.len() >= MAX_ENQUEUED {
            self.queued.drain().for_each(|(_, queued)| context.no_room(queued.events));
        }
        let queued = self.queued.entry(entry).or_default();
        queued.events += 1;
        if event.function == Function::Enqueue {
            queued.active_ns = Some(event.time_ns);
        }
        if self.moving.len() >= MAX_MOVING {
            // Goroutines that are over.
            self.moving.clear();
        }
        self.moving.insert(event.goroutine, entry);
    }

    /// The scheduler counts the Pod that the goroutine has put into a queue last.
    fn queue_move(&mut self, event: Event, context: &mut Context<'_>) {
        let Event { time_ns, goroutine, values, .. } = event;
        let Some((queue, event)) = moved(&values) else {
            context.account.unrelated += 1;
            return;
        };
        if event == POPPED_FROM_BACKOFF {
            if self.popped_from_backoff.len() >= MAX_MOVING {
                self.popped_from_backoff.drain().for_each(|_| context.no_room(1));
            }
            if self.popped_from_backoff.insert(goroutine, time_ns).is_some() {
                // The scheduler has popped a Pod that it schedules already, and looked for another one:
                // <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/backend/queue/active_queue.go>,
                // `unlockedPop`
                context.account.skipped += 1;
            }
            return;
        }
        let Some(queued) = self.moving.get(&goroutine).and_then(|entry| self.queued.get_mut(entry)) else {
            context.orphan_move();
            return;
        };
        queued.events += 1;
        queued.push(Move { time_ns, queue: queue.to_owned(), event: event.to_owned() });
    }

    /// Something that the goroutine's attempt is told about itself.
    fn tell(&mut self, event: Event, context: &mut Context<'_>) {
        let Event { time_ns, goroutine, function, values, .. } = event;
        let id = self.goroutines.get(&goroutine).and_then(Goroutine::on);
        let Some(building) = id.and_then(|id| self.attempts.get_mut(&id)) else {
            context.stats.orphan_facts += 1;
            context.account.orphaned += 1;
            return;
        };
        building.seen(time_ns);
        building.attempt.events += 1;
        let attempt = &mut building.attempt;
        match (function, &mut attempt.outcome) {
            (Function::Preemption, _) => {
                let victims = values.victims.unwrap_or_default();
                let count = usize::try_from(victims).unwrap_or(usize::MAX);
                let names = values.victim_names.into_iter().take(count).flatten().collect();
                let node = values.preemption_node.unwrap_or_default();
                attempt.preemption = Some(Preemption { node, victims, names });
                if let (Some(id), Some(candidate @ 1..)) = (id, values.preemption_candidate) {
                    building.outstanding += victims.min(MAX_CALLS as u64);
                    self.late.preempts(candidate, id);
                }
            }
            (Function::Prioritize, _) => attempt.scores = values.scores.or(attempt.scores.take()),
            (Function::NodeHint, _) => attempt.batched = values.hint_length.is_some_and(|length| length > 0),
            (Function::FailureMessage, Outcome::Failed { reason, .. }) => {
                // Without a condition only a nominated Node is written.
                if let Some(message) = values.message.filter(|message| !message.is_empty()) {
                    *reason = message;
                }
            }
            (Function::Placement | Function::PodGroupCondition, _) => {
                building.told_of_group(function, values);
            }
            _ => {}
        }
    }

    fn pop(&mut self, event: Event, context: &mut Context<'_>) {
        let Event { target, time_ns, goroutine, values, .. } = event;
        self.leave_attempt(goroutine, time_ns, context);
        let from_backoff = self.popped_from_backoff.remove(&goroutine);
        let Values { queued_pod_info: Some(entry @ 1..), pod, .. } = values else {
            // The queue is closed.
            context.account.unrelated += 1;
            from_backoff.into_iter().for_each(|_| context.orphan_move());
            return;
        };
        if self.attempts.len() >= MAX_ATTEMPTS || self.goroutines.len() >= MAX_GOROUTINES {
            context.no_room(1 + u64::from(from_backoff.is_some()));
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        let mut queued = self.queued.remove(&entry).unwrap_or_default();
        if let Some(time_ns) = from_backoff {
            queued.events += 1;
            queued.push(Move { time_ns, queue: "active".to_owned(), event: POPPED_FROM_BACKOFF.to_owned() });
        }
        queued.events += 1;
        let attempt = self.attempt_of_pod(target, time_ns, values, queued);
        self.attempts.insert(id, Building::new(attempt, goroutine));
        self.learn(id, None, pod);
        let goroutine = self.goroutines.entry(goroutine).or_default();
        (goroutine.attempt, goroutine.last_ns) = (Some(id), time_ns);
    }

    /// An attempt that begins, of the Pod that these values are of.
    fn attempt_of_pod(&mut self, target: u32, time_ns: u64, values: Values, queued: Queued) -> Attempt {
        let uid = values.pod_uid.unwrap_or_default();
        Attempt {
            previous: self.pending.remove(&uid),
            pod: Pod {
                uid,
                name: values.pod_name.unwrap_or_default(),
                namespace: values.pod_namespace.unwrap_or_default(),
                profile: values.profile.unwrap_or_default(),
            },
            number: values.attempts,
            first_attempt: values.first_attempt,
            queue_timestamp: values.queue_timestamp,
            ..queued.attempt(target, time_ns)
        }
    }

    /// The scheduling loop turns to the next Pod: what became of the one before?
    fn leave_attempt(&mut self, goroutine: u64, now_ns: u64, context: &mut Context<'_>) {
        let current = self.goroutines.get(&goroutine).and_then(|goroutine| goroutine.attempt);
        if let Some(id) = current.filter(|id| self.is_group(*id)) {
            context.stats.incomplete_attempts += 1;
            // Those that are being bound will tell.
            self.abandon_members(id, |building| !building.binding, context);
            return self.leave_group(goroutine, id, now_ns, context);
        }
        let Some(mut previous) = self.goroutines.remove(&goroutine) else { return };
        self.unwind(&mut previous, 0, now_ns, context);
        previous.give_up(context);
        let Some(id) = previous.attempt else { return };
        let elsewhere = |building: &Building| building.binding || building.stage == Stage::Scheduled;
        if !self.attempts.get(&id).is_none_or(elsewhere) {
            self.abandon(id, context);
        }
    }

    /// Nothing will come from these goroutines any more: what is open there never returned.
    fn end_goroutines(&mut self, over: impl Fn(&Goroutine) -> bool, context: &mut Context<'_>) {
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
            self.unwind(&mut goroutine, 0, last, context);
            goroutine.give_up(context);
        }
    }

    fn enter(&mut self, event: Event, context: &mut Context<'_>) {
        let Event { time_ns, goroutine: number, depth, function, ref values, .. } = event;
        if !self.goroutines.contains_key(&number) && self.goroutines.len() >= MAX_GOROUTINES {
            context.no_room(1);
            return;
        }
        let mut goroutine = self.goroutines.remove(&number).unwrap_or_default();
        // A call at this depth or above it says that deeper ones are over.
        self.unwind(&mut goroutine, depth, time_ns, context);
        goroutine.last_ns = time_ns;
        // It may have ended elsewhere.
        goroutine.attempt = goroutine.attempt.filter(|id| self.attempts.contains_key(id));
        if goroutine.attempt.is_none() {
            // A state that is not known is of an attempt that is over, even where its Pod's address is used again.
            let found = match (values.cycle_state, values.pod) {
                (Some(state), _) => self.by_state.get(&state),
                (None, Some(pod)) => self.by_pod.get(&pod),
                (None, None) => None,
            };
            let found = found.copied();
            if goroutine.open.is_empty() {
                goroutine.worker = runs_beside(function);
            }
            // Addresses are used again: a call that began before the attempt is not of this one, nor is a second binding
            // goroutine.
            let began = goroutine.began().unwrap_or(time_ns);
            let own = |building: &Building| {
                building.attempt.start_ns <= began && (goroutine.worker || !building.binding)
            };
            let building = found.and_then(|id| Some((id, self.attempts.get_mut(&id)?)));
            if let Some((id, building)) = building.filter(|(_, building)| own(building)) {
                building.binding |= !goroutine.worker;
                if building.goroutines.len() < MAX_CALLS {
                    building.goroutines.push(number);
                }
                let attempt = &mut building.attempt;
                attempt.incomplete |= goroutine.closed.iter().any(|call| !call.returned);
                attempt.events += goroutine.closed.iter().map(|call| call.events).sum::<u64>();
                attempt.calls.append(&mut goroutine.closed);
                goroutine.attempt = Some(id);
            }
        }
        let mut owner = goroutine.attempt;
        let mut api_call = None;
        if is_late(function) {
            goroutine.worker |= goroutine.open.is_empty() && goroutine.attempt.is_none();
            (owner, api_call) = self.late.take(&event);
            owner = owner.filter(|id| self.attempts.contains_key(id) || self.late.waits(*id));
        } else if let Some(group) = owner.filter(|id| self.is_group(*id)) {
            owner = Some(self.owner_in_group(group, &goroutine, &event, context));
        }
        let mut values = event.values;
        if !is_late(function) {
            self.begin_call(owner, &goroutine, function, time_ns, &mut values);
            owner = owner.filter(|_| owner != goroutine.attempt);
        }
        if goroutine.open.len() < MAX_OPEN {
            let extender = extender(&mut values);
            let plugin = values.plugin;
            let open = Open::new(function, time_ns, depth);
            goroutine.open.push(Open { plugin, extender, api_call, owner, ..open });
        } else {
            context.no_room(1);
        }
        self.goroutines.insert(number, goroutine);
    }

    /// What the attempt learns from a call that begins.
    fn begin_call(
        &mut self,
        owner: Option<u64>,
        goroutine: &Goroutine,
        function: Function,
        time_ns: u64,
        values: &mut Values,
    ) {
        match function {
            Function::PlacementTrial => {
                values.plugin = owner.and_then(|id| self.attempts.get_mut(&id)?.take_placement());
            }
            Function::PodGroupMember => {
                values.plugin = goroutine.open.last().and_then(|trial| trial.plugin.clone());
            }
            _ => {}
        }
        let Some(id) = owner else { return };
        self.learn(id, values.cycle_state, values.pod);
        if let Some(building) = self.attempts.get_mut(&id) {
            building.enter(function, time_ns, values);
            if values.statuses.is_some() {
                building.attempt.statuses = values.statuses.take();
            }
        }
        if function == Function::HandleFailure {
            // The Pod goes back into the queue, and may be popped before this has returned.
            self.will_be_tried_again(id);
        }
    }

    fn leave(&mut self, event: Event, context: &mut Context<'_>) {
        let Event { time_ns, goroutine: number, depth, function, role, values, .. } = event;
        let Some(mut goroutine) = self.goroutines.remove(&number) else {
            return context.stray_end();
        };
        goroutine.last_ns = time_ns;
        let same_call =
            |open: &Open| open.function == function && (open.depth == depth || role == Role::NextEntry);
        let Some(position) = goroutine.open.iter().rposition(same_call) else {
            let by_extender = |building: &Building| {
                building.attempt.calls.iter().any(|call| call.function == Function::ExtenderBind)
            };
            let bound = || goroutine.on().and_then(|id| self.attempts.get(&id)).is_some_and(by_extender);
            if (function, role) == (Function::Bind, Role::NextEntry) && bound() {
                // Whoever binds, what comes next is the same.
                context.account.unrelated += 1;
            } else {
                context.stray_end();
            }
            self.goroutines.insert(number, goroutine);
            return;
        };
        let inner = goroutine.open.split_off(position + 1);
        for open in inner.into_iter().rev() {
            self.close(&mut goroutine, open, time_ns, None, context);
        }
        let mut values = values;
        let on = goroutine.on();
        if let Some(building) = on.and_then(|id| self.attempts.get_mut(&id)) {
            let attempt = &mut building.attempt;
            // No restriction and a restriction to no Node read the same; the latter is a rejection.
            attempt.restricted_to = values.restricted_to.filter(|count| *count > 0).or(attempt.restricted_to);
            attempt.scores = values.scores.take().or(attempt.scores.take());
        }
        if let Some(open) = goroutine.open.pop() {
            self.close(&mut goroutine, open, time_ns, Some(values), context);
        }
        if matches!(function, Function::BindingCycle | Function::HandleFailure) && on == goroutine.attempt {
            // Nothing of an attempt is around these: what is still open has been left by a panic.
            self.unwind(&mut goroutine, 0, time_ns, context);
        } else if let Some(id) = on.filter(|_| function == Function::HandleFailure) {
            self.unwind_of(&mut goroutine, id, time_ns, context);
        }
        let ended = on.is_some_and(|id| self.after(id, function, time_ns, context));
        if ended && on == goroutine.attempt {
            goroutine.attempt = None;
        }
        // The scheduling loop has an attempt again after the next Pop; a binding goroutine is over.
        let over = goroutine.worker && goroutine.open.is_empty();
        if !over && (goroutine.attempt.is_some() || !goroutine.open.is_empty()) {
            self.goroutines.insert(number, goroutine);
        } else {
            goroutine.give_up(context);
        }
    }

    /// What the end of a call means for its attempt; whether the attempt is over.
    fn after(&mut self, id: u64, function: Function, time_ns: u64, context: &mut Context<'_>) -> bool {
        let Some(building) = self.attempts.get_mut(&id) else { return true };
        match function {
            Function::SchedulingCycle if building.stage == Stage::Scheduling => {
                building.stage = Stage::Scheduled;
                false
            }
            Function::BindingCycle => {
                // PostBind runs if and only if the Pod was bound.
                let bound = building.attempt.calls.iter().any(|call| call.function == Function::PostBind);
                if bound {
                    building.attempt.outcome = Outcome::Scheduled;
                    self.finish(id, time_ns, context);
                } else {
                    building.stage = Stage::NotBound;
                }
                bound
            }
            Function::HandleFailure => {
                self.finish(id, time_ns, context);
                true
            }
            _ => false,
        }
    }

    /// Closes the open calls at this depth and deeper ones: they never returned.
    fn unwind(&mut self, goroutine: &mut Goroutine, depth: u64, now_ns: u64, context: &mut Context<'_>) {
        while goroutine.open.last().is_some_and(|open| open.depth >= depth) {
            if let Some(open) = goroutine.open.pop() {
                self.close(goroutine, open, now_ns, None, context);
            }
        }
    }

    /// Closes the open calls of a Pod of a group: they never returned.
    fn unwind_of(&mut self, goroutine: &mut Goroutine, id: u64, now_ns: u64, context: &mut Context<'_>) {
        let (of_pod, others): (Vec<_>, _) =
            std::mem::take(&mut goroutine.open).into_iter().partition(|open| open.owner == Some(id));
        goroutine.open = others;
        for open in of_pod.into_iter().rev() {
            self.close(goroutine, open, now_ns, None, context);
        }
    }

    /// A call is over; `returned` is what was read when it returned, if it did.
    fn close(
        &mut self,
        goroutine: &mut Goroutine,
        open: Open,
        end_ns: u64,
        returned: Option<Values>,
        context: &mut Context<'_>,
    ) {
        let Open { function, start_ns, plugin, mut extender, api_call, owner, depth: _, turns, events } =
            open;
        let late = is_late(function);
        let owner = if late { owner } else { owner.or(goroutine.attempt) };
        let values = returned.as_ref();
        if let Some(extender) = &mut extender {
            extender.passed = values.and_then(|values| values.nodes);
        }
        let mut call = Call {
            function,
            start_ns,
            end_ns: end_ns.max(start_ns),
            plugin,
            code: values.and_then(|values| values.status_code).map(Code),
            extender,
            api_call,
            returned: returned.is_some(),
            events: events + u64::from(returned.is_some()),
            reason: returned.and_then(|values| values.status_reason).unwrap_or_default(),
        };
        let returned = call.returned;
        if late && !owner.is_some_and(|id| self.attempts.contains_key(&id) || self.late.waits(id)) {
            // Of nothing that is traced, or of an attempt that has not waited as long.
            context.account.unrelated += call.events;
            return;
        }
        if !returned {
            context.stats.unwound_calls += 1;
        }
        if let Some(id) = owner.filter(|id| self.late.waits(*id)) {
            return self.close_late(id, call, context);
        }
        let mut building = owner.and_then(|id| self.attempts.get_mut(&id));
        if let Some(building) = &mut building {
            building.seen(call.end_ns);
            building.attempt.incomplete |= !returned;
            building.outstanding -= u64::from(late && building.outstanding > 0);
            if !returned {
                call.plugin = call.plugin.or_else(|| self.orders.next(function, &turns, &building.attempt));
            }
            self.orders.learn(function, &turns, &building.attempt);
        }
        let mut attempt = building.map(|building| &mut building.attempt);
        let calls = attempt.as_mut().map_or(&mut goroutine.closed, |attempt| &mut attempt.calls);
        if calls.len() >= MAX_CALLS {
            context.no_room(call.events);
            return;
        }
        let events = call.events;
        calls.push(call);
        if let Some(attempt) = attempt {
            attempt.events += events;
        }
    }

    /// Remembers by which addresses an attempt will be known. Addresses are used again after a garbage collection:
    /// the newest owner is the right one.
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

    /// The end of an attempt was not seen.
    fn abandon(&mut self, id: u64, context: &mut Context<'_>) {
        self.abandon_members(id, |_| true, context);
        let Some(building) = self.attempts.get_mut(&id) else { return };
        if building.stage == Stage::Popped {
            context.stats.skipped += 1;
            context.account.skipped += building.attempt.events;
            if let Some(Building { part, last_ns, .. }) = self.forget(id) {
                self.left(&part, last_ns, false, context);
            }
            return;
        }
        building.attempt.incomplete = true;
        let last = building.last_ns;
        if building.stage != Stage::Failing {
            self.will_be_tried_again(id);
        }
        context.stats.incomplete_attempts += 1;
        self.finish(id, last, context);
    }

    /// The next attempt of this one's Pod is to be linked to this one.
    fn will_be_tried_again(&mut self, id: u64) {
        let Some(Building { attempt, .. }) = self.attempts.get(&id) else { return };
        let identity = attempt.identity();
        // Where the UID could not be read, nobody knows whose attempt it is.
        if identity.is_empty() {
            return;
        }
        let previous = Previous { start_ns: attempt.start_ns, group: attempt.group().cloned() };
        if self.pending.len() >= MAX_PENDING {
            // Most are of Pods that are gone.
            self.pending.clear();
        }
        self.pending.insert(identity, previous);
    }

    fn finish(&mut self, id: u64, end_ns: u64, context: &mut Context<'_>) {
        let numbers = self.attempts.get_mut(&id).map(|building| std::mem::take(&mut building.goroutines));
        for number in numbers.into_iter().flatten() {
            // Calls that are open elsewhere never return, or not to this attempt.
            let Some(mut goroutine) = self.goroutines.remove(&number) else { continue };
            if goroutine.attempt == Some(id) {
                self.unwind(&mut goroutine, 0, end_ns, context);
                goroutine.give_up(context);
            } else {
                self.unwind_of(&mut goroutine, id, end_ns, context);
                self.goroutines.insert(number, goroutine);
            }
        }
        if let Some(Building { mut attempt, last_ns, part, outstanding, .. }) = self.forget(id) {
            attempt.end_ns = end_ns.max(last_ns).max(attempt.start_ns);
            // No goroutine's clock goes back, but what a file says may.
            for call in &mut attempt.calls {
                call.start_ns = call.start_ns.max(attempt.start_ns);
                call.end_ns = call.end_ns.max(call.start_ns);
                attempt.end_ns = attempt.end_ns.max(call.end_ns);
            }
            if outstanding > 0 && self.late.has_room() {
                self.late.wait(id, attempt, part, outstanding);
            } else {
                self.hand_over(attempt, &part, context);
            }
        }
    }

    fn hand_over(&mut self, attempt: Attempt, part: &Part, context: &mut Context<'_>) {
        context.account.in_attempts += attempt.events;
        let (end_ns, bound) = (attempt.end_ns, attempt.outcome == Outcome::Scheduled);
        context.finished.push(attempt);
        // The group comes after its Pods.
        self.left(part, end_ns, bound, context);
    }

    fn forget(&mut self, id: u64) -> Option<Building> {
        let building = self.attempts.remove(&id)?;
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

impl Queued {
    /// An attempt that begins with its way through the queues, of nobody yet.
    fn attempt(self, target: u32, time_ns: u64) -> Attempt {
        let Self { active_ns, moves, left_out, events } = self;
        Attempt {
            target,
            start_ns: time_ns,
            end_ns: time_ns,
            enqueued_ns: active_ns,
            moves,
            moves_left_out: left_out,
            events,
            ..Attempt::default()
        }
    }

    /// The newest is always kept: it is why the Pod is where it is.
    fn push(&mut self, next: Move) {
        if self.moves.len() == MAX_MOVES {
            self.moves.remove(MAX_MOVES / 2);
            self.left_out += 1;
        }
        self.moves.push(next);
    }
}

/// Which queue a Pod enters, and why, by the labels of a metric of the queue; `None` for other metrics.
pub(crate) fn moved(values: &Values) -> Option<(&str, &str)> {
    let (queue, event) = (values.queue.as_deref()?, values.queue_event.as_deref()?);
    (values.labels == Some(2) && QUEUES.contains(&queue)).then_some((queue, event))
}

/// What an extender is asked, where one is.
fn extender(values: &mut Values) -> Option<Box<Extender>> {
    let Values { extender_url, extender_verb, ignorable, nodes, .. } = values;
    let (url, verb) = (extender_url.take()?, extender_verb.take().unwrap_or_default());
    let ignorable = ignorable.unwrap_or_default();
    Some(Box::new(Extender { url, verb, ignorable, nodes: *nodes, passed: None }))
}

/// Whether a plugin's function, or the request to an extender, may run on a goroutine of its own.
fn runs_beside(function: Function) -> bool {
    matches!(
        function,
        Function::NormalizeScorePlugin | Function::PreBindPlugin | Function::ExtenderPrioritize
    )
}

impl Goroutine {
    /// The attempt that it is on just now.
    fn on(&self) -> Option<u64> {
        self.open.last().and_then(|open| open.owner).or(self.attempt)
    }

    /// What nobody has claimed of it nobody will.
    fn give_up(&mut self, context: &mut Context<'_>) {
        let Self { closed, turns, .. } = self;
        context.stats.orphan_calls += (closed.len() + turns.len()) as u64;
        context.account.orphaned += closed.iter().map(|call| call.events).sum::<u64>() + turns.len() as u64;
        closed.clear();
        turns.clear();
    }

    /// When the first of its calls began that belong to no attempt yet.
    fn began(&self) -> Option<u64> {
        let closed = self.closed.iter().map(|call| call.start_ns);
        self.open.iter().map(|open| open.start_ns).chain(closed).min()
    }
}

impl Open {
    fn new(function: Function, start_ns: u64, depth: u64) -> Self {
        let (plugin, extender, api_call, owner) = (None, None, None, None);
        Self {
            function,
            start_ns,
            depth,
            plugin,
            extender,
            api_call,
            owner,
            turns: Turns::default(),
            events: 1,
        }
    }
}

impl Building {
    fn new(attempt: Attempt, goroutine: u64) -> Self {
        Self {
            last_ns: attempt.start_ns,
            attempt,
            stage: Stage::Popped,
            binding: false,
            states: Vec::new(),
            pods: Vec::new(),
            goroutines: vec![goroutine],
            outstanding: 0,
            part: Part::Alone,
        }
    }

    /// Events of different goroutines may come a little out of order.
    fn seen(&mut self, time_ns: u64) {
        self.last_ns = self.last_ns.max(time_ns);
    }

    fn enter(&mut self, function: Function, time_ns: u64, values: &Values) {
        self.seen(time_ns);
        if let Some(node) = &values.node_name {
            self.attempt.node = Some(node.clone());
        }
        self.tried(function, values.cycle_state);
        match function {
            Function::PodGroupMember if self.stage == Stage::Popped => {
                self.attempt.start_ns = time_ns;
                self.stage = Stage::Scheduling;
            }
            Function::SchedulingCycle => self.stage = Stage::Scheduling,
            Function::BindingCycle => {
                self.attempt.nodes = values.evaluated_nodes.zip(values.feasible_nodes);
            }
            Function::HandleFailure => {
                self.stage = Stage::Failing;
                self.attempt.outcome = Outcome::Failed {
                    code: values.status_code.map(Code),
                    reason: values.status_reason.clone().unwrap_or_default(),
                    plugin: values.status_plugin.clone().unwrap_or_default(),
                };
            }
            _ => {}
        }
    }
}
