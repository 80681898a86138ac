//! Spans out of requests, below that of their reconcile.

use ::spans::{
    Anchor, AttributeValue, Attributes, Evidence, Link, Relation, Span, SpanKind, Status, Trace, TraceKind,
    attributes,
    identity::{self, LifecycleTrace},
    story::{Extras, Single, add_monotonic},
};
use tracecontext::RemoteContext;

use super::{About, Made, Object, Owner, Removed, Request, Writer};

/// What of a reconcile the Pods have that it created, deleted or evicted.
const ABOUT_RECONCILE: [&str; 4] = [
    attributes::WORKQUEUE,
    attributes::WORKQUEUE_KEY,
    attributes::CONTROLLER,
    attributes::CONTROLLER_REQUEST,
];

/// The trace of a reconcile and of what it asked for. Beside it is what it did to Pods, in the traces of these.
#[must_use]
pub fn trace(reconcile: Single<'_>, made: &Made, anchor: Anchor, extras: Extras) -> Trace {
    let Made { requests, left_out, are_seen: _, creator, writer, owner } = made;
    let [_, end_ns] = reconcile.times;
    let about = reconcile.attributes.iter().filter(|(key, _)| ABOUT_RECONCILE.contains(key));
    let about: Attributes = about.cloned().collect();
    let mut trace = reconcile.trace(anchor, Extras { monotonic: false, ..extras });
    // The ids of spans follow from it, whosever trace they are in.
    let seed = trace.trace_id;
    trace.trace_id = extras.lifecycle.of(seed, owner.as_deref());
    let left_out = (*left_out > 0).then(|| vec![format!("requests: {left_out}")]);
    let list = left_out.map(|list| (attributes::LEFT_OUT, AttributeValue::Strings(list)));
    let root = &mut trace.spans[0];
    root.attributes.extend(list);
    let linked = |Writer { maker, evidence }: &Writer, relation: fn(Evidence) -> Relation| Link {
        context: RemoteContext::sampled(maker.trace_id(extras.lifecycle), identity::span_id(&maker.id, 0)),
        relation: relation(*evidence),
    };
    root.links.extend(creator.iter().map(|creator| linked(creator, Relation::Creator)));
    root.links.extend(writer.iter().map(|writer| linked(writer, Relation::Writer)));
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
        if let Some(done) = Done::by(request, &span, extras.lifecycle) {
            let part = done.trace(&about, &trace, &span);
            let context = RemoteContext::sampled(part.trace_id, part.root().span_id);
            span.links.push(Link { context, relation: Relation::Pod(done.evidence) });
            trace.beside.push(part);
        }
        trace.spans.push(span);
    }
    if extras.monotonic {
        add_monotonic(&mut trace, anchor);
        trace.beside.iter_mut().for_each(|part| add_monotonic(part, anchor));
    }
    trace
}

/// What a request did to a Pod.
struct Done<'a> {
    kind: TraceKind,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    evidence: Evidence,
    trace_id: [u8; 16],
    span_id: [u8; 8],
}

impl<'a> Done<'a> {
    /// By a request with this span; `None` if it did nothing to a Pod, or if it is not known which trace that Pod is in.
    fn by(request: &'a Request, span: &Span, lifecycle: LifecycleTrace) -> Option<Self> {
        let About { namespace, name, .. } = request.about();
        let trace_id = |uid, owner: Option<&str>| lifecycle.of(identity::lifecycle_id(uid), owner);
        if let Some(Object { uid, name, owner, .. }) = request.created().filter(|_| request.is_of_pod()) {
            return Some(Self {
                kind: TraceKind::PodCreation,
                namespace,
                name: name.as_deref().unwrap_or_default(),
                uid,
                evidence: Evidence::Uid,
                trace_id: trace_id(uid, owner.as_deref()),
                span_id: identity::creation_id(uid),
            });
        }
        let Removed { uid, evidence, owner } = request.removed.as_ref()?;
        let owner = match (owner, lifecycle) {
            (Owner::Known(owner), _) => owner.as_deref(),
            (Owner::Unknown, LifecycleTrace::Pod) => None,
            (Owner::Unknown, LifecycleTrace::Owner) => return None,
        };
        Some(Self {
            kind: request.removes()?,
            namespace,
            name,
            uid,
            evidence: *evidence,
            trace_id: trace_id(uid, owner),
            span_id: identity::removal_id(uid, span.span_id),
        })
    }

    /// As a part of the trace of the Pod's lifecycle. `about` says which reconcile did it.
    fn trace(&self, about: &Attributes, reconcile: &Trace, request: &Span) -> Trace {
        let Self { kind, namespace, name, uid, evidence, trace_id, span_id } = *self;
        let mut list = Attributes::new();
        for (key, text) in
            [(attributes::POD_NAMESPACE, namespace), (attributes::POD_NAME, name), (attributes::POD_UID, uid)]
        {
            list.extend((!text.is_empty()).then(|| (key, text.into())));
        }
        list.extend(about.iter().cloned());
        let root = Span {
            kind: SpanKind::Root(kind),
            span_id,
            parent_id: None,
            name: kind.name().into(),
            attributes: list,
            links: vec![Link {
                context: RemoteContext::sampled(reconcile.trace_id, request.span_id),
                relation: Relation::Request(evidence),
            }],
            ..request.clone()
        };
        Trace {
            kind,
            source: reconcile.source,
            trace_id,
            parent: Some(RemoteContext::sampled(trace_id, identity::lifecycle_root(uid))),
            selected: None,
            spans: vec![root],
            names: None,
            beside: Vec::new(),
        }
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
        let about_pod = resource == "pods";
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
        if let Some(Object { uid, version, .. }) = object {
            list.push((attributes::OBJECT_UID, (&**uid).into()));
            list.extend(self.is_of_pod().then(|| (attributes::POD_UID, (&**uid).into())));
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
