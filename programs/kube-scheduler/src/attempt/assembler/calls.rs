//! Calls: pairs an entry with its end on one goroutine, and updates the attempt.

use std::sync::Arc;

use gotrace::{
    Role,
    program::{Detail, Function as _},
};

use super::{Building, Goroutine, MAX_CALLS, MAX_GOROUTINES, MAX_OPEN, Process, Progress, turns::Turns};
use crate::{
    Event, Values,
    attempt::{ApiCall, Call, Code, Extender, Outcome},
    table::{Function, Stage},
    values::Value,
};

/// Phases of an attempt that have shares.
const MAX_SHARED: usize = 8;

#[derive(Debug)]
pub(super) struct Open {
    pub(super) function: Function,
    pub(super) start_ns: u64,
    pub(super) depth: u64,
    pub(super) plugin: Option<Arc<str>>,
    pub(super) extender: Option<Box<Extender>>,
    pub(super) api_call: Option<Box<ApiCall>>,
    /// The Pod's attempt, if the goroutine is on the attempt of the Pod's group.
    pub(super) owner: Option<u64>,
    pub(super) turns: Turns,
    /// Number of events of its beginning; 0 if only the end is reported.
    pub(super) events: u64,
}

impl Process {
    pub(super) fn enter(&mut self, event: Event) {
        let Event { time_ns, goroutine: number, depth, function, ref values, .. } = event;
        if !self.goroutines.contains_key(&number) && self.goroutines.len() >= self.room(MAX_GOROUTINES) {
            self.books.no_room(1);
            return;
        }
        let mut goroutine = self.goroutines.remove(&number).unwrap_or_default();
        // An entry at this depth means that open calls at this depth or deeper are over.
        self.unwind(&mut goroutine, depth, time_ns);
        goroutine.last_ns = time_ns;
        // The attempt may have ended on another goroutine.
        goroutine.attempt = goroutine.attempt.filter(|id| self.attempts.contains_key(id));
        if goroutine.attempt.is_none() {
            // Only the binding cycle's is that of the attempt: late work has those of victims.
            let uid = values.text(Value::PodUid).filter(|_| function == Function::BindingCycle);
            // An unknown state belongs to an attempt that is over, even if the address of its Pod is in use
            // again.
            let found = match (uid, values.number(Value::CycleState), values.number(Value::Pod)) {
                (Some(uid), ..) if !uid.is_empty() => self.by_uid.get(uid),
                (_, Some(state), _) => self.by_state.get(&state),
                (_, None, Some(pod)) => self.by_pod.get(&pod),
                (_, None, None) => None,
            };
            let found = found.copied();
            if goroutine.open.is_empty() {
                goroutine.worker = function.about().runs_beside();
            }
            // Addresses are reused: a call that began before the attempt is not part of it, nor is a second
            // binding goroutine.
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
                let cut = |call: &mut Call| !attempt.cut.keeps_detail(call.function.whole_detail());
                let cut = goroutine.closed.extract_if(.., cut);
                self.books.account.unrelated += cut.map(|call| call.events).sum::<u64>();
                attempt.incomplete |= goroutine.closed.iter().any(|call| !call.returned);
                attempt.events += goroutine.closed.iter().map(|call| call.events).sum::<u64>();
                attempt.calls.append(&mut goroutine.closed);
                goroutine.attempt = Some(id);
            }
        }
        let mut owner = goroutine.attempt;
        let mut api_call = None;
        if function.about().is_late() {
            goroutine.worker |= goroutine.open.is_empty() && goroutine.attempt.is_none();
            (owner, api_call) = self.late.take(&event);
            owner = owner.filter(|id| self.attempts.contains_key(id) || self.late.waits(*id));
        } else if let Some(group) = owner.filter(|id| self.is_group(*id)) {
            owner = Some(self.owner_in_group(group, &goroutine, &event));
        }
        let mut values = event.values;
        if !function.about().is_late() {
            self.begin_call(owner, &goroutine, function, time_ns, &mut values);
            if function == Function::HandleFailure && !self.cuts.sees_end(function) {
                return self.fail(number, goroutine, owner, time_ns);
            }
            owner = owner.filter(|_| owner != goroutine.attempt);
        }
        if goroutine.open.len() < MAX_OPEN {
            let extender = extender(&mut values);
            let plugin = values.take_name(Value::Plugin);
            let open = Open::new(function, time_ns, depth);
            goroutine.open.push(Open { plugin, extender, api_call, owner, ..open });
        } else {
            self.books.no_room(1);
        }
        self.goroutines.insert(number, goroutine);
    }

    /// Updates the attempt from the values at a call's entry.
    pub(super) fn begin_call(
        &mut self,
        owner: Option<u64>,
        goroutine: &Goroutine,
        function: Function,
        time_ns: u64,
        values: &mut Values,
    ) {
        match function.about().stage() {
            Some(Stage::PlacementTrial) => {
                let placement = owner.and_then(|id| self.attempts.get_mut(&id)?.take_placement());
                values.set(Value::Plugin, placement);
            }
            Some(Stage::Member) => {
                let placement = goroutine.open.last().and_then(|trial| trial.plugin.clone());
                values.set(Value::Plugin, placement);
            }
            Some(Stage::SchedulingCycle | Stage::BindingCycle | Stage::HandleFailure) | None => {}
        }
        let Some(id) = owner else { return };
        self.learn(id, values.number(Value::CycleState), values.number(Value::Pod));
        if let Some(building) = self.attempts.get_mut(&id) {
            building.enter(function, time_ns, values);
            building.attempt.take_statuses(values);
        }
        if function == Function::HandleFailure {
            // The Pod returns to the queue and may be popped before this call returns.
            self.will_be_tried_again(id);
        }
    }

    /// Ends an attempt where the handling of its failure begins, because the end of that is cut.
    fn fail(&mut self, number: u64, mut goroutine: Goroutine, id: Option<u64>, now_ns: u64) {
        if let Some((id, building)) = id.and_then(|id| Some((id, self.attempts.get_mut(&id)?))) {
            building.attempt.events += 1;
            self.over(&mut goroutine, id, now_ns);
            self.finish(id, now_ns);
            goroutine.attempt = goroutine.attempt.filter(|own| *own != id);
        } else {
            self.books.stats.orphan_calls += 1;
            self.books.account.orphaned += 1;
        }
        self.put_back(number, goroutine);
    }

    /// Closes the calls of an attempt whose outermost call is over: those still open were left by a panic.
    fn over(&mut self, goroutine: &mut Goroutine, id: u64, now_ns: u64) {
        if goroutine.attempt == Some(id) {
            self.unwind(goroutine, 0, now_ns);
        } else {
            self.unwind_of(goroutine, id, now_ns);
        }
    }

    /// The scheduling loop has an attempt again after the next `Pop`; a binding goroutine is over.
    fn put_back(&mut self, number: u64, mut goroutine: Goroutine) {
        let over = goroutine.worker && goroutine.open.is_empty();
        if !over && (goroutine.attempt.is_some() || !goroutine.open.is_empty()) {
            self.goroutines.insert(number, goroutine);
        } else {
            self.give_up(&mut goroutine);
        }
    }

    pub(super) fn leave(&mut self, event: Event) {
        let Event { time_ns, goroutine: number, depth, function, role, values, .. } = event;
        let Some(mut goroutine) = self.goroutines.remove(&number) else {
            return self.books.stray_end();
        };
        goroutine.last_ns = time_ns;
        let same_call =
            |open: &Open| open.function == function && (open.depth == depth || role == Role::NextEntry);
        let Some(position) = goroutine.open.iter().rposition(same_call) else {
            self.books.stray_end();
            self.goroutines.insert(number, goroutine);
            return;
        };
        self.unwind_within(&mut goroutine, position, time_ns);
        let mut values = values;
        let on = goroutine.on();
        // It says whether the Pod was bound, and its span has no status.
        let code = values.signed(Value::StatusCode).filter(|_| function == Function::BindingCycle).map(Code);
        if code.is_some() {
            values.set(Value::StatusCode, None::<u64>);
        }
        if let Some(building) = on.and_then(|id| self.attempts.get_mut(&id)) {
            let attempt = &mut building.attempt;
            // No restriction and a restriction to no Node both read as 0; the latter is a rejection.
            attempt.restricted_to =
                values.number(Value::RestrictedTo).filter(|count| *count > 0).or(attempt.restricted_to);
            attempt.scores = values.take_top(Value::Scores).or(attempt.scores.take());
        }
        if let Some(open) = goroutine.open.pop() {
            self.close(&mut goroutine, open, time_ns, Some(values));
        }
        if matches!(function, Function::BindingCycle | Function::HandleFailure) && on == goroutine.attempt {
            // These are the outermost calls of an attempt: calls still open were left by a panic.
            self.unwind(&mut goroutine, 0, time_ns);
        } else if let Some(id) = on.filter(|_| function == Function::HandleFailure) {
            self.unwind_of(&mut goroutine, id, time_ns);
        }
        let ended = on.is_some_and(|id| self.after(id, function, time_ns, code));
        if ended && on == goroutine.attempt {
            goroutine.attempt = None;
        }
        self.put_back(number, goroutine);
    }

    /// Updates the attempt after a call's end, at which this code was read. Returns whether the attempt is over.
    fn after(&mut self, id: u64, function: Function, time_ns: u64, code: Option<Code>) -> bool {
        let Some(building) = self.attempts.get_mut(&id) else { return true };
        match function.about().stage() {
            Some(Stage::SchedulingCycle) => {
                if building.stage == Progress::Scheduling {
                    building.stage = Progress::Scheduled;
                }
                false
            }
            Some(Stage::BindingCycle) => {
                // Where the result is not known: PostBind runs if and only if the Pod was bound.
                let post_bind = |call: &Call| call.function == Function::PostBind;
                let bound = code.map_or_else(
                    || building.attempt.calls.iter().any(post_bind),
                    |code| code == Code::SUCCESS,
                );
                if bound {
                    building.attempt.outcome = Outcome::Scheduled;
                    self.finish(id, time_ns);
                } else {
                    building.stage = Progress::NotBound;
                }
                bound
            }
            Some(Stage::HandleFailure) => {
                self.finish(id, time_ns);
                true
            }
            Some(Stage::PlacementTrial | Stage::Member) | None => false,
        }
    }

    /// Closes the open calls at this depth and deeper, which never returned.
    pub(super) fn unwind(&mut self, goroutine: &mut Goroutine, depth: u64, now_ns: u64) {
        while goroutine.open.last().is_some_and(|open| open.depth >= depth) {
            if let Some(open) = goroutine.open.pop() {
                self.close(goroutine, open, now_ns, None);
            }
        }
    }

    /// Closes the open calls within this one, which never returned.
    pub(super) fn unwind_within(&mut self, goroutine: &mut Goroutine, position: usize, now_ns: u64) {
        for open in goroutine.open.split_off(position + 1).into_iter().rev() {
            self.close(goroutine, open, now_ns, None);
        }
    }

    /// Closes the open calls of a Pod of a group, which never returned.
    pub(super) fn unwind_of(&mut self, goroutine: &mut Goroutine, id: u64, now_ns: u64) {
        let (of_pod, others): (Vec<_>, _) =
            std::mem::take(&mut goroutine.open).into_iter().partition(|open| open.owner == Some(id));
        goroutine.open = others;
        for open in of_pod.into_iter().rev() {
            self.close(goroutine, open, now_ns, None);
        }
    }

    /// Closes a call; `returned` holds the values read at its return, if it returned.
    pub(super) fn close(
        &mut self,
        goroutine: &mut Goroutine,
        open: Open,
        end_ns: u64,
        returned: Option<Values>,
    ) {
        let Open { function, start_ns, plugin, mut extender, api_call, owner, depth: _, turns, events } =
            open;
        let late = function.about().is_late();
        let owner = if late { owner } else { owner.or(goroutine.attempt) };
        let values = returned.as_ref();
        if let Some(extender) = &mut extender {
            extender.passed = values.and_then(|values| values.number(Value::Nodes));
        }
        let mut call = Call {
            function,
            start_ns,
            end_ns: end_ns.max(start_ns),
            plugin,
            code: values.and_then(|values| values.signed(Value::StatusCode)).map(Code),
            extender,
            api_call,
            returned: returned.is_some(),
            events: events + u64::from(returned.is_some()),
            reason: returned.and_then(|mut values| values.take_text(Value::StatusReason)).unwrap_or_default(),
        };
        let returned = call.returned;
        if late && !owner.is_some_and(|id| self.attempts.contains_key(&id) || self.late.waits(id)) {
            // Belongs to no traced attempt, or to one that is no longer waiting.
            self.books.account.unrelated += call.events;
            return;
        }
        if !returned {
            self.books.stats.unwound_calls += 1;
        }
        if let Some(id) = owner.filter(|id| self.late.waits(*id)) {
            return self.close_late(id, call);
        }
        let (shares, timed) = (self.samples.shares(&call), self.samples.window.timed(&call));
        let mut building = owner.and_then(|id| self.attempts.get_mut(&id));
        if let Some(building) = &mut building {
            building.seen(call.end_ns);
            building.attempt.incomplete |= !returned;
            building.outstanding -= u64::from(late && building.outstanding > 0);
            let cut = building.attempt.cut;
            if !cut.keeps_detail(function.whole_detail()) {
                // Others of its kind, or what it began with, were not seen.
                self.books.account.unrelated += call.events;
                return;
            }
            if cut.keeps_detail(Detail::Plugins) {
                if !returned {
                    call.plugin =
                        call.plugin.or_else(|| self.orders.next(function, &turns, &building.attempt));
                }
                self.orders.learn(function, &turns, &building.attempt);
            }
            if building.attempt.shares.len() < MAX_SHARED {
                building.attempt.shares.extend(shares);
                timed.into_iter().for_each(|timed| building.take_timed(timed));
            }
        }
        let mut attempt = building.map(|building| &mut building.attempt);
        let calls = attempt.as_mut().map_or(&mut goroutine.closed, |attempt| &mut attempt.calls);
        if calls.len() >= MAX_CALLS {
            self.books.no_room(call.events);
            return;
        }
        let events = call.events;
        calls.push(call);
        if let Some(attempt) = attempt {
            attempt.events += events;
        }
    }
}

impl Open {
    pub(super) fn new(function: Function, start_ns: u64, depth: u64) -> Self {
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

/// The request to an extender, if there is one.
fn extender(values: &mut Values) -> Option<Box<Extender>> {
    let url = values.take_text(Value::ExtenderUrl)?;
    let verb = values.take_text(Value::ExtenderVerb).unwrap_or_default();
    let ignorable = values.flag(Value::Ignorable).unwrap_or_default();
    let nodes = values.number(Value::Nodes);
    Some(Box::new(Extender { url, verb, ignorable, nodes, passed: None }))
}
