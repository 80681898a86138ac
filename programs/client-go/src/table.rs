//! The functions that are probed: the calls by which a queue counts and times what it does.
//! <https://github.com/kubernetes/client-go/blob/v0.36.4/util/workqueue/metrics.go#L75-L143>

use gotrace::plan::{Begin, End, Held, Row as RowOf, SeenAs, Signature, Want as WantOf};

use crate::values::Value;

type Row = RowOf<Value>;
type Want = WantOf<Value>;

/// Package of the queues.
pub(crate) const WORKQUEUE: &str = "k8s.io/client-go/util/workqueue";
pub(crate) const RETRY: &str = "k8s.io/client-go/util/workqueue.(*defaultRetryMetrics).retry";

const METRICS: &[&str] = &["*workqueue.defaultQueueMetrics[...]"];
const RETRY_METRICS: &[&str] = &["*workqueue.defaultRetryMetrics"];
/// The only label of a queue's metrics, or the first: controller-runtime adds one of the same value.
/// <https://github.com/kubernetes/component-base/blob/v0.36.4/metrics/prometheus/workqueue/metrics.go>
const DEPTH_LABEL: &[&str] =
    &["depth", "(github.com/prometheus/client_golang/prometheus.gauge)", "labelPairs", "*", "Value", "*"];
const RETRIES_LABEL: &[&str] =
    &["retries", "(github.com/prometheus/client_golang/prometheus.counter)", "labelPairs", "*", "Value", "*"];

const ADDRESS: Want = of_receiver(Value::Metrics, METRICS, &[]);
const QUEUE: Want = of_receiver(Value::Queue, METRICS, DEPTH_LABEL);
const WORD: Want = Want { value: Value::Word, of: &[], path: &[], seen_as: SeenAs::Word };
const KEY: Want = Want { value: Value::Key, seen_as: SeenAs::Strings(&[Held("string", 1)]), ..WORD };
/// Up to 1.31 all keys are an `any`. Of these types a copy is done, so that the address says nothing.
const ANY_KEY: Want = Want {
    seen_as: SeenAs::Strings(&[
        Held("string", 1),
        Held("k8s.io/kubernetes/pkg/controller/tainteviction.nodeUpdateItem", 1),
        Held("k8s.io/kubernetes/pkg/controller/tainteviction.podUpdateItem", 3),
        Held("k8s.io/kubernetes/pkg/controller/nodelifecycle.podUpdateItem", 2),
    ]),
    ..KEY
};

const fn of_receiver(value: Value, of: &'static [&'static str], path: &'static [&'static str]) -> Want {
    Want { value, of, path, seen_as: SeenAs::Receiver }
}

/// A call that counts what a queue does.
const CALL: Row = Row {
    symbols: &[],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[],
    end: End::Unused,
    at_end: &[],
    since: None,
    without: "reconciles that are not seen",
};
const WITH_KEY: &[Want] = &[ADDRESS, QUEUE, WORD, KEY];
const WITH_ANY: &[Want] = &[ADDRESS, QUEUE, WORD, ANY_KEY];

/// Generic from 1.32 on. Where the key cannot be read, the reconcile counts all the same.
macro_rules! generic {
    ($method:literal) => {
        concat!("k8s.io/client-go/util/workqueue.(*defaultQueueMetrics[...]).", $method)
    };
}

/// Up to 1.31.
macro_rules! plain {
    ($method:literal) => {
        concat!("k8s.io/client-go/util/workqueue.(*defaultQueueMetrics).", $method)
    };
}

const fn of_generic(symbols: &'static [&'static str], at_entry: &'static [Want]) -> Row {
    Row { symbols, signature: Signature::TypeArguments, at_entry, ..CALL }
}

const fn of_any(symbols: &'static [&'static str], at_entry: &'static [Want]) -> Row {
    Row { symbols, signature: Signature::Declared(&["interface {}"]), at_entry, ..CALL }
}

gotrace::functions! {
    /// What a probed function is to a reconcile is its name.
    pub enum Function: (), Value;

    /// A key is added to the queue that is not in it; one that is being worked on enters it when that is done.
    Add { detail: Phases, about: (), rows: [
        of_generic(&[generic!("add")], WITH_KEY),
        of_any(&[plain!("add")], WITH_ANY),
        Row { symbols: &[generic!("add")], at_entry: &[ADDRESS, QUEUE], ..CALL },
    ] }
    /// A worker takes the key.
    Get { detail: Phases, about: (), rows: [
        of_generic(&[generic!("get")], WITH_KEY),
        of_any(&[plain!("get")], WITH_ANY),
        Row { symbols: &[generic!("get")], at_entry: &[ADDRESS, QUEUE], ..CALL },
    ] }
    /// The worker is through with it.
    Done { detail: Phases, about: (), rows: [
        of_generic(&[generic!("done")], &[ADDRESS, WORD, KEY]),
        of_any(&[plain!("done")], &[ADDRESS, WORD, ANY_KEY]),
        Row { symbols: &[generic!("done")], at_entry: &[ADDRESS], ..CALL },
    ] }
    /// A key is to be added later: after a failure, or because something is due then.
    Retry { detail: Phases, about: (), rows: [Row {
        symbols: &[RETRY],
        at_entry: &[
            of_receiver(Value::Metrics, RETRY_METRICS, &[]),
            of_receiver(Value::Queue, RETRY_METRICS, RETRIES_LABEL),
        ],
        ..CALL
    }] }
}
