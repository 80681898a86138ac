//! Pods without a Node, as the same watch reports them: why each is not scheduled, as its object says.

use std::{collections::HashMap, sync::Arc};

use interned::Interner;
use kube::Resource as _;
use spans::{Condition, Pending, text::cut};

use super::pod::{self, Pod};

/// Pods that are kept: as many as the model of the queue holds. Each takes some 300 bytes.
const MAX_PODS: usize = 20_000;
/// Characters kept of a name and of a message.
const MAX_NAME: usize = 253;
const MAX_MESSAGE: usize = 512;
/// Scheduling gates kept of a Pod.
const MAX_GATES: usize = 16;

/// All Pods without a Node.
#[derive(Debug, Default)]
pub(super) struct PendingPods {
    /// By UID, with the last list that had the Pod, or that was over when it came.
    pods: HashMap<Arc<str>, (u64, Arc<Pending>)>,
    /// Number of lists that began.
    lists: u64,
    /// Not all Pods of the last list, and since, had room.
    overflowed: bool,
    texts: Interner<str>,
}

impl PendingPods {
    pub(super) fn list_begins(&mut self) {
        self.lists += 1;
        self.overflowed = false;
    }

    pub(super) fn list_ends(&mut self) {
        self.pods.retain(|_, (list, _)| *list == self.lists);
    }

    /// Keeps a Pod that has no Node. Returns whether there was room.
    pub(super) fn seen<const WHOLE: bool>(&mut self, pod: &Pod<WHOLE>) -> bool {
        let Some(uid) = &pod.meta().uid else { return true };
        // A Pod that is being deleted is not scheduled any more.
        if pod.meta().deletion_timestamp.is_some() {
            self.pods.remove(&**uid);
            return true;
        }
        if self.pods.len() >= MAX_PODS && !self.pods.contains_key(&**uid) {
            self.overflowed = true;
            return false;
        }
        // A table keeps the key that it has.
        let uid =
            self.pods.get_key_value(&**uid).map_or_else(|| uid.as_str().into(), |(uid, _)| Arc::clone(uid));
        let pod = of(Arc::clone(&uid), pod, &mut self.texts);
        self.pods.insert(uid, (self.lists, Arc::new(pod)));
        true
    }

    /// Forgets a Pod. Returns whether it was kept.
    pub(super) fn gone<const WHOLE: bool>(&mut self, pod: &Pod<WHOLE>) -> bool {
        pod.meta().uid.as_ref().is_some_and(|uid| self.pods.remove(&**uid).is_some())
    }

    /// All Pods; `None` if there was no room for some.
    pub(super) fn all(&self) -> Option<Vec<Arc<Pending>>> {
        (!self.overflowed).then(|| self.pods.values().map(|(_, pod)| Arc::clone(pod)).collect())
    }
}

fn of<const WHOLE: bool>(uid: Arc<str>, pod: &Pod<WHOLE>, texts: &mut Interner<str>) -> Pending {
    let metadata = pod.meta();
    let name = |name| cut(name, MAX_NAME);
    let failed =
        |condition: &&pod::Condition| condition.kind == "PodScheduled" && condition.status == "False";
    let condition = pod.status.conditions.iter().find(failed).map(|condition| {
        let since = condition.last_transition_time.as_ref().map(|time| time.0.as_microsecond());
        Condition {
            reason: texts.intern(name(&condition.reason)),
            message: texts.intern(cut(&condition.message, MAX_MESSAGE)),
            since_unix_us: since.map_or(0, microseconds),
        }
    });
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0.as_microsecond());
    let gates = pod.spec.scheduling_gates.iter().take(MAX_GATES);
    let group = pod.spec.scheduling_group.as_ref();
    Pending {
        uid,
        namespace: texts.intern(name(metadata.namespace.as_deref().unwrap_or_default())),
        name: name(metadata.name.as_deref().unwrap_or_default()).into(),
        scheduler: texts.intern(name(&pod.spec.scheduler_name)),
        created_unix_us: created.map_or(0, microseconds),
        gates: gates.map(|gate| name(&gate.name).to_owned()).collect(),
        group: group.map(|group| texts.intern(name(&group.pod_group_name))),
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
        let mut pending = PendingPods::default();
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
        let expected = Pending {
            uid: "a".into(),
            namespace: "shop".into(),
            name: "web".into(),
            scheduler: "default-scheduler".into(),
            created_unix_us,
            gates: vec!["example.com/wait".to_owned()],
            group: Some("crew".into()),
            condition: Some(Condition {
                reason: "SchedulingGated".into(),
                message: "x".repeat(MAX_MESSAGE).into(),
                since_unix_us: created_unix_us + 1_000_000,
            }),
        };
        assert_eq!(all, [expected.into()]);
    }

    #[test]
    fn a_condition_that_is_true_says_nothing() {
        let mut pending = PendingPods::default();
        pending.seen(&pod("a", |pod| {
            pod["status"] = json!({ "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": "False" }] });
        }));
        assert_eq!(pending.all().unwrap()[0].condition, None);
    }

    #[test]
    fn pods_that_a_new_list_lacks_and_deleted_ones_are_gone() {
        let mut pending = PendingPods::default();
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
        let uids: Vec<_> = pending.all().unwrap().iter().map(|pod| pod.uid.to_string()).collect();
        assert_eq!(uids, ["d"]);
    }

    #[test]
    fn texts_that_pods_have_in_common_are_kept_once() {
        let mut pending = PendingPods::default();
        let with = |uid: usize, message: String| {
            pod(&uid.to_string(), |pod| {
                let failed = json!({ "type": "PodScheduled", "status": "False", "message": message });
                pod["status"] = json!({ "conditions": [failed] });
            })
        };
        for uid in 0..2 {
            pending.seen(&with(uid, "0/3 nodes are available".to_owned()));
        }
        let all = pending.all().unwrap();
        let [one, other] = [0, 1].map(|index: usize| all[index].condition.clone().unwrap());
        assert!(Arc::ptr_eq(&one.message, &other.message));
        assert!(Arc::ptr_eq(&all[0].namespace, &all[1].namespace));
    }

    #[test]
    fn without_room_nothing_is_said_of_all() {
        let mut pending = PendingPods::default();
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
