//! `schedspan profile` of a stripped scheduler says what the scheduler's own profiler says of the same seconds, as
//! `go tool pprof` reads both.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, pod},
    http,
    stage::Stage,
};
use xtask::{go::Go, process};

/// Many Nodes, so that Filter and Score have something to do.
pub(super) const NODES: u32 = 200;
/// How long both profilers look.
const SECONDS: u32 = 20;
/// Functions of either profile that are compared, those with the most CPU time.
const TOP: usize = 10;
/// The difference that is allowed between the two shares of a function, in points, if chance does not explain more.
const LIMIT: f64 = 3.0;
/// Standard errors that chance may make: it makes more in one of thirty thousand comparisons.
const CHANCE: f64 = 4.0;
/// Samples that a share needs in order to say anything.
const LEAST: u64 = 300;
/// A bound of the load: more than are scheduled in the time.
const PODS: usize = 15_000;

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let scheduler = stage.cluster.scheduler()?;
    let dir = stage.cluster.dir();
    let own = scheduler.metrics_url.replace("/metrics", &format!("/debug/pprof/profile?seconds={SECONDS}"));
    let agent = http::agent(&stage.cluster.certificates())?;
    let (ours, theirs) = (dir.join("schedspan.pprof"), dir.join("scheduler.pprof"));

    during_load(&api, || {
        let mut profiler = Profiler::start(&stage.executable, scheduler.pid, "pprof", &ours)?;
        let answer = agent
            .get(&own)
            .call()
            .and_then(|mut answer| answer.body_mut().with_config().limit(u64::MAX).read_to_vec());
        fs::write(&theirs, answer.with_context(|| format!("cannot read {own}"))?)?;
        profiler.end()
    })?;

    let (ours, theirs) = (Shares::read(&ours)?, Shares::read(&theirs)?);
    for (name, shares) in [("schedspan", &ours), ("the scheduler", &theirs)] {
        ensure!(shares.samples >= LEAST, "{name} took {} samples: too few to compare", shares.samples);
    }
    let (mut worst, mut compared) = ((0.0, String::new()), 0);
    for (name, _) in theirs.top().chain(ours.top()) {
        let allowed = LIMIT.max(CHANCE * ours.error_beside(&theirs, name));
        let (ours, theirs) = (ours.of(name), theirs.of(name));
        ensure!(
            (ours - theirs).abs() <= allowed,
            "{name} has {ours:.1} % of the CPU time by schedspan, and {theirs:.1} % by the scheduler's own profile"
        );
        compared += 1;
        if (ours - theirs).abs() > worst.0 {
            worst = ((ours - theirs).abs(), name.to_owned());
        }
    }
    let (points, function) = worst;
    println!(
        "         {compared} shares of functions agree, of {} and {} samples; the largest difference is {points:.1} points, {function}",
        ours.samples, theirs.samples
    );
    Ok(())
}

/// Writes a profile of the scheduler under load.
pub(crate) fn taken(stage: &Stage, api: &Api, output: &str, file: &Path) -> Result<()> {
    let pid = stage.cluster.scheduler()?.pid;
    during_load(api, || Profiler::start(&stage.executable, pid, output, file)?.end())
}

/// Does this while Pods are created.
fn during_load(api: &Api, what: impl FnOnce() -> Result<()>) -> Result<()> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| create_until(api, &done));
        let result = what();
        done.store(true, Ordering::Relaxed);
        let created = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        println!("         {created} Pods in {SECONDS} s");
        result
    })
}

/// Creates Pods, one after the other, until the profiles are done.
fn create_until(api: &Api, done: &AtomicBool) -> Result<usize> {
    for number in 0..PODS {
        if done.load(Ordering::Relaxed) {
            return Ok(number);
        }
        api.create_pod("default", &pod(&format!("profiled-{number}"), "1m"))?;
    }
    Ok(PODS)
}

/// A running `schedspan profile`, killed if the test ends before it.
struct Profiler(Child);

impl Profiler {
    fn start(executable: &Path, pid: i32, output: &str, file: &Path) -> Result<Self> {
        let seconds = format!("{SECONDS}s");
        let child = Command::new(executable)
            .args(["profile", &pid.to_string(), "--duration", &seconds, "--output", output, "--file"])
            .arg(file)
            .stdout(Stdio::null())
            .spawn();
        child.map(Self).with_context(|| format!("cannot start {}", executable.display()))
    }

    fn end(&mut self) -> Result<()> {
        let status = self.0.wait()?;
        ensure!(status.success(), "`schedspan profile` failed: {status}");
        Ok(())
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Where CPU time goes: functions by their own samples.
struct Shares {
    samples: u64,
    functions: BTreeMap<String, u64>,
}

impl Shares {
    /// Reads a profile through `go tool pprof`. A function that Go inlined counts for its caller, as in a stripped executable.
    fn read(file: &Path) -> Result<Self> {
        let text = process::output(
            Command::new(Go::Machine.executable()?)
                .args(["tool", "pprof", "-top", "-noinlines", "-nodefraction=0", "-nodecount=100000"])
                .args(["-sample_index=samples", "-symbolize=none"])
                .arg(file),
        )?;
        let mut functions = BTreeMap::new();
        // flat flat% sum% cum cum% name
        let rows = text.lines().skip_while(|line| line.split_whitespace().next() != Some("flat")).skip(1);
        for row in rows {
            let mut words = row.split_whitespace();
            let flat = words.next().and_then(|flat| flat.parse::<u64>().ok());
            let flat = flat.with_context(|| format!("`{row}` of {} has no number", file.display()))?;
            let name: Vec<_> = words.skip(4).collect();
            *functions.entry(name.join(" ")).or_default() += flat;
        }
        Ok(Self { samples: functions.values().sum(), functions })
    }

    /// Those with the most samples.
    fn top(&self) -> impl Iterator<Item = (&str, u64)> {
        let mut all: Vec<_> = self.functions.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        all.into_iter().take(TOP)
    }

    /// The standard error of the difference between the two shares of a function, if they are equal, in points.
    fn error_beside(&self, other: &Self, name: &str) -> f64 {
        let share = f64::midpoint(self.of(name), other.of(name));
        let per_sample = 1.0 / self.samples.max(1) as f64 + 1.0 / other.samples.max(1) as f64;
        (share * (100.0 - share) * per_sample).sqrt()
    }

    /// A function's share of all samples, in percent.
    fn of(&self, name: &str) -> f64 {
        100.0 * self.functions.get(name).copied().unwrap_or_default() as f64 / self.samples.max(1) as f64
    }
}
