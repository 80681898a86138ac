//! What makes traces of events, and what it counts on the way.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{decode::Event, program::Program};

/// Puts the events of one program together: calls to what they are a part of. Pure: no clock, no I/O.
///
/// Every event is accounted for: once nothing is open any more, the fields of [`Account`] add up to its events.
pub trait Assemble<P: Program>: Default + fmt::Debug + Send {
    /// What has been put together: it becomes a trace.
    type Output: fmt::Debug + Send + 'static;

    /// Takes the next event. Events must come in the order of the ring buffer: each goroutine's own order.
    fn on(&mut self, event: Event<P>);

    /// Gives up what has been silent for too long; `now_ns` is `CLOCK_MONOTONIC`.
    fn expire(&mut self, now_ns: u64);

    /// A process has ended: so has all that is open in it.
    fn exit(&mut self, target: u32);

    /// What has ended since the last call.
    fn take_finished(&mut self) -> Vec<Self::Output>;

    /// What became of events that are in nothing complete.
    fn stats(&self) -> Stats;

    /// What became of each event.
    fn account(&self) -> Account;

    /// Figures of the program's own, such as entries into a queue, for metrics.
    fn counts(&self) -> Vec<Count> {
        Vec::new()
    }
}

/// A figure of a program's own. It only grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// One of [`Program::COUNTERS`], by its name.
    pub counter: &'static str,
    /// The values of the counter's labels, in their order.
    pub labels: Vec<String>,
    /// How often since the start.
    pub total: u64,
}

/// A family of [`Count`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The metric's name, without `schedspan_` and `_total`.
    pub name: &'static str,
    /// What it counts.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
}

/// What became of events that are in nothing complete. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Stats {
    /// Pods that were popped and not scheduled, such as those that are being deleted.
    pub skipped: u64,
    /// Ends without an open call: sites may be reached by other ways than the call's return.
    pub stray_ends: u64,
    /// Loss: calls that were left without a return: panics, or their end was lost.
    pub unwound_calls: u64,
    /// Loss: calls that nothing could be found for.
    pub orphan_calls: u64,
    /// Loss: attempts whose end was not seen.
    pub incomplete_attempts: u64,
    /// Loss: entries into a queue of what is not known.
    pub orphan_moves: u64,
    /// Loss: facts about an attempt that is not known.
    pub orphan_facts: u64,
    /// Loss: attempts, goroutines, calls or queue entries for which there was no room.
    pub table_full: u64,
}

/// What became of each event. Once nothing is open any more, the rest adds up to [`Account::events`], to the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Account {
    /// All that came.
    pub events: u64,
    /// In what has ended: the beginning or the end of a span, or a fact on one.
    pub in_attempts: u64,
    /// Of what was popped and not done, or discarded before it left the queue.
    pub skipped: u64,
    /// About nothing that is traced: another metric than the queue's, or a return without a result.
    pub unrelated: u64,
    /// Ends without an open call.
    pub stray: u64,
    /// Calls, facts and moves that nothing claimed.
    pub orphaned: u64,
    /// Moves of what was not popped as long as it could be followed.
    pub waiting: u64,
    /// There was no room.
    pub no_room: u64,
}

impl Account {
    /// Events that are not accounted for yet: of what goes on, of calls that have not returned, of what is in a queue.
    #[must_use]
    pub fn open(&self) -> u64 {
        let Self { events, in_attempts, skipped, unrelated, stray, orphaned, waiting, no_room } = self;
        events - (in_attempts + skipped + unrelated + stray + orphaned + waiting + no_room)
    }
}
