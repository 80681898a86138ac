//! Connection to the API server.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use spans::text::sentence;

/// Field manager of schedspan's writes.
pub const FIELD_MANAGER: &str = "schedspan";
/// Timeout of a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this time the API server ends a watch, which begins again where it was: an API server that is silent, without a reset of its
/// connections, is noticed within a minute.
pub(crate) const WATCH_SECONDS: u32 = 20;
/// Timeout of the next bytes of a response: longer than a watch may be silent.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const _: () = assert!(READ_TIMEOUT.as_secs() > WATCH_SECONDS as u64);

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
