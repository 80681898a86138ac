//! What the time of a Pod went to until it was Ready, of all collected spans: in a sentence, and as data. Pure.
//!
//! Each moment counts once, for the most specific span that covers it: the kubelet's steps before the stages of the lifecycle, which are
//! made of the Pod's status, in whole seconds. What the Pod waited for between two spans has a name.

mod divide;
mod sentence;
mod start;
#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use spans::{Phase, SpanKind, Stage, TraceKind, attributes, text::clean};

use self::divide::{Claim, Key, Rank, divided};
use crate::{
    Shown, Span as Read,
    collected::{self, Collected},
    joined::CREATED_WITHIN_NS,
};

/// Why a container is said to have ended that did what it should: no cause of anything.
const COMPLETED: &str = "Completed";
/// Most characters of a reason.
const MAX_REASON: usize = 120;

/// What time went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Doing {
    /// The request that created the Pod.
    Create,
    /// The rate limiter of the client that created it.
    RateLimiter,
    /// Scheduling gates.
    Gated,
    /// Among the unschedulable Pods.
    Unschedulable,
    /// In the scheduler's backoff queue.
    Backoff,
    /// In the scheduler's active queue, or in a queue that is not known.
    Queue,
    /// Attempts to schedule it.
    Schedule,
    /// A plugin's `Permit`.
    Permit,
    /// The binding of its volume claims.
    VolumeClaims,
    /// From the binding until the kubelet begins.
    Kubelet,
    /// The kubelet's admission.
    Admit,
    /// Volumes until they are mounted.
    Volumes,
    /// The sandbox with its network.
    Sandbox,
    /// Volumes and sandbox: the Pod's status does not distinguish them.
    Prepare,
    /// An image.
    Pull,
    /// From a failure of an image or a container until the kubelet tries again.
    Retry,
    /// An init container.
    InitContainer,
    /// A container until it runs.
    Container,
    /// From one start of a container to the next.
    Restart,
    /// A container until it has ended.
    Run,
    /// Probes, until it is Ready.
    Readiness,
    /// The kubelet, between these steps.
    KubeletRest,
    /// From the kubelet's last step until the API server shows the result.
    Report,
    /// No span covers it.
    Unknown,
}

/// What a part of the time went to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// What time went to.
    pub doing: Doing,
    /// What it is about, such as an image or a container; empty where that is the Pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// Why, if spans say so; else empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// How long, nanoseconds.
    pub ns: u64,
}

/// The wait of the reconcile that created the Pod, before there was a Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Before {
    /// Queue and key, such as `job default/once`.
    pub reconcile: String,
    /// How long it was in its work queue, nanoseconds.
    pub ns: u64,
}

/// What the time of a Pod went to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub pod: String,
    /// Its UID.
    pub uid: String,
    /// Its Node; empty without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// How the lifecycle ended.
    pub result: String,
    /// All in a sentence.
    pub sentence: String,
    /// From the request that created it, or else from its creation, to that end, nanoseconds.
    pub total_ns: u64,
    /// How many attempts to schedule it there were.
    pub attempts: u64,
    /// The parts, longest first. Together they are as long as the whole.
    pub parts: Vec<Part>,
    /// What came before the creation, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
}

/// What the time of this Pod went to, by its last lifecycle in the spans; `None` if there is none.
#[must_use]
pub fn explained(spans: &[Read], namespace: &str, pod: &str) -> Option<Explained> {
    Some(explain(&Collected::of(spans, collected::lifecycle(spans, namespace, pod)?)))
}

pub(crate) fn explain(collected: &Collected<'_>) -> Explained {
    let lifecycle = collected.lifecycle;
    let mut way =
        Way { collected, claims: Vec::new(), because: BTreeMap::new(), failed: Vec::new(), attempts: 0 };
    let [mut start, end] = lifecycle.wall;
    let (created, before) = way.creation();
    start = created.map_or(start, |created| created.min(start));
    way.attempts();
    way.stages();
    way.starts();
    let mut parts: Vec<_> = divided([start, end], way.claims)
        .into_iter()
        .map(|(Key { doing, what }, ns)| {
            let because = way.because.get(&doing).cloned().unwrap_or_default();
            Part { doing, what, because, ns }
        })
        .collect();
    parts.sort_by_key(|part| Reverse(part.ns));
    let text = |key| clean(lifecycle.attribute(key));
    let attempts = text(attributes::LIFECYCLE_ATTEMPTS).parse().unwrap_or(way.attempts);
    let mut explained = Explained {
        namespace: text(attributes::POD_NAMESPACE),
        pod: text(attributes::POD_NAME),
        uid: text(attributes::POD_UID),
        node: text(attributes::NODE),
        result: text(attributes::LIFECYCLE_RESULT),
        sentence: String::new(),
        total_ns: end.saturating_sub(start),
        attempts,
        parts,
        before,
    };
    explained.sentence = sentence::sentence(&explained);
    explained
}

/// What is known of a Pod's way.
struct Way<'a> {
    collected: &'a Collected<'a>,
    claims: Vec<Claim>,
    because: BTreeMap<Doing, String>,
    /// When attempts began that failed, and why they did.
    failed: Vec<(u64, &'a str)>,
    attempts: u64,
}

impl<'a> Way<'a> {
    fn claim(&mut self, rank: Rank, time: [u64; 2], doing: Doing, what: &str) {
        self.claims.push(Claim { rank, time, key: Key { doing, what: clean(what) } });
    }

    /// The last reason counts.
    fn because(&mut self, doing: Doing, why: &str) {
        let why = reason(why);
        if !why.is_empty() {
            self.because.insert(doing, why);
        }
    }

    /// The request that created the Pod. Returns when it began, and how long its reconcile had waited.
    fn creation(&mut self) -> (Option<u64>, Option<Before>) {
        let Collected { lifecycle, about, .. } = self.collected;
        let is_creation =
            |span: &&&Read| span.shows() == Shown::Known(SpanKind::Root(TraceKind::PodCreation));
        let Some(&creation) = about.iter().find(is_creation) else { return (None, None) };
        // Clocks may differ by any time.
        if lifecycle.wall[0].abs_diff(creation.wall[0]) > CREATED_WITHIN_NS {
            return (None, None);
        }
        let by = by(creation);
        self.claim(Rank::Creation, creation.wall, Doing::Create, &by);
        let is_request = |span: &&&Read| {
            span.attribute(attributes::REQUEST_RESOURCE) == "pods" && span.wall == creation.wall
        };
        let request = about.iter().find(is_request);
        if let Some(request) = request {
            let [from, to] = request.wall;
            let limited = nanoseconds(request, attributes::REQUEST_LIMITED_MS);
            self.claim(Rank::Limiter, [from, from.saturating_add(limited).min(to)], Doing::RateLimiter, &by);
        }
        let waited = request.and_then(|request| self.collected.parent(request));
        let waited = waited.map_or(0, |reconcile| nanoseconds(reconcile, attributes::WORKQUEUE_WAIT_MS));
        let before = (waited > 0).then(|| Before { reconcile: clean(&by), ns: waited });
        (Some(creation.wall[0]), before)
    }

    /// Attempts to schedule the Pod: the summary in its lifecycle, and their own traces.
    fn attempts(&mut self) {
        let Collected { lifecycle, about, .. } = self.collected;
        let stages = self.collected.below(lifecycle).iter();
        let summaries: Vec<_> = stages.copied().filter(|stage| stage.shows() == Shown::ATTEMPT).collect();
        self.attempts = summaries.len() as u64;
        let own = about.iter().copied().filter(|span| span.shows() == Shown::ATTEMPT);
        for attempt in summaries.into_iter().chain(own) {
            self.claim(Rank::Attempt, attempt.wall, Doing::Schedule, "");
            if attempt.failed {
                self.failed.push((attempt.wall[0], &attempt.message));
            }
            for (within, _) in self.collected.descendants(attempt) {
                match within.shows() {
                    Shown::Known(SpanKind::Stage(Stage::VolumeClaims)) => {
                        let claims = within.attribute(attributes::CLAIMS);
                        self.claim(Rank::Wait, within.wall, Doing::VolumeClaims, claims);
                    }
                    Shown::Known(SpanKind::Phase(Phase::WaitOnPermit)) => {
                        self.claim(Rank::Wait, within.wall, Doing::Permit, "");
                    }
                    Shown::Known(_) | Shown::Filter | Shown::Create | Shown::SyncPod | Shown::Unknown => {}
                }
            }
        }
        self.failed.sort_unstable();
    }

    /// The stages of the lifecycle.
    fn stages(&mut self) {
        let lifecycle = self.collected.lifecycle;
        let is_over = ["Succeeded", "Failed"].contains(&lifecycle.attribute(attributes::LIFECYCLE_RESULT));
        for stage in self.collected.below(lifecycle) {
            let Shown::Known(SpanKind::Stage(shown)) = stage.shows() else { continue };
            let container = stage.name.split_once(": ").map_or("", |(_, name)| name);
            let (doing, what) = match shown {
                Stage::Gated => (Doing::Gated, stage.attribute(attributes::GATES)),
                Stage::Queued => {
                    self.queued(stage);
                    continue;
                }
                Stage::Attempt | Stage::VolumeClaims => continue,
                Stage::Kubelet => (Doing::Kubelet, ""),
                Stage::Sandbox => (Doing::Prepare, ""),
                Stage::InitContainer => (Doing::InitContainer, container),
                Stage::Container if is_over => (Doing::Run, container),
                Stage::Container => (Doing::Container, container),
                Stage::Ready => (Doing::Readiness, ""),
            };
            self.claim(Rank::Stage, stage.wall, doing, what);
            let why: Vec<_> =
                stage.reasons.iter().map(String::as_str).filter(|why| *why != COMPLETED).collect();
            self.because(doing, &why.join(", "));
        }
    }

    /// A stay in the scheduler's queues: first among the unschedulable Pods, then in backoff, then until an attempt takes it.
    fn queued(&mut self, stage: &Read) {
        let [start, end] = stage.wall;
        let until = |since: u64, key| since.saturating_add(nanoseconds(stage, key)).min(end);
        let woken = until(start, attributes::QUEUE_UNSCHEDULABLE_MS);
        let active = until(woken, attributes::QUEUE_BACKOFF_MS);
        let failed = self.failed.iter().rfind(|(attempt, _)| *attempt < end);
        let why = failed.filter(|(attempt, _)| *attempt < start).map_or("", |(_, why)| why);
        for (time, doing) in [
            ([start, woken], Doing::Unschedulable),
            ([woken, active], Doing::Backoff),
            ([active, end], Doing::Queue),
        ] {
            self.claim(Rank::Stage, time, doing, "");
            if time[0] < time[1] && (doing != Doing::Queue || active == start) {
                self.because(doing, why);
            }
        }
    }
}

/// Milliseconds of an attribute as nanoseconds; 0 without it.
fn nanoseconds(span: &Read, key: &str) -> u64 {
    span.attribute(key).parse().map_or(0, |ms: f64| (ms * 1e6) as u64)
}

/// Queue and key, or controller and request, of a reconcile; empty if it has none.
fn by(span: &Read) -> String {
    let of = |keys: [&str; 2]| keys.map(|key| span.attribute(key)).join(" ");
    let queue = of([attributes::WORKQUEUE, attributes::WORKQUEUE_KEY]);
    let by = if queue == " " { of([attributes::CONTROLLER, attributes::CONTROLLER_REQUEST]) } else { queue };
    by.trim().to_owned()
}

/// The first sentence of a message, without control characters, and not too long.
fn reason(message: &str) -> String {
    let message = clean(message);
    let first = message.split_once(". ").map_or(&*message, |(first, _)| first).trim_end_matches('.');
    if first.chars().count() <= MAX_REASON {
        return first.to_owned();
    }
    first.chars().take(MAX_REASON).chain("...".chars()).collect()
}
