//! What several tests check.

use std::{
    collections::BTreeSet,
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{metrics::Metrics, schedspan::Schedspan, stage::Stage, wait::wait_until};
use serde_json::Value;

/// The limit for schedspan to find a scheduler.
const NOTICED: Duration = Duration::from_secs(20);

/// Checks that schedspan counted no loss and no stray end.
///
/// # Errors
///
/// If it counted one, or does not count them at all.
pub fn nothing_lost(metrics: &Metrics) -> Result<()> {
    only_lost(metrics, &[])
}

/// Checks that schedspan counted no loss, and no stray end since `before`: calls that were under way when tracing began have one each.
pub(crate) fn nothing_lost_since(before: &Metrics, metrics: &Metrics) -> Result<()> {
    losses_are(metrics, &[])?;
    stray_ends_are(metrics, before.sum(STRAY_ENDS, &[]))
}

/// Checks that schedspan counted exactly these losses, by cause, and no stray end.
pub(crate) fn only_lost(metrics: &Metrics, losses: &[(&str, u64)]) -> Result<()> {
    losses_are(metrics, losses)?;
    stray_ends_are(metrics, 0.0)
}

fn losses_are(metrics: &Metrics, losses: &[(&str, u64)]) -> Result<()> {
    let name = "schedspan_losses_total";
    ensure!(metrics.has(name), "schedspan has no metric {name}");
    let mut others = Vec::new();
    for ([cause], lost) in metrics.by(name, ["cause"]) {
        let expected = losses.iter().find(|(known, _)| *known == cause).map_or(0, |(_, lost)| *lost);
        if lost != expected as f64 {
            others.push(format!("{lost} for {cause} instead of {expected}"));
        }
    }
    ensure!(others.is_empty(), "{name} is {}", others.join(", "));
    Ok(())
}

const STRAY_ENDS: &str = "schedspan_stray_ends_total";

fn stray_ends_are(metrics: &Metrics, expected: f64) -> Result<()> {
    ensure!(metrics.has(STRAY_ENDS), "schedspan has no metric {STRAY_ENDS}");
    let ends = metrics.sum(STRAY_ENDS, &[]);
    ensure!(ends == expected, "{STRAY_ENDS} is {ends} instead of {expected}");
    Ok(())
}

/// Levels of detail whose sites have a probe all the time, in a daemon without `--detail`.
const DEFAULT: [&str; 4] = ["attempts", "phases", "plugins", "full"];

/// Addresses of the sites in a plan of `inspect` that a daemon without `--detail` probes all the time.
///
/// # Errors
///
/// If there is none, or one has no address.
pub(crate) fn probed_sites(plan: &Value) -> Result<BTreeSet<u64>> {
    let sites = plan["sites"].as_array().into_iter().flatten();
    let sites = sites.filter(|site| site["detail"].as_str().is_some_and(|detail| DEFAULT.contains(&detail)));
    let sites: BTreeSet<u64> = sites.map(address).collect::<Result<_>>()?;
    ensure!(!sites.is_empty(), "inspect shows no site");
    Ok(sites)
}

/// The address of a site in a plan of `inspect`.
///
/// # Errors
///
/// If it has none.
pub(crate) fn address(site: &Value) -> Result<u64> {
    let address = site["address"].as_str().and_then(|text| text.strip_prefix("0x"));
    Ok(u64::from_str_radix(address.context("a site has no address")?, 16)?)
}

/// Hits of probes, and what became of them in the kernel.
pub(crate) struct Hits {
    pub(crate) hits: f64,
    pub(crate) records: f64,
    pub(crate) lost: f64,
}

impl Hits {
    pub(crate) fn of(metrics: &Metrics) -> Self {
        let causes = ["ring_full", "goroutine_fault", "unknown_site"];
        let lost = causes.map(|cause| metrics.sum("schedspan_losses_total", &[("cause", cause)]));
        Self {
            hits: metrics.sum("schedspan_hits_total", &[]),
            records: metrics.sum("schedspan_records_total", &[]),
            lost: lost.iter().sum(),
        }
    }
}

/// Waits until schedspan traces the cluster's scheduler, which has just started.
pub(crate) fn is_traced(stage: &Stage, schedspan: &Schedspan) -> Result<()> {
    let pid = format!("pid={} ", stage.cluster.scheduler()?.pid);
    wait_until("schedspan to trace the new scheduler", NOTICED, || {
        let log = schedspan.log()?;
        Ok(log
            .lines()
            .any(|line| line.contains("tracing kube-scheduler") && line.contains(&pid))
            .then_some(()))
    })
}

/// Runs `schedspan explain` against this daemon.
pub(crate) fn explain(stage: &Stage, schedspan: &Schedspan, arguments: &[&str]) -> Result<Output> {
    let server = format!("http://{}", schedspan.address("debug"));
    Ok(Command::new(&stage.executable).args(["explain", "--server", &server]).args(arguments).output()?)
}

/// The string at a JSON pointer; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}
