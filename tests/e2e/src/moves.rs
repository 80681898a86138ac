//! Ways through the queues: for each Pod its moves, by queue and event, and how long it stayed each time, in backoff too, are those that the
//! scheduler logs, and the attempts that failed are those that the API server has events of.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, NodeSize, is_bound, is_unschedulable, pod},
    figures::Comparison,
    schedspan::{Options, Schedspan},
    spans::Span,
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};

use crate::{
    checks::{nothing_lost, text},
    truth::{Disturbed, minor},
};

/// Nodes, of 32 CPUs each.
pub(super) const NODES: u32 = 6;
/// The scheduler's `--v`: it logs each move.
pub(super) const VERBOSITY: u32 = 5;
/// Pods of each kind.
const PODS: usize = 15;
/// The limit for the API server to have the scheduler's events.
const EVENTS: Duration = Duration::from_secs(20);
/// By how much a stay may differ: the scheduler writes a line before or after what the probe sees.
const TOLERANCE_US: i64 = 20_000;
const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;
/// The event of a Pod that is popped from the backoff queue, which is not logged.
const POPPED_FROM_BACKOFF: &str = "PopFromBackoffQ";

/// A stay in a queue: which, why, and from when to when in microseconds of some clock.
#[derive(Debug, PartialEq)]
struct Stay {
    queue: String,
    event: String,
    start: i64,
    end: i64,
}

/// A Pod's stays in queues, and how often it was tried.
#[derive(Debug, Default, PartialEq)]
struct Way {
    stays: Vec<Stay>,
    attempts: usize,
}

/// Ways by the names of Pods.
type Ways = BTreeMap<String, Way>;

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let minor = minor(&stage.cluster.scheduler_metrics()?)?;
    let schedspan = Schedspan::start(&Options { arguments: &["--queue-spans"], ..stage.options()? })?;
    let comparison = Comparison::begin(&stage.cluster)?;
    schedule(&api, minor)?;
    let figures = comparison.end()?;
    nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()?;

    let (spans, log) = (traced(&figures.spans), fs::read_to_string(stage.cluster.scheduler()?.log)?);
    let log = logged(&log, minor)?;
    let (mut moves, mut backoffs, mut differences) = (0, 0, Vec::new());
    for (pod, logged) in &log {
        let Way { stays, attempts } = logged;
        let said = spans.get(pod).with_context(|| format!("{pod} has no span"))?;
        let list = |way: &Way| {
            way.stays.iter().map(|stay| (stay.queue.clone(), stay.event.clone())).collect::<Vec<_>>()
        };
        ensure!(
            list(said) == list(logged),
            "{pod} moved {:?}, and the log says {:?}",
            list(said),
            list(logged)
        );
        ensure!(
            said.attempts == *attempts,
            "{pod} has {} attempts, and {attempts} in the log",
            said.attempts
        );
        moves += stays.len();
        backoffs += stays.iter().filter(|stay| stay.queue == "backoff").count();
        for (said, logged) in said.stays.iter().zip(stays) {
            let (ours, theirs) = (said.end - said.start, logged.end - logged.start);
            differences.push((
                (ours - theirs).abs(),
                format!("{pod} was in {} for {ours} us, and for {theirs} by the log", said.queue),
            ));
        }
    }
    ensure!(log.len() == spans.len() && backoffs >= PODS, "{} Pods, {backoffs} backoffs", log.len());
    differences.sort();
    let (largest, worst) = differences.last().context("no Pod was in a queue")?;
    println!(
        "         {moves} moves of {} Pods, and {backoffs} backoffs, as logged; the largest difference is {largest} us",
        log.len()
    );
    ensure!(*largest <= TOLERANCE_US, Disturbed::of(worst));
    failures(&api, &log)
}

/// Makes Pods that fit, that fail once, that a plugin rejects once, that fit later, and that are gated. All are bound in the end.
fn schedule(api: &Api, minor: u32) -> Result<()> {
    for number in 0..PODS {
        api.create_pod("default", &pod(&format!("fits-{number}"), "10m"))?;
        for (name, point, what) in [("fails", "PreFilter", "error"), ("rejected", "Reserve", "reject")] {
            let mut pod = pod(&format!("{name}-{number}"), "10m");
            pod["metadata"]["annotations"] = json!({ format!("trouble.schedspan.test/{point}"): what });
            api.create_pod("default", &pod)?;
        }
        api.create_pod("default", &pod(&format!("large-{number}"), "40"))?;
        // Before, the scheduler does not count where a gated Pod goes, and logs it with other events.
        if minor >= 33 {
            let mut gated = pod(&format!("gated-{number}"), "10m");
            gated["spec"]["schedulingGates"] = json!([{ "name": "schedspan.test/wait" }]);
            api.create_pod("default", &gated)?;
        }
    }
    let of = |pods: &[Value], kind: &str, is: fn(&Value) -> bool| {
        let of_kind = |pod: &&Value| text(pod, "/metadata/name").starts_with(kind);
        pods.iter().filter(of_kind).all(is)
    };
    // Those that are rejected may have to wait for something to happen.
    api.wait_for_pods("Pods to be bound or found unschedulable", |pods| {
        of(pods, "large-", is_unschedulable)
            && ["fits-", "fails-"].iter().all(|kind| of(pods, kind, is_bound))
    })?;
    api.create_node("large", NodeSize { cpu: "960", ..NodeSize::default() })?;
    for pod in api.pods("default")?.iter().filter(|pod| text(pod, "/metadata/name").starts_with("gated-")) {
        let path = format!("/api/v1/namespaces/default/pods/{}", text(pod, "/metadata/name"));
        api.patch(&path, &json!({ "spec": { "schedulingGates": [] } }))?;
    }
    api.wait_for_pods("all Pods to be bound", |pods| pods.iter().all(is_bound))
}

/// The Pods that were tried more than once are those with an event `FailedScheduling`: all are bound, so each other attempt failed.
fn failures(api: &Api, log: &Ways) -> Result<()> {
    let tried_again: BTreeSet<_> =
        log.iter().filter(|(_, way)| way.attempts > 1).map(|(pod, _)| pod.clone()).collect();
    let failed = || {
        let events = api.get("/apis/events.k8s.io/v1/namespaces/default/events")?;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let failed = events.iter().filter(|event| text(event, "/reason") == "FailedScheduling");
        Ok::<_, anyhow::Error>(
            failed.map(|event| text(event, "/regarding/name").to_owned()).collect::<BTreeSet<_>>(),
        )
    };
    let mut said = BTreeSet::new();
    wait_until("events of all failed attempts", EVENTS, || {
        said = failed()?;
        Ok((said == tried_again).then_some(()))
    })
    .with_context(|| format!("they are {said:?} instead of {tried_again:?}"))?;
    println!("         the API server has events of failed attempts of the same {} Pods", said.len());
    Ok(())
}

/// What the spans say.
fn traced(spans: &[Span]) -> Ways {
    let us = |ns: u64| i64::try_from(ns / 1_000).unwrap_or(i64::MAX);
    let mut traces = BTreeMap::<_, Vec<_>>::new();
    for span in spans {
        if let Some(queue) = span.name.strip_prefix("queue: ") {
            traces.entry(&span.trace_id).or_default().push((span.start_time_unix_nano, queue, span));
        }
    }
    let mut roots: Vec<_> = spans.iter().filter(|span| span.is_root()).collect();
    roots.sort_by_key(|root| root.start_time_unix_nano);
    let mut ways = Ways::new();
    for root in roots {
        let way = ways.entry(root.pod()).or_default();
        way.attempts += 1;
        let mut stays = traces.remove(&root.trace_id).unwrap_or_default();
        stays.sort_by_key(|(start, ..)| *start);
        for (start, queue, span) in stays {
            let event = span.attribute("k8s.scheduler.queue.event");
            if event != POPPED_FROM_BACKOFF {
                way.enter(queue, &event, us(start));
                way.leave(us(span.end_time_unix_nano));
            }
        }
    }
    ways
}

/// What the scheduler's log says.
fn logged(log: &str, minor: u32) -> Result<Ways> {
    let mut ways = Ways::new();
    for line in log.lines() {
        let tried = line.contains("\"Attempting to schedule pod\"");
        if !tried && !line.contains(" moved to an internal scheduling queue") {
            continue;
        }
        let value = |key: &str| {
            let (_, rest) = line.split_once(&format!(" {key}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let Some(pod) = value("pod").or_else(|| value("entity")) else { continue };
        let pod = pod.trim_start_matches("default/");
        let at = time(line).with_context(|| format!("a line without time: {line}"))?;
        let way = ways.entry(pod.to_owned()).or_default();
        if tried {
            way.attempts += 1;
            way.leave(at);
            continue;
        }
        let (queue, event) =
            value("queue").zip(value("event")).with_context(|| format!("no move: {line}"))?;
        let queue = queue.to_lowercase();
        // From 1.33 on a second line, maybe after the Pod has left the queue again.
        let again = line.contains(" hint=") || line.contains("because the Pod is updated");
        if minor < 33 || !again || queue == "unschedulable" {
            way.enter(&queue, event, at);
        }
    }
    Ok(ways)
}

/// Microseconds since midnight in a line such as `I1121 12:00:00.000001 …`.
fn time(line: &str) -> Option<i64> {
    let mut parts = line.split_ascii_whitespace().nth(1)?.split(':').map(str::parse::<f64>);
    let mut next = || parts.next()?.ok();
    let (hours, minutes, seconds) = (next()?, next()?, next()?);
    Some(((hours * 60.0 + minutes) * 60e6 + seconds * 1e6).round() as i64)
}

impl Way {
    /// The Pod enters a queue, for longer if it is in it for the same reason: of some moves there are two lines.
    fn enter(&mut self, queue: &str, event: &str, at: i64) {
        let at = self.after(at);
        if let Some(last) = self.stays.last_mut() {
            let stays = last.end == i64::MAX || last.end == at;
            if stays && (last.queue.as_str(), last.event.as_str()) == (queue, event) {
                last.end = i64::MAX;
                return;
            }
        }
        self.leave(at);
        self.stays.push(Stay { queue: queue.to_owned(), event: event.to_owned(), start: at, end: i64::MAX });
    }

    /// The Pod leaves the queue that it is in.
    fn leave(&mut self, at: i64) {
        let at = self.after(at);
        if let Some(last) = self.stays.last_mut().filter(|stay| stay.end == i64::MAX) {
            last.end = at;
        }
    }

    /// A time that is not half a day earlier than the last one: the log has no dates.
    fn after(&self, at: i64) -> i64 {
        let passed = self.stays.last().is_some_and(|last| at + DAY_US / 2 < last.start);
        if passed { at + DAY_US } else { at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stay(queue: &str, event: &str, start: i64, end: i64) -> Stay {
        Stay { queue: queue.to_owned(), event: event.to_owned(), start, end }
    }

    #[test]
    fn a_log_is_read_as_ways_through_the_queues() {
        let moved =
            "1 scheduling_queue.go:7] \"Pod moved to an internal scheduling queue\" pod=\"default/a\"";
        let log = format!(
            "I1121 23:59:58.000001 {moved} event=\"UnscheduledPodAdd\" queue=\"Active\"
I1121 23:59:58.000003 1 schedule_one.go:99] \"Attempting to schedule pod\" pod=\"default/a\"
I1121 23:59:58.000004 {moved} event=\"ScheduleAttemptFailure\" queue=\"Backoff\"
I1121 23:59:58.000005 {moved} event=\"ScheduleAttemptFailure\" queue=\"Backoff\" schedulingCycle=1 hint=2
I1122 00:00:00.000001 1 active_queue.go:9] \"Entity moved to an internal scheduling queue\" type=\"pod\" entity=\"default/a\" event=\"BackoffComplete\" queue=\"Active\"
I1122 00:00:00.000002 1 schedule_one.go:99] \"Attempting to schedule pod\" pod=\"default/a\""
        );
        let midnight = DAY_US;
        for minor in [29, 37] {
            let ways = logged(&log, minor).unwrap();
            let stays = vec![
                stay("active", "UnscheduledPodAdd", midnight - 1_999_999, midnight - 1_999_997),
                stay("backoff", "ScheduleAttemptFailure", midnight - 1_999_996, midnight + 1),
                stay("active", "BackoffComplete", midnight + 1, midnight + 2),
            ];
            assert_eq!(ways, Ways::from([("a".to_owned(), Way { stays, attempts: 2 })]));
        }
    }
}
