//! The daemon's answers to `schedspan explain` and `top`: on the loopback address unless another one is given.

mod debug;

use std::{net::SocketAddr, time::Duration};

use axum::{Router, routing::get};
use kube_scheduler::attempt_log::AttemptLog;
use status::only_by_address;
use telemetry::Counter;
use tokio::net::TcpListener;
use tracing::warn;

use crate::metrics::Metrics;

/// A request may wait for the next attempt for [`debug::MAX_WAIT`].
const CONNECTION_TIME: Duration = debug::MAX_WAIT.saturating_add(Duration::from_secs(60));
/// The value that switches the server off.
const OFF: &str = "off";

/// Options of the server.
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
pub struct Options {
    /// Answer `schedspan explain` and `top` on this address, or `off`
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

/// Serves `/debug/attempts` and `/debug/top` in the background, within a tokio runtime, until the process ends.
///
/// Tracing does not depend on it: when the address cannot be bound, as by the second daemon on a node's network, that is logged.
pub(crate) async fn start(address: SocketAddr, metrics: Metrics, history: AttemptLog, refused: Counter) {
    match TcpListener::bind(address).await {
        Ok(listener) => serve(listener, metrics, history, refused),
        Err(error) => warn!(
            "cannot listen on {address}: {error}; `schedspan explain` and `top` do not work with this daemon, unless --debug-listen names \
             another address"
        ),
    }
}

fn serve(listener: TcpListener, metrics: Metrics, history: AttemptLog, refused: Counter) {
    let routes = Router::new()
        .route("/debug/top", get(debug::top))
        .with_state(metrics)
        .route("/debug/attempts", get(debug::attempts))
        .with_state(history);
    // A name of another address is its operator's own choice.
    let local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let routes = if local { only_by_address(routes) } else { routes };
    status::spawn(listener, routes, CONNECTION_TIME, refused);
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::Ipv4Addr;

    use telemetry::Registry;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;

    pub(super) async fn serving(history: &AttemptLog, metrics: &Metrics) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let refused = Registry::default().counter("refused", "Refused");
        serve(listener, metrics.clone(), history.clone(), refused);
        address
    }

    pub(super) async fn get(address: SocketAddr, path: &str) -> String {
        ask(address, path, "localhost").await
    }

    async fn ask(address: SocketAddr, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn a_web_page_with_a_local_address_gets_nothing() {
        let server = serving(&AttemptLog::default(), &Metrics::default()).await;
        assert!(ask(server, "/debug/top", "localhost:9091").await.starts_with("HTTP/1.1 200"));
        assert!(ask(server, "/debug/top", "page.example:9091").await.starts_with("HTTP/1.1 421"));
    }

    #[tokio::test]
    async fn an_address_that_is_taken_is_no_error() {
        let taken = serving(&AttemptLog::default(), &Metrics::default()).await;
        let refused = Registry::default().counter("refused", "Refused");
        start(taken, Metrics::default(), AttemptLog::default(), refused).await;
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
