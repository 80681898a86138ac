//! Spans out of requests, below that of their reconcile.

use ::spans::{
    Anchor, AttributeValue, Attributes, Link, Relation, Span, SpanKind, Status, Trace, TraceKind, attributes,
    identity::{self, LifecycleTrace},
    story::{Extras, Single, add_monotonic},
};
use tracecontext::RemoteContext;

use super::{About, Creator, Made, Object, Request};

/// The resource of Pods, and the Go type of a Pod.
const PODS: (&str, &str) = ("pods", "*v1.Pod");
/// What of a reconcile the Pods have that it created.
const ABOUT_CREATOR: [&str; 4] = [
    attributes::WORKQUEUE,
    attributes::WORKQUEUE_KEY,
    attributes::CONTROLLER,
    attributes::CONTROLLER_REQUEST,
];

/// Whether an object of this resource is a Pod.
pub(super) fn is_pod(resource: &str, object: &Object) -> bool {
    resource == PODS.0 && *object.typ == *PODS.1
}

/// The trace of a reconcile and of what it asked for. Beside it are the creations of Pods, in the traces of these.
#[must_use]
pub fn trace(reconcile: Single<'_>, made: &Made, anchor: Anchor, extras: Extras) -> Trace {
    let Made { requests, left_out, are_seen: _, creator, owner } = made;
    let [_, end_ns] = reconcile.times;
    let about = reconcile.attributes.iter().filter(|(key, _)| ABOUT_CREATOR.contains(key));
    let about: Attributes = about.cloned().collect();
    let mut trace = reconcile.trace(anchor, Extras { monotonic: false, ..extras });
    // The ids of spans follow from it, whosever trace they are in.
    let seed = trace.trace_id;
    trace.trace_id = extras.lifecycle.of(seed, owner.as_deref());
    let left_out = (*left_out > 0).then(|| vec![format!("requests: {left_out}")]);
    let list = left_out.map(|list| (attributes::LEFT_OUT, AttributeValue::Strings(list)));
    let root = &mut trace.spans[0];
    root.attributes.extend(list);
    root.links.extend(creator.iter().map(|Creator { maker, evidence }| Link {
        context: RemoteContext::sampled(maker.trace_id(extras.lifecycle), identity::span_id(&maker.id, 0)),
        relation: Relation::Creator(*evidence),
    }));
    let parent_id = root.span_id;
    for (number, request) in (1..).zip(requests) {
        let mut span = Span {
            kind: SpanKind::Request,
            span_id: identity::span_id(&seed, number),
            parent_id: Some(parent_id),
            name: request.title().into(),
            start_unix_ns: anchor.unix(request.start_ns),
            end_unix_ns: anchor.unix(request.end_ns.min(end_ns).max(request.start_ns)),
            attributes: request.attributes().into(),
            events: Vec::new(),
            links: Vec::new(),
            status: request.span_status(),
        };
        if let Some(object) = request.created().filter(|object| is_pod(request.about().resource, object)) {
            let creation = creation(request, object, &about, &trace, &span, extras.lifecycle);
            let context = RemoteContext::sampled(creation.trace_id, creation.root().span_id);
            span.links.push(Link { context, relation: Relation::Pod });
            trace.beside.push(creation);
        }
        trace.spans.push(span);
    }
    if extras.monotonic {
        add_monotonic(&mut trace, anchor);
        trace.beside.iter_mut().for_each(|part| add_monotonic(part, anchor));
    }
    trace
}

/// The creation of a Pod by a request of a reconcile, with this span, in the trace of the Pod's lifecycle.
fn creation(
    request: &Request,
    object: &Object,
    creator: &Attributes,
    reconcile: &Trace,
    span: &Span,
    lifecycle: LifecycleTrace,
) -> Trace {
    let Object { uid, name, owner, .. } = object;
    let kind = TraceKind::PodCreation;
    let trace_id = lifecycle.of(identity::lifecycle_id(uid), owner.as_deref());
    let mut list = Attributes::new();
    let namespace = request.about().namespace;
    list.extend((!namespace.is_empty()).then(|| (attributes::POD_NAMESPACE, namespace.into())));
    list.extend(name.as_deref().map(|name| (attributes::POD_NAME, name.into())));
    list.push((attributes::POD_UID, (&**uid).into()));
    list.extend(creator.iter().cloned());
    let creation = Span {
        kind: SpanKind::Root(kind),
        span_id: identity::creation_id(uid),
        parent_id: None,
        name: kind.name().into(),
        attributes: list,
        links: vec![Link {
            context: RemoteContext::sampled(reconcile.trace_id, span.span_id),
            relation: Relation::Request,
        }],
        ..span.clone()
    };
    Trace {
        kind,
        source: reconcile.source,
        trace_id,
        parent: Some(RemoteContext::sampled(trace_id, identity::lifecycle_root(uid))),
        selected: None,
        spans: vec![creation],
        names: None,
        beside: Vec::new(),
    }
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
        let about_pod = resource == PODS.0;
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
            (attributes::POD_NAME, if about_pod { name } else { "" }),
        ] {
            list.extend((!text.is_empty()).then(|| (key, text.into())));
        }
        if let Some(object @ Object { uid, version, .. }) = object {
            list.push((attributes::OBJECT_UID, (&**uid).into()));
            list.extend(is_pod(resource, object).then(|| (attributes::POD_UID, (&**uid).into())));
            list.extend(version.as_deref().map(|version| (attributes::OBJECT_VERSION, version.into())));
        }
        let wait_ms = AttributeValue::Double(*limited_ns as f64 / 1e6);
        list.push((attributes::REQUEST_LIMITED_MS, wait_ms));
        list.extend(incomplete.then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
        list
    }

    fn span_status(&self) -> Status {
        let error = self.error_type();
        error.map_or(Status::Unset, |error| match self.status {
            Some(_) => Status::Error(format!("HTTP status {error}")),
            None => Status::Error(error),
        })
    }
}
