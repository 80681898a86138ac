//! A real control plane on this machine: etcd, kube-apiserver, kube-scheduler, kube-controller-manager and an
//! OpenTelemetry Collector, all on free ports of 127.0.0.1, all state in one folder.
//!
//! # Layout
//!
//! - `options`: the components to start
//! - `collector`, `etcd`, `apiserver`, `scheduler`, `controllers`: each component's arguments and files
//! - `access`: users, kubeconfigs, certificates
//! - `members`: the processes, started and restarted
//! - `command`: `cargo xtask cluster`

mod access;
mod apiserver;
mod collector;
pub mod command;
mod controllers;
mod etcd;
mod members;
mod options;
mod scheduler;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use xtask::{
    components::{APISERVER, COLLECTOR, CONTROLLER_MANAGER, ETCD, SCHEDULER},
    paths,
};

use self::members::Members;
pub use self::{
    options::{GROUPS_OF_GROUPS, Groups, Options, OwnSpans},
    scheduler::Scheduler,
};
use crate::{
    api::{Api, NodeSize},
    guard::Guard,
    http::agent,
    metrics::Metrics,
    processes::{self, Environment, Ports, Process, State},
};

/// A running cluster. It ends when it is dropped and when this process ends, however that happens, unless it is detached.
pub struct Cluster {
    members: Members,
    guard: Option<Guard>,
}

impl Cluster {
    /// Builds the missing components and starts a cluster, with a line per step on stderr. All its state is in `dir`,
    /// which must be empty or absent.
    ///
    /// # Errors
    ///
    /// If a component cannot be built or does not become ready (with the end of its log), or if `dir` holds something.
    /// Everything started until then is stopped.
    pub fn up(dir: &Path, options: &Options) -> Result<Self> {
        // Builds take minutes, so they come before anything runs.
        for component in [ETCD, APISERVER, SCHEDULER, CONTROLLER_MANAGER, COLLECTOR] {
            component.executable()?;
        }
        let dir = std::path::absolute(dir)?;
        prepare(&dir)?;
        let guard = Guard::start(&["guard".as_ref(), "--dir".as_ref(), dir.as_os_str()])?;
        let mut cluster = Self { guard: Some(guard), members: Members { state: State::default(), dir } };
        cluster.start(options)?;
        Ok(cluster)
    }

    /// Starts a cluster in a new folder below the cache folder, so that several processes can each have one.
    ///
    /// # Errors
    ///
    /// Those of [`up`](Self::up).
    pub fn fresh(options: &Options) -> Result<Self> {
        Self::up(&paths::cache()?.join(format!("run-{}", std::process::id())), options)
    }

    /// The running cluster in `dir`. Dropping this handle does not end the cluster.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn open(dir: &Path) -> Result<Self> {
        let dir = std::path::absolute(dir)?;
        let state = State::load(&dir)?;
        let state = state.with_context(|| {
            format!("no cluster in {}: `cargo xtask cluster up` starts one", dir.display())
        })?;
        Ok(Self { members: Members { dir, state }, guard: None })
    }

    fn start(&mut self, options: &Options) -> Result<()> {
        let members = &mut self.members;
        // First, because other components may send spans to it.
        if !options.no_collector {
            collector::start(members)?;
        }
        etcd::start(members)?;
        apiserver::start(members, options)?;
        scheduler::start(members, options)?;
        if !options.no_controllers && options.one_process.is_none() {
            controllers::start(members, options)?;
        }
        let api = self.api()?;
        for number in 1..=options.nodes {
            api.create_node(&format!("node-{number:04}"), NodeSize::default())?;
        }
        if options.nodes > 0 {
            eprintln!("created  {} nodes", options.nodes);
        }
        Ok(())
    }

    /// Ends the cluster. Unlike a drop it reports failures.
    ///
    /// # Errors
    ///
    /// If a process does not end or the folder cannot be removed.
    pub fn down(mut self) -> Result<()> {
        let _guard = self.guard.take();
        processes::down(self.dir())
    }

    /// Leaves the cluster running after this process: [`processes::down`] ends it.
    ///
    /// # Errors
    ///
    /// If the guard has ended.
    pub fn detach(mut self) -> Result<()> {
        self.guard.take().map_or(Ok(()), Guard::release)
    }

    /// Checks that every process still runs.
    ///
    /// # Errors
    ///
    /// If one does not: its name and the end of its log.
    pub fn check(&self) -> Result<()> {
        match self.processes().iter().find(|process| !process.alive()) {
            Some(process) => bail!("{} ended by itself; {}", process.name, process.log_tail()),
            None => Ok(()),
        }
    }

    /// The folder of all state. It is removed when the cluster ends.
    pub fn dir(&self) -> &Path {
        &self.members.dir
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        access::kubeconfig_path(self.dir(), "admin")
    }

    /// The kubeconfig of schedspan, with the rights that its manifest grants.
    pub fn schedspan_kubeconfig(&self) -> PathBuf {
        access::kubeconfig_path(self.dir(), "schedspan")
    }

    /// The kubeconfig of the webhook, with the rights that its manifest grants.
    pub fn webhook_kubeconfig(&self) -> PathBuf {
        access::kubeconfig_path(self.dir(), access::WEBHOOK)
    }

    /// The certificates that all components serve with.
    pub fn certificates(&self) -> PathBuf {
        access::certificates(self.dir())
    }

    /// The Collector's endpoint for OTLP over gRPC: `http://127.0.0.1:PORT`.
    ///
    /// # Errors
    ///
    /// If the cluster runs without Collector.
    pub fn otlp_grpc(&self) -> Result<String> {
        collector::endpoint(&self.members, "grpc")
    }

    /// The Collector's endpoint for OTLP over HTTP, without `/v1/traces`.
    ///
    /// # Errors
    ///
    /// If the cluster runs without Collector.
    pub fn otlp_http(&self) -> Result<String> {
        collector::endpoint(&self.members, "http")
    }

    /// The Collector's output: a `TracesData` of OTLP as JSON per line, written after 0.4 s at most.
    pub fn spans_file(&self) -> PathBuf {
        collector::spans_file(self.dir())
    }

    /// The processes in the order in which they started.
    pub fn processes(&self) -> &[Process] {
        &self.members.state.processes
    }

    /// The port of a process, by its purpose.
    ///
    /// # Errors
    ///
    /// If there is no such process or port.
    pub fn port(&self, process: &str, port: &str) -> Result<u16> {
        self.members.port(process, port)
    }

    /// # Errors
    ///
    /// If the cluster runs no etcd.
    pub fn etcd_pid(&self) -> Result<i32> {
        Ok(self.members.state.process(ETCD.name)?.pid)
    }

    /// Starts any executable as a process of the cluster, on free ports. `arguments` returns its arguments and the URL that
    /// answers once it is ready.
    ///
    /// # Errors
    ///
    /// If it cannot be started, or does not become ready.
    pub fn launch_executable(
        &mut self,
        name: &str,
        executable: &Path,
        environment: &Environment,
        ports: &[&str],
        arguments: impl Fn(&Ports) -> (Vec<String>, String),
    ) -> Result<()> {
        self.members.launch_executable(name, executable, environment, ports, arguments)
    }

    // === Schedulers ===

    /// The cluster's own scheduler.
    ///
    /// # Errors
    ///
    /// If the cluster runs none.
    pub fn scheduler(&self) -> Result<Scheduler> {
        self.scheduler_named(SCHEDULER.name)
    }

    /// A scheduler started by [`scheduler_beside`](Self::scheduler_beside).
    ///
    /// # Errors
    ///
    /// If there is none of that name.
    pub fn scheduler_named(&self, name: &str) -> Result<Scheduler> {
        Scheduler::named(&self.members, name)
    }

    /// Restarts the scheduler with the same arguments and port.
    ///
    /// # Errors
    ///
    /// If it does not end or does not become ready again.
    pub fn restart_scheduler(&mut self) -> Result<()> {
        self.restart_scheduler_named(SCHEDULER.name)
    }

    /// Starts a scheduler again, with the same arguments and port. It may have ended.
    ///
    /// # Errors
    ///
    /// Those of [`restart_scheduler`](Self::restart_scheduler).
    pub fn restart_scheduler_named(&mut self, name: &str) -> Result<()> {
        self.members.restart(name)
    }

    /// Changes the scheduler's configuration and restarts it.
    ///
    /// # Errors
    ///
    /// If the configuration cannot be read or written; those of [`restart_scheduler`](Self::restart_scheduler).
    pub fn configure_scheduler(&mut self, change: impl FnOnce(&mut Value)) -> Result<()> {
        scheduler::configure(&self.members, change)?;
        self.restart_scheduler()
    }

    /// Starts a scheduler beside the cluster's own, for Pods whose `schedulerName` is this name.
    ///
    /// # Errors
    ///
    /// If it does not become ready.
    pub fn scheduler_beside(&mut self, name: &str, executable: &Path, own_spans: OwnSpans) -> Result<()> {
        scheduler::start_beside(&mut self.members, name, executable, own_spans)
    }

    /// Starts a kube-controller-manager beside the cluster's own one, which runs these controllers.
    ///
    /// # Errors
    ///
    /// If the cluster runs none, or this one does not become ready.
    pub fn controllers_beside(&mut self, name: &str, controllers: &str) -> Result<Scheduler> {
        controllers::start_beside(&mut self.members, name, controllers)?;
        self.scheduler_named(name)
    }

    /// Starts another process of the cluster's own scheduler, with the same configuration.
    ///
    /// # Errors
    ///
    /// If it does not become ready.
    pub fn standby_scheduler(&mut self, name: &str) -> Result<()> {
        scheduler::start_standby(&mut self.members, name)
    }

    /// The arguments of the cluster's own scheduler, changed for one on another machine: for Pods whose `schedulerName` is
    /// this name, on this port of all addresses. They name files in the cluster's folder.
    ///
    /// # Errors
    ///
    /// If its configuration cannot be read or written.
    pub fn arguments_elsewhere(&self, name: &str, port: u16) -> Result<Vec<String>> {
        scheduler::arguments_elsewhere(&self.members, name, port)
    }

    /// The metrics of the cluster's own scheduler.
    ///
    /// # Errors
    ///
    /// If it does not answer with metrics.
    pub fn scheduler_metrics(&self) -> Result<Metrics> {
        self.metrics_of(&self.scheduler()?)
    }

    /// # Errors
    ///
    /// If the scheduler does not answer with metrics.
    pub fn metrics_of(&self, scheduler: &Scheduler) -> Result<Metrics> {
        Metrics::read(&agent(&self.certificates())?, &scheduler.metrics_url)
    }

    /// The metrics of the cluster's own scheduler as text.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub fn scheduler_metrics_text(&self) -> Result<String> {
        Metrics::text(&agent(&self.certificates())?, &self.scheduler()?.metrics_url)
    }

    // === API ===

    /// An administrator's client of the API server.
    ///
    /// # Errors
    ///
    /// If the certificates or the kubeconfig cannot be read.
    pub fn api(&self) -> Result<Api> {
        self.api_as(&self.kubeconfig())
    }

    /// A client with the rights of this kubeconfig's user.
    ///
    /// # Errors
    ///
    /// If the certificates or the kubeconfig cannot be read.
    pub fn api_as(&self, kubeconfig: &Path) -> Result<Api> {
        apiserver::client(&self.members, kubeconfig)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.guard.is_some()
            && let Err(error) = processes::down(self.dir())
        {
            eprintln!("cannot end the cluster in {}: {error:#}", self.dir().display());
        }
    }
}

/// Creates the cluster's folder, readable by its user only. The folder of a cluster that has ended is removed first.
fn prepare(dir: &Path) -> Result<()> {
    if let Some(state) = State::load(dir)? {
        if state.processes.iter().any(Process::alive) {
            bail!("a cluster runs in {}: `cargo xtask cluster down` ends it", dir.display());
        }
        processes::down(dir)?;
    }
    let shown = dir.display();
    let empty = !dir.exists() || fs::read_dir(dir)?.next().is_none();
    ensure!(empty, "{shown} is not empty and holds no cluster: give another --dir");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot create {shown}"))?;
    // From here on the folder is ours to remove.
    State::default().save(dir)
}
