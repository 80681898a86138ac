//! Metrics of scheduling attempts, and the statistics of the last minute.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use gotrace::account::Count;
use spans::{AttributeValue, Trace, TraceKind, attributes};
use telemetry::{Labelled, Registry};

use crate::{
    attempt::QUEUE_INCOMING_PODS,
    last_minute::{LastMinute, Window},
};

/// Metrics of attempts. Clones share the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    attempts: Labelled<1>,
    group_attempts: Labelled<1>,
    started: Instant,
    window: Mutex<Window>,
    /// Queue move counts at the last update, to add only the difference.
    moves: Mutex<HashMap<Vec<String>, u64>>,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self(Arc::new(Families {
            attempts: registry.labelled("attempts", "Scheduling attempts traced, by result", ["result"]),
            group_attempts: registry.labelled(
                "pod_group_attempts",
                "Scheduling attempts of groups of Pods traced, by result",
                ["result"],
            ),
            started: Instant::now(),
            window: Mutex::default(),
            moves: Mutex::default(),
        }))
    }

    /// Counts an attempt.
    pub fn attempt(&self, trace: &Trace) {
        // Unknown text of the traced process must not become labels: their number would be unbounded.
        let result = match trace.root().attribute(attributes::RESULT) {
            Some(AttributeValue::String(result)) => {
                ["Success", "Unschedulable", "Error"].into_iter().find(|known| known == result)
            }
            _ => None,
        };
        let result = result.unwrap_or("unknown");
        match trace.kind {
            TraceKind::Attempt => {
                self.0.attempts.add([result.into()], 1);
                self.window(|window, second| window.trace(second, result, trace));
            }
            TraceKind::GroupAttempt => self.group_attempt(result),
            TraceKind::Configuration | TraceKind::Lifecycle | TraceKind::Reconcile => {}
        }
    }

    /// Counts an attempt of a group.
    pub fn group_attempt(&self, result: &'static str) {
        self.0.group_attempts.add([result.into()], 1);
    }

    /// Updates the queue metrics from the assembler's totals.
    pub fn counts(&self, counts: &[Count]) {
        let mut before = self.0.moves.lock().unwrap_or_else(PoisonError::into_inner);
        for Count { counter, labels, total } in counts {
            let [queue, event] = labels.as_slice() else { continue };
            if *counter != QUEUE_INCOMING_PODS.name {
                continue;
            }
            let last = before.insert(labels.clone(), *total).unwrap_or_default();
            if let more @ 1.. = total.saturating_sub(last) {
                self.window(|window, second| window.queue_moves(second, queue, event, more));
            }
        }
    }

    /// Statistics of the last minute.
    #[must_use]
    pub fn last_minute(&self) -> LastMinute {
        self.window(|window, second| window.figures(second))
    }

    /// Runs `work` on the window, with the current second.
    fn window<T>(&self, work: impl FnOnce(&mut Window, u64) -> T) -> T {
        let second = self.0.started.elapsed().as_secs();
        work(&mut self.0.window.lock().unwrap_or_else(PoisonError::into_inner), second)
    }
}
