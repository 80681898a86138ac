//! `cargo xtask kind`: a cluster of containers with kubeadm's static Pods.
//!
//! # Layout
//!
//! - `engine`: docker or podman, the machine's or one in an isolated environment
//! - `root`, `images`, `cache`: file systems and images of nodes and containers
//! - `cluster`: the cluster; `operations`: what tests do with it
//! - `e2e`: schedspan from `helm install` to `helm uninstall`
//! - `registry`: the chart for it, as a release publishes it
//! - `plugin`: `kubectl schedspan`, a step of `e2e`
//! - `leaders`: `kubectl schedspan` while the leading one of three schedulers changes, in a cluster of its own
//! - `compare`: schedspan's spans next to those that the scheduler of the static Pod makes itself; `per_node`: Filter and Score
//!   next to a scheduler that times its plugins
//! - `lifecycle`: a Pod from the request until it is Ready, traced by all components; `kubelet`: its steps about kubelets, next to
//!   containerd's log (`containerd`) and to the kubelet's own spans (`native`)
//! - `cost`: what tracing costs the worker's kubelet, and what the daemon takes there
//!
//! Scripts that run on nodes are in `tests/kind`.

mod cache;
mod cluster;
mod compare;
mod containerd;
mod cost;
mod e2e;
mod engine;
mod images;
mod kubelet;
mod leaders;
mod lifecycle;
mod native;
mod operations;
mod per_node;
mod plugin;
mod registry;
mod root;

use anyhow::Result;
use clap::Subcommand;
use harness::guard;

use self::{
    cluster::{Cluster, Tracing},
    engine::{Engine, Provider},
};

#[derive(clap::Args)]
pub struct Arguments {
    /// The container engine: the machine's own if it works, otherwise one in an isolated environment
    #[arg(long, global = true, value_enum, default_value_t = Provider::Docker)]
    provider: Provider,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster of control planes and a worker
    ///
    /// Pulls kind's node image, or if that fails builds one from Debian's packages and Kubernetes' Go modules, which takes a
    /// quarter of an hour on two cores, once.
    Up {
        /// Number of control planes
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
        control_planes: u8,
    },
    /// End the cluster and everything started for it
    Down,
    /// Run a program with access to the cluster: kubectl, helm, kind, docker or podman
    Exec {
        program: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Install and test schedspan in a new cluster, and in another with three control planes
    ///
    /// Prints a line with the duration of each step. A cluster ends after its last step, or the first that fails.
    E2e,
    /// Test `kubectl schedspan` while the leading one of three schedulers changes: the second cluster of `e2e` alone
    Leaders,
    /// Compare schedspan's spans with those that the scheduler makes itself, within the limits of `cargo xtask compare`
    ///
    /// In a new cluster whose static Pod is the scheduler with spans of its own.
    Compare {
        /// Also compare the plugins' calls and shares of Filter and Score, with a scheduler that times each call itself
        #[arg(long)]
        per_node: bool,
    },
    /// Trace Pods from the request until they are Ready, and draw docs/lifecycle.svg and docs/workload.svg
    ///
    /// In a new cluster without the tracing of API server and kubelets, and in another with it. In both, also compares the starts of a
    /// Deployment's 20 Pods with the metrics of their kubelet and with containerd's log; in the second one, with the kubelet's own spans as well.
    Lifecycle {
        /// Give the worker another kubelet, such as `1.33` or `1.37.1`: nothing is drawn then
        #[arg(long, value_name = "VERSION")]
        kubelet: Option<String>,
    },
    /// Measure what tracing costs a kubelet, and what the daemon of a worker takes
    ///
    /// In a new cluster, on the worker's kubelet: CPU time per Pod that starts, untraced and traced in turn, with as many Pods at once as
    /// are asked for, at the pace that the node can do; then the daemon's CPU time and memory while a Pod starts in each second of a
    /// minute. The exit code is 1 if the ratio is more than two standard errors above 1.02, the daemon takes more than 0.3 % of a core
    /// or 24 MiB, or something was lost or cut. Needs an otherwise idle machine: some four minutes with a cluster that stands.
    Cost(cost::Options),
    #[command(hide = true)]
    Guard,
}

pub fn run(Arguments { provider, command }: Arguments) -> Result<()> {
    match command {
        Command::Up { control_planes } => {
            let cluster = Cluster::up(provider, control_planes.into(), Tracing::Off)?;
            println!("{}", cluster.kubectl(&["get", "nodes"])?);
            println!("next     cargo xtask kind exec --provider {0} kubectl get pods", provider.name());
            println!("         cargo xtask kind down --provider {0}", provider.name());
            cluster.detach()
        }
        Command::Down => cluster::down(provider),
        Command::Exec { program, arguments } => {
            let engine = Engine::open(provider, &cluster::dir(provider)?)?;
            let status = engine.command(&program).args(arguments).status()?;
            anyhow::ensure!(status.success(), "{program} ended with {status}");
            Ok(())
        }
        Command::E2e => e2e::run(provider),
        Command::Leaders => leaders::run(provider, &e2e::archives()?),
        Command::Compare { per_node } => compare::run(provider, per_node),
        Command::Lifecycle { kubelet } => lifecycle::run(provider, kubelet.as_deref()),
        Command::Cost(options) => cost::run(provider, &options),
        Command::Guard => guard::run(|| cluster::down(provider)),
    }
}
