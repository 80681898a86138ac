//! Reconciles: the spans of kube-controller-manager's work queues equal its own metrics, queue by queue.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, DEPLOYMENTS, NodeSize, deployment, is_bound, pod},
    audit,
    cluster::Scheduler as Process,
    metrics::Metrics,
    schedspan::{Options, Schedspan},
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::components::CONTROLLER_MANAGER;

use crate::{
    creations, lifecycle, outside, requests,
    truth::{Disturbed, TOLERANCE, TOLERANCE_PER_CALL, undisturbed},
};

pub(super) const NODES: u32 = 3;
/// Pods of the Deployment, at its smallest and its largest.
const REPLICAS: [usize; 2] = [10, 25];
/// How many of them go again before the Deployment does.
const SCALED_DOWN: usize = 5;
/// Jobs, and Pods of each.
const JOBS: usize = 2;
const COMPLETIONS: usize = 3;
/// Pods of the Deployment while reconciles of which nothing comes have no trace.
const FEW_REPLICAS: usize = 3;
/// Pods of an owner that are all in its trace, and of one that has many.
const FIRST: usize = 32;
const MANY: usize = 500;
/// What a Pod has in the trace of its owner here, and what that is called where it is left out.
const OF_POD: [(&str, &str); 2] = [("PodLifecycle", "lifecycle"), ("create Pod", "creation")];
/// Longer than two Pods of the refused Deployment are apart at first.
const REFUSED: Duration = Duration::from_secs(3);
/// The time without work that makes a moment an idle one: schedspan has read all records then.
const IDLE: Duration = Duration::from_millis(1500);
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Waits that are compared as if there were so many of them.
const FEW: f64 = 30.0;
/// The limit from the end of a reconcile to the Collector's file.
const ARRIVAL: Duration = Duration::from_secs(30);
pub(super) const NOTICED: Duration = Duration::from_secs(30);
const POLICY_TIMEOUT: Duration = Duration::from_secs(30);

const JOBS_PATH: &str = "/apis/batch/v1/namespaces/default/jobs";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const POLICY_BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// What every process that serves has: their figures of schedspan are those of all processes together.
const SHARED: [&str; 2] = ["Dynamic", "RequestHeaderAuthRequestController"];
/// The queues that the workload must have used.
const USED: [&str; 4] = ["deployment", "replicaset", "job", "garbage_collector_graph_changes"];

/// A moment at which nothing is queued or worked on.
struct Moment {
    unix_ns: u64,
    /// Length of the API server's audit log.
    audited: usize,
    manager: Metrics,
    schedspan: Metrics,
}

/// A queue's figures between two moments.
#[derive(Clone, Copy, Default)]
struct Queue {
    count: f64,
    seconds: f64,
    waits: f64,
    waited_seconds: f64,
}

/// One of them.
type Figure = fn(&mut Queue) -> &mut f64;

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let manager = stage.cluster.scheduler_named(CONTROLLER_MANAGER.name)?;
    refuse_pods(&api)?;
    undisturbed(manager.pid)?;
    let arguments = &["--program", "client-go", "--reconciles", "all"];
    let schedspan = Schedspan::start(&Options { arguments, ..stage.options()? })?;
    is_traced(&schedspan, "kube-controller-manager", manager.pid)?;

    let worked = Worked::watch(stage, &api, &manager, &schedspan)?;
    nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()?;
    let disturbed = worked.check(stage, CONTROLLER_MANAGER.name)?;
    without_idle(stage, &api, &manager)?;
    of_owner(stage, &api, &manager)?;
    of_many(stage, &api, &manager)?;
    outside::run(stage, &api)?;
    ensure!(disturbed.is_empty(), Disturbed::of(&disturbed.join(", ")));
    Ok(())
}

/// What a process with kube-controller-manager did between two idle moments, and what schedspan showed of it.
pub(super) struct Worked {
    before: Moment,
    after: Moment,
    pods: Vec<Value>,
    pub(super) spans: Vec<Span>,
    requests: Vec<Span>,
}

impl Worked {
    /// Makes work for it, and waits until it is done and all spans have arrived. schedspan makes a span of each reconcile.
    pub(super) fn watch(stage: &Stage, api: &Api, process: &Process, schedspan: &Schedspan) -> Result<Self> {
        let before = idle(stage, process, schedspan)?;
        let pods = work(api)?;
        let after = idle(stage, process, schedspan)?;
        let spans = arrived(stage, process, (&before, &after), &by_metrics(&before, &after))?;
        let requests = requests::of(&stage.cluster.spans_file(), &spans)?;
        Ok(Self { before, after, pods, spans, requests })
    }

    /// Checks that spans and counters are those of its metrics, of the audit log and of its Pods. `program` is its name in the audit
    /// log. Returns the queues whose durations differ.
    pub(super) fn check(&self, stage: &Stage, program: &str) -> Result<Vec<String>> {
        let Self { before, after, pods, spans, requests } = self;
        let expected = by_metrics(before, after);
        for name in USED {
            let is_used = expected.get(name).is_some_and(|queue| queue.count > 0.0);
            ensure!(is_used, "the queue {name} was not used: the test proves nothing");
        }
        let disturbed = compare(&expected, &by_spans(spans))?;
        counters(before, after)?;
        well_formed(spans)?;
        let written = self.written(stage, |agent| agent.starts_with(program))?;
        requests::all_audited(&before.manager, &after.manager, &written)?;
        let of_controllers = |agent: &str| agent.starts_with(program) && !is_of_scheduler(agent);
        requests::are(&self.written(stage, of_controllers)?, requests)?;
        creators(pods, spans, requests)?;
        creations::of_pods(&stage.cluster.spans_file(), pods, spans, requests)?;
        creations::chain(pods, spans, requests)?;
        creations::writers(spans, requests)?;
        let of_deployment: Vec<_> =
            pods.iter().filter(|pod| name(pod).starts_with("web-")).cloned().collect();
        let deleted =
            creations::deletions(&stage.cluster.spans_file(), &of_deployment, spans, requests, SCALED_DOWN)?;
        removals(before, after, deleted)?;
        Ok(disturbed)
    }

    /// What clients with such a user agent wrote meanwhile.
    pub(super) fn written(&self, stage: &Stage, is_of: impl Fn(&str) -> bool) -> Result<Vec<audit::Write>> {
        audit::writes(stage.cluster.dir(), self.before.audited..self.after.audited, is_of)
    }
}

/// Whether a user agent is that of a scheduler's client, which may be in the same process:
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/cmd/kube-scheduler/app/options/options.go#L400>.
pub(super) fn is_of_scheduler(agent: &str) -> bool {
    agent.ends_with("/scheduler")
}

/// Checks that by default all reconciles are counted, and that those of which something came have spans; and that Pods have
/// their creation in the trace of their lifecycle.
fn without_idle(stage: &Stage, api: &Api, manager: &Process) -> Result<()> {
    let arguments = &["--program", "client-go,kube-scheduler", "--lifecycle"];
    let schedspan = Schedspan::start(&Options { arguments, ..stage.options()? })?;
    is_traced(&schedspan, "kube-controller-manager", manager.pid)?;
    // Until a request of the process is seen, no reconcile is known to be idle.
    api.post(DEPLOYMENTS, &deployment("first", 1))?;
    bound(api, "first-", 1)?;
    let before = idle(stage, manager, &schedspan)?;
    api.post(DEPLOYMENTS, &deployment("few", FEW_REPLICAS))?;
    bound(api, "few-", FEW_REPLICAS)?;
    api.post(JOBS_PATH, &job("last"))?;
    bound(api, "last-", COMPLETIONS)?;
    let pods = api.pods("default")?;
    succeed(api, pods.iter().filter(|pod| name(pod).starts_with("last-")))?;
    let after = idle(stage, manager, &schedspan)?;
    let pods: Vec<_> = pods
        .into_iter()
        .filter(|pod| ["few-", "last-"].iter().any(|new| name(pod).starts_with(new)))
        .collect();

    let of =
        |moment: &Moment| moment.schedspan.by("schedspan_workqueue_reconciles_total", ["queue", "result"]);
    let (counted_before, counted) = (of(&before), of(&after));
    let mut expected = by_metrics(&before, &after);
    expected.retain(|queue, _| !SHARED.iter().any(|shared| queue.starts_with(shared)));
    let (mut idle, mut busy) = (0.0, BTreeMap::new());
    for (queue, figures) in &mut expected {
        let increase = |result: &str| {
            let key = [queue.clone(), result.to_owned()];
            let at = |counts: &BTreeMap<_, f64>| counts.get(&key).copied().unwrap_or_default();
            at(&counted) - at(&counted_before)
        };
        let [idle_ones, others] =
            [increase("idle"), ["busy", "retried", "incomplete"].map(increase).iter().sum()];
        ensure!(
            idle_ones + others == figures.count,
            "{queue}: {idle_ones} idle reconciles and {others} others, and the metric is {}",
            figures.count
        );
        idle += idle_ones;
        figures.count = others;
        busy.insert(queue.clone(), others);
    }
    let mut spans = arrived(stage, manager, (&before, &after), &expected)?;
    spans
        .retain(|span| !SHARED.iter().any(|shared| span.attribute("k8s.workqueue.name").starts_with(shared)));
    let requests = requests::of(&stage.cluster.spans_file(), &spans)?;
    let seen = by_spans(&spans);
    for (queue, count) in &busy {
        let seen = seen.get(queue).map_or(0.0, |queue| queue.count);
        ensure!(seen == *count, "{queue}: {seen} spans of {count} reconciles of which something came");
    }
    for span in &spans {
        let mut own = requests.iter().filter(|request| request.parent_span_id == span.span_id);
        let is_busy = own
            .any(|request| requests::write(request).is_some() || !request.attribute("error.type").is_empty());
        let queue = span.attribute("k8s.workqueue.name");
        ensure!(
            is_busy || span.attribute("k8s.workqueue.retried") == "true",
            "an idle reconcile of {queue} has a span"
        );
    }
    ensure!(idle > 0.0 && !spans.is_empty(), "the test proves nothing");
    println!(
        "         {idle} reconciles of which nothing came are counted, {} others have spans",
        spans.len()
    );
    let file = stage.cluster.spans_file();
    let created = creations::of_pods(&file, &pods, &spans, &requests)?;
    let lives = creations::in_lifecycles(&file, &created, COMPLETIONS)?;
    ensure!(lives >= COMPLETIONS, "{lives} of the Pods have a lifecycle that ended");
    println!("         {lives} creations are below the lifecycle of their Pod");
    let last = pods.iter().find(|pod| name(pod).starts_with("last-")).context("there is no such Pod")?;
    // By the garbage collector, when its lifecycle is over.
    api.delete(&format!("{JOBS_PATH}/last?propagationPolicy=Background"))?;
    creations::drawn(&stage.executable, &file, last)?;
    nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()?;
    Ok(())
}

/// A daemon with which the Pods of an owner share a trace.
fn for_owners(stage: &Stage, manager: &Process) -> Result<Schedspan> {
    let arguments = &["--program", "client-go,kube-scheduler", "--lifecycle", "--lifecycle-trace", "owner"];
    let mut schedspan = Schedspan::start(&Options { arguments, ..stage.options()? })?;
    is_traced(&schedspan, "kube-controller-manager", manager.pid)?;
    is_traced(&schedspan, "kube-scheduler", stage.cluster.scheduler()?.pid)?;
    // A Pod that has succeeded when the watch begins has no lifecycle.
    schedspan.wait_for("schedspan to watch Pods", NOTICED, |metrics| {
        metrics.sum("schedspan_lifecycle_watch_up", &[]) == 1.0
    })?;
    Ok(schedspan)
}

/// Checks that Pods share a trace with the others of their owner where that is asked for.
fn of_owner(stage: &Stage, api: &Api, manager: &Process) -> Result<()> {
    let schedspan = for_owners(stage, manager)?;
    api.post(JOBS_PATH, &job("whole"))?;
    bound(api, "whole-", COMPLETIONS)?;
    let mut pods = api.pods("default")?;
    pods.retain(|pod| name(pod).starts_with("whole-"));
    succeed(api, pods.iter())?;
    let ended = format!("{COMPLETIONS} Succeeded");
    creations::of_owner(&stage.executable, &stage.cluster.spans_file(), &pods, "job/whole", &ended)?;
    nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()
}

/// Checks that the trace of an owner with many Pods is bounded: the first ones are whole, and of the others each is there or counted.
fn of_many(stage: &Stage, api: &Api, manager: &Process) -> Result<()> {
    let file = stage.cluster.spans_file();
    let read = || -> Result<[Vec<Span>; 2]> {
        let spans = spans::read(&file, 0)?;
        let named = |(name, _)| {
            let is_meant = |span: &&Span| span.name == name && span.pod().starts_with("many-");
            spans.iter().filter(is_meant).cloned().collect()
        };
        Ok(OF_POD.map(named))
    };
    let left_out = |metrics: &Metrics| {
        OF_POD
            .map(|(_, what)| metrics.sum("schedspan_owner_trace_left_out_total", &[("what", what)]) as usize)
    };
    let room = NodeSize { pods: u32::try_from(2 * MANY)?, ..NodeSize::default() };
    api.create_node("many", room)?;
    let schedspan = for_owners(stage, manager)?;
    api.post(DEPLOYMENTS, &deployment("many", FIRST))?;
    become_ready(api, "many-", FIRST)?;
    let first = wait_until("the lives of the first Pods", ARRIVAL, || {
        let [lives, creations] = read()?;
        let uids = lives.iter().map(|life| life.attribute("k8s.pod.uid")).collect::<BTreeSet<_>>();
        Ok((uids.len() == FIRST && creations.len() == FIRST).then_some(uids))
    })?;
    api.patch(&format!("{DEPLOYMENTS}/many"), &json!({ "spec": { "replicas": MANY } }))?;
    become_ready(api, "many-", MANY)?;
    let metrics = wait_until("the lives of all Pods", ARRIVAL, || {
        let metrics = schedspan.metrics()?;
        let all = read()?.iter().zip(left_out(&metrics)).all(|(sent, left_out)| {
            // The last one waits for the daemon's end.
            sent.len() + left_out + 1 >= MANY
        });
        Ok(all.then_some(metrics))
    })?;
    nothing_lost(&metrics)?;
    schedspan.stop()?;
    let left_out = left_out(&metrics);
    let all = || -> Result<bool> {
        Ok(read()?.iter().zip(left_out).all(|(sent, left_out)| sent.len() + left_out == MANY))
    };
    let _ = wait_until("the last life", ARRIVAL, || Ok(all()?.then_some(())));
    let sent = read()?;
    let traces: BTreeSet<_> = sent.iter().flatten().map(|span| &*span.trace_id).collect();
    ensure!(traces.len() == 1, "the Pods of one owner are in {} traces", traces.len());
    for (((name, what), sent), left_out) in OF_POD.iter().zip(&sent).zip(left_out) {
        let uids: BTreeSet<_> = sent.iter().map(|span| span.attribute("k8s.pod.uid")).collect();
        ensure!(uids.len() == sent.len(), "a Pod has two spans {name}");
        ensure!(first.is_subset(&uids), "of the first Pods not all have a span {name}");
        ensure!(
            sent.len() + left_out == MANY,
            "there are {} spans {name} of {MANY} Pods, and {left_out} are counted as left out",
            sent.len()
        );
        ensure!(sent.len() < MANY / 2, "the trace is not bounded: it has {} spans {name}", sent.len());
        println!(
            "         of {MANY} Pods of one owner {} spans {name}, {left_out} {what}s left out",
            sent.len()
        );
    }
    let [lives, _] = &sent;
    let said = format!("lifecycles of this owner: {}", left_out[0]);
    let last = lives.iter().find(|life| life.list("schedspan.left_out").contains(&said));
    ensure!(last.is_some(), "no life says `{said}`");
    // So many at once are more than the client may send.
    let spans = spans::read(&file, 0)?;
    let creates =
        |span: &&Span| span.name == "POST pods" && span.attribute("k8s.object.name").starts_with("many-");
    requests::limited(spans.iter().filter(creates))
}

/// Lets so many Pods with this prefix become Ready, as a kubelet would say.
fn become_ready(api: &Api, prefix: &str, number: usize) -> Result<()> {
    bound(api, prefix, number)?;
    let at = lifecycle::now()?;
    for pod in api.pods("default")?.iter().filter(|pod| name(pod).starts_with(prefix)) {
        let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|condition| condition["type"] == "Ready") {
            continue;
        }
        conditions.push(json!({ "type": "Ready", "status": "True", "lastTransitionTime": at }));
        let containers = [lifecycle::running(&at)];
        let status = json!({
            "phase": "Running", "startTime": at, "conditions": conditions, "containerStatuses": containers,
        });
        let path = format!("/api/v1/namespaces/default/pods/{}/status", name(pod));
        api.patch(&path, &json!({ "status": status }))?;
    }
    Ok(())
}

/// Lets Pods succeed, as a kubelet would say.
fn succeed<'a>(api: &Api, pods: impl Iterator<Item = &'a Value>) -> Result<()> {
    for pod in pods {
        let path = format!("/api/v1/namespaces/default/pods/{}/status", name(pod));
        api.patch(&path, &json!({ "status": { "phase": "Succeeded" } }))?;
    }
    Ok(())
}

/// Checks that no record was lost, and that there was room for all. Ends whose beginning was before the probes are no loss,
/// nor are reconciles of other processes that ended.
pub(super) fn nothing_lost(metrics: &Metrics) -> Result<()> {
    for cause in ["ring_full", "goroutine_fault", "unknown_site", "table_full"] {
        let lost = metrics.sum("schedspan_losses_total", &[("cause", cause)]);
        ensure!(lost == 0.0, "{lost} losses by {cause}");
    }
    Ok(())
}

/// Waits until schedspan traces this process: it also traces whatever else has the program.
pub(super) fn is_traced(schedspan: &Schedspan, name: &str, pid: i32) -> Result<()> {
    let pid = format!("pid={pid} ");
    wait_until(&format!("schedspan to trace {name}"), NOTICED, || {
        let log = schedspan.log()?;
        Ok(log.lines().any(|line| line.contains(" tracing ") && line.contains(&pid)).then_some(()))
    })
}

/// Waits for an idle moment.
fn idle(stage: &Stage, manager: &Process, schedspan: &Schedspan) -> Result<Moment> {
    let (unix_ns, audited) = quiet(stage, manager)?;
    Ok(Moment {
        unix_ns,
        audited,
        manager: stage.cluster.metrics_of(manager)?,
        schedspan: schedspan.metrics()?,
    })
}

/// Waits for an idle moment, and returns when it was and how long the audit log was. Between two readings of equal metrics nothing
/// began, and nothing was open at the second.
pub(super) fn quiet(stage: &Stage, manager: &Process) -> Result<(u64, usize)> {
    let mut last = stage.cluster.metrics_of(manager)?;
    wait_until("kube-controller-manager to be idle", IDLE_TIMEOUT, || {
        thread::sleep(IDLE);
        let unix_ns = u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())?;
        let audited = audit::length(stage.cluster.dir())?;
        let now = stage.cluster.metrics_of(manager)?;
        let busy = now.sum("workqueue_depth", &[]) + now.sum("workqueue_unfinished_work_seconds", &[]) > 0.0;
        let is_idle = !busy && WORK.iter().all(|name| now.by(name, ["name"]) == last.by(name, ["name"]));
        last = now;
        Ok(is_idle.then_some((unix_ns, audited)))
    })
}

/// What changes when a queue is used, or a request is made.
const WORK: [&str; 4] = [
    "workqueue_adds_total",
    "workqueue_retries_total",
    "workqueue_work_duration_seconds_count",
    requests::TOTAL,
];

/// Keeps the API server from making Pods of the Deployment `refused`: its reconciles fail, and are retried.
pub(super) fn refuse_pods(api: &Api) -> Result<()> {
    let metadata = json!({ "name": "refuse-pods.schedspan.test" });
    let rule =
        json!({ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] });
    let refused = "!has(object.metadata.labels) || !('app' in object.metadata.labels) || object.metadata.labels['app'] != 'refused'";
    let spec = json!({
        "matchConstraints": { "resourceRules": [rule] },
        "validations": [{ "expression": refused, "message": "refused" }],
    });
    api.post(POLICIES, &json!({ "metadata": metadata, "spec": spec }))?;
    let spec = json!({ "policyName": metadata["name"], "validationActions": ["Deny"] });
    api.post(POLICY_BINDINGS, &json!({ "metadata": metadata, "spec": spec }))?;
    wait_until("the API server to refuse Pods", POLICY_TIMEOUT, || {
        let mut refused = pod("refused", "10m");
        refused["metadata"]["labels"] = json!({ "app": "refused" });
        let path = "/api/v1/namespaces/default/pods?dryRun=All";
        Ok(api.post(path, &refused).is_err_and(|error| error.to_string().contains("refused")).then_some(()))
    })
}

/// A Deployment that grows, shrinks and goes; one whose Pods are refused; Jobs whose Pods succeed. Returns all Pods that were made.
fn work(api: &Api) -> Result<Vec<Value>> {
    let [few, many] = REPLICAS;
    api.post(DEPLOYMENTS, &deployment("web", few))?;
    bound(api, "web-", few)?;
    api.post(DEPLOYMENTS, &deployment("refused", 1))?;
    api.patch(&format!("{DEPLOYMENTS}/web"), &json!({ "spec": { "replicas": many } }))?;
    bound(api, "web-", many)?;
    for number in 0..JOBS {
        api.post(JOBS_PATH, &job(&format!("job-{number}")))?;
    }
    bound(api, "job-", JOBS * COMPLETIONS)?;
    let pods = api.pods("default")?;
    succeed(api, pods.iter().filter(|pod| name(pod).starts_with("job-")))?;
    api.patch(&format!("{DEPLOYMENTS}/web"), &json!({ "spec": { "replicas": many - SCALED_DOWN } }))?;
    let is_going = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    api.wait_for_pods("the Deployment to shrink", |pods| {
        let stay = |pod: &&Value| name(pod).starts_with("web-") && !is_going(pod);
        pods.iter().filter(stay).count() == many - SCALED_DOWN
    })?;
    // An API server refuses what an older controller says of a Job that is complete: that is not waited for.
    // Its reconciles fail meanwhile, with longer and longer pauses.
    thread::sleep(REFUSED);
    api.delete(&format!("{DEPLOYMENTS}/refused"))?;
    // The garbage collector deletes what belonged to it.
    api.delete(&format!("{DEPLOYMENTS}/web"))?;
    api.wait_for_pods("Pods of the Deployment to go", |pods| {
        // No kubelet ends those that are bound.
        pods.iter().filter(|pod| name(pod).starts_with("web-")).all(is_going)
    })?;
    // Those that the caller made have no owner.
    Ok(pods.into_iter().filter(|pod| pod["metadata"]["ownerReferences"].is_array()).collect())
}

fn job(name: &str) -> Value {
    let mut template = pod(name, "10m");
    template["metadata"] = json!({});
    template["spec"]["restartPolicy"] = "Never".into();
    json!({
        "metadata": { "name": name },
        "spec": { "parallelism": COMPLETIONS, "completions": COMPLETIONS, "template": template },
    })
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

fn bound(api: &Api, prefix: &str, number: usize) -> Result<()> {
    api.wait_for_pods("Pods to be bound", |pods| {
        pods.iter().filter(|pod| name(pod).starts_with(prefix) && is_bound(pod)).count() == number
    })
}

/// What kube-controller-manager measured between two moments.
fn by_metrics(before: &Moment, after: &Moment) -> BTreeMap<String, Queue> {
    let mut queues = BTreeMap::<_, Queue>::new();
    let figures: [(&str, Figure); 4] = [
        ("workqueue_work_duration_seconds_count", |queue| &mut queue.count),
        ("workqueue_work_duration_seconds_sum", |queue| &mut queue.seconds),
        ("workqueue_queue_duration_seconds_count", |queue| &mut queue.waits),
        ("workqueue_queue_duration_seconds_sum", |queue| &mut queue.waited_seconds),
    ];
    for (metric, figure) in figures {
        for (queue, increase) in increases(metric, "name", &before.manager, &after.manager) {
            *figure(queues.entry(queue).or_default()) = increase;
        }
    }
    queues
}

fn increases(metric: &str, label: &str, before: &Metrics, after: &Metrics) -> BTreeMap<String, f64> {
    let before = before.by(metric, [label]);
    let increase = |(key, value): ([String; 1], f64)| {
        let before = before.get(&key).copied().unwrap_or_default();
        let [queue] = key;
        (queue, value - before)
    };
    after.by(metric, [label]).into_iter().map(increase).collect()
}

fn by_spans(spans: &[Span]) -> BTreeMap<String, Queue> {
    let mut queues = BTreeMap::<_, Queue>::new();
    for span in spans {
        let queue = queues.entry(span.attribute("k8s.workqueue.name")).or_default();
        queue.count += 1.0;
        queue.seconds += span.nanoseconds() as f64 / 1e9;
        if let Ok(wait_ms) = span.attribute("k8s.workqueue.wait_ms").parse::<f64>() {
            queue.waits += 1.0;
            queue.waited_seconds += wait_ms / 1e3;
        }
    }
    queues
}

/// The spans of kube-controller-manager between two moments, once there are as many as it counted.
fn arrived(
    stage: &Stage,
    manager: &Process,
    (before, after): (&Moment, &Moment),
    expected: &BTreeMap<String, Queue>,
) -> Result<Vec<Span>> {
    let pid = manager.pid.to_string();
    let wanted: f64 = expected.values().map(|queue| queue.count).sum();
    let read = || -> Result<Vec<Span>> {
        let mut spans = spans::read(&stage.cluster.spans_file(), 0)?;
        spans.retain(|span| {
            let within = (before.unix_ns..after.unix_ns).contains(&span.start_time_unix_nano);
            within && span.name == "Reconcile" && span.pid == pid
        });
        Ok(spans)
    };
    // Where they never do, the table shows the difference.
    let _ = wait_until("all spans to arrive", ARRIVAL, || {
        let spans = read()?;
        Ok((spans.len() as f64 >= wanted).then_some(()))
    });
    read()
}

/// Prints queues, and returns those whose durations differ.
///
/// # Errors
///
/// If a count differs.
fn compare(metrics: &BTreeMap<String, Queue>, spans: &BTreeMap<String, Queue>) -> Result<Vec<String>> {
    println!(
        "         {:<42} {:>7} {:>7} {:>11} {:>11} {:>8} {:>8}",
        "QUEUE", "SPANS", "METRIC", "SPANS s", "METRIC s", "us/call", "WAITS us"
    );
    let (mut wrong, mut disturbed) = (Vec::new(), Vec::new());
    for name in metrics.keys().chain(spans.keys()).collect::<BTreeSet<_>>() {
        let [metric, span] = [metrics, spans].map(|side| side.get(name).copied().unwrap_or_default());
        if metric.count == 0.0 && span.count == 0.0 {
            continue;
        }
        let per = |difference: f64, calls: f64| difference / f64::max(calls, 1.0) * 1e6;
        let difference = span.seconds - metric.seconds;
        // Keys that cannot be read have no wait: the others' mean is compared.
        let waits =
            if span.waits == metric.waits { span.waited_seconds - metric.waited_seconds } else { 0.0 };
        println!(
            "         {name:<42} {:>7} {:>7} {:>11.6} {:>11.6} {:>8.2} {:>8.2}",
            span.count,
            metric.count,
            span.seconds,
            metric.seconds,
            per(difference, metric.count),
            per(waits, metric.waits)
        );
        if span.count != metric.count {
            wrong.push(name.clone());
        }
        let beyond = |difference: f64, seconds: f64, calls: f64| {
            difference.abs() > f64::max(TOLERANCE * seconds, TOLERANCE_PER_CALL * calls)
        };
        // A wait is short, and one that was interrupted between the two readings of the clock says nothing of the others.
        if beyond(difference, metric.seconds, metric.count)
            || beyond(waits, metric.waited_seconds, f64::max(metric.waits, FEW))
        {
            disturbed.push(name.clone());
        }
    }
    ensure!(wrong.is_empty(), "spans and kube-controller-manager's metrics differ in {}", wrong.join(", "));
    Ok(disturbed)
}

/// Checks that additions and retries are those that kube-controller-manager counted.
fn counters(before: &Moment, after: &Moment) -> Result<()> {
    for (own, metric) in [
        ("schedspan_workqueue_adds_total", "workqueue_adds_total"),
        ("schedspan_workqueue_retries_total", "workqueue_retries_total"),
    ] {
        let counted = increases(own, "queue", &before.schedspan, &after.schedspan);
        let mut total = 0.0;
        for (queue, increase) in increases(metric, "name", &before.manager, &after.manager) {
            if SHARED.iter().any(|shared| queue.starts_with(shared)) {
                continue;
            }
            let own_increase = counted.get(&queue).copied().unwrap_or_default();
            ensure!(
                own_increase == increase,
                "{own} of {queue} is {own_increase}, and {metric} is {increase}"
            );
            total += increase;
        }
        ensure!(total > 0.0, "{metric} has not changed: the test proves nothing");
        println!("         {own} = {metric}: {total}");
    }
    Ok(())
}

/// Checks that each request that deleted a Pod is counted, and was answered with the Pod's UID.
fn removals(before: &Moment, after: &Moment, deleted: usize) -> Result<()> {
    let mut counted =
        increases("schedspan_workqueue_pod_removals_total", "evidence", &before.schedspan, &after.schedspan);
    counted.retain(|_, increase| *increase > 0.0);
    let expected = [("uid".to_owned(), deleted as f64)].into();
    ensure!(counted == expected, "{deleted} requests deleted Pods, and by evidence there are {counted:?}");
    Ok(())
}

/// Checks what the spans say: keys, retries, and that each is the whole of its trace.
fn well_formed(spans: &[Span]) -> Result<()> {
    let mut traces = BTreeSet::new();
    for span in spans {
        let queue = span.attribute("k8s.workqueue.name");
        ensure!(!span.is_incomplete(), "a reconcile of {queue} is incomplete");
        ensure!(span.parent_span_id.is_empty(), "a reconcile of {queue} has a parent");
        ensure!(traces.insert(&span.trace_id), "trace {} has two reconciles", span.trace_id);
    }
    let keys = |queue: &str| -> BTreeSet<String> {
        let of = |span: &&Span| span.attribute("k8s.workqueue.name") == queue;
        spans.iter().filter(of).map(|span| span.attribute("k8s.workqueue.key")).collect()
    };
    ensure!(
        keys("deployment") == ["default/refused", "default/web"].map(str::to_owned).into(),
        "{:?}",
        keys("deployment")
    );
    let jobs: BTreeSet<_> = (0..JOBS).map(|number| format!("default/job-{number}")).collect();
    ensure!(keys("job") == jobs, "the keys of Jobs are {:?}", keys("job"));
    let retried = |span: &&Span| {
        span.attribute("k8s.workqueue.retried") == "true"
            && span.attribute("k8s.workqueue.key").starts_with("default/refused-")
    };
    let retried = spans.iter().filter(retried).count();
    ensure!(retried > 0, "no reconcile of the refused ReplicaSet was retried");
    println!("         {} reconciles; {retried} of the refused ReplicaSet were retried", spans.len());
    Ok(())
}

/// Checks that each Pod was made by the reconcile of its owner, by UID, and that no other Pod was made.
fn creators(pods: &[Value], reconciles: &[Span], requests: &[Span]) -> Result<()> {
    let by_id: BTreeMap<&str, &Span> = reconciles.iter().map(|span| (&*span.span_id, span)).collect();
    let mut made: BTreeMap<String, &Span> = BTreeMap::new();
    for request in requests.iter().filter(|span| span.name == "POST pods") {
        let status = request.attribute("http.response.status_code");
        let uid = request.attribute("k8s.pod.uid");
        // A Pod that was refused has none.
        ensure!(uid.is_empty() == (status != "201"), "status {status} came back with the UID {uid:?}");
        if !uid.is_empty() {
            ensure!(made.insert(uid, by_id[&*request.parent_span_id]).is_none(), "a UID came back twice");
        }
    }
    let mut kinds = BTreeMap::<_, usize>::new();
    for pod in pods {
        let (metadata, owner) = (&pod["metadata"], &pod["metadata"]["ownerReferences"][0]);
        let uid = metadata["uid"].as_str().unwrap_or_default();
        let reconcile = made.remove(uid);
        let reconcile = reconcile.with_context(|| format!("no reconcile made {}", name(pod)))?;
        let [kind, owner] = ["kind", "name"].map(|field| owner[field].as_str().unwrap_or_default());
        let by = ["k8s.workqueue.name", "k8s.workqueue.key"].map(|key| reconcile.attribute(key));
        let expected = [kind.to_lowercase(), format!("default/{owner}")];
        ensure!(by == expected, "{} of {expected:?} was made by {by:?}", name(pod));
        *kinds.entry(kind).or_default() += 1;
    }
    ensure!(made.is_empty(), "{} more Pods were made", made.len());
    let expected = [("Job", JOBS * COMPLETIONS), ("ReplicaSet", REPLICAS[1])].into();
    ensure!(kinds == expected, "the Pods' owners are {kinds:?}");
    println!("         each Pod was made by the reconcile of its owner: {kinds:?}");
    Ok(())
}
