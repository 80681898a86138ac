//! The processes of a cluster, recorded in its folder.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, waitpid};
use serde::{Deserialize, Serialize};
use xtask::process;

use crate::wait::wait_until;

/// The limit for an ordinary process to end after SIGTERM.
pub const GRACE: Duration = Duration::from_secs(10);

/// Ports of 127.0.0.1 by purpose.
pub type Ports = BTreeMap<String, u16>;

/// Environment variables.
pub type Environment = BTreeMap<String, String>;

/// The content of `cluster.json`.
#[derive(Default, Serialize, Deserialize)]
pub struct State {
    /// In starting order.
    pub processes: Vec<Process>,
}

impl State {
    /// Reads the state of the cluster in `dir`; `None` if there is no cluster.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or understood.
    pub fn load(dir: &Path) -> Result<Option<Self>> {
        let path = file(dir);
        if !path.exists() {
            return Ok(None);
        }
        let parsed = serde_json::from_slice(&fs::read(&path)?);
        parsed.map(Some).with_context(|| {
            format!("{} is not the state of a cluster: end the processes in it and remove it", path.display())
        })
    }

    /// Writes the state to `dir` atomically.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let partial = dir.join("cluster.json.partial");
        fs::write(&partial, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&partial, file(dir)))
            .with_context(|| format!("cannot write {}", file(dir).display()))
    }

    /// The process of this name.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn process(&self, name: &str) -> Result<&Process> {
        let process = self.processes.iter().find(|process| process.name == name);
        process.with_context(|| format!("this cluster runs no {name}"))
    }
}

/// Ends the processes of the cluster in `dir`, last started first, and removes the folder. Does nothing if there is no cluster.
///
/// # Errors
///
/// If a process cannot be ended or the folder cannot be removed.
pub fn down(dir: &Path) -> Result<()> {
    let Some(state) = State::load(dir)? else { return Ok(()) };
    state.processes.iter().rev().try_for_each(|process| process.stop(GRACE))?;
    fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))
}

fn file(dir: &Path) -> PathBuf {
    dir.join("cluster.json")
}

/// A process. Pids are reused, so only pid and start time together identify it.
#[derive(Serialize, Deserialize)]
pub struct Process {
    pub name: String,
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`, in clock ticks since boot.
    start_time: u64,
    pub argv: Vec<String>,
    /// Additional variables.
    #[serde(default)]
    pub environment: Environment,
    pub ports: Ports,
    /// The URL that answers once it is ready.
    pub health: String,
    /// Its output.
    pub log: PathBuf,
}

impl Process {
    /// Starts a process in `dir`, with its output appended to a log file there. It gets its own process group, so that Ctrl-C
    /// does not reach it.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(
        dir: &Path,
        name: &str,
        argv: Vec<String>,
        environment: Environment,
        ports: Ports,
        health: String,
    ) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).envs(&environment).current_dir(dir).process_group(0);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let pid = command.spawn().with_context(|| format!("cannot start {}", argv[0]))?.id().cast_signed();
        let (_, start_time) = stat(pid).with_context(|| format!("{name} has no /proc/{pid}/stat"))?;
        Ok(Self { name: name.to_owned(), pid, start_time, argv, environment, ports, health, log })
    }

    /// Whether it still runs.
    pub fn alive(&self) -> bool {
        // Reaps the process if it has ended and is our child.
        let _ = waitpid(Some(self.pid()), WaitOptions::NOHANG);
        stat(self.pid).is_some_and(|(state, start)| start == self.start_time && !matches!(state, 'Z' | 'X'))
    }

    /// The last lines of its log, to end an error message with.
    pub fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        format!("its log ends with:\n{}", process::tail(&String::from_utf8_lossy(&log)))
    }

    /// Ends it with SIGTERM, and with SIGKILL after `grace`.
    ///
    /// # Errors
    ///
    /// If it does not end.
    pub fn stop(&self, grace: Duration) -> Result<()> {
        for signal in [Signal::TERM, Signal::KILL] {
            // The handle is taken before the check, so a process that reuses the pid is never signalled.
            let Ok(handle) = pidfd_open(self.pid(), PidfdFlags::empty()) else { return Ok(()) };
            if !self.alive() {
                return Ok(());
            }
            pidfd_send_signal(handle, signal)
                .with_context(|| format!("cannot end {} ({})", self.name, self.pid))?;
            let ended = || Ok((!self.alive()).then_some(()));
            if wait_until(&format!("the end of {}", self.name), grace, ended).is_ok() {
                return Ok(());
            }
        }
        bail!("{} (pid {}) does not end: see what blocks it in /proc/{0}/stack", self.name, self.pid)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.pid).expect("a started process has a pid")
    }
}

/// The CPU time of a process, summed over its threads: Go's and tokio's workers do not end. `/proc/PID/stat` includes ended
/// threads, but counts in steps of 10 ms.
///
/// # Errors
///
/// If there is no such process, or the kernel does not account for its threads.
pub fn cpu_ms(pid: u32) -> Result<f64> {
    Ok(schedstat(pid, 0)? / 1e6)
}

/// How often its threads began to run on a CPU: the same work costs more in many short runs than in few long ones.
///
/// # Errors
///
/// As [`cpu_ms`].
pub fn timeslices(pid: u32) -> Result<f64> {
    schedstat(pid, 2)
}

/// The sum over all threads of a number in `schedstat`: nanoseconds on a CPU, nanoseconds of waiting for one, times on one.
/// <https://docs.kernel.org/scheduler/sched-stats.html>
fn schedstat(pid: u32, place: usize) -> Result<f64> {
    let mut sum = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has just ended is missing from the next reading as well.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let number = text.split_whitespace().nth(place).and_then(|word| word.parse::<u64>().ok());
        sum += number.with_context(|| format!("/proc/{pid}/task/*/schedstat has no number {place}"))?;
    }
    ensure!(sum > 0, "process {pid} has no schedstat: it needs a kernel with CONFIG_SCHED_INFO");
    Ok(sum as f64)
}

/// State and start time of a process.
fn stat(pid: i32) -> Option<(char, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(stat: &str) -> Option<(char, u64)> {
    // The name is in parentheses and may contain spaces and parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.nth(18)?.parse().ok()?))
}

/// Ports of 127.0.0.1 that are free now, one for each name.
pub fn free_ports(names: &[&str]) -> Result<Ports> {
    // All are bound before one is released, so they differ.
    let listeners =
        names.iter().map(|_| TcpListener::bind("127.0.0.1:0")).collect::<std::io::Result<Vec<_>>>()?;
    let pairs = names.iter().zip(&listeners);
    pairs.map(|(&name, listener)| Ok((name.to_owned(), listener.local_addr()?.port()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let ports = free_ports(&["a", "b", "c"]).unwrap();
        let mut numbers: Vec<_> = ports.values().collect();
        numbers.sort();
        numbers.dedup();
        assert_eq!(numbers.len(), 3);
    }

    #[test]
    fn the_start_time_is_found_after_a_name_with_spaces_and_parentheses() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        assert_eq!(parse_stat(stat), Some(('S', 4242)));
    }

    #[test]
    fn a_process_runs_until_it_is_stopped() {
        let dir = std::env::temp_dir().join(format!("schedspan-state-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let argv = vec!["sleep".to_owned(), "60".to_owned()];
        let process =
            Process::start(&dir, "sleep", argv, Environment::new(), Ports::new(), String::new()).unwrap();
        assert!(process.alive());
        let state = State { processes: vec![process] };
        state.save(&dir).unwrap();
        assert!(State::load(&dir).unwrap().unwrap().process("sleep").unwrap().alive());
        down(&dir).unwrap();
        assert!(!state.processes[0].alive());
        assert!(!dir.exists());
    }

    #[test]
    fn the_cpu_time_of_a_busy_process_grows() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let before = cpu_ms(busy.id()).unwrap_or_default();
        let grown = wait_until("CPU time to pass", Duration::from_secs(10), || {
            Ok(cpu_ms(busy.id()).is_ok_and(|now| now > before).then_some(()))
        });
        busy.kill().unwrap();
        busy.wait().unwrap();
        grown.unwrap();
    }

    #[test]
    fn a_process_with_another_start_time_is_not_ours() {
        let pid = std::process::id().cast_signed();
        let (_, start_time) = stat(pid).unwrap();
        let process = Process {
            name: "other".into(),
            pid,
            start_time: start_time + 1,
            argv: vec![],
            environment: Environment::new(),
            ports: Ports::new(),
            health: String::new(),
            log: PathBuf::new(),
        };
        assert!(!process.alive());
        process.stop(GRACE).unwrap();
    }
}
