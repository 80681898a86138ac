//! What is probed, and what is lost.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{extract::State, response::Response};
use gotrace::{
    pipeline::Found,
    plan::{Identity, Missing},
};
use kube_scheduler::{explain::Kept, last_minute::Count};
use serde::Serialize;

use crate::{Api, Daemon, json, now_unix_us};

/// The processes that are traced now. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Targets(Arc<Mutex<BTreeMap<u32, Arc<Target>>>>);

/// A process that is traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// Its pid in the daemon's `/proc`.
    pub pid: u32,
    /// Path of its executable, in its own mount namespace.
    pub executable: String,
    /// The programs that it is traced as.
    pub programs: Vec<&'static str>,
    /// What its executable says of itself.
    pub identity: Identity,
    /// Since when it is traced, microseconds since the Unix epoch.
    pub since_unix_us: u64,
    /// Probes on instructions that the kernel emulates.
    pub emulated_sites: usize,
    /// Probes on instructions that the kernel executes in single steps, which cost more.
    pub single_stepped_sites: usize,
    /// Functions that cannot be traced, and what is missing therefore.
    pub missing: Vec<Missing>,
}

impl Targets {
    /// Adds a process that is traced from now on.
    pub fn found(&self, found: &Found) {
        let Found { target, pid, executable, identity, programs, sites, process: _, already_ran: _ } = found;
        let told = Target {
            pid: *pid,
            executable: executable.to_string_lossy().into_owned(),
            programs: programs.clone(),
            identity: identity.clone(),
            since_unix_us: now_unix_us(),
            emulated_sites: sites.emulated,
            single_stepped_sites: sites.single_stepped,
            missing: sites.missing.clone(),
        };
        self.targets().insert(*target, Arc::new(told));
    }

    /// Removes a process that has ended, by its number.
    pub fn gone(&self, target: u32) {
        self.targets().remove(&target);
    }

    /// All, in the order in which they were found.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Target>> {
        self.targets().values().cloned().collect()
    }

    fn targets(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Target>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a daemon is: the answer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vitals {
    /// The daemon's version.
    pub version: &'static str,
    /// Time of the answer by the daemon's clock, microseconds since the Unix epoch.
    pub now_unix_us: u64,
    /// Whether every scheduler that is trusted is traced.
    pub ready: bool,
    /// Why it is not; empty if it is.
    pub not_ready_because: String,
    /// The processes that are traced now.
    pub targets: Vec<Arc<Target>>,
    /// Losses since the daemon's start, by cause, zeros included.
    pub losses: Vec<Count>,
    /// The daemon's history.
    pub history: Kept,
}

impl Vitals {
    /// How a daemon is now.
    #[must_use]
    pub fn of(daemon: &Daemon) -> Self {
        let not_ready = daemon.health.ready().err();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            now_unix_us: now_unix_us(),
            ready: not_ready.is_none(),
            not_ready_because: not_ready.unwrap_or_default(),
            targets: daemon.targets.all(),
            losses: daemon.losses(),
            history: daemon.history.kept(),
        }
    }
}

/// `GET /api/v1/health`
pub(crate) async fn health(State(Api { daemon, .. }): State<Api>) -> Response {
    json(&Vitals::of(&daemon))
}
