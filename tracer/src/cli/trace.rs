//! `schedspan trace`: shows attempts as they end.

use anyhow::Result;
use spans::export::{Filter, Output};

use super::run::Common;
use crate::daemon;

/// Options of `trace`.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(flatten)]
    filter: Filter,
    /// Show Pod lifecycles until Ready instead of attempts
    #[arg(long)]
    lifecycle: bool,
    /// Output format; may be given several times
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
    daemon::run(daemon::Options { lifecycle, ..common.daemon(output, filter) }).await
}
