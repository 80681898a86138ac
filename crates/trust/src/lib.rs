//! Which processes may be traced: those that a [`Rule`] names.
//!
//! # Design constraints
//!
//! * A rule rests on what only root can change: the cgroup that the kubelet or systemd made, the namespaces and the user
//!   of a process. The name of a process, its executable and its arguments prove nothing.
//! * Nothing of a process is opened except files of `/proc` that the kernel writes by itself: a file system that a
//!   process brings along is never asked.
//!
//! # Layout
//!
//! * `rule`: what an operator writes.
//! * [`cgroup`]: the Pod or service that a cgroup belongs to. Pure.
//! * [`process`]: what `/proc` says of a process.

#![forbid(unsafe_code)]

pub mod cgroup;
pub mod process;
mod rule;
#[cfg(test)]
mod tests;

use std::fmt;

use self::{
    cgroup::{Bases, Place, Uid},
    process::{Credentials, Host},
};
pub use self::{
    process::{file_name, name_of},
    rule::Rule,
};

/// What an operator trusts who does not say it.
pub const DEFAULT: &str = "static-pods,namespace=kube-system,own-namespace,services,root";
/// Generations of processes that [`Rule::Parent`] follows.
const MAX_GENERATIONS: usize = 16;

/// The namespace of a Pod by its UID, as the API server knows it.
pub type NamespaceOf = Box<dyn Fn(&str) -> Option<String> + Send>;

/// The rules of this daemon, and what they are compared with.
pub struct Trust {
    rules: Vec<Rule>,
    bases: Bases,
    host: Host,
    /// The daemon's own namespace in the cluster, if it runs in one.
    own_namespace: Option<String>,
    namespace_of: NamespaceOf,
}

/// A process that no rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stranger {
    /// It has ended, or it is hidden from the daemon.
    Unreadable,
    /// A static Pod's.
    StaticPod(Uid),
    /// A Pod's; its namespace, unless the API server does not know the Pod.
    Pod(Uid, Option<String>),
    /// A service of the host, run by this user.
    Service(String, u32),
    /// In the namespaces of the host, run by this user.
    Host(u32),
    /// In a container of another kind, or in namespaces of its own; its cgroup.
    Container(String),
}

impl Trust {
    /// Trusts by these rules. `namespace_of` answers at once.
    #[must_use]
    pub fn new(rules: Vec<Rule>, namespace_of: NamespaceOf) -> Self {
        let own_namespace = process::own_namespace();
        Self { rules, bases: process::bases(), host: Host::of_now(), own_namespace, namespace_of }
    }

    /// The rule that names this process.
    ///
    /// # Errors
    ///
    /// Who it is, if no rule does.
    pub fn judge(&self, pid: u32) -> Result<&Rule, Stranger> {
        if let Some(all) = self.rules.iter().find(|rule| matches!(rule, Rule::All)) {
            return Ok(all);
        }
        let text = process::cgroup(pid).ok_or(Stranger::Unreadable)?;
        let place = cgroup::place(&text, &self.bases);
        let path = || cgroup::path(&text, &self.bases);
        if let Some(rule) = self.rules.iter().find(|rule| self.names_place(rule, &place, path)) {
            return Ok(rule);
        }
        // What is read from here on takes the kernel longest, and most processes of a node are spared it: in a Pod no user is named.
        let (named, stranger) = match place {
            Place::Pod(uid) if uid.is_static() => (None, Stranger::StaticPod(uid)),
            Place::Pod(uid) => {
                let namespace = (self.namespace_of)(uid.as_str());
                (None, Stranger::Pod(uid, namespace))
            }
            Place::Service(name) => {
                let user = user(pid)?;
                (self.by_user(user, true), Stranger::Service(name, user))
            }
            Place::Elsewhere if self.host.has(pid) => {
                let user = user(pid)?;
                (self.by_user(user, false), Stranger::Host(user))
            }
            Place::Elsewhere => (None, Stranger::Container(path().unwrap_or_default())),
        };
        let by_parent = |rule: &&Rule| matches!(rule, Rule::Parent(of) if descends(pid, *of));
        named.or_else(|| self.rules.iter().find(by_parent)).ok_or(stranger)
    }

    /// The rule that names a process of this user: in a service, or in none and on the host.
    fn by_user(&self, user: u32, in_service: bool) -> Option<&Rule> {
        self.rules.iter().find(|rule| match rule {
            // Another user may be let in by a service, such as by cron.
            Rule::Services => in_service && user == 0,
            Rule::User(of) => !in_service && user == *of,
            Rule::StaticPods
            | Rule::Namespace(_)
            | Rule::OwnNamespace
            | Rule::Service(_)
            | Rule::Cgroup(_)
            | Rule::Parent(_)
            | Rule::All => false,
        })
    }

    fn names_place(&self, rule: &Rule, place: &Place, path: impl Fn() -> Option<String>) -> bool {
        let is_of = |namespace: &str| match place {
            Place::Pod(uid) => (self.namespace_of)(uid.as_str()).is_some_and(|of| of == namespace),
            Place::Service(_) | Place::Elsewhere => false,
        };
        match rule {
            Rule::StaticPods => matches!(place, Place::Pod(uid) if uid.is_static()),
            Rule::Namespace(namespace) => is_of(namespace),
            Rule::OwnNamespace => self.own_namespace.as_deref().is_some_and(is_of),
            Rule::Service(name) => matches!(place, Place::Service(of) if of == name),
            Rule::Cgroup(of) => path().is_some_and(|path| cgroup::is_below(&path, of)),
            Rule::All => true,
            Rule::Services | Rule::User(_) | Rule::Parent(_) => false,
        }
    }
}

fn user(pid: u32) -> Result<u32, Stranger> {
    Credentials::of(pid).map(|credentials| credentials.user).ok_or(Stranger::Unreadable)
}

/// Whether a process is `of`, or a descendant of it.
fn descends(mut pid: u32, of: u32) -> bool {
    for _ in 0..MAX_GENERATIONS {
        if pid == of {
            return true;
        }
        let Some(Credentials { parent, .. }) = Credentials::of(pid).filter(|_| pid > 1) else { return false };
        pid = parent;
    }
    false
}

impl Stranger {
    /// Whether the answer stays the same while the process executes the same file in the same cgroup.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Unreadable | Self::Pod(_, None) => false,
            Self::StaticPod(_) | Self::Pod(..) | Self::Service(..) | Self::Host(_) | Self::Container(_) => {
                true
            }
        }
    }

    /// The rule that would name it; `None` if there is no such rule but `all`.
    #[must_use]
    pub fn remedy(&self) -> Option<Rule> {
        match self {
            Self::Unreadable | Self::Pod(_, None) => None,
            Self::StaticPod(_) => Some(Rule::StaticPods),
            Self::Pod(_, Some(namespace)) => Some(Rule::Namespace(namespace.clone())),
            Self::Service(_, 0) => Some(Rule::Services),
            Self::Service(name, _) => Some(Rule::Service(name.clone())),
            Self::Host(user) => Some(Rule::User(*user)),
            Self::Container(path) => Some(Rule::Cgroup(path.clone())).filter(|_| path.len() > 1),
        }
    }
}

/// Says in one line who it is, and which rule would name it.
impl fmt::Display for Stranger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => write!(f, "/proc does not say who it is")?,
            Self::StaticPod(uid) => write!(f, "it is of the static Pod {uid}")?,
            Self::Pod(uid, Some(namespace)) => {
                write!(f, "it is of the Pod {uid} in the namespace {}", namespace.escape_debug())?;
            }
            Self::Pod(uid, None) => {
                write!(
                    f,
                    "it is of the Pod {uid}, whose namespace is not known here: `schedspan doctor` asks the API server"
                )?;
            }
            Self::Service(name, user) => {
                write!(f, "it is of the service {}, run by user {user}", name.escape_debug())?;
            }
            Self::Host(user) => write!(f, "it is outside of containers, run by user {user}")?,
            Self::Container(path) => {
                write!(
                    f,
                    "it is in a container, or in namespaces of its own, in the cgroup {}",
                    path.escape_debug()
                )?;
            }
        }
        match self.remedy() {
            Some(rule) => write!(f, "; `--trust {rule}`, beside the other rules, would name it"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("rules", &self.rules).finish_non_exhaustive()
    }
}
