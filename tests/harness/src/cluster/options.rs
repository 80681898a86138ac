//! Options of a cluster.

use std::path::PathBuf;

use xtask::components::SCHEDULER;

/// Feature gates of API server and scheduler for scheduling Pods as groups, and the API of the groups.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/features/kube_features.go>
pub(super) const POD_GROUP_GATES: &str =
    "GenericWorkload=true,GangScheduling=true,TopologyAwareWorkloadScheduling=true";
pub const POD_GROUP_API: &str = "scheduling.k8s.io/v1alpha2";

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
