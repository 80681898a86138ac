//! `cargo xtask picture`: the pictures of the documentation, made by the program itself.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, is_bound, is_unschedulable, pod},
    cluster,
    stage::Stage,
    wait::wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use xtask::{build, paths, setup};

use crate::{groups::create_group, profile, svg};

/// Columns: enough to see the bars' proportions, and no wider than a page.
const COLUMNS: &str = "104";
/// Pods before the picture, because the first attempts have unusual durations.
const WARM_UP: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(30);
/// The time in which `schedspan trace` attaches its probes.
const ATTACHED: Duration = Duration::from_secs(3);

/// A picture and its cluster.
struct Picture {
    name: &'static str,
    nodes: u32,
    /// Whether the scheduler takes Pods as groups, which is an alpha feature.
    pod_groups: bool,
    shows: Shows,
}

enum Shows {
    /// What `schedspan trace` prints with these arguments of so many attempts, while this happens.
    Waterfalls { arguments: &'static [&'static str], attempts: usize, play: fn(&Api) -> Result<()> },
    /// A profile of the scheduler.
    FlameGraph,
}

const PICTURES: [Picture; 5] = [
    Picture {
        name: "waterfall",
        nodes: 100,
        pod_groups: false,
        shows: Shows::Waterfalls { arguments: &["shop-*"], attempts: 2, play: found_and_not_found },
    },
    Picture {
        name: "preemption",
        nodes: 100,
        pod_groups: false,
        shows: Shows::Waterfalls { arguments: &["urgent-*"], attempts: 2, play: preempting },
    },
    Picture {
        name: "pod-group",
        nodes: 100,
        pod_groups: true,
        shows: Shows::Waterfalls { arguments: &["train-*"], attempts: 1, play: grouped },
    },
    Picture {
        name: "plugins",
        nodes: MANY_NODES,
        pod_groups: false,
        shows: Shows::Waterfalls { arguments: &["shop-*", "--wide"], attempts: 1, play: among_many },
    },
    Picture { name: "flame", nodes: MANY_NODES, pod_groups: false, shows: Shows::FlameGraph },
];
/// So many that Filter and Score take most of an attempt.
const MANY_NODES: u32 = 1_000;
/// Pods before the one whose plugins are shown, so that the samples of the last minute say how each plugin shares in a phase.
const BEFORE: usize = 400;
/// Lines of a picture: more are taller than a page.
const MAX_LINES: usize = 39;

#[derive(clap::Args)]
pub struct Options {
    /// Which pictures, each docs/NAME.svg [default: all]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(PICTURES.iter().map(|picture| picture.name)))]
    names: Vec<String>,
}

pub fn main(options: &Options) -> Result<()> {
    setup::ensure()?;
    let executable = build::build()?;
    let Options { names } = options;
    for Picture { name, nodes, pod_groups, shows } in PICTURES {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let cluster = cluster::Options { nodes, pod_groups, ..cluster::Options::default() };
        let file = paths::repository().join(format!("docs/{name}.svg"));
        Stage::play(&cluster, &executable, |stage| {
            let api = stage.cluster.api()?;
            create(&api, "warm-up", WARM_UP)?;
            match shows {
                Shows::Waterfalls { arguments, attempts, play } => {
                    let text = waterfalls(stage, arguments, attempts, || play(&api))?;
                    fs::write(&file, svg::draw(&first_lines(&text)))
                        .with_context(|| format!("cannot write `{}`", file.display()))
                }
                Shows::FlameGraph => profile::taken(stage, &api, "flame", &file),
            }
        })?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Creates Pods, and waits until all are bound.
fn create(api: &Api, prefix: &str, number: usize) -> Result<()> {
    for number in 0..number {
        api.create_pod("default", &pod(&format!("{prefix}-{number}"), "10m"))?;
    }
    api.wait_for_pods("the Pods to be bound", |pods| pods.iter().all(is_bound)).map(drop)
}

/// See [`Shows::Waterfalls`].
fn waterfalls(
    stage: &Stage,
    arguments: &[&str],
    attempts: usize,
    play: impl FnOnce() -> Result<()>,
) -> Result<String> {
    let printed = stage.cluster.dir().join("waterfalls");
    // The kernel kills it when this process ends.
    let mut trace = Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(&stage.executable)
        .arg("trace")
        .args(arguments)
        .arg("--kubeconfig")
        .arg(stage.cluster.schedspan_kubeconfig())
        .env("CLICOLOR_FORCE", "1")
        .env("COLUMNS", COLUMNS)
        .stdin(Stdio::null())
        .stdout(File::create(&printed)?)
        .stderr(File::create(stage.options()?.log)?)
        .spawn()?;
    thread::sleep(ATTACHED);
    play()?;
    let text = wait_until("the waterfalls", TIMEOUT, || {
        let text = fs::read_to_string(&printed)?;
        Ok((text.matches("SchedulePod").count() >= attempts && text.ends_with("\n\n")).then_some(text))
    });
    kill_process(Pid::from_child(&trace), Signal::TERM)?;
    let status = trace.wait()?;
    ensure!(status.success(), "schedspan ended with {status}");
    text
}

/// As many lines as a picture has, and how many more there are.
pub(crate) fn first_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if lines.len() <= MAX_LINES {
        return lines.join("\n");
    }
    let more = lines.len() - (MAX_LINES - 1);
    format!("{}\n\x1b[2m… {more} more lines\x1b[0m", lines[..MAX_LINES - 1].join("\n"))
}

/// A Pod that is bound, and one that fits nowhere.
fn found_and_not_found(api: &Api) -> Result<()> {
    let mut linked = pod("shop-web-7d4b9c-x2x8k", "500m");
    linked["metadata"]["annotations"] =
        json!({ "tracing.k8s.io/traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" });
    api.create_pod("default", &linked)?;
    api.wait_for_pods("the first Pod to be bound", |pods| pods.iter().all(is_bound))?;
    api.create_pod("default", &pod("shop-batch-0", "64"))?;
    api.wait_for_pods("the second Pod to fit nowhere", |pods| pods.iter().any(is_unschedulable)).map(drop)
}

/// A Pod with affinity among many Nodes, after others.
fn among_many(api: &Api) -> Result<()> {
    create(api, "load", BEFORE)?;
    let mut spread = pod("shop-web-7d4b9c-x2x8k", "500m");
    spread["metadata"]["labels"] = json!({ "app": "web" });
    spread["spec"]["affinity"] = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } },
    }] } });
    api.create_pod("default", &spread)?;
    api.wait_for_pods("the Pod to be bound", |pods| pods.iter().all(is_bound)).map(drop)
}

/// Two Pods that are bound together or not at all.
fn grouped(api: &Api) -> Result<()> {
    create_group(api, "train", 2, false, &["4", "4"])?;
    api.wait_for_pods("the group to be bound", |pods| pods.iter().all(is_bound)).map(drop)
}

/// A Pod that preempts others.
fn preempting(api: &Api) -> Result<()> {
    api.create_priority_classes()?;
    let on_node = |name: &str, cpu: &str, class: &str| {
        let mut pod = pod(name, cpu);
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "node-0001" });
        pod["spec"]["priorityClassName"] = class.into();
        pod
    };
    for number in 0..2 {
        api.create_pod("default", &on_node(&format!("batch-{number}"), "15", "low"))?;
    }
    api.wait_for_pods("the victims to be bound", |pods| pods.iter().all(is_bound))?;
    api.create_pod("default", &on_node("urgent-0", "20", "high"))?;
    api.wait_for_pods("the Pod to take their place", |pods| {
        pods.iter().any(|pod| pod["metadata"]["name"] == "urgent-0" && is_bound(pod))
    })
    .map(drop)
}
