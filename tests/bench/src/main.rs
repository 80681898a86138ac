//! `cargo xtask bench`: what tracing costs the scheduler and the machine, next to spans that the scheduler makes itself.
#![forbid(unsafe_code)]

mod context;
mod draw;
mod histogram;
mod report;
mod webhook;

use std::{
    fs,
    path::PathBuf,
    process::{self as system, ExitCode},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, ValueEnum};
use harness::{
    api::{Api, pod},
    cluster::{self, OwnSpans},
    guard,
    schedspan::{self, Schedspan},
    schedulers::woven,
    spans,
    stage::Stage,
    wait::wait_until,
};
use serde::Serialize;
use serde_json::Value;
use xtask::{build, components::SCHEDULER, paths, process, setup};

use self::report::{Report, Spread};

/// Requests a second that the scheduler may send: never what holds it back.
const QPS: u32 = 5000;
/// How long all Pods of a round may take to be bound.
const BOUND_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at the Pods that are not bound.
const INTERVAL: Duration = Duration::from_millis(200);
/// From the last binding until the CPU time is read: the scheduler's own work on events is part of it. The SDK may still hold
/// a batch of 512 spans, some 13 attempts; one like it is left from the warm-up.
const SETTLE: Duration = Duration::from_secs(1);
/// Pods that are bound before a round is measured: schedspan has just been started, and text that is probed is copied.
const WARM_UP: u32 = 30;
/// The same of the first round, in which the schedulers have just been started.
const FIRST_WARM_UP: u32 = 300;
/// How the Pods' names begin.
const PODS: &str = "bench-";
/// Readings of how long `inspect` takes.
const INSPECTIONS: usize = 5;
/// Where the picture goes.
const PICTURE: &str = "docs/cost.svg";

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Measure what tracing costs the scheduler
    ///
    /// CPU time per Pod, Pods per second, memory and the duration of attempts in several ways, in turns, on a cluster with many
    /// Nodes: untraced, with spans that the scheduler makes itself (`cargo xtask peer`), and traced by schedspan, at each level of
    /// detail that is asked for. Progress on stderr, the result on stdout. Wants an otherwise idle machine. Needs root.
    Bench(Arguments),
    #[command(flatten)]
    Guard(guard::Command),
}

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Subcommand)]
enum What {
    /// Measure what the contexts of Pods take of the daemon in a cluster of 150,000 Pods
    ///
    /// Its memory and CPU time while Pods come and go and its watch is broken each minute; with an attempt that has not got
    /// its context, or with more than 40 MiB, the exit code is 1.
    Context(context::Options),
    /// Measure how long the webhook's answers take
    ///
    /// On a real cluster: reviews over TLS with keep-alive, as the API server sends them, and Pods that the API server makes with
    /// and without. The exit code is 1 if the 99th percentile is not below 2 ms. Wants an otherwise idle machine. Needs root.
    Webhook(webhook::Options),
}

#[derive(clap::Args)]
struct Options {
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Rounds of each way: many short ones, because what else the machine does lasts longer than a round
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Nodes of the cluster
    #[arg(long, default_value_t = 1000)]
    nodes: u32,
    /// Pods in a round
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..))]
    pods: u32,
    /// Pods created in a second: less than the scheduler can do, or the figures show the saturation
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pace: u32,
    /// How much schedspan asks of the scheduler: one level or several, of which each has rounds of its own
    #[arg(long, value_enum, value_delimiter = ',', default_value = "full", value_name = "LEVELS")]
    detail: Vec<Detail>,
    /// Without the scheduler that makes spans itself
    #[arg(long)]
    no_peer: bool,
    /// Draw the result, as docs/cost.svg
    #[arg(long)]
    picture: bool,
    /// Draw an earlier result instead of measuring: what `--output json` printed
    #[arg(long, value_name = "FILE", conflicts_with = "picture")]
    draw: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// As schedspan's own option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Detail {
    Phases,
    Plugins,
    Full,
}

impl Detail {
    const fn name(self) -> &'static str {
        match self {
            Self::Phases => "phases",
            Self::Plugins => "plugins",
            Self::Full => "full",
        }
    }
}

/// Who makes spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Nobody.
    Untraced,
    /// The scheduler, with the OpenTelemetry SDK.
    InProcess,
    /// schedspan, of a scheduler that nobody changed.
    Schedspan(Detail),
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Untraced => "untraced",
            Self::InProcess => "in-process",
            Self::Schedspan(Detail::Full) => "schedspan",
            Self::Schedspan(Detail::Plugins) => "schedspan-plugins",
            Self::Schedspan(Detail::Phases) => "schedspan-phases",
        }
    }
}

/// What a round measured.
#[derive(Default, Serialize)]
struct Round {
    /// CPU time of the scheduler, milliseconds.
    cpu_ms_per_pod: f64,
    /// The same of etcd, which does as much for each Pod whoever makes spans: what makes it slower comes from elsewhere, and
    /// makes the scheduler slower as well.
    etcd_cpu_ms_per_pod: f64,
    pods_per_second: f64,
    /// By the scheduler's own metric.
    attempt_p50_ms: f64,
    attempt_p99_ms: f64,
    resident_mib: f64,
    /// With schedspan only.
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

fn main() -> ExitCode {
    xtask::exit_code(run(&Command::parse()).map(|()| ExitCode::SUCCESS))
}

fn run(command: &Command) -> Result<()> {
    let Arguments { what, options } = match command {
        Command::Bench(arguments) => arguments,
        Command::Guard(command) => return command.run(),
    };
    match what {
        Some(What::Context(options)) => context::main(options),
        Some(What::Webhook(options)) => webhook::main(options),
        None => cost(options),
    }
}

fn cost(options: &Options) -> Result<()> {
    if let Some(file) = &options.draw {
        let text = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
        let report = serde_json::from_slice(&text).with_context(|| format!("`{}`", file.display()))?;
        return draw(&report);
    }
    setup::ensure()?;
    let executable = build::build()?;
    let peer = woven(SCHEDULER.version)?.0.executable()?;
    let mut ways = vec![Way::Untraced];
    ways.extend((!options.no_peer).then_some(Way::InProcess));
    let asked = |detail: &&Detail| options.detail.contains(detail);
    ways.extend(Detail::value_variants().iter().rev().filter(asked).copied().map(Way::Schedspan));
    let cluster = cluster::Options {
        nodes: options.nodes,
        scheduler_qps: Some(QPS),
        no_controllers: true,
        ..cluster::Options::default()
    };
    Stage::play(&cluster, &executable, |stage| {
        if ways.contains(&Way::InProcess) {
            stage.cluster.scheduler_beside(Way::InProcess.name(), &peer, OwnSpans::Exported)?;
        }
        let mut rounds: Vec<(Way, Vec<Round>)> = ways.iter().map(|way| (*way, Vec::new())).collect();
        for number in 0..=options.rounds as usize {
            // Each way comes first, in the middle and last as often as the others: what drifts hits all.
            for place in 0..ways.len() {
                let (way, of_way) = &mut rounds[(number + place) % ways.len()];
                let round = round(stage, options, *way, if number == 0 { FIRST_WARM_UP } else { WARM_UP })?;
                let Round { cpu_ms_per_pod, pods_per_second, .. } = &round;
                let what = if number == 0 { "warm-up, thrown away" } else { way.name() };
                eprintln!(
                    "round    {number} of {}: {what:<20} {cpu_ms_per_pod:.3} ms of CPU a Pod, {pods_per_second:.1} Pods/s",
                    options.rounds
                );
                if number > 0 {
                    of_way.push(round);
                }
            }
            stage.cluster.api()?.delete_pods(PODS)?;
            thread::sleep(SETTLE);
        }
        let report = report(stage, options, &rounds)?;
        match options.output {
            Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
            Output::Table => report.print(),
        }
        if options.picture {
            draw(&report)?;
        }
        ensure!(report.lost == 0.0, "{} things were lost", report.lost);
        Ok(())
    })
}

fn draw(report: &Report) -> Result<()> {
    let file = paths::repository().join(PICTURE);
    fs::write(&file, draw::draw(report)).with_context(|| format!("cannot write `{}`", file.display()))?;
    eprintln!("{}", file.display());
    Ok(())
}

/// Creates Pods at an even pace until all are bound, and deletes them.
fn round(stage: &Stage, options: &Options, way: Way, warm_up: u32) -> Result<Round> {
    let api = stage.cluster.api()?;
    let scheduler = match way {
        Way::InProcess => stage.cluster.scheduler_named(way.name())?,
        // One process for both: nothing else differs, not even where its memory happens to lie.
        Way::Untraced | Way::Schedspan(_) => stage.cluster.scheduler()?,
    };
    let pid = scheduler.pid.cast_unsigned();
    let pods = f64::from(options.pods);
    let schedspan = match way {
        Way::Schedspan(detail) => {
            let arguments: &[&str] = &["--detail", detail.name()];
            Some(Schedspan::start(&schedspan::Options { arguments, ..stage.options()? })?)
        }
        Way::Untraced | Way::InProcess => None,
    };
    let mut made = 0..;
    let mut create = |count| create(&api, way, made.by_ref().take(count as usize), options.pace);
    create(warm_up)?;
    thread::sleep(SETTLE);
    let daemon_before = schedspan.as_ref().map(|schedspan| cpu_ms(schedspan.pid())).transpose()?;
    let attempts = || stage.cluster.metrics_of(&scheduler);
    let etcd = stage.cluster.etcd_pid()?.cast_unsigned();
    let (before, etcd_before, metrics_before) = (cpu_ms(pid)?, cpu_ms(etcd)?, attempts()?);
    let start = Instant::now();
    create(options.pods)?;
    let pods_per_second = pods / start.elapsed().as_secs_f64();
    thread::sleep(SETTLE);
    let cpu_ms_per_pod = (cpu_ms(pid)? - before) / pods;
    let etcd_cpu_ms_per_pod = (cpu_ms(etcd)? - etcd_before) / pods;
    let durations = histogram::between(&metrics_before, &attempts()?);

    let daemon = schedspan.zip(daemon_before).map(|(schedspan, before)| {
        let metrics = schedspan.metrics()?;
        let attempts = metrics.sum("schedspan_attempts_total", &[]);
        ensure!(attempts >= pods, "only {attempts} attempts of {pods} were traced");
        let daemon = Daemon {
            cpu_ms_per_pod: (cpu_ms(schedspan.pid())? - before) / pods,
            resident_mib: resident_mib(schedspan.pid())?,
            hits_per_attempt: metrics.sum("schedspan_hits_total", &[]) / attempts,
            records_per_attempt: metrics.sum("schedspan_records_total", &[]) / attempts,
            lost: metrics.sum("schedspan_losses_total", &[]),
        };
        schedspan.stop()?;
        anyhow::Ok(daemon)
    });
    Ok(Round {
        cpu_ms_per_pod,
        etcd_cpu_ms_per_pod,
        pods_per_second,
        attempt_p50_ms: durations.quantile(0.5) * 1e3,
        attempt_p99_ms: durations.quantile(0.99) * 1e3,
        resident_mib: resident_mib(pid)?,
        daemon: daemon.transpose()?,
    })
}

/// Creates Pods at an even pace, and waits until all are bound.
fn create(api: &Api, way: Way, numbers: impl Iterator<Item = u32>, pace: u32) -> Result<()> {
    let start = Instant::now();
    for (made, number) in (0..).zip(numbers) {
        let due = Duration::from_secs(1) * made / pace;
        thread::sleep(due.saturating_sub(start.elapsed()));
        let mut pod = pod(&format!("{PODS}{}-{number}", way.name()), "10m");
        if way == Way::InProcess {
            pod["spec"]["schedulerName"] = way.name().into();
        }
        api.create_pod("default", &pod)?;
    }
    wait_until("all Pods to be bound", BOUND_TIMEOUT, || {
        thread::sleep(INTERVAL);
        Ok((waiting(api)? == 0).then_some(()))
    })
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

fn resident_mib(pid: u32) -> Result<f64> {
    let bytes = process::resident(pid).with_context(|| format!("process {pid} has ended"))?;
    Ok(bytes as f64 / f64::from(1 << 20))
}

fn report(stage: &Stage, options: &Options, rounds: &[(Way, Vec<Round>)]) -> Result<Report> {
    let mut inspect = system::Command::new(&stage.executable);
    inspect.args(["inspect", "--output", "json"]).arg(SCHEDULER.executable()?);
    let (mut plan, mut times) = (Value::Null, Vec::new());
    for _ in 0..INSPECTIONS {
        let start = Instant::now();
        plan = serde_json::from_str(&process::output(&mut inspect)?)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let single_stepped = single_stepped_hits(stage, &plan)?;
    Ok(Report::of(options, rounds, &plan, single_stepped, Spread::of(times)))
}

/// How many hits of an attempt are on instructions that the kernel single-steps: those of the ends of calls that no emulated
/// instruction serves.
fn single_stepped_hits(stage: &Stage, plan: &Value) -> Result<f64> {
    let slow = |function: &str, end: bool| {
        plan["sites"].as_array().into_iter().flatten().any(|site| {
            site["function"] == function
                && site["class"] == "single-stepped"
                && (site["role"] != "entry") == end
        })
    };
    let mut spans = spans::read(&stage.cluster.spans_file(), 0)?;
    spans.retain(|span| span.scope == "schedspan");
    let attempts = spans.iter().filter(|span| span.is_root()).count();
    let hits = |span: &spans::Span| {
        let function = match span.attribute("k8s.scheduler.plugin.extension_point") {
            point if point.is_empty() => span.name.clone(),
            point => format!("{point}Plugin"),
        };
        [false, true].into_iter().filter(|end| slow(&function, *end)).count()
    };
    Ok(spans.iter().map(hits).sum::<usize>() as f64 / attempts.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_busy_process_grows() {
        let mut busy = system::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = cpu_ms(busy.id()).unwrap_or_default();
        let grown = wait_until("CPU time to pass", Duration::from_secs(10), || {
            Ok(cpu_ms(busy.id()).is_ok_and(|now| now > before).then_some(()))
        });
        busy.kill().unwrap();
        busy.wait().unwrap();
        grown.unwrap();
    }
}
