//! `kubectl schedspan` while the leading one of three schedulers changes: each control plane has a daemon, and one of them has the attempts.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{api::is_bound, wait::wait_until};
use serde_json::Value;

use super::{
    cluster::{Cluster, Tracing},
    e2e::{RELEASE, in_cluster, load, step},
    engine::Provider,
    operations::{
        INTERVAL, NAMESPACE, TIMEOUT, chart_path, create, daemons, helm, metrics_of, pod, wait_for_pods,
    },
    plugin::{self, Page, leader},
};

const CONTROL_PLANES: usize = 3;
/// Pods for each leader.
const PODS: usize = 5;
/// Attempts that a daemon remembers: the chart's default. An answer of several daemons says the sum.
const REMEMBERED: u64 = 1024;
/// The Pod of the stopwatch, and one that fits nowhere.
const FIRST: &str = "first";
const NEVER: &str = "never";
/// A static Pod's manifest, and the same where the kubelet does not look.
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-scheduler.yaml";
const AWAY: &str = "/etc/kubernetes/kube-scheduler.yaml";

/// An open page asks who leads every few seconds; its connections would otherwise stay for an hour.
const PAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// # Errors
///
/// If a step fails: the error ends with schedspan's log.
pub(super) fn run(provider: Provider, archives: &[PathBuf]) -> Result<()> {
    println!("         another cluster, with {CONTROL_PLANES} control planes");
    in_cluster(provider, CONTROL_PLANES, Tracing::Off, |cluster| steps(cluster, archives))
}

fn steps(cluster: &Cluster, archives: &[PathBuf]) -> Result<()> {
    step("images loaded", || load(cluster, archives))?;
    step("first answers", || stopwatch(cluster))?;
    all_traced(cluster)?;
    create(cluster, &[pod(NEVER, "1000")])?;
    let page = Page::open(cluster)?;
    let first = step("a leader", || led(cluster, &page, "before"))?;
    step("the leader ends", || change(cluster, &page, &first))?;
    let second = step("another leader", || led(cluster, &page, "after"))?;
    step("the first stands by", || stands_by(cluster, &first, &second))?;
    step("Pods of both", || both(cluster))
}

/// The time from a running cluster without schedspan until `kubectl schedspan explain` and the page know a Pod.
fn stopwatch(cluster: &Cluster) -> Result<((), String)> {
    plugin::install(cluster)?;
    let start = Instant::now();
    helm(cluster, &["install", RELEASE, &chart_path(), "--wait", "--timeout=2m"])?;
    // Helm waits for all but one.
    let namespace = format!("--namespace={NAMESPACE}");
    cluster.kubectl(&[&namespace, "rollout", "status", &format!("daemonset/{RELEASE}"), "--timeout=2m"])?;
    let installed = start.elapsed();
    create(cluster, &[pod(FIRST, "1m")])?;
    explained(cluster, FIRST, 1)?;
    let known = start.elapsed();
    let page = Page::open(cluster)?;
    shown(&page, FIRST)?;
    let [installed, known, page] = [installed, known, start.elapsed()].map(|time| time.as_secs_f32());
    Ok((
        (),
        format!(
            "from a running cluster, installed in {installed:.1} s, a Pod explained in {known:.1} s, on the page in {page:.1} s"
        ),
    ))
}

/// Pods of the scheduler that leads are found with its daemon. Returns its Node.
fn led(cluster: &Cluster, page: &Page<'_>, name: &str) -> Result<(String, String)> {
    let node = leader(cluster)?.context("no scheduler leads")?;
    let before = attempts(cluster)?;
    let pods: Vec<_> = (0..PODS).map(|number| format!("{name}-{number}")).collect();
    create(cluster, &pods.iter().map(|name| pod(name, "1m")).collect::<Vec<_>>())?;
    wait_for_pods(cluster, "the Pods to be bound", |all| {
        all.iter().filter(|pod| is_bound(pod) && is_one_of(pod, &pods)).count() == PODS
    })?;
    let start = Instant::now();
    for pod in &pods {
        explained(cluster, pod, 1)?;
    }
    let took = start.elapsed().as_secs_f32();
    queued(cluster)?;
    shown(page, &pods[0])?;
    let mut others = 0;
    for ((on, before), (_, after)) in before.into_iter().zip(attempts(cluster)?) {
        let is_right = if on == node { after - before >= PODS as f64 } else { after == before };
        ensure!(is_right, "while {node} leads, the daemon on {on} had {before} attempts and has {after}");
        others += usize::from(on != node);
    }
    ensure!(others + 1 == CONTROL_PLANES, "{others} daemons stand beside that of {node}");
    let said = format!("{node}: {PODS} Pods explained in {took:.1} s; no attempt in {others} other daemons");
    Ok((node, said))
}

fn is_one_of(pod: &Value, names: &[String]) -> bool {
    pod["metadata"]["name"].as_str().is_some_and(|name| names.iter().any(|one| one == name))
}

/// The Node of each daemon, and the attempts that it has traced.
fn attempts(cluster: &Cluster) -> Result<Vec<(String, f64)>> {
    let mut all = sums(cluster, "schedspan_attempts_total")?;
    all.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(all)
}

/// The Node of each daemon, and the sum of a metric.
fn sums(cluster: &Cluster, metric: &str) -> Result<Vec<(String, f64)>> {
    let sum = |(pod, node): (String, String)| Ok((node, metrics_of(cluster, &pod)?.sum(metric, &[])));
    daemons(cluster)?.into_iter().map(sum).collect()
}

/// Waits until each control plane has a daemon that traces its scheduler.
fn all_traced(cluster: &Cluster) -> Result<()> {
    wait_until("each daemon to trace its scheduler", TIMEOUT, || {
        thread::sleep(INTERVAL);
        // A new Pod has no address.
        let schedulers = sums(cluster, "schedspan_schedulers").unwrap_or_default();
        let traced = schedulers.iter().filter(|(_, schedulers)| *schedulers == 1.0).count();
        Ok((traced == CONTROL_PLANES).then_some(()))
    })
}

/// Waits until `explain` has the attempt of a bound Pod from this number of daemons.
fn explained(cluster: &Cluster, pod: &str, daemons: u64) -> Result<()> {
    wait_until(&format!("{pod} to be explained by {daemons} daemons"), TIMEOUT, || {
        // It ends with 1 as long as the attempt is not known.
        let Ok((report, said)) = plugin::plugin(cluster, &["explain", pod, "--output", "json"]) else {
            thread::sleep(INTERVAL);
            return Ok(None);
        };
        ensure!(said.is_empty(), "{said}");
        let report: Value = serde_json::from_str(&report)?;
        ensure!(report["stalls"].as_array().is_none_or(Vec::is_empty), "{report}");
        let is_bound = report["attempts"][0]["result"] == "Success";
        Ok((is_bound && report["history"]["limit"] == daemons * REMEMBERED).then_some(()))
    })
}

/// Waits until the queue of one scheduler, which leads, has the Pod that fits nowhere.
fn queued(cluster: &Cluster) -> Result<()> {
    wait_until("the Pod that fits nowhere to be in the leader's queue", TIMEOUT, || {
        let (answer, said) = plugin::plugin(cluster, &["queue", "--output", "json"])?;
        ensure!(said.is_empty(), "{said}");
        let answer: Value = serde_json::from_str(&answer)?;
        let schedulers = answer["schedulers"].as_array().map_or(0, Vec::len);
        ensure!(schedulers == 1, "the queue is that of {schedulers} schedulers: {answer}");
        ensure!(answer["schedulers"][0]["stall"].is_null(), "{answer}");
        let never = answer["pods"].as_array().into_iter().flatten().find(|pod| pod["pod"] == NEVER);
        let tried = never.is_some_and(|pod| pod["plugins"][0] == "NodeResourcesFit");
        let is_leading = answer["schedulers"][0]["taken"].as_u64() > Some(0);
        Ok((tried && is_leading).then_some(()))
    })
}

/// Waits until the page has the attempt of a bound Pod.
fn shown(page: &Page<'_>, pod: &str) -> Result<()> {
    wait_until(&format!("{pod} to be on the page"), TIMEOUT, || {
        let answer = page.get(&format!("/api/v1/attempts?namespace=default&pod={pod}"))?;
        let view = page.get(&format!("/pod/default/{pod}"))?;
        let known = answer.contains(r#""result":"Success""#) && view.contains("is on");
        Ok(known.then_some(()))
    })
}

/// Another scheduler leads when the static Pod of the first ends, and what a page listens to does not stay with the first one's daemon.
fn change(cluster: &Cluster, page: &Page<'_>, first: &str) -> Result<((), String)> {
    let mut open = page.stream("/api/v1/changes")?;
    let start = Instant::now();
    cluster.on_node(first, &["mv", MANIFEST, AWAY])?;
    let second = wait_until("another scheduler to lead", TIMEOUT, || {
        thread::sleep(INTERVAL);
        Ok(leader(cluster)?.filter(|node| node != first))
    })?;
    let changed = start.elapsed();
    wait_until("an open page to leave the daemon of the first", PAGE_TIMEOUT, || Ok(open.try_wait()?))?;
    let [changed, left] = [changed, start.elapsed() - changed].map(|time| time.as_secs_f32());
    Ok((
        (),
        format!(
            "{second} instead of {first} leads {changed:.1} s later, and an open page follows in {left:.1} s"
        ),
    ))
}

/// The scheduler that has led comes back, and does not lead.
fn stands_by(cluster: &Cluster, first: &str, second: &str) -> Result<((), String)> {
    cluster.on_node(first, &["mv", AWAY, MANIFEST])?;
    all_traced(cluster)?;
    queued(cluster)?;
    let leads = leader(cluster)?;
    ensure!(leads.as_deref() == Some(second), "{leads:?} leads instead of {second}");
    Ok(((), format!("{first} is traced again, {second} leads")))
}

/// Pods of the leader are explained by its daemon, and those of an earlier one by all daemons together.
fn both(cluster: &Cluster) -> Result<((), String)> {
    let start = Instant::now();
    explained(cluster, "after-0", 1)?;
    let of_leader = start.elapsed();
    explained(cluster, "before-0", CONTROL_PLANES as u64)?;
    let [of_leader, of_all] = [of_leader, start.elapsed() - of_leader].map(|time| time.as_secs_f32());
    Ok(((), format!("explained by the leader's daemon in {of_leader:.1} s, by all in {of_all:.1} s")))
}
