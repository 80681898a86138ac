use std::mem;

use tracecontext::RemoteContext;

use super::*;
use crate::{
    Evidence,
    fixtures::{scheduled, unschedulable},
    names::PLUGIN,
};

const PLAIN_80: Style = Style { width: 80, colour: false, plugins: false };

#[test]
fn a_success_reads_at_a_glance() {
    let expected = "\
default/web-0  Success  on node-3  attempt 1  5.11 ms  queued 12.2 ms
  trace abababababababababababababababab
  linked to cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
                        ╷0       ╷1 ms    ╷2 ms     ╷3 ms    ╷4 ms
SchedulePod             ████████████████████████████████████████████████ 5.11 ms
├─ schedulingCycle      █████████████████▉                               1.90 ms
│  ├─ preFilter          █▍                                               143 us
│  ├─ filter              ██████▍                                         669 us
│  ├─ preScore                  █▏                                        113 us
│  ├─ score                       ██████▎                                 667 us
│  ├─ reserve                            ▎                               25.0 us
│  └─ permit                             ▏                               3.00 us
└─ bindingCycle                           ██████████████████████████████ 3.20 ms
   ├─ preBindPreFlight                    ▏                              4.00 us
   ├─ preBind                             ▏                              8.00 us
   ├─ bind                                ████████████████████████████▏  3.00 ms
   └─ postBind                                                         ▏ 9.00 us
";
    assert_eq!(waterfall(&scheduled(), &PLAIN_80), expected);
}

#[test]
fn a_new_scheduler_is_shown_with_its_differences() {
    let mut trace = scheduled();
    let strings =
        |values: &[&str]| AttributeValue::Strings(values.iter().map(|&text| text.to_owned()).collect());
    trace.spans.truncate(1);
    trace.kind = TraceKind::Configuration;
    trace.spans[0].kind = SpanKind::Root(trace.kind);
    trace.spans[0].name = trace.kind.name().into();
    trace.spans[0].attributes = vec![
        (attributes::CONFIG_PROFILES, strings(&["default-scheduler"])),
        (attributes::CONFIG_CHANGED, AttributeValue::Bool(true)),
        (attributes::CONFIG_DIFFERENCE, strings(&["-parallelism=16", "+parallelism=\u{1b}8"])),
    ]
    .into();
    let text = waterfall(&trace, &PLAIN_80);
    assert!(text.starts_with("default-scheduler  changed  -parallelism=16  +parallelism=?8\n"), "{text}");
    assert!(text.contains("\nSchedulerConfiguration  ███"), "{text}");
}

#[test]
fn a_failure_is_shown_with_its_reason() {
    let expected = "\
default/big  Unschedulable  attempt 1  820 us  queued 12.2 ms
  trace abababababababababababababababab
  0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are
  available: 3 No preemption victims found for incoming pod.
                    ╷0                    ╷500 us
SchedulePod         █████████████████████████████████████  820 us
└─ schedulingCycle  ███████████████████████████████████▋   790 us
   ├─ preFilter      ███▋                                 80.0 us
   ├─ filter             ██████████████████▏               400 us  Unschedulable
   └─ postFilter                           ███████████▎    250 us  no victims
";
    assert_eq!(waterfall(&unschedulable(), &PLAIN_80), expected);
}

#[test]
fn a_group_has_a_line_for_each_trial_that_took_place() {
    let mut trace = unschedulable();
    trace.spans.truncate(1);
    trace.kind = TraceKind::GroupAttempt;
    let root = &mut trace.spans[0];
    root.kind = SpanKind::Root(trace.kind);
    root.name = trace.kind.name().into();
    root.status = Status::Unset;
    root.attributes = [
        (attributes::POD_NAMESPACE, "default"),
        (attributes::POD_GROUP, "gang"),
        (attributes::POD_GROUP_SIZE, "1"),
        (attributes::POD_GROUP_SCHEDULED, "1"),
        (attributes::RESULT, "Success"),
    ]
    .map(|(key, value)| (key, AttributeValue::String(value.into())))
    .into_iter()
    .collect();
    let mut add =
        |kind, name: &'static str, parent: usize, attributes: Vec<(&'static str, AttributeValue)>| {
            let mut span = trace.spans[parent].clone();
            span.span_id = (trace.spans.len() as u64 + 100).to_be_bytes();
            span.parent_id = Some(trace.spans[parent].span_id);
            (span.kind, span.name, span.attributes) = (kind, name.into(), attributes.into());
            trace.spans.push(span);
        };
    let text = |text: &'static str| AttributeValue::String(text.into());
    let of_pod = vec![(attributes::POD_NAME, text("gang-0")), (attributes::SELECTED_NODE, text("node-b"))];
    add(SpanKind::Root(TraceKind::Attempt), "SchedulePod", 0, of_pod);
    for (zone, chosen) in [("a", false), ("b", true), ("c", false)] {
        let chosen = (attributes::TRIAL_CHOSEN, AttributeValue::Bool(chosen));
        add(SpanKind::Trial, "trial", 1, vec![(attributes::PLACEMENT, text(zone)), chosen]);
        add(SpanKind::Phase(Phase::Unreserve), "unreserve", 1, Vec::new());
    }
    let text = waterfall(&trace, &PLAIN_80);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("default/gang  Success  1 of 1 pod bound"), "{text}");
    let tree: Vec<_> = lines.iter().skip_while(|line| !line.starts_with("SchedulePodGroup")).collect();
    let expected = [
        "SchedulePodGroup ",
        "└─ SchedulePod gang-0 ",
        "   ├─ 2 other trials ",
        "   ├─ 3 unreserve ",
        "   └─ trial b ",
    ];
    assert_eq!(tree.len(), expected.len(), "{text}");
    for (line, begins) in tree.into_iter().zip(expected) {
        assert!(line.starts_with(begins), "{line:?} does not begin with {begins:?}");
    }
    assert!(line_of_the_pod(&text).ends_with("on node-b"), "{text}");
}

fn line_of_the_pod(text: &str) -> &str {
    text.lines().find(|line| line.contains("SchedulePod gang-0")).unwrap_or_default()
}

/// Adds spans of plugins to the phase: name, start and length in microseconds, result.
pub(in crate::export) fn add_plugins(
    trace: &mut Trace,
    phase: &str,
    plugins: &[(&str, u64, u64, &'static str)],
) {
    let phase = trace.spans.iter().find(|span| span.name == phase).expect("there is such a phase").clone();
    for (name, start, microseconds, result) in plugins {
        let start_unix_ns = phase.start_unix_ns + start * 1000;
        trace.spans.push(Span {
            span_id: (trace.spans.len() as u64 + 1).to_be_bytes(),
            parent_id: Some(phase.span_id),
            kind: SpanKind::Plugin,
            name: format!("{PLUGIN}{name}").into(),
            start_unix_ns,
            end_unix_ns: start_unix_ns + microseconds * 1000,
            attributes: [(attributes::RESULT, AttributeValue::String((*result).into()))]
                .into_iter()
                .collect(),
            ..phase.clone()
        });
    }
}

fn with_plugins() -> Trace {
    let mut trace = scheduled();
    add_plugins(
        &mut trace,
        "preFilter",
        &[("NodePorts", 1, 5, "Skip"), ("Fit", 10, 20, "Success"), ("Taint", 90, 3, "Skip")],
    );
    add_plugins(&mut trace, "reserve", &[("VolumeBinding", 2, 20, "Success")]);
    add_plugins(
        &mut trace,
        "preBind",
        &[("Quick", 0, 1, "Success"), ("Gate", 1, 1, "Wait"), ("Other", 2, 1, "Success")],
    );
    add_plugins(&mut trace, "bind", &[("DefaultBinder", 1, 2990, "Success")]);
    trace
}

#[test]
fn unremarkable_plugins_become_one_line() {
    let expected = "\
default/web-0  Success  on node-3  attempt 1  5.11 ms  queued 12.2 ms
  trace abababababababababababababababab
  linked to cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
                                ╷0          ╷2 ms        ╷4 ms
SchedulePod                     ████████████████████████████████ 5.11 ms
├─ schedulingCycle              ███████████▉                     1.90 ms
│  ├─ preFilter                 ▉                                 143 us
│  │  └─ 3 plugins              ▌                                28.0 us  2 Skip
│  ├─ filter                     ████▎                            669 us
│  ├─ preScore                        ▋                           113 us
│  ├─ score                           ████▏                       667 us
│  ├─ reserve                              ▏                     25.0 us
│  │  └─ plugin: VolumeBinding             ▏                     20.0 us
│  └─ permit                               ▏                     3.00 us
└─ bindingCycle                             ████████████████████ 3.20 ms
   ├─ preBindPreFlight                      ▏                    4.00 us
   ├─ preBind                               ▏                    8.00 us
   │  ├─ 2 plugins                          ▏                    2.00 us
   │  └─ plugin: Gate                       ▏                    1.00 us  Wait
   ├─ bind                                  ██████████████████▊  3.00 ms
   │  └─ plugin: DefaultBinder              ██████████████████▊  2.99 ms
   └─ postBind                                                 ▏ 9.00 us
";
    assert_eq!(waterfall(&with_plugins(), &PLAIN_80), expected);
}

#[test]
fn calls_that_outlast_the_attempt_follow_it_and_stays_in_queues_do_not() {
    let mut trace = unschedulable();
    let root = trace.root().clone();
    let context = RemoteContext::sampled(trace.trace_id, root.span_id);
    let late = |id: u64, kind, name: &'static str, after_ns, links| Span {
        kind,
        span_id: id.to_be_bytes(),
        name: name.into(),
        start_unix_ns: root.end_unix_ns + after_ns,
        end_unix_ns: root.end_unix_ns + after_ns + 1_500_000,
        attributes: [(attributes::POD_NAME, AttributeValue::String("small".into()))].into_iter().collect(),
        links,
        status: Status::Unset,
        ..root.clone()
    };
    let link = Link { context, relation: Relation::Attempt };
    trace.spans.push(late(900, SpanKind::Victim, "preemptPod", 250_000, vec![link]));
    trace.spans.push(late(901, SpanKind::QueueStay, "queue: active", 0, Vec::new()));
    let text = waterfall(&trace, &PLAIN_80);
    let last = text.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("preemptPod small") && last.ends_with("1.50 ms  250 us after the end"),
        "{text}"
    );
    assert!(!text.contains("queue: active"), "{text}");
}

#[test]
fn a_plugin_that_failed_or_was_slow_or_lost_its_end_keeps_its_line() {
    let mut trace = with_plugins();
    let text = waterfall(&trace, &PLAIN_80);
    assert!(text.contains("3 plugins") && !text.contains("Fit"), "{text}");
    let fit = trace.spans.iter().position(|span| span.name == "plugin: Fit").expect("it is there");
    for change in [
        (|span: &mut Span| span.status = Status::Error("Unschedulable: no".into())) as fn(&mut Span),
        |span| span.end_unix_ns += 5_110_000 / 20,
        |span| span.attributes.push((attributes::INCOMPLETE, AttributeValue::Bool(true))),
    ] {
        let before = trace.spans[fit].clone();
        change(&mut trace.spans[fit]);
        let text = waterfall(&trace, &PLAIN_80);
        assert!(text.contains("2 plugins") && text.contains("plugin: Fit"), "{text}");
        trace.spans[fit] = before;
    }
}

#[test]
fn all_plugins_have_a_line_when_asked_for() {
    let trace = with_plugins();
    let text = waterfall(&trace, &Style { plugins: true, ..PLAIN_80 });
    assert_eq!(text.matches(PLUGIN).count(), 8, "{text}");
    assert_eq!(text.lines().count(), trace.spans.len() + 4, "{text}");
}

#[test]
fn the_head_shows_queues_nodes_and_preemption() {
    let mut trace = scheduled();
    let milliseconds = AttributeValue::Double;
    let strings = |list: &[&str]| AttributeValue::Strings(list.iter().map(ToString::to_string).collect());
    trace.spans[0].attributes.extend([
        (attributes::EVALUATED_NODES, AttributeValue::Int(100)),
        (attributes::FEASIBLE_NODES, AttributeValue::Int(12)),
        (attributes::PREEMPTION_NODE, AttributeValue::String("node-3".into())),
        (attributes::PREEMPTION_VICTIMS, AttributeValue::Int(2)),
        (attributes::PREEMPTION_VICTIM_NAMES, strings(&["low-1", "low-2"])),
        (attributes::QUEUE_BACKOFF_MS, milliseconds(1000.0)),
        (attributes::QUEUE_UNSCHEDULABLE_MS, milliseconds(3210.0)),
        (
            attributes::QUEUE_MOVES,
            strings(&[
                "unschedulable: ScheduleAttemptFailure",
                "backoff: NodeAdd",
                "active: BackoffComplete",
            ]),
        ),
    ]);
    let head = "\
default/web-0  Success  on node-3  attempt 1  5.11 ms  unschedulable 3.21 s until NodeAdd
  backoff 1.00 s until BackoffComplete  queued 12.2 ms  12 of 100 nodes fit
  preempts 2 pods on node-3 (low-1, low-2)  trace abababababababababababababababab
";
    let text = waterfall(&trace, &Style { width: 90, ..PLAIN_80 });
    assert!(text.starts_with(head), "{text}");
}

#[test]
fn a_message_is_wrapped_and_ends_after_a_few_lines() {
    let mut trace = unschedulable();
    trace.spans[0].status = Status::Error("3 nodes of this kind, ".repeat(100));
    let text = waterfall(&trace, &PLAIN_80);
    let lines: Vec<_> = text.lines().skip_while(|line| !line.starts_with("  3 nodes")).collect();
    let message: Vec<_> =
        lines.iter().take_while(|line| line.starts_with("  ") && !line.contains(MARK)).collect();
    assert_eq!(message.len(), MESSAGE_LINES, "{text}");
    assert!(message[MESSAGE_LINES - 1].ends_with('…'), "{text}");
    assert!(message[..MESSAGE_LINES - 1].iter().all(|line| !line.contains('…')), "{text}");
}

#[test]
fn a_paragraph_is_as_wide_as_a_waterfall_and_has_no_control_characters() {
    let style = Style { width: 60, colour: true, plugins: false };
    let text = paragraph(&"Ready after\u{1b} 48.0 s:\n pulling ".repeat(9), &style);
    assert!(text.lines().count() > 3 && text.lines().all(|line| line.chars().count() <= 60), "{text}");
    assert!(text.lines().skip(1).all(|line| line.starts_with("  ")) && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_message_that_fits_is_not_cut() {
    let mut trace = unschedulable();
    let line = "nodes".repeat(12);
    trace.spans[0].status = Status::Error([&*line; MESSAGE_LINES].join(" "));
    let text = waterfall(&trace, &PLAIN_80);
    assert_eq!(text.matches(&line).count(), MESSAGE_LINES, "{text}");
    assert!(!text.contains('…'), "{text}");
}

#[test]
fn a_reconcile_reads_at_a_glance() {
    let mut trace = scheduled();
    trace.kind = TraceKind::Reconcile;
    trace.spans.truncate(1);
    trace.spans[0].kind = SpanKind::Root(TraceKind::Reconcile);
    let links = mem::take(&mut trace.spans[0].links);
    trace.spans[0].attributes = vec![
        (attributes::WORKQUEUE, "deployment".into()),
        (attributes::WORKQUEUE_KEY, "shop/web".into()),
        (attributes::WORKQUEUE_WAIT_MS, AttributeValue::Double(1.5)),
    ]
    .into();
    let wide = Style { width: 120, ..PLAIN_80 };
    let head = |trace: &Trace| waterfall(trace, &wide).lines().next().unwrap_or_default().to_owned();
    let id = "abababababababababababababababab";
    assert_eq!(head(&trace), format!("shop/web  deployment  5.11 ms  queued 1.50 ms  trace {id}"));
    trace.spans[0].attributes = vec![(attributes::WORKQUEUE_RETRIED, AttributeValue::Bool(true))].into();
    assert_eq!(head(&trace), format!("?  ?  retried  5.11 ms  trace {id}"));
    let creator = |link: Link| Link { relation: Relation::Creator(Evidence::Name), ..link };
    trace.spans[0].links = links.into_iter().map(creator).collect();
    let by = "cd".repeat(16);
    assert_eq!(head(&trace), format!("?  ?  retried  5.11 ms  trace {id}  created by {by}"));
    trace.spans[0].links.clear();
    trace.spans[0].attributes = vec![
        (attributes::CONTROLLER, "certificate".into()),
        (attributes::CONTROLLER_REQUEST, "shop/web".into()),
        (attributes::CONTROLLER_RESULT, "success".into()),
    ]
    .into();
    assert_eq!(head(&trace), format!("shop/web  certificate  success  5.11 ms  trace {id}"));
}

#[test]
fn nothing_is_wider_than_the_terminal_and_no_control_character_gets_through() {
    let mut trace = unschedulable();
    let hostile = "\u{1b}]0;owned\u{7}\u{202e}网".repeat(50);
    for (_, value) in &mut trace.spans[0].attributes {
        if let AttributeValue::String(text) = value {
            *text = hostile.clone().into();
        }
    }
    for span in &mut trace.spans {
        span.status = Status::Error(hostile.clone());
        span.attributes.push((attributes::INCOMPLETE, AttributeValue::Bool(true)));
    }
    for width in [60, 80, 100, 240] {
        let text = waterfall(&trace, &Style { width, ..PLAIN_80 });
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{} columns in {line}", line.chars().count());
            assert!(line.chars().all(|c| c.is_ascii_graphic() || " …├└─│╷█▏▎▍▌▋▊▉".contains(c)), "{line:?}");
        }
        assert!(text.contains("incomplete"));
    }
}

#[test]
fn long_names_and_notes_leave_a_third_of_the_width_to_bars() {
    let mut trace = lifecycle_of(&[
        (Stage::Queued, "queued", 0, 100),
        (Stage::Container, "container: runtime.v1.RuntimeService/StartContainerOfThePod", 100, 900),
    ]);
    trace.spans[2].attributes = vec![(attributes::IMAGE, "registry.test/".repeat(9).as_str().into())].into();
    for (width, bars, name) in [
        (160, 53, "└─ container: runtim…timeService/StartContainerOfThePod"),
        // On a narrow terminal names are worth more.
        (120, 30, "└─ container: run…Service/StartContainerOfThePod"),
        (80, 8, "└─ container: r…e/StartContainerOfThePod"),
    ] {
        let text = waterfall(&trace, &Style { width, ..PLAIN_80 });
        let bar = |line: &str| line.chars().filter(|c| *c == '█').count();
        let root = text.lines().find(|line| line.starts_with("PodLifecycle")).expect("it has a line");
        assert_eq!(bar(root), bars, "{text}");
        assert!(text.lines().any(|line| line.starts_with(name)), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    }
}

#[test]
fn a_name_that_is_too_long_keeps_its_beginning_and_most_of_its_end() {
    let name = "kube-controller-manager: delete Pod +62.0 s";
    let kept: Vec<_> = [43, 33, 2, 1, 0].into_iter().map(|width| shortened(name, width)).collect();
    assert_eq!(kept, [name, "kube-contr…er: delete Pod +62.0 s", "…s", "…", "…"]);
}

#[test]
fn colours_change_nothing_but_colours() {
    for trace in [scheduled(), unschedulable()] {
        let coloured = waterfall(&trace, &Style { colour: true, ..PLAIN_80 });
        let mut plain = String::new();
        for (i, part) in coloured.split("\x1b[").enumerate() {
            plain += if i == 0 { part } else { part.split_once('m').unwrap().1 };
        }
        assert!(coloured.contains("\x1b[") && !coloured.contains("\x1b[m"), "{coloured:?}");
        let trimmed: Vec<_> = plain.lines().map(str::trim_end).collect();
        assert_eq!(trimmed.join("\n") + "\n", waterfall(&trace, &PLAIN_80));
    }
}

#[test]
fn spans_whose_parents_are_missing_or_themselves_do_no_harm() {
    let mut trace = scheduled();
    trace.spans[1].parent_id = Some(trace.spans[1].span_id);
    trace.spans[8].parent_id = Some([9; 8]);
    let _ = waterfall(&trace, &PLAIN_80);
    for span in &mut trace.spans {
        (span.start_unix_ns, span.end_unix_ns) = (0, u64::MAX);
    }
    let _ = waterfall(&trace, &PLAIN_80);
}

#[test]
fn the_style_follows_the_terminal_and_the_environment() {
    let style = |columns, terminal, variables: &[(&str, &str)]| {
        Style::of(columns, terminal, |name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    };
    assert_eq!(style(Some(120), true, &[]), Style { width: 120, colour: true, plugins: false });
    assert_eq!(style(None, false, &[]), Style { width: 100, colour: false, plugins: false });
    assert_eq!(
        style(None, false, &[("COLUMNS", "72"), ("CLICOLOR_FORCE", "1")]),
        Style { width: 72, colour: true, plugins: false }
    );
    assert_eq!(
        style(Some(0), false, &[("COLUMNS", "x"), ("CLICOLOR_FORCE", "0")]),
        Style { width: 100, colour: false, plugins: false }
    );
    assert_eq!(
        style(Some(3), true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]),
        Style { width: 60, colour: false, plugins: false }
    );
}

#[test]
fn colours_say_how_it_went() {
    let coloured = Style { colour: true, ..PLAIN_80 };
    let with = |result: &str| {
        let mut trace = scheduled();
        let own = trace.spans[0].attributes.iter_mut().find(|(key, _)| *key == attributes::RESULT);
        own.expect("it has a result").1 = AttributeValue::String(result.to_owned().into());
        waterfall(&trace, &coloured)
    };
    for (result, colour) in [
        ("Success", GREEN),
        ("Ready", GREEN),
        ("Running", GREEN),
        ("Succeeded", GREEN),
        ("Unschedulable", YELLOW),
        ("Deleted", YELLOW),
        ("Error", RED),
    ] {
        assert!(with(result).contains(&format!("  \x1b[{colour}m{result}\x1b[0m  ")), "{result}");
    }
    let text = waterfall(&unschedulable(), &coloured);
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default();
    assert!(line("SchedulePod ").contains("\x1b[31m█"), "a failed root: {text}");
    assert!(line("schedulingCycle").contains("\x1b[34m█"), "{text}");
    assert!(line("filter").ends_with("\x1b[33mUnschedulable\x1b[0m"), "{text}");
    assert!(line("postFilter").ends_with("\x1b[31mno victims\x1b[0m"), "{text}");
    let text = waterfall(&scheduled(), &coloured);
    for line in text.lines().skip_while(|line| !line.contains("bindingCycle")) {
        assert!(line.contains("\x1b[36m "), "the binding has a colour of its own: {line:?}");
    }
}

/// A lifecycle: kind of stage, name, start and length in milliseconds.
fn lifecycle_of(stages: &[(Stage, &'static str, u64, u64)]) -> Trace {
    let mut trace = scheduled();
    trace.spans.truncate(1);
    trace.kind = TraceKind::Lifecycle;
    let root = &mut trace.spans[0];
    root.kind = SpanKind::Root(trace.kind);
    root.name = trace.kind.name().into();
    root.end_unix_ns = root.start_unix_ns + 1_000_000_000;
    root.links.clear();
    root.attributes = vec![
        (attributes::POD_NAMESPACE, "shop".into()),
        (attributes::POD_NAME, "web-0".into()),
        (attributes::LIFECYCLE_RESULT, "Ready".into()),
        (attributes::NODE, "node-3".into()),
        (attributes::LIFECYCLE_ATTEMPTS, AttributeValue::Int(2)),
        (attributes::LIFECYCLE_RESTARTS, AttributeValue::Int(1)),
        (attributes::VOLUMES, AttributeValue::Int(0)),
    ]
    .into();
    for (stage, name, start, milliseconds) in stages {
        let root = trace.root().clone();
        let start_unix_ns = root.start_unix_ns + start * 1_000_000;
        trace.spans.push(Span {
            kind: SpanKind::Stage(*stage),
            span_id: (trace.spans.len() as u64 + 1).to_be_bytes(),
            parent_id: Some(root.span_id),
            name: (*name).into(),
            start_unix_ns,
            end_unix_ns: start_unix_ns + milliseconds * 1_000_000,
            attributes: crate::Attributes::new(),
            ..root
        });
    }
    trace
}

#[test]
fn a_lifecycle_reads_at_a_glance() {
    let mut trace = lifecycle_of(&[
        (Stage::Queued, "queued", 0, 100),
        (Stage::Attempt, "SchedulePod", 100, 200),
        (Stage::Kubelet, "kubelet", 300, 100),
        (Stage::Container, "container main", 400, 500),
    ]);
    trace.spans[2].attributes = vec![(attributes::SELECTED_NODE, "node-3".into())].into();
    trace.spans[4].attributes = vec![(attributes::IMAGE, "nginx:1.29".into())].into();
    let expected = "\
shop/web-0  Ready  on node-3  1.00 s  2 attempts  1 restart
  trace abababababababababababababababab
                   ╷0      ╷200 ms ╷400 ms ╷600 ms ╷800 ms
PodLifecycle       █████████████████████████████████████████  1.00 s
├─ queued          ████                                       100 ms
├─ SchedulePod         ████████▎                              200 ms  on node-3
├─ kubelet                     ████▏                          100 ms
└─ container main                  ████████████████████▌      500 ms  nginx:1.29
";
    assert_eq!(waterfall(&trace, &PLAIN_80), expected);
    let text = waterfall(&trace, &Style { colour: true, ..PLAIN_80 });
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default();
    assert!(line("queued  ").contains("\x1b[2m█"), "{text}");
    assert!(line("kubelet").contains("\x1b[36m "), "{text}");
    assert!(line("SchedulePod").contains("\x1b[34m "), "{text}");
}

#[test]
fn a_plugin_is_unremarkable_below_a_twentieth_of_the_attempt() {
    let mut trace = scheduled();
    add_plugins(
        &mut trace,
        "filter",
        &[("Below", 0, 254, "Success"), ("Other", 254, 1, "Success"), ("At", 300, 256, "Success")],
    );
    let text = waterfall(&trace, &PLAIN_80);
    assert!(text.contains("2 plugins") && text.contains("plugin: At "), "{text}");
    let at = trace.spans.last_mut().expect("it was added");
    at.end_unix_ns = at.start_unix_ns + 5_110_000 / 20;
    let text = waterfall(&trace, &PLAIN_80);
    assert!(text.contains("2 plugins") && text.contains("plugin: At "), "{text}");
    let at = trace.spans.last_mut().expect("it was added");
    at.end_unix_ns -= 1;
    assert!(waterfall(&trace, &PLAIN_80).contains("3 plugins"));
}

#[test]
fn the_axis_has_round_figures_that_do_not_touch() {
    assert_eq!(axis(5_110_000, 48), "╷0       ╷1 ms    ╷2 ms     ╷3 ms    ╷4 ms");
    assert_eq!(axis(820_000, 30), "╷0                ╷500 us");
    assert_eq!(axis(1_000, 9), "╷0");
    for (total, width) in [(0, 8), (1, 60), (7, 200), (u64::MAX, 60), (999, 1000)] {
        let axis = axis(total, width);
        assert!(axis.chars().count() <= width && axis.starts_with("╷0"), "{axis}");
    }
}

#[test]
fn a_line_of_several_spans_leaves_out_what_is_between_them() {
    let trace = scheduled();
    let start = trace.root().start_unix_ns;
    let at = |from_us: u64, to_us: u64| (start + from_us * 1000, start + to_us * 1000);
    let times = apart(vec![at(2555, 3832), at(0, 1000), at(500, 1277)]);
    assert_eq!(times, [at(0, 1277), at(2555, 3832)]);
    assert_eq!(bar(&times, trace.root(), 20), "████▉     ████▉     ");
}

#[test]
fn a_pod_that_is_new_is_created_and_not_unschedulable() {
    let mut trace = scheduled();
    let entered = |event: &str| AttributeValue::Strings(vec![format!("active: {event}")]);
    trace.spans[0].attributes.push((attributes::QUEUE_MOVES, entered("UnschedulablePodAdd")));
    assert!(waterfall(&trace, &PLAIN_80).contains("queued 12.2 ms since created"));
    trace.spans[0].attributes.pop();
    trace.spans[0].attributes.push((attributes::QUEUE_MOVES, entered("NodeAdd")));
    assert!(waterfall(&trace, &PLAIN_80).contains("queued 12.2 ms by NodeAdd"));
}

#[test]
fn text_without_colour_is_plain() {
    assert_eq!(PLAIN_80.paint(RED, "text"), "text");
    let coloured = Style { colour: true, ..PLAIN_80 };
    assert_eq!(coloured.paint(RED, "text"), "\x1b[31mtext\x1b[0m");
    assert_eq!([coloured.paint(PLAIN, "text"), coloured.paint(RED, "")], ["text", ""]);
}

#[test]
fn a_share_says_what_it_is_worth() {
    let mut trace = scheduled();
    add_plugins(&mut trace, "filter", &[("Fit", 0, 500, "Success"), ("Image", 0, 5, "Success")]);
    for (span, (samples, basis)) in trace
        .spans
        .iter_mut()
        .filter(|span| span.kind == SpanKind::Plugin)
        .zip([(60, "sampled"), (1, "profile")])
    {
        span.kind = SpanKind::Share;
        span.attributes = vec![
            (attributes::SHARE, AttributeValue::Double(samples as f64 / 80.0)),
            (attributes::SHARE_SAMPLES, AttributeValue::Int(samples)),
            (attributes::SHARE_SAMPLES_OF_PHASE, AttributeValue::Int(80)),
            (attributes::SHARE_BASIS, AttributeValue::String(basis.into())),
        ]
        .into();
    }
    let text = waterfall(&trace, &Style { width: 140, colour: false, plugins: true });
    assert!(text.contains("75 %: 60 of 80 samples\n"), "{text}");
    assert!(text.contains("1 % in the last minute: 1 of 80\n"), "{text}");
    for (rejected, says) in [(0, "75 % exact: 12 calls\n"), (3, "75 % exact: 12 calls, rejects 3\n")] {
        let share = trace.spans.iter_mut().find(|span| span.kind == SpanKind::Share).expect("it is there");
        share.attributes = vec![
            (attributes::SHARE, AttributeValue::Double(0.75)),
            (attributes::SHARE_BASIS, AttributeValue::String("exact".into())),
            (attributes::CALLS, AttributeValue::Int(12)),
            (attributes::REJECTED_NODES, AttributeValue::Int(rejected)),
        ]
        .into();
        let text = waterfall(&trace, &Style { width: 140, colour: false, plugins: true });
        assert!(text.contains(says), "{text}");
    }
}

type Texts = [(&'static str, &'static str)];

/// A trace of only its root, in which nothing is linked.
fn of_root(kind: TraceKind, attributes: &Texts) -> Trace {
    let mut trace = scheduled();
    trace.spans.truncate(1);
    trace.kind = kind;
    let root = &mut trace.spans[0];
    (root.kind, root.name) = (SpanKind::Root(kind), kind.name().into());
    root.links.clear();
    root.attributes = attributes.iter().map(|(key, value)| (*key, (*value).into())).collect();
    trace
}

/// Adds the root of another trace below the root.
fn add_below(trace: &mut Trace, other: Trace) -> &mut Span {
    let parent_id = Some(trace.root().span_id);
    let span_id = (trace.spans.len() as u64 + 1).to_be_bytes();
    trace.spans.extend(other.spans.into_iter().map(|root| Span { parent_id, span_id, ..root }));
    trace.spans.last_mut().expect("it was added")
}

#[test]
fn the_head_of_what_was_done_to_a_pod_says_so() {
    let pod = [(attributes::POD_NAMESPACE, "shop"), (attributes::POD_NAME, "web-0")];
    for (kind, done) in [
        (TraceKind::PodStorage, "stored"),
        (TraceKind::PodCreation, "created"),
        (TraceKind::PodDeletion, "deleted"),
        (TraceKind::PodEviction, "evicted"),
        (TraceKind::PodStart, "unknown"),
    ] {
        let text = waterfall(&of_root(kind, &pod), &PLAIN_80);
        assert!(text.starts_with(&format!("shop/web-0  {done}  5.11 ms  trace abab")), "{text}");
    }
    let asked = [(attributes::USER, "jane"), (attributes::OBJECT_MANAGER, "kubectl")];
    let text = waterfall(&of_root(TraceKind::PodStorage, &asked), &PLAIN_80);
    assert!(text.starts_with("?/?  stored  5.11 ms  by jane with kubectl\n"), "{text}");
}

#[test]
fn the_head_of_a_command_says_how_far_its_pods_are() {
    let mut trace = of_root(TraceKind::Command, &[(attributes::LIFECYCLE_RESULT, "3 of 4 Pods are Ready")]);
    trace.spans[0].name = "deployment/web".into();
    let head = |trace: &Trace, colour| {
        let text = waterfall(trace, &Style { colour, ..PLAIN_80 });
        text.lines().next().unwrap_or_default().to_owned()
    };
    let plain = head(&trace, false);
    assert!(plain.starts_with("deployment/web  3 of 4 Pods are Ready  5.11 ms"), "{plain}");
    assert!(head(&trace, true).contains("\x1b[32m3 of 4"));
    trace.spans[0].status = Status::Error("one is not".to_owned());
    assert!(head(&trace, true).contains("\x1b[33m3 of 4"));
}

#[test]
fn the_result_of_a_controller_is_green_unless_it_failed() {
    let mut trace = of_root(TraceKind::Reconcile, &[(attributes::CONTROLLER_RESULT, "requeue")]);
    let coloured = Style { colour: true, ..PLAIN_80 };
    assert!(waterfall(&trace, &coloured).contains("\x1b[32mrequeue\x1b[0m"));
    trace.spans[0].status = Status::Error("conflict".to_owned());
    assert!(waterfall(&trace, &coloured).contains("\x1b[31mrequeue\x1b[0m"));
}

#[test]
fn parts_of_a_trace_say_what_they_are_about() {
    let cases: [(TraceKind, &Texts, &str); 5] = [
        (
            TraceKind::Lifecycle,
            &[(attributes::LIFECYCLE_RESULT, "Ready"), (attributes::NODE, "node-3")],
            "Ready on node-3",
        ),
        (TraceKind::PodStorage, &[(attributes::USER, "jane")], "by jane"),
        (
            TraceKind::Reconcile,
            &[(attributes::WORKQUEUE, "deployment"), (attributes::WORKQUEUE_KEY, "shop/web")],
            "deployment shop/web",
        ),
        (
            TraceKind::PodCreation,
            &[(attributes::CONTROLLER, "job"), (attributes::CONTROLLER_REQUEST, "shop/night")],
            "job shop/night",
        ),
        (TraceKind::PodStart, &[(attributes::IMAGE, "nginx:1.29")], "nginx:1.29"),
    ];
    for (kind, attributes, note) in cases {
        let mut trace = of_root(TraceKind::Lifecycle, &[]);
        add_below(&mut trace, of_root(kind, attributes));
        let text = waterfall(&trace, &PLAIN_80);
        let line = text.lines().find(|line| line.starts_with("└─ ")).unwrap_or_default();
        assert!(line.ends_with(&format!(" 5.11 ms  {note}")), "{text}");
        // What is usual is dim.
        let text = waterfall(&trace, &Style { colour: true, ..PLAIN_80 });
        assert!(text.ends_with(&format!("\x1b[2m{note}\x1b[0m\n")), "{text}");
    }
}

#[test]
fn an_error_without_a_reason_has_its_result() {
    let mut trace = unschedulable();
    let post_filter = trace.spans.last_mut().expect("it has phases");
    post_filter.status = Status::Error(String::new());
    let text = waterfall(&trace, &PLAIN_80);
    assert!(text.lines().any(|line| line.contains("postFilter") && line.ends_with("us  Error")), "{text}");
}

#[test]
fn the_note_of_a_call_after_the_end_is_its_own_where_it_has_one() {
    let mut trace = unschedulable();
    let root = trace.root().clone();
    let context = RemoteContext::sampled(trace.trace_id, root.span_id);
    let call = Span {
        kind: SpanKind::ApiCall,
        span_id: [9; 8],
        name: "pod_status_patch".into(),
        start_unix_ns: root.end_unix_ns,
        end_unix_ns: root.end_unix_ns + 1_000,
        attributes: crate::Attributes::new(),
        links: vec![Link { context, relation: Relation::Attempt }],
        status: Status::Unset,
        ..root
    };
    trace.spans.push(call);
    let wide = Style { width: 120, ..PLAIN_80 };
    let last = |trace: &Trace| waterfall(trace, &wide).lines().last().unwrap_or_default().to_owned();
    assert!(last(&trace).ends_with(" 1.00 us"), "at the end itself it is not after it: {}", last(&trace));
    let call = trace.spans.last_mut().expect("it was added");
    (call.start_unix_ns, call.end_unix_ns) = (call.start_unix_ns + 1_000, call.end_unix_ns + 1_000);
    assert!(last(&trace).ends_with(" 1.00 us  1.00 us after the end"), "{}", last(&trace));
    trace.spans.last_mut().expect("it was added").status = Status::Error("conflict".to_owned());
    assert!(last(&trace).ends_with(" 1.00 us  conflict"), "{}", last(&trace));
}

#[test]
fn what_fits_exactly_is_on_the_line() {
    let style = Style { width: 60, ..PLAIN_80 };
    assert_eq!(paragraph(&format!("{} {}", "a".repeat(30), "b".repeat(29)), &style).lines().count(), 1);
    assert_eq!(paragraph(&format!("{} {}", "a".repeat(30), "b".repeat(30)), &style).lines().count(), 2);
    // Its last figure ends with the axis.
    assert_eq!(axis(30, 18), "╷0          ╷20 ns");
}
