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

    use proptest::{collection::vec, prelude::*, sample::select};
    use telemetry::Registry;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
        runtime::Builder,
    };

    use super::*;

    /// Parts of a query, and bytes that belong in none.
    const PARTS: [&[u8]; 12] = [
        b"namespace=",
        b"pod=",
        b"a",
        b"&",
        b"=",
        b"%41",
        b"%",
        b"&wait=-1",
        b"&wait=99999999999999999999",
        b"..",
        b"\x1b[",
        b"\xff",
    ];

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
        stream.write_all(&request(path.as_bytes(), host)).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    fn request(path: &[u8], host: &str) -> Vec<u8> {
        let rest = format!(" HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        [b"GET ", path, rest.as_bytes()].concat()
    }

    /// The response to bytes that may be no request: none is expected after them.
    async fn send(address: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // A server that has refused the first bytes need not take the rest.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response).await;
        String::from_utf8(response).unwrap()
    }

    proptest! {
        #[test]
        fn no_bytes_of_a_request_make_the_server_fail(
            query in vec(select(&PARTS[..]), 0..12),
            damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut request = request(&[&b"/debug/attempts?"[..], &query.concat()].concat(), "localhost");
            for (at, byte) in damage {
                let at = at.index(request.len());
                request[at] = byte;
            }
            Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                let server = serving(&AttemptLog::new(1), &Metrics::default()).await;
                let response = send(server, &request).await;
                // A request that is cut gets none.
                prop_assert!(["", "HTTP/1.1 2", "HTTP/1.1 4"].contains(&&response[..response.len().min(10)]), "{response}");
                prop_assert!(get(server, "/debug/top").await.starts_with("HTTP/1.1 200"));
                Ok(())
            })?;
        }
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
