//! What is done for an attempt on goroutines that it does not wait for: it may begin and end when the attempt is over.
//!
//! An attempt that is over is handed over when all of that has ended, or after some seconds: its spans leave together.

use super::{
    super::{ApiCall, Attempt, Call},
    Goroutine, HashMap, MAX_CALLS, MAX_MOVING, Membership, Process,
};
use gotrace::Role;

use crate::{Event, values::Value};

/// Attempts that wait at once.
const MAX_WAITING: usize = 4_096;
/// What is remembered at once of calls that are queued and of candidates; most have been taken.
const MAX_KNOWN: usize = 16_384;
/// How long an attempt waits. A call that another one replaced is never made, and a victim that is being deleted already is
/// left alone.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What attempts have begun that others do.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// Calls in the dispatcher's queue, by their address: whose, and since when.
    queued: HashMap<u64, (u64, u64)>,
    /// Which call a goroutine is putting into that queue.
    adding: HashMap<u64, Option<u64>>,
    /// Who preempts, by the address of the candidate.
    candidates: HashMap<u64, u64>,
    /// Attempts that are over.
    waiting: HashMap<u64, Waiting>,
    /// Nothing will come any more.
    closed: bool,
}

#[derive(Debug)]
struct Waiting {
    attempt: Attempt,
    part: Membership,
    outstanding: u64,
}

impl Late {
    /// Victims of this candidate go for the attempt.
    pub(super) fn preempts(&mut self, candidate: u64, id: u64) {
        if self.candidates.len() >= MAX_KNOWN {
            self.candidates.clear();
        }
        self.candidates.insert(candidate, id);
    }

    /// For which attempt something is done, and what is known of it.
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

    /// Whether the attempt is over and has not been handed over.
    pub(super) fn waits(&self, id: u64) -> bool {
        self.waiting.contains_key(&id)
    }

    /// What is waited for may have been lost, or is not done any more.
    pub(super) fn distrust(&mut self) {
        self.waiting.values_mut().for_each(|waiting| waiting.attempt.incomplete = true);
    }

    /// No attempt waits from now on.
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
    /// The goroutine puts a call into the dispatcher's queue, which may not want it: then it is not made.
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

    /// Something has ended that was done for an attempt that is over.
    pub(super) fn close_late(&mut self, id: u64, mut call: Call) {
        let Some(waiting) = self.late.waiting.get_mut(&id) else { return };
        let Waiting { attempt, outstanding, .. } = waiting;
        call.start_ns = call.start_ns.max(attempt.start_ns);
        call.end_ns = call.end_ns.max(call.start_ns);
        if attempt.calls.len() < MAX_CALLS {
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

    /// Hands over what has waited for long enough.
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
