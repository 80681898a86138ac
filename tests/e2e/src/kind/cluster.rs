//! A kind cluster: one or several control planes and a worker.

use std::{
    fs::{self, DirBuilder, File},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    guard::Guard,
    processes::{Process, State},
};
use serde_json::{Value, json};
use xtask::{paths, process};

use super::{
    engine::{self, Engine, Provider},
    images,
};

/// kind's name of the cluster, and the prefix of its containers, such as `schedspan-worker`.
const NAME: &str = "schedspan";
pub(super) const CONTROL_PLANE: &str = "schedspan-control-plane";
pub(super) const WORKER: &str = "schedspan-worker";
/// kind's own node image, the default of its version, if it can be pulled.
const PULLED: &str =
    "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5";
/// The limit of Pods: those of the tests and of the system.
const MAX_PODS: u32 = 300;
/// A node's network: each container has one end of a veth pair, and the node has routes.
const CNI: &str = "/etc/cni/net.d/10-schedspan.conflist";
/// The path of the shared folder on the nodes.
const SHARED: &str = "/shared";

/// The Collector's address in the cluster, from its manifest.
pub(super) const COLLECTOR: &str = "10.96.0.44:4317";

/// Whether API server and kubelets send their own spans to the Collector.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Tracing {
    Off,
    On,
}

/// A running cluster. It ends when it is dropped and when this process ends, however that happens, unless it is detached.
pub(super) struct Cluster {
    pub(super) engine: Engine,
    guard: Option<Guard>,
}

impl Cluster {
    /// Starts a cluster with this number of control planes, and waits until its nodes are ready.
    ///
    /// # Errors
    ///
    /// If there is one already, or a part cannot be built or started.
    pub(super) fn up(provider: Provider, control_planes: usize, tracing: Tracing) -> Result<Self> {
        let dir = dir(provider)?;
        prepare(provider, &dir)?;
        let guard = Guard::start(&["kind", "guard", "--provider", provider.name()])?;
        let cluster = Self { engine: Engine::start(provider, &dir)?, guard: Some(guard) };
        let pulled = cluster.engine.is_own() && cluster.pull();
        let image = if pulled { PULLED.to_owned() } else { cluster.import()? };
        if !pulled && control_planes > 1 {
            cluster.load_balancer()?;
        }
        cluster.create(&image, !pulled, control_planes, tracing)?;
        if !pulled {
            cluster.connect(control_planes + 1)?;
        }
        cluster.kubectl(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=120s"])?;
        Ok(cluster)
    }

    /// Ends it. Unlike a drop it reports failures.
    ///
    /// # Errors
    ///
    /// If a part of it remains.
    pub(super) fn down(mut self) -> Result<()> {
        let _guard = self.guard.take();
        down(self.engine.provider)
    }

    /// Leaves it running after this process.
    ///
    /// # Errors
    ///
    /// If its guard has ended.
    pub(super) fn detach(mut self) -> Result<()> {
        self.guard.take().map_or(Ok(()), Guard::release)
    }

    /// The output of kubectl.
    ///
    /// # Errors
    ///
    /// If it fails, as for the methods below.
    pub(super) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        process::output(self.engine.command("kubectl").args(arguments))
    }

    /// The objects of `kubectl get`.
    pub(super) fn get(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get", "--output=json"], arguments].concat())?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Applies a manifest.
    pub(super) fn manifest(&self, verb: &str, manifest: &str) -> Result<String> {
        let file = self.shared().join(format!("{verb}.yaml"));
        fs::write(&file, manifest)?;
        self.kubectl(&[verb, "--filename", &file.display().to_string()])
    }

    /// The output of a program on a node, outside of Pods.
    pub(super) fn on_node(&self, node: &str, arguments: &[&str]) -> Result<String> {
        process::output(self.engine.command(self.engine.provider.name()).args(["exec", node]).args(arguments))
    }

    /// Loads an image archive into each node.
    pub(super) fn load(&self, archive: &Path) -> Result<()> {
        let mut load = self.engine.command("kind");
        load.args(["load", "image-archive", "--name", NAME]).arg(archive);
        process::output(&mut load).map(drop)
    }

    /// A folder that is [`SHARED`] on the nodes.
    pub(super) fn shared(&self) -> PathBuf {
        self.engine.dir.join("shared")
    }

    fn pull(&self) -> bool {
        let mut pull = self.engine.command(self.engine.provider.name());
        process::run(&format!("pull {PULLED}"), pull.args(["pull", PULLED])).is_ok()
    }

    /// Makes the node image and loads it into the engine, if that lacks it.
    fn import(&self) -> Result<String> {
        let tar = images::node()?;
        // The hash of the tar's content, after the last dash of its name.
        let key = tar.display().to_string().rsplit('-').next().map(str::to_owned);
        let name = images::name("node", &key.context("the node's tar has no key")?);
        let engine = |arguments: &[&str]| {
            let mut command = self.engine.command(self.engine.provider.name());
            command.args(arguments);
            command
        };
        if process::output(&mut engine(&["image", "inspect", &name])).is_ok() {
            return Ok(name);
        }
        let changes = [
            r#"--change=ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]"#,
            "--change=ENV container=docker",
        ];
        let mut import = engine(&["import", changes[0], changes[1], "-", &name]);
        let status = import.stdin(File::open(tar)?).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        ensure!(status.success(), "{} import ended with {status}", self.engine.provider.name());
        Ok(name)
    }

    /// Loads the image of the load balancer, which kind puts before several control planes, into the engine.
    fn load_balancer(&self) -> Result<()> {
        let mut load = self.engine.command(self.engine.provider.name());
        process::output(load.args(["load", "--input"]).arg(images::load_balancer()?)).map(drop)
    }

    /// Creates the cluster with kind. With our own image it lacks kind's network and DNS.
    fn create(&self, image: &str, ours: bool, control_planes: usize, tracing: Tracing) -> Result<()> {
        let node = |role: &str| {
            json!({
                "role": role,
                "image": image,
                "extraMounts": [{ "hostPath": self.shared(), "containerPath": SHARED }],
            })
        };
        // By default kubelet refuses control groups of version 1.
        let mut kubelet =
            json!({ "kind": "KubeletConfiguration", "failCgroupV1": false, "maxPods": MAX_PODS });
        let mut patches = Vec::new();
        if tracing == Tracing::On {
            kubelet["tracing"] = json!({ "endpoint": COLLECTOR, "samplingRatePerMillion": 1_000_000 });
            // Only requests with a sampled context.
            let requests = json!({
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "TracingConfiguration",
                "endpoint": COLLECTOR, "samplingRatePerMillion": 0,
            });
            fs::write(self.shared().join("tracing.json"), requests.to_string())?;
            let file = format!("{SHARED}/tracing.json");
            patches.push(json!({
                "kind": "ClusterConfiguration",
                "apiServer": {
                    "extraArgs": [{ "name": "tracing-config-file", "value": file }],
                    "extraVolumes": [{
                        "name": "shared", "hostPath": SHARED, "mountPath": SHARED, "readOnly": true, "pathType": "Directory",
                    }],
                },
            }));
        }
        patches.push(kubelet);
        let mut networking = json!({});
        if ours {
            networking = json!({ "disableDefaultCNI": true, "kubeProxyMode": "nftables" });
            patches.push(json!({ "kind": "ClusterConfiguration", "imageRepository": images::REPOSITORY }));
            // Replaces kind's own list, which is `preflight`.
            patches
                .push(json!({ "kind": "InitConfiguration", "skipPhases": ["preflight", "addon/coredns"] }));
        }
        let mut nodes = vec![node("control-plane"); control_planes];
        nodes.push(node("worker"));
        let configuration = json!({
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "networking": networking,
            "nodes": nodes,
            "kubeadmConfigPatches": patches.iter().map(Value::to_string).collect::<Vec<_>>(),
        });
        let file = self.shared().join("cluster.json");
        fs::write(&file, serde_json::to_vec_pretty(&configuration)?)?;
        let mut create = self.engine.command("kind");
        create.args(["create", "cluster", "--name", NAME, "--retain", "--config"]).arg(file);
        process::run("kind create cluster", &mut create)
    }

    /// Gives each of this number of nodes a network for its Pods, and routes to those of the others.
    fn connect(&self, number: usize) -> Result<()> {
        let nodes = self.get(&["nodes"])?;
        let nodes: Vec<_> = nodes["items"].as_array().into_iter().flatten().filter_map(node).collect();
        ensure!(
            nodes.len() == number,
            "{} nodes have an address and Pods' addresses instead of {number}",
            nodes.len()
        );
        for (name, _, pods) in &nodes {
            let network = json!({
                "cniVersion": "0.3.1",
                "name": NAME,
                "plugins": [
                    {
                        "type": "ptp",
                        "ipMasq": false,
                        "ipam": {
                            "type": "host-local",
                            "routes": [{ "dst": "0.0.0.0/0" }],
                            "ranges": [[{ "subnet": pods }]],
                        },
                    },
                    { "type": "portmap", "capabilities": { "portMappings": true } },
                ],
            });
            for (_, address, pods) in nodes.iter().filter(|(other, ..)| other != name) {
                self.on_node(name, &["ip", "route", "add", pods, "via", address])?;
            }
            self.on_node(name, &["sh", "-c", &format!("echo '{network}' > {CNI}")])?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.guard.is_some()
            && let Err(error) = down(self.engine.provider)
        {
            eprintln!("the cluster in {} is not down: {error:#}", self.engine.dir.display());
        }
    }
}

/// Ends the cluster and everything started for it. Does nothing if there is none.
///
/// # Errors
///
/// If a part of it remains.
pub(super) fn down(provider: Provider) -> Result<()> {
    let dir = dir(provider)?;
    // Ending an environment ends all in it. In the machine's own engine kind deletes the cluster.
    if let Ok(engine) = Engine::open(provider, &dir)
        && engine.is_own()
    {
        process::output(engine.command("kind").args(["delete", "cluster", "--name", NAME]))?;
    }
    engine::end(provider, &dir)
}

/// The folder of a provider's cluster.
pub(super) fn dir(provider: Provider) -> Result<PathBuf> {
    Ok(paths::cache()?.join(format!("kind-{}", provider.name())))
}

/// Creates the cluster's folder. The folder of a cluster that has ended is removed first.
fn prepare(provider: Provider, dir: &Path) -> Result<()> {
    if let Some(state) = State::load(dir)? {
        let name = provider.name();
        let runs = state.processes.is_empty() || state.processes.iter().any(Process::alive);
        ensure!(!runs, "there is a cluster: `cargo xtask kind down --provider {name}` ends it");
        down(provider)?;
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot create {}", dir.display()))?;
    State::default().save(dir)
}

/// A node's name, its address, and those of its Pods.
fn node(node: &Value) -> Option<(String, String, String)> {
    let addresses = node["status"]["addresses"].as_array()?;
    let address = addresses.iter().find(|address| address["type"] == "InternalIP")?["address"].as_str()?;
    let name = node["metadata"]["name"].as_str()?;
    Some((name.to_owned(), address.to_owned(), node["spec"]["podCIDR"].as_str()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_own_address_and_those_of_its_pods() {
        let mut object = json!({
            "metadata": { "name": "a" },
            "spec": { "podCIDR": "10.244.1.0/24" },
            "status": { "addresses": [
                { "type": "Hostname", "address": "a" },
                { "type": "InternalIP", "address": "172.18.0.2" },
            ] },
        });
        assert_eq!(node(&object), Some(("a".into(), "172.18.0.2".into(), "10.244.1.0/24".into())));
        object["spec"] = json!({});
        assert_eq!(node(&object), None);
    }
}
