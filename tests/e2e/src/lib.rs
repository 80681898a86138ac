//! `cargo xtask e2e`: tests that need a real scheduler, each on a cluster of its own.
#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "names say what fields and short functions are")]

mod api_calls;
mod compare;
mod configuration;
mod context;
mod decision;
pub mod demo;
mod deploy;
mod errors;
mod extenders;
mod faults;
mod groups;
mod inject;
mod inspect;
pub mod kind;
mod lifecycle;
mod link;
mod load;
pub mod picture;
mod sampling;
mod svg;
mod truth;
pub mod twins;
pub mod versions;

use std::{process::ExitCode, time::Duration};

use anyhow::{Result, bail, ensure};
use harness::{
    cluster::{self, OwnSpans},
    metrics::Metrics,
    schedspan::Schedspan,
    schedulers::{NEWEST, NEWEST_GATES, OLDEST, STATE_BY_POINTER, troubled, woven},
    stage::Stage,
    wait::wait_until,
};
use serde_json::Value;
use xtask::{
    build,
    components::{Component, SCHEDULER},
    tally::Tally,
};

#[derive(clap::Args)]
pub struct Options {
    /// Which tests [default: all]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TESTS.iter().map(|test| test.name)))]
    names: Vec<String>,
    /// The version of the scheduler, such as 1.33: for `truth`, `decision`, `extenders`, `api-calls` and `compare`
    #[arg(long, value_name = "VERSION")]
    scheduler: Option<String>,
}

/// For schedspan to notice a scheduler.
const NOTICED: Duration = Duration::from_secs(20);
/// How often a test that the machine has disturbed is run, at most.
const ROUNDS: usize = 5;

/// One test.
struct Test {
    name: &'static str,
    nodes: u32,
    scheduler: Scheduler,
    /// How much the scheduler logs.
    verbosity: Option<u32>,
    /// Whether Pods can be scheduled as groups.
    pod_groups: bool,
    /// Whether kube-controller-manager runs.
    controllers: bool,
    /// Whether the API server makes spans.
    apiserver_tracing: bool,
    /// Feature gates of a scheduler that makes trouble.
    gates: Option<&'static str>,
    run: fn(&mut Stage) -> Result<()>,
}

/// What schedules in a test.
enum Scheduler {
    /// The cluster's own.
    Own,
    /// Another one, and its feature gates.
    Other(&'static Component, Option<&'static str>),
    /// One with a plugin that makes trouble, of the version that `--scheduler` names.
    Troubled,
    /// One with spans of its own, of the version that `--scheduler` names.
    Woven,
}

const TEST: Test = Test {
    name: "",
    nodes: 0,
    scheduler: Scheduler::Own,
    verbosity: None,
    pod_groups: false,
    controllers: false,
    apiserver_tracing: false,
    gates: None,
    run: inspect::run,
};
/// A scheduler of another version does what ours does.
const VERSION: Test = Test { nodes: versions::NODES, run: versions::run, ..TEST };

const TESTS: &[Test] = &[
    Test { name: "inspect", run: inspect::run, ..TEST },
    Test { name: "errors", run: errors::run, ..TEST },
    Test { name: "deploy", run: deploy::run, ..TEST },
    Test { name: "link", nodes: 1, run: link::run, ..TEST },
    Test { name: "configuration", nodes: 1, run: configuration::run, ..TEST },
    Test { name: "context", nodes: 1, controllers: true, run: context::run, ..TEST },
    Test { name: "inject", nodes: 1, controllers: true, apiserver_tracing: true, run: inject::run, ..TEST },
    Test {
        name: "lifecycle",
        nodes: 1,
        // Its Pods have volume claims.
        controllers: true,
        apiserver_tracing: true,
        run: lifecycle::run,
        ..TEST
    },
    Test {
        name: "truth",
        nodes: truth::NODES,
        scheduler: Scheduler::Troubled,
        // Its Pods have volume claims.
        controllers: true,
        run: truth::run,
        ..TEST
    },
    Test {
        name: "decision",
        nodes: decision::NODES,
        scheduler: Scheduler::Troubled,
        // Then it logs each score.
        verbosity: Some(10),
        controllers: true,
        run: decision::run,
        ..TEST
    },
    Test {
        name: "extenders",
        nodes: extenders::NODES,
        scheduler: Scheduler::Troubled,
        run: extenders::run,
        ..TEST
    },
    Test {
        name: "api-calls",
        nodes: api_calls::NODES,
        scheduler: Scheduler::Troubled,
        gates: Some(api_calls::GATES),
        run: api_calls::run,
        ..TEST
    },
    Test { name: "groups", pod_groups: true, run: groups::run, ..TEST },
    Test { name: "compare", nodes: compare::NODES, scheduler: Scheduler::Woven, run: compare::run, ..TEST },
    Test { name: "load", nodes: load::NODES, run: load::run, ..TEST },
    Test { name: "sampling", nodes: sampling::NODES, run: sampling::run, ..TEST },
    Test { name: "faults", nodes: 100, run: faults::run, ..TEST },
    Test { name: "version-1.29", scheduler: Scheduler::Other(&OLDEST, None), ..VERSION },
    Test { name: "version-1.33", scheduler: Scheduler::Other(&STATE_BY_POINTER, None), ..VERSION },
    Test { name: "version-1.37", scheduler: Scheduler::Other(&NEWEST, NEWEST_GATES), ..VERSION },
];

pub fn main(options: &Options) -> Result<ExitCode> {
    let Options { names, scheduler } = options;
    let mut tally = Tally::default();
    run(names, scheduler.as_deref(), &mut tally)?;
    Ok(tally.end())
}

/// Runs the tests of these names, all if there are none; those that take a scheduler with the one of this version.
///
/// # Errors
///
/// If there is nothing to test with, or if there is a version and a test that does not take it.
fn run(names: &[String], version: Option<&str>, tally: &mut Tally) -> Result<()> {
    let chosen =
        || TESTS.iter().filter(|test| names.is_empty() || names.iter().any(|name| name == test.name));
    if version.is_some()
        && let Some(Test { name, .. }) =
            chosen().find(|test| matches!(test.scheduler, Scheduler::Own | Scheduler::Other(..)))
    {
        bail!(
            "e2e {name} does not take another scheduler: --scheduler goes with the names of tests that do, truth, decision, extenders, api-calls and compare"
        );
    }
    let version = version.unwrap_or(SCHEDULER.version);
    let executable = build::build()?;
    for test in chosen() {
        let Test {
            name,
            nodes,
            scheduler,
            verbosity,
            pod_groups,
            controllers,
            apiserver_tracing,
            gates: own_gates,
            run,
        } = test;
        tally.run(&format!("e2e {name}"), || {
            let other = match *scheduler {
                Scheduler::Own => None,
                Scheduler::Other(component, gates) => Some((*component, gates)),
                Scheduler::Troubled => Some(troubled(version)?),
                Scheduler::Woven => Some(woven(version)?),
            };
            let (component, gates) = other.unzip();
            let gates: Vec<&str> = gates.flatten().into_iter().chain(*own_gates).collect();
            let options = cluster::Options {
                nodes: *nodes,
                scheduler_verbosity: *verbosity,
                pod_groups: *pod_groups,
                scheduler: component.as_ref().map(Component::executable).transpose()?,
                scheduler_feature_gates: (!gates.is_empty()).then(|| gates.join(",")),
                own_spans: if matches!(scheduler, Scheduler::Woven) {
                    OwnSpans::Timed
                } else {
                    OwnSpans::None
                },
                scheduler_profiles: match scheduler {
                    Scheduler::Troubled => truth::profiles(),
                    Scheduler::Own | Scheduler::Other(..) | Scheduler::Woven => Vec::new(),
                },
                // More requests a second than any test asks for.
                scheduler_qps: Some(5000),
                no_controllers: !controllers,
                apiserver_tracing: *apiserver_tracing,
                ..cluster::Options::default()
            };
            for _ in 1..ROUNDS {
                let mut disturbed = None;
                Stage::play(&options, &executable, |stage| match run(stage) {
                    Err(error) if error.is::<truth::Disturbed>() => {
                        disturbed = Some(error);
                        Ok(())
                    }
                    result => result,
                })?;
                match disturbed {
                    Some(error) => println!("again    e2e {name}: {error}"),
                    None => return Ok(()),
                }
            }
            Stage::play(&options, &executable, run)
        });
    }
    Ok(())
}

/// Checks that schedspan counts losses and stray ends, and none of either.
pub fn nothing_lost(metrics: &Metrics) -> Result<()> {
    only_lost(metrics, &[])
}

/// Checks that schedspan counts losses and stray ends, and nothing but the losses of these causes, each as often as said.
fn only_lost(metrics: &Metrics, losses: &[(&str, u64)]) -> Result<()> {
    let name = "schedspan_losses_total";
    ensure!(metrics.has(name), "schedspan has no metric {name}");
    for ([cause], lost) in metrics.by(name, ["cause"]) {
        let expected = losses.iter().find(|(known, _)| *known == cause).map_or(0, |(_, lost)| *lost);
        ensure!(lost == expected as f64, "{name} is {lost} for {cause} instead of {expected}");
    }
    let stray = "schedspan_stray_ends_total";
    ensure!(metrics.has(stray), "schedspan has no metric {stray}");
    ensure!(metrics.sum(stray, &[]) == 0.0, "{stray} is {}", metrics.sum(stray, &[]));
    Ok(())
}

/// Waits until schedspan traces the cluster's scheduler, which has just been started.
fn is_traced(stage: &Stage, schedspan: &Schedspan) -> Result<()> {
    let pid = format!("pid={} ", stage.cluster.scheduler()?.pid);
    wait_until("schedspan to trace the new scheduler", NOTICED, || {
        let log = schedspan.log()?;
        Ok(log
            .lines()
            .any(|line| line.contains("tracing kube-scheduler") && line.contains(&pid))
            .then_some(()))
    })
}

/// The text at a place of an object; empty if there is none.
fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}
