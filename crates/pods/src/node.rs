//! The namespaces of the Pods on this node, by a watch of their metadata.

use std::{
    collections::HashMap,
    env,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, pin_mut};
use kube::{Api, Client, api::ListParams, core::ObjectMeta, runtime::watcher::Event};
use rustix::system::uname;
use serde::de::IgnoredAny;
use spans::text::sentence;
use tokio::{sync::Notify, time::timeout};
use tracing::debug;

use crate::{
    api,
    context::{PodContexts, PodWith},
};

/// Most Pods that are remembered. The kubelet takes 110 unless told otherwise; those that have ended come on top.
const MAX_PODS: usize = 16_384;
/// The name of this node, where its host name is another; the chart sets it.
const NODE_NAME: &str = "NODE_NAME";

/// A Pod of which only metadata is requested.
type Pod = PodWith<IgnoredAny, IgnoredAny, false>;

/// The namespaces of the Pods on this node, by UID.
#[derive(Debug, Default)]
pub struct NodePods {
    namespaces: Mutex<HashMap<String, String>>,
    listed: AtomicBool,
    changed: Notify,
}

impl NodePods {
    /// Starts the watch within a tokio runtime, with the API server of `contexts`. Without one, no Pod is known.
    pub fn follow(pods: &Arc<Self>, contexts: &PodContexts) {
        match contexts.client() {
            Some((client, url)) => drop(tokio::spawn(watch(client, url, Arc::clone(pods)))),
            None => pods.complete(),
        }
    }

    /// Asks the API server once, for at most `wait`.
    ///
    /// # Errors
    ///
    /// When no API server is known, or it does not answer or refuses.
    pub async fn once(kubeconfig: Option<PathBuf>, wait: Duration) -> Result<Arc<Self>, String> {
        let pods = Self::default();
        let (client, _) = api::client(kubeconfig).await.map_err(|error| error.to_string())?;
        let all = ListParams::default().fields(&of_this_node());
        let listed = timeout(wait, Api::<Pod>::all(client).list_metadata(&all)).await;
        let listed =
            listed.map_err(|_| format!("no answer in {wait:?}"))?.map_err(|error| sentence(&error))?;
        listed.items.into_iter().for_each(|pod| pods.learn(pod.metadata));
        Ok(Arc::new(pods))
    }

    /// The namespace of a Pod; `None` for one that is not known, or not of this node.
    #[must_use]
    pub fn namespace(&self, uid: &str) -> Option<String> {
        self.namespaces().get(uid).cloned()
    }

    /// Waits for the first list, at most `wait`, and not for an API server that does not answer.
    pub async fn listed(&self, wait: Duration) {
        let listed = async {
            loop {
                let changed = self.changed.notified();
                if self.listed.load(Ordering::Relaxed) {
                    return;
                }
                changed.await;
            }
        };
        // Pods that are not known yet are not traced yet.
        let _late = timeout(wait, listed).await;
    }

    fn complete(&self) {
        self.listed.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    fn learn(&self, metadata: ObjectMeta) {
        if let (Some(uid), Some(namespace)) = (metadata.uid, metadata.namespace) {
            let mut namespaces = self.namespaces();
            if namespaces.len() < MAX_PODS {
                namespaces.insert(uid, namespace);
            }
        }
    }

    fn namespaces(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Selects the Pods of this node.
fn of_this_node() -> String {
    let name = env::var(NODE_NAME).ok().filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| uname().nodename().to_string_lossy().to_lowercase());
    format!("spec.nodeName={name}")
}

/// Watches for ever. What is known stays known while the API server does not answer.
async fn watch(client: Client, url: String, pods: Arc<NodePods>) {
    let events = api::watch(Api::<Pod>::all(client), Some(&of_this_node()));
    pin_mut!(events);
    // UIDs are never used again: those of a list that begins are added to what is known, and the others leave when it ends.
    let mut listed = HashMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => {
                if let (Some(uid), Some(namespace)) = (&pod.metadata.uid, &pod.metadata.namespace)
                    && listed.len() < MAX_PODS
                {
                    listed.insert(uid.clone(), namespace.clone());
                }
                pods.learn(pod.metadata);
            }
            Ok(Event::InitDone) => {
                *pods.namespaces() = std::mem::take(&mut listed);
                pods.complete();
            }
            Ok(Event::Apply(pod)) => pods.learn(pod.metadata),
            Ok(Event::Delete(pod)) => {
                if let Some(uid) = &pod.metadata.uid {
                    pods.namespaces().remove(uid);
                }
            }
            // The watch for contexts has the same server and rights, and warns.
            Err(error) => {
                pods.complete();
                debug!("cannot watch the Pods of this node at {url}: {}", sentence(&error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(uid: usize) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.to_string()), namespace: Some("shop".to_owned()), ..ObjectMeta::default() }
    }

    #[test]
    fn pods_without_end_find_no_room() {
        let pods = NodePods::default();
        (0..=MAX_PODS).for_each(|uid| pods.learn(metadata(uid)));
        assert_eq!(pods.namespace("0").as_deref(), Some("shop"));
        assert_eq!(pods.namespace(&MAX_PODS.to_string()), None);
    }

    #[tokio::test]
    async fn without_an_api_server_nothing_is_waited_for() {
        let pods = NodePods::default();
        pods.complete();
        pods.listed(Duration::MAX).await;
        assert_eq!(pods.namespace("1"), None);
    }
}
