//! Finished attempts, and the account of all events.

use gotrace::assemble::{Account, Stats};

use crate::attempt::Attempt;

/// Shared by all processes: moved into the process whose event is handled.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) finished: Vec<Attempt>,
    pub(super) stats: Stats,
    pub(super) account: Account,
}

impl Books {
    pub(super) fn no_room(&mut self, events: u64) {
        self.stats.table_full += 1;
        self.account.no_room += events;
    }

    pub(super) fn stray_end(&mut self) {
        self.stats.stray_ends += 1;
        self.account.stray += 1;
    }

    pub(super) fn orphan_move(&mut self) {
        self.stats.orphan_moves += 1;
        self.account.orphaned += 1;
    }
}
