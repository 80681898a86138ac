//! The container engine: the machine's own, or one in an isolated environment that ends with the cluster.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use harness::{
    processes::{self, Environment, Ports, Process, State},
    wait::wait_until,
};
use xtask::{
    components::{Component, HELM, KIND, KUBECTL},
    paths,
};

use super::root;

/// PATH in the environment.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The environment's process, in the cluster's state.
const ENVIRONMENT: &str = "environment";
const SCRIPT: &str = "tests/kind/environment.sh";
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const END_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Provider {
    Docker,
    Podman,
}

impl Provider {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// The daemons that it needs in an environment.
    fn daemon(self) -> &'static str {
        match self {
            Self::Docker => "dockerd",
            Self::Podman => "sleep infinity",
        }
    }
}

/// A working container engine.
pub(super) struct Engine {
    pub(super) provider: Provider,
    /// The cluster's folder.
    pub(super) dir: PathBuf,
    /// The first process of the environment; none with the machine's own engine.
    inside: Option<String>,
    /// PATH.
    path: OsString,
}

impl Engine {
    /// Uses the machine's own engine if it works, and starts one otherwise. `dir` must exist.
    ///
    /// # Errors
    ///
    /// If the environment cannot be made, or the engine does not work in it.
    pub(super) fn start(provider: Provider, dir: &Path) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "a cluster of containers needs root");
        fs::create_dir_all(dir.join("shared"))?;
        // Builds take longer than the limit for an engine to start.
        tools()?;
        if works(Command::new(provider.name()).arg("info")) {
            return Self::open(provider, dir);
        }
        let root = root::root()?;
        let shared =
            [paths::cache()?.join("components"), paths::cache()?.join("kind"), paths::target(), chart()];
        let script = paths::repository().join(SCRIPT).display().to_string();
        let mut argv = vec!["sh".to_owned(), script, root.display().to_string(), dir.display().to_string()];
        argv.extend([cgroup(provider), provider.daemon().to_owned()]);
        argv.extend(shared.iter().map(|path| path.display().to_string()));
        let process =
            Process::start(dir, ENVIRONMENT, argv, Environment::new(), Ports::new(), String::new())?;
        let mut state = State::default();
        state.processes.push(process);
        state.save(dir)?;
        let process = state.process(ENVIRONMENT)?;
        wait_until(&format!("{} in an environment of its own", provider.name()), READY_TIMEOUT, || {
            ensure!(process.alive(), "the environment ended");
            let Ok(engine) = Self::open(provider, dir) else { return Ok(None) };
            Ok(works(engine.command(provider.name()).arg("info")).then_some(engine))
        })
        .map_err(|error| anyhow!("{error:#}; {}", process.log_tail()))
    }

    /// The engine of a running cluster.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub(super) fn open(provider: Provider, dir: &Path) -> Result<Self> {
        let name = provider.name();
        let state = State::load(dir)?.with_context(|| {
            format!("there is no cluster: `cargo xtask kind up --provider {name}` starts one")
        })?;
        let inside = match state.process(ENVIRONMENT) {
            Err(_) => None,
            Ok(process) => {
                ensure!(process.alive(), "the cluster's environment ended; {}", process.log_tail());
                let pid = dir.join("pid");
                Some(fs::read_to_string(&pid).with_context(|| format!("cannot read {}", pid.display()))?)
            }
        };
        let path = if inside.is_some() { PATH.into() } else { env::var_os("PATH").unwrap_or_default() };
        let path = env::join_paths(tools()?.into_iter().chain(env::split_paths(&path)))?;
        Ok(Self { provider, dir: dir.to_owned(), inside, path })
    }

    /// Whether it is the machine's own engine.
    pub(super) fn is_own(&self) -> bool {
        self.inside.is_none()
    }

    /// The path of the kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("shared/kubeconfig")
    }

    /// A program with access to the engine, the cluster, and kind, kubectl and helm.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = match &self.inside {
            None => Command::new(program),
            Some(pid) => {
                let mut command = Command::new("nsenter");
                command.args([
                    "--target",
                    pid.trim(),
                    "--mount",
                    "--pid",
                    "--net",
                    "--ipc",
                    "--uts",
                    "--cgroup",
                ]);
                command.args(["--root", "--wd", "--", program]).env_clear().env("HOME", "/root");
                command
            }
        };
        command.env("PATH", &self.path).env("KUBECONFIG", self.kubeconfig());
        command.env("KIND_EXPERIMENTAL_PROVIDER", self.provider.name());
        command
    }
}

/// The folders of kind, kubectl and helm.
fn tools() -> Result<Vec<PathBuf>> {
    let folder = |tool: Component| Ok(tool.executable()?.with_file_name(""));
    [KIND, KUBECTL, HELM].into_iter().map(folder).collect()
}

/// Ends a cluster's environment, if it has one, and removes its folder.
///
/// # Errors
///
/// If a process does not end or a file cannot be removed.
pub(super) fn end(provider: Provider, dir: &Path) -> Result<()> {
    // The environment ends first: it has hundreds of processes and control groups.
    for process in State::load(dir)?.map(|state| state.processes).unwrap_or_default() {
        process.stop(END_TIMEOUT)?;
    }
    processes::down(dir)?;
    let hierarchies =
        fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut groups = hierarchies.chain(["/sys/fs/cgroup".into()]).map(|path| path.join(cgroup(provider)));
    match groups.find(|group| group.exists()) {
        Some(group) => {
            bail!("{} is left: its processes are in cgroup.procs of all that is in it", group.display())
        }
        None => Ok(()),
    }
}

/// The name of the environment's control group.
fn cgroup(provider: Provider) -> String {
    format!("schedspan-kind-{}", provider.name())
}

/// The Helm chart.
pub(super) fn chart() -> PathBuf {
    paths::repository().join("deploy/chart")
}

fn works(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
