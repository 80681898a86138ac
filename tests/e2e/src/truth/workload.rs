//! The Pods of the test `truth`: with every outcome.

use std::time::Duration;

use anyhow::Result;
use harness::{
    api::{Api, NodeSize, is_bound, pod},
    wait::wait_until,
};
use serde_json::{Value, json};

/// The limit for the API server to apply a policy.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Larger Nodes, created later.
const LARGE_NODES: usize = 2;
const STORAGE_CLASS: &str = "local";
/// Pods with a volume, and the number of the first Node that has one.
const VOLUMES: usize = 10;
const FIRST_VOLUME: usize = 51;
/// Pods for each failure of the plugin.
const TROUBLED: usize = 3;

/// Pods of one kind: their name and number, and the change to an ordinary Pod.
type Kind = (&'static str, usize, fn(&mut Value, usize));

/// Ordinary Pods. They come first, because Pods with affinities make all others slower, and the test looks for differences of
/// microseconds.
const FIRST: [Kind; 2] = [
    ("small", 338 - GATED, |_, _| ()),
    ("gated", GATED, |pod, _| pod["spec"]["schedulingGates"] = json!([{ "name": "schedspan.test/wait" }])),
];
/// Pods with a scheduling gate, which is opened when the others have been tried.
pub(super) const GATED: usize = 5;
/// Pods after those and after the failing ones. Pods named "never…" fit nowhere; all others are bound in the end.
const THEN: [Kind; 13] = [
    // Each fills a Node until it is preempted.
    ("low", 10, |pod, n| fill(pod, n, "30", "low")),
    // These fit once there are larger Nodes.
    ("large", 20, |pod, _| ask(pod, "40")),
    ("never", 5, |pod, _| ask(pod, "1000")),
    ("second", 30, |pod, _| second_profile(pod)),
    ("never-second", 3, |pod, _| {
        second_profile(pod);
        ask(pod, "1000");
    }),
    ("never-volume", 3, |pod, _| claim(pod, "none")),
    ("never-postfilter", 3, |pod, _| {
        trouble(pod, "PostFilter", "error");
        ask(pod, "1000");
    }),
    ("volume", VOLUMES, |pod, n| claim(pod, &format!("volume-{n}"))),
    // One permission comes after 0.2 s, the other not within its limit of 1 s.
    ("allowed", 10, |pod, _| trouble(pod, "Permit", "wait-allow")),
    ("waiting", 10, |pod, _| trouble(pod, "Permit", "wait")),
    ("affinity", 10, |pod, n| {
        let hostname =
            |operator: &str, n: usize| json!({ "key": HOSTNAME, "operator": operator, "values": [node(n)] });
        pod["spec"]["affinity"]["nodeAffinity"] = json!({
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchExpressions": [hostname("NotIn", n)] }],
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [
                { "weight": 10, "preference": { "matchExpressions": [hostname("In", n + 20)] } },
            ],
        });
    }),
    ("together", 10, |pod, _| beside(pod, "podAffinity", "together")),
    ("apart", 10, |pod, _| beside(pod, "podAntiAffinity", "apart")),
];
/// Failures of the plugin, and their extension points.
///
/// `goexit` is not among them: the end of the binding goroutine is not visible, so schedspan keeps the attempt open for half an
/// hour, as if the Pod waited. `panic` on that goroutine is not either: it would end the scheduler.
const TROUBLES: [(&str, &str); 21] = [
    ("PreFilter", "slow"),
    ("PreFilter", "reject"),
    ("PreFilter", "error"),
    ("PreFilter", "skip"),
    ("PreFilter", "panic"),
    ("PreScore", "error"),
    ("PreScore", "skip"),
    ("Reserve", "slow"),
    ("Reserve", "reject"),
    ("Reserve", "error"),
    ("Reserve", "panic"),
    ("Permit", "slow"),
    ("Permit", "reject"),
    ("Permit", "error"),
    ("Permit", "panic"),
    // The first two do nothing if the scheduler lacks the extension point.
    ("PreBindPreFlight", "slow"),
    ("PreBindPreFlight", "error"),
    ("PreBind", "slow"),
    ("PreBind", "reject"),
    ("PreBind", "error"),
    ("PostBind", "slow"),
];
/// Pods whose attempt a panic ends. The scheduler continues with the next Pod, and these are in no queue.
pub(super) const PANICS: usize = 3 * TROUBLED;
/// Pods created after the others have been tried. Each of the first preempts another; the API server refuses the binding of the
/// rest.
const LAST: [Kind; 2] = [("high", 10, |pod, n| fill(pod, n, "20", "high")), ("refused", 5, |_, _| ())];

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Whether a Pod of this name has a scheduling gate.
pub(super) fn is_gated(name: &str) -> bool {
    name.starts_with("gated")
}

/// Whether a Pod of this name panics.
pub(super) fn panics(name: &str) -> bool {
    name.starts_with("panic")
}

/// Creates all Pods and waits until the scheduler is idle.
pub(super) fn schedule(api: &Api) -> Result<()> {
    api.create_priority_classes()?;
    provide_volumes(api)?;
    let first = [of_kinds(&FIRST), troubled(), of_kinds(&THEN)].concat();
    for pod in &first {
        api.create_pod("default", pod)?;
    }
    api.wait_for_pods("Pods to be bound or found unschedulable", |pods| {
        pods.len() == first.len() && pods.iter().all(|pod| is_tried(pod) || panics(name(pod)))
    })?;
    for pod in first.iter().map(name).filter(|name| is_gated(name)) {
        let open = json!({ "spec": { "schedulingGates": [] } });
        api.patch(&format!("/api/v1/namespaces/default/pods/{pod}"), &open)?;
    }
    let last = of_kinds(&LAST);
    for pod in &last {
        api.create_pod("default", pod)?;
    }
    // They also make the scheduler retry the Pods that the plugin rejected.
    for n in 1..=LARGE_NODES {
        api.create_node(&format!("large-{n}"), NodeSize { cpu: "480", ..NodeSize::default() })?;
    }
    let left = ["never", "refused", "panic"];
    let is_left = |pod: &&Value| left.iter().any(|left| name(pod).starts_with(left));
    let wanted = [first, last].concat().iter().filter(|pod| !is_left(pod) && !is_low(pod)).count();
    api.wait_for_pods("Pods to preempt others and to be tried again", |pods| {
        pods.iter().filter(|pod| is_bound(pod)).count() == wanted && !pods.iter().any(is_low)
    })?;
    // The scheduler would keep retrying the others.
    left.iter().try_for_each(|left| api.delete_pods(left))
}

fn is_low(pod: &Value) -> bool {
    name(pod).starts_with("low")
}

/// Whether an attempt of the Pod has ended, according to its condition.
fn is_tried(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| condition["type"] == "PodScheduled")
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

fn of_kinds(kinds: &[Kind]) -> Vec<Value> {
    let mut pods = Vec::new();
    for (name, number, make) in kinds {
        for n in 1..=*number {
            let mut pod = pod(&format!("{name}-{n}"), "100m");
            make(&mut pod, n);
            pods.push(pod);
        }
    }
    pods
}

fn troubled() -> Vec<Value> {
    let mut pods = Vec::new();
    for (point, what) in TROUBLES {
        for n in 1..=TROUBLED {
            let mut pod = pod(&format!("{what}-{}-{n}", point.to_lowercase()), "100m");
            trouble(&mut pod, point, what);
            pods.push(pod);
        }
    }
    pods
}

fn ask(pod: &mut Value, cpu: &str) {
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.into();
}

fn fill(pod: &mut Value, n: usize, cpu: &str, priority: &str) {
    ask(pod, cpu);
    pod["spec"]["nodeSelector"] = json!({ HOSTNAME: node(n) });
    pod["spec"]["priorityClassName"] = priority.into();
}

fn second_profile(pod: &mut Value) {
    pod["spec"]["schedulerName"] = "second-scheduler".into();
}

fn claim(pod: &mut Value, name: &str) {
    pod["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": name } }]);
}

fn trouble(pod: &mut Value, point: &str, what: &str) {
    pod["metadata"]["annotations"][format!("trouble.schedspan.test/{point}")] = what.into();
}

fn beside(pod: &mut Value, affinity: &str, group: &str) {
    pod["metadata"]["labels"] = json!({ "group": group });
    pod["spec"]["affinity"][affinity] = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": [
            { "labelSelector": { "matchLabels": { "group": group } }, "topologyKey": HOSTNAME },
        ],
    });
}

fn node(n: usize) -> String {
    format!("node-{n:04}")
}

/// Creates a claim for each Pod with a volume, a volume on a Node for each claim, and a claim without volume.
fn provide_volumes(api: &Api) -> Result<()> {
    create_storage_class(api)?;
    for n in 1..=VOLUMES {
        create_volume(api, &format!("volume-{n}"), &node(FIRST_VOLUME + n))?;
    }
    create_claim(api, "none", "1Ti")
}

/// Creates a storage class whose volumes are bound once their Pod has a Node.
pub(crate) fn create_storage_class(api: &Api) -> Result<()> {
    let class = json!({
        "metadata": { "name": STORAGE_CLASS },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    api.post("/apis/storage.k8s.io/v1/storageclasses", &class).map(drop)
}

/// Creates a volume of that class on a Node, and a matching claim.
pub(crate) fn create_volume(api: &Api, name: &str, node: &str) -> Result<()> {
    let host = json!({ "key": HOSTNAME, "operator": "In", "values": [node] });
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Gi" },
            "local": { "path": "/none" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [host] }] } },
        },
    });
    api.post("/api/v1/persistentvolumes", &volume)?;
    create_claim(api, name, "1Gi")
}

fn create_claim(api: &Api, name: &str, size: &str) -> Result<()> {
    let claim = json!({
        "metadata": { "name": name },
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": size } },
        },
    });
    api.post("/api/v1/namespaces/default/persistentvolumeclaims", &claim).map(drop)
}

/// Makes the API server refuse the binding of some Pods, an error outside the scheduler.
pub(super) fn refuse_bindings(api: &Api) -> Result<()> {
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let metadata = json!({ "name": "refuse.schedspan.test" });
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["bindings", "pods/binding"],
    });
    api.post(policies, &json!({
        "metadata": metadata,
        "spec": {
            "matchConstraints": { "resourceRules": [rule] },
            "validations": [{ "expression": "!object.metadata.name.startsWith('refused')", "message": "refused" }],
        },
    }))?;
    api.post(
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        &json!({
            "metadata": metadata,
            "spec": { "policyName": metadata["name"], "validationActions": ["Deny"] },
        }),
    )?;
    wait_until("the API server to refuse bindings", REFUSAL_TIMEOUT, || {
        let path = "/api/v1/namespaces/default/pods/refused/binding";
        let target = json!({ "apiVersion": "v1", "kind": "Node", "name": "none" });
        let answer = api.post(path, &json!({ "metadata": { "name": "refused" }, "target": target }));
        Ok(answer.is_err_and(|error| error.to_string().contains("denied request")).then_some(()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_states_the_number_of_pods_and_names_are_unique() {
        let pods = [of_kinds(&FIRST), troubled(), of_kinds(&THEN), of_kinds(&LAST)].concat();
        let names: std::collections::BTreeSet<_> = pods.iter().map(name).collect();
        assert_eq!((pods.len(), names.len()), (550, 550));
        assert_eq!(names.iter().filter(|name| panics(name)).count(), PANICS);
    }
}
