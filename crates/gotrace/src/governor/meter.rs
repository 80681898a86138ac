//! What tracing costs: counted hits, times what a hit of their class costs here.
//!
//! A hit costs its trap, which is measured when the daemon starts (see [`crate::probe`]), and its eBPF program, whose time the
//! program itself measures in the traced process. What the probes of a window cost is measured in the window. A sample costs an
//! interrupt and its program.

use std::collections::HashMap;

use goexe::Class;
use telemetry::Label as _;

use super::{Cut, Governor, PARTS, Part, Spent};
use crate::{discover::FileId, program::Detail};

/// What a trap costs where it cannot be measured: emulated, single-stepped. Nanoseconds, on a virtual machine.
const TRAPS_NS: [u64; 2] = [1_200, 4_000];
/// What an eBPF program takes before any was timed, nanoseconds.
const PROGRAM_NS: f64 = 900.0;
/// The timed programs of a tick that suffice for an average.
const ENOUGH: u64 = 8;
/// What an interrupt costs that takes a sample, nanoseconds, besides its program.
const INTERRUPT_NS: f64 = 1_000.0;
/// The part of the budget that windows may cost: what a window costs is spread over as much time as that takes, and only then may
/// the next one begin.
const WINDOWS: f64 = 0.1;
/// The part of the CPU time that they may cost at most, however large the budget is.
const MOST_OF_WINDOWS: f64 = 0.005;

/// What the trap of a hit costs on this machine, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traps {
    /// At an instruction that the kernel emulates.
    pub emulated_ns: u64,
    /// At one that it executes in single steps.
    pub single_stepped_ns: u64,
    /// Whether this was measured; else it is usual on virtual machines.
    pub is_measured: bool,
}

impl Default for Traps {
    fn default() -> Self {
        let [emulated_ns, single_stepped_ns] = TRAPS_NS;
        Self { emulated_ns, single_stepped_ns, is_measured: false }
    }
}

impl Traps {
    /// By class.
    #[must_use]
    pub const fn ns(self, class: Class) -> u64 {
        match class {
            Class::Emulated => self.emulated_ns,
            Class::SingleStepped => self.single_stepped_ns,
        }
    }
}

/// What an executable's probes have done so far. Everything only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Hits at each site, in any order that stays the same, with what they are.
    pub sites: Vec<(Detail, Class, u64)>,
    /// Of these, at sites that read a list or a map.
    pub walks: u64,
    /// Hits of its processes that were lost to their limit.
    pub lost: u64,
    /// What the probes of windows cost, nanoseconds.
    pub windows_ns: u64,
}

impl Hits {
    /// Adds those of another program in the same executable.
    pub fn add(&mut self, other: Self) {
        let Self { sites, walks, lost, windows_ns } = other;
        self.sites.extend(sites);
        self.walks += walks;
        self.lost += lost;
        self.windows_ns += windows_ns;
    }

    fn seen(&self) -> u64 {
        self.sites.iter().map(|(_, _, hits)| hits).sum()
    }

    /// What came since `before`.
    fn since(&self, before: &Self) -> Self {
        let earlier = |index: usize| before.sites.get(index).map_or(0, |(_, _, hits)| *hits);
        let more = |(index, (detail, class, hits)): (usize, &(Detail, Class, u64))| {
            (*detail, *class, hits.saturating_sub(earlier(index)))
        };
        Self {
            sites: self.sites.iter().enumerate().map(more).collect(),
            walks: self.walks.saturating_sub(before.walks),
            lost: self.lost.saturating_sub(before.lost),
            windows_ns: self.windows_ns.saturating_sub(before.windows_ns),
        }
    }
}

/// Counters of the eBPF programs, which are for all processes together. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Hits that were lost for another reason than a process's limit.
    pub lost: u64,
    /// Programs that were timed.
    pub timed_hits: u64,
    /// Their time, nanoseconds.
    pub timed_ns: u64,
    /// The time of programs that read a list or a map, nanoseconds.
    pub walk_ns: u64,
    /// Samples of traced processes.
    pub samples: u64,
    /// The time of their programs, nanoseconds.
    pub sample_ns: u64,
}

impl Kernel {
    fn since(self, before: Self) -> Self {
        Self {
            lost: self.lost.saturating_sub(before.lost),
            timed_hits: self.timed_hits.saturating_sub(before.timed_hits),
            timed_ns: self.timed_ns.saturating_sub(before.timed_ns),
            walk_ns: self.walk_ns.saturating_sub(before.walk_ns),
            samples: self.samples.saturating_sub(before.samples),
            sample_ns: self.sample_ns.saturating_sub(before.sample_ns),
        }
    }
}

/// An executable that is traced, at a tick.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its file.
    pub file: FileId,
    /// What its probes have done.
    pub hits: Hits,
    /// CPU time of each of its processes so far, by pid, nanoseconds.
    pub cpu_ns: HashMap<u32, u64>,
}

/// A decision that changes something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The executable.
    pub file: FileId,
    /// What was cut.
    pub from: Cut,
    /// What is cut from here on.
    pub to: Cut,
    /// What tracing has cost, as a part of the CPU time.
    pub ratio: f64,
}

/// Sums over all executables.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// Cost since the start by part, nanoseconds.
    pub ns: [f64; PARTS],
    /// Hits since the start by class: at instructions that the kernel emulates, and at those that it executes in single steps.
    pub hits: [u64; 2],
    /// CPU time of traced processes since the start, nanoseconds.
    pub cpu_ns: f64,
    /// Cost in the last tick as a part of the CPU time, of the executable for which it is highest.
    pub ratio: f64,
    /// The most that is cut of an executable.
    pub cut: Cut,
    /// Executables whose cost exceeds the budget although nothing more can be cut.
    pub over: usize,
    /// What an eBPF program takes, nanoseconds.
    pub program_ns: f64,
}

/// The governors of all executables, with what they decide by.
#[derive(Debug)]
pub struct Governors {
    budget: f64,
    most: Cut,
    traps: Traps,
    files: HashMap<FileId, Governed>,
    kernel: Kernel,
    program_ns: f64,
    totals: Totals,
}

#[derive(Debug)]
struct Governed {
    governor: Governor,
    hits: Hits,
    cpu_ns: HashMap<u32, u64>,
    /// What windows have cost that is not spread yet.
    windows_left_ns: f64,
    ratio: f64,
}

impl Governors {
    /// Governors that allow tracing this part of the CPU time, where a trap costs this, and that cut this at most.
    #[must_use]
    pub fn new(budget: f64, traps: Traps, most: Cut) -> Self {
        Self {
            budget,
            most,
            traps,
            files: HashMap::new(),
            kernel: Kernel::default(),
            program_ns: PROGRAM_NS,
            totals: Totals { program_ns: PROGRAM_NS, ..Totals::default() },
        }
    }

    /// What a trap costs.
    #[must_use]
    pub const fn traps(&self) -> Traps {
        self.traps
    }

    /// The part of the CPU time that tracing may cost.
    #[must_use]
    pub const fn budget(&self) -> f64 {
        self.budget
    }

    /// What is cut of an executable.
    #[must_use]
    pub fn cut(&self, file: FileId) -> Cut {
        self.files.get(&file).map_or(Cut::Nothing, |governed| governed.governor.cut())
    }

    /// Whether the next window of an executable may begin.
    #[must_use]
    pub fn has_room_for_window(&self, file: FileId) -> bool {
        self.files.get(&file).is_none_or(|governed| governed.windows_left_ns == 0.0)
    }

    /// The sums so far.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Undoes a decision that could not be carried out: this is cut.
    pub fn stays(&mut self, file: FileId, cut: Cut) {
        if let Some(governed) = self.files.get_mut(&file) {
            governed.governor.cut = cut;
        }
    }

    /// Forgets an executable whose probes are detached.
    pub fn forget(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// Decides for each executable, `elapsed_ns` after the last time. Those that are not among `running` are forgotten.
    pub fn tick(&mut self, elapsed_ns: u64, kernel: Kernel, running: Vec<Running>) -> Vec<Change> {
        let more = kernel.since(self.kernel);
        self.kernel = kernel;
        if more.timed_hits >= ENOUGH {
            self.program_ns = more.timed_ns as f64 / more.timed_hits as f64;
        }
        let Self { budget, most, traps, files, program_ns, totals, kernel: _ } = self;
        files.retain(|file, _| running.iter().any(|running| running.file == *file));
        let mut ticks = Vec::with_capacity(running.len());
        for Running { file, hits, cpu_ns } in running {
            let Some(governed) = files.get_mut(&file) else {
                // What came before is of no tick.
                files.insert(file, Governed::new(Governor::new(*budget, *most), hits, cpu_ns));
                continue;
            };
            let since = hits.since(&governed.hits);
            let before = |pid: &u32| governed.cpu_ns.get(pid).copied();
            let cpu =
                cpu_ns.iter().filter_map(|(pid, now)| Some(now.saturating_sub(before(pid)?))).sum::<u64>();
            (governed.hits, governed.cpu_ns) = (hits, cpu_ns);
            ticks.push((file, since, cpu as f64));
        }
        let seen = ticks.iter().map(|(_, hits, _)| hits.seen()).sum::<u64>();
        let walks = ticks.iter().map(|(_, hits, _)| hits.walks).sum::<u64>();
        let cpu = ticks.iter().map(|(.., cpu)| cpu).sum::<f64>();
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let sampled_ns = more.sample_ns as f64 + more.samples as f64 * INTERRUPT_NS;
        let mut changes = Vec::new();
        for (file, hits, cpu_ns) in ticks {
            let Some(governed) = files.get_mut(&file) else { continue };
            let own = hits.seen();
            let lost = hits.lost as f64 + more.lost as f64 * share(own as f64, seen as f64);
            let (mut ns, counts) = governed.hits_ns(&hits, lost, *traps, *program_ns);
            totals.hits.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more.round() as u64);
            ns[Part::Moves.index()] += more.walk_ns as f64 * share(hits.walks as f64, walks as f64);
            ns[Part::Samples.index()] = sampled_ns * share(cpu_ns, cpu);
            let mut spent = Spent { ns, cpu_ns, elapsed_ns: elapsed_ns as f64 };
            ns[Part::Windows.index()] = governed.spread(hits.windows_ns as f64, &spent);
            let from = governed.governor.cut();
            // What is left of the last one is no reason to cut anything else.
            spent.ns[Part::Windows.index()] = from.keeps(Part::Windows) * ns[Part::Windows.index()];
            let to = governed.governor.tick(&spent);
            governed.ratio = share(spent.total(), cpu_ns);
            totals.ns.iter_mut().zip(ns).for_each(|(sum, ns)| *sum += ns);
            totals.cpu_ns += cpu_ns;
            if from != to {
                changes.push(Change { file, from, to, ratio: governed.ratio });
            }
        }
        totals.ratio = files.values().map(|governed| governed.ratio).fold(0.0, f64::max);
        totals.cut = files.values().map(|governed| governed.governor.cut()).max().unwrap_or_default();
        totals.over = files.values().filter(|governed| governed.governor.is_over()).count();
        totals.program_ns = *program_ns;
        changes
    }
}

impl Governed {
    fn new(governor: Governor, hits: Hits, cpu_ns: HashMap<u32, u64>) -> Self {
        Self { governor, hits, cpu_ns, windows_left_ns: 0.0, ratio: 0.0 }
    }

    /// What hits cost by part, and their number by class. Hits that were lost are like the others.
    fn hits_ns(&self, hits: &Hits, lost: f64, traps: Traps, program_ns: f64) -> ([f64; PARTS], [f64; 2]) {
        let known = if hits.seen() > 0 { hits } else { &self.hits };
        let seen = known.seen() as f64;
        let scale = match hits.seen() {
            _ if seen == 0.0 => 0.0,
            0 => lost / seen,
            _ => 1.0 + lost / seen,
        };
        let (mut ns, mut counts) = ([0.0; PARTS], [0.0; 2]);
        for (detail, class, count) in &known.sites {
            let count = *count as f64 * scale;
            counts[*class as usize] += count;
            ns[super::part(*detail).index()] += count * (traps.ns(*class) as f64 + program_ns);
        }
        (ns, counts)
    }

    /// What windows cost in this tick, if the cost of each is spread. A budget of all CPU time limits nothing.
    fn spread(&mut self, ended_ns: f64, spent: &Spent) -> f64 {
        let all = self.windows_left_ns + ended_ns;
        let budget = self.governor.budget;
        let part = (WINDOWS * budget).min(MOST_OF_WINDOWS);
        let most = if budget < 1.0 { part * spent.counted_cpu_ns() } else { all };
        let now = all.min(most);
        self.windows_left_ns = all - now;
        now
    }
}
