//! `schedspan profile` of a stripped scheduler says what the scheduler's own profiler says of the same seconds, as
//! `go tool pprof` reads both. Divided by result it has the same samples, and each result has some; and an earlier profile can be
//! compared with it.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
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
/// How long a profile is taken that is only looked at.
const SHORT_SECONDS: u32 = 10;
/// One Pod of so many fits on no Node.
const TOO_LARGE: usize = 4;
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

    during_load(&api, "profiled", usize::MAX, || {
        let mut profiler =
            Profiler::start(&stage.executable, scheduler.pid, SECONDS, &["-o", "pprof"], &ours)?;
        let answer = agent
            .get(&own)
            .call()
            .and_then(|mut answer| answer.body_mut().with_config().limit(u64::MAX).read_to_vec());
        fs::write(&theirs, answer.with_context(|| format!("cannot read {own}"))?)?;
        profiler.end()
    })?;

    let first = ours;
    let (ours, theirs) = (Shares::read(&first, &[])?, Shares::read(&theirs, &[])?);
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
    divided(stage, &api, &first)
}

/// Profiles with `--by` while some Pods fit and others do not, and compares with the first profile.
fn divided(stage: &Stage, api: &Api, first: &Path) -> Result<()> {
    let (pid, dir) = (stage.cluster.scheduler()?.pid, stage.cluster.dir());
    let (by_result, by_profile) = (dir.join("by-result.pprof"), dir.join("by-profile.txt"));
    during_load(api, "divided", TOO_LARGE, || {
        let take = |arguments: &[&str], file: &Path| {
            Profiler::start(&stage.executable, pid, SHORT_SECONDS, arguments, file)?.end()
        };
        take(&["--by", "result", "-o", "pprof"], &by_result)?;
        take(&["--by", "profile"], &by_profile)
    })?;

    let all = Shares::read(&by_result, &[])?.samples;
    let mut of_groups = Shares::read(&by_result, &["-tagignore=result=."])?.samples;
    let mut said = Vec::new();
    for result in ["Success", "Unschedulable", "Error", "unknown"] {
        let samples = Shares::read(&by_result, &[&format!("-tagfocus=result=^{result}$")])?.samples;
        let is_wanted = ["Success", "Unschedulable"].contains(&result);
        ensure!(samples > 0 || !is_wanted, "no sample is of an attempt with the result {result}, of {all}");
        of_groups += samples;
        said.push(format!("{samples} {result}"));
    }
    ensure!(of_groups == all, "the groups have {of_groups} samples, and the profile {all}");

    let text = fs::read_to_string(&by_profile)?;
    let first_line = text.lines().next().unwrap_or_default();
    let all_by_profile = first_line.split_once(": ").and_then(|(_, rest)| rest.split(' ').next());
    let all_by_profile = all_by_profile.and_then(|count| count.parse::<u64>().ok());
    // CPU time, its unit, share, its unit, samples; and of a group attempts, the time of each, its unit, and the name.
    let rows: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("CPU time"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split_whitespace().collect())
        .collect();
    let samples = rows.iter().filter_map(|row| row.get(4)?.parse::<u64>().ok()).sum::<u64>();
    ensure!(Some(samples) == all_by_profile, "the rows of `--by profile` have {samples} samples:\n{text}");
    let own = rows.iter().find(|row| row.last() == Some(&"default-scheduler"));
    let attempts = own.and_then(|row| row.get(5)?.parse::<u64>().ok());
    ensure!(attempts.is_some_and(|attempts| attempts > 0), "`--by profile` counts no attempts:\n{text}");

    let difference = process::output(
        Command::new(&stage.executable).args(["profile", "--from"]).arg(&by_result).arg("--base").arg(first),
    )?;
    ensure!(
        difference.starts_with("then: ") && difference.contains("  filter "),
        "there is no difference of two profiles:\n{difference}"
    );
    println!(
        "         of {all} samples by result: {}; a difference to the first profile is shown",
        said.join(", ")
    );
    Ok(())
}

/// Writes a profile of the scheduler under load.
pub(crate) fn taken(stage: &Stage, api: &Api, output: &str, file: &Path) -> Result<()> {
    let pid = stage.cluster.scheduler()?.pid;
    during_load(api, "profiled", usize::MAX, || {
        Profiler::start(&stage.executable, pid, SECONDS, &["-o", output], file)?.end()
    })
}

/// Does this while Pods with such names are created. One of so many fits on no Node.
fn during_load(api: &Api, name: &str, too_large: usize, what: impl FnOnce() -> Result<()>) -> Result<()> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| create_until(api, name, too_large, &done));
        let start = Instant::now();
        let result = what();
        done.store(true, Ordering::Relaxed);
        let created = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        println!("         {created} Pods in {:.0} s", start.elapsed().as_secs_f64());
        result
    })
}

/// Creates Pods, one after the other, until the profiles are done.
fn create_until(api: &Api, name: &str, too_large: usize, done: &AtomicBool) -> Result<usize> {
    for number in 0..PODS {
        if done.load(Ordering::Relaxed) {
            return Ok(number);
        }
        let cpu = if (number + 1).is_multiple_of(too_large) { "100000" } else { "1m" };
        api.create_pod("default", &pod(&format!("{name}-{number}"), cpu))?;
    }
    Ok(PODS)
}

/// A running `schedspan profile`, killed if the test ends before it.
struct Profiler(Child);

impl Profiler {
    fn start(executable: &Path, pid: i32, seconds: u32, arguments: &[&str], file: &Path) -> Result<Self> {
        let child = Command::new(executable)
            .args(["profile", &pid.to_string(), "--duration", &format!("{seconds}s")])
            .args(arguments)
            .arg("--file")
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
    /// Reads a profile through `go tool pprof`, with these options. A function that Go inlined counts for its caller, as in a stripped executable.
    fn read(file: &Path, options: &[&str]) -> Result<Self> {
        let text = process::output(
            Command::new(Go::Machine.executable()?)
                .args(["tool", "pprof", "-top", "-noinlines", "-nodefraction=0", "-nodecount=100000"])
                .args(["-sample_index=samples", "-symbolize=none"])
                .args(options)
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
