//! Reconciles out of events: which controller was called with which request, for how long, and what it returned.
//!
//! Pure: events in, reconciles out, no clock and no I/O. A goroutine has one reconcile at a time, and its end is at the depth of
//! its beginning.

#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use client_go::requests::{self, Began, Finished, Made, OnGoroutine, Requests, Step};
use gotrace::{
    Role,
    account::{Books, Count, Counter, Losses},
    program::Assemble,
};

use crate::{
    ControllerRuntime, Event, Values,
    table::{Part, STATUS_ERROR},
    values::Value,
};

/// Reconciles that can be open at once. Processes share this limit in equal parts.
const MAX_OPEN: usize = 16_384;
/// Controllers that are counted by name. More are counted as [`OTHER`].
const MAX_CONTROLLERS: usize = 4_096;
const OTHER: &str = "other";
/// A reconcile that is silent for so long is lost.
const SILENCE_NS: u64 = 60 * 60 * 1_000_000_000;

/// What schedspan counts of each controller, as the process's own metrics `controller_runtime_reconcile_total` and
/// `controller_runtime_reconcile_panics_total` do.
pub const COUNTERS: [Counter; 6] = [
    Counter {
        name: "controller_reconciles",
        help: "Reconciles of a controller that are over",
        labels: &["controller", "result"],
    },
    Counter {
        name: "controller_panics",
        help: "Reconciles of a controller that panicked, and were recovered",
        labels: &["controller"],
    },
    requests::counter(
        "controller_requests",
        "API requests of processes with controllers, by the reconcile that made them",
    ),
    Counter {
        name: "controller_idle_reconciles",
        help: "Reconciles of a controller that wrote nothing, did not fail and did not ask to be called again at once",
        labels: &["controller"],
    },
    requests::objects("controller_objects"),
    requests::removals("controller_pod_removals"),
];

/// How controller-runtime begins and ends the message of a panic that it recovered:
/// <https://github.com/kubernetes-sigs/controller-runtime/blob/v0.19.0/pkg/internal/controller/controller.go#L112>.
const PANIC: (&str, &str) = ("panic: ", " [recovered]");

/// The message of an error that controller-runtime makes of a panic.
pub(crate) fn panic_message(cause: &str) -> String {
    format!("{}{cause}{}", PANIC.0, PANIC.1)
}

/// What a reconciler panicked with, if the message is that of a panic. The end of a long one is cut.
pub(crate) fn panicked_with(message: &str) -> Option<&str> {
    let cause = message.strip_prefix(PANIC.0)?;
    cause.strip_suffix(PANIC.1).or_else(|| cause.ends_with('…').then_some(cause))
}

/// What a reconcile returned, by the rules of controller-runtime:
/// <https://github.com/kubernetes-sigs/controller-runtime/blob/v0.19.0/pkg/internal/controller/controller.go#L316-L350>.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Neither an error nor a wish to be called again.
    Success,
    /// It asks to be called again.
    Requeue,
    /// It asks to be called again after this time, nanoseconds.
    RequeueAfter(u64),
    /// An error.
    Error,
}

impl Outcome {
    /// The label of controller-runtime's metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Requeue => "requeue",
            Self::RequeueAfter(_) => "requeue_after",
            Self::Error => "error",
        }
    }

    fn of(values: &Values) -> Option<Self> {
        Some(match (values.number(Value::Failed)?, values.signed(Value::RequeueAfter)) {
            (0, after) => match (after?, values.flag(Value::Requeue)?) {
                (after @ 1.., _) => Self::RequeueAfter(after.cast_unsigned()),
                (_, true) => Self::Requeue,
                (_, false) => Self::Success,
            },
            (_, _) => Self::Error,
        })
    }
}

/// A controller's call of its reconciler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconcile {
    /// Which process.
    pub target: u32,
    /// The controller's name; empty where that could not be read.
    pub controller: Arc<str>,
    /// What is reconciled, such as `namespace/name`, where that could be read.
    pub request: Option<String>,
    /// When it began. All times are nanoseconds by `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// When it was over.
    pub end_ns: u64,
    /// What it returned, if that was seen.
    pub outcome: Option<Outcome>,
    /// The error's message, or its type.
    pub message: Option<String>,
    /// Whether it panicked, and controller-runtime recovered.
    pub panicked: bool,
    /// The API requests that it made.
    pub made: Made,
    /// Whether its end was not seen.
    pub incomplete: bool,
}

impl Reconcile {
    /// Whether nothing came of it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_over = match self.outcome {
            Some(Outcome::Success | Outcome::RequeueAfter(_)) => !self.incomplete,
            Some(Outcome::Requeue | Outcome::Error) | None => false,
        };
        is_over && self.made.is_idle()
    }
}

/// Puts events together to reconciles.
#[derive(Debug, Default)]
pub struct Assembler {
    /// By process and goroutine.
    open: BTreeMap<(u32, u64), Open>,
    /// Reconciles by controller and result.
    reconciles: BTreeMap<(Arc<str>, &'static str), u64>,
    /// By controller.
    panics: BTreeMap<Arc<str>, u64>,
    /// Of which nothing came, by controller.
    idle: BTreeMap<Arc<str>, u64>,
    /// Names that are counted, and shared.
    controllers: BTreeSet<Arc<str>>,
    requests: Requests,
    books: Books<Finished<Reconcile>>,
    losses: Losses,
}

#[derive(Debug)]
struct Open {
    /// Its number among reconciles.
    number: u64,
    depth: u64,
    reconcile: Reconcile,
}

impl Assembler {
    /// The name of a controller. All reconciles share it.
    fn controller(&mut self, name: Option<String>) -> Arc<str> {
        let name = name.unwrap_or_default();
        if let Some(known) = self.controllers.get(&*name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        if self.controllers.len() < MAX_CONTROLLERS {
            self.controllers.insert(Arc::clone(&name));
        }
        name
    }

    fn count(&mut self, reconcile: &Reconcile) {
        let Reconcile { controller, outcome, panicked, .. } = reconcile;
        let is_counted = self.controllers.contains(controller);
        let controller = if is_counted { Arc::clone(controller) } else { OTHER.into() };
        let result = outcome.map_or("unknown", Outcome::name);
        *self.panics.entry(Arc::clone(&controller)).or_default() += u64::from(*panicked);
        *self.idle.entry(Arc::clone(&controller)).or_default() += u64::from(reconcile.is_idle());
        *self.reconciles.entry((controller, result)).or_default() += 1;
    }

    fn begin(&mut self, event: Event) {
        let Event { target, time_ns, goroutine, depth, mut values, .. } = event;
        // The end of the one before was not seen.
        self.give_up(|of, _| of == (target, goroutine));
        let own = self.open.range((target, 0)..=(target, u64::MAX)).count();
        if own >= self.losses.part(MAX_OPEN) {
            return self.books.no_room(1);
        }
        let controller = self.controller(values.take_text(Value::Controller));
        let parts: Option<Vec<String>> = values.take_texts(Value::Request).into_iter().collect();
        // Objects without a namespace have an empty one.
        let parts = parts.map(|parts| parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>());
        let request = parts.filter(|parts| !parts.is_empty()).map(|parts| parts.join("/"));
        let began = Reconcile { start_ns: time_ns, end_ns: time_ns, ..Reconcile::default() };
        let reconcile = Reconcile { target, controller, request, ..began };
        let Reconcile { controller: name, request, .. } = &reconcile;
        let (trace_id, key) = (reconcile.trace_id(), request.as_deref());
        let number = self.requests.begin_reconcile(Began { target, trace_id, name, key });
        self.open.insert((target, goroutine), Open { number, depth, reconcile });
    }

    fn end(&mut self, event: Event) {
        let Event { target, time_ns, goroutine, depth, mut values, .. } = event;
        let key = (target, goroutine);
        let is_its_own = self.open.get(&key).is_some_and(|open| open.depth == depth);
        let own = if is_its_own { self.open.remove(&key) } else { None };
        let Some(Open { number, reconcile, .. }) = own else { return self.books.stray_end() };
        let outcome = Outcome::of(&values);
        let failed = outcome == Some(Outcome::Error);
        let [message, status] =
            [Value::Message, Value::StatusMessage].map(|value| values.take_text(value).filter(|_| failed));
        let message = if message.as_deref() == Some(STATUS_ERROR) { status } else { message };
        let panicked = message.as_deref().and_then(panicked_with).is_some();
        let end_ns = time_ns.max(reconcile.start_ns);
        let made = self.requests.end_reconcile(number, &mut self.books);
        let reconcile = Reconcile { end_ns, outcome, message, panicked, made, ..reconcile };
        self.count(&reconcile);
        self.books.account.in_attempts += 2;
        self.books.finished.push(Finished::Reconcile(reconcile));
    }

    /// Part of a request: of the reconcile that is open on its goroutine, or on the one that started that.
    fn request(&mut self, step: Step, event: Event) {
        let Self { open, requests, books, losses, .. } = self;
        let target = event.target;
        let on =
            |goroutine| OnGoroutine::of(open.get(&(target, goroutine)).map(|open| open.number).into_iter());
        requests.on(step, event, books, on, |limit| losses.part(limit));
    }

    /// Ends were not seen, and will not be.
    fn give_up(&mut self, is: impl Fn((u32, u64), &Reconcile) -> bool) {
        let Self { open, requests, books, .. } = self;
        for (_, Open { number, reconcile, .. }) in open.extract_if(.., |key, open| is(*key, &open.reconcile))
        {
            let made = requests.end_reconcile(number, books);
            let last_ns = made.requests.iter().map(|request| request.end_ns).max();
            let end_ns = last_ns.unwrap_or(reconcile.end_ns);
            books.stats.incomplete_attempts += 1;
            books.account.in_attempts += 1;
            let reconcile = Reconcile { end_ns, made, incomplete: true, ..reconcile };
            books.finished.push(Finished::Reconcile(reconcile));
        }
    }

    /// Gives up all that is open of a process.
    fn give_up_all(&mut self, target: u32) {
        self.give_up(|(of, _), _| of == target);
        self.requests.give_up(|of| of == target, u64::MAX, &mut self.books);
    }
}

impl Assemble<ControllerRuntime> for Assembler {
    type Output = Finished<Reconcile>;

    fn on(&mut self, event: Event) {
        if self.losses.came(event.target, event.last_loss) {
            self.give_up_all(event.target);
        }
        self.books.account.events += 1;
        match (event.function.about(), event.role) {
            (Part::Request(step), _) => self.request(step, event),
            (Part::Reconcile, Role::Entry) => self.begin(event),
            (
                Part::Reconcile,
                Role::ReturnSite | Role::NextEntry | Role::Ret | Role::InTurn | Role::Metric,
            ) => self.end(event),
        }
    }

    fn expire(&mut self, now_ns: u64) {
        self.give_up(|_, reconcile| now_ns.saturating_sub(reconcile.start_ns) > SILENCE_NS);
        self.requests.give_up(|_| true, now_ns.saturating_sub(SILENCE_NS), &mut self.books);
    }

    fn exit(&mut self, target: u32) {
        self.give_up_all(target);
        self.requests.exit(target);
        self.losses.exit(target);
    }

    fn books(&self) -> &Books<Finished<Reconcile>> {
        &self.books
    }

    fn books_mut(&mut self) -> &mut Books<Finished<Reconcile>> {
        &mut self.books
    }

    fn counts(&self) -> Vec<Count> {
        let [reconciles, panics, requests, idle, objects, removals] = COUNTERS.map(|counter| counter.name);
        let reconciles = self.reconciles.iter().map(|((controller, result), total)| Count {
            counter: reconciles,
            labels: vec![controller.to_string(), (*result).to_owned()],
            total: *total,
        });
        let by_controller = [(panics, &self.panics), (idle, &self.idle)].into_iter();
        let by_controller = by_controller.flat_map(|(counter, totals)| {
            totals.iter().map(move |(controller, total)| Count {
                counter,
                labels: vec![controller.to_string()],
                total: *total,
            })
        });
        reconciles.chain(by_controller).chain(self.requests.counts([requests, objects, removals])).collect()
    }
}
