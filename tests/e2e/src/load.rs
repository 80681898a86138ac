//! Ten thousand Pods at once: with the defaults nothing is lost; with smaller buffers losses are counted.

use std::{collections::BTreeMap, thread, time::Duration};

use anyhow::{Result, ensure};
use harness::{
    api::{Api, pod},
    figures::Comparison,
    schedspan::{Options, Schedspan},
    spans::Span,
    stage::Stage,
    wait::wait_until,
};
use rustix::process::Signal;
use serde_json::Value;

use crate::checks::{Hits, nothing_lost, text};

pub(super) const NODES: u32 = 1_000;
/// Pods that are scheduled with the defaults.
const PODS: usize = 10_000;
/// Pods that are scheduled while a small ring buffer is not read.
const UNREAD: usize = 500;
/// Threads that create Pods.
const CREATORS: usize = 4;
const BOUND_TIMEOUT: Duration = Duration::from_secs(240);
const INTERVAL: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(30);
pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let schedspan = stage.trace()?;
    let before = stage.cluster.scheduler_metrics()?;
    create(&api, "load", PODS)?;
    let attempts = wait_until("all attempts to be traced", TIMEOUT, || {
        let after = stage.cluster.scheduler_metrics()?;
        let metric = "scheduler_schedule_attempts_total";
        let attempts = after.sum(metric, &[]) - before.sum(metric, &[]);
        Ok((schedspan.metrics()?.sum("schedspan_attempts_total", &[]) >= attempts).then_some(attempts))
    })?;
    // Spans are exported in batches.
    let metrics = wait_until("all spans to be exported", TIMEOUT, || {
        let metrics = schedspan.metrics()?;
        let exported = metrics.sum("schedspan_export_spans_total", &[("result", "success")]);
        Ok((exported >= metrics.sum("schedspan_spans_total", &[])).then_some(metrics))
    })?;
    nothing_lost(&metrics)?;
    let traced = metrics.sum("schedspan_attempts_total", &[]);
    ensure!(traced == attempts, "{traced} attempts are traced, and {attempts} were made");
    let (hits, spans) = (metrics.sum("schedspan_hits_total", &[]), metrics.sum("schedspan_spans_total", &[]));
    println!("         {traced} attempts, {hits} hits, {spans} spans, none lost");
    schedspan.stop()?;
    unread(stage, &api)
}

/// Checks that losses of a small, unread ring buffer are counted, and that the remaining spans are correct.
fn unread(stage: &Stage, api: &Api) -> Result<()> {
    let arguments = &["--ring-buffer", "64KiB"];
    let schedspan = Schedspan::start(&Options { arguments, ..stage.options()? })?;
    let comparison = Comparison::begin(&stage.cluster)?;
    schedspan.signal(Signal::STOP)?;
    let created = create(api, "unread", UNREAD);
    schedspan.signal(Signal::CONT)?;
    created?;
    // These are not lost.
    create(api, "read", UNREAD)?;
    let figures = comparison.end()?;
    let metrics = schedspan.metrics()?;
    schedspan.stop()?;

    let Hits { hits, records, lost } = Hits::of(&metrics);
    ensure!(lost > 0.0, "nothing was lost: the test proves nothing");
    ensure!(hits == records + lost, "{hits} hits are not {records} records and {lost} losses");

    let nodes: BTreeMap<String, String> = api
        .pods("default")?
        .iter()
        .map(|pod| (text(pod, "/metadata/name").to_owned(), text(pod, "/spec/nodeName").to_owned()))
        .collect();
    let by_id: BTreeMap<_, _> =
        figures.spans.iter().map(|span| ((&span.trace_id, &span.span_id), span)).collect();
    let mut shown = 0;
    for span in &figures.spans {
        if let Some(parent) = by_id.get(&(&span.trace_id, &span.parent_span_id)) {
            ensure!(parent.holds(span), "{} is not inside of its {}", span.name, parent.name);
        }
        let result = span.attribute("k8s.scheduler.result");
        if span.is_root() && result == "Success" {
            let node = span.attribute("k8s.scheduler.selected_node");
            let bound = &nodes[&span.pod()];
            ensure!(node == *bound, "{} is on {bound}, and not on {node}", span.pod());
            shown += 1;
        }
    }
    let whole = |span: &&Span| span.is_root() && span.pod().starts_with("read-") && !span.is_incomplete();
    let whole = figures.spans.iter().filter(whole).count();
    ensure!(whole > 0, "not one whole attempt was seen after the reader went on");
    println!(
        "         {hits} hits = {records} records + {lost} lost; {shown} Pods where the API server has them"
    );
    Ok(())
}

/// Creates Pods and waits until all are bound.
fn create(api: &Api, prefix: &str, number: usize) -> Result<()> {
    create_all(api, number, |number| ("default", pod(&format!("{prefix}-{number}"), "10m")))?;
    wait_until("all Pods to be bound", BOUND_TIMEOUT, || {
        thread::sleep(INTERVAL);
        let waiting = api.get("/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3D&limit=1")?;
        Ok(waiting["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })
}

/// Creates this number of Pods, several at a time.
pub(super) fn create_all(
    api: &Api,
    number: usize,
    make: impl Fn(usize) -> (&'static str, Value) + Sync,
) -> Result<()> {
    thread::scope(|scope| {
        let creators = (0..CREATORS).map(|creator| {
            let make = &make;
            scope.spawn(move || {
                (creator..number).step_by(CREATORS).try_for_each(|number| {
                    let (namespace, pod) = make(number);
                    api.create_pod(namespace, &pod).map(drop)
                })
            })
        });
        // All threads start before the first is joined.
        for creator in creators.collect::<Vec<_>>() {
            creator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        anyhow::Ok(())
    })
}
