//! Matches the spans of one side with those of the other.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use spans::attributes;

use super::{Counts, Pair, Shown, span::Span};

/// The clock of the compared times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Clock {
    /// `CLOCK_MONOTONIC`: every span has attributes of it.
    Monotonic,
    /// The wall clock. The offset, in nanoseconds, is subtracted from the times of B.
    Wall {
        /// The median difference between the starts of the roots.
        offset: i64,
    },
}

/// The attempts of one side.
pub(super) struct Side<'a> {
    pub(super) counts: Counts,
    /// By the Pod's UID and the number of the attempt. A Pod that is queued again has a first attempt again.
    attempts: BTreeMap<[&'a str; 2], Vec<Attempt<'a>>>,
    /// Whether all spans have times of the monotonic clock.
    monotonic: bool,
}

/// The spans of a trace.
struct Attempt<'a> {
    root: &'a Span,
    spans: Vec<&'a Span>,
    by_id: HashMap<&'a [u8], &'a Span>,
}

/// Two spans of the same call: of A, of B.
pub(super) struct Twins<'a> {
    pub(super) spans: [&'a Span; 2],
    /// The kinds of their parents.
    pub(super) parents: [String; 2],
    /// Start and end of each, by the same clock.
    times: [[i64; 2]; 2],
    /// UID of the Pod, number of the attempt.
    of: [&'a str; 2],
}

/// A span without a twin.
pub(super) struct Lone<'a> {
    pub(super) span: &'a Span,
    /// Which side lacks it.
    pub(super) side: &'static str,
    /// UID of the Pod, number of the attempt.
    pub(super) of: [&'a str; 2],
}

/// The result of matching.
#[derive(Default)]
pub(super) struct Matched<'a> {
    pub(super) twins: Vec<Twins<'a>>,
    pub(super) missing: Vec<Lone<'a>>,
}

impl<'a> Side<'a> {
    pub(super) fn of(spans: &'a [Span]) -> Self {
        let mut traces = HashMap::<&[u8], Vec<&Span>>::new();
        for span in spans {
            traces.entry(&span.trace_id).or_default().push(span);
        }
        let mut attempts = BTreeMap::<_, Vec<_>>::new();
        let mut counts = Counts { spans: spans.len() as u64, ..Counts::default() };
        for mut spans in traces.into_values() {
            spans.sort_by_key(|span| span.wall);
            let root = spans
                .iter()
                .find(|span| span.parent_id.is_empty() && span.shows() == Shown::ATTEMPT)
                .copied();
            match root.filter(|root| !root.attribute(attributes::POD_UID).is_empty()) {
                Some(root) => {
                    let of = [attributes::POD_UID, attributes::ATTEMPT].map(|key| root.attribute(key));
                    let by_id = spans.iter().map(|span| (span.span_id.as_slice(), *span)).collect();
                    attempts.entry(of).or_default().push(Attempt { root, spans, by_id });
                    counts.attempts += 1;
                }
                None => counts.orphans += spans.len() as u64,
            }
        }
        for attempts in attempts.values_mut() {
            attempts.sort_by_key(|attempt| attempt.root.wall);
        }
        Self { counts, attempts, monotonic: spans.iter().all(|span| span.monotonic.is_some()) }
    }

    /// Counts of spans by kind.
    pub(super) fn kinds(&self) -> BTreeMap<String, u64> {
        let mut kinds = BTreeMap::new();
        for span in self.attempts.values().flatten().flat_map(|attempt| &attempt.spans) {
            *kinds.entry(span.kind()).or_default() += 1;
        }
        kinds
    }
}

impl<'a> Attempt<'a> {
    /// Its spans by kind, in the order of their starts.
    fn kinds(&self) -> BTreeMap<String, Vec<&'a Span>> {
        let mut kinds = BTreeMap::<_, Vec<_>>::new();
        for span in &self.spans {
            kinds.entry(span.kind()).or_default().push(*span);
        }
        kinds
    }

    fn parent(&self, span: &Span) -> String {
        if span.parent_id.is_empty() {
            return String::new();
        }
        self.by_id.get(span.parent_id.as_slice()).map_or_else(|| "?".to_owned(), |parent| parent.kind())
    }
}

/// The clock by which both sides can be compared.
pub(super) fn clock(a: &Side<'_>, b: &Side<'_>) -> Clock {
    if a.monotonic && b.monotonic {
        return Clock::Monotonic;
    }
    let alone = |attempts: &[Attempt<'_>]| match attempts {
        [attempt] => Some(signed(attempt.root.wall[0])),
        _ => None,
    };
    let differences = a
        .attempts
        .iter()
        .filter_map(|(of, attempts)| Some(alone(b.attempts.get(of)?)?.saturating_sub(alone(attempts)?)));
    let mut differences: Vec<_> = differences.collect();
    differences.sort_unstable();
    Clock::Wall { offset: differences.get(differences.len() / 2).copied().unwrap_or_default() }
}

/// Finds twins, and spans without a twin.
pub(super) fn matched<'a>(a: &Side<'a>, b: &Side<'a>, clock: Clock) -> Matched<'a> {
    let mut matched = Matched::default();
    let none = Vec::new();
    let of_both = a.attempts.keys().chain(b.attempts.keys().filter(|of| !a.attempts.contains_key(*of)));
    for of in of_both {
        let [a, b] = [a, b].map(|side| side.attempts.get(of).unwrap_or(&none));
        let times = |attempt: &Attempt<'_>, side| clock.times(attempt.root, side);
        for pair in aligned(a, b, |a| times(a, 0), |b| times(b, 1)) {
            match pair {
                (Some(a), Some(b)) => matched.attempt(a, b, *of, clock),
                (a, b) => {
                    let side = if a.is_none() { "a" } else { "b" };
                    let spans = a.or(b).into_iter().flat_map(|attempt| &attempt.spans);
                    matched.missing.extend(spans.map(|span| Lone { span, side, of: *of }));
                }
            }
        }
    }
    matched
}

impl<'a> Matched<'a> {
    fn attempt(&mut self, a: &Attempt<'a>, b: &Attempt<'a>, of: [&'a str; 2], clock: Clock) {
        let (kinds, mut others) = (a.kinds(), b.kinds());
        let mut all: Vec<_> = kinds
            .into_iter()
            .map(|(kind, spans)| (spans, others.remove(&kind).unwrap_or_default()))
            .collect();
        all.extend(others.into_values().map(|spans| (Vec::new(), spans)));
        for (of_a, of_b) in all {
            for pair in aligned(&of_a, &of_b, |span| clock.times(span, 0), |span| clock.times(span, 1)) {
                match pair {
                    (Some(&first), Some(&second)) => self.twins.push(Twins {
                        spans: [first, second],
                        parents: [a.parent(first), b.parent(second)],
                        times: [clock.times(first, 0), clock.times(second, 1)],
                        of,
                    }),
                    (Some(&span), None) => self.missing.push(Lone { span, side: "b", of }),
                    (None, Some(&span)) => self.missing.push(Lone { span, side: "a", of }),
                    (None, None) => {}
                }
            }
        }
    }
}

/// Pairs two ordered lists: one by one if they have the same length, else those that overlap.
fn aligned<'t, T>(
    a: &'t [T],
    b: &'t [T],
    of_a: impl Fn(&T) -> [i64; 2],
    of_b: impl Fn(&T) -> [i64; 2],
) -> Vec<(Option<&'t T>, Option<&'t T>)> {
    if a.len() == b.len() {
        return a.iter().zip(b).map(|(a, b)| (Some(a), Some(b))).collect();
    }
    let (mut pairs, mut a, mut b) = (Vec::new(), a.iter().peekable(), b.iter().peekable());
    loop {
        let order = match (a.peek(), b.peek()) {
            (None, None) => return pairs,
            (Some(_), None) => (true, false),
            (None, Some(_)) => (false, true),
            (Some(first), Some(second)) => {
                let (first, second) = (of_a(first), of_b(second));
                // Which of them ends before the other starts? Both do where a span ends before it starts.
                let first_is_over = first[1] < second[0];
                let second_is_over = !first_is_over && second[1] < first[0];
                (!second_is_over, !first_is_over)
            }
        };
        pairs.push((order.0.then(|| a.next()).flatten(), order.1.then(|| b.next()).flatten()));
    }
}

impl Clock {
    /// Start and end of a span of side 0, which is A, or 1.
    fn times(self, span: &Span, side: usize) -> [i64; 2] {
        match (self, span.monotonic) {
            (Self::Monotonic, Some(times)) => times.map(signed),
            (Self::Wall { offset }, _) if side == 1 => {
                span.wall.map(|time| signed(time).saturating_sub(offset))
            }
            _ => span.wall.map(signed),
        }
    }
}

/// Larger values are damaged: they are centuries.
fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

impl Twins<'_> {
    /// By how much B begins later than A.
    pub(super) fn later(&self) -> i64 {
        let [a, b] = self.times;
        b[0].saturating_sub(a[0])
    }

    /// By how much B ends earlier than A.
    pub(super) fn earlier(&self) -> i64 {
        let [a, b] = self.times;
        a[1].saturating_sub(b[1])
    }

    /// By how much B is shorter than A.
    pub(super) fn shorter(&self) -> i64 {
        self.later().saturating_add(self.earlier())
    }

    pub(super) fn pair(&self) -> Pair {
        let ([pod, attempt], [a, b]) = (self.of.map(str::to_owned), self.times);
        Pair { kind: self.spans[0].kind(), pod, attempt, a, b }
    }
}
