//! HTTP client of `explain` and `top` for a running daemon.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Client, Response, StatusCode, Url};
use serde::de::DeserializeOwned;

/// Time until the first byte of an answer, in addition to the requested wait.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest accepted answer: several times what a daemon sends.
const MAX_BYTES: usize = 16 << 20;

/// The daemon's address.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Server {
    /// Address of the daemon, as in its --debug-listen
    #[arg(
        long,
        short,
        env = "SCHEDSPAN_SERVER",
        default_value = "http://127.0.0.1:9091",
        value_name = "URL"
    )]
    pub(super) server: String,
}

/// HTTP client with the address of a daemon.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    client: Client,
    url: Url,
}

impl Daemon {
    pub(super) fn of(Server { server }: &Server) -> Result<Self> {
        // reqwest requires a default crypto provider. An error means that one is already installed.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let with_scheme = if server.contains("://") { server.clone() } else { format!("http://{server}") };
        let url: Url = with_scheme
            .parse()
            .with_context(|| format!("`{server}` is not a URL; give --server http://HOST:PORT"))?;
        ensure!(
            ["http", "https"].contains(&url.scheme()),
            "`{server}` is not an HTTP URL; give --server http://HOST:PORT"
        );
        // The daemon is local: ignore the proxy of the environment.
        let client = Client::builder().no_proxy().build().context("cannot make an HTTP client")?;
        Ok(Self { client, url })
    }

    /// Sends a query and returns the decoded answer. `wait` extends the timeout.
    ///
    /// # Errors
    ///
    /// When the daemon is not reachable, refuses the query, or does not answer in time with JSON.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        question: &[(&str, &str)],
        wait: Duration,
    ) -> Result<T> {
        let Self { client, url } = self;
        let mut address = url.join(path).context("the path is not valid")?;
        address.query_pairs_mut().extend_pairs(question);
        let answer = client.get(address).timeout(TIMEOUT + wait).send().await;
        let answer = answer.map_err(reqwest::Error::without_url).with_context(|| {
            format!(
                "cannot reach a daemon at {url}: start it with `schedspan run --debug-listen {}`, or say where it is with --server",
                url.authority()
            )
        })?;
        let status = answer.status();
        let body = body(answer).await.with_context(|| format!("the answer of {url} was cut off"))?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .with_context(|| format!("the server at {url} is not schedspan, or has another version")),
            StatusCode::NOT_FOUND => bail!("the server at {url} is not schedspan, or is older"),
            status => {
                bail!("the daemon at {url} answers {status}: {}", String::from_utf8_lossy(&body).trim())
            }
        }
    }
}

async fn body(mut answer: Response) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await? {
        ensure!(body.len() + part.len() <= MAX_BYTES, "it is longer than {MAX_BYTES} bytes");
        body.extend_from_slice(&part);
    }
    Ok(body)
}
