//! The filter of `schedspan trace` and `replay`.

use std::time::Duration;

use crate::{AttributeValue, Span, Trace, TraceKind, attributes, figures::parse_duration};

/// Shows only some attempts; all conditions must hold
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Filter {
    /// Only attempts of Pods in this namespace
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Only attempts of the Pod of this name, or, with a `*` at its end, of Pods whose names begin like this
    #[arg(value_name = "POD|PREFIX*")]
    pub pod: Option<String>,
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

impl Filter {
    /// Whether a trace passes. A group passes with the attempt of any of its Pods.
    #[must_use]
    pub fn keeps(&self, trace: &Trace) -> bool {
        let kind = match trace.kind {
            TraceKind::Attempt | TraceKind::GroupAttempt | TraceKind::Reconcile => !self.lifecycles,
            TraceKind::Lifecycle | TraceKind::PodStart | TraceKind::PodCreation => true,
            TraceKind::Configuration | TraceKind::Command => false,
        };
        kind && trace.roots().any(|root| self.wants(root))
    }

    fn wants(&self, root: &Span) -> bool {
        let Self { namespace, pod, failed, slower_than, lifecycles: _ } = self;
        let text = |key| match root.attribute(key) {
            Some(AttributeValue::String(text)) => text,
            _ => "",
        };
        namespace.as_ref().is_none_or(|namespace| text(attributes::POD_NAMESPACE) == namespace)
            && pod.as_ref().is_none_or(|pod| match pod.strip_suffix('*') {
                Some(prefix) => text(attributes::POD_NAME).starts_with(prefix),
                None => text(attributes::POD_NAME) == pod,
            })
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
        for (filter, success, failure) in [
            (filter.clone(), true, true),
            (Filter { namespace: some("default"), ..filter.clone() }, true, true),
            (Filter { namespace: some("kube-system"), ..filter.clone() }, false, false),
            (Filter { pod: some("web-0"), ..filter.clone() }, true, false),
            (Filter { pod: some("web"), ..filter.clone() }, false, false),
            (Filter { pod: some("web-*"), ..filter.clone() }, true, false),
            (Filter { pod: some("*"), ..filter.clone() }, true, true),
            (Filter { failed: true, ..filter.clone() }, false, true),
            (Filter { failed: true, pod: some("web-*"), ..filter.clone() }, false, false),
            (Filter { slower_than: Some(Duration::from_millis(4)), ..filter.clone() }, true, false),
        ] {
            assert_eq!(
                (filter.keeps(&scheduled()), filter.keeps(&unschedulable())),
                (success, failure),
                "{filter:?}"
            );
        }
    }
}
