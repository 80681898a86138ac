//! A cluster that a kubeconfig names.

use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, ResourceExt as _,
    api::ListParams,
    client::UpgradeConnectionError,
    config::{KubeConfigOptions, Kubeconfig},
};
use spans::text::sentence;
use tokio::time::timeout;

use crate::Options;

/// Timeout of a connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request to the API server.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// Pods of a selector.
const MAX_PODS: u32 = 100;

/// Why no daemon of a cluster can be asked: the step that failed, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no kubeconfig, or it cannot be used.
    #[error(
        "no cluster is known: {0}; give --kubeconfig or --context, or --server URL for a daemon without a cluster"
    )]
    NoCluster(String),
    /// The API server does not let this user do it.
    #[error("forbidden: {what}; {next}")]
    Forbidden {
        /// Verb, resource and namespace.
        what: String,
        /// Who can change it.
        next: String,
    },
    /// The API server does not answer, or not as expected.
    #[error("cannot {what}: {reason}; {next}")]
    Api {
        /// The step.
        what: String,
        /// Why.
        reason: String,
        /// The next step.
        next: String,
    },
    /// There are no daemons.
    #[error(
        "no Pod of schedspan is in {place}: install it (docs/install.md), or name its namespace with --daemon-namespace"
    )]
    NoDaemon {
        /// Where they were looked for.
        place: String,
    },
    /// All daemons have their port switched off.
    #[error(
        "the Pod {pod} of schedspan has `--debug-listen off`: it cannot be asked; set `listen.debug` in the chart"
    )]
    SwitchedOff {
        /// One of them.
        pod: String,
    },
}

/// A cluster: a client of its API server, and the context's namespace.
#[derive(Clone)]
pub struct Cluster {
    /// The client. It has the rights of the kubeconfig's user.
    pub client: Client,
    /// Namespace of the kubeconfig's context, or `default`.
    pub namespace: String,
}

impl Cluster {
    /// The cluster of the kubeconfig, or within a Pod the one it is in.
    ///
    /// # Errors
    ///
    /// When there is none, or it has credentials that cannot be used.
    pub async fn of(options: &Options) -> Result<Self, Error> {
        // kube requires a default crypto provider. An error means that one is already installed.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let mut config = config(options).await.map_err(|error| Error::NoCluster(sentence(&*error)))?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // A stream may be silent; each request that is not one has a timeout of its own.
        config.read_timeout = None;
        // A write is sent once.
        config.default_retry = false;
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| Error::NoCluster(sentence(&error)))?;
        Ok(Self { client, namespace })
    }

    /// Namespaces and names of the Pods with these labels, in one namespace or in all; 100 at most.
    ///
    /// # Errors
    ///
    /// When they cannot be listed.
    pub async fn pods(
        &self,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<(String, String)>, Error> {
        let pods: Api<Pod> = match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let what = format!("list Pods in {}", namespace.unwrap_or("all namespaces"));
        let wanted = ListParams::default().labels(selector).limit(MAX_PODS);
        let list = in_time(pods.list_metadata(&wanted)).await.map_err(|error| of_step(&what, error))?;
        Ok(list.into_iter().map(|pod| (pod.namespace().unwrap_or_default(), pod.name_any())).collect())
    }
}

/// Awaits the answer of the API server, which is `None` if it does not come.
pub(crate) async fn in_time<T>(
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Option<kube::Error>> {
    match timeout(TIMEOUT, request).await {
        Ok(answer) => answer.map_err(Some),
        Err(_) => Err(None),
    }
}

pub(crate) fn of_step(what: &str, error: Option<kube::Error>) -> Error {
    match error {
        Some(error) => failed(what, &error),
        None => Error::Api {
            what: what.to_owned(),
            reason: format!("the API server does not answer within {} s", TIMEOUT.as_secs()),
            next: "try again, or check the kubeconfig's server".to_owned(),
        },
    }
}

async fn config(options: &Options) -> Result<Config, Box<dyn std::error::Error + Send + Sync>> {
    let Options { context, kubeconfig, server: _, daemon_namespace: _ } = options;
    if context.is_none() && kubeconfig.is_none() {
        return Ok(Config::infer().await?);
    }
    let kubeconfig = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path)?,
        None => Kubeconfig::read()?,
    };
    let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
    Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
}

/// The error of a request: `what` as a step, such as `list Pods in kube-system`.
pub(crate) fn failed(what: &str, error: &kube::Error) -> Error {
    let next = "check `kubectl auth whoami` and the kubeconfig".to_owned();
    match status(error) {
        Some(StatusCode::FORBIDDEN) => Error::Forbidden {
            what: what.to_owned(),
            next: "add this user to the chart's `rbac.users.subjects` (docs/kubectl.md)".to_owned(),
        },
        Some(StatusCode::UNAUTHORIZED) => Error::Api {
            what: what.to_owned(),
            reason: "the API server does not know this user".to_owned(),
            next,
        },
        Some(_) | None => Error::Api { what: what.to_owned(), reason: sentence(error), next },
    }
}

/// The HTTP status of an answer that is an error.
pub(crate) fn status(error: &kube::Error) -> Option<StatusCode> {
    let code = match error {
        kube::Error::Api(status) => status.code,
        kube::Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) => status.as_u16(),
        _ => return None,
    };
    StatusCode::from_u16(code).ok()
}
