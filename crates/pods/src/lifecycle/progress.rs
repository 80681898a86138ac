//! What is known of a Pod's start-up, gathered event by event. Pure, and bounded whatever the Pod contains.

use std::{collections::BTreeMap, sync::Arc};

use interned::Interner;

use super::{
    attempt::Attempt,
    pod::{ContainerStatus, Pod, Run},
    text::short,
};
use crate::LifecycleEnd as End;

/// Most containers, init containers, gates, kinds of volumes, claims and owners that are kept, each.
const MAX_LISTED: usize = 32;
/// Most attempts that are kept: the first and the last.
const MAX_ATTEMPTS: usize = 32;
const FIRST_ATTEMPTS: usize = 8;
/// Most events of one container.
const MAX_EVENTS: usize = 8;

/// When something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct When {
    /// The API's own time, in seconds since the Unix epoch.
    pub(super) said_s: Option<u64>,
    /// When it was seen, in nanoseconds since the Unix epoch: it happened before.
    pub(super) seen_ns: u64,
}

/// What is known of one Pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Facts that do not change; `None` until the API server sends the Pod.
    pub(super) about: Option<About>,
    /// When the last scheduling gate was removed.
    pub(super) ungated_ns: Option<u64>,
    pub(super) node: Option<Arc<str>>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) attempts_left_out: u64,
    pub(super) scheduled: Option<When>,
    /// When the kubelet accepted it.
    pub(super) kubelet: Option<When>,
    pub(super) sandbox: Option<When>,
    pub(super) initialized: Option<When>,
    /// Init containers first.
    pub(super) containers: Box<[Container]>,
    pub(super) restarts: u64,
    pub(super) end: Option<(End, When)>,
    /// Reason and message of the status.
    pub(super) reason: String,
    /// When the last event came.
    pub(super) last_ns: u64,
    /// Number of the last list that contained the Pod.
    pub(super) list: u64,
}

#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) name: String,
    pub(super) created: When,
    pub(super) shape: Arc<Shape>,
}

/// What Pods have in common, kept once.
#[derive(Debug, Default)]
pub(super) struct Common {
    shapes: Interner<Shape>,
    texts: Interner<str>,
}

/// What the Pods of one owner have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub(super) namespace: String,
    pub(super) profile: String,
    pub(super) priority: Option<i64>,
    pub(super) priority_class: Option<String>,
    pub(super) qos_class: Option<String>,
    pub(super) gates: Listed,
    pub(super) images: Listed,
    pub(super) owners: Listed,
    /// UID of the first one.
    pub(super) owner_uid: Option<String>,
    pub(super) claims: Listed,
    /// Each with its count.
    pub(super) volume_kinds: Listed,
    pub(super) volumes: u64,
    pub(super) init_containers: u64,
    pub(super) main_containers: u64,
    /// Number of texts that were cut.
    pub(super) shortened: u64,
}

/// The first items of a list, and how many are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Listed {
    pub(super) first: Vec<String>,
    pub(super) left_out: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) name: Arc<str>,
    pub(super) image: Arc<str>,
    pub(super) kind: ContainerKind,
    pub(super) started: Option<When>,
    pub(super) ended: Option<(When, i64)>,
    pub(super) restarts: u64,
    pub(super) events: Vec<Happened>,
    pub(super) events_left_out: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerKind {
    /// Ends before the next one starts.
    Init,
    /// A sidecar: starts before the containers, and keeps running.
    Sidecar,
    Main,
}

/// An event of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Happened {
    pub(super) when: When,
    /// Reason of waiting, or of the end.
    pub(super) reason: String,
    /// Exit code, if the container ended.
    pub(super) exit_code: Option<i64>,
}

impl Listed {
    fn of(texts: impl Iterator<Item = String>, shortened: &mut u64) -> Self {
        let mut listed = Self::default();
        for text in texts {
            if listed.first.len() < MAX_LISTED {
                push(&mut listed.first, short(&text, shortened));
            } else {
                listed.left_out += 1;
            }
        }
        listed
    }

    fn bytes(&self) -> usize {
        self.first.iter().map(|text| size_of::<String>() + text.len()).sum()
    }
}

impl About {
    fn of(pod: &Pod, now_ns: u64, common: &mut Common) -> Self {
        let Pod { metadata, spec, status } = pod;
        let mut shortened = 0;
        let cut = &mut shortened;
        let created =
            metadata.creation_timestamp.as_ref().and_then(|time| time.0.as_second().try_into().ok());
        let name = |text: &Option<String>, cut: &mut u64| short(text.as_deref().unwrap_or_default(), cut);
        let owners = metadata.owner_references.iter().flatten();
        let mut kinds = BTreeMap::<&str, u64>::new();
        for volume in &spec.volumes {
            *kinds.entry(&volume.kind).or_default() += 1;
        }
        let containers = || spec.init_containers.iter().chain(&spec.containers);
        let own_name = name(&metadata.name, cut);
        let shape = Shape {
            namespace: name(&metadata.namespace, cut),
            profile: short(&spec.scheduler_name, cut),
            priority: spec.priority,
            priority_class: spec.priority_class_name.as_deref().map(|text| short(text, cut)),
            qos_class: status.qos_class.as_deref().map(|text| short(text, cut)),
            gates: Listed::of(spec.scheduling_gates.iter().map(|gate| gate.name.clone()), cut),
            images: Listed::of(containers().map(|container| container.image.clone()), cut),
            owner_uid: owners.clone().next().map(|owner| short(&owner.uid, cut)),
            owners: Listed::of(owners.map(|owner| format!("{}/{}", owner.kind, owner.name)), cut),
            claims: Listed::of(spec.volumes.iter().filter_map(|volume| volume.claim.clone()), cut),
            volume_kinds: Listed::of(kinds.iter().map(|(kind, count)| format!("{kind}: {count}")), cut),
            volumes: spec.volumes.len() as u64,
            init_containers: spec.init_containers.len() as u64,
            main_containers: spec.containers.len() as u64,
            shortened,
        };
        Self {
            name: own_name,
            created: When { said_s: created, seen_ns: now_ns },
            shape: common.shapes.intern(shape),
        }
    }
}

impl Progress {
    /// A Pod of which nothing is known yet.
    pub(super) fn new(now_ns: u64) -> Self {
        Self { last_ns: now_ns, ..Self::default() }
    }

    /// Takes the Pod's current state. Nothing changes after its end.
    pub(super) fn see(&mut self, pod: &Pod, now_ns: u64, common: &mut Common) {
        if self.end.is_some() {
            return;
        }
        self.last_ns = now_ns;
        if self.about.is_none() {
            self.about = Some(About::of(pod, now_ns, common));
            self.containers = containers(pod, &mut common.texts);
        }
        let Pod { metadata: _, spec, status } = pod;
        let gated = self.about.as_ref().is_some_and(|about| !about.shape.gates.first.is_empty());
        if gated && spec.scheduling_gates.is_empty() {
            self.ungated_ns.get_or_insert(now_ns);
        }
        let node = spec.node_name.as_deref().filter(|node| !node.is_empty());
        self.node = self.node.take().or_else(|| node.map(|node| common.texts.intern(&*short(node, &mut 0))));
        let condition = |kind: &str| status.conditions.iter().find(|condition| condition.kind == kind);
        let holds = |kind: &str| {
            let condition = condition(kind).filter(|condition| condition.status == "True")?;
            Some(condition.last_transition_time)
        };
        for (known, said) in [
            (&mut self.scheduled, holds("PodScheduled")),
            (&mut self.kubelet, status.start_time.map(Some)),
            (&mut self.sandbox, holds("PodReadyToStartContainers")),
            (&mut self.initialized, holds("Initialized")),
        ] {
            learn(known, said, now_ns);
        }
        for said in status.init_container_statuses.iter().chain(&status.container_statuses) {
            if let Some(container) =
                self.containers.iter_mut().find(|container| *container.name == *said.name)
            {
                container.see(said, now_ns);
            }
        }
        self.restarts =
            self.containers.iter().map(|container| container.restarts).fold(0, u64::saturating_add);
        let finished = self.containers.iter().filter_map(|container| container.ended);
        let finished = finished.filter_map(|(when, _)| when.said_s).max();
        let end = match status.phase.as_str() {
            "Succeeded" => Some((End::Succeeded, finished)),
            "Failed" => Some((End::Failed, finished)),
            _ => match holds("Ready") {
                Some(ready) => Some((End::Ready, ready)),
                // Virtual kubelets may set no readiness condition.
                None if status.phase == "Running" && condition("Ready").is_none() => {
                    Some((End::Running, None))
                }
                None => None,
            },
        };
        if let Some((end, said_s)) = end {
            let colon = if status.reason.is_empty() || status.message.is_empty() { "" } else { ": " };
            self.reason = short(&format!("{}{colon}{}", status.reason, status.message), &mut 0);
            self.end = Some((end, When { said_s, seen_ns: now_ns }));
        }
    }

    /// The Pod is deleted.
    pub(super) fn gone(&mut self, now_ns: u64) {
        if self.end.is_none() {
            self.last_ns = now_ns;
            self.end = Some((End::Deleted, When { said_s: None, seen_ns: now_ns }));
        }
    }

    /// Takes an attempt: keeps the first and the last ones, and without `room` only a binding one.
    pub(super) fn attempt(&mut self, attempt: Attempt, room: bool) {
        if !room && !attempt.may_have_bound {
            self.attempts_left_out += 1;
            return;
        }
        if self.attempts.len() == MAX_ATTEMPTS {
            self.attempts.remove(FIRST_ATTEMPTS);
            self.attempts_left_out += 1;
        }
        push(&mut self.attempts, attempt);
    }

    /// The attempt that bound the Pod, or may have.
    pub(super) fn binding(&self) -> Option<&Attempt> {
        self.attempts.iter().rfind(|attempt| attempt.may_have_bound)
    }

    /// Approximate size in memory, in bytes, as if it shared nothing.
    pub(super) fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let about = self.about.as_ref().map_or(0, |About { name, created: _, shape }| {
            let lists = [&shape.gates, &shape.images, &shape.owners, &shape.claims, &shape.volume_kinds]
                .map(Listed::bytes);
            let words = shape.namespace.len() + name.len() + shape.profile.len();
            let texts = [&shape.owner_uid, &shape.priority_class, &shape.qos_class].map(text);
            size_of::<Shape>() + lists.iter().sum::<usize>() + words + texts.iter().sum::<usize>()
        });
        let containers = self.containers.iter().map(|container| {
            let events = container.events.iter().map(|event| size_of::<Happened>() + event.reason.len());
            size_of::<Container>() + container.name.len() + container.image.len() + events.sum::<usize>()
        });
        let attempts = self.attempts.iter().map(Attempt::bytes);
        size_of::<Self>()
            + about
            + self.node.as_deref().map_or(0, str::len)
            + self.reason.len()
            + containers.sum::<usize>()
            + attempts.sum::<usize>()
    }
}

/// The Pod's containers, up to [`MAX_LISTED`] of each list.
fn containers(pod: &Pod, texts: &mut Interner<str>) -> Box<[Container]> {
    let init = pod.spec.init_containers.iter().take(MAX_LISTED).map(|container| (container, true));
    let main = pod.spec.containers.iter().take(MAX_LISTED).map(|container| (container, false));
    let mut intern = |text: &str| texts.intern(&*short(text, &mut 0));
    let all = init.chain(main).map(|(container, init)| Container {
        name: intern(&container.name),
        image: intern(&container.image),
        kind: match container.restart_policy.as_deref() {
            Some("Always") if init => ContainerKind::Sidecar,
            _ if init => ContainerKind::Init,
            _ => ContainerKind::Main,
        },
        started: None,
        ended: None,
        restarts: 0,
        events: Vec::new(),
        events_left_out: 0,
    });
    all.collect()
}

/// Adds to a list that most Pods have one element of: a vector would make room for four at once.
fn push<T>(list: &mut Vec<T>, element: T) {
    list.reserve_exact(1);
    list.push(element);
}

/// The newest time wins: a condition may have become true, false and true again.
fn learn(known: &mut Option<When>, said: Option<Option<u64>>, now_ns: u64) {
    if let Some(said_s) = said
        && known.is_none_or(|known| known.said_s != said_s)
    {
        *known = Some(When { said_s, seen_ns: now_ns });
    }
}

impl Container {
    fn see(&mut self, said: &ContainerStatus, now_ns: u64) {
        self.restarts = u64::try_from(said.restart_count).unwrap_or_default();
        if let Some(Run { exit_code, reason, finished_at, .. }) = &said.last_state.terminated {
            self.happened(*finished_at, reason, Some(*exit_code), now_ns);
        }
        let usual = |reason: &str| ["", "ContainerCreating", "PodInitializing"].contains(&reason);
        if let Some(waiting) = said.state.waiting.as_ref().filter(|waiting| !usual(&waiting.reason)) {
            self.happened(None, &waiting.reason, None, now_ns);
        }
        let run = said.state.running.as_ref().or(said.state.terminated.as_ref());
        learn(&mut self.started, run.map(|run| run.started_at), now_ns);
        let ended = said.state.terminated.as_ref();
        self.ended = match (ended, self.ended) {
            (Some(run), Some(known)) if known.0.said_s == run.finished_at => Some(known),
            (Some(run), _) => Some((When { said_s: run.finished_at, seen_ns: now_ns }, run.exit_code)),
            (None, _) => None,
        };
        if let Some(run) = ended {
            self.happened(run.finished_at, &run.reason, Some(run.exit_code), now_ns);
        }
    }

    /// An event that may be known already.
    fn happened(&mut self, said_s: Option<u64>, reason: &str, exit_code: Option<i64>, now_ns: u64) {
        let reason = short(reason, &mut 0);
        let same = |event: &&Happened| event.reason == reason && event.exit_code == exit_code;
        let known = match exit_code {
            Some(_) => self.events.iter().filter(same).any(|event| event.when.said_s == said_s),
            None => self.events.iter().rfind(|event| event.exit_code.is_none()).filter(same).is_some(),
        };
        if known {
            return;
        }
        if self.events.len() == MAX_EVENTS {
            // The first event is the cause, the last the current state.
            self.events.remove(1);
            self.events_left_out += 1;
        }
        push(&mut self.events, Happened { when: When { said_s, seen_ns: now_ns }, reason, exit_code });
    }
}
