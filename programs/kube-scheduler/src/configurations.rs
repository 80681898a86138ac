//! The active scheduler and its configuration: each change of either is a trace of its own, which the
//! attempts that follow link to.

use std::collections::HashMap;

use spans::{
    AttributeValue, Link, Relation, Source, Span, SpanKind, Status, Trace, TraceKind, attributes,
    identity::{span_id, trace_id},
};

use crate::{configuration::Configuration, spans::link};

/// Ended schedulers kept for comparison with their successors; a node has a handful.
const MAX_REMEMBERED: usize = 64;
/// Differing settings listed on the span; further ones are counted.
const MAX_DIFFERENCES: usize = 64;

/// Configurations of the running schedulers, and of the last active one per set of profiles.
#[derive(Debug, Default)]
pub struct Configurations {
    /// Running schedulers by target number.
    running: HashMap<u32, Running>,
    /// The last scheduler that made attempts, per set of profiles; newest last.
    last: Vec<Last>,
}

#[derive(Debug)]
struct Running {
    configuration: Configuration,
    pid: u32,
    /// The process was running before the first look, so the time of its first attempt is unknown.
    already_ran: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No attempt yet: another process holds the lease, or this one is starting.
    Waiting,
    /// It makes attempts; no span describes its configuration.
    Leads,
    /// It makes attempts; this span describes its configuration.
    Told(Link),
}

#[derive(Debug)]
struct Last {
    configuration: Configuration,
    pid: u32,
    span: Option<Link>,
}

impl Configurations {
    /// Adds a running scheduler and its configuration; `already_ran`: it was started before the first look.
    pub fn found(&mut self, target: u32, pid: u32, configuration: Configuration, already_ran: bool) {
        self.running.insert(target, Running { configuration, pid, already_ran, state: State::Waiting });
    }

    /// Removes an ended scheduler.
    pub fn gone(&mut self, target: u32) {
        self.running.remove(&target);
    }

    /// Links an attempt to the span that describes its scheduler. Returns that span's trace with the
    /// scheduler's first attempt.
    pub fn link(&mut self, trace: &mut Trace) -> Option<Trace> {
        let Source::Process(target) = trace.source else { return None };
        let running = self.running.get_mut(&target)?;
        let mut told = None;
        if matches!(running.state, State::Waiting) {
            let shares = |last: &Last| {
                let profiles = &last.configuration.profiles;
                profiles.iter().any(|profile| running.configuration.profiles.contains(profile))
            };
            let before = self.last.iter().rposition(shares).map(|place| self.last.remove(place));
            running.state = if running.already_ran {
                State::Leads
            } else {
                let trace = describe(running, before.as_ref(), trace);
                let span = link(trace.trace_id, trace.root().span_id, Relation::Configuration);
                told = Some(trace);
                State::Told(span)
            };
            if self.last.len() >= MAX_REMEMBERED {
                self.last.remove(0);
            }
            let span = if let State::Told(span) = &running.state { Some(span.clone()) } else { None };
            self.last.push(Last { configuration: running.configuration.clone(), pid: running.pid, span });
        }
        if let (State::Told(span), Some(root)) = (&running.state, trace.spans.first_mut()) {
            root.links.push(span.clone());
        }
        told
    }
}

/// Builds the trace of a configuration: from the start of the process to its first attempt.
fn describe(running: &Running, before: Option<&Last>, first: &Trace) -> Trace {
    let Running { configuration, pid, .. } = running;
    let started_unix_ns = configuration.started_unix_ns;
    let end_unix_ns = first.root().start_unix_ns;
    let seed = trace_id(&configuration.hash, started_unix_ns, *pid);
    let mut list = of(configuration);
    if let Some(Last { configuration: earlier, pid, .. }) = before {
        list.push((attributes::CONFIG_PREVIOUS_HASH, earlier.hash.as_str().into()));
        list.push((attributes::PREVIOUS_PID, AttributeValue::Int(i64::from(*pid))));
        let mut difference = configuration.difference(earlier);
        let count = difference.len();
        list.push((attributes::CONFIG_CHANGED, AttributeValue::Bool(configuration.hash != earlier.hash)));
        difference.truncate(MAX_DIFFERENCES);
        if count > 0 {
            list.push((attributes::CONFIG_DIFFERENCE, AttributeValue::Strings(difference)));
        }
        if count > MAX_DIFFERENCES {
            let left_out = i64::try_from(count - MAX_DIFFERENCES).unwrap_or(i64::MAX);
            list.push((attributes::CONFIG_DIFFERENCE_LEFT_OUT, AttributeValue::Int(left_out)));
        }
    }
    let kind = TraceKind::Configuration;
    let span = Span {
        kind: SpanKind::Root(kind),
        span_id: span_id(&seed, 0),
        parent_id: None,
        name: kind.name().into(),
        start_unix_ns: started_unix_ns.min(end_unix_ns),
        end_unix_ns,
        attributes: list.into(),
        events: Vec::new(),
        links: before.and_then(|before| before.span.clone()).into_iter().collect(),
        status: Status::Unset,
    };
    Trace {
        kind,
        source: first.source,
        trace_id: seed,
        parent: None,
        selected: None,
        spans: vec![span],
        names: None,
        beside: Vec::new(),
    }
}

/// Attributes of a configuration, for the resource and for the span that describes it.
#[must_use]
pub fn of(configuration: &Configuration) -> Vec<(&'static str, AttributeValue)> {
    let Configuration { file, hash, settings: _, profiles, outdated, started_unix_ns: _ } = configuration;
    let mut list = vec![
        (attributes::CONFIG_HASH, hash.as_str().into()),
        (attributes::CONFIG_PROFILES, AttributeValue::Strings(profiles.clone())),
    ];
    if let Some(file) = file {
        list.push((attributes::CONFIG_FILE, file.to_string_lossy().as_ref().into()));
    }
    if let Some(gates) = configuration.flag("feature-gates") {
        list.push((attributes::CONFIG_FEATURE_GATES, gates.into()));
    }
    if *outdated {
        list.push((attributes::CONFIG_OUTDATED, AttributeValue::Bool(true)));
    }
    list
}

#[cfg(test)]
mod tests {
    use spans::fixtures::scheduled;

    use super::*;

    fn told(hash: &str, setting: &str) -> Configuration {
        Configuration {
            hash: hash.to_owned(),
            settings: vec![setting.to_owned()],
            profiles: vec!["default-scheduler".to_owned()],
            started_unix_ns: 1,
            ..Configuration::default()
        }
    }

    fn attempt(target: u32) -> Trace {
        Trace { source: Source::Process(target), ..scheduled() }
    }

    #[test]
    fn running_schedulers_get_no_configuration_trace() {
        let mut configurations = Configurations::default();
        configurations.found(0, 40, told("a", "--v=1"), true);
        let mut first = attempt(0);
        assert_eq!(configurations.link(&mut first), None);
        assert_eq!(first, attempt(0));
        // An unknown target gets no trace.
        assert_eq!(configurations.link(&mut attempt(7)), None);
    }

    #[test]
    fn what_else_a_process_runs_has_nothing_to_do_with_its_schedulers_configuration() {
        let mut configurations = Configurations::default();
        configurations.found(0, 40, told("a", "--v=1"), false);
        let reconcile = Trace { source: Source::OtherProgram(0), ..scheduled() };
        let mut linked = reconcile.clone();
        assert_eq!(configurations.link(&mut linked), None);
        assert_eq!(linked, reconcile);
        assert!(configurations.link(&mut attempt(0)).is_some(), "its first attempt is still to come");
    }

    #[test]
    fn ended_schedulers_are_forgotten() {
        let mut configurations = Configurations::default();
        configurations.found(0, 40, told("a", "--v=1"), false);
        assert!(configurations.link(&mut attempt(0)).is_some());
        configurations.gone(0);
        let mut later = attempt(0);
        assert_eq!(configurations.link(&mut later), None);
        assert_eq!(later, attempt(0), "its link is gone with it");
    }

    #[test]
    fn next_scheduler_reports_its_differences_and_links_attempts() {
        let mut configurations = Configurations::default();
        configurations.found(0, 40, told("a", "--v=1"), true);
        configurations.found(1, 41, told("b", "--v=2"), false);
        configurations.link(&mut attempt(0));
        // The standby makes attempts only after the leader is gone.
        configurations.gone(0);
        let mut first = attempt(1);
        let trace = configurations.link(&mut first).expect("it is the first");
        let root = trace.root();
        assert_eq!((trace.spans.len(), &*root.name.as_str()), (1, "SchedulerConfiguration"));
        assert_eq!((trace.kind, trace.source), (TraceKind::Configuration, Source::Process(1)));
        assert_eq!((root.start_unix_ns, root.end_unix_ns), (1, first.root().start_unix_ns));
        for (key, value) in [
            (attributes::CONFIG_HASH, "b".into()),
            (attributes::CONFIG_PREVIOUS_HASH, "a".into()),
            (attributes::PREVIOUS_PID, AttributeValue::Int(40)),
            (attributes::CONFIG_CHANGED, AttributeValue::Bool(true)),
            (
                attributes::CONFIG_DIFFERENCE,
                AttributeValue::Strings(vec!["---v=1".to_owned(), "+--v=2".to_owned()]),
            ),
        ] {
            assert_eq!(root.attribute(key), Some(&value), "{key}");
        }
        assert_eq!(root.links, []);
        let mut second = attempt(1);
        assert_eq!(configurations.link(&mut second), None);
        let own = link(trace.trace_id, root.span_id, Relation::Configuration);
        for attempt in [&first, &second] {
            assert_eq!(attempt.root().links.last(), Some(&own));
        }
        // A successor with an equal configuration gets a trace of the same form, linked to this one.
        configurations.found(2, 42, told("b", "--v=2"), false);
        let next = configurations.link(&mut attempt(2)).expect("it is the first");
        assert_eq!(next.root().links, [own]);
        assert_eq!(next.root().attribute(attributes::CONFIG_CHANGED), Some(&AttributeValue::Bool(false)));
        assert_eq!(next.root().attribute(attributes::CONFIG_DIFFERENCE), None);
        assert_ne!(next.trace_id, trace.trace_id);
    }

    #[test]
    fn schedulers_with_different_profiles_are_not_compared() {
        let mut configurations = Configurations::default();
        let other =
            |profile: &str| Configuration { profiles: vec![profile.to_owned()], ..told("a", "--v=1") };
        for number in 0..2 * MAX_REMEMBERED as u32 {
            configurations.found(number, number, other(&format!("p{number}")), false);
            let trace = configurations.link(&mut attempt(number)).expect("it is the first");
            assert_eq!(trace.root().attribute(attributes::CONFIG_PREVIOUS_HASH), None);
        }
        assert_eq!(configurations.last.len(), MAX_REMEMBERED);
    }

    #[test]
    fn omitted_differences_are_counted() {
        let mut configurations = Configurations::default();
        let settings = |value: u32| (0..40).map(|number| format!("--f{number:02}={value}")).collect();
        for (number, already_ran) in [(0, true), (1, false)] {
            let configuration = Configuration { settings: settings(number), ..told(&number.to_string(), "") };
            configurations.found(number, number, configuration, already_ran);
        }
        configurations.link(&mut attempt(0));
        let trace = configurations.link(&mut attempt(1)).expect("it is the first");
        let told = trace.root().attribute(attributes::CONFIG_DIFFERENCE);
        assert!(matches!(told, Some(AttributeValue::Strings(lines)) if lines.len() == MAX_DIFFERENCES));
        assert_eq!(
            trace.root().attribute(attributes::CONFIG_DIFFERENCE_LEFT_OUT),
            Some(&AttributeValue::Int(16))
        );
    }

    #[test]
    fn as_many_differences_are_listed_as_there_is_room_for() {
        for count in [MAX_DIFFERENCES, MAX_DIFFERENCES + 1] {
            let mut configurations = Configurations::default();
            configurations.found(0, 40, Configuration { settings: Vec::new(), ..told("a", "") }, true);
            let mut settings: Vec<_> = (0..count).map(|number| format!("setting-{number}=1")).collect();
            settings.sort();
            configurations.found(1, 41, Configuration { settings, ..told("b", "") }, false);
            configurations.link(&mut attempt(0));
            configurations.gone(0);
            let trace = configurations.link(&mut attempt(1)).expect("it is the first");
            let Some(AttributeValue::Strings(listed)) = trace.root().attribute(attributes::CONFIG_DIFFERENCE)
            else {
                panic!("no difference is listed");
            };
            assert_eq!(listed.len(), MAX_DIFFERENCES);
            let left_out = trace.root().attribute(attributes::CONFIG_DIFFERENCE_LEFT_OUT);
            assert_eq!(left_out, (count > MAX_DIFFERENCES).then_some(&AttributeValue::Int(1)));
        }
    }
}
