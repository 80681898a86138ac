//! A blocking client of the API server for tests, which read and write plain JSON.
//!
//! It is ureq, not kube: tests are blocking code, they touch any kind of object by path, and metrics and health checks need the
//! same HTTP client anyway.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use ureq::{Agent, http};

use crate::{metrics::Metrics, wait::wait_until};

/// The limit for Pods to reach a state: three times the backoff after five failed attempts.
const PODS_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of the lists of all Pods, which cost the API server some work.
const PODS_INTERVAL: Duration = Duration::from_millis(200);

/// The Deployments of the namespace `default`.
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// The label with a Node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The capacity and the zone of a Node.
#[derive(Clone, Copy)]
pub struct NodeSize<'a> {
    pub cpu: &'a str,
    /// A Kubernetes quantity, such as `128Gi`.
    pub memory: &'a str,
    pub pods: u32,
    pub zone: Option<&'a str>,
}

impl Default for NodeSize<'_> {
    fn default() -> Self {
        Self { cpu: "32", memory: "128Gi", pods: 110, zone: None }
    }
}

/// A Node that is ready.
pub fn node(name: &str, size: NodeSize<'_>) -> Value {
    let NodeSize { cpu, memory, pods, zone } = size;
    let resources = json!({ "cpu": cpu, "memory": memory, "pods": pods.to_string() });
    let mut node = json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "TestNode" }],
        },
    });
    if let Some(zone) = zone {
        node["metadata"]["labels"][ZONE] = zone.into();
    }
    node
}

/// A Pod that requests this much CPU. It has no grace period, because no kubelet would end it.
pub fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": cpu } } }],
        },
    })
}

/// A Deployment whose Pods have its name as the label `app`.
pub fn deployment(name: &str, replicas: usize) -> Value {
    let labels = json!({ "app": name });
    let mut template = pod(name, "10m");
    template["metadata"] = json!({ "labels": labels });
    json!({
        "metadata": { "name": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": template },
    })
}

pub fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

/// Whether the scheduler has reported a Pod as unschedulable.
pub fn is_unschedulable(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["reason"] == "Unschedulable")
}

/// The collections of these kinds; of kinds with a namespace, those in kube-system.
const COLLECTIONS: [(&str, &str); 13] = [
    ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ("ClusterRoleBinding", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ("ConfigMap", "/api/v1/namespaces/kube-system/configmaps"),
    ("DaemonSet", "/apis/apps/v1/namespaces/kube-system/daemonsets"),
    ("Deployment", "/apis/apps/v1/namespaces/kube-system/deployments"),
    ("MutatingWebhookConfiguration", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
    ("NetworkPolicy", "/apis/networking.k8s.io/v1/namespaces/kube-system/networkpolicies"),
    ("Pod", "/api/v1/namespaces/kube-system/pods"),
    ("PodDisruptionBudget", "/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets"),
    ("Role", "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles"),
    ("RoleBinding", "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings"),
    ("Service", "/api/v1/namespaces/kube-system/services"),
    ("ServiceAccount", "/api/v1/namespaces/kube-system/serviceaccounts"),
];

/// An object of a manifest.
pub struct Object<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    yaml: &'a str,
}

/// The objects of a manifest in Helm's layout, in which `metadata` precedes every other `name`.
pub fn objects(manifest: &str) -> Vec<Object<'_>> {
    manifest.split("---\n").filter_map(object).collect()
}

fn object(yaml: &str) -> Option<Object<'_>> {
    let value = |key| yaml.lines().find_map(|line| line.strip_prefix(key));
    Some(Object { kind: value("kind: ")?, name: value("  name: ")?, yaml })
}

/// A client of the API server. Paths begin after the port. Errors name method, path and the API server's answer.
#[derive(Clone)]
pub struct Api {
    agent: Agent,
    server: String,
    /// Sent with every request.
    headers: Vec<(&'static str, String)>,
}

impl Api {
    pub fn new(agent: Agent, server: String, token: &str) -> Self {
        Self { agent, server, headers: vec![("authorization", format!("Bearer {token}"))] }
    }

    /// A copy that sends another header with every request.
    pub fn with(&self, header: &'static str, value: &str) -> Self {
        let headers = [&self.headers[..], &[(header, value.to_owned())]].concat();
        Self { headers, ..self.clone() }
    }

    /// # Errors
    ///
    /// As for every method: if the API server does not answer or refuses.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.request("GET", path, "application/json", Vec::new())
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.request("POST", path, "application/json", serde_json::to_vec(body)?)
    }

    /// Applies an object like `kubectl apply --server-side`; unknown fields are errors. A trial is a dry run.
    pub fn apply(&self, object: &Object<'_>, trial: bool) -> Result<()> {
        let Object { kind, name, yaml } = object;
        let (_, collection) = COLLECTIONS
            .iter()
            .find(|(known, _)| known == kind)
            .with_context(|| format!("no collection is known for kind `{kind}`"))?;
        let trial = if trial { "&dryRun=All" } else { "" };
        let path = format!("{collection}/{name}?fieldManager=xtask&fieldValidation=Strict&force=true{trial}");
        self.request("PATCH", &path, "application/apply-patch+yaml", yaml.as_bytes().to_vec()).map(drop)
    }

    /// Applies this object as the API server does for `kubectl apply --server-side`: it is created if it is not there.
    pub fn apply_at(&self, path: &str, object: &Value) -> Result<Value> {
        let path = format!("{path}?fieldManager=xtask");
        self.request("PATCH", &path, "application/apply-patch+yaml", object.to_string().into_bytes())
    }

    /// Sends a JSON merge patch.
    pub fn patch(&self, path: &str, change: &Value) -> Result<Value> {
        self.request("PATCH", path, "application/merge-patch+json", change.to_string().into_bytes())
    }

    pub fn delete(&self, path: &str) -> Result<Value> {
        self.request("DELETE", path, "application/json", Vec::new())
    }

    /// Creates a Node that is ready.
    pub fn create_node(&self, name: &str, size: NodeSize<'_>) -> Result<Value> {
        self.post("/api/v1/nodes", &node(name, size))
    }

    /// Creates the priority classes `low` and `high`, for Pods that preempt others.
    pub fn create_priority_classes(&self) -> Result<()> {
        [("low", 1), ("high", 1000)].into_iter().try_for_each(|(name, value)| {
            let class = json!({ "metadata": { "name": name }, "value": value });
            self.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).map(drop)
        })
    }

    pub fn create_pod(&self, namespace: &str, pod: &Value) -> Result<Value> {
        self.post(&format!("/api/v1/namespaces/{namespace}/pods"), pod)
    }

    /// Creates Pods in the namespace `default` at an even pace, so many in a second.
    pub fn create_pods(&self, pace: u32, pods: impl IntoIterator<Item = Value>) -> Result<()> {
        let start = Instant::now();
        for (number, pod) in (0..).zip(pods) {
            thread::sleep((Duration::from_secs(1) * number / pace).saturating_sub(start.elapsed()));
            self.create_pod("default", &pod)?;
        }
        Ok(())
    }

    /// Deletes a Pod without grace period, because no kubelet would end it.
    pub fn delete_pod(&self, namespace: &str, name: &str) -> Result<Value> {
        self.delete(&format!("/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0"))
    }

    pub fn pods(&self, namespace: &str) -> Result<Vec<Value>> {
        let mut list = self.get(&format!("/api/v1/namespaces/{namespace}/pods"))?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Waits until the Pods of the namespace `default` reach a state.
    ///
    /// # Errors
    ///
    /// If they do not within a minute: the error then names `what`.
    pub fn wait_for_pods(&self, what: &str, reached: impl Fn(&[Value]) -> bool) -> Result<()> {
        wait_until(what, PODS_TIMEOUT, || {
            thread::sleep(PODS_INTERVAL);
            Ok(reached(&self.pods("default")?).then_some(()))
        })
    }

    /// Deletes all Pods of the namespace `default` whose names have this prefix.
    ///
    /// # Errors
    ///
    /// If one cannot be deleted, or still exists after a minute.
    pub fn delete_pods(&self, prefix: &str) -> Result<()> {
        let ours =
            |pod: &Value| pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix));
        for pod in self.pods("default")?.iter().filter(|pod| ours(pod)) {
            self.delete_pod("default", pod["metadata"]["name"].as_str().unwrap_or_default())?;
        }
        self.wait_for_pods("deleted Pods to be gone", |pods| !pods.iter().any(ours))
    }

    /// The number of objects in a collection, such as `/api/v1/nodes`.
    pub fn count(&self, path: &str) -> Result<u64> {
        let list = self.get(&format!("{path}?limit=1"))?;
        let first = list["items"].as_array().map_or(0, Vec::len) as u64;
        Ok(first + list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0))
    }

    /// The API server's own metrics.
    pub fn metrics(&self) -> Result<Metrics> {
        let text = self.send("GET", "/metrics", "text/plain", Vec::new())?;
        Metrics::parse(str::from_utf8(&text)?)
    }

    fn request(&self, method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Result<Value> {
        Ok(serde_json::from_slice(&self.send(method, path, content_type, body)?).unwrap_or_default())
    }

    fn send(&self, method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Result<Vec<u8>> {
        let what = || format!("{method} {path}");
        let request = http::Request::builder().method(method).uri(format!("{}{path}", self.server));
        let request =
            self.headers.iter().fold(request, |request, (header, value)| request.header(*header, value));
        let request = request.header("content-type", content_type).body(body).with_context(what)?;
        let mut response = self.agent.run(request).with_context(what)?;
        // ureq's own JSON reader stops at 10 MB, which the Pods of a benchmark exceed.
        let body = response.body_mut().with_config().limit(u64::MAX).read_to_vec().with_context(what)?;
        if !response.status().is_success() {
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            let reason = answer["message"].as_str().unwrap_or_default();
            bail!("{}: {} {reason}", what(), response.status());
        }
        Ok(body)
    }
}
