//! A round: creates Pods at an even pace, and measures their scheduling.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use harness::{
    api::{Api, pod},
    calibration::Calibration,
    cost::{self, Daemon, ETCD_TIMESLICES, OVERHEAD, Round, Way as _, nothing_cut},
    processes::{cpu_ms, timeslices},
    schedspan::{self, Schedspan},
    stage::Stage,
    wait::wait_until,
};

use crate::{
    histogram,
    options::{Detail, Options, Shares},
    usage::resident_mib,
};

/// The limit for all Pods of a round to be bound.
const BOUND_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval of the checks for Pods that are not bound.
const INTERVAL: Duration = Duration::from_millis(200);
/// Between the last binding and the reading of the CPU time, which includes the scheduler's work on events. The SDK may still
/// hold a batch of 512 spans, some 13 attempts; the warm-up leaves one like it.
pub(crate) const SETTLE: Duration = Duration::from_secs(1);
/// The prefix of the Pods' names.
pub(crate) const PODS: &str = "bench-";

/// Figures of schedulers alone, as the report names them. The first two are from the scheduler's own metric.
pub(crate) const ATTEMPT_P50: &str = "attempt ms, p50";
pub(crate) const ATTEMPT_P99: &str = "attempt ms, p99";
pub(crate) const HITS: &str = "hits/attempt";
const RECORDS: &str = "records/attempt";
const SAMPLES: &str = "% of CPU: samples";
const WINDOWS: &str = "% of CPU: windows";
const WINDOWS_PER_1000: &str = "windows/1,000 attempts";

/// The maker of the spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Untraced,
    /// The scheduler, with the OpenTelemetry SDK.
    InProcess,
    /// schedspan, at this level of detail, with an unmodified scheduler.
    Schedspan(Detail),
    /// The schedspan of `--against`, at this level of detail.
    Against(Detail),
    /// schedspan with such shares of plugins.
    Shares(Shares),
}

impl cost::Way for Way {
    fn name(self) -> &'static str {
        match self {
            Self::Untraced => "untraced",
            Self::InProcess => "in-process",
            Self::Schedspan(Detail::Full) => "schedspan",
            Self::Schedspan(Detail::Plugins) => "schedspan-plugins",
            Self::Schedspan(Detail::Phases) => "schedspan-phases",
            Self::Against(_) => "against",
            Self::Shares(shares) => shares.name(),
        }
    }
}

impl Way {
    /// schedspan's arguments, and its executable.
    fn traced<'a>(
        self,
        stage: &'a Stage,
        options: &'a Options,
    ) -> Option<(&'static [&'static str], &'a Path)> {
        match self {
            Self::Untraced | Self::InProcess => None,
            Self::Schedspan(detail) => Some((detail.arguments(), &stage.executable)),
            Self::Shares(shares) => Some((shares.arguments(), &stage.executable)),
            Self::Against(detail) => Some((detail.arguments(), options.against.as_deref()?)),
        }
    }
}

/// Creates Pods at an even pace until all are bound, and deletes them.
pub(crate) fn measure(
    stage: &Stage,
    options: &Options,
    calibration: &Calibration,
    way: Way,
    warm_up: u32,
) -> Result<Round> {
    let api = stage.cluster.api()?;
    let scheduler = match way {
        Way::InProcess => stage.cluster.scheduler_named(way.name())?,
        // The same process for both, so that not even its memory layout differs.
        Way::Untraced | Way::Schedspan(_) | Way::Against(_) | Way::Shares(_) => stage.cluster.scheduler()?,
    };
    let pid = scheduler.pid.cast_unsigned();
    let pods = f64::from(options.pods);
    let start = |(arguments, executable): (&[&str], &Path)| {
        Schedspan::start(&schedspan::Options { executable, arguments, ..stage.options()? })
    };
    let begun = cpu_ms(pid)?;
    let schedspan = way.traced(stage, options).map(start).transpose()?;
    let mut made = 0..;
    let mut create = |count| create(&api, way, made.by_ref().take(count as usize), options.pace);
    create(warm_up)?;
    thread::sleep(SETTLE);
    let daemon_before = schedspan.as_ref().map(|schedspan| cpu_ms(schedspan.pid())).transpose()?;
    let attempts = || stage.cluster.metrics_of(&scheduler);
    let etcd = stage.cluster.etcd_pid()?.cast_unsigned();
    let (before, etcd_before, metrics_before) = (cpu_ms(pid)?, cpu_ms(etcd)?, attempts()?);
    let (slices_before, computed_before) = (timeslices(etcd)?, calibration.computed());
    let start = Instant::now();
    create(options.pods)?;
    let pods_per_second = pods / start.elapsed().as_secs_f64();
    thread::sleep(SETTLE);
    let cpu_ms_per_pod = (cpu_ms(pid)? - before) / pods;
    let etcd_cpu_ms_per_pod = (cpu_ms(etcd)? - etcd_before) / pods;
    let computation_us = calibration.computed().mean_us_since(&computed_before)?;
    let etcd_timeslices = (timeslices(etcd)? - slices_before) / pods;
    let durations = histogram::between(&metrics_before, &attempts()?);
    let mut others = vec![
        (ATTEMPT_P50, durations.quantile(0.5) * 1e3),
        (ATTEMPT_P99, durations.quantile(0.99) * 1e3),
        (ETCD_TIMESLICES, etcd_timeslices),
    ];

    let daemon = schedspan.zip(daemon_before).map(|(schedspan, before)| {
        // Before it is asked for its metrics, which takes some milliseconds.
        let daemon_cpu_ms = cpu_ms(schedspan.pid())? - before;
        let metrics = schedspan.metrics()?;
        let attempts = metrics.sum("schedspan_attempts_total", &[]);
        ensure!(attempts >= pods, "only {attempts} attempts of {pods} were traced");
        let windows = metrics.sum("schedspan_exact_windows_total", &[]);
        ensure!(
            way != Way::Shares(Shares::Windows) || windows > 0.0,
            "no attempt of {pods} had an exact window: more are needed, with `--pods`"
        );
        nothing_cut(&metrics)?;
        let of_scheduler = (cpu_ms(pid)? - begun) / 1e3;
        let percent =
            |labels: &[_]| 100.0 * metrics.sum("schedspan_overhead_seconds_total", labels) / of_scheduler;
        let daemon = Daemon {
            cpu_ms_per_pod: daemon_cpu_ms / pods,
            resident_mib: resident_mib(schedspan.pid())?,
            lost: metrics.sum("schedspan_losses_total", &[]),
        };
        others.extend([
            (HITS, metrics.sum("schedspan_hits_total", &[]) / attempts),
            (RECORDS, metrics.sum("schedspan_records_total", &[]) / attempts),
            (OVERHEAD, percent(&[])),
            (SAMPLES, percent(&[("part", "samples")])),
            (WINDOWS, percent(&[("part", "exact_windows")])),
            (WINDOWS_PER_1000, 1e3 * windows / attempts),
        ]);
        schedspan.stop()?;
        anyhow::Ok(daemon)
    });
    let daemon = daemon.transpose()?;
    Ok(Round {
        cpu_ms_per_pod,
        etcd_cpu_ms_per_pod,
        computation_us,
        pods_per_second,
        resident_mib: resident_mib(pid)?,
        daemon,
        others,
    })
}

/// Creates Pods at an even pace, and waits until all are bound.
fn create(api: &Api, way: Way, numbers: impl Iterator<Item = u32>, pace: u32) -> Result<()> {
    let pods = numbers.map(|number| {
        let mut pod = pod(&format!("{PODS}{}-{number}", way.name()), "10m");
        if way == Way::InProcess {
            pod["spec"]["schedulerName"] = way.name().into();
        }
        pod
    });
    api.create_pods(pace, pods)?;
    wait_until("all Pods to be bound", BOUND_TIMEOUT, || {
        thread::sleep(INTERVAL);
        Ok((waiting(api)? == 0).then_some(()))
    })
}

/// The number of Pods without a Node.
fn waiting(api: &Api) -> Result<usize> {
    let list = api.get("/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3D")?;
    Ok(list["items"].as_array().map_or(0, Vec::len))
}
