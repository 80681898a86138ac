//! Formats answers as text.

use std::{collections::BTreeSet, fmt::Write as _};

use spans::text::{clean, cut};

use super::answer::{Answer, From, Reason, Scheduler, Stall, Waiting, Wake};
use crate::explain::{count, of_event, rough, time_of_day, wrap};

/// Width of the label column of one Pod.
const LABEL: usize = 12;
/// Characters of a message in a table.
const MAX_MESSAGE: usize = 120;
/// The scheduler tries a Pod again after this time without an event
/// (<https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/backend/queue/scheduling_queue.go>,
/// `DefaultPodMaxInUnschedulablePodsDuration`).
const FLUSH: &str = "5 minutes without any event";

impl Reason {
    /// Its name in a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Trying => "being tried",
            Self::Backoff => "backoff",
            Self::Unschedulable => "unschedulable",
            Self::Failed => "failed",
            Self::Gated => "gated",
            Self::Group => "incomplete group",
            Self::Unseen => "unseen",
            Self::Foreign => "no scheduler",
        }
    }

    /// What it means.
    const fn meaning(self) -> &'static str {
        match self {
            Self::Active => "ready, and waiting for their turn",
            Self::Trying => "taken from the queue, and being tried or bound",
            Self::Backoff => {
                "their last attempt failed; tried again when the backoff is over, or before if no Pod is active"
            }
            Self::Unschedulable => {
                "plugins rejected them; tried again after an event, or after 5 minutes without any"
            }
            Self::Failed => "their last attempt failed; which queue they are in was not seen",
            Self::Gated => "a PreEnqueue plugin does not let them into the queue",
            Self::Group => "tried when their group is complete",
            Self::Unseen => "no attempt, and not seen in a queue",
            Self::Foreign => "no traced scheduler has their profile",
        }
    }
}

impl From {
    const fn name(self) -> &'static str {
        match self {
            Self::Scheduler => "queue",
            Self::Both => "queue, API",
            Self::Api => "API",
        }
    }
}

/// Formats all Pods of an answer, grouped by reason.
#[must_use]
pub fn table(answer: &Answer) -> String {
    let Answer { now_unix_us, api, pods, left_out, .. } = answer;
    let mut out: String = stalls(answer).iter().map(|stall| clean(stall) + "\n\n").collect();
    let counts: Vec<_> =
        answer.counts().iter().map(|(reason, pods)| format!("{pods} {}", reason.name())).collect();
    let total = (pods.len() as u64).saturating_add(*left_out);
    let colon = if counts.is_empty() { String::new() } else { format!(": {}", counts.join(", ")) };
    let wait = if total < 2 { "waits" } else { "wait" };
    let _ =
        writeln!(out, "{} {wait}{colon}", if total == 0 { "No Pod".to_owned() } else { count(total, "Pod") });
    if !api {
        out += "The API server does not say which Pods there are: deleted ones may be listed, and others missing.\n";
    }
    for reason in Reason::ALL {
        let of_reason: Vec<&Waiting> = pods.iter().filter(|pod| pod.reason == reason).collect();
        if of_reason.is_empty() {
            continue;
        }
        let _ =
            write!(out, "\n{} ({}): {}\n", reason.name().to_uppercase(), of_reason.len(), reason.meaning());
        let rows: Vec<[String; 6]> = of_reason.iter().map(|pod| row(pod, *now_unix_us)).collect();
        out += &columns(["NAMESPACE", "POD", "FOR", "TRIED", "KNOWN BY", "WHY"], &rows);
        let wakes: BTreeSet<(&str, &[String])> = of_reason
            .iter()
            .flat_map(|pod| pod.wakes.iter().map(|Wake { plugin, events }| (&**plugin, &**events)))
            .collect();
        for (plugin, events) in wakes {
            let _ = writeln!(out, "  {} wakes them when {}", clean(plugin), woken_by(events));
        }
    }
    if *left_out > 0 {
        let _ = writeln!(out, "\n{} more are left out", count(*left_out, "Pod"));
    }
    out
}

/// Formats one Pod, in lines of at most `width` columns.
#[must_use]
pub fn one(pod: &Waiting, now: u64, width: usize) -> String {
    let mut out = String::new();
    let name = format!("{}/{}", pod.namespace, pod.pod);
    wrap(&mut out, "", &clean(&format!("{name}: {}", sentence(pod, now))), width);
    let mut lines: Vec<(&str, String)> = Vec::new();
    if let Some(since) = pod.since_unix_us {
        let event = if pod.event.is_empty() { String::new() } else { format!(": {}", of_event(&pod.event)) };
        lines.push(("Since", format!("{} UTC{event}", time_of_day(since))));
    }
    if !pod.gates.is_empty() {
        lines.push(("Gates", pod.gates.join(", ")));
    }
    lines.extend(pod.group.iter().map(|group| ("Group", group.clone())));
    if !pod.plugins.is_empty() {
        let label =
            if matches!(pod.reason, Reason::Gated | Reason::Group) { "Gated by" } else { "Rejected by" };
        lines.push((label, pod.plugins.join(", ")));
    }
    if !pod.message.is_empty() {
        lines.push(("Why", pod.message.clone()));
    }
    lines.extend(tried(pod, now).map(|tried| ("Tried", tried)));
    for Wake { plugin, events } in &pod.wakes {
        lines.push(("Wakes it", format!("{plugin}, when {}", woken_by(events))));
    }
    if pod.reason == Reason::Unschedulable {
        lines.push(("", format!("else after {FLUSH}")));
    }
    let scheduler =
        pod.pid.map(|pid| format!("the queue of the scheduler with pid {pid}")).unwrap_or_default();
    let from = match pod.from {
        From::Scheduler => scheduler,
        From::Both => format!("{scheduler}, and the Pod's object"),
        From::Api => "the Pod's object only: no move of it in a queue was seen".to_owned(),
    };
    lines.push(("Known from", from));
    let mut last = "";
    for (label, line) in lines {
        let shown = if label == last { "" } else { label };
        wrap(&mut out, &format!("  {shown:LABEL$}"), &clean(&line), width);
        last = label;
    }
    out
}

/// Says in a sentence where a Pod waits, and why.
#[must_use]
pub fn sentence(pod: &Waiting, now_unix_us: u64) -> String {
    let lasts = pod.since_unix_us.map(|since| rough(now_unix_us.saturating_sub(since)));
    let lasts = lasts.map(|lasts| format!(" for {lasts}")).unwrap_or_default();
    let failed = failures(pod).map(|failed| format!("; {failed}")).unwrap_or_default();
    let is_new = pod.attempts.unwrap_or_default() == 0 && pod.failed_unix_us.is_none();
    let new = if is_new { "no attempt yet: " } else { "" };
    let by = pod.plugins.join(", ");
    match pod.reason {
        Reason::Active => format!("{new}ready, and in the active queue{lasts}{failed}"),
        Reason::Trying => format!("it is being tried or bound{lasts}"),
        Reason::Backoff => format!("in backoff{}{failed}", until(pod, now_unix_us)),
        Reason::Unschedulable => format!("unschedulable{lasts}{failed}"),
        Reason::Failed => {
            let by = if by.is_empty() { String::new() } else { format!(", by {by}") };
            format!("an attempt failed{by}; whether it is unschedulable or in backoff was not seen")
        }
        Reason::Gated if by.is_empty() => format!("{new}gated by a PreEnqueue plugin{lasts}{failed}"),
        Reason::Gated => format!("{new}gated by {by}{lasts}{failed}"),
        Reason::Group => {
            let group = pod.group.as_ref().map(|group| format!(" `{group}`")).unwrap_or_default();
            format!("{new}it waits{lasts} until its group{group} is complete{failed}")
        }
        Reason::Unseen => format!("{new}pending{lasts}, and not seen in a queue"),
        Reason::Foreign => {
            format!("{new}pending{lasts}, and no traced scheduler has the profile `{}`", pod.profile)
        }
    }
}

/// Says that a scheduler stands still, and since when.
pub(super) fn stall(scheduler: &Scheduler, stall: &Stall, now_unix_us: u64) -> String {
    let Scheduler { pid, last_taken_unix_us, last_taken, .. } = scheduler;
    let Stall { since_unix_us, pods, not_queued } = stall;
    let lasts = rough(now_unix_us.saturating_sub(*since_unix_us));
    let wait = if *pods == 1 { "waits" } else { "wait" };
    let mut text = format!(
        "The scheduler with pid {pid} stands still for {lasts}, since {} UTC: {} {wait}, and it takes none",
        time_of_day(*since_unix_us),
        count(*pods, "Pod")
    );
    if *not_queued > 0 {
        let _ = write!(text, "; {not_queued} of these have not entered its queue");
    }
    match last_taken_unix_us {
        Some(last) => {
            let _ = write!(text, ". The last that it took is {last_taken}, at {} UTC.", time_of_day(*last));
        }
        None => {
            text += ". It has taken none since it is traced: its start is not over (its log says what it waits for), or \
                     it waits for its lease.";
        }
    }
    text
}

/// The schedulers that stand still, a sentence each.
#[must_use]
pub fn stalls(answer: &Answer) -> Vec<String> {
    answer.stalls().map(|(scheduler, standing)| stall(scheduler, standing, answer.now_unix_us)).collect()
}

fn row(pod: &Waiting, now: u64) -> [String; 6] {
    let lasts = pod.since_unix_us.map_or_else(|| "?".to_owned(), |since| rough(now.saturating_sub(since)));
    let attempts = pod.attempts.map_or_else(|| "-".to_owned(), |attempts| attempts.to_string());
    let by = pod.plugins.join(", ");
    let message = cut(&pod.message, MAX_MESSAGE);
    let why = match pod.reason {
        Reason::Active if pod.event.is_empty() => String::new(),
        Reason::Active => of_event(&pod.event),
        Reason::Backoff => {
            format!(
                "{}{}",
                until(pod, now).trim_start(),
                failures(pod).map(|text| format!("; {text}")).unwrap_or_default()
            )
        }
        Reason::Unschedulable | Reason::Failed => match (by.is_empty(), message.is_empty()) {
            (false, false) => format!("{by}: {message}"),
            _ => by + message,
        },
        Reason::Gated if pod.gates.is_empty() => by,
        Reason::Gated => format!("{by}: {}", pod.gates.join(", ")),
        Reason::Group => pod.group.clone().unwrap_or(by),
        Reason::Foreign => pod.profile.clone(),
        Reason::Trying | Reason::Unseen => String::new(),
    };
    [pod.namespace.clone(), pod.pod.clone(), lasts, attempts, pod.from.name().to_owned(), why]
        .map(|cell| clean(&cell))
}

/// When a backoff ends.
fn until(pod: &Waiting, now: u64) -> String {
    let Some(until) = pod.until_unix_us else { return String::new() };
    let about = if pod.until_is_exact { "" } else { " about" };
    let left = match until.saturating_sub(now) {
        0 => "now".to_owned(),
        left => format!("in {}", rough(left.saturating_add(999_999))),
    };
    format!(" until{about} {} UTC, {left}", time_of_day(until))
}

/// How often a Pod failed, and by what the last time.
fn failures(pod: &Waiting) -> Option<String> {
    let times = pod.attempts.filter(|attempts| *attempts > 0);
    if times.is_none() && pod.failed_unix_us.is_none() {
        return None;
    }
    let often = times.map_or_else(
        || "failed".to_owned(),
        |times| match times {
            1 => "failed once".to_owned(),
            times => format!("failed {times} times"),
        },
    );
    let gated = matches!(pod.reason, Reason::Gated | Reason::Group);
    let by = pod.plugins.join(", ");
    Some(match (gated || by.is_empty(), times) {
        (true, _) => often,
        (false, Some(2..)) => format!("{often}, last by {by}"),
        (false, _) => format!("{often}, by {by}"),
    })
}

fn tried(pod: &Waiting, now: u64) -> Option<String> {
    let times = pod.attempts.filter(|attempts| *attempts > 0).map(|attempts| count(attempts, "time"));
    let ago = pod.failed_unix_us.map(|failed| {
        format!(
            "the last attempt failed at {} UTC, {} ago",
            time_of_day(failed),
            rough(now.saturating_sub(failed))
        )
    });
    let parts: Vec<String> = times.into_iter().chain(ago).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn woken_by(events: &[String]) -> String {
    if events.is_empty() {
        return "an event comes that it asks for: which ones is not known of this plugin".to_owned();
    }
    clean(&events.join(", or "))
}

/// Left-aligned columns, each as wide as its widest cell.
fn columns<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = heading.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let mut out = String::new();
    let mut line = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        let _ = writeln!(out, "{}", padded.join("  ").trim_end());
    };
    line(heading);
    rows.iter().for_each(|row| line(row.each_ref().map(String::as_str)));
    out
}
