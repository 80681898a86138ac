//! `cargo xtask kind e2e`: schedspan in a real cluster, from `helm install` to `helm uninstall`.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use harness::{
    api::{is_bound, is_unschedulable},
    figures::{Comparison, Observed as _},
    spans::{self, Span},
    wait::wait_until,
};
use xtask::{components::COLLECTOR, image, machine};

use super::{
    cluster::{COLLECTOR as ENDPOINT, CONTROL_PLANE, Cluster, Tracing, WORKER},
    engine::Provider,
    images, leaders,
    operations::{
        INTERVAL, NAMESPACE, TIMEOUT, chart_path, create, daemon, delete, helm, items, logs, metrics, pod,
        probes, scheduler, traced, wait_for_pods,
    },
    plugin, registry,
};
use crate::{checks::nothing_lost, truth};

/// Pods that fit, and Pods that fit nowhere: 200.
const PLACED: usize = 180;
const NEVER: usize = 20;
/// Pods for the scheduler that replaces a killed one.
const AGAIN: usize = 20;
/// Pods for each of two schedulers.
const EACH: usize = 10;
const SECOND_MANIFEST: &str = include_str!("../../../kind/second-scheduler.yaml");
/// The name and the namespace of the second scheduler.
const SECOND: &str = "second-scheduler";
const COLLECTOR_MANIFEST: &str = include_str!("../../../kind/collector.yaml");
pub(super) const RELEASE: &str = "schedspan";
/// CAP_SYS_PTRACE, CAP_PERFMON and CAP_BPF as bits, in the format of `/proc/PID/status`.
const CAPABILITIES: u64 = 1 << 19 | 1 << 38 | 1 << 39;
/// Another tag of the same image, to upgrade to.
const UPGRADED: &str = "upgraded";
/// The time in which Pods are created before and after the upgrade.
const AROUND: Duration = Duration::from_secs(5);

/// The images' archives. Builds take minutes, so they come before anything runs.
pub(super) fn archives() -> Result<[PathBuf; 3]> {
    Ok([image::image(machine::own()?, None)?, images::collector()?, images::pause()?])
}

/// # Errors
///
/// If a step fails: the error ends with schedspan's log.
pub(super) fn run(provider: Provider) -> Result<()> {
    let archives = archives()?;
    let begin = Instant::now();
    in_cluster(provider, 1, Tracing::Off, |cluster| steps(cluster, &archives))?;
    leaders::run(provider, &archives)?;
    println!("ok       all with {:<15} {:>6.1} s", provider.name(), begin.elapsed().as_secs_f32());
    Ok(())
}

/// Runs steps in a new cluster with this number of control planes. It ends after the last step, or the first that fails.
///
/// # Errors
///
/// If a step fails: the error ends with schedspan's log.
pub(super) fn in_cluster(
    provider: Provider,
    control_planes: usize,
    tracing: Tracing,
    steps: impl FnOnce(&Cluster) -> Result<()>,
) -> Result<()> {
    let up = || Ok((Cluster::up(provider, control_planes, tracing)?, provider.name().into()));
    let cluster = step("cluster up", up)?;
    steps(&cluster).map_err(|error| anyhow!("{error:#}{}", logs(&cluster)))?;
    step("cluster down", || Ok((cluster.down()?, String::new())))
}

fn steps(cluster: &Cluster, archives: &[PathBuf]) -> Result<()> {
    step("images loaded", || load(cluster, archives))?;
    step("Collector", || collector(cluster))?;
    let chart = step("chart pulled", || registry::pull(cluster))?;
    step("helm install", || install(cluster, &chart))?;
    step("helm test", || test(cluster))?;
    // Before the many Pods: their Node starts and ends sandboxes for a minute after they are deleted, and nothing else.
    step("kubectl schedspan", || plugin::run(cluster))?;
    step("200 Pods", || pods(cluster))?;
    step("second scheduler", || second(cluster))?;
    step("scheduler killed", || killed(cluster))?;
    step("helm upgrade", || upgrade(cluster))?;
    step("helm uninstall", || uninstall(cluster))
}

/// Runs a step and prints its line, with the text that it returns.
pub(super) fn step<T>(name: &str, what: impl FnOnce() -> Result<(T, String)>) -> Result<T> {
    let start = Instant::now();
    let (done, said) = what().with_context(|| name.to_owned())?;
    let separator = if said.is_empty() { "" } else { ": " };
    println!("ok       {name:<24} {:>6.1} s{separator}{said}", start.elapsed().as_secs_f32());
    Ok(done)
}

pub(super) fn load(cluster: &Cluster, archives: &[PathBuf]) -> Result<((), String)> {
    archives.iter().try_for_each(|archive| cluster.load(archive))?;
    let (name, _) = image::NAME.rsplit_once(':').context("the image has no tag")?;
    let upgraded = format!("{name}:{UPGRADED}");
    cluster
        .on_node(CONTROL_PLANE, &["ctr", "--namespace=k8s.io", "images", "tag", image::NAME, &upgraded])?;
    Ok(((), format!("{} archives", archives.len())))
}

pub(super) fn collector(cluster: &Cluster) -> Result<((), String)> {
    let image = images::name(COLLECTOR.name, COLLECTOR.version);
    cluster.manifest("apply", &COLLECTOR_MANIFEST.replace("IMAGE", &image))?;
    cluster.kubectl(&[
        "--namespace=collector",
        "rollout",
        "status",
        "deployment/collector",
        "--timeout=120s",
    ])?;
    // Comparisons begin after it.
    wait_until("the Collector's file", TIMEOUT, || Ok(cluster.spans().exists().then_some(())))?;
    Ok(((), format!("on {WORKER}")))
}

fn install(cluster: &Cluster, chart: &str) -> Result<((), String)> {
    helm(
        cluster,
        &[
            "install",
            RELEASE,
            chart,
            "--wait",
            "--timeout=2m",
            "--set",
            // What is compared must not depend on how busy the machine is.
            &format!("otlp.endpoint=http://{ENDPOINT},budget=100%"),
        ],
    )?;
    let metrics = traced(cluster, 1)?;
    nothing_lost(&metrics)?;
    let pid = daemon(cluster)?.context("no process of schedspan on the control plane")?;
    let status = cluster.on_node(CONTROL_PLANE, &["cat", &format!("/proc/{pid}/status")])?;
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        let line =
            status.lines().find_map(|line| line.strip_prefix(set)).context("no capabilities in /proc")?;
        let has = u64::from_str_radix(line.trim(), 16)?;
        ensure!(has == CAPABILITIES, "schedspan's {set} {has:x} instead of {CAPABILITIES:x}");
    }
    let probes = probes(cluster)?;
    ensure!(probes > 0, "no probe is found in the scheduler's memory: is it looked at rightly?");
    Ok(((), format!("{probes} probes, with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE only")))
}

/// Compares spans of many Pods with the scheduler's own metrics.
fn pods(cluster: &Cluster) -> Result<((), String)> {
    let (comparison, before) = (Comparison::begin(cluster)?, metrics(cluster)?);
    let placed = (0..PLACED).map(|number| pod(&format!("placed-{number}"), "1m"));
    let never = (0..NEVER).map(|number| pod(&format!("never-{number}"), "1000"));
    create(cluster, &placed.chain(never).collect::<Vec<_>>())?;
    wait_for_pods(cluster, "all Pods to be bound or found unschedulable", |pods| {
        pods.len() == PLACED + NEVER && pods.iter().all(|pod| is_bound(pod) || is_unschedulable(pod))
    })?;
    let bound = items(cluster)?.iter().filter(|pod| is_bound(pod)).count();
    ensure!(bound == PLACED, "{bound} Pods are bound instead of {PLACED}");
    let figures = comparison.end()?;
    let after = metrics(cluster)?;
    nothing_lost(&after)?;
    let mut wrong = truth::counts(&figures);
    wrong.extend(truth::incoming(&figures, &before, &after));
    truth::trees(&figures.spans)?;
    ensure!(wrong.is_empty(), "spans and the scheduler's metrics differ: {}", wrong.join(", "));
    delete(cluster)?;
    Ok(((), format!("{} spans, as the scheduler's metrics say", figures.spans.len())))
}

/// Runs another scheduler of the same image beside the first: two containers and processes with one executable and one attachment. It
/// is not traced until a value of the chart names its namespace.
fn second(cluster: &Cluster) -> Result<((), String)> {
    let first =
        cluster.get(&["pod", "--namespace=kube-system", &format!("kube-scheduler-{CONTROL_PLANE}")])?;
    let image =
        first["spec"]["containers"][0]["image"].as_str().context("the scheduler's Pod has no image")?;
    let manifest = SECOND_MANIFEST.replace("IMAGE", image);
    cluster.manifest("apply", &manifest)?;
    let namespace = format!("--namespace={SECOND}");
    cluster.kubectl(&[&namespace, "rollout", "status", "deployment/scheduler", "--timeout=120s"])?;
    wait_until("the second scheduler to be a stranger", TIMEOUT, || {
        thread::sleep(INTERVAL);
        let strangers = metrics(cluster)?.sum("schedspan_schedulers_untrusted", &[]);
        Ok((strangers == 1.0).then_some(()))
    })?;
    traced(cluster, 1)?;
    let trust = format!("trust.namespaces={{kube-system,{SECOND}}}");
    helm(
        cluster,
        &["upgrade", RELEASE, &chart_path(), "--reuse-values", "--wait", "--timeout=2m", "--set", &trust],
    )?;
    traced(cluster, 2)?;
    let pids = [cluster.pid()?, scheduler(cluster, "^kube-scheduler --config=/etc/second-scheduler")?];
    let names = ["default-scheduler", SECOND];
    let mut pods = Vec::new();
    for number in 0..EACH {
        for name in names {
            let mut pod = pod(&format!("{name}-{number}"), "1m");
            pod["spec"]["schedulerName"] = name.into();
            pods.push(pod);
        }
    }
    create(cluster, &pods)?;
    let roots = || -> Result<Vec<Span>> {
        let spans = spans::read(&cluster.spans(), 0)?;
        let ours = |span: &Span| span.is_root() && names.iter().any(|name| span.pod().starts_with(name));
        Ok(spans.into_iter().filter(ours).collect())
    };
    wait_until("the spans of both schedulers", TIMEOUT, || {
        thread::sleep(INTERVAL);
        Ok((roots()?.len() >= 2 * EACH).then_some(()))
    })?;
    for span in roots()? {
        let (pod, profile) = (span.pod(), span.attribute("k8s.scheduler.profile"));
        let which = usize::from(profile == SECOND);
        ensure!(pod.starts_with(names[which]), "{pod} is traced as one of {profile}");
        ensure!(
            span.pid == pids[which].to_string(),
            "{pod} is traced in process {} instead of {}",
            span.pid,
            pids[which]
        );
    }
    nothing_lost(&metrics(cluster)?)?;
    delete(cluster)?;
    cluster.manifest("delete", &manifest)?;
    traced(cluster, 1)?;
    Ok(((), format!("{EACH} attempts of either, in processes {} and {}", pids[0], pids[1])))
}

/// Kills the scheduler, which its static Pod restarts, and compares everything that the new one counts.
fn killed(cluster: &Cluster) -> Result<((), String)> {
    let old = cluster.pid()?;
    cluster.on_node(CONTROL_PLANE, &["kill", "-KILL", &old.to_string()])?;
    let comparison = Comparison::before_start(cluster)?;
    let start = Instant::now();
    let new = wait_until("another scheduler", TIMEOUT, || {
        thread::sleep(INTERVAL);
        Ok(cluster.pid().ok().filter(|pid| *pid != old))
    })?;
    let restarted = start.elapsed().as_secs_f32();
    // They wait until the previous lease has expired.
    create(cluster, &(0..AGAIN).map(|number| pod(&format!("again-{number}"), "1m")).collect::<Vec<_>>())?;
    wait_for_pods(cluster, "all Pods to be bound", |pods| pods.len() == AGAIN && pods.iter().all(is_bound))?;
    let figures = comparison.end()?;
    let wrong = truth::counts(&figures);
    ensure!(wrong.is_empty(), "spans and the new scheduler's metrics differ: {}", wrong.join(", "));
    let traced = figures.spans.iter().filter(|span| span.is_root()).count();
    ensure!(traced == AGAIN, "{traced} attempts of the new scheduler are traced instead of {AGAIN}");
    delete(cluster)?;
    Ok(((), format!("pid {old}, then {new}, {restarted:.1} s later; all its {AGAIN} attempts are traced")))
}

/// Upgrades schedspan while Pods are scheduled. The Pods that neither daemon saw must be in a single gap.
fn upgrade(cluster: &Cluster) -> Result<((), String)> {
    let over = AtomicBool::new(false);
    let old = daemon(cluster)?;
    let (created, upgraded) = thread::scope(|scope| {
        let creator = scope.spawn(|| {
            let mut created = Vec::new();
            while !over.load(Ordering::Relaxed) {
                create(cluster, &[pod(&format!("upgrade-{}", created.len()), "1m")])?;
                created.push(Instant::now());
                thread::sleep(INTERVAL);
            }
            anyhow::Ok(created)
        });
        thread::sleep(AROUND);
        let upgraded = helm(
            cluster,
            &[
                "upgrade",
                RELEASE,
                &chart_path(),
                "--reuse-values",
                "--wait",
                "--timeout=2m",
                "--set",
                &format!("image.tag={UPGRADED}"),
            ],
        );
        thread::sleep(AROUND);
        over.store(true, Ordering::Relaxed);
        (creator.join().expect("the creating thread does not panic"), upgraded)
    });
    upgraded?;
    let created = created?;
    ensure!(daemon(cluster)? != old, "the daemon of before the upgrade still runs");
    wait_for_pods(cluster, "all Pods to be bound", |pods| {
        pods.len() == created.len() && pods.iter().all(is_bound)
    })?;
    let name = |number: usize| format!("upgrade-{number}");
    let last = name(created.len() - 1);
    wait_until("the last Pod's span", TIMEOUT, || {
        let spans = spans::read(&cluster.spans(), 0)?;
        Ok(spans.iter().any(|span| span.is_root() && span.pod() == last).then_some(()))
    })?;
    let spans = spans::read(&cluster.spans(), 0)?;
    let traced: Vec<_> = spans
        .iter()
        .filter(|span| span.is_root())
        .map(Span::pod)
        .filter(|pod| pod.starts_with("upgrade-"))
        .collect();
    let distinct: BTreeSet<_> = traced.iter().collect();
    ensure!(distinct.len() == traced.len(), "{} attempts are traced twice", traced.len() - distinct.len());
    let missing: Vec<_> = (0..created.len()).filter(|number| !distinct.contains(&name(*number))).collect();
    delete(cluster)?;
    let said = match missing[..] {
        [] => "no gap".to_owned(),
        [first, ..] => {
            let last = missing[missing.len() - 1];
            ensure!(missing.len() == last - first + 1, "not one gap: the Pods {missing:?} are not traced");
            ensure!(first > 0 && last + 1 < created.len(), "the gap has no end: {missing:?}");
            let gap = (created[last + 1] - created[first - 1]).as_secs_f32();
            format!("{} of them in the one gap, of {gap:.1} s at most", missing.len())
        }
    };
    Ok(((), format!("{} of {} attempts are traced; {said}", traced.len(), created.len())))
}

/// Runs the chart's own test: the doctor, in a Pod with the daemon's rights.
fn test(cluster: &Cluster) -> Result<((), String)> {
    let said = helm(cluster, &["test", RELEASE, "--timeout=2m", "--logs"])?;
    ensure!(said.contains("ok ") && !said.contains("MISSING"), "the doctor says: {said}");
    Ok(((), String::new()))
}

/// Removes the chart, and checks that nothing is left.
fn uninstall(cluster: &Cluster) -> Result<((), String)> {
    let manifest = helm(cluster, &["get", "manifest", RELEASE])?;
    let objects = manifest.lines().filter(|line| line.starts_with("kind: ")).count();
    helm(cluster, &["uninstall", RELEASE, "--wait", "--timeout=2m"])?;
    let file = cluster.shared().join("manifest.yaml");
    fs::write(&file, manifest)?;
    let file = file.display().to_string();
    wait_until("the objects to be gone", TIMEOUT, || {
        let namespace = format!("--namespace={NAMESPACE}");
        let left = cluster.kubectl(&[
            "get",
            &namespace,
            "--ignore-not-found",
            "--output=name",
            "--filename",
            &file,
        ])?;
        Ok(left.is_empty().then_some(()))
    })?;
    // Objects outside the manifests: Pods and revisions of the DaemonSet, and Helm's own.
    for (kind, selector) in [
        ("pods,controllerrevisions,endpointslices", "app.kubernetes.io/name=schedspan"),
        ("secrets,configmaps", "owner=helm"),
    ] {
        wait_until(&format!("{kind} to be gone"), TIMEOUT, || {
            let left = cluster.kubectl(&[
                "get",
                "--all-namespaces",
                "--output=name",
                "--selector",
                selector,
                kind,
            ])?;
            Ok(left.is_empty().then_some(()))
        })?;
    }
    wait_until("schedspan to end", TIMEOUT, || Ok(daemon(cluster)?.is_none().then_some(())))?;
    let probes = probes(cluster)?;
    ensure!(probes == 0, "{probes} probes are left in the scheduler's memory");
    Ok(((), format!("none of {objects} objects, no process and no probe is left")))
}
