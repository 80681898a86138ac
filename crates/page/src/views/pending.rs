//! Pods that are pending, by the plugin that rejects them and its reason.

use std::sync::Arc;

use kube_scheduler::brief::{Brief, Pending, Waiting, pending};
use maud::{Markup, html};

use crate::text::{Foreign, ago, count, pod_path};

/// Pods of a reason that are shown at once.
const SHOWN: usize = 8;

pub(crate) fn view(attempts: &[Arc<Brief>], now_unix_us: u64) -> Markup {
    let reasons = pending(attempts);
    let mut pods: Vec<_> =
        reasons.iter().flat_map(|of| &of.pods).map(|of| (of.namespace.as_str(), of.pod.as_str())).collect();
    pods.sort_unstable();
    pods.dedup();
    html! {
        h1 { "Pending" }
        div #pending data-live {
            @if reasons.is_empty() {
                p.lead {
                    @if attempts.is_empty() { "No attempt has been seen yet." }
                    @else { "No Pod is pending: the last attempt of each of them succeeded." }
                }
            } @else {
                p.lead { (count(pods.len() as u64, "Pod")) " could not be scheduled when they were tried last, for " (count(reasons.len() as u64, "reason")) "." }
                @for reason in &reasons { (section(reason, now_unix_us)) }
                p.note { "A Pod that has several reasons is listed under each. A Pod that was deleted stays until its attempts are forgotten." }
            }
        }
    }
}

fn section(Pending { plugin, reason, remedy, count, pods }: &Pending, now_unix_us: u64) -> Markup {
    let (first, rest) = pods.split_at(pods.len().min(SHOWN));
    html! {
        section.card {
            div.head {
                span.figure { (count) }
                div {
                    h2 { (Foreign(reason)) }
                    p.by { @if plugin.is_empty() { "by a plugin that is not known" } @else { "by " strong { (Foreign(plugin)) } } }
                    p.help {
                        @match remedy {
                            Some(remedy) => { "What would help: " (remedy) "." }
                            None => { "The scheduler tries again when something changes that the plugin waits for, or after 5 minutes." }
                        }
                    }
                }
            }
            (table(first, now_unix_us))
            @if !rest.is_empty() {
                details { summary { (crate::text::count(count - first.len() as u64, "more Pod")) } (table(rest, now_unix_us)) }
            }
        }
    }
}

fn table(pods: &[Waiting], now_unix_us: u64) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label="Pods" {
            table {
                thead { tr { th { "Pod" } th.number { "Attempt" } th.number { "Nodes" } th.number { "Pending for" } th.number { "Tried ago" } } }
                tbody {
                    @for Waiting { namespace, pod, attempt, first_unix_us, last_unix_us, nodes } in pods {
                        tr {
                            td { a href=(pod_path(namespace, pod)) { span.dim { (Foreign(namespace)) "/" } (Foreign(pod)) } }
                            td.number { @if let Some(attempt) = attempt { (attempt) } }
                            td.number { @if let Some(nodes) = nodes { (nodes) } }
                            td.number { (ago(now_unix_us, *first_unix_us)) }
                            td.number { (ago(now_unix_us, *last_unix_us)) }
                        }
                    }
                }
            }
        }
    }
}
