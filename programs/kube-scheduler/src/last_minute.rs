//! Statistics of the last minute, for `schedspan top`: counts and durations by phase and plugin, in slots of
//! a second. The minutes before it are kept in a slot each, to be compared with it.
//!
//! Slots, names and duration buckets are all bounded.

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
};

use serde::{Deserialize, Serialize};
use spans::{AttributeValue, SpanKind, Trace, attributes, text::cut};

use crate::{
    keys::{Key, Keys, MAX_TEXT, names},
    terms::{Sums, TermCost},
    waits::{Wait, Waits},
};

/// Length of the window, in seconds.
pub const WINDOW: u64 = 60;
/// Minutes before the last one that it can be compared with.
pub const MINUTES: u64 = 10;
/// Phases, and plugins by extension point; a scheduler has some hundred.
const MAX_NAMES: usize = 512;
/// Slowest attempts listed.
const SLOWEST: usize = 20;
/// Buckets per power of two; a bucket is less than a fifth wide.
const BUCKETS_PER_OCTAVE: u32 = 4;
/// 2^(1/4), 2^(1/2) and 2^(3/4), times 2^63: a logarithm would take most of the time that is spent on a duration.
const BORDERS: [u64; 3] =
    [10_968_499_650_544_839_024, 13_043_817_825_332_782_213, 15_511_800_964_685_064_949];

/// Statistics of the last minute. The caller supplies the current second.
#[derive(Debug, Default)]
pub struct Window {
    /// Oldest first.
    slots: VecDeque<Slot>,
    /// Minutes that are over, by their number since the first second, oldest first. Only durations, terms and counts of attempts.
    minutes: VecDeque<(u64, Slot)>,
    /// Phases and plugins with durations.
    keys: Keys,
}

/// Statistics of one second.
#[derive(Debug, Default)]
struct Slot {
    second: u64,
    attempts: BTreeMap<&'static str, u64>,
    moves: BTreeMap<(String, String), u64>,
    /// Durations in the order of `keys`; may be shorter.
    series: Vec<Durations>,
    slowest: Vec<Slow>,
    terms: Sums,
    waits: Waits,
}

/// Durations: number, sum, and a histogram.
#[derive(Clone, Debug, Default)]
struct Durations {
    count: u64,
    total_ns: u64,
    max_ns: u64,
    /// In order. In a second there are a few.
    buckets: Vec<Bucket>,
}

/// A bucket of a histogram as one word, because there are some ten thousand: its number in the highest 8 bits, its count in the others.
#[derive(Clone, Copy, Debug)]
struct Bucket(u32);

/// Statistics of the last minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastMinute {
    /// Version of the daemon.
    pub version: String,
    /// Seconds covered: [`WINDOW`], or fewer after the daemon's start.
    pub seconds: u64,
    /// Number of traced schedulers.
    pub schedulers: u64,
    /// Schedulers that stand still, a sentence each.
    #[serde(default)]
    pub stalls: Vec<String>,
    /// Pods that wait now, by reason.
    #[serde(default)]
    pub waiting: Vec<Count>,
    /// What tracing costs the scheduler, if it has a budget.
    #[serde(default)]
    pub overhead: Option<Overhead>,
    /// Attempts by result.
    pub attempts: Vec<Count>,
    /// Pods that entered a queue.
    pub moves: Vec<Moves>,
    /// Phases, cycles, and whole attempts.
    pub phases: Vec<Timing>,
    /// Plugins, by extension point.
    pub plugins: Vec<Timing>,
    /// Terms of Pods, the dearest first.
    #[serde(default)]
    pub terms: Vec<TermCost>,
    /// Waits outside of schedulers, with programs that see them: the longest first.
    #[serde(default)]
    pub waits: Vec<Wait>,
    /// The slowest attempts, slowest first.
    pub slowest: Vec<Slow>,
    /// Losses since the daemon's start, by cause, zeros included.
    pub losses: Vec<Count>,
}

/// The last minute beside the minutes before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// Minutes before the last one, [`MINUTES`] at most.
    pub minutes: u64,
    /// The last minute.
    pub last: Figures,
    /// The minutes before, whose borders are those of whole minutes since the daemon's start.
    pub before: Figures,
}

/// Durations of a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Seconds covered.
    pub seconds: u64,
    /// Number of attempts.
    pub attempts: u64,
    /// Phases, cycles, and whole attempts.
    pub phases: Vec<Timing>,
    /// Plugins, by extension point.
    pub plugins: Vec<Timing>,
    /// Terms of Pods, the dearest first.
    pub terms: Vec<TermCost>,
}

/// What tracing costs a traced program, and what is cut so that it stays within its budget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overhead {
    /// Its part of the program's CPU time in the last half second; of several programs, the highest.
    pub ratio: f64,
    /// What it may be.
    pub budget: f64,
    /// The last part that is cut, in the order of the documentation; `nothing` if none is.
    pub cut: String,
}

/// A count with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The name of what is counted.
    pub name: String,
    /// The number.
    pub count: u64,
}

/// Pods that entered a queue because of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// Name of the queue.
    pub queue: String,
    /// The event.
    pub event: String,
    /// Number of Pods.
    pub count: u64,
}

/// Durations of a phase or a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Timing {
    /// Name of the phase or the plugin.
    pub name: String,
    /// The plugin's extension point; empty for a phase.
    pub extension_point: String,
    /// Number of calls.
    pub count: u64,
    /// Sum of the durations, nanoseconds.
    pub total_ns: u64,
    /// Median, nanoseconds, to about a tenth.
    pub p50_ns: u64,
    /// 99th percentile, nanoseconds, to about a tenth.
    pub p99_ns: u64,
    /// Maximum, nanoseconds.
    pub max_ns: u64,
}

/// A slow attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slow {
    /// Duration of the attempt, nanoseconds.
    pub duration_ns: u64,
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub pod: String,
    /// Result of the attempt.
    pub result: String,
    /// Node that the Pod was bound to.
    pub node: String,
    /// Slowest phase.
    pub phase: String,
}

impl LastMinute {
    /// One table of what several daemons know, or `None` without any. A percentile is that of the daemon with the most calls, and a
    /// term is compared with the attempts of the daemons that have seen it.
    #[must_use]
    pub fn merged(tables: Vec<Self>) -> Option<Self> {
        let mut tables = tables.into_iter();
        let mut all = tables.next()?;
        for table in tables {
            let Self {
                version: _,
                seconds,
                schedulers,
                stalls,
                // Each daemon knows the same Pods by their objects.
                waiting: _,
                overhead,
                attempts,
                moves,
                phases,
                plugins,
                terms,
                waits,
                slowest,
                losses,
            } = table;
            all.stalls.extend(stalls);
            if overhead.as_ref().map(|of| of.ratio) > all.overhead.as_ref().map(|of| of.ratio) {
                all.overhead = overhead;
            }
            all.seconds = all.seconds.max(seconds);
            all.schedulers = all.schedulers.saturating_add(schedulers);
            for (list, more) in [(&mut all.attempts, attempts), (&mut all.losses, losses)] {
                merge(
                    list,
                    more,
                    |one, other| one.name == other.name,
                    |one, other| {
                        one.count = one.count.saturating_add(other.count);
                    },
                );
            }
            let same = |one: &Moves, other: &Moves| (&one.queue, &one.event) == (&other.queue, &other.event);
            merge(&mut all.moves, moves, same, |one, other| {
                one.count = one.count.saturating_add(other.count);
            });
            for (list, more) in [(&mut all.phases, phases), (&mut all.plugins, plugins)] {
                let same = |one: &Timing, other: &Timing| {
                    (&one.name, &one.extension_point) == (&other.name, &other.extension_point)
                };
                merge(list, more, same, Timing::merge);
            }
            merge(&mut all.terms, terms, |one, other| one.term == other.term, TermCost::merge);
            let same = |one: &Wait, other: &Wait| (&one.what, &one.name) == (&other.what, &other.name);
            merge(&mut all.waits, waits, same, Wait::merge);
            slowest.into_iter().for_each(|slow| push_slow(&mut all.slowest, slow));
        }
        TermCost::sort(&mut all.terms);
        Wait::sort(&mut all.waits);
        Some(all)
    }
}

/// Adds what is the same to what is there, and appends the rest.
fn merge<T>(list: &mut Vec<T>, more: Vec<T>, same: impl Fn(&T, &T) -> bool, add: impl Fn(&mut T, &T)) {
    for other in more {
        match list.iter().position(|one| same(one, &other)) {
            Some(at) => add(&mut list[at], &other),
            None => list.push(other),
        }
    }
}

impl Timing {
    fn merge(&mut self, other: &Self) {
        let Self { name: _, extension_point: _, count, total_ns, p50_ns, p99_ns, max_ns } = *other;
        if count > self.count {
            (self.p50_ns, self.p99_ns) = (p50_ns, p99_ns);
        }
        self.count = self.count.saturating_add(count);
        self.total_ns = self.total_ns.saturating_add(total_ns);
        self.max_ns = self.max_ns.max(max_ns);
    }
}

impl Window {
    /// Adds an attempt that was seen at the given second.
    pub fn trace(&mut self, second: u64, result: &'static str, trace: &Trace) {
        let number = |(name, point): (Cow<'_, str>, &str)| self.keys.number(&name, point, MAX_NAMES);
        let numbers: Vec<_> = trace.spans.iter().map(names).map(number).collect();
        let slot = self.slot(second);
        *slot.attempts.entry(result).or_default() += 1;
        slot.terms.add(trace, &numbers);
        for (number, span) in numbers.into_iter().zip(&trace.spans) {
            slot.add(number, |durations| durations.add(span.duration_ns()));
        }
        let duration_ns = trace.root().duration_ns();
        if slot.slowest.len() < SLOWEST || slot.slowest.iter().any(|slow| slow.duration_ns < duration_ns) {
            push_slow(&mut slot.slowest, Slow::of(result, trace));
        }
    }

    /// Adds what a trace of another program waited for, that was seen at the given second.
    pub fn elsewhere(&mut self, second: u64, trace: &Trace) {
        self.slot(second).waits.trace(trace);
    }

    /// Adds queue moves. The caller bounds the numbers of queues and events.
    pub fn queue_moves(&mut self, second: u64, queue: &str, event: &str, count: u64) {
        *self.slot(second).moves.entry((queue.to_owned(), event.to_owned())).or_default() += count;
    }

    /// Computes the statistics of the last minute, at the given second.
    #[must_use]
    pub fn figures(&self, second: u64) -> LastMinute {
        let mut sum = Slot::default();
        for slot in self.slots.iter().filter(|slot| slot.second + WINDOW > second) {
            for (entry, count) in &slot.moves {
                *sum.moves.entry(entry.clone()).or_default() += count;
            }
            slot.slowest.iter().for_each(|slow| push_slow(&mut sum.slowest, slow.clone()));
            sum.waits.merge(&slot.waits);
            sum.merge(slot);
        }
        let (phases, plugins) = self.timings(&sum);
        LastMinute {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seconds: (second + 1).min(WINDOW),
            attempts: sum
                .attempts
                .into_iter()
                .map(|(name, count)| Count { name: name.to_owned(), count })
                .collect(),
            moves: sum
                .moves
                .into_iter()
                .map(|((queue, event), count)| Moves { queue, event, count })
                .collect(),
            phases,
            plugins,
            terms: sum.terms.costs(&self.keys),
            waits: sum.waits.list(),
            slowest: sum.slowest,
            ..LastMinute::default()
        }
    }

    /// Compares the last minute, at the given second, with so many minutes before it.
    #[must_use]
    pub fn comparison(&self, second: u64, minutes: u64) -> Comparison {
        let minutes = minutes.clamp(1, MINUTES);
        let begin = (second + 1).saturating_sub(WINDOW * (minutes + 1));
        let is_last = |slot: &&Slot| slot.second + WINDOW > second;
        let (mut last, mut before) = (Slot::default(), Slot::default());
        self.slots.iter().filter(is_last).for_each(|slot| last.merge(slot));
        // A second that is over stays until the next attempt.
        let over = self.slots.iter().filter(|slot| !is_last(slot) && slot.second >= begin);
        let whole =
            self.minutes.iter().filter(|(minute, _)| (minute + 1) * WINDOW > begin).map(|(_, slot)| slot);
        over.chain(whole).for_each(|slot| before.merge(slot));
        let figures = |slot: &Slot, seconds| {
            let (phases, plugins) = self.timings(slot);
            let terms = slot.terms.costs(&self.keys);
            Figures { seconds, attempts: slot.attempts.values().sum(), phases, plugins, terms }
        };
        Comparison {
            minutes,
            last: figures(&last, (second + 1).min(WINDOW)),
            before: figures(&before, (second + 1).saturating_sub(WINDOW).min(WINDOW * minutes)),
        }
    }

    /// Phases and plugins of a slot, by name.
    fn timings(&self, slot: &Slot) -> (Vec<Timing>, Vec<Timing>) {
        let mut series: Vec<_> =
            self.keys.iter().zip(&slot.series).filter(|(_, sum)| sum.count > 0).collect();
        series.sort_by_key(|(key, _)| *key);
        let (plugins, phases) = series.into_iter().partition::<Vec<_>, _>(|(key, _)| !key.point.is_empty());
        let timings = |list: Vec<(&Key, &Durations)>| {
            list.into_iter().map(|(key, durations)| durations.timing(&key.name, &key.point)).collect()
        };
        (timings(phases), timings(plugins))
    }

    fn slot(&mut self, second: u64) -> &mut Slot {
        if self.slots.back().is_none_or(|slot| slot.second < second) {
            self.shrink();
            self.slots.push_back(Slot { second, ..Slot::default() });
            while self.slots.front().is_some_and(|slot| slot.second + WINDOW <= second) {
                if let Some(over) = self.slots.pop_front() {
                    self.keep(&over);
                }
            }
        }
        // If the clock goes back a little, the newest slot is used.
        let last = self.slots.len() - 1;
        &mut self.slots[last]
    }

    /// Frees the spare room of the newest slot, which is complete, and attempts that cannot be listed any more, because [`SLOWEST`] later ones
    /// were slower.
    fn shrink(&mut self) {
        if let Some(Slot { series, .. }) = self.slots.back_mut() {
            series.iter_mut().for_each(|durations| durations.buckets.shrink_to_fit());
        }
        let mut slower: Vec<u64> = Vec::with_capacity(SLOWEST + 1);
        for Slot { slowest, .. } in self.slots.iter_mut().rev() {
            slowest.retain(|slow| {
                let at = slower.partition_point(|other| *other > slow.duration_ns);
                slower.insert(at, slow.duration_ns);
                slower.truncate(SLOWEST);
                at < SLOWEST
            });
            slowest.shrink_to_fit();
        }
    }

    /// Keeps what is over in the slot of its minute.
    fn keep(&mut self, over: &Slot) {
        let minute = over.second / WINDOW;
        if self.minutes.back().is_none_or(|(newest, _)| *newest < minute) {
            self.minutes.push_back((minute, Slot::default()));
            // One more, because the last minute is no whole one.
            while self.minutes.len() as u64 > MINUTES + 1 {
                self.minutes.pop_front();
            }
        }
        if let Some((_, slot)) = self.minutes.back_mut() {
            slot.merge(over);
        }
    }
}

impl Slot {
    fn add(&mut self, number: usize, add: impl FnOnce(&mut Durations)) {
        if self.series.len() <= number {
            self.series.resize_with(number + 1, Durations::default);
        }
        add(&mut self.series[number]);
    }

    /// Adds the attempts, durations and terms of another slot.
    fn merge(&mut self, other: &Self) {
        for (result, count) in &other.attempts {
            *self.attempts.entry(result).or_default() += count;
        }
        for (number, durations) in other.series.iter().enumerate() {
            self.add(number, |sum| sum.merge(durations));
        }
        self.terms.merge(&other.terms);
    }
}

impl Slow {
    fn of(result: &str, trace: &Trace) -> Self {
        let root = trace.root();
        let text = |key| match root.attribute(key) {
            Some(AttributeValue::String(text)) => cut(text, MAX_TEXT).to_owned(),
            Some(_) | None => String::new(),
        };
        // Steps that outlast the attempt did not make it slow.
        let phases = trace.spans.iter().filter(|span| is_step(span.kind) && span.parent_id.is_some());
        Self {
            duration_ns: root.duration_ns(),
            namespace: text(attributes::POD_NAMESPACE),
            pod: text(attributes::POD_NAME),
            result: result.to_owned(),
            node: text(attributes::SELECTED_NODE),
            phase: phases
                .max_by_key(|span| span.duration_ns())
                .map(|span| span.name.to_string())
                .unwrap_or_default(),
        }
    }
}

/// Whether a span shows a step of the attempt: not the attempt, a cycle, or a plugin.
fn is_step(kind: SpanKind) -> bool {
    match kind {
        SpanKind::Phase(_)
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
        | SpanKind::Other => true,
        SpanKind::Root(_) | SpanKind::Cycle(_) | SpanKind::Plugin | SpanKind::Share => false,
    }
}

/// Inserts an attempt into the list of the slowest, which stays sorted.
fn push_slow(slowest: &mut Vec<Slow>, slow: Slow) {
    let at = slowest.partition_point(|other| other.duration_ns >= slow.duration_ns);
    if at < SLOWEST {
        slowest.insert(at, slow);
        slowest.truncate(SLOWEST);
    }
}

impl Durations {
    fn add(&mut self, duration_ns: u64) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(duration_ns);
        self.max_ns = self.max_ns.max(duration_ns);
        self.count_in(bucket(duration_ns), 1);
    }

    fn count_in(&mut self, bucket: u8, more: u32) {
        let place = self.buckets.partition_point(|known| known.number() < bucket);
        match self.buckets.get_mut(place) {
            Some(known) if known.number() == bucket => known.add(more),
            Some(_) | None => self.buckets.insert(place, Bucket::new(bucket, more)),
        }
    }

    fn merge(&mut self, other: &Self) {
        let Self { count, total_ns, max_ns, buckets } = other;
        self.count = self.count.saturating_add(*count);
        self.total_ns = self.total_ns.saturating_add(*total_ns);
        self.max_ns = self.max_ns.max(*max_ns);
        for bucket in buckets {
            self.count_in(bucket.number(), bucket.count());
        }
    }

    /// Duration that `percent` percent of the calls do not exceed.
    fn percentile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for bucket in &self.buckets {
            seen += u64::from(bucket.count());
            if seen >= rank {
                return middle(bucket.number()).min(self.max_ns);
            }
        }
        self.max_ns
    }

    fn timing(&self, name: &str, point: &str) -> Timing {
        Timing {
            name: name.to_owned(),
            extension_point: point.to_owned(),
            count: self.count,
            total_ns: self.total_ns,
            p50_ns: self.percentile(50),
            p99_ns: self.percentile(99),
            max_ns: self.max_ns,
        }
    }
}

impl Bucket {
    /// Bits of the count.
    const COUNT: u32 = 24;
    const MAX: u32 = (1 << Self::COUNT) - 1;

    fn new(number: u8, count: u32) -> Self {
        Self(u32::from(number) << Self::COUNT | count.min(Self::MAX))
    }

    fn number(self) -> u8 {
        (self.0 >> Self::COUNT) as u8
    }

    fn count(self) -> u32 {
        self.0 & Self::MAX
    }

    fn add(&mut self, more: u32) {
        *self = Self::new(self.number(), self.count().saturating_add(more));
    }
}

/// Logarithmic bucket of a duration; the whole range of `u64` fits into 256.
fn bucket(ns: u64) -> u8 {
    let ns = ns.max(1);
    let octave = ns.ilog2();
    // From one power of two to the next, times 2^63.
    let fraction = ns << ns.leading_zeros();
    (octave * BUCKETS_PER_OCTAVE) as u8 + BORDERS.iter().filter(|border| fraction >= **border).count() as u8
}

fn middle(bucket: u8) -> u64 {
    ((f64::from(bucket) + 0.5) / f64::from(BUCKETS_PER_OCTAVE)).exp2() as u64
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use spans::{
        fixtures::{scheduled, unschedulable},
        names::PLUGIN,
    };

    use super::*;
    use crate::keys::OTHER;

    fn find<'a>(timings: &'a [Timing], name: &str) -> &'a Timing {
        timings.iter().find(|timing| timing.name == name).expect("it is there")
    }

    #[test]
    fn percentiles_are_accurate_to_a_tenth() {
        let mut durations = Durations::default();
        for us in 1..=1000 {
            durations.add(us * 1000);
        }
        let timing = durations.timing("filter", "");
        for (got, exact) in [(timing.p50_ns, 500_000.0), (timing.p99_ns, 990_000.0)] {
            let error = (got as f64 / exact - 1.0).abs();
            assert!(error < 0.1, "{got} instead of {exact}");
        }
        assert_eq!((timing.count, timing.max_ns, timing.total_ns), (1000, 1_000_000, 500_500_000));
        for ns in [0, 1, u64::MAX] {
            let mut one = Durations::default();
            one.add(ns);
            assert!(one.percentile(50) <= ns.max(1));
        }
    }

    #[test]
    fn buckets_are_those_of_the_logarithm() {
        let spread = (0..200_000_u64).map(|n| n * n * n);
        for ns in (1..100_000).chain(spread).chain((0..64).map(|power| 1 << power)).chain([u64::MAX / 3]) {
            let exact = ((ns.max(1) as f64).log2() * f64::from(BUCKETS_PER_OCTAVE)) as u8;
            assert_eq!(bucket(ns), exact, "{ns}");
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, u8::MAX));
    }

    #[test]
    fn a_bucket_that_is_full_stays_full() {
        let mut bucket = Bucket::new(u8::MAX, 7);
        bucket.add(1);
        assert_eq!((bucket.number(), bucket.count()), (u8::MAX, 8));
        for more in [Bucket::MAX, 1, u32::MAX] {
            bucket.add(more);
            assert_eq!((bucket.number(), bucket.count()), (u8::MAX, Bucket::MAX));
        }
    }

    #[test]
    fn tables_of_several_daemons_are_one() {
        let (mut one, mut other) = (Window::default(), Window::default());
        one.trace(1, "Success", &scheduled());
        other.trace(1, "Success", &scheduled());
        other.trace(1, "Unschedulable", &unschedulable());
        other.queue_moves(1, "active", "PodAdd", 2);
        let tables = vec![one.figures(1), other.figures(1), LastMinute::default()];
        let all = LastMinute::merged(tables).unwrap();
        let counts: Vec<_> = all.attempts.iter().map(|count| (&*count.name, count.count)).collect();
        assert_eq!(counts, [("Success", 2), ("Unschedulable", 1)]);
        assert_eq!((all.moves[0].count, find(&all.phases, "filter").count), (2, 3));
        assert!(all.slowest.is_sorted_by(|one, other| one.duration_ns >= other.duration_ns));
        assert_eq!((all.slowest.len(), LastMinute::merged(Vec::new())), (3, None));
    }

    #[test]
    fn forgets_after_a_minute() {
        let mut window = Window::default();
        window.trace(10, "Success", &scheduled());
        window.trace(40, "Unschedulable", &unschedulable());
        window.queue_moves(40, "active", "PodAdd", 1);
        window.queue_moves(41, "active", "PodAdd", 1);
        let recent = window.figures(41);
        assert_eq!(recent.seconds, 42);
        let count = |name: &str, count| Count { name: name.to_owned(), count };
        assert_eq!(recent.attempts, [count("Success", 1), count("Unschedulable", 1)]);
        assert_eq!((recent.moves.len(), recent.moves[0].count), (1, 2));
        assert_eq!(find(&recent.phases, "filter").count, 2);
        let slowest: Vec<_> = recent.slowest.iter().map(|slow| (&*slow.pod, &*slow.phase)).collect();
        assert_eq!(slowest, [("web-0", "bind"), ("big", "filter")]);
        let recent = window.figures(70);
        assert_eq!((recent.seconds, recent.attempts), (60, vec![count("Unschedulable", 1)]));
        window.queue_moves(200, "active", "PodAdd", 1);
        assert_eq!(window.slots.len(), 1);
    }

    #[test]
    fn the_last_minute_is_compared_with_the_minutes_before() {
        let mut window = Window::default();
        for second in 0..240 {
            window.trace(second, "Success", &scheduled());
            if second < 120 {
                window.trace(second, "Unschedulable", &unschedulable());
            }
        }
        let counts = |window: &Window, second, minutes| {
            let Comparison { last, before, .. } = window.comparison(second, minutes);
            (last.attempts, last.seconds, before.attempts, before.seconds)
        };
        assert_eq!(counts(&window, 239, 1), (60, 60, 60, 60));
        assert_eq!(counts(&window, 239, 2), (60, 60, 60 + 120, 120));
        assert_eq!(counts(&window, 239, 99), (60, 60, 60 + 240, 180));
        let Comparison { minutes, last, before } = window.comparison(239, 99);
        assert_eq!(minutes, MINUTES);
        assert_eq!((find(&last.phases, "filter").count, find(&before.phases, "filter").count), (60, 300));
        // Without attempts, time passes all the same.
        assert_eq!(counts(&window, 299, 1), (0, 60, 60, 60));
        assert_eq!(counts(&Window::default(), 10, 5), (0, 11, 0, 0));
        for second in 0..100 * WINDOW {
            window.trace(240 + second, "Success", &scheduled());
        }
        assert_eq!(window.minutes.len() as u64, MINUTES + 1);
    }

    #[test]
    fn plugins_are_separated_by_extension_point() {
        let mut trace = scheduled();
        for (span, point) in [(3, "preFilter"), (4, "score")] {
            trace.spans[span].kind = SpanKind::Plugin;
            trace.spans[span].name = "plugin: Fit".into();
            trace.spans[span].attributes =
                vec![(attributes::EXTENSION_POINT, AttributeValue::String(point.into()))].into();
        }
        let mut window = Window::default();
        window.trace(0, "Success", &trace);
        let points: Vec<_> =
            window.figures(0).plugins.into_iter().map(|plugin| plugin.extension_point).collect();
        assert_eq!(points, ["preFilter", "score"]);
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let mut window = Window::default();
        let mut trace = scheduled();
        for number in 0..2 * MAX_NAMES {
            trace.spans[3].kind = SpanKind::Plugin;
            trace.spans[3].name = format!("{PLUGIN}{number}").into();
            window.trace(0, "Success", &trace);
        }
        let recent = window.figures(0);
        assert!(recent.plugins.len() + recent.phases.len() <= MAX_NAMES + 1);
        assert!(find(&recent.plugins, OTHER).count > MAX_NAMES as u64 / 2);
    }

    #[test]
    fn a_name_that_is_too_long_is_one_of_the_others() {
        let mut window = Window::default();
        let mut trace = scheduled();
        trace.spans[3].kind = SpanKind::Plugin;
        let names = [MAX_TEXT, MAX_TEXT + 1].map(|length| "n".repeat(length));
        for name in &names {
            trace.spans[3].name = format!("{PLUGIN}{name}").into();
            window.trace(0, "Success", &trace);
        }
        let recent = window.figures(0);
        let plugins: Vec<_> =
            recent.plugins.iter().map(|plugin| (plugin.name.as_str(), plugin.count)).collect();
        assert!(plugins.contains(&(&names[0], 1)) && plugins.contains(&(OTHER, 1)), "{plugins:?}");
        assert_eq!(plugins.len(), 2);
    }

    proptest! {
        #[test]
        fn those_that_are_forgotten_are_none_of_the_slowest(
            attempts in vec((0..3_u64, 0..200_u64), 0..400),
        ) {
            let mut window = Window::default();
            let (mut second, mut all) = (0, Vec::new());
            for (later, duration_ns) in attempts {
                second += later;
                let slow = Slow { duration_ns, ..Slow::default() };
                push_slow(&mut window.slot(second).slowest, slow);
                all.push((second, duration_ns));
                all.retain(|(then, _)| then + WINDOW > second);
                let mut slowest: Vec<u64> = all.iter().map(|(_, duration_ns)| *duration_ns).collect();
                slowest.sort_by(|one, other| other.cmp(one));
                slowest.truncate(SLOWEST);
                let listed = window.figures(second).slowest;
                let listed: Vec<u64> = listed.iter().map(|slow| slow.duration_ns).collect();
                prop_assert_eq!(listed, slowest);
            }
        }
    }

    #[test]
    fn of_the_seconds_before_those_are_kept_that_can_still_be_listed() {
        let mut window = Window::default();
        for number in 0..WINDOW * 80 {
            let slow = Slow { duration_ns: number * 7_919 % 4_801, ..Slow::default() };
            push_slow(&mut window.slot(number / 80).slowest, slow);
        }
        let kept: usize = window.slots.iter().map(|slot| slot.slowest.len()).sum();
        assert!((SLOWEST..8 * SLOWEST).contains(&kept), "{kept}");
    }

    #[test]
    fn keeps_only_the_slowest() {
        let mut slowest = Vec::new();
        for duration_ns in 0..100 {
            push_slow(&mut slowest, Slow { duration_ns: duration_ns * 7 % 100, ..Slow::default() });
        }
        let durations: Vec<_> = slowest.iter().map(|slow| slow.duration_ns).collect();
        assert_eq!(durations, (80..100).rev().collect::<Vec<_>>());
    }
}
