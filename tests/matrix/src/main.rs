//! `cargo xtask matrix`: repeats a check with many schedulers or kernels.
#![forbid(unsafe_code)]

mod kernels;
mod oracle;
mod peak;
mod schedulers;
mod support;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use harness::guard;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Check many variants of what schedspan reads
    Matrix(Arguments),
    #[command(flatten)]
    Guard(guard::Command),
}

#[derive(clap::Args)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Read many schedulers: whether each can be traced, and what reading it takes
    ///
    /// Builds the schedulers of `cargo xtask schedulers`, and runs `schedspan inspect` on each five times. A row has the size of the
    /// file, the number of probed sites and of those on a single-stepped instruction, the median time, the peak memory, and the
    /// missing parts of the plan. The exit code is 0 only if no part is missing.
    Schedulers(schedulers::Options),
    /// Trace a scheduler on other kernels: Linux 6.1, 6.12, the newest that Debian has, and one for arm64
    ///
    /// Boots each in an emulated machine with a scheduler and schedspan, and compares the spans with the API server's objects and
    /// the scheduler's metrics. Prints a line per kernel. The exit code is 0 only if all agree. Takes about half a minute each, and
    /// ten minutes to build for the other architecture. Installs the emulator and downloads the kernels. Needs root and Debian.
    Kernels(kernels::Options),
    /// Print docs/support.md: which Kubernetes versions and kernels are tested
    Support(support::Options),
}

fn main() -> ExitCode {
    xtask::exit_code(run(&Command::parse()))
}

fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Matrix(Arguments { what: What::Schedulers(options) }) => schedulers::main(options)?,
        Command::Matrix(Arguments { what: What::Kernels(options) }) => return kernels::main(options),
        Command::Matrix(Arguments { what: What::Support(options) }) => support::main(options)?,
        Command::Guard(command) => command.run()?,
    }
    Ok(ExitCode::SUCCESS)
}
