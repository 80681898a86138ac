//! A slow attempt names the plugin that makes it slow: Pods with very many terms, each of which that plugin evaluates for each of
//! thousands of Nodes.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use harness::{
    api::{is_bound, pod},
    schedspan::Schedspan,
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};

use crate::checks::{explain, text};

pub(super) const NODES: u32 = 5_000;
/// Terms of a Pod. A plugin takes some 20 ns for each on each Node, and 20 samples are 100 ms of CPU time.
const TERMS: usize = 2_500;
/// Samples that the plugin has in the attempt, at least, and its share of the phase.
const SAMPLES: u64 = 20;
const SHARE: f64 = 0.5;
const HOSTNAME: &str = "kubernetes.io/hostname";
const LABEL: &str = "anchor";
const TIMEOUT: Duration = Duration::from_secs(30);

/// A Pod whose attempt is slow, and the plugin that makes it so.
struct Slow {
    pod: &'static str,
    plugin: &'static str,
    affinity: fn() -> Value,
}

const SLOW: [Slow; 2] = [
    Slow { pod: "gathered", plugin: "InterPodAffinity", affinity: with_the_anchor },
    Slow { pod: "selected", plugin: "NodeAffinity", affinity: on_the_last_node },
];

/// The Node of the anchor is the only one on which all terms are met.
fn with_the_anchor() -> Value {
    let term = json!({ "topologyKey": HOSTNAME, "labelSelector": { "matchLabels": { LABEL: "yes" } } });
    json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": vec![term; TERMS] } })
}

/// The last term is the only one that a Node meets.
fn on_the_last_node() -> Value {
    let term = |name: String| json!({ "matchExpressions": [{ "key": HOSTNAME, "operator": "In", "values": [name] }] });
    let mut terms: Vec<_> = (1..TERMS).map(|number| term(format!("absent-{number}"))).collect();
    terms.push(term(format!("node-{:04}", NODES - 1)));
    json!({
        "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } }
    })
}

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let schedspan = stage.trace()?;
    let mut anchor = pod("anchor", "10m");
    anchor["metadata"]["labels"] = json!({ LABEL: "yes" });
    let mut all = vec![("anchor", anchor)];
    for Slow { pod: name, affinity, .. } in SLOW {
        let mut slow = pod(name, "10m");
        slow["spec"]["affinity"] = affinity();
        all.push((name, slow));
    }
    for (name, pod) in all {
        api.create_pod("default", &pod)?;
        api.wait_for_pods("the Pod to be bound", |pods| {
            pods.iter().any(|pod| text(pod, "/metadata/name") == name && is_bound(pod))
        })?;
    }
    for Slow { pod, plugin, .. } in SLOW {
        let explained = explained(stage, &schedspan, pod)?;
        let sentence: Vec<&str> = explained.split_whitespace().collect();
        let is_named = sentence.windows(5).any(|words| {
            words[0].ends_with(plugin) && words[1].ends_with('%') && words[2..] == ["of", "it:", "sampled,"]
        });
        ensure!(is_named, "`schedspan explain {pod}` does not name {plugin}:\n{explained}");
    }
    schedspan.stop()?;
    let pid = stage.cluster.scheduler()?.pid.to_string();
    let (spans, roots) = wait_until("the attempts to be stored", TIMEOUT, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        let root = |slow: &Slow| {
            let is_it = |span: &&Span| span.is_root() && span.pod() == slow.pod && span.pid == pid;
            spans.iter().find(is_it).cloned()
        };
        Ok(SLOW.iter().map(root).collect::<Option<Vec<_>>>().map(|roots| (spans, roots)))
    })?;
    roots.iter().zip(SLOW).try_for_each(|(root, Slow { plugin, .. })| is_named(&spans, root, plugin))
}

/// What `schedspan explain` says of a Pod, once the daemon has its attempt.
fn explained(stage: &Stage, schedspan: &Schedspan, pod: &str) -> Result<String> {
    wait_until("the attempt to be explained", TIMEOUT, || {
        let output = explain(stage, schedspan, &[pod])?;
        Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
    })
}

/// Checks that the plugin has most of `filter`, by enough samples of this attempt.
///
/// # Errors
///
/// If it does not.
fn is_named(spans: &[Span], root: &Span, plugin: &str) -> Result<()> {
    let of_trace = || spans.iter().filter(|span| span.trace_id == root.trace_id);
    let filter = of_trace().find(|span| span.name == "filter").context("the attempt has no `filter`")?;
    let name = format!("plugin: {plugin}");
    let Some(found) = of_trace().find(|span| span.parent_span_id == filter.span_id && span.name == name)
    else {
        bail!("`filter` of {} has no `{name}`", root.pod());
    };
    let attribute = |key: &str| found.attribute(&format!("k8s.scheduler.plugin.{key}"));
    let (share, samples): (f64, u64) = (attribute("share").parse()?, attribute("share.samples").parse()?);
    println!(
        "         {}: filter took {} ms of {} ms, {plugin} has {:.0} % of it by {samples} samples",
        root.pod(),
        filter.nanoseconds() / 1_000_000,
        root.nanoseconds() / 1_000_000,
        share * 100.0
    );
    let basis = attribute("share.basis");
    ensure!(basis == "sampled", "the share of {plugin} is `{basis}`, and not sampled in the attempt itself");
    ensure!(samples >= SAMPLES && share >= SHARE, "{plugin} does not stand out");
    Ok(())
}
