//! Spans next to the scheduler's own metrics.

use std::collections::BTreeMap;

use serde::Serialize;
use spans::{Phase, SpanKind, TraceKind, attributes};

use super::{Error, Shown, span::Span};

/// Most characters of a line in an error.
const SHOWN: usize = 80;

const ATTEMPTS: &str = "scheduler_schedule_attempts_total";
const POINTS: &str = "scheduler_framework_extension_point_duration_seconds";
/// The label of a result in [`ATTEMPTS`], and its name in a root.
const RESULTS: [(&str, &str); 3] =
    [("scheduled", "Success"), ("unschedulable", "Unschedulable"), ("error", "Error")];

/// The phases that are in [`POINTS`]; its labels begin with a capital letter.
const PHASES: [Phase; 12] = [
    Phase::PreFilter,
    Phase::Filter,
    Phase::PostFilter,
    Phase::PreScore,
    Phase::Score,
    Phase::Reserve,
    Phase::Unreserve,
    Phase::Permit,
    Phase::PreBindPreFlight,
    Phase::PreBind,
    Phase::Bind,
    Phase::PostBind,
];

/// One figure that both sides have.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figure {
    /// Name of the spans.
    pub name: String,
    /// Result of the attempts; empty for phases.
    pub result: String,
    /// Number of spans.
    pub spans: f64,
    /// The scheduler's count.
    pub metric: f64,
    /// Total duration of the spans, in seconds.
    pub spans_seconds: f64,
    /// The scheduler's total duration, in seconds; `None` for attempts, where its measurement begins and ends elsewhere.
    pub metric_seconds: Option<f64>,
}

/// Attempts by result, then phases.
pub type Figures = Vec<Figure>;

/// Compares spans with the increase of the scheduler's metrics from `before` to `after`, each a name and a text.
///
/// # Errors
///
/// When a line of these metrics cannot be parsed.
pub fn figures(
    spans: &[Span],
    (name, after): (&str, &str),
    before: Option<(&str, &str)>,
) -> Result<Figures, Error> {
    let mut counted = samples(name, after)?;
    for (key, value) in before.map(|(name, text)| samples(name, text)).transpose()?.unwrap_or_default() {
        *counted.entry(key).or_default() -= value;
    }
    let of = |sample: &str, label: &str| {
        counted.get(&(sample.to_owned(), label.to_owned())).copied().unwrap_or_default()
    };
    let shown: Vec<_> = spans.iter().map(|span| (span.shows(), span)).collect();
    let all = |kind| shown.iter().filter(move |(shown, _)| *shown == kind).map(|(_, span)| *span);
    let mut figures = Vec::new();
    for (label, result) in RESULTS {
        let roots = all(Shown::ATTEMPT).filter(|root| root.attribute(attributes::RESULT) == result);
        figures.push(Figure {
            result: result.to_owned(),
            metric_seconds: None,
            metric: of(ATTEMPTS, label),
            ..figure(TraceKind::Attempt.name(), roots)
        });
    }
    for phase in PHASES {
        let name = phase.name();
        let of_phase = figure(name, all(Shown::Known(SpanKind::Phase(phase))));
        let point = format!("{}{}", name[..1].to_uppercase(), &name[1..]);
        let metric = of(&format!("{POINTS}_count"), &point);
        let seconds = of(&format!("{POINTS}_sum"), &point);
        if metric > 0.0 || of_phase.spans > 0.0 {
            figures.push(Figure { metric, metric_seconds: Some(seconds), ..of_phase });
        }
    }
    Ok(figures)
}

fn figure<'a>(name: &str, spans: impl Iterator<Item = &'a Span>) -> Figure {
    let durations: Vec<_> = spans.map(|span| span.wall[1].saturating_sub(span.wall[0])).collect();
    Figure {
        name: name.to_owned(),
        result: String::new(),
        spans: durations.len() as f64,
        metric: 0.0,
        spans_seconds: durations.into_iter().fold(0, u64::saturating_add) as f64 / 1e9,
        metric_seconds: None,
    }
}

/// The relevant samples, by name and distinguishing label.
fn samples(file: &str, text: &str) -> Result<BTreeMap<(String, String), f64>, Error> {
    let mut samples = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let label = match name.strip_prefix(POINTS) {
            Some("_count" | "_sum") => "extension_point=\"",
            None if name == ATTEMPTS => "result=\"",
            _ => continue,
        };
        let read = || {
            let value = rest.split_once(label)?.1.split_once('"')?.0;
            let number = rest.rsplit_once('}')?.1.split_whitespace().next()?.parse::<f64>().ok()?;
            number.is_finite().then(|| (value.to_owned(), number))
        };
        let (value, count) = read().ok_or_else(|| Error::Metric {
            name: file.to_owned(),
            number: number + 1,
            line: line.chars().take(SHOWN).collect(),
        })?;
        *samples.entry((name.to_owned(), value)).or_default() += count;
    }
    Ok(samples)
}
