//! Faults around schedspan: they affect neither the scheduler nor other spans.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, is_bound, pod},
    processes::free_ports,
    proxy::Proxy,
    schedspan::{Options, Schedspan},
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::process;

use crate::checks;

/// The number of kills.
const KILLS: usize = 20;
/// Interval of Pods meanwhile.
const PACE: Duration = Duration::from_millis(15);
/// The time in which the scheduler runs without schedspan, to learn its usual log.
const CONTROL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(30);
/// The instruction int3, which the kernel writes at a probe.
const BREAKPOINT: u8 = 0xcc;

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    kills(stage).context("kill -9")?;
    restart(stage).context("restart of the scheduler")?;
    no_api_server(stage).context("no API server")?;
    no_collector(stage).context("no Collector")
}

/// Kills schedspan repeatedly while Pods are scheduled.
fn kills(stage: &Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let log = stage.cluster.scheduler()?.log;
    let over = AtomicBool::new(false);
    let created = AtomicUsize::new(0);
    let errors_before = thread::scope(|scope| {
        let creator = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                api.create_pod("default", &pod(&format!("kill-{}", created.load(Ordering::Relaxed)), "10m"))?;
                created.fetch_add(1, Ordering::Relaxed);
                thread::sleep(PACE);
            }
            anyhow::Ok(())
        });
        thread::sleep(CONTROL);
        let result = errors(&log).and_then(|errors| {
            let sites = Sites::of(stage)?;
            for _ in 0..KILLS {
                let mut schedspan = stage.trace()?;
                schedspan.wait_for("schedspan to trace attempts", TIMEOUT, |metrics| {
                    metrics.sum("schedspan_attempts_total", &[]) > 0.0
                })?;
                ensure!(
                    sites.probed()? == sites.offsets.len(),
                    "not each site is probed: is it looked at rightly?"
                );
                drop(schedspan);
                wait_until("the probes of a killed schedspan to be gone", TIMEOUT, || {
                    Ok((sites.probed()? == 0).then_some(()))
                })?;
            }
            Ok(errors)
        });
        over.store(true, Ordering::Relaxed);
        creator.join().expect("the creating thread does not panic")?;
        result
    })?;
    let created = created.into_inner();
    api.wait_for_pods("all Pods to be bound", |pods| pods.len() == created && pods.iter().all(is_bound))?;
    // The same processes as before, by pid and start time.
    stage.cluster.check()?;
    let new: Vec<_> = errors(&log)?.difference(&errors_before).cloned().collect();
    ensure!(new.is_empty(), "the scheduler logged errors: {}", new.join("; "));
    println!(
        "         {KILLS} times killed, {created} Pods bound, no probe left, no error in the scheduler's log"
    );
    Ok(())
}

/// The places of errors in the scheduler's log, as `file.go:line`.
fn errors(log: &std::path::Path) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(log)?;
    let is_error =
        |line: &&str| line.starts_with('E') && line[1..].starts_with(|digit: char| digit.is_ascii_digit());
    let place =
        |line: &str| line.split(']').next().and_then(|head| head.split(' ').next_back()).map(str::to_owned);
    Ok(text.lines().filter(is_error).filter_map(place).collect())
}

/// The probed instructions in the scheduler's memory.
struct Sites {
    memory: File,
    offsets: BTreeSet<u64>,
}

impl Sites {
    fn of(stage: &Stage) -> Result<Self> {
        let pid = stage.cluster.scheduler()?.pid;
        let mut inspect = Command::new(&stage.executable);
        let plan = process::output(inspect.args(["inspect", "--output", "json", &pid.to_string()]))?;
        let plan: Value = serde_json::from_str(&plan)?;
        let address = |site: &Value| {
            let text = site["address"].as_str()?.strip_prefix("0x")?;
            u64::from_str_radix(text, 16).ok()
        };
        let offsets: BTreeSet<u64> =
            plan["sites"].as_array().into_iter().flatten().filter_map(address).collect();
        ensure!(!offsets.is_empty(), "inspect shows no site");
        Ok(Self { memory: File::open(format!("/proc/{pid}/mem"))?, offsets })
    }

    /// The number of breakpoints now.
    fn probed(&self) -> Result<usize> {
        let mut found = 0;
        for offset in &self.offsets {
            let mut byte = [0];
            self.memory.read_exact_at(&mut byte, *offset)?;
            found += usize::from(byte[0] == BREAKPOINT);
        }
        Ok(found)
    }
}

/// Restarts the scheduler under a running schedspan.
fn restart(stage: &mut Stage) -> Result<()> {
    let schedspan = stage.trace()?;
    let first = scheduled(stage, "before-restart", false)?;
    stage.cluster.restart_scheduler()?;
    // The metrics have the old one until the next search.
    checks::is_traced(stage, &schedspan)?;
    let second = scheduled(stage, "after-restart", false)?;
    ensure!(first.pid != second.pid, "the span of a new scheduler names the old one");
    schedspan.stop()
}

/// Starts schedspan before its API server can be reached.
fn no_api_server(stage: &Stage) -> Result<()> {
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(stage.cluster.kubeconfig())?)?;
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().context("no server")?.to_owned();
    let real = server.strip_prefix("https://").context("not https")?.to_owned();
    let address = format!("127.0.0.1:{}", free_ports(&["api"])?["api"]);
    kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://{address}").into();
    let path = stage.cluster.dir().join("other.kubeconfig");
    fs::write(&path, serde_json::to_vec(&kubeconfig)?)?;

    let mut schedspan = Schedspan::start(&Options { kubeconfig: path, ..stage.options()? })?;
    wait_until("a warning that Pods cannot be watched", TIMEOUT, || {
        Ok(warnings(&schedspan, &address)?.first().map(drop))
    })?;
    ensure!(scheduled(stage, "without-api-server", true)?.links.is_empty(), "a link out of nothing");
    let unknown = schedspan.metrics()?.sum("schedspan_context_lookups_total", &[("result", "unknown")]);
    ensure!(unknown == 1.0, "schedspan counts {unknown} Pods without known context instead of 1");

    Proxy::start(&address, real)?;
    schedspan.wait_for("schedspan to watch Pods", TIMEOUT * 2, |metrics| {
        metrics.sum("schedspan_context_watch_up", &[]) == 1.0
    })?;
    ensure!(
        scheduled(stage, "with-api-server", true)?.links.len() == 1,
        "no link though the API server is there"
    );
    let warned = warnings(&schedspan, &address)?;
    ensure!(warned.len() == 1, "not one warning: {}", warned.join("\n"));
    schedspan.stop()
}

/// Runs schedspan with an unreachable Collector.
fn no_collector(stage: &Stage) -> Result<()> {
    let endpoint = format!("http://127.0.0.1:{}", free_ports(&["otlp"])?["otlp"]);
    let log = stage.cluster.dir().join("no-collector.log");
    let mut schedspan = Schedspan::start(&Options { endpoint: endpoint.clone(), log, ..stage.options()? })?;
    let api = stage.cluster.api()?;
    for round in 1..=3 {
        api.create_pod("default", &pod(&format!("no-collector-{round}"), "10m"))?;
        schedspan.wait_for("schedspan to count spans that do not leave", TIMEOUT, |metrics| {
            // A Pod has more than ten spans.
            metrics.sum("schedspan_losses_total", &[("cause", "export_failed")]) > f64::from(round * 10)
        })?;
    }
    let warned = warnings(&schedspan, &endpoint)?;
    ensure!(warned.len() == 1, "not one warning that names {endpoint}: {}", warned.join("\n"));
    schedspan.stop()
}

/// Schedules one Pod, with a context if `linked`, and waits for its span.
fn scheduled(stage: &Stage, name: &str, linked: bool) -> Result<Span> {
    let api: Api = stage.cluster.api()?;
    let mut pod = pod(name, "10m");
    if linked {
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        pod["metadata"]["annotations"] = json!({ "tracing.k8s.io/traceparent": traceparent });
    }
    api.create_pod("default", &pod)?;
    wait_until(&format!("the span of {name}"), TIMEOUT, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        Ok(spans.into_iter().find(|span| span.is_root() && span.pod() == name))
    })
}

/// The warnings that contain this text.
fn warnings(schedspan: &Schedspan, thing: &str) -> Result<Vec<String>> {
    let log = schedspan.log()?;
    Ok(log.lines().filter(|line| line.contains("WARN") && line.contains(thing)).map(str::to_owned).collect())
}
