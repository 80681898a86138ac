//! Trees of spans, as indented text.

use super::*;
use crate::attempt::Pod;

const ANCHOR: Anchor = Anchor { unix_ns_at_zero: 1_000_000_000_000 };

fn call(function: Function, start_ns: u64, end_ns: u64, code: Option<Code>) -> Call {
    Call { function, start_ns, end_ns, code, returned: true }
}

/// An attempt that is bound; Permit returns `permit`.
fn bound(permit: Code) -> Attempt {
    let ok = Some(Code::SUCCESS);
    Attempt {
        target: 1,
        pod: Pod { uid: "u".into(), name: "web".into(), namespace: "shop".into(), profile: "default".into() },
        number: Some(2),
        start_ns: 1_000,
        end_ns: 9_000,
        enqueued_ns: Some(400),
        queue_timestamp: Some(ANCHOR.unix_ns_at_zero + 100),
        node: Some("node-7".into()),
        // In the order of their ends, as the assembler gives them.
        calls: vec![
            call(Function::PreFilter, 1_200, 1_300, ok),
            call(Function::Filter, 1_300, 1_400, None),
            call(Function::Filter, 1_400, 1_900, None),
            call(Function::Reserve, 2_000, 2_100, ok),
            call(Function::Permit, 2_200, 2_300, Some(permit)),
            call(Function::SchedulingCycle, 1_100, 2_400, None),
            call(Function::WaitOnPermit, 3_000, 4_000, ok),
            call(Function::PreBind, 4_000, 4_100, ok),
            call(Function::Bind, 4_200, 8_000, None),
            call(Function::PostBind, 8_100, 8_200, None),
            call(Function::BindingCycle, 2_900, 9_000, None),
        ],
        outcome: Outcome::Scheduled,
        incomplete: false,
    }
}

fn tree(trace: &Trace) -> String {
    fn depth(trace: &Trace, span: &Span) -> usize {
        let Some(parent) = span.parent_id else { return 0 };
        let parent = trace.spans.iter().find(|other| other.span_id == parent).expect("no orphans");
        assert!(parent.start_unix_ns <= span.start_unix_ns && span.end_unix_ns <= parent.end_unix_ns);
        depth(trace, parent) + 1
    }
    trace.spans.iter().map(|span| format!("{}{}\n", "  ".repeat(depth(trace, span)), span.name)).collect()
}

fn text(span: &Span, key: &str) -> Option<String> {
    span.attribute(key).map(ToString::to_string)
}

#[test]
fn a_bound_pod_gives_the_tree_of_the_kep() {
    let trace = build(&bound(Code::SUCCESS), ANCHOR, None);
    let expected = "\
SchedulePod
  schedulingCycle
    preFilter
    filter
    filter
    reserve
    permit
  bindingCycle
    preBind
    bind
    postBind
";
    assert_eq!(tree(&trace), expected);
    let root = trace.root();
    assert_eq!((root.start_unix_ns, root.duration_ns()), (1_000_000_001_000, 8_000));
    for (key, value) in [
        ("k8s.pod.name", "web"),
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.uid", "u"),
        ("k8s.scheduler.profile", "default"),
        ("k8s.scheduler.result", "Success"),
        ("k8s.scheduler.selected_node", "node-7"),
        ("k8s.scheduler.attempt", "2"),
        ("k8s.scheduler.queue_wait_ms", "0.0006"),
        ("k8s.scheduler.queue.total_wait_ms", "0.0009"),
    ] {
        assert_eq!(text(root, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(root.attribute(attributes::INCOMPLETE), None);
    assert!(trace.spans.iter().all(|span| span.status == Status::Unset));
    let permit = trace.spans.iter().find(|span| span.name == "permit").expect("it is in the tree");
    assert_eq!(text(permit, "k8s.scheduler.phase").as_deref(), Some("permit"));
    assert_eq!(text(permit, "k8s.scheduler.result").as_deref(), Some("Success"));
}

#[test]
fn wait_on_permit_is_a_span_only_when_permit_said_wait() {
    let waited = build(&bound(Code::WAIT), ANCHOR, None);
    assert!(tree(&waited).contains("  bindingCycle\n    waitOnPermit\n"));
    assert!(!tree(&build(&bound(Code::SUCCESS), ANCHOR, None)).contains("waitOnPermit"));
}

#[test]
fn a_failure_is_an_error_that_names_code_plugin_and_reason() {
    let mut attempt = bound(Code::UNSCHEDULABLE);
    attempt.calls.retain(|call| call.end_ns <= 2_400);
    attempt.calls.push(call(Function::HandleFailure, 2_500, 9_000, None));
    attempt.outcome = Outcome::Failed {
        code: Some(Code::UNSCHEDULABLE),
        reason: "quota".into(),
        plugin: "Coscheduling".into(),
    };
    let trace = build(&attempt, ANCHOR, None);
    assert_eq!(trace.root().status, Status::Error("Unschedulable by Coscheduling: quota".into()));
    assert_eq!(text(trace.root(), "k8s.scheduler.result").as_deref(), Some("Unschedulable"));
    assert_eq!(trace.root().attribute(attributes::SELECTED_NODE), None, "it was not bound there");
    assert!(tree(&trace).ends_with("    permit\n  handleSchedulingFailure\n"), "{}", tree(&trace));
    let permit = trace.spans.iter().find(|span| span.name == "permit").expect("it is in the tree");
    assert_eq!(permit.status, Status::Error("Unschedulable".into()));
}

#[test]
fn the_result_is_what_the_scheduler_counts() {
    for (code, expected) in [
        (Code::UNSCHEDULABLE, "Unschedulable"),
        (Code::UNSCHEDULABLE_AND_UNRESOLVABLE, "Unschedulable"),
        (Code::PENDING, "Unschedulable"),
        (Code::ERROR, "Error"),
        (Code(42), "Error"),
    ] {
        let outcome = Outcome::Failed { code: Some(code), reason: String::new(), plugin: String::new() };
        assert_eq!(result(&outcome), Some(expected), "{code}");
    }
    assert_eq!(result(&Outcome::Unknown), None);
}

#[test]
fn the_same_attempt_has_the_same_identities_and_another_one_has_others() {
    let one = build(&bound(Code::SUCCESS), ANCHOR, None);
    assert_eq!(one, build(&bound(Code::SUCCESS), ANCHOR, None));
    let later = Attempt { start_ns: 1_001, ..bound(Code::SUCCESS) };
    assert_ne!(one.trace_id, build(&later, ANCHOR, None).trace_id);
    let mut ids: Vec<_> = one.spans.iter().map(|span| span.span_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), one.spans.len());
}

#[test]
fn the_context_of_the_pod_becomes_a_link_of_the_root_and_of_nothing_else() {
    let context =
        RemoteContext { trace_id: [7; 16], span_id: [8; 8], flags: 1, trace_state: "vendor=1".into() };
    let trace = build(&bound(Code::SUCCESS), ANCHOR, Some(context.clone()));
    assert_eq!(trace.root().links, [context]);
    assert!(trace.spans[1..].iter().all(|span| span.links.is_empty()));
    assert!(trace.spans.iter().all(|span| span.parent_id.is_none() == (span.name == ROOT)));
}

#[test]
fn what_was_lost_is_marked() {
    let mut attempt = bound(Code::SUCCESS);
    attempt.incomplete = true;
    attempt.calls[0].returned = false;
    let trace = build(&attempt, ANCHOR, None);
    let marked: Vec<_> = trace
        .spans
        .iter()
        .filter(|span| span.attribute(attributes::INCOMPLETE) == Some(&AttributeValue::Bool(true)))
        .map(|span| span.name.as_ref())
        .collect();
    assert_eq!(marked, ["SchedulePod", "preFilter"]);
}
