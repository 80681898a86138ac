//! `cargo xtask bench`: rounds of each way in turn, and the report about them.

use std::{fs, process::Command, thread, time::Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum as _;
use harness::{
    cluster::{self, OwnSpans},
    cost::{Round, Spread, Way as _, turns},
    schedulers::woven,
    spans,
    stage::Stage,
};
use serde_json::Value;
use xtask::{components::SCHEDULER, paths, process, setup};

use crate::{
    deployed, draw,
    options::{Detail, Options, Output, Shares},
    report::Report,
    round::{self, PODS, SETTLE, Way},
};

/// Requests a second that the scheduler may send: more than it makes.
const QPS: u32 = 5000;
/// Pods bound before a round is measured. schedspan has just started, and the kernel copies pages of text that are probed.
const WARM_UP: u32 = 30;
/// Pods bound before the first round, in which the schedulers have just started.
const FIRST_WARM_UP: u32 = 300;
/// Readings of the time of `inspect`.
const INSPECTIONS: usize = 5;
/// The picture's file.
const PICTURE: &str = "docs/cost.svg";

pub(crate) fn main(options: &Options) -> Result<()> {
    if let Some(file) = &options.draw {
        let text = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
        let report = serde_json::from_slice(&text).with_context(|| format!("`{}`", file.display()))?;
        return draw(&report);
    }
    setup::ensure()?;
    let executable = options.executable.clone().map_or_else(deployed, Ok)?;
    let peer = woven(SCHEDULER.version)?.0.executable()?;
    let mut ways = vec![Way::Untraced];
    ways.extend((!options.no_peer && !options.plugins).then_some(Way::InProcess));
    let asked = |detail: &&Detail| options.detail.contains(detail);
    if options.plugins {
        ways.extend(Shares::ALL.map(Way::Shares));
    } else {
        ways.extend(Detail::value_variants().iter().rev().filter(asked).copied().map(Way::Schedspan));
    }
    let highest = Detail::value_variants().iter().rev().copied().find(|detail| asked(&detail));
    ways.extend(highest.filter(|_| options.against.is_some()).map(Way::Against));
    let cluster = cluster::Options {
        nodes: options.nodes,
        scheduler_qps: Some(QPS),
        no_controllers: true,
        ..cluster::Options::default()
    };
    Stage::play(&cluster, &executable, |stage| {
        if ways.contains(&Way::InProcess) {
            stage.cluster.scheduler_beside(Way::InProcess.name(), &peer, OwnSpans::Exported)?;
        }
        let measure = |way, turn, calibration: &_| {
            let warm_up = if turn == 0 { FIRST_WARM_UP } else { WARM_UP };
            round::measure(stage, options, calibration, way, warm_up)
        };
        let rounds = turns(options.rounds, &ways, measure, || {
            stage.cluster.api()?.delete_pods(PODS)?;
            thread::sleep(SETTLE);
            Ok(())
        })?;
        let report = report(stage, options, &rounds)?;
        match options.output {
            Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
            Output::Table => report.print(),
        }
        if options.picture {
            draw(&report)?;
        }
        if options.store {
            facts::store(&report.figures()?)?;
        }
        report.costs.nothing_lost()
    })
}

fn draw(report: &Report) -> Result<()> {
    let file = paths::repository().join(PICTURE);
    fs::write(&file, draw::draw(&draw::Figures::of(report)))
        .with_context(|| format!("cannot write `{}`", file.display()))?;
    eprintln!("{}", file.display());
    Ok(())
}

fn report(stage: &Stage, options: &Options, rounds: &[(Way, Vec<Round>)]) -> Result<Report> {
    let mut inspect = Command::new(&stage.executable);
    inspect.args(["inspect", "--output", "json"]).arg(SCHEDULER.executable()?);
    let (mut plan, mut times) = (Value::Null, Vec::new());
    for _ in 0..INSPECTIONS {
        let start = Instant::now();
        plan = serde_json::from_str(&process::output(&mut inspect)?)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let single_stepped = single_stepped_hits(stage, &plan)?;
    Ok(Report::of(options, rounds, &plan, single_stepped, Spread::of(times)))
}

/// Hits of an attempt on instructions that the kernel single-steps: ends of calls without an instruction that can be emulated.
fn single_stepped_hits(stage: &Stage, plan: &Value) -> Result<f64> {
    let slow = |function: &str, end: bool| {
        plan["sites"].as_array().into_iter().flatten().any(|site| {
            site["function"] == function
                && site["class"] == "single-stepped"
                && (site["role"] != "entry") == end
        })
    };
    let mut spans = spans::read(&stage.cluster.spans_file(), 0)?;
    spans.retain(|span| span.scope == "schedspan");
    let attempts = spans.iter().filter(|span| span.is_root()).count();
    let hits = |span: &spans::Span| {
        let function = match span.attribute("k8s.scheduler.plugin.extension_point") {
            point if point.is_empty() => span.name.clone(),
            point => format!("{point}Plugin"),
        };
        [false, true].into_iter().filter(|end| slow(&function, *end)).count()
    };
    Ok(spans.iter().map(hits).sum::<usize>() as f64 / attempts.max(1) as f64)
}
