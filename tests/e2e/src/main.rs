//! `cargo xtask e2e`, `compare`, `kind`, `demo` and `picture`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use e2e::{demo, kind, picture, suite, twins};
use harness::guard;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Show what schedspan does: a real scheduler at work, each attempt a waterfall
    ///
    /// Sets up and builds what is missing, starts a cluster, traces it while it schedules a Deployment, a Pod that fits
    /// nowhere at first, and a preemption, and sums up. The exit code is 0 only if the scheduler's own figures agree and
    /// nothing was lost. Nothing is left behind. Needs root.
    Demo(demo::Options),
    /// Make the README's picture: what schedspan prints for three attempts, as SVG
    ///
    /// Needs root.
    Picture(picture::Options),
    /// Compare schedspan's spans with those that the scheduler makes itself
    ///
    /// A real cluster, whose scheduler is one of `cargo xtask peer`, traced by schedspan at the same time. Every span must
    /// have its twin, under the same parent, with the same attributes and inside of schedspan's, and begin and last as long
    /// but for microseconds; else the exit code is 1. Wants an otherwise idle machine. Needs root.
    Compare(twins::Options),
    /// Run the tests that need a real scheduler, each on a cluster of its own
    ///
    /// The last line says how many passed and failed; with a failure the exit code is 1. Needs root.
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
        Command::Compare(options) => twins::main(&options)?,
        Command::E2e(options) => return suite::main(&options),
        Command::Kind(arguments) => kind::run(arguments)?,
        Command::Guard(command) => command.run()?,
    }
    Ok(ExitCode::SUCCESS)
}
