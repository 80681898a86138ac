//! `cargo xtask bench context`: the daemon's cost of Pods' contexts in a cluster of the largest size that Kubernetes supports.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, pod},
    cluster,
    processes::cpu_ms,
    proxy::Proxy,
    schedspan::{Options as SchedspanOptions, Schedspan},
    stage::Stage,
};
use serde_json::{Value, json};
use xtask::setup;

use crate::{
    deployed,
    usage::{resident_mib, resident_once_mib},
};

/// More requests a second than the scheduler makes.
const QPS: u32 = 5000;
/// Threads that create Pods.
const CREATORS: usize = 8;
/// Pods between two progress lines.
const SIGN_OF_LIFE: usize = 10_000;
/// The lifetime of a bound Pod.
const LIFE: Duration = Duration::from_secs(30);
/// The time for the last Pods' attempts to end.
const SETTLE: Duration = Duration::from_secs(10);
/// The limit for the scheduler to try all Pods that fit nowhere.
const TRIED_TIMEOUT: Duration = Duration::from_secs(600);
/// The documented limit of the daemon's memory.
const LIMIT_MIB: f64 = 40.0;

#[derive(clap::Args)]
pub(super) struct Options {
    /// Bound Pods of the cluster
    #[arg(long, default_value_t = 145_000)]
    bound: usize,
    /// Pods that fit nowhere; each carries a trace context
    #[arg(long, default_value_t = 5_000)]
    pending: usize,
    /// Nodes of the cluster
    #[arg(long, default_value_t = 1_500)]
    nodes: u32,
    /// Minutes in which Pods come and go
    #[arg(long, default_value_t = 10)]
    minutes: u32,
    /// Pods created in a second; each carries a trace context
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pace: u32,
    /// With lifecycles of Pods
    #[arg(long)]
    lifecycle: bool,
    /// This executable of schedspan instead of the image's
    #[arg(long, value_name = "FILE")]
    executable: Option<PathBuf>,
    /// Store the result in docs/figures.tsv, which tests compare with what the documents say
    #[arg(long, conflicts_with_all = ["bound", "pending", "nodes", "minutes", "pace", "lifecycle", "executable"])]
    store: bool,
}

/// The daemon's figures so far.
struct Figures {
    cpu_ms: f64,
    attempts: f64,
    found: f64,
}

pub(super) fn main(options: &Options) -> Result<()> {
    setup::ensure()?;
    let executable = options.executable.clone().map_or_else(deployed, Ok)?;
    let cluster = cluster::Options {
        nodes: options.nodes,
        scheduler_qps: Some(QPS),
        no_controllers: true,
        ..cluster::Options::default()
    };
    Stage::play(&cluster, &executable, |stage| run(options, stage))
}

fn run(options: &Options, stage: &mut Stage) -> Result<()> {
    let Options { bound, pending, nodes, minutes, pace, store, lifecycle, executable: _ } = options;
    let api = stage.cluster.api()?;
    let node = |number: usize| format!("node-{}", number % *nodes as usize);
    create(&api, "bound", *bound, |name, number| {
        let mut pod = pod(name, "1m");
        pod["spec"]["nodeName"] = node(number).into();
        pod
    })?;
    create(&api, "pending", *pending, |name, number| {
        let mut pod = traced(name, number);
        pod["spec"]["nodeSelector"] = json!({ "nowhere": "at-all" });
        pod
    })?;

    // The proxy cuts the watch each minute.
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(stage.cluster.schedspan_kubeconfig())?)?;
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().context("no server")?.to_owned();
    let proxy =
        Proxy::start("127.0.0.1:0", server.strip_prefix("https://").context("not https")?.to_owned())?;
    kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://{}", proxy.address).into();
    let path = stage.cluster.dir().join("proxy.kubeconfig");
    fs::write(&path, serde_json::to_vec(&kubeconfig)?)?;
    let arguments: &[&str] = if *lifecycle { &["--lifecycle"] } else { &[] };
    let mut schedspan =
        Schedspan::start(&SchedspanOptions { kubeconfig: path, arguments, ..stage.options()? })?;
    schedspan.wait_for("schedspan to know all Pods that wait", TRIED_TIMEOUT, |metrics| {
        metrics.sum("schedspan_context_watch_up", &[]) == 1.0
    })?;
    let pid = schedspan.pid();
    let figures = |schedspan: &Schedspan| {
        let metrics = schedspan.metrics()?;
        let found = metrics.sum("schedspan_context_lookups_total", &[("result", "found")]);
        let attempts = metrics.sum("schedspan_attempts_total", &[]);
        Ok::<_, anyhow::Error>(Figures { cpu_ms: cpu_ms(pid)?, attempts, found })
    };
    println!(
        "{:<10} {:>14} {:>14} {:>12} {:>12} {:>12}",
        "minute", "resident (MiB)", "VmRSS (MiB)", "CPU (s)", "attempts", "contexts"
    );
    let mut most = resident_once_mib(pid)?;
    let mut last = figures(&schedspan)?;
    println!(
        "{:<10} {most:>14.1} {:>14.1} {:>12.2} {:>12} {:>12}",
        "listed",
        resident_mib(pid)?,
        last.cpu_ms / 1e3,
        last.attempts,
        last.found
    );
    let start = Instant::now();
    let (mut created, mut deleted) = (0, 0);
    for minute in 1..=*minutes {
        while start.elapsed() < Duration::from_secs(60) * minute {
            let name = |number: u32| format!("churn-{number}");
            if created < start.elapsed().as_secs_f64().mul_add(f64::from(*pace), 1.0) as u32 {
                api.create_pod("default", &traced(&name(created), created as usize))?;
                created += 1;
            } else {
                thread::sleep(Duration::from_millis(20));
            }
            let old = start.elapsed().saturating_sub(LIFE).as_secs_f64() * f64::from(*pace);
            if deleted < old as u32 && deleted < created {
                api.delete_pod("default", &name(deleted))?;
                deleted += 1;
            }
        }
        let resident = resident_once_mib(pid)?;
        most = most.max(resident);
        let now = figures(&schedspan)?;
        println!(
            "{minute:<10} {resident:>14.1} {:>14.1} {:>12.2} {:>12} {:>12}",
            resident_mib(pid)?,
            (now.cpu_ms - last.cpu_ms) / 1e3,
            now.attempts - last.attempts,
            now.found - last.found
        );
        last = now;
        ensure!(proxy.cut() > 0, "there was no connection to break");
    }
    thread::sleep(SETTLE);
    let Figures { attempts, found, .. } = figures(&schedspan)?;
    println!(
        "{} Pods, {pending} of them waiting; {created} came and {deleted} went; the watch was broken {minutes} times: \
         {most:.1} MiB at most, {found} contexts of {attempts} attempts",
        bound + pending
    );
    schedspan.stop()?;
    ensure!(found == attempts, "{} attempts have not got their contexts", attempts - found);
    ensure!(most <= LIMIT_MIB, "{most:.1} MiB are more than {LIMIT_MIB}");
    if *store {
        facts::store(&[("context.memory.most", format!("{most:.0}"))])?;
    }
    Ok(())
}

/// A Pod with its own trace context.
fn traced(name: &str, number: usize) -> Value {
    let mut pod = pod(name, "1m");
    let traceparent = format!("00-{:032x}-{:016x}-01", number + 1, number + 1);
    pod["metadata"]["annotations"] = json!({ "tracing.k8s.io/traceparent": traceparent });
    pod
}

/// Creates Pods, several at a time, with progress lines.
fn create(api: &Api, kind: &str, count: usize, make: impl Fn(&str, usize) -> Value + Sync) -> Result<()> {
    let (start, done) = (Instant::now(), AtomicUsize::new(0));
    thread::scope(|scope| {
        let creator = |creator: usize| {
            let (make, done) = (&make, &done);
            move || {
                (creator..count).step_by(CREATORS).try_for_each(|number| {
                    api.create_pod("default", &make(&format!("{kind}-{number}"), number))?;
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if done.is_multiple_of(SIGN_OF_LIFE) || done == count {
                        let seconds = start.elapsed().as_secs();
                        eprintln!("created  {done} of {count} {kind} Pods, {seconds} s");
                    }
                    Ok::<_, anyhow::Error>(())
                })
            }
        };
        let creators: Vec<_> = (0..CREATORS).map(|number| scope.spawn(creator(number))).collect();
        for creator in creators {
            creator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    })
}
