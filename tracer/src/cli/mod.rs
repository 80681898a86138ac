//! The command line: one file per verb.

pub mod compare;
pub mod doctor;
mod examples;
pub mod explain;
pub mod inspect;
pub mod lifecycle;
pub mod profile;
pub mod queue;
pub mod record;
pub mod replay;
pub mod run;
pub mod top;
pub mod trace;
pub mod webhook;

use std::{env, path::Path};

use clap::{Command as Clap, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

/// Name of the program.
pub const NAME: &str = "schedspan";
/// Name of the program as a plugin: `kubectl schedspan`.
const PLUGIN: &str = "kubectl-schedspan";
/// Verbs that make no sense on a laptop, which has no scheduler.
const ON_A_NODE: [&str; 5] = ["run", "doctor", "record", "webhook", "inspect"];

/// Traces an unmodified kube-scheduler with eBPF, and exports OpenTelemetry spans
///
/// Exit codes of all verbs: 0 done; 1 the answer is no (no such attempt, a check that fails, a difference beyond a limit, a Pod that does not
/// become Ready); 2 it could not be done; 64 the command line is not valid.
#[derive(Debug, Parser)]
#[command(name = NAME, version, arg_required_else_help = true, after_help = examples::ALL)]
pub struct Cli {
    /// The selected subcommand.
    #[command(subcommand)]
    pub command: Command,
    /// Log filter for stderr: a level, or directives such as `debug,kube=warn`
    #[arg(
        long,
        global = true,
        env = "SCHEDSPAN_LOG",
        default_value = "info,kube_runtime=error",
        value_name = "LEVEL",
        help_heading = "Log"
    )]
    pub log: String,
}

impl Cli {
    /// Parses the command line, by the name that the program is called by.
    ///
    /// # Errors
    ///
    /// When it is not valid, or asks for help.
    pub fn from_command_line() -> Result<Self, clap::Error> {
        let command = if is_plugin() { plugin(Self::command()) } else { Self::command() };
        Self::from_arg_matches(&command.try_get_matches()?)
    }
}

/// Whether the program is called as a plugin of kubectl.
#[must_use]
pub fn is_plugin() -> bool {
    let name = env::args_os().next();
    name.is_some_and(|name| Path::new(&name).file_stem().is_some_and(|name| name == PLUGIN))
}

/// The command line as `kubectl schedspan` has it: without what needs a scheduler on this host.
#[must_use]
pub fn plugin(command: Clap) -> Clap {
    let command = command.name(PLUGIN).bin_name("kubectl schedspan");
    ON_A_NODE.iter().fold(command, |command, verb| command.mut_subcommand(verb, |verb| verb.hide(true)))
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Trace every scheduler on this node, until stopped
    ///
    /// Schedulers are found by the contents of their executable, whatever its name and container. Restarts and upgrades
    /// are followed. Spans go to the endpoint in the OTEL_EXPORTER_OTLP_* variables, by default http://localhost:4317.
    #[command(after_help = examples::RUN)]
    Run(run::Options),
    /// Show attempts live, as waterfalls
    ///
    /// Probes the schedulers of this host. With --server or --context, and as `kubectl schedspan`, it shows what daemons have instead.
    #[command(after_help = examples::TRACE)]
    Trace(trace::Options),
    /// Explain why a Pod is on its Node, or why it is still Pending
    ///
    /// Asks a running `schedspan run` for the Pod's attempts of the last minutes. With --context, and as `kubectl schedspan`, these are the
    /// daemons of a cluster, that of the scheduler which leads first. The exit code is 1 if there are none.
    #[command(after_help = examples::EXPLAIN)]
    Explain(explain::Options),
    /// Show where Pods without a Node wait, and why they are not tried
    ///
    /// Asks a running `schedspan run`: active, in backoff, unschedulable, gated, or in a group that is not complete; by
    /// which plugins, and what would wake them. A scheduler that takes nothing from its queue is said to stand still.
    #[command(after_help = examples::QUEUE)]
    Queue(queue::Options),
    /// Show live figures of schedulers: attempts, queues, phases, plugins, the slowest Pods, losses
    ///
    /// Asks a running `schedspan run`. If standard output is not a terminal, prints one table and exits.
    #[command(after_help = examples::TOP)]
    Top(top::Options),
    /// Open the daemon's page in a browser
    ///
    /// Prints the URL. In a cluster it forwards a port to the daemon of the scheduler that leads, also when that changes, until stopped.
    #[command(after_help = examples::UI)]
    Ui(reach::ui::Options),
    /// Show what is probed in a scheduler, what each hit costs, and what is missing and why
    #[command(after_help = examples::INSPECT)]
    Inspect(inspect::Options),
    /// Check whether this host can be traced: kernel, capabilities, schedulers, API server, Collector
    ///
    /// Tests each of them with the same variables as `schedspan run`, and changes nothing. Prints one line for each.
    /// The exit code is 1 if traces cannot be made or exported.
    #[command(after_help = examples::DOCTOR)]
    Doctor(doctor::Options),
    /// Show where schedulers spend their CPU time: by phase and plugin, and by function
    ///
    /// Takes samples of their stacks for --duration, without a probe, also from a stripped executable. Plugins that wait for
    /// something take no CPU time, and are not seen. --by traces attempts meanwhile, and says what those of each result or scheduler
    /// profile cost. --base compares with an earlier profile.
    #[command(after_help = examples::PROFILE)]
    Profile(profile::Options),
    /// Record the activity of schedulers into a file, for `schedspan replay`
    ///
    /// Traces as `schedspan run` does, but writes what the probes read instead of making spans: one JSON object a line.
    /// Attach this file to a bug report. Ends with Ctrl-C, after --duration, or when the file is full.
    #[command(after_help = examples::RECORD)]
    Record(record::Options),
    /// Show the attempts of a recording
    ///
    /// Events take the same path as live ones, without a scheduler and without privileges. A recording has no links to
    /// the requests that created the Pods. Figures and losses are printed at the end on stderr.
    #[command(after_help = examples::REPLAY)]
    Replay(replay::Options),
    /// Say what the time of a Pod went to until it was Ready, and draw it, from spans that a Collector received
    ///
    /// Needs spans of `schedspan run --lifecycle`, and takes those of controllers, the kubelet, the API server and clients as well. Joins other spans by trace, by k8s.pod.uid, and by the key that the
    /// API server wrote. Spans shorter than a twentieth of their part are only counted.
    #[command(after_help = examples::LIFECYCLE)]
    Lifecycle(lifecycle::Options),
    /// Compare spans with those of another source, such as a scheduler that makes spans itself
    ///
    /// Twins are spans of the same kind in the same attempt of the same Pod. Reports which spans have no twin, where
    /// twins differ, and by how much. The exit code is 1 beyond a limit or without any twins, and 2 if a side cannot be
    /// read.
    #[command(after_help = examples::COMPARE)]
    Compare(compare::Options),
    /// Give new Pods the trace context of the request that creates them: a mutating admission webhook
    ///
    /// The API server's calls carry the context of its own span, or the client's. A Pod without the annotation
    /// tracing.k8s.io/traceparent gets it. So does the Pod template of a workload, if the webhook's configuration
    /// includes workloads. Needs neither privileges nor the daemon.
    #[command(after_help = examples::WEBHOOK)]
    Webhook(webhook::Options),
    /// Run kubectl so that its requests carry a trace context, and follow the Pods that come of them until they are Ready
    ///
    /// `kubectl schedspan traced -- apply -f web.yaml` prints the id of the trace. kubectl's requests go through a server on 127.0.0.1 that adds
    /// the header `traceparent`, sampled. With the webhook, and tracing in the API server, the Pods' attempts are linked to that trace. The
    /// exit code is kubectl's if it fails, and 1 if a Pod does not become Ready.
    #[command(after_help = examples::TRACED)]
    Traced(marked::Options),
    /// Print completions for a shell
    #[command(after_help = examples::COMPLETION)]
    Completion(completion::Options),
    /// Complete a word for kubectl
    #[command(name = "__complete", hide = true)]
    Complete(completion::Words),
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::Cli;

    #[test]
    fn every_example_is_a_valid_command_line() {
        let program = Cli::command();
        let verbs = program.get_subcommands().filter(|verb| !verb.is_hide_set());
        for command in verbs.chain([&program]) {
            let name = command.get_name();
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.is_empty() || examples.starts_with("Examples:\n"), "{name}: {examples}");
            for line in examples.lines().skip(1) {
                let (example, meaning) = line.trim().split_once("   ").unwrap_or((line.trim(), ""));
                // What is before the last program in a pipe is the shell's.
                let words = example.rsplit("| ").next().unwrap_or_default().split(' ');
                let words: Vec<_> =
                    words.map(|word| word.trim_matches('\'')).take_while(|word| *word != ">").collect();
                assert!(!meaning.is_empty(), "{name}: `{example}` is not explained");
                assert!(words.first() == Some(&"schedspan"), "{name}: {example}");
                assert!(Cli::try_parse_from(words).is_ok(), "{name}: {example}");
            }
        }
    }

    /// Only dev builds check this when the program starts.
    #[test]
    fn names_of_arguments_and_groups_are_unique() {
        Cli::command().debug_assert();
        super::plugin(Cli::command()).debug_assert();
    }
}
