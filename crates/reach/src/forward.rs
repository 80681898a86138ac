//! Connections to a port of a Pod, through the API server.

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional},
    net::TcpListener,
    sync::Semaphore,
    time::timeout,
};
use tracing::debug;

use crate::{
    Cluster, Error, Fleet,
    cluster::{TIMEOUT, failed, status},
    find::Place,
};

/// Most connections that are forwarded at once; further ones wait. A browser has six.
const MAX_CONNECTIONS: usize = 64;

/// Connects to the port of a daemon.
///
/// # Errors
///
/// When the API server refuses, or the Pod does not listen.
pub async fn connect(
    cluster: &Cluster,
    place: &Place,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, Error> {
    let Place { namespace, pod, node: _, port } = place;
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), namespace);
    let what = format!("create pods/portforward in namespace {namespace}");
    let gone = |reason: String| Error::Api {
        what: format!("forward port {port} of the Pod {place}"),
        reason,
        next: "see `kubectl describe pod`, and try again".to_owned(),
    };
    match timeout(TIMEOUT, pods.portforward(pod, &[*port])).await {
        Ok(Ok(mut forwarder)) => {
            forwarder.take_stream(*port).ok_or_else(|| gone("it has no such port".to_owned()))
        }
        Ok(Err(error)) if status(&error) == Some(StatusCode::NOT_FOUND) => {
            Err(gone("the Pod is gone".to_owned()))
        }
        Ok(Err(error)) => Err(failed(&what, &error)),
        Err(_) => Err(gone(format!("no answer within {} s", TIMEOUT.as_secs()))),
    }
}

/// Forwards each connection of a listener to the daemon of the leader of that moment, until the listener fails.
///
/// # Errors
///
/// When connections can no longer be accepted.
pub async fn serve(listener: TcpListener, mut fleet: Fleet) -> std::io::Result<()> {
    let seats = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // An error would mean that the semaphore is closed, which it never is.
        let seat = Arc::clone(&seats).acquire_owned().await.ok();
        let (mut near, _) = listener.accept().await?;
        let far = match fleet.first().await {
            Ok(place) => connect(fleet.cluster(), &place).await,
            Err(error) => Err(error),
        };
        match far {
            Ok(mut far) => {
                tokio::spawn(async move {
                    // Either side may end it at any time.
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                    drop(seat);
                });
            }
            Err(error) => {
                debug!("a connection was closed: {error}");
                spans::screen::complain(&format!("schedspan: {error}"));
            }
        }
    }
}
