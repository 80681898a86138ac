//! Decisions: the reasons in spans for a Pod's Node, or for none, equal those in the scheduler's log and in the Pod's condition.

mod nodes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, is_unschedulable, pod},
    figures::Comparison,
    spans::Span,
    stage::Stage,
};
use serde_json::{Value, json};

use crate::checks::{nothing_lost, text};

/// Nodes: more than the best candidates in a span, and few enough for a log of every score.
pub(super) const NODES: u32 = 30;
/// Pods that fit, each of another size, so that scores differ.
const PLACED: usize = 40;
/// Pods that fit nowhere, for one reason and for several.
const NEVER: usize = 10;

/// Scores by Pod, plugin and Node; of a Pod with several attempts, the last.
type Scores = BTreeMap<(String, String, String), i64>;

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    for number in 1..=NODES / 3 {
        let taint = json!({ "key": "test", "value": "x", "effect": "NoSchedule" });
        api.patch(&format!("/api/v1/nodes/node-{number:04}"), &json!({ "spec": { "taints": [taint] } }))?;
    }
    let schedspan = stage.trace()?;
    let comparison = Comparison::begin(&stage.cluster)?;
    for number in 0..PLACED {
        api.create_pod("default", &pod(&format!("placed-{number}"), &format!("{}m", 100 + 37 * number)))?;
    }
    for number in 0..NEVER {
        let mut pod = pod(&format!("never-{number}"), "1000");
        if number % 2 == 0 {
            pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "node-0029" });
        }
        api.create_pod("default", &pod)?;
    }
    api.wait_for_pods("Pods to be bound or found unschedulable", |pods| {
        pods.len() == PLACED + NEVER && pods.iter().all(|pod| is_bound(pod) || is_unschedulable(pod))
    })?;
    let pods = api.pods("default")?;
    let figures = comparison.end()?;
    let metrics = schedspan.metrics()?;
    schedspan.stop()?;
    nothing_lost(&metrics)?;
    // The kernel moves memory, and then it cannot be read for a moment.
    let faults = metrics.sum("schedspan_read_faults_total", &[]);

    let log = fs::read_to_string(stage.cluster.scheduler()?.log)?;
    let (scores, totals) = logged(&log)?;
    ensure!(!scores.is_empty(), "the scheduler logs no scores: the test proves nothing");
    let (mut candidates, mut messages) = (0, BTreeSet::new());
    for pod in &pods {
        let name = text(pod, "/metadata/name");
        let roots: Vec<_> =
            figures.spans.iter().filter(|span| span.is_root() && span.pod() == name).collect();
        let last = roots.last().with_context(|| format!("{name} has no span"))?;
        if is_bound(pod) {
            candidates += placed(pod, last, &scores, &totals).with_context(|| format!("where {name} is"))?;
        } else {
            messages.insert(failed(pod, last, faults).with_context(|| format!("why {name} is nowhere"))?);
        }
    }
    ensure!(messages.len() > 1, "all Pods failed for the same reason: the test proves nothing");
    println!("         {candidates} candidates have the scores that the scheduler logs");
    for message in messages {
        println!("         {message}");
    }
    nodes::run(stage, &api).context("Nodes by name")
}

/// A Node, its total, and the score of each plugin.
type Candidate = (String, i64, Vec<(String, i64)>);

/// The chosen Node is one of the best, and the candidates' scores are those that the scheduler logs.
fn placed(pod: &Value, root: &Span, scores: &Scores, totals: &Scores) -> Result<usize> {
    let name = text(pod, "/metadata/name").to_owned();
    let node = root.attribute("k8s.scheduler.selected_node");
    ensure!(node == text(pod, "/spec/nodeName"), "the span says {node}");
    let candidates = root.list("k8s.scheduler.candidates");
    let ties: usize = root.attribute("k8s.scheduler.candidates.ties").parse()?;
    ensure!(!candidates.is_empty(), "there are no candidates");
    let parsed = candidates.iter().map(|text| candidate(text)).collect::<Result<Vec<_>>>()?;
    let highest = parsed[0].1;
    let of_node = |node: &str| totals.get(&(name.clone(), String::new(), node.to_owned())).copied();
    ensure!(of_node(&node) == Some(highest), "{node} has {:?}, and the best {highest}", of_node(&node));
    let best = parsed.iter().take_while(|(_, total, _)| *total == highest).count();
    ensure!(best == ties.min(parsed.len()), "{best} of {candidates:?} are best, and {ties} are said to tie");
    ensure!(
        ties > parsed.len() || parsed[..best].iter().any(|(candidate, ..)| *candidate == node),
        "{node} is none of the best: {candidates:?}"
    );
    for (candidate, total, parts) in &parsed {
        ensure!(of_node(candidate) == Some(*total), "{candidate} has {:?} by the log", of_node(candidate));
        for (plugin, score) in parts {
            let logged = scores.get(&(name.clone(), plugin.clone(), candidate.clone()));
            ensure!(
                logged == Some(score),
                "{plugin} gives {candidate} {score}, and {logged:?} by the scheduler's log"
            );
        }
    }
    Ok(parsed.len())
}

/// The message is the one in the Pod's condition, and its counts add up to all Nodes, unless reads failed and that is counted.
fn failed(pod: &Value, root: &Span, faults: f64) -> Result<String> {
    let conditions = pod["status"]["conditions"].as_array().context("it has no conditions")?;
    let condition = conditions.iter().find(|condition| condition["type"] == "PodScheduled");
    let wanted = condition.map(|condition| text(condition, "/message")).unwrap_or_default().to_owned();
    let found = root.status_message.clone();
    ensure!(found.ends_with(&wanted) && !wanted.is_empty(), "it says `{found}` instead of `{wanted}`");
    let (total, counts) = rejected(&wanted).context("no counts")?;
    ensure!(counts == total, "the reasons of `{wanted}` are of {counts} Nodes");
    // Each plugin counts a Node once.
    let by_plugin: u64 = root
        .list("k8s.scheduler.rejections")
        .iter()
        .filter_map(|text| text.split_once(": ")?.1.split(' ').next()?.parse::<u64>().ok())
        .sum();
    let all = root.attribute("k8s.scheduler.rejections.looked_at").is_empty();
    ensure!(all || faults > 0.0, "not all Nodes were looked at, and no read failed");
    let others = !all || !root.attribute("k8s.scheduler.rejections.others").is_empty();
    ensure!(
        by_plugin == total || others && by_plugin < total,
        "plugins rejected {by_plugin} of {total} Nodes"
    );
    Ok(wanted)
}

/// The number of Nodes, and the sum over the reasons: `0/3 nodes are available: 1 ..., 2 .... preemption: ...`.
fn rejected(message: &str) -> Option<(u64, u64)> {
    let (available, reasons) = message.split_once(" nodes are available: ")?;
    let total = available.split_once('/')?.1.parse().ok()?;
    let reasons = reasons.split(". preemption:").next()?;
    let count = |reason: &str| reason.trim().split(' ').next()?.parse::<u64>().ok();
    Some((total, reasons.split(", ").filter_map(count).sum()))
}

/// `node: total (plugin score, plugin score)`.
fn candidate(text: &str) -> Result<Candidate> {
    let parse = || {
        let (node, rest) = text.split_once(": ")?;
        let (total, parts) = rest.strip_suffix(')')?.split_once(" (")?;
        let part = |part: &str| {
            let (plugin, score) = part.rsplit_once(' ')?;
            Some((plugin.to_owned(), score.parse().ok()?))
        };
        let parts = parts.split(", ").map(part).collect::<Option<_>>()?;
        Some((node.to_owned(), total.parse().ok()?, parts))
    };
    parse().with_context(|| format!("not a candidate: `{text}`"))
}

/// The scores in the scheduler's log, by Pod, plugin and Node; totals have no plugin.
fn logged(log: &str) -> Result<(Scores, Scores)> {
    let (mut scores, mut totals) = (Scores::new(), Scores::new());
    for line in log.lines() {
        let list = if line.contains("\"Plugin scored node for pod\"") {
            &mut scores
        } else if line.contains("\"Calculated node's final score for pod\"") {
            &mut totals
        } else {
            continue;
        };
        let value = |key: &str| {
            let (_, rest) = line.split_once(&format!(" {key}="))?;
            Some(rest.split(' ').next()?.trim_matches('"').to_owned())
        };
        let pod = value("pod").with_context(|| format!("a score of no Pod: {line}"))?;
        let pod = pod.trim_start_matches("default/").to_owned();
        let key = (pod, value("plugin").unwrap_or_default(), value("node").unwrap_or_default());
        list.insert(key, value("score").unwrap_or_default().parse()?);
    }
    Ok((scores, totals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reasons_of_a_message_are_counted() {
        let message = "0/30 nodes are available: 10 node(s) had untolerated taint(s), 20 Insufficient cpu. \
                       preemption: 0/30 nodes are available: 30 Preemption is not helpful for scheduling.";
        assert_eq!(rejected(message), Some((30, 30)));
        assert_eq!(rejected("nonsense"), None);
    }

    #[test]
    fn a_log_line_is_read_as_a_score() {
        let line = "I1121 12:00:00.0 1 schedule_one.go:982] \"Plugin scored node for pod\" pod=\"default/a\" \
                    plugin=\"ImageLocality\" node=\"node-1\" score=7";
        let (scores, totals) = logged(line).unwrap();
        let key = ("a".to_owned(), "ImageLocality".to_owned(), "node-1".to_owned());
        assert_eq!((scores, totals), (Scores::from([(key, 7)]), Scores::new()));
    }

    #[test]
    fn a_candidate_is_parsed() {
        let parts = vec![("A".to_owned(), 5), ("B".to_owned(), -2)];
        assert_eq!(candidate("node-1: 3 (A 5, B -2)").unwrap(), ("node-1".to_owned(), 3, parts));
        assert!(candidate("node-1: (A)").is_err());
    }
}
