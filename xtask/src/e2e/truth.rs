//! The spans against the scheduler's own metrics: every attempt, every phase, every microsecond.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::nothing_lost;
use crate::{
    cluster::{Api, NodeSize, is_bound, is_unschedulable, pod, wait_until},
    compare::{Comparison, Row},
    process,
    spans::Span,
    stage::Stage,
};

/// Nodes of the cluster, of 32 CPUs each.
pub(super) const NODES: u32 = 100;

/// Pods that fit at once.
const SMALL: usize = 425;
/// Pairs of a Pod that fills a Node and one that takes its place.
const PREEMPTED: usize = 10;
/// Pods that fit once there are larger Nodes.
const LARGE: usize = 40;
/// Pods that fit nowhere.
const NEVER: usize = 10;
/// Pods whose binding the API server refuses.
const REFUSED: usize = 5;
const ALL: usize = SMALL + 2 * PREEMPTED + LARGE + NEVER + REFUSED;

/// From a policy's creation until the API server follows it.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(30);

/// How much longer or shorter spans may be than what the metric says, whichever is more.
const TOLERANCE: f64 = 0.02;
const TOLERANCE_PER_CALL: f64 = 3e-6;

/// Counts agree, and sums of durations do not: the only failure that a repetition may mend. Where the machine is itself a
/// guest, its host takes a CPU away for milliseconds, and one such moment between the scheduler's clock and a probe is some
/// microseconds for each of 500 calls.
#[derive(Debug)]
pub(super) struct Disturbed(String);

impl std::error::Error for Disturbed {}

impl fmt::Display for Disturbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the durations of spans and of the scheduler's metrics differ: {}", self.0)
    }
}

/// The profiles of its scheduler: one with the plugin that makes trouble, and one as it comes.
pub(super) fn profiles() -> Vec<Value> {
    let trouble = json!({ "multiPoint": { "enabled": [{ "name": "Trouble" }] } });
    vec![
        json!({ "schedulerName": "default-scheduler", "plugins": trouble }),
        json!({ "schedulerName": "second-scheduler" }),
    ]
}

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    const { assert!(ALL == 500) };
    let api = stage.cluster.api()?;
    refuse_bindings(&api)?;
    undisturbed(stage.cluster.scheduler()?.pid)?;
    let schedspan = stage.trace()?;
    let comparison = Comparison::begin(&stage.cluster)?;
    schedule(&api)?;
    let figures = comparison.end()?;
    let metrics = schedspan.metrics()?;
    schedspan.stop()?;

    print_header();
    let (mut wrong, mut disturbed) = (Vec::new(), Vec::new());
    for row in figures.attempts() {
        print_row(&row);
        ensure!(row.spans > 0, "no attempt ended with {}: the test does not test", row.name);
        if row.spans != row.metric {
            wrong.push(row.name);
        }
    }
    for row in figures.phases() {
        print_row(&row);
        // No plugin of the default profile asks a Pod to wait.
        ensure!(row.spans > 0 || row.name == "waitOnPermit", "no {} ran: the test does not test", row.name);
        let difference = (row.spans_seconds - row.metric_seconds).abs();
        let allowed = f64::max(TOLERANCE * row.metric_seconds, TOLERANCE_PER_CALL * row.metric as f64);
        if row.spans != row.metric {
            wrong.push(row.name);
        } else if difference > allowed {
            disturbed.push(row.name);
        }
    }
    nothing_lost(&metrics)?;
    trees(&figures.spans)?;
    ensure!(wrong.is_empty(), "spans and the scheduler's metrics differ: {}", wrong.join(", "));
    ensure!(disturbed.is_empty(), Disturbed(disturbed.join(", ")));
    Ok(())
}

/// Lets the scheduler run before everybody else: a time slice of another process between its clock and a probe is some
/// milliseconds, a thousand times what is compared.
fn undisturbed(pid: i32) -> Result<()> {
    let mut chrt = Command::new("chrt");
    process::output(chrt.args(["--all-tasks", "--fifo", "--pid", "1", &pid.to_string()]))
        .map(drop)
        .context("cannot give the scheduler real-time priority: run it where that is allowed")
}

/// Creates all Pods and waits until the scheduler has nothing more to do.
fn schedule(api: &Api) -> Result<()> {
    for (name, value) in [("low", 1), ("high", 1000)] {
        api.post(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            &json!({ "metadata": { "name": name }, "value": value }),
        )?;
    }
    let create = |prefix: &str, number: usize, make: &dyn Fn(usize, String) -> Value| {
        (1..=number).try_for_each(|n| api.create_pod("default", &make(n, format!("{prefix}-{n}"))).map(drop))
    };
    let count = |pods: &[Value], prefix: &str, is: fn(&Value) -> bool| {
        let named =
            |pod: &&Value| pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix));
        pods.iter().filter(named).filter(|pod| is(pod)).count()
    };
    let on_node = |n: usize, name: String, cpu: &str, priority: &str| {
        let mut pod = pod(&name, cpu);
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": format!("node-{n:04}") });
        pod["spec"]["priorityClassName"] = priority.into();
        pod
    };

    create("low", PREEMPTED, &|n, name| on_node(n, name, "30", "low"))?;
    create("never", NEVER, &|_, name| pod(&name, "1000"))?;
    create("large", LARGE, &|_, name| pod(&name, "40"))?;
    create("small", SMALL, &|_, name| pod(&name, "100m"))?;
    api.wait_for_pods("Pods to be bound or found unschedulable", |pods| {
        count(pods, "low", is_bound) == PREEMPTED
            && count(pods, "small", is_bound) == SMALL
            && count(pods, "large", is_unschedulable) == LARGE
            && count(pods, "never", is_unschedulable) == NEVER
    })?;
    create("high", PREEMPTED, &|n, name| on_node(n, name, "20", "high"))?;
    for n in 1..=LARGE / 10 {
        api.create_node(&format!("large-{n}"), NodeSize { cpu: "480", ..NodeSize::default() })?;
    }
    create("refused", REFUSED, &|_, name| pod(&name, "100m"))?;
    api.wait_for_pods("Pods to preempt others and to be tried again", |pods| {
        count(pods, "high", is_bound) == PREEMPTED && count(pods, "large", is_bound) == LARGE
    })?;
    // These would be tried again and again.
    api.delete_pods("never")?;
    api.delete_pods("refused")
}

/// Lets the API server refuse the binding of some Pods: an error that the scheduler can do nothing about.
fn refuse_bindings(api: &Api) -> Result<()> {
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

/// Checks that each trace is one tree, and that of one attempt.
fn trees(spans: &[Span]) -> Result<()> {
    let mut traces = BTreeMap::<_, Vec<_>>::new();
    for span in spans {
        traces.entry(&span.trace_id).or_default().push(span);
    }
    let mut attempts = BTreeSet::new();
    for (id, spans) in &traces {
        let roots: Vec<_> = spans.iter().filter(|span| span.is_root()).collect();
        let [root] = roots[..] else { bail!("trace {id} has {} roots", roots.len()) };
        ensure!(root.name == "SchedulePod", "the root of trace {id} is {}", root.name);
        let attempt = ["k8s.pod.uid", "k8s.scheduler.attempt"].map(|key| root.attribute(key));
        ensure!(!attempt.iter().any(String::is_empty), "trace {id} does not say of which attempt it is");
        ensure!(attempts.insert(attempt), "trace {id} is the second one of the same attempt");
        let by_id: BTreeMap<_, _> = spans.iter().map(|span| (&span.span_id, span)).collect();
        ensure!(by_id.len() == spans.len(), "trace {id} has a span twice");
        for span in spans.iter().filter(|span| !span.is_root()) {
            let parent = by_id.get(&span.parent_span_id);
            let Some(parent) = parent else { bail!("{} in trace {id} is an orphan", span.name) };
            ensure!(parent.holds(span), "{} in trace {id} is not inside of its {}", span.name, parent.name);
        }
    }
    println!("         {} traces, each one attempt and one tree, {} spans", traces.len(), spans.len());
    Ok(())
}

fn print_header() {
    println!(
        "         {:<18} {:>7} {:>7} {:>12} {:>12} {:>12}",
        "", "SPANS", "METRIC", "SPANS s", "METRIC s", "DIFF us/call"
    );
}

fn print_row(row: &Row) {
    let Row { name, spans, metric, spans_seconds, metric_seconds } = row;
    print!("         {name:<18} {spans:>7} {metric:>7}");
    if *metric_seconds > 0.0 {
        let per_call = (spans_seconds - metric_seconds) / *metric as f64 * 1e6;
        print!(" {spans_seconds:>12.6} {metric_seconds:>12.6} {per_call:>12.2}");
    }
    println!();
}
