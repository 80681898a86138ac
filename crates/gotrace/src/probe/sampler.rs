//! Samples of traced processes: perf events on the clock of each CPU, while a process is traced.
//!
//! One event per CPU, not per thread: an event of a thread is a timer that the kernel starts and stops at every switch to and
//! from it, and Go's threads switch often. One per CPU costs its CPU a fixed number of interrupts a second, and no other
//! process more than the look-up that ends it.

use std::{error::Error as _, fs};

use aya::{
    Ebpf,
    maps::{Array, MapData},
    programs::{
        PerfEvent, ProgramError,
        perf_event::{PerfEventConfig, PerfEventLinkId, PerfEventScope, SamplePolicy, SoftwareEvent},
    },
    util::online_cpus,
};
use tracing::warn;
use wire::{Code, CodeRange, MAX_PLANS, RANGES_PER_TABLE};

use super::{Error, take, unfit};

/// Settings of the kernel about samples.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
const MAX_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
/// The strictest level of the kernel itself; some distributions have more.
const STRICTEST: i64 = 2;

/// Name of the eBPF program.
const PROGRAM: &str = "on_sample";

/// The eBPF program that takes samples, and its maps.
pub(super) struct Sampler {
    hz: u64,
    /// Whether half as many are taken.
    is_halved: bool,
    /// Open while a process is sampled.
    links: Vec<PerfEventLinkId>,
    ranges: Array<MapData, CodeRange>,
    codes: Array<MapData, Code>,
    free_tables: Vec<u32>,
    /// The places of sampled processes with their code, and whether their samples are paused.
    sampled: Vec<(u32, Code, bool)>,
}

impl Sampler {
    /// Loads the program; `None` if it is off, or the kernel refuses it. Traces are complete without it.
    pub(super) fn load(ebpf: &mut Ebpf, hz: u32) -> Result<Option<Self>, Error> {
        if hz == 0 {
            return Ok(None);
        }
        if let Err(error) = program(ebpf)?.load() {
            warn!("no samples are taken: the kernel refuses `{PROGRAM}`: {error}");
            return Ok(None);
        }
        Ok(Some(Self {
            hz: hz.into(),
            is_halved: false,
            links: Vec::new(),
            ranges: take(ebpf, "RANGES")?,
            codes: take(ebpf, "CODES")?,
            free_tables: (0..MAX_PLANS).rev().map(|table| table * RANGES_PER_TABLE).collect(),
            sampled: Vec::new(),
        }))
    }

    /// Opens the events, if none are open, and closes them again.
    pub(super) fn check(&mut self, ebpf: &mut Ebpf) -> Result<(), Error> {
        if self.links.is_empty() {
            self.links = open(program(ebpf)?, self.rate())?;
            self.close(ebpf);
        }
        Ok(())
    }

    /// CPU time that a sample stands for, nanoseconds.
    pub(super) fn period_ns(&self) -> u64 {
        1_000_000_000 / self.rate()
    }

    /// Samples per second and CPU.
    fn rate(&self) -> u64 {
        if self.is_halved { (self.hz / 2).max(1) } else { self.hz }
    }

    /// Halves the rate, or takes that back. If the kernel refuses, the rate stays.
    pub(super) fn halve(&mut self, ebpf: &mut Ebpf, is_halved: bool) -> Result<(), Error> {
        let before = std::mem::replace(&mut self.is_halved, is_halved);
        if before == is_halved || self.links.is_empty() {
            return Ok(());
        }
        let links = open(program(ebpf)?, self.rate()).inspect_err(|_| self.is_halved = before)?;
        self.close(ebpf);
        self.links = links;
        Ok(())
    }

    /// Writes a table of ranges and returns the place of the first.
    pub(super) fn add(&mut self, ranges: &[CodeRange]) -> Result<u32, Error> {
        let first = self.free_tables.pop().ok_or(Error::Full("executable"))?;
        for (place, range) in (first..).zip(ranges.iter().take(RANGES_PER_TABLE as usize)) {
            self.ranges.set(place, range, 0).map_err(|error| unfit("RANGES", &error))?;
        }
        Ok(first)
    }

    /// Makes the place of a table free. No process uses it any more.
    pub(super) fn remove(&mut self, first: u32) {
        self.free_tables.push(first);
    }

    /// Samples the process at this place of the targets.
    pub(super) fn start(&mut self, ebpf: &mut Ebpf, place: u32, code: &Code) -> Result<(), Error> {
        self.codes.set(place, code, 0).map_err(|error| unfit("CODES", &error))?;
        if self.links.is_empty() {
            self.links = open(program(ebpf)?, self.rate())?;
        }
        self.sampled.push((place, *code, false));
        Ok(())
    }

    /// Ends the samples of the process at this place. Where it was the last, no event is left.
    pub(super) fn stop(&mut self, ebpf: &mut Ebpf, place: u32) {
        // The map has a slot for every place.
        let _ = self.codes.set(place, &Code::default(), 0);
        self.sampled.retain(|(sampled, ..)| *sampled != place);
        self.close_unused(ebpf);
    }

    /// Takes no samples of the process at this place, or again those that it had.
    pub(super) fn pause(&mut self, ebpf: &mut Ebpf, place: u32, is_paused: bool) -> Result<(), Error> {
        let Some((_, code, paused)) = self.sampled.iter_mut().find(|(sampled, ..)| *sampled == place) else {
            return Ok(());
        };
        let code = if is_paused { Code::default() } else { *code };
        self.codes.set(place, &code, 0).map_err(|error| unfit("CODES", &error))?;
        *paused = is_paused;
        self.close_unused(ebpf);
        if self.links.is_empty() && !is_paused {
            self.links = open(program(ebpf)?, self.rate())?;
        }
        Ok(())
    }

    /// Where no process is sampled, no event is left.
    fn close_unused(&mut self, ebpf: &mut Ebpf) {
        if self.sampled.iter().all(|(.., is_paused)| *is_paused) {
            self.close(ebpf);
        }
    }

    fn close(&mut self, ebpf: &mut Ebpf) {
        for link in self.links.drain(..) {
            if let Err(error) = program(ebpf).and_then(|program| Ok(program.detach(link)?)) {
                warn!("cannot end the samples of a CPU: {error}");
            }
        }
    }
}

/// Opens an event on each CPU.
fn open(program: &mut PerfEvent, hz: u64) -> Result<Vec<PerfEventLinkId>, Error> {
    let cpus = online_cpus().map_err(|(path, error)| Error::Sample(format!("`{path}`: {error}")))?;
    let clock = PerfEventConfig::Software(SoftwareEvent::CpuClock);
    let on = |cpu| {
        let scope = PerfEventScope::AllProcessesOneCpu { cpu };
        program.attach(clock, scope, SamplePolicy::Frequency(hz), false)
    };
    let links: Result<Vec<_>, ProgramError> = cpus.into_iter().map(on).collect();
    links.map_err(|error| {
        let setting = |path| fs::read_to_string(path).ok()?.trim().parse().ok();
        let why = why_not(hz, setting(MAX_RATE), setting(PARANOID)).unwrap_or_default();
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        Error::Sample(format!("{error}{cause}{why}"))
    })
}

/// Which setting forbids samples, and what to do.
fn why_not(hz: u64, max_rate: Option<i64>, paranoid: Option<i64>) -> Option<String> {
    if let Some(rate) = max_rate.filter(|rate| u64::try_from(*rate).is_ok_and(|rate| rate < hz)) {
        return Some(format!(
            "; `kernel.perf_event_max_sample_rate` is {rate}: raise it, or take fewer samples than {hz} a second"
        ));
    }
    let level = paranoid.filter(|level| *level > STRICTEST)?;
    Some(format!(
        "; `kernel.perf_event_paranoid` is {level}, with which this distribution's kernel may refuse them even with CAP_PERFMON: set it to {STRICTEST}"
    ))
}

fn program(ebpf: &mut Ebpf) -> Result<&mut PerfEvent, Error> {
    Ok(super::program(ebpf, PROGRAM)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_samples_is_named() {
        let why = |rate, paranoid| why_not(199, Some(rate), Some(paranoid)).unwrap_or_default();
        assert!(why(100, 4).contains("perf_event_max_sample_rate` is 100"));
        assert!(why(100_000, 4).contains("perf_event_paranoid` is 4"));
        // CAP_PERFMON overrides these.
        assert_eq!([2, -1].map(|level| why(100_000, level)), [""; 2]);
        assert_eq!(why_not(199, None, None), None);
    }
}
