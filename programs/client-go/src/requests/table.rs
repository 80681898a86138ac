//! The functions of the client that are probed, and what is read there, for the tables of all programs that are built on it.
//!
//! A request is two hits, both of them emulated: when an attempt has been answered, where its client still has the time at which the request
//! began, and when the answer has been decoded, or is only asked for an error
//! (<https://github.com/kubernetes/client-go/blob/v0.36.4/rest/request.go#L1030-L1126>). A rate limiter that makes it wait is one more.

use gotrace::plan::{Begin, End, Interface, Row, SeenAs, Signature, Want};

/// The package whose calls of its own functions are searched.
pub const CALLERS: &str = "k8s.io/client-go/rest";

const RESPONSE: &[&str] = &["*http.Response"];
const OBJECT: &[&str] = &["runtime.Object"];
/// The type of the errors of Go's HTTP client.
pub(crate) const URL_ERROR: &str = "*url.Error";
/// All objects that are described by a struct begin with its two fields.
/// <https://github.com/kubernetes/apimachinery/blob/v0.36.4/pkg/apis/meta/v1/types.go#L1521-L1529>
const LIKE: (&str, &str) = ("k8s.io/apimachinery/pkg/apis/meta/v1", "PartialObjectMetadata");

/// A rate limiter makes a goroutine wait, for so long: not one that has a token.
/// <https://github.com/golang/time/blob/v0.14.0/rate/rate.go#L240-L290>
#[must_use]
pub const fn limit<V>(at_entry: &'static [Want<V>]) -> Row<V> {
    Row {
        symbols: &["golang.org/x/time/rate.(*Limiter).WaitN.func1"],
        signature: Signature::Declared(&["time.Duration"]),
        begin: Begin::Entry,
        at_entry,
        end: End::Unused,
        at_end: &[],
        since: None,
        without: "waits for rate limiters",
    }
}

/// The request was sent, and answered or not. Watches and streams have no start.
#[must_use]
pub const fn attempt<V>(at_entry: &'static [Want<V>]) -> Row<V> {
    Row {
        symbols: &["k8s.io/client-go/rest.(*withRetry).After"],
        signature: Signature::Method(Interface::Named(&[CALLERS], "WithRetry"), "After"),
        begin: Begin::EntrySince("k8s.io/client-go/rest.(*Request).request", "time.Now"),
        at_entry,
        end: End::Unused,
        at_end: &[],
        since: None,
        without: "no spans of requests",
    }
}

/// The answer was decoded.
#[must_use]
pub const fn answer<V>(at_end: &'static [Want<V>]) -> Row<V> {
    let decoder = Interface::Named(&["k8s.io/apimachinery/pkg/runtime"], "Decoder");
    Row {
        symbols: &["k8s.io/client-go/rest.Result.Into"],
        signature: Signature::Unused,
        begin: Begin::Unused,
        at_entry: &[],
        end: End::AfterCall(decoder, "Decode"),
        at_end,
        since: None,
        without: "requests without the UID of the object that came back",
    }
}

/// The answer is asked for an error, and not decoded: that to a deletion, for example
/// (<https://github.com/kubernetes/client-go/blob/v0.36.4/gentype/type.go#L250-L259>).
#[must_use]
pub const fn check<V>(at_entry: &'static [Want<V>]) -> Row<V> {
    Row {
        symbols: &["k8s.io/client-go/rest.Result.Error"],
        signature: Signature::Declared(&["k8s.io/client-go/rest.Result"]),
        begin: Begin::Entry,
        at_entry,
        end: End::Unused,
        at_end: &[],
        since: None,
        without: "deletions without the UID of the object",
    }
}

/// A field of the object that came back.
#[must_use]
pub const fn of_object<V>(value: V, path: &'static [&'static str]) -> Want<V> {
    Want { value, of: OBJECT, path, seen_as: SeenAs::Like(LIKE.0, LIKE.1) }
}

/// Its type.
#[must_use]
pub const fn type_of_object<V>(value: V) -> Want<V> {
    Want { value, of: OBJECT, path: &[], seen_as: SeenAs::NameOfLike(LIKE.0, LIKE.1) }
}

/// The path of the URL that was answered.
#[must_use]
pub const fn path<V>(value: V) -> Want<V> {
    Want::declared(value, RESPONSE, &["Request", "URL", "Path"])
}

/// Of a request without an answer its URL; else the type of the error.
/// <https://github.com/golang/go/blob/go1.26.5/src/net/url/url.go#L27-L32>
#[must_use]
pub const fn failed_url<V>(value: V) -> Want<V> {
    let seen_as = SeenAs::MessageOf { of: ("net/url", "Error"), types: &[URL_ERROR] };
    Want { value, of: &["error"], path: &["URL"], seen_as }
}

/// The goroutine that started this one.
#[must_use]
pub const fn parent<V>(value: V) -> Want<V> {
    Want { value, of: &[], path: &["parentGoid"], seen_as: SeenAs::Goroutine }
}

/// Declares a program's values, and those of requests. As [`gotrace::values!`].
#[macro_export]
macro_rules! request_values {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $name:ident;
        $($own:tt)*
    ) => {
        gotrace::values! {
            $(#[$attribute])*
            $vis enum $name;

            $($own)*
            /// When what a hit is the end of has begun: a request, or the wait of a key.
            Since: Number,
            /// The goroutine that started the one that the request is on.
            RequestParent: Number,
            /// How long a rate limiter makes it wait, nanoseconds.
            RequestLimited: Number,
            /// 1 if it was not answered.
            RequestFailed: Number,
            /// The URL of one that was not answered, or the type of the error.
            RequestError: Text,
            /// Its HTTP method.
            RequestMethod: Text,
            /// The path of its URL, if it was answered.
            RequestPath: Text,
            /// HTTP status of the answer: 0 if there was none.
            RequestStatus: Number,
            /// Type of the object that came back.
            ObjectType: Name,
            /// Its UID.
            ObjectUid: Text,
            /// Its name.
            ObjectName: Text,
            /// Its resource version.
            ObjectVersion: Text,
            /// UID of its first owner.
            ObjectOwner: Text,
            /// UID and resource version of the object in an answer that is not decoded: of its beginning, all that is kept.
            AnswerObject: Text,
        }

        impl $crate::requests::Slots for $name {
            const SINCE: Self = Self::Since;
            const PARENT: Self = Self::RequestParent;
            const LIMITED: Self = Self::RequestLimited;
            const FAILED: Self = Self::RequestFailed;
            const ERROR: Self = Self::RequestError;
            const METHOD: Self = Self::RequestMethod;
            const PATH: Self = Self::RequestPath;
            const STATUS: Self = Self::RequestStatus;
            const OBJECT_TYPE: Self = Self::ObjectType;
            const OBJECT_UID: Self = Self::ObjectUid;
            const OBJECT_NAME: Self = Self::ObjectName;
            const OBJECT_VERSION: Self = Self::ObjectVersion;
            const OBJECT_OWNER: Self = Self::ObjectOwner;
            const BODY: Self = Self::AnswerObject;
        }
    };
}

/// The values of requests as a pattern, for a `match` on a program's values.
#[macro_export]
macro_rules! of_request {
    ($value:ident) => {
        $value::Since
            | $value::RequestParent
            | $value::RequestLimited
            | $value::RequestFailed
            | $value::RequestError
            | $value::RequestMethod
            | $value::RequestPath
            | $value::RequestStatus
            | $value::ObjectType
            | $value::ObjectUid
            | $value::ObjectName
            | $value::ObjectVersion
            | $value::ObjectOwner
            | $value::AnswerObject
    };
}

/// Declares a program's functions, and those of requests. As [`gotrace::functions!`], where `about` is an enum with a variant
/// `Request` of a [`Step`](crate::requests::Step), and values are those of [`request_values!`](crate::request_values).
#[macro_export]
macro_rules! request_functions {
    (
        $(#[$attribute:meta])*
        $vis:vis enum $name:ident: $about:ident, $value:ident;
        $($own:tt)*
    ) => {
        gotrace::functions! {
            $(#[$attribute])*
            $vis enum $name: $about, $value;

            $($own)*
            /// A rate limiter makes a request wait.
            Limit { detail: Phases, about: $about::Request($crate::requests::Step::Limit), rows: [
                $crate::requests::table::limit(&[
                    gotrace::plan::Want::declared($value::RequestLimited, &["time.Duration"], &[]),
                ]),
            ] }
            /// A request was sent, and answered or not.
            Attempt { detail: Phases, about: $about::Request($crate::requests::Step::Attempt), rows: [
                $crate::requests::table::attempt(&[
                    gotrace::plan::Want::failure($value::RequestFailed),
                    $crate::requests::table::failed_url($value::RequestError),
                    gotrace::plan::Want::declared($value::RequestStatus, &["*http.Response"], &["StatusCode"]),
                    gotrace::plan::Want::declared($value::RequestMethod, &["*rest.Request"], &["verb"]),
                    $crate::requests::table::path($value::RequestPath),
                    $crate::requests::table::parent($value::RequestParent),
                ]),
            ] }
            /// The object in the answer was decoded.
            Answer { detail: Phases, about: $about::Request($crate::requests::Step::Answer), rows: [
                $crate::requests::table::answer(&[
                    $crate::requests::table::type_of_object($value::ObjectType),
                    $crate::requests::table::of_object($value::ObjectUid, &["UID"]),
                    $crate::requests::table::of_object($value::ObjectName, &["Name"]),
                    $crate::requests::table::of_object($value::ObjectVersion, &["ResourceVersion"]),
                    $crate::requests::table::of_object($value::ObjectOwner, &["OwnerReferences", "*", "UID"]),
                ]),
            ] }
            /// The answer is asked for an error, and not decoded.
            Check { detail: Phases, about: $about::Request($crate::requests::Step::Check), rows: [
                $crate::requests::table::check(&[
                    gotrace::plan::Want::declared($value::AnswerObject, &["rest.Result"], &["body"]),
                ]),
            ] }
        }
    };
}
