//! A small blocking client of the API server.

use std::{thread, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use ureq::{Agent, http};

use crate::wait::wait_until;

/// How long Pods may take to become what they shall be: three times the backoff of one that was refused five times.
const PODS_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at all Pods, which cost the API server some work.
const PODS_INTERVAL: Duration = Duration::from_millis(200);

/// The label of a node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// What a node can hold, and where it is.
#[derive(Clone, Copy)]
pub struct NodeSize<'a> {
    /// Cores.
    pub cpu: &'a str,
    /// As a Kubernetes quantity, such as `128Gi`.
    pub memory: &'a str,
    /// The number of Pods.
    pub pods: u32,
    /// The zone that it is in.
    pub zone: Option<&'a str>,
}

impl Default for NodeSize<'_> {
    fn default() -> Self {
        Self { cpu: "32", memory: "128Gi", pods: 110, zone: None }
    }
}

/// A Pod that asks for so many CPUs, and that ends at once when it is deleted: no kubelet runs it.
pub fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "none", "resources": { "requests": { "cpu": cpu } } }],
        },
    })
}

/// Whether a Pod has its Node.
pub fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

/// Whether the scheduler said of a Pod that it fits nowhere.
pub fn is_unschedulable(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["reason"] == "Unschedulable")
}

/// Where objects of these kinds are, those with a namespace in kube-system.
const COLLECTIONS: [(&str, &str); 9] = [
    ("ClusterRole", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ("ClusterRoleBinding", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ("ConfigMap", "/api/v1/namespaces/kube-system/configmaps"),
    ("DaemonSet", "/apis/apps/v1/namespaces/kube-system/daemonsets"),
    ("Deployment", "/apis/apps/v1/namespaces/kube-system/deployments"),
    ("MutatingWebhookConfiguration", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
    ("NetworkPolicy", "/apis/networking.k8s.io/v1/namespaces/kube-system/networkpolicies"),
    ("Service", "/api/v1/namespaces/kube-system/services"),
    ("ServiceAccount", "/api/v1/namespaces/kube-system/serviceaccounts"),
];

/// One object of a manifest.
pub struct Object<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    yaml: &'a str,
}

/// The objects of a manifest as Helm writes it: with `metadata` before everything that has a name as well.
pub fn objects(manifest: &str) -> Vec<Object<'_>> {
    manifest.split("---\n").filter_map(object).collect()
}

fn object(yaml: &str) -> Option<Object<'_>> {
    let value = |key| yaml.lines().find_map(|line| line.strip_prefix(key));
    Some(Object { kind: value("kind: ")?, name: value("  name: ")?, yaml })
}

/// A client of the cluster's API server, with an administrator's rights. A path is all that follows the port, and every
/// error names method and path and says what the API server answered.
#[derive(Clone)]
pub struct Api {
    agent: Agent,
    server: String,
    /// Of every request.
    headers: Vec<(&'static str, String)>,
}

impl Api {
    pub fn new(agent: Agent, server: String, token: &str) -> Self {
        Self { agent, server, headers: vec![("authorization", format!("Bearer {token}"))] }
    }

    /// The same client, with another header in each request.
    pub fn with(&self, header: &'static str, value: &str) -> Self {
        let headers = [&self.headers[..], &[(header, value.to_owned())]].concat();
        Self { headers, ..self.clone() }
    }

    /// # Errors
    ///
    /// As for every method: if the API server does not answer, or refuses.
    pub fn get(&self, path: &str) -> Result<Value> {
        self.request("GET", path, "application/json", Vec::new())
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.request("POST", path, "application/json", serde_json::to_vec(body)?)
    }

    /// Creates or changes an object, as `kubectl apply --server-side` does; for a trial only the API server says whether it
    /// would. It takes no field that it does not know.
    pub fn apply(&self, object: &Object<'_>, trial: bool) -> Result<()> {
        let Object { kind, name, yaml } = object;
        let (_, collection) = COLLECTIONS
            .iter()
            .find(|(known, _)| known == kind)
            .with_context(|| format!("nobody knows where objects of kind `{kind}` are"))?;
        let trial = if trial { "&dryRun=All" } else { "" };
        let path = format!("{collection}/{name}?fieldManager=xtask&fieldValidation=Strict&force=true{trial}");
        self.request("PATCH", &path, "application/apply-patch+yaml", yaml.as_bytes().to_vec()).map(drop)
    }

    /// Merges into what is there.
    pub fn patch(&self, path: &str, change: &Value) -> Result<Value> {
        self.request("PATCH", path, "application/merge-patch+json", change.to_string().into_bytes())
    }

    pub fn delete(&self, path: &str) -> Result<Value> {
        self.request("DELETE", path, "application/json", Vec::new())
    }

    /// Creates a ready node.
    pub fn create_node(&self, name: &str, size: NodeSize<'_>) -> Result<Value> {
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
        self.post("/api/v1/nodes", &node)
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

    /// Deletes a Pod at once: there is no kubelet to end it.
    pub fn delete_pod(&self, namespace: &str, name: &str) -> Result<Value> {
        self.delete(&format!("/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0"))
    }

    /// The Pods of a namespace.
    pub fn pods(&self, namespace: &str) -> Result<Vec<Value>> {
        let mut list = self.get(&format!("/api/v1/namespaces/{namespace}/pods"))?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Waits until the Pods of the namespace `default` are as they shall be.
    ///
    /// # Errors
    ///
    /// If they are not within a minute: then the error says that it waited for `what`.
    pub fn wait_for_pods(&self, what: &str, reached: impl Fn(&[Value]) -> bool) -> Result<()> {
        wait_until(what, PODS_TIMEOUT, || {
            thread::sleep(PODS_INTERVAL);
            Ok(reached(&self.pods("default")?).then_some(()))
        })
    }

    /// Deletes all Pods of the namespace `default` whose names begin so.
    ///
    /// # Errors
    ///
    /// If one cannot be deleted, or if they are not gone within a minute.
    pub fn delete_pods(&self, prefix: &str) -> Result<()> {
        let ours =
            |pod: &Value| pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix));
        for pod in self.pods("default")?.iter().filter(|pod| ours(pod)) {
            self.delete_pod("default", pod["metadata"]["name"].as_str().unwrap_or_default())?;
        }
        self.wait_for_pods("deleted Pods to be gone", |pods| !pods.iter().any(ours))
    }

    /// How many objects a collection holds, such as `/api/v1/nodes`.
    pub fn count(&self, path: &str) -> Result<u64> {
        let list = self.get(&format!("{path}?limit=1"))?;
        let first = list["items"].as_array().map_or(0, Vec::len) as u64;
        Ok(first + list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0))
    }

    fn request(&self, method: &str, path: &str, content_type: &str, body: Vec<u8>) -> Result<Value> {
        let what = || format!("{method} {path}");
        let request = http::Request::builder().method(method).uri(format!("{}{path}", self.server));
        let request =
            self.headers.iter().fold(request, |request, (header, value)| request.header(*header, value));
        let request = request.header("content-type", content_type).body(body).with_context(what)?;
        let mut response = self.agent.run(request).with_context(what)?;
        // Not ureq's own reader of JSON: it ends at 10 MB, which the Pods of a bench exceed.
        let body = response.body_mut().with_config().limit(u64::MAX).read_to_vec().with_context(what)?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        if !response.status().is_success() {
            let reason = answer["message"].as_str().unwrap_or_default();
            bail!("{}: {} {reason}", what(), response.status());
        }
        Ok(answer)
    }
}
