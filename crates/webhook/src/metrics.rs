//! Metrics of the webhook.

use std::time::Duration;

use admission_review::Verdict;
use telemetry::{Counter, Counters, Gauge, Histogram, Registry};

use crate::validity::Validity;

telemetry::labels! {
    /// The result of a write to the webhook's own configuration.
    pub Patched {
        /// The certificates are in the bundle.
        Written = "written",
        /// A concurrent change; the write is retried.
        Conflict = "conflict",
        /// The right is missing.
        Forbidden = "forbidden",
        /// Any other failure.
        Failed = "failed",
    }
}

/// Buckets in seconds. The target of the 99th percentile is in the middle.
const BUCKETS: [f64; 9] = [0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0];

/// Metrics of the webhook. Clones are handles of the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    reviews: Counters<Verdict>,
    writes: Counters<Patched>,
    seconds: Histogram,
    refused: Counter,
    expiry: Gauge,
    validity: Gauge,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self {
            seconds: registry.histogram(
                "webhook_answer_seconds",
                "How long answers took, from the head of the request on",
                BUCKETS,
            ),
            refused: registry.counter(
                "webhook_connections_refused",
                "Connections that came to nothing: too many, or whose TLS failed, as with an API server that does not \
                 trust the certificate yet",
            ),
            reviews: registry.counters("webhook_reviews", "Reviews answered, by result", "result"),
            writes: registry.counters(
                "webhook_configuration_writes",
                "Writes of certificates into the webhook's own configuration, by result",
                "result",
            ),
            expiry: registry.gauge(
                "webhook_certificate_expiry_seconds",
                "When the certificate that is served expires, since 1970",
            ),
            validity: registry.gauge(
                "webhook_certificate_validity_seconds",
                "How long the certificate that is served is valid, from its beginning to its end",
            ),
        }
    }

    /// Counts an answered review and how long the answer took.
    pub fn answered(&self, verdict: Verdict, took: Duration) {
        self.reviews.add(verdict, 1);
        self.seconds.observe(took.as_secs_f64());
    }

    /// Counts a write to the API.
    pub fn wrote(&self, result: Patched) {
        self.writes.add(result, 1);
    }

    /// What counts connections without a review.
    pub(crate) fn refused(&self) -> Counter {
        self.refused.clone()
    }

    /// Sets when the served certificate is valid.
    pub(crate) fn set_validity(&self, validity: Validity) {
        let Validity { start, end } = validity;
        self.expiry.set(end);
        self.validity.set(end.saturating_sub(start));
    }
}
