//! Spans next to the scheduler's own metrics.

use std::collections::BTreeMap;

use serde::Serialize;

use spans::{attributes, names::ROOT};

use super::{Error, span::Span};

/// Characters of a line that an error shows.
const SHOWN: usize = 80;

const ATTEMPTS: &str = "scheduler_schedule_attempts_total";
const POINTS: &str = "scheduler_framework_extension_point_duration_seconds";
/// A result in [`ATTEMPTS`], and in a root.
const RESULTS: [(&str, &str); 3] =
    [("scheduled", "Success"), ("unschedulable", "Unschedulable"), ("error", "Error")];

/// The extension points that spans show, as [`POINTS`] calls them; the span's name begins with a small letter.
const PHASES: [&str; 12] = [
    "PreFilter",
    "Filter",
    "PostFilter",
    "PreScore",
    "Score",
    "Reserve",
    "Unreserve",
    "Permit",
    "PreBindPreFlight",
    "PreBind",
    "Bind",
    "PostBind",
];

/// One figure that both sides have.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figure {
    /// Of which spans.
    pub name: String,
    /// Of an attempt: how it came out.
    pub result: String,
    /// How many spans there are.
    pub spans: f64,
    /// How many the scheduler has counted.
    pub metric: f64,
    /// How long the spans are together.
    pub spans_seconds: f64,
    /// How long that was as the scheduler has measured it; `None` of attempts: it measures another stretch.
    pub metric_seconds: Option<f64>,
}

/// All of them: attempts by result, then extension points.
pub type Figures = Vec<Figure>;

/// Puts spans next to what the scheduler's metrics say now, less what they said before.
///
/// # Errors
///
/// When a line of these metrics cannot be understood.
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
    let mut figures = Vec::new();
    for (label, result) in RESULTS {
        let roots =
            spans.iter().filter(|span| span.name == ROOT && span.attribute(attributes::RESULT) == result);
        figures.push(Figure {
            result: result.to_owned(),
            metric_seconds: None,
            metric: of(ATTEMPTS, label),
            ..figure(ROOT, roots)
        });
    }
    for point in PHASES {
        let name = format!("{}{}", point[..1].to_lowercase(), &point[1..]);
        let of_phase = figure(&name, spans.iter().filter(|span| span.name == name));
        let metric = of(&format!("{POINTS}_count"), point);
        let seconds = of(&format!("{POINTS}_sum"), point);
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

/// The samples that count here: by name, and by the one label that tells them apart.
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
