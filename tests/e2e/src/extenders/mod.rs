//! Extenders: the spans of calls equal the records of a real extender.

mod server;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, pod},
    figures::Comparison,
    schedspan::{Options, Schedspan},
    spans::Span,
    stage::Stage,
};
use serde_json::{Value, json};

use self::server::{
    Asked, BINDER, FLAKY, REFUSAL, REJECTED, SIEVE, STRICT, STRICTNESS, Server, WEIGHT, WIDGET, score,
};
use crate::{
    checks::{nothing_lost, text},
    truth::trees,
};

/// Nodes, of 32 CPUs each.
pub(super) const NODES: u32 = 6;
/// Ordinary Pods, Pods that an extender binds, and Pods that one refuses.
const PLACED: usize = 20;
const WIDGETS: usize = 5;
const REFUSED: usize = 3;
/// Extenders and their verbs.
const VERBS: [(&str, &str); 7] = [
    (SIEVE, "filter"),
    (SIEVE, "prioritize"),
    (SIEVE, "preempt"),
    (FLAKY, "filter"),
    (FLAKY, "prioritize"),
    (BINDER, "bind"),
    (STRICT, "filter"),
];
/// The scheduler's factor for an extender's score: `MaxNodeScore / MaxExtenderPriority`.
const SCALE: u64 = 10;

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let server = Server::start(&api)?;
    stage.cluster.configure_scheduler(|configuration| configuration["extenders"] = server.configuration())?;
    api.create_priority_classes()?;
    let schedspan = Schedspan::start(&Options { arguments: &["--monotonic"], ..stage.options()? })?;
    let comparison = Comparison::begin(&stage.cluster)?;
    let asks_for = |name: String, resource: &str| {
        let mut pod = pod(&name, "10m");
        let resources = &mut pod["spec"]["containers"][0]["resources"];
        resources["requests"][resource] = "1".into();
        resources["limits"] = json!({ resource: "1" });
        pod
    };
    let placed = (0..PLACED).map(|number| pod(&format!("placed-{number}"), "10m"));
    let widgets = (0..WIDGETS).map(|number| asks_for(format!("widget-{number}"), WIDGET));
    let refused = (0..REFUSED).map(|number| asks_for(format!("refused-{number}"), STRICTNESS));
    // Each fills a Node that the sieve accepts, until it is preempted.
    let low = (REJECTED.len()..NODES as usize).map(|number| filling(&format!("low-{number}"), "30", "low"));
    let first: Vec<_> = placed.chain(widgets).chain(refused).chain(low).collect();
    first.iter().try_for_each(|pod| api.create_pod("default", pod).map(drop))?;
    let is_refused = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| condition["reason"] == "SchedulerError")
    };
    api.wait_for_pods("Pods to be bound or refused", |pods| {
        pods.len() == first.len() && pods.iter().all(|pod| is_bound(pod) || is_refused(pod))
    })?;
    api.create_pod("default", &filling("high", "20", "high"))?;
    api.wait_for_pods("a Pod to preempt another one", |pods| {
        pods.iter().any(|pod| text(pod, "/metadata/name") == "high" && is_bound(pod))
    })?;
    // The scheduler would keep trying them.
    api.delete_pods("refused")?;
    let pods = api.pods("default")?;
    let figures = comparison.end()?;
    let metrics = schedspan.metrics()?;
    schedspan.stop()?;
    nothing_lost(&metrics)?;
    trees(&figures.spans)?;

    compare(&server, &figures.spans)?;
    for span in figures.spans.iter().filter(|span| span.name.starts_with("extender: ")) {
        check_answer(&server, span)?;
    }
    for pod in pods.iter().filter(|pod| is_bound(pod)) {
        let name = text(pod, "/metadata/name");
        let scored = |span: &&Span| {
            span.is_root() && span.pod() == name && span.attribute("k8s.scheduler.result") == "Success"
        };
        let root = figures.spans.iter().find(scored).with_context(|| format!("{name} has no span"))?;
        candidates(&server, root, text(pod, "/spec/nodeName")).with_context(|| format!("where {name} is"))?;
    }
    Ok(())
}

fn filling(name: &str, cpu: &str, class: &str) -> Value {
    let mut pod = pod(name, cpu);
    pod["spec"]["priorityClassName"] = class.into();
    pod
}

/// The spans of an extender's verb.
fn spans_of<'a>(server: &Server, spans: &'a [Span], extender: &str, verb: &str) -> Vec<&'a Span> {
    let name = format!("extender: {}", server.url(extender));
    let asks = |span: &&Span| span.name == name && span.attribute("k8s.scheduler.extender.verb") == verb;
    spans.iter().filter(asks).collect()
}

/// Checks that each request has one span, which contains the server's time, in an attempt of the same Pod.
fn compare(server: &Server, spans: &[Span]) -> Result<()> {
    let asked = server.asked();
    let uids: BTreeMap<_, _> = spans
        .iter()
        .filter(|span| span.is_root())
        .map(|root| (&root.trace_id, root.attribute("k8s.pod.uid")))
        .collect();
    println!("         {:<10} {:<12} {:>9} {:>9}", "EXTENDER", "VERB", "SPANS", "REQUESTS");
    for (extender, verb) in VERBS {
        let of_both = |asked: &&Asked| asked.extender == extender && asked.verb == verb;
        let mut requests: Vec<_> = asked.iter().filter(of_both).collect();
        let spans = spans_of(server, spans, extender, verb);
        println!("         {extender:<10} {verb:<12} {:>9} {:>9}", spans.len(), requests.len());
        ensure!(!spans.is_empty(), "{extender} was not asked to {verb}: the test proves nothing");
        ensure!(spans.len() == requests.len(), "requests of {extender} to {verb} and their spans differ");
        for span in spans {
            let [start, end] = ["schedspan.monotonic.start_ns", "schedspan.monotonic.end_ns"]
                .map(|key| span.attribute(key).parse::<u64>());
            let (start, end) = (start?, end?);
            let uid = uids.get(&span.trace_id).cloned().unwrap_or_default();
            let within = |asked: &&Asked| asked.uid == uid && start <= asked.start_ns && asked.end_ns <= end;
            let position = requests.iter().position(within);
            let position = position
                .with_context(|| format!("{extender} was not asked to {verb} for {uid} within its span"))?;
            let Asked { nodes, passed, .. } = requests.swap_remove(position);
            let said =
                [("k8s.scheduler.extender.nodes", nodes), ("k8s.scheduler.extender.passed_nodes", passed)];
            for (key, count) in said {
                let count = count.map(|count| count.to_string()).unwrap_or_default();
                ensure!(
                    span.attribute(key) == count,
                    "{key} of {verb} by {extender} is {} instead of {count}",
                    span.attribute(key)
                );
            }
        }
    }
    let known: BTreeSet<_> = VERBS.into_iter().collect();
    let other = asked.iter().find(|asked| !known.contains(&(asked.extender.as_str(), asked.verb.as_str())));
    ensure!(other.is_none(), "the scheduler asked {other:?}");
    Ok(())
}

/// Checks the answer in a span.
fn check_answer(server: &Server, span: &Span) -> Result<()> {
    let url = span.attribute("k8s.scheduler.extender.url");
    let is = |extender: &str| url == server.url(extender);
    let verb = span.attribute("k8s.scheduler.extender.verb");
    let message = match verb.as_str() {
        _ if is(FLAKY) => format!("failed {verb} with extender at URL {url}/{verb}, code 500"),
        _ if is(STRICT) => REFUSAL.to_owned(),
        _ => String::new(),
    };
    let (result, status) = match message.as_str() {
        "" => ("Success", String::new()),
        _ => ("Error", format!("Error: {message}")),
    };
    ensure!(span.attribute("k8s.scheduler.result") == result, "{verb} of {url} is not {result}");
    ensure!(
        span.attribute("k8s.scheduler.message") == message,
        "{verb} of {url} says {}",
        span.attribute("k8s.scheduler.message")
    );
    ensure!(span.status_message == status, "the status of {verb} of {url} is {}", span.status_message);
    ensure!(
        span.attribute("k8s.scheduler.extender.ignorable") == is(FLAKY).to_string(),
        "{url} is ignorable"
    );
    Ok(())
}

/// Checks that the candidates' totals include the extender's scores, and that the chosen Node has the highest.
fn candidates(server: &Server, root: &Span, node: &str) -> Result<()> {
    let candidates = root.list("k8s.scheduler.candidates");
    // With one feasible Node there is no scoring.
    if candidates.is_empty() {
        return Ok(());
    }
    let mut totals = Vec::new();
    for candidate in &candidates {
        let parse = || {
            let (name, rest) = candidate.split_once(": ")?;
            let (total, parts) = rest.strip_suffix(')')?.split_once(" (")?;
            let parts = parts.split(", ").map(|part| {
                let (who, score) = part.rsplit_once(' ')?;
                Some((who, score.parse::<u64>().ok()?))
            });
            Some((name, total.parse::<u64>().ok()?, parts.collect::<Option<BTreeMap<_, _>>>()?))
        };
        let (name, total, parts) = parse().with_context(|| format!("not a candidate: `{candidate}`"))?;
        ensure!(!REJECTED.contains(&name), "{name} was rejected");
        ensure!(parts.values().sum::<u64>() == total, "the scores of `{candidate}` are not its total");
        let (ours, wanted) = (parts.get(server.url(SIEVE).as_str()), score(name) * WEIGHT * SCALE);
        ensure!(ours == Some(&wanted), "the extender's score in `{candidate}` is not {wanted}");
        totals.push((total, name));
    }
    let best = totals.iter().map(|(total, _)| *total).max();
    ensure!(
        totals.iter().any(|(total, name)| Some(*total) == best && *name == node),
        "{node} is not the best of {candidates:?}"
    );
    Ok(())
}
