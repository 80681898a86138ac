//! What `explain` and `top` ask a running daemon.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Client, Response, StatusCode, Url};
use serde::de::DeserializeOwned;

/// How long a daemon may take to begin its answer, beyond what it is told to wait.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer: several times the longest that a daemon gives.
const MAX_BYTES: usize = 16 << 20;

/// Which daemon is asked.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Server {
    /// Where the daemon listens: what its --listen says
    #[arg(
        long,
        short,
        env = "SCHEDSPAN_SERVER",
        default_value = "http://127.0.0.1:9090",
        value_name = "URL"
    )]
    pub(super) server: String,
}

/// A connection to a daemon.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    client: Client,
    url: Url,
}

impl Daemon {
    pub(super) fn of(Server { server }: &Server) -> Result<Self> {
        // reqwest wants it chosen; where it is already, that choice stays.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let with_scheme = if server.contains("://") { server.clone() } else { format!("http://{server}") };
        let url: Url = with_scheme
            .parse()
            .with_context(|| format!("`{server}` is no URL; give --server http://HOST:PORT"))?;
        ensure!(
            ["http", "https"].contains(&url.scheme()),
            "`{server}` is no URL of HTTP; give --server http://HOST:PORT"
        );
        // A proxy of the environment is for other places.
        let client = Client::builder().no_proxy().build().context("cannot make an HTTP client")?;
        Ok(Self { client, url })
    }

    /// Asks, and waits for the answer, longer by `wait` than usual.
    ///
    /// # Errors
    ///
    /// When there is no daemon, it refuses, or it does not answer in time or in JSON.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        question: &[(&str, &str)],
        wait: Duration,
    ) -> Result<T> {
        let Self { client, url } = self;
        let mut address = url.join(path).context("the path is none")?;
        address.query_pairs_mut().extend_pairs(question);
        let answer = client.get(address).timeout(TIMEOUT + wait).send().await;
        let answer = answer.map_err(reqwest::Error::without_url).with_context(|| {
            format!(
                "cannot reach a daemon at {url}: start it with `schedspan run --listen {}`, or say where it is with --server",
                url.authority()
            )
        })?;
        let status = answer.status();
        let body = body(answer).await.with_context(|| format!("the answer of {url} broke off"))?;
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .with_context(|| format!("what answers at {url} is no schedspan, or one of another version")),
            StatusCode::NOT_FOUND => bail!("what answers at {url} is no schedspan, or an older one"),
            status => bail!("the daemon at {url} says {status}: {}", String::from_utf8_lossy(&body).trim()),
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
