//! What follows upon events, whether they come from a ring buffer or from a file: the same, so that a replay shows
//! what the daemon showed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    assemble::{Account, Assemble, Count, Stats},
    decode::Event,
    discover::ProcessId,
    plan::Identity,
    program::Program,
};

/// A process that is being traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Found {
    /// The number of its events.
    pub target: u32,
    /// Its process id, as `/proc` shows it to the daemon.
    pub pid: u32,
    /// The path of its executable, in its own mount namespace.
    #[serde(serialize_with = "lossy")]
    pub executable: PathBuf,
    /// What its executable is.
    pub identity: Identity,
    /// Which process, where it runs here. Not in recordings.
    #[serde(skip)]
    pub process: Option<ProcessId>,
    /// The programs that its executable has inside. Not in recordings.
    #[serde(skip)]
    pub programs: Vec<&'static str>,
    /// Whether it ran already at the first look.
    #[serde(skip)]
    pub already_ran: bool,
}

/// JSON has no other paths.
fn lossy<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// The clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Clocks {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub monotonic_ns: u64,
    /// What `CLOCK_REALTIME` said when `CLOCK_MONOTONIC` said zero, nanoseconds.
    pub unix_ns_at_zero: u64,
}

/// What a program's assembler puts together.
pub type Output<P> = <<P as Program>::Assembler as Assemble<P>>::Output;

/// Puts the events of a program together, and knows the clocks.
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
    /// Takes the next event.
    pub fn event(&mut self, event: Event<P>) {
        self.assembler.on(event);
    }

    /// Tick: re-anchors the clocks and expires what has been silent for too long.
    pub fn look(&mut self, clocks: Clocks) {
        self.clocks = clocks;
        self.assembler.expire(clocks.monotonic_ns);
    }

    /// A process has ended.
    pub fn exit(&mut self, target: u32) {
        self.assembler.exit(target);
    }

    /// What has ended since the last call.
    pub fn take_finished(&mut self) -> Vec<Output<P>> {
        self.assembler.take_finished()
    }

    /// The clocks by which what has ended is dated.
    #[must_use]
    pub fn clocks(&self) -> Clocks {
        self.clocks
    }

    /// What became of events that are in nothing complete.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.assembler.stats()
    }

    /// What became of each event.
    #[must_use]
    pub fn account(&self) -> Account {
        self.assembler.account()
    }

    /// Figures of the program's own.
    #[must_use]
    pub fn counts(&self) -> Vec<Count> {
        self.assembler.counts()
    }
}
