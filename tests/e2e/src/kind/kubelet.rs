//! Steps of `cargo xtask kind lifecycle`: what kubelets do to start Pods, in the traces of the Pods' lifecycles.

use std::{collections::BTreeMap, fs, path::Path, thread, time::Duration};

use anyhow::{Context as _, Result, anyhow, ensure};
use harness::{
    figures::Observed as _,
    metrics::Metrics,
    spans::{self, Span},
    wait::wait_until,
};
use serde_json::{Value, json};

use super::{
    cluster::{COLLECTOR as ENDPOINT, CONTROL_PLANE, Cluster, Tracing, WORKER},
    containerd,
    e2e::RELEASE,
    images, native,
    operations::{
        INTERVAL, NAMESPACE, TIMEOUT, chart_path, create, daemons, delete, helm, items, metrics_of, pod,
        wait_for_pods,
    },
};
use crate::{checks::nothing_lost_since, controllers, creations};

/// The release whose daemons trace the kubelets of workers.
const NODES: &str = "schedspan-nodes";
/// Pods of the Deployment. One of them ends in a loop, and the readiness probe of another always fails.
const REPLICAS: usize = 20;
const READY: usize = REPLICAS - 2;
/// The other Pods, and what the trace says of each.
const MISSING: &str = "missing";
const REJECTED: &str = "rejected";
/// Why the latter is rejected: <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/sysctl/allowlist.go>
const REJECTION: &str = "SysctlForbidden";
/// Starts of the container that ends at once, at least: the second is a restart.
const STARTS: u64 = 3;
/// The time for all Pods to start: they do so at once, and a start is some seconds of work.
const STARTED_WITHIN: Duration = Duration::from_secs(300);
/// The folder, in the shared one, in which the Deployment's Pods have their roles.
const ROLES: &str = "roles";
/// The time in which a kubelet that is done with earlier Pods does nothing for them.
const QUIET: Duration = Duration::from_secs(5);
/// The kubelet exports every five seconds.
const EXPORTED: Duration = Duration::from_secs(20);
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
/// The same of the kubelet's workers, one a Pod, as long as no Pod ends: the end is other calls.
const WORKED: (&str, &str, Labels) = ("syncPod", WORKERS, &[]);
const WORKERS: &str = "kubelet_pod_worker_duration_seconds_count";
/// What the kubelet counts once for each Pod that it starts.
const STARTED: [(&str, Labels); 2] =
    [(WORKERS, &[("operation_type", "create")]), ("kubelet_pod_worker_start_duration_seconds_count", &[])];
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
    metrics_of(cluster, &daemon(cluster, node)?)
}

/// The daemon's Pod on a node.
fn daemon(cluster: &Cluster, node: &str) -> Result<String> {
    let mut daemons = daemons(cluster)?.into_iter();
    let found = daemons.find(|(_, of)| of == node).with_context(|| format!("no daemon on {node}"))?;
    Ok(found.0)
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

/// Has a daemon trace the scheduler and kube-controller-manager, and another one the worker's kubelet, into the traces of owners, with no
/// creator above the lifecycles.
pub(super) fn install(cluster: &Cluster) -> Result<((), String)> {
    delete(cluster)?;
    // What is compared must not depend on how busy the machine is.
    let values = format!("otlp.endpoint=http://{ENDPOINT},lifecycleTrace=owner,budget=100%");
    for (verb, release, own) in [
        ("upgrade", RELEASE, "lifecycle=true,args={--program=kube-scheduler\\,client-go}"),
        ("install", NODES, "nodes=workers"),
    ] {
        let values = format!("{values},{own}");
        helm(cluster, &[verb, release, &chart_path(), "--wait", "--timeout=2m", "--set", &values])?;
    }
    for (node, programs) in
        [(CONTROL_PLANE, &["kube-scheduler", "kube-controller-manager"][..]), (WORKER, &["kubelet"])]
    {
        wait_until(&format!("{} to be traced on {node}", programs.join(" and ")), TIMEOUT, || {
            thread::sleep(INTERVAL);
            let log = daemon(cluster, node)
                .and_then(|pod| cluster.kubectl(&["logs", "--namespace", NAMESPACE, &pod]))
                .unwrap_or_default();
            let is_traced = |name: &&str| log.contains(&format!("tracing {name} "));
            Ok((programs.iter().all(is_traced) && on(cluster, node).is_ok()).then_some(()))
        })?;
    }
    Ok(((), "of the worker, and the controllers".to_owned()))
}

/// What is known of the Pods that were started.
struct Started {
    pods: Vec<Value>,
    /// The names of those that end in a loop and that are never ready.
    crashes: String,
    unready: String,
}

/// Starts Pods, and compares what is traced of that with what the kubelet and the runtime say.
pub(super) fn starts(cluster: &Cluster, tracing: Tracing, executable: &Path) -> Result<((), String)> {
    let roles = cluster.shared().join(ROLES);
    let _ = fs::remove_dir_all(&roles); // There is none yet.
    fs::create_dir(&roles)?;
    let before = quiet(cluster)?;
    let skip = written(cluster)?;
    create(cluster, &work())?;
    wait_until("Pods to be ready, or to fail as they should", STARTED_WITHIN, || {
        thread::sleep(INTERVAL);
        let pods = items(cluster)?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        let restarted = pods.iter().any(|pod| restarts(pod) >= STARTS - 1);
        Ok((pods.len() == REPLICAS + 1 && ready == READY && restarted).then_some(()))
    })?;
    let started = settled(cluster, &before, &[&CALLS[..], &[WORKED]].concat())?;
    // Later: it has ended when it is rejected.
    create(cluster, &[rejected()])?;
    wait_for_pods(cluster, "a Pod to be rejected", |pods| {
        pods.iter().any(|pod| pod["status"]["reason"] == REJECTION)
    })?;
    let [crashes, unready] = ["crashes", "unready"].map(|role| fs::read_to_string(roles.join(role)));
    let pods = Started { pods: items(cluster)?, crashes: crashes?, unready: unready? };
    // What is not ready is over when it is deleted.
    cluster.kubectl(&["delete", "deployment/shop", "configmap/settings", "--cascade=foreground"])?;
    delete(cluster)?;
    let spans = wait_until("the starts of all Pods", TIMEOUT, || {
        thread::sleep(INTERVAL);
        let spans = spans::read(&cluster.spans(), skip)?;
        let ended = |pod: &Value, name: &str| {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
            spans.iter().any(|span| span.name == name && span.attribute("k8s.pod.uid") == uid)
        };
        let all = pods.pods.iter().all(|pod| ended(pod, "StartPod") && ended(pod, "PodLifecycle"));
        Ok(all.then_some(spans))
    })?;
    let after = settled(cluster, &before, &CALLS)?;
    nothing_lost_since(&before.daemon, &after.daemon)?;
    controllers::nothing_lost(&on(cluster, CONTROL_PLANE)?)?;
    for pod in &pods.pods {
        check(&spans, pod, &pods)?;
    }
    println!("         {}", told(&spans, &pods, [&before, &started, &after])?);
    let of_runtime: Vec<_> = calls(&spans, &pods, &CALLS.map(|(call, ..)| call)[..4]);
    let first = of_runtime.iter().map(|(_, call)| call.start_time_unix_nano).min().context("no calls")?;
    let of_runtime: Vec<_> = of_runtime.into_iter().map(|(_, call)| call).collect();
    println!("         {}", containerd::within(&of_runtime, &containerd::log(cluster, first)?)?);
    if tracing == Tracing::On {
        println!("         {}", natively(cluster, skip, &pods)?);
    }
    let of_owner = |pod: &&Value| pod["metadata"]["ownerReferences"].is_array();
    let owned: Vec<_> = pods.pods.iter().filter(of_owner).cloned().collect();
    let ended = format!("2 Deleted, {READY} Ready");
    creations::of_owner(executable, &cluster.spans(), &owned, "deploy/shop", &ended)?;
    Ok(((), format!("{} Pods, {} of a Deployment", pods.pods.len(), owned.len())))
}

/// The length of the Collector's file, as far as its lines are whole.
fn written(cluster: &Cluster) -> Result<u64> {
    let written = fs::read(cluster.spans())?;
    let end = written.iter().rposition(|byte| *byte == b'\n');
    Ok(end.map_or(0, |end| end as u64 + 1))
}

/// Compares the starts with the kubelet's own spans, once these have arrived.
fn natively(cluster: &Cluster, skip: u64, pods: &Started) -> Result<String> {
    let compared = || {
        let spans = spans::read(&cluster.spans(), skip)?;
        native::within(&calls(&spans, pods, &native::CALLS), &spans)
    };
    // Where they never do, the comparison says which one is missing.
    let _ = wait_until("the kubelet's own spans", EXPORTED, || Ok(compared().ok().map(drop)));
    compared()
}

/// The calls of these names in the starts of the Pods, each with the Pod's UID.
fn calls<'a>(spans: &'a [Span], pods: &'a Started, names: &[&str]) -> Vec<(&'a str, &'a Span)> {
    let uids = pods.pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str());
    let all = uids.flat_map(|uid| {
        let is_root = |span: &&Span| span.name == "StartPod" && span.attribute("k8s.pod.uid") == uid;
        let root = spans.iter().find(is_root);
        root.into_iter().flat_map(|root| below(spans, root)).map(move |call| (uid, call))
    });
    all.filter(|(_, call)| names.contains(&&*call.name)).collect()
}

/// A moment after some time in which the kubelet did nothing for earlier Pods: it ends some that the API server does not have any more.
fn quiet(cluster: &Cluster) -> Result<Moment> {
    let mut last = Moment::now(cluster)?;
    wait_until("the kubelet to be done with earlier Pods", TIMEOUT, || {
        thread::sleep(QUIET);
        let now = Moment::now(cluster)?;
        let is_ending = now.kubelet.sum("kubelet_working_pods", &[("lifecycle", "terminating")]) > 0.0;
        let did = |(_, metric, labels): &(&str, &str, Labels)| {
            increase(&last.kubelet, &now.kubelet, metric, labels)
        };
        let idle = CALLS.iter().all(|call| did(call) == 0.0);
        if idle && !is_ending && are_equal(&last, &now, &WORKED) {
            return Ok(Some(now));
        }
        last = now;
        Ok(None)
    })
}

/// Waits until the kubelet has counted the calls that were seen to begin.
fn settled(cluster: &Cluster, before: &Moment, calls: &[(&str, &str, Labels)]) -> Result<Moment> {
    let mut differ = Vec::new();
    let settled = wait_until("schedspan and the kubelet to have counted the same calls", TIMEOUT, || {
        thread::sleep(INTERVAL);
        let now = Moment::now(cluster)?;
        differ = calls.iter().filter(|call| !are_equal(before, &now, call)).map(|(call, ..)| *call).collect();
        Ok(differ.is_empty().then_some(now))
    });
    settled.map_err(|error| anyhow!("{error:#}: they differ in {differ:?}"))
}

/// Whether as many of these calls were seen to begin between two moments as the kubelet counted.
fn are_equal(before: &Moment, after: &Moment, (call, metric, labels): &(&str, &str, Labels)) -> bool {
    increase(&before.daemon, &after.daemon, TRACED, &[("call", call)])
        == increase(&before.kubelet, &after.kubelet, metric, labels)
}

fn increase(before: &Metrics, after: &Metrics, metric: &str, labels: &[(&str, &str)]) -> f64 {
    after.sum(metric, labels) - before.sum(metric, labels)
}

/// A Deployment of Pods of two images with an init container, two containers, volumes, and a readiness probe that fails at first; and a Pod
/// whose image is nowhere.
fn work() -> Vec<Value> {
    let program = |name: &str, arguments: &[&str]| {
        let image = images::shop_name();
        json!({ "name": name, "image": image, "imagePullPolicy": "Never", "args": arguments })
    };
    let mut shop = pod("shop", "10m");
    let mut web = program("web", &["/roles"]);
    web["readinessProbe"] = json!({ "tcpSocket": { "port": 8080 }, "periodSeconds": 1 });
    web["volumeMounts"] = json!([
        { "name": "roles", "mountPath": "/roles" },
        { "name": "data", "mountPath": "/data" },
        { "name": "settings", "mountPath": "/settings" },
    ]);
    if let Some(containers) = shop["spec"]["containers"].as_array_mut() {
        containers.insert(0, web);
    }
    shop["spec"]["initContainers"] = json!([program("schema", &[])]);
    shop["spec"]["volumes"] = json!([
        { "name": "roles", "hostPath": { "path": format!("/shared/{ROLES}"), "type": "Directory" } },
        { "name": "data", "emptyDir": {} },
        { "name": "settings", "configMap": { "name": "settings" } },
    ]);
    let labels = json!({ "app": "shop" });
    let template = json!({ "metadata": { "labels": labels }, "spec": shop["spec"] });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "shop" },
        "spec": { "replicas": REPLICAS, "selector": { "matchLabels": labels }, "template": template },
    });
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" }, "data": { "a": "b" },
    });
    let mut missing = pod(MISSING, "10m");
    missing["spec"]["containers"][0]["image"] = images::name("missing", "1").into();
    missing["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    vec![settings, deployment, missing]
}

/// A Pod that the kubelet does not admit.
fn rejected() -> Value {
    let mut rejected = pod(REJECTED, "10m");
    rejected["spec"]["securityContext"] =
        json!({ "sysctls": [{ "name": "kernel.msgmax", "value": "65536" }] });
    rejected
}

/// Whether a Pod or a Node is ready.
fn is_ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn restarts(pod: &Value) -> u64 {
    let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    containers.filter_map(|status| status["restartCount"].as_u64()).sum()
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
fn check(spans: &[Span], pod: &Value, Started { crashes, unready, .. }: &Started) -> Result<()> {
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
    let by_id: BTreeMap<_, _> = parts.iter().map(|part| (&*part.span_id, part)).collect();
    for part in &parts[1..] {
        ensure!(!part.is_incomplete(), "{} of {name} is incomplete", part.name);
        let around = by_id[&*part.parent_span_id];
        ensure!(around.holds(part), "{} of {name} is not within {}", part.name, around.name);
    }
    let result = root.attribute("schedspan.lifecycle.result");
    let is_failing = [MISSING, crashes, unready].contains(&&*name);
    let (expected, sandboxes) = match &*name {
        REJECTED => ("Rejected", 0),
        _ if is_failing => ("Deleted", 1),
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
        MISSING => {
            ensure!(count("PullImage") > 0 && failed.contains(&"image"), "{name} has failed in {failed:?}");
            return Ok(());
        }
        REJECTED => {
            let why: Vec<_> = parts.iter().map(|part| &*part.status_message).collect();
            ensure!(why == [REJECTION; 2], "{name} is rejected because of {why:?}");
            return Ok(());
        }
        _ => {}
    }
    // Of the Deployment.
    let starts = if name == *crashes { usize::try_from(STARTS)? } else { 1 };
    for (span, least) in [("init: schema", 1), ("container: web", starts), ("container: main", 1)] {
        let is_right = if least == 1 { count(span) == 1 } else { count(span) >= least };
        ensure!(is_right, "{name} has {} spans {span}", count(span));
    }
    ensure!(count("volumes") > 0, "{name} has no volumes");
    if name == *crashes {
        let of_web = parts.iter().filter(|part| part.name == "container: web");
        let last = of_web.max_by_key(|part| part.start_time_unix_nano).context("it was not started")?;
        let last = last.attribute("k8s.container.restart_count");
        ensure!(last.parse::<u64>()? >= STARTS - 1, "the last start of {name} is restart {last}");
    } else if name == *unready {
        ensure!(probes("failure") > 0 && probes("success") == 0, "{} probes failed", probes("failure"));
    } else {
        ensure!(probes("success") > 0 && failed.is_empty(), "{failed:?} of {name} failed");
    }
    Ok(())
}

/// Checks that each call is in a span, or counted as one outside of starts; a line about them.
fn told(spans: &[Span], pods: &Started, [before, started, after]: [&Moment; 3]) -> Result<String> {
    let uids: Vec<_> = pods.pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
    let roots = spans
        .iter()
        .filter(|span| span.name == "StartPod" && uids.contains(&&*span.attribute("k8s.pod.uid")));
    let mut counts = BTreeMap::<&str, f64>::new();
    let (mut created, mut failing) = (0.0, 0);
    for part in roots.flat_map(|root| below(spans, root)) {
        let kind = part.name.split(':').next().unwrap_or_default();
        *counts.entry(if kind == "init" { "container" } else { kind }).or_default() += 1.0;
        created += f64::from(u8::from(part.attribute("k8s.pod.update_type") == "create"));
        failing += usize::from(part.attribute("k8s.container.probe.result") == "failure");
    }
    ensure!(failing > 1, "{failing} probes failed: the test proves nothing");
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
    // Those that ended Pods are other calls.
    let (call, metric, labels) = WORKED;
    let seen = increase(&before.daemon, &after.daemon, TRACED, &[("call", call)]);
    let outside = increase(&before.daemon, &after.daemon, OUTSIDE, &[("call", call)]);
    let in_spans = counts.get(call).copied().unwrap_or_default();
    ensure!(
        in_spans + outside == seen,
        "{in_spans} spans {call} and {outside} outside, but {seen} were seen"
    );
    line.push(format!("{} {call}", increase(&before.kubelet, &started.kubelet, metric, labels)));
    for (metric, labels) in STARTED {
        let own = increase(&before.kubelet, &started.kubelet, metric, labels);
        // One was not there yet.
        ensure!(
            own == created && own == (uids.len() - 1) as f64,
            "{metric}{labels:?} is {own}, and {created} of {} starts have a first sync",
            uids.len()
        );
    }
    line.push(format!("{created} first ones"));
    Ok(format!("as by the kubelet's metrics: {}", line.join(", ")))
}
