//! `cargo xtask bench`: measures the cost of tracing for what is traced and the machine.
#![forbid(unsafe_code)]

mod context;
mod controllers;
mod cost;
mod draw;
mod histogram;
mod latency;
mod options;
mod page;
mod pipeline;
mod report;
mod round;
mod usage;
mod webhook;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::Parser;
use harness::guard;
use xtask::{image, machine};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Measure what tracing costs the scheduler
    ///
    /// CPU time per Pod, Pods per second, memory and the duration of attempts on a cluster with many Nodes, in several ways in turn:
    /// untraced, with spans that the scheduler makes itself (`cargo xtask peer`), and traced by schedspan at each requested level of
    /// detail. Progress on stderr, the result on stdout. Needs an otherwise idle machine and root.
    Bench(Arguments),
    #[command(flatten)]
    Guard(guard::Command),
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    options: options::Options,
}

#[derive(clap::Subcommand)]
enum What {
    /// Measure the daemon's cost of Pods' contexts in a cluster of 150,000 Pods
    ///
    /// Its memory and CPU time while Pods come and go and its watch is cut each minute. With an attempt that lacks its context, or
    /// more than 40 MiB, the exit code is 1.
    Context(context::Options),
    /// Measure what tracing costs kube-controller-manager
    ///
    /// On a real cluster, Deployments are scaled so that Pods come and go at an even pace: CPU time per Pod of
    /// kube-controller-manager, of the daemon and of etcd beside them, untraced and traced in turn. `cargo xtask kind cost` does this
    /// for a kubelet. The exit code is 1 if the ratio is more than two standard errors above 1.02, or something was lost. Progress on
    /// stderr, the result on stdout. Needs an otherwise idle machine and root.
    Controllers(controllers::Options),
    /// Measure the time from the end of an attempt until its spans are at a Collector
    ///
    /// At several rates of Pods, on a real cluster. The Collector is this program, which notes the time. Needs root.
    Latency(latency::Options),
    /// Measure what an open page costs the daemon
    ///
    /// Its CPU time and memory with each view open in a real browser, and with one that is closed again, against those without a page, in turn.
    /// With a view that costs more than 0.5 % of a core or 2 MiB, the exit code is 1. Needs an otherwise idle machine and root.
    Page(page::Options),
    /// Measure the steps from record to bytes
    ///
    /// Decoding, assembling, building and encoding the spans of a recorded stream on one core: time and allocations. Needs no
    /// scheduler.
    Pipeline,
    /// Measure the latency of the webhook
    ///
    /// On a real cluster: reviews over TLS with keep-alive, as the API server sends them, and the creation of Pods with and without
    /// the webhook. The exit code is 1 if the 99th percentile is not below 2 ms. Needs an otherwise idle machine and root.
    Webhook(webhook::Options),
}

fn main() -> ExitCode {
    xtask::exit_code(run(&Command::parse()).map(|()| ExitCode::SUCCESS))
}

/// The executable that is measured: what is deployed.
fn deployed() -> Result<PathBuf> {
    image::executable(machine::own()?)
}

fn run(command: &Command) -> Result<()> {
    let Arguments { what, options } = match command {
        Command::Bench(arguments) => arguments,
        Command::Guard(command) => return command.run(),
    };
    match what {
        Some(What::Context(options)) => context::main(options),
        Some(What::Controllers(options)) => controllers::main(options),
        Some(What::Latency(options)) => latency::main(options),
        Some(What::Page(options)) => page::main(options),
        Some(What::Pipeline) => pipeline::main(),
        Some(What::Webhook(options)) => webhook::main(options),
        None => cost::main(options),
    }
}
