//! `cargo xtask bench controllers`: what tracing costs kube-controller-manager.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use harness::{
    api::{Api, DEPLOYMENTS, deployment},
    calibration::Calibration,
    cluster,
    cost::{Costs, ETCD_TIMESLICES, OVERHEAD, Reading, Round, Traced, turns},
    processes::{cpu_ms, timeslices},
    schedspan::{self, Schedspan},
    stage::Stage,
    wait::wait_until,
};
use serde::Serialize;
use serde_json::{Value, json};
use xtask::{components::CONTROLLER_MANAGER, setup};

use crate::{deployed, options::Output, round::SETTLE, usage::usage};

/// Requests a second that the scheduler and each controller may send: more than they make.
const QPS: u32 = 5000;
/// Nodes of the cluster, with room for 110 Pods each.
const NODES: u32 = 20;
/// Deployments that grow and shrink in turn.
const WORKLOADS: u32 = 5;
/// Pods by which one of them grows or shrinks at once: few, so that the pace is even.
const STEP: u32 = 5;
/// Pods of each before a round is measured. schedspan has just started, and the kernel copies pages of text that are probed.
const WARM_UP: u32 = 6;
/// The limit for all Pods to be ready, or gone.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Interval of the checks for that.
const INTERVAL: Duration = Duration::from_millis(200);
/// Pods that are bound and do not run yet.
const BOUND: &str =
    "/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%21%3D%2Cstatus.phase%3DPending";
/// The promise: kube-controller-manager's CPU time of a Pod, traced to untraced, at most.
const RATIO: f64 = 1.02;

#[derive(clap::Args)]
pub(super) struct Options {
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Rounds of each way
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Pods that come and go in a round, as many of each of the five Deployments
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=2000))]
    pods: u32,
    /// Pods created in a second, and then deleted
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pace: u32,
    /// This executable of schedspan instead of the image's
    #[arg(long, value_name = "FILE")]
    executable: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report {
    nodes: u32,
    pace: u32,
    #[serde(flatten)]
    costs: Costs,
}

pub(super) fn main(options: &Options) -> Result<()> {
    setup::ensure()?;
    let executable = options.executable.clone().map_or_else(deployed, Ok)?;
    let cluster = cluster::Options {
        nodes: NODES,
        scheduler_qps: Some(QPS),
        controllers_qps: Some(QPS),
        ..cluster::Options::default()
    };
    Stage::play(&cluster, &executable, |stage| {
        let api = stage.cluster.api()?;
        for number in 0..WORKLOADS {
            api.post(DEPLOYMENTS, &deployment(&name(number), 0))?;
        }
        let Options { output, rounds, pods, pace, .. } = *options;
        let size = pods.div_ceil(WORKLOADS);
        let measure = |traced, _, calibration: &_| measure(stage, &api, calibration, size, pace, traced);
        let rounds = turns(rounds, &Traced::ALL, measure, || Ok(()))?;
        let costs = Costs::of(CONTROLLER_MANAGER.name, size * WORKLOADS, &rounds);
        let report = Report { nodes: NODES, pace, costs };
        match output {
            Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
            Output::Table => report.print(),
        }
        report.costs.nothing_lost()?;
        report.costs.within(RATIO)
    })
}

impl Report {
    fn print(&self) {
        let Self { nodes, pace, costs } = self;
        let Costs { program, rounds, pods, .. } = costs;
        println!(
            "{program}: {pods} Pods of {WORKLOADS} Deployments on {nodes} Nodes come and go in a round, {pace} a second; \
             {rounds} rounds of each way"
        );
        costs.print();
    }
}

/// Lets Pods come and go. Only kube-controller-manager is traced: API server and scheduler are built on client-go too.
fn measure(
    stage: &Stage,
    api: &Api,
    calibration: &Calibration,
    size: u32,
    pace: u32,
    traced: Traced,
) -> Result<Round> {
    let manager = stage.cluster.scheduler_named(CONTROLLER_MANAGER.name)?.pid.cast_unsigned();
    let etcd = stage.cluster.etcd_pid()?.cast_unsigned();
    let trust = format!("parent={manager}");
    let arguments = &["--program", "client-go", "--trust", &trust];
    let schedspan = match traced {
        Traced::No => None,
        Traced::Yes => Some(Schedspan::start(&schedspan::Options { arguments, ..stage.options()? })?),
    };
    let read = || {
        let daemon = |schedspan: &Schedspan| anyhow::Ok((usage(schedspan.pid())?, schedspan.metrics()?));
        anyhow::Ok(Reading {
            program: usage(manager)?,
            etcd_cpu_ms: cpu_ms(etcd)?,
            computed: calibration.computed(),
            daemon: schedspan.as_ref().map(daemon).transpose()?,
        })
    };
    come_and_go(api, WARM_UP, pace)?;
    thread::sleep(SETTLE);
    let (before, slices) = (read()?, timeslices(etcd)?);
    let [came, went] = come_and_go(api, size, pace)?;
    thread::sleep(SETTLE);
    let (after, slices_of_pods) = (read()?, timeslices(etcd)? - slices);

    let pods = f64::from(size * WORKLOADS);
    let mut round = Round::between(&before, &after, pods, came)?;
    round.others.push(("deleted Pods/s", went));
    round.others.push((ETCD_TIMESLICES, slices_of_pods / pods));
    if let (Some((_, before)), Some((_, after))) = (&before.daemon, &after.daemon) {
        let increase = |metric, labels: &[_]| after.sum(metric, labels) - before.sum(metric, labels);
        let of = |reconcile| increase("schedspan_workqueue_requests_total", &[("reconcile", reconcile)]);
        let requests = of("own") + of("child");
        // One that creates a Pod, and one that deletes it.
        ensure!(requests >= 2.0 * pods, "only {requests} requests for {pods} Pods were traced");
        round.others.push(("requests/Pod", requests / pods));
        round.others.push((
            "other requests/Pod",
            (increase("schedspan_workqueue_requests_total", &[]) - requests) / pods,
        ));
        let overhead = increase("schedspan_overhead_seconds_total", &[]);
        round.others.push((OVERHEAD, 100.0 * overhead / increase("schedspan_traced_cpu_seconds_total", &[])));
        round.others.push(("reconciles/Pod", increase("schedspan_workqueue_reconciles_total", &[]) / pods));
    }
    schedspan.map_or(Ok(()), Schedspan::stop)?;
    Ok(round)
}

/// Lets so many Pods of each Deployment come at an even pace until all are ready, and then go at the same pace. Returns how many
/// came, and how many went, in a second.
fn come_and_go(api: &Api, size: u32, pace: u32) -> Result<[f64; 2]> {
    let pods = f64::from(size * WORKLOADS);
    let start = Instant::now();
    scale(api, 0, size, pace)?;
    wait_until("all Pods to be ready", TIMEOUT, || {
        run_bound(api)?;
        thread::sleep(INTERVAL);
        Ok((replicas(api, "readyReplicas")? == pods).then_some(()))
    })?;
    let came = pods / start.elapsed().as_secs_f64();
    let start = Instant::now();
    scale(api, size, 0, pace)?;
    wait_until("all Pods to be gone", TIMEOUT, || {
        thread::sleep(INTERVAL);
        Ok((replicas(api, "replicas")? == 0.0).then_some(()))
    })?;
    Ok([came, pods / start.elapsed().as_secs_f64()])
}

/// Scales each Deployment between these sizes, one after the other by a few Pods, so that all together change by so many Pods in a
/// second.
fn scale(api: &Api, from: u32, to: u32, pace: u32) -> Result<()> {
    let start = Instant::now();
    let (mut size, mut changed) = (from, 0);
    while size != to {
        let next = if size < to { to.min(size + STEP) } else { to.max(size.saturating_sub(STEP)) };
        for number in 0..WORKLOADS {
            thread::sleep((Duration::from_secs(1) * changed / pace).saturating_sub(start.elapsed()));
            api.patch(&format!("{DEPLOYMENTS}/{}", name(number)), &json!({ "spec": { "replicas": next } }))?;
            if next > size {
                run_bound(api)?;
            }
            changed += next.abs_diff(size);
        }
        size = next;
    }
    Ok(())
}

/// Says of Pods that are bound what their kubelets would say once they run. There is none, and controllers have work with Pods that
/// become ready.
fn run_bound(api: &Api) -> Result<()> {
    let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    for pod in api.get(BOUND)?["items"].as_array().into_iter().flatten() {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        api.patch(
            &format!("/api/v1/namespaces/default/pods/{name}/status"),
            &json!({ "status": status.clone() }),
        )?;
    }
    Ok(())
}

/// What all Deployments together say in this field of their status.
fn replicas(api: &Api, field: &str) -> Result<f64> {
    let list = api.get(DEPLOYMENTS)?;
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items.filter_map(|item: &Value| item["status"][field].as_f64()).sum())
}

fn name(number: u32) -> String {
    format!("bench-{number}")
}
