//! The daemon's own metrics: what it saw, what it made of it, and everything that it lost, by cause.

use std::{
    collections::HashSet,
    fmt,
    iter::Sum,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use spans::{AttributeValue, Trace, TraceKind, attributes};
use telemetry::{Counter, Counters, Gauge, Gauges, Label as _, Labelled, Registry};

use crate::recent::{Count, Recent, Window};

telemetry::labels! {
    /// Why something was lost. The unit is what the cause loses.
    pub Loss {
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
    }
}

telemetry::labels! {
    /// What is counted elsewhere, as a total, and copied here.
    pub Total {
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

telemetry::labels! {
    /// What became of a record. All together are the records that came, but for those of attempts and calls that go on and
    /// of Pods in a queue.
    pub Fate {
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

telemetry::labels! {
    /// What the kernel does with the instruction of a probe.
    pub Class {
        /// The kernel emulates it.
        Emulated = "emulated",
        /// The kernel single-steps it.
        SingleStepped = "single_stepped",
    }
}

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
    registry: Registry,
    spans: spans::Metrics,
    pods: pods::Metrics,
    attempts: Labelled<1>,
    group_attempts: Labelled<1>,
    losses: Counters<Loss>,
    /// In the order of [`Total`].
    totals: Vec<Counter>,
    fates: Counters<Fate>,
    queue_moves: Labelled<2>,
    events: Mutex<HashSet<String>>,
    schedulers: Gauge,
    refused_schedulers: Gauge,
    sites: Gauges<Class>,
    missing: Gauge,
    started: Instant,
    window: Mutex<Window>,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::default();
        let totals = Total::ALL.iter().map(|figure| total(&registry, *figure)).collect();
        Self(Arc::new(Families {
            attempts: registry.labelled("attempts", "Scheduling attempts traced, by result", ["result"]),
            group_attempts: registry.labelled(
                "pod_group_attempts",
                "Scheduling attempts of groups of Pods traced, by result",
                ["result"],
            ),
            losses: registry.losses(),
            totals,
            fates: registry.counters("record_fates", "What became of records", "fate"),
            queue_moves: registry.labelled(
                "queue_incoming_pods",
                "Pods that entered a queue of the scheduler, by queue and event",
                ["queue", "event"],
            ),
            events: Mutex::default(),
            schedulers: registry.gauge("schedulers", "Scheduler processes traced now"),
            refused_schedulers: registry
                .gauge("schedulers_refused", "Scheduler processes that cannot be traced now"),
            sites: registry.gauges(
                "plan_sites",
                "Probes that are attached now, by what the kernel does with their instruction",
                "class",
            ),
            missing: registry.gauge(
                "plan_missing_functions",
                "Functions that were not found in traced schedulers: what they do is not in the traces",
            ),
            pods: pods::Metrics::new(&registry),
            spans: spans::Metrics::new(&registry),
            started: Instant::now(),
            window: Mutex::default(),
            registry,
        }))
    }
}

fn total(registry: &Registry, total: Total) -> Counter {
    let help = match total {
        Total::Hits => "Hits of probes in traced processes",
        Total::Records => "Records that came from the eBPF programs: hits less what was lost on the way",
        Total::ReadFaults => "Reads of a traced process's memory that failed",
        Total::StrayEnds => "Ends of calls that began before the probes were there",
        Total::SkippedPods => "Pods that were popped, but not to be scheduled",
    };
    registry.counter(total.label(), help)
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
        let group = trace.kind == TraceKind::GroupAttempt;
        let attempts = if group { &self.0.group_attempts } else { &self.0.attempts };
        attempts.add([result.into()], 1);
        self.0.spans.made(trace);
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
        self.0.queue_moves.add([queue.to_owned().into(), event.to_owned().into()], 1);
    }

    /// Counts a loss.
    pub fn loss(&self, cause: Loss, lost: u64) {
        self.0.losses.add(cause, lost);
    }

    /// Sets a loss that is counted elsewhere, since that counter began.
    pub fn set_loss(&self, cause: Loss, total: u64) {
        self.0.losses.set(cause, total);
    }

    /// Sets how many records had this fate.
    pub fn set_fate(&self, fate: Fate, total: u64) {
        self.0.fates.set(fate, total);
    }

    /// All losses by cause, zeros too.
    #[must_use]
    pub fn losses(&self) -> Vec<(&'static str, u64)> {
        self.0.registry.lost()
    }

    /// Sets what is counted elsewhere, since that counter began.
    pub fn set_total(&self, figure: Total, total: u64) {
        self.0.totals[figure as usize].inner().store(total, std::sync::atomic::Ordering::Relaxed);
    }

    /// Sets how many scheduler processes are traced now, and how many cannot be.
    pub fn set_schedulers(&self, traced: usize, refused: usize) {
        self.0.schedulers.set(traced as i64);
        self.0.refused_schedulers.set(refused as i64);
    }

    /// Sets what is attached now.
    pub fn set_planned(&self, planned: Planned) {
        let Planned { emulated, single_stepped, missing } = planned;
        for (class, sites) in [(Class::Emulated, emulated), (Class::SingleStepped, single_stepped)] {
            self.0.sites.set(class, sites as i64);
        }
        self.0.missing.set(missing as i64);
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

    /// Where these metrics are registered.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.0.registry.clone()
    }

    /// The metrics of sampling and export.
    #[must_use]
    pub fn spans(&self) -> spans::Metrics {
        self.0.spans.clone()
    }

    /// The metrics of Pods.
    #[must_use]
    pub fn pods(&self) -> pods::Metrics {
        self.0.pods.clone()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use pods::Lookup;
    use spans::{Dropped, Exported, fixtures::scheduled};
    use tracecontext::Refusal;

    use super::*;

    fn causes() -> Vec<&'static str> {
        Metrics::default().losses().into_iter().map(|(cause, _)| cause).collect()
    }

    #[test]
    fn every_cause_of_loss_is_there_from_the_start() {
        let text = Metrics::default().registry().encode();
        for cause in causes() {
            let line = format!("schedspan_losses_total{{cause=\"{cause}\"}} 0\n");
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
        metrics.spans().exported(Exported::Error, 9);
        metrics.pods().looked_up(Lookup::Found);
        metrics.pods().refused(Refusal::Syntax);
        metrics.spans().kept("failed,at-most=5");
        metrics.spans().dropped(Dropped::Ratio);
        metrics.queue_move("active", "NodeAdd");
        metrics.pods().set_watch_up(true);
        let text = metrics.registry().encode();
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
        let text = metrics.registry().encode();
        assert!(text.contains("schedspan_queue_incoming_pods_total{queue=\"active\",event=\"other\"} 1\n"));
    }

    #[test]
    fn a_result_that_nobody_knows_makes_no_label() {
        let metrics = Metrics::default();
        let mut trace = scheduled();
        let result = trace.spans[0].attributes.iter_mut().find(|(key, _)| *key == attributes::RESULT);
        result.expect("the root has a result").1 = AttributeValue::String("x\"y".into());
        metrics.trace(&trace);
        assert!(metrics.registry().encode().contains("schedspan_attempts_total{result=\"unknown\"} 1\n"));
    }

    #[test]
    fn dashboard_alerts_and_documentation_name_what_there_is() {
        let metrics = Metrics::default();
        metrics.trace(&scheduled());
        metrics.0.group_attempts.add(["Success".into()], 1);
        metrics.spans().kept("failed");
        metrics.queue_move("active", "Create");
        metrics.set_planned(Planned::default());
        let webhook = Registry::default();
        let _registered = webhook::Metrics::new(&webhook);
        let text = metrics.registry().encode() + &webhook.encode();
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
        for cause in causes() {
            let cause = format!("`{cause}`");
            assert!(documentation.contains(&cause), "what to do about {cause} is not documented");
        }
    }
}
