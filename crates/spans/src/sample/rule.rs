//! Rules and their grammar.

use std::{collections::VecDeque, str::FromStr, time::Duration};

use super::Selector;
use crate::{AttributeValue, Dropped, Relation, Span, Trace, TraceKind, attributes, figures::parse_duration};

/// Attempts that a percentile is computed from, at most and at least.
const WINDOW: usize = 1_000;
const LEAST: usize = 100;
/// Seconds that are counted at once: attempts arrive nearly in the order of their ends.
const SECONDS: usize = 64;

/// A sampler: conditions that must all hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    text: String,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Always(bool),
    /// Upper bound of a part of the trace id.
    Ratio(u64),
    /// The sampled flag of the parent; without a parent, the other condition.
    ParentBased(Box<Self>),
    LinkSampled,
    Failed,
    SlowerThan(Duration),
    SlowerThanMost(Window),
    Preempting,
    FirstAttempt,
    Namespace(String),
    /// The selector, and its bit.
    Pod(Selector, u32),
    AtMost(Rate),
}

/// The durations of the previous attempts.
#[derive(Clone, Debug, PartialEq)]
struct Window {
    percentile: f64,
    order: VecDeque<u64>,
    sorted: Vec<u64>,
}

/// How many traces were kept, by the second of their end.
#[derive(Clone, Debug, PartialEq)]
struct Rate {
    limit: u32,
    seconds: Vec<(u64, u32)>,
}

/// A form of a condition: name, whether it takes a value after `=`, and how it is read.
type Form = (&'static str, bool, fn(&str) -> Result<Condition, String>);

const FORMS: [Form; 12] = [
    ("always_on", false, |_| Ok(Condition::Always(true))),
    ("always_off", false, |_| Ok(Condition::Always(false))),
    ("traceidratio", true, |text| ratio(text).map(Condition::Ratio)),
    ("link-sampled", false, |_| Ok(Condition::LinkSampled)),
    ("failed", false, |_| Ok(Condition::Failed)),
    ("slower-than", true, slower_than),
    ("preempting", false, |_| Ok(Condition::Preempting)),
    ("first-attempt", false, |_| Ok(Condition::FirstAttempt)),
    ("namespace", true, |text| Ok(Condition::Namespace(text.to_owned()))),
    ("label", true, |text| {
        let (key, value) =
            text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value.to_owned())));
        Ok(Condition::Pod(Selector::Label(key.to_owned(), value), 0))
    }),
    ("priority-class", true, |text| Ok(Condition::Pod(Selector::PriorityClass(text.to_owned()), 0))),
    ("at-most", true, |text| {
        let limit = text.parse().ok().filter(|limit| *limit > 0);
        let limit = limit.ok_or_else(|| format!("`{text}` is not a whole number above 0"))?;
        Ok(Condition::AtMost(Rate { limit, seconds: vec![(0, 0); SECONDS] }))
    }),
];
/// Prefix of the first three forms.
const PARENT_BASED: &str = "parentbased_";

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let conditions = text.split(',').map(condition).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), conditions })
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    let (name, argument) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let (parent_based, forms) = match name.strip_prefix(PARENT_BASED) {
        Some(name) => (Some(name), &FORMS[..3]),
        None => (None, &FORMS[..]),
    };
    let name = parent_based.unwrap_or(name);
    let Some((_, with_argument, make)) = forms.iter().find(|(known, ..)| *known == name) else {
        let known: Vec<_> = forms.iter().map(|(name, ..)| *name).collect();
        return Err(format!("`{text}` is not a condition; give one of {}", known.join(", ")));
    };
    let condition = match (argument, with_argument) {
        (Some(argument), true) if !argument.is_empty() => {
            make(argument).map_err(|error| format!("`{text}`: {error}"))?
        }
        (None, false) => make("")?,
        (_, true) => return Err(format!("`{text}` lacks its value; give `{name}=VALUE`")),
        (Some(_), false) => return Err(format!("`{name}` takes no value; give it alone")),
    };
    Ok(if parent_based.is_some() { Condition::ParentBased(Box::new(condition)) } else { condition })
}

/// The bound of the Go SDK's `TraceIDRatioBased`; for a ratio of 1 the largest number.
/// <https://github.com/open-telemetry/opentelemetry-go/blob/v1.46.0/sdk/trace/sampling.go>
fn ratio(text: &str) -> Result<u64, String> {
    let fraction = text.parse().ok().filter(|fraction| (0.0..=1.0).contains(fraction));
    let fraction: f64 = fraction.ok_or_else(|| format!("`{text}` is not a number from 0 to 1"))?;
    Ok(if fraction >= 1.0 { u64::MAX } else { (fraction * (1_u64 << 63) as f64) as u64 })
}

fn slower_than(text: &str) -> Result<Condition, String> {
    let Some(percentile) = text.strip_prefix('p') else {
        return parse_duration(text).map(Condition::SlowerThan);
    };
    let percentile = percentile.parse().ok().filter(|percentile| *percentile > 0.0 && *percentile < 100.0);
    let percentile = percentile.ok_or_else(|| format!("`{text}` is not a percentile such as p99"))?;
    let (order, sorted) = (VecDeque::with_capacity(WINDOW), Vec::with_capacity(WINDOW));
    Ok(Condition::SlowerThanMost(Window { percentile, order, sorted }))
}

impl Rule {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Gives each distinct selector its bit.
    pub(super) fn number(&mut self, selectors: &mut Vec<Selector>) {
        for condition in &mut self.conditions {
            if let Condition::Pod(selector, number) = condition {
                let known = selectors.iter().position(|known| known == selector);
                *number = known.unwrap_or(selectors.len()) as u32;
                if known.is_none() {
                    selectors.push(selector.clone());
                }
            }
        }
    }

    /// Whether the rule keeps a trace, or which condition is not met.
    pub(super) fn judge(&mut self, trace: &Trace) -> Result<(), Dropped> {
        // A group is kept as a whole, with the attempt of any of its Pods.
        let of_one = |span: &Span| self.conditions.iter().all(|condition| condition.holds_of(span));
        let one = trace.roots().any(of_one);
        let mut judged = if one { Ok(()) } else { Err(Dropped::NoRule) };
        let mut rates = Vec::new();
        for condition in &mut self.conditions {
            let reason = match condition {
                // A rate counts only traces that meet all other conditions.
                Condition::AtMost(rate) => {
                    rates.push(rate);
                    continue;
                }
                // A percentile must see every attempt.
                condition => condition.judge(trace),
            };
            // The condition that is furthest from a match is the reason.
            judged = match (judged, reason) {
                (Err(one), Err(other)) => Err(one.min(other)),
                (one, other) => one.and(other),
            };
        }
        judged?;
        let second = trace.root().end_unix_ns / 1_000_000_000;
        let allowed = rates.into_iter().all(|rate| rate.allows(second));
        if allowed { Ok(()) } else { Err(Dropped::Rate) }
    }
}

impl Condition {
    /// Whether a condition about one attempt is met.
    fn holds_of(&self, root: &Span) -> bool {
        let is = |key, value: &str| matches!(root.attribute(key), Some(AttributeValue::String(text)) if text == value);
        match self {
            Self::Failed => root.did_not_succeed(),
            Self::Preempting => root.attribute(attributes::PREEMPTION_NODE).is_some(),
            Self::FirstAttempt => root.attribute(attributes::ATTEMPT) == Some(&AttributeValue::Int(1)),
            Self::Namespace(name) => is(attributes::POD_NAMESPACE, name),
            _ => true,
        }
    }

    /// Whether a condition about the trace is met.
    fn judge(&mut self, trace: &Trace) -> Result<(), Dropped> {
        let holds = |holds: bool, reason| if holds { Ok(()) } else { Err(reason) };
        let duration_ns = trace.root().duration_ns();
        match self {
            Self::Always(always) => holds(*always, Dropped::NoRule),
            Self::Ratio(bound) => {
                let [_, _, _, _, _, _, _, _, low @ ..] = trace.trace_id;
                holds(u64::from_be_bytes(low) >> 1 < *bound, Dropped::Ratio)
            }
            Self::ParentBased(other) => match &trace.parent {
                Some(parent) => holds(parent.flags & 1 == 1, Dropped::Parent),
                None => other.judge(trace),
            },
            Self::LinkSampled => {
                let mut links = trace.spans.iter().flat_map(|span| &span.links);
                let sampled = links.any(|link| {
                    matches!(link.relation, Relation::Cause { .. }) && link.context.flags & 1 == 1
                });
                let parent = trace.parent.as_ref().is_some_and(|parent| parent.flags & 1 == 1);
                holds(sampled || parent, Dropped::NoRule)
            }
            Self::SlowerThan(limit) => holds(Duration::from_nanos(duration_ns) > *limit, Dropped::NoRule),
            Self::SlowerThanMost(window) => match trace.kind {
                TraceKind::Attempt | TraceKind::GroupAttempt => {
                    holds(window.is_exceeded(duration_ns), Dropped::NoRule)
                }
                TraceKind::Lifecycle
                | TraceKind::Configuration
                | TraceKind::Reconcile
                | TraceKind::PodStart
                | TraceKind::PodStorage
                | TraceKind::PodCreation
                | TraceKind::PodDeletion
                | TraceKind::PodEviction
                | TraceKind::Command => Err(Dropped::NoRule),
            },
            Self::Pod(_, number) => match trace.selected {
                Some(selected) => holds(selected >> *number & 1 == 1, Dropped::NoRule),
                None => Err(Dropped::UnknownPod),
            },
            Self::Failed | Self::Preempting | Self::FirstAttempt | Self::Namespace(_) | Self::AtMost(_) => {
                Ok(())
            }
        }
    }
}

impl Window {
    /// Whether this duration exceeds the percentile, by nearest rank, of the previous ones. Adds it to them.
    fn is_exceeded(&mut self, duration_ns: u64) -> bool {
        let Self { percentile, order, sorted } = self;
        let rank = (*percentile / 100.0 * sorted.len() as f64).ceil() as usize;
        let limit = sorted.get(rank.saturating_sub(1)).filter(|_| sorted.len() >= LEAST).copied();
        if order.len() == WINDOW
            && let Some(oldest) = order.pop_front()
            && let Ok(index) = sorted.binary_search(&oldest)
        {
            sorted.remove(index);
        }
        order.push_back(duration_ns);
        let index = sorted.partition_point(|other| *other < duration_ns);
        sorted.insert(index, duration_ns);
        limit.is_some_and(|limit| duration_ns > limit)
    }
}

impl Rate {
    fn allows(&mut self, second: u64) -> bool {
        let (of, count) = &mut self.seconds[(second % SECONDS as u64) as usize];
        if *of < second {
            (*of, *count) = (second, 0);
        }
        // A second that left the window allows no more traces.
        let allowed = *of == second && *count < self.limit;
        *count += u32::from(allowed);
        allowed
    }
}
