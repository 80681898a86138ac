//! A mutating admission webhook: the API server's calls carry the context of the request that creates a Pod, and the Pod gets it
//! as its annotation, without anybody changing a client.
//!
//! It needs no eBPF, no privileges, and nothing of the daemon; a Pod is created whether it answers or not.
//!
//! # Layout
//!
//! - `admission`: what is answered to a review. Pure.
//! - `server`: TLS, and what arrives.
//! - `certificate`, `trust`: what is served, and that the API server trusts it.

#![forbid(unsafe_code)]

mod admission;
mod certificate;
mod metrics;
mod server;
mod trust;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, ensure};
use kube::{Api, Client};
use pods::api;
use status::Health;
use telemetry::Registry;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{interval, sleep},
};
use tracing::info;

pub use self::metrics::{Metrics, Patched, Verdict};
use self::{
    certificate::{Certificate, Served},
    trust::Keeper,
};

/// How often it says that it lives.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// After SIGTERM, how long connections are still taken: API servers learn a moment later that this replica goes.
const LINGER: Duration = Duration::from_secs(3);
/// A shorter life leaves API servers no time to follow.
const SHORTEST_LIFE: Duration = Duration::from_secs(10);

/// What the webhook is told.
#[derive(Debug)]
pub struct Options {
    /// Where the API server asks.
    pub address: SocketAddr,
    /// Where metrics and health are served.
    pub listen: Option<SocketAddr>,
    /// Name of its MutatingWebhookConfiguration.
    pub configuration: String,
    /// Names and addresses under which API servers ask: what the certificate is for.
    pub hosts: Vec<String>,
    /// How long a certificate is valid.
    pub lifetime: Duration,
    /// Whether contexts that are not sampled are injected as well.
    pub unsampled: bool,
    /// The cluster's kubeconfig.
    pub kubeconfig: Option<PathBuf>,
}

/// Answers reviews until SIGINT or SIGTERM.
///
/// # Errors
///
/// When there is no API server to be trusted by, or an address cannot be listened on.
pub async fn run(options: Options) -> Result<()> {
    let Options { address, listen, configuration, hosts, lifetime, unsampled, kubeconfig } = options;
    ensure!(
        lifetime >= SHORTEST_LIFE,
        "{lifetime:?} is too short a life for a certificate; give --certificate-lifetime {SHORTEST_LIFE:?} or more"
    );
    let config = api::config(kubeconfig).await?;
    let client = Client::try_from(config)
        .context("no connection to the API server can be made; check the kubeconfig")?;
    let certificate = Certificate::new(&hosts, lifetime)?;
    let registry = Registry::default();
    let (metrics, served) = (Metrics::new(&registry), Served::new(&certificate));
    metrics.set_expiry(certificate.expires);
    let health = Health::until("the API server has not got the certificate yet");
    let listener = status::bind(address).await?;
    if let Some(listen) = listen {
        status::start(listen, registry, health.clone(), axum::Router::new()).await?;
    }
    info!("reviews are answered at https://{}{}", listener.local_addr()?, server::PATH);
    let keeper = Keeper {
        api: Api::all(client),
        name: configuration,
        hosts,
        lifetime,
        served: served.clone(),
        metrics: metrics.clone(),
        health: health.clone(),
    };
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
    tokio::select! {
        served = server::serve(listener, served, router, metrics, stop) => served,
        kept = keeper.keep(certificate) => kept,
        () = living => Ok(()),
    }
}
