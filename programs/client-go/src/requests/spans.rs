//! Spans out of requests, below that of their reconcile, or of what they did to a Pod.

use ::spans::{
    Anchor, AttributeValue, Attributes, Evidence, Link, Origin, Relation, Source, Span, SpanKind, Status,
    Story, Trace, TraceKind, attributes,
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
pub fn trace(reconcile: Single, made: &Made, anchor: Anchor, extras: Extras) -> Trace {
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
        let mut span = request.span(anchor, identity::span_id(&seed, number), end_ns);
        span.parent_id = Some(parent_id);
        if let Some(done) = Done::by(request, &span, extras.lifecycle) {
            let part = done.trace(&about, trace.source, trace.trace_id, &span);
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

/// What a process with reconciles has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finished<R> {
    /// A reconcile is over.
    Reconcile(R),
    /// A request of no reconcile deleted or evicted a Pod.
    Removal(Box<Removal>),
}

impl<R> Finished<R> {
    /// The reconcile, if it is one.
    #[must_use]
    pub const fn reconcile(&self) -> Option<&R> {
        match self {
            Self::Reconcile(reconcile) => Some(reconcile),
            Self::Removal(_) => None,
        }
    }
}

impl<R: Story> Story for Finished<R> {
    fn pod_uid(&self) -> Option<&str> {
        match self {
            Self::Reconcile(reconcile) => reconcile.pod_uid(),
            // No context is needed: the trace follows from the UID.
            Self::Removal(_) => None,
        }
    }

    fn trace(&self, anchor: Anchor, origin: Origin, extras: Extras) -> Trace {
        match self {
            Self::Reconcile(reconcile) => reconcile.trace(anchor, origin, extras),
            Self::Removal(removal) => removal.trace(anchor, extras),
        }
    }

    fn is_idle(&self) -> bool {
        match self {
            Self::Reconcile(reconcile) => reconcile.is_idle(),
            Self::Removal(_) => false,
        }
    }
}

/// A request that deleted or evicted a Pod, and that is of no reconcile, or of one that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Which process.
    pub target: u32,
    /// What it did.
    pub kind: TraceKind,
    /// To which Pod.
    pub removed: Removed,
    /// The request.
    pub request: Request,
}

impl Removal {
    /// Its trace is a part of the Pod's, with the request below it. Where an owner's Pods share a trace, and it is not known whether this
    /// one has an owner, it is as if it had none: nothing else shows the request.
    fn trace(&self, anchor: Anchor, extras: Extras) -> Trace {
        let Self { target, kind, removed, request } = self;
        let About { namespace, name, .. } = request.about();
        let seed = Single::id(*kind, &[namespace, name], *target, request.start_ns);
        let mut span = request.span(anchor, identity::span_id(&seed, 0), request.end_ns);
        let done = Done::removal(*kind, removed, request, &span, extras.lifecycle);
        let source = Source::OtherProgram(*target);
        let mut trace = done.trace(&Attributes::new(), source, done.trace_id, &span);
        span.parent_id = Some(trace.root().span_id);
        trace.spans.push(span);
        if extras.monotonic {
            add_monotonic(&mut trace, anchor);
        }
        trace
    }
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
        let About { namespace, .. } = request.about();
        if let Some(Object { uid, name, owner, .. }) = request.created().filter(|_| request.is_of_pod()) {
            return Some(Self {
                kind: TraceKind::PodCreation,
                namespace,
                name: name.as_deref().unwrap_or_default(),
                uid,
                evidence: Evidence::Uid,
                trace_id: lifecycle.of(identity::lifecycle_id(uid), owner.as_deref()),
                span_id: identity::creation_id(uid),
            });
        }
        let removed = request.removed.as_ref()?;
        let is_known = removed.owner != Owner::Unknown || lifecycle == LifecycleTrace::Pod;
        let kind = request.removes().filter(|_| is_known)?;
        Some(Self::removal(kind, removed, request, span, lifecycle))
    }

    /// The removal of a Pod. One of which no owner is known has none.
    fn removal(
        kind: TraceKind,
        removed: &'a Removed,
        request: &'a Request,
        span: &Span,
        lifecycle: LifecycleTrace,
    ) -> Self {
        let About { namespace, name, .. } = request.about();
        let Removed { uid, evidence, owner } = removed;
        let owner = match owner {
            Owner::Known(owner) => owner.as_deref(),
            Owner::Unknown => None,
        };
        Self {
            kind,
            namespace,
            name,
            uid,
            evidence: *evidence,
            trace_id: lifecycle.of(identity::lifecycle_id(uid), owner),
            span_id: identity::removal_id(uid, span.span_id),
        }
    }

    /// As a part of the trace of the Pod's lifecycle. `about` says which reconcile did it, and `by` is the trace with the request.
    fn trace(&self, about: &Attributes, source: Source, by: [u8; 16], request: &Span) -> Trace {
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
                context: RemoteContext::sampled(by, request.span_id),
                relation: Relation::Request(evidence),
            }],
            ..request.clone()
        };
        Trace {
            kind,
            source,
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
    /// Its span, without a parent. It ends with what it is part of.
    fn span(&self, anchor: Anchor, span_id: [u8; 8], end_ns: u64) -> Span {
        Span {
            kind: SpanKind::Request,
            span_id,
            parent_id: None,
            name: self.title().into(),
            start_unix_ns: anchor.unix(self.start_ns),
            end_unix_ns: anchor.unix(self.end_ns.min(end_ns).max(self.start_ns)),
            attributes: self.attributes().into(),
            events: Vec::new(),
            links: Vec::new(),
            status: self.span_status(),
        }
    }

    /// Name of its span: as few as there are kinds of requests.
    fn title(&self) -> String {
        let About { resource, subresource, .. } = self.about();
        let method = self.method.as_deref().unwrap_or("request");
        let slash = if subresource.is_empty() { "" } else { "/" };
        format!("{method} {resource}{slash}{subresource}").trim_end().to_owned()
    }

    fn attributes(&self) -> Vec<(&'static str, AttributeValue)> {
        let Self { method, limited_ns, attempts, status, object, .. } = self;
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
