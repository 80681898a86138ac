//! Attempts in a few words each: for lists of all that are remembered.
//!
//! Pure, as [`explain`](crate::explain), which is about one Pod.

use std::{
    collections::{BTreeMap, HashMap},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use serde::Serialize;
use spans::{figures::parse_duration, text::cut};

use crate::explain::{Account, Rejection, reasons};

/// Reasons kept of an attempt.
const MAX_REASONS: usize = 8;
/// Characters kept of a reason.
const MAX_TEXT: usize = 256;
/// Attempts that a percentile needs.
const LEAST: usize = 20;
/// Pods listed for a reason.
const MAX_PODS: usize = 200;

/// An attempt in a few words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Brief {
    /// Trace ID of the attempt, in hex.
    pub trace_id: String,
    /// The Pod's namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// Number of the attempt, 1 for the first.
    pub attempt: Option<u64>,
    /// Start of the attempt, microseconds since the Unix epoch.
    pub start_unix_us: u64,
    /// Duration of the attempt, nanoseconds.
    pub duration_ns: u64,
    /// `Success`, `Unschedulable` or `Error`; `None` if the end was not seen.
    pub result: Option<String>,
    /// The Node that the Pod was bound to.
    pub node: Option<String>,
    /// Other Pods must leave a Node for it.
    pub preempting: bool,
    /// Why it failed.
    pub reasons: Vec<Reason>,
}

/// Why an attempt failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// The plugin that rejected the Pod, or Nodes for it; empty if it is not known.
    pub plugin: String,
    /// What it says.
    pub words: String,
    /// A change that would let the Pod fit, where one is known.
    pub remedy: Option<&'static str>,
    /// On how many Nodes, where it is about Nodes.
    pub nodes: Option<u64>,
}

impl Brief {
    /// Summarizes an attempt in a few words.
    #[must_use]
    pub fn of(account: &Account) -> Self {
        let Account {
            trace_id,
            namespace,
            pod,
            uid,
            attempt,
            start_unix_us,
            duration_ns,
            result,
            node,
            preemption,
            ..
        } = account;
        let reasons = if account.result.as_deref() == Some("Success") { Vec::new() } else { why(account) };
        Self {
            trace_id: trace_id.clone(),
            namespace: namespace.clone(),
            pod: pod.clone(),
            uid: uid.clone(),
            attempt: *attempt,
            start_unix_us: *start_unix_us,
            duration_ns: *duration_ns,
            result: result.clone(),
            node: node.clone(),
            preempting: preemption.is_some(),
            reasons,
        }
    }

    /// Whether it ended, and not with success.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.result.as_deref().is_some_and(|result| result != "Success")
    }

    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        let Self { trace_id, namespace, pod, uid, result, node, reasons, .. } = self;
        let texts = [trace_id, namespace, pod, uid]
            .into_iter()
            .chain(result)
            .chain(node)
            .map(String::len)
            .sum::<usize>();
        let of = |reason: &Reason| size_of::<Reason>() + reason.plugin.len() + reason.words.len();
        texts + reasons.iter().map(of).sum::<usize>()
    }
}

/// The reasons of a failure: what plugins say of the whole Pod, and what they say of Nodes.
fn why(account: &Account) -> Vec<Reason> {
    let is_of_nodes = |rejection: &&Rejection| rejection.extension_point.as_deref() == Some("filter");
    let text = |words: &str| cut(words, MAX_TEXT).to_owned();
    let reason = |plugin: &str, words: &str, nodes| Reason {
        plugin: text(plugin),
        words: text(words),
        remedy: reasons::of(words).iter().find_map(|reason| Some(reason.known?.remedy)),
        nodes,
    };
    let mut list: Vec<Reason> = account
        .rejected_by
        .iter()
        .filter(|rejection| rejection.extension_point.is_some() && !is_of_nodes(rejection))
        .map(|Rejection { plugin, extension_point, message }| {
            let point = extension_point.as_deref().unwrap_or_default();
            let words = if message.is_empty() { format!("said no in {point}") } else { message.clone() };
            reason(plugin, &words, None)
        })
        .collect();
    let mut of_nodes = account.rejected_by.iter().filter(is_of_nodes);
    // The words of a plugin that is not known can only be its own where no other rejected Nodes.
    let only =
        of_nodes.next().filter(|_| of_nodes.next().is_none()).map_or("", |rejection| &rejection.plugin);
    for of in reasons::of(&account.message) {
        let plugin = of.known.map_or(only, |known| known.plugin);
        if (of.nodes.is_some() || of.known.is_some() || list.is_empty())
            && !list.iter().any(|known| known.plugin == plugin && known.words.contains(of.words))
        {
            list.push(reason(plugin, of.words, of.nodes));
        }
    }
    if list.is_empty() {
        list.push(reason("", "the scheduler did not say why", None));
    }
    list.truncate(MAX_REASONS);
    list
}

/// Pods that were rejected for the same reason when they were tried last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// The plugin; empty if it is not known.
    pub plugin: String,
    /// What it says.
    pub reason: String,
    /// A change that would let the Pods fit, where one is known.
    pub remedy: Option<&'static str>,
    /// Number of these Pods.
    pub count: u64,
    /// The Pods, with the last attempt of each, those that have waited longest first. A Pod may have several reasons.
    pub pods: Vec<Waiting>,
}

/// A Pod that is pending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub pod: String,
    /// Number of the last attempt.
    pub attempt: Option<u64>,
    /// Start of the first attempt that is remembered, microseconds since the Unix epoch.
    pub first_unix_us: u64,
    /// Start of the last attempt, microseconds since the Unix epoch.
    pub last_unix_us: u64,
    /// Nodes that were rejected for this reason.
    pub nodes: Option<u64>,
}

/// The Pods whose last attempt failed, by plugin and reason, the most frequent first. Attempts are given oldest first.
#[must_use]
pub fn pending(attempts: &[Arc<Brief>]) -> Vec<Pending> {
    let mut pods = HashMap::<(&str, &str), (u64, &Brief)>::new();
    for attempt in attempts.iter().map(|attempt| &**attempt) {
        let pod = pods
            .entry((attempt.namespace.as_str(), attempt.pod.as_str()))
            .or_insert((attempt.start_unix_us, attempt));
        // A name may be used again.
        let first = if pod.1.uid == attempt.uid { pod.0 } else { attempt.start_unix_us };
        *pod = (first, attempt);
    }
    let mut reasons = BTreeMap::<(&str, String), Pending>::new();
    for (first_unix_us, last) in pods.into_values().filter(|(_, last)| last.failed()) {
        for Reason { plugin, words, remedy, nodes } in &last.reasons {
            let of = reasons.entry((plugin.as_str(), words.clone())).or_insert_with(|| Pending {
                plugin: plugin.clone(),
                reason: words.clone(),
                remedy: *remedy,
                ..Pending::default()
            });
            of.count += 1;
            of.pods.push(Waiting {
                namespace: last.namespace.clone(),
                pod: last.pod.clone(),
                attempt: last.attempt,
                first_unix_us,
                last_unix_us: last.start_unix_us,
                nodes: *nodes,
            });
        }
    }
    let mut list: Vec<_> = reasons.into_values().collect();
    for Pending { pods, .. } in &mut list {
        pods.sort_by(|one, other| (one.first_unix_us, &one.pod).cmp(&(other.first_unix_us, &other.pod)));
        pods.truncate(MAX_PODS);
    }
    list.sort_by_key(|of| std::cmp::Reverse(of.count));
    list
}

/// Which attempts are wanted: conditions of `--keep` that all must hold, such as `failed,slower-than=10ms`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Keep(Vec<Condition>);

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Failed,
    SlowerThan(Duration),
    /// Slower than this percentage of those that are remembered.
    SlowerThanMost(f64),
    Preempting,
    FirstAttempt,
    Namespace(String),
    /// A name, or with a `*` at its end, the beginning of one.
    Pod(String),
}

/// The conditions that can be asked of attempts that are remembered.
const CONDITIONS: &str = "failed, slower-than=10ms, slower-than=p99, preempting, first-attempt, namespace=NAME, pod=NAME or pod=PREFIX*";

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        all.map(condition).collect::<Result<_, _>>().map(Self)
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    Ok(match (name, value) {
        ("failed", "") => Condition::Failed,
        ("preempting", "") => Condition::Preempting,
        ("first-attempt", "") => Condition::FirstAttempt,
        ("namespace", name) if !name.is_empty() => Condition::Namespace(name.to_owned()),
        ("pod", name) if !name.is_empty() => Condition::Pod(name.to_owned()),
        ("slower-than", value) => match value.strip_prefix('p') {
            Some(percentile) => {
                let percentile = percentile.parse().ok().filter(|of| (0.0..100.0).contains(of));
                Condition::SlowerThanMost(
                    percentile.ok_or_else(|| format!("`{value}` is not a percentile such as p99"))?,
                )
            }
            None => {
                Condition::SlowerThan(parse_duration(value).map_err(|error| format!("`{text}`: {error}"))?)
            }
        },
        _ => return Err(format!("`{text}` is not one of {CONDITIONS}")),
    })
}

impl Keep {
    /// The attempts that meet all conditions, in their order. A percentile needs twenty attempts, and holds for none before.
    #[must_use]
    pub fn of(&self, attempts: &[Arc<Brief>]) -> Vec<Arc<Brief>> {
        let mut durations: Vec<u64> = attempts.iter().map(|attempt| attempt.duration_ns).collect();
        durations.sort_unstable();
        let percentile = |percent: f64| {
            let rank = (durations.len() as f64 * percent / 100.0).ceil() as usize;
            durations.get(rank.saturating_sub(1)).filter(|_| durations.len() >= LEAST)
        };
        let holds = |condition: &Condition, attempt: &Brief| match condition {
            Condition::Failed => attempt.failed(),
            Condition::SlowerThan(limit) => Duration::from_nanos(attempt.duration_ns) > *limit,
            Condition::SlowerThanMost(percent) => {
                percentile(*percent).is_some_and(|limit| attempt.duration_ns > *limit)
            }
            Condition::Preempting => attempt.preempting,
            Condition::FirstAttempt => attempt.attempt == Some(1),
            Condition::Namespace(name) => attempt.namespace == *name,
            Condition::Pod(name) => match name.strip_suffix('*') {
                Some(prefix) => attempt.pod.starts_with(prefix),
                None => attempt.pod == *name,
            },
        };
        let wanted = |attempt: &&Arc<Brief>| self.0.iter().all(|condition| holds(condition, attempt));
        attempts.iter().filter(wanted).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spans::{
        Status, Trace,
        fixtures::{scheduled, unschedulable},
    };

    use super::*;

    /// An attempt whose status is as a scheduler's: the code, and the message of the Pod's condition.
    fn failed() -> Trace {
        let mut trace = unschedulable();
        let message = "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: 3 No preemption victims";
        trace.spans[0].status = Status::Error(format!("Unschedulable: {message} found for incoming pod."));
        trace
    }

    fn brief(pod: &str, result: &str, start_unix_us: u64) -> Arc<Brief> {
        let account = Account::of(&if result == "Success" { scheduled() } else { failed() });
        Arc::new(Brief { pod: pod.to_owned(), start_unix_us, ..Brief::of(&account) })
    }

    #[test]
    fn a_failure_has_plugin_reason_and_remedy() {
        let reasons = Brief::of(&Account::of(&failed())).reasons;
        let insufficient =
            reasons.iter().find(|reason| reason.words == "Insufficient cpu").expect("it is the reason");
        assert_eq!((&*insufficient.plugin, insufficient.nodes), ("NodeResourcesFit", Some(3)));
        assert!(insufficient.remedy.is_some_and(|remedy| remedy.contains("room on a Node")));
        assert_eq!(Brief::of(&Account::of(&scheduled())).reasons, []);
    }

    #[test]
    fn a_plugin_that_says_no_to_the_pod_is_named_with_its_words() {
        let rejection = |plugin: &str, point: Option<&str>, message: &str| Rejection {
            plugin: plugin.to_owned(),
            extension_point: point.map(str::to_owned),
            message: message.to_owned(),
        };
        let account = Account {
            result: Some("Unschedulable".into()),
            message: "not today".into(),
            rejected_by: vec![rejection("Gate", Some("permit"), "not today")],
            ..Account::default()
        };
        let reason = Reason { plugin: "Gate".into(), words: "not today".into(), ..Reason::default() };
        assert_eq!(Brief::of(&account).reasons, [reason]);
        let message = "0/2 nodes are available: 2 my own words.".to_owned();
        let of_nodes = vec![rejection("Mine", Some("filter"), "2 Nodes, Unschedulable")];
        let account = Account { message, rejected_by: of_nodes, ..account };
        let reason =
            Reason { plugin: "Mine".into(), words: "my own words".into(), remedy: None, nodes: Some(2) };
        assert_eq!(Brief::of(&account).reasons, [reason]);
        let silent = Account { result: Some("Error".into()), ..Account::default() };
        assert_eq!(Brief::of(&silent).reasons.len(), 1);
    }

    #[test]
    fn a_pod_is_pending_until_an_attempt_succeeds() {
        let attempts = [
            brief("one", "Unschedulable", 1),
            brief("two", "Unschedulable", 2),
            brief("one", "Unschedulable", 3),
            brief("three", "Unschedulable", 4),
            brief("three", "Success", 5),
        ];
        let list = pending(&attempts);
        assert_eq!(list.len(), 1, "{list:?}");
        assert_eq!(
            (list[0].count, &*list[0].plugin, &*list[0].reason),
            (2, "NodeResourcesFit", "Insufficient cpu")
        );
        let pods: Vec<_> =
            list[0].pods.iter().map(|of| (&*of.pod, of.first_unix_us, of.last_unix_us)).collect();
        assert_eq!(pods, [("one", 1, 3), ("two", 2, 2)]);
    }

    #[test]
    fn conditions_select_attempts_as_those_of_keep_do() {
        let attempts: Vec<_> = (0..40)
            .map(|number| {
                let result = if number % 4 == 0 { "Unschedulable" } else { "Success" };
                let brief = brief(&format!("web-{number}"), result, number);
                Arc::new(Brief { duration_ns: number * 1_000_000, ..(*brief).clone() })
            })
            .collect();
        let count = |keep: &str| keep.parse::<Keep>().unwrap().of(&attempts).len();
        for (keep, expected) in [
            ("", 40),
            ("failed", 10),
            ("slower-than=10ms", 29),
            ("failed,slower-than=10ms", 7),
            ("slower-than=p90", 4),
            ("namespace=default,pod=web-1*", 11),
            ("namespace=shop", 0),
            ("preempting", 0),
            ("first-attempt", 40),
        ] {
            assert_eq!(count(keep), expected, "{keep}");
        }
        assert_eq!(
            "slower-than=p50".parse::<Keep>().unwrap().of(&attempts[..10]).len(),
            0,
            "too few for a percentile"
        );
        assert_eq!("slower-than=p50".parse::<Keep>().unwrap().of(&[]).len(), 0);
        for bad in
            ["slow", "failed=1", "slower-than", "slower-than=p100", "slower-than=px", "label=a", "namespace="]
        {
            assert!(bad.parse::<Keep>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic_and_texts_are_bounded(message in ".{0,600}") {
            let account = Account { result: Some("Error".into()), message, ..Account::default() };
            let reasons = Brief::of(&account).reasons;
            prop_assert!((1..=MAX_REASONS).contains(&reasons.len()));
            prop_assert!(reasons.iter().all(|reason| reason.words.chars().count() <= MAX_TEXT));
        }
    }
}
