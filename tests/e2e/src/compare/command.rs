//! `cargo xtask compare`: runs a scheduler that makes spans itself, and compares them with schedspan's.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, is_unschedulable, pod},
    cluster::{self, OwnSpans},
    figures::Comparison,
    metrics::Metrics,
    schedspan::{self, Schedspan},
    schedulers::{unwoven, woven},
    stage::Stage,
};
use serde_json::Value;
use xtask::{build, components::SCHEDULER, process, setup};

const NEVER: u32 = 20;
/// The instrumentation scopes of schedspan's and of the scheduler's spans.
const SCOPES: [&str; 2] = ["schedspan", "inproc"];

/// Limits that do not depend on the machine's load.
pub const STRUCTURE: &[&str] =
    &["--max-missing=0", "--max-parents=0", "--max-status=0", "--max-attributes=0", "--max-outside=0"];
/// Limits on an idle machine. The SDK begins a span about 0.6 us after the probe. The probe at the end fires 2 to 3 us after the
/// SDK has read the clock, because ending a span takes that long.
pub const TIMES: &[&str] = &["--max-start-p50=1us", "--max-duration-p50=4us"];

#[derive(clap::Args)]
pub struct Options {
    /// The version of the scheduler, such as 1.33
    #[arg(long, default_value = SCHEDULER.version, value_name = "VERSION")]
    scheduler: String,
    /// Nodes of the cluster
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Pods to schedule
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,
    /// Pods created in a second
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pace: u32,
    /// Where to write the page [default: none is written]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where to keep the spans of both: a request of OTLP's JSON a line
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

pub fn main(options: &Options) -> Result<()> {
    let Options { scheduler, nodes, pods, pace, html, keep } = options;
    setup::ensure()?;
    let (component, gates) = woven(scheduler)?;
    let executable = build::build()?;
    let peer = component.executable()?;
    sites(&executable, &unwoven(&component).executable()?, &peer)?;
    let cluster = cluster::Options {
        nodes: *nodes,
        scheduler: Some(peer),
        scheduler_feature_gates: gates.map(str::to_owned),
        own_spans: OwnSpans::Timed,
        scheduler_qps: Some(5000),
        no_controllers: true,
        ..cluster::Options::default()
    };
    Stage::play(&cluster, &executable, |stage| {
        let (metrics, file) = schedule(stage, *pods, *pace)?;
        if let Some(keep) = keep {
            std::fs::copy(&file, keep)?;
        }
        let mut compare = command(&stage.executable, &file);
        compare.args(STRUCTURE).args(TIMES);
        if let Some(html) = html {
            compare.arg("--html").arg(html);
        }
        let status = compare.status().context("cannot start schedspan")?;
        let lost = metrics.sum("schedspan_losses_total", &[]);
        ensure!(lost == 0.0, "schedspan lost {lost} records or spans");
        ensure!(status.success(), "the spans do not agree");
        Ok(())
    })
}

/// A Pod; every twentieth fits nowhere, to have failures as well.
pub(crate) fn some_fit(name: &str, number: u32) -> Value {
    let cpu = if number % NEVER == NEVER - 1 { "1000" } else { "10m" };
    pod(&format!("{name}-{number}"), cpu)
}

/// Checks that the woven-in calls do not move the probes of a function.
fn sites(schedspan: &Path, plain: &Path, peer: &Path) -> Result<()> {
    let sites = |executable: &Path| -> Result<Vec<String>> {
        let mut inspect = Command::new(schedspan);
        let plan: Value = serde_json::from_str(&process::output(
            inspect.args(["inspect", "--output=json"]).arg(executable),
        )?)?;
        let sites = plan["sites"].as_array().context("`inspect` names no sites")?;
        let site = |site: &Value| {
            let text = |key: &str| site[key].as_str().unwrap_or("?").to_owned();
            format!("{} {} {} {}", text("function"), text("role"), text("class"), text("symbol"))
        };
        Ok(sites.iter().map(site).collect())
    };
    let (plain, peer) = (sites(plain)?, sites(peer)?);
    let count = |all: &[String], site: &String| all.iter().filter(|other| *other == site).count();
    println!("{} sites without the calls that are woven in, {} with them", plain.len(), peer.len());
    let mut all: Vec<_> = plain.iter().chain(&peer).collect();
    all.sort();
    all.dedup();
    for site in all {
        let (without, with) = (count(&plain, site), count(&peer, site));
        if without != with {
            println!("  {without} and {with}: {site}");
        }
    }
    Ok(())
}

/// Traces a scheduler with spans of its own while it schedules Pods. Returns schedspan's metrics and the file with all spans.
///
/// # Errors
///
/// If a Pod is neither bound nor reported as unschedulable.
pub fn schedule(stage: &Stage, pods: u32, pace: u32) -> Result<(Metrics, PathBuf)> {
    let api = stage.cluster.api()?;
    let arguments = &["--monotonic"];
    let schedspan = Schedspan::start(&schedspan::Options { arguments, ..stage.options()? })?;
    let comparison = Comparison::begin(&stage.cluster)?;
    api.create_pods(pace, (0..pods).map(|number| some_fit("twin", number)))?;
    api.wait_for_pods("Pods to be bound or found unschedulable", |all| {
        all.len() == pods as usize && all.iter().all(|pod| is_bound(pod) || is_unschedulable(pod))
    })?;
    comparison.end()?;
    let metrics = schedspan.metrics()?;
    schedspan.stop()?;
    Ok((metrics, stage.cluster.spans_file()))
}

/// `schedspan compare` on a file with both kinds of spans.
pub fn command(schedspan: &Path, file: &Path) -> Command {
    let mut compare = Command::new(schedspan);
    compare.arg("compare").args([file; 2]).args(["--scope-a", SCOPES[0], "--scope-b", SCOPES[1]]);
    compare
}
