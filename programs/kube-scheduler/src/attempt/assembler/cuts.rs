//! What is cut of the tracing of a process, so that it stays within its budget.
//!
//! An attempt has the most that was cut while it ran, and of what was cut then it shows nothing that is not whole: a phase whose first
//! plugins were not seen has no plugins.

use std::mem;

use gotrace::{
    governor::Cut,
    program::{Detail, Function as _},
};

use super::{Goroutine, Process, in_queue::EVENTS};
use crate::{attempt::Attempt, table::Function};

/// What is cut of a process.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    now: Cut,
    /// When queue moves came back, `CLOCK_MONOTONIC`, nanoseconds: what was before is not known of the Pods in the queue.
    moves_since_ns: Option<u64>,
}

impl Cuts {
    /// Whether the calls of a function are seen.
    pub(super) fn sees(&self, function: Function) -> bool {
        self.now.keeps_detail(function.detail())
    }

    /// What is cut of an attempt that begins now, and of the way of its Pod to here.
    pub(super) fn of(&self, attempt: &Attempt) -> Cut {
        let before = match &attempt.previous {
            Some(previous) => Some(previous.start_ns),
            None if attempt.number.is_none_or(|number| number > 1) => Some(0),
            // Its first attempt: the Pod is as old as its entry into the queue, as far as is known.
            None => attempt.enqueued_ns,
        };
        let has_gap = self.moves_since_ns.zip(before).is_some_and(|(since, before)| before < since);
        if has_gap { self.now.max(Cut::QueueMoves) } else { self.now }
    }
}

impl Process {
    /// From here on, this is cut.
    pub(super) fn cut(&mut self, time_ns: u64, cut: Cut) {
        let before = mem::replace(&mut self.cuts.now, cut);
        let waiting = self.late.waiting().map(|attempt| &mut attempt.cut);
        let running = self.attempts.values_mut().map(|building| &mut building.attempt.cut);
        running.chain(waiting).for_each(|of| *of = (*of).max(cut));
        let sees = |cut: Cut, detail| cut.keeps_detail(detail);
        if sees(before, Detail::Full) != sees(cut, Detail::Full) {
            self.forget_moves();
            if sees(cut, Detail::Full) {
                self.cuts.moves_since_ns = Some(time_ns);
            }
        }
        if sees(before, Detail::Plugins) && !sees(cut, Detail::Plugins) {
            self.forget_plugins();
        }
    }

    /// What goroutines were doing to the queue is not known to its end.
    fn forget_moves(&mut self) {
        self.moving.clear();
        self.books.account.unrelated += self.running_in_queue.drain().count() as u64;
        self.books.account.waiting += EVENTS * self.signed.drain().count() as u64;
    }

    /// No end of an open call of a plugin will come, nor late work.
    fn forget_plugins(&mut self) {
        let Self { goroutines, books, cuts, .. } = self;
        for goroutine in goroutines.values_mut() {
            let cut = goroutine.open.extract_if(.., |open| !cuts.sees(open.function));
            books.account.unrelated += cut.map(|open| open.events).sum::<u64>();
            books.account.unrelated += mem::take(&mut goroutine.turns).len() as u64;
        }
        let is_over = |goroutine: &Goroutine| goroutine.worker && goroutine.open.is_empty();
        goroutines
            .extract_if(|_, goroutine| is_over(goroutine))
            .for_each(|(_, mut over)| over.give_up(books));
        self.attempts.values_mut().for_each(|building| building.outstanding = 0);
        self.late.forget();
        self.expire_late(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Previous;

    #[test]
    fn an_attempt_says_that_its_pod_moved_while_queue_moves_were_cut() {
        let cuts = Cuts { now: Cut::ExactWindows, moves_since_ns: Some(1_000) };
        let again = |start_ns| Attempt {
            number: Some(2),
            previous: Some(Previous { start_ns, group: None }),
            ..Attempt::default()
        };
        let first = |enqueued_ns| Attempt { number: Some(1), enqueued_ns, ..Attempt::default() };
        assert_eq!(cuts.of(&again(999)), Cut::QueueMoves);
        assert_eq!(cuts.of(&again(1_000)), Cut::ExactWindows);
        assert_eq!(cuts.of(&first(Some(999))), Cut::QueueMoves);
        assert_eq!(cuts.of(&first(Some(1_000))), Cut::ExactWindows);
        assert_eq!(cuts.of(&first(None)), Cut::ExactWindows);
        let unknown = Attempt { number: Some(2), ..Attempt::default() };
        assert_eq!(cuts.of(&unknown), Cut::QueueMoves, "the attempt before was not seen");
        assert_eq!(Cuts { moves_since_ns: None, ..cuts }.of(&unknown), Cut::ExactWindows);
    }
}
