//! Metrics of sampling and export.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use foldhash::fast::RandomState;
use telemetry::{Counter, Counters, Gauge, Labelled, Registry};

use crate::{Span, SpanKind, Stage, Trace};

telemetry::labels! {
    /// Why spans are lost. The unit is spans.
    pub Loss {
        /// The queue of the OTLP exporter is full; its oldest traces go.
        ExportQueueFull = "export_queue_full",
        /// The Collector refuses their request.
        ExportFailed = "export_failed",
        /// The Collector rejects them, and accepts the rest of their request.
        ExportRejected = "export_rejected",
        /// The spool is full; its oldest segment goes.
        SpoolFull = "spool_full",
        /// Their entry in the spool is damaged.
        SpoolDamaged = "spool_damaged",
        /// The queue of the terminal or of the JSON lines is full.
        OutputQueueFull = "output_queue_full",
        /// They cannot be written to standard output.
        OutputFailed = "output_failed",
        /// They are still queued when the time to shut down is over.
        Shutdown = "shutdown",
    }
}

telemetry::labels! {
    /// How the export of spans went.
    pub Exported {
        /// The Collector accepted them.
        Success = "success",
        /// The Collector did not accept them.
        Error = "error",
    }
}

telemetry::labels! {
    /// Why a trace is not kept: the first unmet condition of the closest rule. Closer rules are greater.
    #[derive(Default, PartialOrd, Ord)]
    pub Dropped {
        /// No rule is about it.
        #[default]
        NoRule = "no_rule",
        /// A rule selects by the Pod, which was not seen in time.
        UnknownPod = "unknown_pod",
        /// The trace id is not within the ratio.
        Ratio = "ratio",
        /// The parent is not sampled.
        Parent = "parent",
        /// The limit of that second is reached.
        Rate = "rate",
    }
}

telemetry::labels! {
    /// What is left out of the trace of an owner with many Pods. The unit is that of the label: a Pod's part, or a reconcile.
    pub LeftOut {
        /// A lifecycle that ended well.
        Lifecycle = "lifecycle",
        /// Another lifecycle.
        FailedLifecycle = "failed_lifecycle",
        /// A start by the kubelet that ended well.
        Start = "start",
        /// Another start.
        FailedStart = "failed_start",
        /// The creation of a Pod, with its request.
        Creation = "creation",
        /// The deletion or eviction of a Pod, with its request.
        Removal = "removal",
        /// What the API server did to store a Pod.
        Storage = "storage",
        /// A reconcile whose creations and removals are all left out.
        Reconcile = "reconcile",
        /// The same of one that failed.
        FailedReconcile = "failed_reconcile",
    }
}

/// The label of plugins' spans.
const PLUGIN: &str = "plugin";
/// The label of spans of plugins' shares.
const SHARE: &str = "plugin share";

/// A span's label: its name, unless that names one of many plugins, URLs, resources or containers.
fn name(span: &Span) -> Cow<'_, str> {
    match span.kind {
        SpanKind::Plugin => PLUGIN.into(),
        SpanKind::Share => SHARE.into(),
        SpanKind::Extender => "extender".into(),
        SpanKind::Request => "request".into(),
        SpanKind::Stage(stage @ (Stage::InitContainer | Stage::Container)) => stage.name().into(),
        SpanKind::Node(step) => step.name().into(),
        SpanKind::Api(step) => step.name().into(),
        SpanKind::Stage(
            Stage::Gated
            | Stage::Queued
            | Stage::Attempt
            | Stage::VolumeClaims
            | Stage::Kubelet
            | Stage::Sandbox
            | Stage::Ready,
        )
        | SpanKind::Root(_)
        | SpanKind::Cycle(_)
        | SpanKind::Phase(_)
        | SpanKind::ApiCall
        | SpanKind::Victim
        | SpanKind::Placement
        | SpanKind::Trial
        | SpanKind::QueueStay
        | SpanKind::Other => span.name.as_str(),
    }
}

/// Metrics of sampling and export. Clones are handles of the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics {
    spans: Labelled<1>,
    /// The counters of `spans` so far, by name. To find them there takes longer, and each span is counted.
    by_name: Arc<Mutex<HashMap<Box<str>, Counter, RandomState>>>,
    kept: Labelled<1>,
    dropped: Counters<Dropped>,
    left_out: Counters<LeftOut>,
    losses: Counters<Loss>,
    exported: Counters<Exported>,
    retries: Counter,
    queued_spans: Gauge,
    queued_bytes: Gauge,
    spooled_spans: Gauge,
    spooled_bytes: Gauge,
    damaged: Counter,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self {
            spans: registry.labelled("spans", "Spans made, by name", ["name"]),
            by_name: Arc::default(),
            kept: registry.labelled(
                "traces_kept",
                "Traces kept, by sampler; a trace may have several",
                ["sampler"],
            ),
            dropped: registry.counters("traces_dropped", "Traces that no sampler kept, by reason", "reason"),
            left_out: registry.counters(
                "owner_trace_left_out",
                "What is left out of traces of owners with many Pods, with --lifecycle-trace owner",
                "what",
            ),
            losses: registry.losses(),
            exported: registry.counters("export_spans", "Spans sent by OTLP, by result", "result"),
            retries: registry.counter("export_retries", "Requests that are sent again"),
            queued_spans: registry.gauge("export_queue_spans", "Spans that wait for the Collector"),
            queued_bytes: registry
                .gauge("export_queue_bytes", "Memory of the spans that wait for the Collector"),
            spooled_spans: registry.gauge("export_spool_spans", "Spans on disk that wait for the Collector"),
            spooled_bytes: registry.gauge("export_spool_bytes", "Bytes of the spool's files"),
            damaged: registry
                .counter("export_spool_damaged", "Damaged places in the spool, which are skipped"),
        }
    }

    /// Counts the spans of a trace by name, before sampling, and those beside it.
    pub fn made(&self, trace: &Trace) {
        trace.beside.iter().for_each(|part| self.made(part));
        let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        for name in trace.spans.iter().map(name) {
            if let Some(counter) = by_name.get(&*name) {
                counter.inc();
            } else {
                let counter = self.spans.of([name.to_string().into()]);
                counter.inc();
                by_name.insert(name.into(), counter);
            }
        }
    }

    /// Counts a trace that this sampler keeps.
    pub fn kept(&self, sampler: &str) {
        self.kept.add([sampler.to_owned().into()], 1);
    }

    /// Counts a trace that no sampler keeps.
    pub fn dropped(&self, reason: Dropped) {
        self.dropped.add(reason, 1);
    }

    /// Counts what is not in the trace of an owner.
    pub(crate) fn left_out(&self, what: LeftOut) {
        self.left_out.add(what, 1);
    }

    /// Counts lost spans.
    pub fn loss(&self, cause: Loss, spans: u64) {
        self.losses.add(cause, spans);
    }

    /// Counts spans that were sent by OTLP.
    pub fn exported(&self, result: Exported, spans: u64) {
        self.exported.add(result, spans);
    }

    /// Counts a request that is sent again.
    pub(crate) fn retried(&self) {
        self.retries.inc();
    }

    /// Counts a damaged place in the spool, and the spans that are lost with it.
    pub(crate) fn damaged(&self, spans: u64) {
        self.damaged.inc();
        self.loss(Loss::SpoolDamaged, spans);
    }

    /// Sets what is in the spool.
    pub(crate) fn spooled(&self, spans: u64, bytes: u64) {
        self.spooled_spans.set(i64::try_from(spans).unwrap_or(i64::MAX));
        self.spooled_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Spans that wait for the Collector, in memory and on disk.
    pub(crate) fn waiting(&self) -> i64 {
        self.queued_spans.get() + self.spooled_spans.get()
    }

    /// Sets what waits for the Collector.
    pub(crate) fn queued(&self, spans: u64, bytes: u64) {
        self.queued_spans.set(i64::try_from(spans).unwrap_or(i64::MAX));
        self.queued_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{export::tests::lost, fixtures::scheduled};

    #[test]
    fn spans_are_counted_by_name_and_plugins_together() {
        let registry = Registry::default();
        let metrics = Metrics::new(&registry);
        metrics.made(&scheduled());
        assert!(!registry.encode().contains("name=\"plugin\""));
        let mut trace = scheduled();
        for (kind, name) in [
            (SpanKind::Plugin, "plugin: Fit"),
            (SpanKind::Plugin, "plugin: Taint"),
            (SpanKind::Extender, "extender: http://a"),
            (SpanKind::Stage(Stage::Container), "container main"),
            (SpanKind::Stage(Stage::InitContainer), "init setup"),
            (SpanKind::Stage(Stage::Sandbox), "sandbox"),
        ] {
            trace.spans.push(Span { kind, name: name.into(), ..trace.spans[1].clone() });
        }
        metrics.made(&trace);
        let text = registry.encode();
        for (name, count) in
            [("plugin", 2), ("extender", 1), ("container", 1), ("init", 1), ("sandbox", 1), ("bind", 2)]
        {
            let line = format!("schedspan_spans_total{{name=\"{name}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }

    #[test]
    fn what_waits_is_in_memory_and_on_disk() {
        let registry = Registry::default();
        let metrics = Metrics::new(&registry);
        metrics.queued(3, 300);
        metrics.spooled(40, 4_000);
        assert_eq!(metrics.waiting(), 43);
        metrics.damaged(5);
        metrics.loss(Loss::Shutdown, 2);
        let text = registry.encode();
        for line in [
            "schedspan_export_queue_bytes 300\n",
            "schedspan_export_spool_bytes 4000\n",
            "schedspan_export_spool_damaged_total 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert_eq!(lost(&registry), [("spool_damaged", 5), ("shutdown", 2)]);
    }
}
