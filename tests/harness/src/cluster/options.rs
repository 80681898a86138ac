//! Options of a cluster.

use std::path::PathBuf;

use xtask::components::SCHEDULER;

/// What scheduling Pods as groups takes of API server and scheduler.
#[derive(Debug)]
pub struct Groups {
    /// Feature gates of both.
    pub(super) gates: &'static str,
    /// APIs that are off by default.
    pub(super) apis: &'static [&'static str],
}

/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/features/kube_features.go>
const GROUPS: &Groups = &Groups {
    gates: "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true",
    apis: &["scheduling.k8s.io/v1alpha2"],
};
/// Those of 1.37, which may consist of groups.
/// <https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/features/kube_features.go>
pub const GROUPS_OF_GROUPS: &Groups = &Groups {
    gates: "GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true",
    apis: &["scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3"],
};

/// The components of a cluster, and how they run.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Options {
    /// Nodes to create: node-0001 and so on, each with 32 CPUs, 128Gi of memory and room for 110 Pods
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub nodes: u32,
    /// Requests a second that the scheduler may send, and as many in a burst (unset: its default, 50 and 100, which
    /// is a ceiling of 50 Pods a second)
    #[arg(long, value_name = "QPS")]
    pub scheduler_qps: Option<u32>,
    /// How much the scheduler logs
    #[arg(long, value_name = "V")]
    pub scheduler_verbosity: Option<u32>,
    /// Another kube-scheduler to run, of whatever version, with all rights
    #[arg(long, value_name = "FILE")]
    pub scheduler: Option<PathBuf>,
    /// Feature gates of the scheduler: `A=true,B=false`
    #[arg(long, value_name = "GATES")]
    pub scheduler_feature_gates: Option<String>,
    /// Profiles of the scheduler's configuration; without any, the scheduler has its default profile.
    #[arg(skip)]
    pub scheduler_profiles: Vec<serde_json::Value>,
    /// Lets Pods be scheduled as groups, which is an alpha feature of 1.36
    #[arg(long)]
    pub pod_groups: bool,
    /// Another kube-apiserver to run, and the groups that it schedules Pods as.
    #[arg(skip)]
    pub apiserver: Option<(PathBuf, &'static Groups)>,
    /// Lets the API server make spans, of requests that carry a sampled context
    #[arg(long)]
    pub apiserver_tracing: bool,
    /// Lets the API server write a line for each request that may change something: see [`audit`](crate::audit)
    #[arg(long)]
    pub audit: bool,
    /// What a scheduler of `cargo xtask peer` does with its own spans.
    #[arg(skip)]
    pub own_spans: OwnSpans,
    /// Without kube-controller-manager: nothing makes Pods for Deployments, or binds volume claims
    #[arg(long)]
    pub no_controllers: bool,
    /// Requests a second that each controller may send, and as many in a burst (unset: its default, 20 and 30)
    #[arg(long, value_name = "QPS")]
    pub controllers_qps: Option<u32>,
    /// Another kube-controller-manager to run, of whatever version, with all rights
    #[arg(long, value_name = "FILE")]
    pub controllers: Option<PathBuf>,
    /// One executable to run instead of kube-scheduler and kube-controller-manager: it takes the arguments of both, with `--` between
    /// them, and is the process kube-scheduler of the cluster.
    #[arg(skip)]
    pub one_process: Option<PathBuf>,
    /// Without the OpenTelemetry Collector
    #[arg(long)]
    pub no_collector: bool,
}

impl Options {
    /// The groups that Pods are scheduled as, if they are.
    #[must_use]
    pub fn groups(&self) -> Option<&'static Groups> {
        self.pod_groups.then(|| self.apiserver.as_ref().map_or(GROUPS, |(_, groups)| *groups))
    }
}

/// Spans that a scheduler of `cargo xtask peer` makes itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnSpans {
    #[default]
    None,
    /// Sends them to the cluster's Collector.
    Exported,
    /// Sends them with times of `CLOCK_MONOTONIC`, and each batch within half a second.
    Timed,
}

impl OwnSpans {
    /// The environment of a scheduler that sends them to this endpoint, by gRPC.
    pub fn environment(self, endpoint: &str) -> Vec<(&'static str, String)> {
        let exported = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
            ("OTEL_SERVICE_NAME", SCHEDULER.name),
            // The default of 2,048 silently loses most of a burst.
            ("OTEL_BSP_MAX_QUEUE_SIZE", "65536"),
        ];
        let timed = [("PEER_MONOTONIC", "true"), ("OTEL_BSP_SCHEDULE_DELAY", "500")];
        let list = match self {
            Self::None => Vec::new(),
            Self::Exported => exported.to_vec(),
            Self::Timed => [&exported[..], &timed].concat(),
        };
        list.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
    }
}
