//! `cargo xtask kind lifecycle`: one trace from the request that makes a Pod until it is Ready, without and with all other tracing.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Instant, SystemTime},
};

use anyhow::{Context as _, Error, Result, ensure};
use harness::{
    figures::Observed as _,
    kubelets,
    spans::{self, Link, Span},
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::{build, components::COLLECTOR, image, paths, process};

use super::{
    cluster::{COLLECTOR as ENDPOINT, CONTROL_PLANE, Cluster, Tracing},
    e2e::{RELEASE, archives, collector, in_cluster, load, step},
    engine::Provider,
    images, kubelet,
    operations::{INTERVAL, TIMEOUT, chart_path, helm, metrics, pod, traced},
    plugin,
};
use crate::{checks::nothing_lost, picture, svg};

/// The client's span: from the request until the Pod is Ready.
const TRACE_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN_ID: &str = "b7ad6b7169203331";
const POD: &str = "shop";
/// The API server's name of the request's span.
const POST: &str = "POST /api/v1/namespaces/{:namespace}/pods";
const POST_DEPLOYMENT: &str = "POST /apis/apps/v1/namespaces/{:namespace}/deployments";
/// Columns: enough to see the bars' proportions.
const COLUMNS: &str = "120";
/// Sends a request with a certificate of `system:masters`: the API server ignores contexts of other users.
const REQUEST: &str = r#"set -eu
field() { kubectl --kubeconfig /etc/kubernetes/super-admin.conf config view --raw --output "jsonpath={.users[0].user.$1}" | base64 -d; }
umask 077
field client-certificate-data > /run/admin.crt
field client-key-data > /run/admin.key
curl --silent --show-error --fail-with-body --cert /run/admin.crt --key /run/admin.key --cacert /etc/kubernetes/pki/ca.crt \
  --header "traceparent: $1" --header "content-type: application/json" --data @/shared/pod.json \
  https://127.0.0.1:6443/api/v1/namespaces/default/pods"#;
/// Sends the Collector a span.
const EXPORT: &str = r#"curl --silent --show-error --fail-with-body --header "content-type: application/json" \
  --data @/shared/span.json http://10.96.0.44:4318/v1/traces"#;

/// With a kubelet of another version on the worker, or with the nodes' own one.
///
/// # Errors
///
/// If there is no kubelet of that version, or a step fails: the error ends with schedspan's log.
pub(super) fn run(provider: Provider, other: Option<&str>) -> Result<()> {
    let other = other.map(kubelets::of_version).transpose()?;
    // Builds take minutes, so they come before anything runs.
    let other = other.map(|kubelet| Ok::<_, Error>((kubelet.version, kubelet.executable()?))).transpose()?;
    let executable = build::build()?;
    let archives: Vec<_> = archives()?.into_iter().chain([images::shop()?]).collect();
    let begin = Instant::now();
    for tracing in [Tracing::Off, Tracing::On] {
        in_cluster(provider, 1, tracing, |cluster| {
            if let Some((version, executable)) = &other {
                step(&format!("kubelet {version}"), || kubelet::replace(cluster, version, executable))?;
            }
            steps(cluster, &archives, tracing, &executable)?;
            if tracing == Tracing::On && other.is_none() {
                step("pictures", || draw(cluster, &executable))?;
            }
            Ok(())
        })?;
    }
    println!("ok       all with {:<15} {:>6.1} s", provider.name(), begin.elapsed().as_secs_f32());
    Ok(())
}

fn steps(cluster: &Cluster, archives: &[PathBuf], tracing: Tracing, executable: &Path) -> Result<()> {
    step("images loaded", || load(cluster, archives))?;
    step("Collector", || collector(cluster))?;
    step("helm install", || install(cluster))?;
    let what = if tracing == Tracing::On { "life, all tracing" } else { "life, schedspan alone" };
    step(what, || life(cluster, tracing))?;
    step("kubectl schedspan traced", || deployed(cluster, tracing))?;
    step("kubelet traced", || kubelet::install(cluster))?;
    step("starts of Pods", || kubelet::starts(cluster, tracing, executable))
}

fn install(cluster: &Cluster) -> Result<((), String)> {
    let values = format!(
        "otlp.endpoint=http://{ENDPOINT},lifecycle=true,context.mode=parent,webhook.enabled=true,webhook.templates=true"
    );
    helm(cluster, &["install", RELEASE, &chart_path(), "--wait", "--timeout=2m", "--set", &values])?;
    traced(cluster, 1)?;
    Ok(((), "with the webhook, below who made the Pod".to_owned()))
}

/// A Pod with an init container, a container with a readiness probe, and one that waits.
fn shop() -> Value {
    let mut shop = pod(POD, "10m");
    let collector = "receivers: {otlp: {protocols: {grpc: {endpoint: 0.0.0.0:4317}}}}\n\
                     exporters: {file: {path: /data/spans}}\n\
                     service: {telemetry: {metrics: {level: none}}, pipelines: {traces: {receivers: [otlp], exporters: [file]}}}\n";
    let web = json!({
        "name": "web", "image": images::name(COLLECTOR.name, COLLECTOR.version), "imagePullPolicy": "Never",
        "args": [format!("--config=yaml:{}", collector.trim())],
        "readinessProbe": { "tcpSocket": { "port": 4317 }, "periodSeconds": 1 },
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
    });
    if let Some(containers) = shop["spec"]["containers"].as_array_mut() {
        containers.insert(0, web);
    }
    shop["spec"]["initContainers"] = json!([
        { "name": "schema", "image": image::NAME, "imagePullPolicy": "Never", "args": ["--version"] },
    ]);
    shop["spec"]["volumes"] = json!([
        { "name": "data", "emptyDir": {} },
        { "name": "scratch", "emptyDir": { "medium": "Memory" } },
        { "name": "names", "downwardAPI": { "items": [{ "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }] } },
    ]);
    shop
}

fn life(cluster: &Cluster, tracing: Tracing) -> Result<((), String)> {
    let start = now()?;
    fs::write(cluster.shared().join("pod.json"), shop().to_string())?;
    let traceparent = format!("00-{TRACE_ID}-{SPAN_ID}-01");
    cluster.on_node(CONTROL_PLANE, &["sh", "-c", REQUEST, "request", &traceparent])?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "--timeout=120s", &format!("pod/{POD}")])?;
    if tracing == Tracing::On {
        export(cluster, start, now()?)?;
    }
    let spans = wait_until("the life of the Pod", TIMEOUT, || {
        thread::sleep(INTERVAL);
        let spans = spans::read(&cluster.spans(), 0)?;
        let life = spans.iter().find(|span| span.name == "PodLifecycle" && span.pod() == POD);
        let is_all = life.is_some_and(|life| {
            // API server and kubelets export every five seconds, and the worker's other Pods have spans too.
            let is_sync = |span: &Span| span.name == "syncPod" && is_of(span, &life.attribute("k8s.pod.uid"));
            tracing == Tracing::Off
                || spans.iter().any(|span| span.name.starts_with(POST)) && spans.iter().any(is_sync)
        });
        Ok(is_all.then_some(spans))
    })?;
    nothing_lost(&metrics(cluster)?)?;
    check(&spans, tracing)
}

/// The context of a kubectl whose requests are marked is above all that becomes of its Deployment.
fn deployed(cluster: &Cluster, tracing: Tracing) -> Result<((), String)> {
    plugin::install(cluster)?;
    let trace_id = plugin::apply(cluster, &["--kubeconfig", &masters(cluster)?])?;
    let lives = |spans: &[Span]| -> Vec<Span> {
        let ours = |span: &&Span| span.name == "PodLifecycle" && span.pod().starts_with("web-");
        spans.iter().filter(ours).cloned().collect()
    };
    let spans = wait_until("the lives of the Deployment's Pods", TIMEOUT, || {
        thread::sleep(INTERVAL);
        let spans = spans::read(&cluster.spans(), 0)?;
        // The API server exports every five seconds.
        let request = spans.iter().any(|span| span.name == POST_DEPLOYMENT && span.trace_id == trace_id);
        let all = lives(&spans).len() == plugin::REPLICAS && (request || tracing == Tracing::Off);
        Ok(all.then_some(spans))
    })?;
    let mut tops = BTreeSet::new();
    for life in lives(&spans) {
        let pod = life.pod();
        ensure!(life.trace_id == trace_id, "the life of {pod} is in {} instead of {trace_id}", life.trace_id);
        let attempt = spans.iter().find(|span| span.name == "SchedulePod" && span.pod() == pod);
        ensure!(
            attempt.is_some_and(|attempt| attempt.trace_id == trace_id),
            "the attempt of {pod} is elsewhere"
        );
        let (mut top, mut above) = (&life, Vec::new());
        while let Some(parent) = spans.iter().find(|span| span.span_id == top.parent_span_id) {
            above.push(parent.name.as_str());
            top = parent;
        }
        ensure!(
            above.contains(&POST_DEPLOYMENT) == (tracing == Tracing::On),
            "above the life of {pod} is {above:?}"
        );
        tops.insert(top.parent_span_id.clone());
    }
    cluster.kubectl(&["delete", "deployment", "web"])?;
    // kubectl sends no span of its own: its context is the root.
    ensure!(tops.len() == 1 && !tops.contains(""), "the Pods have the roots {tops:?} instead of kubectl's");
    Ok(((), format!("{} Pods of a Deployment in trace {trace_id}, below kubectl", plugin::REPLICAS)))
}

/// A kubeconfig of `system:masters` for this side of the cluster: the API server ignores contexts of other users.
fn masters(cluster: &Cluster) -> Result<String> {
    let server = cluster.kubectl(&["config", "view", "--output=jsonpath={.clusters[0].cluster.server}"])?;
    let theirs = cluster.on_node(CONTROL_PLANE, &["cat", "/etc/kubernetes/super-admin.conf"])?;
    let ours: String = theirs
        .lines()
        .map(|line| match line.split_once("server: ") {
            Some((indent, _)) => format!("{indent}server: {server}\n"),
            None => format!("{line}\n"),
        })
        .collect();
    let file = cluster.shared().join("masters.conf");
    fs::write(&file, ours)?;
    Ok(file.display().to_string())
}

fn is_of(span: &Span, uid: &str) -> bool {
    span.attribute("k8s.pod.uid") == uid
}

fn check(spans: &[Span], tracing: Tracing) -> Result<((), String)> {
    let root =
        spans.iter().find(|span| span.name == "PodLifecycle" && span.pod() == POD).context("no life")?;
    // Only the webhook knows the request: its context is the API server's span, or with tracing off the client's.
    let client = Link { trace_id: TRACE_ID.into(), span_id: SPAN_ID.into(), trace_state: String::new() };
    let above = spans::ancestors(spans, &root.parent_span_id, &client);
    let above = above
        .filter(|_| root.trace_id == TRACE_ID)
        .with_context(|| format!("the life is in {} below {:?}", root.trace_id, root.parent_span_id))?;
    let uid = root.attribute("k8s.pod.uid");
    let mut parts: Vec<_> = spans.iter().filter(|span| span.parent_span_id == root.span_id).collect();
    parts.sort_by_key(|span| span.start_time_unix_nano);
    let names: Vec<_> = parts.iter().map(|span| span.name.as_str()).collect();
    for name in [
        "queued",
        "SchedulePod",
        "kubelet",
        "sandbox",
        "init: schema",
        "container: web",
        "container: main",
        "ready",
    ] {
        ensure!(names.contains(&name), "{name} is not in the life, which is {names:?}");
    }
    for part in &parts {
        ensure!(root.holds(part) && !part.is_incomplete(), "{} is not a whole part of the life", part.name);
    }
    ensure!(root.attribute("schedspan.lifecycle.result") == "Ready", "the Pod is not ready");
    let attempt =
        spans.iter().find(|span| span.name == "SchedulePod" && span.pod() == POD).context("no attempt")?;
    let of = |span: &Span| (span.trace_id.clone(), span.parent_span_id.clone());
    ensure!(of(attempt) == of(root) && attempt.attribute("k8s.pod.uid") == uid, "the attempt is elsewhere");

    let posts = spans.iter().filter(|span| span.name == POST).count();
    let syncs: Vec<_> = spans.iter().filter(|span| span.name == "syncPod" && is_of(span, &uid)).collect();
    match tracing {
        Tracing::Off => {
            ensure!(posts == 0 && syncs.is_empty(), "a component has traced without being configured to");
            ensure!(above.is_empty(), "{above:?} is above the life");
        }
        Tracing::On => {
            ensure!(above.contains(&POST), "the API server's span of the request is not in {above:?}");
            let post = spans.iter().find(|span| span.name == POST).context("no span of the request")?;
            ensure!(!post.attribute("audit-id").is_empty(), "the API server's span names no request");
            ensure!(!syncs.is_empty(), "the kubelet has no span of the Pod {uid}");
            ensure!(
                post.start_time_unix_nano <= attempt.start_time_unix_nano
                    && syncs.iter().any(|sync| sync.start_time_unix_nano >= attempt.start_time_unix_nano),
                "API server, scheduler and kubelet did not work one after the other"
            );
        }
    }
    let said = format!(
        "{} spans of {:.1} s below {}, and {} of the kubelet",
        parts.len() + 1,
        root.nanoseconds() as f64 / 1e9,
        [&above[..], &["the client"]].concat().join(" < "),
        syncs.len()
    );
    Ok(((), said))
}

/// The client's span, as the client exports it.
fn export(cluster: &Cluster, start: u64, end: u64) -> Result<()> {
    let span = json!({ "resourceSpans": [{
        "resource": { "attributes": [{ "key": "service.name", "value": { "stringValue": "deployer" } }] },
        "scopeSpans": [{ "scope": { "name": "xtask" }, "spans": [{
            "traceId": TRACE_ID, "spanId": SPAN_ID, "name": "deploy shop", "kind": 3,
            "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string(),
        }] }],
    }] });
    fs::write(cluster.shared().join("span.json"), span.to_string())?;
    cluster.on_node(CONTROL_PLANE, &["sh", "-c", EXPORT]).map(drop)
}

/// schedspan's drawings of the Collector's file: of the Pod, and of the Deployment whose starts were traced.
fn draw(cluster: &Cluster, executable: &Path) -> Result<((), String)> {
    let mut files = Vec::new();
    for (name, pods, begin, words) in [
        (
            "lifecycle",
            POD,
            "Ready after ",
            &["deploy shop", "POST pods", "PodLifecycle", "schedulingCycle", "syncPod"][..],
        ),
        ("workload", "deploy/shop", "The slowest, shop-", &["Reconcile", "Pod default/shop-", "StartPod"]),
    ] {
        let mut show = Command::new(executable);
        show.args(["lifecycle", "--namespace", "default", pods]).arg(cluster.spans());
        show.env("CLICOLOR_FORCE", "1").env("COLUMNS", COLUMNS);
        let text = process::output(&mut show)?;
        for word in words {
            ensure!(text.contains(word), "`{word}` is not in {text}");
        }
        ensure!(text.starts_with(begin), "it does not say what the time went to: {text}");
        let file = paths::repository().join(format!("docs/{name}.svg"));
        fs::write(&file, svg::draw(&picture::first_lines(&text)))
            .with_context(|| format!("cannot write `{}`", file.display()))?;
        files.push(file.display().to_string());
    }
    fs::copy(cluster.spans(), paths::target().join("lifecycle.jsonl"))?;
    Ok(((), files.join(", ")))
}

/// Nanoseconds since the Unix epoch.
fn now() -> Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos())?)
}
