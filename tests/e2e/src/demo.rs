//! `cargo xtask demo`: a real scheduler at work, each attempt a waterfall.

use std::{collections::BTreeMap, path::Path, process::Command, thread, time::Duration};

use anyhow::{Result, ensure};
use harness::{
    api::{Api, NodeSize, is_bound, is_unschedulable, pod},
    cluster,
    figures::{Comparison, Figures},
    interrupt::Interrupt,
    schedspan::{Options as Daemon, Schedspan},
    stage::Stage,
};
use serde_json::{Value, json};
use xtask::{build, setup};

const NODES: u32 = 20;
const REPLICAS: usize = 8;
/// The example of <https://www.w3.org/TR/trace-context/>.
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// The pause between the announcement of an act and its first waterfall, to read it.
const PAUSE: Duration = Duration::from_secs(1);
/// Interval of the checks for Ctrl-C.
const INTERVAL: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub struct Options {
    /// End after the summary, instead of tracing until Ctrl-C
    #[arg(long)]
    pub once: bool,
}

pub fn main(options: &Options) -> Result<()> {
    setup::ensure()?;
    let executable = build::build()?;
    let cluster = cluster::Options { nodes: NODES, ..cluster::Options::default() };
    Stage::play(&cluster, &executable, |stage| {
        let schedspan = Schedspan::start(&Daemon { waterfalls: true, ..stage.options()? })?;
        let comparison = Comparison::begin(&stage.cluster)?;
        let api = stage.cluster.api()?;
        for Act { announcement, play, asked } in ACTS {
            println!("\n=== {announcement}\n");
            thread::sleep(PAUSE);
            play(&api)?;
            if let Some(pod) = asked {
                // The daemon has to get the last attempt.
                thread::sleep(PAUSE);
                println!("\n=== Why? The daemon remembers: schedspan explain {pod}\n");
                explain(&schedspan, &executable, pod)?;
            }
        }
        println!("\n=== Summary: waiting until all is quiet\n");
        summary(&comparison.end()?, &schedspan)?;
        if !options.once {
            stay(stage)?;
        }
        schedspan.stop()
    })
}

/// A scene and its announcement.
struct Act {
    announcement: &'static str,
    play: fn(&Api) -> Result<()>,
    /// The Pod that is explained afterwards.
    asked: Option<&'static str>,
}

const ACTS: [Act; 3] = [
    Act {
        announcement: "A Deployment whose Pods carry a traceparent: each attempt is linked to their creator's trace.",
        play: deployment,
        asked: None,
    },
    Act {
        announcement: "A Pod that fits nowhere, until a larger Node comes: one attempt fails, a later one succeeds.",
        play: waiting,
        asked: Some("large"),
    },
    Act {
        announcement: "A Pod that evicts two of lower priority: postFilter finds the Node, a later attempt binds.",
        play: preemption,
        asked: Some("high"),
    },
];

fn deployment(api: &Api) -> Result<()> {
    let labels = json!({ "app": "web" });
    let mut template = pod("web", "500m");
    template["metadata"] =
        json!({ "labels": labels, "annotations": { "tracing.k8s.io/traceparent": TRACEPARENT } });
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": REPLICAS, "selector": { "matchLabels": labels }, "template": template },
    });
    api.post("/apis/apps/v1/namespaces/default/deployments", &deployment)?;
    api.wait_for_pods("the Deployment's Pods to be bound", |pods| {
        pods.iter().filter(|pod| is_bound(pod)).count() == REPLICAS
    })
}

fn waiting(api: &Api) -> Result<()> {
    api.create_pod("default", &pod("large", "64"))?;
    api.wait_for_pods("a Pod to fit nowhere", |pods| named(pods, "large").any(is_unschedulable))?;
    println!("\n=== Now the Node.\n");
    api.create_node("node-large", NodeSize { cpu: "96", ..NodeSize::default() })?;
    api.wait_for_pods("a Pod to find the new Node", |pods| named(pods, "large").any(is_bound))
}

fn preemption(api: &Api) -> Result<()> {
    api.create_priority_classes()?;
    let create = |name: &str, cpu, priority| {
        let mut pod = pod(name, cpu);
        pod["spec"]["priorityClassName"] = json!(priority);
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "node-0001" });
        api.create_pod("default", &pod)
    };
    create("low-1", "15", "low")?;
    create("low-2", "15", "low")?;
    api.wait_for_pods("the Pods of low priority to be bound", |pods| {
        named(pods, "low-").filter(|pod| is_bound(pod)).count() == 2
    })?;
    create("high", "29", "high")?;
    api.wait_for_pods("the Pod of high priority to take their place", |pods| {
        named(pods, "high").any(is_bound)
    })
}

/// What `schedspan explain` says about a Pod.
fn explain(schedspan: &Schedspan, executable: &Path, pod: &str) -> Result<()> {
    let server = format!("http://{}", schedspan.address("debug"));
    let status = Command::new(executable).args(["explain", pod, "--server", &server]).status()?;
    ensure!(status.success(), "`schedspan explain {pod}` ended with {status}");
    Ok(())
}

fn named<'a>(pods: &'a [Value], prefix: &'a str) -> impl Iterator<Item = &'a Value> {
    pods.iter()
        .filter(move |pod| pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix)))
}

/// Prints both sides' figures.
///
/// # Errors
///
/// If they differ, or if anything was lost.
fn summary(figures: &Figures, schedspan: &Schedspan) -> Result<()> {
    let attempts = figures.attempts();
    println!("{:<24} {:>9} {:>27}", "attempts", "schedspan", "schedule_attempts_total");
    for row in &attempts {
        println!("  {:<22} {:>9} {:>27}", row.name, row.spans, row.metric);
    }
    let mut by_name = BTreeMap::<_, usize>::new();
    for span in &figures.spans {
        // There are many plugins with long names.
        let name = if span.name.starts_with("plugin: ") { "plugin" } else { span.name.as_str() };
        *by_name.entry(name).or_default() += 1;
    }
    println!("{:<24} {:>9}", "spans in the Collector", figures.spans.len());
    for (name, count) in by_name {
        println!("  {name:<22} {count:>9}");
    }
    let links = figures.spans.iter().map(|span| span.links.len()).sum::<usize>();
    let metrics = schedspan.metrics()?;
    ensure!(metrics.has("schedspan_losses_total"), "schedspan does not say what it lost");
    let lost = metrics.sum("schedspan_losses_total", &[]);
    println!("{:<24} {links:>9}\n{:<24} {lost:>9}\n", "links to creators", "lost");
    ensure!(attempts.iter().all(|row| row.spans == row.metric), "schedspan and the scheduler do not agree");
    ensure!(attempts[0].spans > 0 && attempts[1].spans > 0, "there was not one attempt of each kind");
    ensure!(links == REPLICAS, "{links} spans are linked instead of {REPLICAS}");
    ensure!(lost == 0.0, "{lost} things were lost");
    println!("schedspan and the scheduler agree, and nothing was lost. Where to go from here:");
    println!("  schedspan trace          live waterfalls on a node of yours; --failed, --slower-than 10ms");
    println!("  schedspan explain POD    why a Pod is where it is: asks `schedspan run`");
    println!("  schedspan inspect PID    what is probed, and what it costs");
    println!("  cargo xtask e2e          this comparison for 550 Pods, and what happens when things break");
    println!("  README.md, docs/         how it works, and how to run it");
    Ok(())
}

/// Keeps tracing until Ctrl-C.
fn stay(stage: &Stage) -> Result<()> {
    println!("\n=== The cluster is yours until Ctrl-C. In another terminal:\n");
    println!("  export KUBECONFIG={}", stage.cluster.kubeconfig().display());
    println!("  kubectl create deployment mine --image=none --replicas=3\n");
    let interrupt = Interrupt::catch()?;
    while !interrupt.caught() {
        stage.cluster.check()?;
        thread::sleep(INTERVAL);
    }
    Ok(())
}
