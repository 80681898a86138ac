//! Which Pods are daemons, and which of them traces the scheduler that leads.

use std::fmt;

use k8s_openapi::api::{coordination::v1::Lease, core::v1};
use kube::{
    Api, ResourceExt as _,
    api::ListParams,
    core::{ApiResource, Object},
};
use serde::Deserialize;

use crate::{
    Cluster, Error,
    cluster::{in_time, of_step, status},
};

/// Labels of the daemon's Pods, in the chart and the manifests: no value of the chart changes them.
pub const LABELS: &str = "app.kubernetes.io/component=daemon,app.kubernetes.io/part-of=schedspan";
/// Namespace of the scheduler's Lease, and of schedspan in the documentation.
const KUBE_SYSTEM: &str = "kube-system";
/// Name of the Lease of the scheduler that leads.
const LEASE: &str = "kube-scheduler";
/// Port of a daemon that has no `--debug-listen`.
const PORT: u16 = 9091;
/// Daemons that are asked: a control plane has 3 to 7 Nodes.
const MAX_DAEMONS: u32 = 64;

/// A Pod with the fields that are read. The code that decodes all of a Pod is 400 kB.
type Pod = Object<Spec, Status>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    command: Vec<String>,
    args: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

/// A Pod of schedspan, and the port that its daemon answers on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub pod: String,
    /// Name of its Node.
    pub node: String,
    /// Port of `--debug-listen`.
    pub port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, pod, node, port: _ } = self;
        write!(f, "{namespace}/{pod} on {node}")
    }
}

/// The daemons of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The daemon on the Node whose scheduler leads, or why it is not known.
    pub leader: Result<Place, String>,
    /// The others.
    pub others: Vec<Place>,
}

/// Finds the daemons of a cluster, in this namespace or in all.
///
/// # Errors
///
/// When Pods cannot be listed, or none is a daemon that can be asked.
pub async fn daemons(cluster: &Cluster, namespace: Option<&str>) -> Result<Found, Error> {
    let pods = pods(cluster, namespace).await?;
    let holder = holder(cluster).await;
    let named = match &holder {
        Ok(holder) if !pods.iter().any(|pod| is_on(pod, host(holder))) => {
            node_of(cluster, host(holder)).await
        }
        Ok(_) | Err(_) => None,
    };
    let place = namespace.map_or_else(|| "the cluster".to_owned(), |name| format!("namespace {name}"));
    choose(&pods, holder, named.as_deref(), &place)
}

async fn pods(cluster: &Cluster, namespace: Option<&str>) -> Result<Vec<Pod>, Error> {
    let wanted = ListParams::default().labels(LABELS).limit(MAX_DAEMONS);
    let (first, second) = match namespace {
        Some(namespace) => (pods_of(cluster, namespace), None),
        // A user of one namespace may not list Pods of all.
        None => (Api::all_with(cluster.client.clone(), &kind()), Some(pods_of(cluster, KUBE_SYSTEM))),
    };
    let place = |name: Option<&str>| {
        name.map_or_else(|| "all namespaces".to_owned(), |name| format!("namespace {name}"))
    };
    let what = |name| format!("list Pods with the labels {LABELS} in {}", place(name));
    match (in_time(first.list(&wanted)).await, second) {
        (Ok(list), _) => Ok(list.items),
        (Err(Some(error)), Some(second)) if status(&error) == Some(http::StatusCode::FORBIDDEN) => {
            match in_time(second.list(&wanted)).await {
                Ok(list) => Ok(list.items),
                Err(error) => Err(of_step(&what(Some(KUBE_SYSTEM)), error)),
            }
        }
        (Err(error), _) => Err(of_step(&what(namespace), error)),
    }
}

fn kind() -> ApiResource {
    ApiResource::erase::<v1::Pod>(&())
}

fn pods_of(cluster: &Cluster, namespace: &str) -> Api<Pod> {
    Api::namespaced_with(cluster.client.clone(), namespace, &kind())
}

/// Who holds the Lease of the schedulers, or why that is not known.
async fn holder(cluster: &Cluster) -> Result<String, String> {
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), KUBE_SYSTEM);
    let lease = in_time(leases.get_opt(LEASE)).await;
    let lease = lease.map_err(|error| {
        let what = format!("get the Lease {KUBE_SYSTEM}/{LEASE}");
        of_step(&what, error).to_string()
    })?;
    let lease = lease
        .ok_or_else(|| format!("there is no Lease {KUBE_SYSTEM}/{LEASE}: no scheduler elects a leader"))?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty());
    holder.ok_or_else(|| format!("the Lease {KUBE_SYSTEM}/{LEASE} has no holder: no scheduler leads"))
}

/// The Node of a scheduler in an ordinary Pod: there the host's name is the Pod's.
async fn node_of(cluster: &Cluster, host: &str) -> Option<String> {
    let pod = in_time(pods_of(cluster, KUBE_SYSTEM).get_opt(host)).await.ok()??;
    Some(pod.spec.node_name).filter(|name| !name.is_empty())
}

/// The host of a Lease's holder: `HOST_UUID`.
///
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/cmd/kube-scheduler/app/options/options.go#L317-L323>
fn host(holder: &str) -> &str {
    holder.rsplit_once('_').map_or(holder, |(host, _)| host)
}

/// Whether a Pod is on the Node of this host. A Node may have the host's full name while the host has the first part.
fn is_on(pod: &Pod, host: &str) -> bool {
    let node = &*pod.spec.node_name;
    let begins = |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'));
    !host.is_empty() && !node.is_empty() && (node == host || begins(node, host) || begins(host, node))
}

/// Chooses among Pods. `named`: the Node of the holder, if its host is not a Node's name.
///
/// # Errors
///
/// When none can be asked.
fn choose(
    pods: &[Pod],
    holder: Result<String, String>,
    named: Option<&str>,
    place: &str,
) -> Result<Found, Error> {
    let running: Vec<_> = pods.iter().filter(|pod| is_running(pod)).collect();
    if running.is_empty() {
        return Err(Error::NoDaemon { place: place.to_owned() });
    }
    let mut others: Vec<(bool, Place)> = Vec::new();
    for pod in &running {
        let Some(port) = port(pod) else { continue };
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let leads = holder.as_ref().is_ok_and(|holder| is_on(pod, named.unwrap_or(host(holder))));
        others.push((leads, Place { namespace, pod: name, node: pod.spec.node_name.clone(), port }));
    }
    if others.is_empty() {
        return Err(Error::SwitchedOff { pod: running[0].name_any() });
    }
    // Without a Lease one daemon is all there is to ask.
    let only = holder.is_err() && pods.len() == 1;
    let leader = others.iter().position(|(leads, _)| *leads || only).map(|at| others.remove(at).1);
    let leader = match (leader, holder) {
        (Some(place), _) => Ok(place),
        (None, Err(why)) => Err(why),
        (None, Ok(holder)) => Err(format!(
            "no Pod of schedspan runs on the Node of {}, whose scheduler leads; see `kubectl get pods -A -o wide -l {LABELS}`",
            named.unwrap_or(host(&holder))
        )),
    };
    Ok(Found { leader, others: others.into_iter().map(|(_, place)| place).collect() })
}

fn is_running(pod: &Pod) -> bool {
    let is_up = pod.status.as_ref().is_some_and(|status| status.phase == "Running");
    is_up && pod.metadata.deletion_timestamp.is_none()
}

/// The port that a daemon answers on; `None` if it does not.
fn port(pod: &Pod) -> Option<u16> {
    let containers = pod.spec.containers.iter();
    let mut words = containers.flat_map(|container| container.command.iter().chain(&container.args));
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--debug-listen") {
            Some("") => words.next().map(String::as_str),
            Some(value) => value.strip_prefix('='),
            None => None,
        };
        if let Some(value) = value {
            return value.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).filter(|port| *port != 0);
        }
    }
    Some(PORT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pod(node: &str, phase: &str, args: &[&str]) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "kube-system", "name": format!("schedspan-{node}")},
            "spec": {"nodeName": node, "containers": [{"name": "schedspan", "args": args}]},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn three() -> Vec<Pod> {
        ["a", "b", "c"].map(|node| pod(node, "Running", &["run"])).into()
    }

    fn nodes(places: &[Place]) -> Vec<&str> {
        places.iter().map(|place| &*place.node).collect()
    }

    #[test]
    fn the_daemon_of_the_leaders_node_is_found() {
        let found = choose(&three(), Ok("b_6f3c2a0e-77".to_owned()), None, "the cluster").unwrap();
        assert_eq!(found.leader.unwrap().node, "b");
        assert_eq!(nodes(&found.others), ["a", "c"]);
    }

    #[test]
    fn a_node_may_have_the_hosts_full_name() {
        let pods = [
            pod("ip-10-0-0-1.ec2.internal", "Running", &[]),
            pod("ip-10-0-0-12.ec2.internal", "Running", &[]),
        ];
        let found = choose(&pods, Ok("ip-10-0-0-1_id".to_owned()), None, "").unwrap();
        assert_eq!(found.leader.unwrap().node, "ip-10-0-0-1.ec2.internal");
    }

    #[test]
    fn the_node_of_a_scheduler_in_a_pod_is_that_of_the_pod() {
        let found = choose(&three(), Ok("my-scheduler-7d9-x_id".to_owned()), Some("c"), "").unwrap();
        assert_eq!(found.leader.unwrap().node, "c");
    }

    #[test]
    fn a_leader_without_a_daemon_is_named() {
        let found = choose(&three(), Ok("d_id".to_owned()), None, "").unwrap();
        assert!(found.leader.unwrap_err().contains("the Node of d,"));
        assert_eq!(nodes(&found.others), ["a", "b", "c"]);
    }

    #[test]
    fn without_a_lease_the_only_daemon_is_the_leaders() {
        let found = choose(&[pod("a", "Running", &[])], Err("no Lease".to_owned()), None, "").unwrap();
        assert_eq!((found.leader.unwrap().node.as_str(), found.others.len()), ("a", 0));
        let found = choose(&three(), Err("no Lease".to_owned()), None, "").unwrap();
        assert_eq!((found.leader.unwrap_err().as_str(), found.others.len()), ("no Lease", 3));
    }

    #[test]
    fn pods_that_do_not_run_and_daemons_without_a_port_are_not_asked() {
        let error =
            choose(&[pod("a", "Pending", &[])], Ok("a_id".to_owned()), None, "namespace x").unwrap_err();
        assert!(error.to_string().starts_with("no Pod of schedspan is in namespace x"), "{error}");
        let off = [pod("a", "Running", &["run", "--debug-listen", "off"])];
        let error = choose(&off, Ok("a_id".to_owned()), None, "").unwrap_err();
        assert!(error.to_string().contains("schedspan-a"), "{error}");
    }

    #[test]
    fn the_port_is_that_of_debug_listen() {
        for (args, port) in [
            (&["run", "--debug-listen=127.0.0.1:19091"][..], Some(19_091)),
            (&["run", "--debug-listen", "[::1]:7"], Some(7)),
            (&["run", "--debug-listen=off"], None),
            (&["run", "--debug-listen=127.0.0.1:0"], None),
            (&["run", "--debug-listen"], Some(PORT)),
            (&[], Some(PORT)),
        ] {
            assert_eq!(super::port(&pod("a", "Running", args)), port, "{args:?}");
        }
    }

    proptest! {
        #[test]
        fn the_leader_is_never_a_daemon_of_another_host(holder in "[ab.]{0,4}(_[ab]{1,2})?", nodes in proptest::collection::vec("[ab.]{1,4}", 2..5)) {
            let pods: Vec<_> = nodes.iter().map(|node| pod(node, "Running", &[])).collect();
            if let Ok(leader) = choose(&pods, Ok(holder.clone()), None, "").unwrap().leader {
                let (host, node) = (host(&holder), &*leader.node);
                let begins = |long: &str, short: &str| long.starts_with(&[short, "."].concat());
                prop_assert!(node == host || begins(node, host) || begins(host, node), "{} for {}", node, holder);
            }
        }
    }
}
