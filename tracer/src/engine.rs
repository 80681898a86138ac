//! The one thread that owns the probes: finds schedulers, attaches, drains, assembles.
//!
//! Everything here is short and bounded, so that the ring buffer is emptied several times a second: what the
//! programs send is never waited for, and never waits.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use goexe::Class;
use rustix::time::{ClockId, clock_gettime};
use status::Health;
use tokio::sync::mpsc::{Sender, error::TrySendError};
use tracing::{error, info, warn};
use wire::Counter;

use crate::{
    metrics::{Loss, Metrics, Planned, Total},
    pipeline::{Clocks, Found, Message, Pipeline},
    plan::{Detail, Identity, Plan, Plugin},
    probe::{Attached, Error, Probes},
    record::Decoder,
    recording::{End, Line},
    target::{Configuration, FileId, Finder, ProcessId, Scheduler, load_bias, open_executable},
};

/// How often the ring buffer is emptied while there is little in it: for that the programs wake nobody up. Nor does the daemon
/// wake up more often than somebody who watches would notice: most of what an attempt costs it is the cold start after each
/// sleep.
const DRAIN_INTERVAL: Duration = Duration::from_millis(100);
/// The same where nothing is traced, so that a node without a scheduler costs next to nothing.
const IDLE_INTERVAL: Duration = Duration::from_millis(250);
/// How often processes are looked for, clocks are compared and counters are published.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Readings of which the quickest is taken for an anchor.
const ANCHOR_READINGS: usize = 5;

/// Is told all that goes into the pipeline, in its order.
pub type Observer = Box<dyn FnMut(Line<'_>) + Send>;

/// The engine's own state.
pub struct Engine {
    probes: Probes,
    detail: Detail,
    finder: Finder,
    /// The only process that is traced, where there is to be but one.
    only: Option<u32>,
    decoder: Decoder,
    pipeline: Pipeline,
    executables: HashMap<FileId, Executable>,
    targets: HashMap<ProcessId, (u32, Scheduler)>,
    /// Processes that cannot be traced; said once.
    refused: HashSet<ProcessId>,
    next_target: u32,
    /// Whether schedulers have been looked for.
    looked: bool,
    /// Taken from the ring buffer.
    records: u64,
    observer: Option<Observer>,
    messages: Sender<Message>,
    metrics: Metrics,
    health: Health,
}

struct Executable {
    attached: Attached,
    planned: Planned,
    identity: Identity,
    plugins: Vec<Plugin>,
    errors: Vec<(u64, String)>,
}

impl Engine {
    /// Loads the probes; `object` names an eBPF object instead of the one inside. `ring_bytes` is a power of two, and at least a
    /// page.
    ///
    /// # Errors
    ///
    /// When they cannot be loaded.
    pub fn new(
        object: Option<&Path>,
        ring_bytes: u32,
        detail: Detail,
        messages: Sender<Message>,
        metrics: Metrics,
        health: Health,
    ) -> Result<Self, Error> {
        let probes = Probes::load(object, ring_bytes)?;
        Ok(Self {
            probes,
            detail,
            finder: Finder::default(),
            only: None,
            decoder: Decoder::default(),
            pipeline: Pipeline::new(metrics.clone()),
            executables: HashMap::new(),
            targets: HashMap::new(),
            refused: HashSet::new(),
            next_target: 0,
            looked: false,
            records: 0,
            observer: None,
            messages,
            metrics,
            health,
        })
    }

    /// Traces this process and no other.
    #[must_use]
    pub fn only(mut self, pid: u32) -> Self {
        self.only = Some(pid);
        self
    }

    /// Lets somebody see what goes into the pipeline. It is called while the ring buffer waits, and must be quick.
    #[must_use]
    pub fn observed(mut self, observer: Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Runs until `stop` is set, then takes the probes away.
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
        for (_, Executable { attached, .. }) in std::mem::take(&mut self.executables) {
            if let Err(error) = self.probes.detach(attached) {
                warn!("cannot detach: {error}");
            }
        }
        self.drain();
        for (_, (target, _)) in std::mem::take(&mut self.targets) {
            self.pipeline.exit(target);
        }
        self.hand_over();
        self.publish();
        let losses = self.metrics.losses().into_iter();
        let losses = losses.map(|(cause, lost)| (cause.to_owned(), lost)).collect::<BTreeMap<_, _>>();
        self.observe(Line::End(End {
            losses,
            stats: self.pipeline.stats(),
            account: self.pipeline.account(),
            left_out: 0,
        }));
    }

    /// Empties the ring buffer.
    fn drain(&mut self) {
        let Self { probes, decoder, pipeline, observer, metrics, records, .. } = self;
        *records += probes.drain(|record| match decoder.decode(record) {
            Ok(event) => {
                if let Some(observer) = observer {
                    observer(Line::Event(Cow::Borrowed(&event)));
                }
                pipeline.event(event);
            }
            Err(error) => {
                metrics.loss(Loss::UndecodableRecord, 1);
                warn!("a record is dropped: {error}");
            }
        }) as u64;
        self.hand_over();
    }

    fn hand_over(&mut self) {
        for message in self.pipeline.finished() {
            self.send(message);
        }
    }

    fn observe(&mut self, line: Line<'_>) {
        if let Some(observer) = &mut self.observer {
            observer(line);
        }
    }

    /// Sends what is told once: it waits for room.
    fn tell(&self, message: Message) {
        // Where nobody takes it, the daemon is on its way out.
        let _over = self.messages.blocking_send(message);
    }

    fn send(&self, message: Message) {
        match self.messages.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.metrics.loss(Loss::AttemptQueueFull, 1),
            // The daemon is on its way out.
            Err(TrySendError::Closed(_)) => {}
        }
    }

    fn look(&mut self) {
        let clocks = clocks();
        self.observe(Line::Clocks(clocks));
        self.pipeline.look(clocks);
        self.decoder.set_clock(clocks.unix_ns_at_zero);
        match self.finder.look() {
            Ok(mut running) => {
                running.retain(|scheduler| self.only.is_none_or(|pid| pid == scheduler.process.pid));
                self.follow(running);
            }
            Err(error) => error!("cannot look for schedulers in /proc: {error}"),
        }
        self.hand_over();
        self.publish();
    }

    /// Starts and ends tracing, so that exactly the running schedulers are traced.
    fn follow(&mut self, running: Vec<Scheduler>) {
        let now: HashSet<ProcessId> = running.iter().map(|scheduler| scheduler.process).collect();
        let gone: Vec<ProcessId> =
            self.targets.keys().filter(|process| !now.contains(process)).copied().collect();
        if !gone.is_empty() {
            // What they sent last must be assembled first.
            self.drain();
        }
        for process in gone {
            if let Some((target, scheduler)) = self.targets.remove(&process) {
                info!(pid = process.pid, "the scheduler has ended");
                self.probes.untrace(&scheduler);
                self.decoder.remove_names(target);
                self.observe(Line::Gone { target });
                self.pipeline.exit(target);
                self.hand_over();
                self.tell(Message::Gone(target));
            }
        }
        self.refused.retain(|process| now.contains(process));
        for scheduler in running {
            let process = scheduler.process;
            if self.targets.contains_key(&process) || self.refused.contains(&process) {
                continue;
            }
            if let Err(error) = self.start(&scheduler) {
                warn!(pid = process.pid, "cannot trace this scheduler: {error:#}");
                self.refused.insert(process);
            }
        }
        self.looked = true;
        self.drop_unused();
        let count = self.targets.len();
        self.metrics.set_schedulers(count, self.refused.len());
        self.metrics.set_planned(self.executables.values().map(|executable| executable.planned).sum());
        let ready = match self.refused.len() {
            0 => Ok(()),
            refused => {
                Err(format!("{refused} of {} schedulers cannot be traced; the log says why", refused + count))
            }
        };
        self.health.set_ready(ready);
    }

    fn start(&mut self, scheduler: &Scheduler) -> anyhow::Result<()> {
        let pid = scheduler.process.pid;
        if !self.executables.contains_key(&scheduler.file) {
            let data = open_executable(&scheduler.path)?;
            let plan = Plan::of(&data)?.with_detail(self.detail);
            drop(data);
            let attached = self.probes.attach(&plan, &scheduler.path)?;
            for (number, site) in attached.numbers.iter().zip(&plan.sites) {
                self.decoder.add(*number, site);
            }
            for missing in &plan.missing {
                warn!(pid, function = ?missing.function, "{}; so there is {}", missing.why, missing.without);
            }
            let planned = planned(&plan);
            let Plan { identity, plugins, errors, .. } = plan;
            self.executables
                .insert(scheduler.file, Executable { attached, planned, identity, plugins, errors });
        }
        let Executable { attached, planned: _, identity, plugins, errors } =
            &self.executables[&scheduler.file];
        let target = self.next_target;
        self.next_target += 1;
        let bias = load_bias(pid, identity.entry_point)?;
        self.decoder.add_plugins(target, plugins, bias);
        self.decoder.add_errors(target, errors, bias);
        // The name must be known before the first attempt.
        let executable = fs::read_link(&scheduler.path).unwrap_or_default();
        let configuration = Configuration::of(scheduler.process)
            .inspect_err(|error| warn!(pid, "which configuration is in force is not told: {error}"))
            .ok();
        let already_ran = !self.looked;
        let found = Found { target, pid, executable, identity: identity.clone(), configuration, already_ran };
        if let Some(observer) = &mut self.observer {
            observer(Line::Found(Cow::Borrowed(&found)));
        }
        self.tell(Message::Found(found.into()));
        self.probes.trace(scheduler, target)?;
        let version = identity.kubernetes_version.as_deref().unwrap_or("of unknown version");
        info!(pid, sites = attached.numbers.len(), "tracing kube-scheduler {version}");
        self.targets.insert(scheduler.process, (target, scheduler.clone()));
        Ok(())
    }

    /// Takes the probes out of files that no scheduler runs any more.
    fn drop_unused(&mut self) {
        let used: HashSet<FileId> = self.targets.values().map(|(_, scheduler)| scheduler.file).collect();
        let unused: Vec<FileId> =
            self.executables.keys().filter(|file| !used.contains(file)).copied().collect();
        for file in unused {
            let Some(Executable { attached, .. }) = self.executables.remove(&file) else { continue };
            for number in &attached.numbers {
                self.decoder.remove(*number);
            }
            if let Err(error) = self.probes.detach(attached) {
                warn!("cannot detach from an executable that is not used any more: {error}");
            }
        }
    }

    fn publish(&self) {
        self.pipeline.publish();
        let kernel = |counter| self.probes.counter(counter);
        let lost = [
            (Loss::RingFull, kernel(Counter::RingFull)),
            (Loss::GoroutineFault, kernel(Counter::GoroutineFault)),
            (Loss::UnknownSite, kernel(Counter::UnknownSite)),
        ];
        let hits = kernel(Counter::Hits);
        for (cause, total) in lost {
            self.metrics.set_loss(cause, total);
        }
        for (figure, total) in [
            (Total::Hits, hits),
            (Total::Records, self.records),
            (Total::ReadFaults, kernel(Counter::ReadFault)),
        ] {
            self.metrics.set_total(figure, total);
        }
    }
}

fn planned(plan: &Plan) -> Planned {
    let emulated = plan.sites.iter().filter(|site| site.class == Class::Emulated).count();
    Planned { emulated, single_stepped: plan.sites.len() - emulated, missing: plan.missing.len() }
}

/// Compares the clocks: the reading that took least time is the most exact.
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
