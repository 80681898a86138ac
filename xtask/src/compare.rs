//! The scheduler's own figures next to the spans that the Collector received, over the same time.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{
    cluster::{Cluster, Metrics, wait_until},
    spans::{self, Span},
};

/// How long nothing may change until all is taken to be over: the scheduler's recorder of metrics lags a second, the
/// exporter and the Collector less.
const QUIET: Duration = Duration::from_secs(3);
const QUIET_TIMEOUT: Duration = Duration::from_secs(90);
const INTERVAL: Duration = Duration::from_millis(250);

const ATTEMPTS: &str = "scheduler_schedule_attempts_total";
const POINTS: &str = "scheduler_framework_extension_point_duration_seconds";
const PERMIT_WAIT: &str = "scheduler_permit_wait_duration_seconds";

/// The label of [`ATTEMPTS`], and what `SchedulePod` says.
const RESULTS: [(&str, &str); 3] =
    [("scheduled", "Success"), ("unschedulable", "Unschedulable"), ("error", "Error")];
/// The label of [`POINTS`], and the name of the span.
const PHASES: [(&str, &str); 11] = [
    ("PreFilter", "preFilter"),
    ("Filter", "filter"),
    ("PostFilter", "postFilter"),
    ("PreScore", "preScore"),
    ("Score", "score"),
    ("Reserve", "reserve"),
    ("Permit", "permit"),
    ("PreBindPreFlight", "preBindPreFlight"),
    ("PreBind", "preBind"),
    ("Bind", "bind"),
    ("PostBind", "postBind"),
];

/// The beginning of the time.
pub(crate) struct Comparison<'a> {
    cluster: &'a Cluster,
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
    pub(crate) fn begin(cluster: &'a Cluster) -> Result<Self> {
        let skip = fs::metadata(cluster.spans_file())?.len();
        Ok(Self { cluster, before: cluster.scheduler_metrics()?, skip })
    }

    /// Waits until no attempt is under way and all spans have arrived.
    ///
    /// # Errors
    ///
    /// If there is no such moment: somebody schedules on.
    pub(crate) fn end(self) -> Result<Figures> {
        let Self { cluster, before, skip } = self;
        let file = cluster.spans_file();
        let (mut last, mut since) = ((0.0, 0.0, 0), Instant::now());
        let after = wait_until("the scheduler and the Collector to be quiet", QUIET_TIMEOUT, || {
            thread::sleep(INTERVAL);
            let metrics = cluster.scheduler_metrics()?;
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
        let pid = cluster.scheduler()?.pid.to_string();
        spans.retain(|span| span.pid == pid);
        Ok(Figures { before, after, spans })
    }
}

/// What both sides say.
pub(crate) struct Figures {
    before: Metrics,
    after: Metrics,
    pub(crate) spans: Vec<Span>,
}

/// One figure of both.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) spans: u64,
    pub(crate) metric: u64,
    pub(crate) spans_seconds: f64,
    pub(crate) metric_seconds: f64,
}

impl Figures {
    /// Attempts by result. The times mean nothing: the scheduler measures another stretch.
    pub(crate) fn attempts(&self) -> Vec<Row> {
        let row = |&(label, result): &(&'static str, &'static str)| {
            let of = |span: &Span| span.is_root() && span.attribute("k8s.scheduler.result") == result;
            Row { metric: self.increase(ATTEMPTS, &[("result", label)]) as u64, ..self.row(result, of) }
        };
        RESULTS.iter().map(row).collect()
    }

    /// Calls and their time by phase.
    pub(crate) fn phases(&self) -> Vec<Row> {
        let row = |name: &'static str, metric: &str, labels: &[(&str, &str)]| Row {
            metric: self.increase(&format!("{metric}_count"), labels) as u64,
            metric_seconds: self.increase(&format!("{metric}_sum"), labels),
            ..self.row(name, |span| span.name == name)
        };
        let points = PHASES.iter().map(|&(point, name)| row(name, POINTS, &[("extension_point", point)]));
        points.chain([row("waitOnPermit", PERMIT_WAIT, &[])]).collect()
    }

    fn row(&self, name: &'static str, of: impl Fn(&Span) -> bool) -> Row {
        let nanoseconds: Vec<_> = self.spans.iter().filter(|span| of(span)).map(Span::nanoseconds).collect();
        let spans_seconds = nanoseconds.iter().sum::<u64>() as f64 / 1e9;
        Row { name, spans: nanoseconds.len() as u64, metric: 0, spans_seconds, metric_seconds: 0.0 }
    }

    fn increase(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.after.sum(name, labels) - self.before.sum(name, labels)
    }
}
