//! The OpenTelemetry Collector, which writes the spans that it receives to a file.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::json;
use xtask::components::COLLECTOR;

use super::members::Members;

/// # Errors
///
/// If it does not become ready.
pub(super) fn start(members: &mut Members) -> Result<()> {
    let spans = spans_file(&members.dir);
    members.launch(COLLECTOR, &["grpc", "http"], |ports| {
        let endpoint = |name: &str| json!({ "endpoint": format!("127.0.0.1:{}", ports[name]) });
        let configuration = json!({
            "receivers": { "otlp": { "protocols": { "grpc": endpoint("grpc"), "http": endpoint("http") } } },
            "processors": { "batch": { "timeout": "200ms" } },
            "exporters": { "file": { "path": spans, "flush_interval": "200ms" } },
            "service": {
                "telemetry": { "metrics": { "level": "none" } },
                "pipelines": {
                    "traces": { "receivers": ["otlp"], "processors": ["batch"], "exporters": ["file"] },
                },
            },
        });
        (vec![format!("--config=yaml:{configuration}")], format!("http://127.0.0.1:{}", ports["http"]))
    })
}

/// The base of the OTLP endpoint for `grpc` or `http`, without `/v1/traces`.
///
/// # Errors
///
/// If the cluster runs without Collector.
pub(super) fn endpoint(members: &Members, protocol: &str) -> Result<String> {
    Ok(format!("http://127.0.0.1:{}", members.port(COLLECTOR.name, protocol)?))
}

pub(super) fn spans_file(dir: &Path) -> PathBuf {
    dir.join("spans.jsonl")
}
