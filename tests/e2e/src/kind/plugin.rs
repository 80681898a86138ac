//! `kubectl schedspan` in a real cluster: from the kubeconfig through the API server to the daemon beside the scheduler that leads.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{ChildStdout, Command, Output, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xtask::{machine, paths};

use super::{
    cluster::{CONTROL_PLANE, Cluster},
    images,
    operations::{delete, traced},
};

const REPLICAS: usize = 3;
/// A port is forwarded for so long.
const UI_SECONDS: &str = "5";
/// The folder of the plugin in the shared one.
const FOLDER: &str = "plugins";

/// A Deployment is applied with a trace and becomes Ready; its Pods are explained, and the page's port is forwarded.
pub(super) fn run(cluster: &Cluster) -> Result<((), String)> {
    install(cluster)?;
    traced(cluster, 1)?;
    let file = cluster.shared().join("web.json");
    fs::write(&file, deployment().to_string())?;
    let file = file.display().to_string();
    let (table, said) = plugin(cluster, &["traced", "--timeout", "60s", "--", "apply", "--filename", &file])?;
    let ready =
        table.lines().filter(|line| line.contains("default/web-") && line.contains(" Ready ")).count();
    ensure!(ready == REPLICAS, "{ready} of {REPLICAS} Pods are Ready: {table}{said}");
    let start = Instant::now();
    explained(cluster)?;
    let took = start.elapsed().as_secs_f32();
    let (top, _) = plugin(cluster, &["top", "--output", "json"])?;
    ensure!(serde_json::from_str::<Value>(&top)?["schedulers"] == 1, "{top}");
    forwarded(cluster)?;
    cluster.kubectl(&["delete", "deployment", "web"])?;
    delete(cluster)?;
    Ok(((), format!("{REPLICAS} Pods traced until Ready, and explained in {took:.1} s")))
}

/// The Pods of the Deployment are explained by the daemon on the leader's Node.
pub(super) fn explained(cluster: &Cluster) -> Result<()> {
    let (reports, said) = plugin(cluster, &["explain", "--selector", "app=web", "--output", "json"])?;
    ensure!(!said.contains("asks all"), "the leader is not known: {said}");
    let reports: Value = serde_json::from_str(&reports)?;
    let reports = reports["items"].as_array().context("no list of reports")?;
    let bound = reports.iter().filter(|report| report["attempts"][0]["result"] == "Success").count();
    ensure!(bound == REPLICAS, "{bound} of {REPLICAS} Pods are explained: {reports:?}");
    Ok(())
}

/// A port of this host leads to the daemon.
fn forwarded(cluster: &Cluster) -> Result<()> {
    let mut ui = command(cluster, "timeout", &[UI_SECONDS, "kubectl", "schedspan", "ui"]);
    let mut ui = ui.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let answer = ui.stdout.take().context("no output").and_then(|output| answer(cluster, output));
    ui.wait()?;
    let answer = answer?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "the forwarded port answers {answer:?}");
    Ok(())
}

/// The daemon's answer at the URL that is printed.
fn answer(cluster: &Cluster, printed: ChildStdout) -> Result<String> {
    let mut url = String::new();
    BufReader::new(printed).read_line(&mut url)?;
    let port = url.trim().trim_end_matches('/').rsplit(':').next().context("no URL")?;
    let ask = format!(
        r"exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /api/v1/top HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3; cat <&3"
    );
    let Output { stdout, .. } = cluster.engine.command("bash").args(["-c", &ask]).output()?;
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "web" },
        "spec": {
            "replicas": REPLICAS,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": false,
                    "containers": [{ "name": "main", "image": images::pause_name(), "imagePullPolicy": "Never" }],
                },
            },
        },
    })
}

/// Puts the image's executable where kubectl finds it.
fn install(cluster: &Cluster) -> Result<()> {
    let folder = cluster.shared().join(FOLDER);
    fs::create_dir_all(&folder)?;
    let executable = paths::target().join("oci").join(machine::own()?.arch).join("usr/bin/schedspan");
    fs::copy(executable, folder.join("kubectl-schedspan"))?;
    let holder = cluster.get(&["lease", "--namespace=kube-system", "kube-scheduler"])?;
    let holder = holder["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    ensure!(holder.starts_with(CONTROL_PLANE), "{holder} leads instead of {CONTROL_PLANE}");
    Ok(())
}

fn command(cluster: &Cluster, program: &str, arguments: &[&str]) -> Command {
    let mut command = cluster.engine.command(program);
    let folder = cluster.shared().join(FOLDER);
    let path =
        command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value).unwrap_or_default();
    let path = format!("{}:{}", folder.display(), path.display());
    command.env("PATH", path).args(arguments).stdin(Stdio::null());
    command
}

/// Standard output and standard error of the plugin.
fn plugin(cluster: &Cluster, arguments: &[&str]) -> Result<(String, String)> {
    let Output { status, stdout, stderr } =
        command(cluster, "kubectl", &[&["schedspan"], arguments].concat()).output()?;
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure!(status.success(), "kubectl schedspan {arguments:?} ended with {status}: {stdout}{stderr}");
    Ok((stdout, stderr))
}
