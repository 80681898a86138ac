//! Other versions of the scheduler: the values read from their memory equal those of the API server.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, is_unschedulable, pod},
    cluster::Cluster,
    figures::{Comparison, Observed},
    spans::Span,
    stage::Stage,
};
use serde_json::{Value, json};

use crate::checks::{nothing_lost, text};

pub(super) const NODES: u32 = 20;

/// Pods that fit, and those that fit nowhere.
const PODS: Load<'_> = Load { scheduler: None, placed: 180, never: 20 };
const SPAN_ID: &str = "00f067aa0ba902b7";

/// The spans of each successful attempt; from 1.34 on also `preBindPreFlight`.
pub(super) const SUCCESS: [&str; 11] = [
    "schedulingCycle",
    "preFilter",
    "filter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "bindingCycle",
    "preBind",
    "bind",
    "postBind",
];
/// The spans of each attempt without a Node.
pub(super) const FAILURE: [&str; 5] =
    ["schedulingCycle", "preFilter", "filter", "postFilter", "handleSchedulingFailure"];

/// The Pods for a scheduler.
pub struct Load<'a> {
    /// Their `schedulerName`, if not that of the cluster's own scheduler.
    pub scheduler: Option<&'a str>,
    /// Pods that fit.
    pub placed: usize,
    /// Pods that fit nowhere.
    pub never: usize,
}

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let schedspan = stage.trace()?;
    check(&stage.cluster, &stage.cluster, &PODS)?;
    nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()
}

/// Creates Pods for a traced scheduler, and compares schedspan's spans with the API server's objects and the scheduler's metrics.
pub fn check(cluster: &Cluster, observed: &dyn Observed, load: &Load<'_>) -> Result<()> {
    let Load { scheduler, placed, never } = *load;
    let api = cluster.api()?;
    let comparison = Comparison::begin(observed)?;
    for number in 0..placed + never {
        let mut pod = if number < placed {
            pod(&format!("placed-{number}"), "100m")
        } else {
            pod(&format!("never-{number}"), "1000")
        };
        if let Some(scheduler) = scheduler {
            pod["spec"]["schedulerName"] = scheduler.into();
        }
        let traceparent = format!("00-{}-{SPAN_ID}-01", trace_id(number));
        pod["metadata"]["annotations"] = json!({ "tracing.k8s.io/traceparent": traceparent });
        pod["metadata"]["labels"] = json!({ "number": number.to_string() });
        api.create_pod("default", &pod)?;
    }
    api.wait_for_pods("Pods to be bound or found unschedulable", |pods| {
        pods.len() == placed + never && pods.iter().all(|pod| is_bound(pod) || is_unschedulable(pod))
    })?;
    let pods = api.pods("default")?;
    let figures = comparison.end()?;

    let mut children = BTreeMap::<&str, Vec<&Span>>::new();
    for span in figures.spans.iter().filter(|span| !span.is_root()) {
        children.entry(&span.trace_id).or_default().push(span);
    }
    for pod in &pods {
        let name = text(pod, "/metadata/name");
        let roots = figures.spans.iter().filter(|span| span.is_root() && span.pod() == name);
        let attempts: Vec<_> = roots.collect();
        ensure!(!attempts.is_empty(), "{name} has no span");
        for root in attempts {
            let below = children.get(root.trace_id.as_str()).map(Vec::as_slice).unwrap_or_default();
            attempt(pod, root, below).with_context(|| format!("the attempt of {name}"))?;
        }
    }
    for row in figures.attempts().into_iter().chain(figures.phases()) {
        let (name, spans, metric) = (row.name, row.spans, row.metric);
        ensure!(spans == metric, "{spans} spans of {name}, and {metric} by the scheduler's own metrics");
    }
    println!("         {} Pods, {} spans, as the API server says", pods.len(), figures.spans.len());
    Ok(())
}

/// Compares an attempt with its Pod.
fn attempt(pod: &Value, root: &Span, below: &[&Span]) -> Result<()> {
    let placed = is_bound(pod);
    let (result, node) =
        if placed { ("Success", text(pod, "/spec/nodeName")) } else { ("Unschedulable", "") };
    for (key, wanted) in [
        ("k8s.pod.uid", text(pod, "/metadata/uid")),
        ("k8s.namespace.name", text(pod, "/metadata/namespace")),
        ("k8s.scheduler.profile", text(pod, "/spec/schedulerName")),
        ("k8s.scheduler.result", result),
        ("k8s.scheduler.selected_node", node),
    ] {
        let found = root.attribute(key);
        ensure!(found == wanted, "{key} is `{found}` instead of `{wanted}`");
    }
    let number: usize = text(pod, "/metadata/labels/number").parse()?;
    let linked = root.links.iter().any(|link| link.trace_id == trace_id(number));
    ensure!(linked, "its links are {:?}", root.links);
    ensure!(!root.attribute("k8s.scheduler.queue_wait_ms").is_empty(), "how long it was queued is not said");
    // Only separate eBPF programs read these.
    let list = if placed { "k8s.scheduler.candidates" } else { "k8s.scheduler.rejections" };
    ensure!(!root.list(list).is_empty(), "{list} is not said");
    let expected: &[&str] = if placed { &SUCCESS } else { &FAILURE };
    for name in expected {
        let count = below.iter().filter(|span| span.name == *name).count();
        ensure!(count == 1, "it has {count} spans `{name}`");
    }
    Ok(())
}

fn trace_id(number: usize) -> String {
    format!("{:032x}", number + 1)
}
