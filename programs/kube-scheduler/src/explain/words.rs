//! Formats accounts as text.

use std::fmt::Write as _;

use spans::{figures::duration, text::clean};

use super::{
    Account, Kept, Phase, Plugin, Preemption, Queue, RejectedNodes, Rejection, Report, Share, reasons,
};
use crate::{attempt::Basis, queue, terms::evaluated};

/// Width of the label column: that of `Rejected  `, the longest label.
const LABEL: usize = 12;
/// Slowest phases listed.
const SLOWEST: usize = 3;
/// A plugin is listed with its phase if it takes at least this share of it, in percent.
const PLUGIN_SHARE: u64 = 25;

/// Descriptions of the events that move a Pod into a queue.
const EVENTS: [(&str, &str); 22] = [
    ("PodAdd", "it was created"),
    ("UnscheduledPodAdd", "it was created"),
    ("UnschedulablePodAdd", "it was created"),
    ("PodUpdate", "it was changed"),
    ("UnscheduledPodUpdate", "it was changed"),
    ("ScheduleAttemptFailure", "an attempt failed"),
    ("BackoffComplete", "its backoff was over"),
    ("PopFromBackoffQ", "no other Pod was ready"),
    ("UnschedulableTimeout", "it had waited for 5 minutes without any event"),
    ("ForceActivate", "a plugin or preemption asked for it"),
    ("NodeAdd", "a Node was added"),
    ("NodeDelete", "a Node was deleted"),
    ("NodeAllocatableChange", "what a Node offers has changed"),
    ("UpdateNodeAllocatable", "what a Node offers has changed"),
    ("NodeLabelChange", "the labels of a Node have changed"),
    ("UpdateNodeLabel", "the labels of a Node have changed"),
    ("NodeTaintChange", "the taints of a Node have changed"),
    ("UpdateNodeTaint", "the taints of a Node have changed"),
    ("AssignedPodAdd", "another Pod was bound"),
    ("AssignedPodUpdate", "another Pod was changed"),
    ("AssignedPodDelete", "another Pod went away"),
    ("Nominated", "preemption has chosen a Node for it"),
];

/// Formats a report as text, in lines of at most `width` columns.
#[must_use]
pub fn text(report: &Report, width: usize) -> String {
    let Report { namespace, pod, now_unix_us, history, attempts, waiting, stalls, .. } = report;
    let name = clean(&format!("{namespace}/{pod}"));
    let mut out = String::new();
    for stall in stalls {
        wrap(&mut out, "", &clean(stall), width);
        out += "\n";
    }
    if let (Some(waiting), []) = (waiting, attempts.as_slice()) {
        return out + &queue::one(waiting, *now_unix_us, width);
    }
    out += &format!("{name}: {}{}\n", count(attempts.len() as u64, "attempt"), span(history, *now_unix_us));
    // Of several attempts, the names of the last one are of use.
    let named = attempts.iter().rposition(|account| account.rejected_nodes.is_some());
    for (number, account) in attempts.iter().enumerate() {
        out += "\n";
        let same = attempts.last().is_some_and(|last| last.uid == account.uid);
        out += &attempt(account, same, named == Some(number), *now_unix_us, width);
    }
    out += "\n";
    wrap(&mut out, "", &clean(&conclusion(attempts)), width);
    if let Some(waiting) = waiting {
        wrap(&mut out, "Now: ", &clean(&queue::sentence(waiting, *now_unix_us)), width);
    }
    out
}

/// Suggests the next step if no attempt of the Pod is known.
#[must_use]
pub fn unknown(report: &Report) -> String {
    let Report { namespace, pod, now_unix_us, history, also_in, .. } = report;
    let seen = match history {
        Kept { limit: 0, .. } => {
            return format!(
                "the daemon keeps no history (`--history 0`); `schedspan explain --wait -n {namespace} {pod}` \
                 explains the next attempt of {namespace}/{pod}"
            );
        }
        Kept { attempts: 0, .. } => "the daemon has seen no attempt of any Pod yet".to_owned(),
        Kept { attempts, .. } => format!(
            "no attempt of {namespace}/{pod} is among the {attempts} that the daemon remembers{}",
            span(history, *now_unix_us)
        ),
    };
    if !also_in.is_empty() {
        return format!("{seen}; there is a Pod of this name in {}: give `-n`", also_in.join(", "));
    }
    format!(
        "{seen}; is the name right, is the Pod's `spec.schedulerName` that of a scheduler on the daemon's node, or is it \
         bound, gated or being deleted? `kubectl describe pod -n {namespace} {pod}` shows it, and `--wait` waits for its next \
         attempt"
    )
}

/// Formats the time span that the history covers.
fn span(history: &Kept, now_unix_us: u64) -> String {
    let since = history.since_unix_us.map(|since| now_unix_us.saturating_sub(since));
    since.map(|us| format!(" in the last {}", rough(us))).unwrap_or_default()
}

/// Says in one sentence why the Pod is where it is.
#[must_use]
pub fn conclusion(attempts: &[Account]) -> String {
    let Some(last) = attempts.last() else { return String::new() };
    let name = format!("{}/{}", last.namespace, last.pod);
    match last.result.as_deref() {
        Some("Success") => {
            let node = last.node.as_deref().unwrap_or("a Node that was not seen");
            format!("{name} is on {node}{}{}.", because(last), after(attempts))
        }
        None => format!(
            "What became of {name} was not seen: the scheduler ended meanwhile, or records were lost; \
             schedspan_losses_total in the daemon's /metrics counts these."
        ),
        Some(result) => format!("{name} is still Pending{}.", pending(last, result)),
    }
}

/// Why this Node was chosen.
fn because(account: &Account) -> String {
    match (account.feasible_nodes, account.evaluated_nodes) {
        (Some(1), Some(1)) => ": it was the only one that was looked at, and it fits".to_owned(),
        (Some(1), Some(evaluated)) => format!(": of {evaluated} Nodes it was the only one that fits"),
        (Some(feasible), Some(evaluated)) => {
            let which = match account.ties {
                ..2 => "it has the highest score".to_owned(),
                ties => format!("it is one of {ties} with the highest score"),
            };
            format!(": of {feasible} Nodes that fit, of {evaluated} looked at, {which}")
        }
        _ => String::new(),
    }
}

/// What preceded the successful attempt.
fn after(attempts: &[Account]) -> String {
    let Some((last, before)) = attempts.split_last() else { return String::new() };
    // Names are reused: failures of an earlier Pod with the same name do not count.
    let Some(failure) = before.last().filter(|failure| failure.uid == last.uid) else { return String::new() };
    if let Some(Preemption { node, victims, .. }) = &failure.preemption
        && last.node.as_ref() == Some(node)
    {
        return format!("; preemption had made {} of lower priority leave it", count(*victims, "Pod"));
    }
    let event = woken(&last.queue).map(|event| format!(", and then {}", of_event(event)));
    format!("; the attempt before failed: {}{}", shortly(failure), event.unwrap_or_default())
}

/// The event that moved the Pod out of the unschedulable Pods.
fn woken(queue: &Queue) -> Option<&str> {
    let from = queue.moves.iter().rposition(|entry| entry.queue == "unschedulable")?;
    queue.moves.get(from + 1).map(|entry| entry.event.as_str())
}

/// Summarizes in a clause why an attempt failed.
fn shortly(account: &Account) -> String {
    // Rejections of single Nodes are in the message, with the reasons.
    let by = account
        .rejected_by
        .iter()
        .find(|rejection| rejection.extension_point.as_deref().is_some_and(|point| point != "filter"));
    if let Some(Rejection { plugin, extension_point: Some(point), message }) = by {
        let colon = if message.is_empty() { "" } else { ": " };
        return format!("the plugin {plugin} said no in {point}{colon}{message}");
    }
    let reasons = reasons::of(&account.message);
    let counted: Vec<_> = reasons
        .iter()
        .filter_map(|reason| {
            Some(format!("{} of {} Nodes: {}", reason.nodes?, total(account, &reasons), reason.words))
        })
        .collect();
    match (counted.as_slice(), reasons.as_slice()) {
        ([], [reason, ..]) => reason.words.to_owned(),
        ([], []) => "the scheduler did not say why it failed".to_owned(),
        (counted, _) => format!("no Node fits ({})", counted.join("; ")),
    }
}

fn total(account: &Account, reasons: &[reasons::Reason<'_>]) -> u64 {
    // Total of `0/20 nodes are available`; in messages of plugins, the sum of the parts.
    let said = account.message.strip_prefix("0/").and_then(|rest| rest.split(' ').next()?.parse().ok());
    said.unwrap_or_else(|| reasons.iter().filter_map(|reason| reason.nodes).fold(0, u64::saturating_add))
}

fn pending(last: &Account, result: &str) -> String {
    if let Some(Preemption { node, victims, names }) = &last.preemption {
        let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        return format!(
            " because it waits for {} of lower priority{names} to leave {node}: preemption has chosen them",
            count(*victims, "Pod")
        );
    }
    let why = shortly(last);
    if result == "Error" {
        return format!(
            " because its last attempt ended with an error: {why}; after its backoff it is tried again"
        );
    }
    let mut remedies: Vec<&str> =
        reasons::of(&last.message).iter().filter_map(|reason| Some(reason.known?.remedy)).collect();
    remedies.dedup();
    let remedies = match remedies.as_slice() {
        [] => {
            "the scheduler tries again when something changes that the plugin waits for, or after 5 minutes"
                .to_owned()
        }
        all => format!("what would help: {}", all.join("; or ")),
    };
    format!(" because {why}; {remedies}")
}

fn attempt(account: &Account, same: bool, with_nodes: bool, now_unix_us: u64, width: usize) -> String {
    let Account { attempt, start_unix_us, duration_ns, result, node, incomplete, .. } = account;
    let mut head = match attempt {
        Some(number) => format!("Attempt {number}"),
        None => "An attempt".to_owned(),
    };
    let ago = match now_unix_us.saturating_sub(*start_unix_us) {
        ..1_000_000 => "just now".to_owned(),
        us => format!("{} ago", rough(us)),
    };
    let _ = write!(head, ", {} UTC, {ago}, took {}: ", time_of_day(*start_unix_us), duration(*duration_ns));
    head += result.as_deref().unwrap_or("its end was not seen");
    head.extend(node.as_ref().map(|node| format!(", on {node}")));
    if !same {
        head += ", of an earlier Pod of this name";
    }
    if *incomplete {
        head += ", incomplete: parts of it were not seen";
    }
    let mut out = String::new();
    wrap(&mut out, "", &clean(&head), width);
    let nodes = account.rejected_nodes.as_ref().filter(|_| with_nodes);
    for (label, lines) in [
        ("Why", why(account)),
        ("Best Nodes", account.candidates.clone()),
        (account.rejected_heading(), rejected(&account.rejected_by)),
        ("Nodes", nodes.map(RejectedNodes::lines).unwrap_or_default()),
        ("Queue", queue(&account.queue)),
        ("Slowest", slowest(account)),
    ] {
        for (number, line) in lines.iter().enumerate() {
            let label = if number == 0 { label } else { "" };
            wrap(&mut out, &format!("  {label:LABEL$}"), &clean(line), width);
        }
    }
    out
}

fn why(account: &Account) -> Vec<String> {
    let Account { message, evaluated_nodes, feasible_nodes, restricted_to_nodes, preemption, .. } = account;
    let mut lines = Vec::new();
    if !message.is_empty() {
        lines.push(message.clone());
    }
    if let (Some(feasible), Some(evaluated)) = (feasible_nodes, evaluated_nodes) {
        let fit = if *feasible == 1 { "fits" } else { "fit" };
        lines.push(format!("{feasible} of {} looked at {fit}", count(*evaluated, "Node")));
    }
    lines.extend(
        restricted_to_nodes.map(|nodes| format!("plugins restricted the search to {}", count(nodes, "Node"))),
    );
    lines.extend(preemption.as_ref().map(|Preemption { node, victims, names }| {
        format!("{} of lower priority must leave {node} for it: {}", count(*victims, "Pod"), names.join(", "))
    }));
    lines
}

fn rejected(rejections: &[Rejection]) -> Vec<String> {
    let line = |Rejection { plugin, extension_point, message }: &Rejection| {
        let point = extension_point.as_ref().map_or_else(
            // `Filter` runs per Node and is not traced; the plugin follows from the message's text.
            || " (by its words)".to_owned(),
            |point| format!(" in {point}"),
        );
        let colon = if message.is_empty() { "" } else { ": " };
        format!("{plugin}{point}{colon}{message}")
    };
    rejections.iter().map(line).collect()
}

fn queue(queue: &Queue) -> Vec<String> {
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
    let mut lines = Vec::new();
    for (name, waited) in
        [("unschedulable", unschedulable_ns), ("backoff", backoff_ns), ("active", active_ns)]
    {
        let Some(waited) = waited else { continue };
        let last = moves.iter().rposition(|entry| entry.queue == name);
        let event = |at: usize| moves.get(at).map(|entry| of_event(&entry.event));
        let stays = match moves.iter().filter(|entry| entry.queue == name).count() {
            stays @ 2.. => format!(" in {stays} stays"),
            // The previous line already names the event that ended the previous stay.
            _ if !lines.is_empty() => String::new(),
            _ => last.and_then(event).map(|event| format!(" since {event}")).unwrap_or_default(),
        };
        let left = last.and_then(|last| event(last + 1)).map(|event| format!(", until {event}"));
        lines.push(format!("{name} for {}{stays}{}", duration(*waited), left.unwrap_or_default()));
    }
    if let (Some(total), true) = (total_ns, lines.len() > 1) {
        lines.push(format!("together {}", duration(*total)));
    }
    if let Some(held) = gated_ns {
        let by = if gated_by.is_empty() { "PreEnqueue plugins".to_owned() } else { gated_by.join(", ") };
        lines.push(format!("held by {by} for {}", duration(*held)));
    }
    if *moves_left_out > 0 {
        lines.push(format!("{moves_left_out} more moves between the queues are left out"));
    }
    lines
}

/// Description of an event that moves a Pod, followed by its name in the scheduler's metrics.
#[must_use]
pub fn of_event(event: &str) -> String {
    let known = EVENTS.iter().find(|(name, _)| *name == event);
    known.map_or_else(|| event.to_owned(), |(name, words)| format!("{words} ({name})"))
}

fn slowest(account: &Account) -> Vec<String> {
    let share = |part: u64, whole: u64| part.saturating_mul(100).saturating_add(whole / 2) / whole.max(1);
    let mut phases: Vec<&Phase> = account.phases.iter().collect();
    phases.sort_by_key(|phase| std::cmp::Reverse(phase.duration_ns));
    // The slowest phase always, others only with a share of at least one percent.
    let matters = |phase: &&&Phase| share(phase.duration_ns, account.duration_ns) > 0;
    let first = phases.iter().take(1);
    let told = first.chain(phases.iter().skip(1).take(SLOWEST - 1).filter(matters)).map(
        |Phase { name, duration_ns, plugins, start_ns: _ }| {
            // Evictions go on after the attempt that asks for them.
            let of_attempt = if *duration_ns > account.duration_ns {
                "longer than the attempt".to_owned()
            } else {
                format!("{}%", share(*duration_ns, account.duration_ns))
            };
            let mut words = format!("{name} {} ({of_attempt}", duration(*duration_ns));
            match plugins.first() {
                Some(Plugin { name: plugin, share: Some(of_phase), .. })
                    if of_phase.percent >= PLUGIN_SHARE =>
                {
                    let Share { percent, .. } = of_phase;
                    let _ = write!(words, "; {plugin} {percent}% of it: {}", worth(of_phase));
                    words += &because_of(&evaluated(plugin, name, &account.terms));
                }
                Some(Plugin { name: plugin, duration_ns: own, share: None, .. })
                    if share(*own, *duration_ns) >= PLUGIN_SHARE =>
                {
                    let _ = write!(words, "; {plugin} {}", duration(*own));
                    words += &because_of(&evaluated(plugin, name, &account.terms));
                }
                Some(_) | None => {}
            }
            words + ")"
        },
    );
    let told = told.collect::<Vec<_>>().join(", ");
    if told.is_empty() { Vec::new() } else { vec![told] }
}

/// The Pod's terms that a plugin works for. Without any, its time has another cause, such as the terms of other Pods: nothing is said.
fn because_of(terms: &[&str]) -> String {
    if terms.is_empty() { String::new() } else { format!("; the Pod has {}", terms.join(" and ")) }
}

/// What a plugin's share of a phase rests on.
fn worth(share: &Share) -> String {
    let Share { percent: _, samples, samples_of_phase: _, calls, rejected_nodes, basis } = share;
    match (calls, rejected_nodes) {
        (Some(calls), Some(rejected @ 1..)) => {
            format!("exact, {calls} Nodes, of which it rejects {rejected}")
        }
        (Some(calls), Some(0) | None) => format!("exact, {calls} Nodes"),
        (None, _) => {
            let of = if basis == Basis::LastMinute.name() { " of the last minute" } else { "" };
            format!("sampled, {samples} samples{of}")
        }
    }
}

/// Appends a label and a text, wrapped with a hanging indent.
pub(crate) fn wrap(out: &mut String, label: &str, text: &str, width: usize) {
    let indent = label.chars().count();
    let room = width.saturating_sub(indent).max(20);
    let mut line = label.to_owned();
    let mut column = 0;
    // Words longer than a line are split.
    let words = text.split_whitespace().flat_map(|word| {
        let letters: Vec<char> = word.chars().collect();
        letters.chunks(room).map(|part| part.iter().collect::<String>()).collect::<Vec<_>>()
    });
    for word in words {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > room {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
            column = 0;
        } else if column > 0 {
            line.push(' ');
            column += 1;
        }
        line.push_str(&word);
        column += length;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Formats a time since the Unix epoch as hours, minutes and seconds.
pub(crate) fn time_of_day(unix_us: u64) -> String {
    let seconds = unix_us / 1_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

pub(crate) fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Formats a duration in whole seconds, minutes or hours.
pub(crate) fn rough(us: u64) -> String {
    match us / 1_000_000 {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}
