//! One Pod: the sentence, its way through the queues, the waterfall, the Nodes.

use std::sync::Arc;

use kube_scheduler::{
    brief::Brief,
    explain::{self, Account, Move, Phase, Plugin, Queue, RejectedGroup, RejectedNodes, Rejection, Report},
};
use maud::{Markup, html};
use spans::Phase as Point;

use super::{bar, class, mark};
use crate::text::{Foreign, ago, count, duration, percent, pod_path, time_of_day};

/// Pods that are offered where none is named.
const OFFERED: usize = 30;
/// Columns of plugins in the table of Nodes.
const MAX_PLUGINS: usize = 16;

/// Asks for a Pod, and offers those with the newest attempts.
pub(crate) fn ask(attempts: &[Arc<Brief>], asked: &str, now_unix_us: u64) -> Markup {
    let mut offered: Vec<&Brief> = Vec::new();
    for attempt in attempts.iter().rev() {
        if offered.len() < OFFERED
            && !offered.iter().any(|of| (&of.namespace, &of.pod) == (&attempt.namespace, &attempt.pod))
        {
            offered.push(attempt);
        }
    }
    html! {
        h1 { "A Pod" }
        form.filter action="/pod" {
            label for="pod" { "Pod" }
            input #pod type="text" name="pod" value=(Foreign(asked)) placeholder="namespace/name" autocomplete="off" spellcheck="false";
            button type="submit" { "Show" }
        }
        @if !asked.is_empty() { p.error role="alert" { "`" (Foreign(asked)) "` is not the name of a Pod: give namespace/name." } }
        div #offered data-live {
            @if offered.is_empty() { p.lead { "No attempt has been seen yet." } }
            @else {
                h2 { "Tried last" }
                ul.pods {
                    @for of in offered {
                        li {
                            a href=(pod_path(&of.namespace, &of.pod)) { span.dim { (Foreign(&of.namespace)) "/" } (Foreign(&of.pod)) }
                            " " (mark(of.result.as_deref())) span.dim { " " (ago(now_unix_us, of.start_unix_us)) }
                        }
                    }
                }
            }
        }
    }
}

pub(crate) fn view(report: &Report) -> Markup {
    let Report { namespace, pod, now_unix_us, attempts, conclusion, also_in, .. } = report;
    html! {
        h1 { span.dim { (Foreign(namespace)) "/" } (Foreign(pod)) }
        div #report data-live {
            @match attempts.split_last() {
                None => {
                    p.lead { (Foreign(&sentence(&explain::unknown(report)))) }
                    @if !also_in.is_empty() {
                        ul.pods { @for other in also_in { li { a href=(pod_path(other, pod)) { (Foreign(other)) "/" (Foreign(pod)) } } } }
                    }
                }
                Some((last, before)) => {
                    p.lead.answer.(class(last.result.as_deref())) { (Foreign(conclusion)) }
                    h2.facts { (head(last, *now_unix_us)) }
                    (attempt(last))
                    @if !before.is_empty() {
                        h2 { "Earlier attempts" }
                        @for (number, account) in before.iter().enumerate().rev() {
                            details.earlier id={ "attempt-" (number) } {
                                summary { (head(account, *now_unix_us)) }
                                (attempt(account))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).chain(['.']).collect()).unwrap_or_default()
}

fn head(account: &Account, now_unix_us: u64) -> Markup {
    let Account { attempt, start_unix_us, duration_ns, result, .. } = account;
    html! {
        span { "Attempt " @match attempt { Some(number) => (number), None => "?" } }
        (mark(result.as_deref()))
        span.dim { (time_of_day(*start_unix_us)) ", " (ago(now_unix_us, *start_unix_us)) " ago, took " (duration(*duration_ns)) }
    }
}

fn attempt(account: &Account) -> Markup {
    let Account {
        trace_id,
        uid,
        profile,
        terms,
        message,
        incomplete,
        rejected_by,
        rejected_nodes,
        preemption,
        queue,
        ..
    } = account;
    html! {
        article.attempt {
            @if *incomplete { p.error { "Parts of this attempt were not seen." } }
            @if !message.is_empty() { p.message { (Foreign(message)) } }
            @if let Some(preemption) = preemption {
                p { (count(preemption.victims, "Pod")) " of lower priority must leave " (Foreign(&preemption.node)) ": " (Foreign(&preemption.names.join(", "))) }
            }
            (way(queue, account.duration_ns))
            (waterfall(account))
            (nodes(account))
            (rejections(account.rejected_heading(), rejected_by))
            @if let Some(nodes) = rejected_nodes { (by_name(nodes)) }
            dl.ids {
                dt { "Trace" } dd { code { (Foreign(trace_id)) } }
                dt { "UID" } dd { code { (Foreign(uid)) } }
                dt { "Profile" } dd { (Foreign(profile)) }
                @if !terms.is_empty() { dt { "Terms" } dd { (Foreign(&terms.join(", "))) } }
            }
        }
    }
}

/// The way through the queues.
fn way(queue: &Queue, attempt_ns: u64) -> Markup {
    let Queue {
        active_ns,
        backoff_ns,
        unschedulable_ns,
        total_ns,
        gated_ns,
        gated_by,
        moves,
        moves_left_out,
    } = queue;
    let stays: Vec<(&str, u64)> =
        [("unschedulable", unschedulable_ns), ("backoff", backoff_ns), ("active", active_ns)]
            .into_iter()
            .filter_map(|(name, ns)| Some((name, (*ns)?)))
            .collect();
    let whole = stays.iter().fold(attempt_ns, |sum, (_, ns)| sum.saturating_add(*ns)) as f64;
    let mut at = 0_u64;
    let parts: Vec<_> = stays
        .iter()
        .copied()
        .chain([("attempt", attempt_ns)])
        .map(|(name, ns)| {
            let start = at;
            at = at.saturating_add(ns);
            (name, ns, percent(start as f64, whole), percent(ns as f64, whole))
        })
        .collect();
    html! {
        @if !stays.is_empty() || !moves.is_empty() {
            h3 { "Through the queues" @if let Some(total) = total_ns { span.dim { ", " (duration(*total)) " before the attempt" } } }
            svg.queue aria-hidden="true" { @for (name, _, x, width) in &parts { rect.(name) x=(x) y="0" width=(width) height="100%" {} } }
            ul.keys { @for (name, ns, ..) in &parts { li.key.(name) { (name) " " strong { (duration(*ns)) } } } }
            @if let Some(gated) = gated_ns {
                p.note { "Held for " (duration(*gated)) " by " @if gated_by.is_empty() { "PreEnqueue plugins" } @else { (Foreign(&gated_by.join(", "))) } }
            }
            @if !moves.is_empty() {
                ol.way {
                    @for Move { queue, event } in moves { li { strong { (Foreign(queue)) } " because " (Foreign(&explain::of_event(event))) } }
                    @if *moves_left_out > 0 { li.dim { (count(*moves_left_out, "more move")) " left out in the middle" } }
                }
            }
        }
    }
}

/// When each phase and plugin ran.
fn waterfall(account: &Account) -> Markup {
    let Account { phases, duration_ns, .. } = account;
    // Those of the queue were before.
    let in_attempt = |phase: &&Phase| phase.name != Point::PreEnqueue.name();
    let end = phases
        .iter()
        .map(|phase| phase.start_ns.saturating_add(phase.duration_ns))
        .fold(*duration_ns, u64::max);
    let whole = end.max(1) as f64;
    let row = |start: u64, ns: u64, class: &str| {
        bar(&percent(start as f64, whole), &percent((ns as f64).max(whole / 400.0), whole), class)
    };
    html! {
        @if !phases.is_empty() {
            h3 { "Where the time went" }
            div.scroll tabindex="0" role="group" aria-label="Waterfall" {
                table.waterfall {
                    thead {
                        tr {
                            th { "Phase" }
                            th.number { "Took" }
                            th.axis {
                                div aria-hidden="true" { span { "0" } @for part in 1..4_u64 { span { (duration(end / 4 * part)) } } }
                                span.hidden { "When" }
                            }
                        }
                    }
                    tbody {
                        @for Phase { name, start_ns, duration_ns, plugins } in phases.iter().filter(in_attempt) {
                            tr.phase { th scope="row" { (Foreign(name)) } td.number { (duration(*duration_ns)) } td.bars { (row(*start_ns, *duration_ns, "phase")) } }
                            @for Plugin { name, start_ns, duration_ns, result, .. } in plugins {
                                @let refuses = !matches!(result.as_deref(), None | Some("Success" | "Skip" | "Wait"));
                                tr.plugin {
                                    th scope="row" { (Foreign(name)) @if let Some(result) = result.as_deref().filter(|result| *result != "Success") { " " (said(result, refuses)) } }
                                    td.number { (duration(*duration_ns)) }
                                    td.bars { (row(*start_ns, *duration_ns, if refuses { "no" } else { "plugin" })) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn said(result: &str, refuses: bool) -> Markup {
    html! { span.said.no[refuses] { (Foreign(result)) } }
}

/// A Node with its scores.
struct Candidate<'a> {
    node: &'a str,
    total: &'a str,
    scores: Vec<(&'a str, &'a str)>,
}

/// Reads `node: total (plugin score, ...)`.
fn candidate(text: &str) -> Option<Candidate<'_>> {
    let (node, rest) = text.rsplit_once(": ")?;
    let (total, scores) = rest.split_once(" (")?;
    let scores = scores.strip_suffix(')')?.split(", ").filter_map(|score| score.rsplit_once(' ')).collect();
    Some(Candidate { node, total, scores })
}

/// The best Nodes by the scores of plugins.
fn nodes(account: &Account) -> Markup {
    let Account { candidates, ties, node: chosen, evaluated_nodes, feasible_nodes, .. } = account;
    let candidates: Vec<_> = candidates.iter().filter_map(|text| candidate(text)).collect();
    let mut plugins: Vec<&str> = Vec::new();
    for (plugin, _) in candidates.iter().flat_map(|of| &of.scores) {
        if !plugins.contains(plugin) && plugins.len() < MAX_PLUGINS {
            plugins.push(plugin);
        }
    }
    let counted = feasible_nodes.zip(*evaluated_nodes);
    html! {
        @if counted.is_some() || !candidates.is_empty() {
            h3 {
                "Nodes"
                span.dim {
                    @if let Some((feasible, evaluated)) = counted { ", " (feasible) " of " (evaluated) " looked at " @if feasible == 1 { "fits" } @else { "fit" } }
                    @if *ties > 1 { ", " (ties) " have the highest score" }
                }
            }
        }
        @if !candidates.is_empty() {
            div.scroll tabindex="0" role="group" aria-label="Scores of Nodes" {
                table.scores {
                    thead { tr { th { "Node" } th.number { "Score" } @for plugin in &plugins { th.number { (Foreign(plugin)) } } } }
                    tbody {
                        @for Candidate { node, total, scores } in &candidates {
                            @let is_chosen = chosen.as_deref() == Some(*node);
                            tr.chosen[is_chosen] {
                                th scope="row" { (Foreign(node)) @if is_chosen { " " span.mark.ok { "chosen" } } }
                                td.number { strong { (Foreign(total)) } }
                                @for plugin in &plugins { td.number { @if let Some((_, score)) = scores.iter().find(|(of, _)| of == plugin) { (Foreign(score)) } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Who said no.
fn rejections(heading: &str, rejections: &[Rejection]) -> Markup {
    html! {
        @if !rejections.is_empty() {
            h3 { (heading) }
            div.scroll tabindex="0" role="group" aria-label="Rejections" {
                table {
                    thead { tr { th { "Plugin" } th { "In" } th { "Says" } } }
                    tbody {
                        @for Rejection { plugin, extension_point, message } in rejections {
                            tr {
                                th scope="row" { (Foreign(plugin)) }
                                td { @match extension_point { Some(point) => (Foreign(point)), None => span.dim { "by its words" } } }
                                td.wide { (Foreign(message)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Rejected Nodes by name.
fn by_name(RejectedNodes { groups, left_out, others }: &RejectedNodes) -> Markup {
    let named = groups.iter().map(|group| group.nodes.len() as u64).sum();
    html! {
        details {
            summary { (count(named, "Node")) " that it does not fit on, by name" }
            @for RejectedGroup { plugin, result, reasons, nodes } in groups {
                h4 {
                    (count(nodes.len() as u64, "Node")) ", "
                    (Foreign(plugin.as_deref().unwrap_or("a plugin that is not known"))) " "
                    span.dim { (Foreign(result)) }
                }
                @if !reasons.is_empty() { p { (Foreign(&reasons.join(", "))) } }
                p.wide { (Foreign(&nodes.join(" "))) }
            }
            @if *left_out > 0 { p.dim { (count(*left_out, "more Node")) ", whose names are not known" } }
            @if let Some(plugin) = others { p { "All other Nodes: " (Foreign(plugin)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_is_read_with_its_scores() {
        let Candidate { node, total, scores } =
            candidate("node-3: 312 (NodeResourcesFit 90, TaintToleration 222, …)").unwrap();
        assert_eq!((node, total), ("node-3", "312"));
        assert_eq!(scores, [("NodeResourcesFit", "90"), ("TaintToleration", "222")]);
        for bad in ["", "node-3", "node-3: 312", "node-3: 312 (a 1"] {
            assert!(candidate(bad).is_none(), "{bad}");
        }
    }
}
