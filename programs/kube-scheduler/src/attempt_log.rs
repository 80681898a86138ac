//! The attempts of the last minutes, kept in memory for `schedspan explain`: bounded by number and by bytes,
//! oldest evicted first.

mod node_names;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use spans::{Trace, TraceKind};
use tokio::sync::{oneshot, watch};

use self::node_names::{NodeNames, Numbered};
use crate::{
    brief::Brief,
    explain::{Account, Kept, RejectedNodes, Report, packed::Packed},
};

/// Bytes of all entries; an attempt takes some 2 kB.
const MAX_BYTES: usize = 16 << 20;
/// Bytes of the numbers of Nodes, beside those: in an attempt, Nodes that follow each other take a few, and 1,000 others 2 kB. Of older
/// attempts, the Nodes are forgotten first.
const MAX_NODE_BYTES: usize = 1 << 20;
/// Newest attempts of a Pod whose Nodes are in a report by name.
const MAX_NAMED: usize = 10;
/// Newest attempts of a Pod in a report.
const MAX_TOLD: usize = 100;
/// Clients waiting for an attempt.
const MAX_WAITING: usize = 64;

/// Too many clients wait already.
#[derive(Debug, thiserror::Error)]
#[error("{MAX_WAITING} clients wait for attempts already; try again later")]
pub struct TooMany;

/// Log of attempts. Clones share the same log.
#[derive(Clone, Debug, Default)]
pub struct AttemptLog(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    limit: usize,
    bytes: usize,
    node_bytes: usize,
    /// Of the Nodes of all entries.
    node_names: NodeNames,
    /// Oldest first.
    entries: VecDeque<Entry>,
    /// Number of the oldest ones whose Nodes are forgotten.
    nameless: usize,
    waiting: Vec<Waiting>,
    /// Number of attempts that were added.
    added: watch::Sender<u64>,
    /// For [`Packed::of`].
    buffer: Vec<u8>,
}

/// An attempt: most are never asked for, so what is said of them is made then.
#[derive(Debug)]
struct Entry {
    start_unix_us: u64,
    packed: Packed,
    /// [`Account::rejected_nodes`].
    nodes: Option<Numbered>,
    /// For lists of all, from the first one on.
    brief: Option<Arc<Brief>>,
}

/// A Pod's namespace and name.
type Pod = (Box<str>, Box<str>);

/// A client that waits for a Pod's next attempt.
#[derive(Debug)]
struct Waiting {
    pod: Pod,
    answer: oneshot::Sender<Account>,
}

impl Entry {
    fn bytes(&self) -> usize {
        let of_brief = self.brief.as_ref().map_or(0, |brief| size_of::<Brief>() + brief.bytes());
        size_of::<Self>() + self.packed.bytes() + of_brief
    }

    fn node_bytes(&self) -> usize {
        self.nodes.as_ref().map_or(0, Numbered::bytes)
    }
}

impl AttemptLog {
    /// Creates a log of at most `limit` attempts. With 0 it keeps none, and still serves waiting clients.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Memory { limit, ..Memory::default() })))
    }

    /// Adds an attempt and sends it to the clients that wait for it.
    pub fn add(&self, trace: &Trace) {
        let mut memory = self.memory();
        if memory.limit == 0 && memory.waiting.is_empty() {
            return;
        }
        match trace.kind {
            TraceKind::Attempt => {}
            TraceKind::GroupAttempt
            | TraceKind::Configuration
            | TraceKind::Lifecycle
            | TraceKind::Reconcile
            | TraceKind::PodStart
            | TraceKind::PodStorage
            | TraceKind::PodCreation
            | TraceKind::PodDeletion
            | TraceKind::PodEviction
            | TraceKind::Command => return,
        }
        if !memory.waiting.is_empty() {
            memory.tell(&Account::of(trace));
        }
        if memory.limit > 0 {
            let entry = Entry {
                start_unix_us: trace.root().start_unix_ns / 1_000,
                packed: Packed::of(trace, &mut memory.buffer),
                nodes: RejectedNodes::of(trace).and_then(|nodes| memory.number(&nodes)),
                brief: None,
            };
            memory.added.send_modify(|added| *added += 1);
            memory.keep(entry);
        }
    }

    /// Reports the kept attempts of a Pod; of the newest ones the rejected Nodes by name, on request.
    #[must_use]
    pub fn report(&self, namespace: &str, pod: &str, with_nodes: bool, now_unix_us: u64) -> Report {
        let memory = self.memory();
        let kept = memory.kept();
        let named = if with_nodes { MAX_NAMED } else { 0 };
        let mut accounts: Vec<Account> = memory
            .entries
            .iter()
            .rev()
            .filter(|entry| entry.packed.pod() == (namespace, pod))
            .take(MAX_TOLD)
            .enumerate()
            .map(|(number, Entry { packed, nodes, .. })| {
                let nodes = nodes.as_ref().filter(|_| number < named);
                let rejected_nodes = nodes.and_then(|nodes| memory.node_names.named(nodes));
                Account { rejected_nodes, ..packed.account() }
            })
            .collect();
        let of_name = memory.entries.iter().map(|entry| entry.packed.pod()).filter(|(_, name)| *name == pod);
        let elsewhere: BTreeSet<String> = of_name.map(|(namespace, _)| namespace.to_owned()).collect();
        drop(memory);
        accounts.reverse();
        let mut report = Report::new(namespace.to_owned(), pod.to_owned(), now_unix_us, kept, accounts);
        report.also_in = elsewhere.into_iter().filter(|other| other != namespace).take(MAX_TOLD).collect();
        report
    }

    /// Extent of the log.
    #[must_use]
    pub fn kept(&self) -> Kept {
        self.memory().kept()
    }

    /// All attempts in a few words each, oldest first.
    #[must_use]
    pub fn recent(&self) -> Vec<Arc<Brief>> {
        let mut memory = self.memory();
        let mut grown = 0;
        for entry in &mut memory.entries {
            let before = entry.bytes();
            entry.brief.get_or_insert_with(|| Arc::new(Brief::of(&entry.packed.account())));
            grown += entry.bytes() - before;
        }
        memory.bytes += grown;
        memory.bound();
        memory.entries.iter().filter_map(|entry| entry.brief.clone()).collect()
    }

    /// The number of attempts that were added, as it grows.
    #[must_use]
    pub fn added(&self) -> watch::Receiver<u64> {
        self.memory().added.subscribe()
    }

    /// Waits for the Pod's next attempt.
    ///
    /// # Errors
    ///
    /// When too many clients wait already.
    pub fn next(&self, namespace: &str, pod: &str) -> Result<oneshot::Receiver<Account>, TooMany> {
        let mut memory = self.memory();
        memory.waiting.retain(|waiting| !waiting.answer.is_closed());
        if memory.waiting.len() >= MAX_WAITING {
            return Err(TooMany);
        }
        let (answer, receiver) = oneshot::channel();
        memory.waiting.push(Waiting { pod: (namespace.into(), pod.into()), answer });
        Ok(receiver)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn kept(&self) -> Kept {
        Kept {
            attempts: self.entries.len() as u64,
            limit: self.limit as u64,
            since_unix_us: self.entries.front().map(|entry| entry.start_unix_us),
        }
    }

    /// Sends an attempt to the clients that wait for it.
    fn tell(&mut self, account: &Account) {
        let (called, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .filter(|waiting| !waiting.answer.is_closed())
            .partition::<Vec<_>, _>(|Waiting { pod: (namespace, name), .. }| {
                (&**namespace, &**name) == (&*account.namespace, &*account.pod)
            });
        self.waiting = waiting;
        for Waiting { answer, .. } in called {
            // A client that no longer waits is ignored.
            let _gone = answer.send(account.clone());
        }
    }

    /// Replaces the names of Nodes by numbers. Without room for new names, those of all attempts are forgotten: names of Nodes that are
    /// gone fill the table.
    fn number(&mut self, nodes: &RejectedNodes) -> Option<Numbered> {
        let numbered = self.node_names.number(nodes);
        if numbered.is_some() {
            return numbered;
        }
        self.node_names = NodeNames::default();
        self.node_bytes = 0;
        self.nameless = self.entries.len();
        self.entries.iter_mut().for_each(|entry| entry.nodes = None);
        self.node_names.number(nodes)
    }

    fn keep(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.node_bytes += entry.node_bytes();
        self.entries.push_back(entry);
        self.bound();
    }

    /// Forgets what is too much, the oldest first.
    fn bound(&mut self) {
        while self.entries.len() > self.limit || self.bytes > MAX_BYTES {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.node_bytes -= oldest.node_bytes();
            self.nameless = self.nameless.saturating_sub(1);
        }
        while self.node_bytes > MAX_NODE_BYTES
            && let Some(oldest) = self.entries.get_mut(self.nameless)
        {
            self.node_bytes -= oldest.node_bytes();
            oldest.nodes = None;
            self.nameless += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use spans::{
        AttributeValue, NameList, Names, attributes,
        fixtures::{scheduled, unschedulable},
    };

    use super::*;

    fn named(mut trace: Trace, name: &str) -> Trace {
        for (key, value) in &mut trace.spans[0].attributes {
            if *key == attributes::POD_NAME {
                *value = AttributeValue::String(name.to_owned().into());
            }
        }
        trace
    }

    /// An attempt of Pod `web-0` that these of 2,000 Nodes reject.
    fn failed(names: impl Iterator<Item = String>) -> Trace {
        let list = NameList {
            by: Some("Fit".into()),
            result: "Unschedulable".into(),
            reasons: vec!["Insufficient cpu".into()],
            names: names.map(Into::into).collect(),
        };
        let names = Names { total: 2_000, lists: vec![list] };
        Trace { names: Some(Box::new(names)), ..named(unschedulable(), "web-0") }
    }

    #[test]
    fn keeps_order_and_evicts_the_oldest() {
        let history = AttemptLog::new(3);
        for trace in
            [unschedulable(), named(unschedulable(), "web-0"), scheduled(), named(scheduled(), "other")]
        {
            history.add(&trace);
        }
        let results = |pod| {
            let report = history.report("default", pod, false, 0);
            report.attempts.into_iter().filter_map(|account| account.result).collect::<Vec<_>>()
        };
        assert_eq!(results("web-0"), ["Unschedulable", "Success"]);
        assert!(results("big").is_empty());
        let report = history.report("shop", "web-0", false, 0);
        assert_eq!((report.attempts.len(), report.also_in), (0, vec!["default".to_owned()]));
        assert_eq!((report.history.attempts, report.history.limit), (3, 3));
        let recent: Vec<_> = history.recent().iter().map(|brief| brief.pod.clone()).collect();
        assert_eq!(recent, ["web-0", "web-0", "other"]);
        assert_eq!(*history.added().borrow(), 4);
    }

    #[test]
    fn bytes_are_bounded_too() {
        let history = AttemptLog::new(usize::MAX);
        let long = named(scheduled(), &"x".repeat(MAX_BYTES / 8));
        for _ in 0..20 {
            history.add(&long);
        }
        let is_bounded = |entries: usize| {
            let memory = history.memory();
            let bytes: usize = memory.entries.iter().map(Entry::bytes).sum();
            assert_eq!(memory.bytes, bytes);
            assert!((1..=MAX_BYTES).contains(&bytes) && memory.entries.len() == entries, "{bytes}");
        };
        is_bounded(7);
        // In a list of all, each has its name once more.
        assert_eq!(history.recent().len(), 3);
        is_bounded(3);
    }

    #[test]
    fn names_of_nodes_are_reported_on_request_and_those_of_old_attempts_are_forgotten_first() {
        let failed =
            |step: usize, names: usize| failed((0..names).map(|number| format!("node-{:04}", step * number)));
        let history = AttemptLog::new(usize::MAX);
        let named = |with_nodes| -> Vec<_> {
            let report = history.report("default", "web-0", with_nodes, 0);
            report.attempts.into_iter().map(|account| account.rejected_nodes).collect()
        };
        history.add(&failed(1, 3));
        assert_eq!(named(false), [None]);
        let [Some(nodes)] = &named(true)[..] else { panic!("there is one attempt with names") };
        assert_eq!(
            (nodes.left_out, nodes.groups[0].nodes.join(" ")),
            (1_997, "node-0000 node-0001 node-0002".into())
        );
        history.add(&failed(1, 2_000));
        // Some 2 kB each.
        for _ in 0..2_000 {
            history.add(&failed(2, 1_000));
        }
        let memory = history.memory();
        let bytes: usize = memory.entries.iter().map(Entry::node_bytes).sum();
        assert_eq!(memory.node_bytes, bytes);
        assert!(bytes <= MAX_NODE_BYTES && bytes > MAX_NODE_BYTES / 2, "{bytes}");
        let has_names: Vec<_> = memory.entries.iter().map(|entry| entry.nodes.is_some()).collect();
        assert!(has_names.is_sorted() && !has_names[0] && has_names.len() == 2_002, "the newest have them");
        drop(memory);
        let named = named(true);
        assert_eq!(named.iter().filter(|nodes| nodes.is_some()).count(), MAX_NAMED);
        assert!(named.last().is_some_and(Option::is_some));
    }

    #[test]
    fn where_new_names_have_no_room_those_of_older_attempts_are_forgotten() {
        let failed = |number: usize| failed([format!("{number:0250}")].into_iter());
        let history = AttemptLog::new(usize::MAX);
        let has_names = || history.memory().entries.iter().filter(|entry| entry.nodes.is_some()).count();
        let added = (0..).take_while(|number| {
            history.add(&failed(*number));
            has_names() == number + 1
        });
        let fits = added.count();
        assert_eq!((has_names(), history.memory().nameless), (1, fits));
        let newest =
            history.report("default", "web-0", true, 0).attempts.pop().and_then(|last| last.rejected_nodes);
        assert_eq!(newest.map(|nodes| nodes.groups[0].nodes.join(" ")), Some(format!("{fits:0250}")));
        let memory = history.memory();
        assert_eq!(memory.node_bytes, memory.entries.iter().map(Entry::node_bytes).sum::<usize>());
    }

    #[test]
    fn empty_log_still_serves_waiting_clients() {
        let history = AttemptLog::new(0);
        let mut next = history.next("default", "web-0").unwrap();
        history.add(&unschedulable());
        assert!(next.try_recv().is_err());
        history.add(&scheduled());
        assert_eq!(next.try_recv().unwrap().pod, "web-0");
        assert_eq!(history.report("default", "web-0", false, 0).history, Kept::default());
    }

    #[test]
    fn departed_clients_free_their_slots() {
        let history = AttemptLog::new(0);
        let waiting: Vec<_> = (0..MAX_WAITING).map(|_| history.next("a", "b").unwrap()).collect();
        let error = history.next("a", "b").unwrap_err().to_string();
        assert!(error.contains("try again later"), "{error}");
        drop(waiting);
        assert!(history.next("a", "b").is_ok());
    }
}
