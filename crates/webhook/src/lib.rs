//! A mutating admission webhook: the API server's calls carry the context of the request that creates a Pod, and the webhook adds
//! it to the Pod as an annotation. No client needs a change.
//!
//! It needs neither eBPF nor privileges nor the daemon. Pods are created even if it does not answer.
//!
//! # Layout
//!
//! * `server`: TLS, requests and their limits. The crate `admission-review` has the answers.
//! * `certificate`, `trust`: its own certificates, and the API server's trust in them.
//! * `files`: certificates of others instead. `validity`: when either end.
//! * [`Metrics`]: what all this counts.

#![forbid(unsafe_code)]

mod certificate;
mod files;
mod metrics;
mod server;
mod trust;
mod validity;

use std::{future::pending, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use futures::{FutureExt as _, future::BoxFuture};
use kube::Api;
use pods::api;
use rustls::crypto::ring::default_provider;
use status::Health;
use telemetry::Registry;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{interval, sleep},
};
use tracing::info;

pub use self::files::Files;
pub use self::metrics::{Metrics, Patched};
use self::{
    certificate::{Certificate, Served},
    files::Clients,
    trust::Keeper,
};

/// Liveness interval.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// How long connections are accepted after SIGTERM: API servers notice the end of a replica with a delay.
const LINGER: Duration = Duration::from_secs(3);
/// Shortest lifetime of a certificate: API servers need time to reload the bundle.
const SHORTEST_LIFE: Duration = Duration::from_secs(10);

/// Options of the webhook.
#[derive(Debug)]
pub struct Options {
    /// Address of the server for reviews.
    pub address: SocketAddr,
    /// Addresses of metrics and health.
    pub status: status::Options,
    /// A certificate that the API server trusts already; `None` for its own ones, which it tells the API server.
    pub files: Option<Files>,
    /// Authorities of the API servers' own certificates, without which a connection is refused; `None` to take any client.
    pub client_ca: Option<PathBuf>,
    /// Name of its MutatingWebhookConfiguration.
    pub configuration: String,
    /// Names and addresses of the certificate, under which API servers connect.
    pub hosts: Vec<String>,
    /// Validity of a certificate.
    pub lifetime: Duration,
    /// Whether unsampled contexts are injected as well.
    pub unsampled: bool,
    /// The cluster's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
}

/// Answers reviews until SIGINT or SIGTERM.
///
/// # Errors
///
/// When no API server is known, or an address cannot be bound.
pub async fn run(options: Options) -> Result<()> {
    let Options { address, status, files, client_ca, configuration, hosts, lifetime, unsampled, kubeconfig } =
        options;
    ensure!(
        lifetime >= SHORTEST_LIFE,
        "{lifetime:?} is too short for a certificate; give --certificate-lifetime {SHORTEST_LIFE:?} or more"
    );
    let registry = Registry::default();
    let metrics = Metrics::new(&registry);
    let health = Health::until("the API server has not got the certificate yet");
    let listener = status::bind(address).await?;
    let (served, kept): (_, BoxFuture<'_, Result<()>>) = if let Some(files) = files {
        let own = files.read()?;
        let served = Served::new(&own.key);
        metrics.set_validity(own.validity);
        health.set_ready(Ok(()));
        (served.clone(), files.follow(served, own, metrics.clone()).map(Ok).boxed())
    } else {
        let (client, _) = api::client(kubeconfig).await?;
        let certificate = Certificate::new(&hosts, lifetime)?;
        let served = Served::new(&certificate.key);
        metrics.set_validity(certificate.validity);
        let keeper = Keeper {
            api: Api::all(client),
            name: configuration,
            hosts,
            lifetime,
            served: served.clone(),
            metrics: metrics.clone(),
            health: health.clone(),
        };
        (served, keeper.keep(certificate).boxed())
    };
    status::start(status, registry, health.clone()).await?;
    info!("reviews are answered at https://{}{}", listener.local_addr()?, server::PATH);
    let mut alive = interval(ALIVE_INTERVAL);
    let living = {
        let health = health.clone();
        async move {
            loop {
                alive.tick().await;
                health.alive();
            }
        }
    };
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {
                health.set_ready(Err("it is being stopped".to_owned()));
                sleep(LINGER).await;
            }
        }
    };
    let router = server::router(unsampled, metrics.clone());
    let provider = Arc::new(default_provider());
    let clients = client_ca.map(|file| Clients::new(file, Arc::clone(&provider))).transpose()?.map(Arc::new);
    let following = {
        let clients = clients.clone();
        async move {
            match clients {
                Some(clients) => clients.follow().await,
                None => pending().await,
            }
        }
    };
    tokio::select! {
        served = server::serve(listener, served, router, clients, provider, &metrics, stop) => served,
        kept = kept => kept,
        () = following => Ok(()),
        () = living => Ok(()),
    }
}
