//! Pods without a Node, as the same watch reports them: why each is not scheduled, as its object says.

use std::collections::{HashMap, HashSet};

use kube::Resource as _;

use spans::text::cut;

use super::pod::{Condition, Pod};

/// Pods that are kept: as many as the model of the queue holds.
const MAX_PODS: usize = 20_000;
/// Characters kept of a name and of a message.
const MAX_NAME: usize = 253;
const MAX_MESSAGE: usize = 512;
/// Scheduling gates kept of a Pod.
const MAX_GATES: usize = 16;

/// A Pod without a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PendingPod {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.schedulerName`.
    pub scheduler: String,
    /// `metadata.creationTimestamp`, microseconds since the Unix epoch.
    pub created_unix_us: u64,
    /// Names in `spec.schedulingGates`.
    pub gates: Vec<String>,
    /// The group in `spec.schedulingGroup`.
    pub group: Option<String>,
    /// Reason, message and last transition (microseconds since the Unix epoch) of the condition `PodScheduled`, if it is
    /// false.
    pub condition: Option<(String, String, u64)>,
}

/// All Pods without a Node, by UID.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pods: HashMap<String, PendingPod>,
    /// UIDs in the list that is being read.
    listed: Option<HashSet<String>>,
    /// Not all Pods of the last list, and since, had room.
    overflowed: bool,
}

impl Pending {
    pub(super) fn list_begins(&mut self) {
        self.listed = Some(HashSet::new());
        self.overflowed = false;
    }

    pub(super) fn list_ends(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.pods.retain(|uid, _| listed.contains(uid));
        }
    }

    /// Keeps a Pod that has no Node. Returns whether there was room.
    pub(super) fn seen<const WHOLE: bool>(&mut self, pod: &Pod<WHOLE>) -> bool {
        let Some(uid) = &pod.meta().uid else { return true };
        // A Pod that is being deleted is not scheduled any more.
        if pod.meta().deletion_timestamp.is_some() {
            self.pods.remove(uid);
            return true;
        }
        if let Some(listed) = &mut self.listed
            && listed.len() < MAX_PODS
        {
            listed.insert(uid.clone());
        }
        if self.pods.len() >= MAX_PODS && !self.pods.contains_key(uid) {
            self.overflowed = true;
            return false;
        }
        self.pods.insert(uid.clone(), of(uid, pod));
        true
    }

    /// Forgets a Pod. Returns whether it was kept.
    pub(super) fn gone<const WHOLE: bool>(&mut self, pod: &Pod<WHOLE>) -> bool {
        pod.meta().uid.as_ref().is_some_and(|uid| self.pods.remove(uid).is_some())
    }

    /// All Pods; `None` if there was no room for some.
    pub(super) fn all(&self) -> Option<Vec<PendingPod>> {
        (!self.overflowed).then(|| self.pods.values().cloned().collect())
    }
}

fn of<const WHOLE: bool>(uid: &str, pod: &Pod<WHOLE>) -> PendingPod {
    let metadata = pod.meta();
    let name = |name: &str| cut(name, MAX_NAME);
    let failed = |condition: &&Condition| condition.kind == "PodScheduled" && condition.status == "False";
    let condition = pod.status.conditions.iter().find(failed).map(|condition| {
        let since =
            condition.last_transition_time.as_ref().map_or(0, |time| microseconds(time.0.as_microsecond()));
        (name(&condition.reason), cut(&condition.message, MAX_MESSAGE), since)
    });
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0.as_microsecond());
    PendingPod {
        uid: uid.to_owned(),
        namespace: name(metadata.namespace.as_deref().unwrap_or_default()),
        name: name(metadata.name.as_deref().unwrap_or_default()),
        scheduler: name(&pod.spec.scheduler_name),
        created_unix_us: created.map_or(0, microseconds),
        gates: pod.spec.scheduling_gates.iter().take(MAX_GATES).map(|gate| name(&gate.name)).collect(),
        group: pod.spec.scheduling_group.as_ref().map(|group| name(&group.pod_group_name)),
        condition,
    }
}

fn microseconds(since_epoch: i64) -> u64 {
    u64::try_from(since_epoch).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(uid: &str, change: impl FnOnce(&mut Value)) -> Pod<true> {
        let mut pod = json!({
            "metadata": { "uid": uid, "name": "web", "namespace": "shop", "creationTimestamp": "2026-11-21T00:00:00Z" },
            "spec": { "schedulerName": "default-scheduler", "containers": [] },
        });
        change(&mut pod);
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn gates_group_and_condition_are_read() {
        let mut pending = Pending::default();
        pending.seen(&pod("a", |pod| {
            pod["spec"]["schedulingGates"] = json!([{ "name": "example.com/wait" }]);
            pod["spec"]["schedulingGroup"] = json!({ "podGroupName": "crew" });
            pod["status"] = json!({ "conditions": [
                { "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "x".repeat(9999),
                  "lastTransitionTime": "2026-11-21T00:00:01Z" },
            ] });
        }));
        let all = pending.all().unwrap();
        let created_unix_us = 1_795_219_200_000_000;
        let expected = PendingPod {
            uid: "a".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            scheduler: "default-scheduler".to_owned(),
            created_unix_us,
            gates: vec!["example.com/wait".to_owned()],
            group: Some("crew".to_owned()),
            condition: Some((
                "SchedulingGated".to_owned(),
                "x".repeat(MAX_MESSAGE),
                created_unix_us + 1_000_000,
            )),
        };
        assert_eq!(all, [expected]);
    }

    #[test]
    fn a_condition_that_is_true_says_nothing() {
        let mut pending = Pending::default();
        pending.seen(&pod("a", |pod| {
            pod["status"] = json!({ "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": "False" }] });
        }));
        assert_eq!(pending.all().unwrap()[0].condition, None);
    }

    #[test]
    fn pods_that_a_new_list_lacks_and_deleted_ones_are_gone() {
        let mut pending = Pending::default();
        for uid in ["a", "b", "c"] {
            assert!(pending.seen(&pod(uid, |_| {})));
        }
        pending.list_begins();
        pending.seen(&pod("a", |_| {}));
        pending.seen(&pod("b", |_| {}));
        pending.seen(&pod("d", |_| {}));
        pending.list_ends();
        pending.gone(&pod("a", |_| {}));
        pending.seen(&pod("b", |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z")));
        let uids: Vec<_> = pending.all().unwrap().into_iter().map(|pod| pod.uid).collect();
        assert_eq!(uids, ["d"]);
    }

    #[test]
    fn without_room_nothing_is_said_of_all() {
        let mut pending = Pending::default();
        for number in 0..MAX_PODS {
            assert!(pending.seen(&pod(&number.to_string(), |_| {})));
        }
        assert!(!pending.seen(&pod("one more", |_| {})));
        assert_eq!(pending.all(), None);
        pending.list_begins();
        pending.seen(&pod("1", |_| {}));
        pending.list_ends();
        assert_eq!(pending.all().unwrap().len(), 1);
    }
}
