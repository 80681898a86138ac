use std::{collections::HashMap, sync::Arc};

use super::{Attempt, Call, Code, Move, Outcome, Pod, Preemption};
use crate::{
    plan::{Function, Role},
    record::{Event, Values},
};

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
const MAX_CALLS: usize = 256;
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
    last_loss: u64,
}

/// What became of events that are in no complete attempt. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// Loss: groups of Pods.
    pub pod_groups: u64,
    /// Loss: entries of Pods into a queue whose Pod is not known.
    pub orphan_moves: u64,
    /// Loss: attempts, goroutines or queue entries for which there was no room.
    pub table_full: u64,
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
    /// When the last attempt of a Pod began, by UID, if the Pod was not bound.
    pending: HashMap<String, u64>,
}

/// A Pod in the queues.
#[derive(Debug, Default)]
struct Queued {
    /// When it entered the active queue.
    active_ns: Option<u64>,
    moves: Vec<Move>,
    left_out: u64,
}

#[derive(Debug, Default)]
struct Goroutine {
    attempt: Option<u64>,
    /// Whether it serves one plugin of an attempt, beside the goroutine that the attempt is on.
    worker: bool,
    open: Vec<Open>,
    /// Calls that ended before it was known whose they are.
    closed: Vec<Call>,
}

#[derive(Debug)]
struct Open {
    function: Function,
    start_ns: u64,
    depth: u64,
    plugin: Option<Arc<str>>,
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
        let process = self.processes.entry(event.target).or_default();
        let mut context = Context { finished: &mut self.finished, stats: &mut self.stats };
        match (event.function, event.role) {
            (Function::Enqueue | Function::EnqueueBackoff | Function::EnqueueUnschedulable, _) => {
                process.enqueue(&event, &mut context);
            }
            (Function::QueueMove, _) => process.queue_move(event, &mut context),
            (Function::Pop, _) => process.pop(event, &mut context),
            (Function::Preemption | Function::FailureMessage | Function::NodeHint, _) => {
                process.tell(event);
            }
            (Function::PodGroup, _) => process.pod_group(&event, &mut context),
            (_, Role::Entry) => process.enter(event, &mut context),
            (_, Role::ReturnSite | Role::NextEntry | Role::Ret) => process.leave(event, &mut context),
        }
    }

    /// The attempts that have ended since the last call.
    pub fn take_finished(&mut self) -> Vec<Attempt> {
        std::mem::take(&mut self.finished)
    }

    /// Gives up what has been silent for too long; `now_ns` is `CLOCK_MONOTONIC`.
    pub fn expire(&mut self, now_ns: u64) {
        for process in self.processes.values_mut() {
            let mut context = Context { finished: &mut self.finished, stats: &mut self.stats };
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
        let mut context = Context { finished: &mut self.finished, stats: &mut self.stats };
        for goroutine in process.goroutines.values() {
            context.stats.unwound_calls += goroutine.open.len() as u64;
            context.stats.orphan_calls += goroutine.closed.len() as u64;
        }
        let mut open: Vec<u64> = process.attempts.keys().copied().collect();
        open.sort_unstable();
        for id in open {
            process.abandon(id, &mut context);
        }
    }

    /// Records were lost: an end that comes now may belong to a beginning that did not, and the other way round. So
    /// everything that is open is given up.
    fn distrust(&mut self) {
        let targets: Vec<u32> = self.processes.keys().copied().collect();
        for target in targets {
            self.exit(target);
        }
    }

    /// What became of the rest.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }
}

/// Where a process's results go.
struct Context<'a> {
    finished: &'a mut Vec<Attempt>,
    stats: &'a mut Stats,
}

impl Process {
    fn enqueue(&mut self, event: &Event, context: &mut Context<'_>) {
        let Some(entry) = event.values.queued_pod_info else { return };
        if self.queued.len() >= MAX_ENQUEUED {
            context.stats.table_full += self.queued.len() as u64;
            self.queued.clear();
        }
        let queued = self.queued.entry(entry).or_default();
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
        let Some((queue, event)) = moved(&values) else { return };
        if event == POPPED_FROM_BACKOFF {
            self.popped_from_backoff.insert(goroutine, time_ns);
            return;
        }
        let Some(queued) = self.moving.get(&goroutine).and_then(|entry| self.queued.get_mut(entry)) else {
            context.stats.orphan_moves += 1;
            return;
        };
        queued.push(Move { time_ns, queue: queue.to_owned(), event: event.to_owned() });
    }

    /// What was popped is one of a group of Pods, which are tried together: that is not followed, and must not be taken for
    /// an attempt of the one.
    fn pod_group(&mut self, event: &Event, context: &mut Context<'_>) {
        context.stats.pod_groups += 1;
        if let Some(id) =
            self.goroutines.get_mut(&event.goroutine).and_then(|goroutine| goroutine.attempt.take())
        {
            self.forget(id);
        }
    }

    /// Something that the goroutine's attempt is told about itself.
    fn tell(&mut self, event: Event) {
        let Event { time_ns, goroutine, function, values, .. } = event;
        let attempt = self.goroutines.get(&goroutine).and_then(|goroutine| goroutine.attempt);
        let Some(building) = attempt.and_then(|id| self.attempts.get_mut(&id)) else { return };
        building.last_ns = time_ns;
        let attempt = &mut building.attempt;
        match (function, &mut attempt.outcome) {
            (Function::Preemption, _) => {
                let victims = values.victims.unwrap_or_default();
                let count = usize::try_from(victims).unwrap_or(usize::MAX);
                let names = values.victim_names.into_iter().take(count).flatten().collect();
                let node = values.preemption_node.unwrap_or_default();
                attempt.preemption = Some(Preemption { node, victims, names });
            }
            (Function::NodeHint, _) => attempt.batched = values.hint_length.is_some_and(|length| length > 0),
            (Function::FailureMessage, Outcome::Failed { reason, .. }) => {
                // Without a condition only a nominated Node is written.
                if let Some(message) = values.message.filter(|message| !message.is_empty()) {
                    *reason = message;
                }
            }
            _ => {}
        }
    }

    fn pop(&mut self, event: Event, context: &mut Context<'_>) {
        let Event { target, time_ns, goroutine, values, .. } = event;
        self.leave_attempt(goroutine, time_ns, context);
        let Values { queued_pod_info: Some(entry @ 1..), pod, attempts, queue_timestamp, .. } = values else {
            // The queue is closed.
            return;
        };
        if self.attempts.len() >= MAX_ATTEMPTS || self.goroutines.len() >= MAX_GOROUTINES {
            context.stats.table_full += 1;
            return;
        }
        let id = self.next_id;
        self.next_id += 1;
        let mut queued = self.queued.remove(&entry).unwrap_or_default();
        if let Some(time_ns) = self.popped_from_backoff.remove(&goroutine) {
            queued.push(Move { time_ns, queue: "active".to_owned(), event: POPPED_FROM_BACKOFF.to_owned() });
        }
        let uid = values.pod_uid.unwrap_or_default();
        let attempt = Attempt {
            target,
            pod: Pod {
                uid: uid.clone(),
                name: values.pod_name.unwrap_or_default(),
                namespace: values.pod_namespace.unwrap_or_default(),
                profile: values.profile.unwrap_or_default(),
            },
            number: attempts,
            start_ns: time_ns,
            end_ns: time_ns,
            previous_ns: self.pending.remove(&uid),
            enqueued_ns: queued.active_ns,
            moves: queued.moves,
            moves_left_out: queued.left_out,
            first_attempt: values.first_attempt,
            queue_timestamp,
            ..Attempt::default()
        };
        let building = Building {
            attempt,
            stage: Stage::Popped,
            last_ns: time_ns,
            binding: false,
            states: Vec::new(),
            pods: Vec::new(),
        };
        self.attempts.insert(id, building);
        self.learn(id, None, pod);
        self.goroutines.entry(goroutine).or_default().attempt = Some(id);
    }

    /// The scheduling loop turns to the next Pod: what became of the one before?
    fn leave_attempt(&mut self, goroutine: u64, now_ns: u64, context: &mut Context<'_>) {
        let Some(mut previous) = self.goroutines.remove(&goroutine) else { return };
        self.unwind(&mut previous, 0, now_ns, context);
        context.stats.orphan_calls += previous.closed.len() as u64;
        let Some(id) = previous.attempt else { return };
        let elsewhere = |building: &Building| building.binding || building.stage == Stage::Scheduled;
        if !self.attempts.get(&id).is_none_or(elsewhere) {
            self.abandon(id, context);
        }
    }

    fn enter(&mut self, event: Event, context: &mut Context<'_>) {
        let Event { time_ns, goroutine: number, depth, function, values, .. } = event;
        if !self.goroutines.contains_key(&number) && self.goroutines.len() >= MAX_GOROUTINES {
            context.stats.table_full += 1;
            return;
        }
        let mut goroutine = self.goroutines.remove(&number).unwrap_or_default();
        // A call at this depth or above it says that deeper ones are over.
        self.unwind(&mut goroutine, depth, time_ns, context);
        if goroutine.attempt.is_none() {
            let state = values.cycle_state.and_then(|state| self.by_state.get(&state));
            let found = state.or_else(|| values.pod.and_then(|pod| self.by_pod.get(&pod))).copied();
            goroutine.worker = runs_beside(function);
            if let Some(building) = found.and_then(|id| self.attempts.get_mut(&id)) {
                building.binding |= !goroutine.worker;
                building.attempt.calls.append(&mut goroutine.closed);
            }
            goroutine.attempt = found;
        }
        if let Some(id) = goroutine.attempt {
            self.learn(id, values.cycle_state, values.pod);
            if let Some(building) = self.attempts.get_mut(&id) {
                building.enter(function, time_ns, &values);
                if values.statuses.is_some() {
                    building.attempt.statuses = values.statuses;
                }
            }
        }
        if goroutine.open.len() < MAX_OPEN {
            goroutine.open.push(Open { function, start_ns: time_ns, depth, plugin: values.plugin });
        } else {
            context.stats.table_full += 1;
        }
        self.goroutines.insert(number, goroutine);
    }

    fn leave(&mut self, event: Event, context: &mut Context<'_>) {
        let Event { time_ns, goroutine: number, depth, function, role, values, .. } = event;
        let Some(mut goroutine) = self.goroutines.remove(&number) else {
            context.stats.stray_ends += 1;
            return;
        };
        let same_call =
            |open: &Open| open.function == function && (open.depth == depth || role == Role::NextEntry);
        let Some(position) = goroutine.open.iter().rposition(same_call) else {
            context.stats.stray_ends += 1;
            self.goroutines.insert(number, goroutine);
            return;
        };
        let inner = goroutine.open.split_off(position + 1);
        for open in inner.into_iter().rev() {
            self.close(&mut goroutine, open, time_ns, None, context);
        }
        let mut values = values;
        if let Some(building) = goroutine.attempt.and_then(|id| self.attempts.get_mut(&id)) {
            let attempt = &mut building.attempt;
            // No restriction and a restriction to no Node read the same; the latter is a rejection.
            attempt.restricted_to = values.restricted_to.filter(|count| *count > 0).or(attempt.restricted_to);
            attempt.scores = values.scores.take().or(attempt.scores.take());
        }
        if let Some(open) = goroutine.open.pop() {
            self.close(&mut goroutine, open, time_ns, Some(values), context);
        }
        let ended = goroutine.attempt.is_some_and(|id| self.after(id, function, time_ns, context));
        if ended {
            goroutine.attempt = None;
        }
        // The scheduling loop has an attempt again after the next Pop; a binding goroutine is over.
        let over = goroutine.worker && goroutine.open.is_empty();
        if !over && (goroutine.attempt.is_some() || !goroutine.open.is_empty()) {
            self.goroutines.insert(number, goroutine);
        } else if !ended {
            context.stats.orphan_calls += goroutine.closed.len() as u64;
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

    /// A call is over; `returned` is what was read when it returned, if it did.
    fn close(
        &mut self,
        goroutine: &mut Goroutine,
        open: Open,
        end_ns: u64,
        returned: Option<Values>,
        context: &mut Context<'_>,
    ) {
        let Open { function, start_ns, plugin, .. } = open;
        let values = returned.as_ref();
        let call = Call {
            function,
            start_ns,
            end_ns,
            plugin,
            code: values.and_then(|values| values.status_code).map(Code),
            returned: returned.is_some(),
            reason: returned.and_then(|values| values.status_reason).unwrap_or_default(),
        };
        let returned = call.returned;
        if !returned {
            context.stats.unwound_calls += 1;
        }
        let building = goroutine.attempt.and_then(|id| self.attempts.get_mut(&id));
        let calls = match building {
            Some(building) => {
                building.last_ns = end_ns;
                building.attempt.incomplete |= !returned;
                &mut building.attempt.calls
            }
            None => &mut goroutine.closed,
        };
        if calls.len() < MAX_CALLS {
            calls.push(call);
        } else {
            context.stats.table_full += 1;
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
        let Some(building) = self.attempts.get_mut(&id) else { return };
        if building.stage == Stage::Popped {
            self.forget(id);
            context.stats.skipped += 1;
            return;
        }
        building.attempt.incomplete = true;
        let last = building.last_ns;
        context.stats.incomplete_attempts += 1;
        self.finish(id, last, context);
    }

    fn finish(&mut self, id: u64, end_ns: u64, context: &mut Context<'_>) {
        if let Some(Building { mut attempt, .. }) = self.forget(id) {
            attempt.end_ns = end_ns;
            if attempt.outcome != Outcome::Scheduled {
                if self.pending.len() >= MAX_PENDING {
                    // Most are of Pods that are gone.
                    self.pending.clear();
                }
                self.pending.insert(attempt.pod.uid.clone(), attempt.start_ns);
            }
            context.finished.push(attempt);
        }
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

/// Whether a plugin's function may run on a goroutine of its own.
fn runs_beside(function: Function) -> bool {
    matches!(function, Function::NormalizeScorePlugin | Function::PreBindPlugin)
}

impl Building {
    fn enter(&mut self, function: Function, time_ns: u64, values: &Values) {
        self.last_ns = time_ns;
        if let Some(node) = &values.node_name {
            self.attempt.node = Some(node.clone());
        }
        match function {
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
