//! Trace contexts of Pods, and the spans that continue them.

use std::time::Duration;

use anyhow::Result;
use harness::{
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::Value;

pub(super) const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub(super) const SPAN_ID: &str = "00f067aa0ba902b7";
pub(super) const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
pub(super) const K8S: &str = "tracing.k8s.io/traceparent";
/// The limit from the end of an attempt or request to the Collector's file. The API server sends every 5 s.
pub(super) const ARRIVAL: Duration = Duration::from_secs(20);

pub(super) fn parent(trace_id: &str, flags: &str) -> String {
    format!("00-{trace_id}-{SPAN_ID}-{flags}")
}

/// An annotation of an object or template; empty if there is none.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

/// The first attempt of a Pod whose name has this prefix.
pub(super) fn root(stage: &Stage, name: &str) -> Result<Span> {
    wait_until(&format!("the span of {name}"), ARRIVAL, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        Ok(spans.into_iter().find(|span| span.name == "SchedulePod" && span.pod().starts_with(name)))
    })
}
