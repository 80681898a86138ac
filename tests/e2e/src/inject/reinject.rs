//! Reinjection: the context of an attempt is written into the Pod that it bound, if that has none, and into no other Pod.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, is_bound, objects, pod},
    schedspan::{Options, Schedspan},
    stage::Stage,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use xtask::manifests;

use super::contexts::{self, K8S, OTHER, TRACE_ID, annotation, parent, root};

/// The limit from a Pod's binding to the count of its result.
const COUNTED: Duration = Duration::from_secs(15);
const PODS: &str = "/api/v1/namespaces/default/pods";

pub(super) fn run(stage: &Stage, api: &Api) -> Result<()> {
    let start = |rate: &str| {
        let arguments = ["--reinject", "--reinject-rate", rate];
        Schedspan::start(&Options { arguments: &arguments, ..stage.options()? })
    };
    let mut schedspan = start("20")?;
    forbidden(api, &mut schedspan)?;
    schedspan.stop()?;

    let granted = manifests::with(&["reinject.enabled=true"])?;
    for object in objects(&granted).iter().filter(|object| object.kind == "ClusterRole") {
        api.apply(object, false)?;
    }
    let mut schedspan = start("20")?;
    written(stage, api, &mut schedspan)?;
    meanwhile(api, &mut schedspan)?;
    schedspan.stop()?;
    let mut schedspan = start("2")?;
    limited(api, &mut schedspan)?;
    schedspan.stop()
}

/// Waits until this number of Pods had this result.
fn counted(schedspan: &mut Schedspan, result: &str, pods: f64) -> Result<()> {
    schedspan.wait_for(&format!("{pods} Pods to be {result}"), COUNTED, |metrics| {
        metrics.sum("schedspan_context_writes_total", &[("result", result)]) == pods
    })
}

fn get(api: &Api, name: &str) -> Result<serde_json::Value> {
    api.get(&format!("{PODS}/{name}"))
}

/// Checks that a missing right is logged once and counted.
fn forbidden(api: &Api, schedspan: &mut Schedspan) -> Result<()> {
    for (count, name) in [(1.0, "forbidden-1"), (2.0, "forbidden-2")] {
        api.create_pod("default", &pod(name, "10m"))?;
        counted(schedspan, "forbidden", count)?;
        ensure!(annotation(&get(api, name)?, K8S).is_empty(), "{name} was written all the same");
    }
    let log = schedspan.log()?;
    let said = log.matches("grant `patch` of pods").count();
    ensure!(said == 1, "{said} lines say which right is missing: {log}");
    Ok(())
}

/// Checks that a bound Pod gets the context of its attempt, and keeps one that it already has.
fn written(stage: &Stage, api: &Api, schedspan: &mut Schedspan) -> Result<()> {
    api.create_pod("default", &pod("out", "10m"))?;
    counted(schedspan, "written", 1.0)?;
    let out = get(api, "out")?;
    let root = root(stage, "out")?;
    let expected = format!("00-{}-{}-01", root.trace_id, root.span_id);
    ensure!(annotation(&out, K8S) == expected, "{} instead of {expected}", annotation(&out, K8S));
    let managers = out["metadata"]["managedFields"].as_array().into_iter().flatten();
    let key = format!("f:{K8S}");
    let ours: Vec<_> =
        managers.filter(|of| of["fieldsV1"]["f:metadata"]["f:annotations"][&key].is_object()).collect();
    ensure!(
        matches!(ours[..], [of] if of["manager"] == "schedspan" && of["operation"] == "Apply"),
        "the annotation belongs to {ours:?}"
    );

    let mut own = pod("out-own", "10m");
    own["metadata"]["annotations"] = json!({ K8S: OTHER });
    api.create_pod("default", &own)?;
    // Fields of a webhook belong to no field manager.
    let injected = api
        .with("traceparent", &parent(TRACE_ID, "01"))
        .create_pod("default", &pod("out-injected", "10m"))?;
    ensure!(!annotation(&injected, K8S).is_empty(), "the webhook has not answered");
    let mut junk = pod("out-junk", "10m");
    junk["metadata"]["annotations"] = json!({ K8S: "junk" });
    api.create_pod("default", &junk)?;
    counted(schedspan, "present", 3.0)?;
    for (name, expected) in
        [("out-own", OTHER), ("out-injected", annotation(&injected, K8S)), ("out-junk", "junk")]
    {
        let pod = get(api, name)?;
        ensure!(annotation(&pod, K8S) == expected, "{name} has lost its context: {pod}");
    }
    // A Pod that fits nowhere is not bound by an attempt.
    api.create_pod("default", &pod("out-nowhere", "1000"))?;
    contexts::root(stage, "out-nowhere")?;
    ensure!(annotation(&get(api, "out-nowhere")?, K8S).is_empty(), "an attempt that failed was written");
    api.delete_pod("default", "out-nowhere").map(drop)
}

/// Checks Pods that change between binding and write, while the daemon is stopped.
fn meanwhile(api: &Api, schedspan: &mut Schedspan) -> Result<()> {
    let signal = |signal| {
        let pid = Pid::from_raw(schedspan.pid().cast_signed()).context("no pid")?;
        kill_process(pid, signal).map_err(anyhow::Error::from)
    };
    let names = ["meanwhile-annotated", "meanwhile-deleted", "meanwhile-replaced"];
    signal(Signal::STOP)?;
    for name in names {
        api.create_pod("default", &pod(name, "10m"))?;
    }
    let ours =
        |pod: &serde_json::Value| pod["metadata"]["name"].as_str().is_some_and(|name| names.contains(&name));
    api.wait_for_pods("the Pods to be bound", |pods| pods.iter().filter(|pod| ours(pod)).all(is_bound))?;
    api.patch(&format!("{PODS}/{}", names[0]), &json!({ "metadata": { "annotations": { K8S: OTHER } } }))?;
    api.delete_pod("default", names[1])?;
    api.delete_pod("default", names[2])?;
    let mut other = pod(names[2], "10m");
    // A Pod of no scheduler is not changed.
    other["spec"]["schedulerName"] = "nobody".into();
    api.create_pod("default", &other)?;
    signal(Signal::CONT)?;
    counted(schedspan, "conflict", 1.0)?;
    counted(schedspan, "gone", 2.0)?;
    ensure!(annotation(&get(api, names[0])?, K8S) == OTHER, "a foreign context was overwritten");
    ensure!(get(api, names[1]).is_err(), "a Pod that was gone is there again");
    ensure!(annotation(&get(api, names[2])?, K8S).is_empty(), "another Pod of the same name was written");
    println!("         reinject: written, present, conflict, gone");
    Ok(())
}

/// Checks that writes above the limit are skipped and counted.
fn limited(api: &Api, schedspan: &mut Schedspan) -> Result<()> {
    const PODS: u32 = 30;
    for number in 0..PODS {
        api.create_pod("default", &pod(&format!("limited-{number}"), "10m"))?;
    }
    let writes = |metrics: &harness::metrics::Metrics, result| {
        metrics.sum("schedspan_context_writes_total", &[("result", result)])
    };
    schedspan.wait_for("all Pods to be counted", COUNTED, |metrics| {
        writes(metrics, "written") + writes(metrics, "rate") == f64::from(PODS)
    })?;
    let metrics = schedspan.metrics()?;
    let (written, left_out) = (writes(&metrics, "written"), writes(&metrics, "rate"));
    let pods = api.pods("default")?;
    let annotated = pods.iter().filter(|pod| {
        pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("limited-"))
            && !annotation(pod, K8S).is_empty()
    });
    let annotated = annotated.count();
    ensure!(written == annotated as f64, "{written} are counted as written, and {annotated} were");
    ensure!(written >= 2.0 && left_out > 0.0, "{written} were written and {left_out} left out");
    println!("         reinject: {written} of {PODS} at 2 a second");
    Ok(())
}
