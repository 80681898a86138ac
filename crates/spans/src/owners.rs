//! Bounds the traces that the Pods of an owner share. Pure but for the counters.
//!
//! Daemons do not speak to each other, and each sees another part of a Pod: so each bounds what it sends itself. The first Pods of an owner are
//! all in its trace; of later ones one in two, then one in four, and so on, by a hash of the Pod's UID. A Pod that is chosen among many is
//! chosen among fewer as well: what the daemon keeps that sees most is kept by all, so that these Pods are whole. Slower ones than before are
//! in the trace as well, and the last.

use std::{
    array,
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use telemetry::Label as _;

use crate::{
    AttributeValue, LeftOut, Link, Metrics, Relation, Source, Span, Trace, TraceKind, attributes,
    identity::{LifecycleTrace, lifecycle_id},
};

/// Pods of an owner that are all in its trace; of those that failed, as many again.
const FIRST: u64 = 32;
/// A Pod is in the trace for its duration if it is by this fraction slower than the slowest one there.
const SLOWER: u64 = 4;
/// Most owners. The one of which nothing came for the longest time is forgotten.
const MAX_OWNERS: usize = 4_096;
/// Most spans of traces that may be the last of their owners.
const MAX_HELD_SPANS: usize = 65_536;
/// After this time without another one, the last is sent.
const QUIET: Duration = Duration::from_secs(60);

/// What is in the traces of owners.
#[derive(Debug)]
pub struct Owners {
    of: LifecycleTrace,
    by_trace: HashMap<[u8; 16], Owner>,
    held_spans: usize,
    metrics: Metrics,
}

/// What a daemon has seen of an owner.
#[derive(Debug)]
struct Owner {
    last: Instant,
    parts: [Part; LeftOut::ALL.len()],
}

/// Traces of one kind.
#[derive(Debug, Default)]
struct Part {
    seen: u64,
    left_out: u64,
    /// Duration of the slowest one in the trace, nanoseconds.
    slowest_ns: u64,
    /// The last one, if it was not chosen.
    held: Option<Box<Trace>>,
}

impl Owners {
    /// No owner is known yet. Where Pods have traces of their own, nothing is bounded.
    #[must_use]
    pub fn new(of: LifecycleTrace, metrics: Metrics) -> Self {
        Self { of, by_trace: HashMap::new(), held_spans: 0, metrics }
    }

    /// Takes a trace that is to be sent. Returns those that are to be sent now.
    pub fn take(&mut self, mut trace: Trace, now: Instant) -> impl Iterator<Item = Trace> + use<> {
        let is_bounded = self.of == LifecycleTrace::Owner;
        let Some(what) = is_bounded.then(|| what(&trace)).flatten() else {
            return Vec::new().into_iter().chain(Some(trace));
        };
        let sent = self.make_room(&trace.trace_id).into_iter();
        let owner = self
            .by_trace
            .entry(trace.trace_id)
            .or_insert_with(|| Owner { last: now, parts: array::from_fn(|_| Part::default()) });
        owner.last = now;
        let first = trace.beside.first().map_or(trace.root(), Trace::root);
        let uid = text(first, attributes::POD_UID).to_owned();
        let writes = owner.writes(&mut trace, &self.metrics);
        let duration_ns = trace.root().duration_ns();
        let part = &mut owner.parts[what.index()];
        part.seen += 1;
        let is_in = match what {
            LeftOut::Lifecycle
            | LeftOut::FailedLifecycle
            | LeftOut::Start
            | LeftOut::FailedStart
            | LeftOut::Storage
            | LeftOut::Removal => {
                is_chosen(&uid, part.seen)
                    || duration_ns > part.slowest_ns.saturating_add(part.slowest_ns / SLOWER)
            }
            LeftOut::Reconcile | LeftOut::Creation => writes,
            LeftOut::FailedReconcile => writes || is_chosen(&uid, part.seen),
        };
        if is_in {
            part.slowest_ns = part.slowest_ns.max(duration_ns);
            owner.say(&mut trace);
            return sent.chain(Some(trace));
        }
        let mut out = part.held.replace(Box::new(trace)).into_iter().collect::<Vec<_>>();
        self.held_spans += part.held.as_deref().map_or(0, size);
        if self.held_spans > MAX_HELD_SPANS {
            // Without room, none is the last.
            out.extend(part.held.take());
        }
        for trace in out {
            self.held_spans -= size(&trace);
            part.left_out += 1;
            self.metrics.left_out(what);
        }
        sent.chain(None)
    }

    /// The last ones of owners of which nothing came for a while.
    pub fn quiet(&mut self, now: Instant) -> Vec<Trace> {
        self.last(|owner, _| now.saturating_duration_since(owner.last) >= QUIET)
    }

    /// The last ones of a process that has ended.
    pub fn gone(&mut self, source: Source) -> Vec<Trace> {
        self.last(|_, trace| trace.source == source)
    }

    /// All last ones.
    pub fn rest(&mut self) -> Vec<Trace> {
        self.last(|_, _| true)
    }

    fn last(&mut self, is_last: impl Fn(&Owner, &Trace) -> bool) -> Vec<Trace> {
        let last = self.by_trace.values_mut().flat_map(|owner| owner.end(&is_last)).collect::<Vec<_>>();
        self.held_spans -= last.iter().map(size).sum::<usize>();
        last
    }

    /// Makes room for one more owner, if this one is not known. Returns the last traces of the one that is forgotten.
    fn make_room(&mut self, trace_id: &[u8; 16]) -> Vec<Trace> {
        if self.by_trace.len() < MAX_OWNERS || self.by_trace.contains_key(trace_id) {
            return Vec::new();
        }
        let oldest = self.by_trace.iter().min_by_key(|(_, owner)| owner.last).map(|(trace_id, _)| *trace_id);
        let oldest = oldest.and_then(|oldest| self.by_trace.remove(&oldest));
        let last = oldest.map(|mut owner| owner.end(|_, _| true)).unwrap_or_default();
        self.held_spans -= last.iter().map(size).sum::<usize>();
        last
    }
}

impl Owner {
    /// Takes creations and removals of Pods out of a reconcile that are not chosen, with their requests. Returns whether one stays.
    fn writes(&mut self, reconcile: &mut Trace, metrics: &Metrics) -> bool {
        let (shared, mut stays, mut out) = (reconcile.trace_id, false, HashSet::new());
        reconcile.beside.retain(|write| {
            let Some(what) = written(write.kind).filter(|_| write.trace_id == shared) else { return true };
            let part = &mut self.parts[what.index()];
            part.seen += 1;
            let is_in = is_chosen(text(write.root(), attributes::POD_UID), part.seen);
            stays |= is_in;
            if !is_in {
                part.left_out += 1;
                metrics.left_out(what);
                out.insert(write.root().span_id);
            }
            is_in
        });
        let made_one = |span: &Span| {
            let of_pod = |link: &Link| {
                matches!(link.relation, Relation::Pod(_)) && out.contains(&link.context.span_id)
            };
            span.links.iter().any(of_pod)
        };
        reconcile.spans.retain(|span| !made_one(span));
        stays
    }

    /// The last traces that wait no longer.
    fn end(&mut self, is_last: impl Fn(&Self, &Trace) -> bool) -> Vec<Trace> {
        let mut ended = Vec::new();
        for number in 0..self.parts.len() {
            let held = self.parts[number].held.take();
            match held {
                Some(mut trace) if is_last(self, &trace) => {
                    self.say(&mut trace);
                    ended.push(*trace);
                }
                other => self.parts[number].held = other,
            }
        }
        ended
    }

    /// Says on a root what is left out so far.
    fn say(&self, trace: &mut Trace) {
        let said = LeftOut::ALL.iter().zip(&self.parts).filter(|(_, part)| part.left_out > 0);
        let said = said.map(|(what, part)| {
            format!("{}s of this owner: {}", what.label().replace('_', " "), part.left_out)
        });
        let said: Vec<_> = said.collect();
        if said.is_empty() {
            return;
        }
        let root = &mut trace.spans[0];
        match root.attributes.iter_mut().find(|(key, _)| *key == attributes::LEFT_OUT) {
            Some((_, AttributeValue::Strings(known))) => known.extend(said),
            Some(_) | None => root.attributes.push((attributes::LEFT_OUT, AttributeValue::Strings(said))),
        }
    }
}

/// What a trace is in the trace of an owner; `None` if it is in none.
fn what(trace: &Trace) -> Option<LeftOut> {
    let root = trace.root();
    let failed = root.did_not_succeed();
    let is_alone = || trace.trace_id == lifecycle_id(text(root, attributes::POD_UID));
    match trace.kind {
        // The trace of a parent is the parent's business.
        TraceKind::Lifecycle if trace.parent.is_some() || is_alone() => None,
        TraceKind::PodStart | TraceKind::PodStorage | TraceKind::PodDeletion | TraceKind::PodEviction
            if is_alone() =>
        {
            None
        }
        TraceKind::Lifecycle if failed => Some(LeftOut::FailedLifecycle),
        TraceKind::Lifecycle => Some(LeftOut::Lifecycle),
        TraceKind::PodStart if failed => Some(LeftOut::FailedStart),
        TraceKind::PodStart => Some(LeftOut::Start),
        TraceKind::PodStorage => Some(LeftOut::Storage),
        // Those of reconciles are beside them.
        TraceKind::PodDeletion | TraceKind::PodEviction => Some(LeftOut::Removal),
        TraceKind::Reconcile => {
            let writes = trace.beside.iter().any(|part| part.trace_id == trace.trace_id);
            let what = if failed { LeftOut::FailedReconcile } else { LeftOut::Reconcile };
            writes.then_some(what)
        }
        TraceKind::Attempt
        | TraceKind::GroupAttempt
        | TraceKind::Configuration
        | TraceKind::PodCreation
        | TraceKind::Command => None,
    }
}

/// What a trace is that is beside a reconcile's; `None` if it is nothing that was done to a Pod.
const fn written(kind: TraceKind) -> Option<LeftOut> {
    match kind {
        TraceKind::PodCreation => Some(LeftOut::Creation),
        TraceKind::PodDeletion | TraceKind::PodEviction => Some(LeftOut::Removal),
        TraceKind::Attempt
        | TraceKind::GroupAttempt
        | TraceKind::Configuration
        | TraceKind::Lifecycle
        | TraceKind::Reconcile
        | TraceKind::PodStart
        | TraceKind::PodStorage
        | TraceKind::Command => None,
    }
}

/// Whether a Pod is in the trace of its owner, as the one with this number, from 1: always among the first; of as many again one in
/// two, of twice as many one in four. One that is chosen is also chosen with a smaller number.
fn is_chosen(uid: &str, number: u64) -> bool {
    let zeros = u128::from_be_bytes(lifecycle_id(uid)).trailing_zeros();
    let doublings = number.div_ceil(FIRST).max(1).next_power_of_two().trailing_zeros();
    doublings <= zeros
}

/// Spans of a trace, and of those beside it.
fn size(trace: &Trace) -> usize {
    trace.spans.len() + trace.beside.iter().map(size).sum::<usize>()
}

/// A text of a root; empty if it has none.
fn text<'a>(root: &'a Span, key: &str) -> &'a str {
    if let Some(AttributeValue::String(text)) = root.attribute(key) { text } else { "" }
}

#[cfg(test)]
mod tests;
