//! Compares two sets of spans of the same attempts, and joins the spans of a Pod into one tree.
//!
//! # Layout
//!
//! * [`file()`]: reads OTLP from a file. Everything else is pure. [`Span`]: a span as it was read; [`Shown`]: what it shows.
//! * [`compare()`]: which spans of two sets are twins, and how they differ. [`table`], [`page`]: the [`Report`] as text and HTML.
//! * [`figures`]: spans next to the scheduler's own metrics.
//! * [`joined`]: a Pod lifecycle with the spans of API server and kubelet. [`explained`]: what its time went to, in a sentence.
//! * [`owned`]: the Pods of a workload side by side.
//!
//! # How spans are matched
//!
//! * The root identifies Pod and attempt of a trace; ids of traces and spans have no meaning across sides.
//! * Within an attempt, spans of one kind are twins in the order of their starts; where one side has fewer, those that overlap.
//! * Times are those of `CLOCK_MONOTONIC` if every span has them. Otherwise they are those of the wall clock, less the median
//!   difference between the starts of the roots, which hides a constant difference.

#![forbid(unsafe_code)]

mod collected;
pub mod explained;
mod html;
pub mod joined;
mod metrics;
pub mod owned;
mod pairs;
mod read;
mod shown;
mod span;
mod table;
#[cfg(test)]
mod tests;
pub mod whole;

use std::{collections::BTreeMap, io};

use serde::Serialize;

use self::pairs::{Side, Twins};
pub use self::{
    collected::pods,
    html::page,
    metrics::{Figures, figures},
    pairs::Clock,
    read::{file, read},
    shown::Shown,
    span::Span,
    table::{metrics as metrics_table, table},
};

/// Most pairs, and most spans without a twin, that are shown.
const EXAMPLES: usize = 10;

/// Why spans cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read `{name}`: {reason}")]
    Unreadable {
        /// Name of the file.
        name: String,
        /// Why.
        reason: io::Error,
    },
    /// A line is not a message.
    #[error("`{name}`, line {number}: {reason}; a line is to be an OTLP `TracesData` in JSON")]
    Line {
        /// Name of the file.
        name: String,
        /// Number of the line, from 1.
        number: u64,
        /// Why.
        reason: String,
    },
    /// A frame is not a message.
    #[error("`{name}`, byte {offset}: {reason}; there is to be an OTLP `TracesData` in protobuf")]
    Message {
        /// Name of the file.
        name: String,
        /// Offset of the frame, from 0.
        offset: u64,
        /// Why.
        reason: String,
    },
    /// A line is not a sample of a metric.
    #[error("`{name}`, line {number} is not a sample of a metric: `{line}`")]
    Metric {
        /// Name of the file.
        name: String,
        /// Number of the line, from 1.
        number: usize,
        /// Beginning of the line.
        line: String,
    },
    /// There are more spans than fit into memory.
    #[error("there are more than {limit} spans; compare a shorter time")]
    TooMany {
        /// Most spans that are read.
        limit: usize,
    },
}

/// The result of a comparison. `a` and `b` are the two sides; times are nanoseconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Counts of the side.
    pub a: Counts,
    /// Counts of the side.
    pub b: Counts,
    /// The clock of the times.
    pub clock: Clock,
    /// All kinds of spans that both sides have, together.
    pub all: Row,
    /// By kind of span, those that both sides have.
    pub kinds: BTreeMap<String, Row>,
    /// Kinds of spans that only one side has, and how many.
    pub only_a: BTreeMap<String, u64>,
    /// Kinds of spans that only one side has, and how many.
    pub only_b: BTreeMap<String, u64>,
    /// Attributes of twins, where they differ or only one has them.
    pub attributes: Vec<Attribute>,
    /// Some of the spans without a twin.
    pub missing: Vec<Missing>,
    /// The twins whose durations differ most.
    pub worst: Vec<Pair>,
    /// All differences by kind, for the page: starts, ends, durations.
    #[serde(skip)]
    pub differences: BTreeMap<String, [Vec<i64>; 3]>,
}

/// Counts of one side.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Spans in all.
    pub spans: u64,
    /// Attempts: traces with a root that names its Pod.
    pub attempts: u64,
    /// Spans in traces without such a root.
    pub orphans: u64,
}

/// The result for one kind of spans.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Pairs.
    pub twins: u64,
    /// Spans of B without a twin.
    pub missing_in_a: u64,
    /// Spans of A without a twin.
    pub missing_in_b: u64,
    /// Pairs whose parents are of different kinds.
    pub parents_differ: u64,
    /// Pairs of which only one is an error.
    pub status_differs: u64,
    /// Pairs with an attribute that both have with different values.
    pub attributes_differ: u64,
    /// Pairs in which B's interval is not inside of A's.
    pub outside: u64,
    /// By how much B begins later than A.
    pub start: Quantiles,
    /// By how much B ends earlier than A.
    pub end: Quantiles,
    /// By how much B is shorter than A.
    pub duration: Quantiles,
}

/// Quantiles of nanoseconds, by nearest rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Quantiles {
    pub min: i64,
    pub p50: i64,
    pub p90: i64,
    pub p99: i64,
    pub max: i64,
}

/// Differences of one attribute in one kind of spans.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attribute {
    /// Of which spans.
    pub kind: String,
    /// Name of the file.
    pub key: String,
    /// Pairs that have it with different values.
    pub differ: u64,
    /// Pairs of which only A has it.
    pub only_a: u64,
    /// Pairs of which only B has it.
    pub only_b: u64,
    /// The first two values that differ.
    pub example: Option<[String; 2]>,
}

/// A span without a twin.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// Which side lacks it.
    pub side: &'static str,
    /// Kind of the span.
    pub kind: String,
    /// UID of the Pod.
    pub pod: String,
    /// Number of the attempt.
    pub attempt: String,
}

/// Two spans of the same call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pair {
    /// Kind of the spans.
    pub kind: String,
    /// UID of the Pod.
    pub pod: String,
    /// Number of the attempt.
    pub attempt: String,
    /// Start and end of A.
    pub a: [i64; 2],
    /// Start and end of B, by the clock of A.
    pub b: [i64; 2],
}

/// Limits of a comparison. `None` is no limit.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Spans without a twin, of kinds that both sides have.
    pub missing: Option<u64>,
    /// Pairs whose parents differ.
    pub parents: Option<u64>,
    /// Pairs whose status differs.
    pub status: Option<u64>,
    /// Pairs with an attribute that differs.
    pub attributes: Option<u64>,
    /// Pairs in which B is not inside of A.
    pub outside: Option<u64>,
    /// Of all pairs, nanoseconds in either direction.
    pub start_p50: Option<u64>,
    /// Of all pairs, nanoseconds in either direction.
    pub end_p50: Option<u64>,
    /// Of all pairs, nanoseconds in either direction.
    pub duration_p50: Option<u64>,
    /// Of all pairs, nanoseconds in either direction.
    pub duration_p99: Option<u64>,
}

impl Report {
    /// The limits that are exceeded, as text. A comparison without any twins always fails.
    #[must_use]
    pub fn failures(&self, limits: &Limits) -> Vec<String> {
        let Row {
            twins,
            missing_in_a,
            missing_in_b,
            parents_differ,
            status_differs,
            attributes_differ,
            outside,
            start,
            end,
            duration,
        } = &self.all;
        let ns = |value: &i64| value.unsigned_abs();
        let checks = [
            ("spans without a twin", missing_in_a + missing_in_b, limits.missing),
            ("pairs with different parents", *parents_differ, limits.parents),
            ("pairs with a different status", *status_differs, limits.status),
            ("pairs with different attributes", *attributes_differ, limits.attributes),
            ("pairs in which B is not inside of A", *outside, limits.outside),
            ("nanoseconds between the starts (p50)", ns(&start.p50), limits.start_p50),
            ("nanoseconds between the ends (p50)", ns(&end.p50), limits.end_p50),
            ("nanoseconds between the durations (p50)", ns(&duration.p50), limits.duration_p50),
            ("nanoseconds between the durations (p99)", ns(&duration.p99), limits.duration_p99),
        ];
        let mut failures: Vec<_> = checks
            .into_iter()
            .filter_map(|(what, is, limit)| {
                let limit = limit.filter(|limit| is > *limit)?;
                Some(format!("{is} {what}, {limit} at most"))
            })
            .collect();
        if *twins == 0 {
            failures.push("no span of A has a twin in B".to_owned());
        }
        failures
    }
}

impl Quantiles {
    /// Quantiles of readings in any order; zeros without readings.
    #[must_use]
    pub fn of(readings: &mut [i64]) -> Self {
        readings.sort_unstable();
        let rank = |percent: usize| {
            let rank = (readings.len() * percent).div_ceil(100).max(1);
            readings.get(rank - 1).copied().unwrap_or_default()
        };
        Self { min: rank(0), p50: rank(50), p90: rank(90), p99: rank(99), max: rank(100) }
    }
}

/// Compares two sets of spans.
#[must_use]
pub fn compare(a: &[Span], b: &[Span]) -> Report {
    let (a, b) = (Side::of(a), Side::of(b));
    let clock = pairs::clock(&a, &b);
    let matched = pairs::matched(&a, &b, clock);
    // A kind that one side never makes is not missing.
    let (kinds_a, kinds_b) = (a.kinds(), b.kinds());
    let without = |kinds: &BTreeMap<String, u64>, others: &BTreeMap<String, u64>| {
        let only = kinds.iter().filter(|(kind, _)| !others.contains_key(*kind));
        only.map(|(kind, count)| (kind.clone(), *count)).collect::<BTreeMap<_, _>>()
    };
    let (only_a, only_b) = (without(&kinds_a, &kinds_b), without(&kinds_b, &kinds_a));

    let mut kinds = BTreeMap::<String, Row>::new();
    let mut differences = BTreeMap::<String, [Vec<i64>; 3]>::new();
    let mut attributes = BTreeMap::<(String, String), Attribute>::new();
    let mut missing = Vec::new();
    for lone in &matched.missing {
        let kind = lone.span.kind();
        if only_a.contains_key(&kind) || only_b.contains_key(&kind) {
            continue;
        }
        let row = kinds.entry(kind.clone()).or_default();
        *if lone.side == "a" { &mut row.missing_in_a } else { &mut row.missing_in_b } += 1;
        if missing.len() < EXAMPLES {
            let [pod, attempt] = lone.of.map(str::to_owned);
            missing.push(Missing { side: lone.side, kind, pod, attempt });
        }
    }
    for twins in &matched.twins {
        let [a, b] = twins.spans;
        let row = kinds.entry(a.kind()).or_default();
        row.twins += 1;
        row.parents_differ += u64::from(twins.parents[0] != twins.parents[1]);
        row.status_differs += u64::from(a.failed != b.failed);
        row.attributes_differ += u64::from(attributes_differ(a, b, &mut attributes));
        row.outside += u64::from(twins.later() < 0 || twins.earlier() < 0);
        let lists = differences.entry(a.kind()).or_default();
        for (list, value) in lists.iter_mut().zip([twins.later(), twins.earlier(), twins.shorter()]) {
            list.push(value);
        }
    }
    let mut all = Row::default();
    let mut every = [const { Vec::new() }; 3];
    for (kind, row) in &mut kinds {
        let lists = differences.entry(kind.clone()).or_default();
        every.iter_mut().zip(&*lists).for_each(|(all, list)| all.extend_from_slice(list));
        row.measure(lists);
        all.add(row);
    }
    all.measure(&mut every);
    let mut worst = matched.twins;
    worst.sort_by_key(|twins| std::cmp::Reverse(twins.shorter().unsigned_abs()));
    worst.truncate(EXAMPLES);
    Report {
        a: a.counts,
        b: b.counts,
        clock,
        all,
        kinds,
        only_a,
        only_b,
        attributes: attributes.into_values().collect(),
        missing,
        worst: worst.iter().map(Twins::pair).collect(),
        differences,
    }
}

impl Row {
    fn measure(&mut self, [start, end, duration]: &mut [Vec<i64>; 3]) {
        (self.start, self.end) = (Quantiles::of(start), Quantiles::of(end));
        self.duration = Quantiles::of(duration);
    }

    fn add(&mut self, other: &Self) {
        self.twins += other.twins;
        self.missing_in_a += other.missing_in_a;
        self.missing_in_b += other.missing_in_b;
        self.parents_differ += other.parents_differ;
        self.status_differs += other.status_differs;
        self.attributes_differ += other.attributes_differ;
        self.outside += other.outside;
    }
}

/// Adds the differences between the attributes of twins. Returns whether an attribute that both have differs.
fn attributes_differ(a: &Span, b: &Span, differences: &mut BTreeMap<(String, String), Attribute>) -> bool {
    let mut differ = false;
    for key in a.attributes.keys().chain(b.attributes.keys().filter(|key| !a.attributes.contains_key(*key))) {
        let values = [a.attributes.get(key), b.attributes.get(key)];
        if values[0] == values[1] {
            continue;
        }
        let entry = differences.entry((a.kind(), key.clone())).or_insert_with(|| Attribute {
            kind: a.kind(),
            key: key.clone(),
            differ: 0,
            only_a: 0,
            only_b: 0,
            example: None,
        });
        match values {
            [Some(a), Some(b)] => {
                differ = true;
                entry.differ += 1;
                entry.example.get_or_insert_with(|| [a.clone(), b.clone()]);
            }
            [Some(_), None] => entry.only_a += 1,
            _ => entry.only_b += 1,
        }
    }
    differ
}
