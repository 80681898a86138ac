//! Outputs of traces: OTLP to a Collector, JSON lines or waterfalls on standard output, several at once.
//!
//! Each output has its own queue, bounded in spans. Sending never blocks; spans that do not fit are lost, and counted by cause.
//! The OpenTelemetry SDK's processor would drop them silently.

mod filter;
mod otlp;
mod resource;
mod sdk;
mod stdout;
mod terminal;

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};
use tracing::info;

pub use self::{
    filter::Filter,
    otlp::try_once,
    resource::Resource,
    terminal::{Style, waterfall},
};
use crate::{Loss, Metrics, Source, Trace, environment};

/// Polling interval of [`Sinks::room`].
const ROOM_INTERVAL: Duration = Duration::from_millis(2);

/// A kind of output.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Waterfalls on standard output, for people
    Terminal,
    /// OTLP as JSON on standard output, a line per trace, as the Collector's file exporter writes it
    Json,
    /// OTLP to a Collector, by the OTEL_EXPORTER_OTLP_* variables; http://localhost:4317 by gRPC without them
    Otlp,
}

/// Why an output cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable of the environment has an invalid value.
    #[error(transparent)]
    Variable(#[from] environment::Error),
    /// The exporter cannot be built.
    #[error("cannot export to `{endpoint}`: {reason}; check the OTEL_EXPORTER_OTLP_* variables")]
    Exporter {
        /// The endpoint.
        endpoint: String,
        /// Why.
        reason: opentelemetry_otlp::ExporterBuildError,
    },
}

/// The outputs.
#[derive(Debug)]
pub struct Sinks {
    /// `None` after the shutdown.
    sinks: RwLock<Option<Vec<Sink>>>,
    resources: RwLock<HashMap<Source, opentelemetry_sdk::Resource>>,
    metrics: Metrics,
}

/// A queued trace, with its resource at the time of sending.
#[derive(Clone)]
struct Item {
    trace: Arc<Trace>,
    resource: opentelemetry_sdk::Resource,
}

/// The sending end of a queue, and the task that drains it.
#[derive(Debug)]
struct Sink {
    sender: UnboundedSender<Item>,
    pending: Arc<AtomicU64>,
    /// In spans.
    capacity: u64,
    causes: Causes,
    task: JoinHandle<()>,
}

/// The causes of an output's losses.
#[derive(Clone, Copy, Debug)]
struct Causes {
    full: Loss,
    failed: Loss,
}

/// The receiving end of a queue.
struct Queue {
    receiver: UnboundedReceiver<Item>,
    /// Spans that are sent and not settled.
    pending: Arc<AtomicU64>,
    failed: Loss,
    metrics: Metrics,
}

impl Item {
    fn spans(&self) -> u64 {
        self.trace.spans.len() as u64
    }
}

impl Sinks {
    /// Opens outputs within a tokio runtime.
    ///
    /// With `plugins` waterfalls show each plugin. Each queue holds `OTEL_BSP_MAX_QUEUE_SIZE` spans, by default 65,536.
    /// `OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` switch OTLP off.
    ///
    /// # Errors
    ///
    /// When a variable of the environment has an invalid value. A Collector that cannot be reached is not an error.
    pub fn start(outputs: &[Output], plugins: bool, metrics: Metrics) -> Result<Self, Error> {
        let capacity = number("OTEL_BSP_MAX_QUEUE_SIZE", 65_536)?;
        let mut sinks = Vec::with_capacity(outputs.len());
        for output in outputs {
            sinks.push(match output {
                Output::Terminal => Sink::open(capacity, stdout::CAUSES, &metrics, |queue| {
                    stdout::spawn(queue, move |item| stdout::terminal(item, plugins))
                }),
                Output::Json => {
                    Sink::open(capacity, stdout::CAUSES, &metrics, |queue| stdout::spawn(queue, stdout::json))
                }
                Output::Otlp if otlp::disabled() => {
                    info!("OTLP is switched off by the environment");
                    continue;
                }
                Output::Otlp => {
                    let exporter = otlp::Exporter::from_env()?;
                    Sink::open(capacity, otlp::CAUSES, &metrics, |queue| tokio::spawn(exporter.run(queue)))
                }
            });
        }
        Ok(Self { sinks: RwLock::new(Some(sinks)), resources: RwLock::default(), metrics })
    }

    /// Sets the resource of a source. To be called before its first trace.
    pub fn register(&self, resource: &Resource) {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        resources.insert(resource.source, resource.to_sdk());
    }

    /// Drops the resource of a source. To be called after its last trace; queued traces keep theirs.
    pub fn forget(&self, source: Source) {
        self.resources.write().unwrap_or_else(PoisonError::into_inner).remove(&source);
    }

    /// Sends a trace to all outputs, without blocking.
    pub fn send(&self, trace: Trace) {
        let known = self.resources.read().unwrap_or_else(PoisonError::into_inner).get(&trace.source).cloned();
        let resource = known.unwrap_or_else(|| Resource::unknown(trace.source).to_sdk());
        let item = Item { trace: Arc::new(trace), resource };
        match &*self.sinks.read().unwrap_or_else(PoisonError::into_inner) {
            Some(sinks) => sinks.iter().for_each(|sink| sink.push(item.clone(), &self.metrics)),
            None => self.metrics.loss(Loss::Shutdown, item.spans()),
        }
    }

    /// Waits until no queue is more than half full: for a replay, which can wait.
    pub async fn room(&self) {
        let crowded = || {
            let sinks = self.sinks.read().unwrap_or_else(PoisonError::into_inner);
            sinks.iter().flatten().any(|sink| sink.pending.load(Ordering::Relaxed) > sink.capacity / 2)
        };
        while crowded() {
            sleep(ROOM_INTERVAL).await;
        }
    }

    /// Whether every output has ended, as standard output does when its reader goes away.
    #[must_use]
    pub fn ended(&self) -> bool {
        let sinks = self.sinks.read().unwrap_or_else(PoisonError::into_inner);
        sinks.iter().flatten().all(|sink| sink.sender.is_closed())
    }

    /// Drains the queues, at most `within`. What is left then is lost.
    pub async fn shutdown(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let sinks = self.sinks.write().unwrap_or_else(PoisonError::into_inner).take();
        // All queues are closed first, so that they drain concurrently.
        let draining: Vec<_> = sinks.into_iter().flatten().map(|sink| (sink.task, sink.pending)).collect();
        for (mut task, pending) in draining {
            if timeout_at(deadline, &mut task).await.is_err() {
                task.abort();
                let _cancelled = task.await;
            }
            self.metrics.loss(Loss::Shutdown, pending.load(Ordering::Relaxed));
        }
    }
}

impl Sink {
    fn open(
        capacity: u64,
        causes: Causes,
        metrics: &Metrics,
        run: impl FnOnce(Queue) -> JoinHandle<()>,
    ) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let pending = Arc::default();
        let queue = Queue {
            receiver,
            pending: Arc::clone(&pending),
            failed: causes.failed,
            metrics: metrics.clone(),
        };
        Self { sender, pending, capacity, causes, task: run(queue) }
    }

    fn push(&self, item: Item, metrics: &Metrics) {
        let spans = item.spans();
        let fits = |pending| Some(pending + spans).filter(|sum| *sum <= self.capacity);
        if self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            metrics.loss(self.causes.full, spans);
        } else if self.sender.send(item).is_err() {
            self.pending.fetch_sub(spans, Ordering::Relaxed);
            metrics.loss(self.causes.failed, spans);
        }
    }
}

impl Queue {
    /// Settles spans that left the queue: exported, or lost.
    fn settle(&self, spans: u64, done: bool) {
        self.pending.fetch_sub(spans, Ordering::Relaxed);
        if !done {
            self.metrics.loss(self.failed, spans);
        }
    }
}

fn number(variable: &'static str, default: u64) -> Result<u64, environment::Error> {
    let Some(value) = environment::variable(variable) else { return Ok(default) };
    let number = value.parse().ok().filter(|number| *number > 0);
    number.ok_or(environment::Error { variable, value, expected: "a whole number above 0" })
}

#[cfg(test)]
pub(crate) mod tests;
