//! Connection to the API server.

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{Request, Response, StatusCode};
use futures::{Stream, StreamExt as _};
use kube::{
    Api, Client, Config, Resource,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use spans::{text::sentence, wakeups};
use tower::service_fn;
use tracing::debug;

/// Field manager of schedspan's writes.
pub const FIELD_MANAGER: &str = "schedspan";
/// Timeout of a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this time the API server ends a watch, which begins again where it was: an API server that is silent, without a reset of its
/// connections, is noticed within a minute.
const WATCH_SECONDS: u32 = 20;
/// Pods in a page of a list. Three copies of a page are in memory at once, and a Pod may have 20 kB.
const PAGE: u32 = 100;
/// Timeout of the next bytes of a response: longer than a watch may be silent.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const _: () = assert!(READ_TIMEOUT.as_secs() > WATCH_SECONDS as u64);
/// Least time between two readings of the configuration.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// Lists and watches the objects that these fields select, or all of them.
pub(crate) fn watch<K>(
    objects: Api<K>,
    fields: Option<&str>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut config = watcher::Config::default().page_size(PAGE).timeout(WATCH_SECONDS);
    config.field_selector = fields.map(str::to_owned);
    // A list comes in many parts, of which none is to wait.
    let mut listing = None;
    watcher(objects, config).default_backoff().inspect(move |event| match event {
        Ok(Event::Init) => listing = Some(wakeups::unthrottled()),
        Ok(Event::InitDone) | Err(_) => drop(listing.take()),
        Ok(Event::Apply(_) | Event::Delete(_) | Event::InitApply(_)) => {}
    })
}

/// Why the API server cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The given kubeconfig is not valid.
    #[error("cannot use the kubeconfig `{}`: {reason}; give the path of a valid one", path.display())]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// Why.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no configuration of a cluster.
    #[error("no API server is known: {0}; give a kubeconfig")]
    NoServer(String),
    /// The configuration has a certificate or a key that cannot be used.
    #[error("no connection to {url} can be made: {reason}; check the kubeconfig")]
    Client {
        /// The API server's.
        url: String,
        /// Why.
        reason: String,
    },
}

/// A client, and the URL of its API server.
///
/// When a request fails without an answer, or with 401 Unauthorized, the client reads its configuration again for the next
/// request: certificates, authorities and tokens are renewed while the daemon runs, and kube reads most of them once.
///
/// # Errors
///
/// When no API server is known, or the configuration cannot be used.
pub async fn client(kubeconfig: Option<PathBuf>) -> Result<(Client, String), Error> {
    let config = config(kubeconfig.clone()).await?;
    let (url, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
    let first = connect(config)?;
    let renewing = Arc::new(Renewing { kubeconfig, state: Mutex::new((first, None)) });
    let service = service_fn(move |request| {
        let renewing = Arc::clone(&renewing);
        async move { renewing.send(request).await }
    });
    Ok((Client::new(service, namespace), url))
}

/// A client that is replaced when its configuration may be out of date.
struct Renewing {
    kubeconfig: Option<PathBuf>,
    /// The client, and when its configuration was last read again.
    state: Mutex<(Client, Option<Instant>)>,
}

impl Renewing {
    async fn send(&self, request: Request<Body>) -> kube::Result<Response<Body>> {
        let client = self.state().0.clone();
        // A connection takes some round trips, of which none is to wait.
        let result = wakeups::at_once(client.send(request)).await;
        let outdated = result.as_ref().map_or(true, |response| response.status() == StatusCode::UNAUTHORIZED);
        if outdated && self.is_due() {
            self.renew().await;
        }
        result
    }

    /// Whether the configuration may be read again. Says so to one request only.
    fn is_due(&self) -> bool {
        let last = &mut self.state().1;
        let due = last.is_none_or(|last| last.elapsed() >= RENEWAL_INTERVAL);
        if due {
            *last = Some(Instant::now());
        }
        due
    }

    fn state(&self) -> MutexGuard<'_, (Client, Option<Instant>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn renew(&self) {
        match config(self.kubeconfig.clone()).await.and_then(connect) {
            Ok(client) => self.state().0 = client,
            // It may be half written. Who sent the request reports that it failed.
            Err(error) => debug!("cannot read the configuration of the API server again: {error}"),
        }
    }
}

pub(crate) fn connect(config: Config) -> Result<Client, Error> {
    let url = config.cluster_url.to_string();
    Client::try_from(config).map_err(|error| Error::Client { url, reason: sentence(&error) })
}

/// The configuration of a client, from a kubeconfig or else from the environment.
///
/// # Errors
///
/// When no API server is known, or the kubeconfig cannot be used.
pub async fn config(kubeconfig: Option<PathBuf>) -> Result<Config, Error> {
    let mut config = match kubeconfig {
        Some(path) => read(&path).await.map_err(|reason| Error::Kubeconfig { path, reason })?,
        None => Config::infer().await.map_err(|error| Error::NoServer(sentence(&error)))?,
    };
    // The watch retries by itself, and logs it.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Without a timeout a request to a vanished server would never end.
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    Ok(config)
}

async fn read(path: &Path) -> Result<Config, Box<dyn std::error::Error + Send + Sync>> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use axum::{Router, http::HeaderMap, routing::get};
    use tokio::net::TcpListener;

    use super::*;

    /// A kubeconfig with a token, in a file of its own.
    struct File(PathBuf);

    impl File {
        fn write(&self, server: &str, token: &str) {
            let kubeconfig = format!(
                "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{server}'}}}}], \
                 users: [{{name: u, user: {{token: {token}}}}}], contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
            );
            fs::write(&self.0, kubeconfig).unwrap();
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[tokio::test]
    async fn a_renewed_token_is_read_when_the_old_one_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let answer = |headers: HeaderMap| async move {
            let renewed = headers.get("authorization").is_some_and(|value| value == "Bearer new");
            if renewed { (StatusCode::OK, "{}") } else { (StatusCode::UNAUTHORIZED, "{}") }
        };
        tokio::spawn(axum::serve(listener, Router::new().route("/version", get(answer))).into_future());
        let file = File(env::temp_dir().join(format!("renewed-{}.kubeconfig", process::id())));
        file.write(&server, "old");
        let (client, url) = client(Some(file.0.clone())).await.unwrap();
        assert_eq!(url.trim_end_matches('/'), server);
        let ask = async || {
            let request = Request::get("/version").body(Body::empty()).unwrap();
            client.send(request).await.unwrap().status()
        };
        file.write(&server, "new");
        assert_eq!(ask().await, StatusCode::UNAUTHORIZED);
        assert_eq!(ask().await, StatusCode::OK);
        // A token that is refused again is not read for each request.
        file.write(&server, "other");
        assert_eq!(ask().await, StatusCode::OK);
    }

    /// With two cryptography providers in the build, rustls knows no default, and a client by TLS panics.
    #[tokio::test]
    async fn the_build_has_one_cryptography_provider() {
        let config = Config::new("https://127.0.0.1".parse().unwrap());
        let _maybe_without_system_certificates = connect(config);
    }
}
