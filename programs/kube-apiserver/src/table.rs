//! The functions that are probed: where the API server takes the times of its admission, the call that stores a new object, and the end
//! of a patch, which may be a server-side apply that created one.
//!
//! Nothing of this runs for a request that only reads. An update has two hits, of its admission, and a patch a third one. Both are stored by
//! `GuaranteedUpdate`, which leases and statuses use all the time, and which is not probed.
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/admission/metrics/metrics.go#L278-L297>,
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/storage/etcd3/store.go#L274>,
//! <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/patch.go#L258>

use gotrace::plan::{self, Begin, End, Field, Interface, SeenAs, Signature};

use crate::values::Value;

type Row = plan::Row<Value>;
type Want = plan::Want<Value>;

/// Makes the storage of Pods. Other API servers have the functions below, and no Pods.
pub(crate) const MARKER: &str = "k8s.io/kubernetes/pkg/registry/core/pod/storage.NewStorage";
/// Lengths below 32, which a site can compare, that are not that of `pods`: the strings of these resources are not read. Most
/// writes are of `leases`, `events`, `nodes` and the like.
pub(crate) const OTHER_LENGTHS: [u64; 31] = {
    let mut lengths = [0; 31];
    let mut place = 0;
    while place < lengths.len() {
        lengths[place] = if place < POD_LENGTH as usize { place as u64 } else { place as u64 + 1 };
        place += 1;
    }
    lengths
};
/// Length of `pods`.
pub(crate) const POD_LENGTH: u64 = 4;

/// Packages in which the handler of a patch is: it may be inlined into what installs it.
pub(crate) const CALLERS: [&str; 2] =
    ["k8s.io/apiserver/pkg/endpoints/handlers", "k8s.io/apiserver/pkg/endpoints"];

const METRICS: &str = "k8s.io/apiserver/pkg/admission/metrics";
const CONTEXT: &str = "context.Context";
const STRING: &[&str] = &["string"];
/// What describes a request to admission, and the struct that is in it.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/admission/attributes.go#L31-L50>
const REQUEST: &[&str] = &["admission.Attributes"];
const RECORD: (&str, &str) = ("k8s.io/apiserver/pkg/admission", "attributesRecord");
const OBJECT: &[&str] = &["runtime.Object"];
/// All objects that are described by a struct begin with its two fields.
/// <https://github.com/kubernetes/apimachinery/blob/v0.36.4/pkg/apis/meta/v1/types.go#L1521-L1529>
const META: (&str, &str) = ("k8s.io/apimachinery/pkg/apis/meta/v1", "PartialObjectMetadata");

/// A field of the request, if it is described by the usual struct.
const fn of_request(value: Value, path: &'static [&'static str]) -> Want {
    Want { value, of: REQUEST, path, seen_as: SeenAs::Like(RECORD.0, RECORD.1) }
}

/// A field of the object to store, if that is described by a struct.
const fn of_object(value: Value, path: &'static [&'static str]) -> Want {
    Want { value, of: OBJECT, path, seen_as: SeenAs::Like(META.0, META.1) }
}

/// Comes first: it decides whether strings are read.
const RESOURCE_LENGTH: Want = Want {
    value: Value::ResourceLength,
    of: REQUEST,
    path: &["resource", "Resource", "#"],
    seen_as: SeenAs::PointerTo(RECORD.0, RECORD.1),
};
const REQUEST_TYPE: Want = Want {
    value: Value::RequestType,
    of: REQUEST,
    path: &[],
    seen_as: SeenAs::NameOfLike(RECORD.0, RECORD.1),
};
const OPERATION: Want = of_request(Value::Operation, &["operation"]);
const RESOURCE: Want = of_request(Value::Resource, &["resource", "Resource"]);
const SUBRESOURCE_LENGTH: Want = of_request(Value::SubresourceLength, &["subresource", "#"]);
const USER: Want =
    of_request(Value::User, &["userInfo", "(k8s.io/apiserver/pkg/authentication/user.DefaultInfo)", "Name"]);
/// The goroutine that started this one.
const PARENT: Want =
    Want { value: Value::Parent, of: &[], path: &["parentGoid"], seen_as: SeenAs::Goroutine };
/// The object's type, if that is described by a struct.
const OBJECT_TYPE: Want =
    Want { value: Value::ObjectType, of: OBJECT, path: &[], seen_as: SeenAs::NameOfLike(META.0, META.1) };
const ELAPSED: Want = Want::declared(Value::Elapsed, &["time.Duration"], &[]);
const REJECTED: Want = Want::declared(Value::Rejected, &["bool"], &[]);

/// What a function is to the creation of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A step of admission is over.
    Step,
    /// A webhook has answered.
    Webhook,
    /// The object is stored.
    Store,
    /// A patch is over.
    Patch,
}

const OBSERVE: Row = Row {
    symbols: &["k8s.io/apiserver/pkg/admission/metrics.(*AdmissionMetrics).ObserveAdmissionStep"],
    signature: Signature::Closure(Field(METRICS, "pluginHandlerWithMetrics", "observer")),
    begin: Begin::Entry,
    at_entry: &[
        RESOURCE_LENGTH,
        REQUEST_TYPE,
        OPERATION,
        RESOURCE,
        USER,
        SUBRESOURCE_LENGTH,
        Want::declared(Value::StepLength, STRING, &["#"]),
        ELAPSED,
        REJECTED,
        PARENT,
    ],
    end: End::Unused,
    at_end: &[],
    since: None,
    without: "no spans of admission, and Pods without the user who asked",
};

gotrace::functions! {
    /// A probed function of the API server.
    pub enum Function: Part, Value;

    /// A step of admission, of which this takes the time: the mutation, or the validation.
    Step { detail: Phases, about: Part::Step, rows: [OBSERVE] }
    /// The call of a webhook, of which this takes the time. Several validate side by side, each on a goroutine of its own.
    Webhook { detail: Phases, about: Part::Webhook, rows: [Row {
        symbols: &["k8s.io/apiserver/pkg/admission/metrics.(*AdmissionMetrics).ObserveWebhook"],
        signature: Signature::Declared(&[
            CONTEXT,
            "string",
            "time.Duration",
            "bool",
            "k8s.io/apiserver/pkg/admission.Attributes",
            "string",
            "int",
        ]),
        at_entry: &[
            RESOURCE_LENGTH,
            REQUEST_TYPE,
            OPERATION,
            RESOURCE,
            SUBRESOURCE_LENGTH,
            Want::declared(Value::Webhook, STRING, &[]),
            ELAPSED,
            REJECTED,
            Want::declared(Value::Code, &["int"], &[]),
            PARENT,
        ],
        without: "no spans of webhooks",
        ..OBSERVE
    }] }
    /// A new object is written to etcd. Its encoding, and the decoding of the answer, are part of it.
    Store { detail: Phases, about: Part::Store, rows: [Row {
        symbols: &["k8s.io/apiserver/pkg/storage/etcd3.(*store).Create"],
        signature: Signature::Method(Interface::Named(&["k8s.io/apiserver/pkg/storage"], "Interface"), "Create"),
        begin: Begin::Entry,
        at_entry: &[
            Want::of_receiver(Value::ResourceLength, &["*etcd3.store"], &["groupResource", "Resource", "#"]),
            Want::declared(Value::Key, STRING, &[]),
            OBJECT_TYPE,
            of_object(Value::ObjectUid, &["UID"]),
            of_object(Value::OwnerUid, &["OwnerReferences", "*", "UID"]),
            of_object(Value::Manager, &["ManagedFields", "*", "Manager"]),
        ],
        // Next to what it does, a `ret` is nothing; and an object may be stored past the watch cache, as events are.
        end: End::Return,
        at_end: &[Want::failure(Value::Failed)],
        since: None,
        without: "no creations of Pods",
    }] }
    /// A patch is over, on the goroutine that started the one with its admission. A server-side apply may have created its object, which then is
    /// the result. A site has room for four strings: the client is not among them.
    Patch { detail: Phases, about: Part::Patch, rows: [Row {
        symbols: &["k8s.io/apiserver/pkg/endpoints/handlers.(*patcher).patchResource"],
        signature: Signature::DeclaredWith(
            &[CONTEXT, "*k8s.io/apiserver/pkg/endpoints/handlers.RequestScope"],
            &["k8s.io/apimachinery/pkg/runtime.Object", "bool", "error"],
        ),
        begin: Begin::Unused,
        at_entry: &[],
        end: End::Return,
        at_end: &[
            // Comes first: it decides whether strings are read.
            Want::declared(Value::Created, &["bool"], &[]),
            OBJECT_TYPE,
            of_object(Value::VersionLength, &["ResourceVersion", "#"]),
            of_object(Value::ObjectUid, &["UID"]),
            of_object(Value::Namespace, &["Namespace"]),
            of_object(Value::Name, &["Name"]),
            of_object(Value::OwnerUid, &["OwnerReferences", "*", "UID"]),
        ],
        since: None,
        without: "no Pods by server-side apply",
    }] }
}
