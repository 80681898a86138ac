//! The owners of Pods, for those that carry no context themselves.
//!
//! They are asked for one by one when an attempt needs them, and remembered for a minute. To watch all of them would take
//! memory for each object of the cluster; thousands of Pods of one Job take one request so.

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

use super::Shared;

/// Owners remembered, some 500 bytes each with a context; those without one are much smaller.
const CAPACITY: usize = 10_000;
/// How long an answer counts. A Deployment's annotations may change with its next roll-out, its ReplicaSets' do not.
const FRESH: Duration = Duration::from_secs(60);
/// From a Pod up: a ReplicaSet and its Deployment, a Job, its CronJob, and whoever made that.
const LEVELS: usize = 3;
/// Requests at once: attempts wait for them, and the API server has other things to do.
const AT_ONCE: usize = 8;

/// Whose annotations are read: kind, group, version, plural. Roles can only grant what is named.
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

/// All that are known.
pub(super) struct Owners {
    client: Client,
    carriers: Carriers,
    known: Cache<u128, Arc<Owner>>,
    permits: Semaphore,
}

/// An object that made a Pod, or such an object.
#[derive(Debug)]
pub(super) struct Owner {
    kind: &'static (&'static str, &'static str, &'static str, &'static str),
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    /// Held while it is asked for: the other attempts wait for the same answer.
    answer: Mutex<Option<Answer>>,
}

#[derive(Clone, Debug)]
struct Answer {
    when: Instant,
    found: Option<Arc<Recovered>>,
    owner: Option<Arc<Owner>>,
}

/// What the nearest owner with a context says.
pub(super) struct Said {
    /// Who it is, as `ReplicaSet/web-7c5ddbdf54`.
    pub(super) owner: String,
    pub(super) found: Arc<Recovered>,
}

impl Owners {
    pub(super) fn new(client: Client, carriers: Carriers) -> Self {
        Self { client, carriers, known: Cache::new(CAPACITY), permits: Semaphore::new(AT_ONCE) }
    }

    /// Who made an object, if it is somebody of [`KINDS`].
    pub(super) fn of(&self, shared: &Shared, meta: &ObjectMeta) -> Option<Arc<Owner>> {
        let references = meta.owner_references.as_deref()?;
        let OwnerReference { kind, api_version, name, uid, .. } =
            references.iter().find(|owner| owner.controller == Some(true))?;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        // Another version of the same kind is the same object.
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

    /// What the nearest one says that says anything.
    pub(super) async fn ask(&self, shared: &Shared, owner: &Arc<Owner>) -> Option<Said> {
        let mut next = Arc::clone(owner);
        for _ in 0..LEVELS {
            let Answer { found, owner, .. } = self.answer(shared, &next).await;
            if let Some(found) = found {
                let owner = format!("{}/{}", next.kind.0, next.name);
                return Some(Said { owner, found });
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
        // It is never closed.
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
        // Another one of the same name has made other Pods.
        let Some(object) = object.filter(|object| object.metadata.uid.as_deref() == Some(uid)) else {
            return (None, None);
        };
        let (mut found, refused) = self.carriers.recover(object.annotations());
        for refused in refused {
            shared.refuse(&refused, || format!("the {kind} {namespace}/{name}"));
        }
        // It says what the owner began with.
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
