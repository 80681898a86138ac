//! `schedspan run`: the daemon.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Result;

use crate::{
    daemon,
    export::{Filter, Output, duration},
};

/// How `run` and `trace` find what they trace and link.
#[derive(clap::Args, Debug)]
pub struct Common {
    /// Kubeconfig of the cluster whose Pods carry trace contexts [default: the ServiceAccount's, or ~/.kube/config]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How long a finished attempt waits for the watch of Pods to bring its context
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = duration)]
    pub context_wait: Duration,
    /// Load this eBPF object instead of the one inside
    #[arg(long, env = "SCHEDSPAN_EBPF_OBJECT", value_name = "FILE")]
    pub ebpf_object: Option<PathBuf>,
}

/// Options of `run`.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Where spans go; may be given several times
    #[arg(long, short, value_enum, value_delimiter = ',', default_value = "otlp")]
    output: Vec<Output>,
    /// Serve /metrics, /healthz and /readyz on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
}

/// Runs the command.
///
/// # Errors
///
/// Those of [`daemon::run`].
pub async fn run(options: Options) -> Result<()> {
    let Options { common, output, listen } = options;
    daemon::run(common.daemon(output, Filter::default(), listen)).await
}

impl Common {
    pub(super) fn daemon(
        self,
        outputs: Vec<Output>,
        filter: Filter,
        listen: Option<SocketAddr>,
    ) -> daemon::Options {
        let Self { kubeconfig, context_wait, ebpf_object } = self;
        daemon::Options { outputs, filter, kubeconfig, context_wait, listen, ebpf_object }
    }
}
