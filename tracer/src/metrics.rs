//! All metrics of the daemon, on one registry.

use api::{Daemon, health::Targets, queue::Board};
use gotrace::{account::Count, governor::meter::Governors};
use kube_scheduler::{attempt_log::AttemptLog, last_minute::Overhead};
use spans::{Trace, export::Live};
use status::Health;
use telemetry::{Counters, Registry};

use crate::programs::{PROGRAMS, Registration};

telemetry::labels! {
    /// Why finished attempts are lost before they become traces.
    pub QueueLoss {
        /// Attempts dropped because the queue between the supervisor and the exporters was full.
        AttemptQueueFull = "attempt_queue_full",
    }
}

/// Counts attempts dropped at the full queue between the supervisor and the exporters.
#[derive(Clone, Debug)]
pub struct QueueFull(Counters<QueueLoss>);

impl QueueFull {
    /// Adds `lost` attempts.
    pub fn lose(&self, lost: u64) {
        self.0.add(QueueLoss::AttemptQueueFull, lost);
    }
}

/// Handles on all metrics. Clones refer to the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// The registry behind `/metrics`.
    pub registry: Registry,
    /// Records: their number, fates and losses.
    pub tracing: gotrace::metrics::Metrics,
    /// Losses at full queues.
    pub queue_full: QueueFull,
    /// Sampling and export.
    pub spans: spans::Metrics,
    /// Contexts and lifecycles of Pods.
    pub pods: pods::Metrics,
    /// Scheduling attempts.
    pub attempts: kube_scheduler::metrics::Metrics,
    /// Losses of clients.
    pub streams: Counters<api::Loss>,
}

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::default();
        let counters = PROGRAMS.iter().flat_map(|Registration { counters, .. }| counters.iter().copied());
        let tracing = gotrace::metrics::Metrics::new(&registry, counters);
        Self {
            tracing,
            queue_full: QueueFull(registry.losses()),
            spans: spans::Metrics::new(&registry),
            pods: pods::Metrics::new(&registry),
            attempts: kube_scheduler::metrics::Metrics::new(&registry),
            streams: registry.losses(),
            registry,
        }
    }
}

impl Metrics {
    /// Counts a trace and its spans.
    pub fn trace(&self, trace: &Trace) {
        self.spans.made(trace);
        self.attempts.attempt(trace);
    }

    /// Adds the counts of the programs' assemblers.
    pub fn counts(&self, counts: &[Count]) {
        self.tracing.set_counts(counts);
        self.attempts.counts(counts);
    }

    /// Sets what tracing costs, and what is cut.
    pub fn overhead(&self, governors: &Governors) {
        self.tracing.set_overhead(governors);
        let (totals, budget) = (governors.totals(), governors.budget());
        self.attempts.overhead(Overhead { ratio: totals.ratio, budget, cut: totals.cut.name().to_owned() });
    }

    /// All losses by cause, including zeros.
    #[must_use]
    pub fn losses(&self) -> Vec<(&'static str, u64)> {
        self.registry.lost()
    }

    /// What `/api/v1` asks, with these parts of the daemon.
    #[must_use]
    pub fn daemon(&self, history: AttemptLog, targets: Targets, live: Live, health: Health) -> Daemon {
        let (attempts, registry) = (self.attempts.clone(), self.registry.clone());
        Daemon {
            history,
            board: Board::default(),
            attempts,
            registry,
            lost: self.streams.clone(),
            live,
            targets,
            health,
        }
    }
}

#[cfg(test)]
mod tests {
    use gotrace::{
        account::{Account, Stats},
        metrics::{RecordLoss, Total},
        plan::Identity,
        worker::Summary,
    };
    use kube_scheduler::attempt::QUEUE_INCOMING_PODS;
    use pods::Lookup;
    use spans::{AttributeValue, Dropped, Exported, attributes, fixtures::scheduled};
    use tracecontext::Refusal;

    use super::*;

    fn causes() -> Vec<&'static str> {
        Metrics::default().losses().into_iter().map(|(cause, _)| cause).collect()
    }

    fn moved(event: &str) -> Count {
        Count {
            counter: QUEUE_INCOMING_PODS.name,
            labels: vec!["active".to_owned(), event.to_owned()],
            total: 1,
        }
    }

    #[test]
    fn every_cause_of_loss_is_there_from_the_start() {
        let text = Metrics::default().registry.encode();
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
        metrics.tracing.lose(RecordLoss::RingFull, 2);
        metrics.tracing.lose(RecordLoss::RingFull, 3);
        metrics.tracing.lose(RecordLoss::GoroutineFault, 7);
        metrics.tracing.set_total(Total::ReadFaults, 4);
        let account = Account { in_attempts: 60, ..Account::default() };
        metrics.tracing.set_accounts([(Stats::default(), account)].into_iter());
        metrics.tracing.set_processes(2, 1);
        let summary = Summary {
            identity: Identity::default(),
            programs: Vec::new(),
            emulated: 140,
            single_stepped: 2,
            missing: Vec::new(),
        };
        metrics.tracing.set_planned([&summary].into_iter());
        metrics.spans.exported(Exported::Error, 9);
        metrics.pods.looked_up(Lookup::Found);
        metrics.pods.refused(Refusal::Syntax);
        metrics.spans.kept("failed,at-most=5");
        metrics.spans.dropped(Dropped::Ratio);
        metrics.counts(&[moved("NodeAdd")]);
        metrics.pods.set_watch_up(true);
        let text = metrics.registry.encode();
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
    fn an_unknown_result_makes_no_label() {
        let metrics = Metrics::default();
        let mut trace = scheduled();
        let result = trace.spans[0].attributes.iter_mut().find(|(key, _)| *key == attributes::RESULT);
        result.expect("the root has a result").1 = AttributeValue::String("x\"y".into());
        metrics.trace(&trace);
        assert!(metrics.registry.encode().contains("schedspan_attempts_total{result=\"unknown\"} 1\n"));
    }

    #[test]
    fn moves_of_the_last_minute_are_differences_of_counts() {
        let metrics = Metrics::default();
        for total in [2, 2, 5] {
            metrics.counts(&[Count { total, ..moved("NodeAdd") }]);
        }
        let moves = metrics.attempts.last_minute().moves;
        assert_eq!(moves.iter().map(|moves| moves.count).collect::<Vec<_>>(), [5]);
        assert!(
            metrics
                .registry
                .encode()
                .contains("schedspan_queue_incoming_pods_total{queue=\"active\",event=\"NodeAdd\"} 5\n")
        );
    }
}
