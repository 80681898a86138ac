//! The command line: one file per verb.

mod client;
pub mod compare;
pub mod doctor;
pub mod explain;
pub mod inspect;
pub mod lifecycle;
pub mod record;
pub mod replay;
pub mod run;
pub mod top;
pub mod trace;
pub mod webhook;

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
    /// Say why a Pod is where it is, or why it is still Pending
    ///
    /// Asks a running `schedspan run --listen` for the Pod's attempts of the last minutes. The exit code is 1 if it knows
    /// none.
    Explain(explain::Options),
    /// Show what schedulers do, live: attempts, queues, phases, plugins, the slowest Pods, losses
    ///
    /// Asks a running `schedspan run --listen`. Prints one table and ends where standard output is no terminal.
    Top(top::Options),
    /// Show what is probed in a scheduler, what each hit costs, and what is missing and why
    Inspect(inspect::Options),
    /// Say whether it can work here, and what keeps it if not: kernel, rights, schedulers, API server, Collector
    ///
    /// Tries everything out, with the same variables as `schedspan run`, and changes nothing. A line for each thing; the exit
    /// code is 1 if there are no traces, or if they get nowhere.
    Doctor(doctor::Options),
    /// Record what schedulers do into a file, for `schedspan replay`
    ///
    /// Traces as `schedspan run` does, and writes what the probes read instead of making spans of it: one JSON object a
    /// line. This is what to attach to a bug report. Ends with Ctrl-C, after --duration, or when the file is full.
    Record(record::Options),
    /// Show the attempts of a recording
    ///
    /// They go the way of live ones, without a scheduler and without rights. Links to who created the Pods are not in a
    /// recording. Its figures, and what was lost, are said at the end on stderr.
    Replay(replay::Options),
    /// Draw the life of a Pod, out of what a Collector received: with what API server, kubelet and whoever asked for it tell
    ///
    /// Needs spans of `schedspan run --lifecycle`. Joins the others by trace, by k8s.pod.uid, and by the key that the API server
    /// wrote. What is shorter than a twentieth of its part is counted.
    Lifecycle(lifecycle::Options),
    /// Compare spans with those of another witness, such as a scheduler that makes spans itself
    ///
    /// Twins are spans of the same kind in the same attempt of the same Pod. Says which spans have none, where twins differ,
    /// and by how much. The exit code is 1 beyond a limit and without any twins, and 2 if a side cannot be read.
    Compare(compare::Options),
    /// Give new Pods the trace context of the request that creates them: a mutating admission webhook
    ///
    /// The API server's calls carry the context of its own span, or the client's. A Pod without the annotation
    /// tracing.k8s.io/traceparent gets it, and so does the Pod template of a workload, where the webhook's configuration asks for
    /// that. Needs no privileges, and nothing of the daemon.
    Webhook(webhook::Options),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    /// Only dev builds check this when the program starts.
    #[test]
    fn names_of_arguments_and_groups_are_unique() {
        Cli::command().debug_assert();
    }
}
