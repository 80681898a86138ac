//! Spans out of requests, below that of their reconcile.

use ::spans::{
    Anchor, AttributeValue, Span, SpanKind, Status, Trace, attributes, identity,
    story::{Extras, Single, add_monotonic},
};

use super::{About, Made, Object, Request};

/// The resource of Pods, and the Go type of a Pod.
const PODS: (&str, &str) = ("pods", "*v1.Pod");

/// The trace of a reconcile and of what it asked for.
#[must_use]
pub fn trace(reconcile: Single<'_>, made: &Made, anchor: Anchor, extras: Extras) -> Trace {
    let Made { requests, left_out } = made;
    let [_, end_ns] = reconcile.times;
    let mut trace = reconcile.trace(anchor, Extras { monotonic: false, ..extras });
    let left_out = (*left_out > 0).then(|| vec![format!("requests: {left_out}")]);
    let list = left_out.map(|list| (attributes::LEFT_OUT, AttributeValue::Strings(list)));
    trace.spans[0].attributes.extend(list);
    let (trace_id, parent_id) = (trace.trace_id, trace.root().span_id);
    trace.spans.extend((1..).zip(requests).map(|(number, request)| Span {
        kind: SpanKind::Request,
        span_id: identity::span_id(&trace_id, number),
        parent_id: Some(parent_id),
        name: request.title().into(),
        start_unix_ns: anchor.unix(request.start_ns),
        end_unix_ns: anchor.unix(request.end_ns.min(end_ns).max(request.start_ns)),
        attributes: request.attributes().into(),
        events: Vec::new(),
        links: Vec::new(),
        status: request.span_status(),
    }));
    if extras.monotonic {
        add_monotonic(&mut trace, anchor);
    }
    trace
}

impl Request {
    /// Name of its span: as few as there are kinds of requests.
    fn title(&self) -> String {
        let About { resource, subresource, .. } = self.about();
        let method = self.method.as_deref().unwrap_or("request");
        let slash = if subresource.is_empty() { "" } else { "/" };
        format!("{method} {resource}{slash}{subresource}").trim_end().to_owned()
    }

    fn attributes(&self) -> Vec<(&'static str, AttributeValue)> {
        let Self { method, limited_ns, attempts, status, object, incomplete, .. } = self;
        let About { api, namespace, resource, name, subresource } = self.about();
        let is_pod = resource == PODS.0;
        let mut list = Vec::new();
        list.extend(method.as_deref().map(|method| (attributes::HTTP_METHOD, method.into())));
        list.extend(status.map(|status| (attributes::HTTP_STATUS, status.into())));
        list.extend(self.error_type().map(|error| (attributes::ERROR_TYPE, (&*error).into())));
        // The first is none.
        let again = attempts.saturating_sub(1);
        list.extend((again > 0).then(|| (attributes::HTTP_RESEND_COUNT, again.into())));
        let came_back = object.as_ref().and_then(|object| object.name.as_deref());
        let name = if name.is_empty() { came_back.unwrap_or_default() } else { name };
        for (key, text) in [
            (attributes::REQUEST_API, &*api),
            (attributes::REQUEST_RESOURCE, resource),
            (attributes::REQUEST_SUBRESOURCE, subresource),
            (attributes::POD_NAMESPACE, namespace),
            (attributes::OBJECT_NAME, name),
            (attributes::POD_NAME, if is_pod { name } else { "" }),
        ] {
            list.extend((!text.is_empty()).then(|| (key, text.into())));
        }
        if let Some(Object { typ, uid, version, .. }) = object {
            list.push((attributes::OBJECT_UID, (&**uid).into()));
            list.extend((is_pod && **typ == *PODS.1).then(|| (attributes::POD_UID, (&**uid).into())));
            list.extend(version.as_deref().map(|version| (attributes::OBJECT_VERSION, version.into())));
        }
        let wait_ms = AttributeValue::Double(*limited_ns as f64 / 1e6);
        list.push((attributes::REQUEST_LIMITED_MS, wait_ms));
        list.extend(incomplete.then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
        list
    }

    /// The status of an answer that is an error; else the error of a request without one.
    fn error_type(&self) -> Option<String> {
        match self.status {
            Some(status) => (status >= 400).then(|| status.to_string()),
            None => self.error.clone(),
        }
    }

    fn span_status(&self) -> Status {
        let error = self.error_type();
        error.map_or(Status::Unset, |error| match self.status {
            Some(_) => Status::Error(format!("HTTP status {error}")),
            None => Status::Error(error),
        })
    }
}
