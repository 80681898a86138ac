//! Batching (1.35 and later): the attempts that say so are those of the Pods for which the scheduler logs the Node of a Pod like them, and as
//! many as it counts.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, pod},
    figures::Comparison,
    metrics::Metrics,
    stage::Stage,
};
use serde_json::json;

use crate::checks::{nothing_lost, text};

/// Nodes, of 32 CPUs each.
pub(super) const NODES: u32 = 30;
/// The scheduler's `--v`: it logs which Node it tries first.
pub(super) const VERBOSITY: u32 = 3;
/// Pods that are alike. Each fills a Node: only then the next one's best Node is the second best of the one before it.
const ALIKE: usize = 25;
/// Pods with other requests each.
const OTHERS: usize = 5;

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    stage.cluster.configure_scheduler(|configuration| {
        // With its default constraints no two Pods count as alike.
        let args = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "PodTopologySpreadArgs",
            "defaultingType": "List",
        });
        configuration["profiles"] = json!([{
            "schedulerName": "default-scheduler",
            "pluginConfig": [{ "name": "PodTopologySpread", "args": args }],
        }]);
    })?;
    let api = stage.cluster.api()?;
    let schedspan = stage.trace()?;
    let comparison = Comparison::begin(&stage.cluster)?;
    let before = stage.cluster.scheduler_metrics()?;
    for number in 0..ALIKE {
        api.create_pod("default", &pod(&format!("alike-{number}"), "20"))?;
    }
    for number in 0..OTHERS {
        api.create_pod("default", &pod(&format!("other-{number}"), &format!("{}m", 100 + number)))?;
    }
    api.wait_for_pods("Pods to be bound", |pods| pods.len() == ALIKE + OTHERS && pods.iter().all(is_bound))?;
    let after = stage.cluster.scheduler_metrics()?;
    let figures = comparison.end()?;
    nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()?;

    let log = fs::read_to_string(stage.cluster.scheduler()?.log)?;
    let hints = hints(&log);
    for pod in &api.pods("default")? {
        let name = text(pod, "/metadata/name");
        let root = figures.spans.iter().find(|span| span.is_root() && span.pod() == name);
        let said = root.with_context(|| format!("{name} has no span"))?.attribute("k8s.scheduler.batched");
        let hint = hints.get(name);
        ensure!(
            (said == "true") == hint.is_some(),
            "{name} is batched: `{said}`, and the scheduler logs {hint:?}"
        );
    }
    let counted = |result: &str| {
        let of = |metrics: &Metrics| metrics.sum("scheduler_batch_attempts_total", &[("result", result)]);
        of(&after) - of(&before)
    };
    let (used, unused) = (counted("hint_used"), counted("hint_not_used"));
    ensure!(used > 0.0, "no Pod was batched: the test proves nothing");
    ensure!(used + unused == hints.len() as f64, "it counts {used} and {unused}, and logs {}", hints.len());
    println!("         {used} of {ALIKE} Pods that are alike were batched, as the scheduler logs and counts");
    Ok(())
}

/// The Node that the scheduler tries first, by Pod.
fn hints(log: &str) -> BTreeMap<String, String> {
    let hint = |line: &str| {
        let value = |key: &str| {
            let (_, rest) = line.split_once(&format!(" {key}=\""))?;
            rest.split_once('"').map(|(value, _)| value.trim_start_matches("default/").to_owned())
        };
        Some((value("pod")?, value("hint")?))
    };
    log.lines()
        .filter(|line| line.contains("\"OpportunisticBatch provided node hint\""))
        .filter_map(hint)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_line_is_read_as_a_hint() {
        let line = "I1121 12:00:00.0 1 batch.go:89] \"OpportunisticBatch provided node hint\" profile=\"a\" \
                    pod=\"default/alike-1\" cycleCount=2 hint=\"node-0002\" remainingNodes=3";
        let expected = BTreeMap::from([("alike-1".to_owned(), "node-0002".to_owned())]);
        assert_eq!(
            hints(&format!("{line}\nI1121 12:00:00.0 1 batch.go:9] \"Other\" pod=\"default/b\"")),
            expected
        );
    }
}
