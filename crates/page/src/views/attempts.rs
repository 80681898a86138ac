//! All attempts that are remembered: durations over time, and a list.

use std::sync::Arc;

use kube_scheduler::brief::{Brief, Keep};
use maud::{Markup, html};

use super::{class, mark};
use crate::text::{Foreign, ago, count, duration, percent, pod_path, time_of_day};

/// Attempts in the list.
const LISTED: usize = 50;
/// Filters that are a click away: words, and the conditions.
const FILTERS: [(&str, &str); 5] = [
    ("all", ""),
    ("failed", "failed"),
    ("slower than p90", "slower-than=p90"),
    ("slower than 10 ms", "slower-than=10ms"),
    ("preempting", "preempting"),
];

pub(crate) fn view(attempts: &[Arc<Brief>], keep: &str, now_unix_us: u64) -> Markup {
    let (shown, wrong) = match keep.parse::<Keep>() {
        Ok(wanted) => (wanted.of(attempts), None),
        Err(wrong) => (Vec::new(), Some(wrong)),
    };
    html! {
        h1 { "Attempts" }
        form.filter action="/attempts" {
            label for="keep" { "Keep" }
            input #keep type="text" name="keep" value=(Foreign(keep)) placeholder="failed,slower-than=10ms,namespace=shop,pod=web-*" autocomplete="off" spellcheck="false"
                aria-describedby=[wrong.as_ref().map(|_| "wrong")] aria-invalid=[wrong.as_ref().map(|_| "true")];
            button type="submit" { "Apply" }
            ul.chips aria-label="Filters" {
                @for (words, of) in FILTERS {
                    li { a href={ "/attempts" @if !of.is_empty() { "?keep=" (of) } } aria-current=[(of == keep).then_some("true")] { (words) } }
                }
            }
        }
        @if let Some(wrong) = &wrong { p #wrong.error role="alert" { (Foreign(wrong)) } }
        div #attempts data-live {
            @if shown.is_empty() {
                p.lead { @if attempts.is_empty() { "No attempt has been seen yet." } @else if wrong.is_none() { "None of " (count(attempts.len() as u64, "attempt")) " meets these conditions." } }
            } @else {
                p.lead { (summary(&shown, attempts.len())) }
                (scatter(&shown))
                (list(&shown, now_unix_us))
            }
        }
    }
}

fn summary(shown: &[Arc<Brief>], all: usize) -> String {
    let mut durations: Vec<u64> = shown.iter().map(|attempt| attempt.duration_ns).collect();
    durations.sort_unstable();
    let at = |percent: usize| duration(durations[(durations.len() * percent / 100).min(durations.len() - 1)]);
    let failed = shown.iter().filter(|attempt| attempt.failed()).count();
    let of = if shown.len() == all { String::new() } else { format!(" of {all}") };
    format!(
        "{}{of}, {failed} without success. Half take up to {}, 99 % up to {}.",
        count(shown.len() as u64, "attempt"),
        at(50),
        at(99)
    )
}

/// Durations over time, on a logarithmic scale. The list has the same for those who do not see it.
fn scatter(shown: &[Arc<Brief>]) -> Markup {
    let log = |ns: u64| (ns.max(1) as f64).log10();
    let (low, high) = shown.iter().fold((f64::MAX, f64::MIN), |(low, high), attempt| {
        (low.min(log(attempt.duration_ns)), high.max(log(attempt.duration_ns)))
    });
    let (low, high) = (low.floor(), (high + 0.05).ceil().max(low.floor() + 1.0));
    let y = |ns: u64| percent(high - log(ns), high - low);
    let (first, last) = shown.iter().fold((u64::MAX, 0), |(first, last), attempt| {
        (first.min(attempt.start_unix_us), last.max(attempt.start_unix_us))
    });
    // Half a point of room at each side.
    let span = last.saturating_sub(first).max(1_000_000) as f64;
    let x = |us: u64| percent(us.saturating_sub(first) as f64 + span * 0.01, span * 1.02);
    let decades: Vec<u64> =
        (low as u32..=high as u32).map(|exponent| 10_u64.saturating_pow(exponent)).collect();
    let label = format!(
        "Durations of {} over time; the table below lists the newest",
        count(shown.len() as u64, "attempt")
    );
    html! {
        figure.scatter {
            div.yaxis aria-hidden="true" {
                svg { @for decade in &decades { text x="100%" y=(y(*decade)) { (axis(*decade)) } } }
            }
            svg.plot role="img" aria-label=(label) {
                @for decade in &decades { line.grid x1="0" x2="100%" y1=(y(*decade)) y2=(y(*decade)) {} }
                @for attempt in shown {
                    circle.(class(attempt.result.as_deref())) cx=(x(attempt.start_unix_us)) cy=(y(attempt.duration_ns)) r="3.5" data-href=(pod_path(&attempt.namespace, &attempt.pod)) {
                        title { (Foreign(&attempt.namespace)) "/" (Foreign(&attempt.pod)) ", " (duration(attempt.duration_ns)) ", " (Foreign(attempt.result.as_deref().unwrap_or("not seen"))) }
                    }
                }
            }
            div.xaxis aria-hidden="true" {
                @for part in 0..=4_u32 { span { (time_of_day(first.saturating_add((span * f64::from(part) / 4.0) as u64))) } }
            }
            figcaption {
                @for (result, words) in [("Success", "bound"), ("Unschedulable", "no Node fits"), ("Error", "error")] {
                    span.key.(class(Some(result))) { (words) }
                }
            }
        }
    }
}

/// A power of ten as an axis shows it.
fn axis(ns: u64) -> String {
    let (scale, unit) = match ns {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    format!("{} {unit}", ns / scale)
}

fn list(shown: &[Arc<Brief>], now_unix_us: u64) -> Markup {
    html! {
        h2 { @if shown.len() > LISTED { "The newest " (LISTED) } @else { "Newest first" } }
        div.scroll tabindex="0" role="group" aria-label="Attempts" {
            table {
                thead { tr { th { "Pod" } th.number { "Attempt" } th { "Result" } th.number { "Took" } th.number { "Ago" } th { "Node, or reason" } } }
                tbody {
                    @for attempt in shown.iter().rev().take(LISTED) {
                        tr {
                            td { a href=(pod_path(&attempt.namespace, &attempt.pod)) { span.dim { (Foreign(&attempt.namespace)) "/" } (Foreign(&attempt.pod)) } }
                            td.number { @if let Some(number) = attempt.attempt { (number) } }
                            td { (mark(attempt.result.as_deref())) }
                            td.number { (duration(attempt.duration_ns)) }
                            td.number { (ago(now_unix_us, attempt.start_unix_us)) }
                            td.wide {
                                @if let Some(node) = &attempt.node { (Foreign(node)) }
                                @for (number, reason) in attempt.reasons.iter().enumerate() { @if number > 0 { "; " } (Foreign(&reason.words)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
