//! Reconciles out of events: what was taken out of which queue, how long it had waited there, and how long it took.
//!
//! Pure: events in, reconciles out, no clock and no I/O.
//!
//! # How calls are joined
//!
//! * A key is in one worker's hands at a time: queue and key pair `get` with `done`, on whatever goroutine that is, and `add`
//!   with `get`.
//! * Of a key that is not known the goroutine does: a worker takes the next key when it is done with the one before.
//! * A retry is the reconcile's that is open on its goroutine, if that is of the same queue. Others are timers of a controller.

mod assembler;
#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::assembler::{Assembler, COUNTERS};

/// A worker's handling of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconcile {
    /// Which process.
    pub target: u32,
    /// The queue's name.
    pub queue: Arc<str>,
    /// What it is about, such as `namespace/name`, where that could be read.
    pub key: Option<String>,
    /// When the key was added to the queue, if that was seen, `CLOCK_MONOTONIC`, nanoseconds.
    pub added_ns: Option<u64>,
    /// When the worker took it, `CLOCK_MONOTONIC`, nanoseconds.
    pub start_ns: u64,
    /// When the worker was through with it, or was seen last, `CLOCK_MONOTONIC`, nanoseconds.
    pub end_ns: u64,
    /// Whether it asked to be called again, as it does after a failure.
    pub retried: bool,
    /// Whether its end was not seen.
    pub incomplete: bool,
    /// How many events it came about by.
    pub events: u64,
}

impl Reconcile {
    /// How long the key had been in the queue, nanoseconds.
    #[must_use]
    pub fn waited_ns(&self) -> Option<u64> {
        Some(self.start_ns.saturating_sub(self.added_ns?))
    }
}
