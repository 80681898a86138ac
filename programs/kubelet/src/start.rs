//! Starts of Pods out of events: which calls of a kubelet are part of which Pod's start, and how it ended.
//!
//! Pure: events in, starts out, no clock and no I/O. Calls are joined so:
//!
//! * A call is of the Pod whose UID is among its arguments, or else of the Pod of the call around it.
//! * A goroutine's calls lie within each other. An image may be pulled on another goroutine: that is part of the Pod's only open
//!   `image`.
//!
//! A start begins when the kubelet admits the Pod, or first syncs it. It ends with the first status that says Ready, Succeeded or
//! Failed, or with the Pod's termination. What the kubelet does to a Pod before and after is counted, no more.

#[cfg(test)]
mod schedules;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use ::spans::NodeStep;
use gotrace::{
    Role,
    account::{Books, Count, Counter, Losses},
    program::{Assemble, Function as _},
};

use crate::{
    Event, Kubelet, Values,
    table::{Function, Part},
    values::Value,
};

/// Pods that can be starting at once. A node takes 110 by default. Processes share this limit in equal parts.
const MAX_STARTS: usize = 1_024;
/// Calls of one start: a Pod whose probe fails for half an hour at one a second does not fit.
const MAX_CALLS: usize = 512;
/// Calls that can be open at once, of all processes.
const MAX_OPEN: usize = 16_384;
/// A start that takes so long is over. What it does later is counted.
pub const LIMIT_NS: u64 = 30 * 60 * 1_000_000_000;
/// Calls may outlast the end of their start by so much.
const DELAY_NS: u64 = 60 * 1_000_000_000;

/// `SyncPodCreate`: <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/types/pod_update.go#L115-L125>.
const CREATE: u64 = 2;
/// Lengths of the texts `Ready` and `True`.
const READY: (u64, u64) = (5, 4);

/// What schedspan counts of all kubelets.
pub const COUNTERS: [Counter; 2] = [
    Counter { name: "kubelet_calls", help: "Calls in kubelets that were seen to begin", labels: &["call"] },
    Counter {
        name: "kubelet_calls_outside_starts",
        help: "Calls in kubelets of Pods that are not starting, such as those that are Ready",
        labels: &["call"],
    },
];

/// How a start ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The Pod is Ready.
    Ready,
    /// All its containers have succeeded.
    Succeeded,
    /// It has failed, and is not started again.
    Failed,
    /// The kubelet has not admitted it.
    Rejected,
    /// It was deleted or evicted.
    Deleted,
    /// It took longer than [`LIMIT_NS`].
    Unfinished,
    /// The kubelet's process has ended.
    Lost,
}

/// The start of a Pod by a kubelet. All times are nanoseconds by `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Which process.
    pub target: u32,
    /// UID of the Pod.
    pub uid: Arc<str>,
    /// Name of the Pod, if it could be read.
    pub name: Option<String>,
    /// Namespace of the Pod, if it could be read.
    pub namespace: Option<String>,
    /// UID of its first owner, if it has one that could be read.
    pub owner: Option<String>,
    /// When the kubelet first looked at it.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// How it ended.
    pub end: End,
    /// What was done, by start time.
    pub calls: Vec<Call>,
    /// Calls that did not fit.
    pub left_out: u64,
    /// Whether records were lost meanwhile.
    pub incomplete: bool,
    /// How many events it came about by.
    pub events: u64,
}

/// A call that is part of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it does.
    pub step: NodeStep,
    /// The call around it.
    pub parent: Option<usize>,
    /// When it began.
    pub start_ns: u64,
    /// When it ended, if that was seen.
    pub end_ns: Option<u64>,
    /// Name of the container.
    pub container: Option<String>,
    /// Name of the image.
    pub image: Option<String>,
    /// The runtime's id of the sandbox or container.
    pub id: Option<String>,
    /// A `SyncPodType`, a `probeType`, or the number of a sandbox.
    pub number: Option<u64>,
    /// A `Result` of a probe.
    pub result: Option<i64>,
    /// Why it failed, if it did; empty if that is not known.
    pub failure: Option<String>,
}

impl Call {
    pub(crate) fn new(step: NodeStep, start_ns: u64) -> Self {
        Self {
            step,
            parent: None,
            start_ns,
            end_ns: None,
            container: None,
            image: None,
            id: None,
            number: None,
            result: None,
            failure: None,
        }
    }

    /// Whether it is the start of a container, of either kind.
    #[must_use]
    pub const fn is_container(&self) -> bool {
        matches!(self.step, NodeStep::Container | NodeStep::InitContainer)
    }

    /// Whether it only looks at what is there.
    const fn is_look(&self) -> bool {
        match self.step {
            // One that failed without making the Pod fail was for other resources of a Pod that runs.
            NodeStep::Admission => true,
            NodeStep::Sync | NodeStep::Volumes | NodeStep::Probe => self.failure.is_none(),
            NodeStep::Sandbox
            | NodeStep::Container
            | NodeStep::InitContainer
            | NodeStep::Image
            | NodeStep::RunPodSandbox
            | NodeStep::PullImage
            | NodeStep::CreateContainer
            | NodeStep::StartContainer => false,
        }
    }
}

/// Puts events together to starts of Pods.
#[derive(Debug, Default)]
pub struct Assembler {
    /// By process and UID.
    starting: BTreeMap<(u32, Arc<str>), Starting>,
    /// Open calls by process and goroutine, the innermost last.
    open: BTreeMap<(u32, u64), Vec<Open>>,
    /// Number of these.
    opened: usize,
    /// Calls and those outside of starts, by function.
    counts: BTreeMap<Function, [u64; 2]>,
    books: Books<Start>,
    losses: Losses,
    /// Number of the next start.
    next: u64,
}

/// A start that is not over.
#[derive(Debug)]
struct Starting {
    /// Distinguishes starts of one Pod.
    number: u64,
    /// [`Start::end`] and [`Start::end_ns`] are as yet unknown.
    start: Start,
    /// How and when it ended, if only open calls are waited for.
    ended: Option<(End, u64)>,
    /// Number of its open calls.
    open: usize,
    /// Place of the open call that waits for an image.
    image: Option<usize>,
}

/// A call that has not returned.
#[derive(Debug)]
struct Open {
    function: Function,
    depth: u64,
    start_ns: u64,
    of: Of,
}

/// What a call is part of.
#[derive(Clone, Debug)]
enum Of {
    /// A start: UID, number of the start, and place among its calls.
    Start(Arc<str>, u64, usize),
    /// No start of a Pod.
    Nothing,
    /// A start that has no room for it.
    NoRoom,
}

impl Starting {
    /// It is over. One that did nothing is counted: the Pod ran when the kubelet started.
    fn finish(self, end: End, end_ns: u64, books: &mut Books<Start>) {
        let Self { mut start, open, .. } = self;
        start.incomplete |= open > 0;
        let did_nothing = start.calls.iter().all(Call::is_look);
        if did_nothing && matches!(end, End::Ready | End::Succeeded | End::Deleted | End::Lost) {
            books.stats.skipped += 1;
            books.account.skipped += start.events;
            return;
        }
        (start.end, start.end_ns) = (end, end_ns.max(start.start_ns));
        books.stats.incomplete_attempts += u64::from(start.incomplete);
        books.account.in_attempts += start.events;
        books.finished.push(start);
    }

    fn begin(
        &mut self,
        function: Function,
        mut call: Call,
        values: &mut Values,
        parent: Option<usize>,
    ) -> usize {
        let calls = &mut self.start.calls;
        call.container = values.take_text(Value::Container);
        call.image = values.take_text(Value::Image);
        call.id = values.take_text(Value::Id);
        call.number = match function {
            Function::Sync => values.number(Value::SyncType),
            Function::Probe => values.number(Value::ProbeType),
            // The upper half of the register is not part of it.
            Function::Sandbox => values.number(Value::Attempt).map(|number| number & u64::from(u32::MAX)),
            Function::Admit
            | Function::Volumes
            | Function::Container
            | Function::Image
            | Function::RunPodSandbox
            | Function::PullImage
            | Function::CreateContainer
            | Function::StartContainer
            | Function::Status
            | Function::Terminate => None,
        };
        call.parent = parent.or(self.image.filter(|_| function == Function::PullImage));
        if function == Function::Image {
            self.image = Some(calls.len());
        }
        if let Some(around) =
            call.parent.and_then(|parent| calls.get_mut(parent)).filter(|call| call.is_container())
        {
            // <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/container/ref.go#L44-L78>
            let path = values.take_text(Value::FieldPath);
            let named = path.as_deref().and_then(|path| path.strip_suffix('}')?.split_once('{'));
            if let Some((kind, name)) = named {
                call.container = Some(name.to_owned());
                around.step =
                    if kind == "spec.initContainers" { NodeStep::InitContainer } else { NodeStep::Container };
            } else if is_in_init_containers(values) {
                around.step = NodeStep::InitContainer;
            }
            around.container = around.container.take().or_else(|| call.container.clone());
            around.image = around.image.take().or_else(|| call.image.clone());
            call.container = around.container.clone();
        }
        calls.push(call);
        self.open += 1;
        calls.len() - 1
    }

    /// A call of it is not open any more.
    fn closed(&mut self, place: usize) {
        self.open = self.open.saturating_sub(1);
        self.image = self.image.filter(|image| *image != place);
    }

    /// When the Pod was not admitted, if nothing else happened to it.
    fn rejected_ns(&self) -> Option<u64> {
        match &self.start.calls[..] {
            [Call { step: NodeStep::Admission, failure: Some(_), end_ns, .. }] => *end_ns,
            _ => None,
        }
    }

    fn end(&mut self, place: usize, time_ns: u64, values: &mut Values) {
        self.closed(place);
        let Some(call) = self.start.calls.get_mut(place) else { return };
        call.end_ns = Some(time_ns.max(call.start_ns));
        call.result = values.signed(Value::ProbeResult);
        call.id = values.take_text(Value::Id).filter(|id| !id.is_empty()).or(call.id.take());
        if values.flag(Value::Admitted) == Some(false) {
            call.failure = Some(values.take_text(Value::Reason).unwrap_or_default());
        } else if values.number(Value::Failed) == Some(1) {
            call.failure = Some(values.take_text(Value::Message).unwrap_or_default());
        }
        let (id, around) = (call.id.clone(), call.parent.filter(|_| call.step == NodeStep::CreateContainer));
        if let Some(around) = around.and_then(|around| self.start.calls.get_mut(around)) {
            around.id = id;
        }
    }
}

impl Assembler {
    fn count(&mut self, function: Function, place: usize) {
        self.counts.entry(function).or_default()[place] += 1;
    }

    fn entry(&mut self, event: Event, step: NodeStep) {
        let Event { target, time_ns, goroutine, depth, function, mut values, .. } = event;
        self.count(function, 0);
        self.unwind((target, goroutine), depth);
        if self.opened >= MAX_OPEN {
            // Its end will be a stray one.
            return self.books.no_room(1);
        }
        let around =
            self.open.get(&(target, goroutine)).and_then(|calls| calls.last()).map(|open| open.of.clone());
        let uid = values.take_text(Value::PodUid).map(Arc::from);
        let uid =
            uid.or_else(|| if let Some(Of::Start(uid, ..)) = &around { Some(Arc::clone(uid)) } else { None });
        let creates = || function == Function::Sync && values.number(Value::SyncType) == Some(CREATE);
        let begins = function == Function::Admit || creates();
        // Within a sync: whether the Pod, which was admitted, can have other resources.
        // <https://github.com/kubernetes/kubernetes/blob/v1.33.13/pkg/kubelet/kubelet.go#L2912>
        let is_resize = function == Function::Admit && around.is_some();
        let of = uid.filter(|_| !is_resize).map_or(Of::Nothing, |uid| {
            if begins && !self.begin(target, &uid, time_ns, &mut values) {
                return Of::NoRoom;
            }
            let found = self.starting.get_mut(&(target, Arc::clone(&uid)));
            let Some(starting) = found.filter(|starting| starting.ended.is_none()) else {
                return Of::Nothing;
            };
            if starting.start.calls.len() >= MAX_CALLS {
                starting.start.left_out += 1;
                return Of::NoRoom;
            }
            let parent = match around {
                Some(Of::Start(of, number, place)) if of == uid && number == starting.number => Some(place),
                Some(Of::Start(..) | Of::Nothing | Of::NoRoom) | None => None,
            };
            starting.start.events += 1;
            let place = starting.begin(function, Call::new(step, time_ns), &mut values, parent);
            Of::Start(uid, starting.number, place)
        });
        match of {
            Of::Start(..) => {}
            Of::Nothing => {
                self.count(function, 1);
                self.books.account.unrelated += 1;
            }
            Of::NoRoom => self.books.no_room(1),
        }
        self.opened += 1;
        self.open.entry((target, goroutine)).or_default().push(Open {
            function,
            depth,
            start_ns: time_ns,
            of,
        });
    }

    /// Begins a start, unless the Pod has one. `false` if there is no room.
    fn begin(&mut self, target: u32, uid: &Arc<str>, start_ns: u64, values: &mut Values) -> bool {
        let key = (target, Arc::clone(uid));
        if self.starting.contains_key(&key) {
            return true;
        }
        let own = self.starting.keys().filter(|(of, _)| *of == target).count();
        if own >= self.losses.part(MAX_STARTS) {
            return false;
        }
        self.next += 1;
        let start = Start {
            target,
            uid: Arc::clone(uid),
            name: values.take_text(Value::PodName),
            namespace: values.take_text(Value::PodNamespace),
            owner: values.take_text(Value::OwnerUid).filter(|uid| !uid.is_empty()),
            start_ns,
            end_ns: start_ns,
            end: End::Unfinished,
            calls: Vec::new(),
            left_out: 0,
            incomplete: false,
            events: 0,
        };
        self.starting.insert(key, Starting { number: self.next, start, ended: None, open: 0, image: None });
        true
    }

    fn exit_of_call(&mut self, event: Event) {
        let Event { target, time_ns, goroutine, depth, function, mut values, .. } = event;
        // What lies deeper has not returned, and will not.
        self.unwind((target, goroutine), depth.saturating_add(1));
        let calls = self.open.get_mut(&(target, goroutine));
        let is_its = |open: &Open| (open.function, open.depth) == (function, depth);
        let Some(open) = calls.and_then(|calls| calls.pop_if(|open| is_its(open))) else {
            self.books.stray_end();
            return;
        };
        self.closed((target, goroutine));
        match open.of {
            Of::Start(uid, number, place) => {
                let key = (target, uid);
                match self.starting.get_mut(&key).filter(|starting| starting.number == number) {
                    Some(starting) => {
                        starting.start.events += 1;
                        starting.end(place, time_ns, &mut values);
                        self.settle(&key);
                    }
                    // It took longer than its start may.
                    None => self.books.account.unrelated += 1,
                }
            }
            Of::Nothing => self.books.account.unrelated += 1,
            Of::NoRoom => self.books.no_room(1),
        }
    }

    /// One call less is open on this goroutine.
    fn closed(&mut self, key: (u32, u64)) {
        self.opened -= 1;
        if self.open.get(&key).is_some_and(Vec::is_empty) {
            self.open.remove(&key);
        }
    }

    /// Closes the calls of a goroutine that are at this depth or deeper: they have panicked, or their ends were lost.
    fn unwind(&mut self, key: (u32, u64), depth: u64) {
        while let Some(open) =
            self.open.get_mut(&key).and_then(|calls| calls.pop_if(|open| open.depth >= depth))
        {
            self.closed(key);
            self.lose(key.0, &open.of);
        }
    }

    /// A call has no end.
    fn lose(&mut self, target: u32, of: &Of) {
        self.books.stats.unwound_calls += 1;
        let Of::Start(uid, number, place) = of else { return };
        let key = (target, Arc::clone(uid));
        if let Some(starting) = self.starting.get_mut(&key).filter(|starting| starting.number == *number) {
            starting.closed(*place);
            starting.start.incomplete = true;
            self.settle(&key);
        }
    }

    /// Finishes a start that has ended, once none of its calls is open.
    fn settle(&mut self, key: &(u32, Arc<str>)) {
        let is_closed = self.starting.get(key).is_some_and(|starting| starting.open == 0);
        let ended = self.starting.get(key).and_then(|starting| starting.ended);
        if let Some((end, end_ns)) = ended.filter(|_| is_closed)
            && let Some(starting) = self.starting.remove(key)
        {
            starting.finish(end, end_ns, &mut self.books);
        }
    }

    /// The start of this Pod ends, if there is one.
    fn over(&mut self, target: u32, time_ns: u64, end: Option<End>, mut values: Values) {
        let key = values.take_text(Value::PodUid).map(|uid| (target, Arc::from(uid)));
        if let (Some(key), Some(end)) = (key, end)
            && let Some(starting) = self.starting.get_mut(&key).filter(|starting| starting.ended.is_none())
        {
            // <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/kubelet/kubelet.go#L2587-L2597>
            let rejected_ns = starting.rejected_ns().filter(|_| end == End::Failed);
            starting.ended = Some(rejected_ns.map_or((end, time_ns), |time_ns| (End::Rejected, time_ns)));
            starting.start.events += 1;
            self.settle(&key);
        } else {
            self.books.account.unrelated += 1;
        }
    }

    /// Gives up what is open of this process.
    fn give_up(&mut self, target: u32) {
        let keys: Vec<_> = self.open.range((target, 0)..=(target, u64::MAX)).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.unwind(key, 0));
    }
}

/// Whether a container lies in the list of its Pod's init containers. Lists do not overlap: the one that begins before it, and
/// last, has it.
fn is_in_init_containers(values: &Values) -> bool {
    let lists = [Value::InitContainersAt, Value::ContainersAt, Value::EphemeralContainersAt];
    let [init, others @ ..] = lists.map(|list| values.number(list).unwrap_or_default());
    values.number(Value::ContainerAt).is_some_and(|at| {
        let is_between = |list: u64| (init..=at).contains(&list);
        init != 0 && init <= at && !others.into_iter().any(is_between)
    })
}

/// The end that a status means.
fn end_of(values: &Values) -> Option<End> {
    let phase = values.text(Value::Phase).unwrap_or_default();
    if let Some((_, end)) =
        [("Succeeded", End::Succeeded), ("Failed", End::Failed)].into_iter().find(|(name, _)| *name == phase)
    {
        return Some(end);
    }
    let count = values.number(Value::Conditions).unwrap_or_default();
    let conditions = [
        (3, Value::ThirdType, Value::ThirdStatus),
        (4, Value::FourthType, Value::FourthStatus),
        (5, Value::FifthType, Value::FifthStatus),
    ];
    let is_ready = |(number, typ, status): (u64, Value, Value)| {
        count >= number && values.number(typ).zip(values.number(status)) == Some(READY)
    };
    conditions.into_iter().any(is_ready).then_some(End::Ready)
}

impl Assemble<Kubelet> for Assembler {
    type Output = Start;

    fn on(&mut self, event: Event) {
        if self.losses.came(event.target, event.last_loss) {
            self.give_up(event.target);
        }
        self.books.account.events += 1;
        let Event { target, time_ns, role, .. } = event;
        match event.function.about() {
            Part::Step(step) => match role {
                Role::Entry => self.entry(event, step),
                Role::ReturnSite | Role::NextEntry | Role::Ret | Role::InTurn | Role::Metric => {
                    self.exit_of_call(event);
                }
            },
            Part::Status => self.over(target, time_ns, end_of(&event.values), event.values),
            Part::Termination => self.over(target, time_ns, Some(End::Deleted), event.values),
        }
    }

    fn expire(&mut self, now_ns: u64) {
        let Self { starting, books, .. } = self;
        let too_long = |starting: &Starting| match starting.ended {
            Some((_, ended_ns)) => now_ns.saturating_sub(ended_ns) > DELAY_NS,
            None => now_ns.saturating_sub(starting.start.start_ns) > LIMIT_NS,
        };
        let over = starting.extract_if(.., |_, starting| too_long(starting));
        over.for_each(|(_, starting)| {
            let (end, end_ns) = starting.ended.unwrap_or((End::Unfinished, now_ns));
            starting.finish(end, end_ns, books);
        });
        // A goroutine that has gone takes its calls along.
        let silent: Vec<_> = self
            .open
            .iter()
            .filter(|(_, calls)| calls.iter().all(|open| now_ns.saturating_sub(open.start_ns) > LIMIT_NS))
            .map(|(key, _)| *key)
            .collect();
        silent.into_iter().for_each(|key| self.unwind(key, 0));
    }

    fn exit(&mut self, target: u32) {
        let last_ns = |starting: &Starting| {
            let calls = starting.start.calls.iter().flat_map(|call| [Some(call.start_ns), call.end_ns]);
            calls.flatten().max().unwrap_or(starting.start.start_ns)
        };
        self.give_up(target);
        let Self { starting, books, .. } = self;
        let over = starting.extract_if(.., |(of, _), _| *of == target);
        over.for_each(|(_, starting)| {
            let (end, end_ns) = starting.ended.unwrap_or((End::Lost, last_ns(&starting)));
            starting.finish(end, end_ns, books);
        });
        self.losses.exit(target);
    }

    fn books(&self) -> &Books<Start> {
        &self.books
    }

    fn books_mut(&mut self) -> &mut Books<Start> {
        &mut self.books
    }

    fn counts(&self) -> Vec<Count> {
        let steps = Function::ALL.iter().filter_map(|function| match function.about() {
            Part::Step(step) => Some((step, self.counts.get(function)?)),
            Part::Status | Part::Termination => None,
        });
        let count = |(step, totals): (NodeStep, &[u64; 2])| {
            [0, 1].map(|place| Count {
                counter: COUNTERS[place].name,
                labels: vec![step.name().to_owned()],
                total: totals[place],
            })
        };
        steps.flat_map(count).collect()
    }
}
