//! The processes of a cluster in its folder: started on free ports, and restarted.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, ensure};
use xtask::components::Component;

use super::access;
use crate::{
    http::agent,
    processes::{self, Environment, Ports, Process, State, free_ports},
    wait::wait_until,
};

/// The limit for a component to become ready.
pub(super) const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts to start a component whose ports another process has taken meanwhile.
const PORT_TRIES: usize = 5;

/// The processes of a cluster.
pub(super) struct Members {
    pub(super) dir: PathBuf,
    pub(super) state: State,
}

impl Members {
    /// A path in the cluster's folder, as an argument.
    pub(super) fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// # Errors
    ///
    /// If the cluster has no such process or port.
    pub(super) fn port(&self, process: &str, port: &str) -> Result<u16> {
        let port = self.state.process(process)?.ports.get(port);
        port.copied().with_context(|| format!("{process} has no such port"))
    }

    /// A copy of a program in the cluster's folder. Probes are in all processes of a file: those of other daemons on this machine must
    /// not be in this cluster's.
    ///
    /// # Errors
    ///
    /// If it cannot be copied.
    pub(super) fn copy(&self, executable: &Path) -> Result<PathBuf> {
        let copy = self.dir.join("bin").join(executable.file_name().context("an executable has a name")?);
        fs::create_dir_all(copy.parent().context("a file has a folder")?)?;
        fs::copy(executable, &copy).with_context(|| format!("cannot copy {}", executable.display()))?;
        Ok(copy)
    }

    /// Starts a component on free ports, and retries with others if another process takes one meanwhile. `arguments`
    /// returns the component's arguments and the URL that answers once it is ready.
    ///
    /// # Errors
    ///
    /// If the component cannot be built or started, or does not become ready.
    pub(super) fn launch(
        &mut self,
        component: Component,
        ports: &[&str],
        arguments: impl Fn(&Ports) -> (Vec<String>, String),
    ) -> Result<()> {
        let executable = component.executable()?;
        self.launch_executable(component.name, &executable, &Environment::new(), ports, arguments)
    }

    /// Starts any executable like [`launch`](Self::launch), under this name.
    ///
    /// # Errors
    ///
    /// If it cannot be started, or does not become ready.
    pub(super) fn launch_executable(
        &mut self,
        name: &str,
        executable: &Path,
        environment: &Environment,
        ports: &[&str],
        arguments: impl Fn(&Ports) -> (Vec<String>, String),
    ) -> Result<()> {
        let executable = executable.display().to_string();
        for tries in 1.. {
            let ports = free_ports(ports)?;
            let (arguments, health) = arguments(&ports);
            let argv = [vec![executable.clone()], arguments].concat();
            let Err(error) = self.start(name, argv, environment.clone(), ports, health) else { break };
            if tries == PORT_TRIES || !error.to_string().contains("address already in use") {
                return Err(error);
            }
            if let Some(process) = self.state.processes.pop() {
                process.stop(processes::GRACE)?;
                fs::remove_file(process.log)?;
            }
        }
        Ok(())
    }

    /// Stops a process and starts it again, with the same arguments, environment and ports.
    ///
    /// # Errors
    ///
    /// If there is none, it does not end, or does not become ready again.
    pub(super) fn restart(&mut self, name: &str) -> Result<()> {
        let position = self.state.processes.iter().position(|process| process.name == name);
        let position = position.with_context(|| format!("this cluster runs no {name}"))?;
        self.state.processes[position].stop(processes::GRACE)?;
        let Process { name, argv, environment, ports, health, .. } = self.state.processes.remove(position);
        self.start(&name, argv, environment, ports, health)
    }

    /// Starts a process, records it and waits until it is ready.
    fn start(
        &mut self,
        name: &str,
        argv: Vec<String>,
        environment: Environment,
        ports: Ports,
        health: String,
    ) -> Result<()> {
        let start = Instant::now();
        self.state.processes.push(Process::start(&self.dir, name, argv, environment, ports, health)?);
        self.state.save(&self.dir)?;
        let process = self.state.process(name)?;
        let certificates = access::certificates(&self.dir);
        wait_until(&format!("an answer of {name} at {}", process.health), READY_TIMEOUT, || {
            ensure!(process.alive(), "{name} ended by itself");
            let answer = agent(&certificates)?.get(&process.health).call();
            // Components answer 5xx until they are ready. The Collector has no page and answers 404.
            Ok(answer.ok().filter(|answer| !answer.status().is_server_error()))
        })
        .map_err(|error| anyhow!("{error:#}; {}", process.log_tail()))?;
        let ports: Vec<_> = process.ports.values().map(ToString::to_string).collect();
        let ready = start.elapsed().as_secs_f32();
        eprintln!("started  {name}, pid {}, port {}, ready in {ready:.1} s", process.pid, ports.join(", "));
        Ok(())
    }
}
