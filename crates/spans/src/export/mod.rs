//! Outputs of traces: OTLP to a Collector; JSON lines, waterfalls, charts or a file of Perfetto or in Chrome's format on standard output; several at once.
//!
//! Each output has its own bounded queue. Sending never blocks; spans that do not fit are lost, and counted by cause. The
//! OpenTelemetry SDK's processor would drop them silently.

mod chrome;
mod filter;
mod live;
mod mermaid;
mod otlp;
pub mod perfetto;
mod resource;
mod stdout;
mod terminal;

use std::{
    collections::HashMap,
    mem,
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

use self::{chrome::Chrome, perfetto::Perfetto};
pub use self::{
    filter::{Filter, Pods},
    live::{Live, Seen, Watcher},
    mermaid::chart,
    otlp::{encode::encode, spool::Options as SpoolOptions, try_once},
    resource::Resource,
    terminal::{Style, paragraph, waterfall},
};
use crate::{
    Loss, Metrics, Source, Trace,
    environment::{self, number, variable},
    screen,
};

/// Polling interval of [`Sinks::room`].
const ROOM_INTERVAL: Duration = Duration::from_millis(2);

/// A kind of output.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Waterfalls on standard output, for people
    Terminal,
    /// OTLP as JSON on standard output, a line per trace, as the Collector's file exporter writes it
    Json,
    /// A Gantt chart per trace on standard output, in Mermaid's language as GitHub draws it in issues
    Mermaid,
    /// A file for ui.perfetto.dev on standard output, which must not be a terminal; with --queue-spans also how many Pods are in the queues
    Perfetto,
    /// The same as a JSON file in Chrome's Trace Event Format, for other viewers
    Chrome,
    /// OTLP to a Collector, by the OTEL_EXPORTER_OTLP_* variables; http://localhost:4317 by gRPC without them
    Otlp,
}

/// Why an output cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable of the environment has an invalid value.
    #[error(transparent)]
    Variable(#[from] environment::Error),
    /// A file that a variable names cannot be used.
    #[error("cannot export to {endpoint}: {reason}")]
    Exporter {
        /// The endpoint.
        endpoint: String,
        /// Why, and what to do.
        reason: String,
    },
    /// An output that is a file would be on a terminal, or among other outputs.
    #[error(
        "`--output {0}` is a file: give it alone, and redirect standard output, as in `... --output {0} > FILE`"
    )]
    File(&'static str),
    /// The spool cannot be used: why, and what to do.
    #[error("{0}")]
    Spool(String),
}

impl Output {
    /// Whether it writes to standard output. A daemon with such an output ends when the reader goes away.
    #[must_use]
    pub const fn is_for_reader(self) -> bool {
        match self {
            Self::Terminal | Self::Json | Self::Mermaid | Self::Perfetto | Self::Chrome => true,
            Self::Otlp => false,
        }
    }

    /// Its name, if what it writes is a file.
    const fn file(self) -> Option<&'static str> {
        match self {
            Self::Perfetto => Some("perfetto"),
            Self::Chrome => Some("chrome"),
            Self::Terminal | Self::Json | Self::Mermaid | Self::Otlp => None,
        }
    }
}

/// The outputs.
#[derive(Debug)]
pub struct Sinks {
    /// `None` after the shutdown.
    sinks: RwLock<Option<Vec<Sink>>>,
    /// The bytes of resources.
    resources: RwLock<HashMap<Source, Arc<[u8]>>>,
    live: Live,
    metrics: Metrics,
}

/// An output.
#[derive(Debug)]
enum Sink {
    Text(Text),
    Otlp(otlp::Sink),
}

/// A queued trace, with its resource at the time of sending.
#[derive(Clone)]
struct Item {
    trace: Arc<Trace>,
    resource: Arc<[u8]>,
}

/// An output on standard output: the sending end of a queue, and the task that drains it.
#[derive(Debug)]
struct Text {
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
    /// With `plugins` waterfalls show each plugin. Each queue holds `OTEL_BSP_MAX_QUEUE_SIZE` spans, by default 65,536, that of
    /// OTLP at most `SCHEDSPAN_OTLP_QUEUE_BYTES`; with a spool, spans are there until they have arrived. `OTEL_SDK_DISABLED=true` and `OTEL_TRACES_EXPORTER=none` switch OTLP off.
    ///
    /// # Errors
    ///
    /// When a variable of the environment has an invalid value, or an output that is a file would be on a terminal or among others. A Collector
    /// that cannot be reached is not an error.
    pub fn start(
        outputs: &[Output],
        plugins: bool,
        spool: &SpoolOptions,
        metrics: Metrics,
    ) -> Result<Self, Error> {
        let capacity = queue_size()?;
        let readers = outputs.iter().filter(|output| output.is_for_reader()).count();
        if let Some(name) = outputs.iter().find_map(|output| output.file())
            && (readers > 1 || screen::is_terminal())
        {
            return Err(Error::File(name));
        }
        let mut sinks = Vec::with_capacity(outputs.len());
        for output in outputs {
            sinks.push(match output {
                Output::Terminal => Sink::Text(Text::open(capacity, stdout::CAUSES, &metrics, |queue| {
                    stdout::spawn(queue, move |item: &Item| stdout::terminal(item, plugins))
                })),
                Output::Json => Sink::Text(Text::open(capacity, stdout::CAUSES, &metrics, |queue| {
                    stdout::spawn(queue, |item: &Item| stdout::json(&item.trace, &item.resource))
                })),
                Output::Mermaid => Sink::Text(Text::open(capacity, stdout::CAUSES, &metrics, |queue| {
                    stdout::spawn(queue, stdout::mermaid)
                })),
                Output::Perfetto => Sink::Text(Text::open(capacity, stdout::CAUSES, &metrics, |queue| {
                    stdout::spawn(queue, Perfetto::default())
                })),
                Output::Chrome => Sink::Text(Text::open(capacity, stdout::CAUSES, &metrics, |queue| {
                    stdout::spawn(queue, Chrome::default())
                })),
                Output::Otlp if otlp::disabled() => {
                    info!("OTLP is switched off by the environment");
                    continue;
                }
                Output::Otlp => Sink::Otlp(otlp::Sink::from_env(spool, &metrics)?),
            });
        }
        Ok(Self {
            sinks: RwLock::new(Some(sinks)),
            resources: RwLock::default(),
            live: Live::default(),
            metrics,
        })
    }

    /// Sets the resource of a source. To be called before its first trace.
    pub fn register(&self, resource: &Resource) {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        resources.insert(resource.source, resource.encode());
    }

    /// Drops the resource of a source. To be called after its last trace; queued traces keep theirs.
    pub fn forget(&self, source: Source) {
        self.resources.write().unwrap_or_else(PoisonError::into_inner).remove(&source);
    }

    /// Sends a trace to all outputs, and then what is beside it, without blocking.
    pub fn send(&self, mut trace: Trace) {
        let beside = mem::take(&mut trace.beside);
        let resource = self.resource(trace.source);
        let item = Item { trace: Arc::new(trace), resource };
        match &*self.sinks.read().unwrap_or_else(PoisonError::into_inner) {
            Some(sinks) => sinks.iter().for_each(|sink| sink.push(&item, &self.metrics)),
            None => self.metrics.loss(Loss::Shutdown, item.spans()),
        }
        beside.into_iter().for_each(|part| self.send(part));
    }

    /// The traces that are shown, for those who want to watch.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Shows a trace to those who watch.
    pub fn show(&self, trace: &Trace) {
        self.live.show(trace, || self.resource(trace.source));
    }

    fn resource(&self, source: Source) -> Arc<[u8]> {
        let known = self.resources.read().unwrap_or_else(PoisonError::into_inner).get(&source).cloned();
        known.unwrap_or_else(|| Resource::unknown(source).encode())
    }

    /// Waits until no queue is more than half full: for a replay, which can wait.
    pub async fn room(&self) {
        let crowded = || {
            let sinks = self.sinks.read().unwrap_or_else(PoisonError::into_inner);
            sinks.iter().flatten().any(Sink::is_crowded)
        };
        while crowded() {
            sleep(ROOM_INTERVAL).await;
        }
    }

    /// Whether every output has ended, as standard output does when its reader goes away.
    #[must_use]
    pub fn ended(&self) -> bool {
        let sinks = self.sinks.read().unwrap_or_else(PoisonError::into_inner);
        sinks.iter().flatten().all(Sink::has_ended)
    }

    /// Drains the queues, at most `within`. What is left then is lost.
    pub async fn shutdown(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let sinks = self.sinks.write().unwrap_or_else(PoisonError::into_inner).take();
        // All queues are closed first, so that they drain concurrently.
        let draining: Vec<_> = sinks.into_iter().flatten().map(Sink::close).collect();
        for (mut task, left) in draining {
            if timeout_at(deadline, &mut task).await.is_err() {
                task.abort();
                let _cancelled = task.await;
            }
            self.metrics.loss(Loss::Shutdown, left());
        }
    }
}

impl Sink {
    fn push(&self, item: &Item, metrics: &Metrics) {
        match self {
            Self::Text(text) => text.push(item.clone(), metrics),
            Self::Otlp(otlp) => otlp.push(&item.trace, &item.resource),
        }
    }

    fn is_crowded(&self) -> bool {
        match self {
            Self::Text(text) => text.pending.load(Ordering::Relaxed) > text.capacity / 2,
            Self::Otlp(otlp) => otlp.is_crowded(),
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Text(text) => text.sender.is_closed(),
            Self::Otlp(otlp) => otlp.has_ended(),
        }
    }

    /// Takes no more traces. Returns the task, and how many spans are left.
    fn close(self) -> (JoinHandle<()>, Box<dyn FnOnce() -> u64 + Send>) {
        match self {
            Self::Text(Text { task, pending, sender: _, capacity: _, causes: _ }) => {
                (task, Box::new(move || pending.load(Ordering::Relaxed)))
            }
            Self::Otlp(otlp) => otlp.close(),
        }
    }
}

impl Text {
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

/// Most spans in a queue.
fn queue_size() -> Result<u64, environment::Error> {
    const VARIABLE: &str = "OTEL_BSP_MAX_QUEUE_SIZE";
    number(VARIABLE, variable(VARIABLE), 65_536)
}

#[cfg(test)]
pub(crate) mod tests;
