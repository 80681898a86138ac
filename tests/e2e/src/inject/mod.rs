//! Injection with a real API server: the webhook writes the context of the creating request into Pods, and the daemon the context
//! of the attempt that bound them.

mod contexts;
mod reinject;

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, pod},
    spans::{self, Link},
    stage::Stage,
    wait::wait_until,
    webhook::{Webhook, bundle, register},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use xtask::docs;

use self::contexts::{ARRIVAL, K8S, OTHER, SPAN_ID, TRACE_ID, annotation, parent, root};
use crate::checks;

const STATE: &str = "tracing.k8s.io/tracestate";
/// The shortest lifetime. The certificate is replaced after two thirds of it.
const LIFETIME: &str = "10s";
/// The time until the second replacement.
const TWO_LIVES: Duration = Duration::from_secs(30);
/// The limit for API servers to see a changed configuration.
const SEEN: Duration = Duration::from_secs(10);

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let mut webhook = Webhook::start(stage, "webhook", &["--certificate-lifetime", LIFETIME])?;
    let started = Instant::now();
    without_rights(&webhook)?;
    register(&api, &webhook, &[])?;
    webhook.wait()?;
    calls_reach(&api, &webhook)?;
    let schedspan = stage.trace()?;
    pods(stage, &api, &webhook)?;
    templates(stage, &api, &webhook)?;
    documented(stage, &api)?;
    schedspan.stop()?;
    replicas(stage, &api, &webhook)?;
    reinject::run(stage, &api)?;
    rotation(&api, &webhook, started)?;
    killed(&api, webhook)
}

/// Checks that a webhook without the right to write its certificate logs the missing rule once, and is not ready.
fn without_rights(webhook: &Webhook) -> Result<()> {
    let said = wait_until("the webhook to say what it lacks", SEEN, || {
        let Ok((status, said)) = webhook.readiness() else { return Ok(None) };
        Ok((status == 503 && said.contains("forbidden")).then_some(said))
    })?;
    let rule =
        "grant `get` and `patch` of mutatingwebhookconfigurations with the resourceName schedspan-webhook";
    ensure!(said.contains(rule) && said.lines().count() == 1, "/readyz says {said}");
    let log = webhook.log()?;
    ensure!(log.matches(rule).count() == 1, "not said once: {log}");
    let name = "schedspan_webhook_configuration_writes_total";
    let counted = webhook.metrics()?.sum(name, &[("result", "forbidden")]);
    ensure!(counted > 0.0, "a write that was forbidden is not counted");
    Ok(())
}

/// Waits until the API server calls the webhook.
fn calls_reach(api: &Api, webhook: &Webhook) -> Result<()> {
    wait_until("the API server to call the webhook", SEEN, || {
        api.post("/api/v1/namespaces/default/pods?dryRun=All", &pod("trial", "1"))?;
        let metrics = webhook.metrics()?;
        Ok((metrics.sum("schedspan_webhook_reviews_total", &[]) > 0.0).then_some(()))
    })
}

/// Pods of clients with and without a context.
fn pods(stage: &Stage, api: &Api, webhook: &Webhook) -> Result<()> {
    let traced = api.with("traceparent", &parent(TRACE_ID, "01")).with("tracestate", "vendor=value");
    let stranger = stage.cluster.api_as(&stage.cluster.schedspan_kubeconfig())?;
    let everything = json!({
        "metadata": { "name": "stranger" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:serviceaccount:kube-system:schedspan" }],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    api.post(bindings, &everything)?;
    let mut own = pod("own", "10m");
    own["metadata"]["annotations"] = json!({ K8S: OTHER });
    let results = ["injected", "not_sampled", "present", "no_context", "invalid_context", "invalid_review"];
    let before = results.map(|result| webhook.reviews(result));

    let created = traced.create_pod("default", &pod("traced", "10m"))?;
    let with_own = traced.create_pod("default", &own)?;
    let unsampled = api.with("traceparent", &parent(TRACE_ID, "00"));
    let mut plain = vec![
        api.create_pod("default", &pod("plain", "10m"))?,
        unsampled.create_pod("default", &pod("unsampled", "10m"))?,
        api.with("traceparent", "junk").create_pod("default", &pod("junk", "10m"))?,
        traced.create_pod("kube-system", &pod("excluded", "10m"))?,
    ];
    plain.push(wait_until("the stranger's rights", SEEN, || {
        let stranger = stranger.with("traceparent", &parent(TRACE_ID, "01"));
        Ok(stranger.create_pod("default", &pod("stranger", "10m")).ok())
    })?);
    api.delete(&format!("{bindings}/stranger"))?;

    for pod in &plain {
        ensure!(annotation(pod, K8S).is_empty(), "{} has got a context", pod["metadata"]["name"]);
    }
    ensure!(
        annotation(&with_own, K8S) == OTHER && annotation(&with_own, STATE).is_empty(),
        "not its own: {with_own}"
    );
    let context = annotation(&created, K8S).to_owned();
    let fields: Vec<_> = context.split('-').collect();
    let [_, trace_id, span_id, "01"] = fields[..] else { anyhow::bail!("the context is {context:?}") };
    ensure!(trace_id == TRACE_ID && span_id != SPAN_ID, "the context is {context}");
    ensure!(annotation(&created, STATE) == "vendor=value", "not the request's state: {created}");
    // The webhook is not called for excluded objects. For others it is, also if the API server's own root is not sampled.
    let expected = [1.0, 4.0, 1.0, 0.0, 0.0, 0.0];
    for ((result, before), expected) in results.iter().zip(before).zip(expected) {
        let count = webhook.reviews(result)? - before?;
        ensure!(count == expected, "{count} reviews are {result} instead of {expected}");
    }

    // The attempt is linked to the API server's span, a child of the client's.
    let root = root(stage, "traced")?;
    let link =
        Link { trace_id: trace_id.into(), span_id: span_id.into(), trace_state: "vendor=value".into() };
    ensure!(root.links == [link], "linked to {:?} instead of {context}", root.links);
    for name in ["plain", "unsampled", "junk", "stranger"] {
        let links = self::root(stage, name)?.links;
        ensure!(links.is_empty(), "{name} is linked to {links:?}");
    }
    let client = Link { trace_id: TRACE_ID.into(), span_id: SPAN_ID.into(), trace_state: String::new() };
    let ancestors = wait_until("the API server's spans", ARRIVAL, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        let names = spans::ancestors(&spans, span_id, &client);
        Ok(names.map(|names| names.join(" < ")))
    })?;
    println!("         webhook: 7 Pods; {ancestors} < the client");
    Ok(())
}

/// Checks that the commands in the documentation make a traced request.
fn documented(stage: &Stage, api: &Api) -> Result<()> {
    let kubeconfig: Value = serde_json::from_slice(&fs::read(stage.cluster.kubeconfig())?)?;
    let text = |path: &str| checks::text(&kubeconfig, path).to_owned();
    for block in docs::blocks("api")? {
        let mut shell = Command::new("sh");
        shell.env("TOKEN", text("/users/0/user/token")).env("APISERVER", text("/clusters/0/cluster/server"));
        shell.env("CERTIFICATES", stage.cluster.certificates());
        block.run(&mut shell)?;
        let made = api.get("/api/v1/namespaces/default/pods/example")?;
        let context = annotation(&made, K8S);
        let links = root(stage, "example")?.links;
        let linked = matches!(&links[..], [link] if context.contains(&link.trace_id));
        ensure!(linked, "{}: linked to {links:?} instead of {context:?}", block.place);
        println!("         {}", block.place);
    }
    Ok(())
}

/// Checks templates of workloads, which are changed only on request.
fn templates(stage: &Stage, api: &Api, webhook: &Webhook) -> Result<()> {
    let traced =
        |digit: char| api.with("traceparent", &parent(&TRACE_ID.replace('4', &digit.to_string()), "01"));
    let [deployments, jobs, cron_jobs] = [
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/batch/v1/namespaces/default/jobs",
        "/apis/batch/v1/namespaces/default/cronjobs",
    ];
    let template = |restart: &str| {
        let mut template = pod("", "10m");
        template["metadata"] = json!({ "labels": { "app": "web" } });
        template["spec"]["restartPolicy"] = restart.into();
        template
    };
    let deployment = |name: &str| {
        json!({
            "metadata": { "name": name },
            "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": template("Always") },
        })
    };
    let job = json!({ "template": template("Never") });
    let cron_job = json!({
        "metadata": { "name": "later" },
        "spec": { "schedule": "0 0 1 1 *", "jobTemplate": { "spec": job } },
    });
    let left_alone = traced('5').post(deployments, &deployment("alone"))?;
    ensure!(
        annotation(&left_alone["spec"]["template"], K8S).is_empty(),
        "a template has got a context: {left_alone}"
    );

    register(api, webhook, &["webhook.templates=true"])?;
    let trial = format!("{deployments}?dryRun=All");
    wait_until("the API server to send templates", SEEN, || {
        let made = traced('5').post(&trial, &deployment("trial"))?;
        Ok((!annotation(&made["spec"]["template"], K8S).is_empty()).then_some(()))
    })?;
    let web = traced('6').post(deployments, &deployment("web"))?;
    let job = traced('7').post(jobs, &json!({ "metadata": { "name": "job" }, "spec": job }))?;
    let cron_job = traced('8').post(cron_jobs, &cron_job)?;
    let cron_template = &cron_job["spec"]["jobTemplate"]["spec"]["template"];
    for (template, digit) in
        [(&web["spec"]["template"], '6'), (&job["spec"]["template"], '7'), (cron_template, '8')]
    {
        let trace_id = TRACE_ID.replace('4', &digit.to_string());
        let context = annotation(template, K8S);
        ensure!(context.contains(&trace_id), "a template has the context {context:?} instead of {trace_id}");
    }
    for (name, object) in [("web-", &web), ("job-", &job)] {
        let links = root(stage, name)?.links;
        let context = annotation(&object["spec"]["template"], K8S);
        let linked =
            matches!(&links[..], [link] if context.contains(&format!("{}-{}", link.trace_id, link.span_id)));
        ensure!(linked, "{name} is linked to {links:?} instead of {context}");
    }
    // An update that changes the template is a roll-out.
    let alone =
        api.patch(&format!("{deployments}/alone"), &json!({ "metadata": { "labels": { "a": "b" } } }))?;
    ensure!(
        annotation(&alone["spec"]["template"], K8S).is_empty(),
        "an update has changed the template: {alone}"
    );
    println!("         templates: a Deployment, a Job and a CronJob, and two of their Pods");
    Ok(())
}

/// Checks that another replica adds its certificate to those of the first.
fn replicas(stage: &Stage, api: &Api, first: &Webhook) -> Result<()> {
    let mut second = Webhook::start(stage, "webhook-2", &[])?;
    second.wait()?;
    ensure!(bundle(api)?.matches("BEGIN CERTIFICATE").count() >= 2, "one has taken the other's place");
    let before = first.reviews("injected")?;
    api.with("traceparent", &parent(TRACE_ID, "01")).create_pod("default", &pod("replicas", "10m"))?;
    ensure!(first.reviews("injected")? == before + 1.0, "the first is not trusted any more");
    second.stop()
}

/// Checks that certificates are replaced and the API server trusts the new ones.
fn rotation(api: &Api, webhook: &Webhook, started: Instant) -> Result<()> {
    // A connection keeps its certificate; a changed bundle leads to a new connection.
    wait_until("two new certificates", TWO_LIVES, || {
        Ok((webhook.log()?.matches("another certificate is served").count() >= 2).then_some(()))
    })?;
    ensure!(started.elapsed() > Duration::from_secs(10), "the first certificate is still valid");
    let made = wait_until("the API server to follow", SEEN, || {
        let traced = api.with("traceparent", &parent(TRACE_ID, "01"));
        let made = traced.post("/api/v1/namespaces/default/pods?dryRun=All", &pod("later", "10m"))?;
        Ok((!annotation(&made, K8S).is_empty()).then_some(started.elapsed()))
    })?;
    let refused = webhook.metrics()?.sum("schedspan_webhook_connections_refused_total", &[]);
    let certificates = bundle(api)?.matches("BEGIN CERTIFICATE").count();
    ensure!(
        refused == 0.0,
        "{refused} connections were refused: the API server was not given the time to follow"
    );
    println!(
        "         rotation: {certificates} certificates in the bundle after {:.0} s of 10 s each",
        made.as_secs_f64()
    );
    Ok(())
}

/// Checks that Pods are created without the webhook.
fn killed(api: &Api, webhook: Webhook) -> Result<()> {
    kill_process(Pid::from_raw(webhook.pid().cast_signed()).context("no pid")?, Signal::STOP)?;
    let traced = api.with("traceparent", &parent(TRACE_ID, "01"));
    let hung = traced.create_pod("default", &pod("hung", "10m"))?;
    drop(webhook);
    let gone = traced.create_pod("default", &pod("gone", "10m"))?;
    for pod in [hung, gone] {
        ensure!(annotation(&pod, K8S).is_empty(), "{pod} has a context without the webhook");
    }
    Ok(())
}
