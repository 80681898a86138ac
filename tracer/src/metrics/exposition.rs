//! What all of schedspan's servers say under `/metrics`, before they say anything of their own.

use prometheus_client::{encoding::text, metrics::info::Info, registry::Registry};

use super::process::Process;

/// Metrics as they are asked for.
#[derive(Debug)]
pub(super) struct Exposition {
    /// All that begins with `schedspan_`.
    pub(super) registry: Registry,
    /// Its names have another prefix.
    process: Registry,
}

impl Default for Exposition {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("schedspan");
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "Version of schedspan", Info::new(version));
        let mut process = Registry::default();
        process.register_collector(Box::new(Process::default()));
        Self { registry, process }
    }
}

impl Exposition {
    /// All of it as OpenMetrics text, of [`CONTENT_TYPE`](super::CONTENT_TYPE).
    pub(super) fn encode(&self) -> String {
        let mut out = String::new();
        // Writing into a string fails only if a metric's own encoding does, and those are the library's.
        text::encode_registry(&mut out, &self.registry)
            .and_then(|()| text::encode_registry(&mut out, &self.process))
            .and_then(|()| text::encode_eof(&mut out))
            .expect("metrics become text");
        out
    }
}
