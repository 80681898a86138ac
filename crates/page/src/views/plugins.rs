//! Where time goes, by phase and plugin: the last minute, and the minutes before it.

use kube_scheduler::{
    last_minute::{Comparison, Figures, Timing},
    terms::TermCost,
};
use maud::{Markup, html};

use super::bar;
use crate::text::{Foreign, count, duration, grouped, percent};

/// Minutes before the last one that are compared with it, without a choice.
pub(crate) const DEFAULT: u64 = 5;
/// The choices.
const CHOICES: [u64; 3] = [1, DEFAULT, 10];
/// A change of less is not worth a colour.
const NOTABLE: f64 = 0.2;

pub(crate) fn view(Comparison { last, before, minutes }: &Comparison) -> Markup {
    html! {
        h1 { "Plugins" }
        ul.chips aria-label="Compared with" {
            @for choice in CHOICES {
                li { a href={ "/plugins?before=" (choice) } aria-current=[(choice == *minutes).then_some("true")] { (count(choice, "minute")) " before" } }
            }
        }
        div #plugins data-live {
            @if last.attempts == 0 {
                p.lead { "No attempt ended in the last minute." }
            } @else {
                p.lead {
                    (count(last.attempts, "attempt")) " in the last " (last.seconds) " s. "
                    @if before.attempts == 0 { "There was none before, to compare them with." }
                    @else { "Compared with " (count(before.attempts, "attempt")) " in the " (count(*minutes, "minute")) " before." }
                }
            }
            @if last.attempts > 0 || before.attempts > 0 {
                (table("Phases", &last.phases, &before.phases, last, before, false))
                (table("Plugins", &last.plugins, &before.plugins, last, before, true))
                (terms(&last.terms))
            }
        }
    }
}

/// Time of a part for each attempt.
fn each(timing: &Timing, figures: &Figures) -> u64 {
    timing.total_ns.checked_div(figures.attempts).unwrap_or_default()
}

fn table(
    title: &str,
    now: &[Timing],
    then: &[Timing],
    last: &Figures,
    before: &Figures,
    of_plugins: bool,
) -> Markup {
    let mut rows: Vec<&Timing> = now.iter().collect();
    rows.sort_by_key(|timing| std::cmp::Reverse(timing.total_ns));
    let longest = rows.first().map_or(0, |timing| each(timing, last)) as f64;
    html! {
        @if !rows.is_empty() {
            h2 { (title) }
            div.scroll tabindex="0" role="group" aria-label=(title) {
                table.timings {
                    thead {
                        tr {
                            th { @if of_plugins { "Plugin" } @else { "Phase" } }
                            @if of_plugins { th { "In" } }
                            th.number { "Calls" } th.number { "Each attempt" } th.axis { span.hidden { "Share" } }
                            th.number { "p50" } th.number { "p99" } th.number { "p50 before" } th.number { "Change" }
                        }
                    }
                    tbody {
                        @for timing in rows {
                            @let same = |of: &&Timing| (&of.name, &of.extension_point) == (&timing.name, &timing.extension_point);
                            @let old = then.iter().find(same);
                            tr {
                                th scope="row" { (Foreign(&timing.name)) }
                                @if of_plugins { td.dim { (Foreign(&timing.extension_point)) } }
                                td.number { (grouped(timing.count)) }
                                td.number { (duration(each(timing, last))) }
                                td.bars {
                                    (bar("0%", &percent(each(timing, last) as f64, longest), "phase"))
                                    @if let Some(old) = old { (bar("0%", &percent(each(old, before) as f64, longest), "old")) }
                                }
                                td.number { (duration(timing.p50_ns)) }
                                td.number { (duration(timing.p99_ns)) }
                                td.number.dim { @if let Some(old) = old { (duration(old.p50_ns)) } }
                                td.number { @if let Some(old) = old { (change(timing.p50_ns, old.p50_ns)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What attempts of Pods with a term take on average, and those of all others, in the last minute.
fn terms(costs: &[TermCost]) -> Markup {
    let mean = |means: Option<[u64; 2]>, of: usize| html! { @if let Some(means) = means { (duration(means[of])) } @else { "\u{2013}" } };
    html! {
        @if !costs.is_empty() {
            h2 { "Terms of Pods" }
            div.scroll tabindex="0" role="group" aria-label="Terms of Pods" {
                table.timings {
                    thead {
                        tr {
                            th { "Pods with" } th.number { "Attempts" } th.number { "Filter" } th.number { "Without" }
                            th.number { "Score" } th.number { "Without" } th { "Mostly" }
                        }
                    }
                    tbody {
                        @for TermCost { term, with, without, plugin, plugin_ns } in costs {
                            tr {
                                th scope="row" { (Foreign(term)) }
                                td.number { (grouped(with.attempts)) }
                                @for of in 0..2 {
                                    td.number { (mean(with.means(), of)) }
                                    td.number.dim { (mean(without.means(), of)) }
                                }
                                td { @if !plugin.is_empty() { (Foreign(plugin)) " " span.dim { (format!("{:.0} %", *plugin_ns as f64 * 100.0 / with.total_ns().max(1) as f64)) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A change, in words that need no colour.
fn change(now: u64, then: u64) -> Markup {
    let by = if then == 0 { 0.0 } else { now as f64 / then as f64 - 1.0 };
    let class = if by > NOTABLE {
        "bad"
    } else if by < -NOTABLE {
        "ok"
    } else {
        "dim"
    };
    html! { span.(class) { @if by.abs() < 0.005 { "same" } @else { (format!("{:+.0} %", by * 100.0).replace('-', "\u{2212}")) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_signed_percentage() {
        for (now, then, expected) in
            [(150, 100, "+50 %"), (50, 100, "\u{2212}50 %"), (100, 100, "same"), (7, 0, "same")]
        {
            assert!(change(now, then).into_string().contains(expected), "{now} {then}");
        }
    }
}
