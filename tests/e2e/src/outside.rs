//! Pods that kube-controller-manager deletes outside of any reconcile: each has its deletion, and nothing else that is outside has a span.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, NodeSize, node, pod},
    audit::{self, Write},
    schedspan::{Options, Schedspan},
    spans::{self, Related, Span},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};

use crate::controllers::{is_traced, nothing_lost};

/// Its name, and the controllers that it runs.
const PROCESS: &str = "deletions";
const CONTROLLERS: &str = "pod-garbage-collector-controller,taint-eviction-controller";
/// What their clients are called.
const CLIENTS: [&str; 2] = ["pod-garbage-collector", "node-controller"];
/// Pods without a Node that wait to be deleted: the Pod garbage collector deletes them again and again.
const HELD: [&str; 2] = ["held-0", "held-1"];
/// A Pod that a taint of its Node evicts after a second: by a timer, which no reconcile has started.
const EVICTED: &str = "evicted";
/// A Node of its own, since all others of a tainted Node are evicted as well.
const NODE: &str = "evicts";
const TAINT: &str = "schedspan.test/evicts";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REMOVALS: &str = "schedspan_workqueue_pod_removals_total";
/// The limit from a deletion to the Collector's file. The Pod garbage collector looks each 20 seconds.
const ARRIVAL: Duration = Duration::from_secs(60);

pub(super) fn run(stage: &mut Stage, api: &Api) -> Result<()> {
    // Tainted from the beginning: later, the controller would look for its Pods with an index that another controller makes.
    let mut tainted = node(NODE, NodeSize::default());
    tainted["spec"] = json!({ "taints": [{ "key": TAINT, "effect": "NoExecute" }] });
    api.post("/api/v1/nodes", &tainted)?;
    let process = stage.cluster.controllers_beside(PROCESS, CONTROLLERS)?;
    let mut schedspan =
        Schedspan::start(&Options { arguments: &["--program", "client-go"], ..stage.options()? })?;
    is_traced(&schedspan, PROCESS, process.pid)?;
    let audited = audit::length(stage.cluster.dir())?;
    let expected = work(api)?;

    let (file, pid) = (stage.cluster.spans_file(), process.pid.to_string());
    let read = || -> Result<Vec<Span>> {
        let mut spans = spans::read(&file, 0)?;
        spans.retain(|span| span.pid == pid);
        Ok(spans)
    };
    let _ = wait_until("deletions to arrive", ARRIVAL, || {
        Ok((uids(&read()?).len() >= expected.len()).then_some(()))
    });
    release(api)?;
    // As many deletions as the API server wrote down, of which the last may still be on its way.
    let written = || -> Result<f64> {
        let part = audited..audit::length(stage.cluster.dir())?;
        let is_of = |agent: &str| CLIENTS.iter().any(|client| agent.ends_with(client));
        let is_deletion = |write: &&Write| {
            let Write { method, resource, subresource, code, .. } = write;
            [method, resource, subresource, code] == ["DELETE", "pods", "", "200"]
        };
        Ok(audit::writes(stage.cluster.dir(), part, is_of)?.iter().filter(is_deletion).count() as f64)
    };
    let deleted = written()?;
    schedspan.wait_for("the deletions to be counted", ARRIVAL, |metrics| {
        metrics.sum(REMOVALS, &[("evidence", "uid")]) >= deleted
    })?;
    let metrics = schedspan.metrics()?;
    for (evidence, expected) in [("uid", deleted), ("name", 0.0), ("none", 0.0)] {
        let seen = metrics.sum(REMOVALS, &[("evidence", evidence)]);
        ensure!(seen == expected, "{REMOVALS} of `{evidence}` is {seen}, not {expected}");
    }
    let none = metrics.sum("schedspan_workqueue_requests_total", &[("reconcile", "none")]);
    ensure!(none > deleted, "{none} requests are of no reconcile: the test proves nothing");

    let is_there = |spans: &[Span]| spans.iter().filter(|span| span.name == "delete Pod").count() as f64;
    let _ =
        wait_until("all deletions to arrive", ARRIVAL, || Ok((is_there(&read()?) >= deleted).then_some(())));
    let spans = read()?;
    ensure!(is_there(&spans) == deleted, "{} deletions, and the API server has {deleted}", is_there(&spans));
    ensure!(uids(&spans) == expected, "Pods {:?} have a deletion, not {expected:?}", uids(&spans));
    well_formed(&spans)?;
    println!(
        "         {} Pods have their deletion by no reconcile, of {none} requests of none",
        expected.len()
    );
    nothing_lost(&metrics)?;
    schedspan.stop()
}

/// Lets Pods be deleted. Returns their UIDs.
fn work(api: &Api) -> Result<BTreeSet<String>> {
    let create = |pod: &Value| -> Result<String> {
        let created = api.create_pod("default", pod)?;
        Ok(created["metadata"]["uid"].as_str().context("a Pod has no UID")?.to_owned())
    };
    let mut evicted = pod(EVICTED, "10m");
    evicted["spec"]["nodeName"] = NODE.into();
    evicted["spec"]["tolerations"] =
        json!([{ "key": TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1 }]);
    let mut uids = BTreeSet::from([create(&evicted)?]);
    for name in HELD {
        let mut held = pod(name, "10m");
        held["metadata"]["finalizers"] = json!(["schedspan.test/held"]);
        held["spec"]["schedulerName"] = "nobody".into();
        uids.insert(create(&held)?);
        api.delete(&format!("{PODS}/{name}"))?;
    }
    Ok(uids)
}

/// Lets the Pods go that are held, and nothing more be deleted.
fn release(api: &Api) -> Result<()> {
    for name in HELD {
        api.patch(&format!("{PODS}/{name}"), &json!({ "metadata": { "finalizers": null } }))?;
    }
    let is_held = |pod: &Value| HELD.iter().any(|name| pod["metadata"]["name"] == *name);
    api.wait_for_pods("Pods to be gone", |pods| !pods.iter().any(is_held))
}

/// The Pods that have a deletion.
fn uids(spans: &[Span]) -> BTreeSet<String> {
    let deletions = spans.iter().filter(|span| span.name == "delete Pod");
    deletions.map(|span| span.attribute("k8s.pod.uid")).collect()
}

/// Checks that each deletion is in the trace of its Pod with its request, and that no other request outside of reconciles has a span.
fn well_formed(spans: &[Span]) -> Result<()> {
    let by_id: BTreeMap<_, _> = spans.iter().map(|span| ((&*span.trace_id, &*span.span_id), span)).collect();
    ensure!(by_id.len() == spans.len(), "two spans have the same ids");
    let mut places = BTreeMap::new();
    for span in spans {
        let parent = by_id.get(&(&*span.trace_id, &*span.parent_span_id));
        let what = parent.map_or("nothing", |parent| &*parent.name);
        match (&*span.name, what) {
            ("Reconcile", "nothing") | (_, "Reconcile") => continue,
            ("DELETE pods", "delete Pod") => {
                let said = ["http.response.status_code", "k8s.pod.uid"].map(|key| span.attribute(key));
                let uid = parent.map(|parent| parent.attribute("k8s.pod.uid")).unwrap_or_default();
                ensure!(said == ["200".to_owned(), uid], "the request of a deletion says {said:?}");
                ensure!(parent.is_some_and(|parent| parent.holds(span)), "it is not within the deletion");
            }
            // Nothing says when the lifecycle's root is, which is its parent.
            ("delete Pod", "nothing") => {
                let uid = span.attribute("k8s.pod.uid");
                ensure!(!span.parent_span_id.is_empty(), "the deletion of {uid} has no parent");
                let about = ["k8s.workqueue.name", "k8s.workqueue.key"].map(|key| span.attribute(key));
                ensure!(about == ["", ""], "the deletion of {uid} is of the reconcile {about:?}");
                let [Related { what, evidence, link }] = &span.related[..] else {
                    anyhow::bail!("the deletion of {uid} has {} links", span.related.len())
                };
                let request = by_id.get(&(&*link.trace_id, &*link.span_id));
                let is_below = request.is_some_and(|request| request.parent_span_id == span.span_id);
                ensure!(
                    (&**what, &**evidence, is_below) == ("request", "uid", true),
                    "the deletion of {uid} leads elsewhere, by {evidence}"
                );
                let place = (span.trace_id.clone(), span.parent_span_id.clone());
                let known = places.entry(uid.clone()).or_insert_with(|| place.clone());
                ensure!(*known == place, "deletions of {uid} are in two places");
            }
            (name, what) => anyhow::bail!("`{name}` below {what} has a span"),
        }
    }
    ensure!(places.values().collect::<BTreeSet<_>>().len() == places.len(), "two Pods share a trace");
    Ok(())
}
