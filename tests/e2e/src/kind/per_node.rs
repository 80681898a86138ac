//! `cargo xtask kind compare --per-node`: the plugins of Filter and Score, next to a scheduler that times each of their calls.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use harness::{
    api::is_bound,
    figures::{Comparison, Observed as _},
    schedulers::timed_version,
};
use serde_json::json;
use xtask::components::{Component, SCHEDULER};

use super::{
    cluster::{CONTROL_PLANE, Cluster},
    compare::{daemon, on_objects, replace},
    e2e::step,
    images,
    operations::{NAMESPACE, create, delete, metrics, pod, wait_for_pods},
};
use crate::{checks::nothing_lost, plugins};

/// The scheduler's configuration, on its node.
const CONFIGURATION: &str = "/etc/kubernetes/scheduler-configuration.json";
/// Requests a second: more than the scheduler makes.
const QPS: u32 = 500;

/// The scheduler that times its plugins, and the archive of its image.
pub(super) fn scheduler() -> Result<(Component, PathBuf)> {
    let (component, _) = timed_version(SCHEDULER.version)?;
    Ok((component, images::scheduler(&component)?))
}

pub(super) fn steps(cluster: &Cluster, component: &Component, archive: &Path) -> Result<()> {
    step("Pods deleted", || Ok((delete(cluster)?, String::new())))?;
    // Before, because this scheduler rejects every second Node, by the end of its name.
    step("helm upgrade", || {
        Ok((daemon(cluster, &format!("--exact-windows={}", plugins::EVERY))?, String::new()))
    })?;
    step("scheduler that times plugins", || configured(cluster, component, archive))?;
    step("plugins compared", || compare(cluster))
}

fn configured(cluster: &Cluster, component: &Component, archive: &Path) -> Result<((), String)> {
    let configuration = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": { "kubeconfig": "/etc/kubernetes/scheduler.conf", "qps": QPS, "burst": QPS },
        "profiles": plugins::profiles(),
    });
    fs::write(cluster.shared().join("configuration.json"), configuration.to_string())?;
    cluster.on_node(CONTROL_PLANE, &["cp", "/shared/configuration.json", CONFIGURATION])?;
    replace(cluster, component, archive, |spec| {
        let container = &mut spec["containers"][0];
        container["env"] = json!([]);
        let mut push = |list: &str, value| {
            if let Some(list) = container[list].as_array_mut() {
                list.push(value);
            }
        };
        push("command", format!("--config={CONFIGURATION}").into());
        push(
            "volumeMounts",
            json!({ "name": "configuration", "mountPath": CONFIGURATION, "readOnly": true }),
        );
        if let Some(volumes) = spec["volumes"].as_array_mut() {
            volumes.push(
                json!({ "name": "configuration", "hostPath": { "path": CONFIGURATION, "type": "File" } }),
            );
        }
    })
}

fn compare(cluster: &Cluster) -> Result<((), String)> {
    let comparison = Comparison::begin(cluster)?;
    let start = Instant::now();
    for first in (0..plugins::PODS).step_by(plugins::PACE as usize) {
        let due = Duration::from_secs((first / plugins::PACE).into());
        thread::sleep(due.saturating_sub(start.elapsed()));
        let pods = (first..first + plugins::PACE)
            .map(|number| plugins::timed(number, on_objects(pod(&format!("timed-{number}"), "10m"))));
        create(cluster, &pods.collect::<Vec<_>>())?;
    }
    wait_for_pods(cluster, "all Pods to be bound", |pods| {
        pods.len() == plugins::PODS as usize && pods.iter().all(is_bound)
    })?;
    let figures = comparison.end()?;
    let metrics = metrics(cluster)?;
    nothing_lost(&metrics)?;
    let pods = ["--namespace", NAMESPACE, "--selector=component=kube-scheduler", "--tail=-1"];
    let log = cluster.kubectl(&[&["logs"], &pods[..]].concat())?;
    let pid = cluster.pid()?.to_string();
    ensure!(figures.spans.iter().all(|span| span.pid == pid), "the scheduler started again meanwhile");
    plugins::compare(&log, &figures.spans, &metrics)?;
    Ok(((), format!("{} spans", figures.spans.len())))
}
