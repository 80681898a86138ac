//! What became of a Pod, and why, in words: attempts in, text out.
//!
//! Pure: no clock and no I/O. The daemon makes an [`Account`] of each trace and keeps it for a while, and whoever asks
//! gets a [`Report`] of one Pod's, which [`text`] puts into words.

mod reasons;
#[cfg(test)]
mod tests;
mod words;

use serde::{Deserialize, Serialize};
use spans::{AttributeValue, Phase as Point, Span, SpanKind, Status, Trace, attributes, names::PLUGIN};

pub use self::words::{conclusion, text, unknown};

/// Changes when a field goes away or changes its meaning, not when one is added.
pub const SCHEMA_VERSION: u32 = 1;
/// Plugins of a phase that an account keeps: those that had something to say, and the slowest of the others.
const PLUGINS: usize = 3;

/// What the daemon knows of a Pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The Pod's namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// When the report was made, by the daemon's clock, microseconds since the Unix epoch.
    pub now_unix_us: u64,
    /// What the daemon remembers of all Pods.
    pub history: Kept,
    /// Whether it was waited for the last attempt, and it came.
    pub waited_for_it: bool,
    /// Other namespaces with attempts of a Pod of this name.
    pub also_in: Vec<String>,
    /// The Pod's attempts, oldest first.
    pub attempts: Vec<Account>,
    /// Why the Pod is where it is, in a sentence; empty without attempts.
    pub conclusion: String,
}

/// What a daemon remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// Attempts of all Pods.
    pub attempts: u64,
    /// How many it may be; none are kept with 0.
    pub limit: u64,
    /// When the oldest of them began, microseconds since the Unix epoch.
    pub since_unix_us: Option<u64>,
}

/// An attempt, as it is told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// The trace of the attempt, in hex.
    pub trace_id: String,
    /// The Pod's namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// Its scheduling profile.
    pub profile: String,
    /// 1 for the first attempt.
    pub attempt: Option<u64>,
    /// When it began, microseconds since the Unix epoch.
    pub start_unix_us: u64,
    /// How long it took, nanoseconds; so are all durations.
    pub duration_ns: u64,
    /// `Success`, `Unschedulable` or `Error`; `None` where the end was not seen.
    pub result: Option<String>,
    /// Why it failed, as the scheduler words it.
    pub message: String,
    /// The Node that the Pod was bound to.
    pub node: Option<String>,
    /// How many Nodes were looked at.
    pub evaluated_nodes: Option<u64>,
    /// How many of these would do.
    pub feasible_nodes: Option<u64>,
    /// To how many Nodes plugins restricted the search.
    pub restricted_to_nodes: Option<u64>,
    /// The Nodes with the best scores, best first, as `node: total (plugin score, ...)`.
    #[serde(default)]
    pub candidates: Vec<String>,
    /// How many Nodes have the highest score.
    #[serde(default)]
    pub ties: u64,
    /// Who must go so that the Pod can come.
    pub preemption: Option<Preemption>,
    /// The way through the queues before the attempt.
    pub queue: Queue,
    /// The plugins that said no.
    pub rejected_by: Vec<Rejection>,
    /// The phases, in their order.
    pub phases: Vec<Phase>,
    /// Whether records of it were lost.
    pub incomplete: bool,
}

/// Victims, and the Node that they free.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// The Node.
    pub node: String,
    /// How many victims there are.
    pub victims: u64,
    /// The first ones' names.
    pub names: Vec<String>,
}

/// Where a Pod was before its attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// In the active queue, where that was seen.
    pub active_ns: Option<u64>,
    /// In the backoff queue.
    pub backoff_ns: Option<u64>,
    /// Among the unschedulable Pods.
    pub unschedulable_ns: Option<u64>,
    /// In any queue.
    pub total_ns: Option<u64>,
    /// Entries into queues, oldest first.
    pub moves: Vec<Move>,
    /// How many entries in the middle are left out.
    pub moves_left_out: u64,
}

/// An entry into a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Which queue.
    pub queue: String,
    /// Why.
    pub event: String,
}

/// A plugin that said no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// Its name.
    pub plugin: String,
    /// Where; `None` where it is only known from the words of the message.
    pub extension_point: Option<String>,
    /// What it said.
    pub message: String,
}

/// A phase of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub duration_ns: u64,
    /// Some of its plugins, the slowest first.
    pub plugins: Vec<Plugin>,
}

/// A plugin's part of a phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plugin {
    /// Its name.
    pub name: String,
    /// How long it took.
    pub duration_ns: u64,
    /// What it returned.
    pub result: Option<String>,
    /// What it said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Report {
    /// A report of attempts.
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
        }
    }
}

impl Account {
    /// Tells an attempt.
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
        moves: moves
            .map(|(queue, event)| Move { queue: queue.to_owned(), event: event.to_owned() })
            .collect(),
        moves_left_out: number(root, attributes::QUEUE_MOVES_LEFT_OUT).unwrap_or_default(),
    }
}

/// The status of a root is `Code`, `Code by Plugin`, or one of these, a colon and the message.
fn message(root: &Span) -> String {
    let Status::Error(status) = &root.status else { return String::new() };
    status.split_once(": ").map(|(_, message)| message.to_owned()).unwrap_or_default()
}

fn phases(trace: &Trace) -> Vec<Phase> {
    let plugins = |of: &Span| {
        let of = Some(of.span_id);
        trace.spans.iter().filter(move |span| span.parent_id == of && span.kind == SpanKind::Plugin)
    };
    let phases = trace.spans.iter().skip(1).filter(|span| is_phase(span.kind)).map(|span| Phase {
        name: span.name.to_string(),
        duration_ns: span.duration_ns(),
        plugins: worth_telling(plugins(span).collect()),
    });
    phases.collect()
}

/// Whether a span takes time of its own that is worth a mention: cycles hold phases, and stays in queues are before the attempt.
fn is_phase(kind: SpanKind) -> bool {
    match kind {
        SpanKind::Phase(_)
        | SpanKind::Extender
        | SpanKind::ApiCall
        | SpanKind::Victim
        | SpanKind::Placement
        | SpanKind::Trial
        | SpanKind::Stage(_)
        | SpanKind::Other => true,
        SpanKind::Root(_) | SpanKind::Cycle(_) | SpanKind::Plugin | SpanKind::QueueStay => false,
    }
}

/// The plugins that returned something else than that all is well, and the slowest of the others.
fn worth_telling(mut plugins: Vec<&Span>) -> Vec<Plugin> {
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
        name: span.name.strip_prefix(PLUGIN).unwrap_or_default().to_owned(),
        duration_ns: span.duration_ns(),
        result: string(span, attributes::RESULT),
        message: string(span, attributes::MESSAGE).unwrap_or_default(),
    });
    told.collect()
}

fn rejects(result: Option<&str>) -> bool {
    !matches!(result, None | Some("Success" | "Skip" | "Wait"))
}

impl Plugin {
    fn rejects(&self) -> bool {
        rejects(self.result.as_deref())
    }
}

/// Who said no: plugins that were seen to, the one that the status names, and those that rejected Nodes. Where that was not
/// read, as with less detail, it is those that the message's words are of. What preemption found is none of it.
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
