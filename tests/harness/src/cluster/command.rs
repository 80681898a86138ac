//! `cargo xtask cluster`: a cluster for manual work.

use std::{
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::Result;
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use xtask::{paths, process};

use super::{Cluster, Options};
use crate::{
    interrupt::Interrupt,
    processes::{self, Ports},
};

/// Interval of the checks of `up --foreground`.
const INTERVAL: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub struct Arguments {
    /// The folder of the cluster, which holds all its state [default: cluster in the cache folder of schedspan]
    #[arg(long, global = true)]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster, by default in the background
    ///
    /// Its programs are built first where the cache folder does not hold them, which takes some ten minutes on two
    /// cores. Certificates, kubeconfigs, etcd's data, logs, received spans and cluster.json, which names every process,
    /// lie in the folder given by --dir. Every port is a free one of 127.0.0.1. Needs Go: `cargo xtask setup`.
    Up {
        #[command(flatten)]
        options: Options,
        /// Stay until Ctrl-C, and then take the cluster down
        #[arg(long)]
        foreground: bool,
    },
    /// End a cluster's processes and remove its folder
    ///
    /// A process gets SIGTERM, and SIGKILL ten seconds later; one that only has the pid of one of the cluster's is left
    /// alone.
    Down,
    /// Show a cluster's processes and how much it holds
    Status {
        #[arg(long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

pub fn run(Arguments { dir, command }: Arguments) -> Result<()> {
    let dir = dir.map_or_else(|| Ok(paths::cache()?.join("cluster")), Ok::<_, anyhow::Error>)?;
    match command {
        Command::Up { options, foreground } => up(&dir, &options, foreground),
        Command::Down => processes::down(&dir),
        Command::Status { output } => status(&Cluster::open(&dir)?, output),
    }
}

fn up(dir: &Path, options: &Options, foreground: bool) -> Result<()> {
    let cluster = Cluster::up(dir, options)?;
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("scheduler    pid {}, {}", cluster.scheduler()?.pid, cluster.scheduler()?.metrics_url);
    if !options.no_collector {
        println!("OTLP         {} (gRPC), {} (HTTP)", cluster.otlp_grpc()?, cluster.otlp_http()?);
        println!("spans        {}", cluster.spans_file().display());
    }
    if !foreground {
        println!("next         cargo xtask cluster status; cargo xtask cluster down");
        return cluster.detach();
    }
    println!("Ctrl-C takes it down");
    let interrupt = Interrupt::catch()?;
    // Without its folder it was ended elsewhere.
    while !interrupt.caught() && dir.exists() {
        cluster.check()?;
        thread::sleep(INTERVAL);
    }
    cluster.down()
}

/// What `cluster status --output json` prints.
#[derive(Serialize)]
struct Status<'a> {
    kubeconfig: PathBuf,
    spans_file: PathBuf,
    /// Unknown if the API server does not answer.
    nodes: Option<u64>,
    pods: Option<u64>,
    components: Vec<ComponentStatus<'a>>,
}

#[derive(Serialize)]
struct ComponentStatus<'a> {
    name: &'a str,
    pid: i32,
    alive: bool,
    ports: &'a Ports,
    resident_bytes: Option<u64>,
    log: &'a Path,
}

fn status(cluster: &Cluster, output: Output) -> Result<()> {
    let count = |path| cluster.api().and_then(|api| api.count(path)).ok();
    let components = cluster.processes().iter().map(|process| {
        let alive = process.alive();
        ComponentStatus {
            name: &process.name,
            pid: process.pid,
            alive,
            ports: &process.ports,
            resident_bytes: process::resident(process.pid.cast_unsigned()).filter(|_| alive),
            log: &process.log,
        }
    });
    let status = Status {
        kubeconfig: cluster.kubeconfig(),
        spans_file: cluster.spans_file(),
        nodes: count("/api/v1/nodes"),
        pods: count("/api/v1/pods"),
        components: components.collect(),
    };
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&status)?),
        Output::Table => print_table(&status),
    }
    Ok(())
}

fn print_table(status: &Status<'_>) {
    println!("{:<24} {:>8}  {:<6} {:>8}  PORTS", "COMPONENT", "PID", "STATE", "RSS MiB");
    for ComponentStatus { name, pid, alive, ports, resident_bytes, log: _ } in &status.components {
        let state = if *alive { "alive" } else { "ended" };
        let resident = resident_bytes.map_or_else(|| "-".to_owned(), |bytes| (bytes >> 20).to_string());
        let ports: Vec<_> = ports.iter().map(|(name, port)| format!("{name} {port}")).collect();
        println!("{name:<24} {pid:>8}  {state:<6} {resident:>8}  {}", ports.join(", "));
    }
    let shown = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    println!(
        "nodes {}, pods {}, KUBECONFIG={}",
        shown(status.nodes),
        shown(status.pods),
        status.kubeconfig.display()
    );
}
