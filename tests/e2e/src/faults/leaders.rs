//! The leading one of three schedulers is killed: another one leads, and each Pod's binding is in one trace.

use std::{collections::BTreeMap, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use harness::{
    cluster::Scheduler,
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use xtask::components::SCHEDULER;

use super::{TIMEOUT, load};

const STANDBYS: [&str; 2] = ["standby-1", "standby-2"];
/// Time under load before and after the kill.
const LOAD: Duration = Duration::from_secs(5);

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    stage.cluster.configure_scheduler(|configuration| {
        configuration["leaderElection"] = json!({
            "leaderElect": true,
            "leaseDuration": "3s",
            "renewDeadline": "2s",
            "retryPeriod": "500ms",
        });
    })?;
    for name in STANDBYS {
        stage.cluster.standby_scheduler(name)?;
    }
    let mut schedspan = stage.trace()?;
    schedspan.wait_for("schedspan to trace three schedulers", TIMEOUT, |metrics| {
        metrics.sum("schedspan_schedulers", &[]) == 3.0
    })?;
    let names = [SCHEDULER.name, STANDBYS[0], STANDBYS[1]];
    let mut schedulers = BTreeMap::new();
    for name in names {
        schedulers.insert(name, stage.cluster.scheduler_named(name)?);
    }
    let first = leader(stage, &schedulers)?;
    let (second, created) = load::during(stage, "led", || {
        thread::sleep(LOAD);
        let killed = schedulers.remove(first).context("the leader is one of them")?;
        kill_process(Pid::from_raw(killed.pid).context("a pid")?, Signal::KILL)?;
        let second = leader(stage, &schedulers)?;
        thread::sleep(LOAD);
        Ok(&schedulers[second])
    })?;
    let by_second = |span: &&Span| span.pid == second.pid.to_string();
    let attempts = stage.cluster.metrics_of(second)?.sum("scheduler_schedule_attempts_total", &[]);
    let roots = wait_until("the spans of all attempts", TIMEOUT, || {
        let mut roots = spans::read(&stage.cluster.spans_file(), 0)?;
        roots.retain(|span| span.is_root() && span.pod().starts_with("led-"));
        let of_second = roots.iter().filter(by_second).count();
        Ok((of_second as f64 >= attempts).then_some(roots))
    })?;
    schedspan.stop()?;
    stage.cluster.restart_scheduler_named(first)?;

    let of_second = roots.iter().filter(by_second).count();
    ensure!(of_second as f64 == attempts, "{of_second} attempts are traced, and {attempts} were made");
    let mut by_pod: BTreeMap<String, Vec<&Span>> = BTreeMap::new();
    for root in &roots {
        by_pod.entry(root.pod()).or_default().push(root);
    }
    ensure!(by_pod.len() == created, "{} of {created} Pods have a trace", by_pod.len());
    let mut cut = 0;
    for (pod, attempts) in &by_pod {
        let bound =
            attempts.iter().filter(|span| span.attribute("k8s.scheduler.result") == "Success").count();
        let incomplete = attempts.iter().any(|span| span.is_incomplete());
        ensure!(bound == 1 || bound == 0 && incomplete, "{bound} attempts bound {pod}");
        cut += usize::from(bound == 0);
    }
    println!(
        "         {created} Pods bound, {of_second} attempts of the second leader, {cut} cut by the end of the first, none twice"
    );
    Ok(())
}

/// Waits until one of these schedulers holds the Lease. Any of them may be the first to get it.
fn leader(stage: &Stage, schedulers: &BTreeMap<&'static str, Scheduler>) -> Result<&'static str> {
    wait_until("one of the schedulers to lead", TIMEOUT, || {
        for (name, scheduler) in schedulers {
            let metrics = stage.cluster.metrics_of(scheduler)?;
            if metrics.sum("leader_election_master_status", &[]) == 1.0 {
                return Ok(Some(*name));
            }
        }
        Ok(None)
    })
}
