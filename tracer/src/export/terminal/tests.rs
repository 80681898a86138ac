use super::*;
use crate::export::tests::{scheduled, unschedulable};

const PLAIN_80: Style = Style { width: 80, colour: false };

#[test]
fn a_success_reads_at_a_glance() {
    let expected = "\
default/web-0  Success  on node-3  attempt 1  5.11 ms  queued 12.2 ms
  trace abababababababababababababababab
  linked to cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd
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
fn a_failure_says_why() {
    let expected = "\
default/big  Unschedulable  attempt 1  820 us  queued 12.2 ms
  trace abababababababababababababababab
  0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are
  available: 3 No preemption victims found for incoming pod.
SchedulePod         █████████████████████████████████████  820 us
└─ schedulingCycle  ███████████████████████████████████▋   790 us
   ├─ preFilter      ███▋                                 80.0 us
   ├─ filter             ██████████████████▏               400 us  Unschedulable
   └─ postFilter                           ███████████▎    250 us  no victims
";
    assert_eq!(waterfall(&unschedulable(), &PLAIN_80), expected);
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
        let text = waterfall(&trace, &Style { width, colour: false });
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{} columns in {line}", line.chars().count());
            assert!(line.chars().all(|c| c.is_ascii_graphic() || " …├└─│█▏▎▍▌▋▊▉".contains(c)), "{line:?}");
        }
        assert!(text.contains("incomplete"));
    }
}

#[test]
fn colours_change_nothing_but_colours() {
    for trace in [scheduled(), unschedulable()] {
        let coloured = waterfall(&trace, &Style { colour: true, ..PLAIN_80 });
        let mut plain = String::new();
        for (i, part) in coloured.split("\x1b[").enumerate() {
            plain += if i == 0 { part } else { part.split_once('m').unwrap().1 };
        }
        assert!(coloured.contains("\x1b["));
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
fn durations_have_three_digits_and_a_unit() {
    for (ns, expected) in [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (9_994, "9.99 us"),
        (9_996, "10.0 us"),
        (143_200, "143 us"),
        (999_600, "1.00 ms"),
        (5_110_000, "5.11 ms"),
        (61_500_000_000, "61.5 s"),
        (1_234_000_000_000, "1234 s"),
    ] {
        assert_eq!(duration(ns), expected);
    }
}

#[test]
fn the_style_follows_the_terminal_and_the_environment() {
    let style = |columns, terminal, variables: &[(&str, &str)]| {
        Style::of(columns, terminal, |name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    };
    assert_eq!(style(Some(120), true, &[]), Style { width: 120, colour: true });
    assert_eq!(style(None, false, &[]), Style { width: 100, colour: false });
    assert_eq!(
        style(None, false, &[("COLUMNS", "72"), ("CLICOLOR_FORCE", "1")]),
        Style { width: 72, colour: true }
    );
    assert_eq!(
        style(Some(0), false, &[("COLUMNS", "x"), ("CLICOLOR_FORCE", "0")]),
        Style { width: 100, colour: false }
    );
    assert_eq!(
        style(Some(3), true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]),
        Style { width: 60, colour: false }
    );
}
