//! What is cut of the tracing of a process, so that it stays within its budget.
//!
//! An attempt has the most that was cut while it ran, and of what was cut then it shows nothing that is not whole: a phase whose first
//! plugins were not seen has no plugins.
//!
//! Without its phases an attempt begins at `Pop`. It ends where its binding cycle returns, or where the handling of its failure begins, as
//! the scheduler's own metric of durations does.

use std::mem;

use gotrace::{
    governor::Cut,
    program::{Detail, Function as _},
};

use super::{Building, Goroutine, Process, Progress};
use crate::{Event, attempt::Attempt, table::Function};

/// What is cut of a process.
#[derive(Debug, Default)]
pub(super) struct Cuts {
    now: Cut,
    /// When queue moves came back, `CLOCK_MONOTONIC`, nanoseconds: what was before is not known of the Pods in the queue.
    moves_since_ns: Option<u64>,
    /// When phases came back, and entries into the active queue with them.
    phases_since_ns: Option<u64>,
}

/// What began while phases were cut has ended so long after they came back.
const UNSEEN_NS: u64 = 60 * 1_000_000_000;

impl Cuts {
    /// Whether such events are seen.
    pub(super) fn sees(&self, event: &Event) -> bool {
        self.now.keeps_detail(event.function.detail_at(event.role))
    }

    /// Whether the ends of a function's calls are seen.
    pub(super) fn sees_end(&self, function: Function) -> bool {
        self.now.keeps_detail(function.end_detail())
    }

    /// Whether something at this time may be part of what began while phases were cut.
    pub(super) fn may_be_unseen(&self, time_ns: u64) -> bool {
        self.phases_since_ns.is_some_and(|since| time_ns.saturating_sub(since) <= UNSEEN_NS)
    }

    /// What is cut of an attempt that begins now, and of the way of its Pod to here.
    pub(super) fn of(&self, attempt: &Attempt) -> Cut {
        let before = match &attempt.previous {
            Some(previous) => Some(previous.start_ns),
            None if attempt.number.is_none_or(|number| number > 1) => Some(0),
            // Its first attempt: the Pod is as old as its entry into the queue, as far as is known.
            None => attempt.enqueued_ns.or(self.phases_since_ns.map(|_| 0)),
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
        let ends = |detail| sees(before, detail) && !sees(cut, detail);
        if ends(Detail::Plugins) || ends(Detail::Phases) {
            self.forget_calls();
        }
        if ends(Detail::Phases) {
            self.forget_entries();
            self.end_failing();
        } else if sees(cut, Detail::Phases) && !sees(before, Detail::Phases) {
            self.cuts.phases_since_ns = Some(time_ns);
        }
    }

    /// What goroutines were doing to the queue is not known to its end.
    fn forget_moves(&mut self) {
        self.moving.clear();
        self.books.account.unrelated += self.running_in_queue.drain().count() as u64;
        self.forget_signatures();
    }

    /// Which Pods wait in the active queue is not known from here on: addresses are reused.
    fn forget_entries(&mut self) {
        self.books.account.waiting += self.queued.drain().map(|(_, queued)| queued.events).sum::<u64>();
    }

    /// No end of an open call that is cut will come, nor late work.
    fn forget_calls(&mut self) {
        let Self { goroutines, books, cuts, .. } = self;
        for goroutine in goroutines.values_mut() {
            let cut = goroutine.open.extract_if(.., |open| !cuts.sees_end(open.function));
            books.account.unrelated += cut.map(|open| open.events).sum::<u64>();
            let cut = goroutine.closed.extract_if(.., |call| !cuts.sees_end(call.function));
            books.account.unrelated += cut.map(|call| call.events).sum::<u64>();
            books.account.unrelated += mem::take(&mut goroutine.turns).len() as u64;
        }
        let is_over = |goroutine: &Goroutine| {
            goroutine.open.is_empty() && (goroutine.worker || goroutine.attempt.is_none())
        };
        for (_, Goroutine { closed, .. }) in goroutines.extract_if(|_, goroutine| is_over(goroutine)) {
            books.account.unrelated += closed.iter().map(|call| call.events).sum::<u64>();
        }
        self.attempts.values_mut().for_each(|building| building.outstanding = 0);
        self.late.forget();
        self.expire_late(u64::MAX);
    }

    /// No end of the handling of a failure will come: what fails has its result.
    fn end_failing(&mut self) {
        let failing = |(_, building): &(&u64, &Building)| building.stage == Progress::Failing;
        let mut failing: Vec<_> =
            self.attempts.iter().filter(failing).map(|(id, building)| (*id, building.last_ns)).collect();
        failing.sort_unstable();
        failing.into_iter().for_each(|(id, last_ns)| self.finish(id, last_ns));
    }
}

#[cfg(test)]
mod tests {
    use gotrace::{Role, program::Assemble as _};

    use super::*;
    use crate::{
        Values,
        attempt::{Assembler, Outcome, Previous, tests::event},
        values::Value,
    };

    #[test]
    fn an_attempt_says_that_its_pod_moved_while_queue_moves_were_cut() {
        let cuts = Cuts { now: Cut::ExactWindows, moves_since_ns: Some(1_000), phases_since_ns: None };
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
        let gap = Cuts { phases_since_ns: Some(500), ..cuts };
        assert_eq!(gap.of(&first(None)), Cut::QueueMoves, "it may have entered in between");
        assert_eq!(gap.of(&first(Some(1_000))), Cut::ExactWindows);
        assert_eq!(Cuts { moves_since_ns: None, ..cuts }.of(&unknown), Cut::ExactWindows);
    }

    #[test]
    fn what_is_of_no_attempt_is_an_orphan_unless_phases_have_just_come_back() {
        for (cut, orphans) in [(Cut::QueueMoves, 1), (Cut::Phases, 0)] {
            let mut assembler = Assembler::default();
            assembler.cut(0, 0, cut);
            assembler.cut(0, 1, Cut::Nothing);
            assembler.on(event(1, Function::Preemption, Role::Entry, 50, Values::default()));
            assert_eq!(assembler.stats().orphan_facts, orphans, "{cut:?}");
        }
    }

    #[test]
    fn an_attempt_that_waits_for_its_api_call_has_what_is_cut_meanwhile() {
        let mut assembler = Assembler::default();
        let number = |value, number: u64| Values::default().with(value, number);
        let uid =
            |number| Values::default().with(Value::PodUid, "a".to_owned()).with(Value::QueuedPodInfo, number);
        for (goroutine, function, role, depth, values) in [
            (1, Function::Pop, Role::Entry, 50, uid(1)),
            (2, Function::BindingCycle, Role::Entry, 60, uid(0)),
            (2, Function::ApiCallAdd, Role::Entry, 350, number(Value::ApiCall, 7)),
            (2, Function::ApiCallAdd, Role::Ret, 350, number(Value::StatusCode, 0)),
            (2, Function::BindingCycle, Role::ReturnSite, 60, number(Value::StatusCode, 0)),
        ] {
            assembler.on(event(goroutine, function, role, depth, values));
        }
        assert_eq!(assembler.take_finished(), []);
        assembler.cut(0, 1, Cut::Phases);
        let attempts = assembler.take_finished();
        let [attempt] = attempts.as_slice() else { panic!("{attempts:?}") };
        assert_eq!((&attempt.outcome, attempt.cut), (&Outcome::Scheduled, Cut::Phases));
    }

    #[test]
    fn without_phases_a_pod_that_the_loop_leaves_is_bound_or_was_skipped() {
        const SECOND: u64 = 1_000_000_000;
        let mut assembler = Assembler::default();
        let of = |uid: &str| Values::default().with(Value::PodUid, uid.to_owned());
        let send = |assembler: &mut Assembler, time_ns, goroutine, function, role, values| {
            assembler.on(Event { time_ns, ..event(goroutine, function, role, 50, values) });
        };
        assembler.cut(0, 0, Cut::Phases);
        for (number, uid) in (1..).zip(["bound", "skipped", "last"]) {
            let popped = of(uid).with(Value::QueuedPodInfo, number).with(Value::Attempts, 1_u64);
            send(&mut assembler, number * SECOND, 1, Function::Pop, Role::ReturnSite, popped);
        }
        // Its goroutine was slow to begin.
        let binding = of("bound").with(Value::NodeName, "node-1".to_owned());
        send(&mut assembler, 30 * SECOND, 9, Function::BindingCycle, Role::Entry, binding);
        assembler.expire(62 * SECOND);
        assert_eq!((assembler.stats().skipped, assembler.account().open()), (0, 4));
        assembler.expire(64 * SECOND);
        assert_eq!(assembler.stats().skipped, 1, "the loop left it at 3 s");
        let status = Values::default().with(Value::StatusCode, 0_u64);
        send(&mut assembler, 600 * SECOND, 9, Function::BindingCycle, Role::ReturnSite, status);
        let attempts = assembler.take_finished();
        let [attempt] = attempts.as_slice() else { panic!("{attempts:?}") };
        assert_eq!((&*attempt.pod.uid, attempt.node.as_deref()), ("bound", Some("node-1")));
        assert_eq!((&attempt.outcome, attempt.end_ns), (&Outcome::Scheduled, 600 * SECOND));
        assert!(!attempt.incomplete && attempt.cut == Cut::Phases);
    }
}
