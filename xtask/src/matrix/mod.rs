//! `cargo xtask matrix`: the same check over many variants of something.

pub(crate) mod kernels;
mod oracle;
pub(crate) mod schedulers;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
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

pub(crate) fn run(Arguments { command }: &Arguments) -> Result<ExitCode> {
    match command {
        Command::Schedulers(options) => schedulers::main(options).map(|()| ExitCode::SUCCESS),
        Command::Kernels(options) => kernels::main(options),
    }
}
