//! Builds spans from attempts: the tree of KEP-5927, plus what it leaves out.
//!
//! Pure: takes an attempt, a clock anchor and a context, returns a trace.

#[cfg(test)]
mod tests;

use std::{fmt::Write as _, iter, sync::Arc};

use gotrace::{
    decode::{Element, Entries, Group, Listed, Top},
    governor::Cut,
    program::Detail,
    window::Calls,
};
use spans::{
    Anchor, AttributeValue, Attributes, Event, Link, NameList, Names, Origin, Relation, Source, Span,
    SpanKind, Status, Story, Trace, TraceKind, attributes,
    identity::{span_id, trace_id},
    names::{EXTENDER, PLUGIN, QUEUE},
    story::{Extras, add_monotonic},
    text::{Name, Text},
};
use tracecontext::RemoteContext;

use crate::{
    attempt::{
        ApiCall, Attempt, Call, Code, Extender, InQueue, Move, Outcome, PodGroup, Preemption, Previous,
        QueueCall, Shares, Subject,
    },
    configuration::public,
    table::{Function, Part, Stage},
};

/// Name of the event on the span of a rejecting plugin, as in KEP-5927.
const REJECTED: &str = "plugin rejected";
/// Index of the first span of a share: beyond the indices of an attempt's calls.
const SHARES: u64 = 1 << 32;
/// Attributes of a share's span, if its calls are not counted.
const SHARE_ATTRIBUTES: usize = 6;
/// Indices for the shares of a phase.
const PER_PHASE: u64 = 64;

/// Builds the trace of an attempt. For a Pod of a group: the part of the group's trace below the Pod's span,
/// which has links only, since its parent is the group's root.
#[must_use]
pub fn build(attempt: &Attempt, anchor: Anchor, origin: Origin) -> Trace {
    let Origin { mut causes, parent, attributes, selected } = origin;
    let seed = seed(attempt, attempt.start_ns);
    let profile = Arc::from(attempt.pod.profile.as_str());
    let mut remote = None;
    let (trace_id, parent_id) = match &attempt.subject {
        Subject::Member(group) => {
            let of_group = group_seed(attempt, group);
            (of_group, Some(span_id(&of_group, 0)))
        }
        Subject::Pod | Subject::Group { .. } => {
            remote = (parent && !causes.is_empty()).then(|| causes.remove(0).context);
            (remote.as_ref().map_or(seed, |remote| remote.trace_id), None)
        }
    };
    let kind = match attempt.subject {
        Subject::Group { .. } => TraceKind::GroupAttempt,
        Subject::Pod | Subject::Member(_) => TraceKind::Attempt,
    };
    let mut root = root_attributes(attempt, &profile, anchor);
    root.extend(attributes);
    let root = Span {
        kind: SpanKind::Root(kind),
        span_id: span_id(&seed, 0),
        parent_id,
        name: kind.name().into(),
        start_unix_ns: anchor.unix(attempt.start_ns),
        end_unix_ns: anchor.unix(attempt.end_ns),
        attributes: root,
        events: Vec::new(),
        links: causes.into_iter().chain(previous(attempt, remote.as_ref())).collect(),
        status: root_status(&attempt.outcome),
    };
    let shown = attempt
        .calls
        .iter()
        .filter(|call| call.function != Function::WaitOnPermit || waited(attempt))
        // The scheduler checks its list of extenders first; an extender without the verb is not called.
        .filter(|call| call.extender.as_ref().is_none_or(|extender| !extender.verb.is_empty()))
        .filter_map(|call| {
            let part = call.function.about();
            Some((part, Shown { kind: part.shows()?, name: part.name()? }, call))
        });
    let mut calls: Vec<(Part, Shown, &Call)> = Vec::with_capacity(attempt.calls.len());
    calls.extend(shown);
    // Sorts outer calls before the calls they contain.
    calls.sort_by(|(part, _, call), (other_part, _, other)| {
        let depth = |part: Part| ancestors(part).count();
        call.start_ns.cmp(&other.start_ns).then_with(|| depth(*part).cmp(&depth(*other_part)))
    });
    let shares: usize = attempt.shares.iter().map(|shares| shares.plugins.len()).sum();
    let mut spans = Vec::with_capacity(calls.len() + 1 + shares);
    spans.push(root);
    let mut trials = 0..;
    for (index, (part, Shown { kind, name }, call)) in calls.iter().enumerate() {
        // The innermost enclosing call; if the direct parent is already over, the next outer one.
        let parent = ancestors(*part).find_map(|function| {
            let holds = |(_, _, outer): &(Part, Shown, &Call)| {
                outer.function == function && outer.start_ns <= call.start_ns && call.end_ns <= outer.end_ns
            };
            calls[..index].iter().rposition(holds)
        });
        let url = call.extender.as_ref().map(|extender| extender.url.as_str());
        let (name, attributes) = match part {
            Part::Plugin { point, .. } => (
                Name::new(PLUGIN, call.plugin.clone().map_or(Text::Static("?"), Text::Shared)),
                plugin_attributes(point, call),
            ),
            Part::Extender { point, .. } => {
                let url = public(url.unwrap_or("?")).into_owned();
                (Name::new(EXTENDER, url), extender_attributes(point, call))
            }
            Part::Late(..) => (Name::from(*name), api_call_attributes(call)),
            Part::Stage(Stage::PlacementTrial, ..) => (Name::from(*name), placement_attributes(call)),
            Part::Stage(Stage::Member, ..) => {
                let chosen = attempt.chosen_trial == trials.next();
                let mut list = placement_attributes(call);
                // A trial is known by its phases.
                if attempt.cut.keeps_detail(Detail::Phases) {
                    list.push((attributes::TRIAL_CHOSEN, AttributeValue::Bool(chosen)));
                }
                (Name::from(*name), list)
            }
            Part::Phase(..)
            | Part::Stage(Stage::SchedulingCycle | Stage::BindingCycle | Stage::HandleFailure, ..)
            // These have no spans.
            | Part::EntersQueue { .. }
            | Part::CountsMove
            | Part::InQueue(_)
            | Part::Pop
            | Part::Group
            | Part::QueuesApiCall
            | Part::Timed
            | Part::Fact(_) => (Name::from(*name), phase_attributes(attempt, &profile, name, call)),
        };
        // Calls that outlast the attempt are not children of its spans.
        let outlasts = part.is_late() && call.end_ns > attempt.end_ns;
        let cause = outlasts.then(|| link(trace_id, spans[0].span_id, Relation::Attempt));
        spans.push(Span {
            kind: *kind,
            span_id: span_id(&seed, index as u64 + 1),
            // The root is the first span.
            parent_id: (!outlasts).then(|| spans[parent.map_or(0, |index| index + 1)].span_id),
            name,
            start_unix_ns: anchor.unix(call.start_ns),
            end_unix_ns: anchor.unix(call.end_ns),
            attributes,
            events: rejection(*part, call, anchor).map_or_else(Vec::new, |event| vec![event]),
            links: cause.map_or_else(Vec::new, |link| vec![link]),
            status: call_status(call),
        });
    }
    for (index, (_, Shown { name, .. }, call)) in calls.iter().enumerate() {
        let is_its = |shares: &&Shares| (shares.function, shares.start_ns) == (call.function, call.start_ns);
        if let Some(shares) = attempt.shares.iter().find(is_its) {
            let phase = (spans[index + 1].start_unix_ns, spans[index + 1].duration_ns());
            let first = SHARES + (index as u64) * PER_PHASE;
            let ids = (first..first + PER_PHASE).map(|number| span_id(&seed, number));
            let parent_id = spans[index + 1].span_id;
            spans.extend(shares_of(shares, name, phase, parent_id, ids));
        }
    }
    let source = Source::Process(attempt.target);
    let (names, beside) = (names(attempt), Vec::new());
    Trace { kind, source, trace_id, parent: remote, selected, spans, names, beside }
}

/// The Nodes that were rejected, by name.
fn names(attempt: &Attempt) -> Option<Box<Names>> {
    let Entries { keys, listed, .. } = attempt.statuses.as_deref()?;
    let list = |Listed { name, code, texts, keys }: &Listed| NameList {
        by: name.clone(),
        result: Code(*code).to_string(),
        reasons: texts.clone(),
        names: keys.clone(),
    };
    let lists = || Names { total: *keys, lists: listed.iter().map(list).collect() };
    (*keys > 0).then(lists).map(Box::new)
}

/// Spans of the plugins of a phase by their shares. They are side by side: each begins with the phase.
fn shares_of(
    Shares { function: _, start_ns: _, basis, amount, plugins }: &Shares,
    point: &'static str,
    (start_unix_ns, duration_ns): (u64, u64),
    parent_id: [u8; 8],
    ids: impl Iterator<Item = [u8; 8]>,
) -> impl Iterator<Item = Span> {
    plugins.iter().zip(ids).map(move |(share, span_id)| {
        let part = share.amount as f64 / (*amount).max(1) as f64;
        let mut attributes = Attributes::with_capacity(SHARE_ATTRIBUTES);
        attributes.extend([
            (attributes::PLUGIN_NAME, (&share.plugin).into()),
            (attributes::EXTENSION_POINT, AttributeValue::String(point.into())),
            (attributes::SHARE, AttributeValue::Double(part)),
            (attributes::SHARE_BASIS, AttributeValue::String(basis.name().into())),
        ]);
        match &share.calls {
            Some(calls) => push_calls(&mut attributes, calls),
            None => attributes.extend([
                (attributes::SHARE_SAMPLES, integer(share.amount)),
                (attributes::SHARE_SAMPLES_OF_PHASE, integer(*amount)),
            ]),
        }
        Span {
            kind: SpanKind::Share,
            span_id,
            parent_id: Some(parent_id),
            name: Name::new(PLUGIN, Arc::clone(&share.plugin)),
            start_unix_ns,
            end_unix_ns: start_unix_ns + (duration_ns as f64 * part.min(1.0)) as u64,
            attributes,
            events: Vec::new(),
            links: Vec::new(),
            status: Status::Unset,
        }
    })
}

/// Adds what is known of a plugin's calls that were timed one by one.
fn push_calls(list: &mut Attributes, Calls { name: _, count, total_ns, results, unwound, slots }: &Calls) {
    list.push((attributes::CALLS, integer(*count)));
    list.push((attributes::CALLS_MS, AttributeValue::Double(*total_ns as f64 / 1e6)));
    let rejected =
        results.iter().filter(|(code, _)| Code(**code).is_rejected()).map(|(_, calls)| calls).sum();
    list.push((attributes::REJECTED_NODES, integer(rejected)));
    let unwound = (*unwound > 0).then(|| format!("did not return: {unwound}"));
    let results = results.iter().map(|(code, calls)| format!("{}: {calls}", Code(*code))).chain(unwound);
    list.push((attributes::CALLS_RESULTS, AttributeValue::Strings(results.collect())));
    let slots = slots.iter().enumerate().filter(|(_, calls)| **calls > 0);
    let slots = slots.map(|(slot, calls)| format!("under {} ns: {calls}", 1_u64 << slot.min(63)));
    list.push((attributes::CALLS_DURATIONS, AttributeValue::Strings(slots.collect())));
}

/// How a call appears in the trace.
#[derive(Clone, Copy)]
struct Shown {
    kind: SpanKind,
    /// Name of the span; for a plugin or an extender, the extension point.
    name: &'static str,
}

/// The functions that enclose a call, innermost first.
fn ancestors(part: Part) -> impl Iterator<Item = Function> {
    iter::successors(part.parent(), |function| function.about().parent())
}

/// Adds a span for each stay of the Pod in a queue before the attempt, and for each extension point that ran
/// meanwhile. These spans have no parent, since they end before the root begins.
#[must_use]
pub fn with_queue_spans(mut trace: Trace, attempt: &Attempt, anchor: Anchor) -> Trace {
    let seed = seed(attempt, attempt.start_ns);
    let InQueue { calls, left_out, .. } = &attempt.in_queue;
    let ends = attempt.moves.iter().skip(1).map(|next| next.time_ns).chain([attempt.start_ns]);
    for (index, (Move { time_ns, queue, event }, end_ns)) in attempt.moves.iter().zip(ends).enumerate() {
        let event = event.into();
        let before = calls.iter().rfind(|call| call.end_ns <= *time_ns);
        let gate = before.and_then(|call| call.gate.as_deref()).filter(|_| *queue == "unschedulable");
        let gate = gate.map(|gate| (attributes::GATED_BY, AttributeValue::Strings(vec![gate.to_owned()])));
        trace.spans.push(Span {
            kind: SpanKind::QueueStay,
            // Beyond the indices of an attempt's calls.
            span_id: span_id(&seed, u64::MAX - index as u64),
            parent_id: None,
            name: Name::new(QUEUE, *queue),
            start_unix_ns: anchor.unix(*time_ns),
            end_unix_ns: anchor.unix(end_ns.max(*time_ns)),
            attributes: [(attributes::QUEUE_EVENT, event)].into_iter().chain(gate).collect(),
            events: Vec::new(),
            links: Vec::new(),
            status: Status::Unset,
        });
    }
    if *left_out > 0 {
        trace.spans[0].attributes.push((attributes::QUEUE_PHASES_LEFT_OUT, integer(*left_out)));
    }
    let profile: Arc<str> = attempt.pod.profile.as_str().into();
    for (index, call) in calls.iter().enumerate() {
        let part = call.function.about();
        let (Some(kind), Some(name)) = (part.shows(), part.name()) else { continue };
        trace.spans.push(Span {
            kind,
            span_id: span_id(&seed, u64::from(u32::MAX) - index as u64),
            parent_id: None,
            name: name.into(),
            start_unix_ns: anchor.unix(call.start_ns),
            end_unix_ns: anchor.unix(call.end_ns),
            attributes: queue_call_attributes(name, &profile, call),
            events: held(call, anchor).into_iter().collect(),
            links: Vec::new(),
            status: queue_call_status(call),
        });
    }
    trace
}

fn queue_call_attributes(
    name: &'static str,
    profile: &Arc<str>,
    QueueCall { function: _, start_ns: _, end_ns: _, code, gate, returned }: &QueueCall,
) -> Attributes {
    let mut list = Attributes::new();
    list.push((attributes::PHASE, AttributeValue::String(name.into())));
    list.push((attributes::PROFILE, profile.into()));
    list.extend(gate.as_deref().map(|gate| (attributes::PLUGIN_NAME, gate.into())));
    list.extend(code.map(|code| (attributes::RESULT, AttributeValue::String(code.into()))));
    list.extend((!returned).then_some((attributes::INCOMPLETE, AttributeValue::Bool(true))));
    list
}

/// The event of a plugin that holds the Pod.
fn held(call: &QueueCall, anchor: Anchor) -> Option<Event> {
    let gate = call.gate.as_deref()?;
    let attributes = vec![(attributes::PLUGIN_NAME, gate.into())];
    Some(Event { name: REJECTED, unix_ns: anchor.unix(call.end_ns), attributes })
}

fn queue_call_status(QueueCall { code, gate, .. }: &QueueCall) -> Status {
    match (code.filter(|code| *code != Code::SUCCESS), gate) {
        (Some(code), Some(gate)) => Status::Error(format!("{code} by {gate}")),
        (Some(code), None) => Status::Error(code.to_string()),
        (None, Some(gate)) => Status::Error(format!("held by {gate}")),
        (None, None) => Status::Unset,
    }
}

impl Story for Attempt {
    fn pod_uid(&self) -> Option<&str> {
        match self.subject {
            // The creators of the group's Pods are linked from the Pods' own attempts.
            Subject::Group { .. } => None,
            Subject::Pod | Subject::Member(_) => Some(&self.pod.uid),
        }
    }

    fn trace(&self, anchor: Anchor, origin: Origin, extras: Extras) -> Trace {
        let mut trace = build(self, anchor, origin);
        if extras.queue_spans {
            trace = with_queue_spans(trace, self, anchor);
        }
        if extras.monotonic {
            add_monotonic(&mut trace, anchor);
        }
        trace
    }
}

/// Link to the root of the previous attempt, which had the same parent.
fn previous(attempt: &Attempt, parent: Option<&RemoteContext>) -> Option<Link> {
    let Previous { start_ns, group } = attempt.previous.as_ref()?;
    let seed = seed(attempt, *start_ns);
    let alone = || parent.map_or(seed, |parent| parent.trace_id);
    let trace_id = group.as_ref().map_or_else(alone, |group| group_seed(attempt, group));
    Some(link(trace_id, span_id(&seed, 0), Relation::PreviousAttempt))
}

pub(crate) fn link(trace_id: [u8; 16], span_id: [u8; 8], relation: Relation) -> Link {
    Link { context: RemoteContext::sampled(trace_id, span_id), relation }
}

/// The event of a plugin that rejects the Pod.
fn rejection(part: Part, call: &Call, anchor: Anchor) -> Option<Event> {
    let code = call.code.filter(|code| matches!(part, Part::Plugin { .. }) && code.is_rejected())?;
    let result = AttributeValue::String(code.into());
    let unix_ns = anchor.unix(call.end_ns);
    Some(Event { name: REJECTED, unix_ns, attributes: vec![(attributes::RESULT, result)] })
}

/// Whether the Pod had to wait. `WaitOnPermit` is called for every Pod; the scheduler's metric counts only
/// those that waited. Of a Pod in a group, `Permit` may be part of the group's attempt: the versions with groups have the call where
/// the metric is recorded, so that it waited.
fn waited(attempt: &Attempt) -> bool {
    attempt.group().is_some()
        || attempt.calls.iter().any(|call| call.function == Function::Permit && call.code == Some(Code::WAIT))
}

fn root_attributes(attempt: &Attempt, profile: &Arc<str>, anchor: Anchor) -> Attributes {
    // Room for all that a successful attempt has.
    let mut list = Attributes::with_capacity(24);
    list.push((attributes::POD_NAMESPACE, attempt.pod.namespace.as_str().into()));
    if !matches!(attempt.subject, Subject::Group { .. }) {
        list.push((attributes::POD_NAME, attempt.pod.name.as_str().into()));
        list.push((attributes::POD_UID, attempt.pod.uid.as_str().into()));
    }
    list.extend(attempt.group().map(|group| (attributes::POD_GROUP, group.name.as_str().into())));
    if let Subject::Group { size, scheduled, .. } = &attempt.subject {
        list.extend(size.map(|size| (attributes::POD_GROUP_SIZE, integer(size))));
        list.push((attributes::POD_GROUP_SCHEDULED, integer(*scheduled)));
    }
    list.push((attributes::PROFILE, profile.into()));
    if let Some(result) = result(&attempt.outcome) {
        list.push((attributes::RESULT, AttributeValue::String(result.into())));
    }
    // A chosen Node counts as a result only if the Pod was bound.
    if let (Some(node), Outcome::Scheduled) = (&attempt.node, &attempt.outcome) {
        list.push((attributes::SELECTED_NODE, node.as_str().into()));
    }
    if let Some(number) = attempt.number {
        list.push((attributes::ATTEMPT, integer(number)));
    }
    if let Some((evaluated, feasible)) = attempt.nodes {
        list.push((attributes::EVALUATED_NODES, integer(evaluated)));
        list.push((attributes::FEASIBLE_NODES, integer(feasible)));
    }
    if attempt.batched {
        list.push((attributes::BATCHED, AttributeValue::Bool(true)));
    }
    if let Some(nodes) = attempt.restricted_to {
        list.push((attributes::RESTRICTED_TO_NODES, integer(nodes)));
    }
    if let Some(complete) = attempt.window {
        let says = if complete { "complete" } else { "incomplete" };
        list.push((attributes::EXACT_WINDOW, AttributeValue::String(says.into())));
    }
    push_decision(&mut list, attempt);
    if let Some(Preemption { node, victims, names }) = &attempt.preemption {
        list.push((attributes::PREEMPTION_NODE, node.as_str().into()));
        list.push((attributes::PREEMPTION_VICTIMS, integer(*victims)));
        list.push((attributes::PREEMPTION_VICTIM_NAMES, AttributeValue::Strings(names.clone())));
    }
    push_queue(&mut list, attempt, anchor);
    if attempt.cut > Cut::Nothing {
        list.push((attributes::CUT, attempt.cut.name().into()));
    }
    if attempt.incomplete {
        list.push((attributes::INCOMPLETE, AttributeValue::Bool(true)));
    }
    list
}

/// Adds the best Nodes, and the rejections of the others.
fn push_decision(list: &mut Attributes, attempt: &Attempt) {
    if let Some(Top { elements, looked_at, ties, best }) = attempt.scores.as_deref() {
        list.push((attributes::SCORED_NODES, integer(*elements)));
        if looked_at < elements {
            list.push((attributes::SCORED_NODES_LOOKED_AT, integer(*looked_at)));
        }
        list.push((attributes::CANDIDATES, AttributeValue::Strings(best.iter().map(candidate).collect())));
        list.push((attributes::CANDIDATE_TIES, integer(*ties)));
    }
    if let Some(Entries { keys, looked_at, groups, others, listed: _ }) = attempt.statuses.as_deref() {
        let rejection = |Group { name, code, keys }: &Group| {
            format!("{}: {keys} {}", name.as_deref().unwrap_or("?"), Code(*code))
        };
        let rejections = groups.iter().map(rejection).collect();
        list.push((attributes::REJECTIONS, AttributeValue::Strings(rejections)));
        if looked_at < keys {
            list.push((attributes::REJECTIONS_LOOKED_AT, integer(*looked_at)));
        }
        list.extend(others.as_ref().map(|plugin| (attributes::REJECTED_OTHERS, plugin.into())));
    }
}

fn candidate(Element { label: node, key: total, parts: scores, cut }: &Element) -> String {
    // Built on a hot path, five per attempt: allocated once, and only numbers are formatted.
    let mut text = String::with_capacity(256);
    text.push_str(node);
    let mut put = |before: &[&str], number: i64| {
        before.iter().for_each(|part| text.push_str(part));
        // Text takes all that is written.
        let _written = write!(text, "{number}");
    };
    put(&[": "], *total);
    let mut comma = " (";
    for (plugin, score) in scores {
        put(&[comma, plugin, " "], *score);
        comma = ", ";
    }
    if scores.is_empty() {
        text.push_str(" (");
    }
    text.push_str(if *cut { ", …)" } else { ")" });
    text
}

fn push_queue(list: &mut Attributes, attempt: &Attempt, anchor: Anchor) {
    let milliseconds = |ns: u64| AttributeValue::Double(ns as f64 / 1e6);
    let since = |unix_ns: u64| milliseconds(anchor.unix(attempt.start_ns).saturating_sub(unix_ns));
    // A Pod of a group leaves the queue with the group.
    let popped_ns = attempt.group().map_or(attempt.start_ns, |group| group.start_ns);
    if let Some(enqueued) = attempt.enqueued_ns {
        list.push((attributes::QUEUE_WAIT_MS, milliseconds(popped_ns.saturating_sub(enqueued))));
    }
    list.extend(attempt.queue_timestamp.map(|added| (attributes::QUEUE_TOTAL_WAIT_MS, since(added))));
    list.extend(attempt.first_attempt.map(|first| (attributes::SINCE_FIRST_ATTEMPT_MS, since(first))));
    for (queue, key) in
        [("backoff", attributes::QUEUE_BACKOFF_MS), ("unschedulable", attributes::QUEUE_UNSCHEDULABLE_MS)]
    {
        if attempt.moves.iter().any(|entry| entry.queue == queue) {
            list.push((key, milliseconds(time_in(queue, attempt))));
        }
    }
    if let Some(Move { event, .. }) = attempt.moves.last() {
        list.push((attributes::QUEUE_EVENT, event.into()));
        let moves = attempt.moves.iter().map(|Move { queue, event, .. }| [queue, ": ", event].concat());
        list.push((attributes::QUEUE_MOVES, AttributeValue::Strings(moves.collect())));
    }
    if attempt.moves_left_out > 0 {
        list.push((attributes::QUEUE_MOVES_LEFT_OUT, integer(attempt.moves_left_out)));
    }
    push_in_queue(list, &attempt.in_queue);
}

fn push_in_queue(list: &mut Attributes, in_queue: &InQueue) {
    let InQueue { calls, left_out: _, pre_enqueue_ns, sign_ns, held_ns, held_since: _ } = in_queue;
    let mut gates: Vec<String> = Vec::new();
    for gate in calls.iter().filter_map(|call| call.gate.as_deref()) {
        if !gates.iter().any(|known| known == gate) {
            gates.push(gate.to_owned());
        }
    }
    if !gates.is_empty() {
        list.push((attributes::GATED_BY, AttributeValue::Strings(gates)));
    }
    for (key, ns) in [
        (attributes::GATED_MS, held_ns),
        (attributes::PRE_ENQUEUE_MS, pre_enqueue_ns),
        (attributes::SIGN_MS, sign_ns),
    ] {
        if *ns > 0 {
            list.push((key, AttributeValue::Double(*ns as f64 / 1e6)));
        }
    }
}

/// Nanoseconds that the Pod spent in a queue before the attempt.
fn time_in(queue: &str, attempt: &Attempt) -> u64 {
    let ends = attempt.moves.iter().skip(1).map(|next| next.time_ns).chain([attempt.start_ns]);
    let stays = attempt.moves.iter().zip(ends).filter(|(entry, _)| entry.queue == queue);
    stays.map(|(entry, end)| end.saturating_sub(entry.time_ns)).sum()
}

fn integer(value: u64) -> AttributeValue {
    value.into()
}

fn phase_attributes(attempt: &Attempt, profile: &Arc<str>, name: &'static str, call: &Call) -> Attributes {
    let mut list = Attributes::new();
    list.push((attributes::PHASE, AttributeValue::String(name.into())));
    list.push((attributes::PROFILE, profile.into()));
    // A phase that a panic left names the plugin it was in.
    if let Some(name) = &call.plugin {
        list.push((attributes::PLUGIN_NAME, name.into()));
    }
    if call.function == Function::WaitOnPermit {
        let asked = attempt
            .calls
            .iter()
            .filter(|call| call.function == Function::PermitPlugin && call.code == Some(Code::WAIT));
        let names = asked.filter_map(|call| call.plugin.as_deref().map(str::to_owned)).collect();
        list.push((attributes::WAITED_FOR, AttributeValue::Strings(names)));
    }
    push_result(&mut list, call);
    list
}

fn placement_attributes(call: &Call) -> Attributes {
    let placement = call.plugin.as_ref().map(|placement| (attributes::PLACEMENT, placement.into()));
    let mut list: Attributes = placement.into_iter().collect();
    push_result(&mut list, call);
    list
}

fn plugin_attributes(point: &'static str, call: &Call) -> Attributes {
    let mut list = Attributes::new();
    if let Some(name) = &call.plugin {
        list.push((attributes::PLUGIN_NAME, name.into()));
    }
    list.push((attributes::EXTENSION_POINT, AttributeValue::String(point.into())));
    push_result(&mut list, call);
    list
}

fn api_call_attributes(call: &Call) -> Attributes {
    let mut list = Attributes::new();
    if let Some(ApiCall { pod_uid, victim, queued_ns }) = call.api_call.as_deref() {
        list.push((attributes::POD_UID, pod_uid.as_str().into()));
        list.extend(victim.as_deref().map(|name| (attributes::POD_NAME, name.into())));
        let waited = queued_ns.map(|queued_ns| call.start_ns.saturating_sub(queued_ns) as f64 / 1e6);
        list.extend(waited.map(|ms| (attributes::API_CALL_QUEUE_MS, AttributeValue::Double(ms))));
    }
    push_result(&mut list, call);
    list
}

fn extender_attributes(point: &'static str, call: &Call) -> Attributes {
    let mut list = Attributes::new();
    list.push((attributes::EXTENSION_POINT, AttributeValue::String(point.into())));
    if let Some(Extender { url, verb, ignorable, nodes, passed }) = call.extender.as_deref() {
        list.push((attributes::EXTENDER_URL, public(url).as_ref().into()));
        list.push((attributes::EXTENDER_VERB, public(verb).as_ref().into()));
        list.push((attributes::EXTENDER_IGNORABLE, AttributeValue::Bool(*ignorable)));
        list.extend(nodes.map(|nodes| (attributes::EXTENDER_NODES, integer(nodes))));
        // Without a successful answer, an empty list means nothing.
        let passed = passed.filter(|_| call.code == Some(Code::SUCCESS));
        list.extend(passed.map(|nodes| (attributes::EXTENDER_PASSED_NODES, integer(nodes))));
    }
    push_result(&mut list, call);
    list
}

/// Adds the status code and reason of a call.
fn push_result(list: &mut Attributes, call: &Call) {
    if let Some(code) = call.code {
        list.push((attributes::RESULT, AttributeValue::String(code.into())));
    }
    if !call.returned {
        list.push((attributes::INCOMPLETE, AttributeValue::Bool(true)));
    }
    if !call.reason.is_empty() {
        list.push((attributes::MESSAGE, call.reason.as_str().into()));
    }
}

/// The values of the label `result` of `schedule_attempts_total`, spelled as in KEP-5927.
fn result(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Scheduled => Some("Success"),
        Outcome::Failed { code: Some(code), .. } if code.is_rejected() => Some("Unschedulable"),
        Outcome::Failed { .. } => Some("Error"),
        Outcome::Unknown => None,
    }
}

fn root_status(outcome: &Outcome) -> Status {
    let Outcome::Failed { code, reason, plugin } = outcome else { return Status::Unset };
    let mut text = code.map_or_else(|| "Error".to_owned(), |code| code.to_string());
    if !plugin.is_empty() {
        text = format!("{text} by {plugin}");
    }
    if !reason.is_empty() {
        text = format!("{text}: {reason}");
    }
    Status::Error(text)
}

fn call_status(call: &Call) -> Status {
    match call.code {
        Some(code) if code == Code::ERROR || code.is_rejected() => {
            let colon = if call.reason.is_empty() { "" } else { ": " };
            Status::Error([&*Text::from(code), colon, &call.reason].concat())
        }
        _ => Status::Unset,
    }
}

/// Seed of an attempt's IDs. Derived from the attempt, so that replaying it yields the same IDs.
fn seed(attempt: &Attempt, start_ns: u64) -> [u8; 16] {
    trace_id(&attempt.identity(), start_ns, attempt.target)
}

/// Seed of the group that a Pod is scheduled with.
fn group_seed(attempt: &Attempt, group: &PodGroup) -> [u8; 16] {
    trace_id(&group.identity(), group.start_ns, attempt.target)
}
