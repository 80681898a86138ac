//! Checks of `schedspan doctor`: whether this host can be traced, and what is missing.
//!
//! Everything is tested rather than guessed: programs are loaded, `/proc` is searched, the API server is asked for
//! Pods, the Collector gets a request without spans.

use std::{fs, io, path::PathBuf, sync::Arc, time::Duration};

use gotrace::{
    Detail,
    discover::{self, Look, Process, Search},
    governor::meter::Traps,
    memory::Compared,
    probe::{self, Limits, Probes},
    worker::Summary,
};
use kube_scheduler::queue::Queues;
use pods::{context, node::NodePods};
use rustix::system::uname;
use spans::{export, text::sentence};
use trust::Rule;

use crate::{
    admission::Admission,
    daemon::workers,
    discovery::{Answer, Finding as Found, Known, look},
    programs::DEFAULT,
    supervisor::others_are_there,
};

/// The modes of lockdown, with brackets around the one in force. In a container it is rarely there.
/// <https://man7.org/linux/man-pages/man7/kernel_lockdown.7.html>
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
/// What a finding of a process is about, where schedulers are looked for, and where other programs are.
const SCHEDULER: &str = "scheduler";
const OTHER: &str = "process";
/// Size of the ring buffer for the test, in bytes.
const RING_BYTES: u32 = 4096;
/// Longest wait for the list of this node's Pods.
const LIST: Duration = Duration::from_secs(5);

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Passed.
    Fine,
    /// Tracing works, but the traces may be incomplete.
    Doubtful,
    /// Traces cannot be made or exported.
    Broken,
}

/// One check with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was checked, such as `kernel`.
    pub what: &'static str,
    /// The result.
    pub state: State,
    /// What was found and, unless [`State::Fine`], what to do: one line.
    pub text: String,
}

impl Finding {
    fn new(what: &'static str, state: State, text: impl Into<String>) -> Self {
        Self { what, state, text: text.into() }
    }
}

/// Runs all checks, within a tokio runtime. Takes some seconds when a server does not answer. `kubeconfig` takes
/// precedence over the environment; processes of these programs are looked for.
pub async fn examine(kubeconfig: Option<PathBuf>, trust: Vec<Rule>, programs: &[String]) -> Vec<Finding> {
    let mut findings = host();
    // Without an API server, which is reported below, only Pods that are not static are unknown.
    let pods = NodePods::once(kubeconfig.clone(), LIST).await.unwrap_or_default();
    findings.append(&mut processes(trust, pods, programs));
    findings.push(match context::try_once(kubeconfig).await {
        Ok(server) => Finding::new("API server", State::Fine, format!("{server} lists Pods")),
        Err(error) => Finding::new("API server", State::Doubtful, format!("spans get no links: {error}")),
    });
    findings.push(match export::try_once().await {
        Ok(Some(endpoint)) => Finding::new("Collector", State::Fine, format!("{endpoint} takes spans")),
        Ok(None) => Finding::new("Collector", State::Doubtful, "OTLP is switched off by the environment"),
        Err(error) => Finding::new("Collector", State::Broken, error),
    });
    findings
}

/// Checks of kernel and capabilities.
fn host() -> Vec<Finding> {
    let multi = probe::has_uprobe_multi();
    let release = uname().release().to_string_lossy().into_owned();
    let how = match multi {
        Some(true) => "attaches many uprobes at once",
        Some(false) => "attaches uprobes one by one: CAP_SYS_ADMIN is needed, and detaching is slow",
        None => "does not say how uprobes are attached: capabilities are missing",
    };
    let mut findings = vec![Finding::new("kernel", State::Fine, format!("Linux {release} {how}"))];
    findings.extend(fs::read_to_string(LOCKDOWN).ok().and_then(|modes| locked_down(&modes)));
    findings.push(match probe::check_btf() {
        Ok(()) => Finding::new("BTF", State::Fine, "the kernel describes its types"),
        Err(error) => Finding::new("BTF", State::Broken, error.to_string()),
    });
    match probe::rights(multi == Some(false)) {
        Err(error) => findings.push(Finding::new("rights", State::Broken, error.to_string())),
        Ok(rights) => findings.extend(rights.into_iter().map(|right| match right.check() {
            Ok(()) => Finding::new(right.name, State::Fine, format!("held, to {}", right.what)),
            Err(error) => Finding::new(right.name, State::Broken, error.to_string()),
        })),
    }
    match Probes::load(None, Limits { ring_bytes: RING_BYTES, ..Limits::default() }) {
        Ok(mut probes) => {
            findings.push(if probes.reads_lists() {
                Finding::new("eBPF", State::Fine, "the kernel takes the programs")
            } else {
                let text = "the kernel refuses the programs that go through all Nodes: no scores and no rejections by plugin";
                Finding::new("eBPF", State::Doubtful, text)
            });
            findings.push(cost(probes.measure_traps(), probes.is_quick()));
            findings.push(match probes.check_samples() {
                Ok(true) => Finding::new("samples", State::Fine, "the kernel samples the clock of each CPU"),
                Ok(false) => Finding::new(
                    "samples",
                    State::Doubtful,
                    "the kernel refuses their program: no CPU time by plugin",
                ),
                Err(error) => Finding::new(
                    "samples",
                    State::Doubtful,
                    format!("no CPU time by plugin: {}", sentence(&error)),
                ),
            });
        }
        // Reported above.
        Err(probe::Error::Unfit(_)) => {}
        Err(error) => findings.push(Finding::new("eBPF", State::Broken, sentence(&error))),
    }
    findings
}

/// What a hit costs here, and what can be cut where that is more than the budget.
fn cost(traps: Traps, is_quick: bool) -> Finding {
    let Traps { emulated_ns, single_stepped_ns, is_measured } = traps;
    let us = |ns: u64| format!("{:.1} us", ns as f64 / 1e3);
    let how = if is_measured { "costs" } else { "is taken to cost" };
    let what = if is_quick {
        "what exceeds --budget is cut"
    } else {
        "of what exceeds --budget, only samples are cut: detaching is slow"
    };
    let [emulated, stepped] = [emulated_ns, single_stepped_ns].map(us);
    let text =
        format!("a hit {how} {emulated}, at a single-stepped instruction {stepped}, and its program; {what}");
    Finding::new("budget", State::Fine, text)
}

/// Whether eBPF programs may read memory, by the modes of lockdown.
fn locked_down(modes: &str) -> Option<Finding> {
    let mode = modes.split_whitespace().find_map(|mode| mode.strip_prefix('[')?.strip_suffix(']'))?;
    let (state, what) = match mode {
        "none" | "integrity" => (State::Fine, "eBPF programs may read memory"),
        "confidentiality" => (
            State::Broken,
            "eBPF programs may read no memory, so nothing can be traced: boot with `lockdown=integrity`, or without",
        ),
        _ => (State::Doubtful, "schedspan does not know this mode"),
    };
    Some(Finding::new("lockdown", state, format!("{}: {what}", mode.escape_debug())))
}

/// Checks which processes are visible, and which of them run a program: a finding for each, and one if there is none.
fn processes(trust: Vec<Rule>, pods: Arc<NodePods>, programs: &[String]) -> Vec<Finding> {
    let what = if programs == [DEFAULT] { SCHEDULER } else { OTHER };
    let workers = workers(programs, Detail::Full, false, &Queues::default());
    let planners: Vec<_> = workers.iter().map(|worker| worker.planner()).collect();
    let mut admission = Admission::new(trust, pods, &workers);
    let running = Search::default().look(Look::Full, |pid, link| admission.admits(pid, link));
    let running: Vec<_> = match running {
        Ok(running) => {
            let processes = running.into_iter().filter_map(|(pid, found)| Process::of(pid, found.file));
            processes.filter_map(|process| of_process(what, look(&planners, process, None))).collect()
        }
        Err(error) => {
            let text = format!("cannot list /proc: {error}; mount it");
            return vec![Finding::new("processes", State::Broken, text)];
        }
    };
    let names = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
    let pids: Vec<u32> = names.filter_map(|name| name.to_string_lossy().parse().ok()).collect();
    let seen = pids.len();
    // In a container with its own PID namespace, process 1 is this executable.
    let own =
        fs::read_link("/proc/1/exe").is_ok_and(|first| Some(first) == fs::read_link("/proc/self/exe").ok());
    let mut findings = vec![if own {
        let text = format!("only {seen}, the processes of this container: start it with hostPID: true");
        Finding::new("processes", State::Broken, text)
    } else {
        Finding::new("processes", State::Fine, format!("{seen} are visible"))
    }];
    // Kernel threads have no executable, which is another error.
    let hidden = |pid: &&u32| {
        let executable = fs::read_link(format!("/proc/{pid}/exe"));
        executable.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    let none = running.is_empty();
    findings.extend(running.into_iter().map(|(pid, mut finding)| {
        if let Some(rule) = admission.rule(pid) {
            finding.text += &format!("; the rule `{rule}` names it");
        }
        finding
    }));
    for (pid, stranger) in admission.take_strangers() {
        let name = trust::file_name(pid).unwrap_or_default();
        let text = format!("process {pid}, `{}`, is not traced: {stranger}", name.escape_debug());
        findings.push(Finding::new(what, State::Doubtful, text));
    }
    if none {
        let text = match pids.iter().filter(hidden).count() {
            0 if what == SCHEDULER => {
                "none runs here: nothing is traced until one does; control-plane nodes have one".to_owned()
            }
            0 => format!("no {} runs here: nothing is traced until one does", programs.join(" and no ")),
            hidden => format!(
                "none is visible, and {hidden} processes cannot be inspected: grant CAP_SYS_PTRACE; where it is held, \
                 AppArmor or SELinux keeps them apart"
            ),
        };
        findings.push(Finding::new(what, State::Doubtful, text));
    }
    findings
}

/// What was found in a process; `None` if it runs no such program.
fn of_process(what: &'static str, answer: Answer) -> Option<(u32, Finding)> {
    let pid = answer.process.id.pid;
    let broken =
        |why: String| Finding::new(what, State::Broken, format!("process {pid} cannot be traced: {why}"));
    let finding = match answer.finding {
        Found::Nothing(_) | Found::Compared(_) => return None,
        Found::Failed(why) | Found::GivenUp(why) => Finding::new(
            what,
            State::Doubtful,
            format!("the executable of process {pid} cannot be read: {why}"),
        ),
        Found::Program(read) => match read.plan {
            Err(why) => broken(why),
            Ok(_) if read.compared.other > 0 => broken("its memory has other code than its file".to_owned()),
            Ok((Known { summary, places }, _)) => traceable(what, pid, &summary, places.len(), read.compared),
        },
    };
    Some((pid, finding))
}

fn traceable(what: &'static str, pid: u32, summary: &Summary, places: usize, found: Compared) -> Finding {
    let version = summary.identity.kubernetes_version.as_deref().unwrap_or("of unknown version");
    let mut text = format!("process {pid}, {version}, {} sites", summary.sites());
    let mut state = State::Fine;
    if found.probed > 0 {
        match discover::namesakes()[..] {
            [other] if found.probed == places => {
                text += &format!(", traced by the schedspan with pid {other}");
            }
            _ => {
                state = State::Doubtful;
                text += &format!("; {}", others_are_there(found));
            }
        }
    }
    if !summary.missing.is_empty() {
        state = State::Doubtful;
        let count = summary.missing.len();
        text += &format!(", {count} functions not found: `schedspan inspect {pid}` lists them");
    }
    Finding::new(what, state, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lockdown_of_confidentiality_forbids_tracing() {
        let state = |modes: &str| locked_down(modes).map(|finding| finding.state);
        assert_eq!(state("[none] integrity confidentiality\n"), Some(State::Fine));
        assert_eq!(state("none [integrity] confidentiality\n"), Some(State::Fine));
        assert_eq!(state("none integrity [confidentiality]\n"), Some(State::Broken));
        assert_eq!(state("none [other]\n"), Some(State::Doubtful));
        assert_eq!(state(""), None);
    }
}
