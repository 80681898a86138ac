//! What stands between schedspan and a Collector: a limit of requests, and a proxy.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::mpsc,
};

/// Most bytes of a request to a proxy.
const MAX_HEAD: usize = 8 << 10;

/// How a limit asks for a pause.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asks {
    /// gRPC: `RESOURCE_EXHAUSTED` with RetryInfo.
    RetryInfo,
    /// HTTP: 429 with `Retry-After` in seconds.
    Seconds,
    /// HTTP: 503 with `Retry-After` as a date.
    Date,
}

impl Asks {
    /// An answer that asks for a pause from now on, and when that is over.
    fn answer(self, pause: Duration) -> (Response<Empty<Bytes>>, SystemTime) {
        let mut over = SystemTime::now() + pause;
        let answer = match self {
            Self::RetryInfo => Response::builder()
                .header("content-type", "application/grpc")
                .header("grpc-status", "8")
                .header("grpc-message", "slow down")
                .header("grpc-status-details-bin", BASE64_STANDARD.encode(retry_info(pause))),
            Self::Seconds => Response::builder().status(429).header("retry-after", pause.as_secs()),
            Self::Date => {
                let date = httpdate::HttpDate::from(over);
                // It has no fractions of a second.
                over = date.into();
                Response::builder().status(503).header("retry-after", date.to_string())
            }
        };
        (answer.body(Empty::new()).expect("the headers are valid"), over)
    }
}

/// `google.rpc.Status` with RetryInfo of whole seconds, as protobuf.
fn retry_info(pause: Duration) -> Vec<u8> {
    /// A field with bytes: its number, and fewer than 128 bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }
    let seconds = [1 << 3, pause.as_secs() as u8];
    let any = [field(1, b"type.googleapis.com/google.rpc.RetryInfo"), field(2, &field(1, &seconds))];
    field(3, &any.concat())
}

/// Refuses the first requests, and connects all later ones with a Collector. Runs until it is dropped.
pub(super) struct Limit {
    pub(super) port: u16,
    refused: Arc<Mutex<Vec<Refused>>>,
    _runtime: Runtime,
}

/// A request that was refused.
struct Refused {
    asks: Asks,
    /// The end of the pause that was asked for.
    over: SystemTime,
    /// When the next request came.
    next: Option<SystemTime>,
}

impl Limit {
    /// Starts one before a Collector's port: it asks for these pauses of so many seconds.
    pub(super) fn start(to: u16, asks: &'static [Asks], pause: Duration) -> Result<Self> {
        let runtime = Runtime::new()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        let refused = Arc::<Mutex<Vec<Refused>>>::default();
        let all = Arc::clone(&refused);
        runtime.spawn(async move {
            let mut asks = asks.iter();
            while let Ok((stream, _)) = listener.accept().await {
                {
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(last) = all.last_mut() {
                        last.next.get_or_insert_with(SystemTime::now);
                    }
                }
                match asks.next() {
                    Some(&asks) => {
                        let over = refuse(stream, asks, pause).await;
                        let refused = over.map(|over| Refused { asks, over, next: None });
                        all.lock().unwrap_or_else(PoisonError::into_inner).extend(refused);
                    }
                    None => drop(tokio::spawn(connect(stream, to))),
                }
            }
        });
        Ok(Self { port, refused, _runtime: runtime })
    }

    /// Checks that so many requests were refused, and that none came before its pause was over.
    pub(super) fn was_respected(&self, count: usize) -> Result<()> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(refused.len() == count, "{} requests were refused instead of {count}", refused.len());
        for Refused { asks, over, next } in &*refused {
            ensure!(
                next.is_some_and(|next| next >= *over),
                "asked for a pause ({asks:?}), a request came too early"
            );
        }
        Ok(())
    }
}

/// Refuses one request, and closes its connection. Returns when the pause is over; `None` if there was no request.
async fn refuse(stream: TcpStream, asks: Asks, pause: Duration) -> Option<SystemTime> {
    let (sender, mut refused) = mpsc::unbounded_channel();
    let service = service_fn(move |request: Request<Incoming>| {
        let sender = sender.clone();
        async move {
            // Of a request that breaks off, the rest does not matter.
            let _ = request.into_body().collect().await;
            let (answer, over) = asks.answer(pause);
            // The other end waits for it.
            let _ = sender.send(over);
            Ok::<_, Infallible>(answer)
        }
    });
    let stream = TokioIo::new(stream);
    // The client notices where a connection fails.
    match asks {
        Asks::Seconds | Asks::Date => {
            let _ = http1::Builder::new().keep_alive(false).serve_connection(stream, service).await;
            refused.recv().await
        }
        Asks::RetryInfo => {
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service);
            let mut connection = pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => None,
                over = refused.recv() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                    over
                }
            }
        }
    }
}

/// Connects a client with a port.
async fn connect(mut from: TcpStream, port: u16) {
    if let Ok(mut to) = TcpStream::connect(("127.0.0.1", port)).await {
        // A connection that breaks is noticed at both ends.
        let _ = copy_bidirectional(&mut from, &mut to).await;
    }
}

/// A proxy that wants [`CREDENTIALS`], and knows each name as this machine's. Runs until it is dropped.
pub(super) struct Proxy {
    port: u16,
    /// Where it was asked to connect to, as `host:port`.
    asked: Arc<Mutex<Vec<String>>>,
    _runtime: Runtime,
}

/// What a client has to say.
const CREDENTIALS: &str = "me:se cret";

impl Proxy {
    pub(super) fn start() -> Result<Self> {
        let runtime = Runtime::new()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let all = Arc::clone(&asked);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(proxy(stream, Arc::clone(&all)));
            }
        });
        Ok(Self { port, asked, _runtime: runtime })
    }

    /// Its URL with these credentials.
    pub(super) fn url(&self, credentials: &str) -> String {
        format!("http://{credentials}@127.0.0.1:{}", self.port)
    }

    /// Where it has connected clients to since the last call.
    pub(super) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Serves a client of the proxy.
async fn proxy(mut stream: TcpStream, asked: Arc<Mutex<Vec<String>>>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok().filter(|_| head.len() < MAX_HEAD)?);
    }
    let head = String::from_utf8(head).ok()?;
    let (to, _) = head.strip_prefix("CONNECT ")?.split_once(' ')?;
    let (_, port) = to.rsplit_once(':')?;
    let expected = format!("Basic {}", BASE64_STANDARD.encode(CREDENTIALS));
    let said = head.lines().filter_map(|line| line.split_once(": "));
    if !said
        .into_iter()
        .any(|(name, value)| name.eq_ignore_ascii_case("proxy-authorization") && value == expected)
    {
        return stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.ok();
    }
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(to.to_owned());
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
    connect(stream, port.parse().ok()?).await;
    Some(())
}
