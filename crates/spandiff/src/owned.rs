//! The Pods of a workload in one picture: the slowest, and how many more. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
};

use spans::{
    Attributes, Source, Span, SpanKind, Status, Trace, TraceKind, attributes, export::Pods, text::clean,
};

use crate::{
    Shown, Span as Read,
    collected::{Collected, id},
    explained::{Explained, explain},
    joined::{Tree, named},
};

/// Pods, and reconciles that created Pods, that are shown: the slowest of the former, the first of the latter.
const MAX_SHOWN: usize = 12;
/// Spans shorter than this fraction of their Pod's lifecycle are not shown.
const SHORT: u64 = 20;

/// The Pods of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Owned {
    /// The reconciles that created them, and the slowest Pods with what took long, in the order of their starts.
    pub trace: Trace,
    /// What the time of the slowest Pods went to, the slowest first.
    pub pods: Vec<Explained>,
    /// How many Pods there are, by how their lifecycles ended.
    pub results: BTreeMap<String, u64>,
    /// How many of them are not shown.
    pub further: u64,
}

/// The Pods of this namespace that are asked for; `None` if there are none.
#[must_use]
pub fn owned(spans: &[Read], namespace: &str, pods: &Pods) -> Option<Owned> {
    let is_asked_for = |span: &&Read| {
        let owners = span.attribute(attributes::OWNERS).split(", ");
        span.shows() == Shown::LIFECYCLE
            && span.attribute(attributes::POD_NAMESPACE) == namespace
            && pods.include(span.attribute(attributes::POD_NAME), owners)
    };
    let mut by_uid = HashMap::<&str, &Read>::new();
    for lifecycle in spans.iter().filter(is_asked_for) {
        // Two daemons may have reported it.
        let known = by_uid.entry(lifecycle.attribute(attributes::POD_UID)).or_insert(lifecycle);
        if known.wall[1] < lifecycle.wall[1] {
            *known = lifecycle;
        }
    }
    let mut results = BTreeMap::<String, u64>::new();
    for lifecycle in by_uid.values() {
        *results.entry(clean(lifecycle.attribute(attributes::LIFECYCLE_RESULT))).or_default() += 1;
    }
    let long = |span: &Read| span.wall[1].saturating_sub(span.wall[0]);
    let mut slowest: Vec<_> = by_uid.values().copied().collect();
    slowest.sort_by_key(|span| (Reverse(long(span)), span.attribute(attributes::POD_NAME)));
    let others = slowest.split_off(slowest.len().min(MAX_SHOWN));
    let collected: Vec<_> = slowest.iter().map(|lifecycle| Collected::of(spans, lifecycle)).collect();
    let mut in_order: Vec<_> = collected.iter().collect();
    in_order.sort_by_key(|pod| (pod.lifecycle.wall, pod.lifecycle.attribute(attributes::POD_NAME)));
    let reconciles = reconciles(spans, &by_uid);

    let all = || by_uid.values().copied().chain(reconciles.iter().copied());
    let start = all().map(|span| span.wall[0]).min()?;
    let end = all().map(|span| span.wall[1]).max()?;
    let mut tree = Tree::new(root(&format!("{namespace} {pods}"), &results, [start, end]));
    let (first, more) = reconciles.split_at(reconciles.len().min(MAX_SHOWN));
    for reconcile in first {
        tree.add(Some(0), reconcile, named(reconcile));
    }
    tree.count(more, "further reconciles");
    for pod in in_order {
        let lifecycle = pod.lifecycle;
        let name = format!("Pod {namespace}/{}", lifecycle.attribute(attributes::POD_NAME));
        let number = tree.add(Some(0), lifecycle, name);
        let starts =
            pod.about.iter().filter(|span| span.shows() == Shown::Known(SpanKind::Root(TraceKind::PodStart)));
        let starts =
            starts.copied().filter(|start| pod.parent(start).is_none_or(|above| id(above) != id(lifecycle)));
        let mut parts: Vec<_> = pod.below(lifecycle).iter().copied().chain(starts).collect();
        parts.sort_by_key(|span| (span.wall, &*span.name));
        for part in parts.into_iter().filter(|part| long(part) >= long(lifecycle) / SHORT) {
            tree.add(Some(number), part, named(part));
        }
    }
    tree.count(&others, "further Pods, which were quicker");
    let trace = Trace {
        kind: TraceKind::Command,
        source: Source::Schedspan,
        trace_id: slowest.first()?.trace_id.as_slice().try_into().ok()?,
        parent: None,
        selected: None,
        spans: tree.spans,
        names: None,
        beside: Vec::new(),
    };
    let pods = collected.iter().map(explain).collect();
    Some(Owned { trace, pods, results, further: others.len() as u64 })
}

/// The reconciles with requests that created these Pods, in the order of their starts.
fn reconciles<'a>(spans: &'a [Read], pods: &HashMap<&str, &Read>) -> Vec<&'a Read> {
    let is_creation = |span: &&Read| {
        span.name.starts_with("POST ") && pods.contains_key(span.attribute(attributes::POD_UID))
    };
    let parents: HashSet<_> =
        spans.iter().filter(is_creation).map(|span| (&*span.trace_id, &*span.parent_id)).collect();
    let is_reconcile = |span: &&Read| {
        span.shows() == Shown::Known(SpanKind::Root(TraceKind::Reconcile)) && parents.contains(&id(span))
    };
    let mut reconciles: Vec<_> = spans.iter().filter(is_reconcile).collect();
    reconciles.sort_by_key(|span| (span.wall, &*span.name));
    reconciles
}

fn root(name: &str, results: &BTreeMap<String, u64>, [start, end]: [u64; 2]) -> Span {
    let said: Vec<_> = results.iter().map(|(result, count)| format!("{count} {result}")).collect();
    let is_well = |result: &str| ["Ready", "Running", "Succeeded"].contains(&result);
    let said = said.join(", ");
    let all: u64 = results.values().sum();
    let others: u64 = results.iter().filter(|(result, _)| !is_well(result)).map(|(_, count)| count).sum();
    let status = match others {
        0 => Status::Unset,
        _ => Status::Error(format!("{others} of {all} Pods did not become Ready")),
    };
    Span {
        kind: SpanKind::Root(TraceKind::Command),
        span_id: [0; 8],
        parent_id: None,
        name: name.to_owned().into(),
        start_unix_ns: start,
        end_unix_ns: end.max(start),
        attributes: Attributes::from_iter([(attributes::LIFECYCLE_RESULT, said.as_str().into())]),
        events: Vec::new(),
        links: Vec::new(),
        status,
    }
}

#[cfg(test)]
mod tests {
    use spans::{
        export::{Style, waterfall},
        names::{LIFECYCLE, POD_START, RECONCILE, ROOT},
    };

    use super::*;

    fn span(trace: u8, id: u8, parent: u8, name: &str, wall: [u64; 2], attributes: &[(&str, &str)]) -> Read {
        Read {
            trace_id: vec![trace; 16],
            span_id: vec![id; 8],
            parent_id: if parent == 0 { vec![] } else { vec![parent; 8] },
            name: name.to_owned(),
            wall: wall.map(|ms| ms * 1_000_000),
            attributes: attributes
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            ..Read::default()
        }
    }

    /// A Pod of the Job with this number: the later, the slower.
    fn pod(number: u8, result: &str) -> Vec<Read> {
        let (uid, name) = (format!("u-{number}"), format!("once-{number}"));
        let end = 1_000 * u64::from(number);
        let about = [
            (attributes::POD_UID, &*uid),
            (attributes::POD_NAME, &*name),
            (attributes::POD_NAMESPACE, "shop"),
            (attributes::OWNERS, "Job/once, Queue/x"),
            (attributes::LIFECYCLE_RESULT, result),
        ];
        vec![
            span(number, 1, 0, LIFECYCLE, [100, end], &about),
            span(number, 2, 1, "queued", [100, 101], &[]),
            span(number, 3, 1, ROOT, [101, 102], &[]),
            span(number, 4, 1, "container: main", [110, end], &[]),
            span(number, 5, 9, POD_START, [105, end - 1], &about[..1]),
            span(number, 6, 0, RECONCILE, [0, 90], &[(attributes::WORKQUEUE, "job")]),
            span(number, 7, 6, "POST pods", [10, 20], &about[..1]),
        ]
    }

    fn of(spans: &[Read], pods: &str) -> Option<Owned> {
        owned(spans, "shop", &pods.parse().expect("it names Pods"))
    }

    fn lines(owned: &Owned) -> Vec<String> {
        let text = waterfall(&owned.trace, &Style { width: 100, colour: false, plugins: false });
        let rows =
            text.lines().skip_while(|line| !line.starts_with("shop job/once ") || line.contains("  trace "));
        rows.map(|line| line.split(['█', '▏', '▎']).next().unwrap_or_default().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn a_few_pods_are_all_there_with_what_took_long() {
        let spans = [pod(2, "Succeeded"), pod(1, "Failed")].concat();
        let owned = of(&spans, "job/once").expect("there are Pods");
        let head = waterfall(&owned.trace, &Style { width: 100, colour: false, plugins: false });
        assert!(head.starts_with("shop job/once  1 Failed, 1 Succeeded  2.00 s"), "{head}");
        assert!(head.contains("\n  1 of 2 Pods did not become Ready\n"), "{head}");
        assert_eq!(
            lines(&owned),
            [
                "shop job/once",
                "├─ Reconcile",
                "├─ Reconcile",
                "├─ Pod shop/once-1",
                "│  ├─ StartPod",
                "│  └─ container: main",
                "└─ Pod shop/once-2",
                "   ├─ StartPod",
                "   └─ container: main",
            ]
        );
        let said: Vec<_> = owned.pods.iter().map(|pod| &*pod.sentence).collect();
        assert!(
            said[0].starts_with("Succeeded after 1.90 s: ") && said[1].starts_with("Failed after 900 ms: "),
            "{said:?}"
        );
        assert_eq!(
            (of(&spans, "job/other"), of(&spans, "once-*").map(|owned| owned.pods.len())),
            (None, Some(2))
        );
    }

    #[test]
    fn of_many_the_slowest_are_drawn_and_the_others_counted() {
        let spans: Vec<_> = (1..=40).flat_map(|number| pod(number, "Ready")).collect();
        let owned = of(&spans, "jobs/once").expect("there are Pods");
        assert_eq!((owned.pods.len(), owned.further, &owned.results["Ready"]), (12, 28, &40));
        assert_eq!(owned.pods[0].pod, "once-40");
        let lines = lines(&owned);
        assert_eq!(lines[13], "├─ further reconciles: 28");
        assert_eq!(lines.last().map(String::as_str), Some("└─ further Pods, which were quicker: 28"));
        assert!(
            !lines.contains(&"├─ Pod shop/once-28".to_owned())
                && lines.contains(&"├─ Pod shop/once-29".to_owned())
        );
    }

    #[test]
    fn a_lifecycle_that_two_daemons_reported_is_one_pod() {
        let mut spans = pod(3, "Ready");
        spans.extend(pod(3, "Ready"));
        assert_eq!(of(&spans, "job/once").map(|owned| owned.results["Ready"]), Some(1));
    }
}
