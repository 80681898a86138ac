//! Creations of Pods in the API server: the spans are the Pods that there are, by who asked for them, and the counts are the API server's own.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, DEPLOYMENTS, deployment, is_bound, pod},
    metrics::Metrics,
    schedspan::{Options, Schedspan},
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
    webhook::{Webhook, register},
};
use serde_json::{Value, json};
use xtask::{
    components::{APISERVER, SCHEDULER},
    process,
};

use crate::{
    controllers::{NOTICED, is_traced, nothing_lost, refuse_pods},
    creations,
};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// Pods of the Deployment.
const REPLICAS: usize = 5;
/// Pods that are refused.
const REFUSED: usize = 2;
/// schedspan counts once a second what it has read.
const IDLE: Duration = Duration::from_millis(2500);
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
const ARRIVAL: Duration = Duration::from_secs(30);
/// The limit for the API server to see a changed configuration.
const SEEN: Duration = Duration::from_secs(10);

/// The API server's counts of what schedspan counts by `call`.
const CALLS: [(&str, &str, (&str, &str)); 4] = [
    ("mutating admission", STEPS, ("type", "admit")),
    ("validating admission", STEPS, ("type", "validate")),
    ("webhook", "apiserver_admission_webhook_admission_duration_seconds_count", ("type", "admit")),
    ("Create etcd3", "etcd_request_duration_seconds_count", ("operation", "create")),
];
const STEPS: &str = "apiserver_admission_step_admission_duration_seconds_count";

/// A user and the client's name.
type Who = (&'static str, &'static str);

const TOOL: Who = ("admin", "acme-tool");
const BY_HAND: Who = ("admin", "by-hand");
const ALICE: Who = ("alice", "acme-tool");
/// By server-side apply: the span does not name the client.
const APPLIED: Who = ("alice", "");
const CONTROLLER: Who =
    ("system:serviceaccount:kube-system:replicaset-controller", "kube-controller-manager");

/// The counts of API server and daemon while there are no writes.
struct Moment {
    unix_ns: u64,
    api: Metrics,
    schedspan: Metrics,
}

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let pid = |name: &str| {
        let found = stage.cluster.processes().iter().find(|process| process.name == name);
        found.map(|process| process.pid).with_context(|| format!("no {name} runs"))
    };
    let webhook = called(stage, &api)?;
    refuse_pods(&api)?;
    let arguments = &["--program", "kube-apiserver,kube-scheduler", "--lifecycle"];
    let mut schedspan = Schedspan::start(&Options { arguments, ..stage.options()? })?;
    is_traced(&schedspan, APISERVER.name, pid(APISERVER.name)?)?;
    is_traced(&schedspan, SCHEDULER.name, pid(SCHEDULER.name)?)?;
    schedspan.wait_for("schedspan to watch Pods", NOTICED, |metrics| {
        metrics.sum("schedspan_lifecycle_watch_up", &[]) == 1.0
    })?;

    let before = idle(&api, &schedspan)?;
    let asked = work(&api)?;
    let after = idle(&api, &schedspan)?;
    let spans = arrived(&stage.cluster.spans_file(), &before, &after, asked.len())?;
    counted(&before, &after, asked.len())?;
    who(&api, &asked, &spans)?;
    well_formed(&stage.cluster.spans_file(), &spans)?;
    in_lifecycle(stage, &api, &spans)?;
    nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()?;
    webhook.stop()
}

/// A webhook that the API server calls for each Pod.
fn called(stage: &Stage, api: &Api) -> Result<Webhook> {
    let mut webhook = Webhook::start(stage, "webhook", &[])?;
    register(api, &webhook, &[])?;
    webhook.wait()?;
    wait_until("the API server to call the webhook", SEEN, || {
        api.post(&format!("{PODS}?dryRun=All"), &pod("trial", "1"))?;
        let metrics = webhook.metrics()?;
        Ok((metrics.sum("schedspan_webhook_reviews_total", &[]) > 0.0).then_some(()))
    })?;
    Ok(webhook)
}

/// Waits for a moment at which the API server has admitted and stored nothing for a while, so that schedspan has counted all.
fn idle(api: &Api, schedspan: &Schedspan) -> Result<Moment> {
    let totals = |metrics: &Metrics| CALLS.map(|(_, name, label)| metrics.sum(name, &[label]));
    wait_until("the writes to end", IDLE_TIMEOUT, || {
        let earlier = api.metrics()?;
        thread::sleep(IDLE);
        let schedspan = schedspan.metrics()?;
        let unix_ns = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
        let api = api.metrics()?;
        Ok((totals(&earlier) == totals(&api)).then_some(Moment { unix_ns, api, schedspan }))
    })
}

/// Lets several users and clients create Pods. Returns who asked for which, by name.
fn work(api: &Api) -> Result<BTreeMap<String, Who>> {
    let mut asked = BTreeMap::new();
    let mut made = |created: &Value, who: Who| {
        let name = created["metadata"]["name"].as_str().unwrap_or_default();
        asked.insert(name.to_owned(), who);
    };
    let tool = api.with("user-agent", "acme-tool/1.2 (linux/amd64)");
    let alice = tool.with("impersonate-user", "alice").with("impersonate-group", "system:masters");
    for number in 0..3 {
        made(&tool.create_pod("default", &pod(&format!("tool-{number}"), "10m"))?, TOOL);
    }
    for number in 0..2 {
        made(&alice.create_pod("default", &pod(&format!("alice-{number}"), "10m"))?, ALICE);
    }
    made(&tool.post(&format!("{PODS}?fieldManager=by-hand"), &pod("by-hand", "10m"))?, BY_HAND);
    // The API server makes up its name.
    let mut some = pod("", "10m");
    some["metadata"] = json!({ "generateName": "some-" });
    made(&tool.create_pod("default", &some)?, TOOL);

    let mut applied = pod("applied", "10m");
    (applied["apiVersion"], applied["kind"]) = ("v1".into(), "Pod".into());
    let path = format!("{PODS}/applied");
    made(&alice.apply_at(&path, &applied)?, APPLIED);
    // It is there then: this only changes it.
    applied["metadata"]["labels"] = json!({ "changed": "yes" });
    alice.apply_at(&path, &applied)?;

    // None of these comes to a Pod.
    let mut refused = pod("refused", "10m");
    refused["metadata"]["labels"] = json!({ "app": "refused" });
    for _ in 0..REFUSED {
        ensure!(tool.create_pod("default", &refused).is_err(), "a Pod was not refused");
    }
    tool.post(&format!("{PODS}?dryRun=All"), &pod("trial", "10m"))?;
    ensure!(tool.create_pod("default", &pod("by-hand", "10m")).is_err(), "a Pod was created twice");

    api.post(DEPLOYMENTS, &deployment("web", REPLICAS))?;
    let of_web = |pods: &[Value]| -> Vec<Value> {
        let is_of_web = |pod: &&Value| pod["metadata"]["ownerReferences"].is_array() && is_bound(pod);
        pods.iter().filter(is_of_web).cloned().collect()
    };
    api.wait_for_pods("Pods to be bound", |pods| of_web(pods).len() == REPLICAS)?;
    of_web(&api.pods("default")?).iter().for_each(|pod| made(pod, CONTROLLER));
    Ok(asked)
}

/// The spans of Pods that were stored between two moments, once there are as many as Pods.
fn arrived(file: &Path, before: &Moment, after: &Moment, wanted: usize) -> Result<Vec<Span>> {
    let read = || -> Result<Vec<Span>> {
        let mut spans = spans::read(file, 0)?;
        spans.retain(|span| {
            let within = (before.unix_ns..after.unix_ns).contains(&span.start_time_unix_nano);
            within && span.name == "StorePod"
        });
        Ok(spans)
    };
    // Where they never do, the comparison shows the difference.
    let _ = wait_until("all spans to arrive", ARRIVAL, || Ok((read()?.len() >= wanted).then_some(())));
    read()
}

/// Checks that schedspan has seen each step of admission, each webhook and each write that the API server counted, of Pods or not.
fn counted(before: &Moment, after: &Moment, created: usize) -> Result<()> {
    let own = |labels: &[(&str, &str)], name: &str| {
        after.schedspan.sum(name, labels) - before.schedspan.sum(name, labels)
    };
    let theirs =
        |name: &str, labels: &[(&str, &str)]| after.api.sum(name, labels) - before.api.sum(name, labels);
    for (call, metric, label) in CALLS {
        let calls = own(&[("call", call)], "schedspan_apiserver_calls_total");
        let of_pods = own(&[("call", call), ("about", "pod")], "schedspan_apiserver_calls_total");
        let expected = theirs(metric, &[label]);
        ensure!(calls == expected, "{calls} calls `{call}`, and {metric} of {label:?} is {expected}");
        ensure!(of_pods > 0.0, "no call `{call}` is about a Pod: the test proves nothing");
        println!("         {call:<22} {calls} = {metric}, {of_pods} of them about Pods");
    }
    let rejected = theirs(STEPS, &[("operation", "CREATE"), ("rejected", "true")]);
    let posts = ["verb", "resource", "subresource", "dry_run", "code"];
    let posted = |moment: &Moment| -> f64 {
        let requests = moment.api.by("apiserver_request_total", posts);
        let of = |verb: &str| {
            let key = [verb, "pods", "", "", "201"].map(str::to_owned);
            requests.get(&key).copied().unwrap_or_default()
        };
        ["POST", "APPLY"].map(of).iter().sum()
    };
    let expected = posted(after) - posted(before);
    ensure!(expected == created as f64, "the API server created {expected} Pods, and the test {created}");
    for (result, expected) in [("created", expected), ("rejected", rejected), ("unseen", 0.0)] {
        let name = "schedspan_apiserver_pod_requests_total";
        let seen = own(&[("result", result)], name);
        ensure!(seen == expected, "{name} of `{result}` is {seen}, and the API server's is {expected}");
    }
    ensure!(rejected == REFUSED as f64, "the API server rejected {rejected} requests, not {REFUSED}");
    Ok(())
}

/// Checks that each Pod has one span, with its UID and those who asked for it.
fn who(api: &Api, asked: &BTreeMap<String, Who>, spans: &[Span]) -> Result<()> {
    let mut by_uid: BTreeMap<String, &Span> = BTreeMap::new();
    for span in spans {
        let is_first = by_uid.insert(span.attribute("k8s.pod.uid"), span).is_none();
        ensure!(is_first, "{} was stored twice", span.pod());
        ensure!(!span.is_incomplete(), "the span of {} is incomplete", span.pod());
    }
    let mut users = BTreeMap::<&str, usize>::new();
    for pod in api.pods("default")? {
        let metadata = &pod["metadata"];
        let [name, uid] = ["name", "uid"].map(|field| metadata[field].as_str().unwrap_or_default());
        let (user, client) = *asked.get(name).with_context(|| format!("nobody asked for {name}"))?;
        let span = by_uid.remove(uid).with_context(|| format!("no span has the UID of {name}"))?;
        let keys = ["k8s.pod.name", "k8s.namespace.name", "user.name", "k8s.object.manager"];
        let said = keys.map(|key| span.attribute(key));
        ensure!(said == [name, "default", user, client], "the span of {name} says {said:?}");
        let managers: BTreeSet<_> = metadata["managedFields"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|entry| entry["manager"].as_str())
            .collect();
        let is_known = client.is_empty() || managers.contains(client);
        ensure!(is_known, "{name} is managed by {managers:?}, not by {client}");
        *users.entry(user).or_default() += 1;
    }
    ensure!(by_uid.is_empty(), "{} spans are of no Pod", by_uid.len());
    println!("         {} Pods were stored, by user: {users:?}", asked.len());
    Ok(())
}

/// Checks that each Pod passed both steps of admission, the webhook within the first, before it was written.
fn well_formed(file: &Path, stored: &[Span]) -> Result<()> {
    let all = spans::read(file, 0)?;
    for root in stored {
        let below = |parent: &Span| -> Vec<&Span> {
            let is_below =
                |span: &&Span| span.trace_id == parent.trace_id && span.parent_span_id == parent.span_id;
            let mut below: Vec<_> = all.iter().filter(is_below).collect();
            below.sort_by_key(|span| span.start_time_unix_nano);
            below
        };
        let names = |spans: &[&Span]| spans.iter().map(|span| span.name.clone()).collect::<Vec<_>>();
        let steps = below(root);
        let is_applied = root.pod() == "applied";
        let all = ["mutating admission", "validating admission", "Create etcd3"];
        ensure!(
            names(&steps) == all[..if is_applied { 2 } else { 3 }],
            "{} has the steps {:?}",
            root.pod(),
            names(&steps)
        );
        ensure!(steps.iter().all(|step| root.holds(step)), "a step of {} is outside of it", root.pod());
        ensure!(
            steps.is_sorted_by(|one, next| one.end_time_unix_nano <= next.start_time_unix_nano),
            "two steps of {} are at one time",
            root.pod()
        );
        let webhooks = below(steps[0]);
        let [webhook] = webhooks[..] else { anyhow::bail!("{} has {:?}", root.pod(), names(&webhooks)) };
        let status = webhook.attribute("http.response.status_code");
        ensure!(webhook.name.starts_with("webhook: ") && status == "200", "{} {status}", webhook.name);
        ensure!(
            steps[0].holds(webhook) && below(steps[1]).is_empty(),
            "a webhook of {} is elsewhere",
            root.pod()
        );
    }
    Ok(())
}

/// Checks that the span is below the Pod's lifecycle, and that `schedspan lifecycle` draws it.
fn in_lifecycle(stage: &Stage, api: &Api, stored: &[Span]) -> Result<()> {
    let pod = "tool-0";
    // As a kubelet would say.
    api.patch(&format!("{PODS}/{pod}/status"), &json!({ "status": { "phase": "Succeeded" } }))?;
    let file = stage.cluster.spans_file();
    let lives = creations::in_lifecycles(&file, stored, 1)?;
    ensure!(lives > 0, "no Pod has a lifecycle that ended");
    let text = process::output(Command::new(&stage.executable).args(["lifecycle", pod]).arg(&file))?;
    ensure!(text.contains("kube-apiserver: StorePod"), "no `StorePod` is in {text}");
    text.lines().for_each(|line| println!("         {line}"));
    Ok(())
}
