//! Spans out of starts. Pure.
//!
//! The trace is that of the Pod's lifecycle, and the root is below the root of that: both ids follow from the Pod's UID, so that no
//! daemon has to tell another. The ids of the other spans follow from the start as well: a Pod may have several, one after the
//! other, when the kubelet is restarted.

#[cfg(test)]
mod tests;

use ::spans::{
    Anchor, AttributeValue, Event, NodeStep, Origin, Source, Span, SpanKind, Status, Story, Trace, TraceKind,
    attributes, identity,
    story::{Extras, add_monotonic},
    text::Name,
};
use tracecontext::RemoteContext;

use crate::start::{Call, End, Start};

type Attributes = Vec<(&'static str, AttributeValue)>;

/// `SyncPodType`, as the kubelet's own spans name them:
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/types/pod_update.go#L115-L142>.
const SYNC_TYPES: [&str; 4] = ["sync", "update", "create", "kill"];
/// `probeType`: <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/prober/prober_manager.go#L149-L155>.
const PROBE_TYPES: [&str; 3] = ["liveness", "readiness", "startup"];

impl End {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Rejected => "Rejected",
            Self::Deleted => "Deleted",
            Self::Unfinished => "Unfinished",
            Self::Lost => "Lost",
        }
    }

    /// Whether the Pod was to run, and did not.
    const fn is_failure(self) -> bool {
        match self {
            Self::Failed | Self::Rejected | Self::Unfinished => true,
            Self::Ready | Self::Succeeded | Self::Deleted | Self::Lost => false,
        }
    }
}

impl Story for Start {
    fn pod_uid(&self) -> Option<&str> {
        // No context is needed: the trace follows from the UID.
        None
    }

    fn trace(&self, anchor: Anchor, _: Origin, extras: Extras) -> Trace {
        let Self { target, uid, owner, start_ns, end_ns, .. } = self;
        let kind = TraceKind::PodStart;
        let trace_id = extras.lifecycle.of(identity::lifecycle_id(uid), owner.as_deref());
        let lifecycle = identity::lifecycle_root(uid);
        let seed = identity::trace_id(&[kind.name(), uid].join("/"), *start_ns, *target);
        let id = |number: usize| identity::span_id(&seed, number as u64);
        let last_ns = self.calls.iter().filter_map(|call| call.end_ns).fold(*end_ns, u64::max);
        let root = Span {
            kind: SpanKind::Root(kind),
            span_id: id(0),
            parent_id: None,
            name: kind.name().into(),
            start_unix_ns: anchor.unix(*start_ns),
            end_unix_ns: anchor.unix(last_ns),
            attributes: self.attributes().into(),
            events: self.ready(anchor),
            links: Vec::new(),
            status: self.status(),
        };
        let call = |(place, call): (usize, &Call)| Span {
            kind: SpanKind::Node(call.step),
            span_id: id(place + 1),
            parent_id: Some(id(call.parent.map_or(0, |parent| parent + 1))),
            name: call.name(),
            start_unix_ns: anchor.unix(call.start_ns),
            end_unix_ns: anchor.unix(call.end_ns.unwrap_or(last_ns).max(call.start_ns)),
            attributes: self.attributes_of(place, call).into(),
            events: Vec::new(),
            links: Vec::new(),
            status: call.status(),
        };
        let spans = [root].into_iter().chain(self.calls.iter().enumerate().map(call)).collect();
        let context = RemoteContext::sampled(trace_id, lifecycle);
        let (source, parent, beside) = (Source::OtherProgram(*target), Some(context), Vec::new());
        let mut trace = Trace { kind, source, trace_id, parent, selected: None, names: None, spans, beside };
        if extras.monotonic {
            add_monotonic(&mut trace, anchor);
        }
        trace
    }
}

impl Start {
    fn attributes(&self) -> Attributes {
        let Self { uid, name, namespace, end, left_out, incomplete, .. } = self;
        let mut list = Attributes::new();
        list.extend(namespace.as_deref().map(|namespace| (attributes::POD_NAMESPACE, namespace.into())));
        list.extend(name.as_deref().map(|name| (attributes::POD_NAME, name.into())));
        list.push((attributes::POD_UID, uid.into()));
        list.push((attributes::LIFECYCLE_RESULT, AttributeValue::String(end.name().into())));
        let left_out = (*left_out > 0).then(|| vec![format!("calls: {left_out}")]);
        list.extend(left_out.map(|list| (attributes::LEFT_OUT, AttributeValue::Strings(list))));
        list.extend(incomplete.then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
        list
    }

    fn ready(&self, anchor: Anchor) -> Vec<Event> {
        let unix_ns = anchor.unix(self.end_ns);
        let event =
            (self.end == End::Ready).then_some(Event { name: "ready", unix_ns, attributes: Vec::new() });
        event.into_iter().collect()
    }

    fn status(&self) -> Status {
        let rejected = self.calls.iter().find(|call| call.step == NodeStep::Admission);
        let reason = rejected.and_then(|call| call.failure.clone()).filter(|reason| !reason.is_empty());
        if self.end.is_failure() {
            Status::Error(reason.unwrap_or_else(|| self.end.name().to_owned()))
        } else {
            Status::Unset
        }
    }

    fn attributes_of(&self, place: usize, call: &Call) -> Attributes {
        let Call { step, container, image, id, number, result, end_ns, .. } = call;
        let text = |key, text: &Option<String>| text.as_deref().map(|text| (key, text.into()));
        let named = |key, names: &[&'static str], number: usize| {
            names.get(number).map(|name| (key, AttributeValue::String((*name).into())))
        };
        let number = number.and_then(|number| usize::try_from(number).ok());
        let mut list = Attributes::new();
        list.extend(text(attributes::CONTAINER, container));
        list.extend(text(attributes::IMAGE, image));
        let is_sandbox = *step == NodeStep::RunPodSandbox;
        list.extend(text(if is_sandbox { attributes::SANDBOX_ID } else { attributes::CONTAINER_ID }, id));
        match step {
            NodeStep::Sync => {
                list.extend(number.and_then(|number| named(attributes::UPDATE_TYPE, &SYNC_TYPES, number)));
            }
            NodeStep::Sandbox => {
                list.extend(number.map(|number| (attributes::SANDBOX_ATTEMPT, (number as u64).into())));
            }
            NodeStep::Container | NodeStep::InitContainer => {
                list.push((
                    attributes::CONTAINER_RESTARTS,
                    self.starts_before(place, container.as_deref()).into(),
                ));
            }
            NodeStep::Image => {
                let is_pull = |pull: &Call| pull.step == NodeStep::PullImage && pull.parent == Some(place);
                let is_pulled = self.calls.iter().any(is_pull);
                list.push((attributes::IMAGE_PULLED, AttributeValue::Bool(is_pulled)));
            }
            NodeStep::Probe => {
                list.extend(number.and_then(|number| named(attributes::PROBE_TYPE, &PROBE_TYPES, number)));
                // <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/prober/results/results_manager.go#L45-L54>
                let result = result.map(|result| match result {
                    0 => "success",
                    1 => "failure",
                    _ => "unknown",
                });
                list.extend(
                    result.map(|result| (attributes::PROBE_RESULT, AttributeValue::String(result.into()))),
                );
            }
            NodeStep::Admission
            | NodeStep::Volumes
            | NodeStep::RunPodSandbox
            | NodeStep::PullImage
            | NodeStep::CreateContainer
            | NodeStep::StartContainer => {}
        }
        if let Some(service) = step.service() {
            for (key, value) in [
                (attributes::RPC_SYSTEM, "grpc"),
                (attributes::RPC_SERVICE, service),
                (attributes::RPC_METHOD, step.name()),
            ] {
                list.push((key, AttributeValue::String(value.into())));
            }
        }
        list.extend(end_ns.is_none().then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
        list
    }

    /// How often the runtime had started this container before.
    fn starts_before(&self, place: usize, container: Option<&str>) -> u64 {
        let is_start = |call: &&Call| call.step == NodeStep::StartContainer && call.failure.is_none();
        let of_it = |call: &&Call| call.container.as_deref() == container && call.end_ns.is_some();
        self.calls[..place].iter().filter(is_start).filter(of_it).count() as u64
    }
}

impl Call {
    fn name(&self) -> Name {
        let Self { step, container, .. } = self;
        let Some(container) = container.as_deref().filter(|_| self.is_container()) else {
            return step.name().into();
        };
        let first = if *step == NodeStep::InitContainer { "init: " } else { "container: " };
        Name::new(first, container.to_owned())
    }

    fn status(&self) -> Status {
        match &self.failure {
            Some(message) if message.is_empty() => Status::Error("failed".to_owned()),
            Some(message) => Status::Error(message.clone()),
            None => Status::Unset,
        }
    }
}
