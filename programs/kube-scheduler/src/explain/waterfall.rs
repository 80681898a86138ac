//! Accounts as waterfalls, drawn as the traces that they are summaries of.

use spans::{
    AttributeValue, Attributes, Phase as Point, Source, Span, SpanKind, Status, Trace, TraceKind, attributes,
    export::{Style, waterfall as draw},
    names::PLUGIN,
    text::Name,
};

use super::{Account, Phase, Plugin, Report};

/// Results of a plugin that reject nothing.
const QUIET: [&str; 3] = ["Success", "Skip", "Wait"];

/// The attempts of a report as waterfalls, the last one first. Only the slowest plugins of a phase have lines, and those that rejected the Pod.
#[must_use]
pub fn waterfall(report: &Report, width: usize) -> String {
    let style = Style { width, colour: false, plugins: true };
    let drawn = report.attempts.iter().rev().map(|account| draw(&trace(account), &style));
    drawn.collect::<Vec<_>>().join("\n")
}

/// What a trace needs to be drawn.
fn trace(account: &Account) -> Trace {
    let start = account.start_unix_us.saturating_mul(1000);
    let text = |value: &str| AttributeValue::String(value.to_owned().into());
    let mut about = vec![
        (attributes::POD_NAMESPACE, text(&account.namespace)),
        (attributes::POD_NAME, text(&account.pod)),
    ];
    about.extend(account.attempt.map(|attempt| (attributes::ATTEMPT, AttributeValue::from(attempt))));
    about.extend(account.result.as_deref().map(|result| (attributes::RESULT, text(result))));
    about.extend(account.node.as_deref().map(|node| (attributes::SELECTED_NODE, text(node))));
    let failed = account.result.as_deref().is_some_and(|result| result != "Success");
    let outcome = if failed { Status::Error(account.message.clone()) } else { Status::Unset };

    let mut spans = Vec::new();
    let mut add = |kind, name: Name, parent_id, (start_ns, duration_ns): (u64, u64), attributes, status| {
        let span_id = (spans.len() as u64 + 1).to_be_bytes();
        let start_unix_ns = start.saturating_add(start_ns);
        spans.push(Span {
            kind,
            span_id,
            parent_id,
            name,
            start_unix_ns,
            end_unix_ns: start_unix_ns.saturating_add(duration_ns),
            attributes,
            events: Vec::new(),
            links: Vec::new(),
            status,
        });
        span_id
    };
    let kind = TraceKind::Attempt;
    let time = (0, account.duration_ns);
    let root = add(SpanKind::Root(kind), kind.name().into(), None, time, about.into(), outcome);
    // PreEnqueue ran before the attempt.
    let in_attempt = account.phases.iter().filter(|phase| phase.name != Point::PreEnqueue.name());
    for Phase { name, start_ns, duration_ns, plugins } in in_attempt {
        let point = Point::ALL.into_iter().find(|point| point.name() == name);
        let point = point.map_or(SpanKind::Other, SpanKind::Phase);
        let time = (*start_ns, *duration_ns);
        let phase = add(point, name.clone().into(), Some(root), time, Attributes::new(), Status::Unset);
        for Plugin { name, start_ns, duration_ns, result, message, share } in plugins {
            let kind = if share.is_some() { SpanKind::Share } else { SpanKind::Plugin };
            let attributes = result.iter().map(|result| (attributes::RESULT, text(result))).collect();
            let rejects = result.as_deref().filter(|result| !QUIET.contains(result));
            let status = rejects.map_or(Status::Unset, |result| {
                Status::Error(if message.is_empty() { result } else { message }.to_owned())
            });
            let name = Name::new(PLUGIN, name.clone());
            add(kind, name, Some(phase), (*start_ns, *duration_ns), attributes, status);
        }
    }
    let trace_id = u128::from_str_radix(&account.trace_id, 16).unwrap_or_default().to_be_bytes();
    let (source, beside) = (Source::Process(0), Vec::new());
    Trace { kind, source, trace_id, parent: None, selected: None, spans, names: None, beside }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Kept;

    fn report(account: Account) -> Report {
        Report::new("default".to_owned(), "web-0".to_owned(), 0, Kept::default(), vec![account])
    }

    fn account() -> Account {
        let plugin = |name: &str, result: &str| Plugin {
            name: name.to_owned(),
            start_ns: 500_000,
            duration_ns: 250_000,
            result: Some(result.to_owned()),
            ..Plugin::default()
        };
        let phase = |name: &str, start_ns, plugins| Phase {
            name: name.to_owned(),
            start_ns,
            duration_ns: 500_000,
            plugins,
        };
        Account {
            namespace: "default".to_owned(),
            pod: "web-0".to_owned(),
            attempt: Some(2),
            duration_ns: 1_000_000,
            result: Some("Unschedulable".to_owned()),
            message: "0/1 nodes are available".to_owned(),
            phases: vec![
                phase("preEnqueue", 0, Vec::new()),
                phase("filter", 0, Vec::new()),
                phase(
                    "postFilter",
                    500_000,
                    vec![plugin("Preempts", "Unschedulable"), plugin("Skips", "Skip")],
                ),
            ],
            ..Account::default()
        }
    }

    #[test]
    fn an_account_is_drawn_as_its_trace() {
        let drawn = waterfall(&report(account()), 80);
        for words in [
            "default/web-0  Unschedulable  attempt 2  1.00 ms",
            "0/1 nodes are available",
            "├─ filter",
            "└─ postFilter",
        ] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
        let line = |name: &str| drawn.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
        assert!(line("plugin: Preempts").ends_with("250 us  Unschedulable"), "{drawn}");
        assert!(line("plugin: Skips").ends_with("Skip"), "{drawn}");
        assert!(!drawn.contains("preEnqueue"), "{drawn}");
        // The second half of the attempt.
        let (filter, after) = (line("filter"), line("postFilter"));
        assert!(filter.find('█') < after.find('█'), "{drawn}");
    }

    #[test]
    fn what_a_daemon_sends_is_drawn_whatever_it_is() {
        let mut odd = account();
        odd.pod = "web\u{1b}[2J".to_owned();
        odd.start_unix_us = u64::MAX;
        odd.phases[1].name = "later\u{7}".to_owned();
        odd.phases[2].start_ns = u64::MAX;
        let drawn = waterfall(&report(odd), 80);
        assert!(!drawn.contains(|c: char| c.is_control() && c != '\n'), "{drawn:?}");
        assert!(waterfall(&report(Account::default()), 80).contains("SchedulePod"));
    }
}
