//! `cargo xtask matrix`: the same check over many variants of something.
#![forbid(unsafe_code)]

mod kernels;
mod oracle;
mod peak;
mod schedulers;

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
    /// Builds what `cargo xtask schedulers` builds and runs `schedspan inspect` on each five times. A row says how large
    /// the file is, how many sites are probed and how many of them on an instruction that is single-stepped, the
    /// median of the times, the most memory that was resident, and what is missing from the plan. The exit code is 0
    /// only if nothing is.
    Schedulers(schedulers::Options),
    /// Trace a scheduler on other kernels: Linux 6.1, 6.12, the newest that Debian has, and one for arm64
    ///
    /// Boots each in an emulated machine of its own, with a scheduler and schedspan in it, and compares the spans with what
    /// the API server and the scheduler say. A line per kernel; the exit code is 0 only if all agree. Takes about half a
    /// minute each once all is built, which for the other architecture takes ten. Needs root and a Debian; installs the emulator
    /// and downloads the kernels.
    Kernels(kernels::Options),
}

fn main() -> ExitCode {
    xtask::exit_code(run(&Command::parse()))
}

fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Matrix(Arguments { what: What::Schedulers(options) }) => schedulers::main(options)?,
        Command::Matrix(Arguments { what: What::Kernels(options) }) => return kernels::main(options),
        Command::Guard(command) => command.run()?,
    }
    Ok(ExitCode::SUCCESS)
}
