//! Windows of one process: attempts in which each call of a `Filter` and `Score` plugin was timed.

use std::sync::Arc;

use gotrace::window::{Calls, Phase, Window as WindowOf};

use super::{Assembler, Building, Process};
use crate::{
    attempt::{Basis, Call, Share, Shares},
    table::Function,
};

type Window = WindowOf<Function>;

/// Plugins of a phase. A scheduler has about 20.
const MAX_PLUGINS: usize = 48;
/// The end of a phase is seen by two probes at the same instruction, one after the other.
const APART_NS: u64 = 1_000_000;

/// The last window, and whether an attempt was in it.
#[derive(Debug, Default)]
pub(super) struct Last(Option<(Window, bool)>);

impl Last {
    /// Keeps a window. Returns whether the one before had phases and no attempt.
    pub(super) fn put(&mut self, window: Window, found: bool) -> bool {
        self.0.replace((window, found)).is_some_and(|(before, found)| !found && !before.phases.is_empty())
    }

    /// What the window has of a call.
    pub(super) fn timed(&mut self, call: &Call) -> Option<Timed> {
        let (window, found) = self.0.as_mut()?;
        let timed = of(window, call)?;
        *found = true;
        Some(timed)
    }
}

/// A phase in a window.
#[derive(Debug)]
pub(super) struct Timed {
    shares: Option<Shares>,
    complete: bool,
}

/// What a window has of this call; `None` if that is no phase of its turn.
fn of(window: &Window, call: &Call) -> Option<Timed> {
    let Window { target: _, begin_ns, end_ns, complete, phases } = window;
    let within = *begin_ns <= call.end_ns && call.start_ns <= *end_ns;
    if !matches!(call.function, Function::Filter | Function::Score) || !within {
        return None;
    }
    let ends = call.start_ns..=call.end_ns.saturating_add(APART_NS);
    let mut phases = phases.iter();
    let phase = phases.find(|phase| phase.function == call.function && ends.contains(&phase.end_ns));
    let shares = phase.filter(|_| *complete).map(|phase| shares(phase, call));
    Some(Timed { complete: shares.is_some(), shares })
}

fn shares(Phase { function: _, end_ns: _, calls }: &Phase<Function>, call: &Call) -> Shares {
    let share = |calls: &Calls| Share {
        plugin: calls.name.as_ref().map_or_else(|| "?".into(), Arc::clone),
        amount: calls.total_ns,
        calls: Some(Box::new(calls.clone())),
    };
    let mut plugins: Vec<_> = calls.iter().map(share).collect();
    plugins.sort_by(|one, other| other.amount.cmp(&one.amount).then_with(|| one.plugin.cmp(&other.plugin)));
    let amount = plugins.iter().fold(0, |sum: u64, share| sum.saturating_add(share.amount));
    plugins.truncate(MAX_PLUGINS);
    Shares { function: call.function, start_ns: call.start_ns, basis: Basis::Window, amount, plugins }
}

impl Building {
    /// Takes what a window has of a phase.
    pub(super) fn take_timed(&mut self, Timed { shares, complete }: Timed) {
        let attempt = &mut self.attempt;
        attempt.window = Some(complete && attempt.window.unwrap_or(true));
        if let Some(shares) = shares {
            attempt.shares.retain(|of| (of.function, of.start_ns) != (shares.function, shares.start_ns));
            attempt.shares.push(shares);
        }
    }
}

impl Process {
    /// Gives the phases that have ended what the window has of them. Returns whether there are such.
    fn take_window(&mut self, window: &Window) -> bool {
        let mut found = false;
        for building in self.attempts.values_mut() {
            let timed: Vec<_> = building.attempt.calls.iter().filter_map(|call| of(window, call)).collect();
            found |= !timed.is_empty();
            timed.into_iter().for_each(|timed| building.take_timed(timed));
        }
        found
    }
}

impl Assembler {
    pub(super) fn take_window(&mut self, window: Window) {
        let stats = &mut self.books.stats;
        if window.complete {
            stats.windows += 1;
        } else {
            stats.incomplete_windows += 1;
        }
        let process = self.processes.get_mut(&window.target);
        let found = process.is_some_and(|process| process.take_window(&window));
        let samples = self.samples.entry(window.target).or_default();
        stats.incomplete_windows += u64::from(samples.window.put(window, found));
    }
}

#[cfg(test)]
mod tests {
    use gotrace::{Role, program::Assemble as _};

    use super::*;
    use crate::{
        Event, Values,
        attempt::tests::{call, event},
        values::Value,
    };

    /// An attempt that has filtered and scored in the turn of [`window`].
    fn scheduling() -> Assembler {
        let none = Values::default;
        let queued = none().with(Value::QueuedPodInfo, 0x2000).with(Value::PodUid, "uid");
        let mut assembler = Assembler::default();
        for (time_ns, function, role, depth, values) in [
            (1_100, Function::Pop, Role::ReturnSite, 50, queued),
            (1_110, Function::SchedulingCycle, Role::Entry, 100, none()),
            (2_100, Function::Filter, Role::Entry, 200, none()),
            (4_990, Function::Filter, Role::ReturnSite, 200, none()),
            (5_500, Function::Score, Role::Entry, 200, none()),
            (7_001, Function::Score, Role::ReturnSite, 200, none()),
        ] {
            assembler.on(Event { time_ns, ..event(1, function, role, depth, values) });
        }
        assembler
    }

    fn calls(name: &str, count: u64, total_ns: u64) -> Calls {
        Calls { name: Some(name.into()), count, total_ns, ..Calls::default() }
    }

    /// A turn in which `Filter` ran twice.
    fn window(complete: bool) -> Window {
        let phase = |function, end_ns, calls| Phase { function, end_ns, calls };
        let phases = vec![
            phase(Function::Filter, 2_000, vec![calls("Fit", 1, 70)]),
            phase(Function::Filter, 5_000, vec![calls("Fit", 9, 300), calls("Affinity", 9, 700)]),
            phase(Function::Score, 7_000, vec![calls("Fit", 4, 0)]),
        ];
        Window { target: 0, begin_ns: 1_000, end_ns: 8_000, complete, phases }
    }

    fn plugins(timed: Option<Timed>) -> Option<Vec<(String, u64)>> {
        let shares = timed?.shares?;
        assert_eq!(shares.basis, Basis::Window);
        assert_eq!(shares.amount, shares.plugins.iter().map(|share| share.amount).sum::<u64>());
        Some(shares.plugins.iter().map(|share| (share.plugin.to_string(), share.amount)).collect())
    }

    #[test]
    fn a_phase_has_the_calls_that_ended_with_it() {
        let window = window(true);
        let of = |function, start_ns, end_ns| plugins(of(&window, &call(function, start_ns, end_ns)));
        let first = |name: &str, ns| (name.to_owned(), ns);
        assert_eq!(of(Function::Filter, 1_200, 2_003), Some(vec![first("Fit", 70)]));
        assert_eq!(of(Function::Filter, 2_100, 4_990), Some(vec![first("Affinity", 700), first("Fit", 300)]));
        assert_eq!(of(Function::Score, 5_500, 7_001), Some(vec![first("Fit", 0)]));
        // Another phase, and the same one of the attempts before and after.
        assert_eq!(of(Function::PreFilter, 1_200, 2_000), None);
        assert_eq!(of(Function::Filter, 500, 900), None);
        assert_eq!(of(Function::Filter, 8_100, 9_000), None);
    }

    #[test]
    fn a_window_that_is_not_complete_says_so_and_has_no_shares() {
        let filter = call(Function::Filter, 1_200, 2_003);
        let timed = of(&window(false), &filter).expect("it is in the window");
        assert!(!timed.complete && timed.shares.is_none());
        let without = Window { phases: Vec::new(), ..window(true) };
        let timed = of(&without, &filter).expect("it is in the window");
        assert!(!timed.complete && timed.shares.is_none(), "its end was not seen");
    }

    #[test]
    fn a_window_without_an_attempt_is_told_when_the_next_one_comes() {
        let mut last = Last::default();
        assert!(!last.put(window(true), false));
        assert!(last.put(window(true), false), "no phase was found for the first");
        assert!(last.timed(&call(Function::Score, 5_500, 7_001)).is_some());
        assert!(!last.put(Window { phases: Vec::new(), ..window(true) }, false));
        assert!(!last.put(window(true), true), "a turn without phases has nothing to show");
        assert!(!last.put(window(true), true), "its attempt was there");
    }

    #[test]
    fn a_window_is_counted_and_the_attempt_in_its_turn_has_what_it_saw() {
        let mut assembler = scheduling();
        let finished = |mut assembler: Assembler| {
            assembler.exit(0);
            let [attempt] = <[_; 1]>::try_from(assembler.take_finished()).expect("one attempt was made");
            let shares: Vec<_> = attempt.shares.iter().map(|of| (of.function, of.amount)).collect();
            let stats = assembler.stats();
            (attempt.window, shares, [stats.windows, stats.incomplete_windows])
        };
        let shares = vec![(Function::Filter, 1_000), (Function::Score, 0)];
        assembler.window(window(true));
        assembler.window(window(true));
        assert_eq!(finished(assembler), (Some(true), shares.clone(), [2, 0]), "each share once");

        let mut assembler = scheduling();
        assembler.window(window(false));
        assembler.window(window(true));
        assert_eq!(finished(assembler), (Some(false), shares, [1, 1]), "the first one has missed something");
    }

    #[test]
    fn a_window_whose_attempt_never_comes_is_incomplete() {
        let mut assembler = Assembler::default();
        let other = Window { target: 7, ..window(true) };
        assembler.window(other.clone());
        assembler.window(other.clone());
        assembler.window(other);
        let stats = assembler.stats();
        assert_eq!([stats.windows, stats.incomplete_windows], [3, 2]);
    }
}
