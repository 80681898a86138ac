//! `cargo xtask e2e`: tests that need a real scheduler, each on a cluster of its own.

mod errors;
mod faults;
mod inspect;
mod link;
mod truth;

use std::process::ExitCode;

use anyhow::Result;

use crate::{build, cluster, stage::Stage, tally::Tally};

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
    run: fn(&mut Stage) -> Result<()>,
}

const TESTS: &[Test] = &[
    Test { name: "inspect", nodes: 0, run: inspect::run },
    Test { name: "errors", nodes: 0, run: errors::run },
    Test { name: "link", nodes: 1, run: link::run },
    Test { name: "truth", nodes: truth::NODES, run: truth::run },
    Test { name: "faults", nodes: 100, run: faults::run },
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
    for Test { name, nodes, run } in TESTS {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            // More requests a second than any test asks for.
            let options = cluster::Options {
                nodes: *nodes,
                scheduler_qps: Some(5000),
                no_controllers: true,
                ..cluster::Options::default()
            };
            tally.run(&format!("e2e {name}"), || {
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
