//! Keys of the attributes that spans carry.
//!
//! `k8s.*` without `scheduler` are OpenTelemetry's semantic conventions, `k8s.scheduler.*` are KEP-5927's and, where it
//! names none, in its manner.

/// What an attribute's value is, as OpenTelemetry's registries name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// `string`
    String,
    /// `string[]`
    Strings,
    /// `int`
    Int,
    /// `double`
    Double,
    /// `boolean`
    Bool,
}

/// An attribute as the reference lists it.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Its key.
    pub key: &'static str,
    /// What its value is.
    pub value_type: ValueType,
    /// What it says, and on which spans it is: the comment of its constant.
    pub brief: &'static str,
}

/// Makes a constant for each key, and [`ALL`] from the same lines.
macro_rules! attributes {
    ($($(#[doc = $line:literal])+ pub const $name:ident: $value_type:ident = $key:literal;)+) => {
        $($(#[doc = $line])+ pub const $name: &str = $key;)+

        /// All of them, in the order of this file. docs/reference/attributes.yaml is made from these.
        pub const ALL: &[Attribute] = &[
            $(Attribute { key: $key, value_type: ValueType::$value_type, brief: concat!($($line),+).trim_ascii() },)+
        ];
    };
}

attributes! {
/// Name of the Pod. On the root, of a victim on `preemptPod`, and on requests about a Pod.
pub const POD_NAME: String = "k8s.pod.name";
/// Namespace of the Pod. On the root; on requests that of the object.
pub const POD_NAMESPACE: String = "k8s.namespace.name";
/// UID of the Pod: what the traces of its attempts have in common. On the root; of the Pod that it is about on spans of API
/// calls and on requests, and of a victim on `preemptPod`.
pub const POD_UID: String = "k8s.pod.uid";
/// Name of the group of Pods that is scheduled as one (1.36 and later). On the root of a group, and on those of its Pods.
pub const POD_GROUP: String = "k8s.scheduler.pod_group.name";
/// How many Pods of the group were to be scheduled. On the root of a group.
pub const POD_GROUP_SIZE: Int = "k8s.scheduler.pod_group.size";
/// How many of these were bound. On the root of a group.
pub const POD_GROUP_SCHEDULED: Int = "k8s.scheduler.pod_group.scheduled";
/// The part of the cluster on which the Pods of a group are tried together. On placements, and on trials of Pods.
pub const PLACEMENT: String = "k8s.scheduler.placement";
/// Whether the Pod was bound by this trial: a Pod of a group is tried once for each placement. On trials.
pub const TRIAL_CHOSEN: Bool = "k8s.scheduler.trial.chosen";
/// Scheduling profile: the Pod's `spec.schedulerName`. On the root and on phases.
pub const PROFILE: String = "k8s.scheduler.profile";
/// The extension point that the span shows. On phases.
pub const PHASE: String = "k8s.scheduler.phase";
/// How it ended: a name of a `framework.Code`, such as `Success`, `Unschedulable`, `Error`. On the root and on phases.
pub const RESULT: String = "k8s.scheduler.result";
/// The Node that was chosen. On the root.
pub const SELECTED_NODE: String = "k8s.scheduler.selected_node";
/// Number of the attempt, from 1. On the root.
pub const ATTEMPT: Int = "k8s.scheduler.attempt";
/// How long the Pod was in the active queue before the attempt, milliseconds: KEP-5927's words. On the root, when the Pod
/// was seen to enter it; a Pod that is popped from the backoff queue (1.33 and later) was never in it.
pub const QUEUE_WAIT_MS: Double = "k8s.scheduler.queue_wait_ms";
/// How long the Pod was in any queue before the attempt, milliseconds: since it was created, or since its last attempt
/// ended. On the root.
pub const QUEUE_TOTAL_WAIT_MS: Double = "k8s.scheduler.queue.total_wait_ms";
/// Why the Pod entered the queue that it was popped from: the event of the scheduler's `queue_incoming_pods_total`. On the
/// root, and on spans of queues.
pub const QUEUE_EVENT: String = "k8s.scheduler.queue.event";
/// Every entry of the Pod into a queue since its last attempt, as `queue: event`, oldest first. On the root.
pub const QUEUE_MOVES: Strings = "k8s.scheduler.queue.moves";
/// How many entries in the middle of that list are left out. On the root, where there are any.
pub const QUEUE_MOVES_LEFT_OUT: Int = "k8s.scheduler.queue.moves_left_out";
/// How long the Pod was in the backoff queue since its last attempt, milliseconds. On the root.
pub const QUEUE_BACKOFF_MS: Double = "k8s.scheduler.queue.backoff_ms";
/// How long the Pod was among the unschedulable Pods, gated ones as well, since its last attempt, milliseconds. On the root.
pub const QUEUE_UNSCHEDULABLE_MS: Double = "k8s.scheduler.queue.unschedulable_ms";
/// The plugins whose `PreEnqueue` held the Pod since its last attempt (1.34 and later). On the root, and on the span of a
/// queue.
pub const GATED_BY: Strings = "k8s.scheduler.queue.gated_by";
/// How long they held it, milliseconds. On the root, where they did.
pub const GATED_MS: Double = "k8s.scheduler.queue.gated_ms";
/// Time in `PreEnqueue` since the Pod's last attempt, milliseconds. On the root.
pub const PRE_ENQUEUE_MS: Double = "k8s.scheduler.queue.pre_enqueue_ms";
/// Time in `Sign` since the Pod's last attempt, milliseconds (1.36 and later). On the root.
pub const SIGN_MS: Double = "k8s.scheduler.queue.sign_ms";
/// How many calls of these two have no span. On the root, where there are any, with spans of queues.
pub const QUEUE_PHASES_LEFT_OUT: Int = "k8s.scheduler.queue.phases_left_out";
/// How long ago the Pod first was ready to be scheduled, milliseconds. On the root.
pub const SINCE_FIRST_ATTEMPT_MS: Double = "k8s.scheduler.queue.since_first_attempt_ms";
/// How many Nodes were looked at. On the root.
pub const EVALUATED_NODES: Int = "k8s.scheduler.evaluated_nodes";
/// How many of these would do. On the root.
pub const FEASIBLE_NODES: Int = "k8s.scheduler.feasible_nodes";
/// True where the Node of a Pod of the same kind was tried before all others (1.35 and later). On the root.
pub const BATCHED: Bool = "k8s.scheduler.batched";
/// To how many Nodes `PreFilter` plugins restricted the search, where they did. On the root.
pub const RESTRICTED_TO_NODES: Int = "k8s.scheduler.restricted_to_nodes";
/// How many Nodes were scored. On the root.
pub const SCORED_NODES: Int = "k8s.scheduler.scored_nodes";
/// How many of these were looked at for the best candidates, where not all were. On the root.
pub const SCORED_NODES_LOOKED_AT: Int = "k8s.scheduler.scored_nodes.looked_at";
/// The five Nodes with the highest scores, best first, as `node: total (plugin score, ...)`. On the root.
pub const CANDIDATES: Strings = "k8s.scheduler.candidates";
/// How many Nodes have the highest score: the scheduler takes one of them. On the root.
pub const CANDIDATE_TIES: Int = "k8s.scheduler.candidates.ties";
/// How many Nodes each plugin rejected, most first, as `plugin: nodes code`. On the root.
pub const REJECTIONS: Strings = "k8s.scheduler.rejections";
/// Of how many rejected Nodes that list is, where not all were looked at. On the root.
pub const REJECTIONS_LOOKED_AT: Int = "k8s.scheduler.rejections.looked_at";
/// The plugin that rejected all Nodes that are not in that list. On the root.
pub const REJECTED_OTHERS: String = "k8s.scheduler.rejections.others";
/// The Node that preemption frees for the Pod. On the root.
pub const PREEMPTION_NODE: String = "k8s.scheduler.preemption.node";
/// How many Pods must go from there. On the root.
pub const PREEMPTION_VICTIMS: Int = "k8s.scheduler.preemption.victims";
/// Names of the first three of them. On the root.
pub const PREEMPTION_VICTIM_NAMES: Strings = "k8s.scheduler.preemption.victim_names";
/// The plugins that asked to wait. On `waitOnPermit`.
pub const WAITED_FOR: Strings = "k8s.scheduler.permit.plugins";
/// Name of the plugin. On spans of plugins, and of a phase that did not end: the one whose turn it was, where that is known.
pub const PLUGIN_NAME: String = "k8s.scheduler.plugin.name";
/// Where the plugin or extender was called: the name of the phase's span. On spans of plugins and extenders.
pub const EXTENSION_POINT: String = "k8s.scheduler.plugin.extension_point";
/// Part of the phase's CPU time that the plugin took, from 0 to 1; in an attempt with an exact window, part of the time of all
/// calls of plugins in the phase. On spans of plugins that are shares: those of `filter` and `score`, which run their plugins
/// on many Nodes at once. Such a span begins with the phase, and is as long as its share of it: the plugins run side by side,
/// and their calls have no times.
pub const SHARE: Double = "k8s.scheduler.plugin.share";
/// Number of samples of the plugin. On spans of shares by samples.
pub const SHARE_SAMPLES: Int = "k8s.scheduler.plugin.share.samples";
/// Number of samples of the phase, those of the plugin among them. On spans of shares by samples.
pub const SHARE_SAMPLES_OF_PHASE: Int = "k8s.scheduler.plugin.share.samples_of_phase";
/// What the share is known by: `sampled`, by samples of this phase of this attempt; `profile`, by samples of the phase in all
/// attempts of the scheduler in the last minute, because the attempt had too few; or `exact`, because each call of the phase
/// was timed. On spans of shares.
pub const SHARE_BASIS: String = "k8s.scheduler.plugin.share.basis";
/// How often the plugin was called in the phase and returned: once for each Node. On spans of exact shares.
pub const CALLS: Int = "k8s.scheduler.plugin.calls";
/// Time of these calls together, in milliseconds, waiting included. They run side by side on many Nodes: it may be longer than the
/// phase. On spans of exact shares.
pub const CALLS_MS: Double = "k8s.scheduler.plugin.calls.total_ms";
/// What they returned: status and number of calls, as in `Unschedulable: 12`. Calls that a panic ended are `did not return`. On
/// spans of exact shares.
pub const CALLS_RESULTS: Strings = "k8s.scheduler.plugin.calls.results";
/// How long they took: a histogram by powers of two, as in `under 512 ns: 40`, each call in the first line that fits. On spans of
/// exact shares.
pub const CALLS_DURATIONS: Strings = "k8s.scheduler.plugin.calls.durations";
/// Number of Nodes that the plugin rejected. On spans of exact shares.
pub const REJECTED_NODES: Int = "k8s.scheduler.plugin.rejected_nodes";
/// Each call of a `Filter` and `Score` plugin was timed in this attempt, which made it slower: `complete`, or `incomplete` where
/// not all calls could be counted, so that no share is exact. On the root.
pub const EXACT_WINDOW: String = "k8s.scheduler.exact_window";
/// URL of the extender without the verb: the scheduler's own name for it. On spans of extenders.
pub const EXTENDER_URL: String = "k8s.scheduler.extender.url";
/// What is behind that in the request. On spans of extenders.
pub const EXTENDER_VERB: String = "k8s.scheduler.extender.verb";
/// Whether the scheduler goes on where the extender gives no answer. On spans of extenders.
pub const EXTENDER_IGNORABLE: Bool = "k8s.scheduler.extender.ignorable";
/// How many Nodes the request contains. On spans of extenders, but not where it binds.
pub const EXTENDER_NODES: Int = "k8s.scheduler.extender.nodes";
/// How many of them it lets pass. On spans of extenders that filter.
pub const EXTENDER_PASSED_NODES: Int = "k8s.scheduler.extender.passed_nodes";
/// How long an API call waited in the queue of those that are made asynchronously, milliseconds. On spans of API calls.
pub const API_CALL_QUEUE_MS: Double = "k8s.scheduler.api_call.queue_ms";
/// Message of the status or the error. On spans of plugins, extenders and API calls, if it is not empty.
pub const MESSAGE: String = "k8s.scheduler.message";
/// What a link leads to, where it is not the context in an annotation: `previous attempt`, `attempt`, `configuration`, the
/// `request` that created, deleted or evicted the Pod, the `pod` that it was done to, the reconcile that is the `creator` of this one's object,
/// or the one that was its last `writer`. On links.
pub const LINK: String = "k8s.scheduler.link";
/// What says that the two ends are about the same object: `uid`, its UID, or `name`, only its kind, namespace and name. On
/// links of reconciles, to each other and to Pods.
pub const LINK_EVIDENCE: String = "schedspan.link.evidence";
/// The annotation that carried the context. On links to the creator of the Pod.
pub const LINK_ANNOTATION: String = "schedspan.link.annotation";
/// Whose annotation it is, where it is not the Pod's own, as `ReplicaSet/web-7c5ddbdf54`. On links to who made the Pod.
pub const LINK_OWNER: String = "schedspan.link.owner";
/// The trace or the request that the Pod began with, where its annotation names one. On the root.
pub const INITIAL: String = "k8s.pod.annotation.trace.kubernetes.io/initial";
/// Kinds of terms in the Pod's spec that plugins evaluate, such as `required Pod anti-affinity` or `volume claims`, never
/// their values. On the root, where the watch of Pods has shown some.
pub const POD_TERMS: Strings = "k8s.pod.scheduling_terms";
/// How the lifecycle ended: `Ready`, `Running` without a condition of readiness, `Succeeded`, `Failed` or `Deleted`. On
/// `PodLifecycle`, and on `StartPod`, where it is also `Rejected` by the kubelet, `Unfinished` after half an hour, or `Lost` with the
/// kubelet's process.
pub const LIFECYCLE_RESULT: String = "schedspan.lifecycle.result";
/// How many attempts to schedule it were traced. On `PodLifecycle`.
pub const LIFECYCLE_ATTEMPTS: Int = "schedspan.lifecycle.attempts";
/// How often its containers were started again. On `PodLifecycle`.
pub const LIFECYCLE_RESTARTS: Int = "k8s.pod.restarts";
/// Name of the Node that a Pod is on. On `PodLifecycle`.
pub const NODE: String = "k8s.node.name";
/// The images of its containers, those that run before the others first. On `PodLifecycle`.
pub const IMAGES: Strings = "k8s.pod.images";
/// How many containers it has. On `PodLifecycle`.
pub const CONTAINERS: Int = "k8s.pod.containers";
/// How many run before these. On `PodLifecycle`.
pub const INIT_CONTAINERS: Int = "k8s.pod.init_containers";
/// How many volumes it has. On `PodLifecycle`.
pub const VOLUMES: Int = "k8s.pod.volumes";
/// Their kinds, each as `configMap: 2`. On `PodLifecycle`.
pub const VOLUME_KINDS: Strings = "k8s.pod.volume_kinds";
/// Names of the claims among them. On `PodLifecycle`, and on `bind volume claims`.
pub const CLAIMS: Strings = "k8s.pod.volume_claims";
/// Who owns it, each as `ReplicaSet/web-7c5ddbdf54`. On `PodLifecycle`.
pub const OWNERS: Strings = "k8s.pod.owners";
/// Its priority. On `PodLifecycle`.
pub const PRIORITY: Int = "k8s.pod.priority";
/// Name of its priority class. On `PodLifecycle`.
pub const PRIORITY_CLASS: String = "k8s.pod.priority_class";
/// Its quality of service. On `PodLifecycle`.
pub const QOS_CLASS: String = "k8s.pod.qos_class";
/// Names of its scheduling gates. On `gated`.
pub const GATES: Strings = "k8s.pod.scheduling_gates";
/// Name of the container. On spans of containers, of their creation and start, and of probes.
pub const CONTAINER: String = "k8s.container.name";
/// Its image, as the Pod names it. On spans of containers, `image` and `PullImage`.
pub const IMAGE: String = "container.image.name";
/// How often it was started again. On spans of containers.
pub const CONTAINER_RESTARTS: Int = "k8s.container.restart_count";
/// What it ended with. On spans of containers that did, and on their events.
pub const EXIT_CODE: Int = "k8s.container.exit_code";
/// Why it waits or has ended. On events of spans of containers.
pub const REASON: String = "k8s.container.status.reason";
/// What is left out, each as `images: 3`; in the trace of an owner with many Pods also `lifecycles of this owner: 400` and its kin,
/// so far. On `PodLifecycle`, `StartPod`, `StorePod`, `Reconcile`, and on spans of containers.
pub const LEFT_OUT: Strings = "schedspan.left_out";
/// By how much the span's start or end may be too late, milliseconds: the API's times are whole seconds. On spans of lifecycles.
pub const TIME_UNCERTAIN_MS: Double = "schedspan.time.uncertain_ms";
/// True where a skewed time of the API was clamped. On spans of lifecycles.
pub const TIME_MOVED: Bool = "schedspan.time.moved";
/// Why the kubelet looked at the Pod: `create`, `update` or `sync`, as its own spans say it. On `syncPod`.
pub const UPDATE_TYPE: String = "k8s.pod.update_type";
/// Number of the Pod's sandbox, from 0. On `sandbox`.
pub const SANDBOX_ATTEMPT: Int = "k8s.pod.sandbox.attempt";
/// The container runtime's id of the sandbox. On `RunPodSandbox`.
pub const SANDBOX_ID: String = "k8s.pod.sandbox.id";
/// The container runtime's id of the container. On spans of containers, and of their creation and start in `StartPod`.
pub const CONTAINER_ID: String = "container.id";
/// Whether the container runtime was asked to pull the image. On `image`.
pub const IMAGE_PULLED: Bool = "container.image.pulled";
/// Which probe it is: `liveness`, `readiness` or `startup`. On `probe`.
pub const PROBE_TYPE: String = "k8s.container.probe.type";
/// What it said: `success`, `failure` or `unknown`. On `probe`.
pub const PROBE_RESULT: String = "k8s.container.probe.result";
/// How the container runtime is called: `grpc`. On calls of the container runtime.
pub const RPC_SYSTEM: String = "rpc.system";
/// The service that is called. On calls of the container runtime.
pub const RPC_SERVICE: String = "rpc.service";
/// Its method. On calls of the container runtime.
pub const RPC_METHOD: String = "rpc.method";
/// The samplers that kept the trace. On the root, where there are samplers.
pub const KEPT_BY: Strings = "schedspan.kept_by";
/// Name of the work queue. On `Reconcile`, and on `create Pod`, `delete Pod` and `evict Pod` of one.
pub const WORKQUEUE: String = "k8s.workqueue.name";
/// What was taken out of the work queue, such as `namespace/name`. On `Reconcile`, `create Pod`, `delete Pod` and `evict Pod`, where it
/// can be read.
pub const WORKQUEUE_KEY: String = "k8s.workqueue.key";
/// How long it was in the work queue, milliseconds. On `Reconcile`, when it was seen to be added.
pub const WORKQUEUE_WAIT_MS: Double = "k8s.workqueue.wait_ms";
/// Whether the reconcile asked to be called again, as it does after a failure. On `Reconcile`.
pub const WORKQUEUE_RETRIED: Bool = "k8s.workqueue.retried";
/// Name of the controller of controller-runtime. On `Reconcile`, and on `create Pod`, `delete Pod` and `evict Pod` of one.
pub const CONTROLLER: String = "k8s.controller.name";
/// What is reconciled, as `namespace/name`. On `Reconcile`, `create Pod`, `delete Pod` and `evict Pod` of a controller, where it can be read.
pub const CONTROLLER_REQUEST: String = "k8s.controller.request";
/// What the reconcile returned: `success`, `requeue`, `requeue_after` or `error`. On `Reconcile` of a controller.
pub const CONTROLLER_RESULT: String = "k8s.controller.result";
/// After how long it asked to be called again, milliseconds. On `Reconcile` with the result `requeue_after`.
pub const CONTROLLER_REQUEUE_AFTER_MS: Double = "k8s.controller.requeue_after_ms";
/// True where the reconcile panicked, and controller-runtime recovered. On `Reconcile` with the result `error`.
pub const CONTROLLER_PANICKED: Bool = "k8s.controller.panicked";
/// HTTP method. On requests.
pub const HTTP_METHOD: String = "http.request.method";
/// HTTP status of the answer. On requests, and on calls of webhooks, where there was one.
pub const HTTP_STATUS: Int = "http.response.status_code";
/// How often the client sent it again. On requests, where it did.
pub const HTTP_RESEND_COUNT: Int = "http.request.resend_count";
/// The answer's HTTP status, or the type of the error without one. On requests that failed.
pub const ERROR_TYPE: String = "error.type";
/// API group and version, such as `apps/v1`. On requests.
pub const REQUEST_API: String = "k8s.request.api";
/// The resource, such as `pods`. On requests.
pub const REQUEST_RESOURCE: String = "k8s.request.resource";
/// The subresource, such as `status`. On requests that are about one.
pub const REQUEST_SUBRESOURCE: String = "k8s.request.subresource";
/// How long rate limiters made it wait, milliseconds. On requests.
pub const REQUEST_LIMITED_MS: Double = "k8s.request.rate_limiter.wait_ms";
/// Name of the object that it is about, or that came back. On requests.
pub const OBJECT_NAME: String = "k8s.object.name";
/// UID of the object that came back. On requests, where the client has a Go type for it, or does not decode the answer.
pub const OBJECT_UID: String = "k8s.object.uid";
/// Resource version of the object that came back. On requests with its UID, where the answer has it.
pub const OBJECT_VERSION: String = "k8s.object.resource_version";
/// The client that made the object, as the API server knows it: the first manager of its fields, which is the beginning of the
/// user agent where the client names none. On `StorePod`, unless it is by server-side apply.
pub const OBJECT_MANAGER: String = "k8s.object.manager";
/// Name of the user who asked for the Pod, as the API server knows it: also `system:serviceaccount:NAMESPACE:NAME`. On `StorePod`.
pub const USER: String = "user.name";
/// Name of the webhook. On calls of webhooks.
pub const WEBHOOK: String = "k8s.webhook.name";
/// SHA-256 of the scheduler's flags and of its configuration file. On resources and `SchedulerConfiguration`.
pub const CONFIG_HASH: String = "k8s.scheduler.config.hash";
/// The profiles that it names. On resources and `SchedulerConfiguration`.
pub const CONFIG_PROFILES: Strings = "k8s.scheduler.config.profiles";
/// The configuration file, as the scheduler names it. On resources and `SchedulerConfiguration`.
pub const CONFIG_FILE: String = "k8s.scheduler.config.file";
/// Value of `--feature-gates`. On resources and `SchedulerConfiguration`.
pub const CONFIG_FEATURE_GATES: String = "k8s.scheduler.config.feature_gates";
/// True where the file was written after the scheduler had started: it has read another one. On resources and
/// `SchedulerConfiguration`.
pub const CONFIG_OUTDATED: Bool = "k8s.scheduler.config.outdated";
/// The hash of the scheduler that made the attempts before, of the same profiles. On `SchedulerConfiguration`.
pub const CONFIG_PREVIOUS_HASH: String = "k8s.scheduler.config.previous_hash";
/// Its process id. On `SchedulerConfiguration`.
pub const PREVIOUS_PID: Int = "k8s.scheduler.previous_pid";
/// Whether the configuration differs from that one's. On `SchedulerConfiguration`.
pub const CONFIG_CHANGED: Bool = "k8s.scheduler.config.changed";
/// Differences to the previous scheduler: `-` before old settings, `+` before new ones. On `SchedulerConfiguration`.
pub const CONFIG_DIFFERENCE: Strings = "k8s.scheduler.config.difference";
/// How many differences are left out. On `SchedulerConfiguration`.
pub const CONFIG_DIFFERENCE_LEFT_OUT: Int = "k8s.scheduler.config.difference.left_out";
/// True where records of the span's own calls were lost.
pub const INCOMPLETE: Bool = "schedspan.incomplete";
/// What the budget of tracing has cut while the attempt ran, or of its Pod's way through the queue: the last of `exact_windows`,
/// `half_of_samples`, `samples`, `queue_moves`, `plugins`, `phases` that is missing; those before it are missing too. `phases` with
/// `--detail attempts` as well. On the root.
pub const CUT: String = "schedspan.cut";
/// True where the API server answers and has shown no pending Pod with the UID of the attempt: the records may be false.
/// On the root.
pub const UNVERIFIED: Bool = "schedspan.pod.unverified";
/// When the span began by `CLOCK_MONOTONIC`, nanoseconds. With `--monotonic`.
pub const MONOTONIC_START: Int = "schedspan.monotonic.start_ns";
/// When the span ended by `CLOCK_MONOTONIC`, nanoseconds. With `--monotonic`.
pub const MONOTONIC_END: Int = "schedspan.monotonic.end_ns";
}
