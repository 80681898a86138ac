//! The thread that owns the probes: finds processes, attaches, drains the ring buffer, hands records to the programs'
//! workers.
//!
//! Every step is short and bounded, so that the ring buffer is drained several times a second. Sending a trace never
//! blocks.

mod govern;

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use gotrace::{
    decode,
    discover::{self, Contents, FileId, Handle, Look, Process, ProcessId, Search, load_bias},
    governor::{Cut, meter::Governors},
    memory::{Compared, Place},
    metrics::{RecordLoss, Total},
    pipeline::{Clocks, Found, Sites},
    probe::{Error, Limits, Probes},
};
use rustix::time::{ClockId, clock_gettime};
use spans::{Anchor, Story, wakeups};
use status::Health;
use tokio::sync::mpsc::{Sender, error::TrySendError};
use tracing::{error, info, warn};

use crate::{
    admission::Admission,
    discovery::{Answer, Discovery, Finding, Known, Read, still_runs},
    metrics::Metrics,
    programs::Worker,
    refusals::Refusals,
};

/// Drain interval while calls are timed one by one, which ends with the next look.
const TIMING_INTERVAL: Duration = Duration::from_millis(100);
/// Drain interval while nothing is traced: a node without a traced program costs almost nothing.
const IDLE_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of the search for processes, the clock comparison and the publication of counters.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// One of so many looks is at all processes, the others at those that are young or of interest.
const FULL_LOOK: u32 = 10;
/// Wait for the answers of looks that are under way.
const LOOK_WAIT: Duration = Duration::from_millis(20);
/// Clock readings for one anchor. The quickest of them is used.
const ANCHOR_READINGS: usize = 5;

/// A message from the supervisor to the daemon.
#[derive(Debug)]
pub enum Message {
    /// Tracing of a process starts.
    Found(Box<Found>),
    /// A finished story, such as an attempt, that becomes a trace; its times refer to this anchor.
    Finished(Box<dyn Story>, Anchor),
    /// The process with this target number has ended.
    Gone(u32),
}

/// State of the supervisor's thread.
pub struct Supervisor {
    probes: Probes,
    workers: Vec<Box<Worker>>,
    admission: Admission,
    discovery: Discovery,
    executables: HashMap<FileId, Traced>,
    targets: HashMap<ProcessId, (u32, Process)>,
    /// Processes of executables with a program.
    refusals: Refusals,
    /// Processes whose executable or memory could not be read.
    unread: Refusals,
    /// Targets that were told to be over their limit.
    over_limit: HashSet<u32>,
    /// `None` without a budget.
    governors: Option<Governors>,
    /// When they were asked last.
    governed: Instant,
    next_target: u32,
    /// Whether all that was running at first has been looked at.
    looked: bool,
    search: Search,
    /// Number of looks.
    looks: u32,
    /// Executions of programs on this machine, before the last look.
    executions: Option<u64>,
    /// Number of records taken from the ring buffer.
    records: u64,
    messages: Sender<Message>,
    /// Whether stories become traces of which nothing came.
    idle: bool,
    metrics: Metrics,
    health: Health,
}

/// An executable that contains at least one of the programs.
struct Traced {
    handle: Handle,
    plan: Result<Arc<Known>, String>,
    /// Whose probes it has, if any: its own, or those of another name of the same file, as overlays give it.
    probed_as: Option<FileId>,
    /// Breakpoints of others at its sites, when it was attached.
    foreign: usize,
}

impl Supervisor {
    /// Loads the probes. `object` is the path of an eBPF object instead of the built-in one.
    ///
    /// # Errors
    ///
    /// When they cannot be loaded.
    pub fn new(
        object: Option<&Path>,
        limits: Limits,
        admission: Admission,
        workers: Vec<Box<Worker>>,
        messages: Sender<Message>,
        metrics: Metrics,
        health: Health,
    ) -> Result<Self, Error> {
        let mut probes = Probes::load(object, limits)?;
        let governors = limits.budget.map(|budget| govern::governors(budget, &mut probes));
        let discovery = Discovery::new(workers.iter().map(|worker| worker.planner()).collect());
        Ok(Self {
            probes,
            workers,
            admission,
            discovery,
            executables: HashMap::new(),
            targets: HashMap::new(),
            refusals: Refusals::default(),
            unread: Refusals::default(),
            over_limit: HashSet::new(),
            governors,
            governed: Instant::now(),
            next_target: 0,
            looked: false,
            looks: 0,
            executions: None,
            search: Search::default(),
            records: 0,
            idle: true,
            messages,
            metrics,
            health,
        })
    }

    /// Whether stories of which nothing came become traces; they are counted in any case.
    #[must_use]
    pub fn with_idle(self, idle: bool) -> Self {
        Self { idle, ..self }
    }

    /// Runs until `stop` is set. The probes then stay until this process ends, and are not followed any more.
    pub fn run(mut self, stop: &Arc<AtomicBool>) {
        let mut looked: Option<Instant> = None;
        while !stop.load(Ordering::Relaxed) {
            if looked.is_none_or(|then| then.elapsed() >= LOOK_INTERVAL) {
                looked = Some(Instant::now());
                self.look();
            }
            self.windows();
            self.drain();
            self.govern();
            let answers = self.discovery.turn();
            if !self.looked && !answers.is_empty() {
                // What is found at first is not to wait for the next look.
                looked = None;
            }
            for answer in answers {
                self.take(answer);
            }
            self.health.alive();
            self.probes.wait(match (self.discovery.is_idle(), self.targets.is_empty()) {
                (false, _) => LOOK_WAIT,
                (true, true) => IDLE_INTERVAL,
                (true, false) if self.probes.is_timing() => TIMING_INTERVAL,
                // The eBPF programs wake up the daemon only when the ring buffer fills.
                (true, false) => wakeups::interval(),
            });
        }
        let targets = std::mem::take(&mut self.targets);
        targets.values().for_each(|(_, process)| self.probes.untrace(process));
        self.drain();
        for (target, _) in targets.into_values() {
            self.workers.iter_mut().for_each(|worker| worker.end(target));
        }
        self.hand_over();
        self.publish();
        let losses = self.metrics.losses();
        for worker in &mut self.workers {
            worker.finish(losses.iter().map(|(cause, lost)| ((*cause).to_owned(), *lost)).collect());
        }
        // The kernel removes the probes when this process ends. If a thread that detaches is killed, the kernel gives up, and leaves
        // breakpoints in the traced program; at the end of a process nothing interrupts it.
        // <https://github.com/torvalds/linux/blob/v6.18/kernel/events/uprobes.c>, `uprobe_unregister_nosync`
        std::mem::forget(self.probes);
    }

    /// Takes windows that are over, and begins those that are due.
    fn windows(&mut self) {
        let Self { probes, workers, executables, governors, .. } = self;
        let (executables, governors) = (&*executables, governors.as_ref());
        let has_room = |file: FileId| governors.is_none_or(|governors| governors.has_room_for_window(file));
        let handle = |file| executables.get(&file).filter(|_| has_room(file)).map(|traced| &traced.handle);
        for worker in workers {
            if let Err(error) = worker.window(probes, &handle) {
                warn!("an exact window is lost: {error}");
            }
        }
    }

    /// Hands all records of the ring buffer to the workers.
    fn drain(&mut self) {
        let Self { probes, workers, metrics, records, .. } = self;
        probes.drain(|site, record| {
            let is_sample = matches!(site, Ok(wire::NO_SITE));
            *records += u64::from(!is_sample);
            let taken = site.and_then(|site| {
                let taken = workers.iter_mut().find_map(|worker| worker.take(site, record));
                // A sample of a process that has ended meanwhile has no reader any more.
                taken.unwrap_or(if is_sample { Ok(()) } else { Err(decode::Undecodable::Site(site)) })
            });
            if let Err(error) = taken {
                metrics.tracing.lose(RecordLoss::UndecodableRecord, 1);
                warn!("a record is dropped: {error}");
            }
        });
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let mut is_new = false;
        for worker in &mut self.workers {
            let (stories, Clocks { unix_ns_at_zero, .. }) = worker.take_finished();
            for story in stories.into_iter().filter(|story| self.idle || !story.is_idle()) {
                is_new = true;
                match self.messages.try_send(Message::Finished(story, Anchor { unix_ns_at_zero })) {
                    Ok(()) => {}
                    Err(TrySendError::Full(_)) => self.metrics.queue_full.lose(1),
                    // The daemon is shutting down.
                    Err(TrySendError::Closed(_)) => {}
                }
            }
        }
        if is_new {
            wakeups::wake();
        }
    }

    /// Sends what must not be lost; blocks while the queue is full.
    fn send(&self, message: Message) {
        // A closed receiver means that the daemon is shutting down.
        let _over = self.messages.blocking_send(message);
        wakeups::wake();
    }

    fn look(&mut self) {
        let clocks = clocks();
        self.workers.iter_mut().for_each(|worker| worker.look(clocks));
        let is_full = self.looks.is_multiple_of(FULL_LOOK);
        self.looks = self.looks.wrapping_add(1);
        if is_full {
            // What other looks have seen since is only a part.
            let _part = self.admission.take_strangers();
        }
        let executions = self.probes.executions();
        let before = std::mem::replace(&mut self.executions, executions);
        let look = match (is_full, executions.is_some() && executions == before) {
            (true, _) => Look::Full,
            (false, false) => Look::New,
            (false, true) => Look::Known,
        };
        let Self { search, admission, .. } = self;
        let running = search.look(look, |pid, link| admission.admits(pid, link));
        if is_full {
            self.metrics.tracing.set_untrusted(self.admission.tell());
        }
        match running {
            Ok(running) => self.follow(running),
            Err(error) => error!("cannot look for processes in /proc: {error}"),
        }
        self.hand_over();
        self.publish();
    }

    /// Ends tracing of processes that are gone, and asks to look at new ones.
    fn follow(&mut self, running: Vec<(u32, Contents)>) {
        let files: HashSet<FileId> = running.iter().map(|(_, found)| found.file).collect();
        let processes = running.into_iter().filter_map(|(pid, found)| Process::of(pid, found.file));
        let running: Vec<Process> = processes.collect();
        let now: HashMap<ProcessId, FileId> =
            running.iter().map(|process| (process.id, process.file)).collect();
        // A process that executes another file by now is another one.
        let is_gone = |process: &Process| now.get(&process.id) != Some(&process.file);
        let gone: Vec<ProcessId> =
            self.targets.values().filter(|(_, process)| is_gone(process)).map(|(_, gone)| gone.id).collect();
        if !gone.is_empty() {
            // The last records of ended processes must be assembled first.
            self.drain();
        }
        for process in gone {
            if let Some((target, process)) = self.targets.remove(&process) {
                info!(pid = process.id.pid, "the process has ended");
                self.probes.untrace(&process);
                self.over_limit.remove(&target);
                self.workers.iter_mut().for_each(|worker| worker.end(target));
                self.hand_over();
                self.send(Message::Gone(target));
            }
        }
        let ids = now.keys().copied().collect();
        self.refusals.retain(&ids);
        self.unread.retain(&ids);
        let time = Instant::now();
        let mut is_new = false;
        for process in running {
            let due = [&self.refusals, &self.unread].iter().all(|refused| refused.is_due(process.id, time));
            if self.targets.contains_key(&process.id) || !due {
                continue;
            }
            let plan = self.executables.get(&process.file).map(|traced| traced.plan.clone());
            match plan.transpose() {
                Ok(known) => self.discovery.ask(process, known),
                Err(why) => self.refuse(&process, &why),
            }
            is_new = true;
        }
        self.looked |= !is_new && self.discovery.is_idle();
        self.drop_unused(&files);
        self.tell();
    }

    /// Takes what a look has found.
    fn take(&mut self, Answer { process, finding, .. }: Answer) {
        let compared = match finding {
            // That is so for all processes of this file, and this one may have ended meanwhile.
            Finding::Nothing(contents) => return self.search.ignore(contents),
            Finding::Program(_) | Finding::Compared(_) | Finding::Failed(_) | Finding::GivenUp(_)
                if !still_runs(&process) =>
            {
                return;
            }
            Finding::GivenUp(why) => {
                self.metrics.tracing.give_up();
                return self.put_off(&process, &why);
            }
            Finding::Failed(why) => return self.put_off(&process, &why),
            Finding::Compared(compared) => compared,
            Finding::Program(read) => {
                let Read { handle, plan, compared } = *read;
                let plan = plan.map(|(known, prepared)| {
                    for (worker, prepared) in self.workers.iter_mut().zip(prepared) {
                        if let Some(prepared) = prepared {
                            worker.keep(process.file, prepared);
                        }
                    }
                    Arc::new(known)
                });
                let traced = Traced { handle, plan, probed_as: None, foreign: 0 };
                self.executables.insert(process.file, traced);
                compared
            }
        };
        self.unread.accept(process.id);
        match self.start(&process, compared) {
            Ok(()) => self.refusals.accept(process.id),
            Err(error) => self.refuse(&process, &format!("{error:#}")),
        }
        self.tell();
    }

    fn refuse(&mut self, process: &Process, why: &str) {
        if let Some(pause) = self.refusals.refuse(process.id, why, Instant::now()) {
            let pid = process.id.pid;
            warn!(
                pid,
                "cannot trace this process: {why}; tried again in {pause:?}, and then ever more rarely"
            );
        }
    }

    /// Notes that a process could not be looked at.
    fn put_off(&mut self, process: &Process, why: &str) {
        if let Some(pause) = self.unread.refuse(process.id, why, Instant::now()) {
            let pid = process.id.pid;
            warn!(
                pid,
                "cannot read this process's executable: {why}; tried again in {pause:?}, and then ever more rarely"
            );
        }
    }

    /// Sets the metrics of processes and executables, and the readiness.
    fn tell(&self) {
        let count = self.targets.len();
        let tracing = &self.metrics.tracing;
        tracing.set_processes(count, self.refusals.count());
        let plans =
            self.executables.values().filter(|traced| traced.probed_as == Some(traced.handle.contents.file));
        tracing.set_planned(plans.filter_map(|traced| Some(&traced.plan.as_ref().ok()?.summary)));
        tracing.set_foreign(self.executables.values().map(|traced| traced.foreign).sum());
        let ready = match self.refusals.count() {
            _ if !self.looked => Err("the first search for schedulers is not over".to_owned()),
            0 => Ok(()),
            refused => {
                Err(format!("{refused} of {} processes cannot be traced; the log says why", refused + count))
            }
        };
        self.health.set_ready(ready);
    }

    fn start(&mut self, process: &Process, compared: Compared) -> anyhow::Result<()> {
        let pid = process.id.pid;
        let traced = self.executables.get(&process.file).context("its executable was let go meanwhile")?;
        let Traced { handle, plan, probed_as, foreign: _ } = traced;
        let known = Arc::clone(plan.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?);
        let (path, probed_as) = (handle.path.clone(), *probed_as);
        let Known { summary, places: _ } = &*known;
        let bias = load_bias(pid, summary.identity.entry_point)?;
        let other_name = self.other_name(process.file, &known);
        let cut = probed_as.or(other_name).map_or(Cut::Nothing, |file| self.cut_of(file));
        let places = known.live(cut);
        // Another process of the same file may have been looked at in the same search, and its probes attached since.
        let is_old = probed_as.is_none() && other_name.is_some() && compared.probed < places.len();
        let compared = if is_old || cut > Cut::Nothing { memory(process, &places, bias)? } else { compared };
        let Compared { probed, other, .. } = compared;
        if other > 0 {
            if probed_as.is_none() {
                // The file is read again, in case that it was another one.
                self.detach(process.file);
            }
            anyhow::bail!("its memory has other code than its file, at {other} of {} sites", places.len());
        }
        let covered_by = if probed == places.len() { other_name } else { None };
        let probed_as = match (probed_as, covered_by) {
            (Some(_), _) if probed < places.len() => {
                anyhow::bail!("its memory has only {probed} of the {} breakpoints", places.len())
            }
            (Some(file), _) | (None, Some(file)) => file,
            (None, None) => self.attach(process, &known, bias, compared)?,
        };
        if let Some(traced) = self.executables.get_mut(&process.file) {
            traced.probed_as = Some(probed_as);
        }
        let target = self.next_target;
        self.next_target += 1;
        // Before its programs know of it: if there is no room, nothing has happened. Its records wait in the ring buffer.
        self.probes.trace(process, target)?;
        let found = Found {
            target,
            pid,
            executable: path.clone(),
            identity: summary.identity.clone(),
            process: Some(process.id),
            programs: summary.programs.clone(),
            already_ran: !self.looked,
            sites: Sites {
                emulated: summary.emulated,
                single_stepped: summary.single_stepped,
                missing: summary.missing.clone(),
            },
        };
        for worker in &mut self.workers {
            worker.begin(probed_as, bias, &found);
            // Traces are complete without samples.
            if let Err(error) = worker.sample(probed_as, bias, process, target, &mut self.probes) {
                warn!(pid, "no samples are taken of this process: {error}");
            }
        }
        let version = found.identity.kubernetes_version.clone();
        // The process must be known before its first trace.
        self.send(Message::Found(found.into()));
        let version = version.as_deref().unwrap_or("of unknown version");
        let executable = path.file_name().unwrap_or_default().to_string_lossy();
        info!(pid, sites = summary.sites(), "tracing {executable} {version}");
        self.targets.insert(process.id, (target, process.clone()));
        Ok(())
    }

    /// An executable that is probed, and that may be the same file under another name: the kernel attaches to the inode below
    /// an overlay. Only for a process whose memory has all breakpoints.
    fn other_name(&self, file: FileId, known: &Known) -> Option<FileId> {
        let is_same = |id: &FileId, traced: &Traced| {
            let theirs = traced.plan.as_ref().ok()?;
            let build_id = |known: &Known| known.summary.identity.build_id.clone();
            let alike = id.inode == file.inode && build_id(theirs) == build_id(known);
            (alike && theirs.places == known.places && traced.probed_as == Some(*id)).then_some(*id)
        };
        self.executables.iter().find_map(|(id, traced)| is_same(id, traced))
    }

    /// Attaches the plan of an executable, and sees to it that the memory of the process has it. What is not so is detached
    /// at once.
    fn attach(
        &mut self,
        process: &Process,
        Known { places, .. }: &Known,
        bias: u64,
        before: Compared,
    ) -> anyhow::Result<FileId> {
        let pid = process.id.pid;
        if before.probed > 0 {
            warn!(pid, "{}", others_are_there(before));
        }
        if let Some(traced) = self.executables.get_mut(&process.file) {
            traced.foreign = before.probed;
        }
        let after = self.attach_all(process, places, bias);
        let missing = after.map(|after| places.len() - after.probed);
        match missing {
            Ok(0) => Ok(process.file),
            Ok(missing) => {
                self.detach(process.file);
                let sites = places.len();
                anyhow::bail!(
                    "after attaching, its memory had no breakpoint at {missing} of {sites} sites: all are detached"
                )
            }
            Err(error) => {
                self.detach(process.file);
                Err(error)
            }
        }
    }

    /// Attaches the plan of an executable, and returns what the memory of the process has after that.
    fn attach_all(&mut self, process: &Process, places: &[Place], bias: u64) -> anyhow::Result<Compared> {
        let Self { workers, probes, executables, .. } = self;
        let traced = executables.get(&process.file).context("its executable was let go meanwhile")?;
        for worker in workers {
            worker.attach(process.file, probes, &traced.handle)?;
        }
        memory(process, places, bias)
    }

    /// Detaches the probes from files that no process runs any more, under any name.
    fn drop_unused(&mut self, files: &HashSet<FileId>) {
        let used = files.iter().filter_map(|file| self.executables.get(file)?.probed_as);
        let used: HashSet<FileId> = files.iter().copied().chain(used).collect();
        let unused: Vec<FileId> =
            self.executables.keys().filter(|file| !used.contains(file)).copied().collect();
        for file in unused {
            self.detach(file);
        }
    }

    fn detach(&mut self, file: FileId) {
        self.executables.remove(&file);
        self.governors.iter_mut().for_each(|governors| governors.forget(file));
        for worker in &mut self.workers {
            if let Err(error) = worker.detach(file, &mut self.probes) {
                warn!("cannot detach: {error}");
            }
        }
    }

    fn publish(&mut self) {
        for (target, lost) in self.probes.over_limit() {
            if self.over_limit.insert(target) {
                let pid =
                    self.targets.values().find(|(of, _)| *of == target).map(|(_, process)| process.id.pid);
                warn!(
                    pid,
                    lost,
                    "records are lost, because this process makes more than its limit: what is told of it is incomplete; \
                     `--record-limit` and `--ring-buffer` are its limits"
                );
            }
        }
        let Metrics { tracing, .. } = &self.metrics;
        tracing.set_probes(&self.probes);
        tracing.set_total(Total::Records, self.records);
        tracing.set_accounts(self.workers.iter().map(|worker| (worker.stats(), worker.account())));
        for worker in &self.workers {
            self.metrics.counts(&worker.counts());
        }
    }
}

/// Says that others have breakpoints at sites of a plan.
pub(crate) fn others_are_there(Compared { probed, same, other }: Compared) -> String {
    let pids: Vec<_> = discover::namesakes().iter().map(ToString::to_string).collect();
    let who = if pids.is_empty() {
        "another tracer".to_owned()
    } else {
        format!("another tracer, perhaps the schedspan with pid {}", pids.join(" or "))
    };
    let places = probed + same + other;
    format!("{who} has breakpoints at {probed} of {places} sites: each makes the times of the other longer")
}

/// What the memory of a process has at the places of a plan now. Its pages were read a moment ago, and those with a breakpoint are no
/// longer the file's: this does not wait for it.
fn memory(process: &Process, places: &[Place], bias: u64) -> anyhow::Result<Compared> {
    let memory = File::open(format!("/proc/{}/mem", process.id.pid))?;
    Ok(Compared::of(places, bias, |buffer, address| memory.read_exact_at(buffer, address))?)
}

/// Compares the clocks. The quickest reading is the most exact.
fn clocks() -> Clocks {
    let reading = || {
        let before = nanoseconds(ClockId::Monotonic);
        let unix = nanoseconds(ClockId::Realtime);
        let after = nanoseconds(ClockId::Monotonic);
        (after - before, unix.saturating_sub(before + (after - before) / 2), after)
    };
    let (_, unix_ns_at_zero, monotonic_ns) =
        (0..ANCHOR_READINGS).map(|_| reading()).min().unwrap_or_default();
    Clocks { monotonic_ns, unix_ns_at_zero }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
