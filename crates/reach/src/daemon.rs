//! HTTP to a daemon.

use std::{error::Error as StdError, iter, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context as _, Error, Result, bail, ensure};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _};
use http::{Request, Response, StatusCode, Uri, header::HOST, uri::Authority};
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    body::Body as HttpBody,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use kube::{Client, Config, client};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tokio::{sync::Mutex, time::timeout};
use tracing::{debug, instrument::WithSubscriber as _, subscriber::NoSubscriber};

use crate::{Cluster, find::Place, forward};

/// Time until the end of an answer, in addition to the requested wait.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest accepted answer: several times what a daemon sends.
const MAX_BYTES: usize = 16 << 20;

type BoxError = Box<dyn StdError + Send + Sync>;

/// The bytes of an answer, as they arrive.
pub type Body = Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>;

/// One daemon.
#[derive(Clone)]
pub struct Daemon(Arc<At>);

enum At {
    Url { client: Client, url: Uri },
    Pod { cluster: Cluster, place: Place, connection: Mutex<Option<SendRequest<Empty<Bytes>>>> },
}

impl Daemon {
    /// The daemon at a URL, or at `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// When that is not a URL.
    pub fn at(server: &str) -> Result<Self> {
        // kube requires a default crypto provider. An error means that one is already installed.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let with_scheme = if server.contains("://") { server.to_owned() } else { format!("http://{server}") };
        let url: Uri = with_scheme
            .parse()
            .with_context(|| format!("`{server}` is not a URL; give --server http://HOST:PORT"))?;
        ensure!(
            url.scheme_str().is_some_and(|scheme| ["http", "https"].contains(&scheme)),
            "`{server}` is not an HTTP URL; give --server http://HOST:PORT"
        );
        // The kubeconfig's client, without an account. It ignores the proxy of the environment, since the daemon is near.
        let mut config = Config::new(url.clone());
        config.default_retry = false;
        let client = Client::try_from(config).context("cannot make an HTTP client")?;
        Ok(Self(Arc::new(At::Url { client, url })))
    }

    /// The daemon in a Pod.
    #[must_use]
    pub fn in_pod(cluster: Cluster, place: Place) -> Self {
        Self(Arc::new(At::Pod { cluster, place, connection: Mutex::default() }))
    }

    /// Where it is, for people.
    #[must_use]
    pub fn place(&self) -> String {
        match &*self.0 {
            At::Url { url, .. } => url.to_string(),
            At::Pod { place, .. } => place.to_string(),
        }
    }

    /// Sends a query and returns the decoded answer. `wait` extends the timeout.
    ///
    /// # Errors
    ///
    /// When the daemon is not reachable, refuses the query, or does not answer in time with JSON.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        question: &[(&str, &str)],
        wait: Duration,
    ) -> Result<T> {
        let whole = async {
            let mut parts = self.open(path, question).await?;
            let mut body = Vec::new();
            while let Some(part) = parts.try_next().await? {
                ensure!(body.len() + part.len() <= MAX_BYTES, "its answer is longer than {MAX_BYTES} bytes");
                body.extend_from_slice(&part);
            }
            Ok(body)
        };
        let place = self.place();
        let body: Result<Vec<u8>> = timeout(TIMEOUT + wait, whole).await.with_context(|| {
            format!("the daemon at {place} does not answer within {} s", (TIMEOUT + wait).as_secs())
        })?;
        serde_json::from_slice(&body?)
            .with_context(|| format!("the server at {place} is not schedspan, or has another version"))
    }

    /// Sends a query and returns the answer as it arrives.
    ///
    /// # Errors
    ///
    /// When the daemon is not reachable, refuses the query, or does not begin to answer in time.
    pub async fn stream(&self, path: &str, question: &[(&str, &str)]) -> Result<Body> {
        let open = timeout(TIMEOUT, self.open(path, question)).await;
        open.with_context(|| {
            format!("the daemon at {} does not answer within {} s", self.place(), TIMEOUT.as_secs())
        })?
    }

    async fn open(&self, path: &str, question: &[(&str, &str)]) -> Result<Body> {
        let path = query(path, question);
        let (status, body) = match &*self.0 {
            At::Url { client, url } => from_url(client, url, &path).await?,
            At::Pod { cluster, place, connection } => {
                from_pod(cluster, place, &mut *connection.lock().await, &path).await?
            }
        };
        let place = self.place();
        match status {
            StatusCode::OK => Ok(body),
            StatusCode::NOT_FOUND => bail!("the server at {place} is not schedspan, or is older"),
            status => {
                let text = body.take(16).try_fold(Vec::new(), |mut text, part| async move {
                    text.extend_from_slice(&part);
                    Ok(text)
                });
                // What it says is a help only.
                let text = timeout(TIMEOUT, text).await.ok().and_then(Result::ok).unwrap_or_default();
                bail!("the daemon at {place} answers {status}: {}", String::from_utf8_lossy(&text).trim())
            }
        }
    }
}

fn query(path: &str, question: &[(&str, &str)]) -> String {
    let escaped = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
    let mut text = path.to_owned();
    for (mark, (key, value)) in iter::once('?').chain(iter::repeat('&')).zip(question) {
        text += &format!("{mark}{}={}", escaped(key), escaped(value));
    }
    text
}

async fn from_url(client: &Client, url: &Uri, path: &str) -> Result<(StatusCode, Body)> {
    let request = Request::get(path).body(client::Body::empty()).context("the path is not valid")?;
    // kube would log a failure as well, as an error that names nothing.
    let answer = client.send(request).with_subscriber(NoSubscriber::default()).await.with_context(|| {
        let address = url.authority().map_or("", Authority::as_str);
        format!(
            "cannot reach a daemon at {url}: start it with `schedspan run --debug-listen {address}`, say where it is with \
             --server, or name a cluster with --context"
        )
    })?;
    Ok(parts(answer, format!("the answer of {url} was cut off")))
}

/// Status and body of an answer.
fn parts<B>(answer: Response<B>, cut_off: String) -> (StatusCode, Body)
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (head, body) = answer.into_parts();
    let parts = body.into_data_stream().map_err(|error| Error::from_boxed(error.into()));
    (head.status, parts.map(move |part| part.context(cut_off.clone())).boxed())
}

async fn from_pod(
    cluster: &Cluster,
    place: &Place,
    connection: &mut Option<SendRequest<Empty<Bytes>>>,
    path: &str,
) -> Result<(StatusCode, Body)> {
    // The last answer may still arrive on it, as a stream does: then another connection is made.
    let mut sender = match connection.take().filter(SendRequest::is_ready) {
        Some(sender) => sender,
        None => {
            let far = forward::connect(cluster, place).await?;
            let (sender, connection) =
                http1::handshake(TokioIo::new(far)).await.context("cannot speak HTTP")?;
            tokio::spawn(async {
                if let Err(error) = connection.await {
                    debug!("the connection to a daemon ends: {error}");
                }
            });
            sender
        }
    };
    let request =
        Request::get(path).header(HOST, "localhost").body(Empty::new()).context("the path is not valid")?;
    let answer = sender.send_request(request).await.with_context(|| {
        format!(
            "the daemon in {place} does not listen on port {}: see its log and --debug-listen",
            place.port
        )
    })?;
    *connection = Some(sender);
    Ok(parts(answer, format!("the answer of {place} was cut off")))
}

#[cfg(test)]
mod tests {
    use axum::{Router, extract::RawQuery, routing::get};
    use tokio::net::TcpListener;

    use super::*;

    async fn server() -> String {
        let routes = Router::new()
            .route(
                "/echo",
                get(|RawQuery(query): RawQuery| async move { format!("{:?}", query.unwrap_or_default()) }),
            )
            .route("/long", get(|| async { vec![b' '; MAX_BYTES + 1] }))
            .route("/bad", get(|| async { (StatusCode::BAD_REQUEST, "`-` is not a name\n") }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async { axum::serve(listener, routes).await });
        address
    }

    #[tokio::test]
    async fn a_question_is_escaped_and_its_answer_decoded() {
        let daemon = Daemon::at(&server().await).unwrap();
        let answer: String = daemon.ask("/echo", &[("pod", "a&b=c d")], Duration::ZERO).await.unwrap();
        assert_eq!(answer, "pod=a%26b%3Dc%20d");
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_or_a_refusal_is_an_error() {
        let daemon = Daemon::at(&server().await).unwrap();
        let error = daemon.ask::<String>("/long", &[], Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
        let error = daemon.ask::<String>("/bad", &[], Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains("400 Bad Request: `-` is not a name"), "{error}");
        let error = daemon.ask::<String>("/none", &[], Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains("is older"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_with_the_next_step() {
        let error =
            Daemon::at("127.0.0.1:1").unwrap().ask::<String>("/", &[], Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains("--debug-listen 127.0.0.1:1"), "{error}");
        assert!(Daemon::at("ftp://x").is_err() && Daemon::at("http://").is_err());
    }
}
