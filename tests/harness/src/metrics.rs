//! Metrics in Prometheus' text format.

use std::{collections::BTreeMap, str::Chars};

use anyhow::{Context as _, Result};
use ureq::Agent;

/// The samples of a metrics endpoint.
#[derive(Clone)]
pub struct Metrics {
    samples: Vec<Sample>,
}

#[derive(Clone)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Metrics {
    /// # Errors
    ///
    /// If a line is neither a comment nor a sample.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let samples =
            lines.map(|line| parse_sample(line).with_context(|| format!("not a metrics sample: {line:?}")));
        Ok(Self { samples: samples.collect::<Result<_>>()? })
    }

    /// Reads the metrics at `url`.
    ///
    /// # Errors
    ///
    /// If there is no answer, or it is not metrics.
    pub fn read(agent: &Agent, url: &str) -> Result<Self> {
        Self::parse(&Self::text(agent, url)?).with_context(|| format!("cannot understand {url}"))
    }

    /// The metrics at `url` as text.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub fn text(agent: &Agent, url: &str) -> Result<String> {
        let answer = agent.get(url).call();
        let text =
            answer.and_then(|mut answer| answer.body_mut().with_config().limit(u64::MAX).read_to_string());
        text.with_context(|| format!("cannot read {url}"))
    }

    /// The sum of all samples of this name with at least these labels; 0 if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.with(name, labels).map(|sample| sample.value).sum()
    }

    /// The sums of all samples of this name by the values of these labels. A missing label is empty.
    pub fn by<const N: usize>(&self, name: &str, labels: [&str; N]) -> BTreeMap<[String; N], f64> {
        let mut sums = BTreeMap::new();
        for sample in self.with(name, &[]) {
            let values = labels.map(|label| sample.labels.get(label).cloned().unwrap_or_default());
            *sums.entry(values).or_default() += sample.value;
        }
        sums
    }

    /// Whether there is a sample of this name, which a sum of 0 does not say.
    pub fn has(&self, name: &str) -> bool {
        self.with(name, &[]).next().is_some()
    }

    fn with(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = &Sample> {
        let has = |sample: &Sample, (label, value): &(&str, &str)| {
            sample.labels.get(*label).is_some_and(|found| found == value)
        };
        self.samples
            .iter()
            .filter(move |sample| sample.name == name && labels.iter().all(|label| has(sample, label)))
    }
}

/// `name{label="value",...} value [timestamp]`
fn parse_sample(line: &str) -> Option<Sample> {
    let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while let Some((label, value)) = rest.trim_start_matches(',').split_once("=\"") {
            if rest.starts_with('}') {
                break;
            }
            let mut chars = value.chars();
            labels.insert(label.to_owned(), unquote(&mut chars)?);
            rest = chars.as_str();
        }
        rest = rest.trim_start_matches(',').strip_prefix('}')?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Reads a label's value up to and including its closing quote.
fn unquote(chars: &mut Chars<'_>) -> Option<String> {
    let mut value = String::new();
    loop {
        value.push(match chars.next()? {
            '"' => return Some(value),
            '\\' => match chars.next()? {
                'n' => '\n',
                escaped => escaped,
            },
            char => char,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
# HELP scheduler_schedule_attempts_total [STABLE] Number of attempts
# TYPE scheduler_schedule_attempts_total counter
scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 50
scheduler_schedule_attempts_total{profile="other",result="scheduled"} 3 1700000000000
scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"} 2
process_start_time_seconds 1.7e+09
bucket{le="+Inf",} +Inf
odd{text="a \"b\" \\ {c=\"d\"},e\n"} NaN
"#;

    #[test]
    fn a_sum_includes_every_sample_with_the_labels() {
        let metrics = Metrics::parse(TEXT).unwrap();
        assert_eq!(metrics.sum("scheduler_schedule_attempts_total", &[]), 55.0);
        assert_eq!(metrics.sum("scheduler_schedule_attempts_total", &[("result", "scheduled")]), 53.0);
        let both = [("result", "scheduled"), ("profile", "other")];
        assert_eq!(metrics.sum("scheduler_schedule_attempts_total", &both), 3.0);
        assert_eq!(metrics.sum("process_start_time_seconds", &[]), 1.7e9);
        assert_eq!(metrics.sum("bucket", &[("le", "+Inf")]), f64::INFINITY);
        assert_eq!(metrics.sum("absent", &[]), 0.0);
        assert!(metrics.has("bucket") && !metrics.has("absent"));
    }

    #[test]
    fn sums_are_grouped_by_the_given_labels() {
        let metrics = Metrics::parse(TEXT).unwrap();
        let by = metrics.by("scheduler_schedule_attempts_total", ["result", "absent"]);
        let key = |result: &str| [result.to_owned(), String::new()];
        assert_eq!(by, BTreeMap::from([(key("scheduled"), 53.0), (key("unschedulable"), 2.0)]));
        assert!(metrics.by("absent", []).is_empty());
    }

    #[test]
    fn the_value_of_a_label_may_contain_quotes_braces_and_line_ends() {
        let metrics = Metrics::parse(TEXT).unwrap();
        assert!(metrics.sum("odd", &[("text", "a \"b\" \\ {c=\"d\"},e\n")]).is_nan());
    }

    #[test]
    fn a_line_that_is_not_a_sample_is_an_error() {
        assert!(Metrics::parse("<html>").is_err());
        assert!(Metrics::parse("name{label=\"open} 1").is_err());
    }
}
