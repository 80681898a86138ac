//! The daemon's own metrics: what it saw, what it made of it, and everything that it lost, by cause.

#[macro_use]
mod label;
mod exposition;
mod process;
mod webhook;

use std::{
    borrow::Cow,
    collections::HashSet,
    fmt,
    iter::Sum,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Instant,
};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use self::exposition::Exposition;
pub use self::{
    label::{Label, Refusal},
    webhook::{Patched, Verdict, WebhookMetrics},
};
use crate::{
    recent::{Count, Recent, Window},
    trace::{AttributeValue, EXTENDER, GROUP_ROOT, PLUGIN, Trace, attributes},
};

/// What OpenMetrics calls its own text, for `Content-Type`.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

labels! {
    /// Why something was lost. The unit is what the cause loses.
    Loss {
        /// Records that found the ring buffer full.
        RingFull = "ring_full",
        /// Hits whose goroutine could not be told.
        GoroutineFault = "goroutine_fault",
        /// Hits at an address that no plan knows.
        UnknownSite = "unknown_site",
        /// Records that made no sense.
        UndecodableRecord = "undecodable_record",
        /// Entries into a queue whose Pod is not known.
        OrphanMove = "orphan_move",
        /// What was told about an attempt that is not known.
        OrphanFact = "orphan_fact",
        /// Calls that no attempt claimed.
        OrphanCall = "orphan_call",
        /// Calls that never returned: a panic, a `Goexit`, the end of the process, or the record of their end
        /// is lost.
        UnwoundCall = "unwound_call",
        /// Attempts that could not be followed to their end.
        IncompleteAttempt = "incomplete_attempt",
        /// Attempts that were too many to follow at once.
        AttemptTableFull = "attempt_table_full",
        /// Attempts that found the queue between the engine and the exporters full.
        AttemptQueueFull = "attempt_queue_full",
        /// Pods that were too many to follow at once, or that found no room.
        LifeTableFull = "life_table_full",
        /// Pods of which nothing but attempts is known: the API server has not told of them.
        LifeUnknown = "life_unknown",
        /// Spans that found the queue of the OTLP exporter full.
        ExportQueueFull = "export_queue_full",
        /// Spans that the Collector did not take.
        ExportFailed = "export_failed",
        /// Spans that found the queue of the terminal or of the JSON lines full.
        OutputQueueFull = "output_queue_full",
        /// Spans that could not be written to standard output.
        OutputFailed = "output_failed",
        /// Spans that were still queued when the time to shut down was over.
        Shutdown = "shutdown",
    }
}

labels! {
    /// What is counted elsewhere, as a total, and copied here.
    Total {
        /// Hits of probes in traced processes.
        Hits = "hits",
        /// Records that came from the eBPF programs.
        Records = "records",
        /// Reads of a traced process's memory that failed: their values are absent from the record.
        ReadFaults = "read_faults",
        /// Ends of calls that began before the probes were there.
        StrayEnds = "stray_ends",
        /// Pods that were popped, but not to be scheduled.
        SkippedPods = "skipped_pods",
    }
}

labels! {
    /// What became of a record. All together are the records that came, but for those of attempts and calls that go on and
    /// of Pods in a queue.
    Fate {
        /// It is in the trace of an attempt.
        InAttempt = "in_attempt",
        /// Its Pod was popped, but not to be scheduled.
        Skipped = "skipped",
        /// It is about nothing that is traced.
        Unrelated = "unrelated",
        /// The end of a call that began before the probes were there.
        Stray = "stray",
        /// No attempt claimed it.
        Orphaned = "orphaned",
        /// Its Pod was not popped as long as it could be followed.
        Waiting = "waiting",
        /// There was no room for it.
        NoRoom = "no_room",
    }
}

labels! {
    /// How the export of spans went.
    Export {
        /// The Collector took them.
        Success = "success",
        /// It did not.
        Error = "error",
    }
}

labels! {
    /// Why a trace was not kept: of the rule that came nearest, what did not hold. Those that came nearer are greater.
    #[derive(Default, PartialOrd, Ord)]
    Dropped {
        /// No rule is about it.
        #[default]
        NoRule = "no_rule",
        /// A rule asks something of the Pod, which was not seen in time.
        UnknownPod = "unknown_pod",
        /// The trace id is not within the ratio.
        Ratio = "ratio",
        /// The parent is not sampled.
        Parent = "parent",
        /// There were enough in that second.
        Rate = "rate",
    }
}

labels! {
    /// How the life of a Pod until it runs ended.
    LifeEnd {
        /// It is ready.
        Ready = "Ready",
        /// It runs, and nobody says whether it is ready.
        Running = "Running",
        /// It has done its work.
        Succeeded = "Succeeded",
        /// It cannot.
        Failed = "Failed",
        /// It was deleted before.
        Deleted = "Deleted",
        /// Its scheduler is not traced here: who traces that one tells it.
        Elsewhere = "elsewhere",
    }
}

labels! {
    /// How the search for the context of a Pod went.
    Lookup {
        /// The Pod carries one.
        Found = "found",
        /// The Pod carries none, and one of its owners does.
        Owner = "owner",
        /// The Pod carries none that is valid.
        None = "none",
        /// The Pod was not seen in time.
        Unknown = "unknown",
    }
}

labels! {
    /// What became of a Pod that was to get the context of its attempt.
    Write {
        /// It has it.
        Written = "written",
        /// It had the annotation before it was scheduled: nobody was asked.
        Present = "present",
        /// Somebody else has written the annotation meanwhile.
        Conflict = "conflict",
        /// It is gone, or another one has its name.
        Gone = "gone",
        /// It was not seen before it was scheduled: whether it has the annotation is not known.
        Unknown = "unknown",
        /// There were enough in that second.
        Rate = "rate",
        /// The API server does not keep up.
        QueueFull = "queue_full",
        /// The right is missing.
        Forbidden = "forbidden",
        /// Something else went wrong.
        Failed = "failed",
    }
}

type Labelled<M = Counter> = Family<[(&'static str, Cow<'static, str>); 1], M>;
type QueueMoves = Family<[(&'static str, String); 2], Counter>;

/// Events that queues are entered by, each a label; a scheduler has some hundred. What comes after these is counted under
/// [`OTHER_EVENT`].
const MAX_EVENTS: usize = 512;
const OTHER_EVENT: &str = "other";

/// What the plans of all traced executables come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// Sites whose instruction the kernel emulates.
    pub emulated: usize,
    /// Sites whose instruction is single-stepped, which is dear.
    pub single_stepped: usize,
    /// Functions that were not found.
    pub missing: usize,
}

impl Sum for Planned {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            emulated: sum.emulated + one.emulated,
            single_stepped: sum.single_stepped + one.single_stepped,
            missing: sum.missing + one.missing,
        })
    }
}

/// A handle on the metrics: cheap to clone, to be updated from everywhere.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    exposition: Exposition,
    attempts: Labelled,
    group_attempts: Labelled,
    spans: Labelled,
    kept: Labelled,
    dropped: Labelled,
    losses: Labelled,
    /// In the order of [`Total`].
    totals: Vec<Counter>,
    fates: Labelled,
    exported: Labelled,
    lookups: Labelled,
    refused: Labelled,
    writes: Labelled,
    queue_moves: QueueMoves,
    events: Mutex<HashSet<String>>,
    schedulers: Gauge,
    refused_schedulers: Gauge,
    sites: Labelled<Gauge>,
    missing: Gauge,
    watch_up: Gauge,
    lives: Labelled,
    lives_followed: Gauge,
    lifecycle_watch_up: Gauge,
    started: Instant,
    window: Mutex<Window>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut exposition = Exposition::default();
        let registry = &mut exposition.registry;
        let totals = Total::ALL.iter().map(|figure| total(registry, *figure)).collect();
        Self(Arc::new(Families {
            attempts: family(registry, "attempts", "Scheduling attempts traced, by result"),
            group_attempts: family(
                registry,
                "pod_group_attempts",
                "Scheduling attempts of groups of Pods traced, by result",
            ),
            spans: family(registry, "spans", "Spans made, by name"),
            kept: family(registry, "traces_kept", "Traces kept, by sampler; a trace may have several"),
            dropped: closed::<Dropped>(
                registry,
                "traces_dropped",
                "Traces that no sampler kept, by reason",
                "reason",
            ),
            losses: closed::<Loss>(registry, "losses", "What was lost, by cause", "cause"),
            totals,
            fates: closed::<Fate>(registry, "record_fates", "What became of records", "fate"),
            exported: closed::<Export>(registry, "export_spans", "Spans sent by OTLP, by result", "result"),
            lookups: closed::<Lookup>(
                registry,
                "context_lookups",
                "Searches for the context of a Pod, by result",
                "result",
            ),
            refused: closed::<Refusal>(
                registry,
                "annotations_refused",
                "Pods with an annotation that is no valid context, by reason",
                "reason",
            ),
            writes: closed::<Write>(
                registry,
                "context_writes",
                "Pods that were to get the context of their attempt, by result",
                "result",
            ),
            queue_moves: {
                let metric = QueueMoves::default();
                let help = "Pods that entered a queue of the scheduler, by queue and event";
                registry.register("queue_incoming_pods", help, metric.clone());
                metric
            },
            events: Mutex::default(),
            schedulers: gauge(registry, "schedulers", "Scheduler processes traced now"),
            refused_schedulers: gauge(
                registry,
                "schedulers_refused",
                "Scheduler processes that cannot be traced now",
            ),
            sites: {
                let metric = Labelled::default();
                let help = "Probes that are attached now, by what the kernel does with their instruction";
                registry.register("plan_sites", help, metric.clone());
                metric
            },
            missing: gauge(
                registry,
                "plan_missing_functions",
                "Functions that were not found in traced schedulers: what they do is not in the traces",
            ),
            watch_up: gauge(registry, "context_watch_up", "Whether the API server answers the watch of Pods"),
            lives: closed::<LifeEnd>(
                registry,
                "lifecycles",
                "Pods followed to their end, by how that was",
                "result",
            ),
            lives_followed: gauge(registry, "lifecycles_followed", "Pods that are followed now"),
            lifecycle_watch_up: gauge(
                registry,
                "lifecycle_watch_up",
                "Whether the API server answers the watch of all Pods",
            ),
            started: Instant::now(),
            window: Mutex::default(),
            exposition,
        }))
    }
}

fn total(registry: &mut Registry, total: Total) -> Counter {
    let help = match total {
        Total::Hits => "Hits of probes in traced processes",
        Total::Records => "Records that came from the eBPF programs: hits less what was lost on the way",
        Total::ReadFaults => "Reads of a traced process's memory that failed",
        Total::StrayEnds => "Ends of calls that began before the probes were there",
        Total::SkippedPods => "Pods that were popped, but not to be scheduled",
    };
    let metric = Counter::default();
    registry.register(total.label(), help, metric.clone());
    metric
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let metric = Gauge::default();
    registry.register(name, help, metric.clone());
    metric
}

fn family(registry: &mut Registry, name: &str, help: &str) -> Labelled {
    let metric = Labelled::default();
    registry.register(name, help, metric.clone());
    metric
}

fn closed<L: Label>(registry: &mut Registry, name: &str, help: &str, key: &'static str) -> Labelled {
    let metric = family(registry, name, help);
    for value in L::ALL {
        let _zero = metric.get_or_create_owned(&[(key, value.label().into())]);
    }
    metric
}

impl Metrics {
    /// Counts an attempt and its spans.
    pub fn trace(&self, trace: &Trace) {
        // Words of the traced process must not become labels without end.
        let result = match trace.root().attribute(attributes::RESULT) {
            Some(AttributeValue::String(result)) => {
                ["Success", "Unschedulable", "Error"].into_iter().find(|known| known == result)
            }
            _ => None,
        };
        let result = result.unwrap_or("unknown");
        let group = trace.root().name == GROUP_ROOT;
        let attempts = if group { &self.0.group_attempts } else { &self.0.attempts };
        attempts.get_or_create(&[("result", result.into())]).inc();
        let (plugins, others): (Vec<_>, Vec<_>) =
            trace.spans.iter().partition(|span| span.name.starts_with(PLUGIN));
        for span in others {
            // Not by URL.
            let extender = span.name.starts_with(EXTENDER);
            let name = if extender { "extender".into() } else { span.name.clone() };
            self.0.spans.get_or_create(&[("name", name)]).inc();
        }
        if !plugins.is_empty() {
            self.0.spans.get_or_create(&[("name", "plugin".into())]).inc_by(plugins.len() as u64);
        }
        if !group {
            self.window(|window, second| window.trace(second, result, trace));
        }
    }

    /// Counts a Pod that entered a queue.
    pub fn queue_move(&self, queue: &str, event: &str) {
        let mut events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner);
        if !events.contains(event) && events.len() < MAX_EVENTS {
            events.insert(event.to_owned());
        }
        let event = if events.contains(event) { event } else { OTHER_EVENT };
        drop(events);
        self.window(|window, second| window.queue_move(second, queue, event));
        self.0.queue_moves.get_or_create(&[("queue", queue.into()), ("event", event.into())]).inc();
    }

    /// Counts a trace that this sampler kept.
    pub fn kept(&self, sampler: &str) {
        self.0.kept.get_or_create(&[("sampler", sampler.to_owned().into())]).inc();
    }

    /// Counts a trace that no sampler kept.
    pub fn dropped(&self, reason: Dropped) {
        self.0.dropped.get_or_create(&[("reason", reason.label().into())]).inc();
    }

    /// Counts a loss.
    pub fn loss(&self, cause: Loss, lost: u64) {
        self.0.losses.get_or_create(&[("cause", cause.label().into())]).inc_by(lost);
    }

    /// Sets a loss that is counted elsewhere, since that counter began.
    pub fn set_loss(&self, cause: Loss, total: u64) {
        let counter = self.0.losses.get_or_create(&[("cause", cause.label().into())]);
        counter.inner().store(total, Ordering::Relaxed);
    }

    /// Sets how many records had this fate.
    pub fn set_fate(&self, fate: Fate, total: u64) {
        let counter = self.0.fates.get_or_create(&[("fate", fate.label().into())]);
        counter.inner().store(total, Ordering::Relaxed);
    }

    /// All losses by cause, in the order of [`Loss`], zeros too.
    #[must_use]
    pub fn losses(&self) -> Vec<(&'static str, u64)> {
        let count = |label: &'static str| self.0.losses.get_or_create(&[("cause", label.into())]).get();
        Loss::ALL.iter().map(|cause| (cause.label(), count(cause.label()))).collect()
    }

    /// Sets what is counted elsewhere, since that counter began.
    pub fn set_total(&self, figure: Total, total: u64) {
        self.0.totals[figure as usize].inner().store(total, Ordering::Relaxed);
    }

    /// Sets how many scheduler processes are traced now, and how many cannot be.
    pub fn set_schedulers(&self, traced: usize, refused: usize) {
        self.0.schedulers.set(traced as i64);
        self.0.refused_schedulers.set(refused as i64);
    }

    /// Sets what is attached now.
    pub fn set_planned(&self, planned: Planned) {
        let Planned { emulated, single_stepped, missing } = planned;
        for (class, sites) in [("emulated", emulated), ("single_stepped", single_stepped)] {
            self.0.sites.get_or_create(&[("class", class.into())]).set(sites as i64);
        }
        self.0.missing.set(missing as i64);
    }

    /// Counts spans that went by OTLP.
    pub fn exported(&self, result: Export, spans: u64) {
        self.0.exported.get_or_create(&[("result", result.label().into())]).inc_by(spans);
    }

    /// Counts a search for the context of a Pod.
    pub fn looked_up(&self, result: Lookup) {
        self.0.lookups.get_or_create(&[("result", result.label().into())]).inc();
    }

    /// Counts a Pod whose annotation was refused.
    pub fn refused(&self, reason: Refusal) {
        self.0.refused.get_or_create(&[("reason", reason.label().into())]).inc();
    }

    /// Counts a Pod that was to get the context of its attempt.
    pub fn wrote(&self, result: Write) {
        self.0.writes.get_or_create(&[("result", result.label().into())]).inc();
    }

    /// Sets whether the API server answers the watch of Pods.
    pub fn set_watch_up(&self, up: bool) {
        self.0.watch_up.set(up.into());
    }

    /// Counts a Pod that was followed to its end.
    pub fn life(&self, end: LifeEnd) {
        self.0.lives.get_or_create(&[("result", end.label().into())]).inc();
    }

    /// Counts the spans of a Pod's life. Those of containers have the containers' names, which are no labels.
    pub fn life_spans(&self, trace: &Trace) {
        for span in &trace.spans {
            let name = span.name.split_once(": ").map_or(&*span.name, |(kind, _)| kind).to_owned();
            self.0.spans.get_or_create(&[("name", name.into())]).inc();
        }
    }

    /// Sets how many Pods are followed now.
    pub fn set_lives(&self, followed: usize) {
        self.0.lives_followed.set(followed as i64);
    }

    /// Sets whether the API server answers the watch of all Pods.
    pub fn set_lifecycle_watch_up(&self, up: bool) {
        self.0.lifecycle_watch_up.set(up.into());
    }

    /// The figures of the last minute.
    #[must_use]
    pub fn recent(&self) -> Recent {
        let count = |(name, count): (&'static str, u64)| Count { name: name.to_owned(), count };
        Recent {
            schedulers: u64::try_from(self.0.schedulers.get()).unwrap_or_default(),
            losses: self.losses().into_iter().map(count).collect(),
            ..self.window(|window, second| window.recent(second))
        }
    }

    /// Works with the last minute, and with the second that it is now.
    fn window<T>(&self, work: impl FnOnce(&mut Window, u64) -> T) -> T {
        let second = self.0.started.elapsed().as_secs();
        work(&mut self.0.window.lock().unwrap_or_else(PoisonError::into_inner), second)
    }

    /// All of it as OpenMetrics text, of [`CONTENT_TYPE`].
    #[must_use]
    pub fn encode(&self) -> String {
        self.0.exposition.encode()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::tests::scheduled;

    #[test]
    fn every_cause_of_loss_is_there_from_the_start() {
        let text = Metrics::default().encode();
        for cause in Loss::ALL {
            let line = format!("schedspan_losses_total{{cause=\"{}\"}} 0\n", cause.label());
            assert!(text.contains(&line), "{line} is not in {text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn names_and_labels_are_as_documented() {
        let metrics = Metrics::default();
        metrics.trace(&scheduled());
        metrics.loss(Loss::RingFull, 2);
        metrics.loss(Loss::RingFull, 3);
        metrics.set_loss(Loss::GoroutineFault, 7);
        metrics.set_total(Total::ReadFaults, 4);
        metrics.set_fate(Fate::InAttempt, 60);
        metrics.set_schedulers(2, 1);
        metrics.set_planned(Planned { emulated: 140, single_stepped: 2, missing: 0 });
        metrics.exported(Export::Error, 9);
        metrics.looked_up(Lookup::Found);
        metrics.refused(Refusal::Syntax);
        metrics.kept("failed,at-most=5");
        metrics.dropped(Dropped::Ratio);
        metrics.queue_move("active", "NodeAdd");
        metrics.set_watch_up(true);
        let text = metrics.encode();
        for line in [
            concat!("schedspan_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "schedspan_attempts_total{result=\"Success\"} 1",
            "schedspan_spans_total{name=\"preFilter\"} 1",
            "schedspan_traces_kept_total{sampler=\"failed,at-most=5\"} 1",
            "schedspan_traces_dropped_total{reason=\"ratio\"} 1",
            "schedspan_traces_dropped_total{reason=\"rate\"} 0",
            "schedspan_losses_total{cause=\"ring_full\"} 5",
            "schedspan_losses_total{cause=\"goroutine_fault\"} 7",
            "schedspan_hits_total 0",
            "schedspan_read_faults_total 4",
            "schedspan_record_fates_total{fate=\"in_attempt\"} 60",
            "schedspan_record_fates_total{fate=\"waiting\"} 0",
            "schedspan_schedulers 2",
            "schedspan_schedulers_refused 1",
            "schedspan_plan_sites{class=\"emulated\"} 140",
            "schedspan_plan_missing_functions 0",
            "schedspan_export_spans_total{result=\"error\"} 9",
            "schedspan_context_lookups_total{result=\"found\"} 1",
            "schedspan_annotations_refused_total{reason=\"syntax\"} 1",
            "schedspan_queue_incoming_pods_total{queue=\"active\",event=\"NodeAdd\"} 1",
            "schedspan_context_watch_up 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
            assert!(value.is_some_and(|value| value > 0.0), "{name} is {value:?}: {text}");
        }
        assert_eq!(metrics.losses().iter().map(|(_, lost)| lost).sum::<u64>(), 12);
    }

    #[test]
    fn events_without_end_make_no_labels_without_end() {
        let metrics = Metrics::default();
        for event in 0..=MAX_EVENTS {
            metrics.queue_move("active", &event.to_string());
        }
        let text = metrics.encode();
        assert!(text.contains("schedspan_queue_incoming_pods_total{queue=\"active\",event=\"other\"} 1\n"));
    }

    #[test]
    fn a_result_that_nobody_knows_makes_no_label() {
        let metrics = Metrics::default();
        let mut trace = scheduled();
        let result = trace.spans[0].attributes.iter_mut().find(|(key, _)| *key == attributes::RESULT);
        result.expect("the root has a result").1 = AttributeValue::String("x\"y".into());
        metrics.trace(&trace);
        assert!(metrics.encode().contains("schedspan_attempts_total{result=\"unknown\"} 1\n"));
    }

    #[test]
    fn dashboard_alerts_and_documentation_name_what_there_is() {
        let metrics = Metrics::default();
        metrics.trace(&scheduled());
        metrics.0.group_attempts.get_or_create(&[("result", "Success".into())]).inc();
        metrics.kept("failed");
        metrics.queue_move("active", "Create");
        metrics.set_planned(Planned::default());
        let text = metrics.encode() + &WebhookMetrics::default().encode();
        let exported: HashSet<&str> = text.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
        let dashboard = include_str!("../../deploy/chart/schedspan/dashboard.json");
        let alerts = include_str!("../../deploy/chart/schedspan/alerts.yaml");
        let documentation = include_str!("../../docs/operate.md");
        for words in [dashboard, alerts, documentation] {
            let words = words.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let named: HashSet<&str> =
                words.filter(|word| word.starts_with("schedspan_") || word.starts_with("process_")).collect();
            assert!(named.len() > 4, "{named:?}");
            let unknown: Vec<_> = named.difference(&exported).collect();
            assert!(unknown.is_empty(), "nobody exports {unknown:?}: {text}");
        }
        for name in exported.iter().filter(|name| name.starts_with("schedspan_")) {
            assert!(documentation.contains(name), "{name} is not documented");
        }
        for cause in Loss::ALL {
            let cause = format!("`{}`", cause.label());
            assert!(documentation.contains(&cause), "what to do about {cause} is not documented");
        }
    }
}
