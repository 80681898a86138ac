//! What the webhook counts of itself.

use std::{fmt, sync::Arc, time::Duration};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};

use super::{Exposition, Label as _, Labelled, closed, gauge};

labels! {
    /// What became of a review.
    Verdict {
        /// The object has got the context of the request.
        Injected = "injected",
        /// It carries one already, which stays as it is.
        Present = "present",
        /// The request carries none.
        NoContext = "no_context",
        /// It carries one that is not sampled.
        NotSampled = "not_sampled",
        /// It carries one that is not valid.
        InvalidContext = "invalid_context",
        /// Nothing that makes Pods is created.
        NotConcerned = "not_concerned",
        /// The review itself was refused.
        InvalidReview = "invalid_review",
    }
}

labels! {
    /// What became of a write to the webhook's own configuration.
    Patched {
        /// It is there.
        Written = "written",
        /// Somebody else was quicker; it is tried again.
        Conflict = "conflict",
        /// The right is missing.
        Forbidden = "forbidden",
        /// Something else went wrong.
        Failed = "failed",
    }
}

/// Seconds: what an answer may take at its 99th percentile is in the middle.
const BUCKETS: [f64; 9] = [0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0];

/// A handle on the webhook's metrics.
#[derive(Clone)]
pub struct WebhookMetrics(Arc<Families>);

struct Families {
    exposition: Exposition,
    reviews: Labelled,
    writes: Labelled,
    seconds: Histogram,
    refused: Counter,
    expiry: Gauge,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        let mut exposition = Exposition::default();
        let registry = &mut exposition.registry;
        let seconds = Histogram::new(BUCKETS);
        let help = "How long answers took, from the head of the request on";
        registry.register("webhook_answer_seconds", help, seconds.clone());
        let refused = Counter::default();
        let help = "Connections that came to nothing: too many, or whose TLS failed, as with an API server that does not \
                    trust the certificate yet";
        registry.register("webhook_connections_refused", help, refused.clone());
        Self(Arc::new(Families {
            reviews: closed::<Verdict>(registry, "webhook_reviews", "Reviews answered, by result", "result"),
            writes: closed::<Patched>(
                registry,
                "webhook_configuration_writes",
                "Writes of certificates into the webhook's own configuration, by result",
                "result",
            ),
            expiry: gauge(
                registry,
                "webhook_certificate_expiry_seconds",
                "When the certificate that is served expires, since 1970",
            ),
            seconds,
            refused,
            exposition,
        }))
    }
}

impl WebhookMetrics {
    /// Counts a review that was answered.
    pub fn answered(&self, verdict: Verdict, took: Duration) {
        self.0.reviews.get_or_create(&[("result", verdict.label().into())]).inc();
        self.0.seconds.observe(took.as_secs_f64());
    }

    /// Counts a write to the API.
    pub fn wrote(&self, result: Patched) {
        self.0.writes.get_or_create(&[("result", result.label().into())]).inc();
    }

    /// Counts a connection that came to nothing.
    pub fn connection_refused(&self) {
        self.0.refused.inc();
    }

    /// Sets when the certificate that is served expires, seconds since 1970.
    pub fn set_expiry(&self, unix_seconds: u64) {
        self.0.expiry.set(unix_seconds.cast_signed());
    }

    /// All of it as OpenMetrics text.
    #[must_use]
    pub fn encode(&self) -> String {
        self.0.exposition.encode()
    }
}

impl fmt::Debug for WebhookMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookMetrics").finish_non_exhaustive()
    }
}
