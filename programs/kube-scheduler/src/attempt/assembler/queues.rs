//! Pods in the queues, until they are popped.

use std::{collections::HashMap as StdHashMap, sync::Arc};

use gotrace::account::{Count, Counter};

use super::{MAX_ENQUEUED, MAX_MOVES, MAX_MOVING, Process};
use crate::{
    Event, Values,
    attempt::{Attempt, InQueue, Move, QueueCall},
    values::Value,
};

/// The values of the label `queue`.
const QUEUES: [&str; 3] = ["active", "backoff", "unschedulable"];
/// The event of a Pod that is popped directly from the backoff queue because the active queue is empty.
pub(crate) const POPPED_FROM_BACKOFF: &str = "PopFromBackoffQ";

/// Events of a queue counted by name; further ones are counted as `other`.
const MAX_EVENTS: usize = 512;
const OTHER: &str = "other";

/// The scheduler's `queue_incoming_pods_total`, as schedspan counts it.
pub const QUEUE_INCOMING_PODS: Counter = Counter {
    name: "queue_incoming_pods",
    help: "Pods that entered a queue of the scheduler, by queue and event",
    labels: &["queue", "event"],
};

/// Queue history of a Pod.
#[derive(Debug, Default)]
pub(super) struct Queued {
    /// When it entered the active queue.
    active_ns: Option<u64>,
    moves: Vec<Move>,
    left_out: u64,
    pub(super) in_queue: InQueue,
    /// Number of events in the history.
    pub(super) events: u64,
}

/// Numbers of Pods that entered a queue, by queue and event.
#[derive(Debug, Default)]
pub(super) struct QueueMoves([StdHashMap<String, u64>; QUEUES.len()]);

impl QueueMoves {
    pub(super) fn count(&mut self, values: &Values) {
        let Some((queue, event)) = moved(values) else { return };
        let Some(place) = QUEUES.iter().position(|own| *own == queue) else { return };
        let events = &mut self.0[place];
        let event = if events.len() < MAX_EVENTS || events.contains_key(event) { event } else { OTHER };
        match events.get_mut(event) {
            Some(total) => *total += 1,
            None => drop(events.insert(event.to_owned(), 1)),
        }
    }

    pub(super) fn counts(&self) -> Vec<Count> {
        let of_queue = |(queue, events): (&&str, &StdHashMap<String, u64>)| {
            let count = |(event, total): (&String, &u64)| Count {
                counter: QUEUE_INCOMING_PODS.name,
                labels: vec![(*queue).to_owned(), event.clone()],
                total: *total,
            };
            events.iter().map(count).collect::<Vec<_>>()
        };
        QUEUES.iter().zip(&self.0).flat_map(of_queue).collect()
    }
}

impl Process {
    pub(super) fn enqueue(&mut self, event: &Event, active: bool) {
        let Some(entry) = event.values.number(Value::QueuedPodInfo) else {
            self.books.orphan_move();
            return;
        };
        let gate = event.values.text(Value::Gate).filter(|gate| !gate.is_empty());
        let gate = gate.map(|gate| self.names.intern(gate));
        let queued = self.queued(entry);
        queued.events += 1;
        if active {
            queued.active_ns = Some(event.time_ns);
        }
        if let Some(gate) = gate {
            queued.in_queue.hold(gate);
        }
        if self.moving.len() >= self.room(MAX_MOVING) {
            // Entries of ended goroutines.
            self.moving.clear();
        }
        self.moving.insert(event.goroutine, entry);
    }

    /// The history of a queue entry.
    pub(super) fn queued(&mut self, entry: u64) -> &mut Queued {
        if self.queued.len() >= self.room(MAX_ENQUEUED) {
            self.queued.drain().for_each(|(_, queued)| self.books.no_room(queued.events));
        }
        self.queued.entry(entry).or_default()
    }

    /// Takes the history of a queue entry, which is empty if nothing was seen of it.
    pub(super) fn take_queued(&mut self, entry: Option<u64>) -> Queued {
        entry.and_then(|entry| self.queued.remove(&entry)).map_or_else(Queued::default, |queued| *queued)
    }

    /// Records a queue move: the scheduler counts the Pod that the goroutine queued last.
    pub(super) fn queue_move(&mut self, event: Event) {
        let Event { time_ns, goroutine, values, .. } = event;
        let Some((queue, event)) = moved(&values) else {
            self.books.account.unrelated += 1;
            return;
        };
        if event == POPPED_FROM_BACKOFF {
            if self.popped_from_backoff.len() >= self.room(MAX_MOVING) {
                self.popped_from_backoff.drain().for_each(|_| self.books.no_room(1));
            }
            if self.popped_from_backoff.insert(goroutine, time_ns).is_some() {
                // The scheduler popped a Pod that it is already scheduling, and looked for another one:
                // <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/backend/queue/active_queue.go>,
                // `unlockedPop`
                self.books.account.skipped += 1;
            }
            return;
        }
        let Some(queued) = self.moving.get(&goroutine).and_then(|entry| self.queued.get_mut(entry)) else {
            self.books.orphan_move();
            return;
        };
        queued.events += 1;
        queued.push(Move { time_ns, queue, event: self.names.intern(event) });
    }
}

impl Queued {
    /// A new attempt with this queue history, and no Pod yet.
    pub(super) fn attempt(self, target: u32, time_ns: u64) -> Attempt {
        let Self { active_ns, moves, left_out, in_queue, events } = self;
        Attempt {
            target,
            start_ns: time_ns,
            end_ns: time_ns,
            enqueued_ns: active_ns,
            moves,
            moves_left_out: left_out,
            in_queue,
            events,
            ..Attempt::default()
        }
    }

    /// Records that the Pod is popped directly from the backoff queue.
    pub(super) fn pop_from_backoff(&mut self, time_ns: u64, event: Arc<str>) {
        self.events += 1;
        self.push(Move { time_ns, queue: QUEUES[0], event });
    }

    /// Adds a move. The newest says why the Pod is where it is.
    pub(super) fn push(&mut self, next: Move) {
        push_newest(&mut self.moves, &mut self.left_out, next);
    }

    /// Adds a call of an extension point, which came about by so many events.
    pub(super) fn ran(&mut self, call: QueueCall, events: u64) {
        self.events += events;
        self.in_queue.add(call);
    }
}

/// Adds the newest to the history of a Pod. Of more than [`MAX_MOVES`], the first and the last ones are kept.
pub(super) fn push_newest<T>(list: &mut Vec<T>, left_out: &mut u64, newest: T) {
    if list.len() == MAX_MOVES {
        list.remove(MAX_MOVES / 2);
        *left_out += 1;
    }
    // Most Pods that wait have one or two, and thousands of Pods may wait.
    if list.len() < 2 {
        list.reserve_exact(1);
    }
    list.push(newest);
}

/// Queue and event from the labels of the queue's metric; `None` for other metrics.
pub(crate) fn moved(values: &Values) -> Option<(&'static str, &str)> {
    let (queue, event) = (values.text(Value::Queue)?, values.text(Value::QueueEvent)?);
    let queue = QUEUES.into_iter().find(|own| *own == queue)?;
    (values.number(Value::Labels) == Some(2)).then_some((queue, event))
}
