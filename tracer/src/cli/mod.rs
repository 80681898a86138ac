//! The command line: one file per verb.

pub mod inspect;
pub mod run;
pub mod trace;

use clap::{Parser, Subcommand};

/// Traces an unmodified kube-scheduler with eBPF, and exports OpenTelemetry spans
#[derive(Debug, Parser)]
#[command(name = "schedspan", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What to log to stderr: a level, or directives such as `tracer=debug,kube=warn`
    #[arg(
        long,
        global = true,
        env = "SCHEDSPAN_LOG",
        default_value = "info,kube_runtime=error",
        value_name = "LEVEL"
    )]
    pub log: String,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Trace every scheduler on this node, until stopped
    ///
    /// A scheduler is found by what its executable holds, whatever its name and container; restarts and upgrades are
    /// followed. Spans go where the OTEL_EXPORTER_OTLP_* variables say, by default to http://localhost:4317.
    Run(run::Options),
    /// Show attempts live, as waterfalls
    Trace(trace::Options),
    /// Show what is probed in a scheduler, what each hit costs, and what is missing and why
    Inspect(inspect::Options),
}
