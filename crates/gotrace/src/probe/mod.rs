//! Loads the eBPF object, attaches the sites of a plan, and drains the ring buffer.

mod host;
mod places;
mod sampler;
mod timer;
mod traps;

use std::{
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use aya::{
    Ebpf, EbpfError, EbpfLoader,
    maps::{Array, Map, MapData, MapError, PerCpuArray, RingBuf},
    programs::{
        self, ProgramError, RawTracePoint, UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLinkId, UProbeScope},
    },
    sys::{UProbeMultiFeature, is_uprobe_multi_supported},
};
use aya_log::EbpfLogger;
use log::{Level, Log, log_enabled};
use rustix::{event::epoll, io::Errno};
use tracing::warn;
use wire::{
    Code, CodeRange, Cookie, Counter, FREE, MAP_WALK, MAX_PID_NAMESPACES, MAX_PLANS, MAX_SITES, MAX_TARGETS,
    NO_TEXTS, PidNamespace, RECORD_LIMIT, RING_BYTES, SAMPLE_HZ, SITES_PER_PLAN, Site, TOP, Target,
    WINDOW_SHIFT,
    window::{MAX_CALLERS, MAX_SUMS},
};

pub use self::{
    host::{Right, Unfit, check_btf, raise, rights},
    timer::Counted,
};
use self::{places::Places, sampler::Sampler, timer::Timer};
use crate::{
    decode::{self, Undecodable},
    discover::{Handle, Process},
    governor::meter::{Kernel, Traps},
    program::Detail,
    window::TimedAt,
};

/// The built-in eBPF object; empty if the build had none.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tracer-ebpf.o"));
/// Maximum number of records in one drain, so that other work gets its turn.
const MAX_DRAIN: usize = 65_536;
/// The eBPF programs wake up the daemon when the ring buffer is full to this fraction, one quarter: at 100 attempts a second not before
/// its own interval is over. The rest holds the records until the daemon runs.
const WAKE_AT: u64 = 4;
/// While several processes are traced, the last quarter of the ring buffer is for those that have not had their share.
const CROWDED_PERCENT: u64 = 75;
/// A process's share of the ring buffer in a window: one sixteenth, so that the quarter lasts for four windows.
const SHARE_OF: u64 = 16;
/// The eBPF program that counts executions, and the tracepoint where it runs.
const EXECUTIONS: (&str, &str) = ("on_execution", "sched_process_exec");
/// Log target of the eBPF programs' log points. They are active if its level is `debug`.
const LOG_TARGET: &str = "tracer_ebpf";
/// Size of the ring buffer for log lines. The kernel rounds it up to a page.
const LOG_BYTES: u32 = 1 << 17;

/// Why probes cannot be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The build has no eBPF object, and no path was given.
    #[error(
        "this schedspan was built without its eBPF object: build it with `cargo xtask build`, or name an object with --ebpf-object"
    )]
    NoObject,
    /// The object's file cannot be read.
    #[error("cannot read the eBPF object `{path}`; `cargo xtask build-ebpf` makes one")]
    ReadObject {
        /// The given path.
        path: PathBuf,
        /// Error of the read.
        source: std::io::Error,
    },
    /// The kernel or the capabilities of the process do not suffice.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The object is malformed, or the kernel refused one of its maps.
    #[error("cannot load the eBPF object {name}; `cargo xtask build-ebpf` makes one")]
    Load {
        /// `inside`, or the path.
        name: String,
        /// Error of the load.
        source: Box<EbpfError>,
    },
    /// The kernel refused an eBPF program.
    #[error("the kernel refuses the eBPF program")]
    Program(#[from] ProgramError),
    /// A map of the object is missing or of another kind: the object belongs to another version.
    #[error(
        "the eBPF object does not fit this schedspan: map `{name}`: {why}; rebuild it with `cargo xtask build-ebpf`"
    )]
    Map {
        /// The map's name.
        name: &'static str,
        /// Description of the problem.
        why: String,
    },
    /// The limit of executables, namespaces or processes is reached.
    #[error("no room to trace another {0}")]
    Full(&'static str),
    /// The kernel does not let this process take samples.
    #[error("the kernel takes no samples: {0}")]
    Sample(String),
}

/// Sizes that the user chooses.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Size of the ring buffer: a power of two, and at least a page.
    pub ring_bytes: u32,
    /// Bytes of records per second that each process may send.
    pub record_limit: u64,
    /// The part of a program's CPU time that tracing may cost, such as 0.05; what exceeds it is cut. `None` for no limit.
    pub budget: Option<f64>,
    /// Samples per second and CPU; 0 takes none.
    pub sample_hz: u32,
    /// Whether samples have whole stacks instead of classes, for a profile.
    pub stacks: bool,
    /// The calls of one turn of so many are timed one by one; 0 for none.
    pub window_every: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ring_bytes: RING_BYTES,
            record_limit: RECORD_LIMIT,
            budget: None,
            sample_hz: SAMPLE_HZ,
            stacks: false,
            window_every: 0,
        }
    }
}

impl Limits {
    /// Bytes of records of one process in a window, on average; and those that are let in even if the buffer is crowded.
    fn per_window(self) -> (u64, u64) {
        let limit = u128::from(self.record_limit) * (1 << WINDOW_SHIFT) / 1_000_000_000;
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        (limit, limit.min(u64::from(self.ring_bytes) / SHARE_OF))
    }
}

/// The eBPF programs, with `uprobe.multi` and without, and the sites that each serves, by [`Site::texts`].
const PROGRAMS: [Program; 3] = [
    Program { multi: "on_top_multi", single: "on_top_single", for_lists: true, serves: |texts| texts == TOP },
    Program {
        multi: "on_map_multi",
        single: "on_map_single",
        for_lists: true,
        serves: |texts| texts == MAP_WALK,
    },
    Program {
        multi: "on_hit_multi",
        single: "on_hit_single",
        for_lists: false,
        serves: |texts| ![TOP, MAP_WALK].contains(&texts),
    },
];

struct Program {
    multi: &'static str,
    single: &'static str,
    for_lists: bool,
    serves: fn(u32) -> bool,
}

impl Program {
    fn name(&self, multi: bool) -> &'static str {
        if multi { self.multi } else { self.single }
    }
}

/// Whether the kernel attaches many uprobes at once; `None` if that cannot be tested because capabilities are missing.
#[must_use]
pub fn has_uprobe_multi() -> Option<bool> {
    is_uprobe_multi_supported(UProbeMultiFeature::LinkCreation).ok()
}

/// The loaded eBPF programs and their maps.
pub struct Probes {
    ebpf: Ebpf,
    /// Whether the kernel has `uprobe.multi`.
    multi: bool,
    /// Whether the kernel accepts the programs that iterate over lists. It has `bpf_loop` from 5.17 on.
    lists: bool,
    /// Present if the log points are active.
    logger: Option<Logger>,
    /// `None` if no samples are taken.
    sampler: Option<Sampler>,
    /// `None` if no calls are timed.
    timer: Option<Timer>,
    ring: RingBuf<MapData>,
    /// Watches the ring buffer only, edge-triggered: an event means that a program requested a wake-up, not that there
    /// is a record.
    epoll: OwnedFd,
    sites: Array<MapData, Site>,
    namespaces: Array<MapData, PidNamespace>,
    targets: Array<MapData, Target>,
    crowded: Array<MapData, u64>,
    counters: PerCpuArray<MapData, u64>,
    /// Whether executions are counted.
    counts_executions: bool,
    free_sites: Vec<u32>,
    free_plans: u32,
    /// Who uses each place of the map of PID namespaces, with the number of its processes.
    known_namespaces: Places<(PidNamespace, usize)>,
    /// Who uses each place of the map of processes, by key and number. An entry keeps its place: the programs write to it.
    known_targets: Places<(u32, u32)>,
    limits: Limits,
    /// Number of records by site, or of its maps' chunks.
    seen: Vec<u64>,
}

/// Forwards the lines of the log points to the daemon's log.
type Logger = EbpfLogger<&'static dyn Log>;

/// Links, with the name of their eBPF program.
type Links = Vec<(&'static str, UProbeLinkId)>;

/// The sites of one executable that are or were attached. They are detached when the [`Probes`] are dropped, at the latest.
#[derive(Debug)]
pub struct Attached {
    /// By level of detail, so that one can be detached without the others.
    groups: Vec<Group>,
    /// Site numbers, in the order of the plan's sites.
    pub numbers: Vec<u32>,
}

/// The sites of a level of detail.
#[derive(Debug)]
struct Group {
    detail: Detail,
    /// Offset in the file, what to read, and the site's number.
    sites: Vec<(u64, Site, u32)>,
    /// None while they are detached.
    links: Links,
}

impl Probes {
    /// Loads the built-in object, or the one in `file`.
    ///
    /// # Errors
    ///
    /// When there is no object, capabilities or kernel do not suffice, or the kernel refuses it.
    pub fn load(file: Option<&Path>, limits: Limits) -> Result<Self, Error> {
        let Limits { ring_bytes, sample_hz, stacks, window_every, record_limit: _, budget: _ } = limits;
        let windows = window_every > 0;
        let (limit, share) = limits.per_window();
        let read;
        let object = match file {
            Some(path) => {
                read =
                    std::fs::read(path).map_err(|source| Error::ReadObject { path: path.into(), source })?;
                &read
            }
            None if OBJECT.is_empty() => return Err(Error::NoObject),
            None => OBJECT,
        };
        host::check_rights(false)?;
        let multi = has_uprobe_multi().unwrap_or(false);
        check_btf()?;
        host::check_rights(!multi)?;
        let name = || file.map_or_else(|| "inside".to_owned(), |path| format!("`{}`", path.display()));
        let log = log_enabled!(target: LOG_TARGET, Level::Debug);
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("EVENTS", ring_bytes)
            .map_max_entries("AYA_LOGS", if log { LOG_BYTES } else { 1 })
            .map_max_entries("SUMS", if windows { MAX_SUMS } else { 1 })
            .map_max_entries("OPEN_CALLS", if windows { MAX_CALLERS } else { 1 })
            .override_global("WAKE_BYTES", &(u64::from(ring_bytes) / WAKE_AT), true)
            .override_global("LIMIT", &limit, true)
            .override_global("SHARE", &share, true)
            .override_global("LOG", &u8::from(log), true)
            .override_global("STACKS", &u8::from(stacks), true)
            .load(object)
            .map_err(|source| Error::Load { name: name(), source: Box::new(source) })?;
        let unreadable = |error: aya_log::Error| Error::Map { name: "AYA_LOGS", why: error.to_string() };
        let logger = log.then(|| EbpfLogger::init(&mut ebpf)).transpose().map_err(unreadable)?;
        let mut lists = true;
        for program in &PROGRAMS {
            match uprobe(&mut ebpf, program.name(multi))?.load() {
                Ok(()) => {}
                Err(error) if program.for_lists => {
                    warn!(
                        "lists and maps are not read: the kernel refuses `{}`: {error}",
                        program.name(multi)
                    );
                    lists = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let sampler = Sampler::load(&mut ebpf, sample_hz)?;
        if windows && !multi {
            // Without it, each end of a window would take seconds.
            warn!("there are no exact windows: the kernel cannot attach many probes at once, as from 6.6 on");
        }
        let timer = if windows && multi { Timer::load(&mut ebpf)? } else { None };
        let counted = count_executions(&mut ebpf);
        if let Err(error) = &counted {
            warn!("each search for processes lists all of them: executions are not counted: {error}");
        }
        let ring = take(&mut ebpf, "EVENTS")?;
        let epoll = epoll_of(&ring).map_err(|error| Error::Map { name: "EVENTS", why: error.to_string() })?;
        Ok(Self {
            multi,
            lists,
            logger,
            sampler,
            timer,
            ring,
            epoll,
            sites: take(&mut ebpf, "SITES")?,
            namespaces: take(&mut ebpf, "NAMESPACES")?,
            targets: take(&mut ebpf, "TARGETS")?,
            crowded: take(&mut ebpf, "CROWDED")?,
            counters: take(&mut ebpf, "COUNTERS")?,
            counts_executions: counted.is_ok(),
            free_sites: (0..MAX_SITES).rev().collect(),
            free_plans: MAX_PLANS,
            known_namespaces: Places::new(MAX_PID_NAMESPACES),
            known_targets: Places::new(MAX_TARGETS),
            limits,
            seen: vec![0; MAX_SITES as usize],
            ebpf,
        })
    }

    /// Whether lists and maps are read: attempts then have the scores of Nodes, and the rejections by plugin.
    #[must_use]
    pub const fn reads_lists(&self) -> bool {
        self.lists
    }

    /// Attaches sites, given by their file offset and their level of detail, in all present and future processes of this file.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or the number of sites exceeds a limit.
    pub fn attach(&mut self, sites: &[(u64, Site, Detail)], file: &Handle) -> Result<Attached, Error> {
        if sites.len() > SITES_PER_PLAN as usize {
            return Err(Error::Full("site in this executable"));
        }
        let free = self.free_plans.checked_sub(1).ok_or(Error::Full("executable"))?;
        let left = self.free_sites.len().checked_sub(sites.len()).ok_or(Error::Full("executable"))?;
        let numbers = self.free_sites.split_off(left);
        let mut groups: Vec<Group> = Vec::new();
        for ((file_offset, site, detail), number) in sites.iter().zip(&numbers) {
            let place = groups.iter().position(|group| group.detail == *detail).unwrap_or_else(|| {
                groups.push(Group { detail: *detail, sites: Vec::new(), links: Vec::new() });
                groups.len() - 1
            });
            groups[place].sites.push((*file_offset, *site, *number));
        }
        let mut attached = Attached { groups, numbers };
        match self.attach_groups(&mut attached, |_| true, file) {
            Ok(()) => {
                self.free_plans = free;
                Ok(attached)
            }
            Err(error) => {
                self.free_sites.append(&mut attached.numbers);
                self.detach_groups(&mut attached, |_| true)?;
                Err(error)
            }
        }
    }

    /// Attaches the sites of these levels of detail that are not attached.
    ///
    /// # Errors
    ///
    /// When the kernel refuses. Those that were attached before stay so.
    pub fn attach_groups(
        &mut self,
        attached: &mut Attached,
        which: impl Fn(Detail) -> bool,
        file: &Handle,
    ) -> Result<(), Error> {
        for group in attached.groups.iter_mut().filter(|group| which(group.detail) && group.links.is_empty())
        {
            group.links = self.attach_as(&group.sites, &file.own_path())?;
        }
        Ok(())
    }

    /// Detaches the sites of these levels of detail. Their numbers stay theirs.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn detach_groups(
        &mut self,
        attached: &mut Attached,
        which: impl Fn(Detail) -> bool,
    ) -> Result<(), Error> {
        let mut groups = attached.groups.iter_mut().filter(|group| which(group.detail));
        groups.try_for_each(|group| self.unlink(std::mem::take(&mut group.links)))
    }

    fn attach_as(&mut self, planned: &[(u64, Site, u32)], path: &Path) -> Result<Links, Error> {
        let texts = |site: &Site| match site.texts {
            // The list is skipped, the other reads stay.
            TOP | MAP_WALK if !self.lists => NO_TEXTS,
            texts => texts,
        };
        let mut sites = Vec::with_capacity(planned.len());
        for (file_offset, site, number) in planned {
            let spec = Site { texts: texts(site), ..*site };
            let cookie = Cookie::of(&spec, *number).ok_or(Error::Full("site"))?;
            self.sites.set(*number, &spec, 0).map_err(|error| unfit("SITES", &error))?;
            sites.push((*file_offset, spec.texts, u64::from(cookie)));
        }
        let mut links = Vec::with_capacity(PROGRAMS.len());
        for program in &PROGRAMS {
            let points: Vec<_> = sites
                .iter()
                .filter(|(_, texts, _)| (program.serves)(*texts))
                .map(|(file_offset, _, cookie)| UProbeAttachPoint {
                    location: UProbeAttachLocation::AbsoluteOffset(*file_offset),
                    cookie: Some(*cookie),
                })
                .collect();
            if points.is_empty() {
                continue;
            }
            let name = program.name(self.multi);
            match uprobe(&mut self.ebpf, name)?.attach(points, path, UProbeScope::AllProcesses) {
                Ok(link) => links.push((name, link)),
                Err(error) => {
                    self.unlink(links)?;
                    return Err(error.into());
                }
            }
        }
        Ok(links)
    }

    /// Reads the maps at attached sites from here on, or leaves them unread.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn read_maps(&mut self, attached: &Attached, are_read: bool) -> Result<(), Error> {
        let sites = attached.groups.iter().flat_map(|group| &group.sites);
        for (_, site, number) in sites.filter(|(_, site, _)| self.lists && site.texts == MAP_WALK) {
            // The cookie still leads to the program for maps, which looks here first.
            let texts = if are_read { MAP_WALK } else { NO_TEXTS };
            let spec = Site { texts, ..*site };
            self.sites.set(*number, &spec, 0).map_err(|error| unfit("SITES", &error))?;
        }
        Ok(())
    }

    fn unlink(&mut self, links: Links) -> Result<(), Error> {
        for (name, link) in links {
            uprobe(&mut self.ebpf, name)?.detach(link)?;
        }
        Ok(())
    }

    /// Detaches the sites of an executable.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn detach(&mut self, mut attached: Attached) -> Result<(), Error> {
        self.free_sites.append(&mut attached.numbers);
        self.free_plans += 1;
        self.detach_groups(&mut attached, |_| true)
    }

    /// Whether sites can be detached and attached again within a tenth of a second: from Linux 6.6 on.
    #[must_use]
    pub const fn is_quick(&self) -> bool {
        self.multi
    }

    /// Number of hits of a site that have been taken from the ring buffer.
    #[must_use]
    pub fn seen(&self, number: u32) -> u64 {
        self.seen.get(number as usize).copied().unwrap_or_default()
    }

    /// Measures what a trap costs here, in some 40 ms. Where that does not work, and on kernels that detach slowly, the result is
    /// what is usual.
    pub fn measure_traps(&mut self) -> Traps {
        if !self.multi {
            return Traps::default();
        }
        match traps::measure(&mut self.ebpf, "on_hit_multi") {
            Ok(traps) => traps.unwrap_or_default(),
            Err(error) => {
                warn!("what a trap costs is assumed, not measured: {error}");
                Traps::default()
            }
        }
    }

    /// The counters that the cost of tracing follows from.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        let lost = [Counter::RingFull, Counter::GoroutineFault, Counter::UnknownSite];
        Kernel {
            lost: lost.into_iter().map(|cause| self.counter(cause)).sum(),
            timed_hits: self.counter(Counter::TimedHits),
            timed_ns: self.counter(Counter::TimedNs),
            walk_ns: self.counter(Counter::WalkNs),
            samples: self.counter(Counter::Samples),
            sample_ns: self.counter(Counter::SampleNs),
        }
    }

    /// Enables records of a process, under this target number.
    ///
    /// # Errors
    ///
    /// When the number of PID namespaces or processes exceeds a limit.
    pub fn trace(&mut self, process: &Process, target: u32) -> Result<(), Error> {
        let Process { namespace, namespaced_pid, .. } = process;
        let place = self.known_targets.free().ok_or(Error::Full("process"))?;
        let known = self.known_namespaces.find(|(known, _)| known == namespace);
        let index = known.or_else(|| self.known_namespaces.free()).ok_or(Error::Full("PID namespace"))?;
        if known.is_none() {
            self.namespaces.set(index, namespace, 0).map_err(|error| unfit("NAMESPACES", &error))?;
        }
        let processes = self.known_namespaces.get(index).map_or(0, |(_, processes)| *processes);
        let key = Target::key(index, *namespaced_pid);
        let entry = Target { key, number: target, ..Target::default() };
        self.targets.set(place, &entry, 0).map_err(|error| unfit("TARGETS", &error))?;
        self.known_namespaces.put(index, (*namespace, processes + 1));
        self.known_targets.put(place, (key, target));
        self.share_out();
        Ok(())
    }

    /// Takes half of the samples from here on, or all.
    pub fn halve_samples(&mut self, are_halved: bool) {
        let Self { sampler, ebpf, .. } = self;
        if let Some(sampler) = sampler
            && let Err(error) = sampler.halve(ebpf, are_halved)
        {
            warn!("the rate of samples stays: {error}");
        }
    }

    /// Takes no samples of a process from here on, or again those that it had.
    pub fn pause_samples(&mut self, process: &Process, are_paused: bool) {
        let Some(place) = self.place(process) else { return };
        let Self { sampler, ebpf, .. } = self;
        if let Some(sampler) = sampler
            && let Err(error) = sampler.pause(ebpf, place, are_paused)
        {
            warn!("the samples of a process stay as they are: {error}");
        }
    }

    /// CPU time that a sample stands for, nanoseconds; `None` if no samples are taken.
    #[must_use]
    pub fn sample_period_ns(&self) -> Option<u64> {
        self.sampler.as_ref().map(Sampler::period_ns)
    }

    /// Checks whether the kernel lets this process take samples. `false` if it refuses their program, or none are asked for.
    ///
    /// # Errors
    ///
    /// When it does not: why, and what to do.
    pub fn check_samples(&mut self) -> Result<bool, Error> {
        let Self { sampler, ebpf, .. } = self;
        sampler.as_mut().map_or(Ok(false), |sampler| sampler.check(ebpf).map(|()| true))
    }

    /// Adds the code ranges of an executable, and returns the place of the first. `None` if no samples are taken.
    ///
    /// # Errors
    ///
    /// When there is no room.
    pub fn add_ranges(&mut self, ranges: &[CodeRange]) -> Result<Option<u32>, Error> {
        self.sampler.as_mut().map(|sampler| sampler.add(ranges)).transpose()
    }

    /// Removes the code ranges that begin at this place.
    pub fn remove_ranges(&mut self, first: u32) {
        if let Some(sampler) = &mut self.sampler {
            sampler.remove(first);
        }
    }

    /// Takes samples of a traced process, until it is not traced any more.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn sample(&mut self, process: &Process, code: &Code) -> Result<(), Error> {
        let Some(place) = self.place(process) else { return Ok(()) };
        let Self { sampler, ebpf, .. } = self;
        sampler.as_mut().map_or(Ok(()), |sampler| sampler.start(ebpf, place, code))
    }

    /// Writes the reads of a window's sites, at numbers that are theirs until [`Self::forget_timed`]. `None` if no calls are
    /// timed, or the sites of the executable, which has `attached`, are too many.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn add_timed(&mut self, sites: &[TimedAt], attached: &Attached) -> Result<Option<Vec<u32>>, Error> {
        let has_room = attached.numbers.len() + sites.len() <= SITES_PER_PLAN as usize;
        let left = self.free_sites.len().checked_sub(sites.len());
        let Some(left) = left.filter(|_| self.timer.is_some() && has_room) else { return Ok(None) };
        for (number, site) in self.free_sites[left..].iter().zip(sites) {
            self.sites.set(*number, &site.spec, 0).map_err(|error| unfit("SITES", &error))?;
        }
        Ok(Some(self.free_sites.split_off(left)))
    }

    /// Makes the numbers of a window's sites free.
    pub fn forget_timed(&mut self, numbers: Vec<u32>) {
        self.free_sites.extend(numbers);
    }

    /// Begins a window with the next turn of this target: attaches its sites to the file. `false` if another one is under way.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn begin_window(
        &mut self,
        sites: &[TimedAt],
        numbers: &[u32],
        file: &Handle,
        target: u32,
    ) -> Result<bool, Error> {
        let Self { timer, ebpf, .. } = self;
        let Some(timer) = timer.as_mut().filter(|timer| !timer.is_busy()) else { return Ok(false) };
        let number = |number: &u32| u16::try_from(*number).unwrap_or(u16::MAX);
        let sites = sites.iter().copied().zip(numbers.iter().map(number));
        timer.begin(ebpf, sites, &file.own_path(), target)?;
        Ok(true)
    }

    /// Ends the window if its turn is over, or in any case if `now`, and detaches its sites. What was counted, if it had begun.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn end_window(&mut self, now: bool) -> Result<Option<Counted>, Error> {
        let Self { timer, ebpf, .. } = self;
        timer.as_mut().map_or(Ok(None), |timer| timer.end(ebpf, now))
    }

    /// One turn of so many has a window; `None` if none has.
    #[must_use]
    pub fn window_every(&self) -> Option<u64> {
        self.timer.is_some().then_some(self.limits.window_every)
    }

    /// Whether a window is under way.
    #[must_use]
    pub fn is_timing(&self) -> bool {
        self.timer.as_ref().is_some_and(Timer::is_busy)
    }

    /// The place of a process among the targets.
    fn place(&self, process: &Process) -> Option<u32> {
        let index = self.known_namespaces.find(|(known, _)| *known == process.namespace)?;
        let key = Target::key(index, process.namespaced_pid);
        self.known_targets.find(|(known, _)| *known == key)
    }

    /// Disables records of a process that has ended: its pid may be reused by another program.
    pub fn untrace(&mut self, process: &Process) {
        let Some(index) = self.known_namespaces.find(|(known, _)| *known == process.namespace) else {
            return;
        };
        let key = Target::key(index, process.namespaced_pid);
        // A process beyond the limit has no entry.
        let Some(place) = self.known_targets.find(|(known, _)| *known == key) else { return };
        self.known_targets.take(place);
        if let Some(sampler) = &mut self.sampler {
            sampler.stop(&mut self.ebpf, place);
        }
        // The maps have a slot for every place.
        let _ = self.targets.set(place, &Target { key: FREE, ..Target::default() }, 0);
        match self.known_namespaces.take(index) {
            Some((namespace, processes @ 2..)) => {
                self.known_namespaces.put(index, (namespace, processes - 1));
            }
            _ => {
                let none = PidNamespace { device: 0, inode: wire::NO_NAMESPACE };
                let _ = self.namespaces.set(index, &none, 0);
            }
        }
        self.share_out();
    }

    /// Keeps a part of the ring buffer for each process, if there are several.
    fn share_out(&mut self) {
        let several = self.known_targets.len() > 1;
        let crowded = u64::from(self.limits.ring_bytes) * CROWDED_PERCENT / 100;
        // The map has this slot.
        let _ = self.crowded.set(0, &if several { crowded } else { u64::MAX }, 0);
    }

    /// Records that each process has lost to its limit, by the number of its target.
    pub fn over_limit(&self) -> impl Iterator<Item = (u32, u64)> {
        self.known_targets.all().filter_map(|(place, (_, number))| {
            let lost = self.targets.get(&place, 0).ok()?.over_limit;
            (lost > 0).then_some((*number, lost))
        })
    }

    /// Hands over available records with the number of their site, oldest first, up to a limit. Returns their number.
    pub fn drain(&mut self, mut take: impl FnMut(Result<u32, Undecodable>, &[u8])) -> usize {
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
        for count in 0..MAX_DRAIN {
            match self.ring.next() {
                Some(record) => {
                    let site = decode::site_of(&record);
                    if let Some(seen) = site.ok().and_then(|site| self.seen.get_mut(site as usize)) {
                        *seen += 1;
                    }
                    take(site, &record);
                }
                None => return count,
            }
        }
        MAX_DRAIN
    }

    /// Waits until the ring buffer should be drained, or this time is over.
    pub fn wait(&self, longest: Duration) {
        let timeout = longest.try_into().ok();
        let mut events = [MaybeUninit::uninit()];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => thread::sleep(longest),
        }
    }

    /// Programs that were executed on this machine since these probes were loaded; `None` if they are not counted.
    #[must_use]
    pub fn executions(&self) -> Option<u64> {
        self.counts_executions.then(|| self.counter(Counter::Executions))
    }

    /// Sum of an eBPF counter over all CPUs.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(&(counter as u32), 0).map_or(0, |values| values.iter().sum())
    }
}

fn epoll_of(ring: &RingBuf<MapData>) -> rustix::io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, ring, epoll::EventData::new_u64(0), flags)?;
    Ok(epoll)
}

fn uprobe<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut UProbe, Error> {
    Ok(program(ebpf, name)?.try_into()?)
}

fn program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut programs::Program, Error> {
    ebpf.program_mut(name).ok_or(Error::Map { name, why: "the program does not exist".into() })
}

fn count_executions(ebpf: &mut Ebpf) -> Result<(), Error> {
    let (name, tracepoint) = EXECUTIONS;
    let program: &mut RawTracePoint = program(ebpf, name)?.try_into()?;
    program.load()?;
    program.attach(tracepoint)?;
    Ok(())
}

fn take<T: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, Error> {
    let map = ebpf.take_map(name).ok_or(Error::Map { name, why: "it does not exist".into() })?;
    map.try_into().map_err(|error| unfit(name, &error))
}

fn unfit(name: &'static str, error: &MapError) -> Error {
    Error::Map { name, why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_for_windows_and_a_sixteenth_of_the_buffer_is_for_everybody() {
        let limits =
            |ring_bytes, record_limit| Limits { ring_bytes, record_limit, ..Limits::default() }.per_window();
        // 134.2 ms of a second.
        assert_eq!(limits(1 << 30, 1_000_000), (134_217, 134_217));
        assert_eq!(limits(1 << 20, 10_000_000), (1_342_177, 65_536));
        assert_eq!(limits(1 << 20, u64::MAX).1, 65_536);
        assert_eq!(limits(4_096, 0), (0, 0));
    }
}
