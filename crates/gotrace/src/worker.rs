//! One program at work: the plans of its executables, its decoder, its assembler. The supervisor runs any number of them beside each
//! other, by the trait [`Worker`]; what they have put together is of one type `T` for all.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt,
    fs::File,
};

use goexe::{Class, Executable, Functions};

use crate::{
    assemble::{Account, Count, Counter, Stats},
    decode::{Decoder, Undecodable},
    discover::FileId,
    pipeline::{Clocks, Found, Output, Pipeline},
    plan::{self, Identity, Missing, Plan, PlannedSite},
    probe::{self, Attached, Probes},
    program::{Detail, Named, Program},
    recording::{End, Line},
};

/// Is handed all that goes into a pipeline, in its order. It is called while the ring buffer waits, and must be quick.
pub type Observer<P> = Box<dyn FnMut(Line<'_, P>) + Send>;

/// What is planned for an executable.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Which executable.
    pub identity: Identity,
    /// The programs that are inside.
    pub programs: Vec<&'static str>,
    /// Sites on emulated instructions.
    pub emulated: usize,
    /// Sites on instructions that are single-stepped.
    pub single_stepped: usize,
    /// What cannot be traced, and why.
    pub missing: Vec<Missing>,
}

impl Summary {
    /// Together with what another program plans for the same executable.
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

    /// Sites in all.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.emulated + self.single_stepped
    }
}

/// A program at work.
pub trait Worker<T>: Send {
    /// The program's name.
    fn name(&self) -> &'static str;

    /// What only this program has: see [`Program::MARKERS`].
    fn markers(&self) -> &'static [&'static str];

    /// Figures of the program's own.
    fn counters(&self) -> &'static [Counter];

    /// Plans the probes of an executable; `None` where the program is not inside.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::choose`].
    fn plan(
        &mut self,
        file: FileId,
        executable: &Executable<'_>,
        functions: &Functions<'_>,
    ) -> Option<Result<Summary, plan::Error>>;

    /// Attaches what is planned for an executable, unless it is attached.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or there is no room.
    fn attach(&mut self, file: FileId, probes: &mut Probes, handle: &File) -> Result<(), probe::Error>;

    /// Takes the probes out of an executable, and forgets its plan.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    fn detach(&mut self, file: FileId, probes: &mut Probes) -> Result<(), probe::Error>;

    /// Traces a process that runs this executable, which it has loaded so far from its own addresses.
    fn begin(&mut self, file: FileId, bias: u64, found: &Found);

    /// The process has ended.
    fn end(&mut self, target: u32);

    /// Takes a record of a site with this number; `None` if the site is not its own.
    fn take(&mut self, site: u32, record: &[u8]) -> Option<Result<(), Undecodable>>;

    /// Tick: re-anchors the clocks and expires what has been silent for too long.
    fn look(&mut self, clocks: Clocks);

    /// What has ended since the last call, dated by these clocks.
    fn take_finished(&mut self) -> (Vec<T>, Clocks);

    /// What became of events that are in nothing complete.
    fn stats(&self) -> Stats;

    /// What became of each event.
    fn account(&self) -> Account;

    /// Figures of the program's own.
    fn counts(&self) -> Vec<Count>;

    /// Nothing comes any more: these were the losses, by cause.
    fn finish(&mut self, losses: BTreeMap<String, u64>);
}

/// The worker of a program.
pub struct ProgramWorker<P: Program, T> {
    detail: Detail,
    finished: fn(Output<P>) -> T,
    executables: HashMap<FileId, Planned<P>>,
    decoder: Decoder<P>,
    pipeline: Pipeline<P>,
    observer: Option<Observer<P>>,
}

struct Planned<P: Program> {
    /// Until they are attached.
    sites: Vec<PlannedSite<P>>,
    names: Vec<Named>,
    errors: Vec<(u64, String)>,
    attached: Option<Attached>,
}

impl<P: Program, T> fmt::Debug for ProgramWorker<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramWorker").field("program", &P::NAME).finish_non_exhaustive()
    }
}

impl<P: Program, T> ProgramWorker<P, T> {
    /// Asks this much of the program; `finished` makes what all workers give of what its assembler gives.
    #[must_use]
    pub fn new(detail: Detail, finished: fn(Output<P>) -> T) -> Self {
        Self {
            detail,
            finished,
            executables: HashMap::new(),
            decoder: Decoder::default(),
            pipeline: Pipeline::default(),
            observer: None,
        }
    }

    /// Lets somebody see what goes into the pipeline.
    #[must_use]
    pub fn observed(mut self, observer: Observer<P>) -> Self {
        self.observer = Some(observer);
        self
    }

    fn observe(&mut self, line: Line<'_, P>) {
        if let Some(observer) = &mut self.observer {
            observer(line);
        }
    }
}

impl<P: Program, T> Worker<T> for ProgramWorker<P, T> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn markers(&self) -> &'static [&'static str] {
        P::MARKERS
    }

    fn counters(&self) -> &'static [Counter] {
        P::COUNTERS
    }

    fn plan(
        &mut self,
        file: FileId,
        executable: &Executable<'_>,
        functions: &Functions<'_>,
    ) -> Option<Result<Summary, plan::Error>> {
        if !plan::has::<P>(functions) {
            return None;
        }
        let plan = match Plan::<P>::choose(executable, functions) {
            Ok(plan) => plan.with_detail(self.detail),
            Err(error) => return Some(Err(error)),
        };
        let Plan { identity, sites, missing, names, errors, .. } = plan;
        let emulated = sites.iter().filter(|site| site.class == Class::Emulated).count();
        let single_stepped = sites.len() - emulated;
        let summary = Summary { identity, programs: vec![P::NAME], emulated, single_stepped, missing };
        self.executables.insert(file, Planned { sites, names, errors, attached: None });
        Some(Ok(summary))
    }

    fn attach(&mut self, file: FileId, probes: &mut Probes, handle: &File) -> Result<(), probe::Error> {
        let Some(planned) = self.executables.get_mut(&file) else { return Ok(()) };
        if planned.attached.is_some() {
            return Ok(());
        }
        let sites: Vec<_> = planned.sites.iter().map(|site| (site.file_offset, site.spec)).collect();
        let attached = probes.attach(&sites, handle)?;
        for (number, site) in attached.numbers.iter().zip(std::mem::take(&mut planned.sites)) {
            self.decoder.add(*number, &site);
        }
        planned.attached = Some(attached);
        Ok(())
    }

    fn detach(&mut self, file: FileId, probes: &mut Probes) -> Result<(), probe::Error> {
        let attached = self.executables.remove(&file).and_then(|planned| planned.attached);
        let Some(attached) = attached else { return Ok(()) };
        for number in &attached.numbers {
            self.decoder.remove(*number);
        }
        probes.detach(attached)
    }

    fn begin(&mut self, file: FileId, bias: u64, found: &Found) {
        let Some(Planned { names, errors, .. }) = self.executables.get(&file) else { return };
        self.decoder.add_names(found.target, names, bias);
        self.decoder.add_errors(found.target, errors, bias);
        self.observe(Line::Found(Cow::Borrowed(found)));
    }

    fn end(&mut self, target: u32) {
        self.decoder.remove_names(target);
        self.observe(Line::Gone { target });
        self.pipeline.exit(target);
    }

    fn take(&mut self, site: u32, record: &[u8]) -> Option<Result<(), Undecodable>> {
        if !self.decoder.knows(site) {
            return None;
        }
        Some(self.decoder.decode(record).map(|event| {
            self.observe(Line::Event(Cow::Borrowed(&event)));
            self.pipeline.event(event);
        }))
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
