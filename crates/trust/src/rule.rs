//! What an operator writes.

use std::{fmt, str::FromStr};

/// Names processes that may be traced. The text form is that of `--trust`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Static Pods of this node: only root can write their manifests.
    StaticPods,
    /// Pods in this namespace, as the API server says; static Pods have a rule of their own.
    Namespace(String),
    /// Pods in the daemon's own namespace.
    OwnNamespace,
    /// systemd's services that root runs.
    Services,
    /// This service of systemd, run by any user.
    Service(String),
    /// Processes of this user in the namespaces of the host, that is, outside of containers.
    User(u32),
    /// Processes in this cgroup, and below it.
    Cgroup(String),
    /// This process, those that it has started, and so on.
    Parent(u32),
    /// Every process.
    All,
}

/// The rules without a value.
const NAMES: [(&str, Rule); 5] = [
    ("static-pods", Rule::StaticPods),
    ("own-namespace", Rule::OwnNamespace),
    ("services", Rule::Services),
    ("root", Rule::User(0)),
    ("all", Rule::All),
];

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, rule)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(rule.clone());
        }
        let (kind, value) = text.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or_else(|| {
            format!(
                "`{}` is no rule: use static-pods, own-namespace, namespace=NAME, services, service=NAME, root, user=UID, \
                 cgroup=/PATH, parent=PID or all",
                text.escape_debug()
            )
        })?;
        let number = || value.parse().map_err(|_| format!("`{}` is not a number", value.escape_debug()));
        let plain = |characters: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || characters.contains(c);
            if value.chars().all(is_plain) {
                Ok(value.to_owned())
            } else {
                Err(format!("`{}` is not the name of a {kind}", value.escape_debug()))
            }
        };
        match kind {
            "namespace" => plain("-").map(Self::Namespace),
            // <https://github.com/systemd/systemd/blob/v257/src/basic/unit-name.c>, `VALID_CHARS`.
            "service" => plain(":-_.\\@").and_then(|name| {
                let is_whole = name.ends_with(".service");
                is_whole.then_some(Self::Service(name)).ok_or_else(|| "it ends with `.service`".to_owned())
            }),
            "user" => number().map(Self::User),
            "parent" => number().map(Self::Parent),
            "cgroup" if value.starts_with('/') => Ok(Self::Cgroup(value.trim_end_matches('/').to_owned())),
            "cgroup" => Err("the path of a cgroup begins with `/`, as in /proc/PID/cgroup".to_owned()),
            _ => Err(format!("`{}` is no kind of rule: see --help", kind.escape_debug())),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = NAMES.iter().find(|(_, rule)| rule == self) {
            return f.write_str(name);
        }
        match self {
            Self::Namespace(name) => write!(f, "namespace={name}"),
            Self::Service(name) => write!(f, "service={name}"),
            Self::User(user) => write!(f, "user={user}"),
            Self::Cgroup(path) => write!(f, "cgroup={}", path.escape_debug()),
            Self::Parent(pid) => write!(f, "parent={pid}"),
            Self::StaticPods | Self::OwnNamespace | Self::Services | Self::All => Ok(()),
        }
    }
}
