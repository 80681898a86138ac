//! Plugins that a phase calls one after the other: each is reported at its end, and began when the previous
//! one ended.

use std::{mem, sync::Arc};

use gotrace::program::Function as _;

use super::{Goroutine, HashMap, MAX_CALLS, Open, Process};
use crate::{Event, Values, attempt::Attempt, table::Function, values::Value};

/// Profiles whose plugins are remembered; a scheduler has a handful.
const MAX_PROFILES: usize = 256;

/// Progress of a phase through its plugins.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// When the next plugin begins: after the end of the last one and of the eBPF program that observed it.
    next_ns: Option<u64>,
    count: usize,
}

/// A plugin that has returned, in a phase that is not reported yet.
#[derive(Debug)]
pub(super) struct Turn {
    function: Function,
    end_ns: u64,
    took_ns: u64,
    depth: u64,
    values: Values,
}

/// The order in which the phases of a profile call their plugins. Constant for the lifetime of a process.
#[derive(Debug, Default)]
pub(super) struct Orders(HashMap<String, HashMap<Function, Vec<Arc<str>>>>);

impl Orders {
    /// Learns the order from a finished phase with this many plugins, which may be only the first ones.
    pub(super) fn learn(&mut self, function: Function, turns: &Turns, attempt: &Attempt) {
        if turns.count == 0 {
            return;
        }
        if let Some(known) = self.of(function, attempt)
            && known.len() >= turns.count
        {
            return;
        }
        let calls =
            attempt.calls.iter().rev().filter(|call| call.function.about().serial_phase() == Some(function));
        // Without all names the positions mean nothing.
        let names: Option<Vec<_>> = calls.take(turns.count).map(|call| call.plugin.clone()).collect();
        let Some(mut plugins) = names else { return };
        plugins.reverse();
        if self.0.len() >= MAX_PROFILES {
            self.0.clear();
        }
        self.0.entry(attempt.pod.profile.clone()).or_default().insert(function, plugins);
    }

    /// The plugin that a phase was in when a panic left it, if known.
    pub(super) fn next(&self, function: Function, turns: &Turns, attempt: &Attempt) -> Option<Arc<str>> {
        self.of(function, attempt)?.get(turns.count).cloned()
    }

    fn of(&self, function: Function, attempt: &Attempt) -> Option<&Vec<Arc<str>>> {
        self.0.get(attempt.pod.profile.as_str())?.get(&function)
    }
}

impl Process {
    /// Records a plugin's return.
    pub(super) fn take_turn(&mut self, event: Event) {
        let Event { time_ns, took_ns, goroutine: number, depth, function, values, .. } = event;
        let Some(mut goroutine) = self.returned(number, depth, time_ns) else { return };
        let attempt = goroutine.on().and_then(|id| self.attempts.get(&id));
        if attempt.is_some_and(|building| !building.attempt.cut.keeps_detail(function.whole_detail())) {
            // Its phase may have begun while phases were cut, and then ends without it.
            self.books.account.unrelated += 1;
            self.goroutines.insert(number, goroutine);
            return;
        }
        match goroutine.open.pop_if(|open| Some(open.function) == function.about().serial_phase()) {
            Some(mut open) => {
                let turn = Turn { function, end_ns: time_ns, took_ns, depth, values };
                self.close_turn(&mut goroutine, &mut open, turn);
                goroutine.open.push(open);
            }
            None if goroutine.turns.len() < MAX_CALLS => {
                goroutine.turns.push(Turn { function, end_ns: time_ns, took_ns, depth, values });
            }
            None => self.books.no_room(1),
        }
        self.goroutines.insert(number, goroutine);
    }

    /// Records a phase that is reported at its end, with the plugins reported before it.
    pub(super) fn take_whole(&mut self, event: Event) {
        let Event { time_ns, goroutine: number, depth, function, values, .. } = event;
        let Some(mut goroutine) = self.returned(number, depth, time_ns) else { return };
        // Its entry is probed too where the end does not say when it began.
        let entered = goroutine.open.iter().rposition(|open| open.function == function);
        let entered = entered.and_then(|position| {
            self.unwind_within(&mut goroutine, position, time_ns);
            goroutine.open.pop()
        });
        let mut open = entered.unwrap_or_else(|| {
            // A recording may hold any value.
            let start_ns = values.number(Value::StartedNs).unwrap_or(time_ns).min(time_ns);
            let owner = goroutine.open.last().and_then(|open| open.owner);
            Open { owner, events: 0, ..Open::new(function, start_ns, depth) }
        });
        let own = |turn: &mut Turn| turn.function.about().serial_phase() == Some(function);
        let mut turns = mem::take(&mut goroutine.turns);
        for turn in turns.extract_if(.., own) {
            self.close_turn(&mut goroutine, &mut open, turn);
        }
        goroutine.turns = turns;
        let returned = (values.flag(Value::Panics) != Some(true)).then_some(values);
        open.events += u64::from(returned.is_none());
        self.close(&mut goroutine, open, time_ns, returned);
        self.goroutines.insert(number, goroutine);
    }

    /// The goroutine on which a call returned; closes the calls nested in it.
    fn returned(&mut self, number: u64, depth: u64, time_ns: u64) -> Option<Goroutine> {
        let Some(mut goroutine) = self.goroutines.remove(&number) else {
            self.books.stray_end();
            return None;
        };
        self.unwind(&mut goroutine, depth, time_ns);
        goroutine.last_ns = time_ns;
        Some(goroutine)
    }

    /// Records the return of a phase's next plugin.
    fn close_turn(&mut self, goroutine: &mut Goroutine, phase: &mut Open, turn: Turn) {
        let Turn { function, end_ns, took_ns, depth, mut values } = turn;
        phase.turns.count += 1;
        let start_ns = phase.turns.next_ns.replace(end_ns.saturating_add(took_ns)).unwrap_or(phase.start_ns);
        // A recording may hold any value.
        let start_ns = start_ns.min(end_ns);
        let plugin = values.take_name(Value::Plugin);
        let call = Open { owner: phase.owner, plugin, events: 0, ..Open::new(function, start_ns, depth) };
        self.close(goroutine, call, end_ns, Some(values));
    }
}
