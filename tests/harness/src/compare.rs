//! The scheduler's own figures next to the spans that the Collector received, over the same time.

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

/// How long nothing may change until all is taken to be over: the scheduler's recorder of metrics lags a second, the
/// exporter and the Collector less.
const QUIET: Duration = Duration::from_secs(3);
const QUIET_TIMEOUT: Duration = Duration::from_secs(90);
const INTERVAL: Duration = Duration::from_millis(250);

const ATTEMPTS: &str = "scheduler_schedule_attempts_total";
const POINTS: &str = "scheduler_framework_extension_point_duration_seconds";
const PERMIT_WAIT: &str = "scheduler_permit_wait_duration_seconds";
const PREEMPTIONS: &str = "scheduler_preemption_attempts_total";
const INCOMING: &str = "scheduler_queue_incoming_pods_total";
/// The same, by schedspan.
const INCOMING_SEEN: &str = "schedspan_queue_incoming_pods_total";

/// The span of an attempt.
const ROOT: &str = "SchedulePod";
/// Attempts of groups of Pods, from 1.36 on, and their span.
const GROUP_ATTEMPTS: &str = "scheduler_podgroup_schedule_attempts_total";
const GROUP_ROOT: &str = "SchedulePodGroup";
/// The label of [`ATTEMPTS`] and [`GROUP_ATTEMPTS`], and what the span of an attempt says.
const RESULTS: [(&str, &str); 3] =
    [("scheduled", "Success"), ("unschedulable", "Unschedulable"), ("error", "Error")];
/// The label of [`POINTS`], and the name of the span.
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
/// The same of what is done for groups of Pods.
const GROUP_PHASES: [(&str, &str); 4] = [
    ("PlacementGenerate", "placementGenerate"),
    ("PlacementFeasible", "placementFeasible"),
    ("PlacementScore", "placementScore"),
    ("PodGroupPostFilter", "podGroupPostFilter"),
];

/// The span of [`PERMIT_WAIT`], which does not tell profiles apart.
const PERMIT_SPAN: &str = "waitOnPermit";

/// The span of [`PREEMPTIONS`], where it is one of the extension point that preempts: the metric has no labels.
const PREEMPTION_SPAN: &str = "plugin: DefaultPreemption";

/// A scheduler, and a Collector that is sent its spans.
pub trait Observed {
    /// # Errors
    ///
    /// If the scheduler does not answer, or with something else.
    fn metrics(&self) -> Result<Metrics>;

    /// The scheduler's process id, as schedspan sees it.
    ///
    /// # Errors
    ///
    /// If there is no scheduler.
    fn pid(&self) -> Result<i32>;

    /// What the Collector received.
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

/// The beginning of the time.
pub struct Comparison<'a> {
    cluster: &'a dyn Observed,
    before: Metrics,
    /// Bytes in the Collector's file.
    skip: u64,
}

impl<'a> Comparison<'a> {
    /// Begins: the scheduler must be traced, and idle.
    ///
    /// # Errors
    ///
    /// If its metrics cannot be read.
    pub fn begin(cluster: &'a dyn Observed) -> Result<Self> {
        let skip = fs::metadata(cluster.spans())?.len();
        Ok(Self { cluster, before: cluster.metrics()?, skip })
    }

    /// Begins with the start of the scheduler, which is yet to come: all that it will count is compared.
    ///
    /// # Errors
    ///
    /// If the Collector's file cannot be read.
    pub fn before_start(cluster: &'a dyn Observed) -> Result<Self> {
        let skip = fs::metadata(cluster.spans())?.len();
        Ok(Self { cluster, before: Metrics::parse("")?, skip })
    }

    /// Waits until no attempt is under way and all spans have arrived.
    ///
    /// # Errors
    ///
    /// If there is no such moment: somebody schedules on.
    pub fn end(self) -> Result<Figures> {
        let Self { cluster, before, skip } = self;
        let file = cluster.spans();
        let (mut last, mut since) = ((0.0, 0.0, 0), Instant::now());
        let after = wait_until("the scheduler and the Collector to be quiet", QUIET_TIMEOUT, || {
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
            Ok((since.elapsed() >= QUIET).then_some(metrics))
        })?;
        let mut spans = spans::read(&file, skip)?;
        let pid = cluster.pid()?.to_string();
        spans.retain(|span| span.pid == pid);
        Ok(Figures { before, after, spans })
    }
}

/// What both sides say.
pub struct Figures {
    before: Metrics,
    after: Metrics,
    pub spans: Vec<Span>,
}

/// How often something happened, as either side says.
#[derive(Default)]
pub struct Count {
    pub schedspan: u64,
    pub scheduler: u64,
}

/// A span's name, its result, and its profile.
pub type Labels = [String; 3];

/// One figure of both.
pub struct Row {
    pub name: &'static str,
    pub spans: u64,
    pub metric: u64,
    pub spans_seconds: f64,
    pub metric_seconds: f64,
}

impl Figures {
    /// Attempts by result. The times mean nothing: the scheduler measures another stretch.
    pub fn attempts(&self) -> Vec<Row> {
        let row = |&(label, result): &(&'static str, &'static str)| {
            let of = |span: &Span| span.name == ROOT && span.attribute("k8s.scheduler.result") == result;
            Row { metric: self.increase(ATTEMPTS, &[("result", label)]) as u64, ..self.row(result, of) }
        };
        RESULTS.iter().map(row).collect()
    }

    /// Attempts and calls, by everything that the metrics tell apart.
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
            // Others have no spans.
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

    /// Pods that entered a queue, by queue and event; with schedspan's own metrics at the beginning and at the end.
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

    /// Calls and their time by phase; without the time of calls that never returned, which only their metric knows: it is some
    /// microseconds.
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

/// What has become more, and by how much.
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

/// What a span counts as, if the scheduler counts the same.
///
/// An attempt that a panic ended is counted by neither side: nothing after the panic ran, neither what counts attempts nor
/// anything that says how this one ended. The calls that the panic unwound are counted by both: the scheduler counts them in a
/// deferred function, with the status of a call that has not returned anything yet, which is Success.
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
