//! Explains what happened to a Pod and why: attempts in, text out.
//!
//! Pure: no clock and no I/O. The daemon keeps an [`Account`] of each trace for a while. A request gets the
//! [`Report`] of one Pod, which [`text`] formats.

mod nodes;
pub(crate) mod packed;
pub(crate) mod reasons;
#[cfg(test)]
mod tests;
mod waterfall;
mod words;

use serde::{Deserialize, Serialize};
use spans::{AttributeValue, Phase as Point, Span, SpanKind, Status, Trace, attributes, names::PLUGIN};

pub use self::nodes::{RejectedGroup, RejectedNodes};
pub use self::waterfall::waterfall;
pub use self::words::{conclusion, of_event, text, unknown};
pub(crate) use self::words::{count, rough, time_of_day, wrap};
use crate::queue::{self, Waiting};

/// Version of the JSON schema. Changes when a field is removed or changes its meaning, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;
/// Plugins kept per phase: all with a notable result, and the slowest of the others.
const PLUGINS: usize = 3;

/// A report on one Pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The Pod's namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Time of the report by the daemon's clock, microseconds since the Unix epoch.
    pub now_unix_us: u64,
    /// The daemon's history of all Pods.
    pub history: Kept,
    /// The client waited for the last attempt, and it arrived.
    pub waited_for_it: bool,
    /// Other namespaces with attempts of a Pod with the same name.
    pub also_in: Vec<String>,
    /// The Pod's attempts, oldest first.
    pub attempts: Vec<Account>,
    /// Why the Pod is where it is, in a sentence; empty without attempts.
    pub conclusion: String,
    /// Where it waits, if it has no Node.
    #[serde(default)]
    pub waiting: Option<Box<Waiting>>,
    /// Schedulers that stand still, a sentence each.
    #[serde(default)]
    pub stalls: Vec<String>,
}

/// Extent of the daemon's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// Attempts of all Pods.
    pub attempts: u64,
    /// Maximum of `attempts`; 0 disables the history.
    pub limit: u64,
    /// Start of the oldest attempt, microseconds since the Unix epoch.
    pub since_unix_us: Option<u64>,
}

/// Summary of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// Trace ID of the attempt, in hex.
    pub trace_id: String,
    /// The Pod's namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// Its scheduling profile.
    pub profile: String,
    /// Kinds of terms in its spec that plugins evaluate; empty if there are none, or it is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<String>,
    /// Number of the attempt, 1 for the first.
    pub attempt: Option<u64>,
    /// Start of the attempt, microseconds since the Unix epoch.
    pub start_unix_us: u64,
    /// Duration of the attempt, nanoseconds; so are all durations.
    pub duration_ns: u64,
    /// `Success`, `Unschedulable` or `Error`; `None` if the end was not seen.
    pub result: Option<String>,
    /// The scheduler's failure message.
    pub message: String,
    /// The Node that the Pod was bound to.
    pub node: Option<String>,
    /// Number of Nodes evaluated.
    pub evaluated_nodes: Option<u64>,
    /// Number of feasible Nodes.
    pub feasible_nodes: Option<u64>,
    /// Number of Nodes that plugins restricted the search to.
    pub restricted_to_nodes: Option<u64>,
    /// The Nodes with the highest scores, highest first, as `node: total (plugin score, ...)`.
    #[serde(default)]
    pub candidates: Vec<String>,
    /// Number of Nodes with the highest score.
    #[serde(default)]
    pub ties: u64,
    /// Victims to evict so that the Pod fits.
    pub preemption: Option<Preemption>,
    /// Queue history before the attempt.
    pub queue: Queue,
    /// The plugins that rejected the Pod.
    pub rejected_by: Vec<Rejection>,
    /// The Nodes that plugins rejected, by name, where they are asked for and still known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_nodes: Option<RejectedNodes>,
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// Records of the attempt were lost.
    pub incomplete: bool,
}

/// Victims, and the Node that their eviction frees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// Name of the Node.
    pub node: String,
    /// Number of victims.
    pub victims: u64,
    /// Names of the first victims.
    pub names: Vec<String>,
}

/// Times in the queues before an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Time in the active queue; `None` if the entry was not seen.
    pub active_ns: Option<u64>,
    /// Time in the backoff queue.
    pub backoff_ns: Option<u64>,
    /// Time among the unschedulable Pods.
    pub unschedulable_ns: Option<u64>,
    /// Time in all queues.
    pub total_ns: Option<u64>,
    /// Time for which `PreEnqueue` plugins held the Pod.
    #[serde(default)]
    pub gated_ns: Option<u64>,
    /// These plugins, as far as they are known.
    #[serde(default)]
    pub gated_by: Vec<String>,
    /// Queue entries, oldest first.
    pub moves: Vec<Move>,
    /// Number of entries left out in the middle.
    pub moves_left_out: u64,
}

/// A Pod's entry into a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Name of the queue.
    pub queue: String,
    /// The event that caused the entry.
    pub event: String,
}

/// A plugin that rejected the Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// Name of the plugin.
    pub plugin: String,
    /// Extension point; `None` if it is only known from the text of the message.
    pub extension_point: Option<String>,
    /// The plugin's message.
    pub message: String,
}

/// A phase of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// Name of the phase.
    pub name: String,
    /// Start of the phase, after that of the attempt.
    #[serde(default)]
    pub start_ns: u64,
    /// Duration of the phase.
    pub duration_ns: u64,
    /// Some of the phase's plugins, slowest first.
    pub plugins: Vec<Plugin>,
}

/// A plugin's part of a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plugin {
    /// Name of the plugin.
    pub name: String,
    /// Start of the plugin's part, after that of the attempt.
    #[serde(default)]
    pub start_ns: u64,
    /// Duration of the plugin's part.
    pub duration_ns: u64,
    /// Status code that the plugin returned.
    pub result: Option<String>,
    /// The plugin's message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Present where the duration is a share of the phase, not the time of a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
}

/// A plugin's share of a phase that runs its plugins on many Nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// Percent of the phase's CPU time; with `exact`, of the time of all calls of plugins.
    #[serde(default)]
    pub percent: u64,
    /// Number of the plugin's samples; 0 with `exact`.
    #[serde(default)]
    pub samples: u64,
    /// Number of the phase's samples; 0 with `exact`.
    #[serde(default)]
    pub samples_of_phase: u64,
    /// Number of calls, with `exact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Number of Nodes that the plugin rejected, with `exact`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected_nodes: Option<u64>,
    /// `sampled` in the attempt itself; `profile` of the last minute; `exact` if each call was timed.
    pub basis: String,
}

impl Report {
    /// Builds a report of attempts.
    #[must_use]
    pub fn new(
        namespace: String,
        pod: String,
        now_unix_us: u64,
        history: Kept,
        attempts: Vec<Account>,
    ) -> Self {
        let conclusion = conclusion(&attempts);
        Self {
            schema_version: SCHEMA_VERSION,
            namespace,
            pod,
            now_unix_us,
            history,
            waited_for_it: false,
            also_in: Vec::new(),
            attempts,
            conclusion,
            waiting: None,
            stalls: Vec::new(),
        }
    }

    /// One report of what several daemons know about a Pod, or `None` without any. After a change of the scheduler that leads, a Pod's
    /// attempts are with two of them.
    #[must_use]
    pub fn merged(reports: Vec<Self>) -> Option<Self> {
        let mut reports = reports.into_iter();
        let mut all = reports.next()?;
        for report in reports {
            let Self {
                schema_version: _,
                namespace: _,
                pod: _,
                now_unix_us,
                history: Kept { attempts: known, limit, since_unix_us },
                waited_for_it,
                also_in,
                attempts,
                conclusion: _,
                waiting,
                stalls,
            } = report;
            all.now_unix_us = all.now_unix_us.max(now_unix_us);
            all.history.attempts = all.history.attempts.saturating_add(known);
            all.history.limit = all.history.limit.saturating_add(limit);
            all.history.since_unix_us = all.history.since_unix_us.into_iter().chain(since_unix_us).min();
            all.waited_for_it |= waited_for_it;
            all.also_in.extend(also_in);
            all.attempts.extend(attempts);
            // That of the scheduler in whose queue it is.
            if all.waiting.as_ref().is_none_or(|known| known.pid.is_none()) {
                all.waiting = waiting.or(all.waiting);
            }
            all.stalls.extend(stalls);
        }
        all.also_in.sort();
        all.also_in.dedup();
        all.attempts.sort_by_key(|account| account.start_unix_us);
        // Two daemons on one Node trace the same scheduler.
        all.attempts.dedup_by(|one, other| one.trace_id == other.trace_id);
        all.conclusion = conclusion(&all.attempts);
        Some(all)
    }

    /// Whether there is an attempt of the Pod, or it waits.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.attempts.is_empty() || self.waiting.is_some()
    }

    /// Adds where the Pod waits.
    #[must_use]
    pub fn with(self, answer: queue::Answer) -> Self {
        let stalls = queue::stalls(&answer);
        // The newest of this name.
        let waiting = answer
            .only(Some(&self.namespace), Some(&self.pod))
            .pods
            .into_iter()
            .max_by_key(|pod| pod.since_unix_us)
            .map(Box::new);
        Self { waiting, stalls, ..self }
    }
}

impl Account {
    /// Heading of [`Self::rejected_by`], which for a scheduled Pod has Nodes that it did not fit.
    #[must_use]
    pub fn rejected_heading(&self) -> &'static str {
        if self.node.is_some() { "Did not fit" } else { "Rejected by" }
    }

    /// Summarizes an attempt.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let root = trace.root();
        let phases = phases(trace);
        let message = message(root);
        Self {
            trace_id: format!("{:032x}", u128::from_be_bytes(trace.trace_id)),
            namespace: string(root, attributes::POD_NAMESPACE).unwrap_or_default(),
            pod: string(root, attributes::POD_NAME).unwrap_or_default(),
            uid: string(root, attributes::POD_UID).unwrap_or_default(),
            profile: string(root, attributes::PROFILE).unwrap_or_default(),
            terms: strings(root, attributes::POD_TERMS).to_vec(),
            attempt: number(root, attributes::ATTEMPT),
            start_unix_us: root.start_unix_ns / 1000,
            duration_ns: root.duration_ns(),
            result: string(root, attributes::RESULT),
            node: string(root, attributes::SELECTED_NODE),
            evaluated_nodes: number(root, attributes::EVALUATED_NODES),
            feasible_nodes: number(root, attributes::FEASIBLE_NODES),
            restricted_to_nodes: number(root, attributes::RESTRICTED_TO_NODES),
            candidates: strings(root, attributes::CANDIDATES).to_vec(),
            ties: number(root, attributes::CANDIDATE_TIES).unwrap_or_default(),
            preemption: number(root, attributes::PREEMPTION_VICTIMS).map(|victims| Preemption {
                node: string(root, attributes::PREEMPTION_NODE).unwrap_or_default(),
                victims,
                names: strings(root, attributes::PREEMPTION_VICTIM_NAMES).to_vec(),
            }),
            queue: queue(root),
            rejected_by: rejections(root, &phases, &message),
            rejected_nodes: RejectedNodes::of(trace),
            phases,
            message,
            incomplete: root.attribute(attributes::INCOMPLETE) == Some(&AttributeValue::Bool(true)),
        }
    }
}

fn string(span: &Span, key: &str) -> Option<String> {
    span.attribute(key).map(|value| match value {
        AttributeValue::String(text) => text.to_string(),
        other => other.to_string(),
    })
}

fn strings<'a>(span: &'a Span, key: &str) -> &'a [String] {
    match span.attribute(key) {
        Some(AttributeValue::Strings(list)) => list,
        _ => &[],
    }
}

fn number(span: &Span, key: &str) -> Option<u64> {
    match span.attribute(key) {
        Some(AttributeValue::Int(number)) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn queue(root: &Span) -> Queue {
    let nanoseconds = |key| match root.attribute(key) {
        Some(AttributeValue::Double(milliseconds)) => Some((milliseconds * 1e6) as u64),
        _ => None,
    };
    let moves = strings(root, attributes::QUEUE_MOVES).iter().filter_map(|entry| entry.split_once(": "));
    Queue {
        active_ns: nanoseconds(attributes::QUEUE_WAIT_MS),
        backoff_ns: nanoseconds(attributes::QUEUE_BACKOFF_MS),
        unschedulable_ns: nanoseconds(attributes::QUEUE_UNSCHEDULABLE_MS),
        total_ns: nanoseconds(attributes::QUEUE_TOTAL_WAIT_MS),
        gated_ns: nanoseconds(attributes::GATED_MS),
        gated_by: strings(root, attributes::GATED_BY).to_vec(),
        moves: moves
            .map(|(queue, event)| Move { queue: queue.to_owned(), event: event.to_owned() })
            .collect(),
        moves_left_out: number(root, attributes::QUEUE_MOVES_LEFT_OUT).unwrap_or_default(),
    }
}

/// Failure message of a root. Its status is `Code`, `Code by Plugin`, or one of these, a colon and the
/// message.
fn message(root: &Span) -> String {
    let Status::Error(status) = &root.status else { return String::new() };
    status.split_once(": ").map(|(_, message)| message.to_owned()).unwrap_or_default()
}

fn phases(trace: &Trace) -> Vec<Phase> {
    let begin = trace.root().start_unix_ns;
    let plugins = |of: &Span| {
        let of = Some(of.span_id);
        let is_plugin = |span: &Span| matches!(span.kind, SpanKind::Plugin | SpanKind::Share);
        trace.spans.iter().filter(move |span| span.parent_id == of && is_plugin(span))
    };
    let phases = trace.spans.iter().skip(1).filter(|span| is_phase(span.kind)).map(|span| Phase {
        name: span.name.to_string(),
        start_ns: span.start_unix_ns.saturating_sub(begin),
        duration_ns: span.duration_ns(),
        plugins: worth_telling(plugins(span).collect(), begin),
    });
    phases.collect()
}

/// Whether a span is a phase of its own: not a cycle, which contains phases, and not a stay in a queue, which
/// is before the attempt.
fn is_phase(kind: SpanKind) -> bool {
    match kind {
        SpanKind::Phase(_)
        | SpanKind::Extender
        | SpanKind::ApiCall
        | SpanKind::Victim
        | SpanKind::Placement
        | SpanKind::Trial
        | SpanKind::Stage(_)
        | SpanKind::Node(_)
        | SpanKind::Api(_)
        | SpanKind::Request
        | SpanKind::Other => true,
        SpanKind::Root(_) | SpanKind::Cycle(_) | SpanKind::Plugin | SpanKind::Share | SpanKind::QueueStay => {
            false
        }
    }
}

/// Plugins with a notable result, and the slowest of the others.
fn worth_telling(mut plugins: Vec<&Span>, begin: u64) -> Vec<Plugin> {
    plugins.sort_by_key(|plugin| std::cmp::Reverse(plugin.duration_ns()));
    let mut quiet = 0;
    plugins.retain(|plugin| {
        let result = match plugin.attribute(attributes::RESULT) {
            Some(AttributeValue::String(result)) => Some(&**result),
            _ => None,
        };
        quiet += usize::from(!rejects(result) && result != Some("Wait"));
        quiet <= PLUGINS || rejects(result)
    });
    let told = plugins.into_iter().map(|span| Plugin {
        name: span.name.after(PLUGIN).unwrap_or_default().to_owned(),
        start_ns: span.start_unix_ns.saturating_sub(begin),
        duration_ns: span.duration_ns(),
        result: string(span, attributes::RESULT),
        message: string(span, attributes::MESSAGE).unwrap_or_default(),
        share: share(span),
    });
    told.collect()
}

/// The plugins whose words are in a message of the scheduler.
pub(crate) fn rejecting_plugins(message: &str) -> Vec<String> {
    let mut plugins: Vec<_> =
        reasons::of(message).iter().filter_map(|reason| Some(reason.known?.plugin.to_owned())).collect();
    plugins.sort();
    plugins.dedup();
    plugins
}

fn share(span: &Span) -> Option<Share> {
    let Some(AttributeValue::Double(part)) = span.attribute(attributes::SHARE) else { return None };
    Some(Share {
        percent: (part * 100.0).round() as u64,
        samples: number(span, attributes::SHARE_SAMPLES).unwrap_or_default(),
        samples_of_phase: number(span, attributes::SHARE_SAMPLES_OF_PHASE).unwrap_or_default(),
        calls: number(span, attributes::CALLS),
        rejected_nodes: number(span, attributes::REJECTED_NODES),
        basis: string(span, attributes::SHARE_BASIS)?,
    })
}

fn rejects(result: Option<&str>) -> bool {
    !matches!(result, None | Some("Success" | "Skip" | "Wait"))
}

impl Plugin {
    fn rejects(&self) -> bool {
        rejects(self.result.as_deref())
    }
}

/// The rejecting plugins: those with a rejecting span, the one that the status names, and those that rejected
/// Nodes. If Node statuses were not captured, as with less detail, the plugins follow from the message's
/// text. Preemption messages do not count.
fn rejections(root: &Span, phases: &[Phase], message: &str) -> Vec<Rejection> {
    let mut list = Vec::new();
    for Phase { name, plugins, .. } in phases.iter().filter(|phase| phase.name != Point::PostFilter.name()) {
        list.extend(plugins.iter().filter(|plugin| plugin.rejects()).map(|plugin| Rejection {
            plugin: plugin.name.clone(),
            extension_point: Some(name.clone()),
            message: plugin.message.clone(),
        }));
    }
    let mut add = |plugin: &str, message: &str| {
        if !list.iter().any(|known: &Rejection| known.plugin == plugin) {
            let (plugin, message) = (plugin.to_owned(), message.to_owned());
            list.push(Rejection { plugin, extension_point: None, message });
        }
    };
    if let Status::Error(status) = &root.status
        && let Some((_, plugin)) = status.split(": ").next().and_then(|head| head.split_once(" by "))
    {
        add(plugin, message);
    }
    let rejected = strings(root, attributes::REJECTIONS);
    let of_words = if rejected.is_empty() { reasons::of(message) } else { Vec::new() };
    for reason in of_words {
        if let Some(known) = reason.known {
            add(known.plugin, reason.words);
        }
    }
    let nodes = rejected.iter().filter_map(|text| {
        let (plugin, nodes) = text.split_once(": ")?;
        let (nodes, code) = nodes.split_once(' ')?;
        let s = if nodes == "1" { "" } else { "s" };
        Some(Rejection {
            plugin: plugin.to_owned(),
            extension_point: Some(Point::Filter.name().to_owned()),
            message: format!("{nodes} Node{s}, {code}"),
        })
    });
    list.extend(nodes);
    list
}
