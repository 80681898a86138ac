//! The Collector is away while Pods come: nothing is lost with a spool and, without one, exactly what the queue cannot hold. A daemon
//! that is killed with a full spool loses nothing more.

use std::{
    env, fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    metrics::Metrics,
    schedspan::{Options, Schedspan},
    stage::Stage,
};
use xtask::process;

use super::{
    PROTOCOLS, TIMEOUT,
    certificates::Files,
    collector::{Place, Security},
    lost, sent,
};
use crate::faults::load;

/// Sets how long the Collector is away.
const VARIABLE: &str = "SCHEDSPAN_OUTAGE_SECONDS";
const SECONDS: u64 = 8;
/// The time under load before that, to learn the memory that is in use anyway.
const CONTROL: Duration = Duration::from_secs(4);
/// Spans and bytes that the queue holds by default; less, so that a short outage fills it.
const QUEUE: u64 = 65_536;
const QUEUE_BYTES: u64 = 32 << 20;
const QUEUE_PER_SECOND: u64 = 400;
/// A full queue has no room for a trace: fewer spans or bytes than those of a large one.
const TRACE: f64 = 200.0;
const TRACE_BYTES: f64 = 100_000.0;
/// Spans that arrive in a second once the Collector is back, at least.
const DRAINED_PER_SECOND: f64 = 2_000.0;

/// How spans wait.
struct Way {
    name: &'static str,
    protocol: &'static str,
    /// The size of the spool, if there is one.
    spool: Option<&'static str>,
    /// What is lost, if the outage is long enough for that.
    loses: Option<&'static str>,
    /// Whether the daemon is killed before the Collector comes back.
    killed: bool,
}

const WAYS: [Way; 3] = [
    Way {
        name: "memory",
        protocol: PROTOCOLS[0],
        spool: None,
        loses: Some("export_queue_full"),
        killed: false,
    },
    Way { name: "spool", protocol: PROTOCOLS[1], spool: Some("4GiB"), loses: None, killed: false },
    Way {
        name: "full spool",
        protocol: PROTOCOLS[0],
        spool: Some("1MiB"),
        loses: Some("spool_full"),
        killed: true,
    },
];

/// A daemon with a Collector of its own.
struct Traced {
    way: &'static Way,
    place: Place,
    schedspan: Schedspan,
}

/// Spans that wait.
#[derive(Clone, Copy)]
struct Waiting {
    queued: f64,
    queued_bytes: f64,
    spooled: f64,
}

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let seconds = match env::var(VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{VARIABLE}={text} is not a number"))?,
        Err(_) => SECONDS,
    };
    let queue = |way: &Way| if way.spool.is_some() { QUEUE } else { QUEUE.min(seconds * QUEUE_PER_SECOND) };
    let files = Files::in_dir(stage.cluster.dir());
    let (mut all, mut collectors) = (Vec::new(), Vec::new());
    for way in &WAYS {
        let place = Place::new(stage.cluster.dir().join(way.name))?;
        place.clear()?;
        collectors.push(place.start(Security::Plain, &files)?);
        all.push(Traced { way, schedspan: way.trace(stage, &place, queue(way))?, place });
    }
    let ((before, took), pods) = load::during(stage, "outage", || {
        thread::sleep(CONTROL);
        let before = all.iter().map(Traced::resident).collect::<Result<Vec<_>>>()?;
        let start = Instant::now();
        for collector in collectors.drain(..) {
            collector.stop()?;
        }
        thread::sleep(Duration::from_secs(seconds));
        Ok((before, start.elapsed()))
    })?;
    let (took, control) = (took.as_secs_f64(), CONTROL.as_secs());
    println!(
        "         no Collector for {took:.0} s; {pods} Pods came in that time and the {control} s before"
    );
    for (traced, before) in all.into_iter().zip(before) {
        let way = traced.way;
        traced.ends(stage, &files, queue(way), before, pods).context(way.name)?;
    }
    Ok(())
}

impl Way {
    fn trace(&self, stage: &Stage, place: &Place, queue: u64) -> Result<Schedspan> {
        let Self { protocol, spool, .. } = *self;
        let (directory, queue) = (place.dir().join("spool").display().to_string(), queue.to_string());
        let arguments = spool.map(|size| ["--spool", &*directory, "--spool-size", size]);
        Schedspan::start(&Options {
            endpoint: place.endpoint(protocol, "localhost", Security::Plain),
            protocol,
            log: place.dir().join("schedspan.log"),
            arguments: arguments.as_ref().map_or(&[], |arguments| arguments),
            environment: &[("OTEL_BSP_MAX_QUEUE_SIZE", &*queue)],
            ..stage.options()?
        })
    }

    /// Checks what waits and what is lost without a Collector.
    fn check(
        &self,
        Waiting { queued, queued_bytes, spooled }: Waiting,
        metrics: &Metrics,
        queue: u64,
    ) -> Result<()> {
        let lost = lost(metrics);
        let of_cause = |cause| metrics.sum("schedspan_losses_total", &[("cause", cause)]);
        let expected = self.loses.map_or(0.0, of_cause);
        ensure!(
            lost == expected && (lost > 0.0) == self.loses.is_some(),
            "{lost} spans are lost, {expected} as expected"
        );
        if self.spool.is_some() {
            ensure!(spooled > 0.0, "no span is in the spool");
        } else {
            let fits = queued <= queue as f64 && queued_bytes <= QUEUE_BYTES as f64;
            let is_full = queued > queue as f64 - TRACE || queued_bytes > QUEUE_BYTES as f64 - TRACE_BYTES;
            ensure!(fits && is_full, "{lost} spans are lost while {queued} wait, {queued_bytes} bytes");
        }
        Ok(())
    }
}

impl Traced {
    fn resident(&self) -> Result<u64> {
        process::resident(self.schedspan.pid()).context("schedspan has ended")
    }

    /// What became of its spans, for people.
    fn account(&self, pods: usize) -> String {
        let Ok(metrics) = self.schedspan.metrics() else { return "it has no metrics".to_owned() };
        let Waiting { queued, spooled, .. } = Waiting::of(&metrics);
        let (attempts, made) = (metrics.sum("schedspan_attempts_total", &[]), made(&metrics));
        let (sent, losses) = (sent(&metrics), metrics.by("schedspan_losses_total", ["cause"]));
        format!(
            "{attempts} attempts of {pods} Pods, {made} spans made, {sent} sent, {queued} in memory, {spooled} on disk, lost: {losses:?}"
        )
    }

    /// The Collector comes back: what waited arrives, and all spans are stored or lost.
    fn ends(mut self, stage: &Stage, files: &Files, queue: u64, before: u64, pods: usize) -> Result<()> {
        let accounted = self.schedspan.wait_for("each span to be accounted for", TIMEOUT, |metrics| {
            let Waiting { queued, spooled, .. } = Waiting::of(metrics);
            metrics.sum("schedspan_attempts_total", &[]) >= pods as f64
                && (self.way.spool.is_none() || queued == 0.0)
                && made(metrics) == sent(metrics) + queued + spooled + lost(metrics)
        });
        accounted.with_context(|| self.account(pods))?;
        let metrics = self.schedspan.metrics()?;
        let waiting = Waiting::of(&metrics);
        self.way.check(waiting, &metrics, queue)?;
        let grown = self.resident()?.saturating_sub(before);
        ensure!(grown <= QUEUE_BYTES, "{grown} bytes more are in use than with a Collector");
        let Self { way, place, mut schedspan } = self;
        let mut of_killed = [0.0; 2];
        if way.killed {
            of_killed = [made(&metrics), lost(&metrics)];
            // With SIGKILL.
            drop(schedspan);
            schedspan = way.trace(stage, &place, queue)?;
        }
        let collector = place.start(Security::Plain, files)?;
        let Waiting { queued, spooled, .. } = waiting;
        let (start, limit) =
            (Instant::now(), Duration::from_secs_f64((queued + spooled) / DRAINED_PER_SECOND));
        schedspan.wait_for("all spans to arrive", TIMEOUT + limit, |metrics| {
            let Waiting { queued, spooled, .. } = Waiting::of(metrics);
            queued + spooled == 0.0
        })?;
        let drained = start.elapsed().as_secs_f64();
        let metrics = schedspan.metrics()?;
        let [made, lost] = [made(&metrics) + of_killed[0], lost(&metrics) + of_killed[1]];
        let peak = process::peak(schedspan.pid()).unwrap_or_default();
        schedspan.stop()?;
        collector.stop()?;
        let stored = place.stored()? as f64;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "         {}: {made} spans made = {stored} stored + {lost} lost; {queued} waited in memory, {spooled} on disk, and arrived \
             in {drained:.1} s; {:.1} MiB in use with a Collector, {:.1} more without, at most {:.1}",
            way.name,
            mib(before),
            mib(grown),
            mib(peak)
        );
        ensure!(stored + lost == made, "{stored} spans are stored and {lost} lost of {made}");
        // It may be large.
        Ok(fs::remove_dir_all(place.dir())?)
    }
}

impl Waiting {
    fn of(metrics: &Metrics) -> Self {
        let gauge = |name: &str| metrics.sum(&format!("schedspan_export_{name}"), &[]);
        Self {
            queued: gauge("queue_spans"),
            queued_bytes: gauge("queue_bytes"),
            spooled: gauge("spool_spans"),
        }
    }
}

fn made(metrics: &Metrics) -> f64 {
    metrics.sum("schedspan_spans_total", &[])
}
