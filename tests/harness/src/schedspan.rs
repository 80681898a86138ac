//! The daemon as a child: started, asked, stopped, killed.

use std::{
    env,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::{http::agent, metrics::Metrics, processes::free_ports, wait::wait_until};

/// From its start until it traces: the executable is read and some forty probes are attached.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// From SIGTERM to its end: twice what it allows its last spans.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How to start it.
pub struct Options<'a> {
    pub executable: &'a Path,
    pub kubeconfig: PathBuf,
    /// Where spans go, and how: `grpc` or `http/protobuf`.
    pub endpoint: String,
    pub protocol: &'static str,
    /// Whether it prints waterfalls, on xtask's own standard output.
    pub waterfalls: bool,
    /// What it logs, over all starts.
    pub log: PathBuf,
    /// Arguments of `setpriv`: what it may do.
    pub rights: &'a [&'a str],
    /// Further arguments of `schedspan run`.
    pub arguments: &'a [&'a str],
    /// Further variables of its environment.
    pub environment: &'a [(&'a str, &'a str)],
}

/// A running daemon. It is killed when it is dropped and when xtask ends.
pub struct Schedspan {
    child: Child,
    log: PathBuf,
    /// Bytes of the log that are of earlier starts.
    skip: usize,
    /// Where it listens.
    server: String,
}

impl Schedspan {
    /// Starts it and waits until it traces a scheduler.
    ///
    /// # Errors
    ///
    /// If it ends or does not get there.
    pub fn start(options: &Options<'_>) -> Result<Self> {
        let Options {
            executable,
            kubeconfig,
            endpoint,
            protocol,
            waterfalls,
            log,
            rights,
            arguments,
            environment,
        } = options;
        let address = format!("127.0.0.1:{}", free_ports(&["metrics"])?["metrics"]);
        // The kernel ends it with xtask, however that ends.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .args(*rights)
            .arg(executable)
            .args(["run", "--listen", &address]);
        command.arg("--kubeconfig").arg(kubeconfig).args(*arguments);
        command.args(["--output", if *waterfalls { "terminal,otlp" } else { "otlp" }]);
        // Nothing of the user's own settings, which may send spans elsewhere.
        for (key, _) in env::vars_os().filter(|(key, _)| key.as_encoded_bytes().starts_with(b"OTEL_")) {
            command.env_remove(key);
        }
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
        command.envs(environment.iter().copied());
        // In a process group of its own: Ctrl-C is for xtask, which stops it in order.
        command.process_group(0).stdin(Stdio::null());
        command.stdout(if *waterfalls { Stdio::inherit() } else { Stdio::null() });
        let file = File::options().create(true).append(true).open(log)?;
        let skip = usize::try_from(file.metadata()?.len())?;
        command.stderr(file);
        let server = format!("http://{address}");
        let mut started = Self { child: command.spawn()?, log: log.clone(), skip, server };
        started.wait_for("schedspan to trace the scheduler", READY_TIMEOUT, |metrics| {
            metrics.sum("schedspan_schedulers", &[]) > 0.0
        })?;
        Ok(started)
    }

    /// Waits until its metrics are as they shall be.
    ///
    /// # Errors
    ///
    /// If it ends, or if they are not within `timeout`.
    pub fn wait_for(
        &mut self,
        what: &str,
        timeout: Duration,
        reached: impl Fn(&Metrics) -> bool,
    ) -> Result<()> {
        wait_until(what, timeout, || {
            if let Some(status) = self.child.try_wait()? {
                bail!("schedspan ended with {status}");
            }
            // It listens a moment after its start.
            Ok(self.metrics().ok().filter(&reached).map(drop))
        })
    }

    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::read(&agent(Path::new(""))?, &format!("{}/metrics", self.server))
    }

    /// Where it listens, for `schedspan explain` and `top`.
    pub fn server(&self) -> &str {
        &self.server
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged.
    ///
    /// # Errors
    ///
    /// If its log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?[self.skip..]).into_owned())
    }

    /// Ends it in order, so that its last spans leave.
    ///
    /// # Errors
    ///
    /// If it does not end in time, or not with success.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let status = wait_until("the end of schedspan", STOP_TIMEOUT, || Ok(self.child.try_wait()?))?;
        ensure!(status.success(), "schedspan ended with {status} after SIGTERM");
        Ok(())
    }
}

impl Drop for Schedspan {
    /// `kill -9`, where it still runs.
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait(); // It is a child of ours: there is no other outcome.
    }
}
