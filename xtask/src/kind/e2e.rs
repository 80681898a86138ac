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
use serde_json::{Value, json};

use super::{
    cluster::{CONTROL_PLANE, Cluster, WORKER},
    engine::{Provider, chart},
    images,
};
use crate::{
    cluster::{Metrics, is_bound, is_unschedulable, wait_until},
    compare::{Comparison, Observed},
    components::COLLECTOR,
    e2e::{nothing_lost, truth},
    image, process, spans,
};

/// Pods that fit, and Pods that fit nowhere: 200.
const PLACED: usize = 180;
const NEVER: usize = 20;
/// Pods that the scheduler gets after it was killed, and after the upgrade, until it is known that they are traced.
const AFTERWARDS: usize = 20;
const COLLECTOR_MANIFEST: &str = include_str!("../../../tests/kind/collector.yaml");
/// The Collector's address in the cluster, as its manifest has it.
const ENDPOINT: &str = "http://10.96.0.44:4317";
const RELEASE: &str = "schedspan";
const NAMESPACE: &str = "kube-system";
/// CAP_SYS_PTRACE, CAP_PERFMON and CAP_BPF, by their bits, as `/proc/PID/status` has them.
const CAPABILITIES: u64 = 1 << 19 | 1 << 38 | 1 << 39;
/// Another tag of the same image, to upgrade to.
const UPGRADED: &str = "upgraded";
const TIMEOUT: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_millis(250);
/// How long Pods are created before and after the upgrade.
const AROUND: Duration = Duration::from_secs(5);
/// Counts the bytes of an executable's code that differ between the memory of a process and the file: where a probe is, the
/// kernel has put a breakpoint.
const PROBES: &str = r#"
read -r range _ offset _ < <(grep 'r-xp.*/kube-scheduler' /proc/$1/maps)
start=$((16#${range%-*})) length=$((16#${range#*-} - 16#${range%-*}))
part() { dd if=/proc/$1 iflag=skip_bytes,count_bytes bs=1M skip=$2 count=$length status=none; }
cmp -l <(part $1/exe $((16#$offset))) <(part $1/mem $start) | wc -l"#;

/// # Errors
///
/// If a step fails: then the error ends with what schedspan logged last.
pub(super) fn run(provider: Provider) -> Result<()> {
    // All built first: a build takes minutes, in which nothing has to run.
    let archives = [image::image(image::own()?, None)?, images::collector()?, images::pause()?];
    let begin = Instant::now();
    let cluster =
        step("cluster up", || Cluster::up(provider).map(|cluster| (cluster, provider.name().into())))?;
    let done = steps(&cluster, &archives).map_err(|error| anyhow!("{error:#}{}", logs(&cluster)));
    done.and_then(|()| step("cluster down", || Ok((cluster.down()?, String::new()))))?;
    println!("ok       all with {:<15} {:>6.1} s", provider.name(), begin.elapsed().as_secs_f32());
    Ok(())
}

fn steps(cluster: &Cluster, archives: &[PathBuf]) -> Result<()> {
    step("images loaded", || load(cluster, archives))?;
    step("Collector", || collector(cluster))?;
    step("helm install", || install(cluster))?;
    step("200 Pods", || pods(cluster))?;
    step("scheduler killed", || killed(cluster))?;
    step("helm upgrade", || upgrade(cluster))?;
    step("helm uninstall", || uninstall(cluster))
}

/// Does something and prints a line about it, with what it says of itself.
fn step<T>(name: &str, what: impl FnOnce() -> Result<(T, String)>) -> Result<T> {
    let start = Instant::now();
    let (done, said) = what().with_context(|| name.to_owned())?;
    let separator = if said.is_empty() { "" } else { ": " };
    println!("ok       {name:<24} {:>6.1} s{separator}{said}", start.elapsed().as_secs_f32());
    Ok(done)
}

fn load(cluster: &Cluster, archives: &[PathBuf]) -> Result<((), String)> {
    archives.iter().try_for_each(|archive| cluster.load(archive))?;
    let (name, _) = image::NAME.rsplit_once(':').context("the image has no tag")?;
    let upgraded = format!("{name}:{UPGRADED}");
    cluster
        .on_node(CONTROL_PLANE, &["ctr", "--namespace=k8s.io", "images", "tag", image::NAME, &upgraded])?;
    Ok(((), format!("{} archives", archives.len())))
}

fn collector(cluster: &Cluster) -> Result<((), String)> {
    let image = images::name(COLLECTOR.name, COLLECTOR.version);
    cluster.manifest("apply", &COLLECTOR_MANIFEST.replace("IMAGE", &image))?;
    cluster.kubectl(&[
        "--namespace=collector",
        "rollout",
        "status",
        "deployment/collector",
        "--timeout=120s",
    ])?;
    // Comparisons begin at its end.
    wait_until("the Collector's file", TIMEOUT, || Ok(cluster.spans().exists().then_some(())))?;
    Ok(((), format!("on {WORKER}")))
}

fn install(cluster: &Cluster) -> Result<((), String)> {
    helm(
        cluster,
        &[
            "install",
            RELEASE,
            &chart_path(),
            "--wait",
            "--timeout=2m",
            "--set",
            &format!("otlp.endpoint={ENDPOINT}"),
        ],
    )?;
    let metrics = traced(cluster, |_| true)?;
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
    create(cluster, placed.chain(never).collect())?;
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

/// Kills the scheduler, whose static Pod starts it again.
fn killed(cluster: &Cluster) -> Result<((), String)> {
    let old = cluster.pid()?;
    cluster.on_node(CONTROL_PLANE, &["kill", "-KILL", &old.to_string()])?;
    let start = Instant::now();
    let new = wait_until("another scheduler", TIMEOUT, || {
        thread::sleep(INTERVAL);
        Ok(cluster.pid().ok().filter(|pid| *pid != old))
    })?;
    let restarted = start.elapsed().as_secs_f32();
    // Its own answer, once it holds the lease of the one before.
    wait_until("the scheduler's metrics", TIMEOUT, || Ok(cluster.metrics().ok()))?;
    // A Pod of before: only when it is bound does the new one schedule.
    create(cluster, vec![pod("first", "1m")])?;
    wait_for_pods(cluster, "the new scheduler to schedule", |pods| pods.iter().all(is_bound))?;
    traced(cluster, |_| true)?;
    let comparison = Comparison::begin(cluster)?;
    create(cluster, (0..AFTERWARDS).map(|number| pod(&format!("again-{number}"), "1m")).collect())?;
    wait_for_pods(cluster, "all Pods to be bound", |pods| {
        pods.len() == AFTERWARDS + 1 && pods.iter().all(is_bound)
    })?;
    let figures = comparison.end()?;
    let wrong = truth::counts(&figures);
    ensure!(wrong.is_empty(), "spans and the new scheduler's metrics differ: {}", wrong.join(", "));
    let traced = figures.spans.iter().filter(|span| span.is_root()).count();
    ensure!(
        traced == AFTERWARDS,
        "{traced} attempts of the new scheduler are traced instead of {AFTERWARDS}"
    );
    let first = spans::read(&cluster.spans(), 0)?.iter().any(|span| span.is_root() && span.pod() == "first");
    delete(cluster)?;
    Ok((
        (),
        format!(
            "pid {old}, then {new} {restarted:.1} s later; its {} Pods are traced, {} the first one",
            AFTERWARDS,
            if first { "and" } else { "but not" }
        ),
    ))
}

/// Upgrades schedspan while Pods are scheduled. One that neither the old nor the new daemon saw must be in one gap.
fn upgrade(cluster: &Cluster) -> Result<((), String)> {
    let over = AtomicBool::new(false);
    let old = daemon(cluster)?;
    let (created, upgraded) = thread::scope(|scope| {
        let creator = scope.spawn(|| {
            let mut created = Vec::new();
            while !over.load(Ordering::Relaxed) {
                create(cluster, vec![pod(&format!("upgrade-{}", created.len()), "1m")])?;
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
        .map(|span| span.pod())
        .filter(|pod| pod.starts_with("upgrade-"))
        .collect();
    let distinct: BTreeSet<_> = traced.iter().collect();
    ensure!(distinct.len() == traced.len(), "{} attempts are traced twice", traced.len() - distinct.len());
    let missing: Vec<_> = (0..created.len()).filter(|number| !distinct.contains(&name(*number))).collect();
    nothing_lost(&metrics(cluster)?)?;
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

/// Removes the chart, and looks whether anything is left.
fn uninstall(cluster: &Cluster) -> Result<((), String)> {
    let manifest = helm(cluster, &["get", "manifest", RELEASE])?;
    let objects = manifest.lines().filter(|line| line.starts_with("kind: ")).count();
    helm(cluster, &["uninstall", RELEASE, "--wait", "--timeout=2m"])?;
    let file = cluster.shared().join("manifest.yaml");
    fs::write(&file, manifest)?;
    let left = wait_until("the objects to be gone", TIMEOUT, || {
        let file = file.display().to_string();
        let left = cluster.kubectl(&[
            "get",
            "--namespace",
            NAMESPACE,
            "--ignore-not-found",
            "--output=name",
            "--filename",
            &file,
        ])?;
        Ok(left.is_empty().then_some(left))
    })?;
    ensure!(left.is_empty(), "left: {left}");
    // What no manifest names: Pods and revisions of the DaemonSet, and what Helm keeps.
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

impl Observed for Cluster {
    fn metrics(&self) -> Result<Metrics> {
        // With an administrator's certificate; the scheduler's own is signed by nobody.
        let ask = "sed /certificate-authority-data/d /etc/kubernetes/admin.conf | kubectl --kubeconfig /dev/stdin \
                   --server https://127.0.0.1:10259 --insecure-skip-tls-verify get --raw /metrics";
        Metrics::parse(&self.on_node(CONTROL_PLANE, &["sh", "-c", ask])?)
    }

    fn pid(&self) -> Result<i32> {
        let pattern = "^kube-scheduler .*--kubeconfig=/etc/kubernetes/scheduler.conf";
        let pid = self.on_node(CONTROL_PLANE, &["pgrep", "-f", "--", pattern])?;
        pid.parse().with_context(|| format!("`{pid}` is not one scheduler"))
    }

    fn spans(&self) -> PathBuf {
        self.shared().join("spans.jsonl")
    }
}

fn chart_path() -> String {
    chart().join("schedspan").display().to_string()
}

fn helm(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    process::output(cluster.engine.command("helm").args(["--namespace", NAMESPACE]).args(arguments))
}

/// schedspan's own metrics, of the one Pod that is ready, through the API server.
fn metrics(cluster: &Cluster) -> Result<Metrics> {
    let pods =
        cluster.get(&["pods", "--namespace", NAMESPACE, "--selector=app.kubernetes.io/name=schedspan"])?;
    let names: Vec<_> = pods["items"].as_array().into_iter().flatten().collect();
    let names: Vec<_> = names.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
    ensure!(names.len() == 1, "{} Pods of schedspan instead of 1", names.len());
    let name = names[0]["metadata"]["name"].as_str().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:9090/proxy/metrics");
    Metrics::parse(&cluster.kubectl(&["get", "--raw", &path])?)
}

/// Waits until schedspan traces a scheduler, and what else is asked of its metrics.
fn traced(cluster: &Cluster, reached: impl Fn(&Metrics) -> bool) -> Result<Metrics> {
    wait_until("schedspan to trace the scheduler", TIMEOUT, || {
        let metrics = metrics(cluster)?;
        Ok((metrics.sum("schedspan_schedulers", &[]) == 1.0 && reached(&metrics)).then_some(metrics))
    })
}

/// The daemon's process on the control plane, if there is one.
fn daemon(cluster: &Cluster) -> Result<Option<String>> {
    let all = cluster.on_node(CONTROL_PLANE, &["sh", "-c", "pgrep -x schedspan || true"])?;
    ensure!(!all.contains('\n'), "schedspan runs more than once: {all:?}");
    Ok((!all.is_empty()).then_some(all))
}

fn probes(cluster: &Cluster) -> Result<usize> {
    let pid = cluster.pid()?.to_string();
    Ok(cluster.on_node(CONTROL_PLANE, &["bash", "-c", PROBES, "probes", &pid])?.trim().parse()?)
}

/// A Pod for the worker.
fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeSelector": { "kubernetes.io/hostname": WORKER },
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": images::pause_name(),
                "imagePullPolicy": "Never",
                "resources": { "requests": { "cpu": cpu } },
            }],
        },
    })
}

fn create(cluster: &Cluster, pods: Vec<Value>) -> Result<()> {
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": pods });
    cluster.manifest("create", &list.to_string()).map(drop)
}

fn items(cluster: &Cluster) -> Result<Vec<Value>> {
    let mut list = cluster.get(&["pods"])?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn wait_for_pods(cluster: &Cluster, what: &str, reached: impl Fn(&[Value]) -> bool) -> Result<()> {
    wait_until(what, TIMEOUT, || {
        thread::sleep(INTERVAL);
        Ok(reached(&items(cluster)?).then_some(()))
    })
}

/// Deletes all Pods of the namespace `default`.
fn delete(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false"])?;
    wait_for_pods(cluster, "deleted Pods to be gone", <[Value]>::is_empty)
}

/// The Pods, and the end of what schedspan logged.
fn logs(cluster: &Cluster) -> String {
    let mut text = String::new();
    for arguments in [
        &["get", "pods", "--namespace", NAMESPACE, "--output=wide"][..],
        &["logs", "--namespace", NAMESPACE, "--selector=app.kubernetes.io/name=schedspan", "--tail=20"],
    ] {
        let said = cluster.kubectl(arguments).unwrap_or_else(|error| format!("{error:#}"));
        text += &format!("\n--- kubectl {}:\n{said}", arguments[..2].join(" "));
    }
    text
}
