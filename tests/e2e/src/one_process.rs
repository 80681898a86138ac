//! Several programs in one process, as k3s is: one target, whose attempts, reconciles and writes are each what the process itself
//! counted.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use harness::{
    api::{is_unschedulable, pod},
    cluster::Scheduler as Process,
    controllers::ONE_PROCESS,
    figures::Comparison,
    http::agent,
    metrics::Metrics,
    schedspan::{Options, Schedspan},
    spans::Span,
    stage::Stage,
    wait::wait_until,
};
use xtask::components::SCHEDULER;

use crate::{
    checks::nothing_lost,
    controllers::{NOTICED, Worked, is_of_scheduler, is_traced, quiet, refuse_pods},
    truth,
};

/// Pods that fit nowhere.
const NEVER: usize = 3;
/// What each of the two programs counts.
const COUNTED: [(&str, &str); 2] =
    [("scheduler_schedule_attempts_total", "result"), ("workqueue_adds_total", "name")];

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let process = stage.cluster.scheduler()?;
    refuse_pods(&api)?;
    // What begins before the probes are there has no span.
    quiet(stage, &process)?;
    let arguments = &["--program", "kube-scheduler,client-go", "--reconciles", "all"];
    let schedspan = Schedspan::start(&Options { arguments, ..stage.options()? })?;
    is_traced(&schedspan, ONE_PROCESS.name, process.pid)?;

    let comparison = Comparison::begin(&stage.cluster)?;
    for number in 0..NEVER {
        api.create_pod("default", &pod(&format!("never-{number}"), "1000"))?;
    }
    api.wait_for_pods("Pods to be found unschedulable", |pods| pods.iter().all(is_unschedulable))?;
    let worked = Worked::watch(stage, &api, &process, &schedspan)?;
    has_one_registry(stage, &process)?;
    nothing_lost(&schedspan.metrics()?)?;
    is_one_target(&schedspan)?;
    schedspan.stop()?;
    // Before that the Collector is never quiet: some reconciles are periodic.
    let figures = comparison.end()?;

    let wrong = truth::counts(&figures);
    ensure!(wrong.is_empty(), "spans and the scheduler's metrics differ: {}", wrong.join(", "));
    let attempts: Vec<_> = figures.spans.iter().filter(|span| span.name == "SchedulePod").collect();
    let [bound, unschedulable] = ["Success", "Unschedulable"].map(|result| {
        attempts.iter().filter(|span| span.attribute("k8s.scheduler.result") == result).count()
    });
    ensure!(unschedulable >= NEVER, "{unschedulable} attempts found no Node for {NEVER} Pods");
    let traces: BTreeSet<&str> = attempts.iter().map(|span| &*span.trace_id).collect();
    let of_attempts = figures.spans.iter().filter(|span| traces.contains(&*span.trace_id));
    truth::trees(&of_attempts.cloned().collect::<Vec<_>>())?;

    // Durations are compared where nothing else is in the process.
    let _disturbed = worked.check(stage, ONE_PROCESS.name)?;
    let bindings = worked.written(stage, is_of_scheduler)?;
    let bindings =
        bindings.iter().filter(|write| write.subresource == "binding" && write.code == "201").count();
    ensure!(
        bindings > 0 && bindings == bound,
        "{bound} attempts have bound a Pod, and the API server has {bindings} bindings"
    );

    let services = |spans: &[&Span]| -> BTreeSet<(String, bool)> {
        spans.iter().map(|span| (span.service.clone(), span.configuration_hash.is_empty())).collect()
    };
    let of_scheduler = services(&attempts);
    ensure!(of_scheduler == [(SCHEDULER.name.to_owned(), false)].into(), "attempts are of {of_scheduler:?}");
    let of_others = services(&worked.spans.iter().collect::<Vec<_>>());
    ensure!(of_others == [(ONE_PROCESS.name.to_owned(), true)].into(), "reconciles are of {of_others:?}");
    println!("         one target: {} attempts and {} reconciles", attempts.len(), worked.spans.len());
    Ok(())
}

/// Checks that the process is traced once, whatever runs in it.
fn is_one_target(schedspan: &Schedspan) -> Result<()> {
    let log = schedspan.log()?;
    let tracing = format!(" tracing {} ", ONE_PROCESS.name);
    let targets = log.lines().filter(|line| line.contains(&tracing)).count();
    ensure!(targets == 1, "the process is {targets} targets");
    Ok(())
}

/// Checks that both ports of the process show the metrics of both programs: Kubernetes has one registry for a process.
fn has_one_registry(stage: &Stage, process: &Process) -> Result<()> {
    let url = format!("https://127.0.0.1:{}/metrics", stage.cluster.port(SCHEDULER.name, "controllers")?);
    let agent = agent(&stage.cluster.certificates())?;
    wait_until("both ports of the process to show the same", NOTICED, || {
        let sides = [stage.cluster.metrics_of(process)?, Metrics::read(&agent, &url)?];
        let [own, other] = sides.map(|metrics| COUNTED.map(|(name, label)| metrics.by(name, [label])));
        Ok((own == other && own.iter().all(|counts| !counts.is_empty())).then_some(()))
    })
}
