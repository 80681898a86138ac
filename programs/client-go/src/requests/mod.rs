//! Requests of client-go's REST client, and whose they are. For the assemblers of all programs that are built on client-go.
//!
//! [`table`]: what is probed and read, as macros that add it to a program's own. [`spans`]: the spans of requests, and of what they did to
//! Pods. `objects`: which reconciles wrote the object of another one, and which Pods were deleted. `body`: the object in an answer that
//! is not decoded.
//!
//! Pure, as the assemblers. A request is the reconcile's
//!
//! * that is open on its goroutine, or else
//! * that is open on the goroutine that started its own: some controllers write on goroutines that they wait for.
//!
//! What is neither is counted by its cause, not guessed: most of it is of informers, leases and events. Of that, only what deletes or evicts
//! a Pod is followed, since the trace of the Pod is the place for it.

mod body;
mod objects;
pub mod spans;
pub mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use ::spans::Evidence;
use gotrace::{
    Event, Values,
    account::{Books, Count, Counter},
    program::Program,
    values::{Datum, Value},
};

pub use self::objects::{Maker, Owner, Removed, Writer};
use self::objects::{Objects, OpenReconcile, Subject};
pub use self::spans::{Finished, Removal};
use self::table::URL_ERROR;

/// Requests that can be open at once. Processes share this limit in equal parts.
const MAX_OPEN: usize = 16_384;
/// Requests of one reconcile: a ReplicaSet makes 500 Pods at once.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/replicaset/replica_set.go#L66-L70>
const MAX_OF_RECONCILE: usize = 1_024;
/// Waits for rate limiters before an answer: by default a client sends a request eleven times at most.
/// <https://github.com/kubernetes/client-go/blob/v0.36.4/rest/request.go#L166>
const MAX_WAITS: usize = 16;
/// Goroutines that are known to be a reconcile's, of all processes. The oldest are forgotten.
const MAX_CHILDREN: usize = 16_384;

/// Methods that change nothing.
const READS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];
/// The status of a request that created an object.
const CREATED: u64 = 201;
/// The subresource of a Pod that evicts it.
const EVICTION: &str = "eviction";
/// Subresources whose answers are the object itself, or have its UID, as a `Scale` does.
const OF_OBJECT: [&str; 3] = ["", "status", "scale"];

/// What schedspan counts of requests, by whose they are. Each program has a name for its own.
#[must_use]
pub const fn counter(name: &'static str, help: &'static str) -> Counter {
    Counter { name, help, labels: &["reconcile"] }
}

/// What schedspan counts of objects that reconciles wrote. Each program has a name for its own.
#[must_use]
pub const fn objects(name: &'static str) -> Counter {
    let help = "Objects that reconciles wrote, and Pods that came back: those that were remembered, and those that were forgotten since";
    Counter { name, help, labels: &["object", "fate"] }
}

/// What schedspan counts of requests that delete or evict Pods. Each program has a name for its own.
#[must_use]
pub const fn removals(name: &'static str) -> Counter {
    let help = "Requests that deleted or evicted Pods, by what says which Pod it was";
    Counter { name, help, labels: &["evidence"] }
}

/// What says which Pod was deleted or evicted: the label `evidence`.
const EVIDENCES: [Option<Evidence>; 3] = [Some(Evidence::Uid), Some(Evidence::Name), None];

/// Which part of a request a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A rate limiter makes it wait.
    Limit,
    /// It was sent, and answered or not.
    Attempt,
    /// The object in the answer was decoded.
    Answer,
    /// The answer is asked for an error, and not decoded.
    Check,
}

/// The values of requests among those of a program: [`request_values!`](crate::request_values) says which they are.
#[expect(missing_docs, reason = "each is a value with its own documentation")]
pub trait Slots: Value {
    const SINCE: Self;
    const PARENT: Self;
    const LIMITED: Self;
    const FAILED: Self;
    const ERROR: Self;
    const METHOD: Self;
    const PATH: Self;
    const STATUS: Self;
    const OBJECT_TYPE: Self;
    const OBJECT_UID: Self;
    const OBJECT_NAME: Self;
    const OBJECT_VERSION: Self;
    const OBJECT_OWNER: Self;
    const BODY: Self;
}

/// Replaces what a value of a request names, if that is an object of a user.
pub fn redact<V: Slots>(value: V, datum: &mut Datum, replace: &mut dyn FnMut(&'static str, &mut String)) {
    let kinds =
        [(V::OBJECT_NAME, "object"), (V::OBJECT_UID, "uid"), (V::OBJECT_OWNER, "uid"), (V::ERROR, "message")];
    if let (true, Datum::Text(path)) = ([V::PATH, V::ERROR].contains(&value), &mut *datum)
        && path.starts_with('/')
    {
        *path = redacted(path, replace);
        return;
    }
    if let (true, Datum::Text(text)) = (value == V::BODY, &mut *datum) {
        let end = text.find(' ').unwrap_or(text.len());
        let mut uid = text[..end].to_owned();
        replace("uid", &mut uid);
        text.replace_range(..end, &uid);
    }
    if let (Some((_, kind)), Datum::Text(text)) = (kinds.into_iter().find(|(own, _)| *own == value), datum)
        && !text.is_empty()
    {
        replace(kind, text);
    }
}

/// A path with other names of namespace and object. Of what is not about an object of the API, all is replaced.
fn redacted(path: &str, replace: &mut dyn FnMut(&'static str, &mut String)) -> String {
    let About { api, namespace, resource, name, subresource } = About::of(path);
    if resource.is_empty() {
        let mut path = path.to_owned();
        replace("path", &mut path);
        return path;
    }
    let of_namespace = resource == "namespaces";
    let [namespace, name] =
        [("namespace", namespace), (if of_namespace { "namespace" } else { "object" }, name)].map(
            |(kind, name)| {
                let mut name = name.to_owned();
                if !name.is_empty() {
                    replace(kind, &mut name);
                }
                name
            },
        );
    let root = if api.contains('/') { "/apis" } else { "/api" };
    let scope = if namespace.is_empty() { "" } else { "namespaces" };
    let parts = [root, &api, scope, &namespace, resource, &name, subresource];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

/// What is kept of a text that is read: of an answer's body, nothing but which object it is about; of the URL of a request that was not
/// answered, its path.
#[must_use]
pub fn keep<V: Slots>(value: V, text: String) -> Option<String> {
    if value == V::BODY {
        body::kept(&text)
    } else if value == V::ERROR {
        Some(path_of(&text).to_owned())
    } else {
        Some(text)
    }
}

/// Which reconcile of a process is open on a goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnGoroutine {
    /// None.
    None,
    /// The one with this number.
    One(u64),
    /// Several: which of them makes a request cannot be known.
    Several,
}

impl OnGoroutine {
    /// The one of these numbers.
    pub fn of(mut numbers: impl Iterator<Item = u64>) -> Self {
        match (numbers.next(), numbers.next()) {
            (None, _) => Self::None,
            (Some(number), None) => Self::One(number),
            (Some(_), Some(_)) => Self::Several,
        }
    }
}

/// Whose a request is: the values of the label `reconcile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Of the reconcile on its goroutine.
    Own,
    /// Of the reconcile on the goroutine that started its own.
    Child,
    /// Of none.
    None,
    /// Of one of several.
    Several,
    /// Its goroutine is of a reconcile that is over.
    Over,
}

impl Whose {
    const ALL: [Self; 5] = [Self::Own, Self::Child, Self::None, Self::Several, Self::Over];

    const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Child => "child",
            Self::None => "none",
            Self::Several => "several",
            Self::Over => "over",
        }
    }
}

/// The object that came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Its Go type, such as `*v1.Pod`; empty where the client did not decode it.
    pub typ: Arc<str>,
    /// Its UID.
    pub uid: String,
    /// Its name.
    pub name: Option<String>,
    /// Its resource version.
    pub version: Option<String>,
    /// UID of its first owner.
    pub owner: Option<String>,
}

impl Object {
    /// Whether its client decoded it: else only UID and resource version are known.
    fn is_decoded(&self) -> bool {
        !self.typ.is_empty()
    }
}

/// One request, with all attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// When it began, waits for rate limiters included. All times are nanoseconds by `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// When it was answered, and its object decoded; or when it was seen last.
    pub end_ns: u64,
    /// HTTP method.
    pub method: Option<String>,
    /// The path of its URL.
    pub path: Option<String>,
    /// How long rate limiters made it wait, nanoseconds.
    pub limited_ns: u64,
    /// How often it was sent.
    pub attempts: u64,
    /// HTTP status of the last answer, if there was one.
    pub status: Option<u64>,
    /// Why there was none, or the type of the error.
    pub error: Option<String>,
    /// The object that came back, if it is described by a struct.
    pub object: Option<Object>,
    /// The Pod that it deleted or evicted, if that is known.
    pub removed: Option<Removed>,
    /// How many events it came about by.
    pub events: u64,
}

/// The requests of a reconcile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// Those that are shown, by their beginning.
    pub requests: Vec<Request>,
    /// How many are not.
    pub left_out: u64,
    /// Whether requests of this process are seen at all: else none here says nothing.
    pub are_seen: bool,
    /// The reconcile that created the object which this one is about, if that is known.
    pub creator: Option<Writer>,
    /// The reconcile that wrote it last before this one, unless that is the creator.
    pub writer: Option<Writer>,
    /// UID of the first owner of the first Pod that it created.
    pub owner: Option<Box<str>>,
}

impl Made {
    /// Whether it is certain that nothing was written, and that no request failed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let Self { requests, left_out, are_seen, creator: _, writer: _, owner: _ } = self;
        *are_seen && *left_out == 0 && requests.iter().all(Request::is_plain_read)
    }
}

/// A reconcile that begins.
#[derive(Clone, Copy, Debug)]
pub struct Began<'a> {
    /// Which process.
    pub target: u32,
    /// The id of its trace.
    pub trace_id: [u8; 16],
    /// The name of its queue or controller.
    pub name: &'a str,
    /// What it is about, if that is known.
    pub key: Option<&'a str>,
}

/// Requests of reconciles that are open.
#[derive(Debug, Default)]
pub struct Requests {
    /// Number of the last reconcile.
    last: u64,
    /// Those that are open, by their number.
    reconciles: BTreeMap<u64, OpenReconcile>,
    objects: Objects,
    /// Processes of which a request was seen.
    seen: BTreeSet<u32>,
    /// By process and goroutine: the last one, as long as more of it may come.
    open: BTreeMap<(u32, u64), Open>,
    /// By process and goroutine: waits for rate limiters, before what they are of is answered. The last is the latest.
    limited: BTreeMap<(u32, u64), Vec<Limited>>,
    /// By the reconcile's number.
    made: BTreeMap<u64, Made>,
    /// The reconcile that a goroutine is of, by process and goroutine.
    children: BTreeMap<(u32, u64), u64>,
    counts: [u64; Whose::ALL.len()],
    /// By [`EVIDENCES`].
    removals: [u64; EVIDENCES.len()],
}

#[derive(Debug)]
struct Open {
    /// `None` where it is not known, or where there is none.
    reconcile: Option<u64>,
    /// Of what its client calls for it. Its caller is less deep.
    depth: u64,
    request: Request,
}

/// A wait for a rate limiter: when it began, and for how long it is, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Limited {
    since_ns: u64,
    ns: u64,
}

impl Requests {
    /// A number for a reconcile that begins.
    pub fn begin_reconcile(&mut self, began: Began<'_>) -> u64 {
        let Began { target, trace_id, name, key } = began;
        self.last += 1;
        let subject = key.map(|key| Subject::of_key(name, key));
        let open = self.objects.begin(target, Maker::new(trace_id), subject);
        self.reconciles.insert(self.last, open);
        self.last
    }

    /// A reconcile is over: what it asked for.
    pub fn end_reconcile<T>(&mut self, reconcile: u64, books: &mut Books<T>) -> Made {
        let Self { open, made, objects, seen, removals, .. } = self;
        let mut own = made.remove(&reconcile).unwrap_or_default();
        let left = open.extract_if(.., |_, open| open.reconcile == Some(reconcile));
        own.requests.extend(left.map(|(_, open)| open.request));
        own.requests.sort_by_key(|request| request.start_ns);
        for request in &own.requests {
            books.account.in_attempts += request.events;
            count_removal(removals, request);
        }
        if let Some(reconcile) = self.reconciles.remove(&reconcile) {
            own.are_seen = seen.contains(&reconcile.target);
            [own.creator, own.writer] = objects.writers(&reconcile, &own.requests);
            own.owner = reconcile.maker.owner().map(Box::from);
        }
        own
    }

    /// Nothing more of a request comes.
    fn over<R>(&mut self, target: u32, open: Open, books: &mut Books<Finished<R>>) {
        let Open { reconcile, mut request, .. } = open;
        if let Some(reconcile) = reconcile {
            self.made.entry(reconcile).or_default().requests.push(request);
            return;
        }
        count_removal(&mut self.removals, &request);
        if let (Some(kind), Some(removed)) = (request.removes(), request.removed.take()) {
            books.account.in_attempts += request.events;
            books.finished.push(Finished::Removal(Box::new(Removal { target, kind, removed, request })));
        } else {
            books.account.unrelated += request.events;
        }
    }

    /// Gives up requests of no reconcile, and waits for rate limiters, that were last seen before this time, of some processes.
    pub fn give_up<R>(&mut self, of: impl Fn(u32) -> bool, before_ns: u64, books: &mut Books<Finished<R>>) {
        let is_silent = |(target, _): &(u32, u64), open: &mut Open| {
            open.reconcile.is_none() && open.request.end_ns < before_ns && of(*target)
        };
        let silent: Vec<_> = self.open.extract_if(.., is_silent).collect();
        for ((target, _), open) in silent {
            self.over(target, open, books);
        }
        let is_silent = |(target, _): &(u32, u64), waits: &mut Vec<Limited>| {
            waits.iter().all(|wait| wait.since_ns < before_ns) && of(*target)
        };
        let silent = self.limited.extract_if(.., is_silent);
        books.account.unrelated += silent.map(|(_, waits)| waits.len() as u64).sum::<u64>();
    }

    /// An event of a request. `on` says which reconcile of the process is open on a goroutine, and `part` which part of a limit
    /// a process has.
    pub fn on<P: Program<Value: Slots>, R>(
        &mut self,
        step: Step,
        event: Event<P>,
        books: &mut Books<Finished<R>>,
        on: impl Fn(u64) -> OnGoroutine,
        part: impl Fn(usize) -> usize,
    ) {
        let Event { target, time_ns, goroutine, depth, mut values, .. } = event;
        let key = (target, goroutine);
        match step {
            Step::Limit => {
                let of_process = self.limited.range((target, 0)..=(target, u64::MAX)).count();
                if of_process >= part(MAX_OPEN) && !self.limited.contains_key(&key) {
                    return books.no_room(1);
                }
                let waits = self.limited.entry(key).or_default();
                if waits.len() >= MAX_WAITS {
                    waits.remove(0);
                    books.account.unrelated += 1;
                }
                let ns = values.number(P::Value::LIMITED).unwrap_or_default();
                waits.push(Limited { since_ns: time_ns, ns });
                return;
            }
            Step::Attempt => {
                let mut waits = self.limited.remove(&key).unwrap_or_default();
                let Some(start_ns) = values.number(P::Value::SINCE).map(|since| since.min(time_ns)) else {
                    // A watch, or a stream.
                    books.account.unrelated += 1 + waits.len() as u64;
                    return;
                };
                let attempt = Request::attempt((start_ns, time_ns), &mut values);
                let is_again = |open: &Open| (open.depth, open.request.start_ns) == (depth, start_ns);
                if !self.open.get(&key).is_some_and(is_again) {
                    let parent = values.number(P::Value::PARENT).filter(|parent| *parent > 0);
                    self.begin((key, depth), &attempt, parent, books, on, &part);
                }
                let Some(open) = self.open.get_mut(&key) else {
                    books.account.unrelated += waits.len() as u64;
                    return;
                };
                books.account.unrelated +=
                    waits.extract_if(.., |wait| wait.since_ns < start_ns).count() as u64;
                open.request.again(attempt, &waits);
            }
            Step::Answer | Step::Check => {
                let Some(Open { reconcile, request, .. }) =
                    self.open.get_mut(&key).filter(|open| open.depth > depth)
                else {
                    books.account.unrelated += 1;
                    return;
                };
                request.events += 1;
                request.end_ns = time_ns.max(request.end_ns);
                let found = if step == Step::Check {
                    request.object.take().or_else(|| request.checked(&mut values))
                } else {
                    object(&mut values)
                };
                request.object = found;
                if let Some(reconcile) = reconcile.and_then(|reconcile| self.reconciles.get_mut(&reconcile)) {
                    self.objects.answered(reconcile, request, part);
                }
            }
        }
        let Some(Open { reconcile, request, .. }) = self.open.get_mut(&key) else { return };
        request.removed = self.objects.removed(target, request);
        // Of any other, nothing is to be said after its attempt.
        let is_answered =
            step != Step::Attempt || request.removes().is_none() && !request.may_be_sent_again();
        if reconcile.is_none()
            && is_answered
            && let Some(open) = self.open.remove(&key)
        {
            self.over(target, open, books);
        }
    }

    /// A request that was answered for the first time, or not. The one before it on the goroutine is over: what a client asks for while
    /// it sends a request has been answered before that.
    fn begin<R>(
        &mut self,
        (key, depth): ((u32, u64), u64),
        attempt: &Request,
        parent: Option<u64>,
        books: &mut Books<Finished<R>>,
        on: impl Fn(u64) -> OnGoroutine,
        part: impl Fn(usize) -> usize,
    ) {
        let (target, goroutine) = key;
        self.seen.insert(target);
        if let Some(before) = self.open.remove(&key) {
            self.over(target, before, books);
        }
        let (whose, reconcile) = match on(goroutine) {
            OnGoroutine::One(reconcile) => (Whose::Own, Some(reconcile)),
            OnGoroutine::Several => (Whose::Several, None),
            OnGoroutine::None => self.by_parent(key, parent.map_or(OnGoroutine::None, on)),
        };
        self.counts[whose as usize] += 1;
        if reconcile.is_none() && !attempt.may_remove() {
            books.account.unrelated += 1;
            return;
        }
        let of_process = self.open.range((target, 0)..=(target, u64::MAX)).count();
        let own = reconcile.map(|reconcile| {
            let made = self.made.get(&reconcile).map_or(0, |made| made.requests.len());
            made + self.open.values().filter(|open| open.reconcile == Some(reconcile)).count()
        });
        if of_process >= part(MAX_OPEN) || own.is_some_and(|own| own >= MAX_OF_RECONCILE) {
            if let Some(reconcile) = reconcile {
                self.made.entry(reconcile).or_default().left_out += 1;
            }
            return books.no_room(1);
        }
        let request = Request { start_ns: attempt.start_ns, ..Request::default() };
        self.open.insert(key, Open { reconcile, depth, request });
    }

    /// Whose a request is on a goroutine without a reconcile. One that was started by a reconcile stays that one's.
    fn by_parent(&mut self, key: (u32, u64), parent: OnGoroutine) -> (Whose, Option<u64>) {
        match (parent, self.children.entry(key)) {
            (OnGoroutine::One(reconcile), Entry::Occupied(known)) if *known.get() == reconcile => {
                (Whose::Child, Some(reconcile))
            }
            (_, Entry::Occupied(_)) => (Whose::Over, None),
            (OnGoroutine::One(reconcile), Entry::Vacant(unknown)) => {
                unknown.insert(reconcile);
                if self.children.len() > MAX_CHILDREN {
                    self.children.pop_first();
                }
                (Whose::Child, Some(reconcile))
            }
            (OnGoroutine::Several, Entry::Vacant(_)) => (Whose::Several, None),
            (OnGoroutine::None, Entry::Vacant(_)) => (Whose::None, None),
        }
    }

    /// A process has ended.
    pub fn exit(&mut self, target: u32) {
        self.children.retain(|(of, _), _| *of != target);
        self.objects.exit(target);
        self.seen.remove(&target);
    }

    /// How many requests have begun, by whose they are; how many objects are remembered; and how many requests removed Pods. By these
    /// counters.
    pub fn counts(&self, [requests, objects, removals]: [&'static str; 3]) -> impl Iterator<Item = Count> {
        fn count(counter: &'static str, labels: &[&str], total: u64) -> Count {
            Count { counter, labels: labels.iter().map(|label| (*label).to_owned()).collect(), total }
        }
        let whose = Whose::ALL.into_iter().zip(self.counts);
        let whose = whose.map(move |(whose, total)| count(requests, &[whose.name()], total));
        let fates = self.objects.fates().map(move |(labels, total)| count(objects, &labels, total));
        let evidences = EVIDENCES.into_iter().zip(self.removals);
        let evidences = evidences
            .map(move |(evidence, total)| count(removals, &[evidence.map_or("none", Evidence::name)], total));
        whose.chain(fates).chain(evidences)
    }
}

/// Counts a request that deleted or evicted a Pod.
fn count_removal(removals: &mut [u64; EVIDENCES.len()], request: &Request) {
    let evidence = request.removed.as_ref().map(|removed| removed.evidence);
    let place = EVIDENCES.into_iter().position(|known| known == evidence);
    let count = place.filter(|_| request.removes().is_some()).map(|place| &mut removals[place]);
    count.into_iter().for_each(|count| *count += 1);
}

/// The object that came back; `None` for one that is not described by a struct.
fn object<V: Slots>(values: &mut Values<V>) -> Option<Object> {
    let typ = values.take_name(V::OBJECT_TYPE)?;
    let uid = values.take_text(V::OBJECT_UID).filter(|uid| !uid.is_empty())?;
    let mut text = |value| values.take_text(value).filter(|text| !text.is_empty());
    let [name, version, owner] = [V::OBJECT_NAME, V::OBJECT_VERSION, V::OBJECT_OWNER].map(&mut text);
    Some(Object { typ, uid, name, version, owner })
}

/// What a request is about, by its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About<'a> {
    /// API group and version, such as `apps/v1`; of the core group the version.
    pub api: String,
    /// Namespace, resource, name and subresource. Empty where there is none.
    pub namespace: &'a str,
    /// See above.
    pub resource: &'a str,
    /// See above.
    pub name: &'a str,
    /// See above.
    pub subresource: &'a str,
}

impl<'a> About<'a> {
    /// Of the path of a URL, which may begin with that of a proxy.
    fn of(path: &'a str) -> Self {
        let mut segments = path.split('/').skip_while(|segment| !["api", "apis"].contains(segment));
        let first = segments.next();
        let mut next = || segments.next().unwrap_or_default();
        let api = match first {
            Some("apis") => [next(), next()].join("/"),
            Some(_) => next().to_owned(),
            None => String::new(),
        };
        let mut rest: Vec<&str> = segments.collect();
        let of_namespace = ["status", "finalize"];
        let mut namespace = "";
        if rest.len() > 2 && rest[0] == "namespaces" && !of_namespace.contains(&rest[2]) {
            namespace = rest[1];
            rest.drain(..2);
        }
        let at = |place: usize| rest.get(place).copied().unwrap_or_default();
        About { api, namespace, resource: at(0), name: at(1), subresource: at(2) }
    }

    /// Whether it is about Pods.
    fn is_pods(&self) -> bool {
        self.api == "v1" && self.resource == "pods"
    }
}

impl Request {
    /// An attempt of a request that began at the first time, and was answered at the second, or not.
    fn attempt<V: Slots>((start_ns, end_ns): (u64, u64), values: &mut Values<V>) -> Self {
        let failed = values.number(V::FAILED) == Some(1);
        let error = values.take_text(V::ERROR).filter(|_| failed);
        let (path, error) = match error {
            Some(path) if path.is_empty() || path.starts_with('/') => {
                (Some(path), Some(URL_ERROR.to_owned()))
            }
            error => (values.take_text(V::PATH), error),
        };
        Self {
            start_ns,
            end_ns,
            method: values.take_text(V::METHOD),
            path,
            attempts: 1,
            status: values.number(V::STATUS).filter(|status| *status > 0),
            error,
            events: 1,
            ..Self::default()
        }
    }

    /// One more attempt of it, after these waits.
    fn again(&mut self, attempt: Self, waits: &[Limited]) {
        let limited_ns = waits.iter().fold(self.limited_ns, |sum, wait| sum.saturating_add(wait.ns));
        let (attempts, events) = (self.attempts + 1, self.events + 1 + waits.len() as u64);
        *self = Self { limited_ns, attempts, events, ..attempt };
    }

    /// Whether the client sends it again after this answer: a watch on the same goroutine has such answers as well.
    /// <https://github.com/kubernetes/client-go/blob/v0.36.4/rest/with_retry.go#L307-L318>
    fn may_be_sent_again(&self) -> bool {
        self.status.is_none_or(|status| status == 429 || status >= 500)
    }

    /// Whether it may delete or evict Pods: it may have failed.
    fn may_remove(&self) -> bool {
        let about = self.about();
        about.resource == "pods" && ["", EVICTION].contains(&about.subresource)
    }

    /// The object in an answer that the client did not decode.
    fn checked<V: Slots>(&self, values: &mut Values<V>) -> Option<Object> {
        let kept = values.take_text(V::BODY)?;
        let about = self.about();
        let is_of_one = !about.name.is_empty() && OF_OBJECT.contains(&about.subresource);
        body::object(&kept).filter(|_| is_of_one && self.succeeded())
    }

    /// Whether the object that came back is a Pod.
    fn is_of_pod(&self) -> bool {
        let about = self.about();
        let is =
            |object: &Object| if object.is_decoded() { *object.typ == *"*v1.Pod" } else { about.is_pods() };
        about.resource == "pods" && self.object.as_ref().is_some_and(is)
    }

    fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// The object that it created, if one came back.
    fn created(&self) -> Option<&Object> {
        let is_new = self.status == Some(CREATED) && self.writes();
        self.object.as_ref().filter(|_| is_new && self.about().subresource.is_empty())
    }

    /// Whether it may have changed something.
    fn writes(&self) -> bool {
        self.method.as_deref().is_none_or(|method| !READS.contains(&method))
    }

    /// Whether it changed nothing, and was answered without an error.
    fn is_plain_read(&self) -> bool {
        !self.writes() && self.error_type().is_none()
    }

    /// The status of an answer that is an error; else the error of a request without one.
    fn error_type(&self) -> Option<String> {
        match self.status {
            Some(status) => (status >= 400).then(|| status.to_string()),
            None => self.error.clone(),
        }
    }

    /// What it is about.
    #[must_use]
    pub fn about(&self) -> About<'_> {
        About::of(self.path.as_deref().unwrap_or_default())
    }
}

/// The path of a URL.
fn path_of(url: &str) -> &str {
    let host = url.split_once("://").map_or(url, |(_, host)| host);
    let path = host.find('/').map_or("", |start| &host[start..]);
    path.find(['?', '#']).map_or(path, |end| &path[..end])
}
