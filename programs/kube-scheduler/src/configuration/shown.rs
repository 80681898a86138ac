//! Which flags and settings of a scheduler are shown with their value.
//!
//! A list of what may be shown, not of what is secret: plugins from elsewhere keep tokens under any name.

use std::borrow::Cow;

use serde_json::{Map, Value};

pub(super) const NOT_SHOWN: &str = "(not shown)";

/// Flags of kube-scheduler without a value.
const SWITCHES: [&str; 19] = [
    "alsologtostderr",
    "authentication-skip-lookup",
    "authentication-tolerate-lookup-failure",
    "contention-profiling",
    "disable-http2-serving",
    "emulation-forward-compatible",
    "h",
    "help",
    "leader-elect",
    "log-json-split-stream",
    "log-text-split-stream",
    "logtostderr",
    "one-output",
    "permit-address-sharing",
    "permit-port-sharing",
    "profiling",
    "skip-headers",
    "skip-log-headers",
    "version",
];

/// Flags of kube-scheduler with a value.
/// <https://kubernetes.io/docs/reference/command-line-tools-reference/kube-scheduler/>
const FLAGS: [&str; 62] = [
    "address",
    "algorithm-provider",
    "allow-metric-labels",
    "allow-metric-labels-manifest",
    "authentication-kubeconfig",
    "authentication-token-webhook-cache-ttl",
    "authorization-always-allow-paths",
    "authorization-kubeconfig",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
    "bind-address",
    "cert-dir",
    "client-ca-file",
    "config",
    "disabled-metrics",
    "emulated-version",
    "feature-gates",
    "http2-max-streams-per-connection",
    "kube-api-burst",
    "kube-api-content-type",
    "kube-api-qps",
    "kubeconfig",
    "leader-elect-lease-duration",
    "leader-elect-renew-deadline",
    "leader-elect-resource-lock",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "leader-elect-retry-period",
    "lock-object-name",
    "lock-object-namespace",
    "log-backtrace-at",
    "log-dir",
    "log-file",
    "log-file-max-size",
    "log-flush-frequency",
    "log-json-info-buffer-size",
    "log-text-info-buffer-size",
    "logging-format",
    "master",
    "min-compatibility-version",
    "pod-max-in-unschedulable-pods-duration",
    "policy-config-file",
    "port",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "scheduler-name",
    "secure-port",
    "show-hidden-metrics-for-version",
    "stderrthreshold",
    "tls-cert-file",
    "tls-cipher-suites",
    "tls-min-version",
    "tls-private-key-file",
    "tls-sni-cert-key",
    "use-legacy-policy-config",
    "v",
    "vmodule",
    "write-config-to",
];

/// Settings of a KubeSchedulerConfiguration. `*` stands for an extension point, `[]` for an element of a list; the arguments of a plugin
/// begin with its name. <https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/>
const SETTINGS: [&str; 98] = [
    "apiVersion",
    "clientConnection.acceptContentTypes",
    "clientConnection.burst",
    "clientConnection.contentType",
    "clientConnection.kubeconfig",
    "clientConnection.qps",
    "delayCacheUntilActive",
    "enableContentionProfiling",
    "enableProfiling",
    "extenders[].bindVerb",
    "extenders[].enableHTTPS",
    "extenders[].filterVerb",
    "extenders[].httpTimeout",
    "extenders[].ignorable",
    "extenders[].managedResources[].ignoredByScheduler",
    "extenders[].managedResources[].name",
    "extenders[].nodeCacheCapable",
    "extenders[].preemptVerb",
    "extenders[].prioritizeVerb",
    "extenders[].tlsConfig.caFile",
    "extenders[].tlsConfig.certFile",
    "extenders[].tlsConfig.insecure",
    "extenders[].tlsConfig.keyFile",
    "extenders[].tlsConfig.serverName",
    "extenders[].urlPrefix",
    "extenders[].weight",
    "healthzBindAddress",
    "kind",
    "leaderElection.leaderElect",
    "leaderElection.leaseDuration",
    "leaderElection.renewDeadline",
    "leaderElection.resourceLock",
    "leaderElection.resourceName",
    "leaderElection.resourceNamespace",
    "leaderElection.retryPeriod",
    "metricsBindAddress",
    "parallelism",
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles[].percentageOfNodesToScore",
    "profiles[].pluginConfig[].name",
    "profiles[].plugins.*.disabled[].name",
    "profiles[].plugins.*.disabled[].weight",
    "profiles[].plugins.*.enabled[].name",
    "profiles[].plugins.*.enabled[].weight",
    "profiles[].schedulerName",
    "DefaultPreemption.args.apiVersion",
    "DefaultPreemption.args.kind",
    "DefaultPreemption.args.minCandidateNodesAbsolute",
    "DefaultPreemption.args.minCandidateNodesPercentage",
    "DynamicResources.args.apiVersion",
    "DynamicResources.args.bindingTimeout",
    "DynamicResources.args.filterTimeout",
    "DynamicResources.args.kind",
    "InterPodAffinity.args.apiVersion",
    "InterPodAffinity.args.hardPodAffinityWeight",
    "InterPodAffinity.args.ignorePreferredTermsOfExistingPods",
    "InterPodAffinity.args.kind",
    "NodeAffinity.args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference.matchExpressions[].key",
    "NodeAffinity.args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference.matchExpressions[].operator",
    "NodeAffinity.args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference.matchExpressions[].values[]",
    "NodeAffinity.args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference.matchFields[].key",
    "NodeAffinity.args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference.matchFields[].operator",
    "NodeAffinity.args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[].preference.matchFields[].values[]",
    "NodeAffinity.args.addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[].weight",
    "NodeAffinity.args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[].key",
    "NodeAffinity.args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[].operator",
    "NodeAffinity.args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchExpressions[].values[]",
    "NodeAffinity.args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchFields[].key",
    "NodeAffinity.args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchFields[].operator",
    "NodeAffinity.args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[].matchFields[].values[]",
    "NodeAffinity.args.apiVersion",
    "NodeAffinity.args.kind",
    "NodeResourcesBalancedAllocation.args.apiVersion",
    "NodeResourcesBalancedAllocation.args.kind",
    "NodeResourcesBalancedAllocation.args.resources[].name",
    "NodeResourcesBalancedAllocation.args.resources[].weight",
    "NodeResourcesFit.args.apiVersion",
    "NodeResourcesFit.args.ignoredResourceGroups[]",
    "NodeResourcesFit.args.ignoredResources[]",
    "NodeResourcesFit.args.kind",
    "NodeResourcesFit.args.scoringStrategy.requestedToCapacityRatio.shape[].score",
    "NodeResourcesFit.args.scoringStrategy.requestedToCapacityRatio.shape[].utilization",
    "NodeResourcesFit.args.scoringStrategy.resources[].name",
    "NodeResourcesFit.args.scoringStrategy.resources[].weight",
    "NodeResourcesFit.args.scoringStrategy.type",
    "PodTopologySpread.args.apiVersion",
    "PodTopologySpread.args.defaultConstraints[].maxSkew",
    "PodTopologySpread.args.defaultConstraints[].topologyKey",
    "PodTopologySpread.args.defaultConstraints[].whenUnsatisfiable",
    "PodTopologySpread.args.defaultingType",
    "PodTopologySpread.args.kind",
    "VolumeBinding.args.apiVersion",
    "VolumeBinding.args.bindTimeoutSeconds",
    "VolumeBinding.args.kind",
    "VolumeBinding.args.shape[].score",
    "VolumeBinding.args.shape[].utilization",
];

/// Whether a flag has no value after it, as an argument of its own.
pub(super) fn is_switch(flag: &str) -> bool {
    SWITCHES.contains(&flag)
}

/// Whether the flag is one of kube-scheduler's, none of which holds a secret.
pub(super) fn is_known_flag(flag: &str) -> bool {
    is_switch(flag) || FLAGS.contains(&flag)
}

/// A place in the configuration file, in the form of [`SETTINGS`].
#[derive(Clone, Default)]
pub(super) struct Place(String);

impl Place {
    /// A field of an object here, which has these fields.
    pub(super) fn field(&self, key: &str, fields: &Map<String, Value>) -> Self {
        if self.0 == "profiles[].pluginConfig[]" && key == "args" {
            let plugin = fields.get("name").and_then(Value::as_str).unwrap_or_default();
            return Self(format!("{plugin}.args"));
        }
        let key = if self.0 == "profiles[].plugins" { "*" } else { key };
        let dot = if self.0.is_empty() { "" } else { "." };
        Self(format!("{}{dot}{key}", self.0))
    }

    /// An element of a list here.
    pub(super) fn element(&self) -> Self {
        Self(format!("{}[]", self.0))
    }

    /// Whether a value here is shown.
    pub(super) fn is_shown(&self) -> bool {
        SETTINGS.contains(&&*self.0)
    }

    /// Whether a value here or within is shown.
    pub(super) fn has_shown(&self) -> bool {
        let within = |rest: &str| self.0.is_empty() || rest.is_empty() || rest.starts_with(['.', '[']);
        SETTINGS.iter().any(|setting| setting.strip_prefix(&*self.0).is_some_and(within))
    }
}

/// A value without what may be secret even here: user and password of a URL, and what is behind the path of anything.
pub(crate) fn public(text: &str) -> Cow<'_, str> {
    let path = text.find(['?', '#']).map_or(text, |end| &text[..end]);
    let query = if path.len() < text.len() { format!("?{NOT_SHOWN}") } else { String::new() };
    let user = path.split_once("://").and_then(|(scheme, rest)| {
        let authority = &rest[..rest.find('/').unwrap_or(rest.len())];
        Some(format!("{scheme}://{NOT_SHOWN}{}", &rest[authority.rfind('@')?..]))
    });
    match user {
        None if query.is_empty() => Cow::Borrowed(text),
        None => Cow::Owned(format!("{path}{query}")),
        Some(without) => Cow::Owned(without + &query),
    }
}
