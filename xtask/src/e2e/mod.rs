//! `cargo xtask e2e`: tests that need a real scheduler, each on a cluster of its own.

mod errors;
mod faults;
mod inspect;
mod link;
mod truth;
mod versions;

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::{
    build,
    cluster::{self, Metrics},
    components::Component,
    schedulers::{NEWEST, OLDEST, STATE_BY_POINTER},
    stage::Stage,
    tally::Tally,
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which tests [default: all]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TESTS.iter().map(|test| test.name)))]
    names: Vec<String>,
}

/// How often a test that the machine has disturbed is run, at most.
const ROUNDS: usize = 3;

/// One test.
struct Test {
    name: &'static str,
    nodes: u32,
    /// Another scheduler than the cluster's own, and its feature gates.
    scheduler: Option<(Component, Option<&'static str>)>,
    run: fn(&mut Stage) -> Result<()>,
}

const TEST: Test = Test { name: "", nodes: 0, scheduler: None, run: inspect::run };
/// A scheduler of another version does what ours does.
const VERSION: Test = Test { nodes: versions::NODES, run: versions::run, ..TEST };

const TESTS: &[Test] = &[
    Test { name: "inspect", run: inspect::run, ..TEST },
    Test { name: "errors", run: errors::run, ..TEST },
    Test { name: "link", nodes: 1, run: link::run, ..TEST },
    Test { name: "truth", nodes: truth::NODES, run: truth::run, ..TEST },
    Test { name: "faults", nodes: 100, run: faults::run, ..TEST },
    Test { name: "version-1.29", scheduler: Some((OLDEST, None)), ..VERSION },
    Test { name: "version-1.33", scheduler: Some((STATE_BY_POINTER, None)), ..VERSION },
    // It would wait for objects that the API server of 1.36 does not have.
    Test { name: "version-1.37", scheduler: Some((NEWEST, Some("DRADeviceTaintRules=false"))), ..VERSION },
];

pub(crate) fn main(options: &Options) -> Result<ExitCode> {
    let mut tally = Tally::default();
    run(&options.names, &mut tally)?;
    Ok(tally.end())
}

/// Runs the tests of these names, all if there are none.
///
/// # Errors
///
/// If there is nothing to test with.
pub(crate) fn run(names: &[String], tally: &mut Tally) -> Result<()> {
    let executable = build::build()?;
    for Test { name, nodes, scheduler, run } in TESTS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            tally.run(&format!("e2e {name}"), || {
                let (component, gates) = scheduler.unzip();
                let options = cluster::Options {
                    nodes: *nodes,
                    scheduler: component.map(|component| component.executable()).transpose()?,
                    scheduler_feature_gates: gates.flatten().map(str::to_owned),
                    // More requests a second than any test asks for.
                    scheduler_qps: Some(5000),
                    no_controllers: true,
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
    }
    Ok(())
}

/// Checks that schedspan counts losses and stray ends, and none of either.
fn nothing_lost(metrics: &Metrics) -> Result<()> {
    for loss in ["schedspan_losses_total", "schedspan_stray_ends_total"] {
        ensure!(metrics.has(loss), "schedspan has no metric {loss}");
        ensure!(metrics.sum(loss, &[]) == 0.0, "{loss} is {}", metrics.sum(loss, &[]));
    }
    Ok(())
}
