//! Schedules that could have happened, out of bytes: whatever the interleaving, the panic or the loss, no call is paired wrongly, and
//! no event is left unaccounted for.

use std::collections::HashMap;

use gotrace::{Role, program::Assemble as _};
use proptest::{collection::vec, prelude::*};

use super::{Assembler, CREATE, End, READY, Start};
use crate::{
    Event, Values,
    table::{Function, Part},
    values::Value,
};

/// Pods, each with a goroutine that syncs it, one that pulls its images, and one that probes it.
const PODS: u64 = 3;
const PULLERS: u64 = 100;
const PROBERS: u64 = 200;

/// A call as it was.
#[derive(Clone, Debug)]
struct Truth {
    pod: u64,
    function: Function,
    parent: Option<u64>,
    start_ns: u64,
    end_ns: Option<u64>,
}

/// A start as it was.
#[derive(Debug)]
struct Begun {
    /// Start times of its calls.
    calls: Vec<u64>,
    end: Option<(End, u64)>,
}

#[derive(Default)]
struct Run {
    truth: HashMap<u64, Truth>,
    /// By start time.
    begun: HashMap<u64, Begun>,
    /// Start time of the start of each Pod that is starting.
    starting: HashMap<u64, u64>,
    /// Start times of the calls that are open on each goroutine.
    stacks: HashMap<u64, Vec<u64>>,
    events: Vec<Event>,
    time_ns: u64,
    target: u32,
    last_loss: u64,
    /// Whether a call had no end.
    unwound: bool,
}

/// What a call makes, in turn: the kubelet's own order.
fn below(function: Option<Function>) -> &'static [Function] {
    match function {
        None => &[Function::Admit, Function::Sync],
        Some(Function::Sync) => &[Function::Volumes, Function::Sandbox, Function::Container],
        Some(Function::Sandbox) => &[Function::RunPodSandbox],
        Some(Function::Container) => &[Function::Image, Function::CreateContainer, Function::StartContainer],
        Some(
            Function::Admit
            | Function::Volumes
            | Function::Image
            | Function::Probe
            | Function::RunPodSandbox
            | Function::PullImage
            | Function::CreateContainer
            | Function::StartContainer
            | Function::Status
            | Function::Terminate,
        ) => &[],
    }
}

fn uid(pod: u64) -> String {
    format!("pod-{pod}")
}

impl Run {
    fn hit(
        &mut self,
        lose: bool,
        goroutine: u64,
        depth: usize,
        (function, role): (Function, Role),
        values: Values,
    ) {
        if lose {
            self.last_loss += 1;
            return;
        }
        let (target, time_ns, last_loss) = (self.target, self.time_ns, self.last_loss);
        let depth = 100 + depth as u64;
        self.events.push(Event {
            target,
            time_ns,
            goroutine,
            depth,
            function,
            role,
            took_ns: 0,
            last_loss,
            values,
        });
    }

    fn begin(&mut self, lose: bool, pod: u64, goroutine: u64, function: Function, lot: u8) {
        self.time_ns += 10;
        let start_ns = self.time_ns;
        let depth = self.stacks.get(&goroutine).map_or(0, Vec::len);
        let mut values = Values::default();
        // A container's id is all that its start knows.
        if function != Function::StartContainer {
            values.set(Value::PodUid, uid(pod));
        }
        let creates = lot.is_multiple_of(2);
        if function == Function::Sync {
            values.set(Value::SyncType, if creates { CREATE } else { 0 });
        }
        if (function == Function::Admit || function == Function::Sync && creates)
            && !self.starting.contains_key(&pod)
        {
            self.starting.insert(pod, start_ns);
            self.begun.insert(start_ns, Begun { calls: Vec::new(), end: None });
        }
        if let Some(begun) = self.starting.get(&pod).and_then(|start| self.begun.get_mut(start)) {
            begun.calls.push(start_ns);
        }
        let stack = self.stacks.entry(goroutine).or_default();
        let mut parent = stack.last().copied();
        stack.push(start_ns);
        if function == Function::PullImage {
            let images = self.stacks.get(&pod).into_iter().flatten();
            parent = images.copied().find(|start| self.truth[start].function == Function::Image);
        }
        self.truth.insert(start_ns, Truth { pod, function, parent, start_ns, end_ns: None });
        self.hit(lose, goroutine, depth, (function, Role::Entry), values);
    }

    fn end(&mut self, lose: bool, goroutine: u64) {
        self.time_ns += 10;
        let stack = self.stacks.entry(goroutine).or_default();
        let Some(start_ns) = stack.pop() else { return };
        let depth = stack.len();
        let Some(truth) = self.truth.get_mut(&start_ns) else { return };
        truth.end_ns = Some(self.time_ns);
        let function = truth.function;
        self.hit(lose, goroutine, depth, (function, Role::Ret), Values::default());
    }

    fn over(&mut self, lose: bool, pod: u64, function: Function, end: Option<End>) {
        self.time_ns += 10;
        let mut values = Values::default().with(Value::PodUid, uid(pod)).with(Value::Conditions, 4);
        if end == Some(End::Ready) {
            values = values.with(Value::ThirdType, READY.0).with(Value::ThirdStatus, READY.1);
        }
        if let Some(end) = end
            && let Some(begun) = self.starting.remove(&pod).and_then(|start| self.begun.get_mut(&start))
        {
            begun.end = Some((end, self.time_ns));
        }
        self.hit(lose, pod, 50, (function, Role::Entry), values);
    }

    /// What happens, by the bytes.
    fn of(bytes: &[u8], losses: bool) -> Self {
        let mut run = Self { target: 1, ..Self::default() };
        for choice in bytes.chunks_exact(3) {
            let (what, pod, lot) = (choice[0] % 16, u64::from(choice[1]) % PODS, choice[2]);
            let lose = losses && lot % 32 == 31;
            let top = run.stacks.get(&pod).and_then(|stack| stack.last()).copied();
            let top = top.map(|start| run.truth[&start].function);
            match what {
                0..=6 => {
                    let list = below(top);
                    if let Some(function) = list.get(usize::from(lot) % list.len().max(1)) {
                        run.begin(lose, pod, pod, *function, lot / 4);
                    }
                }
                7..=9 => run.end(lose, pod),
                // A pull waits in a goroutine of its own, and so does a probe.
                10 => match run.stacks.get(&(PULLERS + pod)).is_none_or(Vec::is_empty) {
                    true if top == Some(Function::Image) => {
                        run.begin(lose, pod, PULLERS + pod, Function::PullImage, lot);
                        run.end(losses && lot % 16 == 7, PULLERS + pod);
                    }
                    true | false => {}
                },
                11 => {
                    run.begin(lose, pod, PROBERS + pod, Function::Probe, lot);
                    run.end(losses && lot % 16 == 7, PROBERS + pod);
                }
                12 => run.over(lose, pod, Function::Status, None),
                13 => run.over(lose, pod, Function::Status, Some(End::Ready)),
                14 => run.over(lose, pod, Function::Terminate, Some(End::Deleted)),
                // A panic, up to who recovers.
                _ => {
                    let stack = run.stacks.entry(pod).or_default();
                    if losses && !stack.is_empty() {
                        stack.truncate(usize::from(lot) % stack.len());
                        run.unwound = true;
                    }
                }
            }
        }
        run
    }

    fn check(&self) {
        let mut assembler = Assembler::default();
        self.events.iter().for_each(|event| assembler.on(event.clone()));
        assembler.exit(1);
        let starts = assembler.take_finished();
        let (stats, account) = (assembler.stats(), assembler.account());
        assert_eq!((account.open(), account.events), (0, self.events.len() as u64));
        assert_eq!((assembler.opened, assembler.open.len(), assembler.starting.len()), (0, 0, 0));
        let events: u64 = starts.iter().map(|start| start.events).sum();
        assert_eq!((account.in_attempts, account.no_room, account.stray), (events, 0, stats.stray_ends));
        let exact = self.last_loss == 0 && !self.unwound;
        for start in &starts {
            self.check_start(start, exact);
        }
        if exact {
            let open = self.truth.values().filter(|truth| truth.end_ns.is_none()).count() as u64;
            assert_eq!((stats.stray_ends, stats.unwound_calls), (0, open));
            let all: u64 = assembler
                .counts()
                .iter()
                .filter(|count| count.counter == "kubelet_calls")
                .map(|count| count.total)
                .sum();
            assert_eq!(all, self.truth.len() as u64);
            let acted = self.begun.iter().filter(|(_, begun)| self.has_acted(begun)).count();
            assert_eq!((starts.len(), stats.skipped), (acted, (self.begun.len() - acted) as u64));
        }
    }

    fn has_acted(&self, begun: &Begun) -> bool {
        begun.calls.iter().any(|call| {
            let looks = [Function::Admit, Function::Sync, Function::Volumes, Function::Probe];
            !looks.contains(&self.truth[call].function)
        })
    }

    fn check_start(&self, start: &Start, exact: bool) {
        for call in &start.calls {
            let truth = &self.truth[&call.start_ns];
            assert_eq!((uid(truth.pod), call.start_ns), (start.uid.to_string(), truth.start_ns));
            let step = match truth.function.about() {
                Part::Step(step) => step,
                Part::Status | Part::Termination => panic!("it is no call"),
            };
            assert_eq!(step, call.step);
            assert!(call.end_ns.is_none() || call.end_ns == truth.end_ns, "{truth:?}");
            let parent = call.parent.map(|parent| start.calls[parent].start_ns);
            // What a start does not know, because it began meanwhile or a record was lost, is above nothing.
            let is_above = parent.is_none_or(|parent| self.is_above(parent, truth));
            assert!(is_above, "{truth:?} is not below {parent:?}");
            if exact {
                assert_eq!(call.end_ns, truth.end_ns, "{truth:?}");
                let known = truth.parent.filter(|parent| *parent >= start.start_ns);
                assert_eq!(
                    parent,
                    known.filter(|parent| start.calls.iter().any(|call| call.start_ns == *parent))
                );
            }
        }
        if exact {
            let begun = &self.begun[&start.start_ns];
            let calls: Vec<_> = start.calls.iter().map(|call| call.start_ns).collect();
            assert_eq!(calls, begun.calls);
            assert_eq!(begun.end.unwrap_or((End::Lost, start.end_ns)), (start.end, start.end_ns));
        }
    }

    fn is_above(&self, parent: u64, truth: &Truth) -> bool {
        let mut above = truth.parent;
        while let Some(next) = above {
            if next == parent {
                return true;
            }
            above = self.truth[&next].parent;
        }
        false
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_start_has_its_calls(bytes in vec(any::<u8>(), 0..600)) {
        Run::of(&bytes, false).check();
    }

    #[test]
    fn whatever_is_lost_no_call_is_paired_wrongly(bytes in vec(any::<u8>(), 0..600)) {
        Run::of(&bytes, true).check();
    }

    #[test]
    fn whatever_comes_is_accounted_for(
        events in vec((1..3_u32, 0..3_u64, 0..13_usize, 0..3_u64, 0..4_u64, any::<bool>(), 0..2_u64), 0..200),
    ) {
        let mut assembler = Assembler::default();
        let count = events.len() as u64;
        for (time_ns, (target, goroutine, function, depth, pod, ends, last_loss)) in (1..).zip(events) {
            let function = <Function as gotrace::program::Function>::ALL[function];
            let mut values = Values::default().with(Value::SyncType, CREATE);
            if pod > 0 {
                values.set(Value::PodUid, uid(pod));
            }
            let role = if ends { Role::Ret } else { Role::Entry };
            assembler.on(Event { target, time_ns, goroutine, depth, function, role, took_ns: 0, last_loss, values });
        }
        assembler.exit(1);
        assembler.exit(2);
        assert_eq!((assembler.account().events, assembler.account().open()), (count, 0));
    }
}

#[test]
fn a_schedule_is_what_a_kubelet_does() {
    // Admitted; synced; sandbox; container; Ready.
    let bytes = [0, 0, 0, 7, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 7, 0, 0, 7, 0, 0, 13, 0, 0];
    let run = Run::of(&bytes, false);
    let functions: Vec<_> = run.events.iter().map(|event| event.function).collect();
    let expected = [
        Function::Admit,
        Function::Admit,
        Function::Sync,
        Function::Sandbox,
        Function::RunPodSandbox,
        Function::RunPodSandbox,
        Function::Sandbox,
        Function::Status,
    ];
    assert_eq!((functions, run.begun.len()), (expected.to_vec(), 1));
    assert!(run.has_acted(&run.begun[&10]), "{:?}", run.begun);
}
