//! `cargo xtask bench page`: what an open page costs the daemon.

use std::{
    io::{BufRead as _, BufReader, Lines},
    path::Path,
    process::{Child, ChildStdout, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, pod},
    browser, cluster,
    processes::cpu_ms,
    schedspan::{self, Schedspan},
    stage::Stage,
};
use xtask::setup;

use crate::{deployed, report::Difference, round::SETTLE, usage::resident_once_mib};

/// Requests a second that the scheduler may send: more than it makes.
const QPS: u32 = 5000;
/// The prefix of the Pods' names.
const PODS: &str = "page-";
/// Pods before a round is measured: the daemon has just started.
const WARM_UP: u32 = 60;
/// The promise: what an open page adds to the daemon at most.
const CPU_PERCENT: f64 = 0.5;
const MEMORY_MIB: f64 = 2.0;
/// A difference of CPU time that is none.
const NO_CPU_PERCENT: f64 = 0.1;
/// The time for which a page is open that is closed again before the measurement.
const LOOK: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(super) struct Options {
    /// Rounds of each way
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// Seconds of a round
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(5..))]
    seconds: u32,
    /// Pods created in a second
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pace: u32,
    /// Nodes of the cluster
    #[arg(long, default_value_t = 100)]
    nodes: u32,
    /// Store the result in docs/figures.tsv, which tests compare with what the documents say
    #[arg(long, conflicts_with_all = ["seconds", "pace", "nodes"])]
    store: bool,
}

/// What is open during a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Nothing,
    /// A view was open, and is closed again.
    Closed,
    /// The view at this path.
    Open(&'static str),
}

const WAYS: [(&str, Way); 7] = [
    ("no page", Way::Nothing),
    ("closed again", Way::Closed),
    ("Pending", Way::Open("/")),
    ("Attempts", Way::Open("/attempts")),
    ("Pod", Way::Open("/pod/default/page-0")),
    ("Plugins", Way::Open("/plugins")),
    ("Health", Way::Open("/health")),
];

/// The daemon's figures of a round.
#[derive(Clone, Copy)]
struct Round {
    /// Of a core.
    cpu_percent: f64,
    resident_mib: f64,
}

pub(super) fn main(options: &Options) -> Result<()> {
    setup::ensure()?;
    let tools = browser::tools()?;
    let executable = deployed()?;
    let cluster = cluster::Options {
        nodes: options.nodes,
        scheduler_qps: Some(QPS),
        no_controllers: true,
        ..cluster::Options::default()
    };
    Stage::play(&cluster, &executable, |stage| {
        let mut rounds = WAYS.map(|_| Vec::new());
        for number in 0..options.rounds as usize {
            // Each way is first, in the middle and last in turn, so that a drift affects all.
            for place in 0..WAYS.len() {
                let at = (number + place) % WAYS.len();
                let (name, way) = WAYS[at];
                let round = measure(stage, options, way, &tools).with_context(|| name)?;
                let Round { cpu_percent, resident_mib } = round;
                eprintln!(
                    "round    {} of {}: {name:<14} {cpu_percent:.2} % of a core, {resident_mib:.1} MiB",
                    number + 1,
                    options.rounds
                );
                rounds[at].push(round);
            }
            stage.cluster.api()?.delete_pods(PODS)?;
            thread::sleep(SETTLE);
        }
        report(options, &rounds)
    })
}

/// Starts a daemon, and creates Pods at an even pace.
fn measure(stage: &Stage, options: &Options, way: Way, tools: &Path) -> Result<Round> {
    let Options { seconds, pace, .. } = *options;
    let api = stage.cluster.api()?;
    // Not the browser, whose executable it would have a look at.
    let trust = format!("parent={}", stage.cluster.scheduler()?.pid);
    let schedspan =
        Schedspan::start(&schedspan::Options { arguments: &["--trust", &trust], ..stage.options()? })?;
    let url = format!("http://{}", schedspan.address("debug"));
    api.delete_pods(PODS)?;
    create(&api, 0..WARM_UP, pace)?;
    let page = match way {
        Way::Nothing => None,
        Way::Closed => {
            let page = Page::open(&url, tools)?;
            create(&api, WARM_UP..WARM_UP + pace * LOOK.as_secs() as u32, pace)?;
            page.close(LOOK)?;
            None
        }
        Way::Open(path) => Some(Page::open(&format!("{url}{path}"), tools)?),
    };
    thread::sleep(SETTLE);
    let (start, before) = (Instant::now(), cpu_ms(schedspan.pid())?);
    let first = 10 * WARM_UP;
    create(&api, first..first + pace * seconds, pace)?;
    thread::sleep(Duration::from_secs(seconds.into()).saturating_sub(start.elapsed()));
    let took = start.elapsed();
    let cpu_percent = (cpu_ms(schedspan.pid())? - before) / took.as_secs_f64() / 10.0;
    let resident_mib = resident_once_mib(schedspan.pid())?;
    if let Some(page) = page {
        page.close(took)?;
    }
    traced(&schedspan, pace * seconds)?;
    schedspan.stop()?;
    Ok(Round { cpu_percent, resident_mib })
}

/// Creates Pods at an even pace.
fn create(api: &Api, numbers: std::ops::Range<u32>, pace: u32) -> Result<()> {
    api.create_pods(pace, numbers.map(|number| pod(&format!("{PODS}{number}"), "10m")))
}

/// Checks that the daemon had the work that its figures are of.
fn traced(schedspan: &Schedspan, pods: u32) -> Result<()> {
    let metrics = schedspan.metrics()?;
    let attempts = metrics.sum("schedspan_attempts_total", &[]);
    ensure!(attempts >= f64::from(pods), "only {attempts} attempts of {pods} were traced");
    let lost = metrics.sum("schedspan_losses_total", &[]);
    ensure!(lost == 0.0, "{lost} things were lost");
    Ok(())
}

/// A view in a browser. The browser ends with its script, whose input ends when this is dropped.
struct Page {
    script: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Page {
    fn open(url: &str, tools: &Path) -> Result<Self> {
        let mut script = browser::script("hold.mjs");
        script.arg(url).arg(tools).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.spawn().context("cannot run node")?;
        let mut lines = BufReader::new(script.stdout.take().context("it has an output")?).lines();
        let said = lines.next().transpose()?;
        ensure!(said.as_deref() == Some("open"), "{url} did not open");
        Ok(Self { script, lines })
    }

    /// Closes it, and checks that it was live meanwhile.
    fn close(mut self, open: Duration) -> Result<()> {
        drop(self.script.stdin.take());
        let said = self.lines.next().transpose()?.unwrap_or_default();
        let status = self.script.wait()?;
        ensure!(status.success(), "the browser's script ended with {status}");
        let refreshed: f64 = said.strip_prefix("refreshed ").context("it does not say how often")?.parse()?;
        // Once a second at most.
        ensure!(
            refreshed >= open.as_secs_f64() / 2.0,
            "the view was fetched {refreshed} times in {open:.0?}"
        );
        Ok(())
    }
}

fn report(options: &Options, rounds: &[Vec<Round>; WAYS.len()]) -> Result<()> {
    let Options { rounds: number, seconds, pace, nodes, store } = options;
    println!("{nodes} Nodes, {pace} Pods a second, {number} rounds of each way, {seconds} s each");
    println!(
        "{:<14} {:>16} {:>12} {:>26} {:>20}",
        "", "% of a core", "MiB", "more CPU (% of a core)", "more memory (MiB)"
    );
    let (mut most, mut broken): ([Option<Difference>; 2], _) = (Default::default(), Vec::new());
    let values: [fn(&Round) -> f64; 2] = [|round| round.cpu_percent, |round| round.resident_mib];
    for ((name, way), of_way) in WAYS.into_iter().zip(rounds) {
        let mean = |value: fn(&Round) -> f64| of_way.iter().map(value).sum::<f64>() / of_way.len() as f64;
        let differences = values.map(|value| {
            let pairs = of_way.iter().zip(&rounds[0]);
            Difference::of(&pairs.map(|(with, without)| value(with) - value(without)).collect::<Vec<_>>())
        });
        print!("{name:<14} {:>16.2} {:>12.1}", mean(values[0]), mean(values[1]));
        if way == Way::Nothing {
            println!();
            continue;
        }
        let [cpu, memory] = &differences;
        println!(" {:>26} {:>20}", cpu.text(2), memory.text(1));
        let limit = if way == Way::Closed { NO_CPU_PERCENT } else { CPU_PERCENT };
        for (difference, limit, what) in [(cpu, limit, "% of a core"), (memory, MEMORY_MIB, "MiB")] {
            if difference.mean > limit {
                broken.push(format!("{name}: {} {what} more, {limit} at most", difference.text(2)));
            }
        }
        for (most, difference) in most.iter_mut().zip(differences) {
            if most.as_ref().is_none_or(|most| difference.mean > most.mean) {
                *most = Some(difference);
            }
        }
    }
    ensure!(broken.is_empty(), "an open page costs more than promised: {}", broken.join("; "));
    println!(
        "kept: an open page costs the daemon at most {CPU_PERCENT} % of a core and {MEMORY_MIB} MiB, and no CPU time once it is closed"
    );
    match most {
        [Some(cpu), Some(memory)] if *store => {
            facts::store(&[("page.cpu.most", cpu.text(2)), ("page.memory.most", memory.text(1))])
        }
        _ => Ok(()),
    }
}
