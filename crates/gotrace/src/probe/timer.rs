//! The eBPF program that times calls, attached for one window at a time.

use std::{path::Path, time::Instant};

use aya::{
    Ebpf,
    maps::{Array, HashMap, MapData, PerCpuHashMap},
    programs::{
        UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLinkId, UProbeScope},
    },
};
use tracing::{debug, warn};
use wire::window::{ARMED, Caller, IDLE, OPEN, OVER, OpenCall, Sum, SumKey, TimedSite, Window};

use super::{Error, take, traps, unfit, uprobe};
use crate::window::TimedAt;

/// Name of the eBPF program.
const PROGRAM: &str = "on_timed";

/// What the kernel counted in a window.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// The window.
    pub window: Window,
    /// Sums of calls, one for each key and CPU.
    pub sums: Vec<(SumKey, Sum)>,
    /// The last call of each goroutine.
    pub open: Vec<(Caller, OpenCall)>,
}

/// The program and its maps.
pub(super) struct Timer {
    link: Option<UProbeLinkId>,
    /// See [`Window::begin_more_ns`].
    begin_more_ns: u32,
    window: Array<MapData, Window>,
    open_calls: HashMap<MapData, Caller, OpenCall>,
    sums: PerCpuHashMap<MapData, SumKey, Sum>,
}

impl Timer {
    /// Loads the program; `None` if the kernel refuses it.
    pub(super) fn load(ebpf: &mut Ebpf) -> Result<Option<Self>, Error> {
        if let Err(error) = uprobe(ebpf, PROGRAM)?.load() {
            warn!("there are no exact windows: the kernel refuses `{PROGRAM}`: {error}");
            return Ok(None);
        }
        let begin_more_ns = match traps::push_more_ns(ebpf, PROGRAM) {
            Ok(ns) => u32::try_from(ns).unwrap_or_default(),
            Err(error) => {
                warn!(
                    "calls in exact windows may have some 0.1 us too much: what a `push` costs is not known: {error}"
                );
                0
            }
        };
        debug!("a probe on a `push` takes {begin_more_ns} ns longer than one on a jump");
        Ok(Some(Self {
            link: None,
            begin_more_ns,
            window: take(ebpf, "WINDOW")?,
            open_calls: take(ebpf, "OPEN_CALLS")?,
            sums: take(ebpf, "SUMS")?,
        }))
    }

    /// Whether a window is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.link.is_some()
    }

    /// Attaches the program to these sites, whose reads are in the map of sites at these numbers, and arms the window.
    pub(super) fn begin(
        &mut self,
        ebpf: &mut Ebpf,
        sites: impl Iterator<Item = (TimedAt, u16)>,
        path: &Path,
        target: u32,
    ) -> Result<(), Error> {
        let began = Instant::now();
        let points = sites.map(|(TimedAt { file_offset, spec: _, function, kind, above }, site)| {
            let cookie = TimedSite { site, function, kind, above };
            UProbeAttachPoint {
                location: UProbeAttachLocation::AbsoluteOffset(file_offset),
                cookie: Some(cookie.into()),
            }
        });
        let points: Vec<_> = points.collect();
        let program: &mut UProbe = uprobe(ebpf, PROGRAM)?;
        self.link = Some(program.attach(points, path, UProbeScope::AllProcesses)?);
        let armed = Window { target, state: ARMED, begin_more_ns: self.begin_more_ns, ..Window::default() };
        self.window.set(0, &armed, 0).map_err(|error| unfit("WINDOW", &error))?;
        debug!("a window's probes took {:?} to attach", began.elapsed());
        Ok(())
    }

    /// Ends the window if its turn is over, or if `now`. What was counted, if it has begun.
    pub(super) fn end(&mut self, ebpf: &mut Ebpf, now: bool) -> Result<Option<Counted>, Error> {
        let state = self.window.get(&0, 0).map_err(|error| unfit("WINDOW", &error))?.state;
        if self.link.is_none() || !now && matches!(state, IDLE | ARMED | OPEN) {
            return Ok(None);
        }
        let began = Instant::now();
        if let Some(link) = self.link.take() {
            uprobe(ebpf, PROGRAM)?.detach(link)?;
        }
        debug!("a window's probes took {:?} to detach", began.elapsed());
        // No CPU writes any more.
        let window = self.window.get(&0, 0).map_err(|error| unfit("WINDOW", &error))?;
        self.window.set(0, &Window::default(), 0).map_err(|error| unfit("WINDOW", &error))?;
        let mut counted = Counted { window, ..Counted::default() };
        for key in self.sums.keys().filter_map(Result::ok).collect::<Vec<_>>() {
            let values = self.sums.get(&key, 0).map_err(|error| unfit("SUMS", &error))?;
            counted.sums.extend(values.iter().filter(|sum| sum.calls > 0).map(|sum| (key, *sum)));
            self.sums.remove(&key).map_err(|error| unfit("SUMS", &error))?;
        }
        for caller in self.open_calls.keys().filter_map(Result::ok).collect::<Vec<_>>() {
            let call = self.open_calls.get(&caller, 0).map_err(|error| unfit("OPEN_CALLS", &error))?;
            counted.open.push((caller, call));
            self.open_calls.remove(&caller).map_err(|error| unfit("OPEN_CALLS", &error))?;
        }
        Ok((window.state >= OVER || window.state == OPEN).then_some(counted))
    }
}
