//! The project's chores: `cargo xtask` lists them.
#![forbid(unsafe_code)]

mod bench;
mod bench_read;
mod build;
mod build_ebpf;
mod cluster;
mod compare;
mod components;
mod debian;
mod demo;
mod docs;
mod e2e;
mod fuzz;
mod go;
mod image;
mod interrupt;
mod kind;
mod manifests;
mod matrix;
mod paths;
mod peak;
mod peer;
mod picture;
mod process;
mod proxy;
mod schedspan;
mod schedulers;
mod setup;
mod spans;
mod stage;
mod svg;
mod tally;
mod test;
mod toolchain;
mod twins;
mod webhook;

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
    BuildEbpf,
    /// Build everything: the eBPF object, and schedspan with the object inside
    ///
    /// Prints where the executable is.
    Build,
    /// Build the container image
    ///
    /// One static executable and the certificates of public authorities, packed without a container engine: docker load,
    /// podman load, ctr images import and kind load image-archive take the archive. The same commit and tools make the
    /// same digest, wherever they lie. Prints where the archive is.
    Image(image::Options),
    /// Render the plain manifests from the Helm chart
    ///
    /// With Helm and kustomize, which are built from their Go modules, once. Lints the chart, and checks that base and
    /// overlays are what the chart makes of the same values.
    Manifests(manifests::Options),
    /// Start, show and end a real control plane on this machine
    ///
    /// etcd, kube-apiserver, kube-controller-manager, a stripped and unmodified kube-scheduler, and an OpenTelemetry
    /// Collector: built from their Go modules under tests/cluster, once.
    Cluster(cluster::command::Arguments),
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
    /// Run all checks and tests, as CI does
    ///
    /// The last line says how many passed and failed; with a failure the exit code is 1. Needs root.
    Test,
    /// Measure what tracing costs the scheduler
    ///
    /// CPU time per Pod, Pods per second, memory and the duration of attempts in several ways, in turns, on a cluster with many
    /// Nodes: untraced, with spans that the scheduler makes itself (`cargo xtask peer`), and traced by schedspan, at each level of
    /// detail that is asked for. Progress on stderr, the result on stdout. Wants an otherwise idle machine. Needs root.
    Bench(bench::Arguments),
    /// Compare schedspan's spans with those that the scheduler makes itself
    ///
    /// A real cluster, whose scheduler is one of `cargo xtask peer`, traced by schedspan at the same time. Every span must
    /// have its twin, under the same parent, with the same attributes and inside of schedspan's, and begin and last as long
    /// but for microseconds; else the exit code is 1. Wants an otherwise idle machine. Needs root.
    Compare(twins::Options),
    /// Measure what reading an executable takes
    ///
    /// Time and memory of each step of what `schedspan inspect` does, down to the whole plan.
    BenchRead(bench_read::Options),
    /// Run the tests that need a real scheduler, each on a cluster of its own
    ///
    /// The last line says how many passed and failed; with a failure the exit code is 1. Needs root.
    E2e(e2e::Options),
    /// Start, use and end a kind cluster, and test schedspan in it
    ///
    /// One control plane and one worker, as containers of docker or podman. Needs root.
    Kind(kind::Arguments),
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
    /// Check many variants of what schedspan reads
    Matrix(matrix::Arguments),
    /// Damage executables and annotations, and look for what crashes, hangs or swells
    ///
    /// Real Go programs with a few bytes changed where they are read: headers, function table, types, code; and annotations
    /// of Pods as somebody might write them to do harm. A line for
    /// each target says how many cases ran, how fast, and how much memory they took; with a case that panics, takes
    /// longer than 1 s or more than 256 MiB the exit code is 1. Needs Go and pip: `cargo xtask setup`.
    Fuzz(fuzz::Options),
    #[command(hide = true)]
    Peak(peak::Options),
}

fn main() -> ExitCode {
    match run(Options::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Setup => setup::ensure()?,
        Command::BuildEbpf => build_ebpf::main()?,
        Command::Build => build::main()?,
        Command::Image(options) => image::main(&options)?,
        Command::Manifests(options) => manifests::main(&options)?,
        Command::Cluster(arguments) => cluster::command::run(arguments)?,
        Command::Demo(options) => demo::main(&options)?,
        Command::Picture(options) => picture::main(&options)?,
        Command::Test => return test::main(),
        Command::Bench(options) => bench::main(&options)?,
        Command::Compare(options) => twins::main(&options)?,
        Command::BenchRead(options) => bench_read::main(&options)?,
        Command::E2e(options) => return e2e::main(&options),
        Command::Kind(arguments) => kind::run(arguments)?,
        Command::Schedulers(options) => schedulers::main(&options)?,
        Command::Peer(options) => peer::main(&options)?,
        Command::Matrix(arguments) => return matrix::run(&arguments),
        Command::Fuzz(options) => return fuzz::main(&options),
        Command::Peak(options) => peak::main(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}
