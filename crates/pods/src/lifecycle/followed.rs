//! Some Pods that a client of the API server follows by itself, until it draws them. Pure.

use std::collections::BTreeMap;

use spans::Trace;

use super::{
    attempt::Attempt,
    pod::Pod,
    progress::{Common, Progress},
    tree,
};

/// Most Pods.
const MAX_PODS: usize = 1000;

/// The Pods by UID. Times are nanoseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub struct Followed(BTreeMap<String, Progress>);

impl Followed {
    /// Takes the current state of a Pod. Returns whether there is room for it.
    pub fn see(&mut self, pod: &Pod, now_ns: u64) -> bool {
        let Some(uid) = pod.metadata.uid.clone() else { return true };
        if !self.0.contains_key(&uid) && self.0.len() >= MAX_PODS {
            return false;
        }
        self.0.entry(uid).or_insert_with(|| Progress::new(now_ns)).see(pod, now_ns, &mut Common::default());
        true
    }

    /// The Pod with this UID is deleted.
    pub fn gone(&mut self, uid: &str, now_ns: u64) {
        if let Some(progress) = self.0.get_mut(uid) {
            progress.gone(now_ns);
        }
    }

    /// Takes a traced attempt; those of one Pod in their order.
    pub fn attempt(&mut self, trace: &Trace) {
        if let Some((uid, attempt)) = Attempt::of(trace)
            && let Some(progress) = self.0.get_mut(uid)
        {
            progress.attempt(attempt, true);
        }
    }

    /// The lifecycle of each Pod. One that goes on has no result, and ends now.
    #[must_use]
    pub fn traces(&self, now_ns: u64) -> Vec<Trace> {
        self.0.iter().filter_map(|(uid, progress)| tree::so_far(uid, progress, now_ns)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use spans::{AttributeValue, SpanKind, Stage, attributes};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn pod(status: &serde_json::Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "creationTimestamp": "2026-11-25T00:00:00Z"},
            "spec": {"nodeName": "a", "containers": [{"name": "web", "image": "web:1"}]},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_that_goes_on_is_drawn_until_now_and_has_no_result() {
        let created = 1_795_564_800 * SECOND;
        let mut followed = Followed::default();
        let scheduled =
            json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-25T00:00:01Z"});
        let pending =
            json!({"phase": "Pending", "startTime": "2026-11-25T00:00:01Z", "conditions": [scheduled]});
        let pending = pod(&pending);
        assert!(followed.see(&pending, created + 2 * SECOND));
        let [trace] = &followed.traces(created + 5 * SECOND)[..] else { panic!("not one Pod") };
        assert_eq!(trace.root().end_unix_ns, created + 5 * SECOND);
        assert_eq!(trace.root().attribute(attributes::LIFECYCLE_RESULT), None);
        let last = trace.spans.last().unwrap();
        assert_eq!(last.attribute(attributes::INCOMPLETE), Some(&AttributeValue::Bool(true)));

        let ready = json!({"phase": "Running", "startTime": "2026-11-25T00:00:01Z",
            "conditions": [scheduled, {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-25T00:00:03Z"}],
            "containerStatuses": [{"name": "web", "image": "web:1", "imageID": "", "ready": true, "restartCount": 0,
                                   "state": {"running": {"startedAt": "2026-11-25T00:00:02Z"}}}]});
        assert!(followed.see(&pod(&ready), created + 4 * SECOND));
        let [trace] = &followed.traces(created + 9 * SECOND)[..] else { panic!("not one Pod") };
        assert_eq!(trace.root().attribute(attributes::LIFECYCLE_RESULT), Some(&"Ready".into()));
        assert_eq!(trace.root().end_unix_ns, created + 4 * SECOND - 1);
        assert!(trace.spans.iter().any(|span| span.kind == SpanKind::Stage(Stage::Container)));
    }

    #[test]
    fn the_number_of_pods_is_bounded() {
        let mut followed = Followed::default();
        let mut pod = pod(&json!({}));
        for number in 0..=MAX_PODS {
            pod.metadata.uid = Some(number.to_string());
            assert_eq!(followed.see(&pod, 0), number < MAX_PODS);
        }
    }
}
