//! Contexts of Pods' creators: every annotation and encoding on real Pods and their owners, as links and as parents.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use harness::{
    api::{Api, objects, pod},
    schedspan::{Options, Schedspan},
    spans::{self, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};
use xtask::manifests;

use crate::checks;

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN_ID: &str = "00f067aa0ba902b7";
const OTHER_ID: &str = "0af7651916cd43dd8448eb211c80319c";
const K8S: &str = "tracing.k8s.io/traceparent";
const OLD: &str = "trace.kubernetes.io/context";
const INITIAL: &str = "trace.kubernetes.io/initial";
/// The limit from the end of an attempt to the Collector's file.
const ARRIVAL: Duration = Duration::from_secs(20);

/// A Pod, and the expected span.
struct Case {
    name: &'static str,
    annotations: Value,
    /// Trace id, annotation and trace state of each context, by preference.
    causes: Vec<(&'static str, &'static str, &'static str)>,
    /// The reason for which a context is refused.
    refused: Option<&'static str>,
}

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    for mode in ["link", "parent"] {
        let arguments = ["--context-mode", mode, "--context-baggage", "user"];
        let schedspan = Schedspan::start(&Options { arguments: &arguments, ..stage.options()? })?;
        let cases = cases();
        for Case { name, annotations, .. } in &cases {
            let mut pod = pod(&format!("{name}-{mode}"), "10m");
            pod["metadata"]["annotations"] = annotations.clone();
            api.create_pod("default", &pod)?;
        }
        for case in &cases {
            check(stage, case, mode)?;
        }
        let metrics = schedspan.metrics()?;
        let reasons: Vec<_> = cases.iter().filter_map(|case| case.refused).collect();
        for reason in reasons.iter().collect::<BTreeSet<_>>() {
            let expected = reasons.iter().filter(|other| *other == reason).count();
            let refused = metrics.sum("schedspan_annotations_refused_total", &[("reason", reason)]);
            ensure!(refused == expected as f64, "{refused} are refused as {reason} instead of {expected}");
        }
        let refused = metrics.sum("schedspan_annotations_refused_total", &[]);
        ensure!(refused == reasons.len() as f64, "{refused} are refused instead of {}", reasons.len());
        let log = schedspan.log()?;
        for key in [K8S, OLD] {
            let said = log.matches(&format!("no valid trace context in `{key}`")).count();
            ensure!(said == 1, "{said} lines report a refusal in {key}");
        }
        checks::nothing_lost(&metrics)?;
        println!("         {mode}: {} Pods, {} annotations refused", cases.len(), reasons.len());
        schedspan.stop()?;
    }
    owners(stage, &api)
}

/// Annotations of real tracers, and hostile ones up to the API server's limits.
fn cases() -> Vec<Case> {
    let parent = format!("00-{TRACE_ID}-{SPAN_ID}-01");
    let other = format!("00-{OTHER_ID}-{SPAN_ID}-00");
    let [trace_id, span_id] = [TRACE_ID, SPAN_ID].map(bytes);
    let base64 = |parts: &[&[u8]]| BASE64_STANDARD.encode(parts.concat());
    let json = json!({ "traceparent": parent, "tracestate": "a=1" }).to_string();
    let header = json!({ "Traceparent": [parent], "Tracestate": ["a=1"] }).to_string();
    let found =
        |name, annotations, key| Case { name, annotations, causes: vec![(TRACE_ID, key, "")], refused: None };
    let refused = |name, key: &str, value: &str, reason| Case {
        name,
        annotations: json!({ key: value }),
        causes: vec![],
        refused: Some(reason),
    };
    let with_state = |case: Case| Case { causes: vec![(TRACE_ID, case.causes[0].1, "a=1")], ..case };
    let only = |key: &str, value: &str| json!({ key: value });
    vec![
        with_state(found(
            "kep",
            json!({ K8S: parent, "tracing.k8s.io/tracestate": "a=1", "tracing.k8s.io/baggage": "user=ann%20b,x=y" }),
            K8S,
        )),
        with_state(found("plain", json!({ "traceparent": parent, "tracestate": "a=1" }), "traceparent")),
        found("tekton", only("tekton.dev/traceparent", &parent), "tekton.dev/traceparent"),
        with_state(found(
            "taskrun",
            only("tekton.dev/taskrunSpanContext", &json),
            "tekton.dev/taskrunSpanContext",
        )),
        with_state(found(
            "pipelinerun",
            only("tekton.dev/pipelinerunSpanContext", &json),
            "tekton.dev/pipelinerunSpanContext",
        )),
        found("opencensus", only(OLD, &base64(&[&[0, 0], &trace_id, &[1], &span_id, &[2, 1]])), OLD),
        found("struct", only(OLD, &base64(&[&trace_id, &span_id, &[1]])), OLD),
        found("jaeger", only(OLD, &base64(&[&trace_id, &span_id, &[0; 8], &[1], &[0; 4]])), OLD),
        with_state(found("header", only(OLD, &base64(&[header.as_bytes()])), OLD)),
        Case { causes: vec![], ..found("initial", only(INITIAL, OTHER_ID), INITIAL) },
        Case {
            causes: vec![(TRACE_ID, K8S, ""), (OTHER_ID, "tracing.k8s.io/traceparent.1", "b=2")],
            ..found(
                "several",
                json!({
                    "tracing.k8s.io/traceparent.1": other, "tracing.k8s.io/tracestate.1": "b=2", K8S: parent,
                    // A duplicate.
                    "traceparent": parent,
                }),
                K8S,
            )
        },
        Case { refused: Some("encoding"), ..found("half", json!({ K8S: parent, OLD: "junk" }), K8S) },
        Case { causes: vec![], ..found("none", json!({ "other": parent }), "") },
        refused("short", K8S, &parent[..54], "syntax"),
        refused("version", K8S, &parent.replace("00-4", "ff-4"), "version"),
        refused("zero", K8S, &parent.replace(TRACE_ID, &"0".repeat(32)), "zero_trace_id"),
        refused("long", OLD, &"A".repeat(200_000), "too_long"),
        refused("bytes", OLD, &base64(&[b"{\"traceparent\":\"\xff\"}"]), "not_utf8"),
        refused("utf8", OLD, "é", "base64"),
        refused("json", "tekton.dev/taskrunSpanContext", "{", "json"),
    ]
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let pairs = (0..hexadecimal.len()).step_by(2).map(|at| &hexadecimal[at..at + 2]);
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap_or_default()).collect()
}

/// The top span of a Pod's attempt, which may have a parent elsewhere.
fn root(stage: &Stage, pod: &str) -> Result<Span> {
    wait_until(&format!("the span of {pod}"), ARRIVAL, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        Ok(spans.into_iter().find(|span| span.name == "SchedulePod" && span.pod() == pod))
    })
}

fn check(stage: &Stage, case: &Case, mode: &str) -> Result<()> {
    let name = format!("{}-{mode}", case.name);
    let root = root(stage, &name)?;
    let (parent, links) = match mode {
        "parent" => (case.causes.first(), case.causes.get(1..).unwrap_or_default()),
        _ => (None, &case.causes[..]),
    };
    let found: Vec<_> = root
        .links
        .iter()
        .zip(&root.link_annotations)
        .map(|(link, key)| (&*link.trace_id, &**key, &*link.trace_state))
        .collect();
    ensure!(found == links, "{name} has the links {found:?} instead of {links:?}");
    ensure!(root.links.iter().all(|link| link.span_id == SPAN_ID), "{name}: {:?}", root.links);
    match parent {
        None => ensure!(root.is_root(), "{name} is below {}", root.parent_span_id),
        Some((trace_id, _, state)) => {
            let is = (&*root.trace_id, &*root.parent_span_id, &*root.trace_state);
            ensure!(is == (*trace_id, SPAN_ID, *state), "{name} is in {is:?}");
        }
    }
    let [user, initial] =
        ["user", "k8s.pod.annotation.trace.kubernetes.io/initial"].map(|key| root.attribute(key));
    let expected =
        [if case.name == "kep" { "ann b" } else { "" }, if case.name == "initial" { OTHER_ID } else { "" }];
    ensure!([&*user, &initial] == expected, "{name} says {user:?} and {initial:?}");
    ensure!(root.attribute("x").is_empty(), "{name} has baggage that was not selected");
    Ok(())
}

/// Pods of controllers, with annotations only on their owners.
fn owners(stage: &Stage, api: &Api) -> Result<()> {
    let parent = |digit: char| format!("00-{}-{SPAN_ID}-01", TRACE_ID.replace('4', &digit.to_string()));
    let trace_id = |digit: char| TRACE_ID.replace('4', &digit.to_string());
    let arguments = ["--context-owners"];
    let start = || Schedspan::start(&Options { arguments: &arguments, ..stage.options()? });
    let create = |name: &str, digit| {
        let template = |name: &str| {
            let mut template = pod("", "10m");
            template["metadata"] = json!({ "labels": { "app": name } });
            template
        };
        let annotations = json!({ K8S: parent(digit) });
        let (web, job) = (format!("web-{name}"), format!("job-{name}"));
        let deployment = json!({
            "metadata": { "name": web, "annotations": annotations },
            "spec": {
                "replicas": 3, "selector": { "matchLabels": { "app": web } }, "template": template(&web),
            },
        });
        api.post("/apis/apps/v1/namespaces/default/deployments", &deployment)?;
        let mut template = template(&job);
        template["spec"]["restartPolicy"] = "Never".into();
        let job = json!({
            "metadata": { "name": job, "annotations": annotations },
            "spec": { "completions": 3, "parallelism": 3, "template": template },
        });
        api.post("/apis/batch/v1/namespaces/default/jobs", &job)?;
        made(stage, name)
    };

    // Without the right it logs that, and links nothing.
    let schedspan = start()?;
    for span in create("forbidden", '5')? {
        ensure!(span.links.is_empty(), "{} has the links {:?}", span.pod(), span.links);
    }
    let log = schedspan.log()?;
    for plural in ["replicasets", "jobs"] {
        let said = log.lines().filter(|line| line.contains(&format!("cannot get {plural}"))).count();
        ensure!(said == 1, "{said} lines say that {plural} cannot be read: {log}");
    }
    schedspan.stop()?;

    let granted = manifests::with(&["context.owners=true"])?;
    for object in objects(&granted).iter().filter(|object| object.kind == "ClusterRole") {
        api.apply(object, false)?;
    }
    let schedspan = start()?;
    for span in create("granted", '6')? {
        let links: Vec<_> = span.links.iter().map(|link| (&*link.trace_id, &*link.span_id)).collect();
        ensure!(links == [(&*trace_id('6'), SPAN_ID)], "{} has the links {links:?}", span.pod());
        let owner = &span.link_owners[0];
        // A Deployment copies its annotations to its ReplicaSets.
        let kind = if span.pod().starts_with("web") { "ReplicaSet/web-granted-" } else { "Job/job-granted" };
        ensure!(owner.starts_with(kind), "{} has the context of {owner}", span.pod());
    }
    let found = schedspan.metrics()?.sum("schedspan_context_lookups_total", &[("result", "owner")]);
    ensure!(found == 6.0, "{found} contexts of owners are counted instead of 6");
    println!("         owners: 6 Pods of a ReplicaSet and a Job, and 6 without the right to ask");
    schedspan.stop()
}

/// The first attempts of the six Pods of a Deployment and a Job.
fn made(stage: &Stage, name: &str) -> Result<Vec<Span>> {
    wait_until(&format!("the spans of six {name} Pods"), ARRIVAL, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?.into_iter();
        let ours = |span: &Span| span.name == "SchedulePod" && span.pod().contains(name);
        let ours: Vec<_> = spans.filter(ours).collect();
        Ok((ours.len() == 6).then_some(ours))
    })
}
