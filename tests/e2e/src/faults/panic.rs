//! A plugin panics in `PostBind`, which ends the scheduler: the spans name it, even if it had never returned before.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, pod},
    spans,
    stage::Stage,
    wait::wait_until,
};
use serde_json::json;

use super::TIMEOUT;

const POD: &str = "ends";

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let mut schedspan = stage.trace()?;
    let mut pod = pod(POD, "10m");
    pod["metadata"]["annotations"] = json!({ "trouble.schedspan.test/PostBind": "panic" });
    api.create_pod("default", &pod)?;
    schedspan.wait_for("schedspan to see the end of the scheduler", TIMEOUT, |metrics| {
        metrics.sum("schedspan_schedulers", &[]) == 0.0
    })?;
    let spans = wait_until("the spans of the attempt", TIMEOUT, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        Ok(spans.iter().any(|span| span.is_root() && span.pod() == POD).then_some(spans))
    })?;
    schedspan.stop()?;
    let log = fs::read_to_string(stage.cluster.scheduler()?.log)?;
    ensure!(log.contains("panic: trouble panics"), "the scheduler has ended otherwise");
    stage.cluster.restart_scheduler()?;
    ensure!(api.pods("default")?.iter().all(is_bound), "the Pod is not bound");

    let root = spans.iter().find(|span| span.is_root() && span.pod() == POD).context("no attempt")?;
    let result = root.attribute("k8s.scheduler.result");
    ensure!(root.is_incomplete() && result.is_empty(), "the attempt looks whole, with the result `{result}`");
    let mut left: Vec<_> = spans
        .iter()
        .filter(|span| span.trace_id == root.trace_id && span.span_id != root.span_id && span.is_incomplete())
        .map(|span| [span.name.clone(), span.attribute("k8s.scheduler.plugin.name")])
        .collect();
    left.sort();
    let plugins: Vec<_> = left.iter().filter(|[name, _]| name.starts_with("plugin")).collect();
    ensure!(
        matches!(plugins[..], [[_, plugin]] if plugin == "Trouble")
            && ["bindingCycle", "postBind"].iter().all(|name| left.iter().any(|[left, _]| left == name)),
        "what the panic left is {left:?}"
    );
    println!("         the plugin that ended the scheduler is named: {left:?}");
    Ok(())
}
