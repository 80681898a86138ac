//! What follows upon events, whether they come from a ring buffer or from a file: the same, so that a replay shows
//! what the daemon showed.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use crate::{
    attempt::{Account, Assembler, Attempt, Stats, moved},
    metrics::{Fate, Loss, Metrics, Total},
    plan::Identity,
    record::Event,
    target::Configuration,
    trace::Anchor,
};

/// What the outputs are told.
#[derive(Debug)]
pub enum Message {
    /// A scheduler is being traced.
    Found(Box<Found>),
    /// An attempt has ended.
    Attempt(Box<Attempt>, Anchor),
    /// A scheduler has ended.
    Gone(u32),
}

/// A scheduler that is being traced.
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
    /// What it was told when it was started, where that can be read. Not in recordings.
    #[serde(skip)]
    pub configuration: Option<Configuration>,
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

/// Makes attempts out of events, and counts what is lost on the way.
#[derive(Debug)]
pub struct Pipeline {
    assembler: Assembler,
    anchor: Anchor,
    metrics: Metrics,
}

impl Pipeline {
    /// Counts in these metrics.
    #[must_use]
    pub fn new(metrics: Metrics) -> Self {
        Self { assembler: Assembler::default(), anchor: Anchor { unix_ns_at_zero: 0 }, metrics }
    }

    /// Takes the next event.
    pub fn event(&mut self, event: Event) {
        if let Some((queue, name)) = moved(&event.values) {
            self.metrics.queue_move(queue, name);
        }
        self.assembler.on(event);
    }

    /// It is later: clocks are compared anew, and what has been silent for too long is given up.
    pub fn look(&mut self, clocks: Clocks) {
        let Clocks { monotonic_ns, unix_ns_at_zero } = clocks;
        self.anchor = Anchor { unix_ns_at_zero };
        self.assembler.expire(monotonic_ns);
    }

    /// A scheduler has ended.
    pub fn exit(&mut self, target: u32) {
        self.assembler.exit(target);
    }

    /// The attempts that have ended since the last call.
    pub fn finished(&mut self) -> impl Iterator<Item = Message> + use<> {
        let anchor = self.anchor;
        self.assembler
            .take_finished()
            .into_iter()
            .map(move |attempt| Message::Attempt(attempt.into(), anchor))
    }

    /// What became of events that are in no complete attempt.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.assembler.stats()
    }

    /// What became of each event.
    #[must_use]
    pub fn account(&self) -> Account {
        self.assembler.account()
    }

    /// Shows in the metrics what the assembler counts.
    pub fn publish(&self) {
        let Stats {
            skipped,
            stray_ends,
            unwound_calls,
            orphan_calls,
            orphan_moves,
            orphan_facts,
            incomplete_attempts,
            table_full,
        } = self.assembler.stats();
        for (cause, total) in [
            (Loss::UnwoundCall, unwound_calls),
            (Loss::OrphanCall, orphan_calls),
            (Loss::OrphanMove, orphan_moves),
            (Loss::OrphanFact, orphan_facts),
            (Loss::IncompleteAttempt, incomplete_attempts),
            (Loss::AttemptTableFull, table_full),
        ] {
            self.metrics.set_loss(cause, total);
        }
        let Account {
            events: _,
            in_attempts,
            skipped: of_skipped,
            unrelated,
            stray,
            orphaned,
            waiting,
            no_room,
        } = self.assembler.account();
        for (fate, total) in [
            (Fate::InAttempt, in_attempts),
            (Fate::Skipped, of_skipped),
            (Fate::Unrelated, unrelated),
            (Fate::Stray, stray),
            (Fate::Orphaned, orphaned),
            (Fate::Waiting, waiting),
            (Fate::NoRoom, no_room),
        ] {
            self.metrics.set_fate(fate, total);
        }
        self.metrics.set_total(Total::StrayEnds, stray_ends);
        self.metrics.set_total(Total::SkippedPods, skipped);
    }
}
