//! Identities of traces and spans. They follow from what a trace is about: the same trace always has the same ids.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::names::LIFECYCLE;

/// A number that no span of a lifecycle has: they count from 0.
const CREATION: u64 = u64::MAX;

/// Whose trace the lifecycle of a Pod is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LifecycleTrace {
    /// The Pod's own
    #[default]
    Pod,
    /// That of its first owner, such as a ReplicaSet or a Job, with the owner's other Pods and the reconciles that created them
    Owner,
}

impl LifecycleTrace {
    /// The trace id of what has this one by itself, and belongs to Pods whose first owner has this UID.
    #[must_use]
    pub fn of(self, own: [u8; 16], owner: Option<&str>) -> [u8; 16] {
        match self {
            Self::Pod => own,
            Self::Owner => owner.map_or(own, lifecycle_id),
        }
    }
}

/// The trace id of `what`, which began at `start_ns` in the process with this number.
#[must_use]
pub fn trace_id(what: &str, start_ns: u64, process: u32) -> [u8; 16] {
    let mut hasher = SipHasher13::new();
    hasher.write(what.as_bytes());
    hasher.write_u64(start_ns);
    hasher.write_u32(process);
    not_zero(hasher.finish128().as_bytes())
}

/// The trace id of the lifecycle of the Pod with this UID, or of an owner's Pods: the same on every node.
#[must_use]
pub fn lifecycle_id(uid: &str) -> [u8; 16] {
    let mut hasher = SipHasher13::new();
    hasher.write(LIFECYCLE.as_bytes());
    hasher.write(uid.as_bytes());
    not_zero(hasher.finish128().as_bytes())
}

/// The id of the root of that lifecycle, whosever trace it is in.
#[must_use]
pub fn lifecycle_root(uid: &str) -> [u8; 8] {
    span_id(&lifecycle_id(uid), 0)
}

/// The id of the span `create Pod` beside it: the same in all daemons.
#[must_use]
pub fn creation_id(uid: &str) -> [u8; 8] {
    span_id(&lifecycle_id(uid), CREATION)
}

/// The id of the span `delete Pod` or `evict Pod` beside it, of the request with this span: there may be several.
#[must_use]
pub fn removal_id(uid: &str, request: [u8; 8]) -> [u8; 8] {
    span_id(&lifecycle_id(uid), u64::from_be_bytes(request))
}

/// The id of the span with this number in its trace.
#[must_use]
pub fn span_id(trace_id: &[u8; 16], number: u64) -> [u8; 8] {
    let mut hasher = SipHasher13::new();
    hasher.write(trace_id);
    hasher.write_u64(number);
    not_zero(hasher.finish().to_be_bytes())
}

/// All zero means "none".
fn not_zero<const N: usize>(id: [u8; N]) -> [u8; N] {
    if id == [0; N] { [1; N] } else { id }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_follow_from_all_that_a_trace_is_about() {
        let of = [("pod", 1, 1), ("Pod", 1, 1), ("pod", 2, 1), ("pod", 1, 2)];
        let ids: HashSet<_> =
            of.iter().map(|(what, start, process)| trace_id(what, *start, *process)).collect();
        assert_eq!(ids.len(), of.len());
        assert_eq!(trace_id("pod", 1, 1), trace_id("pod", 1, 1));
        assert_ne!(lifecycle_id("a"), lifecycle_id("b"));
        assert_eq!(lifecycle_id("a"), lifecycle_id("a"));
        let one = trace_id("pod", 1, 1);
        let spans = [span_id(&one, 0), span_id(&one, 1), span_id(&trace_id("Pod", 1, 1), 0)];
        assert_eq!(HashSet::from(spans).len(), spans.len());
        assert_eq!(span_id(&one, 1), spans[1]);
        assert_ne!(creation_id("a"), creation_id("b"));
        assert_ne!(creation_id("a"), lifecycle_root("a"));
        let [first, second] = [[1; 8], [2; 8]].map(|request| removal_id("a", request));
        assert!(first != second && first != creation_id("a") && first != removal_id("b", [1; 8]));
    }

    #[test]
    fn pods_of_an_owner_share_a_trace_only_if_that_is_asked_for() {
        let [a, b] = ["a", "b"].map(lifecycle_id);
        for (of, owner, together) in [
            (LifecycleTrace::Pod, Some("owner"), false),
            (LifecycleTrace::Owner, None, false),
            (LifecycleTrace::Owner, Some("owner"), true),
        ] {
            assert_eq!(of.of(a, owner) == of.of(b, owner), together, "{of:?} {owner:?}");
        }
        assert_eq!(LifecycleTrace::Pod.of(a, Some("owner")), a);
        assert_ne!(lifecycle_root("a"), lifecycle_root("b"));
    }

    #[test]
    fn no_id_is_zero() {
        assert_eq!(not_zero([0; 16]), [1; 16]);
        let id = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(not_zero(id), id);
    }
}
