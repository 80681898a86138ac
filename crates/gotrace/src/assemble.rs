//! What makes traces of events, and what it counts on the way.

use std::{fmt, ops::Add};

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

/// Declares figures that only grow: a struct with a field for each, and the closed set of labels under which the second part of
/// them is exported. What an assembler counts stands once, here.
macro_rules! figures {
    (
        $(#[$of_struct:meta])* struct $name:ident {
            $($(#[$of_own:meta])* $own:ident,)*
        }
        $(#[$of_enum:meta])* enum $label:ident {
            $($(#[$of_field:meta])* $field:ident: $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$of_struct])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name {
            $($(#[$of_own])* pub $own: u64,)*
            $($(#[$of_field])* pub $field: u64,)*
        }

        telemetry::labels! {
            $(#[$of_enum])*
            pub $label { $($(#[$of_field])* $variant = $text,)* }
        }

        impl Add for $name {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self {
                    $($own: self.$own + other.$own,)*
                    $($field: self.$field + other.$field,)*
                }
            }
        }

        impl $name {
            /// Those with a label.
            pub fn each(&self) -> impl Iterator<Item = ($label, u64)> + use<> {
                [$(($label::$variant, self.$field),)*].into_iter()
            }
        }
    };
}

figures! {
    /// What became of events that are in nothing complete.
    struct Stats {
        /// What was popped and not worked on, such as Pods that are being deleted.
        skipped,
        /// Ends without an open call: sites may be reached by other ways than the call's return.
        stray_ends,
    }
    /// Why an assembler loses something. The unit is what the cause loses.
    enum Loss {
        /// Calls that were left without a return: a panic, a `Goexit`, the end of the process, or their end was lost.
        unwound_calls: UnwoundCall = "unwound_call",
        /// Calls that nothing could be found for.
        orphan_calls: OrphanCall = "orphan_call",
        /// Attempts whose end was not seen.
        incomplete_attempts: IncompleteAttempt = "incomplete_attempt",
        /// Entries into a queue of what is not known.
        orphan_moves: OrphanMove = "orphan_move",
        /// Facts about an attempt that is not known.
        orphan_facts: OrphanFact = "orphan_fact",
        /// Attempts, goroutines, calls or queue entries for which there was no room.
        table_full: AttemptTableFull = "attempt_table_full",
    }
}

figures! {
    /// What became of each event. Once nothing is open any more, the rest adds up to [`Account::events`], to the last one.
    struct Account {
        /// All that came.
        events,
    }
    /// What became of an event.
    enum Fate {
        /// In what has ended: the beginning or the end of a span, or a fact on one.
        in_attempts: InAttempt = "in_attempt",
        /// Of what was popped and not worked on, or discarded before it left the queue.
        skipped: Skipped = "skipped",
        /// About nothing that is traced: another metric than the queue's, or a return without a result.
        unrelated: Unrelated = "unrelated",
        /// Ends without an open call.
        stray: Stray = "stray",
        /// Calls, facts and moves that nothing claimed.
        orphaned: Orphaned = "orphaned",
        /// Moves of what was not popped as long as it could be followed.
        waiting: Waiting = "waiting",
        /// There was no room.
        no_room: NoRoom = "no_room",
    }
}

impl Account {
    /// Events that are not accounted for yet: of what goes on, of calls that have not returned, of what is in a queue.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.events - self.each().map(|(_, count)| count).sum::<u64>()
    }
}
