//! `schedspan webhook`: writes the trace context of requests into annotations of the Pods that they create.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Result;
use spans::figures::parse_duration;

/// Options of `webhook`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Address for the API server's calls, by TLS
    #[arg(long, default_value = "0.0.0.0:8443", value_name = "ADDRESS:PORT")]
    address: SocketAddr,
    /// Name or address that the API server calls, as SERVICE.NAMESPACE.svc, for its own certificates; may be given several times
    #[arg(long, required_unless_present = "certificate", value_name = "HOST", value_delimiter = ',')]
    host: Vec<String>,
    /// A certificate in PEM for that name, such as one of cert-manager's, instead of its own ones: it then needs no right to its
    /// configuration, and never asks the API server
    #[arg(long, requires = "certificate_key", value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// The key of --certificate
    #[arg(long, requires = "certificate", value_name = "FILE")]
    certificate_key: Option<PathBuf>,
    /// Answer only clients with a certificate of these authorities: that of the API server, by its AdmissionConfiguration
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
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
    let Options {
        address,
        host,
        certificate,
        certificate_key,
        client_ca,
        configuration,
        certificate_lifetime,
        unsampled,
        status,
        kubeconfig,
    } = options;
    let files =
        certificate.zip(certificate_key).map(|(certificate, key)| webhook::Files { certificate, key });
    webhook::run(webhook::Options {
        address,
        status,
        files,
        client_ca,
        configuration,
        hosts: host,
        lifetime: certificate_lifetime,
        unsampled,
        kubeconfig,
    })
    .await
}
