//! `cargo xtask e2e`: tests that need a real scheduler, each on a cluster of its own.

use std::process::ExitCode;

use anyhow::{Result, bail};
use harness::{
    cluster::{self, OwnSpans},
    schedulers::{NEWEST, NEWEST_GATES, OLDEST, STATE_BY_POINTER, troubled, woven},
    stage::Stage,
};
use xtask::{
    build,
    components::{Component, SCHEDULER},
    tally::Tally,
};

use crate::{
    api_calls, compare, configuration, context, decision, deploy, errors, extenders, faults, groups, inject,
    inspect, lifecycle, link, load, sampling, truth, versions,
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

/// Runs of a test that the machine disturbs, at most.
const ROUNDS: usize = 5;

/// One test.
struct Test {
    name: &'static str,
    nodes: u32,
    scheduler: Scheduler,
    /// The scheduler's `--v`.
    verbosity: Option<u32>,
    pod_groups: bool,
    /// Whether kube-controller-manager runs: tests with Deployments, Jobs or volume claims need it.
    controllers: bool,
    apiserver_tracing: bool,
    /// Feature gates besides those that the scheduler's version needs.
    gates: Option<&'static str>,
    run: fn(&mut Stage) -> Result<()>,
}

/// The scheduler of a test.
enum Scheduler {
    Own,
    /// Another build, with these feature gates.
    Other(&'static Component, Option<&'static str>),
    /// The build of the version in `--scheduler` with a plugin that fails, waits or panics on request.
    Troubled,
    /// The build of the version in `--scheduler` that makes spans itself.
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
/// The test of a scheduler of another version.
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
        controllers: true,
        apiserver_tracing: true,
        run: lifecycle::run,
        ..TEST
    },
    Test {
        name: "truth",
        nodes: truth::NODES,
        scheduler: Scheduler::Troubled,
        controllers: true,
        run: truth::run,
        ..TEST
    },
    Test {
        name: "decision",
        nodes: decision::NODES,
        scheduler: Scheduler::Troubled,
        // At this level the scheduler logs each score.
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
    Test {
        name: "compare",
        nodes: compare::test::NODES,
        scheduler: Scheduler::Woven,
        run: compare::test::run,
        ..TEST
    },
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

/// Runs the tests of these names, or all. Tests that take a scheduler get the one of this version.
///
/// # Errors
///
/// If schedspan cannot be built, or a test does not take the version.
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
                // More requests a second than any test makes.
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
