//! Objects that were written, from requests and their answers; and how far they and their Pods are. Pure.

use http::Method;
use kube::ResourceExt as _;
use pods::lifecycle::Pod;
use serde_json::Value;

/// An object that a request has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its path in the API.
    pub path: String,
    /// Its namespace; empty if it has none.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
}

/// How far an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It makes no Pods.
    None,
    /// Not all of its Pods are Ready.
    Waiting,
    /// All of its Pods are Ready.
    Ready,
}

/// State of a Pod on its way to Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Not bound to a Node yet.
    Pending,
    /// Bound to a Node.
    Scheduled,
    /// Its containers run.
    Running,
    /// It is Ready.
    Ready,
    /// It is over, successfully.
    Succeeded,
    /// It is over, and has failed.
    Failed,
}

impl State {
    /// The state in a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Scheduled => "Scheduled",
            Self::Running => "Running",
            Self::Ready => "Ready",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    /// Whether it is where it was meant to be.
    #[must_use]
    pub fn is_reached(self) -> bool {
        match self {
            Self::Ready | Self::Succeeded => true,
            Self::Pending | Self::Scheduled | Self::Running | Self::Failed => false,
        }
    }
}

/// The object that a request has written, if it was written: not a dry run, and not a subresource such as an eviction.
#[must_use]
pub fn object(method: &Method, path: &str, query: &str, answer: &[u8]) -> Option<Object> {
    if query.split('&').any(|part| part.starts_with("dryRun=")) {
        return None;
    }
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (name, uid) = (text(&answer["metadata"]["name"])?, text(&answer["metadata"]["uid"])?);
    let path = match *method {
        // To a collection. To a subresource, its answer has no UID.
        Method::POST => format!("{path}/{name}"),
        Method::PATCH | Method::PUT => {
            let subresources = ["/scale", "/status"];
            subresources.iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path).to_owned()
        }
        _ => return None,
    };
    path.ends_with(&format!("/{name}")).then(|| Object {
        path,
        namespace: text(&answer["metadata"]["namespace"]).unwrap_or_default(),
        uid,
    })
}

/// How far an object is, by what its controller says: as `kubectl rollout status`.
#[must_use]
pub fn progress(object: &Value) -> Progress {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let (spec, status) = (&object["spec"], &object["status"]);
    let observed = number(&status["observedGeneration"]) >= number(&object["metadata"]["generation"]);
    let ready = match object["kind"].as_str().unwrap_or_default() {
        "Pod" => {
            let pod = serde_json::from_value::<Pod>(object.clone());
            pod.is_ok_and(|pod| state(&pod).is_reached())
        }
        "Deployment" | "StatefulSet" => {
            let all = spec["replicas"].as_u64().unwrap_or(1);
            // A StatefulSet with OnDelete updates nothing by itself.
            let by_hand = spec["updateStrategy"]["type"] == "OnDelete";
            observed
                && number(&status["readyReplicas"]) >= all
                && (by_hand || number(&status["updatedReplicas"]) >= all)
                && number(&status["replicas"]) <= all
        }
        "ReplicaSet" | "ReplicationController" => {
            observed && number(&status["readyReplicas"]) >= spec["replicas"].as_u64().unwrap_or(1)
        }
        "DaemonSet" => {
            let all = number(&status["desiredNumberScheduled"]);
            observed
                && number(&status["numberReady"]) >= all
                && number(&status["updatedNumberScheduled"]) >= all
        }
        "Job" => {
            let at_once = spec["parallelism"].as_u64().unwrap_or(1);
            let all = spec["completions"].as_u64().map_or(at_once, |all| all.min(at_once));
            number(&status["ready"]) + number(&status["succeeded"]) >= all
        }
        _ => return Progress::None,
    };
    if ready { Progress::Ready } else { Progress::Waiting }
}

/// How far a Pod is, by its status.
#[must_use]
pub fn state(pod: &Pod) -> State {
    let is_ready = pod.condition("Ready").is_some_and(|(holds, _)| holds);
    match pod.phase() {
        "Succeeded" => State::Succeeded,
        "Failed" => State::Failed,
        "Running" if is_ready => State::Ready,
        "Running" => State::Running,
        // Its Node says more after a while.
        _ if pod.node().is_some() => State::Scheduled,
        _ => State::Pending,
    }
}

/// Whether a Pod carries the trace in an annotation, as the webhook gives it.
#[must_use]
pub fn carries(pod: &Pod, trace_id: &str) -> bool {
    let of = |(key, value): (&String, &String)| key.ends_with("traceparent") && value.contains(trace_id);
    pod.annotations().iter().any(of)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";

    fn web() -> Value {
        json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "generation": 2},
               "spec": {"replicas": 2}})
    }

    fn written(method: &Method, path: &str, query: &str, answer: &Value) -> Option<String> {
        object(method, path, query, answer.to_string().as_bytes()).map(|object| object.path)
    }

    #[test]
    fn what_a_request_has_written_is_its_answer() {
        let path = Some(format!("{DEPLOYMENTS}/web"));
        let at = |end: &str| format!("{DEPLOYMENTS}/web{end}");
        assert_eq!(written(&Method::POST, DEPLOYMENTS, "fieldManager=kubectl", &web()), path);
        assert_eq!(written(&Method::PATCH, &at(""), "", &web()), path);
        assert_eq!(written(&Method::PUT, &at("/scale"), "", &web()), path);
    }

    #[test]
    fn a_dry_run_a_deletion_and_an_eviction_write_no_object() {
        let status = json!({"kind": "Status", "status": "Success"});
        assert_eq!(written(&Method::POST, DEPLOYMENTS, "a=b&dryRun=All", &web()), None);
        assert_eq!(written(&Method::DELETE, &format!("{DEPLOYMENTS}/web"), "", &web()), None);
        assert_eq!(written(&Method::POST, "/api/v1/namespaces/shop/pods/web-0/eviction", "", &status), None);
        assert_eq!(written(&Method::PUT, &format!("{DEPLOYMENTS}/other"), "", &web()), None);
    }

    #[test]
    fn a_deployment_is_ready_when_its_controller_says_so_of_this_generation() {
        let mut web = web();
        assert_eq!(progress(&web), Progress::Waiting);
        web["status"] =
            json!({"observedGeneration": 1, "readyReplicas": 2, "updatedReplicas": 2, "replicas": 2});
        assert_eq!(progress(&web), Progress::Waiting);
        web["status"]["observedGeneration"] = json!(2);
        assert_eq!(progress(&web), Progress::Ready);
        // The old ones are still there.
        web["status"]["replicas"] = json!(3);
        assert_eq!(progress(&web), Progress::Waiting);
    }

    #[test]
    fn jobs_daemon_sets_and_others() {
        let job = |ready, succeeded| json!({"kind": "Job", "spec": {"parallelism": 4, "completions": 2}, "status": {"ready": ready, "succeeded": succeeded}});
        assert_eq!((progress(&job(1, 0)), progress(&job(1, 1))), (Progress::Waiting, Progress::Ready));
        let set = json!({"kind": "DaemonSet", "metadata": {"generation": 1},
                         "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, "numberReady": 3, "updatedNumberScheduled": 2}});
        assert_eq!(progress(&set), Progress::Waiting);
        assert_eq!(progress(&json!({"kind": "ConfigMap"})), Progress::None);
    }

    #[test]
    fn a_pod_goes_from_pending_to_ready() {
        let pod = |spec: Value, status: Value| {
            state(&serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap())
        };
        let (none, node) = (json!({"containers": []}), json!({"containers": [], "nodeName": "a"}));
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(pod(none, json!({"phase": "Pending"})), State::Pending);
        assert_eq!(pod(node.clone(), json!({"phase": "Pending"})), State::Scheduled);
        assert_eq!(pod(node.clone(), json!({"phase": "Running"})), State::Running);
        assert_eq!(pod(node.clone(), ready), State::Ready);
        assert_eq!(pod(node, json!({"phase": "Failed"})), State::Failed);
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(text in ".{0,80}", kind in "Pod|Job|Deployment|DaemonSet", number in any::<i64>()) {
            let _ = object(&Method::POST, &text, &text, text.as_bytes());
            let _ = progress(&json!({"kind": kind, "spec": {"replicas": number, "parallelism": number}, "status": {"readyReplicas": number}}));
            let _ = progress(&json!({"kind": kind, "spec": text, "status": number}));
        }
    }
}
