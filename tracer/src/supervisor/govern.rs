//! Keeps tracing within its budget: asks the governors twice a second, and carries out what they decide.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use gotrace::{
    discover::{FileId, Process, cpu_ns, load_bias},
    governor::{
        Cut, TICK_NS,
        meter::{Change, Governors, Hits, Running},
    },
    memory::Place,
    probe::Probes,
};
use rustix::time::ClockId;
use tracing::{info, warn};

use super::{Known, Supervisor, memory, nanoseconds};

const TICK: Duration = Duration::from_nanos(TICK_NS);

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// The governors, for a budget that is a part of the CPU time.
pub(super) fn governors(budget: f64, probes: &mut Probes) -> Governors {
    let traps = probes.measure_traps();
    info!(
        emulated_ns = traps.emulated_ns,
        single_stepped_ns = traps.single_stepped_ns,
        measured = traps.is_measured,
        "tracing may cost {} of a program's CPU time",
        percent(budget)
    );
    // Where detaching takes seconds, sites stay.
    let most = if probes.is_quick() { Cut::MOST } else { Cut::Samples };
    Governors::new(budget, traps, most)
}

impl Known {
    /// The sites that are attached while this is cut.
    pub(super) fn live(&self, cut: Cut) -> Vec<Place> {
        self.places.iter().filter(|place| cut.keeps_detail(place.detail)).copied().collect()
    }
}

impl Supervisor {
    /// What is cut of an executable.
    pub(super) fn cut_of(&self, file: FileId) -> Cut {
        self.governors.as_ref().map_or(Cut::Nothing, |governors| governors.cut(file))
    }

    /// Decides what is cut, if it is time for that.
    pub(super) fn govern(&mut self) {
        let elapsed = self.governed.elapsed();
        if self.governors.is_none() || elapsed < TICK {
            return;
        }
        let running = self.running();
        let Some(governors) = &mut self.governors else { return };
        self.governed = Instant::now();
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let changes = governors.tick(elapsed_ns, self.probes.kernel(), running);
        for change in changes {
            self.carry_out(change);
        }
        if let Some(governors) = &self.governors {
            self.metrics.overhead(governors);
        }
    }

    /// The executables that are probed, with what their probes have done.
    fn running(&self) -> Vec<Running> {
        let lost: HashMap<u32, u64> = self.probes.over_limit().collect();
        let running = |file: FileId| {
            let mut hits = Hits::default();
            let of_workers = self.workers.iter().filter_map(|worker| worker.hits(file, &self.probes));
            of_workers.for_each(|of_worker| hits.add(of_worker));
            let mut cpu = HashMap::new();
            for (target, process) in self.processes_of(file) {
                hits.lost += lost.get(target).copied().unwrap_or_default();
                cpu.extend(cpu_ns(process.id.pid).map(|ns| (process.id.pid, ns)));
            }
            Running { file, hits, cpu_ns: cpu }
        };
        self.probed().map(running).collect()
    }

    /// The executables that have probes.
    fn probed(&self) -> impl Iterator<Item = FileId> {
        let probed = self.executables.iter().filter(|(file, traced)| traced.probed_as == Some(**file));
        probed.map(|(file, _)| *file)
    }

    /// The traced processes with the probes of this file.
    fn processes_of(&self, file: FileId) -> impl Iterator<Item = &(u32, Process)> {
        let probed_as = |process: &Process| self.executables.get(&process.file)?.probed_as;
        self.targets.values().filter(move |(_, process)| probed_as(process) == Some(file))
    }

    fn carry_out(&mut self, Change { file, from, to, ratio }: Change) {
        let (cost, cut) = (percent(ratio), to.name());
        let path = self.executables.get(&file).map(|traced| traced.handle.path.display().to_string());
        if to > from {
            warn!(cost, cut, path, "tracing costs more than its budget");
            // What comes from here on is not whole, and what is in the ring buffer is.
            self.drain();
            self.say_cut(file, to);
            if let Err(error) = self.apply(file, to) {
                warn!(cut, path, "what is cut cannot be detached: {error:#}");
            }
        } else {
            match self.restore(file, to) {
                Ok(()) => {
                    info!(cost, cut, path, "tracing is within its budget again");
                    // Records of calls that began before all sites were there.
                    self.drain();
                    self.say_cut(file, to);
                }
                Err(error) => {
                    warn!(path, "what was cut cannot be attached again: {error:#}");
                    if let Some(governors) = &mut self.governors {
                        governors.stays(file, from);
                    }
                    if let Err(error) = self.apply(file, from) {
                        warn!(path, "what is cut cannot be detached again: {error:#}");
                    }
                    return;
                }
            }
        }
        self.metrics.tracing.cut(from, to);
        self.set_samples(file, to);
    }

    fn say_cut(&mut self, file: FileId, cut: Cut) {
        let now = nanoseconds(ClockId::Monotonic);
        self.workers.iter_mut().for_each(|worker| worker.say_cut(file, now, cut));
    }

    /// Detaches and attaches what this cut makes different.
    fn apply(&mut self, file: FileId, cut: Cut) -> anyhow::Result<()> {
        let Self { workers, probes, executables, .. } = self;
        let traced = executables.get(&file).context("its executable was let go meanwhile")?;
        for worker in workers {
            worker.cut(file, cut, probes, &traced.handle)?;
        }
        Ok(())
    }

    /// Attaches again what this cut keeps, and sees to it that the memory of each process has it.
    fn restore(&mut self, file: FileId, cut: Cut) -> anyhow::Result<()> {
        self.apply(file, cut)?;
        let traced = self.executables.get(&file).context("its executable was let go meanwhile")?;
        let known = traced.plan.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
        let live = known.live(cut);
        for (_, process) in self.processes_of(file) {
            let pid = process.id.pid;
            // It may have ended.
            let Ok(bias) = load_bias(pid, known.summary.identity.entry_point) else { continue };
            let Ok(compared) = memory(process, &live, bias) else { continue };
            let missing = live.len() - compared.probed;
            anyhow::ensure!(missing == 0, "the memory of process {pid} has no breakpoint at {missing} sites");
        }
        Ok(())
    }

    /// Pauses the samples of an executable's processes, or the half of all samples.
    fn set_samples(&mut self, file: FileId, cut: Cut) {
        let processes: Vec<Process> = self.processes_of(file).map(|(_, process)| process.clone()).collect();
        for process in processes {
            self.probes.pause_samples(&process, cut >= Cut::Samples);
        }
        // The clock of a CPU ticks for all processes alike.
        let cuts = self.probed().map(|file| self.cut_of(file)).filter(|cut| *cut < Cut::Samples);
        let needed = cuts.min().unwrap_or_default();
        self.probes.halve_samples(needed == Cut::HalfOfSamples);
        if let Some(period_ns) = self.probes.sample_period_ns() {
            self.workers.iter_mut().for_each(|worker| worker.sampled_every(period_ns));
        }
    }
}
