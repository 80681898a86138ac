//! Metrics and health of a schedspan process over HTTP.
//!
//! # Layout
//!
//! * [`Health`]: whether the process is alive and ready, as it reports itself.
//! * [`Options`], [`start`]: the addresses at which `/metrics`, and `/healthz` and `/readyz` are served.
//! * [`Server`]: serves a router within [`Limits`].
//! * [`only_by_address`]: routes that no web page may ask.

#![forbid(unsafe_code)]

mod server;

use std::{
    future::pending,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{
        StatusCode,
        header::{CONTENT_TYPE, HOST},
        uri::Authority,
    },
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
    routing::get,
};
use telemetry::{Counter, Registry};
use tokio::net::TcpListener;

pub use self::server::{Limits, Server};

/// A main loop runs several times a second. After this time without a turn it counts as hung.
const STALLED_AFTER: Duration = Duration::from_secs(10);

/// Of the servers for metrics, for health and for debugging. A scrape and a probe take milliseconds; a kubelet and a few Prometheus
/// servers have some ten connections.
const LIMITS: Limits = Limits {
    connections: 64,
    per_peer: 16,
    header_bytes: 8 << 10,
    header_time: Duration::from_secs(5),
    connection_time: Duration::from_secs(60),
    // Several lists of all that is remembered.
    answer_bytes: 32 << 20,
};

/// Addresses of metrics and health.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
#[group(skip)]
pub struct Options {
    /// Serve /metrics on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<SocketAddr>,
    /// Serve /healthz and /readyz on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub health_listen: Option<SocketAddr>,
}

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

    fn router(self) -> Router {
        Router::new()
            .route("/healthz", get(async |State(health): State<Self>| answer(health.live())))
            .route("/readyz", get(async |State(health): State<Self>| answer(health.ready())))
            .with_state(self)
    }

    /// Whether the process is ready, or why not. What is hung is not ready.
    ///
    /// # Errors
    ///
    /// The reason, in one line.
    pub fn ready(&self) -> Result<(), String> {
        self.live()?;
        self.signs().ready.clone()
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

/// Serves `/metrics` with this registry, and `/healthz` and `/readyz`, each at its address, in the background, within a tokio runtime, until
/// the process ends. Returns what counts refused connections, for further servers.
///
/// # Errors
///
/// When an address cannot be bound.
pub async fn start(options: Options, registry: Registry, health: Health) -> Result<Counter, Error> {
    let Options { metrics_listen, health_listen } = options;
    let refused = refused(&registry);
    if let Some(address) = health_listen {
        spawn(bind(address).await?, health.router(), LIMITS.connection_time, refused.clone());
    }
    if let Some(address) = metrics_listen {
        let answer = async move || ([(CONTENT_TYPE, telemetry::CONTENT_TYPE)], registry.encode());
        let router = Router::new().route("/metrics", get(answer));
        spawn(bind(address).await?, router, LIMITS.connection_time, refused.clone());
    }
    Ok(refused)
}

/// Registers the counter of refused connections.
pub fn refused(registry: &Registry) -> Counter {
    registry.counter(
        "connections_refused",
        "Connections to the servers for metrics, health and debugging that were closed because there were too many, and answers that had no room",
    )
}

/// Serves a router in the background, within a tokio runtime, until the process ends. Connections have this much time.
pub fn spawn(listener: TcpListener, router: Router, connection_time: Duration, refused: Counter) {
    let server = Server { limits: Limits { connection_time, ..LIMITS }, tls: None, refused };
    tokio::spawn(server.serve(listener, router, pending()));
}

/// Refuses requests whose `Host` is a name other than `localhost`.
///
/// A page in a browser can give its own name a local address, and then read the answers as its own (DNS rebinding).
pub fn only_by_address(router: Router) -> Router {
    router.layer(from_fn(async |request: Request, next: Next| -> Response {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if is_address(host) {
            return next.run(request).await;
        }
        let why = "this is served under an address or `localhost` only\n";
        (StatusCode::MISDIRECTED_REQUEST, why).into_response()
    }))
}

fn is_address(host: &str) -> bool {
    host.parse::<Authority>().is_ok_and(|authority| {
        let host = authority.host();
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
    })
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

    async fn get(address: SocketAddr, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    /// An address that is free now.
    fn free() -> SocketAddr {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[tokio::test]
    async fn metrics_and_health_are_served_apart() {
        let health = Health::default();
        let (metrics_at, health_at) = (free(), free());
        let options = Options { metrics_listen: Some(metrics_at), health_listen: Some(health_at) };
        start(options, Registry::default(), health.clone()).await.unwrap();

        let metrics = get(metrics_at, "/metrics", "x").await;
        assert!(
            metrics.starts_with("HTTP/1.1 200") && metrics.contains(telemetry::CONTENT_TYPE),
            "{metrics}"
        );
        assert!(metrics.contains("schedspan_build_info{"), "{metrics}");
        for (address, path) in [(metrics_at, "/healthz"), (metrics_at, "/readyz"), (health_at, "/metrics")] {
            assert!(get(address, path, "x").await.starts_with("HTTP/1.1 404"), "{path}");
        }

        let ready = get(health_at, "/readyz", "x").await;
        assert!(ready.starts_with("HTTP/1.1 503") && ready.ends_with("is not over\n"), "{ready}");
        health.set_ready(Ok(()));
        assert!(get(health_at, "/readyz", "x").await.starts_with("HTTP/1.1 200"));

        assert!(get(health_at, "/healthz", "x").await.starts_with("HTTP/1.1 200"));
        health.signs().last_turn -= STALLED_AFTER;
        assert!(get(health_at, "/healthz", "x").await.starts_with("HTTP/1.1 503"));
        assert!(get(health_at, "/readyz", "x").await.starts_with("HTTP/1.1 503"), "hung and ready");
        health.alive();
        assert!(get(health_at, "/healthz", "x").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let address = free();
        let options = Options { health_listen: Some(address), ..Options::default() };
        start(options, Registry::default(), Health::default()).await.unwrap();
        let error = start(options, Registry::default(), Health::default()).await.unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("give another"), "{error}");
    }

    #[tokio::test]
    async fn names_that_anybody_can_point_here_are_refused() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", axum::routing::get(async || "secret"));
        let refused = Registry::default().counter("refused", "Refused");
        spawn(listener, only_by_address(router), LIMITS.connection_time, refused);
        for host in ["127.0.0.1", "127.0.0.1:9091", "localhost", "LocalHost:80", "[::1]:9091", "10.0.0.7"] {
            assert!(get(address, "/", host).await.ends_with("secret"), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9091",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "[::1",
        ] {
            let response = get(address, "/", host).await;
            assert!(!response.contains("secret") && response.starts_with("HTTP/1.1 4"), "{host}: {response}");
        }
    }
}
