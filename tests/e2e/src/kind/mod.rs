//! `cargo xtask kind`: a real cluster of containers, with kubeadm's own static Pods.
//!
//! # Layout
//!
//! - `engine`: docker or podman, the machine's or one in an environment of its own
//! - `root`, `images`: what nodes and containers are made of
//! - `cluster`: the cluster
//! - `e2e`, `asked`: what schedspan does in it, from `helm install` to `helm uninstall`
//! - `lifecycle`: a Pod from the request that makes it until it is Ready, as all who trace tell it
//!
//! The scripts that run where Rust does not are in `tests/kind`.

mod asked;
mod cache;
mod cluster;
mod e2e;
mod engine;
mod images;
mod lifecycle;
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
    /// The container engine: the machine's own if it works, otherwise one in an environment of its own
    #[arg(long, global = true, value_enum, default_value_t = Provider::Docker)]
    provider: Provider,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster of two nodes
    ///
    /// Where kind's node image can be pulled it is. Otherwise one is made of Debian's packages and Kubernetes' Go
    /// modules, which takes a quarter of an hour on two cores, once.
    Up,
    /// End the cluster, and all that was started for it
    Down,
    /// Run a program that sees the cluster: kubectl, helm, kind, docker or podman
    Exec {
        program: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Install schedspan in a new cluster, and see whether it does what it shall
    ///
    /// A line for each step says how long it took; the cluster ends with the last one, or with the first that fails.
    E2e,
    /// Follow a Pod from the request that makes it until it is Ready, and draw that: docs/lifecycle.svg
    ///
    /// With the tracing of API server and kubelets off, and then on: in a new cluster each.
    Lifecycle,
    #[command(hide = true)]
    Guard,
}

pub fn run(Arguments { provider, command }: Arguments) -> Result<()> {
    match command {
        Command::Up => {
            let cluster = Cluster::up(provider, Tracing::Off)?;
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
        Command::Lifecycle => lifecycle::run(provider),
        Command::Guard => guard::run(|| cluster::down(provider)),
    }
}
