//! Spans out of attempts: the tree of KEP-5927, with what it leaves out.
//!
//! Pure: an attempt, a clock anchor and a context in, a trace out.

pub mod attributes;
mod span;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, hash::Hasher as _};

use siphasher::sip128::{Hasher128 as _, SipHasher13};

pub use self::span::{AttributeValue, RemoteContext, Span, Status, Trace};
use crate::{
    attempt::{Attempt, Call, Code, Outcome},
    plan::Function,
};

/// What `CLOCK_REALTIME` says when `CLOCK_MONOTONIC` says zero, nanoseconds. One anchor serves all spans of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Nanoseconds since the Unix epoch.
    pub unix_ns_at_zero: u64,
}

impl Anchor {
    fn unix(self, monotonic_ns: u64) -> u64 {
        self.unix_ns_at_zero.saturating_add(monotonic_ns)
    }
}

/// Which span a call becomes, and under which it hangs.
struct Kind {
    function: Function,
    name: &'static str,
    /// The cycle that it is a phase of; `None` for what hangs under the root.
    cycle: Option<Function>,
}

const fn phase(function: Function, name: &'static str, cycle: Function) -> Kind {
    Kind { function, name, cycle: Some(cycle) }
}

const KINDS: [Kind; 15] = [
    Kind { function: Function::SchedulingCycle, name: "schedulingCycle", cycle: None },
    phase(Function::PreFilter, "preFilter", Function::SchedulingCycle),
    phase(Function::Filter, "filter", Function::SchedulingCycle),
    phase(Function::PostFilter, "postFilter", Function::SchedulingCycle),
    phase(Function::PreScore, "preScore", Function::SchedulingCycle),
    phase(Function::Score, "score", Function::SchedulingCycle),
    phase(Function::Reserve, "reserve", Function::SchedulingCycle),
    phase(Function::Permit, "permit", Function::SchedulingCycle),
    Kind { function: Function::BindingCycle, name: "bindingCycle", cycle: None },
    phase(Function::PreBindPreFlight, "preBindPreFlight", Function::BindingCycle),
    phase(Function::WaitOnPermit, "waitOnPermit", Function::BindingCycle),
    phase(Function::PreBind, "preBind", Function::BindingCycle),
    phase(Function::Bind, "bind", Function::BindingCycle),
    phase(Function::PostBind, "postBind", Function::BindingCycle),
    // KEP-5927 has no span for it, but it takes time: it asks the API server to set the Pod's condition.
    Kind { function: Function::HandleFailure, name: "handleSchedulingFailure", cycle: None },
];

/// Name of the root span.
pub const ROOT: &str = "SchedulePod";

/// Makes the trace of an attempt.
#[must_use]
pub fn build(attempt: &Attempt, anchor: Anchor, link: Option<RemoteContext>) -> Trace {
    let trace_id = trace_id(attempt);
    let root = Span {
        span_id: span_id(&trace_id, 0),
        parent_id: None,
        name: Cow::Borrowed(ROOT),
        start_unix_ns: anchor.unix(attempt.start_ns),
        end_unix_ns: anchor.unix(attempt.end_ns),
        attributes: root_attributes(attempt, anchor),
        links: link.into_iter().collect(),
        status: root_status(&attempt.outcome),
    };
    let mut calls: Vec<(&Kind, &Call)> = attempt
        .calls
        .iter()
        .filter(|call| call.function != Function::WaitOnPermit || waited(attempt))
        .filter_map(|call| {
            let kind = KINDS.iter().find(|kind| kind.function == call.function)?;
            Some((kind, call))
        })
        .collect();
    // A cycle begins before its phases.
    calls.sort_by_key(|(kind, call)| (call.start_ns, kind.cycle.is_some()));
    let mut spans = Vec::with_capacity(calls.len() + 1);
    let mut cycles: Vec<(Function, [u8; 8])> = Vec::with_capacity(2);
    spans.push(root);
    for (index, (kind, call)) in calls.into_iter().enumerate() {
        let span_id = span_id(&trace_id, index as u64 + 1);
        let cycle = kind.cycle.and_then(|cycle| cycles.iter().rfind(|(function, _)| *function == cycle));
        let parent = cycle.map_or(spans[0].span_id, |(_, id)| *id);
        if kind.cycle.is_none() {
            cycles.push((kind.function, span_id));
        }
        spans.push(Span {
            span_id,
            parent_id: Some(parent),
            name: Cow::Borrowed(kind.name),
            start_unix_ns: anchor.unix(call.start_ns),
            end_unix_ns: anchor.unix(call.end_ns),
            attributes: phase_attributes(attempt, kind, call),
            links: Vec::new(),
            status: phase_status(call),
        });
    }
    Trace { target: attempt.target, trace_id, spans }
}

/// `WaitOnPermit` is called for every Pod; the scheduler counts, and a user means, the Pods that had to wait.
fn waited(attempt: &Attempt) -> bool {
    attempt.calls.iter().any(|call| call.function == Function::Permit && call.code == Some(Code::WAIT))
}

fn root_attributes(attempt: &Attempt, anchor: Anchor) -> Vec<(&'static str, AttributeValue)> {
    let string = |value: &str| AttributeValue::String(Cow::Owned(value.to_owned()));
    let milliseconds = |ns: u64| AttributeValue::Double(ns as f64 / 1e6);
    let mut list = vec![
        (attributes::POD_NAME, string(&attempt.pod.name)),
        (attributes::POD_NAMESPACE, string(&attempt.pod.namespace)),
        (attributes::POD_UID, string(&attempt.pod.uid)),
        (attributes::PROFILE, string(&attempt.pod.profile)),
    ];
    if let Some(result) = result(&attempt.outcome) {
        list.push((attributes::RESULT, AttributeValue::String(Cow::Borrowed(result))));
    }
    // A Node that was chosen and then not bound is no result.
    if let (Some(node), Outcome::Scheduled) = (&attempt.node, &attempt.outcome) {
        list.push((attributes::SELECTED_NODE, string(node)));
    }
    if let Some(number) = attempt.number {
        list.push((attributes::ATTEMPT, AttributeValue::Int(i64::try_from(number).unwrap_or(i64::MAX))));
    }
    if let Some(enqueued) = attempt.enqueued_ns {
        list.push((attributes::QUEUE_WAIT_MS, milliseconds(attempt.start_ns.saturating_sub(enqueued))));
    }
    if let Some(added) = attempt.queue_timestamp {
        let wait = anchor.unix(attempt.start_ns).saturating_sub(added);
        list.push((attributes::QUEUE_TOTAL_WAIT_MS, milliseconds(wait)));
    }
    if attempt.incomplete {
        list.push((attributes::INCOMPLETE, AttributeValue::Bool(true)));
    }
    list
}

fn phase_attributes(attempt: &Attempt, kind: &Kind, call: &Call) -> Vec<(&'static str, AttributeValue)> {
    let mut list = vec![
        (attributes::PHASE, AttributeValue::String(Cow::Borrowed(kind.name))),
        (attributes::PROFILE, AttributeValue::String(Cow::Owned(attempt.pod.profile.clone()))),
    ];
    if let Some(code) = call.code {
        list.push((attributes::RESULT, AttributeValue::String(Cow::Owned(code.to_string()))));
    }
    if !call.returned {
        list.push((attributes::INCOMPLETE, AttributeValue::Bool(true)));
    }
    list
}

/// The words that `schedule_attempts_total` tells apart, as KEP-5927 writes them.
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

fn phase_status(call: &Call) -> Status {
    match call.code {
        Some(code) if code == Code::ERROR || code.is_rejected() => Status::Error(code.to_string()),
        _ => Status::Unset,
    }
}

/// Identities follow from what the attempt is, so that the same attempt always has the same ones.
fn trace_id(attempt: &Attempt) -> [u8; 16] {
    let mut hasher = SipHasher13::new();
    hasher.write(attempt.pod.uid.as_bytes());
    hasher.write_u64(attempt.start_ns);
    hasher.write_u32(attempt.target);
    let id = hasher.finish128().as_bytes();
    // All zero means "no trace".
    if id == [0; 16] { [1; 16] } else { id }
}

fn span_id(trace_id: &[u8; 16], index: u64) -> [u8; 8] {
    let mut hasher = SipHasher13::new();
    hasher.write(trace_id);
    hasher.write_u64(index);
    let id = std::hash::Hasher::finish(&hasher).to_be_bytes();
    if id == [0; 8] { [1; 8] } else { id }
}
