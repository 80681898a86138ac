//! Schedules that could have happened, out of bytes: whatever the interleaving, the loss or the panic, what is told of
//! an attempt is true, and no event is left unaccounted for.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    mem,
    sync::Arc,
};

use proptest::{collection::vec, prelude::*};

use gotrace::{
    Role,
    assemble::{Account, Assemble as _, Stats},
};
use spans::{Anchor, Gatherer, Origin, Trace};

use super::{Assembler, Attempt, Subject};
use crate::{Event, Values, spans::build, table::Function, values::Value};

const LOOP: u64 = 1;
const ANCHOR: Anchor = Anchor { unix_ns_at_zero: 1_000 };
/// Stand for the addresses of the attempt, which it gets when its Pod is popped.
const STATE: Option<u64> = Some(1);
const POD: Option<u64> = Some(2);
const ASSUMED: Option<u64> = Some(3);
/// That of a Pod of a group when it is tried on the second placement.
const SECOND_STATE: Option<u64> = Some(4);
/// Numbers of groups begin here, those of Pods end before.
const GROUPS: u64 = 1_000;

/// Decisions, over and over.
struct Choices<'a>(std::iter::Cycle<std::slice::Iter<'a, u8>>);

impl<'a> Choices<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter().cycle())
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.next().map_or(0, |byte| usize::from(*byte) % bound)
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == bound - 1
    }
}

/// What may go wrong.
#[derive(Clone, Copy, Default)]
struct Troubles {
    panics: bool,
    losses: bool,
}

/// Process, Pod, and number of the attempt.
type Key = (u32, u64, u64);
/// A call: of which attempt and function, how deep, and when it began; and when the last of its plugins ended.
type Began = (Key, Function, u64, u64, u64);

enum Step {
    Hit(Key, Event),
    /// A call begins, and tells of it when it is over.
    Begin(Key, Event),
    /// Another goroutine begins.
    Go(Lane),
    /// The goroutine waits for the end of another one.
    Join(u64),
}

/// What a goroutine does.
struct Lane {
    process: u32,
    goroutine: u64,
    steps: VecDeque<Step>,
    /// Number of the event before which its next one could have happened.
    ready: u64,
    /// When its calls began that tell of themselves at their ends.
    began: Vec<u64>,
}

impl Lane {
    fn new(process: u32, goroutine: u64, steps: VecDeque<Step>) -> Self {
        Self { process, goroutine, steps, ready: 0, began: Vec::new() }
    }
}

/// A call that does not end.
struct Panicked;

/// Writes down what the goroutines of a process do.
struct Script<'a, 'b> {
    choices: &'a mut Choices<'b>,
    troubles: Troubles,
    process: u32,
    key: Key,
    next_goroutine: &'a mut u64,
    goroutine: u64,
    steps: VecDeque<Step>,
    /// Ends when the Pod is back in a queue.
    queued: Option<u64>,
}

impl Script<'_, '_> {
    fn hit(&mut self, function: Function, role: Role, depth: u64, values: Values) {
        let event = self.event(function, role, depth, values);
        self.steps.push_back(Step::Hit(self.key, event));
    }

    fn event(&self, function: Function, role: Role, depth: u64, values: Values) -> Event {
        let (target, goroutine) = (self.process, self.goroutine);
        Event { target, time_ns: 0, took_ns: 0, goroutine, depth, function, role, last_loss: 0, values }
    }

    /// A phase, which tells of its beginning and its end, or of both at its end: also of one that a panic is.
    fn phase(
        &mut self,
        function: Function,
        depth: u64,
        entry: Values,
        end: Values,
        inside: impl FnOnce(&mut Self) -> Result<(), Panicked>,
    ) -> Result<(), Panicked> {
        if self.choices.one_in(2) {
            return self.call(function, depth, entry, end, inside);
        }
        let begin = self.event(function, Role::Entry, depth, Values::default());
        self.steps.push_back(Step::Begin(self.key, begin));
        let result = inside(self);
        let result = if self.troubles.panics && self.choices.one_in(24) { Err(Panicked) } else { result };
        // It is a closure that is called, by the phase or by what goes on after a panic.
        let depth = depth + if result.is_ok() { 40 } else { 400 };
        self.hit(function, Role::Metric, depth, end.with(Value::Panics, result.is_err()));
        result.or_else(|panicked| if self.choices.one_in(2) { Ok(()) } else { Err(panicked) })
    }

    fn call(
        &mut self,
        function: Function,
        depth: u64,
        entry: Values,
        end: Values,
        inside: impl FnOnce(&mut Self) -> Result<(), Panicked>,
    ) -> Result<(), Panicked> {
        self.hit(function, Role::Entry, depth, entry);
        let result = inside(self);
        if result.is_ok() && !(self.troubles.panics && self.choices.one_in(24)) {
            // `Filter` ends where the next function begins, which may be at any depth.
            let (role, depth) =
                if function == Function::Filter { (Role::NextEntry, 7) } else { (Role::ReturnSite, depth) };
            self.hit(function, role, depth, end);
            return Ok(());
        }
        // Who called it may recover, or who called that one.
        if self.choices.one_in(2) { Ok(()) } else { Err(Panicked) }
    }

    /// Plugins, one after the other. Either each tells of its beginning and its end, or of both at its end.
    fn plugins(&mut self, function: Function, depth: u64, pod: Option<u64>) -> Result<(), Panicked> {
        let in_turn = function != Function::PreBindPlugin && self.choices.one_in(2);
        for plugin in ["P", "Q"].into_iter().take(self.choices.below(3)) {
            let plugin = Some(Arc::<str>::from(plugin));
            if !in_turn {
                let entry = Values::default()
                    .with(Value::CycleState, STATE)
                    .with(Value::Pod, pod)
                    .with(Value::Plugin, plugin);
                self.call(function, depth, entry, status(0), |_| Ok(()))?;
            } else if !(self.troubles.panics && self.choices.one_in(24)) {
                self.hit(function, Role::InTurn, depth, status(0).with(Value::Plugin, plugin));
            } else if self.choices.one_in(2) {
                return Err(Panicked);
            }
        }
        Ok(())
    }

    /// Plugins on goroutines of their own, which are waited for.
    fn beside(&mut self, function: Function, state: Option<u64>, pod: Option<u64>) {
        let mut goroutines = Vec::new();
        for _ in 0..self.choices.below(3) {
            let goroutine = self.go(|script| {
                let entry = Values::default()
                    .with(Value::CycleState, state)
                    .with(Value::Pod, pod)
                    .with(Value::Plugin, Arc::<str>::from("P"));
                let _cut = script.call(function, 20, entry, status(0), |_| Ok(()));
            });
            goroutines.push(goroutine);
        }
        self.steps.extend(goroutines.into_iter().map(Step::Join));
    }

    /// The API server is asked by another goroutine, unless nobody wants to; it may be waited for.
    fn api_call(&mut self, function: Function, waits: bool) {
        // Also where no goroutine comes to have that number.
        *self.next_goroutine += 1;
        let entry = Values::default().with(Value::ApiCall, 0x90_0000 + *self.next_goroutine);
        self.hit(Function::ApiCallAdd, Role::Entry, 350, entry.clone());
        let wanted = !self.choices.one_in(4);
        let goroutine = wanted.then(|| {
            self.go(|script| {
                let _cut = script.call(function, 20, entry, status(0), |_| Ok(()));
            })
        });
        self.hit(Function::ApiCallAdd, Role::Ret, 350, status(i64::from(!wanted)));
        self.steps.extend(goroutine.filter(|_| waits).map(Step::Join));
    }

    /// Extenders are asked for scores, on goroutines of their own, which are waited for.
    fn ask_beside(&mut self) {
        let goroutines: Vec<u64> = (0..self.choices.below(3))
            .map(|_| {
                self.go(|script| {
                    let url = Some("http://e".to_owned());
                    let entry = Values::default().with(Value::ExtenderUrl, url).with(Value::Pod, POD);
                    let _cut = script.call(Function::ExtenderPrioritize, 20, entry, status(0), |_| Ok(()));
                })
            })
            .collect();
        self.steps.extend(goroutines.into_iter().map(Step::Join));
    }

    /// Extenders are asked, on this goroutine.
    fn extenders(&mut self, function: Function, depth: u64) -> Result<(), Panicked> {
        for _ in 0..self.choices.below(2) {
            let entry = Values::default().with(Value::ExtenderUrl, "http://e".to_owned());
            self.call(function, depth, entry, status(0), |_| Ok(()))?;
        }
        Ok(())
    }

    fn go(&mut self, does: impl FnOnce(&mut Self)) -> u64 {
        *self.next_goroutine += 1;
        let goroutine = *self.next_goroutine;
        let outer = (mem::replace(&mut self.goroutine, goroutine), mem::take(&mut self.steps));
        does(self);
        let steps = mem::replace(&mut self.steps, outer.1);
        self.goroutine = outer.0;
        self.steps.push_back(Step::Go(Lane::new(self.process, goroutine, steps)));
        goroutine
    }

    /// The Pod enters a queue.
    fn enqueue(&mut self, function: Function, queue: &str) {
        let entry = Values::default().with(Value::QueuedPodInfo, 0x2000 + self.key.1);
        self.hit(function, Role::Entry, 10, entry);
        self.count(queue, "Reason");
    }

    fn count(&mut self, queue: &str, event: &str) {
        let values = Values::default()
            .with(Value::Queue, queue.to_owned())
            .with(Value::QueueEvent, event.to_owned())
            .with(Value::Labels, 2);
        self.hit(Function::QueueMove, Role::Entry, 10, values);
    }

    fn fail(&mut self, depth: u64, code: i64, again: bool) -> Result<(), Panicked> {
        self.call(Function::HandleFailure, depth, status(code), Values::default(), |script| {
            let message = Values::default().with(Value::Message, "why".to_owned());
            script.hit(Function::FailureMessage, Role::Entry, 300, message);
            if script.choices.one_in(2) {
                script.api_call(Function::PodStatusPatchCall, false);
            }
            if again {
                script.enqueue(Function::EnqueueUnschedulable, "unschedulable");
                script.queued = Some(script.go(|_| ()));
            }
            Ok(())
        })
    }

    /// An attempt, of a Pod that is back in a queue when `queued` has ended.
    fn attempt(&mut self, queued: Option<u64>) {
        let (.., number) = self.key;
        self.steps.extend(queued.map(Step::Join));
        if number == 1 || self.choices.one_in(2) {
            // An informer or a timer brings it to the active queue; the loop waits for that.
            let informer = self.go(|script| {
                if script.choices.one_in(4) {
                    script.enqueue(Function::EnqueueBackoff, "backoff");
                }
                script.enqueue(Function::Enqueue, "active");
                if script.choices.one_in(4) {
                    script.count("NodeResourcesFit", "of another metric");
                }
            });
            self.steps.push_back(Step::Join(informer));
        } else {
            self.count("active", "PopFromBackoffQ");
        }
        let popped = self.member(self.key);
        self.hit(Function::Pop, Role::ReturnSite, 50, popped);
        let fate = self.choices.below(8);
        if fate == 7 {
            return;
        }
        let (fits, bound) = (fate < 5, fate < 4);
        let again = !bound && self.choices.one_in(2);
        // After a panic that nobody here recovers from, the loop begins anew.
        if self.scheduling_cycle(fits).is_err() {
            return;
        }
        let rest = |script: &mut Self| {
            let _panicked =
                if fits { script.binding(STATE, bound, again) } else { script.fail(100, 2, again) };
        };
        if fits {
            self.go(rest);
        } else {
            rest(self);
        }
    }

    fn of<T>(&mut self, key: Key, does: impl FnOnce(&mut Self) -> T) -> T {
        let outer = mem::replace(&mut self.key, key);
        let result = does(self);
        self.key = outer;
        result
    }

    fn member(&self, (_, pod, number): Key) -> Values {
        Values::default()
            .with(Value::QueuedPodInfo, 0x2000 + pod)
            .with(Value::Pod, POD)
            .with(Value::PodUid, format!("uid-{pod}"))
            .with(Value::Attempts, number)
    }

    /// A group of Pods that are tried together. Up to 1.36 the first of them is popped, later the group is.
    fn group(&mut self, members: &[Key], pod_is_popped: bool) {
        let (process, first, _) = members[0];
        let whole = (process, GROUPS + first, 0);
        for key in members.iter().filter(|_| pod_is_popped).copied() {
            self.of(key, |script| {
                let informer = script.go(|script| script.enqueue(Function::Enqueue, "active"));
                script.steps.push_back(Step::Join(informer));
            });
        }
        if pod_is_popped {
            let popped = self.member(members[0]);
            self.of(members[0], |script| script.hit(Function::Pop, Role::ReturnSite, 50, popped));
        }
        self.of(whole, |script| {
            if !pod_is_popped {
                let informer = script.go(|script| script.enqueue(Function::Enqueue, "active"));
                script.steps.push_back(Step::Join(informer));
            }
            let group = Values::default()
                .with(Value::QueuedPodInfo, 0x2000 + GROUPS + first)
                .with(Value::GroupName, format!("uid-{}", whole.1))
                .with(Value::GroupSize, members.len() as u64);
            script.hit(Function::PodGroup, Role::Entry, 60, group);
            let Ok(tried) = script.placements(members) else { return };
            for key in members.iter().copied() {
                let state = tried.iter().rev().find(|(tried, _)| *tried == key).map(|(_, state)| *state);
                let Some(state) = state.filter(|_| !script.choices.one_in(3)) else {
                    let failure = script.member(key).with(Value::StatusCode, 2);
                    let failed = script.of(key, |script| {
                        script.call(Function::HandleFailure, 100, failure, Values::default(), |_| Ok(()))
                    });
                    if failed.is_err() {
                        return;
                    }
                    continue;
                };
                let known = Values::default().with(Value::CycleState, state).with(Value::Pod, ASSUMED);
                let reserved = script.of(key, |script| {
                    script.call(Function::Reserve, 100, known, status(0), |script| {
                        script.plugins(Function::ReservePlugin, 250, ASSUMED)
                    })
                });
                if reserved.is_err() {
                    return;
                }
                script.of(key, |script| {
                    script.go(|script| {
                        let bound = !script.choices.one_in(3);
                        let _panicked = script.binding(state, bound, false);
                    })
                });
            }
            let condition = Values::default().with(Value::ConditionReason, "Scheduled".to_owned());
            script.hit(Function::PodGroupCondition, Role::Entry, 300, condition);
            script.hit(Function::PodGroup, Role::ReturnSite, 60, Values::default());
        });
    }

    /// Which Pods were tried to their ends, and with which state.
    fn placements(&mut self, members: &[Key]) -> Result<Vec<(Key, Option<u64>)>, Panicked> {
        let mut all = Vec::new();
        for state in [STATE, SECOND_STATE].into_iter().take(1 + self.choices.below(2)) {
            if self.choices.one_in(2) {
                let name = Values::default().with(Value::PlacementName, "zone".to_owned());
                self.hit(Function::Placement, Role::Entry, 300, name);
            }
            let none = Values::default;
            let mut tried = Vec::new();
            self.call(Function::PlacementTrial, 80, none(), none(), |script| {
                for key in members.iter().copied() {
                    let member = script.member(key);
                    let known = Values::default().with(Value::CycleState, state).with(Value::Pod, POD);
                    script.of(key, |script| {
                        script.call(Function::PodGroupMember, 100, member, none(), |script| {
                            script.call(Function::PreFilter, 200, known.clone(), status(0), |script| {
                                script.plugins(Function::PreFilterPlugin, 300, POD)
                            })?;
                            script.phase(Function::Filter, 200, none(), none(), |_| Ok(()))?;
                            script.phase(Function::Permit, 200, none(), status(0), |script| {
                                script.plugins(Function::PermitPlugin, 300, POD)
                            })?;
                            script.call(Function::Reserve, 150, known, status(0), |_| Ok(()))
                        })
                    })?;
                    tried.push((key, state));
                    if script.choices.one_in(8) {
                        break;
                    }
                }
                for (key, _) in tried.iter().rev().copied() {
                    let known = Values::default().with(Value::CycleState, state).with(Value::Pod, ASSUMED);
                    script
                        .of(key, |script| script.call(Function::Unreserve, 90, known, none(), |_| Ok(())))?;
                }
                Ok(())
            })?;
            all.extend(tried);
        }
        Ok(all)
    }

    fn scheduling_cycle(&mut self, fits: bool) -> Result<(), Panicked> {
        let none = Values::default;
        let known = |pod| Values::default().with(Value::CycleState, STATE).with(Value::Pod, pod);
        self.call(Function::SchedulingCycle, 100, none(), none(), |script| {
            script.call(Function::PreFilter, 200, known(POD), status(0), |script| {
                script.plugins(Function::PreFilterPlugin, 300, POD)
            })?;
            script.phase(Function::Filter, 200, none(), none(), |_| Ok(()))?;
            script.extenders(Function::ExtenderFilter, 220)?;
            if !fits {
                return script.call(Function::PostFilter, 150, known(POD), status(2), |script| {
                    script.extenders(Function::ExtenderPreemption, 350)?;
                    let candidate = Some(0x80_0000 + *script.next_goroutine);
                    let victims = script.choices.below(3) as u64;
                    let preemption = Values::default()
                        .with(Value::Victims, victims)
                        .with(Value::PreemptionCandidate, candidate);
                    script.hit(Function::Preemption, Role::Entry, 400, preemption);
                    for _ in 0..victims {
                        // Some are being deleted already.
                        if script.choices.one_in(4) {
                            continue;
                        }
                        script.go(|script| {
                            let entry = Values::default().with(Value::PreemptionCandidate, candidate);
                            let _cut = script.call(Function::PreemptPod, 20, entry, status(0), |_| Ok(()));
                        });
                    }
                    script.plugins(Function::PostFilterPlugin, 250, POD)
                });
            }
            script.phase(Function::PreScore, 200, known(POD), status(0), |script| {
                script.plugins(Function::PreScorePlugin, 300, POD)
            })?;
            script.phase(Function::Score, 200, known(POD), status(0), |script| {
                script.beside(Function::NormalizeScorePlugin, STATE, None);
                Ok(())
            })?;
            script.ask_beside();
            script.hit(Function::Prioritize, Role::ReturnSite, 190, none());
            script.call(Function::Reserve, 150, known(ASSUMED), status(0), |script| {
                script.plugins(Function::ReservePlugin, 250, ASSUMED)
            })
        })
    }

    fn binding(&mut self, state: Option<u64>, bound: bool, again: bool) -> Result<(), Panicked> {
        let none = Values::default;
        let known = || Values::default().with(Value::CycleState, state).with(Value::Pod, ASSUMED);
        self.call(Function::BindingCycle, 60, known(), none(), |script| {
            let wait = Values::default().with(Value::Pod, ASSUMED);
            script.phase(Function::PreBindPreFlight, 90, known(), status(0), |script| {
                script.plugins(Function::PreBindPreFlightPlugin, 180, ASSUMED)
            })?;
            script.phase(Function::WaitOnPermit, 90, wait, status(0), |_| Ok(()))?;
            script.phase(Function::PreBind, 90, known(), status(0), |script| {
                if script.choices.one_in(2) {
                    script.beside(Function::PreBindPlugin, state, ASSUMED);
                    return Ok(());
                }
                script.plugins(Function::PreBindPlugin, 180, ASSUMED)
            })?;
            if script.choices.one_in(4) {
                script.extenders(Function::ExtenderBind, 120)?;
            } else {
                script.call(Function::Bind, 90, known(), status(0), |script| {
                    if script.choices.one_in(2) {
                        script.api_call(Function::PodBindingCall, true);
                    }
                    script.plugins(Function::BindPlugin, 150, ASSUMED)
                })?;
            }
            if bound { script.phase(Function::PostBind, 90, known(), none(), |_| Ok(())) } else { Ok(()) }
        })?;
        if bound { Ok(()) } else { self.fail(70, 1, again) }
    }
}

fn status(code: i64) -> Values {
    Values::default().with(Value::StatusCode, code)
}

/// Goroutines that could run, and what they have done so far.
struct Schedule {
    lanes: Vec<Lane>,
    /// In the order in which it happened: whose it is, and before which event it could have happened.
    order: Vec<(Key, u64, Event)>,
    /// Addresses of processes that nobody uses, the last one used next.
    free: HashMap<u32, Vec<u64>>,
    owned: HashMap<Key, u64>,
    /// How many events an attempt has yet to come.
    left: HashMap<Key, usize>,
    ended: HashSet<(u32, u64)>,
    /// When calls began that tell of it at their ends.
    silent: HashSet<u64>,
}

impl Schedule {
    fn of(
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
            let mut script = Script {
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
                    // With losses it could not be told which attempts began with a `Pop`.
                    let pod_is_popped = !troubles.losses && script.choices.one_in(2);
                    script.group(&members, pod_is_popped);
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
                script.hit(Function::Pop, Role::ReturnSite, 50, Values::default());
            }
            let lane = Lane::new(process, LOOP, script.steps);
            schedule.expect(&lane.steps);
            schedule.lanes.push(lane);
        }
        while schedule.step(order) {}
        assert!(schedule.lanes.is_empty(), "nobody waits for ever");
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

    /// One goroutine that can does one thing; `false` when all have ended.
    fn step(&mut self, choices: &mut Choices<'_>) -> bool {
        let now = self.order.len() as u64;
        // What takes no time.
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

    /// What was really called in each attempt, as (function, start, end).
    fn truth(&self) -> HashMap<Key, Vec<(Function, u64, Option<u64>)>> {
        let mut calls: HashMap<Key, Vec<(Function, u64, Option<u64>)>> = HashMap::new();
        let mut open: HashMap<(u32, u64), Vec<Began>> = HashMap::new();
        for (key, _, event) in &self.order {
            let Event { target, goroutine, function, role, time_ns, depth, .. } = event;
            if not_a_call(*function) {
                continue;
            }
            let open = open.entry((*target, *goroutine)).or_default();
            if *role == Role::InTurn {
                // What is deeper has panicked.
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

    /// In the order of the ring buffer: events that could have happened in either order may come in the other one.
    fn delivered(&self, choices: &mut Choices<'_>, troubles: Troubles) -> Vec<Event> {
        let told = |(_, _, event): &&(Key, u64, Event)| !self.silent.contains(&event.time_ns);
        let mut order: Vec<&(Key, u64, Event)> = self.order.iter().filter(told).collect();
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
        let mut losses = 0;
        let mut delivered = Vec::new();
        for (_, _, event) in order {
            if troubles.losses && choices.one_in(16) {
                losses += 1;
            } else {
                delivered.push(Event { last_loss: losses, ..event.clone() });
            }
        }
        delivered
    }
}

fn not_a_call(function: Function) -> bool {
    is_move(function)
        || matches!(
            function,
            Function::Pop
                | Function::Preemption
                | Function::ApiCallAdd
                | Function::Prioritize
                | Function::FailureMessage
                | Function::PodGroup
                | Function::Placement
                | Function::PodGroupCondition
        )
}

fn is_move(function: Function) -> bool {
    matches!(
        function,
        Function::Enqueue | Function::EnqueueBackoff | Function::EnqueueUnschedulable | Function::QueueMove
    )
}

fn assemble(events: Vec<Event>, troubles: Troubles) -> (Vec<Attempt>, Stats, Account) {
    let mut assembler = Assembler::default();
    let count = events.len() as u64;
    for event in events {
        assembler.on(event);
    }
    assert!(assembler.account().open() <= count, "nothing is counted twice: {:?}", assembler.account());
    if !troubles.losses {
        // Nobody waits any longer for victims that were being deleted already. What was lost last shows in no record.
        assembler.expire(11_000_000_000);
    }
    for target in 0..4 {
        assembler.exit(target);
    }
    (assembler.take_finished(), assembler.stats(), assembler.account())
}

fn key(attempt: &Attempt) -> Key {
    let (name, number) = match &attempt.subject {
        Subject::Group { group, .. } => (&group.name, 0),
        _ => (&attempt.pod.uid, attempt.number.expect("the script wrote it")),
    };
    (attempt.target, name.trim_start_matches("uid-").parse().expect("the script wrote it"), number)
}

fn of_calls(attempt: &Attempt) -> u64 {
    attempt.calls.iter().map(|call| call.events).sum()
}

/// Every event is in a span, told on one, or counted; and counted once.
fn check_account(
    delivered: &[Event],
    attempts: &[Attempt],
    stats: Stats,
    account: Account,
    troubles: Troubles,
) {
    let count = |is: &dyn Fn(&Event) -> bool| delivered.iter().filter(|event| is(event)).count() as u64;
    assert_eq!(account.events, delivered.len() as u64);
    assert_eq!(account.open(), 0, "{account:?}");
    assert_eq!((stats.table_full, account.no_room), (0, 0));
    let Stats { orphan_moves, orphan_facts, .. } = stats;
    // Calls, by what is in the attempts themselves.
    let of_lost_calls = account.stray + account.orphaned - orphan_moves - orphan_facts;
    let told_calls: u64 = attempts.iter().map(of_calls).sum();
    // After a loss or a panic it may not be known for whom the API server is asked.
    let calls = count(&|event| !not_a_call(event.function));
    let nobodys = calls - (told_calls + of_lost_calls);
    assert!(nobodys == 0 || troubles.losses || troubles.panics);
    assert_eq!(account.stray, stats.stray_ends);
    // Pods.
    let popped = |event: &Event| {
        event.function == Function::Pop && event.values.number(Value::QueuedPodInfo).is_some()
    };
    let pods: HashSet<_> = delivered.iter().filter(|event| popped(event)).map(pod_of).collect();
    // Of a group one Pod is popped, or none.
    let begins = |attempt: &&Attempt| match attempt.subject {
        Subject::Member(_) => pods.contains(&(attempt.target, Some(attempt.pod.uid.clone()))),
        Subject::Pod | Subject::Group { .. } => true,
    };
    let group = |event: &Event| event.function == Function::PodGroup && event.role == Role::Entry;
    let begun = count(&|event| popped(event) || group(event));
    assert_eq!(begun, attempts.iter().filter(begins).count() as u64 + stats.skipped);
    // All else that attempts were told.
    let others = count(&|event| not_a_call(event.function)) - begun;
    let told: u64 =
        attempts.iter().map(|attempt| attempt.events - u64::from(begins(&attempt)) - of_calls(attempt)).sum();
    let Account { skipped, unrelated, waiting, .. } = account;
    let lost = orphan_moves + orphan_facts + waiting + (unrelated - nobodys) + skipped - stats.skipped;
    assert_eq!(others, told + lost);
}

fn pod_of(event: &Event) -> (u32, Option<String>) {
    (event.target, event.values.text(Value::PodUid).map(str::to_owned))
}

/// Every group is with its Pods, and every span is inside its parent.
fn check_traces(attempts: &[Attempt]) {
    let mut gatherer = Gatherer::default();
    for attempt in attempts {
        for trace in gatherer.take(build(attempt, ANCHOR, Origin::default())) {
            check_spans(&trace);
        }
    }
    assert!(gatherer.rest().is_empty(), "a group comes after its Pods");
}

/// Every span is inside its parent, and each has one.
pub(super) fn check_trace(attempt: &Attempt) {
    check_spans(&build(attempt, ANCHOR, Origin::default()));
}

fn check_spans(trace: &Trace) {
    let spans: HashMap<_, _> = trace.spans.iter().map(|span| (span.span_id, span)).collect();
    assert_eq!(spans.len(), trace.spans.len());
    for span in &trace.spans {
        assert!(span.start_unix_ns <= span.end_unix_ns, "{span:?}");
        if let Some(parent) = span.parent_id {
            let parent = spans[&parent];
            assert!(
                parent.start_unix_ns <= span.start_unix_ns && span.end_unix_ns <= parent.end_unix_ns,
                "{span:?} is not inside of {parent:?}"
            );
        }
    }
}

/// What is told of the calls of an attempt is true.
fn check_calls(attempt: &Attempt, truth: &[(Function, u64, Option<u64>)]) {
    for call in &attempt.calls {
        assert!(call.start_ns <= call.end_ns, "{call:?}");
        let made =
            truth.iter().find(|(function, start, _)| (*function, *start) == (call.function, call.start_ns));
        let Some((.., end)) = made else { panic!("{call:?} is not of this attempt: {truth:?}") };
        assert!(!call.returned || *end == Some(call.end_ns), "{call:?} ended at {end:?}");
    }
    let whole = attempt.calls.len() == truth.len() && attempt.calls.iter().all(|call| call.returned);
    assert!(whole || attempt.incomplete, "{attempt:?} does not say that it lacks something of {truth:?}");
}

/// The attempt before is of the same Pod of the same process, and earlier.
fn check_links(attempts: &[Attempt]) {
    let started: HashMap<(u32, u64), Key> = attempts
        .iter()
        .filter(|attempt| attempt.subject == Subject::Pod)
        .map(|attempt| ((attempt.target, attempt.start_ns), key(attempt)))
        .collect();
    for attempt in attempts {
        let Some(previous) = &attempt.previous else { continue };
        let (process, pod, number) = started[&(attempt.target, previous.start_ns)];
        assert_eq!((process, pod), (key(attempt).0, key(attempt).1));
        assert!(number < key(attempt).2);
    }
}

/// How many processes and Pods there are, what they do, and in which order.
#[derive(Clone, Debug)]
struct Case {
    processes: u32,
    pods: u64,
    what: Vec<u8>,
    order: Vec<u8>,
}

fn cases() -> impl Strategy<Value = Case> {
    let bytes = || vec(any::<u8>(), 0..48);
    (1u32..3, 1u64..4, bytes(), bytes()).prop_map(|(processes, pods, what, order)| Case {
        processes,
        pods,
        what,
        order,
    })
}

fn check(case: &Case, troubles: Troubles) -> (Schedule, Vec<Attempt>, Stats, Account) {
    let Case { processes, pods, what, order } = case;
    let (mut what, mut order) = (Choices::new(what), Choices::new(order));
    let schedule = Schedule::of(*processes, *pods, &mut what, &mut order, troubles);
    let delivered = schedule.delivered(&mut order, troubles);
    let (attempts, stats, account) = assemble(delivered.clone(), troubles);
    let truth = schedule.truth();
    for attempt in &attempts {
        check_calls(attempt, truth.get(&key(attempt)).map_or(&[], Vec::as_slice));
    }
    check_traces(&attempts);
    check_links(&attempts);
    check_account(&delivered, &attempts, stats, account, troubles);
    (schedule, attempts, stats, account)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40_000))]

    #[test]
    fn without_trouble_all_is_told_exactly(case in cases()) {
        let (schedule, attempts, stats, account) = check(&case, Troubles::default());
        prop_assert_eq!(stats, Stats { skipped: stats.skipped, ..Stats::default() });
        prop_assert_eq!((account.stray, account.orphaned, account.waiting), (0, 0, waiting(&schedule)));
        let mut popped: BTreeMap<Key, usize> = BTreeMap::new();
        for (key, _, event) in &schedule.order {
            if event.function == Function::Pop && event.values.number(Value::Pod).is_some() {
                popped.insert(*key, 0);
            } else if [Function::PodGroup, Function::PodGroupMember].contains(&event.function)
                || event.function == Function::HandleFailure && event.values.text(Value::PodUid).is_some()
            {
                *popped.entry(*key).or_default() += 1;
            } else if let Some(events) = popped.get_mut(key) {
                *events += 1;
            }
        }
        // Whose Pod was popped and left alone has no more events.
        let tried: Vec<Key> = popped.iter().filter(|(_, events)| **events > 0).map(|(key, _)| *key).collect();
        let mut told: Vec<Key> = attempts.iter().map(key).collect();
        told.sort_unstable();
        prop_assert_eq!(told, tried);
        for attempt in &attempts {
            prop_assert!(!attempt.incomplete);
            prop_assert_eq!(attempt.previous.is_some(), attempt.number > Some(1));
        }
    }
}

/// Moves of Pods that nobody popped afterwards.
fn waiting(schedule: &Schedule) -> u64 {
    let mut waiting: HashMap<(u32, u64), u64> = HashMap::new();
    let mut moving: HashMap<(u32, u64), u64> = HashMap::new();
    for ((process, ..), _, event) in &schedule.order {
        let entry = event.values.number(Value::QueuedPodInfo);
        match event.function {
            Function::Pop | Function::PodGroup | Function::PodGroupMember | Function::HandleFailure => {
                entry.map(|entry| waiting.remove(&(*process, entry)));
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn lost_records_are_counted_and_nothing_else_is_wrong(case in cases()) {
        check(&case, Troubles { losses: true, panics: false });
    }

    #[test]
    fn panics_leave_calls_without_an_end_and_nothing_else(case in cases()) {
        let (_, _, stats, _) = check(&case, Troubles { losses: false, panics: true });
        prop_assert_eq!(stats.stray_ends, 0);
    }

    #[test]
    fn panics_and_losses_together_are_told_truly(case in cases()) {
        check(&case, Troubles { losses: true, panics: true });
    }
}
