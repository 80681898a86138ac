//! kube-apiserver, described to `gotrace`: who asked for each Pod, and how long its admission, webhooks and storage took.
//!
//! [`table`]: what is probed. [`values`]: what is read. [`storage`]: which hits make up the creation of a Pod. [`spans`]: its spans.

#![forbid(unsafe_code)]

pub mod spans;
pub mod storage;
pub mod table;
pub mod values;

use goexe::{Executable, Functions, Types};
use gotrace::{
    account::Counter,
    program::{Metric, Named, Program, SpelledOut},
    values::Datum,
};

use self::{storage::Assembler, table::Function, values::Value};

type Event = gotrace::Event<KubeApiserver>;
type Values = gotrace::Values<Value>;

/// The API server, by itself or in an executable with other components.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KubeApiserver;

impl Program for KubeApiserver {
    const NAME: &'static str = "kube-apiserver";
    const MARKERS: &'static [&'static str] = &[table::MARKER];
    const FILE_NAMES: &'static [&'static str] = &["kube-apiserver", "k3s", "kubelite", "microshift"];
    const CALLERS: &'static [&'static str] = &table::CALLERS;
    const CALLS_INDIRECTLY: &'static str = "";
    const METRIC: Option<Metric<Value>> = None;
    const QUIET: &'static [(Value, &'static [u64])] =
        &[(Value::ResourceLength, &table::OTHER_LENGTHS), (Value::Created, &[0])];
    const SPELLED_OUT: SpelledOut = SpelledOut { interfaces: &[], structs: &[] };
    const COUNTERS: &'static [Counter] = &storage::COUNTERS;

    type Function = Function;
    type Value = Value;
    type Assembler = Assembler;

    fn names(_: &Executable<'_>, _: &Functions<'_>, _: &Types<'_>) -> Result<Vec<Named>, goexe::Error> {
        Ok(Vec::new())
    }

    fn redact(values: &mut Values, replace: &mut dyn FnMut(&'static str, &mut String)) {
        for (value, datum) in values.iter_mut() {
            let Datum::Text(text) = datum else { continue };
            match value {
                // What says that it is a Pod stays.
                Value::Key => {
                    let kinds = ["resource", "namespace", "pod"].into_iter().chain(std::iter::repeat("name"));
                    let mut parts: Vec<_> = text.split('/').map(str::to_owned).collect();
                    for (kind, part) in kinds.zip(parts.iter_mut().filter(|part| !part.is_empty())) {
                        if kind != "resource" || part != storage::PODS {
                            replace(kind, part);
                        }
                    }
                    *text = parts.join("/");
                }
                Value::Resource if text == storage::PODS => {}
                Value::Resource => replace("resource", text),
                Value::User => replace("user", text),
                Value::Manager => replace("manager", text),
                Value::Webhook => replace("webhook", text),
                Value::ObjectUid | Value::OwnerUid => replace("uid", text),
                Value::Namespace => replace("namespace", text),
                Value::Name => replace("pod", text),
                Value::ResourceLength
                | Value::RequestType
                | Value::Operation
                | Value::SubresourceLength
                | Value::StepLength
                | Value::Elapsed
                | Value::Rejected
                | Value::Code
                | Value::Parent
                | Value::ObjectType
                | Value::VersionLength
                | Value::Created
                | Value::Failed => {}
            }
        }
    }
}
