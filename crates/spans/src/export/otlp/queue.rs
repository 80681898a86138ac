//! Encoded traces that wait for the Collector, bounded in spans and in bytes.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::Notify,
    time::{Duration, Instant, timeout_at},
};

use super::encode::Encoded;
use crate::{Loss, Metrics};

/// What a queue holds at most, with the batch that is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    pub(super) spans: u64,
    pub(super) bytes: u64,
}

/// How traces are batched. One with more spans or bytes makes a larger batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batching {
    pub(super) spans: u64,
    pub(super) bytes: u64,
    /// Counted from the first trace.
    pub(super) delay: Duration,
}

/// A queue of traces. A full one loses its oldest traces, which are worth the least. Clones are handles of the same queue.
#[derive(Clone, Debug)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The reader has a reason to look: a first trace, a full batch, or the end.
    changed: Notify,
    /// It is closed. Not [`Self::changed`], which wakes one task: the reader, and no other may take its place.
    ended: Notify,
    capacity: Capacity,
    batching: Batching,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Encoded>,
    /// Of the traces that wait.
    waits: Load,
    /// Of the batch that is on its way.
    on_its_way: Load,
    closed: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    spans: u64,
    bytes: u64,
}

impl Load {
    fn add(&mut self, trace: &Encoded) {
        self.spans += trace.spans;
        self.bytes += trace.size();
    }

    fn remove(&mut self, trace: &Encoded) {
        self.spans -= trace.spans;
        self.bytes -= trace.size();
    }
}

impl State {
    fn fits(&self, trace: &Encoded, capacity: Capacity) -> bool {
        self.waits.spans + self.on_its_way.spans + trace.spans <= capacity.spans
            && self.waits.bytes + self.on_its_way.bytes + trace.size() <= capacity.bytes
    }

    fn pop(&mut self) -> Option<Encoded> {
        let trace = self.waiting.pop_front()?;
        self.waits.remove(&trace);
        Some(trace)
    }

    fn fills(&self, batching: Batching) -> bool {
        self.waits.spans >= batching.spans || self.waits.bytes >= batching.bytes
    }
}

impl Queue {
    pub(super) fn new(capacity: Capacity, batching: Batching, metrics: Metrics) -> Self {
        let (state, changed, ended) = Default::default();
        Self(Arc::new(Shared { state, changed, ended, capacity, batching, metrics }))
    }

    /// Takes a trace in, and counts what there is no room for.
    pub(super) fn push(&self, trace: Encoded) {
        let Shared { changed, capacity, batching, metrics, .. } = &*self.0;
        let mut state = self.state();
        if state.closed.is_some() {
            return metrics.loss(Loss::Shutdown, trace.spans);
        }
        while !state.fits(&trace, *capacity) {
            let Some(oldest) = state.pop() else {
                return metrics.loss(Loss::ExportQueueFull, trace.spans);
            };
            metrics.loss(Loss::ExportQueueFull, oldest.spans);
        }
        let (was_empty, was_filled) = (state.waiting.is_empty(), state.fills(*batching));
        state.waits.add(&trace);
        state.waiting.push_back(trace);
        if was_empty || !was_filled && state.fills(*batching) {
            changed.notify_one();
        }
        self.publish(&state);
    }

    /// The next batch: when it is full, or when its first trace has waited for long enough. `None` once the queue is closed and
    /// empty.
    pub(super) async fn batch(&self) -> Option<Vec<Encoded>> {
        let Shared { changed, batching, .. } = &*self.0;
        while self.state().waiting.is_empty() {
            if self.closed().is_some() {
                return None;
            }
            changed.notified().await;
        }
        let deadline = Instant::now() + batching.delay;
        while !self.is_due() && timeout_at(deadline, changed.notified()).await.is_ok() {}
        Some(self.take())
    }

    /// Whether a batch need not wait for more.
    fn is_due(&self) -> bool {
        let state = self.state();
        state.fills(self.0.batching) || state.closed.is_some()
    }

    fn take(&self) -> Vec<Encoded> {
        let batching = self.0.batching;
        let mut state = self.state();
        let (mut batch, mut load) = (Vec::new(), Load::default());
        while let Some(next) = state.waiting.front() {
            let full = load.spans + next.spans > batching.spans || load.bytes + next.size() > batching.bytes;
            if full && !batch.is_empty() {
                break;
            }
            load.add(next);
            batch.extend(state.pop());
        }
        state.on_its_way = load;
        batch
    }

    /// All of the batch is settled: its room is free.
    pub(super) fn done(&self) {
        let mut state = self.state();
        state.on_its_way = Load::default();
        self.publish(&state);
    }

    /// Spans of the batch have arrived or are lost.
    pub(super) fn settle(&self, spans: u64) {
        let mut state = self.state();
        state.on_its_way.spans -= spans;
        self.publish(&state);
    }

    /// Takes no more traces.
    pub(super) fn close(&self) {
        self.state().closed.get_or_insert_with(Instant::now);
        self.0.changed.notify_one();
        self.0.ended.notify_waiters();
    }

    /// Since when it is closed.
    pub(super) fn closed(&self) -> Option<Instant> {
        self.state().closed
    }

    /// Waits until it is closed. Returns since when it is.
    pub(super) async fn until_closed(&self) -> Instant {
        loop {
            let ended = self.0.ended.notified();
            if let Some(since) = self.closed() {
                return since;
            }
            ended.await;
        }
    }

    /// Spans that have not arrived and are not lost.
    pub(super) fn pending(&self) -> u64 {
        let state = self.state();
        state.waits.spans + state.on_its_way.spans
    }

    /// Whether it is more than half full.
    pub(super) fn is_crowded(&self) -> bool {
        let Capacity { spans, bytes } = self.0.capacity;
        let state = self.state();
        state.waits.spans > spans / 2 || state.waits.bytes > bytes / 2
    }

    fn publish(&self, state: &State) {
        self.0
            .metrics
            .queued(state.waits.spans + state.on_its_way.spans, state.waits.bytes + state.on_its_way.bytes);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use telemetry::Registry;
    use tokio::time::timeout;

    use super::{
        super::{super::tests::item, tests::gauge},
        *,
    };
    use crate::fixtures::scheduled;

    const LONG: Duration = Duration::from_secs(3_600);
    const SOON: Duration = Duration::from_secs(5);

    fn trace() -> Encoded {
        let item = item(scheduled());
        Encoded::new(&item.trace, item.resource, &mut 0)
    }

    fn queue(spans: u64, bytes: u64) -> Queue {
        let capacity = Capacity { spans: 100 * trace().spans, bytes: 100 * trace().size() };
        Queue::new(capacity, Batching { spans, bytes, delay: LONG }, Metrics::new(&Registry::default()))
    }

    #[tokio::test]
    async fn a_batch_that_is_full_in_spans_or_in_bytes_does_not_wait() {
        for (spans, bytes) in [(2 * trace().spans, u64::MAX), (u64::MAX, 2 * trace().size())] {
            let queue = queue(spans, bytes);
            queue.push(trace());
            let waiting = queue.clone();
            let batch = tokio::spawn(async move { waiting.batch().await });
            tokio::task::yield_now().await;
            assert!(!queue.is_due(), "one of two traces fills no batch");
            queue.push(trace());
            queue.push(trace());
            let batch = timeout(SOON, batch).await.expect("a full batch does not wait").unwrap().unwrap();
            assert_eq!(batch.len(), 2);
            assert_eq!(queue.state().waiting.len(), 1);
        }
    }

    #[tokio::test]
    async fn the_first_trace_and_the_one_that_fills_a_batch_wake_the_reader_and_no_other_does() {
        let queue = queue(3 * trace().spans, u64::MAX);
        for expected in [true, false, true, false] {
            queue.push(trace());
            let woken = timeout(Duration::ZERO, queue.0.changed.notified()).await.is_ok();
            assert_eq!(woken, expected);
        }
    }

    #[tokio::test]
    async fn what_is_on_its_way_is_pending_until_it_is_settled_and_takes_room_until_all_of_it_is() {
        let (spans, size) = (trace().spans, trace().size());
        let registry = Registry::default();
        let queue = Queue::new(
            Capacity { spans: u64::MAX, bytes: u64::MAX },
            Batching { spans, bytes: u64::MAX, delay: LONG },
            Metrics::new(&registry),
        );
        let shows = |traces, memory_of| {
            assert_eq!(queue.pending(), traces * spans);
            assert_eq!(gauge(&registry, "export_queue_spans"), traces * spans);
            assert_eq!(gauge(&registry, "export_queue_bytes"), memory_of * size);
        };
        for _ in 0..3 {
            queue.push(trace());
        }
        assert_eq!(queue.batch().await.map(|batch| batch.len()), Some(1));
        shows(3, 3);
        queue.settle(spans);
        shows(2, 3);
        queue.done();
        shows(2, 2);
    }

    #[test]
    fn a_queue_that_is_half_full_is_not_crowded_yet() {
        let (spans, bytes) = (2 * trace().spans, 2 * trace().size());
        for capacity in [Capacity { spans, bytes: u64::MAX }, Capacity { spans: u64::MAX, bytes }] {
            let batching = Batching { spans: u64::MAX, bytes: u64::MAX, delay: LONG };
            let queue = Queue::new(capacity, batching, Metrics::new(&Registry::default()));
            for expected in [false, true] {
                queue.push(trace());
                assert_eq!(queue.is_crowded(), expected, "{capacity:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_trace_that_is_larger_than_a_batch_is_one() {
        let queue = queue(1, u64::MAX);
        queue.push(trace());
        queue.push(trace());
        let batch = timeout(SOON, queue.batch()).await.expect("it is full").unwrap();
        assert_eq!(batch.len(), 1);
    }

    #[tokio::test]
    async fn who_waits_for_the_end_takes_no_wake_up_from_the_reader() {
        let queue = Queue::new(
            Capacity { spans: u64::MAX, bytes: u64::MAX },
            Batching { spans: u64::MAX, bytes: u64::MAX, delay: Duration::ZERO },
            Metrics::new(&Registry::default()),
        );
        let waiting = queue.clone();
        let end = tokio::spawn(async move { waiting.until_closed().await });
        tokio::task::yield_now().await;
        let reading = queue.clone();
        let batch = tokio::spawn(async move { reading.batch().await });
        tokio::task::yield_now().await;
        queue.push(trace());
        let batch = timeout(SOON, batch).await.expect("the reader is woken").unwrap();
        assert_eq!(batch.map(|batch| batch.len()), Some(1));
        queue.close();
        timeout(SOON, end).await.expect("the end is seen").unwrap();
    }

    #[tokio::test]
    async fn a_closed_queue_hands_over_the_rest_and_then_nothing() {
        let queue = queue(u64::MAX, u64::MAX);
        queue.push(trace());
        queue.close();
        let batch = timeout(SOON, queue.batch()).await.expect("it waits for no more");
        assert_eq!(batch.map(|batch| batch.len()), Some(1));
        assert!(timeout(SOON, queue.batch()).await.expect("it is empty").is_none());
    }
}
