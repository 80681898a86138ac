//! Metrics of scheduling attempts, and the statistics of the last minute.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use gotrace::account::Count;
use spans::{AttributeValue, Span, Trace, TraceKind, attributes};
use telemetry::{Counters, Gauge, Labelled, Registry, Seconds};

use crate::{
    attempt::{CPU_NANOSECONDS, QUEUE_INCOMING_PODS},
    durations::Histograms,
    last_minute::{self, Comparison, LastMinute, Overhead, Window},
    queue::{Look, Reason, stalls},
};

telemetry::labels! {
    /// Why a Pod is not in the model of the queue.
    Loss {
        /// There is no room.
        NoRoom = "queued_pod_no_room",
    }
}

/// Metrics of attempts. Clones share the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    attempts: Labelled<1>,
    group_attempts: Labelled<1>,
    durations: Histograms,
    cpu: Seconds<2>,
    started: Instant,
    window: Mutex<Window>,
    stalled: Gauge,
    losses: Counters<Loss>,
    /// The Pods that wait, by reason, and the schedulers that stand still, as they were last told.
    queue: Mutex<(Vec<last_minute::Count>, Vec<String>)>,
    /// What tracing costs, as it was told last.
    overhead: Mutex<Option<Overhead>>,
    /// Queue move counts at the last update, to add only the difference.
    moves: Mutex<HashMap<Vec<String>, u64>>,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the window of `top` is the last minute of this process")]
    pub fn new(registry: &Registry) -> Self {
        Self(Arc::new(Families {
            attempts: registry.labelled("attempts", "Scheduling attempts traced, by result", ["result"]),
            group_attempts: registry.labelled(
                "pod_group_attempts",
                "Scheduling attempts of groups of Pods traced, by result",
                ["result"],
            ),
            durations: Histograms::new(registry),
            cpu: registry.seconds(
                "scheduler_cpu",
                "CPU time of schedulers by phase or other work, and by the plugin in it: by samples",
                ["phase", "plugin"],
            ),
            started: Instant::now(),
            window: Mutex::default(),
            stalled: registry.gauge(
                "scheduler_stalled_seconds",
                "Seconds for which a scheduler has taken nothing from a queue that is not empty; 0 if none stands still",
            ),
            losses: registry.losses(),
            queue: Mutex::default(),
            overhead: Mutex::default(),
            moves: Mutex::default(),
        }))
    }

    /// Counts an attempt, or takes what another trace waited for.
    pub fn attempt(&self, trace: &Trace) {
        let result = result(trace.root());
        match trace.kind {
            TraceKind::Attempt => {
                self.0.attempts.add([result.into()], 1);
                self.window(|window, second| window.trace(second, result, trace));
            }
            TraceKind::GroupAttempt => self.group_attempt(result),
            TraceKind::Reconcile | TraceKind::PodStart => {
                self.window(|window, second| window.elsewhere(second, trace));
            }
            TraceKind::Configuration
            | TraceKind::Lifecycle
            | TraceKind::PodStorage
            | TraceKind::PodCreation
            | TraceKind::PodDeletion
            | TraceKind::PodEviction
            | TraceKind::Command => {}
        }
    }

    /// Adds the durations of a complete trace, which is exported if it is kept.
    pub fn durations(&self, trace: &Trace, is_kept: bool) {
        self.0.durations.add(trace, is_kept);
    }

    /// Counts an attempt of a group.
    pub fn group_attempt(&self, result: &'static str) {
        self.0.group_attempts.add([result.into()], 1);
    }

    /// Updates the metrics of queues and of CPU time from the assembler's totals.
    pub fn counts(&self, counts: &[Count]) {
        let mut before = self.0.moves.lock().unwrap_or_else(PoisonError::into_inner);
        for Count { counter, labels, total } in counts {
            let [queue, event] = labels.as_slice() else { continue };
            if *counter == CPU_NANOSECONDS {
                let (phase, plugin) = (queue, event);
                self.0.cpu.set([phase.clone().into(), plugin.clone().into()], *total as f64 / 1e9);
            }
            if *counter != QUEUE_INCOMING_PODS.name {
                continue;
            }
            let last = before.insert(labels.clone(), *total).unwrap_or_default();
            if let more @ 1.. = total.saturating_sub(last) {
                self.window(|window, second| window.queue_moves(second, queue, event, more));
            }
        }
    }

    /// Takes what is known of the queues, and how many entries into them had no room.
    pub fn queue(&self, look: &Look, left_out: u64) {
        let Look { answer, counts } = look;
        let count = |(reason, pods): (&Reason, &usize)| last_minute::Count {
            name: reason.name().to_owned(),
            count: *pods as u64,
        };
        let waiting = counts.iter().map(count).collect();
        self.0.stalled.set(i64::try_from(answer.stalled_seconds()).unwrap_or(i64::MAX));
        self.0.losses.set(Loss::NoRoom, left_out);
        *self.0.queue.lock().unwrap_or_else(PoisonError::into_inner) = (waiting, stalls(answer));
    }

    /// Takes what tracing costs.
    pub fn overhead(&self, overhead: Overhead) {
        *self.0.overhead.lock().unwrap_or_else(PoisonError::into_inner) = Some(overhead);
    }

    /// Statistics of the last minute.
    #[must_use]
    pub fn last_minute(&self) -> LastMinute {
        let (waiting, stalls) = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let overhead = self.0.overhead.lock().unwrap_or_else(PoisonError::into_inner).clone();
        LastMinute { waiting, stalls, overhead, ..self.window(|window, second| window.figures(second)) }
    }

    /// The last minute beside so many minutes before it.
    #[must_use]
    pub fn comparison(&self, minutes: u64) -> Comparison {
        self.window(|window, second| window.comparison(second, minutes))
    }

    /// Runs `work` on the window, with the current second.
    fn window<T>(&self, work: impl FnOnce(&mut Window, u64) -> T) -> T {
        let second = self.0.started.elapsed().as_secs();
        work(&mut self.0.window.lock().unwrap_or_else(PoisonError::into_inner), second)
    }
}

/// The result of an attempt. Unknown text of the traced process does not become a label: their number would be unbounded.
pub(crate) fn result(root: &Span) -> &'static str {
    let known = ["Success", "Unschedulable", "Error"];
    match root.attribute(attributes::RESULT) {
        Some(AttributeValue::String(result)) => known.into_iter().find(|known| *result == **known),
        Some(_) | None => None,
    }
    .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use spans::fixtures::{scheduled, unschedulable};

    use super::*;

    #[test]
    fn attempts_are_counted_by_known_results() {
        let registry = Registry::default();
        let metrics = Metrics::new(&registry);
        let with = |result: &'static str| {
            let mut trace = scheduled();
            let own = trace.spans[0].attributes.iter_mut().find(|(key, _)| *key == attributes::RESULT);
            own.expect("it has a result").1 = AttributeValue::String(result.into());
            trace
        };
        let group = Trace { kind: TraceKind::GroupAttempt, ..scheduled() };
        for trace in [scheduled(), unschedulable(), unschedulable(), with("Error"), with("anything"), group] {
            metrics.attempt(&trace);
        }
        let text = registry.encode();
        for line in [
            "schedspan_attempts_total{result=\"Success\"} 1\n",
            "schedspan_attempts_total{result=\"Unschedulable\"} 2\n",
            "schedspan_attempts_total{result=\"Error\"} 1\n",
            "schedspan_attempts_total{result=\"unknown\"} 1\n",
            "schedspan_pod_group_attempts_total{result=\"Success\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("anything"));
        let attempts: u64 = metrics.last_minute().attempts.iter().map(|attempts| attempts.count).sum();
        assert_eq!(attempts, 5);
    }

    #[test]
    fn cpu_time_is_a_counter_of_seconds() {
        let registry = Registry::default();
        let metrics = Metrics::new(&registry);
        let labels = vec!["filter".to_owned(), "NodeResourcesFit".to_owned()];
        for total in [1_000_000_000, 2_500_000_000] {
            metrics.counts(&[Count { counter: CPU_NANOSECONDS, labels: labels.clone(), total }]);
        }
        let line =
            "schedspan_scheduler_cpu_seconds_total{phase=\"filter\",plugin=\"NodeResourcesFit\"} 2.5\n";
        assert!(registry.encode().contains(line), "{}", registry.encode());
    }

    #[test]
    fn moves_of_the_last_minute_are_what_the_totals_grew_by() {
        let metrics = Metrics::new(&Registry::default());
        let count = |counter, total| Count { counter, labels: vec!["active".into(), "PodAdd".into()], total };
        for total in [3, 3, 10] {
            metrics.counts(&[count(QUEUE_INCOMING_PODS.name, total), count("another", 100)]);
        }
        let moves = metrics.last_minute().moves;
        let moves: Vec<_> = moves.iter().map(|moves| (&*moves.queue, &*moves.event, moves.count)).collect();
        assert_eq!(moves, [("active", "PodAdd", 10)]);
    }
}
