//! `kubectl schedspan` with a real kubectl and API server. There is no kubelet, so a port of a Pod is reached in a kind cluster only.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, is_bound, pod},
    schedspan::Schedspan,
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
    webhook::{Webhook, register},
};
use serde_json::{Value, json};
use xtask::components::KUBECTL;

use crate::lifecycle;

const TIMEOUT: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(100);
const REPLICAS: usize = 3;
/// Columns of a waterfall.
const COLUMNS: &str = "140";
const SYSTEM: &str = "/api/v1/namespaces/kube-system/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// The annotation that the webhook writes.
const CONTEXT: &str = "tracing.k8s.io~1traceparent";

/// kubectl, with schedspan as its plugin.
struct Plugin {
    path: String,
    kubectl: PathBuf,
    dir: PathBuf,
}

impl Plugin {
    fn new(stage: &Stage) -> Result<Self> {
        let (kubectl, folder) = (KUBECTL.executable()?, stage.cluster.dir().join("plugins"));
        fs::create_dir(&folder)?;
        symlink(&stage.executable, folder.join("kubectl-schedspan"))?;
        symlink(&kubectl, folder.join("kubectl"))?;
        let path = env::var("PATH").unwrap_or_default();
        let dir = stage.cluster.dir().to_owned();
        Ok(Self { path: format!("{}:{path}", folder.display()), kubectl, dir })
    }

    fn command(&self, kubeconfig: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.arg("schedspan").args(arguments).env("PATH", &self.path).env("KUBECONFIG", kubeconfig);
        command.env_remove("SCHEDSPAN_SERVER").env("NO_COLOR", "1").env("COLUMNS", COLUMNS);
        command.stdin(Stdio::null()).current_dir(&self.dir);
        command
    }

    /// Fails unless it ends with this code. Returns standard output and standard error.
    fn run(&self, kubeconfig: &Path, code: i32, arguments: &[&str]) -> Result<(String, String)> {
        let Output { status, stdout, stderr } = self.command(kubeconfig, arguments).output()?;
        let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        ensure!(
            status.code() == Some(code),
            "{arguments:?} ended with {status} instead of {code}: {stdout}{stderr}"
        );
        Ok((stdout, stderr))
    }
}

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let (api, plugin) = (stage.cluster.api()?, Plugin::new(stage)?);
    let schedspan = stage.trace()?;
    explained(stage, &api, &plugin, &schedspan).context("explain")?;
    errors(stage, &api, &plugin).context("errors")?;
    refused(stage, &plugin).context("traced")?;
    traced(stage, &api, &plugin, &schedspan, Tracing::On).context("traced")?;
    schedspan.stop()
}

/// A request and what comes of it, where the API server does not trace.
pub(super) fn untraced(stage: &mut Stage) -> Result<()> {
    let (api, plugin) = (stage.cluster.api()?, Plugin::new(stage)?);
    let schedspan = stage.trace()?;
    traced(stage, &api, &plugin, &schedspan, Tracing::Off)?;
    schedspan.stop()
}

/// Whether the API server traces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tracing {
    On,
    Off,
}

/// Formats and exit codes of `explain` and `top`, with a daemon at a URL.
fn explained(stage: &Stage, api: &Api, plugin: &Plugin, schedspan: &Schedspan) -> Result<()> {
    api.create_pod("default", &pod("web-0", "10m"))?;
    api.wait_for_pods("the Pod to be bound", |pods| pods.iter().all(is_bound))?;
    let (admin, server) = (stage.cluster.kubeconfig(), format!("http://{}", schedspan.address("debug")));
    let explain = |code, more: &[&str]| {
        plugin.run(&admin, code, &[&["explain", "--server", server.as_str()], more].concat())
    };
    wait_until("the attempt", TIMEOUT, || {
        thread::sleep(INTERVAL);
        // Before it is over, the answer is that the Pod waits, or is being tried.
        let said = explain(0, &["web-0"]).ok();
        Ok(said.filter(|(text, _)| text.starts_with("default/web-0: 1 attempt")).map(drop))
    })?;
    let (json, _) = explain(0, &["pod/web-0", "-o", "json"])?;
    let json: Value = serde_json::from_str(&json)?;
    ensure!(json["attempts"][0]["result"] == "Success", "{json}");
    let (yaml, _) = explain(0, &["web-0", "-o", "yaml"])?;
    ensure!(yaml.contains("\nattempts:\n") && yaml.contains("result: Success"), "{yaml}");
    ensure!(explain(0, &["web-0", "-n", "default", "-o", "name"])?.0 == "pod/web-0\n", "not the name");
    ensure!(explain(0, &["-A", "web-0", "-o", "name"])?.0 == "pod/web-0\n", "not the name");
    let (_, why) = explain(1, &["nothing"])?;
    ensure!(why.contains("no attempt of default/nothing"), "{why}");
    explain(64, &["--no-such-flag"])?;
    plugin.run(&admin, 2, &["explain", "--server", "http://127.0.0.1:1", "web-0"])?;
    let (top, _) = plugin.run(&admin, 0, &["top", "--server", &server, "-o", "json"])?;
    ensure!(serde_json::from_str::<Value>(&top)?["schedulers"] == 1, "{top}");
    // kubectl's own help and completion know the plugin's verbs.
    let (help, _) = plugin.run(&admin, 0, &["--help"])?;
    ensure!(help.contains("kubectl schedspan") && !help.contains("webhook"), "{help}");
    let (verbs, _) = plugin.run(&admin, 0, &["__complete", "tr"])?;
    ensure!(verbs.lines().eq(["trace", "traced", ":4"]), "{verbs}");
    Ok(())
}

/// Each step that can fail is named.
fn errors(stage: &Stage, api: &Api, plugin: &Plugin) -> Result<()> {
    let (admin, user) = (stage.cluster.kubeconfig(), stage.cluster.schedspan_kubeconfig());
    let fails = |kubeconfig: &Path, says: &[&str]| -> Result<()> {
        let (_, why) = plugin.run(kubeconfig, 2, &["explain", "web-0"])?;
        let missing: Vec<_> = says.iter().filter(|part| !why.contains(**part)).collect();
        ensure!(missing.is_empty(), "{why:?} does not say {missing:?}");
        Ok(())
    };
    fails(Path::new("/nonexistent"), &["no cluster is known", "--kubeconfig"])?;
    fails(&admin, &["no Pod of schedspan is in the cluster", "--daemon-namespace"])?;
    let mut daemon = pod("schedspan-x", "1m");
    daemon["metadata"]["labels"] = json!({
        "app.kubernetes.io/component": "daemon",
        "app.kubernetes.io/part-of": "schedspan",
    });
    daemon["spec"]["nodeName"] = "nowhere".into();
    api.create_pod("kube-system", &daemon)?;
    fails(&admin, &["no Pod of schedspan is in the cluster"])?;
    api.patch(&format!("{SYSTEM}/schedspan-x/status"), &json!({ "status": { "phase": "Running" } }))?;
    fails(&user, &["forbidden: create pods/portforward in namespace kube-system", "rbac.users"])?;
    let lease =
        json!({ "metadata": { "name": "kube-scheduler" }, "spec": { "holderIdentity": "elsewhere_1" } });
    api.post(LEASES, &lease)?;
    fails(&admin, &["no Pod of schedspan runs on the Node of elsewhere, whose scheduler leads"])?;
    api.delete(&format!("{LEASES}/kube-scheduler"))?;
    api.delete_pod("kube-system", "schedspan-x").map(drop)
}

/// What `traced` does not do.
fn refused(stage: &Stage, plugin: &Plugin) -> Result<()> {
    let admin = stage.cluster.kubeconfig();
    let (_, why) = plugin.run(&admin, 1, &["traced", "--", "get", "nosuchkind"])?;
    ensure!(why.contains("the server doesn't have a resource type"), "{why}");
    let (_, why) = plugin.run(&admin, 2, &["traced", "--", "get", "pods", "--context=a"])?;
    ensure!(why.contains("give --context"), "{why}");
    let (pods, _) = plugin.run(&admin, 0, &["traced", "--", "get", "pods", "--output=name"])?;
    ensure!(pods.contains("pod/web-0"), "{pods}");
    Ok(())
}

/// A command, its requests and the Pods that come of them are one waterfall, without the webhook and with it; with it the attempts are linked to
/// the trace.
fn traced(stage: &Stage, api: &Api, plugin: &Plugin, schedspan: &Schedspan, tracing: Tracing) -> Result<()> {
    let server = format!("http://{}", schedspan.address("debug"));
    // Without a daemon the Pods' own times are left.
    let plain = apply(stage, api, plugin, "alone", None)?;
    ensure!(plain.1.contains("attempts to schedule are not shown"), "{}", plain.1);
    let plain = apply(stage, api, plugin, "plain", Some(&server))?;
    ensure!(plain.1.contains(&format!("none of {REPLICAS} Pods carries the trace")), "{}", plain.1);
    let mut webhook = Webhook::start(stage, "webhook", &[])?;
    register(api, &webhook, &["webhook.templates=true"])?;
    webhook.wait()?;
    wait_until("the API server to call the webhook", TIMEOUT, || {
        api.post("/api/v1/namespaces/default/pods?dryRun=All", &pod("trial", "1"))?;
        let reviews = webhook.metrics()?.sum("schedspan_webhook_reviews_total", &[]);
        Ok((reviews > 0.0).then_some(()))
    })?;
    let (trace_id, said) = apply(stage, api, plugin, "linked", Some(&server))?;
    ensure!(said.contains(&format!("{REPLICAS} of {REPLICAS} Pods carry the trace")), "{said}");
    wait_until("the API server's and the attempts' spans", TIMEOUT, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        let posts = |span: &Span| span.trace_id == trace_id && span.name.starts_with("POST");
        let request = spans.iter().any(posts);
        let ours = spans.iter().filter(|span| span.is_root() && span.pod().starts_with("linked-"));
        let linked = ours.filter(|span| span.links.iter().any(|link| link.trace_id == trace_id)).count();
        ensure!(!request || tracing == Tracing::On, "the API server traces without being told to");
        Ok((linked == REPLICAS && request == (tracing == Tracing::On)).then_some(()))
    })?;
    let left = fs::read_dir(env::temp_dir())?.filter_map(Result::ok);
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.display().to_string().contains("schedspan-traced"))
        .collect();
    ensure!(left.is_empty(), "left behind: {left:?}");
    println!("         traced: {REPLICAS} Pods of a Deployment, their attempts in links to trace {trace_id}");
    webhook.stop()
}

/// Applies a Deployment, while this test is its kubelet. Checks the waterfall. Returns the trace's id, and what was said.
fn apply(
    stage: &Stage,
    api: &Api,
    plugin: &Plugin,
    name: &str,
    server: Option<&str>,
) -> Result<(String, String)> {
    let mut template = pod("", "10m");
    template["metadata"] = json!({ "labels": { "app": name } });
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name },
        "spec": { "replicas": REPLICAS, "selector": { "matchLabels": { "app": name } }, "template": template },
    });
    let file = format!("{name}.json");
    fs::write(plugin.dir.join(&file), deployment.to_string())?;
    let over = AtomicBool::new(false);
    let (told, kubelet) = thread::scope(|scope| {
        let kubelet = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                thread::sleep(INTERVAL);
                make_ready(api, name)?;
            }
            anyhow::Ok(())
        });
        let mut arguments = vec!["traced", "--timeout", "30s", "--baggage", "team=shop"];
        arguments.extend(server.iter().flat_map(|server| ["--server", *server]));
        arguments.extend(["--", "apply", "--filename", &file]);
        let told = plugin.run(&stage.cluster.kubeconfig(), 0, &arguments);
        over.store(true, Ordering::Relaxed);
        (told, kubelet.join().expect("the kubelet's thread does not panic"))
    });
    kubelet?;
    let (stdout, stderr) = told?;
    waterfall(&stdout, name, server.is_some()).with_context(|| format!("{stdout}{stderr}"))?;
    ensure!(stdout.contains(&format!("deployment.apps/{name} created")), "{stdout}");
    // People look: docs/kubectl.md shows one of these.
    stdout.lines().for_each(|line| println!("         {line}"));
    let trace_id =
        stderr.lines().find_map(|line| line.strip_prefix("trace ")).context("no trace id")?.to_owned();
    let annotated = |pod: &&Value| pod.pointer(&format!("/metadata/annotations/{CONTEXT}")).is_some();
    let pods = api.pods("default")?;
    let annotated =
        pods.iter().filter(annotated).filter(|pod| pod["metadata"]["labels"]["app"] == name).count();
    let expected = if name == "linked" { REPLICAS } else { 0 };
    ensure!(annotated == expected, "{annotated} Pods of {name} have a context");
    Ok((trace_id, stderr))
}

/// Checks that the command, its requests and all Pods are in one waterfall: with what the daemon says of their attempts, or without.
fn waterfall(text: &str, name: &str, attempts: bool) -> Result<()> {
    let (_, drawn) = text.split_once("\nkubectl apply --filename ").context("no waterfall")?;
    let head = format!("  {REPLICAS} of {REPLICAS} Pods are Ready  ");
    ensure!(drawn.lines().next().is_some_and(|line| line.contains(&head)), "the head is not `{head}`");
    let lines = |part: &str| drawn.lines().filter(|line| line.contains(part)).count();
    let cycles = if attempts { REPLICAS } else { 0 };
    for (part, expected) in [
        ("├─ POST /apis/apps/v1/namespaces/default/deployments", 1),
        ("├─ reads: ", 1),
        (&*format!("─ Pod default/{name}-"), REPLICAS),
        ("Ready on node-", REPLICAS),
        ("─ queued ", REPLICAS),
        ("─ SchedulePod ", cycles),
        ("─ schedulingCycle ", cycles),
        ("─ bindingCycle ", cycles),
        ("─ kubelet ", REPLICAS),
        ("─ sandbox ", REPLICAS),
        ("─ container: main ", REPLICAS),
        ("─ ready ", REPLICAS),
        ("incomplete", 0),
    ] {
        let found = lines(part);
        ensure!(found == expected, "`{part}` is on {found} lines instead of {expected}");
    }
    Ok(())
}

/// Says of each bound Pod that it is Ready, as its kubelet does.
fn make_ready(api: &Api, app: &str) -> Result<()> {
    for pod in api.pods("default")? {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        if pod["metadata"]["labels"]["app"] == app && is_bound(&pod) && pod["status"]["phase"] == "Pending" {
            let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let now = lifecycle::now()?;
            for kind in ["PodReadyToStartContainers", "Ready"] {
                conditions.push(json!({ "type": kind, "status": "True", "lastTransitionTime": now }));
            }
            let status = json!({ "status": {
                "phase": "Running", "startTime": now, "conditions": conditions,
                "containerStatuses": [lifecycle::running(&now)],
            } });
            api.patch(&format!("/api/v1/namespaces/default/pods/{name}/status"), &status)?;
        }
    }
    Ok(())
}
