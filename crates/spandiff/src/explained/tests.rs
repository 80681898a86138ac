//! What is said of Pods.

use proptest::prelude::*;
use spans::names::{LIFECYCLE, POD_CREATION, POD_START, RECONCILE, ROOT};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A span of the Pod's trace, or of another; times are milliseconds.
fn span(id: u8, parent: u8, name: &str, wall: [u64; 2], attributes: &[(&str, &str)]) -> Read {
    Read {
        trace_id: vec![1; 16],
        span_id: vec![id; 8],
        parent_id: if parent == 0 { vec![] } else { vec![parent; 8] },
        name: name.to_owned(),
        wall: wall.map(|ms| 100 * SECOND + ms * 1_000_000),
        attributes: attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        ..Read::default()
    }
}

fn failed(span: Read, message: &str) -> Read {
    Read { failed: true, message: message.to_owned(), ..span }
}

const UID: (&str, &str) = (attributes::POD_UID, "u");

fn lifecycle(wall: [u64; 2], result: &str) -> Read {
    let pod = [
        UID,
        (attributes::POD_NAME, "web-0"),
        (attributes::POD_NAMESPACE, "shop"),
        (attributes::NODE, "node-3"),
        (attributes::LIFECYCLE_RESULT, result),
    ];
    span(1, 0, LIFECYCLE, wall, &pod)
}

/// A Pod that was unschedulable and in backoff, by its status and the scheduler alone.
fn by_status() -> Vec<Read> {
    let waits = [(attributes::QUEUE_UNSCHEDULABLE_MS, "2000"), (attributes::QUEUE_BACKOFF_MS, "9000")];
    let why = "0/3 nodes are available: 3 Insufficient cpu. preemption: none.";
    let mut container = span(7, 1, "container: web", [13_000, 44_000], &[]);
    container.reasons = ["ErrImagePull", "ImagePullBackOff", "Completed"].map(str::to_owned).to_vec();
    vec![
        lifecycle([0, 48_000], "Ready"),
        span(2, 1, "queued", [0, 1], &[]),
        failed(span(3, 1, ROOT, [1, 4], &[]), why),
        span(4, 1, "queued", [4, 11_010], &waits),
        span(5, 1, ROOT, [11_010, 11_013], &[]),
        span(6, 1, "kubelet", [11_013, 12_000], &[]),
        span(8, 1, "sandbox", [12_000, 13_000], &[]),
        container,
        span(9, 1, "ready", [44_000, 48_000], &[]),
    ]
}

fn said(spans: &[Read]) -> Explained {
    let explained = explained(spans, "shop", "web-0").expect("there is a lifecycle");
    assert_eq!(explained.parts.iter().map(|part| part.ns).sum::<u64>(), explained.total_ns, "{explained:?}");
    explained
}

fn ms(explained: &Explained, doing: Doing) -> u64 {
    explained.parts.iter().filter(|part| part.doing == doing).map(|part| part.ns / 1_000_000).sum()
}

#[test]
fn a_sentence_names_the_longest_parts_and_what_the_scheduler_took() {
    let explained = said(&by_status());
    assert_eq!(
        explained.sentence,
        "Ready after 48.0 s: 31.0 s starting the container web on node-3 because \"ErrImagePull, ImagePullBackOff\", \
         9.00 s in backoff because \"0/3 nodes are available: 3 Insufficient cpu\", 4.00 s waiting for readiness, \
         2.00 s unschedulable; the scheduler took 6.00 ms in 2 attempts."
    );
    assert_eq!((ms(&explained, Doing::Queue), ms(&explained, Doing::Unknown)), (7, 0));
}

/// The same Pod, with the spans of its kubelet: an image that could be pulled at the second try.
fn with_kubelet() -> Vec<Read> {
    let mut spans = by_status();
    let start = [UID, (attributes::LIFECYCLE_RESULT, "Ready")];
    let image = [(attributes::IMAGE, "nginx:1.29"), (attributes::IMAGE_PULLED, "true")];
    spans.extend([
        span(20, 1, POD_START, [11_100, 47_500], &start),
        span(21, 20, "admit", [11_100, 11_101], &[]),
        span(22, 20, "syncPod", [11_101, 14_000], &[]),
        span(23, 22, "volumes", [11_102, 11_602], &[]),
        span(24, 22, "sandbox", [11_602, 12_002], &[]),
        span(25, 24, "RunPodSandbox", [11_603, 12_001], &[]),
        span(26, 22, "init: schema", [12_002, 12_202], &[]),
        span(27, 20, "syncPod", [13_202, 13_900], &[]),
        failed(span(28, 27, "container: web", [13_202, 13_302], &[]), "ErrImagePull"),
        failed(span(29, 28, "image", [13_202, 13_301], &image), "no such host"),
        failed(span(37, 20, "container: web", [15_000, 15_001], &[]), "ImagePullBackOff"),
        failed(span(38, 37, "image", [15_000, 15_001], &image[..1]), "Back-off pulling image"),
        span(30, 20, "syncPod", [23_302, 47_000], &[]),
        span(31, 30, "container: web", [23_302, 46_602], &[]),
        span(32, 31, "image", [23_302, 46_302], &image),
        span(33, 32, "PullImage", [23_303, 46_301], &[]),
        span(34, 31, "CreateContainer", [46_302, 46_402], &[]),
        span(35, 31, "StartContainer", [46_402, 46_602], &[]),
        span(36, 20, "probe", [47_400, 47_500], &[]),
    ]);
    spans
}

#[test]
fn what_the_kubelet_did_is_more_specific_than_the_stages() {
    let explained = said(&with_kubelet());
    assert_eq!(
        explained.sentence,
        "Ready after 48.0 s: 23.1 s pulling nginx:1.29 on node-3, 10.0 s waiting for another try of nginx:1.29 because \
         \"no such host\", 9.00 s in backoff because \"0/3 nodes are available: 3 Insufficient cpu\", 2.00 s unschedulable, \
         3.90 s in shorter parts; the scheduler took 6.00 ms in 2 attempts."
    );
    for (doing, expected) in [
        (Doing::Kubelet, 87),
        (Doing::Admit, 1),
        (Doing::Volumes, 500),
        (Doing::Sandbox, 400),
        (Doing::InitContainer, 1_200),
        (Doing::Container, 301),
        (Doing::Readiness, 898),
        (Doing::Report, 500),
        (Doing::KubeletRest, 1),
        (Doing::Prepare, 0),
    ] {
        assert_eq!(ms(&explained, doing), expected, "{doing:?} of {:?}", explained.parts);
    }
}

#[test]
fn the_creation_belongs_to_it_and_the_wait_of_the_reconcile_comes_before() {
    let by = [(attributes::WORKQUEUE, "job"), (attributes::WORKQUEUE_KEY, "shop/once")];
    let request = [UID, (attributes::REQUEST_RESOURCE, "pods"), (attributes::REQUEST_LIMITED_MS, "400")];
    let of_reconcile = |span: Read| Read { trace_id: vec![2; 16], ..span };
    let spans = [
        lifecycle([1_000, 2_000], "Succeeded"),
        span(2, 1, "container: main", [1_000, 2_000], &[]),
        span(3, 1, POD_CREATION, [500, 1_010], &[&[UID][..], &by].concat()),
        of_reconcile(span(1, 0, RECONCILE, [490, 1_020], &[(attributes::WORKQUEUE_WAIT_MS, "750.5")])),
        of_reconcile(span(2, 1, "POST pods", [500, 1_010], &request)),
    ];
    assert_eq!(
        said(&spans).sentence,
        "Succeeded after 1.50 s: 990 ms running the container main on node-3, 400 ms in the rate limiter of job shop/once, \
         110 ms being created by job shop/once; before, job shop/once waited 750 ms in its work queue."
    );
    // With a clock that differs, nothing is known of it.
    let mut skewed = spans;
    skewed[2].wall = [900 * SECOND, 901 * SECOND];
    assert_eq!(said(&skewed).total_ns, SECOND);
}

#[test]
fn waits_within_an_attempt_are_no_work_of_the_scheduler() {
    let attempt = |span: Read| Read { trace_id: vec![3; 16], ..span };
    let spans = [
        lifecycle([0, 10_000], "Deleted"),
        span(2, 1, "gated", [0, 1_000], &[(attributes::GATES, "example.com/quota")]),
        span(3, 1, ROOT, [1_000, 9_000], &[]),
        span(4, 3, "bind volume claims", [4_000, 8_990], &[(attributes::CLAIMS, "data, logs")]),
        attempt(span(1, 0, ROOT, [1_000, 9_000], &[UID])),
        attempt(span(2, 1, "bindingCycle", [1_010, 9_000], &[])),
        attempt(span(3, 2, "waitOnPermit", [1_010, 4_000], &[])),
    ];
    assert_eq!(
        said(&spans).sentence,
        "Deleted after 10.0 s: 4.99 s waiting for the volume claims data, logs, 2.99 s waiting for a plugin's permit, \
         1.00 s held by the scheduling gates example.com/quota, 1.00 s in no span; the scheduler took 20.0 ms."
    );
}

#[test]
fn other_pods_in_the_trace_of_an_owner_are_not_counted() {
    let mut spans = by_status();
    let alone = said(&spans);
    spans.push(span(40, 1, POD_START, [0, 48_000], &[(attributes::POD_UID, "v")]));
    spans.push(span(41, 40, "volumes", [0, 48_000], &[]));
    spans.push(span(42, 0, ROOT, [0, 48_000], &[(attributes::POD_UID, "v")]));
    assert_eq!(said(&spans), alone);
    assert_eq!(explained(&spans, "shop", "web-1"), None);
}

#[test]
fn a_file_with_inconsistent_spans_is_explained() {
    let mut spans = with_kubelet();
    for span in &mut spans {
        span.wall.reverse();
        span.message = "\u{1b}[31m".repeat(100);
    }
    spans.push(span(50, 51, "container: ", [5, 3], &[UID]));
    spans.push(span(51, 50, "image", [3, 5], &[UID]));
    let mut open = spans.clone();
    open[0].wall = [0, u64::MAX];
    for spans in [spans, open] {
        let sentence = said(&spans).sentence;
        assert!(!sentence.chars().any(char::is_control), "{sentence}");
    }
}

#[test]
fn a_reason_is_one_sentence_and_not_too_long() {
    assert_eq!(reason("no. more"), "no");
    assert_eq!(reason("no."), "no");
    assert_eq!(reason(&"x".repeat(500)).len(), MAX_REASON + 3);
}

const NAMES: [&str; 18] = [
    LIFECYCLE,
    POD_CREATION,
    POD_START,
    RECONCILE,
    ROOT,
    "queued",
    "gated",
    "kubelet",
    "sandbox",
    "ready",
    "syncPod",
    "volumes",
    "init: a",
    "container: a",
    "container: b",
    "image",
    "PullImage",
    "probe",
];

/// Spans of any names, below any others, of this Pod and of others.
fn any_spans() -> impl Strategy<Value = Vec<Read>> {
    let text = prop_oneof![Just(""), Just("u"), Just("v"), Just("Ready"), Just("1500.5"), Just("true")];
    let keys = [
        attributes::POD_UID,
        attributes::LIFECYCLE_RESULT,
        attributes::QUEUE_BACKOFF_MS,
        attributes::QUEUE_UNSCHEDULABLE_MS,
        attributes::IMAGE_PULLED,
        attributes::IMAGE,
    ];
    let attributes = proptest::collection::vec((0..keys.len(), text), 0..4);
    let one = (0..NAMES.len(), 0..20_u8, [0..60_000_u64, 0..60_000_u64], attributes, any::<bool>());
    proptest::collection::vec(one, 0..40).prop_map(move |all| {
        let spans = (2..).zip(all).map(|(id, (name, parent, wall, list, failed))| {
            let list: Vec<_> = list.into_iter().map(|(key, text)| (keys[key], text)).collect();
            Read { failed, message: "no".to_owned(), ..span(id, parent, NAMES[name], wall, &list) }
        });
        [lifecycle([0, 48_000], "Ready")].into_iter().chain(spans).collect()
    })
}

proptest! {
    #[test]
    fn whatever_the_spans_the_parts_are_as_long_as_the_whole(spans in any_spans()) {
        let explained = said(&spans);
        prop_assert!(explained.parts.is_sorted_by(|one, other| one.ns >= other.ns) && explained.total_ns >= 48 * SECOND);
        prop_assert!(explained.parts.iter().all(|part| part.ns > 0));
        prop_assert!(explained.sentence.starts_with("Ready after ") && explained.sentence.ends_with('.'));
    }

    #[test]
    fn the_order_of_the_spans_in_the_files_does_not_matter(spans in any_spans(), by in 0..40_usize) {
        let mut other = spans.clone();
        other.rotate_left(by.min(spans.len()));
        prop_assert_eq!(said(&spans), said(&other));
    }
}
