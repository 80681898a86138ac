//! The starts of a Pod by its kubelet. Pure.

use spans::{NodeStep, SpanKind, Stage, TraceKind, attributes};

use super::{Doing, Rank, Way};
use crate::{Shown, Span as Read};

/// A try to start a container.
struct Try<'a> {
    span: &'a Read,
    name: &'a str,
    init: bool,
    /// What failed, and why.
    failed: Option<(Doing, &'a str)>,
}

impl<'a> Way<'a> {
    /// What the kubelet did, by schedspan's spans or its own.
    pub(super) fn starts(&mut self) {
        let of = |wanted: Shown| move |span: &&Read| span.shows() == wanted;
        let about = || self.collected.about.iter().copied();
        for sync in about().filter(of(Shown::SyncPod)).collect::<Vec<_>>() {
            self.claim(Rank::Node, sync.wall, Doing::KubeletRest, "");
            self.steps(sync);
        }
        let about = || self.collected.about.iter().copied();
        let starts: Vec<_> = about().filter(of(Shown::Known(SpanKind::Root(TraceKind::PodStart)))).collect();
        let lifecycle = self.collected.lifecycle;
        let is_kubelet = of(Shown::Known(SpanKind::Stage(Stage::Kubelet)));
        let bound =
            self.collected.below(lifecycle).iter().copied().find(is_kubelet).map(|stage| stage.wall[0]);
        if let (Some(bound), Some(first)) = (bound, starts.first()) {
            self.claim(Rank::Gap, [bound, first.wall[0]], Doing::Kubelet, "");
        }
        for start in &starts {
            self.claim(Rank::Node, start.wall, Doing::KubeletRest, "");
            let tries = self.steps(start);
            self.waits(start, &tries);
        }
        if let Some(last) = starts.last() {
            let result = |span: &Read| span.attribute(attributes::LIFECYCLE_RESULT).to_owned();
            if result(last) == result(lifecycle) {
                self.claim(Rank::Wider, [last.wall[1], lifecycle.wall[1]], Doing::Report, "");
            }
        }
    }

    /// Claims the steps below a span. Returns the tries to start containers in their order.
    fn steps(&mut self, above: &'a Read) -> Vec<Try<'a>> {
        let mut tries: Vec<Try<'a>> = Vec::new();
        for (span, parent) in self.collected.descendants(above) {
            let Some((step, name)) = step(&span.name) else { continue };
            let of_parent = self::step(&parent.name);
            let container = match of_parent {
                Some((NodeStep::InitContainer, name)) => (Doing::InitContainer, name),
                Some((NodeStep::Container, name)) => (Doing::Container, name),
                Some(_) | None => (Doing::Container, span.attribute(attributes::CONTAINER)),
            };
            let image = |span: &'a Read| (Doing::Pull, span.attribute(attributes::IMAGE));
            let pulled = span.attribute(attributes::IMAGE_PULLED) == "true" || span.failed;
            let (rank, (doing, what)) = match step {
                NodeStep::Admission => (Rank::Step, (Doing::Admit, "")),
                NodeStep::Volumes => (Rank::Step, (Doing::Volumes, "")),
                NodeStep::Sandbox | NodeStep::RunPodSandbox => (Rank::Step, (Doing::Sandbox, "")),
                NodeStep::InitContainer => (Rank::Step, (Doing::InitContainer, name)),
                NodeStep::Container => (Rank::Step, (Doing::Container, name)),
                NodeStep::Image if pulled => (Rank::Call, image(span)),
                NodeStep::PullImage if of_parent.is_some_and(|(step, _)| step == NodeStep::Image) => {
                    (Rank::Call, image(parent))
                }
                NodeStep::PullImage => (Rank::Call, image(span)),
                NodeStep::Image | NodeStep::CreateContainer | NodeStep::StartContainer => {
                    (Rank::Step, container)
                }
                NodeStep::Probe => (Rank::Wider, (Doing::Readiness, "")),
                NodeStep::Sync => (Rank::Node, (Doing::KubeletRest, "")),
            };
            self.claim(rank, span.wall, doing, what);
            if [NodeStep::InitContainer, NodeStep::Container].contains(&step) {
                let below = self.collected.descendants(span);
                let failed = below.iter().map(|(span, _)| *span).find(|span| span.failed);
                let failed = failed.or(Some(span).filter(|span| span.failed)).map(|failed| {
                    let is_image = self::step(&failed.name).is_some_and(|(step, _)| step == NodeStep::Image);
                    (if is_image { Doing::Pull } else { Doing::Container }, &*failed.message)
                });
                tries.push(Try { span, name, init: step == NodeStep::InitContainer, failed });
            }
        }
        tries.sort_by_key(|tried| tried.span.wall);
        tries
    }

    /// Claims what the Pod waited for between the steps of a start.
    fn waits(&mut self, start: &Read, tries: &[Try<'a>]) {
        let end = start.wall[1];
        for (number, tried) in tries.iter().enumerate() {
            let Try { span, name, init, failed } = tried;
            let later = &tries[number + 1..];
            let next = later.first().map_or(end, |next| next.span.wall[0]);
            let again = later.iter().find(|later| later.name == *name).map(|again| again.span.wall[0]);
            let since = span.wall[1];
            match (failed, again) {
                (Some((of, why)), _) => {
                    let image = self.collected.descendants(span).into_iter().find_map(|(span, _)| {
                        Some(span.attribute(attributes::IMAGE)).filter(|image| !image.is_empty())
                    });
                    let what = if *of == Doing::Pull { image.unwrap_or(name) } else { name };
                    self.claim(Rank::Gap, [since, again.unwrap_or(end)], Doing::Retry, what);
                    // The first failure is the cause; later ones may only say that the kubelet waits.
                    if !self.because.contains_key(&Doing::Retry) {
                        self.because(Doing::Retry, why);
                    }
                }
                (None, _) if *init => self.claim(Rank::Gap, [since, next], Doing::InitContainer, name),
                (None, Some(again)) => self.claim(Rank::Gap, [since, again], Doing::Restart, name),
                (None, None) => {}
            }
        }
        let Some(last) = tries.iter().rfind(|tried| !tried.init) else { return };
        let until = match start.attribute(attributes::LIFECYCLE_RESULT) {
            "Succeeded" | "Failed" => Doing::Run,
            _ => Doing::Readiness,
        };
        self.claim(Rank::Wider, [last.span.wall[1], end], until, "");
    }
}

/// The step that a span of a kubelet shows, and the container's name. The kubelet's own spans have the service before the method.
fn step(name: &str) -> Option<(NodeStep, &str)> {
    if let Some((first, container)) = name.split_once(": ") {
        let containers = [NodeStep::InitContainer, NodeStep::Container];
        return containers.into_iter().find(|step| step.name() == first).map(|step| (step, container));
    }
    let method = name.rsplit_once('/').map_or(name, |(_, method)| method);
    NodeStep::ALL.into_iter().find(|step| step.name() == method).map(|step| (step, ""))
}
