//! The daemon's web server: metrics, health, and the answers to `schedspan explain` and `top`. Off unless an address is
//! given.

mod debug;

use std::net::SocketAddr;

use axum::{Router, routing::get};
use status::{Error, Health};

use kube_scheduler::attempt_log::AttemptLog;

use crate::metrics::Metrics;

/// Serves `/metrics`, `/healthz`, `/readyz`, `/debug/attempts` and `/debug/top` in the background, within a tokio
/// runtime, until the process ends. Returns the bound address, with the actual port if 0 was given.
///
/// # Errors
///
/// When the address cannot be bound.
pub async fn start(
    address: SocketAddr,
    metrics: Metrics,
    health: Health,
    history: AttemptLog,
) -> Result<SocketAddr, Error> {
    let registry = metrics.registry.clone();
    let debug = Router::new()
        .route("/debug/top", get(debug::top))
        .with_state(metrics)
        .route("/debug/attempts", get(debug::attempts))
        .with_state(history);
    status::start(address, registry, health, debug).await
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    pub(super) async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn the_daemons_metrics_are_served() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let address =
            start(local, Metrics::default(), Health::default(), AttemptLog::default()).await.unwrap();
        let metrics = get(address, "/metrics").await;
        assert!(metrics.contains("schedspan_losses_total{cause=\"ring_full\"} 0"), "{metrics}");
    }
}
