//! `schedspan explain`: why a Pod is on its Node, or still Pending.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use spans::{export::Style, screen, text::clean};

use super::client::{Daemon, Server};
use kube_scheduler::explain::{self, Report};

/// Wait of one request to the daemon.
const WAIT: Duration = Duration::from_secs(600);
/// Maximum line length of the text.
const MAX_WIDTH: usize = 120;

/// Options of `explain`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// The Pod's namespace
    #[arg(long, short, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// The Pod's name
    #[arg(value_name = "POD")]
    pod: String,
    /// Wait for the Pod's next attempt
    #[arg(long)]
    wait: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    server: Server,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Output {
    /// Readable text
    #[default]
    Text,
    /// One JSON object, with `schemaVersion` at its top
    Json,
}

/// Runs the command.
///
/// # Errors
///
/// When the daemon cannot be asked, or has no attempt of the Pod.
pub async fn run(options: Options) -> Result<()> {
    let Options { namespace, pod, wait, output, server } = options;
    let daemon = Daemon::of(&server)?;
    let seconds = WAIT.as_secs().to_string();
    let mut question = vec![("namespace", namespace.as_str()), ("pod", pod.as_str())];
    if wait {
        question.push(("wait", seconds.as_str()));
    }
    let waits = if wait { WAIT } else { Duration::ZERO };
    let report = loop {
        let report: Report = daemon.ask("/api/v1/attempts", &question, waits).await?;
        if !wait || report.waited_for_it {
            break report;
        }
    };
    let shown = match output {
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
        Output::Text if report.attempts.is_empty() => String::new(),
        Output::Text => explain::text(&report, Style::of_stdout().width.min(MAX_WIDTH)),
    };
    let printed = match output {
        Output::Json => screen::print_json(&shown),
        Output::Text => screen::print(&shown),
    };
    printed.context("cannot write to stdout")?;
    if report.attempts.is_empty() {
        bail!("{}", clean(&explain::unknown(&report)));
    }
    Ok(())
}
