//! Which processes are looked at: those that a rule of `--trust` names. The log says once why another one with the name of a scheduler is not.

use std::{collections::HashMap, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc, time::Duration};

use gotrace::discover::{ProcessId, Verdict};
use pods::node::NodePods;
use tracing::info;
use trust::{Rule, Stranger, Trust};

use crate::programs::Worker;

/// Untrusted processes that are logged one by one. A user of the node can start many.
const MAX_TOLD: usize = 64;
/// Longest wait for the list of this node's Pods.
const LIST: Duration = Duration::from_secs(5);

/// Processes that the operator trusts.
#[derive(clap::Args, Clone, Debug)]
// A command flattens several structs of this name.
#[group(skip)]
pub struct Options {
    /// Rule that names processes which may be traced, such as `namespace=kube-system`; may be given several times
    ///
    /// static-pods: static Pods of this node. namespace=NAME: Pods in a namespace. own-namespace: Pods in schedspan's own one. services:
    /// services of systemd that root runs. service=NAME: a service, run by any user. root, user=UID: processes of a user outside of
    /// containers. cgroup=/PATH: processes in a cgroup. parent=PID: a process and its descendants. all: every process. What no rule
    /// names is never opened.
    #[arg(long, env = "SCHEDSPAN_TRUST", value_delimiter = ',', default_value = trust::DEFAULT, value_name = "RULE")]
    pub trust: Vec<Rule>,
}

/// Decides about each process by its pid.
#[derive(Debug)]
pub struct Admission {
    by: By,
    /// Parts of usual names of executables that would be traced.
    names: Vec<&'static str>,
    /// Those seen in the current search.
    strangers: HashMap<u32, Stranger>,
    /// Those that were logged, with the reason.
    told: HashMap<ProcessId, Stranger>,
    /// Whether it was said that there are more.
    more: bool,
}

#[derive(Debug)]
enum By {
    Rules(Trust),
    /// The operator has named one process.
    Pid(u32),
}

impl Admission {
    /// Admits by rules, to these workers.
    #[must_use]
    pub fn new(rules: Vec<Rule>, pods: Arc<NodePods>, workers: &[Box<Worker>]) -> Self {
        let trust = Trust::new(rules, Box::new(move |uid| pods.namespace(uid)));
        Self::by(By::Rules(trust), workers.iter().flat_map(|worker| worker.file_names()).copied().collect())
    }

    /// For a command that ends: admits one process, trusted or not, or by rules. Without an API server, only Pods that are
    /// not static are left out.
    pub async fn once(pid: Option<u32>, rules: Vec<Rule>, workers: &[Box<Worker>]) -> Self {
        let Some(pid) = pid else {
            return Self::new(rules, NodePods::once(None, LIST).await.unwrap_or_default(), workers);
        };
        Self::only(pid)
    }

    /// Admits this process alone, trusted or not.
    #[must_use]
    pub fn only(pid: u32) -> Self {
        Self::by(By::Pid(pid), Vec::new())
    }

    fn by(by: By, names: Vec<&'static str>) -> Self {
        Self { by, names, strangers: HashMap::new(), told: HashMap::new(), more: false }
    }

    /// The rule that names a process.
    pub fn rule(&self, pid: u32) -> Option<&Rule> {
        match &self.by {
            By::Pid(_) => None,
            By::Rules(trust) => trust.judge(pid).ok(),
        }
    }

    /// Whether a process may be looked at that executes the file of this name.
    pub fn admits(&mut self, pid: u32, link: &Path) -> Verdict {
        let judged = match &self.by {
            By::Pid(only) if *only == pid => return Verdict::Admitted,
            By::Pid(_) => return Verdict::Refused,
            By::Rules(trust) => trust.judge(pid),
        };
        let Err(stranger) = judged else { return Verdict::Admitted };
        let verdict = if stranger.is_final() { Verdict::Refused } else { Verdict::Unknown };
        let name = trust::name_of(link.as_os_str().as_bytes());
        if self.names.iter().any(|part| name.contains(part)) {
            self.strangers.insert(pid, stranger);
        }
        verdict
    }

    /// Ends a search: the strangers that it found, by pid.
    pub fn take_strangers(&mut self) -> HashMap<u32, Stranger> {
        std::mem::take(&mut self.strangers)
    }

    /// Ends a search: logs new strangers, and returns the number of all.
    pub fn tell(&mut self) -> usize {
        let strangers = self.take_strangers();
        let count = strangers.len();
        let now: HashMap<ProcessId, Stranger> = strangers
            .into_iter()
            .filter_map(|(pid, stranger)| Some((ProcessId::of(pid)?, stranger)))
            .collect();
        self.told.retain(|process, _| now.contains_key(process));
        for (process, stranger) in now {
            if self.told.get(&process) == Some(&stranger) {
                continue;
            }
            if self.told.len() < MAX_TOLD {
                let name = trust::file_name(process.pid).unwrap_or_default();
                info!(pid = process.pid, "`{}` is not traced: {stranger}", name.escape_debug());
                self.told.insert(process, stranger);
            } else if !std::mem::replace(&mut self.more, true) {
                info!("more processes have such a name and are not trusted: `schedspan doctor` lists them");
            }
        }
        count
    }
}
