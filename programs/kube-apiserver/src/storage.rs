//! Creations of Pods out of events: which steps of admission, calls of webhooks and writes belong together, and what came of them.
//!
//! Pure: events in, stored Pods out, no clock and no I/O. A request is handled on a goroutine of its own, which ends with it
//! (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/finisher/finisher.go#L83-L108>):
//! what is on one goroutine is one request. Webhooks that validate are called on goroutines that this one starts.
//!
//! A server-side apply that creates a Pod ends with a patch on the goroutine that started the request's own.
//!
//! A name that the API server makes up may be taken: the request then validates and stores again, with another UID. What is stored
//! at last is what counts.

#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ::spans::ApiStep;
use gotrace::{
    Role,
    account::{Books, Count, Counter, Losses},
    program::Assemble,
};

use crate::{Event, KubeApiserver, Values, table::Part, values::Value};

/// Requests that can be open at once, and as many writes of other objects. Processes share these limits in equal parts.
const MAX_OPEN: usize = 16_384;
/// Calls of one request: webhooks may be called twice.
const MAX_CALLS: usize = 128;
/// A request that is silent for so long is over: the API server gives it 34 seconds.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/rest.go#L54>
const SILENCE_NS: u64 = 60 * 1_000_000_000;

/// The resource of Pods, and the first part of their keys.
pub(crate) const PODS: &str = "pods";
/// Their type within the API server.
const POD: &str = "*core.Pod";
const CREATE: &str = "CREATE";
/// Lengths of the names of the two steps, `admit` and `validate`.
const STEPS: [(u64, ApiStep); 2] = [(5, ApiStep::Mutation), (8, ApiStep::Validation)];

/// What schedspan counts of all API servers.
pub const COUNTERS: [Counter; 2] = [
    Counter {
        name: "apiserver_calls",
        help: "Calls in API servers: steps of admission, webhooks, and writes of new objects; and whether they are about the creation of a Pod",
        labels: &["call", "about"],
    },
    Counter {
        name: "apiserver_pod_requests",
        help: "Requests to create a Pod that are over, by what came of them",
        labels: &["result"],
    },
];

/// A Pod that was stored. All times are nanoseconds by `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Which process.
    pub target: u32,
    /// Which Pod.
    pub pod: Pod,
    /// Name of the user who asked, if that could be read.
    pub user: Option<String>,
    /// What was done, by its end. Calls of webhooks come before the step that they are part of.
    pub calls: Vec<Call>,
    /// When it was seen last: after the last call, if the Pod was stored by a patch.
    pub end_ns: u64,
    /// Calls that did not fit.
    pub left_out: u64,
    /// Whether records were lost meanwhile.
    pub incomplete: bool,
    /// How many events it came about by.
    pub events: u64,
}

/// A Pod as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its UID; empty if it could not be read.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// UID of its first owner, if it has one.
    pub owner: Option<String>,
    /// The client: the first manager of its fields, if that could be read.
    pub manager: Option<String>,
}

/// A step of admission, the call of a webhook, or a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it is.
    pub step: ApiStep,
    /// When it began.
    pub start_ns: u64,
    /// When it ended, if that was seen.
    pub end_ns: Option<u64>,
    /// Name of the webhook.
    pub webhook: Option<String>,
    /// HTTP status that the webhook's call ended with.
    pub code: Option<u64>,
    /// Whether it failed. That of a webhook may be ignored.
    pub failed: bool,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// The Pod is stored.
    Created,
    /// Admission has refused it.
    Rejected,
    /// It could not be stored.
    Failed,
    /// It was never to be stored, as in a dry run, or was refused by others than admission.
    Unstored,
    /// It was to be stored, and what came of that was not seen.
    Unseen,
}

impl Outcome {
    /// The label.
    const fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
            Self::Unstored => "unstored",
            Self::Unseen => "unseen",
        }
    }
}

/// A request to create a Pod that is not over.
#[derive(Debug, Default)]
struct Request {
    stored: Stored,
    /// The goroutine that started its own, if that is known.
    parent: Option<u64>,
    storing: Option<Storing>,
}

/// A write that has not returned.
#[derive(Debug)]
struct Storing {
    depth: u64,
    start_ns: u64,
    pod: Pod,
}

impl Request {
    fn add(&mut self, call: Call) {
        if self.stored.calls.len() < MAX_CALLS {
            self.stored.calls.push(call);
        } else {
            self.stored.left_out += 1;
        }
    }

    /// The write is over, or its end will not be seen.
    fn wrote(&mut self, storing: Storing, end_ns: Option<u64>, failed: bool) {
        let Storing { start_ns, pod, depth: _ } = storing;
        self.stored.pod = pod;
        let end_ns = end_ns.map(|end_ns| end_ns.max(start_ns));
        self.add(Call { step: ApiStep::Storage, start_ns, end_ns, webhook: None, code: None, failed });
    }

    /// What came of it, if nothing more does.
    fn given_up(&self) -> Outcome {
        let has_failed = |call: &Call| call.step == ApiStep::Storage && call.failed;
        if self.stored.calls.iter().any(has_failed) { Outcome::Failed } else { Outcome::Unstored }
    }
}

/// Puts events together to creations of Pods.
#[derive(Debug, Default)]
pub struct Assembler {
    /// By process and goroutine.
    requests: BTreeMap<(u32, u64), Request>,
    /// Writes of other objects that have not returned: depth and beginning, by process and goroutine.
    others: BTreeMap<(u32, u64), (u64, u64)>,
    /// By name of the call, those of other objects first.
    calls: BTreeMap<&'static str, [u64; 2]>,
    outcomes: BTreeMap<Outcome, u64>,
    books: Books<Stored>,
    losses: Losses,
}

impl Pod {
    /// The Pod that is to be stored, if the object is one.
    fn of(values: &mut Values) -> Option<Self> {
        let key = values.take_text(Value::Key)?;
        let (namespace, name) =
            key.strip_prefix('/')?.strip_prefix(PODS)?.strip_prefix('/')?.split_once('/')?;
        let mut text = |value| values.take_text(value).filter(|text| !text.is_empty());
        Some(Self {
            uid: text(Value::ObjectUid).unwrap_or_default(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            owner: text(Value::OwnerUid),
            manager: text(Value::Manager),
        })
    }

    /// The Pod that a patch has created, if it has stored one.
    fn patched(values: &mut Values) -> Option<Self> {
        let is_stored = values.number(Value::VersionLength).is_some_and(|length| length > 0);
        let is_new = values.flag(Value::Created) == Some(true) && is_stored;
        let typ = values.take_name(Value::ObjectType).filter(|_| is_new)?;
        let mut text = |value| values.take_text(value).filter(|text| !text.is_empty());
        (*typ == *POD).then(|| Self {
            uid: text(Value::ObjectUid).unwrap_or_default(),
            namespace: text(Value::Namespace).unwrap_or_default(),
            name: text(Value::Name).unwrap_or_default(),
            owner: text(Value::OwnerUid),
            manager: None,
        })
    }
}

/// A user's name. What is not described by the usual struct has other bytes there: those of addresses.
fn user(values: &mut Values) -> Option<String> {
    let is_text = |name: &String| !name.is_empty() && !name.contains(|letter: char| letter.is_control());
    values.take_text(Value::User).filter(is_text)
}

/// Whether admission is asked about the creation of a Pod, and not about one of its subresources.
fn creates_pod(values: &Values) -> bool {
    values.text(Value::Resource) == Some(PODS)
        && values.text(Value::Operation) == Some(CREATE)
        && values.number(Value::SubresourceLength) == Some(0)
}

impl Assembler {
    fn count(&mut self, step: ApiStep, is_of_pod: bool) {
        self.calls.entry(step.name()).or_default()[usize::from(is_of_pod)] += 1;
    }

    /// Whether a table has room for one more of a process.
    fn has_room<T>(table: &BTreeMap<(u32, u64), T>, losses: &Losses, target: u32) -> bool {
        let part = losses.part(MAX_OPEN);
        table.len() < part || table.range((target, 0)..=(target, u64::MAX)).count() < part
    }

    /// The request on this goroutine, with one event more. `None` if there is no room for it.
    fn request(&mut self, key: (u32, u64), time_ns: u64) -> Option<&mut Request> {
        let Self { requests, books, losses, .. } = self;
        if !requests.contains_key(&key) && !Self::has_room(requests, losses, key.0) {
            books.no_room(1);
            return None;
        }
        let request = requests.entry(key).or_default();
        (request.stored.target, request.stored.end_ns) = (key.0, time_ns);
        request.stored.events += 1;
        Some(request)
    }

    /// A step of admission, or the call of a webhook, is over.
    fn step(&mut self, event: Event, step: ApiStep) {
        let Event { target, time_ns, goroutine, mut values, .. } = event;
        let is_of_pod = creates_pod(&values);
        self.count(step, is_of_pod);
        if !is_of_pod {
            self.books.account.unrelated += 1;
            return;
        }
        let is_webhook = step == ApiStep::Webhook;
        let parent = values.number(Value::Parent).map(|parent| (target, parent));
        let own = (target, goroutine);
        let key = match parent.filter(|_| is_webhook) {
            Some(parent) if !self.requests.contains_key(&own) && self.requests.contains_key(&parent) => {
                parent
            }
            Some(_) | None => own,
        };
        let rejected = values.flag(Value::Rejected) == Some(true);
        let code = values.number(Value::Code);
        // What is not a time of a request is no time.
        let elapsed = values.number(Value::Elapsed).filter(|ns| *ns <= SILENCE_NS).unwrap_or_default();
        let Some(request) = self.request(key, time_ns) else { return };
        request.stored.user = request.stored.user.take().or_else(|| user(&mut values));
        if !is_webhook {
            request.parent = parent.map(|(_, parent)| parent);
        }
        request.add(Call {
            step,
            start_ns: time_ns.saturating_sub(elapsed),
            end_ns: Some(time_ns),
            webhook: values.take_text(Value::Webhook),
            code,
            failed: rejected || is_webhook && code.is_some_and(|code| !(200..300).contains(&code)),
        });
        if rejected && !is_webhook {
            self.over(key, Outcome::Rejected);
        }
    }

    fn store(&mut self, event: Event) {
        let Event { target, time_ns, goroutine, depth, mut values, .. } = event;
        let key = (target, goroutine);
        let pod = Pod::of(&mut values);
        self.count(ApiStep::Storage, pod.is_some());
        // The end of the one before was not seen.
        self.unwind(key);
        let Some(pod) = pod else {
            let Self { others, books, losses, .. } = self;
            if Self::has_room(others, losses, target) {
                others.insert(key, (depth, time_ns));
                books.account.unrelated += 1;
            } else {
                books.no_room(1);
            }
            return;
        };
        if let Some(request) = self.request(key, time_ns) {
            request.storing = Some(Storing { depth, start_ns: time_ns, pod });
        }
    }

    fn stored(&mut self, event: Event) {
        let Event { target, time_ns, goroutine, depth, values, .. } = event;
        let key = (target, goroutine);
        if self.others.get(&key).is_some_and(|(own, _)| *own == depth) {
            self.others.remove(&key);
            self.books.account.unrelated += 1;
            return;
        }
        let request = self.requests.get_mut(&key);
        let Some((request, storing)) = request.and_then(|request| {
            let storing = request.storing.take_if(|storing| storing.depth == depth)?;
            Some((request, storing))
        }) else {
            return self.books.stray_end();
        };
        request.stored.end_ns = time_ns;
        request.stored.events += 1;
        let failed = values.number(Value::Failed);
        request.wrote(storing, Some(time_ns), failed == Some(1));
        match failed {
            Some(0) => self.over(key, Outcome::Created),
            // It may be tried again.
            Some(_) => {}
            None => self.over(key, Outcome::Unseen),
        }
    }

    /// A patch is over: that of a request on a goroutine which this one started.
    fn patched(&mut self, event: Event) {
        let Event { target, time_ns, goroutine, mut values, .. } = event;
        let mut own = self.requests.range_mut((target, 0)..=(target, u64::MAX));
        let Some((key, request)) = own.find(|(_, request)| request.parent == Some(goroutine)) else {
            self.books.account.unrelated += 1;
            return;
        };
        let key = *key;
        request.stored.end_ns = time_ns;
        request.stored.events += 1;
        let outcome = match Pod::patched(&mut values) {
            Some(pod) => {
                request.stored.pod = pod;
                Outcome::Created
            }
            None => request.given_up(),
        };
        self.over(key, outcome);
    }

    /// The write that is open on a goroutine has no end.
    fn unwind(&mut self, key: (u32, u64)) {
        let Self { requests, others, books, .. } = self;
        books.stats.unwound_calls += u64::from(others.remove(&key).is_some());
        if requests.get(&key).is_some_and(|request| request.storing.is_some()) {
            self.over(key, Outcome::Unseen);
        }
    }

    /// The request on this goroutine is over.
    fn over(&mut self, key: (u32, u64), outcome: Outcome) {
        let Self { requests, outcomes, books, .. } = self;
        let Some(mut request) = requests.remove(&key) else { return };
        *outcomes.entry(outcome).or_default() += 1;
        if let Some(storing) = request.storing.take() {
            books.stats.unwound_calls += 1;
            request.wrote(storing, None, false);
        }
        let mut stored = request.stored;
        stored.incomplete |= outcome == Outcome::Unseen;
        match outcome {
            Outcome::Created | Outcome::Unseen if stored.pod.uid.is_empty() => {
                books.stats.orphan_calls += 1;
                books.account.orphaned += stored.events;
            }
            Outcome::Created | Outcome::Unseen => {
                books.stats.incomplete_attempts += u64::from(stored.incomplete);
                books.account.in_attempts += stored.events;
                books.finished.push(stored);
            }
            Outcome::Rejected | Outcome::Failed | Outcome::Unstored => {
                books.stats.skipped += 1;
                books.account.skipped += stored.events;
            }
        }
    }

    /// Gives up requests and other writes.
    fn give_up(&mut self, is_over: impl Fn((u32, u64), u64) -> bool) {
        let requests = self.requests.iter().map(|(key, request)| (*key, request.stored.end_ns));
        let others = self.others.iter().map(|(key, (_, since_ns))| (*key, *since_ns));
        let keys: Vec<_> = requests
            .chain(others)
            .filter(|(key, last_ns)| is_over(*key, *last_ns))
            .map(|(key, _)| key)
            .collect();
        for key in keys {
            self.unwind(key);
            let outcome = self.requests.get(&key).map(Request::given_up);
            outcome.into_iter().for_each(|outcome| self.over(key, outcome));
        }
    }

    /// Records of a process were lost: of what is being written, the end that comes may be that of another write; of the rest, something
    /// may be missing.
    fn lost(&mut self, target: u32) {
        let all = (target, 0)..=(target, u64::MAX);
        let others = self.others.range(all.clone()).map(|(key, _)| *key);
        let storing = self.requests.range(all.clone()).filter(|(_, request)| request.storing.is_some());
        let keys: Vec<_> = others.chain(storing.map(|(key, _)| *key)).collect();
        keys.into_iter().for_each(|key| self.unwind(key));
        self.requests.range_mut(all).for_each(|(_, request)| request.stored.incomplete = true);
    }
}

impl Assemble<KubeApiserver> for Assembler {
    type Output = Stored;

    fn on(&mut self, event: Event) {
        if self.losses.came(event.target, event.last_loss) {
            self.lost(event.target);
        }
        self.books.account.events += 1;
        match (event.function.about(), event.role) {
            (Part::Step, _) => {
                let length = event.values.number(Value::StepLength);
                let step = STEPS.into_iter().find(|(own, _)| Some(*own) == length);
                match step {
                    Some((_, step)) => self.step(event, step),
                    None => self.books.account.unrelated += 1,
                }
            }
            (Part::Webhook, _) => self.step(event, ApiStep::Webhook),
            (Part::Store, Role::Entry) => self.store(event),
            (Part::Store, Role::ReturnSite | Role::NextEntry | Role::Ret | Role::InTurn | Role::Metric) => {
                self.stored(event);
            }
            (Part::Patch, _) => self.patched(event),
        }
    }

    fn expire(&mut self, now_ns: u64) {
        self.give_up(|_, last_ns| now_ns.saturating_sub(last_ns) > SILENCE_NS);
    }

    fn exit(&mut self, target: u32) {
        self.give_up(|(of, _), _| of == target);
        self.losses.exit(target);
    }

    fn books(&self) -> &Books<Stored> {
        &self.books
    }

    fn books_mut(&mut self) -> &mut Books<Stored> {
        &mut self.books
    }

    fn counts(&self) -> Vec<Count> {
        let [calls, outcomes] = COUNTERS.map(|counter| counter.name);
        let calls = self.calls.iter().flat_map(|(step, totals)| {
            ["other", "pod"].into_iter().zip(totals).map(|(about, total)| Count {
                counter: calls,
                labels: vec![(*step).to_owned(), about.to_owned()],
                total: *total,
            })
        });
        let outcomes = self.outcomes.iter().map(|(outcome, total)| Count {
            counter: outcomes,
            labels: vec![outcome.name().to_owned()],
            total: *total,
        });
        calls.chain(outcomes).collect()
    }
}
