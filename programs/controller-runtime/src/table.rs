//! The functions that are probed: the method by which a controller calls its reconciler, and recovers its panics, and those of
//! [requests](client_go::requests::table).
//!
//! It is not generic in controller-runtime 0.15 to 0.18
//! (<https://github.com/kubernetes-sigs/controller-runtime/blob/v0.15.3/pkg/internal/controller/controller.go#L104-L124>), and has
//! the type of requests as its argument since 0.19
//! (<https://github.com/kubernetes-sigs/controller-runtime/blob/v0.19.0/pkg/internal/controller/controller.go#L101-L122>).

use client_go::requests::{self, Step};
use gotrace::plan::{self, Begin, End, Field, Interface, SeenAs, Signature};

use crate::values::Value;

type Row = plan::Row<Value>;
type Want = plan::Want<Value>;

const PACKAGE: &str = "sigs.k8s.io/controller-runtime/pkg/internal/controller";

macro_rules! reconcile {
    ($arguments:literal) => {
        concat!(
            "sigs.k8s.io/controller-runtime/pkg/internal/controller.(*Controller",
            $arguments,
            ").Reconcile"
        )
    };
}

/// Instantiations share code by the shape of the request: of the usual one, whose wrapper is never called, and of any other.
const PLAIN: &str = reconcile!("");
const OF_REQUESTS: &str = reconcile!("[go.shape.struct { k8s.io/apimachinery/pkg/types.NamespacedName }]");
const OF_OTHERS: &str = reconcile!("[go.shape...]");
/// The methods of a controller, of both generations, and what a client calls. Wrappers of shapes are never called.
pub(crate) const CALLERS: [&str; 3] = [
    "sigs.k8s.io/controller-runtime/pkg/internal/controller.(*Controller)",
    "sigs.k8s.io/controller-runtime/pkg/internal/controller.(*Controller[go.shape",
    requests::table::CALLERS,
];
/// What registers the metrics of controllers, whatever their requests are.
pub(crate) const MARKER: &str = "sigs.k8s.io/controller-runtime/pkg/internal/controller/metrics.init.0";

/// The type of controllers of the usual request.
const TYPED: &str = "Controller[sigs.k8s.io/controller-runtime/pkg/reconcile.Request]";
const OF_TYPED: &[&str] = &["*controller.Controller[sigs.k8s.io/controller-runtime/pkg/reconcile.Request]"];
/// What a controller calls.
const RECONCILER: Interface = Interface::In(Field(PACKAGE, TYPED, "Do"));
const RECONCILER_PLAIN: Interface = Interface::In(Field(PACKAGE, "Controller", "Do"));

const REQUEST: Want =
    Want { value: Value::Request, of: &["reconcile.Request"], path: &[], seen_as: SeenAs::Strings(&[]) };
const RESULT: &[&str] = &["reconcile.Result"];
const ERROR: &[&str] = &["error"];

/// The error of an answer of the API server:
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go#L36-L40>.
pub(crate) const STATUS_ERROR: &str = "*errors.StatusError";

const AT_END: &[Want] = &[
    Want::declared(Value::Requeue, RESULT, &["Requeue"]),
    Want::declared(Value::RequeueAfter, RESULT, &["RequeueAfter"]),
    Want::failure(Value::Failed),
    Want::message(Value::Message),
    Want {
        seen_as: SeenAs::MessageOf {
            of: ("k8s.io/apimachinery/pkg/api/errors", "StatusError"),
            types: &[STATUS_ERROR],
        },
        ..Want::declared(Value::StatusMessage, ERROR, &["ErrStatus", "Message"])
    },
];

const fn name(of: &'static [&'static str]) -> Want {
    Want::of_receiver(Value::Controller, of, &["Name"])
}

const ROW: Row = Row {
    symbols: &[OF_REQUESTS],
    signature: Signature::Method(RECONCILER, "Reconcile"),
    begin: Begin::Entry,
    at_entry: &[name(OF_TYPED), REQUEST],
    end: End::Return,
    at_end: AT_END,
    since: None,
    without: "reconciles that are not seen",
};

/// What a function is to a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The reconcile itself.
    Reconcile,
    /// Part of a request.
    Request(Step),
}

client_go::request_functions! {
    /// A probed function.
    pub enum Function: Part, Value;

    /// A controller calls its reconciler.
    Reconcile { detail: Phases, about: Part::Reconcile, rows: [
        ROW,
        Row {
            symbols: &[PLAIN],
            signature: Signature::Method(RECONCILER_PLAIN, "Reconcile"),
            at_entry: &[name(&["*controller.Controller"]), REQUEST],
            ..ROW
        },
        // The name is the first field, whatever the requests are, and the results are the same.
        Row {
            symbols: &[OF_OTHERS],
            signature: Signature::ResultsOf(RECONCILER, "Reconcile"),
            at_entry: &[name(OF_TYPED)],
            ..ROW
        },
    ] }
}
