//! Asynchronous API calls and preemption: the numbers of their spans equal the scheduler's counts.

use std::{collections::BTreeMap, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{NodeSize, is_bound, is_unschedulable, pod},
    figures::Comparison,
    stage::Stage,
};
use serde_json::Value;

use crate::{
    checks::{nothing_lost, text},
    truth::trees,
};

/// Nodes, of 32 CPUs each.
pub(super) const NODES: u32 = 5;
/// In 1.34 and later, off by default up to 1.37.
pub(super) const GATES: &str = "SchedulerAsyncAPICalls=true";
/// Pods that are bound at once, and that fit once there is a larger Node.
const PLACED: usize = 40;
const LARGE: usize = 10;
/// Longer than schedspan keeps an attempt open for a call that is never made.
const PATIENCE: Duration = Duration::from_secs(12);

const CALLS: &str = "scheduler_async_api_call_execution_total";
const GOROUTINES: &str = "scheduler_preemption_goroutines_execution_total";
const VICTIMS: &str = "scheduler_preemption_victims_sum";

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    api.create_priority_classes()?;
    let schedspan = stage.trace()?;
    let before = stage.cluster.scheduler_metrics()?;
    let comparison = Comparison::begin(&stage.cluster)?;
    let of_class = |name: String, cpu: &str, class: &str| {
        let mut pod = pod(&name, cpu);
        pod["spec"]["priorityClassName"] = class.into();
        pod
    };
    let placed = (0..PLACED).map(|number| pod(&format!("placed-{number}"), "10m"));
    // Three of these Pods fill a Node.
    let low = (0..3 * NODES).map(|number| of_class(format!("low-{number}"), "10", "low"));
    let first: Vec<_> = placed.chain(low).collect();
    first.iter().try_for_each(|pod| api.create_pod("default", pod).map(drop))?;
    api.wait_for_pods("Pods to be bound", |pods| {
        pods.iter().filter(|pod| is_bound(pod)).count() == first.len()
    })?;
    for number in 0..LARGE {
        api.create_pod("default", &pod(&format!("large-{number}"), "40"))?;
    }
    api.wait_for_pods("Pods to be found unschedulable", |pods| {
        pods.iter().filter(|pod| is_unschedulable(pod)).count() == LARGE
    })?;
    // Each of these preempts two.
    for number in 0..2 {
        api.create_pod("default", &of_class(format!("high-{number}"), "20", "high"))?;
    }
    api.create_node("large", NodeSize { cpu: "480", ..NodeSize::default() })?;
    let waiting = |pod: &Value| !is_bound(pod);
    api.wait_for_pods("all Pods to be bound", |pods| !pods.iter().any(waiting))?;
    thread::sleep(PATIENCE);
    let figures = comparison.end()?;
    let after = stage.cluster.scheduler_metrics()?;
    let metrics = schedspan.metrics()?;
    schedspan.stop()?;
    nothing_lost(&metrics)?;
    trees(&figures.spans)?;

    let mut counts = BTreeMap::<[String; 2], [u64; 2]>::new();
    let before_calls = before.by(CALLS, ["call_type", "result"]);
    for (labels, count) in after.by(CALLS, ["call_type", "result"]) {
        let made = count - before_calls.get(&labels).copied().unwrap_or_default();
        counts.entry(labels).or_default()[1] = made as u64;
    }
    for span in &figures.spans {
        let Some(call) = span.name.strip_prefix("api call: ") else { continue };
        let result = span.attribute("k8s.scheduler.result").to_lowercase();
        counts.entry([call.to_owned(), result]).or_default()[0] += 1;
        let waited = span.attribute("k8s.scheduler.api_call.queue_ms");
        ensure!(waited.parse::<f64>().is_ok_and(|ms| ms >= 0.0), "an API call waited `{waited}` ms");
    }
    let preempted: Vec<_> = figures.spans.iter().filter(|span| span.name == "preemptPod").collect();
    let mut preemptors: Vec<_> = preempted.iter().map(|span| &span.trace_id).collect();
    preemptors.sort_unstable();
    preemptors.dedup();
    let increase = |name: &str| (after.sum(name, &[]) - before.sum(name, &[])) as u64;
    counts.insert(["preemptPod", ""].map(str::to_owned), [preempted.len() as u64, increase(VICTIMS)]);
    counts.insert(["preemption", ""].map(str::to_owned), [preemptors.len() as u64, increase(GOROUTINES)]);
    println!("         {:<18} {:<8} {:>9} {:>9}", "CALL", "RESULT", "SCHEDSPAN", "SCHEDULER");
    for ([call, result], [spans, scheduler]) in &counts {
        println!("         {call:<18} {result:<8} {spans:>9} {scheduler:>9}");
        ensure!(spans == scheduler, "{call} {result} is {spans} instead of {scheduler}");
    }
    for call in ["pod_binding", "pod_status_patch", "preemptPod"] {
        let made = counts.iter().any(|([of, _], [spans, _])| of == call && *spans > 0);
        ensure!(made, "there is no {call}: the test proves nothing");
    }

    // Each is in the trace of an attempt, and a call that binds is of that attempt's own Pod.
    for span in figures.spans.iter().filter(|span| span.name.starts_with("api call: ")) {
        let of_trace = figures.spans.iter().find(|root| root.is_root() && root.trace_id == span.trace_id);
        let root = of_trace.with_context(|| format!("{} is in the trace of no attempt", span.name))?;
        let [uid, of_attempt] = [span, root].map(|span| span.attribute("k8s.pod.uid"));
        ensure!(uid == of_attempt, "{} is about {uid}, and in the trace of {of_attempt}", span.name);
    }
    let victims = preempted.iter().filter(|span| span.attribute("k8s.pod.name").starts_with("low-")).count();
    ensure!(victims == preempted.len(), "not all victims are Pods of low priority");
    let left = api.pods("default")?;
    let low = left.iter().filter(|pod| text(pod, "/metadata/name").starts_with("low-")).count();
    ensure!(low + victims == 3 * NODES as usize, "{low} Pods of low priority are left, and {victims} went");
    Ok(())
}
