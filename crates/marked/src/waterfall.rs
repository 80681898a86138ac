//! A command, its requests and the Pods that come of them as one trace. Pure.

use std::collections::HashMap;

use spans::{
    AttributeValue, Attributes, Source, Span, SpanKind, Stage, Status, Trace, TraceKind, attributes, names,
    text::Name,
};

use crate::proxy::Sent;

/// Pods that are drawn: the slowest.
const MAX_PODS: usize = 12;
/// Requests that are drawn, if they write.
const MAX_WRITES: usize = 12;
/// Spans of an attempt, other than its cycles, that are shorter than this fraction of the Pod's lifecycle are not drawn.
const SHORT: u64 = 20;
/// Letters of a command that are drawn.
const MAX_NAME: usize = 60;

/// What is drawn. Times are nanoseconds since the Unix epoch.
#[derive(Debug)]
pub struct Drawn<'a> {
    /// Id of the requests' trace.
    pub trace_id: [u8; 16],
    /// Arguments of kubectl.
    pub arguments: &'a str,
    /// When kubectl began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Its requests.
    pub requests: &'a [Sent],
    /// The lifecycles of Pods.
    pub lifecycles: &'a [Trace],
    /// Attempts to schedule, of these and of other Pods.
    pub attempts: &'a [Trace],
    /// How far the Pods are.
    pub result: String,
    /// Why they are no further; empty if they are Ready.
    pub reason: String,
}

impl Drawn<'_> {
    /// The trace: the command above its requests and the lifecycles, and each attempt within the lifecycle of its Pod.
    #[must_use]
    pub fn trace(&self) -> Trace {
        let Self { trace_id, arguments, start_ns, end_ns, requests, lifecycles, attempts, result, reason } =
            self;
        let last = lifecycles.iter().map(|trace| trace.root().end_unix_ns).fold(*end_ns, u64::max);
        // A lifecycle begins with its Pod, of which the API says the second.
        let first = lifecycles.iter().map(|trace| trace.root().start_unix_ns).fold(*start_ns, u64::min);
        let mut tree = Tree(Vec::new());
        let kind = TraceKind::Command;
        let name = cut(&format!("{} {arguments}", names::COMMAND));
        let root = tree.add(None, SpanKind::Root(kind), name, (first, last));
        tree.0[root].attributes = vec![(attributes::LIFECYCLE_RESULT, (&**result).into())].into();
        if !reason.is_empty() {
            tree.0[root].status = Status::Error(reason.clone());
        }
        let (writes, reads): (Vec<_>, Vec<_>) = requests.iter().partition(|request| request.writes);
        tree.fold(root, "reads", reads.iter().map(|read| (read.start_ns, read.end_ns)));
        for Sent { name, start_ns, end_ns, failed, writes: _ } in writes.iter().take(MAX_WRITES) {
            let number = tree.add(Some(root), SpanKind::Other, cut(name), (*start_ns, *end_ns));
            tree.0[number].status = failed.clone().map_or(Status::Unset, Status::Error);
        }
        let more = writes.iter().skip(MAX_WRITES).map(|write| (write.start_ns, write.end_ns));
        tree.fold(root, "further writes", more);

        let mut slowest: Vec<_> = lifecycles.iter().collect();
        slowest.sort_by_key(|trace| std::cmp::Reverse(trace.root().end_unix_ns));
        let others = slowest.split_off(slowest.len().min(MAX_PODS));
        slowest.sort_by_key(|trace| (trace.root().start_unix_ns, trace.root().end_unix_ns));
        let attempts: HashMap<_, _> =
            attempts.iter().map(|attempt| (attempt.root().span_id, attempt)).collect();
        for lifecycle in slowest {
            tree.lifecycle(root, lifecycle, &attempts);
        }
        let others = others.iter().map(|trace| (trace.root().start_unix_ns, trace.root().end_unix_ns));
        tree.fold(root, "further Pods, which were quicker", others);
        Trace {
            kind,
            source: Source::Schedspan,
            trace_id: *trace_id,
            parent: None,
            selected: None,
            spans: tree.0,
            names: None,
            beside: Vec::new(),
        }
    }
}

fn cut(name: &str) -> Name {
    let mut letters = name.chars();
    let mut short: String = letters.by_ref().take(MAX_NAME).collect();
    if letters.next().is_some() {
        // A terminal gets ASCII.
        short.push_str("...");
    }
    short.into()
}

/// The spans. A span's id is its number: ids of several traces may be the same.
struct Tree(Vec<Span>);

fn identity(number: usize) -> [u8; 8] {
    (number as u64 + 1).to_be_bytes()
}

impl Tree {
    /// Adds a span, within its parent. Returns its number.
    fn add(&mut self, parent: Option<usize>, kind: SpanKind, name: Name, (start, end): (u64, u64)) -> usize {
        let number = self.0.len();
        let (from, to) = parent.map_or((start, end.max(start)), |parent| {
            (self.0[parent].start_unix_ns, self.0[parent].end_unix_ns)
        });
        let start = start.clamp(from, to);
        self.0.push(Span {
            kind,
            span_id: identity(number),
            parent_id: parent.map(identity),
            name,
            start_unix_ns: start,
            end_unix_ns: end.clamp(start, to),
            attributes: Attributes::new(),
            events: Vec::new(),
            links: Vec::new(),
            status: Status::Unset,
        });
        number
    }

    /// One line for several spans.
    fn fold(&mut self, parent: usize, what: &str, times: impl Iterator<Item = (u64, u64)>) {
        let (count, start, end) = times.fold((0, u64::MAX, 0), |(count, start, end), time| {
            (count + 1, time.0.min(start), time.1.max(end))
        });
        if count > 0 {
            self.add(Some(parent), SpanKind::Other, format!("{what}: {count}").into(), (start, end));
        }
    }

    /// A copy of a span of another trace.
    fn copy(&mut self, parent: usize, span: &Span, name: Name) -> usize {
        let number = self.add(Some(parent), span.kind, name, (span.start_unix_ns, span.end_unix_ns));
        self.0[number].attributes.clone_from(&span.attributes);
        self.0[number].status.clone_from(&span.status);
        number
    }

    fn lifecycle(&mut self, root: usize, lifecycle: &Trace, attempts: &HashMap<[u8; 8], &Trace>) {
        let of = lifecycle.root();
        let text = |key| of.attribute(key).map(AttributeValue::to_string).unwrap_or_default();
        let name = format!("Pod {}/{}", text(attributes::POD_NAMESPACE), text(attributes::POD_NAME));
        let mut numbers = HashMap::from([(of.span_id, self.copy(root, of, name.into()))]);
        let short = of.duration_ns() / SHORT;
        for span in &lifecycle.spans[1..] {
            let Some(parent) = span.parent_id.and_then(|parent| numbers.get(&parent).copied()) else {
                continue;
            };
            let number = self.copy(parent, span, span.name.clone());
            numbers.insert(span.span_id, number);
            let attempt = span.links.iter().find_map(|link| attempts.get(&link.context.span_id));
            if span.kind == SpanKind::Stage(Stage::Attempt)
                && let Some(attempt) = attempt
            {
                self.attempt(number, attempt, short);
            }
        }
    }

    /// The cycles of an attempt, and what takes long in them.
    fn attempt(&mut self, number: usize, attempt: &Trace, short: u64) {
        let mut numbers = HashMap::from([(attempt.root().span_id, number)]);
        for span in &attempt.spans[1..] {
            let Some(parent) = span.parent_id.and_then(|parent| numbers.get(&parent).copied()) else {
                continue;
            };
            let is_cycle = matches!(span.kind, SpanKind::Cycle(_));
            if is_cycle || span.duration_ns() >= short.max(1) {
                numbers.insert(span.span_id, self.copy(parent, span, span.name.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spans::{
        Link, Relation,
        export::{Style, waterfall},
        fixtures::scheduled,
    };
    use tracecontext::RemoteContext;

    use super::*;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_795_219_199_900 * MS;

    fn span(kind: SpanKind, id: u8, parent: Option<u8>, name: &str, (start, end): (u64, u64)) -> Span {
        Span {
            kind,
            span_id: [id; 8],
            parent_id: parent.map(|parent| [parent; 8]),
            name: name.to_owned().into(),
            start_unix_ns: START + start * MS,
            end_unix_ns: START + end * MS,
            attributes: Attributes::new(),
            events: vec![],
            links: vec![],
            status: Status::Unset,
        }
    }

    fn lifecycle(name: &str, end: u64, attempt: &Trace) -> Trace {
        let mut root = span(SpanKind::Root(TraceKind::Lifecycle), 1, None, "PodLifecycle", (60, end));
        root.attributes = vec![
            (attributes::POD_NAMESPACE, "shop".into()),
            (attributes::POD_NAME, name.into()),
            (attributes::LIFECYCLE_RESULT, "Ready".into()),
            (attributes::NODE, "node-1".into()),
        ]
        .into();
        let mut tried = span(SpanKind::Stage(Stage::Attempt), 2, Some(1), names::ROOT, (100, 105));
        let context = RemoteContext::sampled(attempt.trace_id, attempt.root().span_id);
        tried.links.push(Link { context, relation: Relation::Attempt });
        let kubelet = span(SpanKind::Stage(Stage::Kubelet), 3, Some(1), "kubelet", (105, end));
        let (kind, source) = (TraceKind::Lifecycle, Source::Schedspan);
        Trace {
            kind,
            source,
            trace_id: [7; 16],
            parent: None,
            selected: None,
            spans: vec![root, tried, kubelet],
            names: None,
            beside: Vec::new(),
        }
    }

    fn sent(name: &str, writes: bool, start: u64, end: u64) -> Sent {
        Sent {
            name: name.to_owned(),
            writes,
            start_ns: START + start * MS,
            end_ns: START + end * MS,
            failed: None,
        }
    }

    fn drawn(lifecycles: &[Trace], attempts: &[Trace], reason: &str) -> Trace {
        let requests = [
            sent("GET /api", false, 5, 10),
            sent("GET /apis", false, 10, 20),
            sent("PATCH deployments/web", true, 20, 50),
        ];
        Drawn {
            trace_id: [0xab; 16],
            arguments: "apply -f web.yaml",
            start_ns: START,
            end_ns: START + 55 * MS,
            requests: &requests,
            lifecycles,
            attempts,
            result: "2 of 2 Pods are Ready".to_owned(),
            reason: reason.to_owned(),
        }
        .trace()
    }

    fn names(trace: &Trace) -> Vec<String> {
        let text = waterfall(trace, &Style { width: 100, colour: false, plugins: false });
        let before = |line: &str| {
            line.split(['█', '▏', '▎', '▍', '▌', '▋', '▊', '▉']).next().map(str::trim_end).map(str::to_owned)
        };
        text.lines().filter(|line| !line.contains('╷')).filter_map(before).collect()
    }

    #[test]
    fn a_command_its_requests_and_its_pods_are_one_waterfall() {
        let attempt = scheduled();
        let pods = [lifecycle("web-0", 900, &attempt), lifecycle("web-1", 1900, &attempt)];
        let with = names(&drawn(&pods, std::slice::from_ref(&attempt), ""));
        let [head, rest @ ..] = &with[..] else { panic!("nothing is drawn") };
        let id = "ab".repeat(16);
        assert_eq!(*head, format!("kubectl apply -f web.yaml  2 of 2 Pods are Ready  1.90 s  trace {id}"));
        assert_eq!(
            *rest,
            [
                "kubectl apply -f web.yaml",
                "├─ reads: 2",
                "├─ PATCH deployments/web",
                "├─ Pod shop/web-0",
                "│  ├─ SchedulePod",
                "│  │  ├─ schedulingCycle",
                "│  │  └─ bindingCycle",
                "│  └─ kubelet",
                "└─ Pod shop/web-1",
                "   ├─ SchedulePod",
                "   │  ├─ schedulingCycle",
                "   │  └─ bindingCycle",
                "   └─ kubelet",
            ]
        );
        // Without a daemon the Pods are the same.
        let without = names(&drawn(&pods, &[], ""));
        assert_eq!(without.iter().filter(|line| line.contains("Cycle")).count(), 0);
        assert_eq!(without.len() + 4, with.len());
    }

    #[test]
    fn of_many_pods_the_slowest_are_drawn_and_the_others_counted() {
        let attempt = scheduled();
        let pods: Vec<_> = (0..MAX_PODS as u64 + 3)
            .map(|number| lifecycle(&format!("web-{number}"), 1000 + number, &attempt))
            .collect();
        let lines = names(&drawn(&pods, &[], ""));
        assert_eq!(lines.iter().filter(|line| line.contains("─ Pod ")).count(), MAX_PODS);
        assert!(lines.last().unwrap().ends_with("further Pods, which were quicker: 3"), "{lines:?}");
        assert!(!lines.iter().any(|line| line.ends_with("web-2")), "{lines:?}");
    }

    #[test]
    fn what_keeps_pods_from_being_ready_is_said() {
        let text = waterfall(
            &drawn(&[], &[], "0/3 nodes are available"),
            &Style { width: 100, colour: false, plugins: false },
        );
        assert!(text.contains("\n  0/3 nodes are available\n"), "{text}");
    }

    #[test]
    fn no_span_is_outside_of_its_parent() {
        let attempt = scheduled();
        let mut early = lifecycle("web-0", 900, &attempt);
        early.spans[0].start_unix_ns = 5;
        early.spans[2].end_unix_ns = u64::MAX;
        let trace = drawn(&[early], std::slice::from_ref(&attempt), "");
        for span in &trace.spans[1..] {
            let parent = trace.spans.iter().find(|parent| Some(parent.span_id) == span.parent_id).unwrap();
            assert!(parent.start_unix_ns <= span.start_unix_ns && span.start_unix_ns <= span.end_unix_ns);
            assert!(span.end_unix_ns <= parent.end_unix_ns, "{span:?}");
        }
    }
}
