use spans::{
    Event, NameList, Names,
    fixtures::{scheduled, unschedulable},
};

use super::*;

/// Two seconds after the end of the attempts of `spans::fixtures`.
const NOW_US: u64 = 1_795_219_202_000_000;

fn report(traces: &[Trace]) -> Report {
    let attempts: Vec<_> = traces.iter().map(Account::of).collect();
    let history = Kept { attempts: 7, limit: 10, since_unix_us: Some(NOW_US - 300_000_000) };
    let pod = attempts.first().map_or("nobody", |account| &account.pod).to_owned();
    Report::new("default".to_owned(), pod, NOW_US, history, attempts)
}

fn set(trace: &mut Trace, key: &'static str, value: AttributeValue) {
    trace.spans[0].attributes.retain(|(known, _)| *known != key);
    trace.spans[0].attributes.push((key, value));
}

fn strings(list: &[&str]) -> AttributeValue {
    AttributeValue::Strings(list.iter().map(ToString::to_string).collect())
}

fn add_plugin(
    trace: &mut Trace,
    phase: &str,
    name: &str,
    microseconds: u64,
    result: &'static str,
    message: &str,
) {
    let phase = trace.spans.iter().find(|span| span.name == phase).expect("there is such a phase").clone();
    let text = |text: &str| AttributeValue::String(text.to_owned().into());
    trace.spans.push(Span {
        span_id: (trace.spans.len() as u64 + 1).to_be_bytes(),
        parent_id: Some(phase.span_id),
        kind: SpanKind::Plugin,
        name: format!("{PLUGIN}{name}").into(),
        end_unix_ns: phase.start_unix_ns + microseconds * 1000,
        attributes: [(attributes::RESULT, text(result)), (attributes::MESSAGE, text(message))]
            .into_iter()
            .collect(),
        events: Vec::<Event>::new(),
        status: Status::Unset,
        ..phase
    });
}

/// The attempt of `unschedulable`, with a message as the scheduler writes it.
fn failed() -> Trace {
    let mut trace = unschedulable();
    let message = "Unschedulable: 0/23 nodes are available: 20 Insufficient cpu, 3 node(s) had untolerated taint {gpu: yes}. no \
                   new claims to deallocate, preemption: 0/23 nodes are available: 23 Preemption is not helpful for \
                   scheduling.";
    trace.spans[0].status = Status::Error(message.to_owned());
    set(&mut trace, attributes::QUEUE_MOVES, strings(&["active: UnscheduledPodAdd"]));
    add_plugin(&mut trace, "postFilter", "DefaultPreemption", 240, "Unschedulable", "not helpful");
    trace
}

/// The next attempt of the same Pod.
fn bound() -> Trace {
    let mut trace = scheduled();
    set(&mut trace, attributes::POD_NAME, AttributeValue::String("big".into()));
    set(&mut trace, attributes::ATTEMPT, AttributeValue::Int(2));
    set(&mut trace, attributes::EVALUATED_NODES, AttributeValue::Int(24));
    set(&mut trace, attributes::FEASIBLE_NODES, AttributeValue::Int(1));
    set(&mut trace, attributes::QUEUE_UNSCHEDULABLE_MS, AttributeValue::Double(61_000.0));
    set(&mut trace, attributes::QUEUE_BACKOFF_MS, AttributeValue::Double(750.0));
    set(&mut trace, attributes::QUEUE_TOTAL_WAIT_MS, AttributeValue::Double(61_762.0));
    set(
        &mut trace,
        attributes::QUEUE_MOVES,
        strings(&["unschedulable: ScheduleAttemptFailure", "backoff: NodeAdd", "active: BackoffComplete"]),
    );
    add_plugin(&mut trace, "bind", "DefaultBinder", 2990, "Success", "");
    trace
}

#[test]
fn nodes_are_named_by_plugin_and_reasons_and_those_left_out_are_counted() {
    let list = |by: Option<&str>, reasons: &[&str], names: &[&str]| NameList {
        by: by.map(Into::into),
        result: "Unschedulable".to_owned(),
        reasons: reasons.iter().map(|reason| (*reason).into()).collect(),
        names: names.iter().map(|name| (*name).into()).collect(),
    };
    let lists = vec![
        list(Some("NodeResourcesFit"), &["Insufficient cpu", "Too many pods"], &["a-1", "a-2"]),
        list(None, &[], &["b"]),
    ];
    let mut trace = failed();
    set(&mut trace, attributes::REJECTED_OTHERS, AttributeValue::String("NodeAffinity".into()));
    let earlier = trace.clone();
    trace.names = Some(Box::new(Names { total: 23, lists }));
    let text = text(&report(&[earlier, trace]), 100);
    let expected = "
  Nodes       2 Nodes, NodeResourcesFit: Insufficient cpu, Too many pods (Unschedulable)
              a-1 a-2
              1 Node, a plugin that is not known (Unschedulable)
              b
              20 more Nodes, rejected as well: their names are not known
              all other Nodes, NodeAffinity
";
    assert!(text.contains(expected), "{text}");
    assert_eq!(text.matches("  Nodes   ").count(), 1, "only the attempt with names has them");
}

#[test]
fn reports_a_failed_then_bound_pod_in_order() {
    let expected = "\
default/big: 2 attempts in the last 5 min

Attempt 1, 00:00:00 UTC, 2 s ago, took 820 us: Unschedulable
  Why         0/23 nodes are available: 20 Insufficient cpu, 3 node(s) had untolerated taint {gpu:
              yes}. no new claims to deallocate, preemption: 0/23 nodes are available: 23 Preemption
              is not helpful for scheduling.
  Rejected by NodeResourcesFit (by its words): Insufficient cpu
              TaintToleration (by its words): node(s) had untolerated taint {gpu: yes}
  Queue       active for 12.2 ms since it was created (UnscheduledPodAdd)
  Slowest     filter 400 us (49%), postFilter 250 us (30%; DefaultPreemption 240 us), preFilter 80.0
              us (10%)

Attempt 2, 00:00:00 UTC, 2 s ago, took 5.11 ms: Success, on node-3
  Why         1 of 24 Nodes looked at fits
  Queue       unschedulable for 61.0 s since an attempt failed (ScheduleAttemptFailure), until a
              Node was added (NodeAdd)
              backoff for 750 ms, until its backoff was over (BackoffComplete)
              active for 12.2 ms
              together 61.8 s
  Slowest     bind 3.00 ms (59%; DefaultBinder 2.99 ms), filter 669 us (13%), score 667 us (13%)

default/big is on node-3: of 24 Nodes it was the only one that fits; the attempt before failed: no
Node fits (20 of 23 Nodes: Insufficient cpu; 3 of 23 Nodes: node(s) had untolerated taint {gpu:
yes}), and then a Node was added (NodeAdd).
";
    assert_eq!(text(&report(&[failed(), bound()]), 100), expected);
}

#[test]
fn conclusion_explains_a_pending_pod() {
    let conclusion = |trace: &Trace| conclusion(&[Account::of(trace)]);
    assert_eq!(
        conclusion(&failed()),
        "default/big is still Pending because no Node fits (20 of 23 Nodes: Insufficient cpu; 3 of 23 Nodes: node(s) had \
         untolerated taint {gpu: yes}); what would help: room on a Node, a larger Node, or smaller requests; or a \
         toleration in the Pod, or Nodes without the taint."
    );
    let mut preempting = failed();
    set(&mut preempting, attributes::PREEMPTION_NODE, AttributeValue::String("node-1".into()));
    set(&mut preempting, attributes::PREEMPTION_VICTIMS, AttributeValue::Int(2));
    set(&mut preempting, attributes::PREEMPTION_VICTIM_NAMES, strings(&["low-1", "low-2"]));
    assert_eq!(
        conclusion(&preempting),
        "default/big is still Pending because it waits for 2 Pods of lower priority (low-1, low-2) to leave node-1: \
         preemption has chosen them."
    );
    let mut rejected = failed();
    rejected.spans[0].status = Status::Error("Unschedulable: 0/1 nodes are available: 1 not today.".into());
    add_plugin(&mut rejected, "preFilter", "Quota", 5, "UnschedulableAndUnresolvable", "not today");
    assert_eq!(
        conclusion(&rejected),
        "default/big is still Pending because the plugin Quota said no in preFilter: not today; the scheduler tries again \
         when something changes that the plugin waits for, or after 5 minutes."
    );
    let mut error = failed();
    error.spans[0].status = Status::Error("Error by DefaultBinder: binding rejected: timed out".into());
    set(&mut error, attributes::RESULT, AttributeValue::String("Error".into()));
    assert_eq!(
        conclusion(&error),
        "default/big is still Pending because its last attempt ended with an error: binding rejected: timed out; after its \
         backoff it is tried again."
    );
}

#[test]
fn conclusion_explains_a_bound_pod() {
    let mut trace = scheduled();
    let conclusion = |trace: &Trace| conclusion(&[Account::of(trace)]);
    assert_eq!(conclusion(&trace), "default/web-0 is on node-3.");
    for (feasible, evaluated, why) in [
        (12, 100, "of 12 Nodes that fit, of 100 looked at, it has the highest score"),
        (1, 100, "of 100 Nodes it was the only one that fits"),
        (1, 1, "it was the only one that was looked at, and it fits"),
    ] {
        set(&mut trace, attributes::FEASIBLE_NODES, AttributeValue::Int(feasible));
        set(&mut trace, attributes::EVALUATED_NODES, AttributeValue::Int(evaluated));
        assert_eq!(conclusion(&trace), format!("default/web-0 is on node-3: {why}."));
    }
    trace.spans[0].attributes.retain(|(key, _)| *key != attributes::RESULT);
    assert!(conclusion(&trace).contains("was not seen"), "{}", conclusion(&trace));
}

#[test]
fn conclusion_mentions_preemption_and_ignores_earlier_pods() {
    let mut preempting = failed();
    set(&mut preempting, attributes::PREEMPTION_NODE, AttributeValue::String("node-3".into()));
    set(&mut preempting, attributes::PREEMPTION_VICTIMS, AttributeValue::Int(1));
    let last = |first: &Trace| conclusion(&[Account::of(first), Account::of(&bound())]);
    assert!(
        last(&preempting).ends_with("; preemption had made 1 Pod of lower priority leave it."),
        "{}",
        last(&preempting)
    );
    assert!(last(&failed()).contains("the attempt before failed"), "{}", last(&failed()));
    let mut other = failed();
    set(&mut other, attributes::POD_UID, AttributeValue::String("another".into()));
    assert!(!last(&other).contains("before"), "{}", last(&other));
    let told = text(&report(&[other, bound()]), 100);
    assert_eq!(told.matches("of an earlier Pod of this name").count(), 1, "{told}");
}

#[test]
fn rejections_come_from_spans_status_and_message() {
    let mut trace = failed();
    add_plugin(&mut trace, "preFilter", "Quota", 5, "Pending", "not today");
    trace.spans[0].status =
        Status::Error("Unschedulable by Gang: 0/2 nodes are available: 2 Insufficient cpu.".into());
    let rejected = Account::of(&trace).rejected_by;
    let plugins: Vec<_> =
        rejected.iter().map(|by| (&*by.plugin, by.extension_point.as_deref(), &*by.message)).collect();
    assert_eq!(
        plugins,
        [
            ("Quota", Some("preFilter"), "not today"),
            ("Gang", None, "0/2 nodes are available: 2 Insufficient cpu."),
            ("NodeResourcesFit", None, "Insufficient cpu"),
        ]
    );
}

#[test]
fn account_keeps_notable_plugins() {
    let mut trace = scheduled();
    for (microseconds, name) in [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")] {
        add_plugin(&mut trace, "preFilter", name, microseconds, "Success", "");
    }
    add_plugin(&mut trace, "preFilter", "no", 0, "Unschedulable", "");
    let account = Account::of(&trace);
    let phase = account.phases.iter().find(|phase| phase.name == "preFilter").expect("it is there");
    assert_eq!(phase.plugins.iter().map(|plugin| &*plugin.name).collect::<Vec<_>>(), ["e", "d", "c", "no"]);
    assert!(account.phases.iter().all(|phase| !phase.name.ends_with("Cycle")));
}

#[test]
fn unknown_pod_gets_a_next_step() {
    let mut report = report(&[]);
    assert!(
        unknown(&report).contains("among the 7 that the daemon remembers in the last 5 min"),
        "{}",
        unknown(&report)
    );
    assert!(unknown(&report).contains("kubectl describe pod -n default nobody"));
    report.also_in = vec!["shop".to_owned()];
    assert!(unknown(&report).ends_with("in shop: give `-n`"), "{}", unknown(&report));
    report.history.limit = 0;
    assert!(unknown(&report).contains("schedspan explain --wait -n default nobody"), "{}", unknown(&report));
}

#[test]
fn schema_is_stable() {
    let value = serde_json::to_value(report(&[bound()])).unwrap();
    let keys =
        |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        keys(&value),
        "alsoIn attempts conclusion history namespace nowUnixUs pod schemaVersion stalls waitedForIt waiting"
    );
    assert_eq!(keys(&value["history"]), "attempts limit sinceUnixUs");
    let attempt = &value["attempts"][0];
    assert_eq!(
        keys(attempt),
        "attempt candidates durationNs evaluatedNodes feasibleNodes incomplete message namespace node phases pod preemption profile \
         queue rejectedBy restrictedToNodes result startUnixUs ties traceId uid"
    );
    assert_eq!(
        keys(&attempt["queue"]),
        "activeNs backoffNs gatedBy gatedNs moves movesLeftOut totalNs unschedulableNs"
    );
    assert_eq!(keys(&attempt["phases"][0]), "durationNs name plugins startNs");
    assert_eq!(attempt["queue"]["moves"][1], serde_json::json!({"queue": "backoff", "event": "NodeAdd"}));
}

#[test]
fn nothing_is_wider_than_asked_for_and_no_control_character_gets_through() {
    let mut trace = failed();
    let hostile = "\u{1b}]0;owned\u{7}\u{202e}网".repeat(50);
    trace.spans[0].status = Status::Error(format!("Unschedulable: {hostile}"));
    set(&mut trace, attributes::POD_NAME, AttributeValue::String(hostile.clone().into()));
    set(&mut trace, attributes::QUEUE_MOVES, strings(&[&format!("active: {hostile}")]));
    add_plugin(&mut trace, "filter", &hostile, 5, "Unschedulable", &hostile);
    for width in [60, 80, 120] {
        for line in text(&report(&[trace.clone()]), width).lines().skip(1) {
            assert!(line.chars().count() <= width, "{} columns in {line}", line.chars().count());
            assert!(line.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{line:?}");
        }
    }
}

#[test]
fn a_pod_that_a_gate_held_says_so() {
    let mut trace = bound();
    set(&mut trace, attributes::GATED_MS, AttributeValue::Double(3_000.0));
    assert!(text(&report(&[trace.clone()]), 100).contains("held by PreEnqueue plugins for 3.00 s"));
    set(&mut trace, attributes::GATED_BY, strings(&["SchedulingGates", "Quota"]));
    let words = text(&report(&[trace]), 100);
    assert!(words.contains("held by SchedulingGates, Quota for 3.00 s"), "{words}");
}

#[test]
fn best_nodes_and_rejections_come_from_captured_values() {
    let mut trace = scheduled();
    let list = |texts: &[&str]| AttributeValue::Strings(texts.iter().map(ToString::to_string).collect());
    set(&mut trace, attributes::EVALUATED_NODES, AttributeValue::Int(30));
    set(&mut trace, attributes::FEASIBLE_NODES, AttributeValue::Int(20));
    set(&mut trace, attributes::CANDIDATES, list(&["node-3: 312 (Fit 95)", "node-9: 312 (Fit 95)"]));
    set(&mut trace, attributes::CANDIDATE_TIES, AttributeValue::Int(2));
    set(&mut trace, attributes::REJECTIONS, list(&["TaintToleration: 10 UnschedulableAndUnresolvable"]));
    let account = Account::of(&trace);
    let rejection = Rejection {
        plugin: "TaintToleration".to_owned(),
        extension_point: Some("filter".to_owned()),
        message: "10 Nodes, UnschedulableAndUnresolvable".to_owned(),
    };
    assert_eq!(account.rejected_by, [rejection]);
    let conclusion = conclusion(&[account]);
    assert!(
        conclusion.contains("of 20 Nodes that fit, of 30 looked at, it is one of 2 with the highest score"),
        "{conclusion}"
    );
}

#[test]
fn reports_of_several_daemons_are_one_in_the_order_of_time() {
    let (mut first, second) = (failed(), failed());
    first.trace_id = [7; 16];
    first.spans[0].start_unix_ns -= 60_000_000_000;
    let (old, new) = (report(&[first.clone(), second.clone()]), report(&[second]));
    let merged = Report::merged(vec![new.clone(), old.clone()]).unwrap();
    let starts: Vec<_> = merged.attempts.iter().map(|account| account.start_unix_us).collect();
    assert!(starts.len() == 2 && starts.is_sorted(), "{starts:?}");
    assert_eq!((merged.history.attempts, merged.history.limit), (14, 20));
    assert_eq!(merged.conclusion, old.conclusion);
    assert_eq!((Report::merged(vec![new.clone()]), Report::merged(Vec::new())), (Some(new), None));
}

/// Gives a plugin so much of a phase, as an exact window says it.
fn add_share(trace: &mut Trace, phase: &str, plugin: &str, part: f64, nodes: i64) {
    add_plugin(trace, phase, plugin, 1, "Success", "");
    let span = trace.spans.last_mut().expect("it was just added");
    span.kind = SpanKind::Share;
    span.attributes = [
        (attributes::SHARE, AttributeValue::Double(part)),
        (attributes::CALLS, AttributeValue::Int(nodes)),
        (attributes::SHARE_BASIS, AttributeValue::String("exact".into())),
    ]
    .into_iter()
    .collect();
}

#[test]
fn a_plugin_that_takes_much_of_a_phase_is_said_with_the_terms_that_it_evaluates() {
    let slowest = |terms: &[&str]| {
        let mut trace = scheduled();
        if !terms.is_empty() {
            set(&mut trace, attributes::POD_TERMS, strings(terms));
        }
        add_share(&mut trace, "filter", "InterPodAffinity", 0.78, 412);
        add_share(&mut trace, "score", "InterPodAffinity", 0.6, 412);
        add_plugin(&mut trace, "bind", "VolumeBinding", 2_990, "Success", "");
        let text = text(&report(&[trace]), 1_000);
        text.lines().find_map(|line| line.strip_prefix("  Slowest     ")).map(str::to_owned).unwrap()
    };
    assert_eq!(
        slowest(&["required Pod anti-affinity"]),
        "bind 3.00 ms (59%; VolumeBinding 2.99 ms), filter 669 us (13%; InterPodAffinity 78% of it: exact, 412 Nodes; the Pod has \
         required Pod anti-affinity), score 667 us (13%; InterPodAffinity 60% of it: exact, 412 Nodes)"
    );
    let both = slowest(&["preferred Pod affinity", "preferred Pod anti-affinity", "volume claims"]);
    assert_eq!(
        both,
        "bind 3.00 ms (59%; VolumeBinding 2.99 ms; the Pod has volume claims), filter 669 us (13%; InterPodAffinity 78% of it: \
         exact, 412 Nodes), score 667 us (13%; InterPodAffinity 60% of it: exact, 412 Nodes; the Pod has preferred Pod affinity and \
         preferred Pod anti-affinity)"
    );
    // Other Pods' anti-affinity costs as much: without a term of its own, nothing is said.
    for others in [&[][..], &["host ports", "hard spread constraints"]] {
        assert!(!slowest(others).contains("the Pod has"), "{others:?}");
    }
}

#[test]
fn a_phase_that_outlasts_its_attempt_has_no_part_of_it() {
    let mut trace = scheduled();
    let attempt = trace.spans[0].clone();
    let bind = trace.spans.iter_mut().find(|span| span.name == "bind").expect("there is such a phase");
    bind.end_unix_ns = attempt.end_unix_ns + (attempt.end_unix_ns - attempt.start_unix_ns);
    let text = text(&report(&[trace]), 1_000);
    assert!(text.contains("  Slowest     bind 8.27 ms (longer than the attempt), "), "{text}");
}

#[test]
fn the_terms_of_a_pod_are_in_its_account_if_there_are_any() {
    let mut trace = scheduled();
    let value = |trace: &Trace| serde_json::to_value(Account::of(trace)).unwrap();
    assert_eq!(value(&trace).get("terms"), None);
    set(&mut trace, attributes::POD_TERMS, strings(&["host ports"]));
    assert_eq!(value(&trace)["terms"], serde_json::json!(["host ports"]));
    assert_eq!(serde_json::from_value::<Account>(value(&trace)).unwrap(), Account::of(&trace));
}
