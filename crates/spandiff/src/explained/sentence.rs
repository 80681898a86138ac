//! The sentence that says what the time of a Pod went to. Pure.

use spans::figures::duration;

use super::{Doing, Explained, Part};

/// Most parts that are named.
const MAX_NAMED: usize = 4;
/// Parts shorter than this fraction of the whole are not named, but for the longest.
const SHORT: u64 = 100;
/// What is not named is summed up if it is longer than this fraction of the whole.
const REST: u64 = 20;

pub(super) fn sentence(explained: &Explained) -> String {
    let Explained { node, result, total_ns, attempts, parts, before, .. } = explained;
    let total = *total_ns;
    let long = parts.iter().take(MAX_NAMED).take_while(|part| part.ns.saturating_mul(SHORT) >= total).count();
    let (named, rest) = parts.split_at(long.max(1).min(parts.len()));
    // Where the time on the node begins to be about is said once.
    let first_on_node = named.iter().position(|part| is_on_node(part.doing)).filter(|_| !node.is_empty());
    let mut listed = Vec::new();
    for (number, Part { doing, what, because, ns }) in named.iter().enumerate() {
        let place = if first_on_node == Some(number) { format!(" on {node}") } else { String::new() };
        let is_said = named[..number].iter().any(|before| before.because == *because);
        let why =
            if because.is_empty() || is_said { String::new() } else { format!(" because \"{because}\"") };
        listed.push(format!("{} {}{place}{why}", duration(*ns), words(*doing, what)));
    }
    let scheduled = parts.iter().find(|part| part.doing == Doing::Schedule);
    let aside = scheduled.filter(|_| !named.iter().any(|part| part.doing == Doing::Schedule));
    let rest_ns: u64 = rest.iter().filter(|part| part.doing != Doing::Schedule).map(|part| part.ns).sum();
    if rest_ns.saturating_mul(REST) >= total && rest_ns > 0 {
        listed.push(format!("{} in shorter parts", duration(rest_ns)));
    }
    let result = if result.is_empty() { "Ended" } else { result };
    let mut sentence = format!("{result} after {}", duration(total));
    if !listed.is_empty() {
        sentence += &format!(": {}", listed.join(", "));
    }
    if let Some(Part { ns, .. }) = aside {
        sentence += &format!("; the scheduler took {}", duration(*ns));
        if *attempts > 1 {
            sentence += &format!(" in {attempts} attempts");
        }
    }
    if let Some(before) = before.as_ref().filter(|before| before.ns.saturating_mul(SHORT) >= total) {
        sentence +=
            &format!("; before, {} waited {} in its work queue", before.reconcile, duration(before.ns));
    }
    sentence + "."
}

/// Whether it goes on on the Pod's Node.
fn is_on_node(doing: Doing) -> bool {
    match doing {
        Doing::Kubelet
        | Doing::Admit
        | Doing::Volumes
        | Doing::Sandbox
        | Doing::Prepare
        | Doing::Pull
        | Doing::Retry
        | Doing::InitContainer
        | Doing::Container
        | Doing::Restart
        | Doing::Run
        | Doing::Readiness
        | Doing::KubeletRest => true,
        Doing::Create
        | Doing::RateLimiter
        | Doing::Gated
        | Doing::Unschedulable
        | Doing::Backoff
        | Doing::Queue
        | Doing::Schedule
        | Doing::Permit
        | Doing::VolumeClaims
        | Doing::Report
        | Doing::Unknown => false,
    }
}

/// What follows the duration.
fn words(doing: Doing, what: &str) -> String {
    let (words, without) = match doing {
        Doing::Create => ("being created by ", "being created"),
        Doing::RateLimiter => ("in the rate limiter of ", "in the rate limiter of its creator"),
        Doing::Gated => ("held by the scheduling gates ", "held by scheduling gates"),
        Doing::Unschedulable => ("", "unschedulable"),
        Doing::Backoff => ("", "in backoff"),
        Doing::Queue => ("", "in the scheduling queue"),
        Doing::Schedule => ("", "in the scheduler"),
        Doing::Permit => ("", "waiting for a plugin's permit"),
        Doing::VolumeClaims => ("waiting for the volume claims ", "waiting for its volume claims"),
        Doing::Kubelet => ("", "waiting for the kubelet"),
        Doing::Admit => ("", "in the kubelet's admission"),
        Doing::Volumes => ("", "waiting for volumes"),
        Doing::Sandbox => ("", "making the sandbox"),
        Doing::Prepare => ("", "preparing volumes and the sandbox"),
        Doing::Pull => ("pulling ", "pulling an image"),
        Doing::Retry => ("waiting for another try of ", "waiting for another try"),
        Doing::InitContainer => ("in the init container ", "in an init container"),
        Doing::Container => ("starting the container ", "starting a container"),
        Doing::Restart => ("between starts of the container ", "between starts of a container"),
        Doing::Run => ("running the container ", "running"),
        Doing::Readiness => ("", "waiting for readiness"),
        Doing::KubeletRest => ("", "between the kubelet's steps"),
        Doing::Report => ("", "until the API server showed it"),
        Doing::Unknown => ("", "in no span"),
    };
    if what.is_empty() || words.is_empty() { without.to_owned() } else { format!("{words}{what}") }
}
