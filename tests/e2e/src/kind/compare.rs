//! `cargo xtask kind compare`: spans from outside next to spans from inside, on a real cluster. The node's static Pod is a scheduler
//! that makes spans itself; schedspan is its DaemonSet.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{self, NodeSize, is_bound, is_unschedulable},
    cluster::OwnSpans,
    figures::{Comparison, Observed as _},
    metrics::Metrics,
    schedulers::woven,
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::{
    build,
    components::{Component, SCHEDULER},
};

use super::{
    cluster::{COLLECTOR as ENDPOINT, CONTROL_PLANE, Cluster, Tracing},
    e2e::{RELEASE, archives, collector, in_cluster, load, step},
    engine::Provider,
    images,
    operations::{TIMEOUT, chart_path, create, create_at_pace, helm, metrics, pod, traced, wait_for_pods},
    per_node,
};
use crate::{
    checks::nothing_lost,
    compare::command::{self, STRUCTURE, TIMES},
};

/// Nodes that are objects alone: no kubelet starts their Pods, which would take the scheduler's time.
const NODES: usize = 100;
const NODE_LABEL: &str = "schedspan.test/object";
/// Pods, of which each twentieth fits nowhere, and how many are created in a second.
const PODS: usize = 600;
const PACE: usize = 50;
const NEVER: usize = 20;
/// The static Pod of the scheduler, as kubeadm writes it.
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-scheduler.yaml";

/// # Errors
///
/// If a step fails, or the spans do not agree: the error ends with schedspan's log.
pub(super) fn run(provider: Provider, per_node: bool) -> Result<()> {
    let executable = build::build()?;
    let (component, _) = woven(SCHEDULER.version)?;
    let peer = images::scheduler(&component)?;
    let timed = per_node.then(per_node::scheduler).transpose()?;
    let archives = archives()?;
    let begin = Instant::now();
    in_cluster(provider, 1, Tracing::Off, |cluster| {
        step("images loaded", || load(cluster, &archives))?;
        step("Collector", || collector(cluster))?;
        step("scheduler with spans", || {
            let environment = OwnSpans::Timed.environment(&format!("http://{ENDPOINT}")).into_iter();
            let environment = environment.map(|(name, value)| json!({ "name": name, "value": value }));
            let environment: Value = environment.collect();
            replace(cluster, &component, &peer, |spec| {
                spec["containers"][0]["env"] = environment;
                Ok(())
            })
        })?;
        step("helm install", || install(cluster))?;
        let file = step("Pods", || schedule(cluster))?;
        step("compared", || compare(&executable, &file))?;
        timed.iter().try_for_each(|(component, archive)| per_node::steps(cluster, component, archive))
    })?;
    println!("ok       all with {:<15} {:>6.1} s", provider.name(), begin.elapsed().as_secs_f32());
    Ok(())
}

/// Makes this scheduler the static Pod, with a change of the Pod's `spec`.
pub(super) fn replace(
    cluster: &Cluster,
    component: &Component,
    archive: &Path,
    change: impl FnOnce(&mut Value) -> Result<()>,
) -> Result<((), String)> {
    cluster.load(archive)?;
    let old = cluster.pid()?;
    let read = ["kubectl", "create", "--dry-run=client", "--output=json", "--filename", MANIFEST];
    let mut manifest: Value = serde_json::from_str(&cluster.on_node(CONTROL_PLANE, &read)?)?;
    let spec = &mut manifest["spec"];
    spec["containers"][0]["image"] = images::name(component.name, component.version).into();
    change(spec)?;
    fs::write(cluster.shared().join("scheduler.json"), manifest.to_string())?;
    cluster.on_node(CONTROL_PLANE, &["cp", "/shared/scheduler.json", MANIFEST])?;
    let new = wait_until("the new scheduler", TIMEOUT, || {
        thread::sleep(Duration::from_secs(1));
        Ok(cluster.pid().ok().filter(|pid| *pid != old))
    })?;
    // It waits until the lease of the one before it has expired.
    wait_until("it to lead", TIMEOUT, || {
        thread::sleep(Duration::from_secs(1));
        let leads = |metrics: Metrics| metrics.sum("leader_election_master_status", &[]);
        Ok(cluster.metrics().is_ok_and(|metrics| leads(metrics) == 1.0).then_some(()))
    })?;
    Ok(((), format!("static Pod of {} {}, pid {new}", component.name, component.version)))
}

fn install(cluster: &Cluster) -> Result<((), String)> {
    daemon(cluster, "--monotonic")?;
    Ok(((), String::new()))
}

/// Installs schedspan with these arguments, or changes them.
pub(super) fn daemon(cluster: &Cluster, arguments: &str) -> Result<()> {
    // What is compared must not depend on how busy the machine is.
    let values = format!("otlp.endpoint=http://{ENDPOINT},budget=100%,args={{{arguments}}}");
    let upgrade =
        ["upgrade", "--install", RELEASE, &chart_path(), "--wait", "--timeout=2m", "--set", &values];
    helm(cluster, &upgrade)?;
    traced(cluster, 1).map(drop)
}

/// Schedules the Pods. Returns the file with the spans of both sides.
fn schedule(cluster: &Cluster) -> Result<(PathBuf, String)> {
    let nodes: Vec<_> = (0..NODES).map(node).collect();
    create(cluster, &nodes)?;
    // Until the DaemonSets' Pods for these Nodes are scheduled.
    Comparison::begin(cluster)?.end()?;
    let skip = fs::metadata(cluster.spans())?.len();
    let comparison = Comparison::begin(cluster)?;
    create_at_pace(cluster, PACE, &(0..PODS).map(twin).collect::<Vec<_>>())?;
    wait_for_pods(cluster, "all Pods to be bound or found unschedulable", |pods| {
        pods.len() == PODS && pods.iter().all(|pod| is_bound(pod) || is_unschedulable(pod))
    })?;
    let figures = comparison.end()?;
    nothing_lost(&metrics(cluster)?)?;
    let attempts = figures.spans.iter().filter(|span| span.is_root()).count();
    ensure!(attempts >= PODS, "{attempts} attempts of {PODS} Pods are traced");
    let spans = fs::read(cluster.spans())?;
    let file = cluster.shared().join("twins.jsonl");
    fs::write(&file, spans.get(skip as usize..).context("the Collector's file has shrunk")?)?;
    Ok((file, format!("{attempts} attempts on {NODES} Nodes, {} spans", figures.spans.len())))
}

/// A Node without a kubelet.
fn node(number: usize) -> Value {
    let size = NodeSize { cpu: "32", memory: "64Gi", pods: 110, zone: None };
    let mut node = api::node(&format!("object-{number:04}"), size);
    (node["apiVersion"], node["kind"]) = ("v1".into(), "Node".into());
    node["metadata"]["labels"][NODE_LABEL] = "true".into();
    node
}

fn twin(number: usize) -> Value {
    let cpu = if number % NEVER == NEVER - 1 { "1000" } else { "10m" };
    on_objects(pod(&format!("twin-{number}"), cpu))
}

/// The Pod, for these Nodes alone, which are soon taken for lost.
pub(super) fn on_objects(mut pod: Value) -> Value {
    pod["spec"]["nodeSelector"] = json!({ NODE_LABEL: "true" });
    pod["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
    pod
}

/// Compares as `cargo xtask compare` does, with the same limits.
fn compare(executable: &Path, file: &Path) -> Result<((), String)> {
    let mut compare = command::command(executable, file);
    let status = compare.args(STRUCTURE).args(TIMES).status().context("cannot start schedspan")?;
    ensure!(status.success(), "the spans do not agree");
    Ok(((), "each span of the scheduler has its twin".to_owned()))
}
