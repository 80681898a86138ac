//! The daemon as a child process.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::{http::agent, metrics::Metrics, processes::free_ports, wait::wait_until};

/// The limit for the daemon to trace a scheduler after its start: it reads the executable and attaches some forty probes.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit for the daemon to end after SIGTERM: twice its own limit for exporting the last spans.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The most memory that it may ever have had, whatever a test did to it: half of the chart's limit.
const MAX_PEAK_BYTES: u64 = 128 << 20;

/// Its servers: each has an address.
const SERVERS: [&str; 3] = ["metrics", "health", "debug"];

/// How to start the daemon.
pub struct Options<'a> {
    pub executable: &'a Path,
    pub kubeconfig: PathBuf,
    /// The OTLP endpoint and protocol, `grpc` or `http/protobuf`.
    pub endpoint: String,
    pub protocol: &'static str,
    /// Whether it prints waterfalls on this process's standard output.
    pub waterfalls: bool,
    /// The log file, which all starts append to.
    pub log: PathBuf,
    /// Arguments of `setpriv` that restrict its privileges.
    pub rights: &'a [&'a str],
    /// Further arguments of `schedspan run`.
    pub arguments: &'a [&'a str],
    /// Further environment variables.
    pub environment: &'a [(&'a str, &'a str)],
}

/// A running daemon. It is killed when it is dropped and when this process ends.
pub struct Schedspan {
    child: Child,
    log: PathBuf,
    /// The length of the log before this start.
    skip: usize,
    /// The addresses of its servers, by name.
    ports: BTreeMap<String, u16>,
}

impl Schedspan {
    /// Starts the daemon and waits until it traces a scheduler.
    ///
    /// # Errors
    ///
    /// If it ends, or traces none in time.
    pub fn start(options: &Options<'_>) -> Result<Self> {
        let mut started = Self::spawn(options)?;
        started.wait_for("schedspan to trace the scheduler", READY_TIMEOUT, |metrics| {
            metrics.sum("schedspan_schedulers", &[]) > 0.0
        })?;
        Ok(started)
    }

    /// Starts the daemon.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn spawn(options: &Options<'_>) -> Result<Self> {
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
        let ports = free_ports(&SERVERS)?;
        let own = ports.iter().filter(|(name, _)| !arguments.contains(&&*format!("--{name}-listen")));
        // The kernel kills it when this process ends.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL"])
            .args(*rights)
            .arg(executable)
            .arg("run")
            .args(own.map(|(name, port)| format!("--{name}-listen=127.0.0.1:{port}")));
        command.arg("--kubeconfig").arg(kubeconfig).args(*arguments);
        // What is compared must not depend on how busy the machine is.
        if !arguments.iter().any(|argument| argument.starts_with("--budget")) {
            command.arg("--budget=100%");
        }
        command.args(["--output", if *waterfalls { "terminal,otlp" } else { "otlp" }]);
        // The user's own settings might send spans elsewhere.
        for (key, _) in env::vars_os().filter(|(key, _)| key.as_encoded_bytes().starts_with(b"OTEL_")) {
            command.env_remove(key);
        }
        // Only this process's own schedulers: others on the machine are of other runs.
        command.env("SCHEDSPAN_TRUST", format!("parent={}", std::process::id()));
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
        command.envs(environment.iter().copied());
        // Ctrl-C must reach only this process, which then stops the daemon in order.
        command.process_group(0).stdin(Stdio::null());
        command.stdout(if *waterfalls { Stdio::inherit() } else { Stdio::null() });
        let file = File::options().create(true).append(true).open(log)?;
        let skip = usize::try_from(file.metadata()?.len())?;
        command.stderr(file);
        Ok(Self { child: command.spawn()?, log: log.clone(), skip, ports })
    }

    /// Waits until its metrics reach a state.
    ///
    /// # Errors
    ///
    /// If it ends, or they do not within `timeout`.
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
            // It does not listen immediately after its start.
            Ok(self.metrics().ok().filter(&reached).map(drop))
        })
    }

    pub fn metrics(&self) -> Result<Metrics> {
        Metrics::read(&agent(Path::new(""))?, &format!("http://{}/metrics", self.address("metrics")))
    }

    /// What it answers at a path of its server for health, such as `healthz`.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub fn says(&self, path: &str) -> Result<String> {
        let mut answer =
            agent(Path::new(""))?.get(format!("http://{}/{path}", self.address("health"))).call()?;
        Ok(answer.body_mut().read_to_string()?)
    }

    /// The address of a server: `metrics`, `health`, or `debug` for `schedspan explain` and `top`.
    pub fn address(&self, server: &str) -> String {
        format!("127.0.0.1:{}", self.ports[server])
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its log since this start.
    ///
    /// # Errors
    ///
    /// If its log cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?[self.skip..]).into_owned())
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// If it has been waited for.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Waits until it ends.
    ///
    /// # Errors
    ///
    /// If it does not within `timeout`.
    pub fn wait_for_end(&mut self, timeout: Duration) -> Result<ExitStatus> {
        wait_until("the end of schedspan", timeout, || Ok(self.child.try_wait()?))
    }

    /// The most memory that it has had so far, in bytes.
    fn peak(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
        let kib: u64 = line.context("the kernel does not say how much memory it has had")?.trim().parse()?;
        Ok(kib << 10)
    }

    /// Ends it with SIGTERM, so that it exports its last spans.
    ///
    /// # Errors
    ///
    /// If it does not end successfully in time, or has had too much memory.
    pub fn stop(mut self) -> Result<()> {
        let peak = self.peak()?;
        ensure!(
            peak <= MAX_PEAK_BYTES,
            "schedspan has had {peak} bytes of memory, more than {MAX_PEAK_BYTES}"
        );
        self.signal(Signal::TERM)?;
        let status = self.wait_for_end(STOP_TIMEOUT)?;
        ensure!(status.success(), "schedspan ended with {status} after SIGTERM");
        Ok(())
    }
}

impl Drop for Schedspan {
    /// Kills it if it still runs.
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.wait_for_end(STOP_TIMEOUT); // It cannot end while it waits for a file system that does not answer.
    }
}
