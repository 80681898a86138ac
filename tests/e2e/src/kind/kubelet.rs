//! A step of `cargo xtask kind lifecycle`: what kubelets do to start Pods, in the traces of the Pods' lifecycles.

use std::{collections::BTreeMap, fs, path::Path, process::Command, thread};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use harness::{
    figures::Observed as _,
    metrics::Metrics,
    spans::{self, Span},
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::{
    components::{ETCD, SCHEDULER},
    process,
};

use super::{
    cluster::{COLLECTOR as ENDPOINT, CONTROL_PLANE, Cluster, WORKER},
    e2e::RELEASE,
    images,
    operations::{
        INTERVAL, TIMEOUT, chart_path, create, daemons, delete, helm, items, metrics_of, pod, wait_for_pods,
    },
};
use crate::checks::nothing_lost;

/// Pods of the Deployment.
const REPLICAS: usize = 3;
/// The Pods that never are ready, and what the trace says of each.
const CRASHES: &str = "crash";
const UNREADY: &str = "unready";
const MISSING: &str = "missing";
const REJECTED: &str = "rejected";
/// How many these are.
const FAILING: usize = 4;
/// Why the last one is rejected: <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/sysctl/allowlist.go>
const REJECTION: &str = "SysctlForbidden";
/// Starts of the container that ends at once, at least: the second is a restart.
const STARTS: u64 = 3;
/// Replaces a node's kubelet. What it has written to its folder has another format in other versions.
const REPLACE: &str = "set -eu
systemctl stop kubelet
rm -f /var/lib/kubelet/*_state
install -m 755 /shared/kubelet /usr/bin/kubelet
systemctl start kubelet";
/// Labels of a metric.
type Labels = &'static [(&'static str, &'static str)];

/// Spans of calls, and the kubelet's own count of them.
const CALLS: [(&str, &str, Labels); 6] = [
    ("RunPodSandbox", "kubelet_runtime_operations_total", &[("operation_type", "run_podsandbox")]),
    ("PullImage", "kubelet_runtime_operations_total", &[("operation_type", "pull_image")]),
    ("CreateContainer", "kubelet_runtime_operations_total", &[("operation_type", "create_container")]),
    ("StartContainer", "kubelet_runtime_operations_total", &[("operation_type", "start_container")]),
    ("sandbox", "kubelet_started_pods_total", &[]),
    ("container", "kubelet_started_containers_total", &[]),
];
/// Who traces the calls, and those of them that are of no start.
const TRACED: &str = "schedspan_kubelet_calls_total";
const OUTSIDE: &str = "schedspan_kubelet_calls_outside_starts_total";

/// The worker's kubelet and its tracer, at a moment.
struct Moment {
    kubelet: Metrics,
    daemon: Metrics,
}

impl Moment {
    fn now(cluster: &Cluster) -> Result<Self> {
        let path = format!("/api/v1/nodes/{WORKER}/proxy/metrics");
        let kubelet = Metrics::parse(&cluster.kubectl(&["get", "--raw", &path])?)?;
        Ok(Self { kubelet, daemon: on(cluster, WORKER)? })
    }
}

/// The metrics of the daemon on a node.
fn on(cluster: &Cluster, node: &str) -> Result<Metrics> {
    let daemons = daemons(cluster)?;
    let (daemon, _) =
        daemons.iter().find(|(_, of)| of == node).with_context(|| format!("no daemon on {node}"))?;
    metrics_of(cluster, daemon)
}

/// Gives the worker this kubelet instead of its own.
pub(super) fn replace(cluster: &Cluster, version: &str, executable: &Path) -> Result<((), String)> {
    fs::copy(executable, cluster.shared().join("kubelet"))?;
    cluster.on_node(WORKER, &["sh", "-c", REPLACE])?;
    let version = format!("v{version}");
    let ready = wait_until(&format!("{WORKER} to be ready with kubelet {version}"), TIMEOUT, || {
        thread::sleep(INTERVAL);
        let node = cluster.get(&["node", WORKER])?;
        let is_new = node["status"]["nodeInfo"]["kubeletVersion"] == version.as_str();
        Ok((is_new && is_ready(&node)).then_some(()))
    });
    ready.map_err(|error| {
        let log = ["journalctl", "--unit=kubelet", "--no-pager", "--lines=20"];
        anyhow!("{error:#}\n{}", cluster.on_node(WORKER, &log).unwrap_or_default())
    })?;
    Ok(((), format!("on {WORKER}")))
}

/// Has daemons on all nodes trace kubelets as well, and no creator above the lifecycles.
pub(super) fn install(cluster: &Cluster) -> Result<((), String)> {
    delete(cluster)?;
    let values = format!("otlp.endpoint=http://{ENDPOINT},lifecycle=true,nodes=all");
    helm(cluster, &["upgrade", RELEASE, &chart_path(), "--wait", "--timeout=2m", "--set", &values])?;
    for (node, processes) in [(CONTROL_PLANE, 2.0), (WORKER, 1.0)] {
        wait_until(&format!("{processes} processes to be traced on {node}"), TIMEOUT, || {
            thread::sleep(INTERVAL);
            let metrics = on(cluster, node).ok();
            Ok(metrics.filter(|metrics| metrics.sum("schedspan_schedulers", &[]) == processes).map(drop))
        })?;
    }
    Ok(((), "on all nodes".to_owned()))
}

/// Starts Pods, and compares what is traced of that with what the kubelet and the runtime say.
pub(super) fn starts(cluster: &Cluster) -> Result<((), String)> {
    let before = Moment::now(cluster)?;
    create(cluster, &work())?;
    wait_for_pods(cluster, "Pods to be ready, or to fail as they should", |pods| {
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        let restarted = pods.iter().any(|pod| restarts(pod) >= STARTS - 1);
        let rejected = pods.iter().any(|pod| pod["status"]["reason"] == REJECTION);
        pods.len() == REPLICAS + FAILING && ready == REPLICAS && restarted && rejected
    })?;
    let pods = items(cluster)?;
    // What is not ready is over when it is deleted.
    cluster.kubectl(&["delete", "deployment/shop", "configmap/settings", "--cascade=foreground"])?;
    delete(cluster)?;
    let spans = wait_until("the starts of all Pods", TIMEOUT, || {
        thread::sleep(INTERVAL);
        let spans = spans::read(&cluster.spans(), 0)?;
        let ended = |pod: &Value, name: &str| {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            spans.iter().any(|span| span.name == name && span.attribute("k8s.pod.uid") == uid)
        };
        let all = pods.iter().all(|pod| ended(pod, "StartPod") && ended(pod, "PodLifecycle"));
        Ok(all.then_some(spans))
    })?;
    let after = settled(cluster, &before)?;
    nothing_lost(&after.daemon)?;
    for pod in &pods {
        check(&spans, pod)?;
    }
    Ok(((), told(&spans, &pods, &before, &after)?))
}

/// Waits until the kubelet has counted the calls that were seen to begin.
fn settled(cluster: &Cluster, before: &Moment) -> Result<Moment> {
    wait_until("schedspan and the kubelet to have counted the same calls", TIMEOUT, || {
        thread::sleep(INTERVAL);
        let now = Moment::now(cluster)?;
        let equal = CALLS.iter().all(|(call, metric, labels)| {
            increase(&before.daemon, &now.daemon, TRACED, &[("call", call)])
                == increase(&before.kubelet, &now.kubelet, metric, labels)
        });
        Ok(equal.then_some(now))
    })
}

fn increase(before: &Metrics, after: &Metrics, metric: &str, labels: &[(&str, &str)]) -> f64 {
    after.sum(metric, labels) - before.sum(metric, labels)
}

/// A Deployment of Pods with an init container, two containers and volumes; a Pod whose container ends at once; one that is never
/// ready; one whose image is nowhere; one that the kubelet does not admit.
fn work() -> Vec<Value> {
    let tag = format!("v{}", SCHEDULER.version);
    let ends = json!({
        "name": "main", "image": images::name(SCHEDULER.name, &tag), "imagePullPolicy": "Never", "args": ["--version"],
    });
    let mut shop = pod("shop", "10m");
    let db = json!({
        "name": "db", "image": images::name(ETCD.name, images::ETCD_TAG), "imagePullPolicy": "Never",
        "args": [
            "--data-dir=/data", "--listen-client-urls=http://0.0.0.0:2379",
            "--advertise-client-urls=http://127.0.0.1:2379",
        ],
        "readinessProbe": { "tcpSocket": { "port": 2379 }, "periodSeconds": 1 },
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }, { "name": "settings", "mountPath": "/settings" }],
    });
    if let Some(containers) = shop["spec"]["containers"].as_array_mut() {
        containers.insert(0, db);
    }
    let mut schema = ends.clone();
    schema["name"] = "schema".into();
    shop["spec"]["initContainers"] = json!([schema]);
    shop["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }, { "name": "settings", "configMap": { "name": "settings" } }]);
    let labels = json!({ "app": "shop" });
    let template = json!({ "metadata": { "labels": labels }, "spec": shop["spec"] });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "shop" },
        "spec": { "replicas": REPLICAS, "selector": { "matchLabels": labels }, "template": template },
    });
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" }, "data": { "a": "b" },
    });
    // Never ready, or it would be so for a moment each time.
    let probe = json!({ "tcpSocket": { "port": 1 }, "periodSeconds": 1 });
    let mut crash = pod(CRASHES, "10m");
    crash["spec"]["containers"] = json!([ends]);
    crash["spec"]["containers"][0]["readinessProbe"] = probe.clone();
    let mut unready = pod(UNREADY, "10m");
    unready["spec"]["containers"][0]["readinessProbe"] = probe;
    let mut missing = pod(MISSING, "10m");
    missing["spec"]["containers"][0]["image"] = images::name("missing", "1").into();
    missing["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    let mut rejected = pod(REJECTED, "10m");
    rejected["spec"]["securityContext"] =
        json!({ "sysctls": [{ "name": "kernel.msgmax", "value": "65536" }] });
    vec![settings, deployment, crash, unready, missing, rejected]
}

/// Whether a Pod or a Node is ready.
fn is_ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn restarts(pod: &Value) -> u64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default()
}

/// The spans below this one, by their parents.
fn below<'a>(spans: &'a [Span], root: &'a Span) -> Vec<&'a Span> {
    let mut all = vec![root];
    let mut next = 0;
    while let Some(parent) = all.get(next).copied() {
        let is_child =
            |span: &&Span| span.parent_span_id == parent.span_id && span.trace_id == parent.trace_id;
        all.extend(spans.iter().filter(is_child));
        next += 1;
    }
    all
}

/// Checks the start of a Pod: where it is, and what it says.
fn check(spans: &[Span], pod: &Value) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    let of = |kind: &str| {
        let mut own = spans.iter().filter(|span| span.name == kind && span.attribute("k8s.pod.uid") == uid);
        own.next().filter(|_| own.next().is_none()).with_context(|| format!("{name} has not one {kind}"))
    };
    let (life, root) = (of("PodLifecycle")?, of("StartPod")?);
    ensure!(
        (&root.trace_id, &root.parent_span_id) == (&life.trace_id, &life.span_id),
        "the start of {name} is not in the trace of its lifecycle"
    );
    let parts = below(spans, root);
    for part in &parts {
        ensure!(!part.is_incomplete(), "{} of {name} is incomplete", part.name);
        ensure!(root.holds(part), "{} is not within the start of {name}", part.name);
    }
    let result = root.attribute("schedspan.lifecycle.result");
    let (expected, sandboxes) = match &*name {
        REJECTED => ("Rejected", 0),
        CRASHES | UNREADY | MISSING => ("Deleted", 1),
        _ => ("Ready", 1),
    };
    ensure!(result == expected, "the start of {name} is {result}");
    let count = |span: &str| parts.iter().filter(|part| part.name == span).count();
    for (span, number) in [("admit", 1), ("sandbox", sandboxes), ("RunPodSandbox", sandboxes)] {
        ensure!(count(span) == number, "{name} has {} spans {span}", count(span));
    }
    let failed: Vec<_> =
        parts.iter().filter(|part| !part.status_message.is_empty()).map(|part| &*part.name).collect();
    let probes = |result: &str| {
        parts.iter().filter(|part| part.attribute("k8s.container.probe.result") == result).count()
    };
    match &*name {
        CRASHES => {
            let last = parts
                .iter()
                .filter(|part| part.name == "container: main")
                .max_by_key(|part| part.start_time_unix_nano);
            let last = last
                .context("the container that ends was not started")?
                .attribute("k8s.container.restart_count");
            ensure!(last.parse::<u64>()? >= STARTS - 1, "the last of its starts is restart {last}");
        }
        UNREADY => {
            ensure!(probes("failure") > 0 && probes("success") == 0, "{} probes failed", probes("failure"));
        }
        MISSING => {
            ensure!(count("PullImage") > 0 && failed.contains(&"image"), "{name} has failed in {failed:?}");
        }
        REJECTED => {
            let why: Vec<_> = parts.iter().map(|part| &*part.status_message).collect();
            ensure!(why == [REJECTION; 2], "{name} is rejected because of {why:?}");
        }
        _ => {
            for span in ["init: schema", "container: db", "container: main"] {
                ensure!(count(span) == 1, "{name} has {} spans {span}", count(span));
            }
            ensure!(count("volumes") > 0 && probes("success") > 0, "{name} has no volumes or probes");
            ensure!(failed.is_empty(), "{failed:?} of {name} failed");
            runtime_agrees(&parts, pod)?;
        }
    }
    Ok(())
}

/// Checks that the runtime started each container while it was called to do so. Its time is known to the second.
fn runtime_agrees(parts: &[&Span], pod: &Value) -> Result<()> {
    let lists = ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].as_array());
    for status in lists.into_iter().flatten().flatten() {
        let id = status["containerID"]
            .as_str()
            .and_then(|id| id.split_once("://"))
            .context("a container has no id")?
            .1;
        let state = status["state"].as_object().and_then(|state| state.values().next());
        let started =
            state.and_then(|state| state["startedAt"].as_str()).context("a container was not started")?;
        let calls =
            parts.iter().filter(|part| part.name == "StartContainer" && part.attribute("container.id") == id);
        let [call] = calls.collect::<Vec<_>>()[..] else { bail!("{id} was not started once") };
        let [from, to] =
            [call.start_time_unix_nano, call.end_time_unix_nano].map(|unix_ns| unix_ns / 1_000_000_000);
        let second = process::output(Command::new("date").args(["--utc", "+%s", "--date", started]))?;
        ensure!(
            (from..=to).contains(&second.trim().parse()?),
            "{id} was started at {started}, and not while it was asked for"
        );
    }
    Ok(())
}

/// Checks that each call is in a span, or counted as one outside of starts; a line about them.
fn told(spans: &[Span], pods: &[Value], before: &Moment, after: &Moment) -> Result<String> {
    let uids: Vec<_> = pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
    let roots = spans
        .iter()
        .filter(|span| span.name == "StartPod" && uids.contains(&&*span.attribute("k8s.pod.uid")));
    let mut counts = BTreeMap::<&str, f64>::new();
    for part in roots.flat_map(|root| below(spans, root)) {
        let kind = part.name.split(':').next().unwrap_or_default();
        *counts.entry(if kind == "init" { "container" } else { kind }).or_default() += 1.0;
    }
    let mut line = Vec::new();
    for (call, metric, labels) in CALLS {
        let own = increase(&before.kubelet, &after.kubelet, metric, labels);
        let outside = increase(&before.daemon, &after.daemon, OUTSIDE, &[("call", call)]);
        let in_spans = counts.get(call).copied().unwrap_or_default();
        ensure!(own > 0.0, "{metric}{labels:?} has not changed: the test proves nothing");
        ensure!(
            in_spans + outside == own,
            "{in_spans} spans {call} and {outside} outside, but {metric} says {own}"
        );
        line.push(format!("{own} {call}"));
    }
    Ok(format!("{} Pods, {} as by the kubelet's metrics", pods.len(), line.join(", ")))
}
