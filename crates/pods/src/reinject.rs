//! Writes the context of its attempt into each bound Pod, for the components that work on it next: KEP-5927's re-injection.
//!
//! It costs one write per Pod, so it is opt-in, limited by a rate, and never blocks the caller. An existing value stays. A value
//! from the Pod's creation is known from the watch of Pods: a server-side apply would not conflict with one that a webhook
//! added, which belongs to no field manager.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::response::Status,
};
use serde::Deserialize;
use serde_json::json;
use spans::{AttributeValue, Span, SpanKind, Trace, TraceKind, attributes, text::sentence};
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tracecontext::{RemoteContext, annotations::TRACEPARENT_KEY};
use tracing::{debug, warn};

use crate::{
    Metrics, Write,
    api::{self, FIELD_MANAGER},
    context::{self, PodContexts, PodWith},
};

/// Pods that wait to be written: some seconds of the default rate.
const QUEUE: usize = 256;
/// Most concurrent requests.
const AT_ONCE: usize = 8;
/// Pause in a namespace after the API server has refused a write for a missing right.
const FORBIDDEN_PAUSE: Duration = Duration::from_secs(60);
/// Most namespaces with such a pause.
const MAX_FORBIDDEN: usize = 1_024;
/// Text of the API server for a missing right. Admission refuses with the same code, but may accept the next Pod.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go>
const NO_RIGHT: &str = "cannot patch resource \"pods\"";
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Cause of a conflict with another field manager.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/types.go>
const MANAGER_CONFLICT: &str = "FieldManagerConflict";

/// Whether and how quickly
#[derive(clap::Args, Clone, Debug, Default)]
// A command flattens several structs of this name.
#[group(skip)]
pub struct Options {
    /// Write the context of its attempt into each Pod that is bound and carries none: needs `patch` of pods
    #[arg(long, env = "SCHEDSPAN_REINJECT")]
    pub reinject: bool,
    /// With --reinject: how many Pods a second at most; what is more is left out, and counted
    #[arg(long, default_value_t = 20, value_name = "PODS", value_parser = clap::value_parser!(u32).range(1..))]
    pub reinject_rate: u32,
}

/// Accepts bound Pods, and writes to them in a background task.
pub struct Reinjector {
    queue: mpsc::Sender<Bound>,
    task: JoinHandle<()>,
    contexts: PodContexts,
    rate: Rate,
    metrics: Metrics,
}

/// A Pod that was bound, and the context of its attempt.
#[derive(Debug, PartialEq, Eq)]
struct Bound {
    namespace: String,
    name: String,
    uid: String,
    /// The scheduler and the Node that the attempt names.
    scheduler: String,
    node: String,
    traceparent: String,
}

/// What is asked of a Pod before it is written to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    scheduler_name: Option<String>,
    node_name: Option<String>,
}

/// A limit per second, counted from the start.
#[derive(Debug)]
struct Rate {
    limit: u32,
    start: Instant,
    second: u64,
    taken: u32,
}

impl Reinjector {
    /// Starts the task that writes, within a tokio runtime.
    ///
    /// # Errors
    ///
    /// When no API server is known, or the kubeconfig cannot be used.
    pub async fn start(
        options: &Options,
        context: &context::Options,
        contexts: PodContexts,
        metrics: Metrics,
    ) -> Result<Self> {
        let client = api::client(context.kubeconfig.clone()).await;
        let (client, _) = client.context("--reinject writes to the API server")?;
        let (queue, receiver) = mpsc::channel(QUEUE);
        let task = tokio::spawn(write_all(client, receiver, metrics.clone()));
        let rate = Rate { limit: options.reinject_rate, start: Instant::now(), second: 0, taken: 0 };
        Ok(Self { queue, task, contexts, rate, metrics })
    }

    /// Takes all Pods that were bound in this trace. Pods over a limit are counted, and left out.
    pub fn offer(&mut self, trace: &Trace) {
        for bound in trace.spans.iter().filter_map(|span| bound(trace.trace_id, span)) {
            if let Err(result) = self.take(bound) {
                self.metrics.wrote(result);
            }
        }
    }

    fn take(&mut self, bound: Bound) -> Result<(), Write> {
        match self.contexts.annotated(&bound.uid) {
            Some(false) => {}
            Some(true) => return Err(Write::Present),
            None => return Err(Write::Unknown),
        }
        if !self.rate.allows(Instant::now()) {
            return Err(Write::Rate);
        }
        self.queue.try_send(bound).map_err(|error| match error {
            TrySendError::Full(_) => Write::QueueFull,
            TrySendError::Closed(_) => Write::Failed,
        })
    }

    /// Waits for the last writes, at most `wait`.
    pub async fn finish(self, wait: Duration) {
        let Self { queue, task, .. } = self;
        drop(queue);
        if timeout(wait, task).await.is_err() {
            warn!("the last contexts could not be written in {wait:?}");
        }
    }
}

impl Rate {
    fn allows(&mut self, now: Instant) -> bool {
        let second = now.duration_since(self.start).as_secs();
        if second != self.second {
            (self.second, self.taken) = (second, 0);
        }
        self.taken += u32::from(self.taken <= self.limit);
        self.taken <= self.limit
    }
}

/// The Pod of a root, if the Pod was bound.
fn bound(trace_id: [u8; 16], span: &Span) -> Option<Bound> {
    let text = |key| match span.attribute(key) {
        Some(AttributeValue::String(text)) => Some(text.to_string()),
        _ => None,
    };
    let node = text(attributes::SELECTED_NODE).filter(|_| span.kind == SpanKind::Root(TraceKind::Attempt))?;
    let context = RemoteContext::sampled(trace_id, span.span_id);
    Some(Bound {
        namespace: text(attributes::POD_NAMESPACE)?,
        name: text(attributes::POD_NAME)?,
        uid: text(attributes::POD_UID)?,
        scheduler: text(attributes::PROFILE)?,
        node,
        traceparent: context.traceparent(),
    })
}

async fn write_all(client: Client, mut queue: mpsc::Receiver<Bound>, metrics: Metrics) {
    let writer = &Writer { client, logged: Mutex::default() };
    let bound = stream::poll_fn(|context| queue.poll_recv(context));
    bound.for_each_concurrent(AT_ONCE, async |bound| metrics.wrote(writer.write(&bound).await)).await;
}

struct Writer {
    client: Client,
    logged: Mutex<Logged>,
}

/// Failures that are logged already.
#[derive(Default)]
struct Logged {
    /// When the API server last refused it in a namespace.
    forbidden: HashMap<String, Instant>,
    failed: bool,
}

impl Writer {
    async fn write(&self, bound: &Bound) -> Write {
        let Bound { namespace, name, uid, scheduler: _, node: _, traceparent } = bound;
        let forbidden = self.logged().forbidden.get(namespace).copied();
        if forbidden.is_some_and(|when| when.elapsed() < FORBIDDEN_PAUSE) {
            return Write::Forbidden;
        }
        // With the UID the apply cannot create a deleted Pod again, nor change another Pod of the same name.
        let apply = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "namespace": namespace, "name": name, "uid": uid, "annotations": { TRACEPARENT_KEY: traceparent } },
        });
        match timeout(TIMEOUT, self.is_as_told(bound)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => return Write::Unlike,
            Ok(Err(kube::Error::Api(status))) => return self.refused(bound, &status),
            Ok(Err(error)) => return self.failed(bound, &sentence(&error)),
            Err(_) => return self.failed(bound, &format!("the API server has not answered in {TIMEOUT:?}")),
        }
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let parameters = PatchParams::apply(FIELD_MANAGER);
        match timeout(TIMEOUT, api.patch_metadata(name, &parameters, &Patch::Apply(apply))).await {
            Ok(Ok(_)) => Write::Written,
            Ok(Err(kube::Error::Api(status))) => self.refused(bound, &status),
            Ok(Err(error)) => self.failed(bound, &sentence(&error)),
            Err(_) => self.failed(bound, &format!("the API server has not answered in {TIMEOUT:?}")),
        }
    }

    /// Whether the Pod is for the scheduler, and on the Node, that the attempt names: records of a traced process may be false.
    async fn is_as_told(&self, bound: &Bound) -> kube::Result<bool> {
        let Bound { namespace, name, uid, scheduler, node, traceparent: _ } = bound;
        let api = Api::<PodWith<Spec>>::namespaced(self.client.clone(), namespace);
        let PodWith { metadata, spec, .. } = api.get(name).await?;
        // The write finds out that another Pod has its name.
        let is_another = metadata.uid.as_ref() != Some(uid);
        let is_alike =
            spec.scheduler_name.as_ref() == Some(scheduler) && spec.node_name.as_ref() == Some(node);
        Ok(is_another || is_alike)
    }

    fn refused(&self, bound: &Bound, status: &Status) -> Write {
        let result = refusal(status);
        match result {
            Write::Forbidden => {
                let mut logged = self.logged();
                if logged.forbidden.is_empty() {
                    warn!(
                        "cannot write contexts into Pods: {}; grant `patch` of pods, as `reinject.enabled` of the chart does; \
                         logged once, tried again in this namespace every {FORBIDDEN_PAUSE:?}",
                        status.message
                    );
                }
                if logged.forbidden.len() >= MAX_FORBIDDEN {
                    logged.forbidden.retain(|_, when| when.elapsed() < FORBIDDEN_PAUSE);
                }
                if logged.forbidden.len() < MAX_FORBIDDEN {
                    logged.forbidden.insert(bound.namespace.clone(), Instant::now());
                }
            }
            Write::Failed => return self.failed(bound, &status.message),
            _ => debug!("{}/{} keeps what it has: {}", bound.namespace, bound.name, status.message),
        }
        result
    }

    fn failed(&self, bound: &Bound, why: &str) -> Write {
        if !std::mem::replace(&mut self.logged().failed, true) {
            let Bound { namespace, name, .. } = bound;
            warn!(
                "the context of {namespace}/{name} could not be written: {why}; logged once, all are counted"
            );
        }
        Write::Failed
    }

    fn logged(&self) -> MutexGuard<'_, Logged> {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result that a refusal of the API server stands for.
fn refusal(status: &Status) -> Write {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    match status.code {
        403 if status.message.contains(NO_RIGHT) => Write::Forbidden,
        404 => Write::Gone,
        409 if causes.any(|cause| cause.reason == MANAGER_CONFLICT) => Write::Conflict,
        // No Pod has the UID.
        409 => Write::Gone,
        // Another Pod has the name.
        422 if causes.any(|cause| cause.field == "metadata.uid") => Write::Gone,
        _ => Write::Failed,
    }
}

impl fmt::Debug for Reinjector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reinjector").field("rate", &self.rate).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};
    use spans::fixtures::{scheduled, unschedulable};

    use super::*;

    #[test]
    fn only_a_bound_pod_gets_a_context_which_is_that_of_its_root() {
        let trace = scheduled();
        let found: Vec<_> = trace.spans.iter().filter_map(|span| bound(trace.trace_id, span)).collect();
        let [bound] = &found[..] else { panic!("{found:?}") };
        let root = trace.root();
        let (trace_id, span_id) = (u128::from_be_bytes(trace.trace_id), u64::from_be_bytes(root.span_id));
        assert_eq!(bound.traceparent, format!("00-{trace_id:032x}-{span_id:016x}-01"));
        let text = |key| root.attribute(key).map(ToString::to_string);
        assert_eq!(Some(&bound.name), text(attributes::POD_NAME).as_ref());
        assert_eq!(Some(&bound.uid), text(attributes::POD_UID).as_ref());

        let trace = unschedulable();
        assert!(trace.spans.iter().all(|span| super::bound(trace.trace_id, span).is_none()));
    }

    #[test]
    fn each_second_has_room_for_so_many() {
        let start = Instant::now();
        let mut rate = Rate { limit: 2, start, second: 0, taken: 0 };
        let mut allowed = |ms| rate.allows(start + Duration::from_millis(ms));
        assert_eq!([0, 1, 2, 999].map(&mut allowed), [true, true, false, false]);
        assert_eq!([1_000, 1_001, 1_002].map(&mut allowed), [true, true, false]);
        assert_eq!([5_999, 6_000].map(&mut allowed), [true, true]);
    }

    #[test]
    fn a_refusal_has_a_result_by_its_cause() {
        let status = |code, reason: &str, field: &str| {
            let causes =
                vec![StatusCause { reason: reason.into(), message: String::new(), field: field.into() }];
            let details = StatusDetails { causes, ..serde_json::from_str("{}").unwrap() };
            Status { code, details: Some(details), ..Status::failure("", "") }
        };
        let no_right = "pods \"shop\" is forbidden: User \"u\" cannot patch resource \"pods\" in API group \"\" in the namespace \"n\"";
        assert_eq!(
            refusal(&Status { code: 403, ..Status::failure(no_right, "Forbidden") }),
            Write::Forbidden
        );
        for (code, reason, field, expected) in [
            // From a policy.
            (403, "", "", Write::Failed),
            (404, "", "", Write::Gone),
            (409, "", "", Write::Gone),
            (409, "FieldManagerConflict", ".metadata.annotations.x", Write::Conflict),
            (422, "FieldValueInvalid", "metadata.uid", Write::Gone),
            (422, "FieldValueInvalid", "metadata.annotations", Write::Failed),
            (500, "", "", Write::Failed),
        ] {
            assert_eq!(refusal(&status(code, reason, field)), expected, "{code} {reason} {field}");
        }
    }
}
