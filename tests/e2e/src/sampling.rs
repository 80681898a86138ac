//! Sampling: exactly the traces that the rules select are kept, and by ratio the same as the SDK for Go keeps.
//!
//! One daemon keeps all traces and is the reference for the others, which run at the same time with one sampler each.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, NodeSize, is_bound, pod},
    schedspan::{Options, Schedspan},
    spans::{self, DAEMON, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::{go::Go, paths};

use crate::{
    checks::{self, text},
    load::create_all,
};

/// Nodes, and those that are full until a Pod is preempted.
pub(super) const NODES: u32 = 20;
const FULL: usize = 10;
/// Pods, of which every twelfth fits nowhere. With those on the full Nodes there are more than a thousand attempts.
const PODS: usize = 1_000;
const OTHER_NAMESPACE: &str = "other";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const REFERENCE: &str = "reference";
const RATIO: &str = "0.3";
/// A KubeSchedulerConfiguration with the sampling of KEP-5927.
const CONFIGURATION: &str = "{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, \
    tracing: {samplingRatePerMillion: 300000}}";
/// The attempts of a percentile, and the minimum for one.
const WINDOW: usize = 1_000;
const LEAST: usize = 100;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Facts about an attempt from other sources than schedspan.
struct Facts<'a> {
    root: &'a Span,
    pod: &'a Value,
}

/// Decides whether a sampler keeps an attempt.
type Keeps = fn(&Facts<'_>) -> bool;

/// Samplers that decide by the attempt and its Pod, so all daemons agree.
const ALIKE: [(&str, Keeps); 8] = [
    ("failed", |facts| facts.is("k8s.scheduler.result", "Unschedulable")),
    ("first-attempt", |facts| facts.is("k8s.scheduler.attempt", "1")),
    ("preempting", |facts| !facts.root.attribute("k8s.scheduler.preemption.node").is_empty()),
    ("namespace=other", |facts| text(facts.pod, "/metadata/namespace") == OTHER_NAMESPACE),
    ("label=app=web", |facts| text(facts.pod, "/metadata/labels/app") == "web"),
    ("priority-class=high", |facts| text(facts.pod, "/spec/priorityClassName") == "high"),
    ("link-sampled", |facts| text(facts.pod, "/metadata/annotations/traceparent").ends_with("-01")),
    ("failed,namespace=other", |facts| {
        facts.is("k8s.scheduler.result", "Unschedulable")
            && text(facts.pod, "/metadata/namespace") == OTHER_NAMESPACE
    }),
];
/// Samplers that decide by times and trace ids, which differ between daemons.
const OWN: [&str; 5] =
    ["slower-than=5ms", "slower-than=p90", "at-most=20", "failed,at-most=3", "traceidratio=0.3"];

impl Facts<'_> {
    fn is(&self, key: &str, value: &str) -> bool {
        self.root.attribute(key) == value
    }
}

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    prepare(&api)?;
    let file = stage.cluster.dir().join("tracing.yaml");
    fs::write(&file, CONFIGURATION)?;
    let file = file.display().to_string();
    let start = |name: &str, keep: &[&str], environment: &[(&str, &str)]| {
        let keep = keep.iter().flat_map(|rule| ["--keep", rule]);
        let keep: Vec<_> = if name == "file" { vec!["--tracing-config-file", &file] } else { keep.collect() };
        let resource = format!("{DAEMON}={}", name.replace([',', '='], "/"));
        let environment = [environment, &[("OTEL_RESOURCE_ATTRIBUTES", &*resource)]].concat();
        let options = Options { arguments: &keep, environment: &environment, ..stage.options()? };
        Schedspan::start(&options).with_context(|| format!("with {name}"))
    };
    let all: Vec<_> = ALIKE.iter().map(|(rule, _)| *rule).chain(OWN).chain(["always_on"]).collect();
    let mut daemons = vec![(REFERENCE, start(REFERENCE, &all, &[])?)];
    for (rule, _) in ALIKE {
        daemons.push((rule, start(rule, &[rule], &[])?));
    }
    for rule in ["slower-than=p90", "at-most=20"] {
        daemons.push((rule, start(rule, &[rule], &[])?));
    }
    let variables = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", RATIO)];
    daemons.push(("environment", start("environment", &[], &variables)?));
    daemons.push(("file", start("file", &[], &[])?));

    let before = stage.cluster.scheduler_metrics()?;
    let pods = load(&api)?;
    let metric = "schedspan_attempts_total";
    let attempts = wait_until("every daemon to have every attempt", TIMEOUT, || {
        let name = "scheduler_schedule_attempts_total";
        let made = stage.cluster.scheduler_metrics()?.sum(name, &[]) - before.sum(name, &[]);
        for (_, daemon) in &daemons {
            if daemon.metrics()?.sum(metric, &[]) != made {
                return Ok(None);
            }
        }
        Ok((made >= PODS as f64).then_some(made))
    })?;
    let mut figures = BTreeMap::new();
    for (name, daemon) in daemons {
        let metrics = daemon.metrics()?;
        checks::nothing_lost(&metrics)?;
        ensure!(metrics.sum(metric, &[]) == attempts, "{name} counts other attempts than the scheduler");
        figures.insert(name, metrics);
        daemon.stop()?;
    }
    let dropped = |name: &str| figures[name].sum("schedspan_traces_dropped_total", &[]);
    let roots = wait_until("all that is kept to arrive", TIMEOUT, || {
        let mut roots: BTreeMap<String, Vec<Span>> = BTreeMap::new();
        for span in spans::read(&stage.cluster.spans_file(), 0)?.into_iter().filter(Span::is_root) {
            roots.entry(span.daemon.clone()).or_default().push(span);
        }
        let all = |name: &&str| of(&roots, name).len() as f64 + dropped(name) == attempts;
        Ok(figures.keys().all(all).then_some(roots))
    })?;
    let reference = of(&roots, REFERENCE);
    ensure!(dropped(REFERENCE) == 0.0 && reference.len() as f64 == attempts, "the reference drops");
    let kept = check(reference, &pods)?;
    for (rule, _) in ALIKE {
        let keys = |spans: &mut dyn Iterator<Item = &Span>| spans.map(key).collect::<BTreeSet<_>>();
        let expected = keys(
            &mut reference.iter().filter(|root| root.list("schedspan.kept_by").iter().any(|by| by == rule)),
        );
        let found = keys(&mut of(&roots, rule).iter());
        ensure!(found == expected, "alone, {rule} keeps {} instead of {}", found.len(), expected.len());
    }
    for name in ["environment", "file", "slower-than=p90", "at-most=20"] {
        let says = match name {
            "environment" => "traceidratio=0.3",
            "file" => "parentbased_traceidratio=0.3",
            rule => rule,
        };
        let roots = of(&roots, name);
        ensure!(
            !roots.is_empty() && dropped(name) > 0.0,
            "{name} keeps {} and drops {}",
            roots.len(),
            dropped(name)
        );
        ensure!(
            roots.iter().all(|root| root.list("schedspan.kept_by") == [says]),
            "{name} says something else"
        );
        let counted = figures[name].sum("schedspan_traces_kept_total", &[("sampler", says)]);
        ensure!(counted == roots.len() as f64, "{name} counts {counted} instead of {}", roots.len());
    }
    for name in ["environment", "file"] {
        ensure!(
            sdk(of(&roots, name))?.into_values().all(|sampled| sampled),
            "{name} keeps what the SDK does not"
        );
        let reason = figures[name].sum("schedspan_traces_dropped_total", &[("reason", "ratio")]);
        ensure!(reason == dropped(name), "{name} drops for other reasons than the ratio");
    }
    let seconds = per_second(of(&roots, "at-most=20").iter());
    ensure!(seconds.values().all(|kept| *kept <= 20), "{seconds:?}");
    println!("         {attempts} attempts: {}", kept.join(", "));
    Ok(())
}

fn of<'a>(roots: &'a BTreeMap<String, Vec<Span>>, daemon: &str) -> &'a [Span] {
    roots.get(&daemon.replace([',', '='], "/")).map_or(&[], Vec::as_slice)
}

/// The Pod's UID and the number of the attempt.
fn key(root: &Span) -> (String, String) {
    (root.attribute("k8s.pod.uid"), root.attribute("k8s.scheduler.attempt"))
}

fn per_second<'a>(roots: impl Iterator<Item = &'a Span>) -> BTreeMap<u64, usize> {
    let mut seconds = BTreeMap::new();
    for root in roots {
        *seconds.entry(root.end_time_unix_nano / 1_000_000_000).or_default() += 1;
    }
    seconds
}

/// Creates a namespace, priority classes, and Nodes filled by Pods of low priority.
fn prepare(api: &Api) -> Result<()> {
    api.post("/api/v1/namespaces", &json!({ "metadata": { "name": OTHER_NAMESPACE } }))?;
    api.create_priority_classes()?;
    for number in 0..FULL {
        api.create_node(&full(number), NodeSize { cpu: "1", ..NodeSize::default() })?;
        api.create_pod("default", &on_full(number, "low"))?;
    }
    api.wait_for_pods("the full Nodes to be full", |pods| pods.iter().all(is_bound))
}

fn full(number: usize) -> String {
    format!("full-{number}")
}

fn on_full(number: usize, class: &str) -> Value {
    let mut pod = pod(&format!("{class}-{number}"), "1");
    pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": full(number) });
    pod["spec"]["priorityClassName"] = class.into();
    pod
}

/// Creates Pods of all kinds, and returns the API server's objects by UID.
fn load(api: &Api) -> Result<BTreeMap<String, Value>> {
    for number in 0..FULL {
        api.create_pod("default", &on_full(number, "high"))?;
    }
    create_all(api, PODS, |number| {
        let name = format!("{}-{number}", if number % 12 == 0 { "never" } else { "fits" });
        let mut pod = pod(&name, if number % 12 == 0 { "1000" } else { "10m" });
        if number % 4 == 0 {
            pod["metadata"]["labels"] = json!({ "app": if number % 8 == 0 { "web" } else { "db" } });
        }
        if number % 10 == 1 {
            pod["spec"]["priorityClassName"] = "high".into();
        }
        if number % 7 < 2 {
            let traceparent = format!("00-{TRACE_ID}-{:016x}-0{}", number + 1, number % 7);
            pod["metadata"]["annotations"] = json!({ "traceparent": traceparent });
        }
        (if number % 5 == 0 { OTHER_NAMESPACE } else { "default" }, pod)
    })?;
    let fits = |pod: &Value| !text(pod, "/metadata/name").starts_with("never");
    let pods = wait_until("all Pods that fit to be bound", TIMEOUT, || {
        let pods = [api.pods("default")?, api.pods(OTHER_NAMESPACE)?].concat();
        Ok(pods.iter().all(|pod| is_bound(pod) || !fits(pod)).then_some(pods))
    })?;
    // The scheduler would try them again.
    for pod in pods.iter().filter(|pod| !fits(pod)) {
        api.delete_pod(text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))?;
    }
    Ok(pods.into_iter().map(|pod| (text(&pod, "/metadata/uid").to_owned(), pod)).collect())
}

/// Checks each sampler on each attempt of the reference, by Pod, result, time and trace id. Returns the number each keeps.
fn check(reference: &[Span], pods: &BTreeMap<String, Value>) -> Result<Vec<String>> {
    let sampled = sdk(reference)?;
    let (mut before, mut counts) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for root in reference {
        let pod = &pods[&root.attribute("k8s.pod.uid")];
        let facts = Facts { root, pod };
        let mut sorted: Vec<u64> = before.iter().rev().take(WINDOW).copied().collect();
        sorted.sort_unstable();
        let limit = (sorted.len() >= LEAST).then(|| sorted[(sorted.len() * 9).div_ceil(10) - 1]);
        before.push(root.nanoseconds());
        let alike = ALIKE.map(|(rule, keeps)| (rule, keeps(&facts)));
        let own = [
            ("slower-than=5ms", root.nanoseconds() > 5_000_000),
            ("slower-than=p90", limit.is_some_and(|limit| root.nanoseconds() > limit)),
            ("traceidratio=0.3", sampled[&root.trace_id]),
            ("always_on", true),
        ];
        let says = root.list("schedspan.kept_by");
        for (rule, keeps) in alike.into_iter().chain(own) {
            let kept = says.iter().any(|by| by == rule);
            ensure!(kept == keeps, "{rule} keeps {} of {}: {kept}, and not {keeps}", root.name, root.pod());
            *counts.entry(rule).or_default() += usize::from(kept);
        }
    }
    for (rule, limit) in [("at-most=20", 20), ("failed,at-most=3", 3)] {
        let all = reference.iter().filter(|root| {
            !rule.starts_with("failed") || root.attribute("k8s.scheduler.result") != "Success"
        });
        let all = per_second(all);
        let kept = per_second(
            reference.iter().filter(|root| root.list("schedspan.kept_by").iter().any(|by| by == rule)),
        );
        let expected: BTreeMap<_, _> =
            all.into_iter().map(|(second, all)| (second, all.min(limit))).collect();
        ensure!(kept == expected, "{rule} keeps {kept:?} a second, and not {expected:?}");
        counts.insert(rule, kept.values().sum());
    }
    let all = reference.len();
    for (rule, kept) in &counts {
        // The number of slower ones depends on the machine.
        let any = ["always_on", "slower-than=5ms"].contains(rule);
        ensure!(any || (*kept > 0 && *kept < all), "{rule} keeps {kept} of {all}: that tests nothing");
    }
    Ok(counts.into_iter().map(|(rule, kept)| format!("{kept} {rule}")).collect())
}

/// The decisions of OpenTelemetry's SDK for Go on these trace ids.
fn sdk(roots: &[Span]) -> Result<BTreeMap<String, bool>> {
    let mut go = Command::new(Go::Machine.executable()?);
    go.args(["run", ".", RATIO]).current_dir(paths::repository().join("tests/sampler"));
    go.envs([
        ("CGO_ENABLED", "0"),
        ("GOFLAGS", "-mod=readonly"),
        ("GOTOOLCHAIN", "local"),
        ("GOWORK", "off"),
    ]);
    let mut child = go.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("it has no standard input")?;
    let ids: String = roots.iter().map(|root| format!("{}\n", root.trace_id)).collect();
    // The output exceeds a pipe's buffer, so it is read while the input is written.
    let writer = std::thread::spawn(move || input.write_all(ids.as_bytes()));
    let output = child.wait_with_output()?;
    writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    ensure!(output.status.success(), "the SDK's sampler ended with {}", output.status);
    let lines = String::from_utf8(output.stdout)?;
    let decision = |line: &str| {
        let [_, id, sampled] = line.split('\t').collect::<Vec<_>>()[..] else { return None };
        Some((id.to_owned(), sampled == "true"))
    };
    Ok(lines.lines().filter_map(decision).collect())
}
