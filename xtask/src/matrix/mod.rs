//! `cargo xtask matrix`: the same check over many variants of something.

mod oracle;
pub(crate) mod schedulers;

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
}

pub(crate) fn run(Arguments { command }: &Arguments) -> Result<()> {
    match command {
        Command::Schedulers(options) => schedulers::main(options),
    }
}
