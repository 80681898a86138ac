//! The kubelet, described to `gotrace`: what it does from the moment at which a Pod is assigned to its node until that is Ready.
//!
//! [`table`]: what is probed. [`values`]: what is read. [`start`]: which calls make up the start of a Pod. [`spans`]: its spans.

#![forbid(unsafe_code)]

pub mod spans;
pub mod start;
pub mod table;
pub mod values;

use goexe::{Executable, Functions, Types};
use gotrace::{
    account::Counter,
    program::{Metric, Named, Program, SpelledOut},
    values::Datum,
};

use self::{start::Assembler, table::Function, values::Value};

type Event = gotrace::Event<Kubelet>;
type Values = gotrace::Values<Value>;

/// The kubelet, by itself or in an executable with other components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kubelet;

impl Program for Kubelet {
    const NAME: &'static str = "kubelet";
    const MARKERS: &'static [&'static str] = &[table::SYNC];
    const FILE_NAMES: &'static [&'static str] = &["kubelet", "k3s", "rke2", "k0s", "kubelite"];
    const CALLERS: &'static [&'static str] = &[];
    const CALLS_INDIRECTLY: &'static str = "k8s.io/kubernetes/pkg/kubelet";
    const METRIC: Option<Metric<Value>> = None;
    const QUIET: &'static [(Value, &'static [u64])] = &[(Value::Failed, &[0])];
    const SPELLED_OUT: SpelledOut = SpelledOut { interfaces: &[], structs: &[] };
    const COUNTERS: &'static [Counter] = &start::COUNTERS;

    type Function = Function;
    type Value = Value;
    type Assembler = Assembler;

    fn names(_: &Executable<'_>, _: &Functions<'_>, _: &Types<'_>) -> Result<Vec<Named>, goexe::Error> {
        Ok(Vec::new())
    }

    fn redact(values: &mut Values, replace: &mut dyn FnMut(&'static str, &mut String)) {
        for (value, datum) in values.iter_mut() {
            let (Some(kind), Datum::Text(text)) = (named(value), datum) else { continue };
            // What is before the name says which kind of container it is.
            let parts = text.strip_suffix('}').and_then(|text| text.split_once('{'));
            match parts.filter(|_| value == Value::FieldPath) {
                Some((before, name)) => {
                    let mut name = name.to_owned();
                    replace(kind, &mut name);
                    *text = format!("{before}{{{name}}}");
                }
                None => replace(kind, text),
            }
        }
    }
}

/// Which kind of object a value names, if that is a user's.
fn named(value: Value) -> Option<&'static str> {
    match value {
        Value::PodUid | Value::OwnerUid => Some("uid"),
        Value::PodName => Some("pod"),
        Value::PodNamespace => Some("namespace"),
        Value::FieldPath | Value::Container => Some("container"),
        Value::Image => Some("image"),
        Value::Message | Value::Reason => Some("message"),
        Value::SyncType
        | Value::Attempt
        | Value::Id
        | Value::ProbeType
        | Value::ProbeResult
        | Value::Admitted
        | Value::Failed
        | Value::Phase
        | Value::Conditions
        | Value::ContainerAt
        | Value::InitContainersAt
        | Value::ContainersAt
        | Value::EphemeralContainersAt
        | Value::ThirdType
        | Value::ThirdStatus
        | Value::FourthType
        | Value::FourthStatus
        | Value::FifthType
        | Value::FifthStatus => None,
    }
}
