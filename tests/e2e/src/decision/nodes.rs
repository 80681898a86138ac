//! Nodes by name: of Pods that fit nowhere, each Node is rejected by the plugin, and for the reasons, that follow from the
//! Node itself, from the message in the Pod's condition and from the scheduler's log. Of a Pod that is scheduled, likewise those
//! that it does not fit on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    thread::sleep,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use harness::{
    api::{Api, NodeSize, is_bound, is_unschedulable, pod},
    schedspan::{Options, Schedspan},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};

use super::NODES;
use crate::checks::{explain, nothing_lost, text};

/// Nodes of each Pod: those of the first are all named, and those of the second are more than that.
const MANY: [u32; 2] = [1_000, 1_130];
/// Nodes that are named of one attempt.
const NAMED: usize = 1_024;
/// The limit for an attempt to be known after it ended.
const ANSWERED: Duration = Duration::from_secs(20);
/// Pods that are tried until the Nodes of one have names, and the time between two.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// The label that the Pods ask for.
const LABEL: &str = "test";

/// Nodes that one plugin rejects for the same reasons.
struct Group {
    plugin: String,
    reasons: Vec<String>,
    nodes: Vec<String>,
}

impl Group {
    fn of(group: &Value) -> Self {
        let list = |key: &str| {
            let texts = group[key].as_array().into_iter().flatten();
            texts.filter_map(|text| Some(text.as_str()?.to_owned())).collect()
        };
        Self { plugin: text(group, "/plugin").to_owned(), reasons: list("reasons"), nodes: list("nodes") }
    }
}

/// Who rejects a Node, and how many reasons there are.
type Rejection = (&'static str, usize);

pub(super) fn run(stage: &Stage, api: &Api) -> Result<()> {
    let schedspan = stage.trace()?;
    let mut before = NODES;
    for many in MANY {
        for number in before + 1..=many {
            create(api, number)?;
        }
        by_name(stage, api, &schedspan, &format!("nowhere-of-{many}"), many as usize)?;
        before = many;
    }
    let metrics = schedspan.metrics()?;
    schedspan.stop()?;
    nothing_lost(&metrics)?;
    let schedspan = Schedspan::start(&Options { arguments: &["--detail", "nodes"], ..stage.options()? })?;
    scheduled(stage, api, &schedspan)?;
    let metrics = schedspan.metrics()?;
    schedspan.stop()?;
    nothing_lost(&metrics)
}

/// Creates one of five kinds of Nodes, none of which has room for the Pods.
fn create(api: &Api, number: u32) -> Result<()> {
    let (cpu, memory) = if number % 5 == 4 { ("1", "1Gi") } else { ("1", "64Gi") };
    let name = format!("node-{number:04}");
    api.create_node(&name, NodeSize { cpu, memory, pods: 110, zone: None })?;
    let change = match number % 5 {
        0 => json!({ "spec": { "taints": [{ "key": "test", "value": "x", "effect": "NoSchedule" }] } }),
        1 => json!({ "spec": { "unschedulable": true } }),
        2 => json!({ "metadata": { "labels": { LABEL: "no" } } }),
        _ => json!({ "metadata": { "labels": { LABEL: "yes" } } }),
    };
    api.patch(&format!("/api/v1/nodes/{name}"), &change).map(drop)
}

/// What becomes of a Pod that asks for the label, 2 GiB, and this number of CPUs, in the order of the default plugins; `None` if it
/// fits.
fn expected(node: &Value, cpus: u32) -> Result<Option<Rejection>> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    Ok(Some(if node["spec"]["unschedulable"] == true {
        ("NodeUnschedulable", 1)
    } else if taints.into_iter().any(|taint| taint["effect"] != "PreferNoSchedule") {
        ("TaintToleration", 1)
    } else if node["metadata"]["labels"][LABEL] != "yes" {
        ("NodeAffinity", 1)
    } else {
        let few = match text(node, "/status/allocatable/cpu") {
            "1" => usize::from(cpus > 1),
            other => bail!("a Node with the label has {other} CPUs"),
        };
        match few + usize::from(text(node, "/status/allocatable/memory") == "1Gi") {
            0 => return Ok(None),
            reasons => ("NodeResourcesFit", reasons),
        }
    }))
}

/// [`expected`] of all Nodes that reject the Pod.
fn rejections(api: &Api, total: usize, cpus: u32) -> Result<BTreeMap<String, Rejection>> {
    let list = api.get("/api/v1/nodes?limit=2000")?;
    let nodes = list["items"].as_array().context("no Nodes")?;
    ensure!(nodes.len() == total, "there are {} Nodes", nodes.len());
    let name = |node| text(node, "/metadata/name").to_owned();
    nodes
        .iter()
        .filter_map(|node| Some(expected(node, cpus).transpose()?.map(|by| (name(node), by))))
        .collect()
}

/// Creates a Pod that fits nowhere, and compares the names that schedspan has with what is known of the Nodes.
fn by_name(stage: &Stage, api: &Api, schedspan: &Schedspan, name: &str, total: usize) -> Result<()> {
    let expected = rejections(api, total, 2)?;
    ensure!(expected.len() == total, "the Pod fits on {} Nodes", total - expected.len());
    let (name, attempt) = named(stage, api, schedspan, name, "2")?;
    let message = text(&attempt, "/message");
    let (groups, left_out) = groups(&attempt, &expected, schedspan)?;
    let named = total - left_out;
    let mut by_reason = BTreeMap::<&str, u64>::new();
    for Group { reasons, nodes, .. } in &groups {
        for reason in reasons {
            *by_reason.entry(reason).or_default() += nodes.len() as u64;
        }
    }
    for (reason, count) in &by_reason {
        let said = counted(message, reason).with_context(|| format!("`{reason}` is not in `{message}`"))?;
        ensure!(
            *count == said || named < total && *count < said,
            "`{reason}` of {count} Nodes, and of {said} in `{message}`"
        );
    }
    let logged = logged(&fs::read_to_string(stage.cluster.scheduler()?.log)?, &name);
    let tainted: BTreeSet<_> = groups
        .iter()
        .filter(|group| group.plugin == "TaintToleration")
        .flat_map(|group| group.nodes.iter().cloned())
        .collect();
    ensure!(
        logged.is_empty() || tainted == logged || named < total && tainted.is_subset(&logged),
        "rejected for a taint: {tainted:?}, and by the scheduler's log {logged:?}"
    );
    let logged = match logged.len() {
        0 => "the scheduler of this version logs none".to_owned(),
        number => format!("{number} are in the scheduler's log"),
    };
    println!("         {named} of {total} Nodes by name, {} reasons; {logged}", by_reason.len());
    in_words(stage, schedspan, &name, &groups, left_out)
}

/// Creates a Pod that fits on some Nodes, and compares the names of the others with what is known of them.
fn scheduled(stage: &Stage, api: &Api, schedspan: &Schedspan) -> Result<()> {
    let total = MANY[1] as usize;
    let expected = rejections(api, total, 1)?;
    ensure!(expected.len() < total.min(NAMED), "the Pod fits on too few Nodes: that proves nothing");
    let (name, attempt) = named(stage, api, schedspan, "somewhere", "1")?;
    let node = text(&attempt, "/node");
    ensure!(!node.is_empty() && !expected.contains_key(node), "{name} is on the Node `{node}`");
    ensure!(attempt["evaluatedNodes"] == total, "{} Nodes of {total} were tried", attempt["evaluatedNodes"]);
    let (groups, left_out) = groups(&attempt, &expected, schedspan)?;
    println!(
        "         {} of the {} Nodes by name that a scheduled Pod does not fit on, of {total}",
        expected.len() - left_out,
        expected.len()
    );
    in_words(stage, schedspan, &name, &groups, left_out)
}

/// The rejected Nodes of an attempt and the number of those without names, which are all of these.
fn groups(
    attempt: &Value,
    expected: &BTreeMap<String, Rejection>,
    schedspan: &Schedspan,
) -> Result<(Vec<Group>, usize)> {
    let rejected = &attempt["rejectedNodes"];
    let groups: Vec<_> = rejected["groups"].as_array().into_iter().flatten().map(Group::of).collect();
    let left_out = rejected["leftOut"].as_u64().context("nothing is said of the others")? as usize;
    let (named, total) = (groups.iter().map(|group| group.nodes.len()).sum::<usize>(), expected.len());
    ensure!(named + left_out == total, "{named} names, and {left_out} left out, of {total}");
    // The kernel moves memory, and then it cannot be read for a moment.
    let faults = schedspan.metrics()?.sum("schedspan_read_faults_total", &[]);
    ensure!(
        named == total.min(NAMED) || named < total.min(NAMED) && faults > 0.0,
        "{named} of {total} Nodes are named"
    );
    let mut seen = BTreeSet::new();
    for Group { plugin, reasons, nodes } in &groups {
        for node in nodes {
            ensure!(seen.insert(node), "{node} is there twice");
            let (by, number) =
                expected.get(node).with_context(|| format!("{node} does not reject the Pod"))?;
            ensure!(
                plugin == by && reasons.len() == *number,
                "{node} is rejected by {plugin} for {reasons:?}, and not by {by} for {number} reasons"
            );
        }
    }
    Ok((groups, left_out))
}

/// The first Pod with this prefix, and its last attempt, whose Nodes have names.
fn named(
    stage: &Stage,
    api: &Api,
    schedspan: &Schedspan,
    prefix: &str,
    cpus: &str,
) -> Result<(String, Value)> {
    // After a walk over a map, the next ones are read without names for a moment, and others that wait may be tried just before.
    for number in 1..=TRIES {
        let name = format!("{prefix}-{number}");
        let attempt = tried(stage, api, schedspan, &name, cpus)?;
        if attempt["rejectedNodes"]["groups"].is_array() {
            return Ok((name, attempt));
        }
        api.delete_pod("default", &name)?;
        sleep(PAUSE);
    }
    bail!("no Node has a name in {TRIES} tries")
}

/// Creates a Pod, and waits until it was tried. Returns its last attempt.
fn tried(stage: &Stage, api: &Api, schedspan: &Schedspan, name: &str, cpus: &str) -> Result<Value> {
    let mut tried = pod(name, cpus);
    tried["spec"]["containers"][0]["resources"]["requests"]["memory"] = "2Gi".into();
    tried["spec"]["nodeSelector"] = json!({ LABEL: "yes" });
    api.create_pod("default", &tried)?;
    api.wait_for_pods("a Pod to be bound or found unschedulable", |pods| {
        let is_done = |pod: &Value| is_bound(pod) || is_unschedulable(pod);
        pods.iter().any(|pod| text(pod, "/metadata/name") == name && is_done(pod))
    })?;
    wait_until("the attempt to be explained", ANSWERED, || {
        let output = explain(stage, schedspan, &[name, "--nodes", "-o", "json"])?;
        // Without an attempt it ends with another status.
        let report = output.status.success().then(|| serde_json::from_slice::<Value>(&output.stdout));
        Ok(report.transpose()?.and_then(|report| report["attempts"].as_array()?.last().cloned()))
    })
}

/// `schedspan explain --nodes` has all of it.
fn in_words(
    stage: &Stage,
    schedspan: &Schedspan,
    pod: &str,
    groups: &[Group],
    left_out: usize,
) -> Result<()> {
    let text = |arguments: &[&str]| -> Result<String> {
        let output = explain(stage, schedspan, arguments)?;
        ensure!(output.status.success(), "`schedspan explain` ended with {}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    };
    let words = text(&[pod, "--nodes"])?;
    let all: BTreeSet<_> = words.split_whitespace().collect();
    for node in groups.iter().flat_map(|group| &group.nodes) {
        ensure!(all.contains(node.as_str()), "`explain --nodes` does not name {node}");
    }
    for Group { plugin, nodes, .. } in groups {
        let line = format!("{} Nodes, {plugin}:", nodes.len());
        ensure!(words.contains(&line), "`{line}` is not in:\n{words}");
    }
    let more = format!("{left_out} more Nodes");
    ensure!(words.contains(&more) == (left_out > 0), "`{more}`:\n{words}");
    let brief = text(&[pod])?;
    ensure!(!brief.contains(&groups[0].nodes[0]), "names that nobody asked for:\n{brief}");
    Ok(())
}

/// The number of Nodes with this reason, in a message of the scheduler.
fn counted(message: &str, reason: &str) -> Option<u64> {
    let (_, reasons) = message.split_once(" nodes are available: ")?;
    let reasons = reasons.split(". preemption:").next()?;
    // A reason may have commas of its own.
    reasons.match_indices(reason).find_map(|(at, _)| reasons[..at].trim().rsplit(' ').next()?.parse().ok())
}

/// The Nodes with a taint in the way of this Pod, by the scheduler's log.
fn logged(log: &str, pod: &str) -> BTreeSet<String> {
    let of_pod = format!(" pod=\"default/{pod}\"");
    log.lines()
        .filter(|line| line.contains("\"node had untolerated taints\"") && line.contains(&of_pod))
        .filter_map(|line| Some(line.split_once(" node=\"")?.1.split_once('"')?.0.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_a_reason_are_counted() {
        let message = "0/30 nodes are available: 10 node(s) had untolerated taint(s), 20 Insufficient cpu. \
                       preemption: 0/30 nodes are available: 30 Preemption is not helpful for scheduling.";
        assert_eq!(counted(message, "Insufficient cpu"), Some(20));
        assert_eq!(counted(message, "node(s) had untolerated taint(s)"), Some(10));
        assert_eq!(counted(message, "Preemption is not helpful for scheduling"), None);
    }

    #[test]
    fn a_line_about_a_taint_names_its_node() {
        let line = "I1125 1 taint_toleration.go:130] \"node had untolerated taints\" node=\"node-0005\" \
                    pod=\"default/a\" untoleratedTaint={}";
        assert_eq!(logged(line, "a"), BTreeSet::from(["node-0005".to_owned()]));
        assert_eq!(logged(line, "b"), BTreeSet::new());
    }
}
