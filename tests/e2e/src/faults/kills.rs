//! schedspan is killed at any moment of attaching, tracing and ending.

use std::{
    collections::BTreeSet,
    env, fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{schedspan::Schedspan, stage::Stage};
use rustix::process::Signal;

use super::{
    TIMEOUT, load,
    sites::{Sites, kernel_gave_up},
};

/// Sets the number of kills.
const VARIABLE: &str = "SCHEDSPAN_KILLS";
const KILLS: u32 = 20;
/// The time in which the scheduler runs without schedspan, to learn its usual log.
const CONTROL: Duration = Duration::from_secs(5);
/// The time in which schedspan ends after SIGTERM.
const ENDING: Duration = Duration::from_millis(100);

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let kills = match env::var(VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{VARIABLE}={text} is not a number"))?,
        Err(_) => KILLS,
    };
    let log = stage.cluster.scheduler()?.log;
    let ((errors_before, removed), created) = load::during(stage, "kill", || {
        thread::sleep(CONTROL);
        let errors = errors(&log)?;
        let sites = Sites::of(stage)?;
        let traced = first(stage, &sites)?;
        let (mut given_up, mut removed) = (kernel_gave_up()?, 0);
        for number in 1..kills {
            // Two of three are killed while they attach or trace, the third while it ends.
            let (schedspan, within) = if number % 3 == 0 {
                let schedspan = stage.trace()?;
                schedspan.signal(Signal::TERM)?;
                (schedspan, ENDING)
            } else {
                (Schedspan::spawn(&stage.options()?)?, traced * 2)
            };
            thread::sleep(within.mul_f64(moment(number)));
            drop(schedspan);
            removed += u32::from(sites.wait_for_none_after_kill(stage, &mut given_up)?);
        }
        Ok((errors, removed))
    })?;
    // The same processes as before, by pid and start time.
    stage.cluster.check()?;
    let new: Vec<_> = errors(&log)?.difference(&errors_before).cloned().collect();
    ensure!(new.is_empty(), "the scheduler logged errors: {}", new.join("; "));
    println!(
        "         {kills} times killed, {created} Pods bound, no probe left ({removed} times the next schedspan removed them), no error \
         in the scheduler's log"
    );
    Ok(())
}

/// Kills schedspan once it traces attempts. Returns the time from its start until then.
fn first(stage: &Stage, sites: &Sites) -> Result<Duration> {
    let start = Instant::now();
    let mut schedspan = stage.trace()?;
    schedspan.wait_for("schedspan to trace attempts", TIMEOUT, |metrics| {
        metrics.sum("schedspan_attempts_total", &[]) > 0.0
    })?;
    let took = start.elapsed();
    sites.all_probed()?;
    drop(schedspan);
    sites.wait_for_none()?;
    Ok(took)
}

/// A fraction of a whole that differs from all earlier ones: multiples of the golden ratio are spread evenly.
fn moment(number: u32) -> f64 {
    const GOLDEN_RATIO: f64 = 0.618_033_988_749_895;
    (f64::from(number) * GOLDEN_RATIO).fract()
}

/// The places of errors in the scheduler's log, as `file.go:line`.
fn errors(log: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(log)?;
    let is_error =
        |line: &&str| line.starts_with('E') && line[1..].starts_with(|digit: char| digit.is_ascii_digit());
    let place =
        |line: &str| line.split(']').next().and_then(|head| head.split(' ').next_back()).map(str::to_owned);
    Ok(text.lines().filter(is_error).filter_map(place).collect())
}
