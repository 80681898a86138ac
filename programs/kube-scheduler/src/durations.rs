//! Histograms of attempts and their parts. The exemplar of a bucket is the last exported trace with such a duration.

use std::{
    borrow::Cow,
    sync::{Mutex, PoisonError},
};

use spans::{AttributeValue, Phase, Span, SpanKind, Trace, TraceKind, attributes};
use telemetry::{Buckets, Duration, Durations, Registry};

use crate::{
    HashMap,
    keys::{Key, Keys, MAX_TEXT, OTHER, names},
    metrics::result,
};

/// Profiles with histograms of their own; a scheduler has a few. Their names come from the traced process.
const MAX_PROFILES: usize = 16;
/// Plugins by extension point; a profile has about sixty.
const MAX_PLUGINS: usize = 256;

/// From 100 us to 13 s.
const OF_ATTEMPTS: Buckets = Buckets { first: 1e-4, factor: 2.0, count: 18 };
/// From 1 us to 16.8 s.
const OF_PARTS: Buckets = Buckets { first: 1e-6, factor: 4.0, count: 13 };
/// From 1 ms to 70 minutes.
const OF_WAITS: Buckets = Buckets { first: 1e-3, factor: 4.0, count: 12 };

/// The histograms.
#[derive(Debug)]
pub(crate) struct Histograms {
    attempts: Durations<2>,
    waits: Durations<2>,
    phases: Durations<2>,
    plugins: Durations<3>,
    /// Those that are there, by profile.
    profiles: Mutex<HashMap<Box<str>, Profile>>,
}

/// The histograms of a profile.
#[derive(Debug, Default)]
struct Profile {
    /// Of attempts and of the waits before them, by result.
    attempts: HashMap<&'static str, (Duration, Duration)>,
    phases: HashMap<Phase, Duration>,
    /// By number.
    plugins: Vec<Duration>,
    keys: Keys,
}

impl Histograms {
    /// Registers them.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            attempts: registry.durations(
                "attempt_duration",
                "Durations of scheduling attempts, by result and profile",
                ["result", "profile"],
                OF_ATTEMPTS,
            ),
            waits: registry.durations(
                "queue_wait",
                "Time from a Pod's way into the queue to its attempt, by the attempt's result and profile",
                ["result", "profile"],
                OF_WAITS,
            ),
            phases: registry.durations(
                "phase_duration",
                "Durations of the phases of attempts, by phase and profile",
                ["phase", "profile"],
                OF_PARTS,
            ),
            plugins: registry.durations(
                "plugin_duration",
                "Durations of plugins' calls, by extension point, plugin and profile",
                ["extension_point", "plugin", "profile"],
                OF_PARTS,
            ),
            profiles: Mutex::default(),
        }
    }

    /// Adds what is in an attempt's trace, or in that of a group.
    pub(crate) fn add(&self, trace: &Trace, is_kept: bool) {
        match trace.kind {
            TraceKind::Attempt | TraceKind::GroupAttempt => {}
            TraceKind::Configuration
            | TraceKind::Lifecycle
            | TraceKind::Reconcile
            | TraceKind::PodStart
            | TraceKind::PodStorage
            | TraceKind::PodCreation
            | TraceKind::PodDeletion
            | TraceKind::PodEviction
            | TraceKind::Command => {
                return;
            }
        }
        let trace_id = is_kept.then_some(trace.trace_id);
        let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        // In a group's trace each Pod's part begins with a root.
        for part in trace.spans.chunk_by(|_, next| !matches!(next.kind, SpanKind::Root(_))) {
            let name = match part[0].attribute(attributes::PROFILE) {
                Some(AttributeValue::String(name)) => name,
                Some(_) | None => OTHER,
            };
            let is_full = profiles.len() >= MAX_PROFILES || name.len() > MAX_TEXT;
            let name = if is_full && !profiles.contains_key(name) { OTHER } else { name };
            if !profiles.contains_key(name) {
                profiles.insert(name.into(), Profile::default());
            }
            let Some(profile) = profiles.get_mut(name) else { continue };
            part.iter().for_each(|span| self.span(span, name, profile, trace_id));
        }
    }

    fn span(&self, span: &Span, name: &str, profile: &mut Profile, trace_id: Option<[u8; 16]>) {
        if span.attribute(attributes::INCOMPLETE).is_some() {
            return;
        }
        let own = || Cow::Owned(name.to_owned());
        let seconds = span.duration_ns() as f64 / 1e9;
        match span.kind {
            SpanKind::Root(TraceKind::Attempt) => {
                let result = result(span);
                let (attempts, waits) = profile.attempts.entry(result).or_insert_with(|| {
                    (self.attempts.of([result.into(), own()]), self.waits.of([result.into(), own()]))
                });
                attempts.observe(seconds, trace_id);
                if let Some(AttributeValue::Double(wait_ms)) = span.attribute(attributes::QUEUE_WAIT_MS) {
                    waits.observe(wait_ms / 1e3, trace_id);
                }
            }
            SpanKind::Phase(phase) => {
                let of = || self.phases.of([phase.name().into(), own()]);
                profile.phases.entry(phase).or_insert_with(of).observe(seconds, trace_id);
            }
            SpanKind::Plugin => {
                let (plugin, point) = names(span);
                let number = profile.keys.number(&plugin, point, MAX_PLUGINS);
                // A key that is new has the next number.
                let new = profile.keys.iter().skip(profile.plugins.len());
                let of = |Key { name, point }: &Key| {
                    self.plugins.of([point.to_string().into(), name.to_string().into(), own()])
                };
                profile.plugins.extend(new.map(of));
                profile.plugins[number].observe(seconds, trace_id);
            }
            SpanKind::Root(
                TraceKind::GroupAttempt
                | TraceKind::Configuration
                | TraceKind::Lifecycle
                | TraceKind::Reconcile
                | TraceKind::PodStart
                | TraceKind::PodStorage
                | TraceKind::PodCreation
                | TraceKind::PodDeletion
                | TraceKind::PodEviction
                | TraceKind::Command,
            )
            | SpanKind::Cycle(_)
            | SpanKind::Share
            | SpanKind::Extender
            | SpanKind::ApiCall
            | SpanKind::Victim
            | SpanKind::Placement
            | SpanKind::Trial
            | SpanKind::QueueStay
            | SpanKind::Stage(_)
            | SpanKind::Node(_)
            | SpanKind::Api(_)
            | SpanKind::Request
            | SpanKind::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use spans::{
        fixtures::{scheduled, unschedulable, with_plugins},
        text::hex,
    };

    use super::*;

    fn text(traces: &[(Trace, bool)]) -> String {
        let registry = Registry::default();
        let histograms = Histograms::new(&registry);
        traces.iter().for_each(|(trace, is_kept)| histograms.add(trace, *is_kept));
        registry.encode()
    }

    fn contains(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.contains(line), "{line} is not in {text}");
        }
    }

    /// The trace, of a scheduler's profile with this name.
    fn of_profile(name: &str) -> Trace {
        let mut trace = scheduled();
        let root = &mut trace.spans[0].attributes;
        root.retain(|(key, _)| *key != attributes::PROFILE);
        root.push((attributes::PROFILE, name.into()));
        trace
    }

    #[test]
    fn attempts_waits_phases_and_plugins_are_counted_by_profile() {
        let text = text(&[(with_plugins(1), true), (unschedulable(), false)]);
        let labels = "profile=\"default-scheduler\"";
        contains(
            &text,
            &[
                &format!("attempt_duration_seconds_count{{result=\"Success\",{labels}}} 1\n"),
                &format!("attempt_duration_seconds_count{{result=\"Unschedulable\",{labels}}} 1\n"),
                &format!("queue_wait_seconds_sum{{result=\"Success\",{labels}}} 0.01225\n"),
                &format!("phase_duration_seconds_count{{phase=\"preFilter\",{labels}}} 2\n"),
                &format!("phase_duration_seconds_sum{{phase=\"bind\",{labels}}} 0.003\n"),
                &format!(
                    "plugin_duration_seconds_count{{extension_point=\"Reserve\",plugin=\"Plugin0\",{labels}}} 1\n"
                ),
            ],
        );
    }

    #[test]
    fn only_a_trace_that_is_kept_is_an_exemplar() {
        let id = hex(&scheduled().trace_id);
        assert!(!text(&[(scheduled(), false)]).contains(&id));
        let text = text(&[(scheduled(), true), (scheduled(), false)]);
        let line = text.lines().find(|line| line.contains("attempt_duration") && line.contains(&id));
        assert!(line.is_some_and(|line| line.contains("} 2 # {trace_id=")), "{text}");
    }

    #[test]
    fn an_incomplete_call_has_no_duration() {
        let mut trace = scheduled();
        for span in &mut trace.spans {
            span.attributes.push((attributes::INCOMPLETE, AttributeValue::Bool(true)));
        }
        assert!(!text(&[(trace, true)]).contains("_count{"));
    }

    #[test]
    fn names_of_a_traced_process_are_bounded() {
        let profiles: Vec<_> =
            (0..100).map(|number| (of_profile(&format!("profile-{number}")), true)).collect();
        let of_profiles = text(&profiles);
        let count = |text: &str, metric: &str| {
            text.lines()
                .filter(|line| line.starts_with(&format!("schedspan_{metric}_seconds_count{{")))
                .count()
        };
        assert_eq!(count(&of_profiles, "attempt_duration"), MAX_PROFILES + 1);
        contains(
            &of_profiles,
            &["attempt_duration_seconds_count{result=\"Success\",profile=\"other\"} 84\n"],
        );
        let long = "x".repeat(MAX_TEXT + 1);
        contains(&text(&[(of_profile(&long), true)]), &["profile=\"other\""]);

        let of_plugins = text(&[(with_plugins(300), true), (with_plugins(300), true)]);
        assert_eq!(count(&of_plugins, "plugin_duration"), MAX_PLUGINS + 1);
        contains(&of_plugins, &["plugin=\"other\",profile=\"default-scheduler\"} 88\n"]);
    }
}
