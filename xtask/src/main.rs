//! The project's chores: `cargo xtask` lists them.
#![forbid(unsafe_code)]

mod build;
mod build_ebpf;
mod cluster;
mod components;
mod interrupt;
mod paths;
mod process;
mod setup;
mod toolchain;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// schedspan's chores
///
/// Each has a `--help` of its own. What takes long to make (Go, the components of the test cluster) is made once
/// and kept in $XDG_CACHE_HOME/schedspan, or ~/.cache/schedspan.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check and install what a build needs
    ///
    /// LLVM with headers, of the major version that rustc has; rust-src; bpf-linker; Go; clippy and rustfmt. What is
    /// there stays as it is: a second run only prints what it found. Debian packages need root. What cannot be
    /// installed is named together with what to do by hand, and the exit code is 1.
    Setup,
    /// Build the eBPF object
    ///
    /// With the same stable Rust as everything else, for this machine's architecture. Prints where the object is:
    /// `schedspan run --ebpf-object FILE` takes it.
    BuildEbpf(build_ebpf::Options),
    /// Build everything: the eBPF object, and schedspan with the object inside
    ///
    /// Prints where the executable is.
    Build,
    /// Start, show and end a real control plane on this machine
    ///
    /// etcd, kube-apiserver, kube-controller-manager, a stripped and unmodified kube-scheduler, and an OpenTelemetry
    /// Collector: built from their Go modules under tests/cluster, once.
    Cluster(cluster::command::Arguments),
}

fn main() -> ExitCode {
    match run(Options::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Setup => setup::ensure(),
        Command::BuildEbpf(options) => build_ebpf::main(&options),
        Command::Build => build::main(),
        Command::Cluster(arguments) => cluster::command::run(arguments),
    }
}
