//! The thread that owns the probes: finds processes, attaches, drains the ring buffer, hands records to the programs'
//! workers.
//!
//! Every step is short and bounded, so that the ring buffer is drained several times a second. Sending a trace never
//! blocks.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use goexe::Executable;
use gotrace::{
    decode,
    discover::{FileId, Finder, Opened, Process, ProcessId, load_bias},
    metrics::{RecordLoss, Total},
    pipeline::{Clocks, Found},
    plan::names_stand_in,
    probe::{Error, Limits, Probes},
    worker::Summary,
};
use rustix::time::{ClockId, clock_gettime};
use spans::{Anchor, Story};
use status::Health;
use tokio::sync::mpsc::{Sender, error::TrySendError};
use tracing::{error, info, warn};

use crate::{admission::Admission, metrics::Metrics, programs::Worker, refusals::Refusals};

/// Drain interval while the ring buffer is nearly empty: the eBPF programs wake up the daemon only when it fills. Each
/// wake-up has the cost of a cold start, most of the cost of an attempt. This interval is the longest that a user of
/// live output does not notice.
const DRAIN_INTERVAL: Duration = Duration::from_millis(100);
/// Drain interval while nothing is traced: a node without a traced program costs almost nothing.
const IDLE_INTERVAL: Duration = Duration::from_millis(250);
/// Interval of the search for processes, the clock comparison and the publication of counters.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
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
    finder: Finder,
    admission: Admission,
    executables: HashMap<FileId, Traced>,
    targets: HashMap<ProcessId, (u32, Process)>,
    refusals: Refusals,
    /// Targets that were told to be over their budget.
    over_budget: HashSet<u32>,
    next_target: u32,
    /// Whether the first search for processes is done.
    looked: bool,
    /// Number of records taken from the ring buffer.
    records: u64,
    messages: Sender<Message>,
    metrics: Metrics,
    health: Health,
}

/// An executable that contains at least one of the programs.
struct Traced {
    handle: File,
    path: PathBuf,
    plan: Result<Summary, String>,
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
        let probes = Probes::load(object, limits)?;
        Ok(Self {
            probes,
            workers,
            finder: Finder::default(),
            admission,
            executables: HashMap::new(),
            targets: HashMap::new(),
            refusals: Refusals::default(),
            over_budget: HashSet::new(),
            next_target: 0,
            looked: false,
            records: 0,
            messages,
            metrics,
            health,
        })
    }

    /// Runs until `stop` is set, then detaches the probes.
    pub fn run(mut self, stop: &Arc<AtomicBool>) {
        let mut looked: Option<Instant> = None;
        while !stop.load(Ordering::Relaxed) {
            if looked.is_none_or(|then| then.elapsed() >= LOOK_INTERVAL) {
                looked = Some(Instant::now());
                self.look();
            }
            self.drain();
            self.health.alive();
            self.probes.wait(if self.targets.is_empty() { IDLE_INTERVAL } else { DRAIN_INTERVAL });
        }
        for file in self.executables.keys().copied().collect::<Vec<_>>() {
            self.detach(file);
        }
        self.drain();
        for (_, (target, _)) in std::mem::take(&mut self.targets) {
            self.workers.iter_mut().for_each(|worker| worker.end(target));
        }
        self.hand_over();
        self.publish();
        let losses = self.metrics.losses();
        for worker in &mut self.workers {
            worker.finish(losses.iter().map(|(cause, lost)| ((*cause).to_owned(), *lost)).collect());
        }
    }

    /// Hands all records of the ring buffer to the workers.
    fn drain(&mut self) {
        let Self { probes, workers, metrics, records, .. } = self;
        *records += probes.drain(|record| {
            let taken = decode::site_of(record).and_then(|site| {
                let taken = workers.iter_mut().find_map(|worker| worker.take(site, record));
                taken.unwrap_or(Err(decode::Undecodable::Site(site)))
            });
            if let Err(error) = taken {
                metrics.tracing.lose(RecordLoss::UndecodableRecord, 1);
                warn!("a record is dropped: {error}");
            }
        }) as u64;
        self.hand_over();
    }

    fn hand_over(&mut self) {
        for worker in &mut self.workers {
            let (stories, Clocks { unix_ns_at_zero, .. }) = worker.take_finished();
            for story in stories {
                match self.messages.try_send(Message::Finished(story, Anchor { unix_ns_at_zero })) {
                    Ok(()) => {}
                    Err(TrySendError::Full(_)) => self.metrics.queue_full.lose(1),
                    // The daemon is shutting down.
                    Err(TrySendError::Closed(_)) => {}
                }
            }
        }
    }

    /// Sends what must not be lost; blocks while the queue is full.
    fn send(&self, message: Message) {
        // A closed receiver means that the daemon is shutting down.
        let _over = self.messages.blocking_send(message);
    }

    fn look(&mut self) {
        let clocks = clocks();
        self.workers.iter_mut().for_each(|worker| worker.look(clocks));
        let Self { finder, admission, workers, executables, .. } = self;
        let running = finder.look(
            |pid| admission.admits(pid),
            |opened| {
                let (file, path) = (opened.id, opened.path.clone());
                let Some(plan) = judge(workers, &opened) else { return false };
                executables.insert(file, Traced { handle: opened.into_handle(), path, plan });
                true
            },
        );
        self.metrics.tracing.set_untrusted(self.admission.tell());
        match running {
            Ok(running) => {
                let files = running.iter().map(|process| process.file).collect();
                self.follow(running, &files);
            }
            Err(error) => error!("cannot look for processes in /proc: {error}"),
        }
        self.hand_over();
        self.publish();
    }

    /// Starts and ends tracing, so that exactly the running processes are traced.
    fn follow(&mut self, running: Vec<Process>, files: &HashSet<FileId>) {
        let now: HashSet<ProcessId> = running.iter().map(|process| process.id).collect();
        let gone: Vec<ProcessId> =
            self.targets.keys().filter(|process| !now.contains(process)).copied().collect();
        if !gone.is_empty() {
            // The last records of ended processes must be assembled first.
            self.drain();
        }
        for process in gone {
            if let Some((target, process)) = self.targets.remove(&process) {
                info!(pid = process.id.pid, "the process has ended");
                self.probes.untrace(&process);
                self.over_budget.remove(&target);
                self.workers.iter_mut().for_each(|worker| worker.end(target));
                self.hand_over();
                self.send(Message::Gone(target));
            }
        }
        self.refusals.retain(&now);
        let time = Instant::now();
        for process in running {
            if self.targets.contains_key(&process.id) || !self.refusals.is_due(process.id, time) {
                continue;
            }
            match self.start(&process) {
                Ok(()) => self.refusals.accept(process.id),
                Err(error) => {
                    let why = format!("{error:#}");
                    if let Some(pause) = self.refusals.refuse(process.id, &why, time) {
                        warn!(
                            pid = process.id.pid,
                            "cannot trace this process: {why}; tried again in {pause:?}, and then ever more rarely"
                        );
                    }
                }
            }
        }
        self.looked = true;
        self.drop_unused(files);
        let count = self.targets.len();
        self.metrics.tracing.set_processes(count, self.refusals.count());
        let plans = self.executables.values().filter_map(|traced| traced.plan.as_ref().ok());
        self.metrics.tracing.set_planned(plans);
        let ready = match self.refusals.count() {
            0 => Ok(()),
            refused => {
                Err(format!("{refused} of {} processes cannot be traced; the log says why", refused + count))
            }
        };
        self.health.set_ready(ready);
    }

    fn start(&mut self, process: &Process) -> anyhow::Result<()> {
        let pid = process.id.pid;
        let Some(Traced { handle, path, plan }) = self.executables.get(&process.file) else {
            // The next search judges the file again.
            self.finder.forget(process.file);
            return Ok(());
        };
        let summary = plan.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
        for worker in &mut self.workers {
            worker.attach(process.file, &mut self.probes, handle)?;
        }
        let target = self.next_target;
        self.next_target += 1;
        let bias = load_bias(pid, summary.identity.entry_point)?;
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
        };
        for worker in &mut self.workers {
            worker.begin(process.file, bias, &found);
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

    /// Detaches the probes from files that no process runs any more.
    fn drop_unused(&mut self, used: &HashSet<FileId>) {
        let unused: Vec<FileId> =
            self.executables.keys().filter(|file| !used.contains(file)).copied().collect();
        for file in unused {
            self.detach(file);
        }
    }

    fn detach(&mut self, file: FileId) {
        self.executables.remove(&file);
        self.finder.forget(file);
        for worker in &mut self.workers {
            if let Err(error) = worker.detach(file, &mut self.probes) {
                warn!("cannot detach: {error}");
            }
        }
    }

    fn publish(&mut self) {
        for (target, lost) in self.probes.over_budget() {
            if self.over_budget.insert(target) {
                let pid =
                    self.targets.values().find(|(of, _)| *of == target).map(|(_, process)| process.id.pid);
                warn!(
                    pid,
                    lost,
                    "records are lost, because this process makes more than its budget: what is told of it is incomplete; \
                     `--budget` and `--ring-buffer` are its limits"
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

/// Plans an executable for each program that it contains; `None` if it contains none.
pub(crate) fn judge(workers: &mut [Box<Worker>], opened: &Opened) -> Option<Result<Summary, String>> {
    let executable = match Executable::parse(opened.data()) {
        Ok(executable) => executable,
        Err(goexe::Error::Elf(_) | goexe::Error::NotGo(_)) => return None,
        Err(error) => return unreadable(workers, opened, &error),
    };
    let functions = match executable.functions() {
        Ok(functions) => functions,
        Err(error) => return unreadable(workers, opened, &error),
    };
    let plans = workers.iter_mut().filter_map(|worker| {
        let plan = worker.plan(opened.id, &executable, &functions)?;
        Some(plan.inspect(|Summary { missing, .. }| {
            for missing in missing {
                let (program, function) = (worker.name(), &missing.function);
                warn!(program, function, "{}; so there is {}", missing.why, missing.without);
            }
        }))
    });
    let merged = plans.reduce(|one, other| Ok(one?.with(other?)))?;
    Some(merged.map_err(|error| format!("{:#}", anyhow::Error::from(error))))
}

/// Reports a Go executable whose tables cannot be read, if it names one of the programs: otherwise it is silently not
/// traced.
fn unreadable(
    workers: &[Box<Worker>],
    opened: &Opened,
    error: &goexe::Error,
) -> Option<Result<Summary, String>> {
    let named = workers.iter().any(|worker| names_stand_in(opened.data(), worker.markers()));
    named.then(|| Err(error.to_string()))
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
