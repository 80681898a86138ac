//! Tests span trees, formatted as indented text.

use super::*;
use crate::attempt::{ApiCall, Extender, Pod, Previous};

const ANCHOR: Anchor = Anchor { unix_ns_at_zero: 1_000_000_000_000 };

fn call(function: Function, start_ns: u64, end_ns: u64, code: Option<Code>) -> Call {
    Call {
        function,
        start_ns,
        end_ns,
        plugin: None,
        code,
        reason: String::new(),
        extender: None,
        api_call: None,
        returned: true,
        events: 2,
    }
}

/// An attempt that ends bound; Permit returns `permit`.
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
        // Sorted by end, as the assembler returns them.
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
        ..Attempt::default()
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
fn bound_pod_has_the_span_tree_of_the_kep() {
    let trace = build(&bound(Code::SUCCESS), ANCHOR, Origin::default());
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
fn wait_on_permit_has_a_span_only_after_wait() {
    let waited = build(&bound(Code::WAIT), ANCHOR, Origin::default());
    assert!(tree(&waited).contains("  bindingCycle\n    waitOnPermit\n"));
    assert!(!tree(&build(&bound(Code::SUCCESS), ANCHOR, Origin::default())).contains("waitOnPermit"));
    // Permit is in the group's attempt.
    let group = Arc::new(PodGroup { name: "gang".into(), namespace: "shop".into(), start_ns: 500 });
    let member = Attempt { subject: Subject::Member(group), ..bound(Code::SUCCESS) };
    let trace = build(&member, ANCHOR, Origin::default());
    assert!(trace.spans.iter().any(|span| span.name == "waitOnPermit"));
}

#[test]
fn failure_status_names_code_plugin_and_reason() {
    let mut attempt = bound(Code::UNSCHEDULABLE);
    attempt.calls.retain(|call| call.end_ns <= 2_400);
    attempt.calls.push(call(Function::HandleFailure, 2_500, 9_000, None));
    attempt.outcome = Outcome::Failed {
        code: Some(Code::UNSCHEDULABLE),
        reason: "quota".into(),
        plugin: "Coscheduling".into(),
    };
    let trace = build(&attempt, ANCHOR, Origin::default());
    assert_eq!(trace.root().status, Status::Error("Unschedulable by Coscheduling: quota".into()));
    assert_eq!(text(trace.root(), "k8s.scheduler.result").as_deref(), Some("Unschedulable"));
    assert_eq!(trace.root().attribute(attributes::SELECTED_NODE), None, "it was not bound there");
    assert!(tree(&trace).ends_with("    permit\n  handleSchedulingFailure\n"), "{}", tree(&trace));
    let permit = trace.spans.iter().find(|span| span.name == "permit").expect("it is in the tree");
    assert_eq!(permit.status, Status::Error("Unschedulable".into()));
}

#[test]
fn result_matches_the_scheduler_metric() {
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
    let one = build(&bound(Code::SUCCESS), ANCHOR, Origin::default());
    assert_eq!(one, build(&bound(Code::SUCCESS), ANCHOR, Origin::default()));
    let later = Attempt { start_ns: 1_001, ..bound(Code::SUCCESS) };
    assert_ne!(one.trace_id, build(&later, ANCHOR, Origin::default()).trace_id);
    let mut ids: Vec<_> = one.spans.iter().map(|span| span.span_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), one.spans.len());
}

#[test]
fn only_the_root_links_to_the_context_of_the_pod() {
    let context =
        RemoteContext { trace_id: [7; 16], span_id: [8; 8], flags: 1, trace_state: "vendor=1".into() };
    let relation = Relation::Cause { annotation: "traceparent".into(), owner: None };
    let link = Link { context, relation };
    let origin = Origin { causes: vec![link.clone()], ..Origin::default() };
    let trace = build(&bound(Code::SUCCESS), ANCHOR, origin);
    assert_eq!(trace.root().links, [link]);
    assert!(trace.spans[1..].iter().all(|span| span.links.is_empty()));
    assert!(
        trace
            .spans
            .iter()
            .all(|span| span.parent_id.is_none() == (span.kind == SpanKind::Root(TraceKind::Attempt)))
    );
}

#[test]
fn losses_are_marked() {
    let mut attempt = bound(Code::SUCCESS);
    attempt.incomplete = true;
    attempt.calls[0].returned = false;
    let trace = build(&attempt, ANCHOR, Origin::default());
    let marked: Vec<_> = trace
        .spans
        .iter()
        .filter(|span| span.attribute(attributes::INCOMPLETE) == Some(&AttributeValue::Bool(true)))
        .map(|span| span.name.to_string())
        .collect();
    assert_eq!(marked, ["SchedulePod", "preFilter"]);
}

fn plugin_call(function: Function, plugin: &str, start_ns: u64, code: Code, reason: &str) -> Call {
    Call {
        plugin: Some(plugin.into()),
        reason: reason.to_owned(),
        ..call(function, start_ns, start_ns + 10, Some(code))
    }
}

#[test]
fn plugin_spans_nest_below_their_phase() {
    let mut attempt = bound(Code::SUCCESS);
    attempt.calls.extend([
        plugin_call(Function::PreFilterPlugin, "NodePorts", 1_210, Code::SKIP, ""),
        plugin_call(Function::PreFilterPlugin, "Mine", 1_230, Code::UNSCHEDULABLE, "not today"),
        plugin_call(Function::PreBindPlugin, "VolumeBinding", 4_010, Code::SUCCESS, ""),
        Call { plugin: None, ..plugin_call(Function::BindPlugin, "", 4_300, Code::SUCCESS, "") },
    ]);
    let trace = build(&attempt, ANCHOR, Origin::default());
    let shown = tree(&trace);
    for lines in [
        "    preFilter\n      plugin: NodePorts\n      plugin: Mine\n",
        "    preBind\n      plugin: VolumeBinding\n",
        "    bind\n      plugin: ?\n",
    ] {
        assert!(shown.contains(lines), "{lines} is not in {shown}");
    }
    let span = |name: &str| trace.spans.iter().find(|span| span.name == name).expect("it is there");
    let mine = span("plugin: Mine");
    let text = |key| mine.attribute(key).map(ToString::to_string);
    assert_eq!(text(attributes::PLUGIN_NAME).as_deref(), Some("Mine"));
    assert_eq!(text(attributes::EXTENSION_POINT).as_deref(), Some("preFilter"));
    assert_eq!(text(attributes::MESSAGE).as_deref(), Some("not today"));
    assert_eq!(mine.status, Status::Error("Unschedulable: not today".into()));
    assert_eq!(mine.events.iter().map(|event| event.name).collect::<Vec<_>>(), ["plugin rejected"]);
    let skipped = span("plugin: NodePorts");
    assert_eq!(skipped.attribute(attributes::RESULT).map(ToString::to_string).as_deref(), Some("Skip"));
    assert_eq!((&skipped.status, skipped.events.len()), (&Status::Unset, 0));
}

#[test]
fn extender_spans_nest_below_their_phase() {
    let asked = |function, verb: &str, start_ns, code, nodes, passed| Call {
        extender: Some(Box::new(Extender {
            url: "http://extender".into(),
            verb: verb.into(),
            ignorable: true,
            nodes,
            passed,
        })),
        reason: if code == Code::ERROR { "no".into() } else { String::new() },
        ..call(function, start_ns, start_ns + 20, Some(code))
    };
    let mut attempt = bound(Code::SUCCESS);
    attempt.calls.extend([
        asked(Function::ExtenderFilter, "sieve", 1_920, Code::SUCCESS, Some(30), Some(20)),
        asked(Function::ExtenderFilter, "sieve", 1_945, Code::ERROR, Some(20), Some(0)),
        // Without a verb the extender is not called.
        asked(Function::ExtenderPrioritize, "", 1_970, Code::SUCCESS, Some(20), None),
        asked(Function::ExtenderBind, "bind", 8_010, Code::SUCCESS, None, None),
    ]);
    let trace = build(&attempt, ANCHOR, Origin::default());
    let shown = tree(&trace);
    assert!(
        shown.contains("    filter\n    extender: http://extender\n    extender: http://extender\n"),
        "{shown}"
    );
    assert!(shown.ends_with("    bind\n    extender: http://extender\n    postBind\n"), "{shown}");
    let spans: Vec<_> = trace.spans.iter().filter(|span| span.kind == SpanKind::Extender).collect();
    let told = |span: &Span, keys: &[&str]| keys.iter().map(|key| text(span, key)).collect::<Vec<_>>();
    let some = |text: &str| Some(text.to_owned());
    let keys = [
        attributes::EXTENSION_POINT,
        attributes::EXTENDER_URL,
        attributes::EXTENDER_VERB,
        attributes::EXTENDER_IGNORABLE,
        attributes::EXTENDER_NODES,
        attributes::EXTENDER_PASSED_NODES,
        attributes::RESULT,
    ];
    let words = ["filter", "http://extender", "sieve", "true", "30", "20", "Success"];
    assert_eq!(told(spans[0], &keys), words.map(some));
    assert_eq!(told(spans[1], &keys[4..]), [some("20"), None, some("Error")]);
    assert_eq!(spans[1].status, Status::Error("Error: no".into()));
    assert_eq!(told(spans[2], &keys[..1]), [some("bind")]);
}

#[test]
fn a_call_that_outlasts_its_attempt_is_in_the_trace_but_not_below_the_root() {
    let api_call = |function, start_ns, end_ns| Call {
        api_call: Some(Box::new(ApiCall {
            pod_uid: "u".into(),
            victim: None,
            queued_ns: Some(start_ns - 500),
        })),
        ..call(function, start_ns, end_ns, Some(Code::SUCCESS))
    };
    let mut attempt = bound(Code::SUCCESS);
    attempt.calls.extend([
        plugin_call(Function::BindPlugin, "DefaultBinder", 4_300, Code::SUCCESS, ""),
        api_call(Function::PodBindingCall, 4_302, 4_308),
        api_call(Function::PodStatusPatchCall, 8_980, 9_000),
        api_call(Function::PodStatusPatchCall, 8_990, 9_500),
    ]);
    let trace = build(&attempt, ANCHOR, Origin::default());
    let shown = tree(&trace);
    assert!(shown.contains("  api call: pod_status_patch\n"), "that which ends with the attempt: {shown}");
    assert!(shown.contains("      plugin: DefaultBinder\n        api call: pod_binding\n"), "{shown}");
    assert!(shown.ends_with("\napi call: pod_status_patch\n"), "{shown}");
    let late = trace.spans.last().expect("there are spans");
    let context = &late.links[0].context;
    assert_eq!((context.trace_id, context.span_id), (trace.trace_id, trace.root().span_id));
    assert_eq!(late.links[0].relation, Relation::Attempt);
    assert_eq!(text(late, attributes::API_CALL_QUEUE_MS).as_deref(), Some("0.0005"));
}

#[test]
fn permit_wait_names_its_plugins() {
    let mut attempt = bound(Code::WAIT);
    attempt.calls.extend([
        plugin_call(Function::PermitPlugin, "Gang", 2_210, Code::WAIT, ""),
        plugin_call(Function::PermitPlugin, "Other", 2_230, Code::SUCCESS, ""),
    ]);
    let trace = build(&attempt, ANCHOR, Origin::default());
    let wait = trace.spans.iter().find(|span| span.name == "waitOnPermit").expect("it waited");
    assert_eq!(wait.attribute(attributes::WAITED_FOR), Some(&AttributeValue::Strings(vec!["Gang".into()])));
}

#[test]
fn unreserve_after_the_binding_cycle_is_below_the_root() {
    let mut attempt = bound(Code::SUCCESS);
    attempt.end_ns = 9_900;
    attempt.calls.push(call(Function::Unreserve, 9_100, 9_200, None));
    attempt.calls.push(plugin_call(Function::UnreservePlugin, "VolumeBinding", 9_110, Code::SUCCESS, ""));
    let shown = tree(&build(&attempt, ANCHOR, Origin::default()));
    assert!(shown.ends_with("\n  unreserve\n    plugin: VolumeBinding\n"), "{shown}");
}

#[test]
fn attempt_links_to_the_previous_one() {
    let first = build(&bound(Code::SUCCESS), ANCHOR, Origin::default());
    let next = Attempt {
        previous: Some(Previous { start_ns: 1_000, group: None }),
        start_ns: 20_000,
        end_ns: 30_000,
        ..bound(Code::SUCCESS)
    };
    let trace = build(&next, ANCHOR, Origin::default());
    let link = &trace.root().links[0];
    assert_eq!(link.relation, Relation::PreviousAttempt);
    assert_eq!((link.context.trace_id, link.context.span_id), (first.trace_id, first.root().span_id));
}

#[test]
fn attempt_below_a_parent_joins_its_trace() {
    let cause = |number: u8| Link {
        context: RemoteContext::sampled([number; 16], [number; 8]),
        relation: Relation::Cause { annotation: "traceparent".into(), owner: None },
    };
    let origin = Origin { causes: vec![cause(1), cause(2)], parent: true, ..Origin::default() };
    let alone = build(&bound(Code::SUCCESS), ANCHOR, Origin::default());
    let first = build(&bound(Code::SUCCESS), ANCHOR, origin.clone());
    assert_eq!((first.trace_id, first.parent.as_ref()), ([1; 16], Some(&cause(1).context)));
    assert_eq!(first.root().links, [cause(2)], "the others stay links");
    assert_eq!(first.root().span_id, alone.root().span_id);
    let next = Attempt {
        previous: Some(Previous { start_ns: 1_000, group: None }),
        start_ns: 20_000,
        end_ns: 30_000,
        ..bound(Code::SUCCESS)
    };
    let next = build(&next, ANCHOR, Origin { causes: vec![cause(1)], ..origin });
    let link = &next.root().links[0].context;
    assert_eq!((link.trace_id, link.span_id), ([1; 16], first.root().span_id));
}

#[test]
fn root_has_the_queue_history() {
    let entry = |time_ns, queue: &'static str, event: &str| Move { time_ns, queue, event: event.into() };
    let attempt = Attempt {
        start_ns: 9_000_000,
        end_ns: 9_500_000,
        first_attempt: Some(ANCHOR.unix_ns_at_zero),
        moves: vec![
            entry(1_000_000, "unschedulable", "ScheduleAttemptFailure"),
            entry(4_000_000, "backoff", "NodeAdd"),
            entry(8_000_000, "active", "BackoffComplete"),
        ],
        calls: Vec::new(),
        ..bound(Code::SUCCESS)
    };
    let trace = build(&attempt, ANCHOR, Origin::default());
    let text = |key| trace.root().attribute(key).map(ToString::to_string).unwrap_or_default();
    assert_eq!(text(attributes::QUEUE_UNSCHEDULABLE_MS), "3");
    assert_eq!(text(attributes::QUEUE_BACKOFF_MS), "4");
    assert_eq!(text(attributes::SINCE_FIRST_ATTEMPT_MS), "9");
    assert_eq!(text(attributes::QUEUE_EVENT), "BackoffComplete");
    assert_eq!(
        text(attributes::QUEUE_MOVES),
        "unschedulable: ScheduleAttemptFailure, backoff: NodeAdd, active: BackoffComplete"
    );
    let with = with_queue_spans(trace.clone(), &attempt, ANCHOR);
    let stays: Vec<_> = with.spans[trace.spans.len()..]
        .iter()
        .map(|span| (span.name.to_string(), span.duration_ns(), span.parent_id))
        .collect();
    assert_eq!(
        stays,
        [
            ("queue: unschedulable".to_owned(), 3_000_000, None),
            ("queue: backoff".to_owned(), 4_000_000, None),
            ("queue: active".to_owned(), 1_000_000, None)
        ]
    );
    assert_eq!(with.spans[..trace.spans.len()], trace.spans);
    assert_eq!(text(attributes::QUEUE_MOVES_LEFT_OUT), "");
    let trace = build(&Attempt { moves_left_out: 3, ..attempt }, ANCHOR, Origin::default());
    let left_out = trace.root().attribute(attributes::QUEUE_MOVES_LEFT_OUT);
    assert_eq!(left_out, Some(&AttributeValue::Int(3)));
}

#[test]
fn a_candidate_has_its_score_and_those_of_its_plugins() {
    let with = |parts: &[(&str, i64)]| {
        let parts = parts.iter().map(|(plugin, score)| ((*plugin).into(), *score)).collect();
        let best = vec![Element { label: "node-1".into(), key: 170, parts, cut: false }];
        let scores = Some(Box::new(Top { elements: 1, looked_at: 1, ties: 1, best }));
        let trace = build(&Attempt { scores, ..bound(Code::SUCCESS) }, ANCHOR, Origin::default());
        text(trace.root(), attributes::CANDIDATES)
    };
    assert_eq!(with(&[("Fit", 100), ("Taint", 70)]).as_deref(), Some("node-1: 170 (Fit 100, Taint 70)"));
    assert_eq!(with(&[]).as_deref(), Some("node-1: 170 ()"));
}

#[test]
fn a_trial_says_on_which_placement_it_was() {
    let trial = Call { plugin: Some("zone-a".into()), ..call(Function::PlacementTrial, 1_200, 1_400, None) };
    let attempt = Attempt { calls: vec![trial], ..bound(Code::SUCCESS) };
    let trace = build(&attempt, ANCHOR, Origin::default());
    let placements: Vec<_> =
        trace.spans.iter().filter_map(|span| text(span, attributes::PLACEMENT)).collect();
    assert_eq!(placements, ["zone-a"]);
}

#[test]
fn what_ran_in_the_queue_is_summed_on_the_root_and_has_spans_beside_those_of_the_queue() {
    let call = |function, start_ns, gate: Option<&str>| QueueCall {
        function,
        start_ns,
        end_ns: start_ns + 2_000,
        code: gate.is_none().then_some(Code::SUCCESS),
        gate: gate.map(Arc::from),
        returned: true,
    };
    let attempt = Attempt {
        start_ns: 9_000_000,
        end_ns: 9_500_000,
        moves: vec![
            Move { time_ns: 1_010_000, queue: "unschedulable", event: "UnscheduledPodAdd".into() },
            Move { time_ns: 8_010_000, queue: "active", event: "TargetPodUpdate".into() },
        ],
        in_queue: InQueue {
            calls: vec![
                call(Function::Sign, 900_000, None),
                call(Function::PreEnqueue, 1_000_000, Some("SchedulingGates")),
                call(Function::PreEnqueue, 3_000_000, Some("SchedulingGates")),
                call(Function::PreEnqueue, 5_000_000, Some("Quota")),
                call(Function::PreEnqueue, 8_000_000, None),
            ],
            left_out: 1,
            pre_enqueue_ns: 6_000,
            sign_ns: 2_000,
            held_ns: 7_000_000,
            held_since: None,
        },
        calls: Vec::new(),
        ..bound(Code::SUCCESS)
    };
    let trace = build(&attempt, ANCHOR, Origin::default());
    let of_root = [
        attributes::GATED_BY,
        attributes::GATED_MS,
        attributes::PRE_ENQUEUE_MS,
        attributes::SIGN_MS,
        attributes::QUEUE_PHASES_LEFT_OUT,
    ];
    let on_root = |trace: &Trace| of_root.map(|key| text(trace.root(), key).unwrap_or_default());
    assert_eq!(on_root(&trace), ["SchedulingGates, Quota", "7", "0.006", "0.002", ""]);
    let with = with_queue_spans(trace.clone(), &attempt, ANCHOR);
    assert_eq!(on_root(&with)[4], "1");
    let shown: Vec<_> = with.spans[trace.spans.len()..]
        .iter()
        .map(|span| {
            let gate = text(span, attributes::GATED_BY).or_else(|| text(span, attributes::PLUGIN_NAME));
            assert_eq!(span.parent_id, None);
            (span.name.to_string(), gate.unwrap_or_default(), span.events.len(), &span.status)
        })
        .collect();
    let [held, held_by_quota] =
        ["SchedulingGates", "Quota"].map(|gate| Status::Error(format!("held by {gate}")));
    assert_eq!(
        shown,
        [
            ("queue: unschedulable".to_owned(), "SchedulingGates".to_owned(), 0, &Status::Unset),
            ("queue: active".to_owned(), String::new(), 0, &Status::Unset),
            ("sign".to_owned(), String::new(), 0, &Status::Unset),
            ("preEnqueue".to_owned(), "SchedulingGates".to_owned(), 1, &held),
            ("preEnqueue".to_owned(), "SchedulingGates".to_owned(), 1, &held),
            ("preEnqueue".to_owned(), "Quota".to_owned(), 1, &held_by_quota),
            ("preEnqueue".to_owned(), String::new(), 0, &Status::Unset),
        ]
    );
    let ids: std::collections::HashSet<_> = with.spans.iter().map(|span| span.span_id).collect();
    assert_eq!(ids.len(), with.spans.len());
}

#[test]
fn spans_carry_monotonic_times_on_request() {
    let trace = build(&bound(Code::SUCCESS), ANCHOR, Origin::default());
    assert_eq!(trace.root().attribute(attributes::MONOTONIC_START), None);
    let mut trace = trace;
    add_monotonic(&mut trace, ANCHOR);
    let times = |span: &Span| {
        [attributes::MONOTONIC_START, attributes::MONOTONIC_END].map(|key| span.attribute(key).cloned())
    };
    assert_eq!(times(trace.root()), [1_000, 9_000].map(|ns| Some(AttributeValue::Int(ns))));
    assert!(trace.spans.iter().all(|span| times(span).iter().all(Option::is_some)));
}

#[test]
fn what_was_looked_at_is_said_where_it_is_not_all() {
    let with = |looked_at, in_map| {
        let mut attempt = bound(Code::SUCCESS);
        attempt.scores = Some(Box::new(Top { elements: 900, looked_at, ties: 1, best: Vec::new() }));
        let groups = vec![Group { name: Some("Fit".into()), code: 2, keys: 7 }];
        attempt.statuses = Some(Box::new(Entries {
            keys: in_map,
            looked_at: 7,
            groups,
            others: Some("Taint".into()),
            listed: Vec::new(),
        }));
        build(&attempt, Anchor::default(), Origin::default())
    };
    let said = |trace: &Trace| {
        [attributes::SCORED_NODES_LOOKED_AT, attributes::REJECTIONS_LOOKED_AT]
            .map(|key| text(trace.root(), key))
    };
    assert_eq!(said(&with(900, 7)), [None, None]);
    assert_eq!(said(&with(800, 8)), [Some("800".to_owned()), Some("7".to_owned())]);
    let trace = with(900, 7);
    let root = trace.root();
    assert_eq!(text(root, attributes::SCORED_NODES).as_deref(), Some("900"));
    assert_eq!(text(root, attributes::REJECTIONS).as_deref(), Some("Fit: 7 Unschedulable"));
    assert_eq!(text(root, attributes::REJECTED_OTHERS).as_deref(), Some("Taint"));
}

#[test]
fn shares_of_plugins_are_side_by_side_in_their_phase() {
    use crate::attempt::{Basis, Share};

    let share = |plugin: &str, samples| Share { plugin: plugin.into(), amount: samples, calls: None };
    let shares_of =
        |function, start_ns, basis, plugins| Shares { function, start_ns, basis, amount: 40, plugins };
    let shares = |basis, plugins| shares_of(Function::Filter, 1_400, basis, plugins);
    let of_filter = shares(Basis::Attempt, vec![share("Fit", 30), share("Taint", 4)]);
    let attempt = Attempt { shares: vec![of_filter.clone()], ..bound(Code::SUCCESS) };
    let trace = build(&attempt, ANCHOR, Origin::default());
    // The phase runs twice: the one of 500 ns has shares.
    let phase = trace.spans.iter().find(|span| span.name == "filter" && span.duration_ns() == 500);
    let phase = phase.expect("it is there");
    let plugins: Vec<_> = trace.spans.iter().filter(|span| span.kind == SpanKind::Share).collect();
    let shown = |span: &&Span| (span.name.to_string(), span.start_unix_ns, span.duration_ns());
    assert_eq!(
        plugins.iter().map(shown).collect::<Vec<_>>(),
        [("plugin: Fit".into(), phase.start_unix_ns, 375), ("plugin: Taint".into(), phase.start_unix_ns, 50)]
    );
    assert!(plugins.iter().all(|span| span.parent_id == Some(phase.span_id)));
    let ids: std::collections::BTreeSet<_> = trace.spans.iter().map(|span| span.span_id).collect();
    assert_eq!(ids.len(), trace.spans.len());
    let said = [
        attributes::PLUGIN_NAME,
        attributes::EXTENSION_POINT,
        attributes::SHARE,
        attributes::SHARE_SAMPLES,
        attributes::SHARE_SAMPLES_OF_PHASE,
        attributes::SHARE_BASIS,
    ];
    assert_eq!(
        said.map(|key| text(plugins[0], key)),
        ["Fit", "filter", "0.75", "30", "40", "sampled"].map(|text| Some(text.to_owned()))
    );
    let of_next =
        shares_of(Function::Reserve, 2_000, Basis::Attempt, vec![share("Fit", 1), share("Taint", 1)]);
    let two = Attempt { shares: vec![of_filter, of_next], ..attempt.clone() };
    let trace = build(&two, ANCHOR, Origin::default());
    let ids: std::collections::BTreeSet<_> = trace.spans.iter().map(|span| span.span_id).collect();
    assert_eq!(ids.len(), trace.spans.len(), "shares of two phases");
    let attempt = Attempt { shares: vec![shares(Basis::LastMinute, vec![share("Fit", 41)])], ..attempt };
    let trace = build(&attempt, ANCHOR, Origin::default());
    let plugin = trace.spans.iter().find(|span| span.kind == SpanKind::Share).expect("it is there");
    assert_eq!(text(plugin, attributes::SHARE_BASIS).as_deref(), Some("profile"));
    assert_eq!(plugin.duration_ns(), 500, "a share is never longer than its phase");
}

#[test]
fn a_plugin_whose_calls_were_timed_has_an_exact_share_and_its_attempt_says_so() {
    use crate::attempt::{Basis, Share};

    let calls = Calls {
        name: Some("Fit".into()),
        count: 12,
        total_ns: 30_000,
        results: [(0, 10), (1, 1), (2, 1)].into(),
        unwound: 3,
        slots: vec![0, 0, 0, 11, 1],
    };
    let share = Share { plugin: "Fit".into(), amount: 30_000, calls: Some(Box::new(calls)) };
    let shares = Shares {
        function: Function::Filter,
        start_ns: 1_400,
        basis: Basis::Window,
        amount: 40_000,
        plugins: vec![share],
    };
    let with = |window, shares| {
        let attempt = Attempt { window, shares, ..bound(Code::SUCCESS) };
        build(&attempt, ANCHOR, Origin::default())
    };
    let trace = with(Some(true), vec![shares]);
    assert_eq!(text(trace.root(), attributes::EXACT_WINDOW).as_deref(), Some("complete"));
    let plugin = trace.spans.iter().find(|span| span.kind == SpanKind::Share).expect("it is there");
    assert_eq!((plugin.name.to_string(), plugin.duration_ns()), ("plugin: Fit".to_owned(), 375));
    let said = [
        (attributes::SHARE, Some("0.75")),
        (attributes::SHARE_BASIS, Some("exact")),
        (attributes::SHARE_SAMPLES, None),
        (attributes::CALLS, Some("12")),
        (attributes::CALLS_MS, Some("0.03")),
        (attributes::REJECTED_NODES, Some("1")),
    ];
    for (key, value) in said {
        assert_eq!(text(plugin, key).as_deref(), value, "{key}");
    }
    let list = |key| match plugin.attribute(key) {
        Some(AttributeValue::Strings(list)) => list.clone(),
        other => panic!("{other:?}"),
    };
    let results = ["Success: 10", "Error: 1", "Unschedulable: 1", "did not return: 3"];
    assert_eq!(list(attributes::CALLS_RESULTS), results);
    let mut returned = Attributes::new();
    push_calls(&mut returned, &Calls { results: [(0, 1)].into(), ..Calls::default() });
    let results = returned.iter().find(|(key, _)| *key == attributes::CALLS_RESULTS).map(|(_, list)| list);
    assert_eq!(results, Some(&AttributeValue::Strings(vec!["Success: 1".to_owned()])));
    assert_eq!(list(attributes::CALLS_DURATIONS), ["under 8 ns: 11", "under 16 ns: 1"]);

    let trace = with(Some(false), Vec::new());
    assert_eq!(text(trace.root(), attributes::EXACT_WINDOW).as_deref(), Some("incomplete"));
    assert_eq!(text(with(None, Vec::new()).root(), attributes::EXACT_WINDOW), None);
}

#[test]
fn a_trace_has_the_names_of_nodes_if_there_were_any() {
    use gotrace::decode::Listed;

    let named = |keys| {
        let listed =
            vec![Listed { name: Some("Fit".into()), code: 2, texts: vec![], keys: vec!["a".into()] }];
        let statuses = Some(Box::new(Entries { keys, listed, ..Entries::default() }));
        build(&Attempt { statuses, ..bound(Code::SUCCESS) }, ANCHOR, Origin::default()).names
    };
    assert_eq!(named(0), None);
    let names = named(3).expect("three Nodes were rejected");
    let [list] = names.lists.as_slice() else { panic!("{names:?}") };
    assert_eq!((names.total, list.by.as_deref(), list.result.as_str()), (3, Some("Fit"), "Unschedulable"));
    assert_eq!(build(&bound(Code::SUCCESS), ANCHOR, Origin::default()).names, None);
}

#[test]
fn a_story_is_about_a_pod_unless_it_is_about_a_group() {
    use crate::attempt::PodGroup;

    let pod = bound(Code::SUCCESS);
    assert_eq!(pod.pod_uid(), Some("u"));
    let group = Arc::new(PodGroup { name: "gang".into(), namespace: "shop".into(), start_ns: 1 });
    let member = Attempt { subject: Subject::Member(Arc::clone(&group)), ..pod.clone() };
    assert_eq!(member.pod_uid(), Some("u"));
    let group = Attempt { subject: Subject::Group { group, size: None, scheduled: 0 }, ..pod };
    assert_eq!(group.pod_uid(), None);
}

#[test]
fn what_was_cut_is_on_the_root() {
    let cut = |cut| {
        text(
            build(&Attempt { cut, ..bound(Code::SUCCESS) }, ANCHOR, Origin::default()).root(),
            attributes::CUT,
        )
    };
    assert_eq!(cut(Cut::Nothing), None);
    assert_eq!(cut(Cut::QueueMoves).as_deref(), Some("queue_moves"));
    assert_eq!(cut(Cut::Phases).as_deref(), Some("phases"));
}
