//! The kubelet's own spans, with tracing on, next to schedspan's of the same calls.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
};

use anyhow::{Result, bail, ensure};
use harness::spans::Span;

/// The scope of schedspan's spans.
const OWN: &str = "schedspan";
/// Calls of which both make spans.
pub(super) const CALLS: [&str; 5] =
    ["syncPod", "RunPodSandbox", "PullImage", "CreateContainer", "StartContainer"];
/// By how much schedspan's spans may begin earlier than the kubelet's, in the median.
const EARLIER_NS: u64 = 1_000_000;

/// By how much spans begin before others that lie within them, and end after these, nanoseconds.
#[derive(Default)]
pub(super) struct Distances {
    begins: Vec<u64>,
    ends: Vec<u64>,
}

impl Distances {
    /// Of a span and one within it.
    pub(super) fn add(&mut self, outer: [u64; 2], inner: [u64; 2]) {
        self.begins.push(inner[0].saturating_sub(outer[0]));
        self.ends.push(outer[1].saturating_sub(inner[1]));
    }
}

impl Display for Distances {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let [begin, end] = [&self.begins, &self.ends].map(|ns| median(ns) as f64 / 1e3);
        write!(
            out,
            "{} calls lie within, from {begin:.0} us after the begin to {end:.0} us before the end",
            self.begins.len()
        )
    }
}

/// The middle one; 0 of none.
fn median(ns: &[u64]) -> u64 {
    let mut sorted = ns.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Checks that each of these spans, of Pods with these UIDs, has the kubelet's own one of the same call within it, which begins soon
/// after it. Says by how much it is longer.
pub(super) fn within(calls: &[(&str, &Span)], spans: &[Span]) -> Result<String> {
    let others: BTreeMap<_, _> =
        spans.iter().filter(|span| span.scope != OWN).map(|span| (id(span), span)).collect();
    let mut by_call = BTreeMap::<_, Vec<&Span>>::new();
    for span in others.values() {
        let name = span.name.rsplit('/').next().unwrap_or_default();
        by_call.entry((name, pod_of(span, &others))).or_default().push(span);
    }
    let mut distances = Distances::default();
    for (uid, call) in calls {
        let same = by_call.get(&(&*call.name, (*uid).to_owned())).map_or(&[][..], Vec::as_slice);
        let inside: Vec<_> = same.iter().filter(|span| call.holds(span)).collect();
        let times = |span: &Span| [span.start_time_unix_nano, span.end_time_unix_nano];
        let [inside] = inside[..] else {
            let same: Vec<_> = same.iter().map(|span| times(span)).collect();
            bail!(
                "{} of the Pod {uid} is {:?}, and {} of the kubelet's own spans {same:?} lie within it",
                call.name,
                times(call),
                inside.len()
            )
        };
        distances.add(times(call), times(inside));
    }
    let earlier = median(&distances.begins);
    ensure!(earlier <= EARLIER_NS, "schedspan's spans begin {earlier} ns before the kubelet's own");
    Ok(format!("the kubelet's own spans of {distances}"))
}

fn id(span: &Span) -> (&str, &str) {
    (&span.trace_id, &span.span_id)
}

/// The UID of the Pod that a span is about, or one above it.
fn pod_of(span: &Span, all: &BTreeMap<(&str, &str), &Span>) -> String {
    let (mut span, mut above) = (span, 0..all.len());
    loop {
        let uid = span.attribute("k8s.pod.uid");
        let parent = all.get(&(&*span.trace_id, &*span.parent_span_id));
        // In a file two spans may be each other's parents.
        match parent.filter(|_| uid.is_empty() && above.next().is_some()) {
            Some(parent) => span = parent,
            None => return uid,
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::spans;

    use super::*;

    /// Scope, id, parent, name, UID and times.
    type Line<'a> = (&'a str, u8, u8, &'a str, &'a str, [u64; 2]);

    /// Spans as the Collector writes them.
    fn collected(list: &[Line<'_>]) -> Vec<Span> {
        let path = std::env::temp_dir().join(format!("schedspan-native-{}", std::process::id()));
        let path = path.with_extension(format!("{:?}", std::thread::current().id()));
        let lines: String = list
            .iter()
            .map(|(scope, id, parent, name, uid, [start, end])| {
                let parent = if *parent == 0 { String::new() } else { format!("{parent:02x}") };
                let uid = serde_json::json!({ "key": "k8s.pod.uid", "value": { "stringValue": uid } });
                let span = serde_json::json!({
                    "traceId": "01", "spanId": format!("{id:02x}"), "parentSpanId": parent, "name": name,
                    "startTimeUnixNano": start.to_string(), "endTimeUnixNano": end.to_string(), "attributes": [uid],
                });
                let scopes = serde_json::json!([{ "scope": { "name": scope }, "spans": [span] }]);
                format!("{}\n", serde_json::json!({ "resourceSpans": [{ "scopeSpans": scopes }] }))
            })
            .collect();
        std::fs::write(&path, lines).expect("the folder can be written to");
        let spans = spans::read(&path, 0);
        std::fs::remove_file(&path).expect("it was written");
        spans.expect("the lines are OTLP")
    }

    fn compared(begin: u64, others: &[Line<'_>]) -> Result<String> {
        let own = ("schedspan", 1, 0, "RunPodSandbox", "u", [begin, 9_000_000]);
        let spans = collected(&[&[own], others].concat());
        within(&[("u", &spans[0])], &spans)
    }

    #[test]
    fn a_call_is_that_of_the_pod_whose_sync_is_above_it() {
        let call = "runtime.v1.RuntimeService/RunPodSandbox";
        let of = |uid| {
            [
                ("kubelet", 2, 0, "syncPod", uid, [1, 9_500_000]),
                ("otelgrpc", 3, 2, call, "", [2_000_000, 8_000_000]),
            ]
        };
        let said = compared(1_500_000, &of("u")).expect("it lies within");
        assert!(said.contains("of 1 calls lie within, from 500 us after the begin to 1000 us"), "{said}");
        assert!(compared(1_500_000, &of("v")).is_err());
        let late = compared(999_999, &of("u")).expect_err("it begins too early").to_string();
        assert_eq!(late, "schedspan's spans begin 1000001 ns before the kubelet's own");
    }

    #[test]
    fn a_call_that_is_not_there_or_sticks_out_or_is_there_twice_is_an_error() {
        let call = |id, times| ("otelgrpc", id, 0, "runtime.v1.RuntimeService/RunPodSandbox", "u", times);
        assert!(compared(1, &[]).is_err());
        for [start, end] in [[0, 5], [5, 9_000_001]] {
            let error = compared(1, &[call(2, [start, end])]).expect_err("it sticks out").to_string();
            assert!(error.contains("0 of the kubelet's own spans [["), "{error}");
        }
        assert!(compared(1, &[call(2, [2, 3]), call(3, [4, 5])]).is_err());
        // schedspan's own spans are none of the kubelet's.
        assert!(compared(1, &[("schedspan", 2, 0, "RunPodSandbox", "u", [2, 3])]).is_err());
    }

    #[test]
    fn spans_that_are_each_others_parents_are_of_no_pod() {
        let spans = [("k", 2, 3, "RunPodSandbox", "", [2, 3]), ("k", 3, 2, "RunPodSandbox", "", [2, 3])];
        assert!(compared(1, &spans).is_err());
    }
}
