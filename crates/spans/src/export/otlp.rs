//! OTLP to a Collector, by gRPC or HTTP, as the `OTEL_EXPORTER_OTLP_*` variables say.
//!
//! The exporter of `opentelemetry-otlp` does not report partial success: spans that a Collector rejects of an accepted batch.

use std::{sync::Arc, time::Duration};

use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{error::OTelSdkError, trace::SpanExporter as _};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::{Causes, Error, Item, Queue, number, sdk::span_data};
use crate::{
    Exported, Loss,
    environment::{self, variable},
    wakeups,
};

pub(super) const CAUSES: Causes = Causes { full: Loss::ExportQueueFull, failed: Loss::ExportFailed };

/// Interval between two warnings of the same outage.
const WARN_EVERY: Duration = Duration::from_secs(60);

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
    let Exporter { exporter, endpoint, .. } = Exporter::from_env().map_err(|error| error.to_string())?;
    match exporter.export(Vec::new()).await {
        Ok(()) => Ok(Some(endpoint)),
        Err(error) => Err(format!(
            "cannot export to {endpoint}: {error}; start a Collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT to one"
        )),
    }
}

/// A connection to a Collector.
pub(super) struct Exporter {
    exporter: SpanExporter,
    endpoint: String,
    batching: Batching,
    outage: Option<Outage>,
}

/// How spans are batched. A trace is never split, so one with more spans makes a larger batch.
#[derive(Clone, Copy)]
struct Batching {
    /// In spans.
    size: u64,
    /// Counted from the first trace.
    delay: Duration,
}

/// A time in which the Collector accepts no spans.
struct Outage {
    warned: Instant,
    lost: u64,
}

impl Exporter {
    /// Configured by `OTEL_EXPORTER_OTLP_*`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` (by default 512 spans) and `OTEL_BSP_SCHEDULE_DELAY`
    /// (by default 1000 milliseconds).
    pub(super) fn from_env() -> Result<Self, Error> {
        let protocol = match ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"]
            .into_iter()
            .find_map(|name| Some((name, variable(name)?)))
        {
            None => Protocol::Grpc,
            Some((_, value)) if value == "grpc" => Protocol::Grpc,
            Some((_, value)) if value == "http/protobuf" => Protocol::HttpBinary,
            Some((variable, value)) => {
                let expected = "`grpc` or `http/protobuf`";
                return Err(environment::Error { variable, value, expected }.into());
            }
        };
        let batching = Batching {
            size: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?,
            delay: Duration::from_millis(number("OTEL_BSP_SCHEDULE_DELAY", 1000)?),
        };
        Self::new(protocol, None, batching)
    }

    /// `given` overrides the endpoint of the environment.
    fn new(protocol: Protocol, given: Option<String>, batching: Batching) -> Result<Self, Error> {
        let default =
            if protocol == Protocol::Grpc { "http://localhost:4317" } else { "http://localhost:4318" };
        let endpoint = given
            .clone()
            .or_else(|| variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
            .or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT"))
            .map_or_else(|| default.to_owned(), |endpoint| without_credentials(&endpoint));
        // The exporter treats an empty endpoint as unset, and reads the environment itself.
        let given = given.unwrap_or_default();
        let exporter = match protocol {
            Protocol::Grpc => {
                SpanExporter::builder().with_tonic().with_protocol(protocol).with_endpoint(given).build()
            }
            _ => {
                // reqwest needs a default provider; an existing one stays.
                let _chosen = rustls::crypto::ring::default_provider().install_default();
                SpanExporter::builder().with_http().with_protocol(protocol).with_endpoint(given).build()
            }
        };
        match exporter {
            Ok(exporter) => Ok(Self { exporter, endpoint, batching, outage: None }),
            Err(reason) => Err(Error::Exporter { endpoint, reason }),
        }
    }

    /// Exports until the queue is closed and empty.
    pub(super) async fn run(mut self, mut queue: Queue) {
        let mut next = queue.receiver.recv().await;
        while let Some(first) = next.take() {
            let deadline = Instant::now() + self.batching.delay;
            let mut spans = first.spans();
            let mut batch = vec![first];
            while spans < self.batching.size
                && let Ok(Some(item)) = timeout_at(deadline, queue.receiver.recv()).await
            {
                spans += item.spans();
                if spans > self.batching.size {
                    next = Some(item);
                    break;
                }
                batch.push(item);
            }
            self.export(batch, &queue).await;
            if next.is_none() {
                next = queue.receiver.recv().await;
            }
        }
    }

    /// Exports a batch: a request for each source in it, since a request has one resource.
    async fn export(&mut self, mut batch: Vec<Item>, queue: &Queue) {
        // Requests follow each other; throttling between them would delay a busy scheduler's spans.
        let _unthrottled = wakeups::unthrottled();
        batch.sort_by_key(|item| item.trace.source);
        let mut items = batch.into_iter().peekable();
        while let Some(Item { trace, resource }) = items.next() {
            let mut spans: Vec<_> = span_data(Arc::unwrap_or_clone(trace)).collect();
            while let Some(next) = items.next_if(|next| next.resource == resource) {
                spans.extend(span_data(Arc::unwrap_or_clone(next.trace)));
            }
            let count = spans.len() as u64;
            self.exporter.set_resource(&resource);
            let result = self.exporter.export(spans).await;
            queue.settle(count, result.is_ok());
            queue.metrics.exported(if result.is_ok() { Exported::Success } else { Exported::Error }, count);
            match result {
                Ok(()) => self.works(),
                Err(error) => self.fails(&error, count),
            }
        }
    }

    fn works(&mut self) {
        if let Some(outage) = self.outage.take() {
            info!("the export to {} works again; {} spans were lost", self.endpoint, outage.lost);
        }
    }

    fn fails(&mut self, error: &OTelSdkError, lost: u64) {
        let now = Instant::now();
        let silent = self.outage.as_ref().is_some_and(|outage| now - outage.warned < WARN_EVERY);
        let outage = self.outage.get_or_insert(Outage { warned: now, lost: 0 });
        outage.lost += lost;
        if !silent {
            outage.warned = now;
            warn!(
                "cannot export to {}: {error}; {} spans are lost; start a Collector there, or set \
                 OTEL_EXPORTER_OTLP_ENDPOINT to one",
                self.endpoint, outage.lost
            );
        }
    }
}

fn without_credentials(endpoint: &str) -> String {
    match (endpoint.split_once("://"), endpoint.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        (_, None) => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests;
