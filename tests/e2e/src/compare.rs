//! schedspan's spans against those that the scheduler makes itself: each has its twin, under the same parent, with the same
//! result, and inside of schedspan's; and there are as many as the scheduler counts.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use harness::stage::Stage;
use serde_json::Value;
use xtask::process;

use crate::{
    checks::nothing_lost,
    twins,
    versions::{FAILURE, SUCCESS},
};

/// Nodes of the cluster.
pub(super) const NODES: u32 = 20;

const PODS: u32 = 300;
const PACE: u32 = 50;

/// What the scheduler must have counted: the results of attempts, and the phases of those that succeed and that fail.
const PHASES: usize = 3 + 10;

/// What both must have seen besides the phases, or the test does not test.
const KINDS: [&str; 5] = [
    "SchedulePod",
    "snapshot",
    "plugin: NodeResourcesFit (preFilter)",
    "plugin: DefaultPreemption (postFilter)",
    "plugin: DefaultBinder (bind)",
];

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let (metrics, file) = twins::schedule(stage, PODS, PACE)?;
    nothing_lost(&metrics)?;
    let mut compare = twins::command(&stage.executable, &file);
    let report = process::output(compare.args(twins::STRUCTURE).args(["--output", "json"]))?;
    let report: Value = serde_json::from_str(&report)?;
    let twins = |kind: &str| report["kinds"][kind]["twins"].as_u64().unwrap_or_default();
    for kind in KINDS.into_iter().chain(SUCCESS).chain(FAILURE) {
        ensure!(twins(kind) > 0, "neither side has a span `{kind}`: the test does not test");
    }
    for side in ["onlyA", "onlyB"] {
        let only = report[side].as_object().context("the report does not say what one side alone makes")?;
        ensure!(only.is_empty(), "one side alone makes spans: {side} {only:?}");
    }
    ensure!(report["clock"] == "monotonic", "the clock is {}", report["clock"]);
    ensure!(twins("SchedulePod") >= u64::from(PODS), "only {} attempts", twins("SchedulePod"));
    let metrics = stage.cluster.dir().join("scheduler.metrics");
    fs::write(&metrics, stage.cluster.scheduler_metrics_text()?)?;
    let mut compare = Command::new(&stage.executable);
    compare.args(["compare", "--scope-a", "schedspan", "--max-missing=0", "--metrics"]).arg(&metrics);
    let figures = process::output(compare.arg(&file))?;
    ensure!(figures.lines().count() > PHASES, "`--metrics` says only {figures}");
    println!(
        "         {} twins of {} attempts, each inside of schedspan's and under the same parent",
        report["all"]["twins"],
        twins("SchedulePod")
    );
    Ok(())
}
