//! Metrics and health of a schedspan process over HTTP.
//!
//! # Layout
//!
//! * [`Health`]: whether the process is alive and ready, as it reports itself.
//! * [`start`]: serves `/metrics`, `/healthz` and `/readyz`, and the routes that the caller adds.

#![forbid(unsafe_code)]

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    routing::get,
};
use telemetry::Registry;
use tokio::net::TcpListener;

/// A main loop runs several times a second. After this time without a turn it counts as hung.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// An address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {reason}; give another address to listen on")]
pub struct Error {
    address: SocketAddr,
    reason: io::Error,
}

/// Liveness and readiness of the process. Clones are handles of the same state.
#[derive(Clone, Debug)]
pub struct Health(Arc<Mutex<Signs>>);

#[derive(Debug)]
struct Signs {
    last_turn: Instant,
    ready: Result<(), String>,
}

impl Default for Health {
    /// Alive, and not ready until the first search for schedulers is complete.
    fn default() -> Self {
        Self::until("the first search for schedulers is not over")
    }
}

impl Health {
    /// Alive, and not ready for this reason.
    #[must_use]
    pub fn until(reason: &str) -> Self {
        let ready = Err(reason.to_owned());
        Self(Arc::new(Mutex::new(Signs { last_turn: Instant::now(), ready })))
    }

    /// Reports a turn of the main loop.
    pub fn alive(&self) {
        self.signs().last_turn = Instant::now();
    }

    /// Sets the readiness: `Ok`, or the reason in one line.
    pub fn set_ready(&self, ready: Result<(), String>) {
        self.signs().ready = ready;
    }

    fn live(&self) -> Result<(), String> {
        let silent = self.signs().last_turn.elapsed();
        if silent < STALLED_AFTER {
            Ok(())
        } else {
            Err(format!("the engine's loop has stood still for {silent:.0?}"))
        }
    }

    fn signs(&self) -> MutexGuard<'_, Signs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves `/metrics` with this registry, `/healthz`, `/readyz` and the routes of `more` in the background, within a tokio
/// runtime, until the process ends. Returns the address, with the port that a port of 0 became.
///
/// # Errors
///
/// When the address cannot be bound.
pub async fn start(
    address: SocketAddr,
    registry: Registry,
    health: Health,
    more: Router,
) -> Result<SocketAddr, Error> {
    let listener = bind(address).await?;
    let bound = listener.local_addr().map_err(|reason| Error { address, reason })?;
    let router = Router::new()
        .route("/metrics", get(async move || ([(CONTENT_TYPE, telemetry::CONTENT_TYPE)], registry.encode())))
        .route("/healthz", get(async |State(health): State<Health>| answer(health.live())))
        .route("/readyz", get(async |State(health): State<Health>| answer(health.signs().ready.clone())))
        .with_state(health);
    drop(tokio::spawn(axum::serve(listener, router.merge(more)).into_future()));
    Ok(bound)
}

/// Binds an address.
///
/// # Errors
///
/// When the address cannot be bound.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).await.map_err(|reason| Error { address, reason })
}

fn answer(state: Result<(), String>) -> (StatusCode, String) {
    match state {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn metrics_and_health_are_served() {
        let health = Health::default();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = start(local, Registry::default(), health.clone(), Router::new()).await.unwrap();

        let metrics = get(address, "/metrics").await;
        assert!(
            metrics.starts_with("HTTP/1.1 200") && metrics.contains(telemetry::CONTENT_TYPE),
            "{metrics}"
        );
        assert!(metrics.contains("schedspan_build_info{"), "{metrics}");

        let ready = get(address, "/readyz").await;
        assert!(ready.starts_with("HTTP/1.1 503") && ready.ends_with("is not over\n"), "{ready}");
        health.set_ready(Ok(()));
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));

        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        health.signs().last_turn -= STALLED_AFTER;
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 503"));
        health.alive();
        assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = start(local, Registry::default(), Health::default(), Router::new()).await.unwrap();
        let error = start(address, Registry::default(), Health::default(), Router::new())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(&address.to_string()) && error.contains("give another"), "{error}");
    }
}
