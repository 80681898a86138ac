//! Deployment: the API server accepts the manifests, and the image's static executable works with exactly their privileges, and
//! reports a missing one and other missing things.

use std::{
    env,
    fs::{self, Permissions},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use harness::{
    api::{NodeSize, objects, pod},
    processes::free_ports,
    schedspan::{Options, Schedspan},
    stage::Stage,
    wait::wait_until,
};
use rustix::{
    fs::{XattrFlags, setxattr},
    process::{Pid, Signal, kill_process},
};
use xtask::{
    components::{HELM, KUSTOMIZE},
    docs, image, machine, manifests,
};

use crate::checks;

/// Kinds of an operator's API, which this API server lacks.
const FOREIGN: [&str; 4] = ["PodMonitor", "PrometheusRule", "SecurityContextConstraints", "ServiceMonitor"];
/// The privileges in the manifests, as arguments of `setpriv`: at most three capabilities.
const RIGHTS: [&str; 2] = ["--no-new-privs", "--bounding-set=-all,+bpf,+perfmon,+sys_ptrace"];
/// A capability, the arguments of `setpriv` that keep all others, and its purpose.
const LESS: [(&str, &str, &str); 3] = [
    ("CAP_BPF", "--bounding-set=-all,+perfmon,+sys_ptrace", "load eBPF programs"),
    ("CAP_PERFMON", "--bounding-set=-all,+bpf,+sys_ptrace", "attach uprobes"),
    ("CAP_SYS_PTRACE", "--bounding-set=-all,+bpf,+perfmon", "open the executable of a traced process"),
];
const KUBECONFIG: &str = "kubeconfig";
/// The limit for the daemon to answer after its start.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    taken(stage)?;
    let dir = env::temp_dir().join(format!("schedspan-e2e-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let result = install(stage, &dir).and_then(|()| {
        enough(stage)?;
        for less in LESS {
            refused(stage, less).with_context(|| format!("without {}", less.0))?;
        }
        symptoms(stage)
    });
    fs::remove_dir_all(&dir)?;
    result
}

/// The image's executable and a kubeconfig, readable by all users.
fn install(stage: &mut Stage, dir: &Path) -> Result<()> {
    let executable = dir.join("schedspan");
    fs::copy(image::executable(machine::own()?)?, &executable)?;
    setxattr(&executable, "security.capability", image::CAPABILITIES, XattrFlags::empty())?;
    stage.executable = executable;
    let (certificates, theirs) = (stage.cluster.certificates(), dir.join("authority.crt"));
    fs::copy(&certificates, &theirs)?;
    let kubeconfig = fs::read_to_string(stage.cluster.schedspan_kubeconfig())?;
    let from = certificates.display().to_string();
    ensure!(kubeconfig.contains(&from), "the kubeconfig does not name {from}");
    fs::write(dir.join(KUBECONFIG), kubeconfig.replace(&from, &theirs.display().to_string()))?;
    [theirs, dir.join(KUBECONFIG)]
        .iter()
        .try_for_each(|path| Ok(fs::set_permissions(path, Permissions::from_mode(0o644))?))
}

/// The kubeconfig next to the executable.
fn kubeconfig(stage: &Stage) -> PathBuf {
    stage.executable.with_file_name(KUBECONFIG)
}

/// Checks that the API server accepts every field of the chart.
fn taken(stage: &Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    for (variant, manifest) in manifests::all()? {
        let objects = objects(&manifest);
        let known: Vec<_> = objects.iter().filter(|object| !FOREIGN.contains(&object.kind)).collect();
        ensure!(known.len() >= 5, "{variant} has but {} objects", known.len());
        known.iter().try_for_each(|object| api.apply(object, true)).with_context(|| variant)?;
        println!("         {variant}: {} of {} objects tried", known.len(), objects.len());
    }
    Ok(())
}

/// Checks that the daemon is ready and traces with exactly the privileges in the manifests.
fn enough(stage: &Stage) -> Result<()> {
    let (code, said) = doctor(stage, &RIGHTS, &stage.cluster.otlp_grpc()?)?;
    // Another test checks the contexts.
    let scheduler = format!("process {}, ", stage.cluster.scheduler()?.pid);
    let fine = said.lines().all(|line| line.starts_with("ok ") || line.contains(&scheduler));
    ensure!(code == Some(0) && fine && said.contains(&scheduler), "{code:?}: {said}");

    let api = stage.cluster.api()?;
    let mut schedspan =
        Schedspan::start(&Options { rights: &RIGHTS, kubeconfig: kubeconfig(stage), ..stage.options()? })?;
    api.create_node("node-0", NodeSize::default())?;
    api.create_pod("default", &pod("one", "1"))?;
    schedspan.wait_for("the span of an attempt", ATTEMPT_TIMEOUT, |metrics| {
        metrics.sum("schedspan_attempts_total", &[("result", "Success")]) == 1.0
    })?;
    let metrics = schedspan.metrics()?;
    checks::nothing_lost(&metrics)?;
    let lookups = metrics.sum("schedspan_context_lookups_total", &[("result", "none")]);
    ensure!(lookups == 1.0, "the Pod was not read through the API");
    documented(stage, &schedspan)?;
    schedspan.stop()
}

/// Checks the commands in the documentation, in root's shell.
fn documented(stage: &Stage, schedspan: &Schedspan) -> Result<()> {
    let tools = [stage.executable.clone(), HELM.executable()?, KUSTOMIZE.executable()?];
    let own = env::var_os("PATH").unwrap_or_default();
    let folders = tools.iter().filter_map(|tool| tool.parent().map(Path::to_owned));
    let path = env::join_paths(folders.chain(env::split_paths(&own)))?;
    let blocks = docs::blocks("here")?;
    ensure!(!blocks.is_empty(), "there are no commands to run");
    for block in blocks {
        let mut shell = Command::new("sh");
        shell.env("PATH", &path).env("KUBECONFIG", kubeconfig(stage));
        for (variable, server) in
            [("SCHEDSPAN_SERVER", "debug"), ("SCHEDSPAN_HEALTH", "health"), ("SCHEDSPAN_METRICS", "metrics")]
        {
            shell.env(variable, format!("http://{}", schedspan.address(server)));
        }
        shell.env("OTEL_EXPORTER_OTLP_ENDPOINT", stage.cluster.otlp_grpc()?);
        block.run(&mut shell)?;
        println!("         {}", block.place);
    }
    Ok(())
}

/// Checks that the daemon reports a missing capability in one line, and is alive but not ready.
fn refused(stage: &Stage, (name, rights, what): (&str, &str, &str)) -> Result<()> {
    let rights = [&RIGHTS[..RIGHTS.len() - 1], &[rights]].concat();
    let (code, said) = doctor(stage, &rights, &stage.cluster.otlp_grpc()?)?;
    let missing: Vec<_> = said.lines().filter(|line| line.starts_with("MISSING")).collect();
    ensure!(
        code == Some(1) && matches!(missing[..], [line] if line.contains(name) && line.contains(what)),
        "the doctor ended with {code:?} and said {said}"
    );

    let address = format!("127.0.0.1:{}", free_ports(&["health"])?["health"]);
    let mut daemon = daemon(&stage.executable, &rights, &address)?;
    let answer = wait_until("schedspan to answer", ANSWER_TIMEOUT, || {
        if let Some(status) = daemon.try_wait()? {
            bail!("schedspan ended with {status}");
        }
        Ok(answer(&address, "readyz").ok())
    });
    let alive = answer.and_then(|ready| Ok((ready, self::answer(&address, "healthz")?)));
    kill_process(Pid::from_child(&daemon), Signal::TERM)?;
    let output = daemon.wait_with_output()?;
    let ((ready, reason), (alive, _)) = alive?;
    ensure!(ready == 503 && alive == 200, "/readyz says {ready}, /healthz {alive}");
    ensure!(reason.lines().count() == 1, "not one line: {reason}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let logged: Vec<_> = stderr.lines().filter(|line| line.contains("ERROR")).collect();
    ensure!(logged.len() == 1, "not one line is logged: {stderr}");
    for text in [reason.as_str(), logged[0]] {
        ensure!(text.contains(name) && text.contains(what), "{text:?} does not say {name} and why");
    }
    ensure!(output.status.code() == Some(2), "ended with {}", output.status);
    Ok(())
}

/// Checks that the doctor has a line for each missing thing.
fn symptoms(stage: &Stage) -> Result<()> {
    // No process listens on this port, which was free until now.
    let closed = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let (code, said) = doctor(stage, &RIGHTS, &format!("http://{closed}"))?;
    ensure!(code == Some(1) && says(&said, "MISSING", "Collector", &closed.to_string()), "{code:?}: {said}");

    let own = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    let (code, said) = examined(stage, &own, &stage.cluster.otlp_grpc()?)?;
    ensure!(code == Some(1) && says(&said, "MISSING", "processes", "hostPID: true"), "{code:?}: {said}");
    ensure!(says(&said, "WARNING", "scheduler", "none"), "{said}");
    Ok(())
}

fn says(said: &str, state: &str, what: &str, text: &str) -> bool {
    let line = said.lines().find(|line| line.split_whitespace().nth(1) == Some(what));
    line.is_some_and(|line| line.starts_with(state) && line.contains(text))
}

/// The doctor's output with these privileges, and its exit code.
fn doctor(stage: &Stage, rights: &[&str], endpoint: &str) -> Result<(Option<i32>, String)> {
    examined(stage, &[&["setpriv"], rights].concat(), endpoint)
}

/// The doctor's output when run by another command.
fn examined(stage: &Stage, command: &[&str], endpoint: &str) -> Result<(Option<i32>, String)> {
    let mut doctor = Command::new(command[0]);
    doctor.args(&command[1..]).arg(&stage.executable).arg("doctor");
    doctor.arg("--kubeconfig").arg(kubeconfig(stage));
    doctor.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let output = doctor.output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn daemon(executable: &Path, rights: &[&str], address: &str) -> Result<Child> {
    let mut daemon = Command::new("setpriv");
    daemon.args(["--pdeathsig", "KILL"]).args(rights).arg(executable).args([
        "run",
        "--debug-listen=off",
        "--health-listen",
        address,
    ]);
    daemon.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok(daemon.spawn()?)
}

/// Status and text of an endpoint of the daemon.
fn answer(address: &str, path: &str) -> Result<(u16, String)> {
    let agent = harness::http::agent(Path::new(""))?;
    let mut response = agent.get(format!("http://{address}/{path}")).call()?;
    Ok((response.status().as_u16(), response.body_mut().read_to_string()?))
}
