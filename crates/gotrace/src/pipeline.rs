//! From events to finished traces. The same code handles events of a ring buffer and of a file, so that a replay shows
//! what the daemon showed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    account::{Account, Count, Stats},
    code::Sampled,
    discover::ProcessId,
    governor::Cut,
    plan::{Identity, Missing},
    program::Assemble,
    program::Event,
    program::Program,
    window::Window,
};

/// A process that is traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Found {
    /// Target number in its events.
    pub target: u32,
    /// Its pid in the daemon's `/proc`.
    pub pid: u32,
    /// Path of its executable, in its own mount namespace.
    #[serde(serialize_with = "lossy")]
    pub executable: PathBuf,
    /// Identity of its executable.
    pub identity: Identity,
    /// The process, if it runs on this host. Not in recordings.
    #[serde(skip)]
    pub process: Option<ProcessId>,
    /// The programs in its executable. Not in recordings.
    #[serde(skip)]
    pub programs: Vec<&'static str>,
    /// Whether it was running at the first search.
    #[serde(skip)]
    pub already_ran: bool,
    /// Its probes. Not in recordings.
    #[serde(skip)]
    pub sites: Sites,
}

/// The probes of an executable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// Number of sites on emulated instructions.
    pub emulated: usize,
    /// Number of sites on single-stepped instructions.
    pub single_stepped: usize,
    /// What cannot be traced, and why.
    pub missing: Vec<Missing>,
}

/// Paths in JSON are UTF-8.
fn lossy<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// Readings of the clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME` at the zero of `CLOCK_MONOTONIC`, nanoseconds.
    pub unix_ns_at_zero: u64,
}

/// Output of a program's assembler.
pub type Output<P> = <<P as Program>::Assembler as Assemble<P>>::Output;

/// A program's assembler, with the clocks that date its outputs.
#[derive(Debug)]
pub struct Pipeline<P: Program> {
    assembler: P::Assembler,
    clocks: Clocks,
}

impl<P: Program> Default for Pipeline<P> {
    fn default() -> Self {
        Self { assembler: P::Assembler::default(), clocks: Clocks::default() }
    }
}

impl<P: Program> Pipeline<P> {
    /// Hands the next event to the assembler.
    pub fn event(&mut self, event: Event<P>) {
        self.assembler.on(event);
    }

    /// Hands the next sample to the assembler.
    pub fn sample(&mut self, sample: Sampled) {
        self.assembler.sample(sample);
    }

    /// Hands a window to the assembler.
    pub fn window(&mut self, window: Window<P::Function>) {
        self.assembler.window(window);
    }

    /// From here on, this is cut of the tracing of a process.
    pub fn cut(&mut self, target: u32, time_ns: u64, cut: Cut) {
        self.assembler.cut(target, time_ns, cut);
    }

    /// Tick: re-anchors the clocks and expires what has had no event for too long.
    pub fn look(&mut self, clocks: Clocks) {
        self.clocks = clocks;
        self.assembler.expire(clocks.monotonic_ns);
    }

    /// Closes everything open in this process, which has ended.
    pub fn exit(&mut self, target: u32) {
        self.assembler.exit(target);
    }

    /// Takes the outputs completed since the last call.
    pub fn take_finished(&mut self) -> Vec<Output<P>> {
        self.assembler.take_finished()
    }

    /// The clocks that date the outputs.
    #[must_use]
    pub fn clocks(&self) -> Clocks {
        self.clocks
    }

    /// Losses so far: events that are not part of an output.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.assembler.stats()
    }

    /// Fates of all events so far.
    #[must_use]
    pub fn account(&self) -> Account {
        self.assembler.account()
    }

    /// Current values of the program's own counters.
    #[must_use]
    pub fn counts(&self) -> Vec<Count> {
        self.assembler.counts()
    }
}
