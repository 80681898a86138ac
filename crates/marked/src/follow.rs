//! Pods that come of written objects, until they are Ready.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant, SystemTime},
};

use k8s_openapi::{
    api::{apps::v1::ReplicaSet, batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client, Resource, ResourceExt as _, api::ListParams};
use serde::de::DeserializeOwned;
use serde_json::Value;
use spans::{screen, text::clean};

use crate::{
    proxy::Written,
    written::{Progress, State, carries, progress, state},
};

/// Interval of looks at the API server.
const INTERVAL: Duration = Duration::from_millis(250);
/// Pods of one namespace that are looked at.
const MAX_PODS: u32 = 1000;

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Pods by namespace and name.
    pub pods: BTreeMap<String, Life>,
    /// Whether all are Ready.
    pub ready: bool,
    /// Whether anything that was written makes Pods.
    pub makes_pods: bool,
}

/// The way of a Pod to Ready.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its state.
    pub state: State,
    /// When each state was seen first, since the first write.
    pub seen: Vec<(State, Duration)>,
    /// Its Node.
    pub node: Option<String>,
    /// Why it is Pending, by the scheduler.
    pub message: Option<String>,
    /// Whether it carries the trace in an annotation.
    pub carries: bool,
}

/// Follows what was written until its Pods are Ready, one of them has failed, or the time is over. Prints each step.
///
/// # Errors
///
/// When Pods cannot be listed.
pub async fn follow(
    client: &Client,
    written: &Written,
    trace_id: &str,
    time: Duration,
) -> kube::Result<Outcome> {
    let begin = written.since.unwrap_or_else(Instant::now);
    let mut outcome = Outcome::default();
    let mut owners = HashMap::new();
    loop {
        let mut ready = true;
        let mut namespaces = BTreeSet::new();
        for object in &written.objects {
            match progress(&get(client, &object.path).await?) {
                Progress::None => continue,
                Progress::Waiting => ready = false,
                Progress::Ready => {}
            }
            outcome.makes_pods = true;
            namespaces.insert(object.namespace.as_str());
        }
        for namespace in namespaces {
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            for pod in pods.list(&ListParams::default().limit(MAX_PODS)).await? {
                let own = is_new(&pod, written.server_time)
                    && (carries(&pod, trace_id) || comes_of(client, &pod, written, &mut owners).await?);
                if own {
                    outcome.see(&pod, trace_id, begin.elapsed());
                }
            }
        }
        let failed = outcome.pods.values().any(|life| life.state == State::Failed);
        outcome.ready = ready && outcome.pods.values().all(|life| life.state.is_reached());
        if !outcome.makes_pods || outcome.ready || failed || begin.elapsed() >= time {
            return Ok(outcome);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// An object, or nothing if it is gone.
async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    match client.request(request).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Value::Null),
        answer => answer,
    }
}

/// Whether a Pod is not from before. The API server's times are whole seconds.
fn is_new(pod: &Pod, since: Option<SystemTime>) -> bool {
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| SystemTime::from(time.0));
    created.zip(since).is_none_or(|(created, since)| created >= since)
}

/// Whether a Pod is one of the written objects, or a controller among its owners is.
async fn comes_of(
    client: &Client,
    pod: &Pod,
    written: &Written,
    owners: &mut HashMap<String, Option<String>>,
) -> kube::Result<bool> {
    let is_written = |uid: &str| written.objects.iter().any(|object| object.uid == uid);
    if pod.uid().is_some_and(|uid| is_written(&uid)) {
        return Ok(true);
    }
    let Some(owner) = pod.owner_references().iter().find(|owner| owner.controller == Some(true)) else {
        return Ok(false);
    };
    if is_written(&owner.uid) {
        return Ok(true);
    }
    let namespace = pod.namespace().unwrap_or_default();
    let above = match owners.get(&owner.uid) {
        Some(above) => above.clone(),
        None => {
            let above = match owner.kind.as_str() {
                "ReplicaSet" => controller::<ReplicaSet>(client, &namespace, owner).await?,
                "Job" => controller::<Job>(client, &namespace, owner).await?,
                _ => None,
            };
            owners.insert(owner.uid.clone(), above.clone());
            above
        }
    };
    Ok(above.is_some_and(|uid| is_written(&uid)))
}

/// UID of the controller of a Pod's controller.
async fn controller<K>(
    client: &Client,
    namespace: &str,
    owner: &OwnerReference,
) -> kube::Result<Option<String>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let object = Api::<K>::namespaced(client.clone(), namespace).get_metadata_opt(&owner.name).await?;
    let above = object.and_then(|object| {
        object
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| owner.uid.clone())
    });
    Ok(above)
}

impl Outcome {
    /// Notes how far a Pod is, and prints it if that is news.
    fn see(&mut self, pod: &Pod, trace_id: &str, after: Duration) {
        let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        let state = state(pod);
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut unscheduled =
            conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
        let message = unscheduled.next().and_then(|condition| condition.message.clone());
        let life = self.pods.entry(name.clone()).or_insert_with(|| Life {
            state,
            seen: Vec::new(),
            node: None,
            message: None,
            carries: false,
        });
        let news = life.seen.last().is_none_or(|(last, _)| *last != state)
            || (message.is_some() && life.message != message);
        if life.seen.last().is_none_or(|(last, _)| *last != state) {
            life.seen.push((state, after));
        }
        (life.state, life.carries) = (state, carries(pod, trace_id));
        (life.node, life.message) = (node, message);
        if news {
            screen::complain(&format!("{:>8.1} s  {}", after.as_secs_f64(), life.line(&clean(&name))));
        }
    }

    /// All Pods with the time of each step, as a table.
    #[must_use]
    pub fn table(&self) -> String {
        let width = self.pods.keys().map(String::len).max().unwrap_or_default().max("POD".len());
        let mut table = format!(
            "{:<width$}  {:<10} {:>10} {:>10} {:>10}  NODE\n",
            "POD", "STATE", "SCHEDULED", "RUNNING", "READY"
        );
        for (name, life) in &self.pods {
            // A step that was not seen was over before the next look.
            let at = |state: State| {
                let reached = life.seen.iter().find(|(seen, _)| *seen >= state && *seen != State::Failed);
                reached.map_or_else(|| "-".to_owned(), |(_, after)| format!("{:.1} s", after.as_secs_f64()))
            };
            table += &format!(
                "{:<width$}  {:<10} {:>10} {:>10} {:>10}  {}\n",
                clean(name),
                life.state.word(),
                at(State::Scheduled),
                at(State::Running),
                at(State::Ready),
                clean(life.node.as_deref().unwrap_or("-"))
            );
        }
        table
    }
}

impl Life {
    fn line(&self, name: &str) -> String {
        let Self { state, seen: _, node, message, carries: _ } = self;
        let more = match (state, node, message) {
            (State::Pending, _, Some(message)) => format!(": {}", clean(message)),
            (State::Scheduled, Some(node), _) => format!(" on {}", clean(node)),
            _ => String::new(),
        };
        format!("{name} {}{more}", state.word())
    }
}
