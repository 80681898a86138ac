//! `cargo xtask picture`: the README's picture, made by the program itself.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{
    build,
    cluster::{self, NodeSize, is_bound, is_unschedulable, pod, wait_until},
    paths, setup,
    stage::Stage,
    svg,
};

/// Enough for bars with a shape, and no wider than a page.
const COLUMNS: &str = "104";
/// A warm scheduler shows its usual proportions.
const WARM_UP: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(30);
/// From the start of `schedspan trace` until its probes are attached.
const ATTACHED: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the picture goes [default: docs/waterfall.svg]
    file: Option<PathBuf>,
}

pub(crate) fn main(options: &Options) -> Result<()> {
    setup::ensure()?;
    let executable = build::build()?;
    let file = options.file.clone().unwrap_or_else(|| paths::repository().join("docs/waterfall.svg"));
    let cluster = cluster::Options { nodes: 100, ..cluster::Options::default() };
    Stage::play(&cluster, &executable, |stage| {
        let api = stage.cluster.api()?;
        for number in 0..WARM_UP {
            api.create_pod("default", &pod(&format!("warm-up-{number}"), "10m"))?;
        }
        api.wait_for_pods("the scheduler to be warm", |pods| pods.iter().all(is_bound))?;
        let printed = stage.cluster.dir().join("waterfalls");
        // The kernel ends it with xtask, however that ends.
        let mut trace = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&stage.executable)
            .args(["trace", "--kubeconfig"])
            .arg(stage.cluster.schedspan_kubeconfig())
            .env("CLICOLOR_FORCE", "1")
            .env("COLUMNS", COLUMNS)
            .stdin(Stdio::null())
            .stdout(File::create(&printed)?)
            .stderr(File::create(stage.options()?.log)?)
            .spawn()?;
        thread::sleep(ATTACHED);
        let mut linked = pod("web-7d4b9c-x2x8k", "500m");
        linked["metadata"]["annotations"] = json!({ "tracing.k8s.io/traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" });
        api.create_pod("default", &linked)?;
        api.wait_for_pods("the first Pod to be bound", |pods| pods.iter().all(is_bound))?;
        api.create_pod("default", &pod("batch-0", "64"))?;
        api.wait_for_pods("the second Pod to fit nowhere", |pods| pods.iter().any(is_unschedulable))?;
        api.create_node("node-large", NodeSize { cpu: "96", ..NodeSize::default() })?;
        api.wait_for_pods("the second Pod to find the new Node", |pods| pods.iter().all(is_bound))?;
        let text = wait_until("three waterfalls", TIMEOUT, || {
            let text = fs::read_to_string(&printed)?;
            Ok((text.matches("SchedulePod").count() >= 3 && text.ends_with("\n\n")).then_some(text))
        });
        kill_process(Pid::from_child(&trace), Signal::TERM)?;
        let status = trace.wait()?;
        ensure!(status.success(), "schedspan ended with {status}");
        fs::create_dir_all(file.parent().context("the picture's file has no folder")?)?;
        fs::write(&file, svg::draw(&text?)).with_context(|| format!("cannot write `{}`", file.display()))?;
        println!("{}", file.display());
        Ok(())
    })
}
