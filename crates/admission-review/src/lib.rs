//! The answer to a review of the API server. Pure: headers and bytes in, the answer out.
//!
//! Of the object only the annotations of a context are read; the rest is skipped while parsing.

#![forbid(unsafe_code)]

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::HeaderMap;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Value, json};
use tracecontext::{
    RemoteContext,
    annotations::{TRACEPARENT_KEY, TRACESTATE_KEY},
    traceparent, tracestate,
};

/// The only version of reviews that there is since Kubernetes 1.22.
const VERSION: (&str, &str) = ("admission.k8s.io/v1", "AdmissionReview");
/// Objects that get a context: group, kind, and the path to the template of their Pods.
const KINDS: [(&str, &str, &[&str]); 7] = [
    ("", "Pod", &[]),
    ("apps", "DaemonSet", &["template"]),
    ("apps", "Deployment", &["template"]),
    ("apps", "ReplicaSet", &["template"]),
    ("apps", "StatefulSet", &["template"]),
    ("batch", "CronJob", &["jobTemplate", "template"]),
    ("batch", "Job", &["template"]),
];
/// Only creations: a changed template of a Deployment is a roll-out.
const OPERATION: &str = "CREATE";

telemetry::labels! {
    /// The result of a review.
    pub Verdict {
        /// The object got the context of the request.
        Injected = "injected",
        /// The object carries a context already, which stays.
        Present = "present",
        /// The request carries no context.
        NoContext = "no_context",
        /// The request's context is not sampled.
        NotSampled = "not_sampled",
        /// The request's context is not valid.
        InvalidContext = "invalid_context",
        /// The review is not about the creation of a Pod or a workload.
        NotConcerned = "not_concerned",
        /// The review is malformed.
        InvalidReview = "invalid_review",
    }
}

/// Why a review was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It is not JSON, or of another structure.
    #[error("not a review: {0}; send an AdmissionReview of admission.k8s.io/v1")]
    Json(#[from] serde_json::Error),
    /// It is not text.
    #[error("not a review: {0}; send an AdmissionReview of admission.k8s.io/v1")]
    NotUtf8(#[from] std::str::Utf8Error),
    /// It has another version or kind.
    #[error("`{1}` of `{0}` is not served; send an AdmissionReview of admission.k8s.io/v1")]
    Version(String, String),
    /// It asks nothing.
    #[error("the review has no request; send one with a uid and an object")]
    NoRequest,
    /// The answer could not be matched to it.
    #[error("the request has no uid; send the one that the answer must carry")]
    NoUid,
}

/// The context of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Context {
    /// To be injected.
    Wanted(RemoteContext),
    /// Not to be injected, and why.
    Unwanted(Verdict),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    kind: Kind<'a>,
    #[serde(borrow, default)]
    sub_resource: Option<Cow<'a, str>>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    object: Option<Object>,
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow, default)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

/// An object, or a template.
#[derive(Deserialize)]
struct Object {
    metadata: Option<Metadata>,
    spec: Option<Box<Spec>>,
}

#[derive(Deserialize)]
struct Metadata {
    annotations: Option<Annotations>,
}

/// The keys are [`TRACEPARENT_KEY`]'s and [`TRACESTATE_KEY`]'s.
#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "tracing.k8s.io/traceparent")]
    traceparent: Option<IgnoredAny>,
    #[serde(rename = "tracing.k8s.io/tracestate")]
    tracestate: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    template: Option<Object>,
    job_template: Option<Object>,
}

/// A step of a JSON patch: <https://www.rfc-editor.org/rfc/rfc6902>.
#[derive(Serialize)]
struct Step {
    op: &'static str,
    path: String,
    value: Value,
}

/// Answers a review. Returns the response and the verdict. Every object is admitted.
///
/// # Errors
///
/// When it is not a review, or lacks a UID.
pub fn answer(review: &[u8], context: &Context) -> Result<(String, Verdict), Refused> {
    // Skipped parts are not checked for UTF-8 otherwise.
    let review = str::from_utf8(review)?;
    let Review { api_version, kind, request } = serde_json::from_str(review)?;
    if (&*api_version, &*kind) != VERSION {
        return Err(Refused::Version(api_version.into_owned(), kind.into_owned()));
    }
    let request = request.ok_or(Refused::NoRequest)?;
    if request.uid.is_empty() {
        return Err(Refused::NoUid);
    }
    let (patch, verdict) = match admit(&request, context) {
        Ok(patch) => (Some(BASE64_STANDARD.encode(json!(patch).to_string())), Verdict::Injected),
        Err(verdict) => (None, verdict),
    };
    let mut response = json!({ "uid": request.uid, "allowed": true });
    if let Some(patch) = patch {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = patch.into();
    }
    let answer = json!({ "apiVersion": VERSION.0, "kind": VERSION.1, "response": response });
    Ok((answer.to_string(), verdict))
}

/// The context in the headers of a request, which is wanted if it is sampled, or if `unsampled` ones are too:
/// <https://www.w3.org/TR/trace-context-2/#trace-context-http-headers-format>.
#[must_use]
pub fn context(headers: &HeaderMap, unsampled: bool) -> Context {
    let mut parents = headers.get_all("traceparent").iter();
    let Some(parent) = parents.next() else { return Context::Unwanted(Verdict::NoContext) };
    // Two headers are ambiguous.
    let valid =
        parent.to_str().ok().filter(|_| parents.next().is_none()).and_then(|parent| traceparent(parent).ok());
    let Some(context) = valid else { return Context::Unwanted(Verdict::InvalidContext) };
    if context.flags & 1 == 0 && !unsampled {
        return Context::Unwanted(Verdict::NotSampled);
    }
    let states = headers.get_all("tracestate").iter();
    let states: Option<Vec<_>> = states.map(|state| state.to_str().ok()).collect();
    // A context is valid without `tracestate`.
    let trace_state = states.and_then(|states| tracestate(&states.join(",")).ok()).unwrap_or_default();
    Context::Wanted(RemoteContext { trace_state, ..context })
}

/// The patch, or the verdict without one.
fn admit(request: &Request<'_>, context: &Context) -> Result<Vec<Step>, Verdict> {
    let Request { uid: _, kind, sub_resource, operation, object } = request;
    let way = KINDS.iter().find(|(group, name, _)| (*group, *name) == (&*kind.group, &*kind.kind));
    let of_its_own = sub_resource.as_ref().is_none_or(|resource| resource.is_empty());
    let (Some((_, _, way)), Some(object), true, OPERATION) = (way, object, of_its_own, &**operation) else {
        return Err(Verdict::NotConcerned);
    };
    let (mut object, mut path) = (object, String::new());
    for step in *way {
        let spec = object.spec.as_ref().ok_or(Verdict::NotConcerned)?;
        let next = if *step == "template" { &spec.template } else { &spec.job_template };
        object = next.as_ref().ok_or(Verdict::NotConcerned)?;
        path = format!("{path}/spec/{step}");
    }
    let annotations = object.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    if annotations.is_some_and(|known| known.traceparent.is_some() || known.tracestate.is_some()) {
        return Err(Verdict::Present);
    }
    let context = match context {
        Context::Wanted(context) => context,
        Context::Unwanted(verdict) => return Err(*verdict),
    };
    let state = Some(&context.trace_state).filter(|state| !state.is_empty());
    let wanted = [(TRACEPARENT_KEY, context.traceparent())]
        .into_iter()
        .chain(state.map(|state| (TRACESTATE_KEY, state.clone())));
    let add = |path, value| Step { op: "add", path, value };
    // A patch can add only to existing objects.
    Ok(match (&object.metadata, annotations) {
        (None, _) => {
            let annotations: Value = wanted.collect();
            vec![add(format!("{path}/metadata"), json!({ "annotations": annotations }))]
        }
        (Some(_), None) => vec![add(format!("{path}/metadata/annotations"), wanted.collect())],
        (Some(_), Some(_)) => {
            let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
            let one = |(key, value): (&str, String)| {
                add(format!("{path}/metadata/annotations/{}", escaped(key)), value.into())
            };
            wanted.map(one).collect()
        }
    })
}

#[cfg(test)]
mod tests;
