//! Operators built on controller-runtime, described to `gotrace`: the reconciles of their controllers.
//!
//! [`table`]: what is probed. [`values`]: what is read. [`reconcile`]: which hits make up a reconcile. [`spans`]: its spans. The
//! requests of a reconcile are those of [`client_go::requests`].

#![forbid(unsafe_code)]

pub mod reconcile;
pub mod spans;
pub mod table;
pub mod values;

use client_go::requests;
use goexe::{Executable, Functions, Types};
use gotrace::{
    account::Counter,
    program::{Metric, Named, Program, SpelledOut},
    values::Datum,
};

use self::{
    reconcile::{Assembler, panicked_with},
    table::Function,
    values::Value,
};

type Event = gotrace::Event<ControllerRuntime>;
type Values = gotrace::Values<Value>;

/// Any process with controllers of controller-runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerRuntime;

impl Program for ControllerRuntime {
    const NAME: &'static str = "controller-runtime";
    const MARKERS: &'static [&'static str] = &[table::MARKER];
    const FILE_NAMES: &'static [&'static str] = &["controller", "operator", "manager"];
    const CALLERS: &'static [&'static str] = &table::CALLERS;
    // What a controller calls through its interface is the reconciler itself.
    const CALLS_INDIRECTLY: &'static str = "";
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

    fn keep(value: Value, text: String) -> Option<String> {
        requests::keep(value, text)
    }

    fn redact(values: &mut Values, replace: &mut dyn FnMut(&'static str, &mut String)) {
        for (value, datum) in values.iter_mut() {
            match (value, datum) {
                (Value::Controller, Datum::Text(name)) => replace("controller", name),
                (Value::Request, Datum::Texts(parts)) => {
                    parts.iter_mut().flatten().for_each(|part| replace("request", part));
                }
                (Value::Message, Datum::Text(text)) => match panicked_with(text) {
                    // What says that it is a panic stays.
                    Some(cause) => {
                        let mut cause = cause.to_owned();
                        replace("message", &mut cause);
                        *text = reconcile::panic_message(&cause);
                    }
                    None => replace("message", text),
                },
                (Value::StatusMessage, Datum::Text(text)) => replace("message", text),
                (
                    Value::Controller
                    | Value::Request
                    | Value::Requeue
                    | Value::RequeueAfter
                    | Value::Failed
                    | Value::Message
                    | Value::StatusMessage,
                    _,
                ) => {}
                (value @ client_go::of_request!(Value), datum) => requests::redact(value, datum, replace),
            }
        }
    }
}
