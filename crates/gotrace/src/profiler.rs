//! Collects whole stacks of traced processes: where their CPU time goes, by the program's classes and by function.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use goexe::{Executable, Functions};

use crate::{
    account::{Account, Count, Counter, Stats},
    code::{self, CodeMap, Sampled},
    decode::Undecodable,
    discover::{FileId, Handle, Process},
    pipeline::{Clocks, Found},
    plan,
    probe::{self, Probes},
    program::Program,
    worker::{Planner, Prepared, Summary, Worker},
};

/// Different stacks that are kept. More are counted by their classes alone.
const MAX_STACKS: usize = 100_000;
/// Samples whose time is kept: of two CPUs without a pause, for 40 minutes.
const MAX_MOMENTS: usize = 1_000_000;

/// A stack and its classes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stack {
    /// What it was done for, such as the result of an attempt, if that was asked for and is known.
    pub group: Option<Arc<str>>,
    /// What the program was doing, such as a phase.
    pub whole: Arc<str>,
    /// The part of it, such as a plugin.
    pub part: Option<Arc<str>>,
    /// Names of the functions, innermost first. Empty if the stack is not believed, or was not kept.
    pub functions: Vec<Arc<str>>,
}

/// Samples of processes, by their stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Number of samples of each stack.
    pub stacks: BTreeMap<Arc<Stack>, u64>,
    /// When the samples were taken, if that is asked for.
    pub moments: Option<Moments>,
    /// CPU time that a sample stands for, nanoseconds.
    pub period_ns: u64,
    /// Pids of the processes.
    pub pids: Vec<u32>,
}

/// A sample, and when it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Target number of the process.
    pub target: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// Its stack, as in [`Profile::stacks`].
    pub stack: Arc<Stack>,
}

/// When samples were taken. There is room for a number of them; those that come later are counted only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moments {
    list: Vec<Moment>,
    room: usize,
    left_out: u64,
}

impl Default for Moments {
    fn default() -> Self {
        Self::with_room(MAX_MOMENTS)
    }
}

impl Moments {
    /// Keeps so many moments.
    #[must_use]
    pub const fn with_room(room: usize) -> Self {
        Self { list: Vec::new(), room, left_out: 0 }
    }

    /// The moments, in the order in which they came, and the number of samples for which there was no room.
    #[must_use]
    pub fn into_list(self) -> (Vec<Moment>, u64) {
        (self.list, self.left_out)
    }

    fn add(&mut self, moment: Moment) {
        if self.list.len() < self.room {
            self.list.push(moment);
        } else {
            self.left_out += 1;
        }
    }
}

impl Profile {
    /// Adds a sample of the process with this target number, taken at this time of `CLOCK_MONOTONIC`, nanoseconds.
    pub fn add(&mut self, target: u32, time_ns: u64, mut stack: Stack) {
        if self.stacks.len() >= MAX_STACKS && !self.stacks.contains_key(&stack) {
            stack.functions.clear();
        }
        let known = self.stacks.get_key_value(&stack).map(|(known, _)| Arc::clone(known));
        let stack = known.unwrap_or_else(|| Arc::new(stack));
        if let Some(moments) = &mut self.moments {
            moments.add(Moment { target, time_ns, stack: Arc::clone(&stack) });
        }
        *self.stacks.entry(stack).or_default() += 1;
    }

    /// Number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.stacks.values().sum()
    }
}

/// Profiles of a program's processes. No probe is attached.
#[derive(Debug)]
pub struct Profiler<P: Program> {
    executables: HashMap<FileId, Arc<Named<P>>>,
    targets: HashMap<u32, (Arc<Named<P>>, u64)>,
    profile: Arc<Mutex<Profile>>,
}

/// The names of an executable's functions.
#[derive(Debug)]
struct Named<P> {
    codes: CodeMap,
    /// First addresses, sorted, and names.
    functions: Vec<(u64, Arc<str>)>,
    program: std::marker::PhantomData<P>,
}

impl<P: Program> Profiler<P> {
    /// A profiler that adds its samples to this profile.
    #[must_use]
    pub fn new(profile: Arc<Mutex<Profile>>) -> Self {
        Self { executables: HashMap::new(), targets: HashMap::new(), profile }
    }
}

impl<P> Named<P> {
    /// The name of the function that holds an address of the file.
    fn name(&self, address: u64) -> Option<&Arc<str>> {
        let behind = self.functions.partition_point(|(start, _)| *start <= address);
        Some(&self.functions.get(behind.checked_sub(1)?)?.1)
    }
}

fn prepare<P: Program>(
    executable: &Executable<'_>,
    functions: &Functions<'_>,
) -> Result<Prepared, plan::Error> {
    let identity = plan::Plan::<P>::choose(executable, functions)?.identity;
    let names = P::names(executable, functions, &executable.types())?;
    let codes = CodeMap::of::<P>(executable, functions, &names);
    let all = functions.matching(|_| true);
    let mut functions: Vec<_> =
        all.iter().map(|function| (function.range.start, Arc::from(function.name))).collect();
    functions.sort();
    executable.intact()?;
    let summary = Summary { identity, programs: vec![P::NAME], ..Summary::default() };
    let named = Named::<P> { codes, functions, program: std::marker::PhantomData };
    Ok(Prepared::new(summary, Box::new(named)))
}

impl<P: Program, T> Worker<T> for Profiler<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn file_names(&self) -> &'static [&'static str] {
        P::FILE_NAMES
    }

    fn counters(&self) -> &'static [Counter] {
        &[]
    }

    fn planner(&self) -> Planner {
        Planner::new::<P>(prepare::<P>)
    }

    fn keep(&mut self, file: FileId, prepared: Prepared) {
        let planned: Box<dyn Any + Send> = prepared.into_planned();
        if let Ok(named) = planned.downcast::<Named<P>>() {
            self.executables.insert(file, Arc::new(*named));
        }
    }

    fn attach(&mut self, _: FileId, _: &mut Probes, _: &Handle) -> Result<(), probe::Error> {
        Ok(())
    }

    fn detach(&mut self, file: FileId, _: &mut Probes) -> Result<(), probe::Error> {
        self.executables.remove(&file);
        Ok(())
    }

    fn begin(&mut self, file: FileId, bias: u64, found: &Found) {
        if let Some(named) = self.executables.get(&file) {
            self.targets.insert(found.target, (Arc::clone(named), bias));
            self.profile.lock().unwrap_or_else(PoisonError::into_inner).pids.push(found.pid);
        }
    }

    fn sample(
        &mut self,
        file: FileId,
        bias: u64,
        process: &Process,
        _: u32,
        probes: &mut Probes,
    ) -> Result<(), probe::Error> {
        let Some(named) = self.executables.get(&file) else { return Ok(()) };
        let period_ns = probes.sample_period_ns().ok_or_else(|| {
            probe::Error::Sample("the kernel refuses the eBPF program; the log has its reason".to_owned())
        })?;
        self.profile.lock().unwrap_or_else(PoisonError::into_inner).period_ns = period_ns;
        probes.sample(process, &named.codes.code(bias, 0))
    }

    fn end(&mut self, target: u32) {
        self.targets.remove(&target);
    }

    fn take(&mut self, site: u32, record: &[u8]) -> Option<Result<(), Undecodable>> {
        if site != wire::NO_SITE {
            return None;
        }
        let Some((sample, stack)) = code::sample(record) else {
            return Some(Err(Undecodable::Length(record.len())));
        };
        let (named, bias) = self.targets.get(&sample.target)?;
        let sample = named.codes.fold(sample, &stack, *bias);
        let believed = sample.flags & (wire::OUTSIDE | wire::UNREADABLE) == 0;
        let name = |address: u64| named.name(address.wrapping_sub(*bias)).cloned();
        let functions =
            code::addresses(sample.caller, &stack).filter(|_| believed).filter_map(name).collect();
        let Sampled { target, time_ns, period_ns: _, whole, part } = named.codes.named(&sample, 0);
        let stack = Stack { group: None, whole, part, functions };
        self.profile.lock().unwrap_or_else(PoisonError::into_inner).add(target, time_ns, stack);
        Some(Ok(()))
    }

    fn look(&mut self, _: Clocks) {}

    fn take_finished(&mut self) -> (Vec<T>, Clocks) {
        (Vec::new(), Clocks::default())
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn account(&self) -> Account {
        Account::default()
    }

    fn counts(&self) -> Vec<Count> {
        Vec::new()
    }

    fn finish(&mut self, _: BTreeMap<String, u64>) {}
}
