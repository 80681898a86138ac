//! What happened in which order, and which part of it the records show.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    mem,
};

use gotrace::Role;

use super::{
    super::LOOP,
    script::{Choices, Key, Lane, Script, Step, Troubles},
};
use crate::{
    Event, Values,
    attempt::{Code, Outcome},
    table::Function,
    values::Value,
};

/// A call: its attempt, function, depth and start; and the end of its last plugin.
type Began = (Key, Function, u64, u64, u64);

/// Goroutines that can run, and what they have done so far.
pub(super) struct Schedule {
    lanes: Vec<Lane>,
    /// The events in order, each with its attempt and with the event before which it could have happened.
    pub(super) order: Vec<(Key, u64, Event)>,
    /// Unused addresses of processes; the last one is used next.
    free: HashMap<u32, Vec<u64>>,
    owned: HashMap<Key, u64>,
    /// Number of events that an attempt still gets.
    left: HashMap<Key, usize>,
    ended: HashSet<(u32, u64)>,
    /// Starts of calls that report them at their ends.
    silent: HashSet<u64>,
}

impl Schedule {
    pub(super) fn of(
        processes: u32,
        pods: u64,
        choices: &mut Choices<'_>,
        order: &mut Choices<'_>,
        troubles: Troubles,
    ) -> Self {
        let mut schedule = Self {
            lanes: Vec::new(),
            order: Vec::new(),
            free: HashMap::new(),
            owned: HashMap::new(),
            left: HashMap::new(),
            ended: HashSet::new(),
            silent: HashSet::new(),
        };
        for process in 0..processes {
            let mut next_goroutine = 100;
            // With losses it would be unknown which groups began with a `Pop`.
            let pop_returns = !troubles.losses && choices.one_in(2);
            let mut script = Script {
                popped: if pop_returns { Role::ReturnSite } else { Role::Entry },
                choices: &mut *choices,
                troubles,
                process,
                key: (process, 0, 1),
                next_goroutine: &mut next_goroutine,
                goroutine: LOOP,
                steps: VecDeque::new(),
                queued: None,
            };
            let mut again = VecDeque::new();
            let mut pod = 0;
            // Retries come between new Pods; a Pod may be popped again before its failure has been handled.
            while pod < pods || !again.is_empty() {
                if pod < pods && script.choices.one_in(4) {
                    let size = 1 + script.choices.below(3) as u64;
                    let members: Vec<Key> = (1..=size).map(|number| (process, pod + number, 1)).collect();
                    pod += size;
                    script.group(&members);
                    continue;
                }
                let (key, queued) = match again.pop_front() {
                    Some((key, queued)) if pod >= pods || script.choices.one_in(2) => (key, Some(queued)),
                    waits => {
                        again.extend(waits);
                        pod += 1;
                        ((process, pod, 1), None)
                    }
                };
                script.key = key;
                script.attempt(queued);
                let (_, of, number) = key;
                let queued = script.queued.take().filter(|_| number < 4);
                again.extend(queued.map(|queued| ((process, of, number + 1), queued)));
            }
            if script.choices.one_in(2) {
                // The queue is closed.
                script.key = (process, 0, 0);
                script.hit(Function::Pop, script.popped, 50, Values::default());
            }
            let lane = Lane::new(process, LOOP, script.steps);
            schedule.expect(&lane.steps);
            schedule.lanes.push(lane);
        }
        while schedule.step(order) {}
        assert!(schedule.lanes.is_empty(), "every call ends");
        schedule
    }

    fn expect(&mut self, steps: &VecDeque<Step>) {
        for step in steps {
            match step {
                Step::Hit(key, _) | Step::Begin(key, _) => *self.left.entry(*key).or_default() += 1,
                Step::Go(lane) => self.expect(&lane.steps),
                Step::Join(_) => {}
            }
        }
    }

    /// One goroutine that can run makes one step; `false` when all have ended.
    fn step(&mut self, choices: &mut Choices<'_>) -> bool {
        let now = self.order.len() as u64;
        // Steps that take no time.
        let mut index = 0;
        while index < self.lanes.len() {
            let process = self.lanes[index].process;
            match self.lanes[index].steps.front() {
                None => {
                    let Lane { process, goroutine, .. } = self.lanes.remove(index);
                    self.ended.insert((process, goroutine));
                    index = 0;
                    continue;
                }
                Some(Step::Join(goroutine)) if self.ended.contains(&(process, *goroutine)) => {
                    self.lanes[index].steps.pop_front();
                    self.lanes[index].ready = now;
                    index = 0;
                    continue;
                }
                Some(Step::Go(_)) => {
                    if let Some(Step::Go(lane)) = self.lanes[index].steps.pop_front() {
                        self.lanes.push(Lane { ready: now, ..lane });
                    }
                    continue;
                }
                Some(Step::Join(_) | Step::Hit(..) | Step::Begin(..)) => index += 1,
            }
        }
        let able: Vec<usize> = (0..self.lanes.len())
            .filter(|index| matches!(self.lanes[*index].steps.front(), Some(Step::Hit(..) | Step::Begin(..))))
            .collect();
        let Some(index) = (!able.is_empty()).then(|| able[choices.below(able.len())]) else { return false };
        let lane = &mut self.lanes[index];
        let step = lane.steps.pop_front();
        let tells_nothing = matches!(step, Some(Step::Begin(..)));
        let Some(Step::Hit(key, mut event) | Step::Begin(key, mut event)) = step else { return true };
        let ready = mem::replace(&mut lane.ready, now + 1);
        if tells_nothing {
            lane.began.push(now);
            self.silent.insert(now);
        } else if event.role == Role::Metric {
            event.values.set(Value::StartedNs, lane.began.pop());
        }
        self.place(key, &mut event.values);
        event.time_ns = now;
        self.order.push((key, ready, event));
        true
    }

    /// Gives the attempt's addresses to an event. They are free as soon as the attempt has nothing more to do.
    fn place(&mut self, key: Key, values: &mut Values) {
        let free = self.free.entry(key.0).or_insert_with(|| (0..64).rev().collect());
        if values.number(Value::Pod).is_some() || values.number(Value::CycleState).is_some() {
            let base = *self.owned.entry(key).or_insert_with(|| free.pop().expect("fewer are used at once"));
            for value in [Value::Pod, Value::CycleState] {
                let address = values.number(value).map(|address| address + 0x10_000 + 0x10 * base);
                values.set(value, address);
            }
        }
        let left = self.left.get_mut(&key).expect("it was expected");
        *left -= 1;
        if *left == 0 {
            free.extend(self.owned.remove(&key));
        }
    }

    /// The real calls of each attempt, as (function, start, end).
    pub(super) fn truth(&self) -> HashMap<Key, Vec<(Function, u64, Option<u64>)>> {
        let mut calls: HashMap<Key, Vec<(Function, u64, Option<u64>)>> = HashMap::new();
        let mut open: HashMap<(u32, u64), Vec<Began>> = HashMap::new();
        for (key, _, event) in &self.order {
            let Event { target, goroutine, function, role, time_ns, depth, .. } = event;
            if not_a_call(*function) {
                continue;
            }
            let open = open.entry((*target, *goroutine)).or_default();
            if *role == Role::InTurn {
                // Deeper calls have panicked.
                let outer = open.iter().rposition(|(.., at, _, _)| at < depth).expect("a phase is around it");
                open.truncate(outer + 1);
                let start = mem::replace(&mut open[outer].4, *time_ns);
                calls.entry(*key).or_default().push((*function, start, Some(*time_ns)));
                continue;
            }
            if *role == Role::Entry {
                open.push((*key, *function, *depth, *time_ns, *time_ns));
                calls.entry(*key).or_default().push((*function, *time_ns, None));
                continue;
            }
            // The innermost of this function and depth: those that panicked are deeper, or were called before.
            let same = |(of, called, at, ..): &Began| {
                of == key
                    && called == function
                    && (at == depth || [Role::NextEntry, Role::Metric].contains(role))
            };
            let index = open.iter().rposition(same).expect("what ends has begun");
            let (.., start, _) = open[index];
            open.truncate(index);
            let call = calls.get_mut(key).and_then(|calls| {
                calls.iter_mut().find(|(called, began, _)| (called, *began) == (function, start))
            });
            let returned = event.values.flag(Value::Panics) != Some(true);
            call.expect("it was called").2 = returned.then_some(*time_ns);
        }
        calls
    }

    /// The outcome of each attempt whose goroutines run to their ends.
    pub(super) fn outcomes(&self) -> HashMap<Key, Outcome> {
        let mut outcomes = HashMap::new();
        for (key, _, event) in &self.order {
            match (event.function, event.role) {
                (Function::HandleFailure, Role::Entry) => {
                    let code = event.values.signed(Value::StatusCode).map(Code);
                    let (reason, plugin) = (String::new(), String::new());
                    outcomes.insert(*key, Outcome::Failed { code, reason, plugin });
                }
                (Function::FailureMessage, _) => {
                    if let Some(Outcome::Failed { reason, .. }) = outcomes.get_mut(key) {
                        *reason = event.values.text(Value::Message).expect("the script wrote it").to_owned();
                    }
                }
                (Function::PostBind | Function::PodGroupCondition, _) => {
                    outcomes.insert(*key, Outcome::Scheduled);
                }
                _ => {}
            }
        }
        outcomes
    }

    /// The order of the ring buffer: events that could have happened in either order may be swapped.
    pub(super) fn delivered(&self, choices: &mut Choices<'_>, troubles: Troubles) -> Vec<Event> {
        let reported = |(_, _, event): &&(Key, u64, Event)| !self.silent.contains(&event.time_ns);
        let mut order: Vec<&(Key, u64, Event)> = self.order.iter().filter(reported).collect();
        let mut index = 1;
        while index < order.len() {
            let (_, ready, event) = order[index];
            if *ready < order[index - 1].2.time_ns + 1
                && event.goroutine != order[index - 1].2.goroutine
                && choices.one_in(4)
            {
                order.swap(index - 1, index);
                index += 1;
            }
            index += 1;
        }
        let mut losses: HashMap<u32, u64> = HashMap::new();
        let mut delivered = Vec::new();
        for (_, _, event) in order {
            if troubles.losses && choices.one_in(16) {
                *losses.entry(event.target).or_default() += 1;
            } else {
                let last_loss = losses.get(&event.target).copied().unwrap_or_default();
                delivered.push(Event { last_loss, ..event.clone() });
            }
        }
        delivered
    }
}

pub(super) fn not_a_call(function: Function) -> bool {
    is_move(function)
        || matches!(
            function,
            Function::Pop
                | Function::PreEnqueue
                | Function::Sign
                | Function::Preemption
                | Function::ApiCallAdd
                | Function::Prioritize
                | Function::FailureMessage
                | Function::PodGroup
                | Function::Placement
                | Function::PodGroupCondition
        )
}

pub(super) fn is_move(function: Function) -> bool {
    matches!(
        function,
        Function::Enqueue | Function::EnqueueBackoff | Function::EnqueueUnschedulable | Function::QueueMove
    )
}

/// Moves of Pods that were not popped afterwards.
pub(super) fn waiting(schedule: &Schedule) -> u64 {
    let mut waiting: HashMap<(u32, u64), u64> = HashMap::new();
    let mut moving: HashMap<(u32, u64), u64> = HashMap::new();
    let reported = |(_, _, event): &&(Key, u64, Event)| !schedule.silent.contains(&event.time_ns);
    for ((process, pod, _), _, event) in schedule.order.iter().filter(reported) {
        let entry = event.values.number(Value::QueuedPodInfo);
        match event.function {
            Function::Pop | Function::PodGroup | Function::PodGroupMember | Function::HandleFailure => {
                entry.map(|entry| waiting.remove(&(*process, entry)));
            }
            Function::PreEnqueue | Function::Sign => {
                *waiting.entry((*process, 0x2000 + pod)).or_default() += 1;
            }
            Function::QueueMove => {
                let queue = event.values.text(Value::Queue);
                let from_backoff = event.values.text(Value::QueueEvent) == Some("PopFromBackoffQ");
                if queue != Some("NodeResourcesFit") && !from_backoff {
                    let entry = moving[&(*process, event.goroutine)];
                    *waiting.entry((*process, entry)).or_default() += 1;
                }
            }
            _ if is_move(event.function) => {
                let entry = entry.expect("the script wrote it");
                moving.insert((*process, event.goroutine), entry);
                *waiting.entry((*process, entry)).or_default() += 1;
            }
            _ => {}
        }
    }
    waiting.values().sum()
}
