//! The functions that are probed: the calls by which a queue counts and times what it does, and those of
//! [requests](crate::requests::table).
//! <https://github.com/kubernetes/client-go/blob/v0.36.4/util/workqueue/metrics.go#L75-L143>

use gotrace::{
    Detail,
    plan::{self, Begin, End, Held, SeenAs, Signature},
};

use crate::{requests::Step, values::Value};

type Row = plan::Row<Value>;
type Want = plan::Want<Value>;

pub(crate) const RETRY: &str = "k8s.io/client-go/util/workqueue.(*defaultRetryMetrics).retry";

const METRICS: &[&str] = &["*workqueue.defaultQueueMetrics[...]"];
const RETRY_METRICS: &[&str] = &["*workqueue.defaultRetryMetrics"];
/// The only label of a queue's metrics, or the first: controller-runtime adds one of the same value.
/// <https://github.com/kubernetes/component-base/blob/v0.36.4/metrics/prometheus/workqueue/metrics.go>
const LABEL: &[&str] =
    &["depth", "(github.com/prometheus/client_golang/prometheus.gauge)", "labelPairs", "*", "Value", "*"];
const RETRIES_LABEL: &[&str] =
    &["retries", "(github.com/prometheus/client_golang/prometheus.counter)", "labelPairs", "*", "Value", "*"];

/// Queues of these keys get the events of all objects or Pods. Their workers note them, and leave what is to be done to others: they ask
/// the API server for nothing.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/garbagecollector/graph_builder.go#L700-L720>,
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/resourcequota/resource_quota_monitor.go#L358-L385>,
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/tainteviction/taint_eviction.go#L492-L535>
const EVENTS: [&str; 3] = [
    "[*k8s.io/kubernetes/pkg/controller/garbagecollector.event]",
    "[*k8s.io/kubernetes/pkg/controller/resourcequota.event]",
    "[k8s.io/kubernetes/pkg/controller/tainteviction.podUpdateItem]",
];
/// The queue's own counters. <https://github.com/prometheus/client_golang/blob/v1.23.2/prometheus/counter.go#L94-L115>,
/// <https://github.com/prometheus/client_golang/blob/v1.23.2/prometheus/histogram.go#L590-L610>
const ADDED: &[&str] = &["adds", "(github.com/prometheus/client_golang/prometheus.counter)", "valInt"];
const HANDLED: &[&str] =
    &["workDuration", "(github.com/prometheus/client_golang/prometheus.histogram)", "countAndHotIdx"];

const ADDRESS: Want = Want::of_receiver(Value::Metrics, METRICS, &[]);
const QUEUE: Want = Want::of_receiver(Value::Queue, METRICS, LABEL);
const WORD: Want = Want { value: Value::Word, of: &[], path: &[], seen_as: SeenAs::Word };
const KEY: Want = Want { value: Value::Key, seen_as: SeenAs::Strings(&[Held("string", 1)]), ..WORD };
/// Copies of the others are done: their address says nothing.
const ANY_KEY: Want = Want {
    seen_as: SeenAs::Strings(&[
        Held("string", 1),
        Held("k8s.io/kubernetes/pkg/controller/tainteviction.nodeUpdateItem", 1),
        Held("k8s.io/kubernetes/pkg/controller/tainteviction.podUpdateItem", 3),
        Held("k8s.io/kubernetes/pkg/controller/nodelifecycle.podUpdateItem", 2),
    ]),
    ..KEY
};
/// From 1.32 on there is a type for each kind of key; up to 1.31 a key is an `any`.
const GENERIC: Signature = Signature::TypeArguments;
const PLAIN: Signature = Signature::Declared(&["interface {}"]);

/// The method by which a queue takes how long a key has waited, and how long it was worked on. Its argument is when that began.
const TIMED: &str = "sinceInSeconds";

/// An addition is seen when the key is taken.
const fn addition(symbols: &'static [&'static str], signature: Signature, at_entry: &'static [Want]) -> Row {
    Row { begin: Begin::UnlessTiming("get", TIMED), ..row(symbols, signature, at_entry) }
}

const fn timed(symbols: &'static [&'static str], signature: Signature, at_entry: &'static [Want]) -> Row {
    Row { begin: Begin::Timing(TIMED), ..row(symbols, signature, at_entry) }
}

const fn row(symbols: &'static [&'static str], signature: Signature, at_entry: &'static [Want]) -> Row {
    let (begin, end, without) = (Begin::Entry, End::Unused, "reconciles that are not seen");
    Row { symbols, signature, begin, at_entry, end, at_end: &[], since: None, without }
}

macro_rules! metrics {
    ($method:literal) => {
        &[concat!("k8s.io/client-go/util/workqueue.(*defaultQueueMetrics", $method)]
    };
}

/// What a function is to a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A key is added to the queue.
    Add,
    /// A worker takes it.
    Get,
    /// The worker is through with it.
    Done,
    /// A key is to be added later.
    Retry,
    /// How much a queue of events has had.
    Count,
    /// Part of a request.
    Request(Step),
}

crate::request_functions! {
    /// A probed function. Where the key cannot be read, the reconcile counts all the same.
    pub enum Function: Part, Value;

    /// A key is added to the queue that is not in it; one that is being worked on enters it when that is done.
    Add { detail: Phases, about: Part::Add, rows: [
        addition(metrics!("[...]).add"), GENERIC, &[ADDRESS, QUEUE, WORD, KEY]),
        addition(metrics!(").add"), PLAIN, &[ADDRESS, QUEUE, WORD, ANY_KEY]),
        row(metrics!("[...]).add"), Signature::Unused, &[ADDRESS, QUEUE]),
    ] }
    /// A worker takes the key. Where the queue takes how long it has waited, this hit has the time of its addition, too.
    Get { detail: Phases, about: Part::Get, rows: [
        timed(metrics!("[...]).get"), GENERIC, &[ADDRESS, QUEUE, WORD, KEY]),
        timed(metrics!(").get"), PLAIN, &[ADDRESS, QUEUE, WORD, ANY_KEY]),
        row(metrics!("[...]).get"), Signature::Unused, &[ADDRESS, QUEUE]),
    ] }
    /// The worker is through with it. Where the queue takes how long it was worked on, this hit has the time at which that began, too.
    Done { detail: Phases, about: Part::Done, rows: [
        timed(metrics!("[...]).done"), GENERIC, &[ADDRESS, WORD, KEY]),
        timed(metrics!(").done"), PLAIN, &[ADDRESS, WORD, ANY_KEY]),
        row(metrics!("[...]).done"), Signature::Unused, &[ADDRESS]),
    ] }
    /// Twice a second, a queue says what its workers are at. The counters of a queue of events are read then, in place of three hits for
    /// each of its keys.
    Count { detail: Phases, about: Part::Count, rows: [Row {
        // As long as there was one type for all keys, there was one function for all queues.
        since: Some(32),
        without: "counts of events that controllers handle",
        ..row(metrics!("[...]).updateUnfinishedWork"), Signature::Unused, &[
            ADDRESS,
            QUEUE,
            Want::of_receiver(Value::Added, METRICS, ADDED),
            Want::of_receiver(Value::Handled, METRICS, HANDLED),
        ])
    }] }
    /// A key is to be added later: after a failure, or because something is due then.
    Retry { detail: Phases, about: Part::Retry, rows: [row(&[RETRY], Signature::Unused, &[
        Want::of_receiver(Value::Metrics, RETRY_METRICS, &[]),
        Want::of_receiver(Value::Queue, RETRY_METRICS, RETRIES_LABEL),
    ])] }
}

impl Function {
    /// The level of detail in the function of this name: what is done with each event of the cluster is seen only where reconciles are
    /// that nothing comes of.
    pub(crate) fn detail_in(self, symbol: &str) -> Option<Detail> {
        let is_of_events = EVENTS.iter().any(|key| symbol.contains(key));
        match self.about() {
            Part::Add | Part::Get | Part::Done => {
                Some(if is_of_events { Detail::Idle } else { Detail::Phases })
            }
            Part::Count => is_of_events.then_some(Detail::Phases),
            Part::Retry | Part::Request(_) => Some(Detail::Phases),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_queues_of_events_the_counters_are_read_and_of_others_each_call() {
        let symbol = |key: &str, method| {
            format!("k8s.io/client-go/util/workqueue.(*defaultQueueMetrics[{key}]).{method}")
        };
        let event = "*k8s.io/kubernetes/pkg/controller/garbagecollector.event";
        for (key, calls, counters) in [
            (event, Detail::Idle, Some(Detail::Phases)),
            ("*k8s.io/kubernetes/pkg/controller/resourcequota.event", Detail::Idle, Some(Detail::Phases)),
            (
                "k8s.io/kubernetes/pkg/controller/tainteviction.podUpdateItem",
                Detail::Idle,
                Some(Detail::Phases),
            ),
            ("k8s.io/kubernetes/pkg/controller/nodelifecycle.podUpdateItem", Detail::Phases, None),
            ("*k8s.io/kubernetes/pkg/controller/garbagecollector.node", Detail::Phases, None),
            ("string", Detail::Phases, None),
        ] {
            for (function, method) in
                [(Function::Add, "add"), (Function::Get, "get"), (Function::Done, "done")]
            {
                assert_eq!(function.detail_in(&symbol(key, method)), Some(calls), "{key}");
            }
            assert_eq!(Function::Count.detail_in(&symbol(key, "updateUnfinishedWork")), counters, "{key}");
        }
        let one_for_all = "k8s.io/client-go/util/workqueue.(*defaultQueueMetrics).get";
        assert_eq!(Function::Get.detail_in(one_for_all), Some(Detail::Phases));
        assert_eq!(Function::Retry.detail_in(RETRY), Some(Detail::Phases));
    }
}
