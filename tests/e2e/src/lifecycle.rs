//! Pod lifecycles from the request to Ready. Scheduler and API server are real; the test acts as the kubelet through the API.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, DEPLOYMENTS, NodeSize, deployment, is_bound, is_unschedulable, pod},
    schedspan::{Options, Schedspan},
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use xtask::process;

use crate::checks::{self, text};
use crate::truth::workload::{create_storage_class, create_volume};

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN_ID: &str = "00f067aa0ba902b7";
/// The limit from the end of a lifecycle to the Collector's file. schedspan waits some seconds for late attempts.
const ARRIVAL: Duration = Duration::from_secs(30);
/// Longer than a second, the resolution of the API's times.
const STEP: Duration = Duration::from_millis(1200);
/// The time in which `schedspan trace` attaches its probes.
const ATTACHED: Duration = Duration::from_secs(3);

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    create_storage_class(&api)?;
    for mode in ["link", "parent"] {
        let arguments = ["--lifecycle", "--context-mode", mode];
        let schedspan = Schedspan::start(&Options { arguments: &arguments, ..stage.options()? })?;
        let shop = format!("shop-{mode}");
        shop_opens(&api, mode)?;
        check(stage, &shop, mode)?;
        if mode == "link" {
            others(stage, &api, &schedspan)?;
        }
        checks::nothing_lost(&schedspan.metrics()?)?;
        schedspan.stop()?;
    }
    drawn(stage, &api)
}

/// A Pod with every step: it is gated, fits nowhere, has its volume bound, and starts one container after another.
fn shop_opens(api: &Api, mode: &str) -> Result<()> {
    let (name, node) = (format!("shop-{mode}"), format!("large-{mode}"));
    let node = node.as_str();
    create_volume(api, &format!("data-{mode}"), node)?;
    let mut shop = pod(&name, "64");
    let traceparent = format!("00-{TRACE_ID}-{SPAN_ID}-01");
    shop["metadata"]["annotations"] = json!({ "tracing.k8s.io/traceparent": traceparent });
    shop["spec"]["schedulingGates"] = json!([{ "name": "schedspan.test/quota" }]);
    shop["spec"]["containers"][0]["image"] = "nginx:1.29".into();
    shop["spec"]["initContainers"] = json!([{ "name": "schema", "image": "migrate:2" }]);
    shop["spec"]["volumes"] = json!([
        { "name": "data", "persistentVolumeClaim": { "claimName": format!("data-{mode}") } },
        { "name": "settings", "configMap": { "name": "settings" } },
        { "name": "scratch", "emptyDir": {} },
    ]);
    api.with("traceparent", &traceparent).create_pod("default", &shop)?;
    thread::sleep(STEP);
    api.patch(&path(&name), &json!({ "spec": { "schedulingGates": [] } }))?;
    wait_for(api, "the Pod to fit nowhere", &name, is_unschedulable)?;
    api.create_node(node, NodeSize { cpu: "96", ..NodeSize::default() })?;
    wait_for(api, "the Pod to be bound", &name, is_bound)?;

    let start = now()?;
    kubelet(api, &name, json!({ "startTime": start, "conditions": [] }))?;
    thread::sleep(STEP);
    let sandbox = now()?;
    let waiting = json!({ "name": "schema", "ready": false, "restartCount": 0, "image": "", "imageID": "",
        "state": { "waiting": { "reason": "ErrImagePull" } } });
    let conditions = |kinds: &[(&str, &str)]| -> Value {
        kinds
            .iter()
            .map(|(kind, at)| json!({ "type": kind, "status": "True", "lastTransitionTime": at }))
            .collect()
    };
    let conditions_then = conditions(&[("PodReadyToStartContainers", &sandbox)]);
    kubelet(api, &name, json!({ "conditions": conditions_then, "initContainerStatuses": [waiting] }))?;
    thread::sleep(STEP);
    let from = now()?;
    thread::sleep(STEP);
    let to = now()?;
    let ended = json!({ "name": "schema", "ready": true, "restartCount": 0, "image": "", "imageID": "",
        "state": { "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": from, "finishedAt": to } } });
    let conditions_then = conditions(&[("PodReadyToStartContainers", &sandbox), ("Initialized", &to)]);
    kubelet(api, &name, json!({ "conditions": conditions_then, "initContainerStatuses": [ended] }))?;
    thread::sleep(STEP);
    let ready = now()?;
    let all = conditions(&[
        ("PodReadyToStartContainers", &sandbox),
        ("Initialized", &to),
        ("ContainersReady", &ready),
        ("Ready", &ready),
    ]);
    kubelet(
        api,
        &name,
        json!({ "phase": "Running", "conditions": all, "containerStatuses": [running(&ready)] }),
    )
}

/// The status of a container that runs since then.
pub(super) fn running(at: &str) -> Value {
    json!({ "name": "main", "ready": true, "restartCount": 0, "image": "", "imageID": "",
        "state": { "running": { "startedAt": at } } })
}

/// Writes a status like the kubelet, which keeps the scheduler's conditions.
fn kubelet(api: &Api, name: &str, mut status: Value) -> Result<()> {
    let pod = api.get(&path(name))?;
    let scheduled = pod["status"]["conditions"].as_array().into_iter().flatten();
    let scheduled = scheduled.filter(|condition| condition["type"] == "PodScheduled").cloned();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.extend(scheduled);
    }
    api.patch(&format!("{}/status", path(name)), &json!({ "status": status })).map(drop)
}

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{name}")
}

/// The API's format of a time.
pub(super) fn now() -> Result<String> {
    Ok(process::output(Command::new("date").args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]))?.trim().to_owned())
}

fn wait_for(api: &Api, what: &str, name: &str, reached: fn(&Value) -> bool) -> Result<()> {
    api.wait_for_pods(what, |pods| pods.iter().any(|pod| pod["metadata"]["name"] == name && reached(pod)))
}

/// The trace of a Pod's lifecycle, root first.
fn life(stage: &Stage, pod: &str) -> Result<(Vec<Span>, Vec<Span>)> {
    wait_until(&format!("the life of {pod}"), ARRIVAL, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        let root = spans.iter().find(|span| span.name == "PodLifecycle" && span.pod() == pod);
        let Some(root) = root.map(|root| root.span_id.clone()) else { return Ok(None) };
        let (life, others): (Vec<_>, Vec<_>) =
            spans.into_iter().partition(|span| span.span_id == root || span.parent_span_id == root);
        Ok(Some((life, others)))
    })
}

fn check(stage: &Stage, pod: &str, mode: &str) -> Result<()> {
    let (mut life, others) = life(stage, pod)?;
    life.sort_by_key(|span| {
        (!span.parent_span_id.is_empty() && span.name != "PodLifecycle", span.start_time_unix_nano)
    });
    let names: Vec<_> = life.iter().map(|span| span.name.as_str()).collect();
    let expected = [
        "PodLifecycle",
        "gated",
        "queued",
        "SchedulePod",
        "queued",
        "SchedulePod",
        "kubelet",
        "sandbox",
        "init: schema",
        "container: main",
        "ready",
    ];
    ensure!(names == expected, "the life of {pod} is {names:?} instead of {expected:?}");
    let (root, parts) = life.split_first().context("a life has a root")?;
    for part in parts {
        ensure!(root.holds(part), "{} is not within the life of {pod}", part.name);
    }
    for (key, value) in [
        ("schedspan.lifecycle.result", "Ready"),
        ("k8s.node.name", &format!("large-{mode}")),
        ("k8s.pod.volumes", "3"),
        ("schedspan.lifecycle.attempts", "2"),
        ("schedspan.time.moved", ""),
    ] {
        ensure!(
            root.attribute(key) == value,
            "{key} of {pod} is {:?} instead of {value}",
            root.attribute(key)
        );
    }
    ensure!(root.list("k8s.pod.images") == ["migrate:2", "nginx:1.29"], "{:?}", root.list("k8s.pod.images"));
    // The test sleeps between the steps.
    for name in ["gated", "init: schema"] {
        let span = parts.iter().find(|span| span.name == name).context(name)?;
        ensure!(span.nanoseconds() >= 1_000_000_000, "{name} took {} ns", span.nanoseconds());
    }
    let uncertain = |name: &str| -> f64 {
        let span = parts.iter().find(|span| span.name == name);
        span.and_then(|span| span.attribute("schedspan.time.uncertain_ms").parse().ok()).unwrap_or_default()
    };
    for (name, expected) in [("gated", 1000.0), ("kubelet", 1000.0), ("ready", 1000.0)] {
        let uncertain = uncertain(name);
        ensure!(uncertain <= expected, "{name} may be wrong by {uncertain} ms");
    }

    // Attempts have their own times and link to their own traces.
    let attempts: Vec<_> =
        others.iter().filter(|span| span.name == "SchedulePod" && span.pod() == pod).collect();
    let reported: Vec<_> = parts.iter().filter(|span| span.name == "SchedulePod").collect();
    ensure!(
        attempts.len() == reported.len(),
        "{} of {} attempts are reported",
        reported.len(),
        attempts.len()
    );
    for (reported, attempt) in reported.iter().zip(&attempts) {
        let times = |span: &Span| (span.start_time_unix_nano, span.end_time_unix_nano);
        ensure!(times(reported) == times(attempt), "an attempt is reported with other times");
        let link = reported.attempt.as_ref().context("an attempt is not linked")?;
        ensure!(
            (&link.trace_id, &link.span_id) == (&attempt.trace_id, &attempt.span_id),
            "an attempt is linked to {link:?}"
        );
    }
    let claims =
        others.iter().find(|span| span.parent_span_id == reported[1].span_id).context("no claim is bound")?;
    ensure!(claims.name == "bind volume claims" && reported[1].holds(claims), "{}", claims.name);

    // The creator's context, and the API server's own span of the request.
    let uid = root.attribute("k8s.pod.uid");
    ensure!(attempts.iter().all(|attempt| attempt.attribute("k8s.pod.uid") == uid), "not all is of one Pod");
    let is = |span: &Span| (span.trace_id == TRACE_ID, span.parent_span_id == SPAN_ID);
    if mode == "parent" {
        ensure!(
            is(root) == (true, true),
            "{pod} is in the trace {} below {}",
            root.trace_id,
            root.parent_span_id
        );
        ensure!(
            attempts.iter().all(|attempt| is(attempt) == (true, true)),
            "an attempt of {pod} is elsewhere"
        );
    } else {
        let link = root.links.first().context("the life has no link")?;
        ensure!((&*link.trace_id, &*link.span_id) == (TRACE_ID, SPAN_ID), "the life is linked to {link:?}");
        ensure!(root.is_root(), "the life is below {}", root.parent_span_id);
    }
    requested(stage, pod)?;
    println!("         {mode}: {} spans of a life of {:.1} s", life.len(), root.nanoseconds() as f64 / 1e9);
    Ok(())
}

/// Checks the API server's own span below the client's: it is of the same request, by `audit-id`.
fn requested(stage: &Stage, pod: &str) -> Result<()> {
    let key = format!("/pods/default/{pod}");
    wait_until(&format!("the API server's spans of the request for {pod}"), ARRIVAL, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        let written = spans.iter().find(|span| span.name == "Create etcd3" && span.attribute("key") == key);
        let Some(written) = written.filter(|span| span.trace_id == TRACE_ID) else { return Ok(None) };
        let request = written.attribute("audit-id");
        let post = |span: &&Span| span.name.starts_with("POST ") && span.attribute("audit-id") == request;
        let post =
            spans.iter().find(post).filter(|post| post.parent_span_id == SPAN_ID && !request.is_empty());
        Ok(post.map(drop))
    })
}

/// Pods with other ends, and one of another scheduler.
fn others(stage: &Stage, api: &Api, schedspan: &Schedspan) -> Result<()> {
    let start = now()?;
    for name in ["fails", "deleted", "waits", "succeeds"] {
        api.create_pod("default", &pod(name, if name == "waits" { "1000" } else { "10m" }))?;
        wait_for(api, "the Pod to be seen", name, if name == "waits" { is_unschedulable } else { is_bound })?;
    }
    let mut elsewhere = pod("elsewhere", "10m");
    elsewhere["spec"]["nodeName"] = "node-0001".into();
    api.create_pod("default", &elsewhere)?;
    let ended = |code: i64| {
        json!([{ "name": "main", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": { "terminated": { "exitCode": code, "startedAt": start, "finishedAt": start } } }])
    };
    let failed = json!({ "phase": "Failed", "reason": "Evicted", "message": "no memory", "startTime": start,
        "containerStatuses": ended(9) });
    kubelet(api, "fails", failed)?;
    let succeeded = json!({ "phase": "Succeeded", "startTime": start, "containerStatuses": ended(0) });
    kubelet(api, "succeeds", succeeded)?;
    let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": start }]);
    kubelet(
        api,
        "elsewhere",
        json!({ "phase": "Running", "conditions": ready, "containerStatuses": [running(&start)] }),
    )?;
    for name in ["deleted", "waits"] {
        api.delete_pod("default", name)?;
    }
    for (name, result, last, message) in [
        ("fails", "Failed", "container: main", "Evicted: no memory"),
        ("deleted", "Deleted", "kubelet", ""),
        ("waits", "Deleted", "queued", ""),
        ("succeeds", "Succeeded", "container: main", ""),
    ] {
        let (life, _) = life(stage, name)?;
        let root = life.iter().find(|span| span.name == "PodLifecycle").context("no root")?;
        let found = (root.attribute("schedspan.lifecycle.result"), root.status_message.clone());
        ensure!(found == (result.to_owned(), message.to_owned()), "{name} ended as {found:?}");
        let last_of = life.iter().max_by_key(|span| (span.start_time_unix_nano, span.name != "PodLifecycle"));
        let last_of = last_of.context("no spans")?;
        ensure!(last_of.name == last, "the last of {name} is {}", last_of.name);
        ensure!(last_of.is_incomplete() == (result == "Deleted"), "{name}: unexpected {}", last_of.name);
    }
    wait_until("the Pod of another scheduler to be counted", ARRIVAL, || {
        let counted = |result| {
            schedspan
                .metrics()
                .map(|metrics| metrics.sum("schedspan_lifecycles_total", &[("result", result)]))
        };
        Ok((counted("elsewhere")? == 1.0).then_some(()))
    })?;
    let reported = spans::read(&stage.cluster.spans_file(), 0)?;
    ensure!(
        !reported.iter().any(|span| span.name == "PodLifecycle" && span.pod() == "elsewhere"),
        "it is reported twice"
    );
    println!("         four others, and one that is another scheduler's");
    Ok(())
}

/// Checks that `schedspan trace --lifecycle` prints the lifecycles of a Deployment's Pods, and no attempts.
fn drawn(stage: &Stage, api: &Api) -> Result<()> {
    let file = stage.cluster.dir().join("lives");
    let mut trace = Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(&stage.executable)
        .args(["trace", "--lifecycle", "deploy/web", "--kubeconfig"])
        .arg(stage.cluster.schedspan_kubeconfig())
        .stdin(Stdio::null())
        .stdout(File::create(&file)?)
        .stderr(File::create(stage.options()?.log)?)
        .spawn()?;
    thread::sleep(ATTACHED);
    // The name of the first one begins like that of a ReplicaSet of the other one. Its Pods are Ready before.
    for name in ["web-api", "web"] {
        api.post(DEPLOYMENTS, &deployment(name, 2))?;
        let of = |pods: &[Value]| -> Vec<String> {
            let own = pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == name && is_bound(pod));
            own.map(|pod| text(pod, "/metadata/name").to_owned()).collect()
        };
        api.wait_for_pods("the Deployment's Pods to be bound", |pods| of(pods).len() == 2)?;
        for pod in of(&api.pods("default")?) {
            let at = now()?;
            let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": at }]);
            let status = json!({ "phase": "Running", "startTime": at, "conditions": ready, "containerStatuses": [running(&at)] });
            kubelet(api, &pod, status)?;
        }
    }
    let printed = wait_until("the lives to be drawn", ARRIVAL, || {
        let printed = fs::read_to_string(&file)?;
        let whole = printed.ends_with("\n\n") && printed.matches("PodLifecycle").count() == 2;
        Ok(whole.then_some(printed))
    });
    kill_process(Pid::from_child(&trace), Signal::TERM)?;
    let status = trace.wait()?;
    ensure!(status.success(), "schedspan ended with {status}");
    let printed = printed?;
    for word in ["default/web-", "Ready", "1 attempt", "PodLifecycle", "SchedulePod", "container: main", "█"]
    {
        ensure!(printed.contains(word), "`{word}` is not in {printed}");
    }
    for word in ["schedulingCycle", "default/web-api-"] {
        ensure!(!printed.contains(word), "`{word}` is in {printed}");
    }
    Ok(())
}
