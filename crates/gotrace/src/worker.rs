//! One program at work: the plans of its executables, its decoder, its assembler. The supervisor runs any number of
//! programs by the trait [`Worker`], with one output type `T` for all.

#[cfg(test)]
mod tests;

use std::{
    any::Any,
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use goexe::{Class, Executable, Functions};

use crate::{
    account::{Account, Count, Counter, Stats},
    code::{self, CodeMap},
    decode::{Decoder, Undecodable},
    discover::{FileId, Handle, Process},
    governor::{Cut, Part, meter::Hits},
    memory::Place,
    pipeline::{Clocks, Found, Output, Pipeline},
    plan::{self, Identity, Missing, Plan, PlannedSite, Role},
    probe::{self, Attached, Probes},
    program::{Detail, Named, Program},
    recording::{End, Line},
    window::{Timing, timing},
};

/// Receives everything that goes into a pipeline, in order. It runs while the ring buffer waits, and must be quick.
pub type Observer<P> = Box<dyn FnMut(Line<'_, P>) + Send>;

/// Summary of the plans for an executable.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Identity of the executable.
    pub identity: Identity,
    /// Names of the programs that it contains.
    pub programs: Vec<&'static str>,
    /// Number of sites on emulated instructions.
    pub emulated: usize,
    /// Number of sites on single-stepped instructions.
    pub single_stepped: usize,
    /// What cannot be traced, and why.
    pub missing: Vec<Missing>,
}

impl Summary {
    /// Adds the summary of another program in the same executable.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        let Self { identity: _, programs, emulated, single_stepped, missing } = other;
        self.programs.extend(programs);
        self.missing.extend(missing);
        Self {
            emulated: self.emulated + emulated,
            single_stepped: self.single_stepped + single_stepped,
            ..self
        }
    }

    /// Number of all sites.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.emulated + self.single_stepped
    }
}

/// What the plan of an executable has made ready, for the worker of the same program.
#[derive(Debug)]
pub struct Prepared {
    /// Summary of the plan.
    pub summary: Summary,
    /// The sites, to be compared with a process's memory.
    pub places: Vec<Place>,
    /// A [`Planned`] of the program.
    planned: Box<dyn Any + Send>,
}

impl Prepared {
    /// What a worker needs that attaches no probe.
    pub(crate) fn new(summary: Summary, planned: Box<dyn Any + Send>) -> Self {
        Self { summary, places: Vec::new(), planned }
    }

    /// What the planner has made.
    pub(crate) fn into_planned(self) -> Box<dyn Any + Send> {
        self.planned
    }
}

/// Plans an executable, if it contains the program.
type Prepare = dyn Fn(&Executable<'_>, &Functions<'_>) -> Option<Result<Prepared, plan::Error>> + Send + Sync;

/// Plans the probes of one program, in any thread.
pub struct Planner {
    /// The program's name.
    pub program: &'static str,
    /// Symbols that only this program has: see [`Program::MARKERS`].
    pub markers: &'static [&'static str],
    /// Parts of usual names of its executable: see [`Program::FILE_NAMES`].
    pub file_names: &'static [&'static str],
    prepare: Box<Prepare>,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").field("program", &self.program).finish_non_exhaustive()
    }
}

impl Planner {
    /// A planner of a program whose plan another worker than [`ProgramWorker`] makes.
    pub(crate) fn new<P: Program>(
        plan: fn(&Executable<'_>, &Functions<'_>) -> Result<Prepared, plan::Error>,
    ) -> Self {
        let prepare = move |executable: &Executable<'_>, functions: &Functions<'_>| {
            plan::has::<P>(functions).then(|| plan(executable, functions))
        };
        Self { program: P::NAME, markers: P::MARKERS, file_names: P::FILE_NAMES, prepare: Box::new(prepare) }
    }

    /// Plans the probes of an executable; `None` if it does not contain the program.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::choose`].
    #[must_use]
    pub fn plan(
        &self,
        executable: &Executable<'_>,
        functions: &Functions<'_>,
    ) -> Option<Result<Prepared, plan::Error>> {
        (self.prepare)(executable, functions)
    }
}

fn prepare<P: Program>(
    detail: Detail,
    executable: &Executable<'_>,
    functions: &Functions<'_>,
) -> Result<Prepared, plan::Error> {
    let plan = Plan::<P>::choose(executable, functions)?;
    let timing = timing(&plan.sites);
    let Plan { identity, sites, most, missing, names, errors, alike, .. } = plan.with_detail(detail);
    let emulated = sites.iter().filter(|site| site.class == Class::Emulated).count();
    let single_stepped = sites.len() - emulated;
    let place = |site: &PlannedSite<P>| {
        let code = executable.code_at(site.address)?;
        Some(Place { address: site.address, code, detail: site.detail })
    };
    let places = sites.iter().filter_map(place).collect();
    // Below that level, no plugin has a span.
    let codes = if detail < Detail::Plugins {
        CodeMap::default()
    } else {
        CodeMap::of::<P>(executable, functions, &names)
    };
    executable.intact()?;
    let summary = Summary { identity, programs: vec![P::NAME], emulated, single_stepped, missing };
    let planned = Box::new(Planned {
        sites,
        names,
        errors,
        alike,
        attached: None,
        kinds: Vec::new(),
        cut: Cut::Nothing,
        left_out: if detail < Detail::Phases { Cut::Phases } else { Cut::Nothing },
        most,
        windows_ns: 0,
        codes: codes.into(),
        table: None,
        timing,
        timed: None,
    });
    Ok(Prepared { summary, places, planned })
}

/// A program at work, for the supervisor.
pub trait Worker<T>: Send {
    /// The program's name.
    fn name(&self) -> &'static str;

    /// Parts of usual names of its executable: see [`Program::FILE_NAMES`].
    fn file_names(&self) -> &'static [&'static str];

    /// The program's own counters.
    fn counters(&self) -> &'static [Counter];

    /// Plans the program's probes, in any thread.
    fn planner(&self) -> Planner;

    /// Keeps what the planner has made of this executable.
    fn keep(&mut self, file: FileId, prepared: Prepared);

    /// Attaches the plan of an executable, unless it is attached.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or a map is full.
    fn attach(&mut self, file: FileId, probes: &mut Probes, handle: &Handle) -> Result<(), probe::Error>;

    /// Detaches the probes from an executable, and forgets its plan.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    fn detach(&mut self, file: FileId, probes: &mut Probes) -> Result<(), probe::Error>;

    /// Starts tracing a process that runs this executable; `bias` is its load bias.
    fn begin(&mut self, file: FileId, bias: u64, found: &Found);

    /// Takes samples of a process that is traced, if the program has classes of code. `bias` is its load bias.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    fn sample(
        &mut self,
        file: FileId,
        bias: u64,
        process: &Process,
        target: u32,
        probes: &mut Probes,
    ) -> Result<(), probe::Error>;

    /// Closes everything open in this process, which has ended.
    fn end(&mut self, target: u32);

    /// Handles a record of this site, or a sample; `None` if the site or the process belongs to another worker.
    fn take(&mut self, site: u32, record: &[u8]) -> Option<Result<(), Undecodable>>;

    /// What the probes of an executable have done so far; `None` if it has none.
    fn hits(&self, _file: FileId, _probes: &Probes) -> Option<Hits> {
        None
    }

    /// Detaches what is cut of an executable from here on, and attaches what is not.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    fn cut(
        &mut self,
        _file: FileId,
        _cut: Cut,
        _probes: &mut Probes,
        _handle: &Handle,
    ) -> Result<(), probe::Error> {
        Ok(())
    }

    /// From here on, events of an executable's processes are read as of this cut.
    fn say_cut(&mut self, _file: FileId, _time_ns: u64, _cut: Cut) {}

    /// From here on, a sample stands for this time.
    fn sampled_every(&mut self, _period_ns: u64) {}

    /// Takes the window whose turn is over, and begins the next one, if it is due. `handle` gives the executables
    /// that may have one now.
    ///
    /// # Errors
    ///
    /// When the kernel refuses. The window is then lost.
    fn window<'a>(
        &mut self,
        _probes: &mut Probes,
        _handle: &dyn Fn(FileId) -> Option<&'a Handle>,
    ) -> Result<(), probe::Error> {
        Ok(())
    }

    /// Tick: re-anchors the clocks and expires what has had no event for too long.
    fn look(&mut self, clocks: Clocks);

    /// Takes the outputs completed since the last call, and the clocks that date them.
    fn take_finished(&mut self) -> (Vec<T>, Clocks);

    /// Losses so far: events that are not part of an output.
    fn stats(&self) -> Stats;

    /// Fates of all events so far.
    fn account(&self) -> Account;

    /// Current values of the program's own counters.
    fn counts(&self) -> Vec<Count>;

    /// Reports the end of the input, with the losses by cause, to the observer.
    fn finish(&mut self, losses: BTreeMap<String, u64>);
}

/// The worker of a program.
pub struct ProgramWorker<P: Program, T> {
    detail: Detail,
    finished: fn(Output<P>) -> T,
    executables: HashMap<FileId, Planned<P>>,
    decoder: Decoder<P>,
    /// The code of each sampled process, by its target number, and the CPU time that a sample stands for.
    sampled: HashMap<u32, (Arc<CodeMap>, u64)>,
    pipeline: Pipeline<P>,
    observer: Option<Observer<P>>,
    /// Processes, with their executables and the number of turns since the last window.
    turns: HashMap<u32, (FileId, u64)>,
    /// The process and the executable of the window that is under way.
    window: Option<(u32, FileId)>,
}

struct Planned<P: Program> {
    /// Planned sites, until they are attached.
    sites: Vec<PlannedSite<P>>,
    names: Vec<Named>,
    errors: Vec<(u64, String)>,
    alike: Vec<(u64, String)>,
    attached: Option<Attached>,
    /// What the attached sites are, in their order: level of detail, class, and whether a list or a map is read.
    kinds: Vec<(Detail, Class, bool)>,
    cut: Cut,
    /// What the level of detail leaves out of attempts.
    left_out: Cut,
    /// The most that is cut: see [`Program::most`].
    most: Cut,
    /// What the probes of windows cost, nanoseconds.
    windows_ns: u64,
    codes: Arc<CodeMap>,
    /// The place of its code ranges, while processes are sampled.
    table: Option<u32>,
    timing: Option<Timing<P::Function>>,
    /// The numbers of its timed sites, from the first window on.
    timed: Option<Vec<u32>>,
}

impl<P: Program> Planned<P> {
    /// The cut that applies to this program while `cut` applies to the executable. Its assembler gets it.
    fn effective(&self, cut: Cut) -> Cut {
        cut.max(self.left_out).min(self.most)
    }
}

impl<P: Program, T> fmt::Debug for ProgramWorker<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramWorker").field("program", &P::NAME).finish_non_exhaustive()
    }
}

impl<P: Program, T> ProgramWorker<P, T> {
    /// Makes a worker at this level of detail. `finished` converts the assembler's output to the common type.
    #[must_use]
    pub fn new(detail: Detail, finished: fn(Output<P>) -> T) -> Self {
        Self {
            detail,
            finished,
            executables: HashMap::new(),
            decoder: Decoder::default(),
            sampled: HashMap::new(),
            pipeline: Pipeline::default(),
            observer: None,
            turns: HashMap::new(),
            window: None,
        }
    }

    /// Sets an observer of the pipeline's input.
    #[must_use]
    pub fn observed(mut self, observer: Observer<P>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// From here on, this is cut of the tracing of a process.
    fn say(&mut self, target: u32, time_ns: u64, cut: Cut) {
        self.observe(Line::Cut { target, time_ns, cut });
        self.pipeline.cut(target, time_ns, cut);
    }

    fn observe(&mut self, line: Line<'_, P>) {
        if let Some(observer) = &mut self.observer {
            observer(line);
        }
    }
}

/// Whether a site with this [`wire::Site::texts`] reads a list or a map.
fn is_list(texts: u32) -> bool {
    [wire::TOP, wire::MAP_WALK].contains(&texts)
}

impl<P: Program, T> Worker<T> for ProgramWorker<P, T> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn file_names(&self) -> &'static [&'static str] {
        P::FILE_NAMES
    }

    fn counters(&self) -> &'static [Counter] {
        P::COUNTERS
    }

    fn planner(&self) -> Planner {
        let detail = self.detail;
        let prepare = move |executable: &Executable<'_>, functions: &Functions<'_>| {
            plan::has::<P>(functions).then(|| prepare::<P>(detail, executable, functions))
        };
        Planner {
            program: P::NAME,
            markers: P::MARKERS,
            file_names: P::FILE_NAMES,
            prepare: Box::new(prepare),
        }
    }

    fn keep(&mut self, file: FileId, prepared: Prepared) {
        if let Ok(planned) = prepared.planned.downcast::<Planned<P>>() {
            self.executables.insert(file, *planned);
        }
    }

    fn attach(&mut self, file: FileId, probes: &mut Probes, handle: &Handle) -> Result<(), probe::Error> {
        let Some(planned) = self.executables.get_mut(&file) else { return Ok(()) };
        if planned.attached.is_some() {
            return Ok(());
        }
        let sites = planned.sites.iter();
        let sites: Vec<_> = sites.map(|site| (site.file_offset, site.spec, site.detail)).collect();
        let kind = |site: &PlannedSite<P>| (site.detail, site.class, is_list(site.spec.texts));
        planned.kinds = planned.sites.iter().map(kind).collect();
        let attached = probes.attach(&sites, handle)?;
        for (number, site) in attached.numbers.iter().zip(std::mem::take(&mut planned.sites)) {
            self.decoder.add(*number, &site);
        }
        planned.attached = Some(attached);
        Ok(())
    }

    fn detach(&mut self, file: FileId, probes: &mut Probes) -> Result<(), probe::Error> {
        if self.window.is_some_and(|(_, of)| of == file) {
            self.window = None;
            let _cut = probes.end_window(true)?;
        }
        let Some(planned) = self.executables.remove(&file) else { return Ok(()) };
        planned.timed.into_iter().for_each(|numbers| probes.forget_timed(numbers));
        planned.table.into_iter().for_each(|first| probes.remove_ranges(first));
        let Some(attached) = planned.attached else { return Ok(()) };
        for number in &attached.numbers {
            self.decoder.remove(*number);
        }
        probes.detach(attached)
    }

    fn begin(&mut self, file: FileId, bias: u64, found: &Found) {
        let Some(planned) = self.executables.get(&file) else { return };
        let Planned { names, errors, alike, .. } = planned;
        self.decoder.add_names(found.target, names, bias);
        self.decoder.add_errors(found.target, errors, bias);
        self.decoder.add_alike(found.target, alike, bias);
        let cut = planned.effective(planned.cut);
        self.turns.insert(found.target, (file, 0));
        self.observe(Line::Found(Cow::Borrowed(found)));
        if cut > Cut::Nothing {
            self.say(found.target, 0, cut);
        }
    }

    fn sample(
        &mut self,
        file: FileId,
        bias: u64,
        process: &Process,
        target: u32,
        probes: &mut Probes,
    ) -> Result<(), probe::Error> {
        let Some(planned) = self.executables.get_mut(&file) else { return Ok(()) };
        let codes = &planned.codes;
        let Some(period_ns) = probes.sample_period_ns().filter(|_| !codes.ranges().is_empty()) else {
            return Ok(());
        };
        if planned.table.is_none() {
            planned.table = probes.add_ranges(codes.ranges())?;
        }
        let Some(first) = planned.table else { return Ok(()) };
        probes.sample(process, &codes.code(bias, first))?;
        if planned.cut >= Cut::Samples {
            probes.pause_samples(process, true);
        }
        self.sampled.insert(target, (Arc::clone(codes), period_ns));
        Ok(())
    }

    fn end(&mut self, target: u32) {
        self.sampled.remove(&target);
        self.turns.remove(&target);
        self.decoder.remove_names(target);
        self.observe(Line::Gone { target });
        self.pipeline.exit(target);
    }

    fn take(&mut self, site: u32, record: &[u8]) -> Option<Result<(), Undecodable>> {
        if site == wire::NO_SITE {
            let Some((sample, _)) = code::sample(record) else {
                return Some(Err(Undecodable::Length(record.len())));
            };
            let (codes, period_ns) = self.sampled.get(&sample.target)?;
            let sampled = codes.named(&sample, *period_ns);
            self.observe(Line::Sample(Cow::Borrowed(&sampled)));
            self.pipeline.sample(sampled);
            return Some(Ok(()));
        }
        if !self.decoder.knows(site) {
            return None;
        }
        if Decoder::<P>::is_part(record) {
            return Some(self.decoder.add_part(record));
        }
        Some(self.decoder.decode(record).map(|event| {
            if P::TURN.is_some_and(|turn| turn.turn == event.function)
                && event.role == Role::Entry
                && let Some((_, turns)) = self.turns.get_mut(&event.target)
            {
                *turns += 1;
            }
            self.observe(Line::Event(Cow::Borrowed(&event)));
            self.pipeline.event(event);
        }))
    }

    fn window<'a>(
        &mut self,
        probes: &mut Probes,
        handle: &dyn Fn(FileId) -> Option<&'a Handle>,
    ) -> Result<(), probe::Error> {
        if let Some((target, file)) = self.window {
            let is_gone = !self.turns.contains_key(&target);
            let counted = probes.end_window(is_gone)?.filter(|_| !is_gone);
            let planned = self.executables.get_mut(&file);
            if let Some((planned, counted)) = planned.zip(counted)
                && let Some(timing) = &planned.timing
            {
                planned.windows_ns += counted.sums.iter().map(|(_, sum)| sum.probes_ns).sum::<u64>();
                let window = timing.window(counted, |address| self.decoder.name(target, address));
                self.observe(Line::Window(Cow::Borrowed(&window)));
                self.pipeline.window(window);
            }
            if probes.is_timing() {
                return Ok(());
            }
            self.window = None;
        }
        let Some(every) = probes.window_every() else { return Ok(()) };
        let mut turns = self.turns.iter_mut();
        let is_due =
            |(_, (file, turns)): &(&u32, &mut (FileId, u64))| *turns >= every && handle(*file).is_some();
        let Some((target, (file, turns))) = turns.find(is_due) else { return Ok(()) };
        *turns = 0;
        let (target, file) = (*target, *file);
        let Some(Planned { attached: Some(attached), timing: Some(timing), timed, cut, .. }) =
            self.executables.get_mut(&file)
        else {
            return Ok(());
        };
        if cut.keeps(Part::Windows) == 0.0 {
            return Ok(());
        }
        if timed.is_none() {
            *timed = probes.add_timed(&timing.sites, attached)?;
        }
        if let Some((numbers, handle)) = timed.as_ref().zip(handle(file))
            && probes.begin_window(&timing.sites, numbers, handle, target)?
        {
            self.window = Some((target, file));
        }
        Ok(())
    }

    fn hits(&self, file: FileId, probes: &Probes) -> Option<Hits> {
        let Planned { attached: Some(attached), kinds, windows_ns, .. } = self.executables.get(&file)? else {
            return None;
        };
        let mut hits = Hits { windows_ns: *windows_ns, ..Hits::default() };
        for ((detail, class, is_list), number) in kinds.iter().zip(&attached.numbers) {
            let seen = probes.seen(*number);
            hits.sites.push((*detail, *class, seen));
            hits.walks += if *is_list { seen } else { 0 };
        }
        Some(hits)
    }

    fn cut(
        &mut self,
        file: FileId,
        cut: Cut,
        probes: &mut Probes,
        handle: &Handle,
    ) -> Result<(), probe::Error> {
        let Some(Planned { attached: Some(attached), cut: is_cut, most, .. }) =
            self.executables.get_mut(&file)
        else {
            return Ok(());
        };
        let cut = cut.min(*most);
        *is_cut = cut;
        probes.read_maps(attached, cut.keeps(Part::Moves) > 0.0)?;
        probes.detach_groups(attached, |detail| !cut.keeps_detail(detail))?;
        probes.attach_groups(attached, |detail| cut.keeps_detail(detail), handle)
    }

    fn say_cut(&mut self, file: FileId, time_ns: u64, cut: Cut) {
        let Some(cut) = self.executables.get(&file).map(|planned| planned.effective(cut)) else { return };
        let targets: Vec<u32> =
            self.turns.iter().filter(|(_, (of, _))| *of == file).map(|(target, _)| *target).collect();
        targets.into_iter().for_each(|target| self.say(target, time_ns, cut));
    }

    fn sampled_every(&mut self, period_ns: u64) {
        self.sampled.values_mut().for_each(|(_, period)| *period = period_ns);
    }

    fn look(&mut self, clocks: Clocks) {
        self.observe(Line::Clocks(clocks));
        self.pipeline.look(clocks);
        self.decoder.set_clock(clocks.unix_ns_at_zero);
    }

    fn take_finished(&mut self) -> (Vec<T>, Clocks) {
        (self.pipeline.take_finished().into_iter().map(self.finished).collect(), self.pipeline.clocks())
    }

    fn stats(&self) -> Stats {
        self.pipeline.stats()
    }

    fn account(&self) -> Account {
        self.pipeline.account()
    }

    fn counts(&self) -> Vec<Count> {
        self.pipeline.counts()
    }

    fn finish(&mut self, losses: BTreeMap<String, u64>) {
        let (stats, account) = (self.pipeline.stats(), self.pipeline.account());
        self.observe(Line::End(End { losses, stats, account, left_out: 0 }));
    }
}
