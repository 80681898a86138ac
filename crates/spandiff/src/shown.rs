//! What the spans of a file show. In files there are only names: this is the one place where names get a meaning.

use spans::{ApiStep, Cycle, Phase, SpanKind, Stage, TraceKind, names};

/// The API server's filters, whose spans hold all that comes after them.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/server/config.go>
const FILTERS: [&str; 6] = [
    "authentication",
    "audit",
    "impersonation",
    "constrainedimpersonation",
    "priorityandfairness",
    "authorization",
];

/// What a span shows, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A span as schedspan makes it, or a scheduler that makes the same spans.
    Known(SpanKind),
    /// A filter of the API server.
    Filter,
    /// The API server's write of a new object.
    Create,
    /// The kubelet's work on a Pod, once.
    SyncPod,
    /// Any other span.
    Unknown,
}

impl Shown {
    /// The attempt of one Pod.
    pub const ATTEMPT: Self = Self::Known(SpanKind::Root(TraceKind::Attempt));
    /// A Pod lifecycle.
    pub const LIFECYCLE: Self = Self::Known(SpanKind::Root(TraceKind::Lifecycle));

    /// What a span of this name shows. A lifecycle's short form of an attempt counts as the attempt, whose name it has.
    #[must_use]
    pub fn by_name(name: &str) -> Self {
        let native = match name {
            "syncPod" => Some(Self::SyncPod),
            "Create etcd3" => Some(Self::Create),
            name if FILTERS.contains(&name) => Some(Self::Filter),
            _ => None,
        };
        native.or_else(|| known(name).map(Self::Known)).unwrap_or(Self::Unknown)
    }
}

fn known(name: &str) -> Option<SpanKind> {
    let of_one = |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(": "));
    let root = TraceKind::ALL.into_iter().find(|kind| kind.name() == name).map(SpanKind::Root);
    let cycle = || Cycle::ALL.into_iter().find(|cycle| cycle.name() == name).map(SpanKind::Cycle);
    let phase = || Phase::ALL.into_iter().find(|phase| phase.name() == name).map(SpanKind::Phase);
    let stage = |stage: &Stage| match stage {
        Stage::InitContainer | Stage::Container => of_one(stage.name()),
        Stage::Gated
        | Stage::Queued
        | Stage::Attempt
        | Stage::VolumeClaims
        | Stage::Kubelet
        | Stage::Sandbox
        | Stage::Ready => stage.name() == name,
    };
    let stage = || Stage::ALL.into_iter().find(stage).map(SpanKind::Stage);
    let api = |step: &ApiStep| match step {
        ApiStep::Webhook => of_one(step.name()),
        ApiStep::Mutation | ApiStep::Validation | ApiStep::Storage => step.name() == name,
    };
    let api = || ApiStep::ALL.into_iter().find(api).map(SpanKind::Api);
    let others = || {
        Some(match name {
            names::PREEMPT_POD => SpanKind::Victim,
            names::PLACEMENT => SpanKind::Placement,
            names::TRIAL => SpanKind::Trial,
            name if name.starts_with(names::PLUGIN) => SpanKind::Plugin,
            name if name.starts_with(names::EXTENDER) => SpanKind::Extender,
            name if name.starts_with(names::API_CALL) => SpanKind::ApiCall,
            name if name.starts_with(names::QUEUE) => SpanKind::QueueStay,
            _ => return None,
        })
    };
    root.or_else(cycle).or_else(phase).or_else(stage).or_else(api).or_else(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_kinds_are_known() {
        for kind in TraceKind::ALL {
            assert_eq!(Shown::by_name(kind.name()), Shown::Known(SpanKind::Root(kind)));
        }
        for phase in Phase::ALL {
            assert_eq!(Shown::by_name(phase.name()), Shown::Known(SpanKind::Phase(phase)));
        }
        for (name, shown) in [
            ("bindingCycle", Shown::Known(SpanKind::Cycle(Cycle::Binding))),
            ("kubelet", Shown::Known(SpanKind::Stage(Stage::Kubelet))),
            ("bind volume claims", Shown::Known(SpanKind::Stage(Stage::VolumeClaims))),
            ("init: schema", Shown::Known(SpanKind::Stage(Stage::InitContainer))),
            ("container: main", Shown::Known(SpanKind::Stage(Stage::Container))),
            ("plugin: NodePorts", Shown::Known(SpanKind::Plugin)),
            ("extender: http://127.0.0.1/", Shown::Known(SpanKind::Extender)),
            (names::POD_BINDING, Shown::Known(SpanKind::ApiCall)),
            ("queue: backoff", Shown::Known(SpanKind::QueueStay)),
            ("validating admission", Shown::Known(SpanKind::Api(ApiStep::Validation))),
            ("webhook: limits.example.com", Shown::Known(SpanKind::Api(ApiStep::Webhook))),
            ("preemptPod", Shown::Known(SpanKind::Victim)),
            ("trial", Shown::Known(SpanKind::Trial)),
            ("placement", Shown::Known(SpanKind::Placement)),
            ("audit", Shown::Filter),
            ("syncPod", Shown::SyncPod),
            ("Create etcd3", Shown::Create),
            ("deploy", Shown::Unknown),
            ("init", Shown::Unknown),
        ] {
            assert_eq!(Shown::by_name(name), shown, "{name}");
        }
    }
}
