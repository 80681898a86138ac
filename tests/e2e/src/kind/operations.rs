//! Operations on a cluster that several tests need.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use harness::{figures::Observed, metrics::Metrics, wait::wait_until};
use serde_json::{Value, json};
use xtask::process;

use super::{
    cluster::{CONTROL_PLANE, Cluster, WORKER},
    engine::chart,
    images,
};

/// The namespace of schedspan: that of the control plane's own Pods.
pub(super) const NAMESPACE: &str = "kube-system";
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval of polling.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);
/// Counts the bytes of an executable's code that differ between a process's memory and the file: the kernel's breakpoints.
const PROBES: &str = r#"set -eu
read -r range _ offset _ < <(grep 'r-xp.*/kube-scheduler' /proc/$1/maps)
start=$((16#${range%-*})) length=$((16#${range#*-} - 16#${range%-*}))
part() { dd if=/proc/$1 iflag=skip_bytes,count_bytes bs=1M skip=$2 count=$length status=none; }
cmp -l <(part $1/exe $((16#$offset))) <(part $1/mem $start) | wc -l"#;

impl Observed for Cluster {
    fn metrics(&self) -> Result<Metrics> {
        // Uses an administrator's certificate. The scheduler's own serving certificate is self-signed.
        let ask = "sed /certificate-authority-data/d /etc/kubernetes/admin.conf | kubectl --kubeconfig /dev/stdin \
                   --server https://127.0.0.1:10259 --insecure-skip-tls-verify get --raw /metrics";
        Metrics::parse(&self.on_node(CONTROL_PLANE, &["sh", "-c", ask])?)
    }

    fn pid(&self) -> Result<i32> {
        scheduler(self, "^kube-scheduler .*--kubeconfig=/etc/kubernetes/scheduler.conf")
    }

    fn spans(&self) -> PathBuf {
        self.shared().join("spans.jsonl")
    }
}

/// The process on the control plane's node whose command line matches.
pub(super) fn scheduler(cluster: &Cluster, pattern: &str) -> Result<i32> {
    let pid = cluster.on_node(CONTROL_PLANE, &["pgrep", "-f", "--", pattern])?;
    pid.parse().with_context(|| format!("`{pid}` is not one scheduler"))
}

pub(super) fn chart_path() -> String {
    chart().join("schedspan").display().to_string()
}

pub(super) fn helm(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    process::output(cluster.engine.command("helm").args(["--namespace", NAMESPACE]).args(arguments))
}

/// schedspan's Pods, without those that end: the name and the Node of each.
pub(super) fn daemons(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let pods =
        cluster.get(&["pods", "--namespace", NAMESPACE, "--selector=app.kubernetes.io/name=schedspan"])?;
    let pods = pods["items"].as_array().into_iter().flatten();
    let pods = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(pods.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]))).collect())
}

/// The metrics of a Pod of schedspan, through the API server.
pub(super) fn metrics_of(cluster: &Cluster, pod: &str) -> Result<Metrics> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:9090/proxy/metrics");
    Metrics::parse(&cluster.kubectl(&["get", "--raw", &path])?)
}

/// The metrics of schedspan's one Pod.
pub(super) fn metrics(cluster: &Cluster) -> Result<Metrics> {
    let pods = daemons(cluster)?;
    let [(pod, _)] = &pods[..] else { bail!("{} Pods of schedspan instead of 1", pods.len()) };
    metrics_of(cluster, pod)
}

/// Waits until schedspan traces this number of schedulers.
pub(super) fn traced(cluster: &Cluster, schedulers: u32) -> Result<Metrics> {
    wait_until(&format!("schedspan to trace {schedulers} schedulers"), TIMEOUT, || {
        thread::sleep(INTERVAL);
        // For Helm a DaemonSet without Pods is ready, and a new Pod has no address.
        let metrics = metrics(cluster).ok();
        Ok(metrics.filter(|metrics| metrics.sum("schedspan_schedulers", &[]) == f64::from(schedulers)))
    })
}

/// The daemon's process on the control plane.
pub(super) fn daemon(cluster: &Cluster) -> Result<Option<String>> {
    let all = cluster.on_node(CONTROL_PLANE, &["sh", "-c", "pgrep -x schedspan || true"])?;
    ensure!(!all.contains('\n'), "schedspan runs more than once: {all:?}");
    Ok((!all.is_empty()).then_some(all))
}

pub(super) fn probes(cluster: &Cluster) -> Result<usize> {
    let pid = cluster.pid()?.to_string();
    Ok(cluster.on_node(CONTROL_PLANE, &["bash", "-c", PROBES, "probes", &pid])?.trim().parse()?)
}

/// A Pod for the worker.
pub(super) fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeSelector": { "kubernetes.io/hostname": WORKER },
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": images::pause_name(),
                "imagePullPolicy": "Never",
                "resources": { "requests": { "cpu": cpu } },
            }],
        },
    })
}

pub(super) fn create(cluster: &Cluster, pods: &[Value]) -> Result<()> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": pods });
    cluster.manifest("create", &list.to_string()).map(drop)
}

/// Creates so many of these Pods in a second.
pub(super) fn create_at_pace(cluster: &Cluster, pace: usize, pods: &[Value]) -> Result<()> {
    let start = Instant::now();
    for (second, pods) in (0..).zip(pods.chunks(pace)) {
        thread::sleep(Duration::from_secs(second).saturating_sub(start.elapsed()));
        create(cluster, pods)?;
    }
    Ok(())
}

pub(super) fn items(cluster: &Cluster) -> Result<Vec<Value>> {
    let mut list = cluster.get(&["pods"])?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

pub(super) fn wait_for_pods(cluster: &Cluster, what: &str, reached: impl Fn(&[Value]) -> bool) -> Result<()> {
    wait_until(what, TIMEOUT, || {
        thread::sleep(INTERVAL);
        Ok(reached(&items(cluster)?).then_some(()))
    })
}

/// Deletes all Pods of the namespace `default`.
pub(super) fn delete(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false"])?;
    wait_for_pods(cluster, "deleted Pods to be gone", <[Value]>::is_empty)
}

/// The Pods and the end of schedspan's log, for an error.
pub(super) fn logs(cluster: &Cluster) -> String {
    let mut text = String::new();
    for arguments in [
        &["get", "pods", "--all-namespaces", "--output=wide"][..],
        &["logs", "--namespace", NAMESPACE, "--selector=app.kubernetes.io/name=schedspan", "--tail=20"],
    ] {
        let said = cluster.kubectl(arguments).unwrap_or_else(|error| format!("{error:#}"));
        text += &format!("\n--- kubectl {}:\n{said}", arguments[..2].join(" "));
    }
    text
}
