//! The test cluster and its schedulers by hand: `cargo xtask cluster`, `schedulers` and `peer`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use harness::{cluster::command, guard, peer, schedulers};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Start, show and end a real control plane on this machine
    ///
    /// etcd, kube-apiserver, kube-controller-manager, a stripped and unmodified kube-scheduler, and an OpenTelemetry
    /// Collector: built from their Go modules under tests/cluster, once.
    Cluster(command::Arguments),
    /// Build schedulers of many versions, with many Go releases, in several ways
    ///
    /// Each from its Go module under tests/schedulers, once. A line for each says its name and where its executable
    /// is. Go releases other than the machine's go into the cache folder. Needs Go and pip: `cargo xtask setup`.
    Schedulers(schedulers::Options),
    /// Build a scheduler with OpenTelemetry spans of its own, to compare schedspan's with
    ///
    /// The very functions that schedspan traces make spans with the OpenTelemetry SDK: calls of tests/peer are woven into
    /// the module's own source, whose symbols stay. Once for each version; a line says where the executable is. Needs Go:
    /// `cargo xtask setup`.
    Peer(peer::Options),
    #[command(flatten)]
    Guard(guard::Command),
}

fn main() -> ExitCode {
    xtask::exit_code(run(Command::parse()).map(|()| ExitCode::SUCCESS))
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Cluster(arguments) => command::run(arguments),
        Command::Schedulers(options) => schedulers::main(&options),
        Command::Peer(options) => peer::main(&options),
        Command::Guard(command) => command.run(),
    }
}
