//! Compares the scheduler's own metrics with the spans that the Collector received in the same period.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{
    cluster::Cluster,
    metrics::Metrics,
    spans::{self, Span},
    wait::wait_until,
};

/// The period without change after which everything has arrived: the scheduler's metrics lag by a second, the exporter and
/// the Collector by less.
const QUIET: Duration = Duration::from_secs(3);
/// The period if spans of attempts are missing: schedspan may wait for the context of one, and an emulated machine is slow.
const LATE: Duration = Duration::from_secs(20);
const QUIET_TIMEOUT: Duration = Duration::from_secs(90);
const INTERVAL: Duration = Duration::from_millis(250);

const ATTEMPTS: &str = "scheduler_schedule_attempts_total";
const POINTS: &str = "scheduler_framework_extension_point_duration_seconds";
const PERMIT_WAIT: &str = "scheduler_permit_wait_duration_seconds";
const PREEMPTIONS: &str = "scheduler_preemption_attempts_total";
const INCOMING: &str = "scheduler_queue_incoming_pods_total";
/// schedspan's counterpart of [`INCOMING`].
const INCOMING_SEEN: &str = "schedspan_queue_incoming_pods_total";

/// schedspan's counterparts of [`POINTS`] for the extension points that run while a Pod waits.
const QUEUE_CALLS_SEEN: &str = "schedspan_queue_phase_calls_total";
const QUEUE_NANOSECONDS_SEEN: &str = "schedspan_queue_phase_nanoseconds_total";
/// These extension points, and the names of their spans.
const QUEUE_PHASES: [(&str, &str); 2] = [("PreEnqueue", "preEnqueue"), ("Sign", "sign")];

/// The name of an attempt's span.
const ROOT: &str = "SchedulePod";
/// Attempts of Pod groups, from 1.36 on, and the name of their span.
const GROUP_ATTEMPTS: &str = "scheduler_podgroup_schedule_attempts_total";
const GROUP_ROOT: &str = "SchedulePodGroup";
/// The result in [`ATTEMPTS`] and [`GROUP_ATTEMPTS`], and in the span of an attempt.
const RESULTS: [(&str, &str); 3] =
    [("scheduled", "Success"), ("unschedulable", "Unschedulable"), ("error", "Error")];
/// The extension point in [`POINTS`], and the name of its span.
const PHASES: [(&str, &str); 12] = [
    ("PreFilter", "preFilter"),
    ("Filter", "filter"),
    ("PostFilter", "postFilter"),
    ("PreScore", "preScore"),
    ("Score", "score"),
    ("Reserve", "reserve"),
    ("Unreserve", "unreserve"),
    ("Permit", "permit"),
    ("PreBindPreFlight", "preBindPreFlight"),
    ("PreBind", "preBind"),
    ("Bind", "bind"),
    ("PostBind", "postBind"),
];
/// Extension points of Pod groups, and the names of their spans.
const GROUP_PHASES: [(&str, &str); 4] = [
    ("PlacementGenerate", "placementGenerate"),
    ("PlacementFeasible", "placementFeasible"),
    ("PlacementScore", "placementScore"),
    ("PodGroupPostFilter", "podGroupPostFilter"),
];

/// The span of [`PERMIT_WAIT`], which has no label for the profile.
const PERMIT_SPAN: &str = "waitOnPermit";

/// The span of [`PREEMPTIONS`] within the extension point that preempts. The metric has no labels.
const PREEMPTION_SPAN: &str = "plugin: DefaultPreemption";

/// A scheduler and the Collector that receives its spans.
pub trait Observed {
    /// # Errors
    ///
    /// If the scheduler does not answer with metrics.
    fn metrics(&self) -> Result<Metrics>;

    /// The scheduler's process id in schedspan's pid namespace.
    ///
    /// # Errors
    ///
    /// If there is no scheduler.
    fn pid(&self) -> Result<i32>;

    /// The Collector's file.
    fn spans(&self) -> PathBuf;
}

impl Observed for Cluster {
    fn metrics(&self) -> Result<Metrics> {
        self.scheduler_metrics()
    }

    fn pid(&self) -> Result<i32> {
        Ok(self.scheduler()?.pid)
    }

    fn spans(&self) -> PathBuf {
        self.spans_file()
    }
}

/// The state at the beginning of the period.
pub struct Comparison<'a> {
    cluster: &'a dyn Observed,
    before: Metrics,
    /// The length of the Collector's file.
    skip: u64,
}

impl<'a> Comparison<'a> {
    /// Begins a period. The scheduler must be traced and idle.
    ///
    /// # Errors
    ///
    /// If its metrics cannot be read.
    pub fn begin(cluster: &'a dyn Observed) -> Result<Self> {
        let skip = fs::metadata(cluster.spans())?.len();
        Ok(Self { cluster, before: cluster.metrics()?, skip })
    }

    /// Begins a period before the scheduler starts, so that everything it counts is compared.
    ///
    /// # Errors
    ///
    /// If the Collector's file cannot be read.
    pub fn before_start(cluster: &'a dyn Observed) -> Result<Self> {
        let skip = fs::metadata(cluster.spans())?.len();
        Ok(Self { cluster, before: Metrics::parse("")?, skip })
    }

    /// Ends the period: waits until no attempt runs and all spans have arrived.
    ///
    /// # Errors
    ///
    /// If scheduling does not stop.
    pub fn end(self) -> Result<Figures> {
        let Self { cluster, before, skip } = self;
        let file = cluster.spans();
        let (mut last, mut since) = ((0.0, 0.0, 0), Instant::now());
        wait_until("the scheduler and the Collector to be quiet", QUIET_TIMEOUT, || {
            thread::sleep(INTERVAL);
            let metrics = cluster.metrics()?;
            let now = (
                metrics.sum(ATTEMPTS, &[]),
                metrics.sum(&format!("{POINTS}_count"), &[]),
                fs::metadata(&file)?.len(),
            );
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let quiet = since.elapsed();
            if quiet < QUIET {
                return Ok(None);
            }
            let pid = cluster.pid()?.to_string();
            let mut spans = spans::read(&file, skip)?;
            spans.retain(|span| span.pid == pid);
            let figures = Figures { before: before.clone(), after: metrics, spans };
            let complete = figures.attempts().iter().all(|row| row.spans >= row.metric);
            Ok((complete || quiet >= LATE).then_some(figures))
        })
    }
}

/// The figures of both sides.
pub struct Figures {
    before: Metrics,
    after: Metrics,
    pub spans: Vec<Span>,
}

/// A count of both sides.
#[derive(Default)]
pub struct Count {
    pub schedspan: u64,
    pub scheduler: u64,
}

/// The name, result and profile of a span.
pub type Labels = [String; 3];

/// A figure of both sides.
pub struct Row {
    pub name: &'static str,
    pub spans: u64,
    pub metric: u64,
    pub spans_seconds: f64,
    pub metric_seconds: f64,
}

impl Figures {
    /// Attempts by result. Their times cannot be compared, because the scheduler measures from another moment.
    pub fn attempts(&self) -> Vec<Row> {
        let row = |&(label, result): &(&'static str, &'static str)| {
            let of = |span: &Span| span.name == ROOT && span.attribute("k8s.scheduler.result") == result;
            Row { metric: self.increase(ATTEMPTS, &[("result", label)]) as u64, ..self.row(result, of) }
        };
        RESULTS.iter().map(row).collect()
    }

    /// Attempts and calls, by all labels of the metrics.
    pub fn counts(&self) -> BTreeMap<Labels, Count> {
        let mut counts = BTreeMap::<Labels, Count>::new();
        for labels in self.spans.iter().filter_map(labels) {
            counts.entry(labels).or_default().schedspan += 1;
        }
        for (metric, root) in [(ATTEMPTS, ROOT), (GROUP_ATTEMPTS, GROUP_ROOT)] {
            for ([result, profile], n) in self.increases(metric, ["result", "profile"]) {
                let result = translated(&RESULTS, &result).unwrap_or(&result);
                counts.entry(labels_of(root, result, &profile)).or_default().scheduler += n;
            }
        }
        let labels = ["extension_point", "status", "profile"];
        for ([point, status, profile], n) in self.increases(&format!("{POINTS}_count"), labels) {
            // Other extension points have no spans.
            if let Some(name) = translated(&PHASES, &point).or_else(|| translated(&GROUP_PHASES, &point)) {
                counts.entry(labels_of(name, &status, &profile)).or_default().scheduler += n;
            }
        }
        for ([result], n) in self.increases(&format!("{PERMIT_WAIT}_count"), ["result"]) {
            counts.entry(labels_of(PERMIT_SPAN, &result, "")).or_default().scheduler += n;
        }
        for ([], n) in self.increases(PREEMPTIONS, []) {
            counts.entry(labels_of(PREEMPTION_SPAN, "", "")).or_default().scheduler += n;
        }
        counts
    }

    /// Pods that entered a queue, by queue and event, given schedspan's metrics at the beginning and at the end.
    pub fn incoming(&self, before: &Metrics, after: &Metrics) -> BTreeMap<[String; 2], Count> {
        let mut counts = BTreeMap::<_, Count>::new();
        let labels = ["queue", "event"];
        for (labels, n) in increases(before, after, INCOMING_SEEN, labels) {
            counts.entry(labels).or_default().schedspan = n;
        }
        for (labels, n) in self.increases(INCOMING, labels) {
            counts.entry(labels).or_default().scheduler = n;
        }
        counts
    }

    /// Calls of the extension points that run while a Pod waits, by name and status, given schedspan's metrics at the beginning
    /// and at the end.
    pub fn in_queue(&self, before: &Metrics, after: &Metrics) -> BTreeMap<[String; 2], Count> {
        let mut counts = BTreeMap::<_, Count>::new();
        for (labels, n) in increases(before, after, QUEUE_CALLS_SEEN, ["phase", "status"]) {
            counts.entry(labels).or_default().schedspan = n;
        }
        for ([point, status], n) in self.increases(&format!("{POINTS}_count"), ["extension_point", "status"])
        {
            if let Some(name) = translated(&QUEUE_PHASES, &point) {
                counts.entry([name.to_owned(), status]).or_default().scheduler = n;
            }
        }
        counts
    }

    /// Calls and their time by such an extension point.
    pub fn queue_phases(&self, before: &Metrics, after: &Metrics) -> Vec<Row> {
        let row = |&(point, name): &(&str, &'static str)| {
            let seen = |metric, label| after.sum(metric, &[label]) - before.sum(metric, &[label]);
            let labels = [("extension_point", point)];
            Row {
                name,
                spans: seen(QUEUE_CALLS_SEEN, ("phase", name)) as u64,
                metric: self.increase(&format!("{POINTS}_count"), &labels) as u64,
                spans_seconds: seen(QUEUE_NANOSECONDS_SEEN, ("phase", name)) / 1e9,
                metric_seconds: self.increase(&format!("{POINTS}_sum"), &labels),
            }
        };
        QUEUE_PHASES.iter().map(row).collect()
    }

    /// Calls and their time by phase. Only the metric has the time of calls that never returned: some microseconds.
    pub fn phases(&self) -> Vec<Row> {
        let row = |name: &'static str, metric: &str, labels: &[(&str, &str)]| Row {
            metric: self.increase(&format!("{metric}_count"), labels) as u64,
            metric_seconds: self.increase(&format!("{metric}_sum"), labels),
            ..self.row(name, |span| span.name == name)
        };
        let points = PHASES.iter().map(|&(point, name)| row(name, POINTS, &[("extension_point", point)]));
        points.chain([row(PERMIT_SPAN, PERMIT_WAIT, &[])]).collect()
    }

    fn row(&self, name: &'static str, of: impl Fn(&Span) -> bool) -> Row {
        let spans: Vec<_> = self.spans.iter().filter(|span| of(span)).collect();
        let returned = spans.iter().filter(|span| !span.is_incomplete());
        let spans_seconds = returned.map(|span| span.nanoseconds()).sum::<u64>() as f64 / 1e9;
        Row { name, spans: spans.len() as u64, metric: 0, spans_seconds, metric_seconds: 0.0 }
    }

    fn increases<const N: usize>(&self, name: &str, labels: [&str; N]) -> Vec<([String; N], u64)> {
        increases(&self.before, &self.after, name, labels)
    }

    fn increase(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.after.sum(name, labels) - self.before.sum(name, labels)
    }
}

/// The increases between two readings.
fn increases<const N: usize>(
    before: &Metrics,
    after: &Metrics,
    name: &str,
    labels: [&str; N],
) -> Vec<([String; N], u64)> {
    let before = before.by(name, labels);
    let increase = |(values, after): ([String; N], f64)| {
        let increase = after - before.get(&values).copied().unwrap_or_default();
        (increase > 0.0).then_some((values, increase as u64))
    };
    after.by(name, labels).into_iter().filter_map(increase).collect()
}

/// The count that a span belongs to, if the scheduler has the same.
///
/// Neither side counts an attempt that a panic ended, because the code that counts it did not run. Both count the calls that the
/// panic unwound: the scheduler counts them in a deferred function, with the zero value of the status, Success.
fn labels(span: &Span) -> Option<Labels> {
    let Span { name, .. } = span;
    let [result, profile] = ["k8s.scheduler.result", "k8s.scheduler.profile"].map(|key| span.attribute(key));
    if [ROOT, GROUP_ROOT].contains(&name.as_str()) {
        return (!result.is_empty()).then(|| labels_of(name, &result, &profile));
    }
    let result = if result.is_empty() { "Success" } else { &result };
    if name == PREEMPTION_SPAN {
        let preempts = span.attribute("k8s.scheduler.plugin.extension_point") == "postFilter";
        return preempts.then(|| labels_of(name, "", ""));
    }
    if name == PERMIT_SPAN {
        return Some(labels_of(name, result, ""));
    }
    PHASES
        .iter()
        .chain(&GROUP_PHASES)
        .any(|(_, phase)| phase == name)
        .then(|| labels_of(name, result, &profile))
}

fn labels_of(name: &str, result: &str, profile: &str) -> Labels {
    [name, result, profile].map(str::to_owned)
}

fn translated(table: &[(&str, &'static str)], label: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == label).map(|(_, name)| *name)
}
