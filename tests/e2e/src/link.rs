//! From a Pod's annotation to a span link, and from a request's header to an annotation if the API server makes no spans.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, pod},
    schedspan::{Options, Schedspan},
    spans::{self, Link},
    stage::Stage,
    wait::wait_until,
    webhook::{Webhook, register},
};
use serde_json::json;

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN_ID: &str = "00f067aa0ba902b7";
const TRACE_STATE: &str = "vendor=value,other=1";
/// The limit from the end of an attempt to the Collector's file.
const ARRIVAL: Duration = Duration::from_secs(20);
/// The limit for the API server to see the webhook's configuration.
const SEEN: Duration = Duration::from_secs(10);

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    for (protocol, endpoint) in
        [("grpc", stage.cluster.otlp_grpc()?), ("http/protobuf", stage.cluster.otlp_http()?)]
    {
        over(stage, protocol, endpoint).with_context(|| format!("over {protocol}"))?;
    }
    from_request(stage)
}

/// Checks that the webhook gets the client's own context then.
fn from_request(stage: &Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    let mut webhook = Webhook::start(stage, "webhook", &[])?;
    register(&api, &webhook, &[])?;
    webhook.wait()?;
    let traceparent = format!("00-{TRACE_ID}-{SPAN_ID}-01");
    let traced = api.with("traceparent", &traceparent);
    let trial = wait_until("the API server to call the webhook", SEEN, || {
        let trial = traced.post("/api/v1/namespaces/default/pods?dryRun=All", &pod("trial", "1"))?;
        Ok(trial["metadata"]["annotations"]["tracing.k8s.io/traceparent"].as_str().map(str::to_owned))
    })?;
    ensure!(trial == traceparent, "the context is {trial} instead of {traceparent}");
    let none = api.post("/api/v1/namespaces/default/pods?dryRun=All", &pod("trial", "1"))?;
    ensure!(!none["metadata"]["annotations"].is_object(), "a Pod has got a context from nowhere: {none}");
    ensure!(webhook.reviews("no_context")? > 0.0, "the webhook was not asked");
    Ok(())
}

fn over(stage: &Stage, protocol: &'static str, endpoint: String) -> Result<()> {
    let api = stage.cluster.api()?;
    let schedspan = Schedspan::start(&Options { protocol, endpoint, ..stage.options()? })?;
    let name = |kind: &str| format!("{kind}-{}", protocol.split('/').next().unwrap_or_default());
    let link = Link { trace_id: TRACE_ID.into(), span_id: SPAN_ID.into(), trace_state: TRACE_STATE.into() };
    let cases = [
        ("linked", format!("00-{TRACE_ID}-{SPAN_ID}-01"), vec![link]),
        ("plain", String::new(), vec![]),
        // One digit is missing.
        ("malformed", format!("00-{TRACE_ID}-{}-01", &SPAN_ID[1..]), vec![]),
    ];
    for (kind, traceparent, _) in &cases {
        let mut pod = pod(&name(kind), "100m");
        if !traceparent.is_empty() {
            pod["metadata"]["annotations"] = json!({
                "tracing.k8s.io/traceparent": traceparent,
                "tracing.k8s.io/tracestate": TRACE_STATE,
            });
        }
        api.create_pod("default", &pod)?;
    }
    api.wait_for_pods("all Pods to be bound", |pods| pods.iter().all(is_bound))?;
    for (kind, _, links) in cases {
        let span = wait_until(&format!("the span of {}", name(kind)), ARRIVAL, || {
            let spans = spans::read(&stage.cluster.spans_file(), 0)?;
            Ok(spans.into_iter().find(|span| span.is_root() && span.pod() == name(kind)))
        })?;
        ensure!(span.links == links, "{} has the links {:?} instead of {links:?}", name(kind), span.links);
    }
    let metrics = schedspan.metrics()?;
    let refused = metrics.sum("schedspan_annotations_refused_total", &[]);
    ensure!(refused == 1.0, "schedspan counts {refused} refused annotations instead of 1");
    let found = metrics.sum("schedspan_context_lookups_total", &[("result", "found")]);
    ensure!(found == 1.0, "schedspan counts {found} contexts instead of 1");
    schedspan.stop()
}
