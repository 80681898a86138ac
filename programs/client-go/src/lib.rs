//! The work queues of client-go, described to `gotrace`: those of kube-controller-manager, and of any other process.
//!
//! [`table`]: what is probed. [`values`]: what is read. [`reconcile`]: which calls make up a reconcile. [`requests`]: which API
//! requests it makes, also for other programs that are built on client-go. [`spans`]: its spans.

#![forbid(unsafe_code)]

pub mod reconcile;
pub mod requests;
pub mod spans;
pub mod table;
pub mod values;

use goexe::{Executable, Functions, Types};
use gotrace::{
    Detail,
    account::Counter,
    plan::Role,
    program::{Metric, Named, Program, SpelledOut},
    values::Datum,
};

use self::{reconcile::Assembler, table::Function, values::Value};

type Event = gotrace::Event<ClientGo>;
type Values = gotrace::Values<Value>;

/// Any process with work queues of client-go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientGo;

impl Program for ClientGo {
    const NAME: &'static str = "client-go";
    const MARKERS: &'static [&'static str] = &[table::RETRY];
    /// Some distributions have all components in one executable.
    const FILE_NAMES: &'static [&'static str] = &["controller", "operator", "k3s", "rke2", "k0s", "kubelite"];
    const CALLERS: &'static [&'static str] = &[requests::table::CALLERS];
    const CALLS_INDIRECTLY: &'static str = "k8s.io/client-go/util/workqueue";
    const METRIC: Option<Metric<Value>> = None;
    const QUIET: &'static [(Value, &'static [u64])] = &[];
    const SPELLED_OUT: SpelledOut = SpelledOut { interfaces: &[], structs: &[] };
    const COUNTERS: &'static [Counter] = &reconcile::COUNTERS;
    const TIMED: Option<Value> = Some(Value::Since);

    type Function = Function;
    type Value = Value;
    type Assembler = Assembler;

    fn names(_: &Executable<'_>, _: &Functions<'_>, _: &Types<'_>) -> Result<Vec<Named>, goexe::Error> {
        Ok(Vec::new())
    }

    fn detail_in(function: Function, _: Role, symbol: &str) -> Option<Detail> {
        function.detail_in(symbol)
    }

    fn keep(value: Value, text: String) -> Option<String> {
        requests::keep(value, text)
    }

    fn redact(values: &mut Values, replace: &mut dyn FnMut(&'static str, &mut String)) {
        for (value, datum) in values.iter_mut() {
            match (value, datum) {
                (Value::Key, Datum::Texts(parts)) => {
                    parts.iter_mut().flatten().for_each(|part| replace("key", part));
                }
                (
                    Value::Metrics | Value::Queue | Value::Key | Value::Word | Value::Added | Value::Handled,
                    _,
                ) => {}
                (value @ of_request!(Value), datum) => requests::redact(value, datum, replace),
            }
        }
    }
}
