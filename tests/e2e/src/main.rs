//! `cargo xtask e2e`, `compare`, `kind`, `demo` and `picture`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use e2e::{compare, demo, kind, picture, suite};
use harness::guard;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Show what schedspan does: a real scheduler at work, each attempt a waterfall
    ///
    /// Installs and builds what is missing, starts a cluster, and traces a Deployment, a Pod that fits nowhere at first, and a
    /// preemption. Prints a summary at the end. The exit code is 0 only if the scheduler's own metrics agree and nothing was
    /// lost. Removes everything it started. Needs root.
    Demo(demo::Options),
    /// Make the pictures of the documentation: what schedspan prints, as SVG
    ///
    /// Needs root.
    Picture(picture::Options),
    /// Compare schedspan's spans with those that the scheduler makes itself
    ///
    /// schedspan traces a scheduler of `cargo xtask peer` in a real cluster. Every span must have a twin with the same parent and
    /// attributes, be within schedspan's, and differ in begin and duration only by microseconds; else the exit code is 1. Needs
    /// an otherwise idle machine and root.
    Compare(compare::command::Options),
    /// Run the tests that need a real scheduler, each on a cluster of its own
    ///
    /// The last line has the numbers of passes and failures. With a failure the exit code is 1. Needs root.
    E2e(suite::Options),
    /// Start, use and end a kind cluster, and test schedspan in it
    ///
    /// One control plane and one worker, as containers of docker or podman. Needs root.
    Kind(kind::Arguments),
    #[command(flatten)]
    Guard(guard::Command),
}

fn main() -> ExitCode {
    xtask::exit_code(run(Command::parse()))
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(options) => demo::main(&options)?,
        Command::Picture(options) => picture::main(&options)?,
        Command::Compare(options) => compare::command::main(&options)?,
        Command::E2e(options) => return suite::main(&options),
        Command::Kind(arguments) => kind::run(arguments)?,
        Command::Guard(command) => command.run()?,
    }
    Ok(ExitCode::SUCCESS)
}
