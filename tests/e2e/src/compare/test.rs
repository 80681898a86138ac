//! The test `compare`: each span of the scheduler has a twin of schedspan's, with the same parent and result, that contains it.
//! The numbers of spans equal the scheduler's counts.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use harness::stage::Stage;
use serde_json::Value;
use xtask::process;

use super::command;
use crate::{
    checks::nothing_lost,
    versions::{FAILURE, SUCCESS},
};

pub(crate) const NODES: u32 = 20;

const PODS: u32 = 300;
const PACE: u32 = 50;

/// Counts that the scheduler must have: the results of attempts, and the phases of successful and failed ones.
const PHASES: usize = 3 + 10;

/// Spans besides the phases that both must have, or the test proves nothing.
const KINDS: [&str; 5] = [
    "SchedulePod",
    "snapshot",
    "plugin: NodeResourcesFit (preFilter)",
    "plugin: DefaultPreemption (postFilter)",
    "plugin: DefaultBinder (bind)",
];

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let (metrics, file) = command::schedule(stage, PODS, PACE)?;
    nothing_lost(&metrics)?;
    let mut compare = command::command(&stage.executable, &file);
    let report = process::output(compare.args(command::STRUCTURE).args(["--output", "json"]))?;
    let report: Value = serde_json::from_str(&report)?;
    let twins = |kind: &str| report["kinds"][kind]["twins"].as_u64().unwrap_or_default();
    for kind in KINDS.into_iter().chain(SUCCESS).chain(FAILURE) {
        ensure!(twins(kind) > 0, "neither side has a span `{kind}`: the test proves nothing");
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
