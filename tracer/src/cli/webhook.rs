//! `schedspan webhook`: writes the trace context of requests into annotations of the Pods that they create.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Result;
use spans::figures::parse_duration;

/// Options of `webhook`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Address for the API server's calls, by TLS with certificates of its own
    #[arg(long, default_value = "0.0.0.0:8443", value_name = "ADDRESS:PORT")]
    address: SocketAddr,
    /// Name or address that the API server calls, as SERVICE.NAMESPACE.svc; may be given several times
    #[arg(long, required = true, value_name = "HOST", value_delimiter = ',')]
    host: Vec<String>,
    /// Name of its MutatingWebhookConfiguration, whose `caBundle` it sets: needs `get` and `patch` of it
    #[arg(long, default_value = "schedspan-webhook", value_name = "NAME")]
    configuration: String,
    /// Validity of a certificate; it is replaced after two thirds of this time
    #[arg(long, default_value = "24h", value_name = "DURATION", value_parser = parse_duration)]
    certificate_lifetime: Duration,
    /// Inject contexts that are not sampled as well
    #[arg(long, env = "SCHEDSPAN_WEBHOOK_UNSAMPLED")]
    unsampled: bool,
    #[command(flatten)]
    status: status::Options,
    /// Kubeconfig of the cluster [default: the ServiceAccount's, or ~/.kube/config]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
///
/// Those of [`webhook::run`].
pub async fn run(options: Options) -> Result<()> {
    let Options { address, host, configuration, certificate_lifetime, unsampled, status, kubeconfig } =
        options;
    webhook::run(webhook::Options {
        address,
        status,
        configuration,
        hosts: host,
        lifetime: certificate_lifetime,
        unsampled,
        kubeconfig,
    })
    .await
}
