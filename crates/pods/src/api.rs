//! How the API server is reached.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use spans::text::sentence;

/// As whom schedspan writes to the API, where it does.
pub const FIELD_MANAGER: &str = "schedspan";
/// For the API server to accept a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For the next bytes of an answer: longer than a watch may be silent, which is 290 s and what the watcher adds.
/// <https://github.com/kube-rs/kube/blob/5.0.0/kube-runtime/src/watcher.rs>
const READ_TIMEOUT: Duration = Duration::from_secs(360);

/// Why the API server cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There was a file to be used, and it is of no use.
    #[error("cannot use the kubeconfig `{}`: {reason}; give the path of a valid one", path.display())]
    Kubeconfig {
        /// As it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing says where one is.
    #[error("no API server is known: {0}; give a kubeconfig")]
    NoServer(String),
}

/// How to reach the API server, for who must.
///
/// # Errors
///
/// If none is known, or the kubeconfig cannot be used.
pub async fn config(kubeconfig: Option<PathBuf>) -> Result<Config, Error> {
    let mut config = match kubeconfig {
        Some(path) => read(&path).await.map_err(|reason| Error::Kubeconfig { path, reason })?,
        None => Config::infer().await.map_err(|error| Error::NoServer(sentence(&error)))?,
    };
    // The watch asks again by itself, and says so when it must.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // A server that is gone without a word would be waited for, page of a list or not.
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    Ok(config)
}

async fn read(path: &Path) -> Result<Config, Box<dyn std::error::Error + Send + Sync>> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}
