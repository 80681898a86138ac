//! Loads the eBPF object, attaches the sites of a plan, and takes what the programs send.

mod host;

use std::{
    fs::File,
    mem::MaybeUninit,
    os::fd::{AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use aya::{
    Ebpf, EbpfError, EbpfLoader,
    maps::{Array, Map, MapData, MapError, PerCpuArray, RingBuf},
    programs::{
        ProgramError, UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLinkId, UProbeScope},
    },
    sys::{UProbeMultiFeature, is_uprobe_multi_supported},
};
use aya_log::EbpfLogger;
use log::{Level, Log, log_enabled};
use rustix::{event::epoll, io::Errno};
use tracing::warn;
use wire::{
    Cookie, Counter, MAP_WALK, MAX_PID_NAMESPACES, MAX_SITES, MAX_TARGETS, NO_TEXTS, PidNamespace, Site, TOP,
    Target,
};

pub use self::host::{Right, Unfit, check_btf, raise, rights};
use crate::discover::Process;

/// The object that the build put inside; empty when it was built without.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tracer-ebpf.o"));
/// Records taken from the ring buffer in one go, so that other work gets its turn.
const MAX_DRAIN: usize = 65_536;
/// One part of so many of the ring buffer is full when the programs wake up whoever waits for them: the rest is for what comes
/// until it runs.
const WAKE_AT: u64 = 8;
/// Target of the programs' log points. They are switched on if it is logged at the level `debug`.
const LOG_TARGET: &str = "tracer_ebpf";
/// Size of the ring buffer of the programs' log lines; the kernel rounds it up to a page.
const LOG_BYTES: u32 = 1 << 17;

/// Why probes cannot be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This build has no eBPF object inside and none was named.
    #[error(
        "this schedspan was built without its eBPF object: build it with `cargo xtask build`, or name an object with --ebpf-object"
    )]
    NoObject,
    /// The object that was named cannot be read.
    #[error("cannot read the eBPF object `{path}`; `cargo xtask build-ebpf` makes one")]
    ReadObject {
        /// As it was named.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The kernel or the process's rights do not suffice.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// It is no eBPF object, or the kernel refused it.
    #[error("cannot load the eBPF object {name}; `cargo xtask build-ebpf` makes one")]
    Load {
        /// `inside`, or the file.
        name: String,
        /// Why not.
        source: Box<EbpfError>,
    },
    /// The kernel refused a program.
    #[error("the kernel does not take the eBPF program")]
    Program(#[from] ProgramError),
    /// A map of the object is not there or of another kind: the object is of another version.
    #[error(
        "the eBPF object does not fit this schedspan: map `{name}`: {why}; rebuild it with `cargo xtask build-ebpf`"
    )]
    Map {
        /// The map's name.
        name: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// More executables or namespaces than there is room for.
    #[error("no room to trace another {0}")]
    Full(&'static str),
}

/// The programs, with `uprobe.multi` and without, and which sites they serve: those with these [`Site::texts`].
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

/// Whether the kernel attaches many uprobes at once; nothing if it does not say, because rights are missing.
#[must_use]
pub fn has_uprobe_multi() -> Option<bool> {
    is_uprobe_multi_supported(UProbeMultiFeature::LinkCreation).ok()
}

/// The eBPF programs in the kernel.
pub struct Probes {
    ebpf: Ebpf,
    /// Whether the kernel has `uprobe.multi`.
    multi: bool,
    /// Whether the kernel takes the programs that go through lists: it has `bpf_loop` from 5.17 on.
    lists: bool,
    /// Present if the programs' log points are on.
    logger: Option<Logger>,
    ring: RingBuf<MapData>,
    /// Of the ring buffer alone, and edge-triggered: it tells when the programs want somebody to look, not whether there is
    /// something.
    epoll: OwnedFd,
    sites: Array<MapData, Site>,
    namespaces: Array<MapData, PidNamespace>,
    targets: Array<MapData, u64>,
    counters: PerCpuArray<MapData, u64>,
    free_sites: Vec<u32>,
    known_namespaces: Vec<PidNamespace>,
    /// As they stand in the map.
    known_targets: Vec<Target>,
}

/// Writes the lines of the programs' log points to the daemon's log.
type Logger = EbpfLogger<&'static dyn Log>;

/// The sites of one executable in the kernel; detached when the [`Probes`] are dropped, at the latest.
#[derive(Debug)]
pub struct Attached {
    /// By the program's name.
    links: Vec<(&'static str, UProbeLinkId)>,
    /// The number of each site of the plan.
    pub numbers: Vec<u32>,
}

impl Probes {
    /// Loads the object inside, or the one in `file`, with a ring buffer of this size: a power of two, and at least a page.
    ///
    /// # Errors
    ///
    /// When there is no object, rights or kernel do not suffice, or the kernel refuses it.
    pub fn load(file: Option<&Path>, ring_bytes: u32) -> Result<Self, Error> {
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
            .override_global("WAKE_BYTES", &(u64::from(ring_bytes) / WAKE_AT), true)
            .override_global("LOG", &u8::from(log), true)
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
                        "nothing is read of lists and maps: the kernel does not take `{}`: {error}",
                        program.name(multi)
                    );
                    lists = false;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let ring = take(&mut ebpf, "EVENTS")?;
        let epoll = epoll_of(&ring).map_err(|error| Error::Map { name: "EVENTS", why: error.to_string() })?;
        Ok(Self {
            multi,
            lists,
            logger,
            ring,
            epoll,
            sites: take(&mut ebpf, "SITES")?,
            namespaces: take(&mut ebpf, "NAMESPACES")?,
            targets: take(&mut ebpf, "TARGETS")?,
            counters: take(&mut ebpf, "COUNTERS")?,
            free_sites: (0..MAX_SITES).rev().collect(),
            known_namespaces: Vec::new(),
            known_targets: Vec::new(),
            ebpf,
        })
    }

    /// Whether attempts will say the scores of Nodes, and the rejections by plugin.
    #[must_use]
    pub const fn reads_lists(&self) -> bool {
        self.lists
    }

    /// Attaches sites, by their offset in the file, for every process that runs this file or will.
    ///
    /// # Errors
    ///
    /// When the kernel refuses, or there is no room for so many sites.
    pub fn attach(&mut self, sites: &[(u64, Site)], file: &File) -> Result<Attached, Error> {
        let left = self.free_sites.len().checked_sub(sites.len()).ok_or(Error::Full("executable"))?;
        let numbers = self.free_sites.split_off(left);
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let result = self.attach_as(sites, &path, &numbers);
        match result {
            Ok(links) => Ok(Attached { links, numbers }),
            Err(error) => {
                self.free_sites.extend(numbers);
                Err(error)
            }
        }
    }

    fn attach_as(
        &mut self,
        planned: &[(u64, Site)],
        path: &Path,
        numbers: &[u32],
    ) -> Result<Vec<(&'static str, UProbeLinkId)>, Error> {
        let texts = |site: &Site| match site.texts {
            // All but the list.
            TOP | MAP_WALK if !self.lists => NO_TEXTS,
            texts => texts,
        };
        let mut sites = Vec::with_capacity(planned.len());
        for ((file_offset, site), number) in planned.iter().zip(numbers) {
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

    fn unlink(&mut self, links: Vec<(&'static str, UProbeLinkId)>) -> Result<(), Error> {
        for (name, link) in links {
            uprobe(&mut self.ebpf, name)?.detach(link)?;
        }
        Ok(())
    }

    /// Takes the sites of an executable away.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn detach(&mut self, attached: Attached) -> Result<(), Error> {
        let Attached { links, numbers } = attached;
        self.free_sites.extend(numbers);
        self.unlink(links)
    }

    /// Lets the programs send the hits of a process, under this number.
    ///
    /// # Errors
    ///
    /// When there is no room for another PID namespace or process.
    pub fn trace(&mut self, process: &Process, target: u32) -> Result<(), Error> {
        let known = self.known_namespaces.iter().position(|known| *known == process.namespace);
        let index = match known {
            Some(index) => index as u32,
            None => {
                let index = self.known_namespaces.len() as u32;
                if index == MAX_PID_NAMESPACES {
                    return Err(Error::Full("PID namespace"));
                }
                self.namespaces
                    .set(index, &process.namespace, 0)
                    .map_err(|error| unfit("NAMESPACES", &error))?;
                self.known_namespaces.push(process.namespace);
                index
            }
        };
        let place = self.known_targets.len();
        if place as u32 == MAX_TARGETS {
            return Err(Error::Full("process"));
        }
        let target = Target { key: Target::key(index, process.namespaced_pid), number: target };
        self.set_target(place, Some(target)).map_err(|error| unfit("TARGETS", &error))?;
        self.known_targets.push(target);
        Ok(())
    }

    /// The process has ended. Its number may be used by another program.
    pub fn untrace(&mut self, process: &Process) {
        let namespace = self.known_namespaces.iter().position(|known| *known == process.namespace);
        let Some(namespace) = namespace else { return };
        let key = Target::key(namespace as u32, process.namespaced_pid);
        // It is not there when it never fitted in.
        let Some(place) = self.known_targets.iter().position(|known| known.key == key) else { return };
        self.known_targets.swap_remove(place);
        // The last takes its place before it loses its own: the programs always find it.
        for place in [place, self.known_targets.len()] {
            // The map has as many places as there can be targets.
            let _ = self.set_target(place, self.known_targets.get(place).copied());
        }
    }

    fn set_target(&mut self, place: usize, target: Option<Target>) -> Result<(), MapError> {
        self.targets.set(place as u32, &target.map_or(0, u64::from), 0)
    }

    /// Hands over the records that have come, oldest first, up to a bound; says how many.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) -> usize {
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
        for count in 0..MAX_DRAIN {
            match self.ring.next() {
                Some(record) => take(&record),
                None => return count,
            }
        }
        MAX_DRAIN
    }

    /// Waits until the ring buffer has filled so far that it should be emptied, and no longer than this.
    pub fn wait(&self, longest: Duration) {
        let timeout = longest.try_into().ok();
        let mut events = [MaybeUninit::uninit()];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => thread::sleep(longest),
        }
    }

    /// One of the programs' counters, over all CPUs.
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
    let program =
        ebpf.program_mut(name).ok_or(Error::Map { name, why: "there is no such program".into() })?;
    Ok(program.try_into()?)
}

fn take<T: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, Error> {
    let map = ebpf.take_map(name).ok_or(Error::Map { name, why: "it is not there".into() })?;
    map.try_into().map_err(|error| unfit(name, &error))
}

fn unfit(name: &'static str, error: &MapError) -> Error {
    Error::Map { name, why: error.to_string() }
}
