//! A report as text.

use std::fmt::Write as _;

use super::{Clock, Counts, Figures, Quantiles, Report, Row, metrics::Figure};
use spans::{figures::duration, text::clean};

/// Most characters of the name of a kind.
const NAME: usize = 44;

/// A report as text, for a terminal of 150 columns.
#[must_use]
pub fn table(report: &Report, [a, b]: [&str; 2]) -> String {
    let mut text = String::new();
    let Report { clock, all, kinds, only_a, only_b, attributes, missing, .. } = report;
    for (side, name, Counts { spans, attempts, orphans }) in [("A", a, &report.a), ("B", b, &report.b)] {
        let _ = write!(text, "{side}  {}: {spans} spans of {attempts} attempts", clean(name));
        let _ = match orphans {
            0 => writeln!(text),
            orphans => writeln!(text, ", {orphans} without an attempt"),
        };
    }
    let _ = match clock {
        Clock::Monotonic => writeln!(text, "Times by CLOCK_MONOTONIC, as the spans say it."),
        Clock::Wall { offset } => writeln!(
            text,
            "Times by the wall clock; {} were taken off those of B, the median difference of the roots' starts.",
            signed(*offset)
        ),
    };
    let _ = writeln!(
        text,
        "\n{:<NAME$} {:>8} {:>9} {:>9} {:>8} {:>8} {:>11} {:>8}",
        "", "TWINS", "NOT IN A", "NOT IN B", "PARENTS", "STATUS", "ATTRIBUTES", "OUTSIDE"
    );
    let rows = || [("all", all)].into_iter().chain(kinds.iter().map(|(kind, row)| (kind.as_str(), row)));
    for (name, row) in rows() {
        let Row { twins, missing_in_a, missing_in_b, parents_differ, status_differs, .. } = row;
        let _ = writeln!(
            text,
            "{:<NAME$} {twins:>8} {missing_in_a:>9} {missing_in_b:>9} {parents_differ:>8} {status_differs:>8} {:>11} {:>8}",
            cut(name),
            row.attributes_differ,
            row.outside
        );
    }
    let _ = writeln!(
        text,
        "\n{:<NAME$} {:^35}  {:^35}  {:^35}",
        "", "B BEGINS LATER BY", "B ENDS EARLIER BY", "B IS SHORTER BY"
    );
    let head = format!("{:>8} {:>8} {:>8} {:>8}", "P50", "P90", "P99", "MAX");
    let _ = writeln!(text, "{:<NAME$} {head}  {head}  {head}", "");
    for (name, Row { start, end, duration, .. }) in rows() {
        let _ = writeln!(text, "{:<NAME$} {}  {}  {}", cut(name), four(start), four(end), four(duration));
    }
    for (side, only) in [("A", only_a), ("B", only_b)] {
        if !only.is_empty() {
            let list: Vec<_> = only.iter().map(|(kind, count)| format!("{} {count}", clean(kind))).collect();
            let _ = writeln!(text, "\nOnly {side} makes: {}", list.join(", "));
        }
    }
    for missing in missing {
        let [kind, pod, attempt] = [&missing.kind, &missing.pod, &missing.attempt].map(|text| clean(text));
        let _ =
            writeln!(text, "not in {}: {kind}, attempt {attempt} of Pod {pod}", missing.side.to_uppercase());
    }
    for attribute in attributes {
        if let Some([a, b]) = &attribute.example {
            let [kind, key, a, b] = [&attribute.kind, &attribute.key, a, b].map(|text| clean(text));
            let _ = writeln!(text, "{key} of {kind} differs {} times: `{a}` and `{b}`", attribute.differ);
        }
    }
    text
}

/// Spans next to the scheduler's own metrics, as text.
#[must_use]
pub fn metrics(figures: &Figures) -> String {
    let mut text = format!(
        "{:<18} {:<14} {:>9} {:>9} {:>12} {:>12} {:>12}\n",
        "", "RESULT", "SPANS", "METRIC", "SPANS s", "METRIC s", "DIFF us/call"
    );
    for Figure { name, result, spans, metric, spans_seconds, metric_seconds } in figures {
        let _ = write!(text, "{name:<18} {result:<14} {spans:>9} {metric:>9}");
        let _ = match metric_seconds {
            Some(seconds) => {
                let per_call = (spans_seconds - seconds) / metric.max(1.0) * 1e6;
                writeln!(text, " {spans_seconds:>12.6} {seconds:>12.6} {per_call:>12.2}")
            }
            None => writeln!(text),
        };
    }
    text
}

fn four(Quantiles { min: _, p50, p90, p99, max }: &Quantiles) -> String {
    let [p50, p90, p99, max] = [p50, p90, p99, max].map(|ns| signed(*ns));
    format!("{p50:>8} {p90:>8} {p99:>8} {max:>8}")
}

/// Nanoseconds with a sign and a unit.
pub(super) fn signed(ns: i64) -> String {
    format!("{}{}", if ns < 0 { "-" } else { "" }, duration(ns.unsigned_abs()))
}

fn cut(name: &str) -> String {
    clean(name).chars().take(NAME).collect()
}
