//! API requests of reconciles: their spans equal what the API server wrote down, and what the process itself counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Result, ensure};
use harness::{
    audit::Write,
    metrics::Metrics,
    spans::{self, Span},
};

/// Attempts of requests by code and method, as client-go counts them.
pub(super) const TOTAL: &str = "rest_client_requests_total";
/// What a process with kube-controller-manager writes outside of its reconciles: events, and reviews of the clients that read its metrics.
const BESIDE: [&str; 3] = ["events", "tokenreviews", "subjectaccessreviews"];
/// Tokens of its controllers' own accounts: who needs one first asks for it, a reconcile or an informer.
const TOKENS: &str = "serviceaccounts";
const READS: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// Requests by method and code.
pub(super) type Codes = BTreeMap<[String; 2], f64>;

/// The spans of requests below these reconciles.
pub(super) fn of(file: &Path, reconciles: &[Span]) -> Result<Vec<Span>> {
    let parents: BTreeMap<_, _> = reconciles.iter().map(|span| (span.span_id.clone(), span)).collect();
    let mut requests = spans::read(file, 0)?;
    requests.retain(|span| parents.contains_key(&span.parent_span_id));
    for request in &requests {
        let Span { name, trace_id, parent_span_id, .. } = request;
        let reconcile = parents[parent_span_id];
        ensure!(
            *trace_id == reconcile.trace_id && reconcile.holds(request),
            "{name} is not within its reconcile"
        );
        ensure!(!request.attribute("http.request.method").is_empty(), "{name} has no method");
    }
    Ok(requests)
}

/// Checks that requests which a rate limiter made wait say for how long: of most of their time.
pub(super) fn limited<'a>(requests: impl Iterator<Item = &'a Span>) -> Result<()> {
    let (mut number, mut waits, mut durations) = (0, 0.0, 0.0);
    for request in requests {
        let wait: f64 = request.attribute("k8s.request.rate_limiter.wait_ms").parse()?;
        let duration = request.nanoseconds() as f64 / 1e6;
        ensure!(wait <= duration, "{} takes {duration} ms and waits {wait} ms of these", request.name);
        (number, waits, durations) = (number + 1, waits + wait, durations + duration);
    }
    println!("         {number} requests take {durations:.0} ms, and wait {waits:.0} ms for rate limiters");
    ensure!(waits > 0.8 * durations, "rate limiters are said to take {waits} ms of {durations} ms");
    Ok(())
}

/// Writes that a process counted.
pub(super) fn counted(metrics: &Metrics) -> Codes {
    let all = metrics.by(TOTAL, ["method", "code"]);
    all.into_iter().filter(|([method, _], count)| !READS.contains(&&**method) && *count > 0.0).collect()
}

/// Writes by method and code.
pub(super) fn by_code<'a>(writes: impl Iterator<Item = &'a Write>) -> Codes {
    let mut codes = Codes::new();
    for Write { method, code, .. } in writes {
        *codes.entry([method.clone(), code.clone()]).or_default() += 1.0;
    }
    codes
}

/// Checks that the API server has written down all that the process counted.
pub(super) fn all_audited(before: &Metrics, after: &Metrics, written: &[Write]) -> Result<()> {
    let [before, mut counted] = [before, after].map(counted);
    for (key, count) in before {
        *counted.entry(key).or_default() -= count;
    }
    counted.retain(|_, count| *count != 0.0);
    let audited = by_code(written.iter());
    ensure!(counted == audited, "{TOTAL} has grown by {counted:?}, and the API server has seen {audited:?}");
    Ok(())
}

/// Checks that the writes of reconciles, and no others, have spans.
pub(super) fn are(written: &[Write], requests: &[Span]) -> Result<()> {
    let of_reconciles = written.iter().filter(|write| !BESIDE.contains(&&*write.resource)).cloned();
    let is_token = |write: &Write| write.resource == TOKENS;
    let expected = counts(of_reconciles.filter(|write| !is_token(write)));
    let seen = counts(requests.iter().filter_map(write).filter(|write| !is_token(write)));
    println!("         {:<8} {:<24} {:<5} {:>6} {:>6}", "METHOD", "RESOURCE", "CODE", "SPANS", "AUDIT");
    let sides = [&seen, &expected].map(kinds);
    for key in sides.iter().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>() {
        let [spans, audit] = sides.each_ref().map(|side| side.get(key).copied().unwrap_or_default());
        let [method, resource, code] = key;
        println!("         {method:<8} {resource:<24} {code:<5} {spans:>6} {audit:>6}");
    }
    let [more, less] = [(&seen, &expected), (&expected, &seen)].map(|(one, other)| {
        let differ = one.iter().filter(|(write, count)| other.get(*write) != Some(*count));
        differ.take(5).collect::<Vec<_>>()
    });
    ensure!(seen == expected, "spans have {more:?}, and the audit log {less:?}");
    let beside = written.iter().filter(|write| BESIDE.contains(&&*write.resource));
    println!(
        "         {} writes of reconciles, {} beside them, {} reads",
        expected.values().sum::<usize>(),
        beside.count(),
        requests.iter().filter(|span| write(span).is_none()).count()
    );
    Ok(())
}

/// What the span of a write says; `None` for a read.
pub(super) fn write(span: &Span) -> Option<Write> {
    let attribute = |key: &str| span.attribute(key);
    let method = attribute("http.request.method");
    if READS.contains(&&*method) {
        return None;
    }
    Some(Write {
        resource: attribute("k8s.request.resource"),
        subresource: attribute("k8s.request.subresource"),
        namespace: attribute("k8s.namespace.name"),
        // Who creates an object may leave its name to the API server.
        name: if method == "POST" { String::new() } else { attribute("k8s.object.name") },
        code: attribute("http.response.status_code"),
        method,
    })
}

fn counts(writes: impl Iterator<Item = Write>) -> BTreeMap<Write, usize> {
    let mut counts = BTreeMap::new();
    writes.for_each(|write| *counts.entry(write).or_default() += 1);
    counts
}

/// The same by method, resource and code.
fn kinds(writes: &BTreeMap<Write, usize>) -> BTreeMap<[String; 3], usize> {
    let mut kinds = BTreeMap::new();
    for (Write { method, resource, subresource, code, .. }, count) in writes {
        let slash = if subresource.is_empty() { "" } else { "/" };
        let resource = format!("{resource}{slash}{subresource}");
        *kinds.entry([method.clone(), resource, code.clone()]).or_default() += count;
    }
    kinds
}
