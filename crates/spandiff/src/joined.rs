//! The lifecycle of a Pod from all collected spans: those of schedspan, of the API server, of the kubelet and of the client that
//! created the Pod, joined by trace, by `k8s.pod.uid` and by the API server's key of the Pod. Pure.

use std::collections::{HashMap, HashSet};

use spans::{
    AttributeValue, Attributes, Source, Span, SpanKind, Status, Trace, TraceKind, attributes,
    figures::duration,
};

use crate::{
    Shown, Span as Read,
    collected::{Id, id, lifecycle},
};

/// Longest time from the Pod's creation timestamp, a whole second, until the API server begins to write it.
pub(crate) const CREATED_WITHIN_NS: u64 = 2_000_000_000;
/// Spans shorter than this fraction of their part are counted on one line.
const SHORT: u64 = 20;
/// The kubelet's `syncPod` spans shorter than this fraction of the whole are counted on one line.
const SHORT_PART: u64 = 200;
/// Levels below the root of a part.
const LEVELS: usize = 2;
/// Attributes that are read as text.
const TEXTS: [&str; 12] = [
    attributes::USER,
    attributes::OBJECT_MANAGER,
    attributes::WORKQUEUE,
    attributes::WORKQUEUE_KEY,
    attributes::CONTROLLER,
    attributes::CONTROLLER_REQUEST,
    attributes::POD_NAMESPACE,
    attributes::POD_NAME,
    attributes::LIFECYCLE_RESULT,
    attributes::NODE,
    attributes::SELECTED_NODE,
    attributes::IMAGE,
];
const COUNTS: [&str; 4] = [
    attributes::LIFECYCLE_ATTEMPTS,
    attributes::LIFECYCLE_RESTARTS,
    attributes::VOLUMES,
    attributes::ATTEMPT,
];

/// The lifecycle of this Pod as one tree: the last one in the spans; `None` if there is none.
///
/// Spans that start after its end are left out, except deletions and evictions of the Pod: these say how long after it. The root is the client's span that created the Pod, if it was collected, and is
/// extended to contain everything that it caused.
#[must_use]
pub fn joined(spans: &[Read], namespace: &str, pod: &str) -> Option<Trace> {
    let is = |span: &&Read, key, value: &str| span.attribute(key) == value;
    let lifecycle = lifecycle(spans, namespace, pod)?;
    let uid = lifecycle.attribute(attributes::POD_UID);
    let key = format!("/pods/{namespace}/{pod}");
    let created = |span: &&Read| {
        let before = span.wall[0] <= lifecycle.wall[0].saturating_add(CREATED_WITHIN_NS);
        span.shows() == Shown::Create && span.attribute("key").ends_with(&key) && before
    };
    // Earlier Pods may have had the same name.
    let created = spans.iter().filter(created).max_by_key(|span| span.wall[0]);
    let about = spans.iter().filter(|span| is(span, attributes::POD_UID, uid)).chain(created);
    let traces: HashSet<_> = about.map(|span| &*span.trace_id).collect();
    let end = lifecycle.wall[1];
    let is_in_time =
        |span: &Read| span.wall[0] <= end || is_removal(span) && span.attribute(attributes::POD_UID) == uid;
    let taken: HashMap<Id<'_>, &Read> = spans
        .iter()
        .filter(|span| traces.contains(&*span.trace_id) && is_in_time(span))
        .map(|span| (id(span), span))
        .collect();
    let parent = |span: &Read| taken.get(&(&*span.trace_id, &*span.parent_id)).copied();
    // In a file two spans may be each other's parents.
    let top = std::iter::successors(Some(lifecycle), |span| parent(span)).take(taken.len()).last()?;
    let mut below: HashMap<Option<Id<'_>>, Vec<&Read>> = HashMap::new();
    for span in taken.values() {
        // The parent may be the call of a webhook, which ends before they start.
        let shown = span.shows();
        let outlasts = |parent: &&Read| {
            shown == Shown::LIFECYCLE || shown == Shown::ATTEMPT && parent.shows() != Shown::LIFECYCLE
        };
        let parent = parent(span).filter(|parent| !outlasts(parent));
        below.entry(parent.map(id)).or_default().push(span);
    }
    below.values_mut().for_each(|spans| spans.sort_by_key(|span| (span.wall, &*span.name)));

    let mut tree = Tree { spans: Vec::new(), below, uid, end };
    let start = tree.below.values().flatten().map(|span| span.wall[0]).min().unwrap_or(top.wall[0]);
    let root = tree.add(None, top, named(top));
    let whole = Span { start_unix_ns: start, end_unix_ns: end.max(top.wall[1]), ..tree.spans[root].clone() };
    // The head of a waterfall shows the root's attributes.
    tree.spans[root] = Span { attributes: shown(lifecycle), ..whole };
    let short = tree.spans[root].duration_ns() / SHORT_PART;
    // Spans without a collected parent belong to the root. Other Pods of an owner may be in the same trace.
    let is_other_pods =
        |span: &Read| span.shows() == Shown::LIFECYCLE && span.attribute(attributes::POD_UID) != uid;
    let is_own = |other: &&Read| id(other) != id(top) && !is_other_pods(other);
    let others = tree.below.remove(&None).unwrap_or_default().into_iter().filter(is_own);
    let mut parts = tree.below.remove(&Some(id(top))).unwrap_or_default();
    parts.extend(others);
    parts.sort_by_key(|span| span.wall);
    let (long, brief): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| {
        part.wall[1].saturating_sub(part.wall[0]) >= short || part.shows() != Shown::SyncPod
    });
    for part in long {
        let number = tree.add(Some(root), part, named(part));
        let short =
            if part.shows() == Shown::LIFECYCLE { 0 } else { tree.spans[number].duration_ns() / SHORT };
        tree.descend(part, number, short, LEVELS);
    }
    tree.fold(root, &brief);
    let trace_id = lifecycle.trace_id.as_slice().try_into().ok()?;
    tree.spans[root].kind = SpanKind::Root(TraceKind::Lifecycle);
    Some(Trace {
        kind: TraceKind::Lifecycle,
        source: Source::Schedspan,
        trace_id,
        parent: None,
        selected: None,
        spans: tree.spans,
        names: None,
        beside: Vec::new(),
    })
}

/// The id of the span with this number.
fn identity(number: usize) -> [u8; 8] {
    (number as u64 + 1).to_be_bytes()
}

pub(crate) struct Tree<'a> {
    pub(crate) spans: Vec<Span>,
    below: HashMap<Option<Id<'a>>, Vec<&'a Read>>,
    /// The Pod's.
    uid: &'a str,
    /// Of its lifecycle.
    end: u64,
}

impl<'a> Tree<'a> {
    /// Below a span that is in no file.
    pub(crate) fn new(root: Span) -> Self {
        Self {
            spans: vec![Span { span_id: identity(0), ..root }],
            below: HashMap::new(),
            uid: "",
            end: u64::MAX,
        }
    }

    /// Adds one line below the root that counts these.
    pub(crate) fn count(&mut self, spans: &[&Read], what: &str) {
        self.fold(0, spans);
        if !spans.is_empty()
            && let Some(line) = self.spans.last_mut()
        {
            line.kind = SpanKind::Other;
            line.name = format!("{what}: {}", spans.len()).into();
        }
    }

    /// Returns the span's number, which is its id here: ids of several traces may collide.
    pub(crate) fn add(&mut self, parent: Option<usize>, span: &Read, name: String) -> usize {
        let number = self.spans.len();
        let later_ns = span.wall[0].saturating_sub(self.end);
        let is_late = is_removal(span) && later_ns > 0;
        let name = if is_late { format!("{name} +{}", duration(later_ns)) } else { name };
        let kind = match span.shows() {
            Shown::Known(kind) => kind,
            Shown::Filter | Shown::Create | Shown::SyncPod | Shown::Unknown => SpanKind::Other,
        };
        self.spans.push(Span {
            kind,
            span_id: identity(number),
            parent_id: parent.map(identity),
            name: name.into(),
            start_unix_ns: span.wall[0],
            end_unix_ns: span.wall[1].max(span.wall[0]),
            attributes: shown(span),
            events: vec![],
            links: vec![],
            status: if span.failed { Status::Error(String::new()) } else { Status::Unset },
        });
        number
    }

    fn descend(&mut self, span: &'a Read, number: usize, short: u64, levels: usize) {
        let mut below = self.below.remove(&Some(id(span))).unwrap_or_default();
        // The API server's filters are nested: the innermost one calls the handler of the request.
        while let [.., filter] = below[..]
            && filter.shows() == Shown::Filter
            && let Some(called) = self.below.remove(&Some(id(filter)))
        {
            below.pop();
            below.extend(called);
        }
        // A reconcile may create many Pods: the request of this one is shown, however short it is, and those of others are not.
        let is_request = |span: &Read| !span.attribute(attributes::REQUEST_RESOURCE).is_empty();
        let worth = |span: &Read| match span.attribute(attributes::POD_UID) {
            uid if !uid.is_empty() && is_request(span) => uid == self.uid,
            _ => span.wall[1].saturating_sub(span.wall[0]) >= short,
        };
        let (long, brief): (Vec<_>, Vec<_>) = below.into_iter().partition(|span| levels > 0 && worth(span));
        for child in long {
            let number = self.add(Some(number), child, plain(&child.name));
            self.descend(child, number, short, levels - 1);
        }
        if levels > 0 {
            self.fold(number, &brief);
        }
    }

    /// Adds one line for several short spans.
    fn fold(&mut self, parent: usize, brief: &[&Read]) {
        let Some(first) = brief.first() else { return };
        let same = brief.iter().all(|span| span.name == first.name);
        let one = plain(&first.name);
        let name = match brief.len() {
            1 => one,
            count => format!("{count} {}", if same { &*one } else { "short ones" }),
        };
        let last = brief.iter().map(|span| span.wall[1]).max().unwrap_or_default();
        let number = self.add(Some(parent), first, name);
        let span = &mut self.spans[number];
        span.end_unix_ns = last.max(span.start_unix_ns);
        span.attributes.clear();
        if brief.len() > 1 {
            span.kind = SpanKind::Other;
        }
    }
}

/// Whether a span is the deletion or eviction of a Pod.
fn is_removal(span: &Read) -> bool {
    [TraceKind::PodDeletion, TraceKind::PodEviction]
        .map(|kind| Shown::Known(SpanKind::Root(kind)))
        .contains(&span.shows())
}

/// Name of a span, with its service.
pub(crate) fn named(span: &Read) -> String {
    match &*span.service {
        "" | "schedspan" | "kube-scheduler" => plain(&span.name),
        service => format!("{service}: {}", plain(&span.name)),
    }
}

/// Calls and requests of other tracers in the words of schedspan's own, which are shorter: `RunPodSandbox` for
/// `runtime.v1.RuntimeService/RunPodSandbox`, `POST pods` for `POST /api/v1/namespaces/{:namespace}/pods`.
fn plain(name: &str) -> String {
    if let Some((service, method)) = name.split_once('/')
        && service.contains('.')
        && !service.contains(' ')
    {
        return method.to_owned();
    }
    let Some((method, path)) = name.split_once(" /") else { return name.to_owned() };
    let parts: Vec<_> = path.split('/').collect();
    let (["api", _, about @ ..] | ["apis", _, _, about @ ..]) = &parts[..] else { return name.to_owned() };
    let about = match about {
        ["namespaces", _, within @ ..] if !within.is_empty() => within,
        about => about,
    };
    let words: Vec<_> = about.iter().copied().filter(|part| !part.starts_with('{')).collect();
    if words.is_empty() { name.to_owned() } else { format!("{method} {}", words.join("/")) }
}

fn shown(span: &Read) -> Attributes {
    let found = |key: &&'static str| Some((*key, span.attributes.get(*key)?.as_str()));
    let mut list: Attributes = TEXTS.iter().filter_map(found).map(|(key, text)| (key, text.into())).collect();
    let counts = COUNTS.iter().filter_map(found);
    list.extend(counts.filter_map(|(key, text)| Some((key, AttributeValue::Int(text.parse().ok()?)))));
    if span.attribute(attributes::INCOMPLETE) == "true" {
        list.push((attributes::INCOMPLETE, AttributeValue::Bool(true)));
    }
    list
}

#[cfg(test)]
mod tests {
    use spans::export::{Style, waterfall};
    use spans::names::LIFECYCLE;
    use spans::names::{POD_CREATION, POD_DELETION, POD_EVICTION, POD_START, POD_STORAGE, RECONCILE};

    use super::*;

    fn read(trace: u8, id: u8, parent: u8, name: &str, service: &str, wall: [u64; 2]) -> Read {
        Read {
            trace_id: vec![trace; 16],
            span_id: vec![id; 8],
            parent_id: if parent == 0 { vec![] } else { vec![parent; 8] },
            name: name.to_owned(),
            service: service.into(),
            wall: wall.map(|ms| ms * 1_000_000),
            ..Read::default()
        }
    }

    fn with(mut span: Read, attributes: &[(&str, &str)]) -> Read {
        span.attributes =
            attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        span
    }

    fn drawn(spans: &[Read]) -> String {
        let style = Style { width: 100, colour: false, plugins: false };
        waterfall(&joined(spans, "default", "shop").expect("there is a lifecycle"), &style)
    }

    #[test]
    fn all_tracers_form_one_picture_in_any_order() {
        let uid = (attributes::POD_UID, "u");
        let pod = [
            uid,
            (attributes::POD_NAME, "shop"),
            (attributes::POD_NAMESPACE, "default"),
            (attributes::LIFECYCLE_RESULT, "Ready"),
            (attributes::VOLUMES, "3"),
        ];
        let spans = [
            read(1, 1, 0, "deploy", "ci", [0, 2_000]),
            read(1, 2, 1, "POST /api/v1/namespaces/{:namespace}/pods", "apiserver", [2, 12]),
            read(1, 7, 2, "audit", "apiserver", [2, 12]),
            read(1, 8, 7, "authorization", "apiserver", [2, 12]),
            read(1, 3, 8, "Create", "apiserver", [3, 11]),
            read(1, 4, 7, "SerializeObject", "apiserver", [2, 2]),
            with(read(1, 5, 1, LIFECYCLE, "schedspan", [10, 1_900]), &pod),
            with(read(1, 6, 5, "kubelet", "schedspan", [40, 900]), &[]),
            // A separate trace with the same UID.
            with(read(2, 1, 0, "syncPod", "kubelet", [50, 1_000]), &[uid]),
            read(2, 2, 1, "runtime.v1.RuntimeService/RunPodSandbox", "kubelet", [60, 700]),
            with(read(3, 1, 0, "syncPod", "kubelet", [1_100, 1_101]), &[uid]),
            with(read(4, 1, 0, "syncPod", "kubelet", [1_200, 1_201]), &[uid]),
            // After the lifecycle; another Pod's.
            with(read(5, 1, 0, "syncPod", "kubelet", [3_000, 3_001]), &[uid]),
            with(read(6, 1, 0, "syncPod", "kubelet", [60, 70]), &[(attributes::POD_UID, "v")]),
        ];
        let text = drawn(&spans);
        assert_eq!(
            text.lines().next(),
            Some("default/shop  Ready  2.00 s  3 volumes  trace 01010101010101010101010101010101")
        );
        assert_eq!(
            names(&text),
            [
                "ci: deploy",
                "├─ apiserver: POST pods",
                "│  ├─ Create",
                "│  └─ SerializeObject",
                "├─ PodLifecycle",
                "│  └─ kubelet",
                "├─ kubelet: syncPod",
                "│  └─ RunPodSandbox",
                "└─ 2 syncPod",
            ]
        );

        // The parent may be a call of a webhook.
        let mut injected = spans.to_vec();
        injected[6].parent_id = injected[5].span_id.clone();
        assert_eq!(drawn(&injected), text);
        // An earlier Pod had the same name.
        let earlier =
            with(read(8, 1, 0, "Create etcd3", "apiserver", [0, 1]), &[("key", "/pods/default/shop")]);
        let later =
            with(read(1, 9, 3, "Create etcd3", "apiserver", [3, 11]), &[("key", "/pods/default/shop")]);
        let both = [&spans[..], &[earlier, later.clone()]].concat();
        assert_eq!(drawn(&both), drawn(&[&spans[..], &[later]].concat()));

        // A lifecycle without a parent is the root, and the API server's key leads to the request.
        let mut apart = spans.to_vec();
        apart[6].trace_id = vec![9; 16];
        apart[6].parent_id.clear();
        apart[7].trace_id = vec![9; 16];
        apart[4] =
            with(read(1, 3, 8, "Create etcd3", "apiserver", [3, 11]), &[("key", "/pods/default/shop")]);
        let text = drawn(&apart);
        assert!(text.contains("\nPodLifecycle ") && text.contains("├─ ci: deploy"), "{text}");
    }

    #[test]
    fn calls_and_requests_of_other_tracers_have_short_names() {
        for (name, short) in [
            ("runtime.v1.RuntimeService/RunPodSandbox", "RunPodSandbox"),
            ("POST /api/v1/namespaces/{:namespace}/pods/{:name}/binding", "POST pods/binding"),
            ("PATCH /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}", "PATCH deployments"),
            ("GET /api/v1/namespaces/{:namespace}", "GET namespaces"),
            ("GET /api/v1/nodes/{:name}", "GET nodes"),
            ("GET /healthz", "GET /healthz"),
            ("GET /api/", "GET /api/"),
            ("POST pods", "POST pods"),
            ("api call: a/b", "api call: a/b"),
            ("", ""),
        ] {
            assert_eq!(plain(name), short);
        }
    }

    #[test]
    fn the_reconcile_that_created_the_pod_is_drawn_with_its_request_and_without_those_of_other_pods() {
        let uid = (attributes::POD_UID, "u");
        let pod = [
            uid,
            (attributes::POD_NAME, "shop"),
            (attributes::POD_NAMESPACE, "default"),
            (attributes::LIFECYCLE_RESULT, "Ready"),
        ];
        let by = [(attributes::WORKQUEUE, "replicaset"), (attributes::WORKQUEUE_KEY, "default/shop-1")];
        let pods = (attributes::REQUEST_RESOURCE, "pods");
        let manager = "kube-controller-manager";
        let request = |id, uid, wall| {
            with(read(2, id, 1, "POST pods", manager, wall), &[(attributes::POD_UID, uid), pods])
        };
        let spans = [
            with(read(2, 1, 0, RECONCILE, manager, [0, 200]), &by),
            request(2, "u", [5, 9]),
            request(3, "v", [10, 60]),
            request(4, "w", [10, 60]),
            with(read(1, 1, 9, POD_CREATION, manager, [5, 9]), &[&[uid][..], &by].concat()),
            with(read(1, 9, 0, LIFECYCLE, "schedspan", [7, 900]), &pod),
            with(read(3, 1, 0, "SchedulePod", "kube-scheduler", [20, 40]), &[uid]),
            with(read(1, 5, 9, POD_START, "kubelet", [60, 900]), &[uid]),
            read(1, 6, 5, "admit", "kubelet", [60, 200]),
        ];
        let text = drawn(&spans);
        let words: Vec<_> = text
            .lines()
            .skip(2)
            .map(|line| {
                let words = line.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic));
                words.filter(|word| !["ms", "us"].contains(word)).collect::<Vec<_>>().join(" ")
            })
            .collect();
        assert_eq!(
            words,
            [
                "PodLifecycle",
                "kube-controller-manager: Reconcile replicaset default/shop-1",
                "POST pods",
                "POST pods",
                "kube-controller-manager: create Pod replicaset default/shop-1",
                "SchedulePod",
                "kubelet: StartPod",
                "admit",
            ],
            "{text}"
        );
        assert!(text.contains("─ 2 POST pods "), "{text}");
    }

    #[test]
    fn a_deletion_is_drawn_however_much_later_it_was_and_those_of_other_pods_are_not() {
        let of = |uid| [(attributes::POD_UID, uid), (attributes::WORKQUEUE, "replicaset")];
        let pod = [
            (attributes::POD_UID, "u"),
            (attributes::POD_NAME, "shop"),
            (attributes::POD_NAMESPACE, "default"),
        ];
        let manager = "kube-controller-manager";
        let spans = [
            with(read(1, 9, 0, LIFECYCLE, "schedspan", [7, 900]), &pod),
            with(read(1, 2, 9, POD_EVICTION, "operator", [500, 510]), &of("u")),
            with(read(1, 3, 9, POD_DELETION, manager, [62_900, 62_910]), &of("u")),
            with(read(1, 4, 8, POD_DELETION, manager, [62_900, 62_910]), &of("v")),
            with(read(2, 1, 0, RECONCILE, manager, [62_890, 62_920]), &of("")),
            with(read(2, 2, 1, "DELETE pods", manager, [62_900, 62_910]), &of("u")),
        ];
        let text = drawn(&spans);
        let expected =
            ["PodLifecycle", "├─ operator: evict Pod", "└─ kube-controller-manager: delete Pod +62.0 s"];
        assert_eq!(names(&text), expected, "{text}");
        assert!(text.ends_with("10.0 ms  replicaset\n"), "{text}");
    }

    /// What stands left of the bars.
    fn names(text: &str) -> Vec<&str> {
        let is_bar = |character| ('\u{2588}'..='\u{258f}').contains(&character);
        text.lines().skip(2).map(|line| line.split(is_bar).next().unwrap_or_default().trim_end()).collect()
    }

    #[test]
    fn other_pods_in_the_trace_of_an_owner_are_not_in_the_picture() {
        let of = |uid, name| {
            [(attributes::POD_UID, uid), (attributes::POD_NAME, name), (attributes::POD_NAMESPACE, "default")]
        };
        let spans = [
            read(1, 1, 0, RECONCILE, "kube-controller-manager", [0, 20]),
            with(read(1, 2, 0, LIFECYCLE, "schedspan", [1, 900]), &of("u", "shop")),
            with(read(1, 3, 0, LIFECYCLE, "schedspan", [1, 800]), &of("v", "other")),
            read(1, 4, 3, "of another Pod", "schedspan", [2, 700]),
        ];
        let text = drawn(&spans);
        assert!(text.contains("kube-controller-manager: Reconcile"), "{text}");
        assert_eq!((text.matches(LIFECYCLE).count(), text.contains("another Pod")), (1, false), "{text}");
    }

    #[test]
    fn the_creation_in_the_api_server_says_who_asked() {
        let uid = (attributes::POD_UID, "u");
        let pod = [uid, (attributes::POD_NAME, "shop"), (attributes::POD_NAMESPACE, "default")];
        let who = [uid, (attributes::USER, "alice"), (attributes::OBJECT_MANAGER, "kubectl")];
        let spans = [
            with(read(1, 1, 0, LIFECYCLE, "schedspan", [50, 900]), &pod),
            with(read(1, 2, 1, POD_STORAGE, "kube-apiserver", [0, 48]), &who),
            read(1, 3, 2, "validating admission", "kube-apiserver", [1, 40]),
            read(1, 4, 3, "webhook: limits", "kube-apiserver", [2, 39]),
            read(1, 5, 2, "Create etcd3", "kube-apiserver", [41, 48]),
        ];
        let text = drawn(&spans);
        let expected = [
            "PodLifecycle",
            "└─ kube-apiserver: StorePod",
            "   ├─ validating admission",
            "   │  └─ webhook: limits",
            "   └─ Create etcd3",
        ];
        assert_eq!(names(&text), expected, "{text}");
        assert!(text.contains("by alice with kubectl"), "{text}");
    }

    #[test]
    fn a_file_with_inconsistent_spans_is_drawn() {
        let pod = [
            (attributes::POD_UID, ""),
            (attributes::POD_NAME, "shop"),
            (attributes::POD_NAMESPACE, "default"),
        ];
        let spans = [
            with(read(1, 1, 2, LIFECYCLE, "", [10, 5]), &pod),
            read(1, 2, 1, "each other's parent", "", [7, 3]),
            read(1, 3, 3, "its own", "", [0, u64::MAX / 1_000_000]),
            read(1, 1, 2, "twice", "", [0, 1]),
        ];
        assert!(!drawn(&spans).is_empty());
        assert_eq!(joined(&spans, "default", "other"), None);
    }
}
