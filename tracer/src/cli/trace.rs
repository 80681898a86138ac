//! `schedspan trace`: attempts as they happen.

use std::time::Duration;

use anyhow::Result;

use super::run::Common;
use crate::{
    daemon,
    export::{Filter, Output},
};

/// Options of `trace`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Only this Pod, or Pods whose names begin so when it ends in `*`
    #[arg(value_name = "POD")]
    pod: Option<String>,
    /// Only Pods of this namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Only attempts that failed
    #[arg(long)]
    failed: bool,
    /// Only attempts that took longer
    #[arg(long, value_name = "MILLISECONDS")]
    slower_than: Option<u64>,
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
    let Options { pod, namespace, failed, slower_than, output, common } = options;
    let filter = Filter { namespace, pod, failed, slower_than: slower_than.map(Duration::from_millis) };
    daemon::run(common.daemon(output, filter, None)).await
}
