//! A Pod of a Job, from the reconcile that created it to its start on the node, in one picture.
//!
//! `created.jsonl` is what daemons beside kube-controller-manager and kube-scheduler 1.36.4 wrote with `--output json`, without plugins
//! and most attributes. There was no kubelet: the two spans of its daemon are written by hand.

use std::path::Path;

use spandiff::{explained::explained, joined::joined, owned::owned, pods};
use spans::export::{Style, waterfall};

fn spans() -> Vec<spandiff::Span> {
    spandiff::file(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/created.jsonl"), None).unwrap()
}

#[test]
fn one_picture_has_the_reconcile_its_request_the_attempt_and_the_start() {
    let trace = joined(&spans(), "default", "once-gqr4q");
    let style = Style { width: 110, colour: false, plugins: false };
    let text = waterfall(&trace.expect("there is a lifecycle"), &style);
    let names =
        text.lines().skip(2).map(|line| line.split(['█', '▏', '▎']).next().unwrap_or_default().trim_end());
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "PodLifecycle",
            "├─ kube-controller-manager: Reconcile",
            "│  ├─ POST pods",
            "│  ├─ GET serviceaccounts",
            "│  ├─ POST serviceaccounts/token",
            "│  ├─ PUT jobs/status",
            "│  └─ POST pods",
            "├─ kube-controller-manager: create Pod",
            "├─ queued",
            "├─ SchedulePod",
            "├─ SchedulePod once-gqr4q",
            "│  ├─ schedulingCycle",
            "│  │  └─ filter",
            "│  └─ bindingCycle",
            "│     └─ bind",
            "├─ kubelet",
            "└─ kubelet: StartPod",
            "   └─ syncPod",
        ],
        "{text}"
    );
    assert_eq!(text.matches("job default/once").count(), 2, "{text}");
}

#[test]
fn one_sentence_says_what_its_time_went_to() {
    let explained = explained(&spans(), "default", "once-gqr4q").expect("there is a lifecycle");
    assert_eq!(
        explained.sentence,
        "Succeeded after 8.26 s: 8.17 s between the kubelet's steps on node-0001; the scheduler took 10.5 ms."
    );
    assert_eq!(explained.parts.iter().map(|part| part.ns).sum::<u64>(), explained.total_ns);
    let owned = owned(&spans(), "default", &"once-*".parse().unwrap()).expect("there is a lifecycle");
    assert_eq!((owned.pods, owned.further), (vec![explained], 0));
}

#[test]
fn the_pods_with_a_lifecycle_are_named() {
    assert_eq!(pods(&spans()).into_iter().collect::<Vec<_>>(), ["default/once-gqr4q"]);
    assert!(pods(&[]).is_empty());
}
