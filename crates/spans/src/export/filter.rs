//! The filter of `schedspan trace` and `replay`.

use std::{
    fmt::{self, Display, Formatter},
    str::FromStr,
    time::Duration,
};

use crate::{AttributeValue, Span, Trace, TraceKind, attributes, figures::parse_duration};

/// Shows only some attempts; all conditions must hold
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Filter {
    /// Only attempts of Pods in this namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Only attempts of the Pod of this name, or, with a `*` at its end, of Pods whose names begin like this; with
    /// `trace --lifecycle` also those of a workload, such as `deploy/web`
    #[arg(value_name = "POD|PREFIX*|KIND/NAME")]
    pub pod: Option<Pods>,
    /// Only attempts that did not succeed
    #[arg(long)]
    pub failed: bool,
    /// Only attempts that took longer, such as `500us`, `10ms` or `1.5s`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub slower_than: Option<Duration>,
    /// Only Pod lifecycles, and no attempts.
    #[arg(skip)]
    pub lifecycles: bool,
}

/// The Pods that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pods {
    /// The one of this name.
    Named(String),
    /// Those whose names begin like this.
    Prefixed(String),
    /// Those of a workload.
    Of {
        /// Its kind, in lower case.
        kind: String,
        /// Its name.
        name: String,
    },
}

/// Kinds of workloads, as kubectl also calls them.
const KINDS: [(&str, &[&str]); 7] = [
    ("deployment", &["deploy", "deployments"]),
    ("replicaset", &["rs", "replicasets"]),
    ("statefulset", &["sts", "statefulsets"]),
    ("daemonset", &["ds", "daemonsets"]),
    ("job", &["jobs"]),
    ("cronjob", &["cj", "cronjobs"]),
    ("replicationcontroller", &["rc", "replicationcontrollers"]),
];

/// Letters of the hash at the end of a `ReplicaSet`'s name.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apimachinery/pkg/util/rand/rand.go>, `alphanums`
const HASH: &str = "bcdfghjklmnpqrstvwxz2456789";

impl FromStr for Pods {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((kind, name)) = text.split_once('/') else {
            return Ok(match text.strip_suffix('*') {
                Some(prefix) => Self::Prefixed(prefix.to_owned()),
                None => Self::Named(text.to_owned()),
            });
        };
        if kind.is_empty() || name.is_empty() || name.contains(['/', '*']) {
            return Err("a workload is KIND/NAME, such as `deploy/web`, in the namespace of --namespace");
        }
        let kind = kind.to_lowercase();
        if ["pod", "pods", "po"].contains(&kind.as_str()) {
            return Ok(Self::Named(name.to_owned()));
        }
        let known = KINDS.iter().find(|(_, others)| others.contains(&kind.as_str()));
        Ok(Self::Of { kind: known.map_or(kind, |(kind, _)| (*kind).to_owned()), name: name.to_owned() })
    }
}

/// As it is given.
impl Display for Pods {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(out, "{name}"),
            Self::Prefixed(prefix) => write!(out, "{prefix}*"),
            Self::Of { kind, name } => write!(out, "{kind}/{name}"),
        }
    }
}

impl Pods {
    /// Whether they include a Pod of this name with these owners, each as `Kind/name`.
    pub fn include<'a>(&self, pod: &str, mut owners: impl Iterator<Item = &'a str>) -> bool {
        match self {
            Self::Named(name) => pod == name,
            Self::Prefixed(prefix) => pod.starts_with(prefix),
            Self::Of { kind, name } => owners.any(|owner| is_of(owner, kind, name)),
        }
    }

    fn has(&self, root: &Span) -> bool {
        self.include(text(root, attributes::POD_NAME), owners(root).iter().map(String::as_str))
    }
}

/// A text of a root; empty if it has none.
fn text<'a>(root: &'a Span, key: &str) -> &'a str {
    if let Some(AttributeValue::String(text)) = root.attribute(key) { text } else { "" }
}

/// The owners of a lifecycle's Pod, each as `Kind/name`.
fn owners(root: &Span) -> &[String] {
    if let Some(AttributeValue::Strings(owners)) = root.attribute(attributes::OWNERS) { owners } else { &[] }
}

/// Whether an owner of a Pod, `Kind/name`, is this workload or was made by it. The names of what a Deployment and a `CronJob` make are
/// theirs and a hash, or a number.
fn is_of(owner: &str, kind: &str, name: &str) -> bool {
    let Some((own_kind, own_name)) = owner.split_once('/') else { return false };
    let made = |by: &str, made: &str, letters: fn(char) -> bool| {
        let rest = own_name.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        kind == by
            && own_kind == made
            && rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(letters))
    };
    own_kind.to_lowercase() == kind && own_name == name
        || made("deployment", "ReplicaSet", |letter| HASH.contains(letter))
        || made("cronjob", "Job", |letter| letter.is_ascii_digit())
}

impl Filter {
    /// Checks that the filter can be that of attempts, which do not name the owners of their Pods.
    ///
    /// # Errors
    ///
    /// If it asks for the Pods of a workload.
    pub fn of_attempts(self) -> Result<Self, String> {
        match &self.pod {
            Some(workload @ Pods::Of { .. }) => Err(format!(
                "attempts do not name the owners of their Pods, such as {workload}: give a Pod, a `PREFIX*`, or `schedspan trace --lifecycle`"
            )),
            Some(Pods::Named(_) | Pods::Prefixed(_)) | None => Ok(self),
        }
    }

    /// Whether a trace passes. A group passes with the attempt of any of its Pods.
    #[must_use]
    pub fn keeps(&self, trace: &Trace) -> bool {
        let kind = match trace.kind {
            TraceKind::Attempt | TraceKind::GroupAttempt | TraceKind::Reconcile => !self.lifecycles,
            TraceKind::Lifecycle
            | TraceKind::PodStart
            | TraceKind::PodStorage
            | TraceKind::PodCreation
            | TraceKind::PodDeletion
            | TraceKind::PodEviction => true,
            TraceKind::Configuration | TraceKind::Command => false,
        };
        kind && trace.roots().any(|root| self.wants(root))
    }

    fn wants(&self, root: &Span) -> bool {
        let Self { namespace, pod, failed, slower_than, lifecycles: _ } = self;
        namespace.as_ref().is_none_or(|namespace| text(root, attributes::POD_NAMESPACE) == namespace)
            && pod.as_ref().is_none_or(|pod| pod.has(root))
            && (!failed || root.did_not_succeed())
            && slower_than.is_none_or(|limit| Duration::from_nanos(root.duration_ns()) > limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{scheduled, unschedulable};

    #[test]
    fn all_conditions_must_hold() {
        let filter = Filter::default();
        let some = |text: &str| Some(text.to_owned());
        let pods = |text: &str| text.parse().ok();
        for (filter, success, failure) in [
            (filter.clone(), true, true),
            (Filter { namespace: some("default"), ..filter.clone() }, true, true),
            (Filter { namespace: some("kube-system"), ..filter.clone() }, false, false),
            (Filter { pod: pods("web-0"), ..filter.clone() }, true, false),
            (Filter { pod: pods("web"), ..filter.clone() }, false, false),
            (Filter { pod: pods("web-*"), ..filter.clone() }, true, false),
            (Filter { pod: pods("*"), ..filter.clone() }, true, true),
            (Filter { failed: true, ..filter.clone() }, false, true),
            (Filter { failed: true, pod: pods("web-*"), ..filter.clone() }, false, false),
            (Filter { slower_than: Some(Duration::from_millis(4)), ..filter.clone() }, true, false),
            (Filter { slower_than: Some(Duration::from_micros(820)), ..filter.clone() }, true, false),
        ] {
            assert_eq!(
                (filter.keeps(&scheduled()), filter.keeps(&unschedulable())),
                (success, failure),
                "{filter:?}"
            );
        }
    }

    #[test]
    fn a_workload_has_the_pods_of_what_it_made() {
        let of = |workload: &str, owner: &str| {
            let Ok(Pods::Of { kind, name }) = workload.parse::<Pods>() else {
                panic!("`{workload}` is no workload")
            };
            is_of(owner, &kind, &name)
        };
        for (workload, owner) in [
            ("deploy/web", "ReplicaSet/web-6d5f8c9b7"),
            ("Deployments/web", "ReplicaSet/web-6d5f8c9b7"),
            ("rs/web-6d5f8c9b7", "ReplicaSet/web-6d5f8c9b7"),
            ("sts/db", "StatefulSet/db"),
            ("cronjob/night", "Job/night-29401440"),
            ("job/night-29401440", "Job/night-29401440"),
            ("rayjob/train", "RayJob/train"),
        ] {
            assert!(of(workload, owner), "{workload} {owner}");
        }
        for (workload, owner) in [
            ("deploy/web", "ReplicaSet/web-api-6d5f8c9b7"),
            ("deploy/web", "ReplicaSet/web-"),
            ("deploy/web", "ReplicaSet/web"),
            ("deploy/web", "StatefulSet/web-6d5f8c9b7"),
            ("rs/web", "ReplicaSet/web-6d5f8c9b7"),
            ("sts/web", "ReplicaSet/web-6d5f8c9b7"),
            ("cj/night", "Job/night-29401440-x"),
        ] {
            assert!(!of(workload, owner), "{workload} {owner}");
        }
    }

    #[test]
    fn a_pod_without_owners_is_of_no_workload() {
        assert_eq!(owners(scheduled().root()), &[] as &[String]);
    }

    #[test]
    fn a_workload_without_a_kind_or_a_name_is_none_and_attempts_have_none() {
        for text in ["/web", "deploy/", "deploy/web*", "apps/deploy/web"] {
            assert!(text.parse::<Pods>().is_err(), "{text}");
        }
        for text in ["web-0", "web-*", "deployment/web"] {
            assert_eq!(text.parse::<Pods>().map(|pods| pods.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("pod/web-0".parse(), Ok(Pods::Named("web-0".to_owned())));
        let of = |text: &str| Filter { pod: text.parse().ok(), ..Filter::default() };
        assert!(of("web-*").of_attempts().is_ok());
        let error = of("deploy/web").of_attempts().expect_err("a workload");
        assert!(error.contains("deployment/web"), "{error}");
    }
}
