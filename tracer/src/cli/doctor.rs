//! `schedspan doctor`: checks whether this host can be traced, and reports what is missing.

use std::path::PathBuf;

use anyhow::Result;
use spans::screen;

use crate::{
    admission,
    cli::run::Programs,
    doctor::{self, State},
};

/// Options of `doctor`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Kubeconfig of the cluster whose Pods carry trace contexts [default: the ServiceAccount's, or ~/.kube/config]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    trust: admission::Options,
    #[command(flatten)]
    programs: Programs,
}

/// Runs the command. Returns whether traces can be made and exported.
///
/// # Errors
///
/// When stdout cannot be written to.
pub async fn run(options: Options) -> Result<bool> {
    let Options { kubeconfig, trust, programs } = options;
    let findings = doctor::examine(kubeconfig, trust.trust, &programs.programs).await;
    for finding in &findings {
        let state = match finding.state {
            State::Fine => "ok",
            State::Doubtful => "WARNING",
            State::Broken => "MISSING",
        };
        screen::print(&format!("{state:<8} {:<15} {}\n", finding.what, finding.text))?;
    }
    let broken = findings.iter().filter(|finding| finding.state == State::Broken).count();
    if broken > 0 {
        let all = findings.len();
        screen::complain(&format!(
            "schedspan: {broken} of {all} checks failed; each line above has the remedy"
        ));
    }
    Ok(broken == 0)
}
