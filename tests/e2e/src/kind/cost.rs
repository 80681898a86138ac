//! `cargo xtask kind cost`: what tracing costs a kubelet, and what the daemon of a worker takes.

use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    calibration::Calibration,
    cost::{Costs, Reading, Round, Traced, Usage, nothing_cut, turns},
    metrics::Metrics,
    wait::wait_until,
};
use serde_json::Value;
use xtask::components::{ETCD, KUBELET};

use super::{
    cluster::{COLLECTOR as ENDPOINT, CONTROL_PLANE, Cluster, Tracing, WORKER},
    e2e::{RELEASE, archives, collector, in_cluster, load, step},
    engine::Provider,
    operations::{
        INTERVAL, TIMEOUT, chart_path, create, helm, items, metrics, pod, traced as wait_until_traced,
        wait_for_pods,
    },
};

/// The daemon runs where a node has this label.
const LABEL: &str = "traced";
const DAEMON: &str = "schedspan";
/// Pods that start before a round is measured. schedspan has just started, and the kernel copies pages of text that are probed.
const WARM_UP: u32 = 3;
/// The time after which kubelet and daemon are done with Pods that are ready.
const SETTLE: Duration = Duration::from_secs(2);
/// The time in which one Pod starts in each second, and how long each then lives.
const SECONDS: u32 = 60;
const LIFE: u32 = 15;
/// Seconds between two readings of the daemon's memory.
const LOOK: u32 = 10;
/// The promises: the kubelet's CPU time of a Pod, traced to untraced, at most; and what the daemon takes of a core, and of memory with
/// each page counted once, at one Pod a second.
const RATIO: f64 = 1.02;
const CPU_PERCENT: f64 = 0.3;
const MEMORY_MIB: f64 = 24.0;
/// Prints the memory of a process, and a line for each of its threads that begins with its CPU time in nanoseconds. A thread may end
/// meanwhile.
const USAGE: &str = r#"set -eu
pid=$(pgrep -x "$1")
grep VmRSS: "/proc/$pid/status"
grep ^Pss: "/proc/$pid/smaps_rollup"
cat "/proc/$pid/task"/*/schedstat 2>/dev/null || true"#;

#[derive(clap::Args)]
pub(super) struct Options {
    /// Rounds of each way: each takes some 15 s
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Pods that are created at once in a round
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    pods: u32,
}

/// # Errors
///
/// If a step fails: the error ends with schedspan's log. If something was lost or cut, or a promise is broken.
pub(super) fn run(provider: Provider, options: &Options) -> Result<()> {
    let archives = archives()?;
    let begin = Instant::now();
    in_cluster(provider, 1, Tracing::Off, |cluster| steps(cluster, &archives, options))?;
    println!("ok       all with {:<15} {:>6.1} s", provider.name(), begin.elapsed().as_secs_f32());
    Ok(())
}

fn steps(cluster: &Cluster, archives: &[PathBuf], options: &Options) -> Result<()> {
    step("images loaded", || load(cluster, archives))?;
    step("Collector", || collector(cluster))?;
    step("helm install", || install(cluster))?;
    let costs = step("kubelet in turns", || in_turns(cluster, options))?;
    costs.print();
    let steady = step("a Pod each second", || steady(cluster))?;
    costs.nothing_lost()?;
    costs.within(RATIO)?;
    let Steady { cpu_percent, once_mib } = steady;
    ensure!(cpu_percent <= CPU_PERCENT, "{cpu_percent:.2} % of a core are more than {CPU_PERCENT} %");
    ensure!(once_mib <= MEMORY_MIB, "{once_mib:.1} MiB are more than {MEMORY_MIB}");
    Ok(())
}

/// Installs daemons for the kubelets of workers, of which none has the label yet.
fn install(cluster: &Cluster) -> Result<((), String)> {
    let values = format!("otlp.endpoint=http://{ENDPOINT},nodes=workers,budget=100%,nodeSelector.{LABEL}=on");
    helm(cluster, &["install", RELEASE, &chart_path(), "--wait", "--timeout=2m", "--set", &values])?;
    Ok(((), "nowhere yet".to_owned()))
}

fn in_turns(cluster: &Cluster, options: &Options) -> Result<(Costs, String)> {
    let Options { rounds, pods } = *options;
    let measured = turns(
        rounds,
        &Traced::ALL,
        |traced, _, calibration| measure(cluster, calibration, pods, traced),
        || Ok(()),
    )?;
    let said = format!("{pods} Pods at once in each of {rounds} rounds of each way");
    Ok((Costs::of(KUBELET.name, pods, &measured), said))
}

/// Starts Pods at once, as fast as the node can.
fn measure(cluster: &Cluster, calibration: &Calibration, pods: u32, traced: Traced) -> Result<Round> {
    fresh(cluster, traced)?;
    let before = read(cluster, calibration, traced)?;
    let begin = Instant::now();
    start(cluster, "cost", pods)?;
    let pods = f64::from(pods);
    let pace = pods / begin.elapsed().as_secs_f64();
    thread::sleep(SETTLE);
    let after = read(cluster, calibration, traced)?;
    let mut round = Round::between(&before, &after, pods, pace)?;
    if let (Some((_, before)), Some((_, after))) = (&before.daemon, &after.daemon) {
        let starts = calls(after, Some("sandbox")) - calls(before, Some("sandbox"));
        ensure!(starts >= pods, "only {starts} starts of {pods} Pods were traced");
        round.others.push(("calls/Pod", (calls(after, None) - calls(before, None)) / pods));
    }
    Ok(round)
}

/// Ends all Pods, has the daemon run on the worker or not, and starts a few Pods.
fn fresh(cluster: &Cluster, traced: Traced) -> Result<()> {
    cluster.kubectl(&["delete", "pods", "--all", "--wait=false"])?;
    match traced {
        Traced::Yes => {
            cluster.kubectl(&["label", "node", WORKER, &format!("{LABEL}=on"), "--overwrite"])?;
            wait_until_traced(cluster, 1)?;
        }
        Traced::No => {
            cluster.kubectl(&["label", "node", WORKER, &format!("{LABEL}-")])?;
            wait_until("schedspan to end", TIMEOUT, || {
                thread::sleep(INTERVAL);
                let running =
                    cluster.on_node(WORKER, &["sh", "-c", "pgrep -x \"$1\" || true", "sh", DAEMON])?;
                Ok(running.is_empty().then_some(()))
            })?;
        }
    }
    // They are gone when the kubelet has ended them.
    wait_for_pods(cluster, "deleted Pods to be gone", <[Value]>::is_empty)?;
    start(cluster, "warm-up", WARM_UP)?;
    thread::sleep(SETTLE);
    Ok(())
}

/// Starts so many Pods, and waits until all are ready, without asking again and again.
fn start(cluster: &Cluster, name: &str, pods: u32) -> Result<()> {
    let pods: Vec<_> = (0..pods).map(|number| ended_in_order(&format!("{name}-{number}"))).collect();
    create(cluster, &pods)?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pods", "--all", "--timeout=120s"]).map(drop)
}

/// A Pod that stays at the API server until its kubelet has ended it, so that the kubelet has no work with those of earlier rounds.
fn ended_in_order(name: &str) -> Value {
    let mut pod = pod(name, "1m");
    pod["spec"]["terminationGracePeriodSeconds"] = 1.into();
    pod
}

/// The calls of kubelets that a daemon has seen: those of this name, or all.
fn calls(daemon: &Metrics, call: Option<&str>) -> f64 {
    let labels: Vec<_> = call.iter().map(|call| ("call", *call)).collect();
    daemon.sum("schedspan_kubelet_calls_total", &labels)
}

fn read(cluster: &Cluster, calibration: &Calibration, traced: Traced) -> Result<Reading> {
    let daemon = match traced {
        Traced::No => None,
        Traced::Yes => Some((usage(cluster, WORKER, DAEMON)?.0, metrics(cluster)?)),
    };
    Ok(Reading {
        program: usage(cluster, WORKER, KUBELET.name)?.0,
        etcd_cpu_ms: usage(cluster, CONTROL_PLANE, ETCD.name)?.0.cpu_ms,
        computed: calibration.computed(),
        daemon,
    })
}

/// What a program's one process on a node has used, and its memory in MiB with each page counted once: `VmRSS` counts the ring buffer
/// twice, which is mapped twice.
fn usage(cluster: &Cluster, node: &str, program: &str) -> Result<(Usage, f64)> {
    let text = cluster.on_node(node, &["sh", "-c", USAGE, "usage", program])?;
    parse(&text).with_context(|| format!("{program} on {node} has used `{text}`"))
}

/// What [`USAGE`] has printed.
fn parse(text: &str) -> Option<(Usage, f64)> {
    let mib = |field| {
        let kib = text.lines().find_map(|line| line.strip_prefix(field)?.strip_suffix("kB"))?;
        Some(kib.trim().parse::<f64>().ok()? / 1024.0)
    };
    let times = text.lines().filter_map(|line| line.split(' ').next()?.parse::<u64>().ok());
    let cpu_ms = times.sum::<u64>() as f64 / 1e6;
    // Without CONFIG_SCHED_INFO the kernel accounts for no thread.
    (cpu_ms > 0.0).then_some((Usage { cpu_ms, resident_mib: mib("VmRSS:")? }, mib("Pss:")?))
}

/// What the daemon takes while a Pod starts in each second.
struct Steady {
    /// Of a core.
    cpu_percent: f64,
    /// At most, with each page counted once.
    once_mib: f64,
}

fn steady(cluster: &Cluster) -> Result<(Steady, String)> {
    fresh(cluster, Traced::Yes)?;
    let look = || usage(cluster, WORKER, DAEMON);
    let (before, mut once_mib) = look()?;
    let mut resident_mib = before.resident_mib;
    let earlier = metrics(cluster)?;
    let (begin, name) = (Instant::now(), |second: u32| format!("second-{second}"));
    let sleep_until =
        |second: u32| thread::sleep(Duration::from_secs(second.into()).saturating_sub(begin.elapsed()));
    for second in 0..SECONDS {
        sleep_until(second);
        create(cluster, &[ended_in_order(&name(second))])?;
        if let Some(old) = second.checked_sub(LIFE) {
            cluster.kubectl(&["delete", "pod", &name(old), "--wait=false"])?;
        }
        if second % LOOK == 0 {
            let (now, once) = look()?;
            (resident_mib, once_mib) = (resident_mib.max(now.resident_mib), once_mib.max(once));
        }
    }
    sleep_until(SECONDS);
    let (after, once) = look()?;
    let seconds = begin.elapsed().as_secs_f64();
    let cpu_percent = (after.cpu_ms - before.cpu_ms) / seconds / 10.0;
    (resident_mib, once_mib) = (resident_mib.max(after.resident_mib), once_mib.max(once));
    let metrics = wait_until("the starts of all Pods to be traced", TIMEOUT, || {
        thread::sleep(INTERVAL);
        let metrics = metrics(cluster)?;
        let starts = calls(&metrics, Some("sandbox")) - calls(&earlier, Some("sandbox"));
        Ok((starts >= f64::from(SECONDS)).then_some(metrics))
    })?;
    nothing_cut(&metrics)?;
    let lost = metrics.sum("schedspan_losses_total", &[]) - earlier.sum("schedspan_losses_total", &[]);
    ensure!(lost == 0.0, "{lost} things were lost");
    let said = format!(
        "{SECONDS} Pods in {seconds:.1} s, {} there at the end: the daemon took {cpu_percent:.2} % of a core and {once_mib:.1} MiB \
         (VmRSS {resident_mib:.1})",
        items(cluster)?.len()
    );
    Ok((Steady { cpu_percent, once_mib }, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_all_threads_and_both_measures_of_memory_are_read() {
        let text = "VmRSS:\t   20480 kB\nPss:               16384 kB\n1500000 27 3\n500000 0 1\n";
        let (Usage { cpu_ms, resident_mib }, once_mib) = parse(text).unwrap();
        assert_eq!((cpu_ms, resident_mib, once_mib), (2.0, 20.0, 16.0));
        assert!(parse("VmRSS: 1 kB\nPss: 1 kB\n").is_none() && parse("").is_none());
    }
}
