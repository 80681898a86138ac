//! Windows: the calls of some functions, counted and timed one by one for one turn of a process, such as one pass of its main
//! loop. The sums are made in the kernel: see [`wire::window`].

use std::{collections::BTreeMap, sync::Arc};

use goexe::Class;
use serde::{Deserialize, Serialize};
use wire::{
    NO_TEXTS, Site,
    window::{Caller, Kind, NO_END, OVER, SLOTS, SumKey},
};

use crate::{
    plan::{PlannedSite, Role},
    probe::Counted,
    program::{Program, Turn},
};

/// The calls of one turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Window<F> {
    /// Target number of the process.
    pub target: u32,
    /// Begin of the turn, `CLOCK_MONOTONIC`, nanoseconds.
    pub begin_ns: u64,
    /// End of the turn, or of what was seen of it.
    pub end_ns: u64,
    /// Whether each call of the turn is in it.
    pub complete: bool,
    /// The turn's phases, in the order of their ends.
    #[serde(default = "Vec::new")]
    pub phases: Vec<Phase<F>>,
}

/// The calls of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Phase<F> {
    /// The phase.
    pub function: F,
    /// Its end, `CLOCK_MONOTONIC`, nanoseconds.
    pub end_ns: u64,
    /// Its calls, by what was called.
    #[serde(default)]
    pub calls: Vec<Calls>,
}

/// The calls of one implementation in a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Calls {
    /// Name of the implementation; `None` if its type has none.
    #[serde(default)]
    pub name: Option<Arc<str>>,
    /// Number of calls that returned.
    pub count: u64,
    /// Their time, nanoseconds.
    pub total_ns: u64,
    /// Number of calls by their result.
    #[serde(default)]
    pub results: BTreeMap<i64, u64>,
    /// Number of calls that did not return.
    #[serde(default)]
    pub unwound: u64,
    /// Number of calls in each slot of a histogram: see [`SLOTS`].
    #[serde(default)]
    pub slots: Vec<u64>,
}

/// The sites of a turn in an executable.
#[derive(Clone, Debug)]
pub(crate) struct Timing<F> {
    pub(crate) sites: Vec<TimedAt>,
    /// The phases, by the number in [`TimedAt::function`].
    phases: Vec<F>,
}

/// An instruction to probe for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedAt {
    /// Offset in the file.
    pub file_offset: u64,
    /// What to read.
    pub spec: Site,
    /// See [`wire::window::TimedSite::function`].
    pub function: u8,
    /// See [`wire::window::TimedSite::kind`].
    pub kind: Kind,
    /// See [`wire::window::TimedSite::above`].
    pub above: u8,
}

/// The sites of the program's turn; `None` if there is nothing to time.
pub(crate) fn timing<P: Program>(all: &[PlannedSite<P>]) -> Option<Timing<P::Function>> {
    let Turn { turn, timed } = P::TURN?;
    let at = |site: &PlannedSite<P>, function, kind| {
        Some(TimedAt {
            file_offset: site.file_offset,
            spec: Site { texts: NO_TEXTS, ..site.spec },
            function,
            kind,
            above: u8::try_from(site.stack_depth.checked_neg()?).ok()?,
        })
    };
    let of = |function| all.iter().filter(move |site| site.function == function);
    let ends = |function| of(function).filter(|site| is_end(site.role));
    let begins = |function| of(function).filter(|site| site.role == Role::Entry);
    let (mut sites, mut phases) = (Vec::new(), Vec::new());
    for (function, phase) in timed {
        // A call is timed where that costs less than most calls take.
        let is_cheap = |site: &PlannedSite<P>| site.class == Class::Emulated && site.list.is_none();
        let number = u8::try_from(phases.len()).ok()?;
        let cheap = begins(*function).filter(|site| is_cheap(site));
        let mut of_calls: Vec<_> = cheap.filter_map(|site| at(site, number, Kind::CallBegins)).collect();
        let has_begins = !of_calls.is_empty();
        if !has_begins || ends(*function).next().is_none() || !ends(*function).all(is_cheap) {
            continue;
        }
        of_calls.extend(ends(*function).filter_map(|site| at(site, number, Kind::CallEnds)));
        // The end of a phase says nothing about the stack.
        let marks =
            ends(*phase).map(|site| PlannedSite { stack_depth: 0, ..site.clone() }).collect::<Vec<_>>();
        if marks.is_empty() {
            continue;
        }
        of_calls.extend(marks.iter().filter_map(|site| at(site, number, Kind::PhaseEnds)));
        sites.extend(of_calls);
        phases.push(*phase);
    }
    let turns = begins(turn).filter_map(|site| at(site, 0, Kind::TurnBegins)).collect::<Vec<_>>();
    let over = ends(turn).filter_map(|site| at(site, 0, Kind::TurnEnds)).collect::<Vec<_>>();
    if phases.is_empty() || turns.is_empty() || over.is_empty() {
        return None;
    }
    sites.extend(turns);
    sites.extend(over);
    Some(Timing { sites, phases })
}

fn is_end(role: Role) -> bool {
    match role {
        Role::Entry | Role::InTurn => false,
        Role::ReturnSite | Role::NextEntry | Role::Ret | Role::Metric => true,
    }
}

impl<F: Copy> Timing<F> {
    /// The window of what was counted. `name` gives the implementation with this type descriptor.
    pub(crate) fn window(&self, counted: Counted, name: impl Fn(u64) -> Option<Arc<str>>) -> Window<F> {
        let Counted { window, sums, open } = counted;
        let marks = window.marks.iter().take(window.marks_len as usize);
        let phase = |mark: &wire::window::Mark| {
            let function = *self.phases.get(usize::try_from(mark.function).ok()?)?;
            Some((Phase { function, end_ns: mark.time_ns, calls: Vec::new() }, mark.function))
        };
        let mut phases: Vec<_> = marks.filter_map(phase).collect();
        // With their time, which may be negative on a CPU.
        let mut by_phase: BTreeMap<(usize, u64), (Calls, i64)> = BTreeMap::new();
        // The phase that was running, if it is one that makes these calls: others are made elsewhere too.
        let of = |marks: u32, function: u64| {
            let place = marks as usize;
            phases.get(place).is_some_and(|(_, phase)| *phase == function).then_some(place)
        };
        for (SumKey { begin, end, function, marks }, sum) in sums {
            let Some(place) = of(marks, function.into()) else { continue };
            let (calls, total_ns) = by_phase.entry((place, begin)).or_default();
            if end == NO_END {
                calls.unwound = calls.unwound.saturating_add(sum.calls);
                continue;
            }
            calls.count = calls.count.saturating_add(sum.calls);
            *total_ns = total_ns.saturating_add(sum.total_ns.cast_signed());
            *calls.results.entry(end.cast_signed()).or_default() += sum.calls;
            calls.slots.resize(SLOTS, 0);
            calls.slots.iter_mut().zip(sum.slots).for_each(|(all, some)| *all += u64::from(some));
        }
        // What is still open has not returned. Of which phase it was is known if there is only one.
        for (Caller { function, .. }, call) in open.into_iter().filter(|(_, call)| call.begin_ns != 0) {
            let after = |(phase, of): &(Phase<F>, u64)| *of == function && call.begin_ns <= phase.end_ns;
            let Some(place) = phases.iter().position(after) else { continue };
            by_phase.entry((place, call.begin)).or_default().0.unwound += 1;
        }
        for ((place, begin), (mut calls, total_ns)) in by_phase {
            calls.name = name(begin);
            calls.total_ns = total_ns.max(0).cast_unsigned();
            while calls.slots.last() == Some(&0) {
                calls.slots.pop();
            }
            if let Some((phase, _)) = phases.get_mut(place) {
                phase.calls.push(calls);
            }
        }
        Window {
            target: window.target,
            begin_ns: window.begin_ns,
            end_ns: window.end_ns.max(window.begin_ns),
            complete: window.state == OVER && window.lost == 0,
            phases: phases.into_iter().map(|(phase, _)| phase).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::window::{BROKEN, Mark, OPEN, OpenCall, Sum, Window as Counters};

    use super::*;

    const ALICE: u64 = 0x1000;
    const BOB: u64 = 0x2000;

    fn counters(state: u32, marks: &[(u64, u64)]) -> Counters {
        let mut window = Counters { target: 3, state, begin_ns: 100, end_ns: 900, ..Counters::default() };
        window.marks_len = u32::try_from(marks.len()).expect("they are few");
        for (mark, (time_ns, function)) in window.marks.iter_mut().zip(marks) {
            *mark = Mark { time_ns: *time_ns, function: *function };
        }
        window
    }

    fn sum(key: (u64, u64, u32, u32), calls: u64, total_ns: i64, slot: usize) -> (SumKey, Sum) {
        let (begin, end, function, marks) = key;
        let mut slots = [0; SLOTS];
        slots[slot] = u32::try_from(calls).expect("they are few");
        (
            SumKey { begin, end, function, marks },
            Sum { calls, total_ns: total_ns.cast_unsigned(), probes_ns: 0, slots },
        )
    }

    fn window(counted: Counted) -> Window<&'static str> {
        let timing = Timing { sites: Vec::new(), phases: vec!["roast", "season"] };
        timing.window(counted, |address| match address {
            ALICE => Some("Alice".into()),
            BOB => Some("Bob".into()),
            _ => None,
        })
    }

    #[test]
    fn calls_are_of_the_phase_that_ended_next_and_of_no_other() {
        let sums = vec![
            // On two CPUs, with two results.
            sum((ALICE, 0, 0, 0), 2, 500, 8),
            sum((ALICE, 0, 0, 0), 1, -20, 0),
            sum((ALICE, 2, 0, 0), 4, 1_000, 8),
            sum((BOB, 0, 1, 1), 5, 50, 4),
            // Between two phases, and behind the last one.
            sum((BOB, 0, 0, 1), 7, 70, 4),
            sum((BOB, 0, 0, 2), 9, 90, 4),
        ];
        let window =
            window(Counted { window: counters(OVER, &[(300, 0), (800, 1)]), sums, open: Vec::new() });
        assert!(window.complete);
        assert_eq!((window.target, window.begin_ns, window.end_ns), (3, 100, 900));
        let mut slots = vec![1, 0, 0, 0, 0, 0, 0, 0, 6];
        let alice = Calls {
            name: Some("Alice".into()),
            count: 7,
            total_ns: 1_480,
            results: [(0, 3), (2, 4)].into(),
            unwound: 0,
            slots: slots.clone(),
        };
        slots = vec![0, 0, 0, 0, 5];
        let bob = Calls {
            name: Some("Bob".into()),
            count: 5,
            total_ns: 50,
            results: [(0, 5)].into(),
            unwound: 0,
            slots,
        };
        let phase = |function, end_ns, calls| Phase { function, end_ns, calls: vec![calls] };
        assert_eq!(window.phases, [phase("roast", 300, alice), phase("season", 800, bob)]);
    }

    #[test]
    fn a_call_that_a_panic_has_left_is_counted_and_has_no_time() {
        let open = |function, begin_ns| {
            let call = OpenCall { begin_ns, begin: BOB, ..OpenCall::default() };
            (Caller { g: begin_ns, function }, call)
        };
        let window = window(Counted {
            window: counters(OVER, &[(300, 0)]),
            sums: vec![sum((ALICE, NO_END, 0, 0), 2, 0, 0)],
            // One that is over, one that is open, and one without its phase.
            open: vec![open(0, 0), open(0, 200), open(1, 210)],
        });
        let left = |name: &str, unwound| Calls { name: Some(name.into()), unwound, ..Calls::default() };
        assert_eq!(window.phases[0].calls, [left("Alice", 2), left("Bob", 1)]);
    }

    #[test]
    fn a_window_with_a_loss_or_without_an_end_is_not_complete() {
        let complete = |of| {
            let counted = Counted { window: of, sums: Vec::new(), open: Vec::new() };
            window(counted).complete
        };
        assert!(complete(counters(OVER, &[])));
        assert!(!complete(counters(OPEN, &[])));
        assert!(!complete(counters(BROKEN, &[])));
        assert!(!complete(Counters { lost: 1, ..counters(OVER, &[]) }));
    }
}
