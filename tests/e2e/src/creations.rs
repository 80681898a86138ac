//! What reconciles create: each Pod has its creation in its own trace, and a reconcile leads to the one that created its object.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    spans::{self, Link, Related, Span},
    wait::wait_until,
};
use serde_json::Value;
use xtask::process;

/// The limit from the end of a reconcile to the Collector's file.
const ARRIVAL: Duration = Duration::from_secs(30);

/// Checks that each of these Pods has one creation, which is linked with the request of its owner's reconcile and back.
pub(super) fn of_pods(
    file: &Path,
    pods: &[Value],
    reconciles: &[Span],
    requests: &[Span],
) -> Result<Vec<Span>> {
    let uids: BTreeSet<_> = pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
    let all = arrived(file, &uids, requests)?;
    let requests: BTreeMap<_, _> = requests.iter().map(|span| (id(span), span)).collect();
    let reconciles: BTreeMap<_, _> = reconciles.iter().map(|span| (id(span), span)).collect();
    let mut traces = BTreeSet::new();
    let mut creations = Vec::new();
    for pod in pods {
        let (metadata, owner) = (&pod["metadata"], &pod["metadata"]["ownerReferences"][0]);
        let [name, uid] = ["name", "uid"].map(|field| metadata[field].as_str().unwrap_or_default());
        let mut own = all.iter().filter(|span| span.attribute("k8s.pod.uid") == uid);
        let creation = own.next().filter(|_| own.next().is_none());
        let creation = creation.with_context(|| format!("{name} has not one creation"))?;
        ensure!(traces.insert(&creation.trace_id), "{name} shares the trace of another Pod");
        ensure!(!creation.parent_span_id.is_empty(), "the creation of {name} has no parent");

        let [kind, owner] = ["kind", "name"].map(|field| owner[field].as_str().unwrap_or_default());
        let about = ["k8s.pod.name", "k8s.namespace.name", "k8s.workqueue.name", "k8s.workqueue.key"];
        let about = about.map(|key| creation.attribute(key));
        let expected =
            [name.to_owned(), "default".to_owned(), kind.to_lowercase(), format!("default/{owner}")];
        ensure!(about == expected, "the creation of {name} says {about:?}");

        let request = related(creation, "request")?;
        let request = requests.get(&(&*request.trace_id, &*request.span_id));
        let request = request.with_context(|| format!("no request created {name}"))?;
        ensure!(request.attribute("k8s.pod.uid") == uid, "another request created {name}");
        let back = related(request, "pod")?;
        ensure!(
            (&*back.trace_id, &*back.span_id) == id(creation),
            "the request leads to another Pod than {name}"
        );
        let times = |span: &Span| [span.start_time_unix_nano, span.end_time_unix_nano];
        ensure!(times(creation) == times(request), "{name} was created while there was no request");
        let reconcile = reconciles.get(&(&*request.trace_id, &*request.parent_span_id));
        let by = reconcile.map(|span| span.attribute("k8s.workqueue.key"));
        ensure!(by.as_deref() == Some(&expected[3]), "{name} was created by {by:?}");
        creations.push(creation.clone());
    }
    ensure!(all.len() == pods.len(), "{} creations of {} Pods", all.len(), pods.len());
    println!("         {} Pods have one creation each, linked with the reconcile of their owner", pods.len());
    Ok(creations)
}

/// The creations of these Pods, and whatever others these requests lead to, once there are enough.
fn arrived(file: &Path, uids: &BTreeSet<&str>, requests: &[Span]) -> Result<Vec<Span>> {
    let traces: BTreeSet<&str> = requests
        .iter()
        .flat_map(|span| &span.related)
        .filter(|related| related.what == "pod")
        .map(|related| &*related.link.trace_id)
        .collect();
    let read = || -> Result<Vec<Span>> {
        let mut spans = spans::read(file, 0)?;
        spans.retain(|span| {
            let is_meant = uids.contains(&*span.attribute("k8s.pod.uid")) || traces.contains(&*span.trace_id);
            span.name == "create Pod" && is_meant
        });
        Ok(spans)
    };
    let _ = wait_until("creations to arrive", ARRIVAL, || Ok((read()?.len() >= uids.len()).then_some(())));
    read()
}

/// Checks that the reconciles of ReplicaSets, and no others of these queues, lead to the reconcile of the Deployment that created
/// them, by the UID where they have seen it.
pub(super) fn chain(pods: &[Value], reconciles: &[Span], requests: &[Span]) -> Result<()> {
    let by_id: BTreeMap<_, _> = reconciles.iter().map(|span| (id(span), span)).collect();
    let mut creators = BTreeMap::new();
    for request in requests.iter().filter(|span| span.name == "POST replicasets") {
        let [name, uid, status] = ["k8s.object.name", "k8s.object.uid", "http.response.status_code"]
            .map(|key| request.attribute(key));
        if status == "201" {
            let by = by_id[&(&*request.trace_id, &*request.parent_span_id)];
            ensure!(
                by.attribute("k8s.workqueue.name") == "deployment",
                "{name} was created by another queue"
            );
            creators.insert(format!("default/{name}"), (uid, by, request));
        }
    }
    for pod in pods {
        let owner = &pod["metadata"]["ownerReferences"][0];
        let [kind, name, uid] =
            ["kind", "name", "uid"].map(|field| owner[field].as_str().unwrap_or_default());
        if kind == "ReplicaSet" {
            let known = creators.get(&format!("default/{name}")).map(|(uid, ..)| &**uid);
            ensure!(known == Some(uid), "{name} has the UID {uid}, and the request got {known:?}");
        }
    }
    let mut evidences = BTreeMap::<_, usize>::new();
    for reconcile in reconciles {
        let [queue, key] = ["k8s.workqueue.name", "k8s.workqueue.key"].map(|key| reconcile.attribute(key));
        let links: Vec<_> = reconcile.related.iter().filter(|related| related.what == "creator").collect();
        match &*queue {
            "replicaset" => {
                let (uid, by, request) =
                    creators.get(&key).with_context(|| format!("nothing created {key}"))?;
                let [Related { evidence, link: Link { trace_id, span_id, .. }, .. }] = links[..] else {
                    let was_over = reconcile.end_time_unix_nano <= request.end_time_unix_nano;
                    ensure!(
                        was_over && links.is_empty(),
                        "a reconcile of {key} has {} creators",
                        links.len()
                    );
                    continue;
                };
                ensure!((&**trace_id, &**span_id) == id(by), "{key} has another creator");
                let has_seen = |span: &&Span| {
                    (&*span.trace_id, &*span.parent_span_id) == id(reconcile)
                        && span.attribute("k8s.object.uid") == *uid
                };
                let expected = if requests.iter().any(|span| has_seen(&span)) { "uid" } else { "name" };
                ensure!(evidence == expected, "the creator of {key} is known by {evidence}");
                *evidences.entry(expected).or_default() += 1;
            }
            "deployment" | "job" => ensure!(links.is_empty(), "a reconcile of {key} has a creator"),
            _ => {}
        }
    }
    ensure!(evidences.contains_key("uid"), "no creator is known by the UID: {evidences:?}");
    println!("         reconciles of {} ReplicaSets lead to their Deployment: {evidences:?}", creators.len());
    Ok(())
}

/// Checks that creations are below the lifecycles of their Pods, as far as these have ended. Returns how many have.
pub(super) fn in_lifecycles(file: &Path, creations: &[Span], wanted: usize) -> Result<usize> {
    let read = || -> Result<BTreeMap<String, Span>> {
        let mut spans = spans::read(file, 0)?;
        spans.retain(|span| span.name == "PodLifecycle");
        Ok(spans.into_iter().map(|span| (span.attribute("k8s.pod.uid"), span)).collect())
    };
    let of = |lives: &BTreeMap<String, Span>| {
        let with = creations.iter().filter_map(|creation| {
            lives.get(&creation.attribute("k8s.pod.uid")).map(|life| (creation.clone(), life.clone()))
        });
        with.collect::<Vec<_>>()
    };
    let _ = wait_until("lifecycles to arrive", ARRIVAL, || Ok((of(&read()?).len() >= wanted).then_some(())));
    let both = of(&read()?);
    for (creation, life) in &both {
        let parent = (&*creation.trace_id, &*creation.parent_span_id);
        ensure!(parent == id(life), "the creation of {} is not below its lifecycle", creation.pod());
    }
    Ok(both.len())
}

/// Checks that the lifecycles of these Pods of one owner, their creations and the reconciles that created them are in one trace, and
/// nothing else is.
pub(super) fn of_owner(executable: &Path, file: &Path, pods: &[Value]) -> Result<()> {
    let uids: BTreeSet<_> = pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
    let read = || -> Result<Vec<Span>> {
        let all = spans::read(file, 0)?;
        let is_meant =
            |span: &&Span| uids.contains(&*span.attribute("k8s.pod.uid")) && span.name == "PodLifecycle";
        let traces: BTreeSet<_> = all.iter().filter(is_meant).map(|span| span.trace_id.clone()).collect();
        Ok(all.into_iter().filter(|span| traces.contains(&span.trace_id)).collect())
    };
    let named = |spans: &[Span], name| -> Vec<Span> {
        spans.iter().filter(|span| span.name == name).cloned().collect()
    };
    let all = wait_until("the lives of an owner's Pods", ARRIVAL, || {
        let spans = read()?;
        Ok((named(&spans, "PodLifecycle").len() == uids.len()).then_some(spans))
    })?;
    let traces: BTreeSet<_> = all.iter().map(|span| &*span.trace_id).collect();
    ensure!(traces.len() == 1, "the Pods of one owner are in {} traces", traces.len());
    let by_id: BTreeMap<_, _> = all.iter().map(|span| (id(span), span)).collect();
    ensure!(by_id.len() == all.len(), "two spans have the same ids");
    let [lives, creations, reconciles] =
        ["PodLifecycle", "create Pod", "Reconcile"].map(|name| named(&all, name));
    ensure!(creations.len() == uids.len(), "{} creations of {} Pods", creations.len(), uids.len());
    let mut by = BTreeSet::new();
    for creation in &creations {
        let life = by_id.get(&(&*creation.trace_id, &*creation.parent_span_id));
        let of = life.map(|life| life.attribute("k8s.pod.uid"));
        ensure!(of == Some(creation.attribute("k8s.pod.uid")), "a creation is below the lifecycle of {of:?}");
        let request = related(creation, "request")?;
        let request =
            by_id.get(&(&*request.trace_id, &*request.span_id)).context("its request is elsewhere")?;
        by.insert(&*request.parent_span_id);
    }
    let own: BTreeSet<_> = reconciles.iter().map(|span| &*span.span_id).collect();
    ensure!(own == by, "{} reconciles are in the trace, and {} created the Pods", own.len(), by.len());
    let roots = all.iter().filter(|span| span.parent_span_id.is_empty()).count();
    ensure!(roots == lives.len() + reconciles.len(), "{roots} roots");
    let pod = lives[0].pod();
    let drawn = process::output(Command::new(executable).args(["lifecycle", &*pod]).arg(file))?;
    let pictured = ["PodLifecycle", "create Pod"].map(|name| drawn.matches(name).count());
    ensure!(pictured == [1, 1], "the picture of {pod} has other Pods: {drawn}");
    let all = process::output(Command::new(executable).args(["lifecycle", "job/whole"]).arg(file))?;
    ensure!(all.contains(&format!("  {} Succeeded  ", lives.len())), "the picture of the Job: {all}");
    for (what, count) in [("Pod default/whole-", lives.len()), ("Reconcile", reconciles.len())] {
        ensure!(all.matches(what).count() == count, "there are not {count} of `{what}` in {all}");
    }
    println!(
        "         {} Pods of one owner and the {} reconciles that created them are in one trace of {} spans",
        lives.len(),
        reconciles.len(),
        all.len()
    );
    Ok(())
}

/// Checks that `schedspan lifecycle` draws a Pod with the reconcile that created it.
pub(super) fn drawn(executable: &Path, file: &Path, pod: &str) -> Result<()> {
    let text = process::output(Command::new(executable).args(["lifecycle", pod]).arg(file))?;
    for word in ["Reconcile", "POST pods", "create Pod", "PodLifecycle", "schedulingCycle"] {
        ensure!(text.contains(word), "`{word}` is not in {text}");
    }
    ensure!(text.starts_with("Succeeded after "), "it does not say what the time went to: {text}");
    text.lines().for_each(|line| println!("         {line}"));
    Ok(())
}

/// Its only link of this kind, which is known by a UID.
fn related<'a>(span: &'a Span, what: &str) -> Result<&'a Link> {
    let links: Vec<_> = span.related.iter().filter(|related| related.what == what).collect();
    let [Related { evidence, link, .. }] = links[..] else {
        anyhow::bail!("{} has {} links `{what}`", span.name, links.len())
    };
    ensure!(evidence == "uid", "a link `{what}` of {} is known by {evidence:?}", span.name);
    Ok(link)
}

fn id(span: &Span) -> (&str, &str) {
    (&span.trace_id, &span.span_id)
}
