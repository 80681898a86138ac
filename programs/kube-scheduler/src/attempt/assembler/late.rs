//! Late work: calls for an attempt on other goroutines, which may begin and end after the attempt is over.
//!
//! A finished attempt is handed over once all of its late work has ended, or after a timeout: its spans are
//! exported together.

use super::{
    super::{ApiCall, Attempt, Call},
    Goroutine, HashMap, MAX_CALLS, MAX_MOVING, Membership, Process,
};
use gotrace::{Role, program::Function as _};

use crate::{Event, values::Value};

/// Finished attempts waiting at once.
const MAX_WAITING: usize = 4_096;
/// Queued calls and candidates remembered at once; most entries are of completed work.
const MAX_KNOWN: usize = 16_384;
/// How long a finished attempt waits. A call that another one replaced is never made, and a victim that is
/// already being deleted is skipped.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Late work by attempt.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Calls in the dispatcher's queue, by address: ID of the attempt, and time of queueing.
    queued: HashMap<u64, (u64, u64)>,
    /// The call that a goroutine is putting into that queue.
    adding: HashMap<u64, Option<u64>>,
    /// ID of the preempting attempt, by the address of the candidate.
    candidates: HashMap<u64, u64>,
    /// Finished attempts with late work.
    waiting: HashMap<u64, Waiting>,
    /// No further events will arrive.
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    attempt: Attempt,
    part: Membership,
    outstanding: u64,
}

impl Late {
    /// Records that the candidate's victims are evicted for the attempt.
    pub(super) fn preempts(&mut self, candidate: u64, id: u64) {
        if self.candidates.len() >= MAX_KNOWN {
            self.candidates.clear();
        }
        self.candidates.insert(candidate, id);
    }

    /// The attempt that late work belongs to, and its API call.
    pub(super) fn take(&mut self, event: &Event) -> (Option<u64>, Option<Box<ApiCall>>) {
        let values = &event.values;
        let queued = values.number(Value::ApiCall).and_then(|address| self.queued.remove(&address));
        let preempts = || self.candidates.get(&values.number(Value::PreemptionCandidate)?).copied();
        let api_call = ApiCall {
            pod_uid: values.text(Value::PodUid).unwrap_or_default().to_owned(),
            victim: values.text(Value::PodName).map(str::to_owned),
            queued_ns: queued.map(|(_, time_ns)| time_ns),
        };
        (queued.map(|(id, _)| id).or_else(preempts), Some(Box::new(api_call)))
    }

    /// Whether the attempt is over and not yet handed over.
    pub(super) fn waits(&self, id: u64) -> bool {
        self.waiting.contains_key(&id)
    }

    /// After a loss, outstanding work may have been lost or may never be done.
    pub(super) fn distrust(&mut self) {
        self.waiting.values_mut().for_each(|waiting| waiting.attempt.incomplete = true);
    }

    /// Finished attempts that wait.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = &mut Attempt> {
        self.waiting.values_mut().map(|waiting| &mut waiting.attempt)
    }

    /// Nothing more is seen of late work that is known.
    pub(super) fn forget(&mut self) {
        let Self { queued, adding, candidates, waiting: _, closed: _ } = self;
        queued.clear();
        adding.clear();
        candidates.clear();
    }

    /// From now on no attempt waits.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn has_room(&self) -> bool {
        !self.closed && self.waiting.len() < MAX_WAITING
    }

    pub(super) fn wait(&mut self, id: u64, attempt: Attempt, part: Membership, outstanding: u64) {
        self.waiting.insert(id, Waiting { attempt, part, outstanding });
    }
}

impl Process {
    /// Records a call that the goroutine adds to the dispatcher's queue. The dispatcher may reject it; then
    /// it is never made.
    pub(super) fn queue_api_call(&mut self, event: &Event, role: Role) {
        let Event { goroutine, time_ns, values, .. } = event;
        let on = self.goroutines.get(goroutine).and_then(Goroutine::on);
        let Some((id, building)) = on.and_then(|id| Some((id, self.attempts.get_mut(&id)?))) else {
            // Another Pod loses its nomination, for example.
            self.books.account.unrelated += 1;
            return;
        };
        building.seen(*time_ns);
        building.attempt.events += 1;
        let Late { queued, adding, .. } = &mut self.late;
        if role == Role::Entry {
            if adding.len() >= MAX_MOVING {
                adding.clear();
            }
            if queued.len() >= MAX_KNOWN {
                queued.clear();
            }
            let address = values.number(Value::ApiCall).filter(|address| *address != 0);
            adding.insert(*goroutine, address);
            if let Some(address) = address {
                queued.insert(address, (id, *time_ns));
                building.outstanding += 1;
            }
        } else if let Some(address) = adding.remove(goroutine).flatten()
            && values.signed(Value::StatusCode).is_some_and(|code| code != 0)
            && queued.get(&address).is_some_and(|(whose, _)| *whose == id)
        {
            queued.remove(&address);
            building.outstanding -= u64::from(building.outstanding > 0);
        }
    }

    /// Records the end of late work of a finished attempt.
    pub(super) fn close_late(&mut self, id: u64, mut call: Call) {
        let Some(waiting) = self.late.waiting.get_mut(&id) else { return };
        let Waiting { attempt, outstanding, .. } = waiting;
        let is_seen = attempt.cut.keeps_detail(call.function.whole_detail());
        call.start_ns = call.start_ns.max(attempt.start_ns);
        call.end_ns = call.end_ns.max(call.start_ns);
        if !is_seen {
            self.books.account.unrelated += call.events;
        } else if attempt.calls.len() < MAX_CALLS {
            attempt.events += call.events;
            attempt.incomplete |= !call.returned;
            attempt.calls.push(call);
        } else {
            self.books.no_room(call.events);
        }
        *outstanding = outstanding.saturating_sub(1);
        if *outstanding == 0
            && let Some(Waiting { attempt, part, .. }) = self.late.waiting.remove(&id)
        {
            self.hand_over(attempt, &part);
        }
    }

    /// Hands over attempts whose wait has expired.
    pub(super) fn expire_late(&mut self, now_ns: u64) {
        // A group begins to wait when the last of its Pods is handed over.
        loop {
            let over = |waiting: &Waiting| now_ns.saturating_sub(waiting.attempt.end_ns) > PATIENCE_NS;
            let mut over: Vec<u64> =
                self.late.waiting.iter().filter(|(_, waiting)| over(waiting)).map(|(id, _)| *id).collect();
            if over.is_empty() {
                return;
            }
            over.sort_unstable();
            for id in over {
                if let Some(Waiting { mut attempt, part, .. }) = self.late.waiting.remove(&id) {
                    let goes_on =
                        |goroutine: &Goroutine| goroutine.open.iter().any(|open| open.owner == Some(id));
                    attempt.incomplete |= self.goroutines.values().any(goes_on);
                    self.hand_over(attempt, &part);
                }
            }
        }
    }
}
