//! `kubectl schedspan` in a real cluster: from the kubeconfig through the API server to the daemon beside the scheduler that leads.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _},
    process::{Child, Command, Output, Stdio},
    thread,
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

pub(super) const REPLICAS: usize = 3;
/// Runs `kubectl schedspan ui` until standard input ends.
const UI: &str = "kubectl schedspan ui & read -r _; kill $!; wait";
/// The folder of the plugin in the shared one.
const FOLDER: &str = "plugins";

/// A Deployment is applied with a trace and becomes Ready; its Pods are explained, and the page's port is forwarded.
pub(super) fn run(cluster: &Cluster) -> Result<((), String)> {
    install(cluster)?;
    let leader = leader(cluster)?;
    ensure!(leader.as_deref() == Some(CONTROL_PLANE), "{leader:?} leads instead of {CONTROL_PLANE}");
    traced(cluster, 1)?;
    apply(cluster, &[])?;
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

/// Applies the Deployment with a trace and these flags, and waits until its Pods are Ready. Returns the trace's id.
///
/// # Errors
///
/// If they do not become Ready.
pub(super) fn apply(cluster: &Cluster, flags: &[&str]) -> Result<String> {
    let file = cluster.shared().join("web.json");
    fs::write(&file, deployment().to_string())?;
    let file = file.display().to_string();
    let arguments = [&["traced", "--timeout", "60s"], flags, &["--", "apply", "--filename", &file]].concat();
    let (table, said) = plugin(cluster, &arguments)?;
    let ready =
        table.lines().filter(|line| line.contains("default/web-") && line.contains(" Ready ")).count();
    ensure!(ready == REPLICAS, "{ready} of {REPLICAS} Pods are Ready: {table}{said}");
    said.lines().find_map(|line| line.strip_prefix("trace ")).map(str::to_owned).context("no trace id")
}

/// The Pods of the Deployment are explained by the daemon on the leader's Node.
fn explained(cluster: &Cluster) -> Result<()> {
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
    let answer = Page::open(cluster)?.get("/api/v1/top")?;
    ensure!(answer.starts_with("HTTP/1.0 200"), "the forwarded port answers {answer:?}");
    Ok(())
}

/// `kubectl schedspan ui`, which ends when this is dropped.
pub(super) struct Page<'a> {
    cluster: &'a Cluster,
    process: Child,
    port: String,
}

impl<'a> Page<'a> {
    /// # Errors
    ///
    /// If it prints no URL.
    pub(super) fn open(cluster: &'a Cluster) -> Result<Self> {
        let mut ui = command(cluster, "sh", &["-c", UI]);
        let process = ui.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut page = Self { cluster, process, port: String::new() };
        let mut url = String::new();
        BufReader::new(page.process.stdout.take().context("no output")?).read_line(&mut url)?;
        page.port = url.trim().trim_end_matches('/').rsplit(':').next().context("no URL")?.to_owned();
        Ok(page)
    }

    /// The answer to a request, with its head. It is read as far as the head says: the connection's end comes a second later.
    ///
    /// # Errors
    ///
    /// If it cannot be asked.
    pub(super) fn get(&self, path: &str) -> Result<String> {
        let mut request = self.request(path).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut output = BufReader::new(request.stdout.take().context("no output")?);
        let mut answer = String::new();
        while output.read_line(&mut answer)? > "\r\n".len() {}
        let head = answer.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        output.take(length.unwrap_or(0)).read_to_string(&mut answer)?;
        request.kill()?;
        request.wait()?;
        Ok(answer)
    }

    /// A request whose answer does not end by itself. Its first line has arrived.
    ///
    /// # Errors
    ///
    /// If it is not answered.
    pub(super) fn stream(&self, path: &str) -> Result<Child> {
        let mut stream = self.request(path).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        let mut output = BufReader::new(stream.stdout.take().context("no output")?);
        output.read_line(&mut line)?;
        ensure!(line.starts_with("HTTP/1.0 200"), "{path} answers {line:?}");
        thread::spawn(move || io::copy(&mut output, &mut io::sink()));
        Ok(stream)
    }

    fn request(&self, path: &str) -> Command {
        let ask = format!(
            r"exec 3<>/dev/tcp/127.0.0.1/{}; printf 'GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3; cat <&3",
            self.port
        );
        let mut command = self.cluster.engine.command("bash");
        command.args(["-c", &ask]).stdin(Stdio::null());
        command
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It has ended then, or cannot be waited for.
        let _ = self.process.wait();
    }
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
pub(super) fn install(cluster: &Cluster) -> Result<()> {
    let folder = cluster.shared().join(FOLDER);
    fs::create_dir_all(&folder)?;
    let executable = paths::target().join("oci").join(machine::own()?.arch).join("usr/bin/schedspan");
    fs::copy(executable, folder.join("kubectl-schedspan"))?;
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

/// The Node of the scheduler that holds the Lease.
pub(super) fn leader(cluster: &Cluster) -> Result<Option<String>> {
    let lease = cluster.get(&["lease", "--namespace=kube-system", "kube-scheduler"])?;
    let holder = lease["spec"]["holderIdentity"].as_str().and_then(|holder| holder.rsplit_once('_'));
    Ok(holder.map(|(node, _)| node.to_owned()))
}

/// Standard output and standard error of the plugin.
pub(super) fn plugin(cluster: &Cluster, arguments: &[&str]) -> Result<(String, String)> {
    let Output { status, stdout, stderr } =
        command(cluster, "kubectl", &[&["schedspan"], arguments].concat()).output()?;
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure!(status.success(), "kubectl schedspan {arguments:?} ended with {status}: {stdout}{stderr}");
    Ok((stdout, stderr))
}
