//! The webhook as a child process, and its configuration from the chart.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use xtask::manifests;

use crate::{
    api::{Api, objects},
    http::agent,
    metrics::Metrics,
    processes::free_ports,
    stage::Stage,
    wait::wait_until,
};

/// It needs no privileges.
const RIGHTS: [&str; 3] = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"];
/// Its name in the chart's manifests.
const NAME: &str = "schedspan-webhook";
const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// The limit for its end after SIGTERM: it serves for another 3 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A running webhook. It is killed when it is dropped and when this process ends.
pub struct Webhook {
    child: Child,
    log: PathBuf,
    port: u16,
    /// The ports of metrics and health.
    metrics: u16,
    health: u16,
}

impl Webhook {
    /// Starts a webhook with these further arguments. It registers its certificate with the API server; this does not wait for it.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(stage: &Stage, name: &str, arguments: &[&str]) -> Result<Self> {
        let ports = free_ports(&["https", "metrics", "health"])?;
        let [port, metrics, health] = ["https", "metrics", "health"].map(|name| ports[name]);
        let log = stage.cluster.dir().join(format!("{name}.log"));
        let mut command = Command::new("setpriv");
        // The kernel kills it when this process ends.
        command.args(["--pdeathsig", "KILL"]).args(RIGHTS).arg(&stage.executable).arg("webhook");
        command.args(["--address", &format!("127.0.0.1:{port}")]);
        command.args(["--metrics-listen", &format!("127.0.0.1:{metrics}")]);
        command.args(["--health-listen", &format!("127.0.0.1:{health}")]);
        command.args(["--host", "127.0.0.1", "--configuration", NAME]).args(arguments);
        command.arg("--kubeconfig").arg(stage.cluster.webhook_kubeconfig());
        command.process_group(0).env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(File::options().create(true).append(true).open(&log)?).spawn()?;
        Ok(Self { child, log, port, metrics, health })
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    ///
    /// If it ends, or is not ready in time.
    pub fn wait(&mut self) -> Result<()> {
        wait_until("the webhook to be ready", READY_TIMEOUT, || {
            if let Some(status) = self.child.try_wait()? {
                bail!("the webhook ended with {status}: {}", self.log()?);
            }
            // It does not listen immediately after its start.
            Ok(self.readiness().ok().filter(|(status, _)| *status == 200).map(drop))
        })
        .with_context(|| self.log().unwrap_or_default())
    }

    /// Status and text of `/readyz`.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub fn readiness(&self) -> Result<(u16, String)> {
        let mut response =
            agent(Path::new(""))?.get(format!("http://127.0.0.1:{}/readyz", self.health)).call()?;
        Ok((response.status().as_u16(), response.body_mut().read_to_string()?))
    }

    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::read(&agent(Path::new(""))?, &format!("http://127.0.0.1:{}/metrics", self.metrics))
    }

    /// The number of reviews with this result.
    ///
    /// # Errors
    ///
    /// If it does not serve its metrics.
    pub fn reviews(&self, result: &str) -> Result<f64> {
        Ok(self.metrics()?.sum("schedspan_webhook_reviews_total", &[("result", result)]))
    }

    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }

    /// The URL for reviews.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}/inject", self.port)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with SIGTERM.
    ///
    /// # Errors
    ///
    /// If it does not end successfully in time.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = wait_until("the end of the webhook", STOP_TIMEOUT, || Ok(self.child.try_wait()?))?;
        ensure!(status.success(), "the webhook ended with {status} after SIGTERM");
        Ok(())
    }
}

impl Drop for Webhook {
    /// Kills it if it still runs.
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait(); // The wait for our own child does not fail.
    }
}

/// Applies the chart's roles and configuration of the webhook, rendered with these values.
///
/// # Errors
///
/// If the API server refuses.
pub fn register(api: &Api, webhook: &Webhook, values: &[&str]) -> Result<()> {
    let manifest = manifests::with(&[&["webhook.enabled=true"], values].concat())?;
    let service = |line: &str| line.trim_start().starts_with("service: ");
    ensure!(manifest.lines().any(service), "the configuration names no Service: {manifest}");
    let line = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        // Here it runs outside the cluster.
        if service(line) { format!("{:indent$}url: {}\n", "", webhook.url()) } else { format!("{line}\n") }
    };
    let manifest: String = manifest.lines().map(line).collect();
    let kinds = ["ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration"];
    let objects = objects(&manifest);
    let mut ours = objects.iter().filter(|object| object.name == NAME && kinds.contains(&object.kind));
    ours.try_for_each(|object| api.apply(object, false))
}

/// The certificates that the API server trusts, in PEM.
///
/// # Errors
///
/// If there is no configuration.
pub fn bundle(api: &Api) -> Result<String> {
    let configuration = api.get(&format!("{CONFIGURATION}/{NAME}"))?;
    let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default();
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    Ok(String::from_utf8(BASE64_STANDARD.decode(bundle)?)?)
}
