//! Which processes are traced, and what these can do: programs with a scheduler's functions are not opened unless a rule
//! names them; those that are named take neither room nor records of the scheduler's.

use std::{
    mem::MaybeUninit,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, pod},
    metrics::Metrics,
    schedspan::{Options, Schedspan},
    spans,
    stage::Stage,
    wait::wait_until,
};
use rustix::{
    fd::OwnedFd,
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
    process::Signal,
};
use serde_json::Value;

use super::fakes::{Does, Fake, Model, UNPRIVILEGED};
use crate::checks::nothing_lost;

pub(crate) const NODES: u32 = 20;
const TRUST: &str = "SCHEDSPAN_TRUST";
/// The rules that are in force if none is given, but for `root`, which would name the schedulers of other runs on this machine.
const DEFAULT: &str = "static-pods,namespace=kube-system,own-namespace,services";
/// So many fakes filled the table of sites.
const IDLE: usize = 9;
const PODS: usize = 100;
/// So few that their records are less than a process's share of the ring buffer.
const PODS_IN_PAUSE: usize = 10;
/// The fake's shares of this time would fill the ring buffer.
const PAUSE: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which the daemon looks at a new process.
const LOOKS: Duration = Duration::from_secs(2);
/// The function whose probe is hit in a loop: it reads nothing, so its records are the quickest.
const FLOODED: &str = "snapshot";

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let scheduler = stage.cluster.scheduler()?.executable;
    let model = Model::of(&scheduler, &stage.executable)?;
    strangers(stage, &model).context("strangers")?;
    room(stage, &model).context("room for all")?;
    flood(stage, &model).context("flood")
}

/// Fakes of another user are not opened, whatever is in them; and they are told of.
fn strangers(stage: &Stage, model: &Model) -> Result<()> {
    let fakes = idle(model, UNPRIVILEGED)?;
    let watched = Watched::of(&fakes)?;
    let rules = format!("{DEFAULT},parent={}", stage.cluster.scheduler()?.pid);
    let mut schedspan = Schedspan::start(&Options { environment: &[(TRUST, &rules)], ..stage.options()? })?;
    untrusted(&mut schedspan, IDLE)?;
    let metrics = scheduled(stage, &mut schedspan, "strangers")?;
    let traced = metrics.sum("schedspan_schedulers", &[]);
    ensure!(traced == 1.0, "{traced} schedulers are traced instead of one");
    ensure!(metrics.sum("schedspan_schedulers_refused", &[]) == 0.0, "a stranger is refused, not ignored");
    nothing_lost(&metrics)?;
    let log = schedspan.log()?;
    for fake in &fakes {
        let pid = format!("pid={} ", fake.pid());
        let lines: Vec<_> =
            log.lines().filter(|line| line.contains(&pid) || line.ends_with(pid.trim_end())).collect();
        ensure!(
            matches!(lines[..], [line] if line.contains("is not traced") && line.contains("--trust user=65534")),
            "not one line tells of {pid}: {lines:?}"
        );
    }
    schedspan.stop()?;
    let opened = watched.count()?;
    ensure!(opened == 0, "executables of strangers were opened {opened} times");

    // A trusted process is opened, and the test can see that.
    let schedspan = stage.trace()?;
    schedspan.stop()?;
    ensure!(watched.count()? > 0, "nothing opens a file: is it watched rightly?");
    println!("         {IDLE} fakes of another user: not opened, told of once");
    Ok(())
}

/// As many fakes as filled all tables are traced, and so is a scheduler that starts after them.
fn room(stage: &mut Stage, model: &Model) -> Result<()> {
    let _fakes = idle(model, "0")?;
    // Processes are looked at by pid: the fakes come first.
    stage.cluster.restart_scheduler()?;
    let mut schedspan = stage.trace()?;
    schedspan.wait_for("all to be traced", TIMEOUT, |metrics| {
        metrics.sum("schedspan_schedulers", &[]) == (IDLE + 1) as f64
    })?;
    let metrics = scheduled(stage, &mut schedspan, "room")?;
    let refused = metrics.sum("schedspan_schedulers_refused", &[]);
    ensure!(refused == 0.0, "{refused} processes are refused");
    nothing_lost(&metrics)?;
    println!("         {IDLE} trusted fakes and the scheduler: all are traced");
    schedspan.stop()
}

/// A fake that hits a probe in a loop loses its own records only, also while the daemon reads none.
fn flood(stage: &Stage, model: &Model) -> Result<()> {
    let fake = model.start("flooding-scheduler", Does::Hits(FLOODED), "0")?;
    let mut schedspan = stage.trace()?;
    schedspan.wait_for("both to be traced, and the fake to be over its limit", TIMEOUT, |metrics| {
        metrics.sum("schedspan_schedulers", &[]) == 2.0 && over_limit(metrics) > 0.0
    })?;
    // Until the scheduler was traced too, the whole buffer was the fake's.
    let before = ring_full(&schedspan.metrics()?);
    scheduled(stage, &mut schedspan, "flood")?;
    schedspan.signal(Signal::STOP)?;
    let scheduled = create(stage, "pause", PODS_IN_PAUSE);
    sleep(PAUSE);
    schedspan.signal(Signal::CONT)?;
    scheduled?;
    check_whole(stage, "pause", PODS_IN_PAUSE)?;
    let metrics = schedspan.metrics()?;
    let full = ring_full(&metrics) - before;
    ensure!(full == 0.0, "the ring buffer was full {full} times");
    let log = schedspan.log()?;
    let told: Vec<_> = log.lines().filter(|line| line.contains("makes more than its limit")).collect();
    ensure!(
        matches!(told[..], [line] if line.contains(&format!("pid={}", fake.pid()))),
        "not one line names the fake: {told:?}"
    );
    drop(fake);
    schedspan.stop()?;
    println!(
        "         {} hits of a fake are over its limit; {PODS} attempts of the scheduler are whole, and so are \
         {PODS_IN_PAUSE} while the daemon was stopped for {PAUSE:?}",
        over_limit(&metrics)
    );
    Ok(())
}

fn ring_full(metrics: &Metrics) -> f64 {
    metrics.sum("schedspan_losses_total", &[("cause", "ring_full")])
}

fn over_limit(metrics: &Metrics) -> f64 {
    metrics.sum("schedspan_losses_total", &[("cause", "over_limit")])
}

/// Starts fakes that wait.
fn idle(model: &Model, user: &str) -> Result<Vec<Fake>> {
    (0..IDLE)
        .map(|number| model.start(&format!("kube-scheduler-{user}-{number}"), Does::Waits, user))
        .collect()
}

fn untrusted(schedspan: &mut Schedspan, number: usize) -> Result<()> {
    schedspan.wait_for("strangers to be counted", TIMEOUT, |metrics| {
        // There may be schedulers of other runs.
        metrics.sum("schedspan_schedulers_untrusted", &[]) >= number as f64
    })
}

/// Schedules Pods: each has one attempt, which is whole. Returns the metrics after that.
pub(super) fn scheduled(stage: &Stage, schedspan: &mut Schedspan, prefix: &str) -> Result<Metrics> {
    create(stage, prefix, PODS)?;
    check_whole(stage, prefix, PODS)?;
    schedspan.metrics()
}

/// Creates Pods, and waits until they are bound.
fn create(stage: &Stage, prefix: &str, number: usize) -> Result<()> {
    let api = stage.cluster.api()?;
    for number in 0..number {
        api.create_pod("default", &pod(&format!("{prefix}-{number}"), "10m"))?;
    }
    api.wait_for_pods("all Pods to be bound", |pods| {
        let name = |pod: &Value| pod["metadata"]["name"].as_str().is_some_and(|name| is_of(name, prefix));
        pods.iter().filter(|pod| name(pod) && is_bound(pod)).count() == number
    })?;
    Ok(())
}

/// Waits for the spans of so many Pods' attempts, and checks that each is whole.
fn check_whole(stage: &Stage, prefix: &str, number: usize) -> Result<()> {
    let whole = wait_until("the spans of all attempts", TIMEOUT, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        let roots: Vec<_> =
            spans.into_iter().filter(|span| span.is_root() && is_of(&span.pod(), prefix)).collect();
        Ok((roots.len() >= number).then_some(roots))
    })?;
    ensure!(whole.len() == number, "{} attempts of {number} Pods", whole.len());
    for span in &whole {
        ensure!(!span.is_incomplete(), "the attempt of {} is incomplete", span.pod());
        ensure!(span.attribute("k8s.scheduler.result") == "Success", "{} is not scheduled", span.pod());
    }
    Ok(())
}

fn is_of(pod: &str, prefix: &str) -> bool {
    pod.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-'))
}

/// Counts who opens files.
pub(super) struct Watched(OwnedFd);

impl Watched {
    pub(super) fn of(fakes: &[Fake]) -> Result<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        for fake in fakes {
            inotify::add_watch(&events, &fake.executable, WatchFlags::OPEN | WatchFlags::ACCESS)?;
        }
        Ok(Self(events))
    }

    /// Waits until somebody opens or reads one; not for ever, since that may have been before.
    pub(super) fn wait(&self) -> Result<()> {
        let end = Instant::now() + LOOKS;
        while self.count()? == 0 && Instant::now() < end {
            sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Events since the last call.
    fn count(&self) -> Result<usize> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        let mut count = 0;
        loop {
            match reader.next() {
                Ok(event) => {
                    count += usize::from(event.events().intersects(ReadFlags::OPEN | ReadFlags::ACCESS));
                }
                Err(Errno::AGAIN) => return Ok(count),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
