//! The server of `/api/v1` and of the page: on the loopback address unless another one is given.

use std::{net::SocketAddr, time::Duration};

use api::Daemon;
use status::only_by_address;
use telemetry::Counter;
use tokio::net::TcpListener;
use tracing::warn;

/// A request may wait for the next attempt for [`api::MAX_WAIT`].
const CONNECTION_TIME: Duration = api::MAX_WAIT.saturating_add(Duration::from_secs(60));
/// The value that switches the server off.
const OFF: &str = "off";

/// Options of the server.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// Serve the page, and what `schedspan explain`, `queue` and `top` ask, on this address, or `off`
    ///
    /// A client that reaches the address sees the names of Pods, and why they are where they are. On the loopback address these are the processes
    /// of the Pod, or of the node with its network, and users who may forward ports or run commands in the Pod.
    #[arg(long, default_value = "127.0.0.1:9091", value_name = "ADDRESS:PORT", value_parser = address)]
    debug_listen: Address,
}

#[derive(Clone, Copy, Debug)]
struct Address(Option<SocketAddr>);

impl Options {
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.debug_listen.0
    }
}

fn address(text: &str) -> Result<Address, String> {
    if text == OFF {
        return Ok(Address(None));
    }
    text.parse().map(|address| Address(Some(address))).map_err(|_| {
        format!("an address and a port are needed, such as 127.0.0.1:9091 or [::1]:9091, or `{OFF}`")
    })
}

/// Serves `/api/v1` in the background, within a tokio runtime, until the process ends.
///
/// Tracing does not depend on it: when the address cannot be bound, as by the second daemon on a node's network, that is logged.
pub(crate) async fn start(address: SocketAddr, daemon: &Daemon, refused: Counter) {
    match TcpListener::bind(address).await {
        Ok(listener) => serve(listener, daemon, refused),
        Err(error) => warn!(
            "cannot listen on {address}: {error}; `schedspan explain` and `top` do not work with this daemon, unless --debug-listen names \
             another address"
        ),
    }
}

fn serve(listener: TcpListener, daemon: &Daemon, refused: Counter) {
    let routes = api::promptly(page::router(daemon).merge(api::router(daemon)));
    // A name of another address is its operator's own choice.
    let local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let routes = if local { only_by_address(routes) } else { routes };
    status::spawn(listener, routes, CONNECTION_TIME, refused);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use kube_scheduler::attempt_log::AttemptLog;
    use proptest::{collection::vec, prelude::*, sample::select};
    use telemetry::Registry;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
        runtime::Builder,
    };

    use super::*;
    use crate::metrics::Metrics;

    /// Paths of all servers of the daemon, and one of none.
    const PATHS: [&str; 18] = [
        "/api/v1/attempts",
        "/api/v1/queue",
        "/api/v1/top",
        "/api/v1/traces",
        "/api/v1/recent",
        "/api/v1/pending",
        "/api/v1/plugins",
        "/api/v1/changes",
        "/api/v1/health",
        "/",
        "/attempts",
        "/pod",
        "/pod/default/web",
        "/plugins",
        "/health",
        "/metrics",
        "/readyz",
        "/nothing",
    ];
    /// Parts of a query, and bytes that belong in none.
    const PARTS: [&[u8]; 18] = [
        b"namespace=",
        b"pod=",
        b"keep=",
        b"slower-than=",
        b"failed",
        b"traceidratio=",
        b"a",
        b"0",
        b"&",
        b"=",
        b",",
        b"%41",
        b"%",
        b"&wait=-1",
        b"&wait=99999999999999999999",
        b"..",
        b"\x1b[",
        b"\xff",
    ];

    /// Length of `HTTP/1.1 200`.
    const STATUS: usize = 12;

    fn daemon() -> Daemon {
        let history = AttemptLog::new(1);
        Metrics::default().daemon(
            history,
            api::health::Targets::default(),
            Default::default(),
            Default::default(),
        )
    }

    async fn serving() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, &daemon(), Registry::default().counter("refused", "Refused"));
        address
    }

    /// An address that is free now.
    fn free() -> SocketAddr {
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        ask(address, path, "localhost").await
    }

    async fn ask(address: SocketAddr, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&request(path.as_bytes(), host)).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    fn request(path: &[u8], host: &str) -> Vec<u8> {
        let rest = format!(" HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        [b"GET ", path, rest.as_bytes()].concat()
    }

    /// The status line of the response to bytes that may be no request: none is expected after them.
    async fn send(address: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // A server that has refused the first bytes need not take the rest.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut response = Vec::new();
        // A stream of events has no end.
        let _ = stream.take(STATUS as u64).read_to_end(&mut response).await;
        String::from_utf8(response).unwrap()
    }

    /// Whether a server answers, in its version of HTTP, and does not fail. A request that is cut gets no answer, and there are only so many streams.
    fn is_answer(path: &str, response: &str) -> bool {
        let status = response.strip_prefix("HTTP/1.1 ").or_else(|| response.strip_prefix("HTTP/1.0 "));
        let is_full = ["/api/v1/traces", "/api/v1/changes"].contains(&path) && status == Some("503");
        response.is_empty() || is_full || status.is_some_and(|status| status.starts_with(['2', '3', '4']))
    }

    #[test]
    fn no_bytes_of_a_request_make_a_server_fail() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let health = status::Health::default();
        health.set_ready(Ok(()));
        let servers = runtime.block_on(async {
            let (metrics_listen, health_listen) = (free(), free());
            let options =
                status::Options { metrics_listen: Some(metrics_listen), health_listen: Some(health_listen) };
            status::start(options, Registry::default(), health.clone()).await.unwrap();
            [(serving().await, "/api/v1/top"), (metrics_listen, "/metrics"), (health_listen, "/healthz")]
        });
        proptest!(|(
            path in select(&PATHS[..]),
            query in vec(select(&PARTS[..]), 0..12),
            damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        )| {
            let mut request = request(&[path.as_bytes(), b"?", &query.concat()].concat(), "localhost");
            for (at, byte) in damage {
                let at = at.index(request.len());
                request[at] = byte;
            }
            health.alive();
            runtime.block_on(async {
                for (server, known) in servers {
                    let response = send(server, &request).await;
                    prop_assert!(is_answer(path, &response), "{response}");
                    prop_assert!(get(server, known).await.starts_with("HTTP/1.1 200"));
                }
                Ok(())
            })?;
        });
    }

    #[tokio::test]
    async fn a_web_page_with_a_local_address_gets_nothing() {
        let server = serving().await;
        assert!(ask(server, "/api/v1/top", "localhost:9091").await.starts_with("HTTP/1.1 200"));
        assert!(ask(server, "/api/v1/top", "page.example:9091").await.starts_with("HTTP/1.1 421"));
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_no_error() {
        let taken = serving().await;
        let refused = Registry::default().counter("refused", "Refused");
        start(taken, &daemon(), refused).await;
    }

    #[test]
    fn an_address_is_one_or_off() {
        assert_eq!(address(OFF).unwrap().0, None);
        assert_eq!(address("[::1]:80").unwrap().0, Some("[::1]:80".parse().unwrap()));
        for bad in ["", "127.0.0.1", ":9091", "localhost:9091"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
