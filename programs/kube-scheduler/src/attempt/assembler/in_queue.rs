//! Extension points that run while a Pod is in no attempt: `PreEnqueue` before it enters a queue, and `Sign` when it
//! is created or changed.
//!
//! The metric's call says when each began and how it ended, and where the scheduler keeps that on its stack, which Pod it is for. Else the
//! entry is a record of its own.

use std::{collections::BTreeMap, sync::Arc};

use gotrace::{
    Role,
    account::{Count, Counter},
};

use super::{Goroutine, MAX_MOVING, MAX_SIGNED, Process, queues::push_newest};
use crate::{
    Event,
    attempt::{Code, InQueue, QueueCall},
    table::{Function, Part},
    values::Value,
};

/// Calls of the extension points that run while a Pod waits.
pub const QUEUE_PHASE_CALLS: Counter = Counter {
    name: "queue_phase_calls",
    help: "Calls of the extension points that run while a Pod waits in a queue, by phase and status",
    labels: &["phase", "status"],
};
/// Their durations.
pub const QUEUE_PHASE_NANOSECONDS: Counter = Counter {
    name: "queue_phase_nanoseconds",
    help: "Time in the extension points that run while a Pod waits in a queue, nanoseconds",
    labels: &["phase"],
};

/// Number of events of a call whose entry is one of its own.
const EVENTS: u64 = 2;
/// Label of codes that no version has. A recording may hold any number.
const UNKNOWN: &str = "unknown";

/// Totals of all processes, with or without an attempt of the Pod.
#[derive(Debug, Default)]
pub(super) struct QueuePhases {
    /// By phase and status code.
    calls: BTreeMap<(&'static str, Option<i64>), u64>,
    nanoseconds: BTreeMap<&'static str, u64>,
}

/// A call that has not ended.
#[derive(Debug)]
pub(super) struct Running {
    function: Function,
    /// Address of the `QueuedPodInfo`.
    entry: Option<u64>,
    pod: Option<u64>,
    start_ns: u64,
}

/// A signature after which its Pod has entered no queue: it was in one and stayed there, or it is gone.
#[derive(Debug)]
pub(super) struct Signed {
    start_ns: u64,
    end_ns: u64,
    returned: bool,
    /// Number of events of the call.
    events: u64,
}

impl QueuePhases {
    /// Counts the end of a call of this process, and the time since its start.
    pub(super) fn count(&mut self, event: &Event, process: &Process) {
        let (Part::InQueue(phase), false) = (event.function.about(), event.role == Role::Entry) else {
            return;
        };
        *self.calls.entry((phase.name(), code(event).map(|code| code.0))).or_default() += 1;
        let took = process.start_in_queue(event).map(|start| event.time_ns.saturating_sub(start));
        *self.nanoseconds.entry(phase.name()).or_default() += took.unwrap_or_default();
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = Count> {
        let status =
            |code: Option<i64>| code.map_or_else(|| UNKNOWN.to_owned(), |code| Code(code).to_string());
        let calls = self.calls.iter().map(move |((phase, code), total)| Count {
            counter: QUEUE_PHASE_CALLS.name,
            labels: vec![(*phase).to_owned(), status(*code)],
            total: *total,
        });
        let nanoseconds = self.nanoseconds.iter().map(|(phase, total)| Count {
            counter: QUEUE_PHASE_NANOSECONDS.name,
            labels: vec![(*phase).to_owned()],
            total: *total,
        });
        calls.chain(nanoseconds)
    }
}

/// The status that the scheduler's metric has. That of `Sign` is not read: it is always Success.
fn code(event: &Event) -> Option<Code> {
    let always = (event.function == Function::Sign).then_some(Code::SUCCESS);
    let code = event.values.signed(Value::StatusCode).map(Code).or(always)?;
    (Code::SUCCESS.0..=Code::PENDING.0).contains(&code.0).then_some(code)
}

impl Process {
    pub(super) fn in_queue(&mut self, event: &Event) {
        match event.role {
            Role::Entry => self.begin_in_queue(event),
            Role::ReturnSite | Role::NextEntry | Role::Ret | Role::InTurn | Role::Metric => {
                self.end_in_queue(event);
            }
        }
    }

    fn begin_in_queue(&mut self, event: &Event) {
        let Event { time_ns, goroutine, function, values, .. } = event;
        if self.running_in_queue.len() >= self.room(MAX_MOVING) {
            // Calls of goroutines that a panic ended.
            self.running_in_queue.drain().for_each(|_| self.books.orphan_move());
        }
        let (entry, pod) = (values.number(Value::QueuedPodInfo), values.number(Value::Pod));
        let running = Running { function: *function, entry, pod, start_ns: *time_ns };
        if self.running_in_queue.insert(*goroutine, running).is_some() {
            self.books.orphan_move();
        }
    }

    /// The start of the call that this event ends: the scheduler's own reading of the clock, or the entry.
    fn start_in_queue(&self, event: &Event) -> Option<u64> {
        let entered = || {
            let running = self.running_in_queue.get(&event.goroutine);
            running.filter(|running| running.function == event.function).map(|running| running.start_ns)
        };
        event.values.number(Value::StartedNs).or_else(entered)
    }

    fn end_in_queue(&mut self, event: &Event) {
        let Event { time_ns, goroutine, function, values, .. } = event;
        let start_ns = self.start_in_queue(event);
        let (entry, pod) = (values.number(Value::QueuedPodInfo), values.number(Value::Pod));
        let (running, events) = if pod.is_some() {
            (Running { function: *function, entry, pod, start_ns: *time_ns }, 1)
        } else {
            let Some(running) = self.running_in_queue.remove(goroutine) else {
                return self.books.orphan_move();
            };
            if running.function != *function {
                self.books.orphan_move();
                return self.books.orphan_move();
            }
            (running, EVENTS)
        };
        let start_ns = start_ns.unwrap_or(running.start_ns).min(*time_ns);
        let call = QueueCall {
            function: *function,
            start_ns,
            end_ns: *time_ns,
            code: code(event),
            gate: None,
            returned: values.flag(Value::Panics) != Some(true),
        };
        match running {
            Running { entry: Some(entry), pod, .. } => {
                let signed = self.take_signature(pod);
                let queued = self.queued(entry);
                signed
                    .into_iter()
                    .chain([(call, events)])
                    .for_each(|(call, events)| queued.ran(call, events));
            }
            Running { pod: Some(pod @ 1..), function: Function::Sign, .. } => {
                let QueueCall { start_ns, end_ns, returned, .. } = call;
                self.sign(*goroutine, pod, Signed { start_ns, end_ns, returned, events });
            }
            Running { .. } => (0..events).for_each(|_| self.books.orphan_move()),
        }
    }

    /// Remembers a signature until its Pod enters a queue or is popped.
    fn sign(&mut self, goroutine: u64, pod: u64, signed: Signed) {
        // 1.35 signs in the attempt. A Pod that is new may be where one was that another attempt has known.
        let on = self.goroutines.get(&goroutine).and_then(Goroutine::on);
        if on.is_some_and(|on| self.by_pod.get(&pod) == Some(&on)) {
            self.books.account.unrelated += signed.events;
            return;
        }
        if self.signed.len() >= self.room(MAX_SIGNED) {
            // Most are of Pods that were changed again or deleted.
            self.forget_signatures();
        }
        if let Some(before) = self.signed.insert(pod, signed) {
            self.books.account.waiting += before.events;
        }
    }

    /// Forgets signatures of Pods that have entered no queue.
    pub(super) fn forget_signatures(&mut self) {
        self.books.account.waiting += self.signed.drain().map(|(_, signed)| signed.events).sum::<u64>();
    }

    /// The last signature of a Pod that enters a queue or is popped, and the number of its events.
    pub(super) fn take_signature(&mut self, pod: Option<u64>) -> Option<(QueueCall, u64)> {
        let Signed { start_ns, end_ns, returned, events } = self.signed.remove(&pod?)?;
        let code = Some(Code::SUCCESS);
        let call = QueueCall { function: Function::Sign, start_ns, end_ns, code, gate: None, returned };
        Some((call, events))
    }

    /// Number of events that belong to no Pod yet.
    pub(super) fn events_in_queue(&self) -> u64 {
        self.running_in_queue.len() as u64 + self.signed.values().map(|signed| signed.events).sum::<u64>()
    }
}

impl InQueue {
    pub(super) fn add(&mut self, call: QueueCall) {
        let took = call.end_ns.saturating_sub(call.start_ns);
        if call.function == Function::Sign {
            self.sign_ns = self.sign_ns.saturating_add(took);
        } else {
            self.pre_enqueue_ns = self.pre_enqueue_ns.saturating_add(took);
            if let Some(since) = self.held_since.take() {
                self.held_ns = self.held_ns.saturating_add(call.start_ns.saturating_sub(since));
            }
            self.held_since = call.code.filter(|code| *code != Code::SUCCESS).map(|_| call.end_ns);
        }
        push_newest(&mut self.calls, &mut self.left_out, call);
    }

    /// The last `PreEnqueue` did not let the Pod pass, because of this plugin. From 1.34 on the scheduler's metric says
    /// Success nevertheless:
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/backend/queue/scheduling_queue.go#L598-L625>,
    /// where `s` is shadowed.
    pub(super) fn hold(&mut self, gate: Arc<str>) {
        let Some(call) = self.calls.last_mut().filter(|call| call.function == Function::PreEnqueue) else {
            return;
        };
        call.code = call.code.filter(|code| *code != Code::SUCCESS);
        call.gate = Some(gate);
        self.held_since = Some(call.end_ns);
    }
}
