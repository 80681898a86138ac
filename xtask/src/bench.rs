//! `cargo xtask bench`: what tracing costs the scheduler.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use crate::{
    build,
    cluster::{self, Api, pod, wait_until},
    process,
    schedspan::{self, Schedspan},
    setup,
    stage::Stage,
};

/// Requests a second that the scheduler may send: never what holds it back.
const QPS: u32 = 5000;
/// How long all Pods of a round may take to be bound.
const BOUND_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at the Pods that are not bound.
const INTERVAL: Duration = Duration::from_millis(200);
/// From the last binding until the CPU time is read: the scheduler's own work on events is part of it.
const SETTLE: Duration = Duration::from_secs(1);
/// Readings of how long `inspect` takes.
const INSPECTIONS: usize = 5;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Pairs of an untraced and a traced round
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Nodes of the cluster
    #[arg(long, default_value_t = 1000)]
    nodes: u32,
    /// Pods in a round
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,
    /// Pods created in a second: less than the scheduler can do, or the figures show the saturation
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pace: u32,
    /// How much is asked of the scheduler: phases, plugins or full
    #[arg(long, default_value = "full", value_name = "LEVEL")]
    detail: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// What a round measured.
#[derive(Serialize)]
struct Round {
    /// CPU time of the scheduler, milliseconds.
    cpu_ms_per_pod: f64,
    pods_per_second: f64,
    daemon: Option<Daemon>,
}

/// What the daemon itself took.
#[derive(Serialize)]
struct Daemon {
    cpu_ms_per_pod: f64,
    resident_mib: f64,
    hits_per_attempt: f64,
    records_per_attempt: f64,
    lost: f64,
}

/// Several readings of one thing.
#[derive(Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// What several readings of a ratio come to.
#[derive(Debug, PartialEq, Serialize)]
struct Mean {
    /// Geometric: a ratio and its inverse come to one, so that noise does not look like a cost.
    mean: f64,
    /// How far off the mean is to be expected, as a part of it; `None` for a single reading.
    standard_error: Option<f64>,
}

#[derive(Serialize)]
struct Report {
    nodes: u32,
    pods: u32,
    pace: u32,
    detail: String,
    rounds: u32,
    cpu_ms_per_pod_untraced: Spread,
    cpu_ms_per_pod_traced: Spread,
    /// Traced to untraced, of the two rounds of a pair.
    cpu_ratio: Spread,
    /// Of the same ratios.
    cpu_ratio_mean: Mean,
    pods_per_second_untraced: Spread,
    pods_per_second_traced: Spread,
    daemon_cpu_ms_per_pod: Spread,
    daemon_resident_mib: Spread,
    hits_per_attempt: Spread,
    records_per_attempt: Spread,
    lost: f64,
    sites_emulated: usize,
    sites_single_stepped: usize,
    inspect_ms: Spread,
}

pub(crate) fn main(options: &Options) -> Result<()> {
    setup::ensure()?;
    let executable = build::build()?;
    let cluster = cluster::Options {
        nodes: options.nodes,
        scheduler_qps: Some(QPS),
        no_controllers: true,
        ..cluster::Options::default()
    };
    Stage::play(&cluster, &executable, |stage| {
        eprintln!("round    0 of {}: warm-up, thrown away", options.rounds);
        round(stage, options, true)?;
        let (mut untraced, mut traced) = (Vec::new(), Vec::new());
        for number in 1..=options.rounds {
            // Each kind is the first one as often as the other: what drifts hits both.
            let first = number % 2 == 0;
            for tracing in [first, !first] {
                let round = round(stage, options, tracing)?;
                let kind = if tracing { "traced" } else { "untraced" };
                let Round { cpu_ms_per_pod, pods_per_second, .. } = &round;
                eprintln!(
                    "round    {number} of {}: {kind:<8} {cpu_ms_per_pod:.3} ms of CPU a Pod, {pods_per_second:.1} Pods/s",
                    options.rounds
                );
                if tracing { &mut traced } else { &mut untraced }.push(round);
            }
        }
        let report = report(stage, options, &untraced, &traced)?;
        match options.output {
            Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
            Output::Table => print_table(&report),
        }
        ensure!(report.lost == 0.0, "{} things were lost", report.lost);
        Ok(())
    })
}

/// Creates Pods at an even pace until all are bound, and deletes them.
fn round(stage: &Stage, options: &Options, tracing: bool) -> Result<Round> {
    let api = stage.cluster.api()?;
    let scheduler = stage.cluster.scheduler()?.pid.cast_unsigned();
    let pods = f64::from(options.pods);
    let arguments: &[&str] = &["--detail", &options.detail];
    let trace = || Schedspan::start(&schedspan::Options { arguments, ..stage.options()? });
    let schedspan = tracing.then(trace).transpose()?;
    let daemon_before = schedspan.as_ref().map(|schedspan| cpu_ms(schedspan.pid())).transpose()?;
    let before = cpu_ms(scheduler)?;
    let start = Instant::now();
    for number in 0..options.pods {
        let due = Duration::from_secs(1) * number / options.pace;
        thread::sleep(due.saturating_sub(start.elapsed()));
        api.create_pod("default", &pod(&format!("bench-{number}"), "10m"))?;
    }
    wait_until("all Pods to be bound", BOUND_TIMEOUT, || {
        thread::sleep(INTERVAL);
        Ok((waiting(&api)? == 0).then_some(()))
    })?;
    let pods_per_second = pods / start.elapsed().as_secs_f64();
    thread::sleep(SETTLE);
    let cpu_ms_per_pod = (cpu_ms(scheduler)? - before) / pods;

    let daemon = schedspan.zip(daemon_before).map(|(schedspan, before)| {
        let metrics = schedspan.metrics()?;
        let attempts = metrics.sum("schedspan_attempts_total", &[]);
        ensure!(attempts >= pods, "only {attempts} attempts of {pods} were traced");
        let daemon = Daemon {
            cpu_ms_per_pod: (cpu_ms(schedspan.pid())? - before) / pods,
            resident_mib: process::resident(schedspan.pid()).context("schedspan has ended")? as f64
                / f64::from(1 << 20),
            hits_per_attempt: metrics.sum("schedspan_hits_total", &[]) / attempts,
            records_per_attempt: metrics.sum("schedspan_records_total", &[]) / attempts,
            lost: metrics.sum("schedspan_losses_total", &[]),
        };
        schedspan.stop()?;
        anyhow::Ok(daemon)
    });
    api.delete_pods("bench-")?;
    Ok(Round { cpu_ms_per_pod, pods_per_second, daemon: daemon.transpose()? })
}

/// How many Pods have no Node.
fn waiting(api: &Api) -> Result<usize> {
    let list = api.get("/api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3D")?;
    Ok(list["items"].as_array().map_or(0, Vec::len))
}

/// CPU time of a process, over the threads that it has: Go's and tokio's workers do not end. `/proc/PID/stat` would know
/// of ended ones, too, but counts in steps of 10 ms.
fn cpu_ms(pid: u32) -> Result<f64> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // One that has ended since is missing from the next reading as well.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let time = text.split(' ').next().and_then(|word| word.parse::<u64>().ok());
        nanoseconds += time.with_context(|| format!("/proc/{pid}/task/*/schedstat begins with no number"))?;
    }
    ensure!(nanoseconds > 0, "process {pid} has no schedstat: it needs a kernel with CONFIG_SCHED_INFO");
    Ok(nanoseconds as f64 / 1e6)
}

fn report(stage: &Stage, options: &Options, untraced: &[Round], traced: &[Round]) -> Result<Report> {
    let Options { output: _, rounds, nodes, pods, pace, ref detail } = *options;
    let spread_of = |rounds: &[Round], value: fn(&Round) -> f64| Spread::of(rounds.iter().map(value));
    let daemons: Vec<_> = traced.iter().filter_map(|round| round.daemon.as_ref()).collect();
    let spread_of_daemon = |value: fn(&Daemon) -> f64| Spread::of(daemons.iter().map(|daemon| value(daemon)));
    let pairs = traced.iter().zip(untraced);
    let ratios: Vec<_> =
        pairs.map(|(traced, untraced)| traced.cpu_ms_per_pod / untraced.cpu_ms_per_pod).collect();

    let executable = stage.cluster.scheduler()?.executable;
    let mut inspect = Command::new(&stage.executable);
    inspect.args(["inspect", "--output", "json"]).arg(executable);
    let (mut plan, mut times) = (Value::Null, Vec::new());
    for _ in 0..INSPECTIONS {
        let start = Instant::now();
        plan = serde_json::from_str(&process::output(&mut inspect)?)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let sites = |class: &str| {
        plan["sites"].as_array().into_iter().flatten().filter(|site| site["class"] == class).count()
    };
    Ok(Report {
        nodes,
        pods,
        pace,
        detail: detail.clone(),
        rounds,
        cpu_ms_per_pod_untraced: spread_of(untraced, |round| round.cpu_ms_per_pod),
        cpu_ms_per_pod_traced: spread_of(traced, |round| round.cpu_ms_per_pod),
        cpu_ratio_mean: Mean::of(&ratios),
        cpu_ratio: Spread::of(ratios),
        pods_per_second_untraced: spread_of(untraced, |round| round.pods_per_second),
        pods_per_second_traced: spread_of(traced, |round| round.pods_per_second),
        daemon_cpu_ms_per_pod: spread_of_daemon(|daemon| daemon.cpu_ms_per_pod),
        daemon_resident_mib: spread_of_daemon(|daemon| daemon.resident_mib),
        hits_per_attempt: spread_of_daemon(|daemon| daemon.hits_per_attempt),
        records_per_attempt: spread_of_daemon(|daemon| daemon.records_per_attempt),
        lost: daemons.iter().map(|daemon| daemon.lost).sum(),
        sites_emulated: sites("emulated"),
        sites_single_stepped: sites("single-stepped"),
        inspect_ms: Spread::of(times),
    })
}

impl Spread {
    /// Of one reading at least.
    fn of(readings: impl IntoIterator<Item = f64>) -> Self {
        let mut readings: Vec<_> = readings.into_iter().collect();
        readings.sort_by(f64::total_cmp);
        let last = readings.len() - 1;
        let median = f64::midpoint(readings[last / 2], readings[last.div_ceil(2)]);
        Self { median, min: readings[0], max: readings[last] }
    }
}

impl Mean {
    /// Of one ratio at least.
    fn of(ratios: &[f64]) -> Self {
        let count = ratios.len() as f64;
        let mean = ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count;
        let squares: f64 = ratios.iter().map(|ratio| (ratio.ln() - mean).powi(2)).sum();
        let standard_error = (ratios.len() > 1).then(|| (squares / (count - 1.0) / count).sqrt());
        Self { mean: mean.exp(), standard_error }
    }
}

fn print_table(report: &Report) {
    let Report { nodes, pods, pace, detail, rounds, lost, sites_emulated, sites_single_stepped, .. } = report;
    println!(
        "{nodes} Nodes, {pods} Pods a round at {pace} a second, {rounds} pairs of rounds, --detail {detail}"
    );
    println!("{:<40} {:>10} {:>10} {:>10}", "", "MEDIAN", "MIN", "MAX");
    let rows = [
        ("scheduler CPU ms/Pod, untraced", &report.cpu_ms_per_pod_untraced),
        ("scheduler CPU ms/Pod, traced", &report.cpu_ms_per_pod_traced),
        ("traced / untraced, by pairs", &report.cpu_ratio),
        ("Pods/s, untraced", &report.pods_per_second_untraced),
        ("Pods/s, traced", &report.pods_per_second_traced),
        ("schedspan CPU ms/Pod", &report.daemon_cpu_ms_per_pod),
        ("schedspan resident MiB", &report.daemon_resident_mib),
        ("hits/attempt", &report.hits_per_attempt),
        ("records/attempt", &report.records_per_attempt),
        ("inspect ms", &report.inspect_ms),
    ];
    for (name, Spread { median, min, max }) in rows {
        println!("{name:<40} {median:>10.3} {min:>10.3} {max:>10.3}");
    }
    let Mean { mean, standard_error } = &report.cpu_ratio_mean;
    let error = standard_error.map(|error| format!(", standard error {error:.3}")).unwrap_or_default();
    println!("traced / untraced, geometric mean: {mean:.3}{error}");
    println!("sites: {sites_emulated} emulated, {sites_single_stepped} single-stepped; lost: {lost}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let Spread { median, min, max } = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!((median, min, max), (2.5, 1.0, 4.0));
        assert_eq!(Spread::of([7.0]).median, 7.0);
    }

    #[test]
    fn noise_on_both_sides_is_no_cost() {
        let Mean { mean, standard_error } = Mean::of(&[0.5, 2.0, 1.0]);
        assert!((mean - 1.0).abs() < 1e-12, "{mean}");
        // The logarithms are -0.693, 0.693 and 0.
        assert!((standard_error.unwrap_or_default() - 0.4002).abs() < 1e-4, "{standard_error:?}");
        assert_eq!(Mean::of(&[1.5]).standard_error, None);
    }

    #[test]
    fn the_cpu_time_of_a_busy_process_grows() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = cpu_ms(busy.id()).unwrap_or_default();
        let grown = wait_until("CPU time to pass", Duration::from_secs(10), || {
            Ok(cpu_ms(busy.id()).is_ok_and(|now| now > before).then_some(()))
        });
        busy.kill().unwrap();
        busy.wait().unwrap();
        grown.unwrap();
    }
}
