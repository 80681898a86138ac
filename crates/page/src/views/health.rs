//! What is probed, and what is lost.

use api::health::{Target, Vitals};
use kube_scheduler::last_minute::{Count, LastMinute};
use maud::{Markup, html};

use crate::text::{Foreign, ago, count, grouped};

pub(crate) fn view(vitals: &Vitals, last: &LastMinute) -> Markup {
    let Vitals { version, now_unix_us, ready, not_ready_because, targets, losses, history } = vitals;
    let lost: Vec<&Count> = losses.iter().filter(|loss| loss.count > 0).collect();
    let attempts: u64 = last.attempts.iter().map(|of| of.count).sum();
    html! {
        h1 { "Health" }
        div #health data-live {
            p.lead.answer.(if *ready { "ok" } else { "bad" }) {
                @if !ready { "Not ready: " (Foreign(not_ready_because)) "." }
                @else if targets.is_empty() { "The daemon works, and has found no scheduler on this node." }
                @else if lost.is_empty() { "The daemon works, and has lost nothing." }
                @else { "The daemon works, and has lost something: see below." }
            }
            dl.figures {
                div { dt { "Attempts in the last minute" } dd { (grouped(attempts)) } }
                div { dt { "Remembered" } dd { (grouped(history.attempts)) span.dim { " of " (grouped(history.limit)) } } }
                div { dt { "Traced" } dd { (targets.len()) } }
                div { dt { "Version" } dd { (version) } }
            }
            h2 { "What is probed" }
            @if targets.is_empty() {
                p { "Nothing. " code { "schedspan doctor" } " on the node says what prevents it." }
            } @else {
                div.scroll tabindex="0" role="group" aria-label="Processes" {
                    table {
                        thead { tr { th { "Process" } th.number { "pid" } th { "Kubernetes" } th { "Go" } th.number { "Probes" } th.number { "Single-stepped" } th.number { "Missing" } th.number { "For" } } }
                        tbody { @for target in targets { (row(target, *now_unix_us)) } }
                    }
                }
                @for Target { pid, missing, .. } in targets.iter().map(|target| &**target) {
                    @if !missing.is_empty() {
                        details id={ "missing-" (pid) } {
                            summary { (count(missing.len() as u64, "function")) " of process " (pid) @if missing.len() == 1 { " is" } @else { " are" } " not traced" }
                            div.scroll tabindex="0" role="group" aria-label="Functions that are not traced" {
                                table {
                                    thead { tr { th { "Function" } th { "Without it" } th { "Why" } } }
                                    tbody { @for of in missing { tr { th scope="row" { (Foreign(&of.function)) } td { (Foreign(&of.without)) } td.wide.dim { (Foreign(&of.why)) } } } }
                                }
                            }
                        }
                    }
                }
            }
            h2 { "What is lost" }
            @if lost.is_empty() {
                p { "Nothing, of " (count(losses.len() as u64, "possible cause")) "." }
            } @else {
                div.scroll tabindex="0" role="group" aria-label="Losses" {
                    table.narrow {
                        thead { tr { th { "Cause" } th.number { "Lost" } } }
                        tbody { @for Count { name, count } in lost { tr { th scope="row" { code { (name) } } td.number { (grouped(*count)) } } } }
                    }
                }
                p.note { "docs/operate.md says of each cause what it counts, and what to do." }
            }
        }
    }
}

fn row(target: &Target, now_unix_us: u64) -> Markup {
    let Target {
        pid,
        executable,
        identity,
        since_unix_us,
        emulated_sites,
        single_stepped_sites,
        missing,
        ..
    } = target;
    let name = executable.rsplit('/').next().unwrap_or_default();
    html! {
        tr {
            th scope="row" title=(Foreign(executable)) { (Foreign(name)) }
            td.number { (pid) }
            td { (Foreign(identity.kubernetes_version.as_deref().unwrap_or("not known"))) }
            td { (Foreign(&identity.go_version)) }
            td.number { (emulated_sites + single_stepped_sites) }
            td.number { (single_stepped_sites) }
            td.number { (missing.len()) }
            td.number { (ago(now_unix_us, *since_unix_us)) }
        }
    }
}
