//! Connections to a port of a Pod, through the API server.

use std::{io, sync::Arc, time::Duration};

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{MissedTickBehavior, interval, timeout},
};
use tracing::debug;

use crate::{
    Cluster, Error, Fleet,
    cluster::{TIMEOUT, failed, status},
    find::Place,
};

/// Most connections that are forwarded at once; further ones wait. A browser has six.
const MAX_CONNECTIONS: usize = 64;
/// Interval of looks at the leader while connections are open.
const LOOK: Duration = Duration::from_secs(1);

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

/// Forwards each connection of a listener to the daemon of the leader of that moment, until the listener fails. A connection ends when
/// another scheduler leads: a page that is open connects again, to the daemon of that one.
///
/// # Errors
///
/// When connections can no longer be accepted.
pub async fn serve(listener: TcpListener, mut fleet: Fleet) -> io::Result<()> {
    let seats = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Each connection has a receiver.
    let (leader, _) = watch::channel(None);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &seats) => Some(accepted?),
            _ = look.tick(), if leader.receiver_count() > 0 => None,
        };
        let place = fleet.first().await;
        leader.send_replace(fleet.leader().cloned());
        let Some((mut near, seat)) = accepted else { continue };
        let far = match place {
            Ok(place) => connect(fleet.cluster(), &place).await.map(|far| (far, place)),
            Err(error) => Err(error),
        };
        match far {
            Ok((mut far, place)) => {
                let mut leader = leader.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        // Either side may end it at any time.
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = leader.wait_for(|leader| leader.as_ref().is_some_and(|leader| *leader != place)) => {}
                    }
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

/// The next connection, once there is a seat for it.
async fn accept(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
) -> io::Result<(TcpStream, Option<OwnedSemaphorePermit>)> {
    // An error would mean that the semaphore is closed, which it never is.
    let seat = Arc::clone(seats).acquire_owned().await.ok();
    Ok((listener.accept().await?.0, seat))
}
