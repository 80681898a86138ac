//! The governor: tracing may cost a traced program only a part of its CPU time. The cost is measured, and what exceeds the
//! budget is cut, part by part, in a fixed order.
//!
//! # Layout
//!
//! * [`Governor`] decides for one executable what runs, from what each [`Part`] has cost. Pure: no clock, no I/O.
//! * [`meter`]: what each part costs, from counted hits, samples and calls.
//!
//! # Design constraints
//!
//! * Attempts with their results are never cut: counts of attempts stay those of the traced program. If they alone cost more than the
//!   budget, [`Governor::is_over`] says so.
//! * What was cut is known: each change of the [`Cut`] is handed to the assemblers, and is part of every trace that it concerns.
//! * What costs more than the budget is cut at the first tick that shows it. It comes back later than that, and only where it
//!   would fit well: see `ROOM`.

pub mod meter;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use telemetry::Label as _;

use crate::program::Detail;

/// Time between two decisions. A cut takes a tenth of a second, so that the budget is kept after a second.
pub const TICK_NS: u64 = 500_000_000;
/// CPUs that a process is taken to use at least. The probes of one that is nearly idle cost next to nothing, whatever their part
/// of its time is.
pub const LEAST_CPUS: f64 = 0.1;
/// After a cut, the cost is expected to be at most this part of the budget.
const AFTER_CUT: f64 = 0.95;
/// What was cut comes back only if the cost is expected to stay below this part of the budget.
const ROOM: f64 = 0.7;
/// Only if that was so for this time.
const CALM_NS: u64 = 5_000_000_000;
/// What is remembered of the cost of a part that is cut loses one part in so many at each tick: the load may be another one.
const FORGETS: f64 = 100.0;

telemetry::labels! {
    /// A part of tracing that has a cost, in the order in which they are cut.
    pub Part {
        /// Windows in which calls are timed one by one.
        Windows = "exact_windows",
        /// Samples of CPU time.
        Samples = "samples",
        /// Hits of [`Detail::Full`], [`Detail::Maps`] and [`Detail::Idle`], and reads of lists and maps.
        Moves = "queue_moves",
        /// Hits of [`Detail::Plugins`].
        Plugins = "plugins",
        /// Hits of [`Detail::Phases`].
        Phases = "phases",
        /// Hits of [`Detail::Attempts`], which are never cut.
        Attempts = "attempts",
    }
}

/// Number of parts.
pub const PARTS: usize = 6;

/// The part of a level of detail.
#[must_use]
pub const fn part(detail: Detail) -> Part {
    match detail {
        Detail::Attempts => Part::Attempts,
        Detail::Phases => Part::Phases,
        Detail::Plugins => Part::Plugins,
        Detail::Full | Detail::Maps | Detail::Idle => Part::Moves,
        Detail::Windows => Part::Windows,
    }
}

/// What is cut: the last step of the order; the steps before it are cut as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// Everything runs that was asked for.
    #[default]
    Nothing,
    /// No exact windows.
    ExactWindows,
    /// Half of the samples.
    HalfOfSamples,
    /// No samples.
    Samples,
    /// No queue moves, and nothing that is read from lists and maps.
    QueueMoves,
    /// No calls of plugins.
    Plugins,
    /// No phases: of an attempt is left when it was, what it was for, and its result.
    Phases,
}

impl Cut {
    /// All steps, in order.
    pub const ALL: [Self; 7] = [
        Self::Nothing,
        Self::ExactWindows,
        Self::HalfOfSamples,
        Self::Samples,
        Self::QueueMoves,
        Self::Plugins,
        Self::Phases,
    ];
    /// The last step.
    pub const MOST: Self = Self::Phases;

    /// The name in traces, in the log and to clients: `nothing` if nothing is cut.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::ExactWindows => "exact_windows",
            Self::HalfOfSamples => "half_of_samples",
            Self::Samples => "samples",
            Self::QueueMoves => "queue_moves",
            Self::Plugins => "plugins",
            Self::Phases => "phases",
        }
    }

    /// How much of a part still runs.
    #[must_use]
    pub fn keeps(self, part: Part) -> f64 {
        let unless = |cut: Self| if self < cut { 1.0 } else { 0.0 };
        match part {
            Part::Windows => unless(Self::ExactWindows),
            Part::Samples if self == Self::HalfOfSamples => 0.5,
            Part::Samples => unless(Self::Samples),
            Part::Moves => unless(Self::QueueMoves),
            Part::Plugins => unless(Self::Plugins),
            Part::Phases => unless(Self::Phases),
            Part::Attempts => 1.0,
        }
    }

    /// Whether the sites of this level of detail stay attached.
    #[must_use]
    pub fn keeps_detail(self, detail: Detail) -> bool {
        self.keeps(part(detail)) > 0.0
    }
}

/// What tracing has cost the processes of an executable since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Nanoseconds by part, in the order of [`Part`].
    pub ns: [f64; PARTS],
    /// CPU time of the processes, nanoseconds.
    pub cpu_ns: f64,
    /// Time since the last tick, nanoseconds.
    pub elapsed_ns: f64,
}

impl Spent {
    /// The cost of all parts, nanoseconds.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.ns.iter().sum()
    }

    /// The CPU time that the budget is a part of.
    fn counted_cpu_ns(&self) -> f64 {
        self.cpu_ns.max(LEAST_CPUS * self.elapsed_ns)
    }

    /// What the cost of a part grows with: samples and windows are as many as there is CPU time or turns, and the others come
    /// with the hits that are never cut.
    fn base(&self, part: Part) -> f64 {
        match part {
            Part::Windows | Part::Samples => self.cpu_ns,
            Part::Moves | Part::Plugins | Part::Phases | Part::Attempts => self.ns[Part::Attempts.index()],
        }
    }
}

/// Decides what runs of the tracing of one executable.
#[derive(Clone, Debug)]
pub struct Governor {
    /// The part of the CPU time that tracing may cost.
    budget: f64,
    /// The most that can be cut.
    most: Cut,
    cut: Cut,
    /// What each part cost when it ran last, per [`Spent::base`].
    rates: [f64; PARTS],
    /// The mildest cut that would have fit in every tick of a calm time, and how long that lasts, nanoseconds.
    calm: Option<(Cut, f64)>,
    is_over: bool,
}

impl Governor {
    /// A governor that cuts nothing yet, and this at most. `budget` is a part of the CPU time, such as 0.02.
    #[must_use]
    pub const fn new(budget: f64, most: Cut) -> Self {
        Self { budget, most, cut: Cut::Nothing, rates: [0.0; PARTS], calm: None, is_over: false }
    }

    /// What is cut.
    #[must_use]
    pub const fn cut(&self) -> Cut {
        self.cut
    }

    /// Whether the cost exceeds the budget although nothing more can be cut.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// What may be spent.
    #[must_use]
    pub fn allowed_ns(&self, spent: &Spent) -> f64 {
        self.budget * spent.counted_cpu_ns()
    }

    /// Decides what is cut from here on, after a tick that has cost this.
    pub fn tick(&mut self, spent: &Spent) -> Cut {
        for part in Part::ALL {
            let (kept, base, rate) =
                (self.cut.keeps(*part), spent.base(*part), &mut self.rates[part.index()]);
            if kept > 0.0 && base > 0.0 {
                *rate = spent.ns[part.index()] / kept / base;
            } else if kept == 0.0 {
                *rate -= *rate / FORGETS;
            }
        }
        let allowed = self.allowed_ns(spent);
        let exceeds = spent.total() > allowed;
        let least = self.expected(spent, self.most);
        if exceeds {
            // What does not help is not cut.
            let helps = |to: &Cut| {
                let expected = self.expected(spent, *to);
                expected <= AFTER_CUT * allowed || expected <= least
            };
            let mut harder = Cut::ALL.into_iter().filter(|to| (self.cut..=self.most).contains(to));
            self.cut = harder.find(helps).unwrap_or(self.most);
            self.calm = None;
        } else {
            self.relax(spent, allowed);
        }
        self.is_over = exceeds && least > allowed;
        self.cut
    }

    /// Takes back cuts after a calm time.
    fn relax(&mut self, spent: &Spent, allowed: f64) {
        let fits = |to: &Cut| self.expected(spent, *to) <= ROOM * allowed;
        let Some(mildest) = Cut::ALL.into_iter().find(|to| *to < self.cut && fits(to)) else {
            self.calm = None;
            return;
        };
        let (worst, lasted) = self.calm.unwrap_or((mildest, 0.0));
        let (worst, lasted) = (worst.max(mildest), lasted + spent.elapsed_ns);
        self.calm = Some((worst, lasted));
        if lasted >= CALM_NS as f64 {
            self.cut = worst;
            self.calm = None;
        }
    }

    /// The cost of the same tick with this cut.
    fn expected(&self, spent: &Spent, to: Cut) -> f64 {
        let of = |part: &Part| {
            let (now, then) = (self.cut.keeps(*part), to.keeps(*part));
            if now > 0.0 {
                spent.ns[part.index()] / now * then
            } else {
                self.rates[part.index()] * spent.base(*part) * then
            }
        };
        Part::ALL.iter().map(of).sum()
    }
}
