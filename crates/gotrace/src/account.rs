//! What becomes of each event, and the counters of a program.

use std::{collections::BTreeMap, mem, ops::Add};

use serde::{Deserialize, Serialize};

/// Value of one of a program's counters. It only grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Name of the counter in [`Program::COUNTERS`](crate::program::Program::COUNTERS).
    pub counter: &'static str,
    /// Label values, in the order of [`Counter::labels`].
    pub labels: Vec<String>,
    /// Total since the start.
    pub total: u64,
}

/// A counter family of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Metric name, without `schedspan_` and `_total`.
    pub name: &'static str,
    /// Help text of the metric.
    pub help: &'static str,
    /// Label names.
    pub labels: &'static [&'static str],
}

/// Declares a struct of counters with one field each, and the closed set of labels under which the second part of them
/// is exported. This is the only list of an assembler's counters.
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
            /// The labelled counters with their values.
            pub fn each(&self) -> impl Iterator<Item = ($label, u64)> + use<> {
                [$(($label::$variant, self.$field),)*].into_iter()
            }
        }
    };
}

figures! {
    /// Counts of what is not part of an output.
    struct Stats {
        /// Popped items that are not processed, such as Pods that are being deleted.
        skipped,
        /// Ends without an open call: a site may be reached by other paths than the call's return.
        stray_ends,
        /// Windows whose calls are in an output.
        windows,
    }
    /// Causes of losses in an assembler. The cause names the unit.
    enum Loss {
        /// Calls without a return: a panic, a `Goexit`, the end of the process, or a lost end.
        unwound_calls: UnwoundCall = "unwound_call",
        /// Calls without a related attempt.
        orphan_calls: OrphanCall = "orphan_call",
        /// Attempts whose end was not seen.
        incomplete_attempts: IncompleteAttempt = "incomplete_attempt",
        /// Entries into a queue of unknown items.
        orphan_moves: OrphanMove = "orphan_move",
        /// Facts about unknown attempts.
        orphan_facts: OrphanFact = "orphan_fact",
        /// Attempts, goroutines, calls or queue entries that exceed a table's limit.
        table_full: AttemptTableFull = "attempt_table_full",
        /// Windows that do not have all calls of their turn, or whose attempt is not there.
        incomplete_windows: IncompleteWindow = "incomplete_window",
    }
}

figures! {
    /// Fates of events. Once nothing is open, the fates add up to [`Account::events`] exactly.
    struct Account {
        /// All events.
        events,
    }
    /// Fate of an event.
    enum Fate {
        /// Part of an output: the start or end of a span, or a fact on one.
        in_attempts: InAttempt = "in_attempt",
        /// About an item that was popped and not processed, or discarded before it left the queue.
        skipped: Skipped = "skipped",
        /// Not about anything traced: another metric than the queue's, or a return without a result.
        unrelated: Unrelated = "unrelated",
        /// An end without an open call.
        stray: Stray = "stray",
        /// A call, fact or move that was never claimed.
        orphaned: Orphaned = "orphaned",
        /// A move of an item that was not popped while it was tracked.
        waiting: Waiting = "waiting",
        /// Dropped because a table was full.
        no_room: NoRoom = "no_room",
    }
}

impl Account {
    /// Events without a fate yet: of running attempts, open calls and queued items.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.events - self.each().map(|(_, count)| count).sum::<u64>()
    }
}

/// The books of an assembler: what has ended, and what became of each event.
#[derive(Debug)]
pub struct Books<T> {
    /// What has ended since it was taken last.
    pub finished: Vec<T>,
    /// What became of events that are in nothing complete.
    pub stats: Stats,
    /// What became of each event.
    pub account: Account,
}

impl<T> Default for Books<T> {
    fn default() -> Self {
        Self { finished: Vec::new(), stats: Stats::default(), account: Account::default() }
    }
}

impl<T> Books<T> {
    /// A table is full: what is refused came about by so many events.
    pub fn no_room(&mut self, events: u64) {
        self.stats.table_full += 1;
        self.account.no_room += events;
    }

    /// An end has no open call.
    pub fn stray_end(&mut self) {
        self.stats.stray_ends += 1;
        self.account.stray += 1;
    }

    /// An entry into a queue is of nothing known.
    pub fn orphan_move(&mut self) {
        self.stats.orphan_moves += 1;
        self.account.orphaned += 1;
    }
}

/// The last loss of a record in each process that an assembler has events of. Processes share its limits in equal parts.
#[derive(Debug, Default)]
pub struct Losses(BTreeMap<u32, u64>);

impl Losses {
    /// Whether records of a process were lost before an event of it, and after the one before. What is open then is not to
    /// be trusted: an end that comes may be that of another beginning.
    pub fn came(&mut self, target: u32, last_loss: u64) -> bool {
        mem::replace(self.0.entry(target).or_default(), last_loss) != last_loss
    }

    /// The part of a limit that each process has.
    #[must_use]
    pub fn part(&self, limit: usize) -> usize {
        limit / self.processes().max(1)
    }

    /// Number of the processes.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.0.len()
    }

    /// A process has ended.
    pub fn exit(&mut self, target: u32) {
        self.0.remove(&target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_of_one_process_and_is_said_once() {
        let mut losses = Losses::default();
        assert_eq!(losses.part(10), 10);
        assert!(!losses.came(1, 0));
        assert!(losses.came(2, 7), "records were lost before the first event");
        assert!(!losses.came(2, 7));
        assert!(losses.came(1, 8) && !losses.came(1, 8));
        assert_eq!((losses.processes(), losses.part(10)), (2, 5));
        losses.exit(2);
        assert_eq!((losses.processes(), losses.part(10)), (1, 10));
    }

    #[test]
    fn what_is_refused_or_unclaimed_is_in_both_books() {
        let mut books = Books::<()>::default();
        books.no_room(3);
        books.no_room(1);
        books.stray_end();
        books.orphan_move();
        books.orphan_move();
        books.account.events = 10;
        let stats = Stats { table_full: 2, stray_ends: 1, orphan_moves: 2, ..Stats::default() };
        let account = Account { events: 10, no_room: 4, stray: 1, orphaned: 2, ..Account::default() };
        assert_eq!((books.stats, books.account), (stats, account));
        assert_eq!(account.open(), 3);
    }

    #[test]
    fn accounts_of_programs_add_up() {
        let one = Account { events: 5, in_attempts: 2, waiting: 1, ..Account::default() };
        let sum = one + Account { events: 7, in_attempts: 7, ..Account::default() };
        assert_eq!(sum, Account { events: 12, in_attempts: 9, waiting: 1, ..Account::default() });
        let fates: Vec<_> = sum.each().filter(|(_, count)| *count > 0).collect();
        assert_eq!(fates, [(Fate::InAttempt, 9), (Fate::Waiting, 1)]);
    }
}
