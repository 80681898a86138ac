//! The spans of a lifecycle. Pure.
//!
//! The API's times are whole seconds. The latest possible moment is taken of each: the end of its second, or the moment at
//! which it was seen if that is earlier. Skewed times are clamped between their cause and the end of the Pod, and the span has
//! an attribute for it.

use spans::{
    AttributeValue, Event, Link, Origin, Relation, Source, Span, SpanKind, Stage, Status, Trace, TraceKind,
    attributes,
    identity::{LifecycleTrace, lifecycle_id, span_id},
    text::Text,
};
use telemetry::Label as _;
use tracecontext::RemoteContext;

use super::{
    attempt::Attempt,
    progress::{About, Container, ContainerKind, Happened, Listed, Progress, When},
};
use crate::LifecycleEnd as End;

const SECOND_NS: u64 = 1_000_000_000;

type Attributes = Vec<(&'static str, AttributeValue)>;

/// A moment of a span.
#[derive(Clone, Copy, Debug)]
struct Moment {
    ns: u64,
    /// How much earlier it may have been, in nanoseconds.
    uncertain_ns: u64,
    /// Whether the API says another time.
    moved: bool,
}

/// A moment that is known exactly.
fn exactly(ns: u64) -> Moment {
    Moment { ns, uncertain_ns: 0, moved: false }
}

/// Places a time that cannot be before `floor` nor after `ceiling`.
fn place(when: When, floor: u64, ceiling: u64) -> Moment {
    let When { said_s, seen_ns } = when;
    let ceiling = ceiling.max(floor);
    let Some(said_s) = said_s else { return exactly(seen_ns.clamp(floor, ceiling)) };
    let earliest = said_s.saturating_mul(SECOND_NS);
    let latest = earliest.saturating_add(SECOND_NS - 1);
    // A time after the moment at which it was seen comes from a clock that is ahead.
    let ns = latest.min(seen_ns).clamp(floor, ceiling);
    let moved = ns < earliest || ns > latest;
    let uncertain_ns = if moved { 0 } else { ns - earliest.max(floor).min(ns) };
    Moment { ns, uncertain_ns, moved }
}

/// Makes the trace of a complete lifecycle; `None` if the Pod or its end was not seen.
#[must_use]
pub(super) fn build(uid: &str, progress: &Progress, origin: Origin, of: LifecycleTrace) -> Option<Trace> {
    let (end, ended) = progress.end?;
    let mut trace = until(uid, progress, origin, Some(end), ended)?;
    // The trace of a parent is the parent's business.
    if trace.parent.is_none() {
        let owner = progress.about.as_ref().and_then(|about| about.shape.owner_uid.as_deref());
        trace.trace_id = of.of(trace.trace_id, owner);
    }
    Some(trace)
}

/// The same of a Pod that may go on: until now.
#[must_use]
pub(super) fn so_far(uid: &str, progress: &Progress, now_ns: u64) -> Option<Trace> {
    let now = When { said_s: None, seen_ns: now_ns };
    let (end, ended) = progress.end.map_or((None, now), |(end, ended)| (Some(end), ended));
    until(uid, progress, Origin::default(), end, ended)
}

/// The trace of a Pod that ended at this moment, or goes on.
fn until(uid: &str, progress: &Progress, origin: Origin, end: Option<End>, ended: When) -> Option<Trace> {
    let about = progress.about.as_ref()?;
    let Origin { mut causes, parent, attributes: of_origin, selected } = origin;
    let seed = lifecycle_id(uid);
    let remote = (parent && !causes.is_empty()).then(|| causes.remove(0).context);
    let trace_id = remote.as_ref().map_or(seed, |remote| remote.trace_id);

    let attempts = &progress.attempts;
    let first =
        attempts.iter().map(|first| first.queued_ns.unwrap_or(first.start_ns).min(first.start_ns)).min();
    let created = place(about.created, 0, first.unwrap_or(u64::MAX));
    let floor = progress.binding().and_then(|attempt| attempt.bound_ns).unwrap_or(created.ns).max(created.ns);
    let ready = place(ended, floor, u64::MAX);
    // The scheduler's work after the binding may outlast a quick start.
    let over = attempts.iter().map(|attempt| attempt.end_ns).fold(ready.ns, u64::max);

    let mut tree = Tree { seed, spans: Vec::new(), end: over };
    let mut list = about_attributes(uid, about, progress, end);
    list.extend(of_origin);
    let kind = TraceKind::Lifecycle;
    tree.add(None, SpanKind::Root(kind), kind.name().into(), created, Moment { ns: over, ..ready }, list);
    let root = &mut tree.spans[0];
    root.links = causes;
    if end == Some(End::Failed) {
        root.status =
            Status::Error(if progress.reason.is_empty() { "Failed".into() } else { progress.reason.clone() });
    }
    queues(&mut tree, about, progress, created);
    let bound = bound(progress, created);
    if let Some(bound) = bound {
        node(&mut tree, progress, bound, ready, end);
    }
    tree.spans[1..].sort_by_key(|span| (span.start_unix_ns, span.parent_id != Some(span_id(&seed, 0))));
    Some(Trace {
        kind,
        source: Source::Schedspan,
        trace_id,
        parent: remote,
        selected,
        spans: tree.spans,
        names: None,
        beside: Vec::new(),
    })
}

/// When the Pod was bound.
fn bound(progress: &Progress, created: Moment) -> Option<Moment> {
    let seen = progress.binding().and_then(|attempt| attempt.bound_ns).map(exactly);
    seen.or_else(|| {
        Some(place(progress.scheduled.filter(|_| progress.node.is_some())?, created.ns, u64::MAX))
    })
}

/// The spans, the root first.
struct Tree {
    seed: [u8; 16],
    spans: Vec<Span>,
    /// End of the root: nothing is later.
    end: u64,
}

impl Tree {
    /// Adds a stage that has no name of its own. Returns the span's number.
    fn stage(&mut self, parent: usize, stage: Stage, start: Moment, end: Moment, list: Attributes) -> usize {
        self.add(Some(parent), SpanKind::Stage(stage), stage.name().into(), start, end, list)
    }

    /// Returns the span's number.
    fn add(
        &mut self,
        parent: Option<usize>,
        kind: SpanKind,
        name: Text,
        start: Moment,
        end: Moment,
        mut list: Attributes,
    ) -> usize {
        let number = self.spans.len();
        let (from, to) = match parent {
            None => (start.ns, self.end),
            Some(parent) => (self.spans[parent].start_unix_ns, self.spans[parent].end_unix_ns),
        };
        let (from, to) = (from.min(to), to.max(from));
        let start_ns = start.ns.clamp(from, to);
        let end_ns = end.ns.clamp(start_ns, to);
        let uncertain_ns = start.uncertain_ns.max(end.uncertain_ns);
        if uncertain_ns > 0 {
            list.push((attributes::TIME_UNCERTAIN_MS, AttributeValue::Double(uncertain_ns as f64 / 1e6)));
        }
        if start.moved || end.moved || start_ns != start.ns || end_ns != end.ns {
            list.push((attributes::TIME_MOVED, AttributeValue::Bool(true)));
        }
        self.spans.push(Span {
            kind,
            span_id: span_id(&self.seed, number as u64),
            parent_id: parent.map(|parent| self.spans[parent].span_id),
            name: name.into(),
            start_unix_ns: start_ns,
            end_unix_ns: end_ns,
            attributes: list.into(),
            events: Vec::new(),
            links: Vec::new(),
            status: Status::Unset,
        });
        number
    }
}

/// From the creation to the last attempt.
fn queues(tree: &mut Tree, about: &About, progress: &Progress, created: Moment) {
    let mut since = created;
    if !about.shape.gates.first.is_empty() {
        let ungated = progress.ungated_ns.map(|ns| exactly(ns.max(created.ns)));
        let gates = AttributeValue::Strings(about.shape.gates.first.clone());
        let mut list = vec![(attributes::GATES, gates)];
        list.extend(ungated.is_none().then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
        since = ungated.unwrap_or_else(|| exactly(tree.end));
        // The scheduler may see the removal earlier than this daemon.
        let first = progress.attempts.iter().map(|attempt| attempt.start_ns).min();
        since.ns = first.map_or(since.ns, |first| since.ns.min(first)).max(created.ns);
        tree.stage(0, Stage::Gated, created, since, list);
    }
    for attempt in &progress.attempts {
        let Attempt { root, start_ns, end_ns, attributes, queue_attributes, status, volumes, .. } = attempt;
        let start = exactly(*start_ns);
        if since.ns <= start.ns {
            tree.stage(0, Stage::Queued, since, start, queue_attributes.to_vec());
        }
        let number = tree.stage(0, Stage::Attempt, start, exactly(*end_ns), attributes.to_vec());
        let span = &mut tree.spans[number];
        let context = RemoteContext::sampled(root.0, root.1);
        span.links.push(Link { context, relation: Relation::Attempt });
        span.status.clone_from(status);
        if let Some((from, to)) = volumes.filter(|_| !about.shape.claims.first.is_empty()) {
            let claims = AttributeValue::Strings(about.shape.claims.first.clone());
            let list = vec![(attributes::CLAIMS, claims)];
            tree.stage(number, Stage::VolumeClaims, exactly(from), exactly(to), list);
        }
        since = exactly(*end_ns);
    }
    // The Pod still waits, or its binding was not traced. The last attempt may outlast the Pod, which then waits no more.
    if progress.binding().is_none()
        && (since.ns < tree.end || progress.attempts.is_empty())
        && (about.shape.gates.first.is_empty() || progress.ungated_ns.is_some())
    {
        let bound = bound(progress, created);
        let list =
            if bound.is_none() { vec![(attributes::INCOMPLETE, AttributeValue::Bool(true))] } else { vec![] };
        let end = bound.unwrap_or_else(|| exactly(tree.end));
        tree.stage(0, Stage::Queued, since, end, list);
    }
}

/// From the binding to the end: what the kubelet does.
fn node(tree: &mut Tree, progress: &Progress, bound: Moment, ready: Moment, end: Option<End>) {
    let mut phase = |stage: Stage, since: Moment, until: Option<Moment>, of: Option<&Container>| {
        let mut list = of.map(container_attributes).unwrap_or_default();
        if until.is_none() {
            list.push((attributes::INCOMPLETE, AttributeValue::Bool(true)));
        }
        let name = of
            .map_or(stage.name().into(), |container| format!("{}: {}", stage.name(), container.name).into());
        let number = tree.add(Some(0), SpanKind::Stage(stage), name, since, until.unwrap_or(ready), list);
        (number, until)
    };
    let at = |when: Option<When>, since: Moment| Some(place(when?, since.ns, ready.ns));

    let (_, Some(kubelet)) = phase(Stage::Kubelet, bound, at(progress.kubelet, bound), None) else { return };
    let mut since = kubelet;
    // The condition exists since 1.29.
    let later = progress.containers.iter().any(|container| container.started.is_some());
    if progress.sandbox.is_some() || !later {
        let (_, Some(sandbox)) = phase(Stage::Sandbox, since, at(progress.sandbox, since), None) else {
            return;
        };
        since = sandbox;
    }
    let mut happened = Vec::new();
    for container in progress.containers.iter().filter(|container| container.kind != ContainerKind::Main) {
        let started = at(container.started, since);
        let until = match (container.kind, container.ended) {
            (ContainerKind::Init, Some((when, _))) => {
                Some(place(when, started.map_or(since.ns, |at| at.ns), ready.ns))
            }
            (ContainerKind::Init, None) => None,
            _ => started,
        };
        let (number, until) = phase(Stage::InitContainer, since, until, Some(container));
        happened.push((number, container, started));
        let Some(until) = until else {
            tell(tree, &happened);
            return;
        };
        since = until;
    }
    if let Some(initialized) = at(progress.initialized, since).filter(|_| !happened.is_empty()) {
        since = initialized;
    }
    let over = matches!(end, Some(End::Succeeded | End::Failed));
    let mut last = since;
    let mut all = true;
    for container in progress.containers.iter().filter(|container| container.kind == ContainerKind::Main) {
        let started = at(container.started, since);
        let ended = container.ended.filter(|_| over);
        let ended = ended.map(|(when, _)| place(when, started.map_or(since.ns, |at| at.ns), ready.ns));
        let until = ended.or(started);
        let (number, _) = phase(Stage::Container, since, until, Some(container));
        happened.push((number, container, started));
        all &= until.is_some();
        last = until.filter(|until| until.ns > last.ns).unwrap_or(last);
    }
    if all && !over {
        let is_ready = !matches!(end, None | Some(End::Deleted));
        phase(Stage::Ready, last, is_ready.then_some(ready), None);
    }
    tell(tree, &happened);
}

fn container_attributes(container: &Container) -> Attributes {
    let Container { name, image, restarts, events_left_out, ended, .. } = container;
    let mut list = vec![(attributes::CONTAINER, (**name).into()), (attributes::IMAGE, (**image).into())];
    list.push((attributes::CONTAINER_RESTARTS, AttributeValue::from(*restarts)));
    list.extend(ended.map(|(_, code)| (attributes::EXIT_CODE, AttributeValue::Int(code))));
    if *events_left_out > 0 {
        list.push((
            attributes::LEFT_OUT,
            AttributeValue::Strings(vec![format!("events: {events_left_out}")]),
        ));
    }
    list
}

/// Adds the containers' events to their spans.
fn tell(tree: &mut Tree, happened: &[(usize, &Container, Option<Moment>)]) {
    for (number, container, started) in happened {
        let span = &mut tree.spans[*number];
        let (from, to) = (span.start_unix_ns, span.end_unix_ns);
        // A start at the end of the span needs no event.
        let started = started.filter(|started| started.ns < to);
        span.events.extend(started.map(|started| Event {
            name: "started",
            unix_ns: started.ns.max(from),
            attributes: vec![],
        }));
        for Happened { when, reason, exit_code } in &container.events {
            let reason = (attributes::REASON, reason.as_str().into());
            let code = exit_code.map(|code| (attributes::EXIT_CODE, AttributeValue::Int(code)));
            span.events.push(Event {
                name: if exit_code.is_some() { "ended" } else { "waiting" },
                unix_ns: place(*when, from, to).ns,
                attributes: [reason].into_iter().chain(code).collect(),
            });
        }
        span.events.sort_by_key(|event| event.unix_ns);
        if let Some((_, code)) = container.ended.filter(|(_, code)| *code != 0) {
            span.status = Status::Error(format!("exit code {code}"));
        }
    }
}

fn about_attributes(uid: &str, about: &About, progress: &Progress, end: Option<End>) -> Attributes {
    let strings = |listed: &Listed| AttributeValue::Strings(listed.first.clone());
    let mut list = vec![
        (attributes::POD_NAMESPACE, about.shape.namespace.as_str().into()),
        (attributes::POD_NAME, about.name.as_str().into()),
        (attributes::POD_UID, uid.into()),
    ];
    list.extend(end.map(|end| (attributes::LIFECYCLE_RESULT, AttributeValue::String(end.label().into()))));
    list.extend(progress.node.as_deref().map(|node| (attributes::NODE, node.into())));
    list.push((attributes::PROFILE, about.shape.profile.as_str().into()));
    list.push((
        attributes::LIFECYCLE_ATTEMPTS,
        AttributeValue::from(progress.attempts.len() as u64 + progress.attempts_left_out),
    ));
    list.push((attributes::LIFECYCLE_RESTARTS, AttributeValue::from(progress.restarts)));
    list.push((attributes::IMAGES, strings(&about.shape.images)));
    list.push((attributes::CONTAINERS, AttributeValue::from(about.shape.main_containers)));
    list.push((attributes::INIT_CONTAINERS, AttributeValue::from(about.shape.init_containers)));
    list.push((attributes::VOLUMES, AttributeValue::from(about.shape.volumes)));
    for (key, listed) in [
        (attributes::VOLUME_KINDS, &about.shape.volume_kinds),
        (attributes::CLAIMS, &about.shape.claims),
        (attributes::OWNERS, &about.shape.owners),
    ] {
        list.extend((!listed.first.is_empty()).then(|| (key, strings(listed))));
    }
    list.extend(about.shape.priority.map(|priority| (attributes::PRIORITY, AttributeValue::Int(priority))));
    for (key, value) in [
        (attributes::PRIORITY_CLASS, &about.shape.priority_class),
        (attributes::QOS_CLASS, &about.shape.qos_class),
    ] {
        list.extend(value.as_deref().map(|value| (key, value.into())));
    }
    list.extend(cut(about, progress));
    list
}

/// Counts of what is left out.
fn cut(about: &About, progress: &Progress) -> Option<(&'static str, AttributeValue)> {
    let followed = progress.containers.len() as u64;
    let cut: Vec<_> = [
        ("attempts", progress.attempts_left_out),
        ("containers", (about.shape.init_containers + about.shape.main_containers).saturating_sub(followed)),
        ("images", about.shape.images.left_out),
        ("gates", about.shape.gates.left_out),
        ("owners", about.shape.owners.left_out),
        ("volume claims", about.shape.claims.left_out),
        ("kinds of volumes", about.shape.volume_kinds.left_out),
        ("ends of texts", about.shape.shortened),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(what, count)| format!("{what}: {count}"))
    .collect();
    (!cut.is_empty()).then_some((attributes::LEFT_OUT, AttributeValue::Strings(cut)))
}
