//! The page: five views in a real browser, with real Pods, as a person sees them, with a keyboard, live, and without JavaScript.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use harness::{
    api::{Api, is_bound, is_unschedulable, pod},
    browser,
    http::agent,
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::paths;

use crate::checks::{nothing_lost, text};

/// Nodes: more than the best candidates of an attempt.
pub(super) const NODES: u32 = 8;
const FITS: usize = 12;
const TOO_BIG: usize = 10;
const NOWHERE: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let tools = match browser::tools() {
        Ok(tools) => tools,
        Err(error) => {
            println!("skipped  e2e page: {error:#}");
            return Ok(());
        }
    };
    let schedspan = stage.trace()?;
    let api = stage.cluster.api()?;
    for number in 0..FITS {
        api.create_pod("default", &pod(&format!("fits-{number}"), &format!("{}m", 100 + 50 * number)))?;
    }
    for number in 0..TOO_BIG {
        api.create_pod("default", &pod(&format!("big-{number}"), "1000"))?;
    }
    for number in 0..NOWHERE {
        let mut pod = pod(&format!("nowhere-{number}"), "10m");
        pod["spec"]["nodeSelector"] = json!({ "disk": "none" });
        api.create_pod("default", &pod)?;
    }
    api.wait_for_pods("Pods to be bound or found unschedulable", |pods| {
        pods.len() == FITS + TOO_BIG + NOWHERE
            && pods.iter().all(|pod| is_bound(pod) || is_unschedulable(pod))
    })?;
    let url = format!("http://{}", schedspan.address("debug"));
    pending_as_the_api_server_says(&api, &url)?;
    let pictures = paths::repository().join("target/page");
    fs::create_dir_all(&pictures)?;
    look(&api, &url, &tools, &pictures)?;
    pending_as_the_api_server_says(&api, &url)?;
    let metrics = schedspan.metrics()?;
    schedspan.stop()?;
    nothing_lost(&metrics)
}

/// Runs the script that drives the browser, and makes the Pods that it asks for.
fn look(api: &Api, url: &str, tools: &Path, pictures: &Path) -> Result<()> {
    let mut command = browser::script("look.mjs");
    command.arg(url).arg(tools).arg(pictures);
    let mut node = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (mut answers, lines) = (node.stdin.take().context("it has an input")?, node.stdout.take());
    for line in BufReader::new(lines.context("it has an output")?).lines() {
        let line = line?;
        match line.strip_prefix("create ").and_then(|asked| asked.split_once(' ')) {
            Some((name, cpu)) => {
                api.create_pod("default", &pod(name, cpu))?;
                writeln!(answers)?;
            }
            None => println!("         {line}"),
        }
    }
    let output = node.wait_with_output()?;
    if !output.status.success() {
        bail!("the page is not as it should be: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Checks that the daemon has the Pods pending that are so by the API server, for the same reasons.
fn pending_as_the_api_server_says(api: &Api, url: &str) -> Result<()> {
    let expected: BTreeSet<String> = api
        .pods("default")?
        .iter()
        .filter(|pod| !is_bound(pod))
        .map(|pod| text(pod, "/metadata/name").to_owned())
        .collect();
    ensure!(expected.len() >= TOO_BIG + NOWHERE, "few Pods are pending: the test proves nothing");
    wait_until("the daemon to have the same Pods pending as the API server", TIMEOUT, || {
        let mut answer = agent(Path::new(""))?.get(format!("{url}/api/v1/pending")).call()?;
        let answer: Value = answer.body_mut().read_json()?;
        let reasons = answer["reasons"].as_array().context("there are reasons")?;
        let pods = reasons.iter().filter_map(|reason| reason["pods"].as_array()).flatten();
        let found: BTreeSet<String> = pods.map(|pod| text(pod, "/pod").to_owned()).collect();
        Ok((found == expected).then_some(()))
    })
}
