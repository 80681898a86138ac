//! The functions that are probed: the calls by which a queue counts and times what it does, and those of
//! [requests](crate::requests::table).
//! <https://github.com/kubernetes/client-go/blob/v0.36.4/util/workqueue/metrics.go#L75-L143>

use gotrace::plan::{self, Begin, End, Held, SeenAs, Signature};

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
    /// Part of a request.
    Request(Step),
}

crate::request_functions! {
    /// A probed function. Where the key cannot be read, the reconcile counts all the same.
    pub enum Function: Part, Value;

    /// A key is added to the queue that is not in it; one that is being worked on enters it when that is done.
    Add { detail: Phases, about: Part::Add, rows: [
        row(metrics!("[...]).add"), GENERIC, &[ADDRESS, QUEUE, WORD, KEY]),
        row(metrics!(").add"), PLAIN, &[ADDRESS, QUEUE, WORD, ANY_KEY]),
        row(metrics!("[...]).add"), Signature::Unused, &[ADDRESS, QUEUE]),
    ] }
    /// A worker takes the key.
    Get { detail: Phases, about: Part::Get, rows: [
        row(metrics!("[...]).get"), GENERIC, &[ADDRESS, QUEUE, WORD, KEY]),
        row(metrics!(").get"), PLAIN, &[ADDRESS, QUEUE, WORD, ANY_KEY]),
        row(metrics!("[...]).get"), Signature::Unused, &[ADDRESS, QUEUE]),
    ] }
    /// The worker is through with it.
    Done { detail: Phases, about: Part::Done, rows: [
        row(metrics!("[...]).done"), GENERIC, &[ADDRESS, WORD, KEY]),
        row(metrics!(").done"), PLAIN, &[ADDRESS, WORD, ANY_KEY]),
        row(metrics!("[...]).done"), Signature::Unused, &[ADDRESS]),
    ] }
    /// A key is to be added later: after a failure, or because something is due then.
    Retry { detail: Phases, about: Part::Retry, rows: [row(&[RETRY], Signature::Unused, &[
        Want::of_receiver(Value::Metrics, RETRY_METRICS, &[]),
        Want::of_receiver(Value::Queue, RETRY_METRICS, RETRIES_LABEL),
    ])] }
}
