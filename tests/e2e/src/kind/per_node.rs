//! `cargo xtask kind compare --per-node`: the plugins of Filter and Score, next to a scheduler that times each of their calls.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::is_bound,
    figures::{Comparison, Observed as _},
    schedulers::timed_version,
};
use serde_json::{Value, json};
use xtask::components::{Component, SCHEDULER};

use super::{
    cluster::{CONTROL_PLANE, Cluster},
    compare::{daemon, on_objects, replace},
    e2e::step,
    images,
    operations::{NAMESPACE, create_at_pace, delete, metrics, pod, wait_for_pods},
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
        spec["containers"][0]["env"] = json!([]);
        let mount = json!({ "name": "configuration", "mountPath": CONFIGURATION, "readOnly": true });
        let file = json!({ "name": "configuration", "hostPath": { "path": CONFIGURATION, "type": "File" } });
        for (list, value) in [
            ("/containers/0/command", format!("--config={CONFIGURATION}").into()),
            ("/containers/0/volumeMounts", mount),
            ("/volumes", file),
        ] {
            let list = spec
                .pointer_mut(list)
                .and_then(Value::as_array_mut)
                .with_context(|| format!("no list `{list}`"))?;
            list.push(value);
        }
        Ok(())
    })
}

fn compare(cluster: &Cluster) -> Result<((), String)> {
    let comparison = Comparison::begin(cluster)?;
    let timed = |number| plugins::timed(number, on_objects(pod(&format!("timed-{number}"), "10m")));
    let pods = (0..plugins::PODS).map(timed).collect::<Vec<_>>();
    create_at_pace(cluster, plugins::PACE as usize, &pods)?;
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
    plugins::compare(&log, &figures.spans, &metrics, &plugins::ON_NODE)?;
    Ok(((), format!("{} spans", figures.spans.len())))
}
