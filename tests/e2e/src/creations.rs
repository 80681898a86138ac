//! What reconciles create, change and delete: each Pod has its creation and deletion in its own trace, and a reconcile leads to those
//! that created its object and wrote it last.

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
/// Most Pods of a workload that are drawn.
const DRAWN: usize = 12;
/// The queue of the garbage collector's deletions.
const GARBAGE: &str = "garbage_collector_attempt_to_delete";
/// Queues whose reconciles are about objects that reconciles write, and their resources.
const WRITTEN: [(&str, &str); 3] =
    [("deployment", "deployments"), ("replicaset", "replicasets"), ("job", "jobs")];

/// Checks that each of these Pods has one creation, which is linked with the request of its owner's reconcile and back.
pub(super) fn of_pods(
    file: &Path,
    pods: &[Value],
    reconciles: &[Span],
    requests: &[Span],
) -> Result<Vec<Span>> {
    let uids: BTreeSet<_> = pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
    let all = arrived(file, "create Pod", &uids, requests)?;
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

/// The spans of this name of these Pods, and whatever others these requests lead to, once there are enough.
fn arrived(file: &Path, name: &str, uids: &BTreeSet<&str>, requests: &[Span]) -> Result<Vec<Span>> {
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
            span.name == name && is_meant
        });
        Ok(spans)
    };
    let _ =
        wait_until("parts of traces to arrive", ARRIVAL, || Ok((read()?.len() >= uids.len()).then_some(())));
    read()
}

/// Checks that each of these Pods of a ReplicaSet has its deletion in the trace of its creation, linked with the request and back: so many
/// by the ReplicaSet's reconcile, the others by the garbage collector. Returns how many requests deleted Pods.
pub(super) fn deletions(
    file: &Path,
    pods: &[Value],
    reconciles: &[Span],
    requests: &[Span],
    by_owner: usize,
) -> Result<usize> {
    let uids: BTreeSet<_> = pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
    let [deletions, creations] =
        ["delete Pod", "create Pod"].map(|name| arrived(file, name, &uids, requests));
    let (deletions, creations) = (deletions?, creations?);
    let requests: BTreeMap<_, _> = requests.iter().map(|span| (id(span), span)).collect();
    let reconciles: BTreeMap<_, _> = reconciles.iter().map(|span| (id(span), span)).collect();
    let mut ids = BTreeSet::new();
    let mut by = BTreeMap::<String, BTreeSet<&str>>::new();
    for deletion in &deletions {
        let uid = deletion.attribute("k8s.pod.uid");
        let pod = pods.iter().find(|pod| pod["metadata"]["uid"] == uid);
        let pod = pod.with_context(|| format!("a Pod with the UID {uid} was deleted"))?;
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        ensure!(ids.insert(id(deletion)), "two deletions of {name} have the same ids");
        let creation = creations.iter().find(|creation| creation.attribute("k8s.pod.uid") == uid);
        let place = |span: &Span| (span.trace_id.clone(), span.parent_span_id.clone());
        ensure!(
            creation.map(place) == Some(place(deletion)),
            "the deletion of {name} is not beside its creation"
        );
        let about = ["k8s.pod.name", "k8s.namespace.name"].map(|key| deletion.attribute(key));
        ensure!(about == [name, "default"], "the deletion of {name} says {about:?}");
        let request = related(deletion, "request")?;
        let request = requests.get(&(&*request.trace_id, &*request.span_id));
        let request = request.with_context(|| format!("no request deleted {name}"))?;
        let about = ["k8s.pod.uid", "k8s.object.uid"].map(|key| request.attribute(key));
        ensure!(request.name == "DELETE pods" && about == [&*uid; 2], "another request deleted {name}");
        let back = related(request, "pod")?;
        ensure!((&*back.trace_id, &*back.span_id) == id(deletion), "the request leads to another Pod");
        let reconcile = reconciles.get(&(&*request.trace_id, &*request.parent_span_id));
        let reconcile = reconcile.with_context(|| format!("no reconcile deleted {name}"))?;
        let [queue, key] = ["k8s.workqueue.name", "k8s.workqueue.key"].map(|key| reconcile.attribute(key));
        ensure!(
            [&queue, &key]
                == ["k8s.workqueue.name", "k8s.workqueue.key"].map(|key| deletion.attribute(key)).each_ref(),
            "the deletion of {name} names another reconcile"
        );
        let owner =
            format!("default/{}", pod["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default());
        ensure!(queue == GARBAGE || key == owner, "{name} was deleted by {queue} {key}");
        by.entry(queue).or_default().insert(pod["metadata"]["uid"].as_str().unwrap_or_default());
    }
    let own = by.get("replicaset").map_or(0, BTreeSet::len);
    ensure!(own == by_owner, "{own} Pods were deleted by the ReplicaSet, not {by_owner}");
    let gone: BTreeSet<_> = by.values().flatten().copied().collect();
    ensure!(gone == uids, "{} of {} Pods have a deletion: {by:?}", gone.len(), uids.len());
    let is_done = |span: &&&Span| span.attribute("http.response.status_code") == "200";
    let made = requests.values().filter(|span| span.name == "DELETE pods").filter(is_done).count();
    ensure!(
        made == deletions.len(),
        "{made} requests deleted Pods, and there are {} deletions",
        deletions.len()
    );
    let named: BTreeSet<_> = requests
        .values()
        .filter(|span| ["POST replicasets", "DELETE replicasets"].contains(&&*span.name))
        .filter(|span| ["200", "201"].contains(&&*span.attribute("http.response.status_code")))
        .map(|span| (span.name.clone(), span.attribute("k8s.object.uid")))
        .collect();
    let of =
        |name: &str| named.iter().filter(|(of, _)| of == name).map(|(_, uid)| uid).collect::<BTreeSet<_>>();
    let [created, deleted] = ["POST replicasets", "DELETE replicasets"].map(of);
    ensure!(
        !deleted.is_empty() && deleted.is_subset(&created),
        "ReplicaSets were deleted with the UIDs {deleted:?}, and created with {created:?}"
    );
    println!(
        "         {} Pods have their deletion beside their creation: {own} by the ReplicaSet, {} by the garbage collector",
        gone.len(),
        gone.len() - own
    );
    Ok(made)
}

/// Checks that each reconcile that is linked to the last writer of its object leads to one that wrote that object before it was over, and
/// that those of ReplicaSets lead to the Deployment that scaled them.
pub(super) fn writers(reconciles: &[Span], requests: &[Span]) -> Result<()> {
    let by_id: BTreeMap<_, _> = reconciles.iter().map(|span| (id(span), span)).collect();
    let below = |reconcile: &Span| {
        let is_below = |span: &&Span| (&*span.trace_id, &*span.parent_span_id) == id(reconcile);
        requests.iter().filter(is_below).collect::<Vec<_>>()
    };
    let (mut evidences, mut scaled) = (BTreeMap::<_, usize>::new(), BTreeSet::new());
    for reconcile in reconciles {
        let [queue, key] = ["k8s.workqueue.name", "k8s.workqueue.key"].map(|key| reconcile.attribute(key));
        let mut links = reconcile.related.iter().filter(|related| related.what == "writer");
        let Some(Related { evidence, link: Link { trace_id, span_id, .. }, .. }) = links.next() else {
            continue;
        };
        ensure!(links.next().is_none(), "a reconcile of {queue} {key} has two last writers");
        let Some((_, resource)) = WRITTEN.into_iter().find(|(known, _)| *known == queue) else { continue };
        let is_about = |span: &&&Span| {
            let [namespace, name] = ["k8s.namespace.name", "k8s.object.name"].map(|key| span.attribute(key));
            span.attribute("k8s.request.resource") == resource && format!("{namespace}/{name}") == key
        };
        let by = by_id.get(&(&**trace_id, &**span_id));
        let by = by.with_context(|| format!("the writer of {queue} {key} is no reconcile"))?;
        let own = below(by);
        let wrote = own
            .iter()
            .filter(is_about)
            .filter(|span| crate::requests::write(span).is_some() && span.attribute("error.type").is_empty());
        let first = wrote.map(|span| span.start_time_unix_nano).min();
        ensure!(
            first.is_some_and(|first| first < reconcile.end_time_unix_nano)
                && by.span_id != reconcile.span_id,
            "the reconcile that wrote {queue} {key} last did not write it before"
        );
        let has_seen =
            below(reconcile).iter().filter(is_about).any(|span| !span.attribute("k8s.object.uid").is_empty());
        let expected = if has_seen { "uid" } else { "name" };
        ensure!(evidence == expected, "the writer of {queue} {key} is known by {evidence}");
        let of = by.attribute("k8s.workqueue.name");
        if (&*queue, &*of, by.attribute("k8s.workqueue.key").as_str())
            == ("replicaset", "deployment", "default/web")
        {
            scaled.insert(id(by));
        }
        *evidences.entry((queue, of)).or_default() += 1;
    }
    // It grew and shrank.
    ensure!(scaled.len() >= 2, "reconciles of the ReplicaSet lead to {} that scaled it", scaled.len());
    println!("         reconciles lead to the last writer of their object: {evidences:?}");
    Ok(())
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

/// Checks that the lifecycles of these Pods of one owner, their creations and the reconciles that created them are in one trace, and no
/// other ones are; and that they are drawn as this workload's, of which so many ended so.
pub(super) fn of_owner(
    executable: &Path,
    file: &Path,
    pods: &[Value],
    workload: &str,
    ended: &str,
) -> Result<()> {
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
    let mut show = Command::new(executable);
    let picture = process::output(show.args(["lifecycle", workload]).arg(file).env("COLUMNS", "140"))?;
    ensure!(picture.contains(&format!("  {ended}  ")), "the picture of {workload}: {picture}");
    let shown = lives.len().min(DRAWN);
    for (what, count) in [("Pod default/", shown), ("Reconcile", reconciles.len())] {
        ensure!(picture.matches(what).count() == count, "there are not {count} of `{what}` in {picture}");
    }
    println!(
        "         {} Pods of one owner and the {} reconciles that created them are in one trace of {} spans",
        lives.len(),
        reconciles.len(),
        all.len()
    );
    Ok(())
}

/// Checks that `schedspan lifecycle` draws a Pod with the reconcile that created it, and with its deletion.
pub(super) fn drawn(executable: &Path, file: &Path, pod: &Value) -> Result<()> {
    let [name, uid] = ["name", "uid"].map(|field| pod["metadata"][field].as_str().unwrap_or_default());
    arrived(file, "delete Pod", &[uid].into(), &[])?;
    let text = process::output(Command::new(executable).args(["lifecycle", name]).arg(file))?;
    for word in ["Reconcile", "POST pods", "create Pod", "PodLifecycle", "schedulingCycle", "delete Pod +"] {
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
