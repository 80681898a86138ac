//! `schedspan trace`: attempts as they happen.

use anyhow::Result;
use spans::export::{Filter, Output};

use super::run::Common;
use crate::daemon;

/// Options of `trace`.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(flatten)]
    filter: Filter,
    /// Show the lives of Pods until they are Ready, in the place of attempts
    #[arg(long)]
    lifecycle: bool,
    /// How to print them
    #[arg(long, short, value_enum, value_delimiter = ',', default_value = "terminal")]
    output: Vec<Output>,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
///
/// # Errors
///
/// Those of [`daemon::run`].
pub async fn run(options: Options) -> Result<()> {
    let Options { filter, lifecycle, output, common } = options;
    let filter = Filter { lifecycles: lifecycle, ..filter };
    daemon::run(daemon::Options { lifecycle, ..common.daemon(output, filter, None) }).await
}
