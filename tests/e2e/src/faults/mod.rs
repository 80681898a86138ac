//! Faults around schedspan: they affect neither the scheduler nor other spans.
//!
//! # Layout
//!
//! - `api_server`: the API server's answers are bad, its certificates and tokens renewed; `interceptor` does that
//! - `kills`: schedspan is killed at any moment
//! - `leaders`: the leading one of three schedulers is killed
//! - `load`: Pods that come while a fault happens
//! - `memory`: schedspan has little memory, and is killed for it
//! - `names`: the Collector's name is not known for a while
//! - `panic`: a plugin ends the scheduler
//! - `pause`: schedspan is stopped for a minute
//! - `sites`: breakpoints in the scheduler's memory
//! - here: the scheduler, the API server or the Collector is not there

mod api_server;
mod interceptor;
mod kills;
mod leaders;
pub(crate) mod load;
mod memory;
mod names;
mod panic;
mod pause;
mod sites;

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, pod},
    processes::free_ports,
    proxy::Proxy,
    schedspan::{Options, Schedspan},
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};

pub(super) use self::{
    api_server::run as api_server, kills::run as kills, leaders::run as leaders, memory::run as memory,
    names::run as names, panic::run as panic, pause::run as pause,
};
use crate::checks;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The scheduler restarts; there is no API server; there is no Collector.
pub(super) fn peers(stage: &mut Stage) -> Result<()> {
    restart(stage).context("restart of the scheduler")?;
    no_api_server(stage).context("no API server")?;
    no_collector(stage).context("no Collector")
}

/// Restarts the scheduler under a running schedspan.
fn restart(stage: &mut Stage) -> Result<()> {
    let schedspan = stage.trace()?;
    let first = scheduled(stage, "before-restart", false)?;
    stage.cluster.restart_scheduler()?;
    // The metrics have the old one until the next search.
    checks::is_traced(stage, &schedspan)?;
    let second = scheduled(stage, "after-restart", false)?;
    ensure!(first.pid != second.pid, "the span of a new scheduler names the old one");
    schedspan.stop()
}

/// Starts schedspan before its API server can be reached.
fn no_api_server(stage: &Stage) -> Result<()> {
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(stage.cluster.kubeconfig())?)?;
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().context("no server")?.to_owned();
    let real = server.strip_prefix("https://").context("not https")?.to_owned();
    let address = format!("127.0.0.1:{}", free_ports(&["api"])?["api"]);
    kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://{address}").into();
    let path = stage.cluster.dir().join("other.kubeconfig");
    fs::write(&path, serde_json::to_vec(&kubeconfig)?)?;

    let mut schedspan = Schedspan::start(&Options { kubeconfig: path, ..stage.options()? })?;
    wait_until("a warning that Pods cannot be watched", TIMEOUT, || {
        Ok(warnings(&schedspan, &address)?.first().map(drop))
    })?;
    ensure!(scheduled(stage, "without-api-server", true)?.links.is_empty(), "a link out of nothing");
    let unknown = schedspan.metrics()?.sum("schedspan_context_lookups_total", &[("result", "unknown")]);
    ensure!(unknown == 1.0, "schedspan counts {unknown} Pods without known context instead of 1");

    Proxy::start(&address, real)?;
    schedspan.wait_for("schedspan to watch Pods", TIMEOUT * 2, |metrics| {
        metrics.sum("schedspan_context_watch_up", &[]) == 1.0
    })?;
    ensure!(
        scheduled(stage, "with-api-server", true)?.links.len() == 1,
        "no link though the API server is there"
    );
    let warned = warnings(&schedspan, &address)?;
    ensure!(warned.len() == 1, "not one warning: {}", warned.join("\n"));
    schedspan.stop()
}

/// Runs schedspan with an unreachable Collector.
fn no_collector(stage: &Stage) -> Result<()> {
    let endpoint = format!("http://127.0.0.1:{}", free_ports(&["otlp"])?["otlp"]);
    let log = stage.cluster.dir().join("no-collector.log");
    let mut schedspan = Schedspan::start(&Options { endpoint: endpoint.clone(), log, ..stage.options()? })?;
    let api = stage.cluster.api()?;
    for round in 1..=3 {
        api.create_pod("default", &pod(&format!("no-collector-{round}"), "10m"))?;
        schedspan.wait_for("spans to wait for the Collector", TIMEOUT, |metrics| {
            // A Pod has more than ten spans.
            metrics.sum("schedspan_export_queue_spans", &[]) > f64::from(round * 10)
                && metrics.sum("schedspan_export_retries_total", &[]) > 0.0
        })?;
    }
    for cause in ["export_failed", "export_queue_full"] {
        let lost = schedspan.metrics()?.sum("schedspan_losses_total", &[("cause", cause)]);
        ensure!(lost == 0.0, "{lost} spans are lost while the queue has room: {cause}");
    }
    let warned = warnings(&schedspan, &endpoint)?;
    ensure!(warned.len() == 1, "not one warning that names {endpoint}: {}", warned.join("\n"));
    schedspan.stop()
}

/// Schedules one Pod, with a context if `linked`, and waits for its span.
fn scheduled(stage: &Stage, name: &str, linked: bool) -> Result<Span> {
    let api: Api = stage.cluster.api()?;
    let mut pod = pod(name, "10m");
    if linked {
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        pod["metadata"]["annotations"] = json!({ "tracing.k8s.io/traceparent": traceparent });
    }
    api.create_pod("default", &pod)?;
    wait_until(&format!("the span of {name}"), TIMEOUT, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        Ok(spans.into_iter().find(|span| span.is_root() && span.pod() == name))
    })
}

/// Writes an executable script.
fn write_script(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// The warnings that contain this text.
fn warnings(schedspan: &Schedspan, thing: &str) -> Result<Vec<String>> {
    let log = schedspan.log()?;
    Ok(log.lines().filter(|line| line.contains("WARN") && line.contains(thing)).map(str::to_owned).collect())
}
