//! The owners of Pods, for those that carry no context themselves.
//!
//! They are requested one by one when an attempt needs them, and cached for a minute: a watch would hold each object of the
//! cluster in memory. Thousands of Pods of one Job take one request.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client, ResourceExt as _,
    core::{ApiResource, DynamicObject, ObjectMeta},
};
use quick_cache::sync::Cache;
use tokio::sync::{Mutex, Semaphore};
use tracecontext::annotations::{Carriers, Recovered};

use super::{Key, Shared};

/// Most owners in the cache: some 500 bytes each with a context, much less without.
const CAPACITY: usize = 10_000;
/// How long an entry is valid. A Deployment's annotations may change with its next roll-out, its ReplicaSets' do not.
const FRESH: Duration = Duration::from_secs(60);
/// Levels above a Pod: for example Job, CronJob, and the CronJob's own owner.
const LEVELS: usize = 3;
/// Most concurrent requests.
const AT_ONCE: usize = 8;

/// Kinds whose annotations are read: kind, group, version, plural. A role must name each.
const KINDS: [(&str, &str, &str, &str); 9] = [
    ("ReplicaSet", "apps", "v1", "replicasets"),
    ("Deployment", "apps", "v1", "deployments"),
    ("StatefulSet", "apps", "v1", "statefulsets"),
    ("DaemonSet", "apps", "v1", "daemonsets"),
    ("Job", "batch", "v1", "jobs"),
    ("CronJob", "batch", "v1", "cronjobs"),
    ("ReplicationController", "", "v1", "replicationcontrollers"),
    ("TaskRun", "tekton.dev", "v1", "taskruns"),
    ("PipelineRun", "tekton.dev", "v1", "pipelineruns"),
];

/// The cache of owners.
pub(super) struct Owners {
    client: Client,
    carriers: Carriers,
    known: Cache<Key, Arc<Owner>>,
    permits: Semaphore,
}

/// An owner of a Pod, or of another owner.
#[derive(Debug)]
pub(super) struct Owner {
    kind: &'static (&'static str, &'static str, &'static str, &'static str),
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    /// Locked during the request: other attempts wait for the same answer.
    answer: Mutex<Option<Answer>>,
}

#[derive(Clone, Debug)]
struct Answer {
    when: Instant,
    found: Option<Arc<Recovered>>,
    owner: Option<Arc<Owner>>,
}

/// The nearest owner that has a context.
pub(super) struct Nearest {
    /// Kind and name, as `ReplicaSet/web-7c5ddbdf54`.
    pub(super) owner: String,
    pub(super) found: Arc<Recovered>,
}

impl Owners {
    pub(super) fn new(client: Client, carriers: Carriers) -> Self {
        Self { client, carriers, known: Cache::new(CAPACITY), permits: Semaphore::new(AT_ONCE) }
    }

    /// The controller of an object, if it is one of [`KINDS`].
    pub(super) fn of(&self, shared: &Shared, meta: &ObjectMeta) -> Option<Arc<Owner>> {
        let references = meta.owner_references.as_deref()?;
        let OwnerReference { kind, api_version, name, uid, .. } =
            references.iter().find(|owner| owner.controller == Some(true))?;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        // The version does not matter: it is the same object.
        let kind = KINDS.iter().find(|known| (known.0, known.1) == (kind.as_str(), group))?;
        let key = shared.key(uid);
        if let Some(owner) = self.known.get(&key) {
            return Some(owner);
        }
        let owner = Arc::new(Owner {
            kind,
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: name.as_str().into(),
            uid: uid.as_str().into(),
            answer: Mutex::default(),
        });
        self.known.insert(key, Arc::clone(&owner));
        Some(owner)
    }

    /// The nearest owner with a context, from `owner` upwards.
    pub(super) async fn nearest(&self, shared: &Shared, owner: &Arc<Owner>) -> Option<Nearest> {
        let mut next = Arc::clone(owner);
        for _ in 0..LEVELS {
            let Answer { found, owner, .. } = self.answer(shared, &next).await;
            if let Some(found) = found {
                let owner = format!("{}/{}", next.kind.0, next.name);
                return Some(Nearest { owner, found });
            }
            next = owner?;
        }
        None
    }

    async fn answer(&self, shared: &Shared, owner: &Owner) -> Answer {
        let mut known = owner.answer.lock().await;
        if let Some(answer) = known.as_ref().filter(|answer| answer.when.elapsed() < FRESH) {
            return answer.clone();
        }
        let (found, next) = self.fetch(shared, owner).await;
        known.insert(Answer { when: Instant::now(), found, owner: next }).clone()
    }

    async fn fetch(&self, shared: &Shared, owner: &Owner) -> (Option<Arc<Recovered>>, Option<Arc<Owner>>) {
        let Owner { kind: (kind, group, version, plural), namespace, name, uid, answer: _ } = owner;
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let resource = ApiResource {
            group: (*group).to_owned(),
            version: (*version).to_owned(),
            api_version: if group.is_empty() { (*version).to_owned() } else { format!("{group}/{version}") },
            kind: (*kind).to_owned(),
            plural: (*plural).to_owned(),
        };
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        let object = match api.get_metadata_opt(name).await {
            Ok(object) => object,
            Err(error) => {
                shared.cannot_ask(plural, &error);
                return (None, None);
            }
        };
        // Another object of the same name is not the owner.
        let Some(object) = object.filter(|object| object.metadata.uid.as_deref() == Some(uid)) else {
            return (None, None);
        };
        let (mut found, refused) = self.carriers.recover(object.annotations());
        for refused in refused {
            shared.refuse(&refused, || format!("the {kind} {namespace}/{name}"));
        }
        // `initial` belongs to the owner, not to the Pod.
        found.initial = None;
        let found = (!found.causes.is_empty()).then(|| Arc::new(found));
        (found, self.of(shared, &object.metadata))
    }
}

impl std::fmt::Debug for Owners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owners").field("known", &self.known.len()).finish_non_exhaustive()
    }
}
