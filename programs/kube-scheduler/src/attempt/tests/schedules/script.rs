//! What the goroutines of schedulers do, generated from bytes.

use std::{collections::VecDeque, mem, sync::Arc};

use gotrace::Role;

use super::super::status;
use crate::{Event, Values, table::Function, values::Value};

/// Placeholders for the addresses of the attempt, which it gets when its Pod is popped.
pub(super) const STATE: Option<u64> = Some(1);
pub(super) const POD: Option<u64> = Some(2);
pub(super) const ASSUMED: Option<u64> = Some(3);
/// The one of a Pod of a group that is tried on the second placement.
pub(super) const SECOND_STATE: Option<u64> = Some(4);
/// Numbers of groups begin here, those of Pods end before.
pub(super) const GROUPS: u64 = 1_000;

/// An endless source of decisions.
pub(super) struct Choices<'a>(std::iter::Cycle<std::slice::Iter<'a, u8>>);

impl<'a> Choices<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.iter().cycle())
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0.next().map_or(0, |byte| usize::from(*byte) % bound)
    }

    pub(super) fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == bound - 1
    }
}

/// The faults that a schedule may have.
#[derive(Clone, Copy, Default)]
pub(super) struct Troubles {
    pub(super) panics: bool,
    pub(super) losses: bool,
}

/// Process, Pod, and number of the attempt.
pub(super) type Key = (u32, u64, u64);

pub(super) enum Step {
    Hit(Key, Event),
    /// A call begins, which is reported at its end.
    Begin(Key, Event),
    /// Another goroutine begins.
    Go(Lane),
    /// The goroutine waits for the end of another one.
    Join(u64),
}

/// The steps of a goroutine.
pub(super) struct Lane {
    pub(super) process: u32,
    pub(super) goroutine: u64,
    pub(super) steps: VecDeque<Step>,
    /// Number of the event before which its next one could have happened.
    pub(super) ready: u64,
    /// Starts of its calls that are reported at their ends.
    pub(super) began: Vec<u64>,
}

impl Lane {
    pub(super) fn new(process: u32, goroutine: u64, steps: VecDeque<Step>) -> Self {
        Self { process, goroutine, steps, ready: 0, began: Vec::new() }
    }
}

/// A call that does not end.
pub(super) struct Panicked;

/// Writes the steps of the goroutines of a process.
pub(super) struct Script<'a, 'b> {
    pub(super) choices: &'a mut Choices<'b>,
    pub(super) troubles: Troubles,
    pub(super) process: u32,
    pub(super) key: Key,
    pub(super) next_goroutine: &'a mut u64,
    pub(super) goroutine: u64,
    pub(super) steps: VecDeque<Step>,
    /// Ends when the Pod is back in a queue.
    pub(super) queued: Option<u64>,
    /// What says that a Pod is popped: that `Pop` returned, up to 1.36, or that `scheduleOnePod` began.
    pub(super) popped: Role,
}

impl Script<'_, '_> {
    pub(super) fn hit(&mut self, function: Function, role: Role, depth: u64, values: Values) {
        let event = self.event(function, role, depth, values);
        self.steps.push_back(Step::Hit(self.key, event));
    }

    fn event(&self, function: Function, role: Role, depth: u64, values: Values) -> Event {
        let (target, goroutine) = (self.process, self.goroutine);
        Event { target, time_ns: 0, took_ns: 0, goroutine, depth, function, role, last_loss: 0, values }
    }

    /// A phase, with a record at its beginning and at its end, or one at its end for both. Its end may be a panic.
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
        // A closure, which is called by the phase or, after a panic, by the runtime.
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
            // `Filter` ends where the next function begins, at any depth.
            let (role, depth) =
                if function == Function::Filter { (Role::NextEntry, 7) } else { (Role::ReturnSite, depth) };
            self.hit(function, role, depth, end);
            return Ok(());
        }
        // Any of its callers may recover.
        if self.choices.one_in(2) { Ok(()) } else { Err(Panicked) }
    }

    /// Plugins, one after the other, each with two records or with one at its end.
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

    /// Plugins on goroutines of their own; the phase waits for them.
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

    /// Another goroutine may call the API server; the attempt may wait for it.
    fn api_call(&mut self, function: Function, waits: bool) {
        // Also if no goroutine gets that number.
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

    /// Extenders score on goroutines of their own; the phase waits for them.
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

    /// Extenders are called on this goroutine.
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

    /// Extension points may run before the Pod enters a queue, and `Sign` without that as well.
    fn in_queue(&mut self, signs: bool) {
        let pod = signs.then_some(POD).flatten();
        if signs && self.choices.one_in(2) {
            self.phase_in_queue(Function::Sign, Values::default().with(Value::Pod, pod));
        }
        if self.choices.one_in(2) {
            let entry = Values::default().with(Value::QueuedPodInfo, 0x2000 + self.key.1);
            self.phase_in_queue(Function::PreEnqueue, entry.with(Value::Pod, pod));
        }
    }

    fn phase_in_queue(&mut self, function: Function, entry: Values) {
        self.hit(function, Role::Entry, 10, entry);
        let begin = self.event(function, Role::Entry, 10, Values::default());
        self.steps.push_back(Step::Begin(self.key, begin));
        self.hit(function, Role::Metric, 30, status(0));
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
                script.in_queue(false);
                script.enqueue(Function::EnqueueUnschedulable, "unschedulable");
                script.queued = Some(script.go(|_| ()));
            }
            Ok(())
        })
    }

    /// An attempt. Its Pod is back in a queue when `queued` has ended.
    pub(super) fn attempt(&mut self, queued: Option<u64>) {
        let (.., number) = self.key;
        self.steps.extend(queued.map(Step::Join));
        if number == 1 || self.choices.one_in(2) {
            // An informer or a timer brings it to the active queue; the loop waits for that.
            let informer = self.go(|script| {
                script.in_queue(true);
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
        self.hit(Function::Pop, self.popped, 50, popped);
        let fate = self.choices.below(8);
        if fate == 7 {
            return;
        }
        let (fits, bound) = (fate < 5, fate < 4);
        let again = !bound && self.choices.one_in(2);
        // After a panic that the attempt does not recover from, the loop starts again.
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
    pub(super) fn group(&mut self, members: &[Key]) {
        let pod_is_popped = self.popped == Role::ReturnSite;
        let (process, first, _) = members[0];
        let whole = (process, GROUPS + first, 0);
        for key in members.iter().filter(|_| pod_is_popped).copied() {
            self.of(key, |script| {
                let informer = script.go(|script| {
                    script.in_queue(true);
                    script.enqueue(Function::Enqueue, "active");
                });
                script.steps.push_back(Step::Join(informer));
            });
        }
        if pod_is_popped {
            let popped = self.member(members[0]);
            self.of(members[0], |script| script.hit(Function::Pop, script.popped, 50, popped));
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

    /// The Pods that were tried to their ends, with their states.
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
        let of = |text: &str| format!("{text}-{}", self.key.1);
        let entry = known().with(Value::PodUid, of("uid")).with(Value::NodeName, of("node"));
        self.call(Function::BindingCycle, 60, entry, status(i64::from(!bound)), |script| {
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
            if !bound {
                return Ok(());
            }
            script.phase(Function::PostBind, 90, known(), none(), |script| {
                script.plugins(Function::PostBindPlugin, 150, ASSUMED)
            })
        })?;
        if bound { Ok(()) } else { self.fail(70, 1, again) }
    }
}
