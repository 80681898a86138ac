//! OTLP to a Collector, by gRPC or HTTP, as the `OTEL_EXPORTER_OTLP_*` variables say.
//!
//! A trace is encoded when it is queued, so that the queue is bounded in bytes, and a batch is sent until the Collector answers:
//! `opentelemetry-otlp` gives up within a second, and does not report which spans a Collector rejects.

mod answer;
mod client;
pub(super) mod encode;
mod protobuf;
mod queue;
mod settings;
pub(super) mod spool;
mod store;
mod tls;

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tracing::{info, warn};

use self::{
    answer::Answer,
    client::Client,
    encode::{Encoded, split},
    queue::Queue,
    settings::Settings,
    store::{Direct, Store, Stored},
};
use super::Error;
use crate::{Exported, Loss, Metrics, Trace, environment::variable, wakeups};

/// Interval between two warnings of the same outage.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Pauses before a request is sent again: each is twice the one before it, less up to a half by chance.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// How long a Collector that does not answer is tried after the shutdown.
const LAST_TRIES: Duration = Duration::from_secs(10);

/// Whether the environment disables the export.
pub(super) fn disabled() -> bool {
    variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none")
}

/// Sends a request without spans. Returns the endpoint; `None` if the environment disables the export.
///
/// # Errors
///
/// When the Collector does not accept it, or a variable has an invalid value. The message says in one line what to do.
pub async fn try_once() -> Result<Option<String>, String> {
    if disabled() {
        return Ok(None);
    }
    try_client(client().map_err(|error| error.to_string())?).await.map(Some)
}

/// Sends a request without spans. Returns the endpoint.
async fn try_client(mut client: Client) -> Result<String, String> {
    match client.send(&mut []).await {
        Answer::Accepted { .. } => Ok(client.endpoint().to_owned()),
        Answer::Later { reason, .. } | Answer::TooLarge(reason) | Answer::Refused(reason) => {
            Err(format!("cannot export to {}: {reason}", client.endpoint()))
        }
    }
}

/// A client by the settings of the environment.
fn client() -> Result<Client, Error> {
    connect(Settings::from_env()?)
}

fn connect(settings: Settings) -> Result<Client, Error> {
    let endpoint = settings.endpoint.clone();
    Client::new(settings).map_err(|reason| Error::Exporter { endpoint, reason })
}

/// The queue of a Collector, and the task that drains it.
#[derive(Debug)]
pub(super) struct Sink {
    queue: Queue,
    /// Bytes to reserve for the next trace.
    room: Mutex<usize>,
    task: JoinHandle<()>,
}

impl Sink {
    /// By the settings of the environment.
    ///
    /// # Errors
    ///
    /// When a variable has an invalid value, or names a file that cannot be used.
    pub(super) fn from_env(spool: &spool::Options, metrics: &Metrics) -> Result<Self, Error> {
        Self::start(Settings::from_env()?, spool, metrics)
    }

    fn start(settings: Settings, spool: &spool::Options, metrics: &Metrics) -> Result<Self, Error> {
        let queue = Queue::new(settings.capacity, settings.batching, metrics.clone());
        let client = connect(settings)?;
        let store = match &spool.spool {
            None => None,
            Some(directory) => Some(Store::open(directory, spool.spool_size, metrics).map_err(Error::Spool)?),
        };
        let exporter = Exporter {
            client,
            stored: store.map(|store| store.fill(queue.clone())),
            queue: queue.clone(),
            metrics: metrics.clone(),
            outage: None,
            rejections: Rejections::default(),
        };
        Ok(Self { queue, room: Mutex::default(), task: tokio::spawn(exporter.run()) })
    }

    pub(super) fn push(&self, trace: &Trace, resource: &Arc<[u8]>) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue.push(Encoded::new(trace, Arc::clone(resource), &mut room));
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.queue.is_crowded()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Takes no more traces. Returns the task, and how many spans are left.
    pub(super) fn close(self) -> (JoinHandle<()>, Box<dyn FnOnce() -> u64 + Send>) {
        let Self { queue, task, room: _ } = self;
        queue.close();
        (task, Box::new(move || queue.pending()))
    }
}

/// Sends what is queued.
struct Exporter {
    client: Client,
    /// Where batches come from, if not from the queue at once.
    stored: Option<(Store, mpsc::Receiver<Direct>)>,
    queue: Queue,
    metrics: Metrics,
    outage: Option<Outage>,
    rejections: Rejections,
}

/// A time in which the Collector accepts no spans.
struct Outage {
    warned: Option<Instant>,
    tries: u32,
    lost: u64,
}

/// Spans that the Collector rejects of requests that it accepts.
#[derive(Default)]
struct Rejections {
    warned: Option<Instant>,
    /// Since then.
    spans: u64,
}

impl Exporter {
    /// Exports until the queue is closed and empty, or the Collector does not answer after that.
    async fn run(mut self) {
        let Some((store, mut direct)) = self.stored.take() else {
            while let Some(batch) = self.queue.batch().await {
                if !self.deliver(batch, Some(&self.queue.clone())).await {
                    return;
                }
                self.queue.done();
            }
            return;
        };
        while self.queue.closed().is_none_or(|since| since.elapsed() < LAST_TRIES) {
            match store.next(&mut direct).await {
                None => return,
                Some(Stored::Entry(batch)) => {
                    if !self.deliver(batch, None).await {
                        return;
                    }
                    store.settle().await;
                }
                Some(Stored::Direct(Direct { batch, done })) => {
                    if !self.deliver(batch, Some(&self.queue.clone())).await {
                        return;
                    }
                    // The other end waits for it.
                    let _ = done.send(());
                }
            }
        }
    }

    /// Sends a batch until the Collector answers. Its spans are settled in the queue that it is from. Returns `false` when there
    /// is no answer, and no time left.
    async fn deliver(&mut self, batch: Vec<Encoded>, queue: Option<&Queue>) -> bool {
        // The last one is next.
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            let spans = part.iter().map(|trace| trace.spans).sum();
            match self.send(&mut part).await {
                Answer::Accepted { rejected, message } => self.accepted(spans, rejected, &message),
                Answer::Refused(reason) => self.refused(spans, &reason),
                Answer::TooLarge(reason) => match split(part) {
                    Some((first, rest)) => {
                        parts.extend([rest, first]);
                        continue;
                    }
                    None => self.refused(spans, &reason),
                },
                Answer::Later { pause, reason } => {
                    self.fails(&reason, 0);
                    if !self.pause(pause).await {
                        return false;
                    }
                    parts.push(part);
                    continue;
                }
            }
            if let Some(queue) = queue {
                queue.settle(spans);
            }
        }
        true
    }

    async fn send(&mut self, traces: &mut [Encoded]) -> Answer {
        // The connection's task and this one answer each other; throttling would delay a busy scheduler's spans.
        wakeups::at_once(self.client.send(traces)).await
    }

    fn accepted(&mut self, spans: u64, rejected: u64, message: &str) {
        let rejected = rejected.min(spans);
        self.metrics.exported(Exported::Success, spans - rejected);
        if let Some(Outage { lost, .. }) = self.outage.take() {
            info!("the export to {} works again; {lost} spans were lost", self.client.endpoint());
        }
        if rejected > 0 {
            self.metrics.exported(Exported::Error, rejected);
            self.metrics.loss(Loss::ExportRejected, rejected);
            self.rejections.spans += rejected;
            let now = Instant::now();
            if self.rejections.warned.is_none_or(|warned| now - warned >= WARN_EVERY) {
                warn!("{} rejects {} spans: {message}", self.client.endpoint(), self.rejections.spans);
                self.rejections = Rejections { warned: Some(now), spans: 0 };
            }
        }
    }

    fn refused(&mut self, spans: u64, reason: &str) {
        self.metrics.exported(Exported::Error, spans);
        self.metrics.loss(Loss::ExportFailed, spans);
        self.fails(reason, spans);
    }

    fn fails(&mut self, reason: &str, lost: u64) {
        let now = Instant::now();
        let outage = self.outage.get_or_insert(Outage { warned: None, tries: 0, lost: 0 });
        outage.tries = outage.tries.saturating_add(1);
        outage.lost += lost;
        if outage.warned.is_none_or(|warned| now - warned >= WARN_EVERY) {
            outage.warned = Some(now);
            warn!(
                "cannot export to {}: {reason}; {} spans wait, {} are lost",
                self.client.endpoint(),
                self.metrics.waiting(),
                outage.lost
            );
        }
    }

    /// Waits until the next try, not long after the shutdown. Returns `false` when there is no time left for one. A pause that the
    /// Collector asks for is never shortened: where it is too long, there is no next try.
    async fn pause(&self, asked: Option<Duration>) -> bool {
        let tries = self.outage.as_ref().map_or(0, |outage| outage.tries);
        let mut next = Instant::now() + asked.unwrap_or_else(|| pause(tries)).max(FIRST_PAUSE / 2);
        self.metrics.retried();
        let closed = tokio::select! {
            () = sleep_until(next) => return true,
            closed = self.queue.until_closed() => closed,
        };
        if asked.is_none() {
            next = next.min(Instant::now() + FIRST_PAUSE);
        }
        let in_time = next - closed < LAST_TRIES;
        if in_time {
            sleep_until(next).await;
        }
        in_time
    }
}

/// The pause after so many tries.
fn pause(tries: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(LAST_PAUSE);
    // Its keys are random.
    let chance = RandomState::new().build_hasher().finish() as u32;
    longest - longest.mul_f64(f64::from(chance) / f64::from(u32::MAX) / 2.0)
}

#[cfg(test)]
mod tests;
