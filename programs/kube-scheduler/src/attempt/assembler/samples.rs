//! Samples of one process: which plugins a phase of an attempt spends its time in.
//!
//! Scheduling cycles are serial, so a sample between the start and the end of an attempt's phase, on any goroutine, is that
//! attempt's if its stack says that it is of the phase. Most phases are shorter than the time between two samples: their
//! shares come from the last minute.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    sync::Arc,
};

use gotrace::code::Sampled;

use super::windows::Last;
use crate::{
    attempt::{Basis, Call, Share, Shares},
    classes::WORKERS,
    table::{Function, Part},
};

/// Samples of an attempt's own phase from which on its shares are its own.
const ENOUGH: u64 = 20;
/// Samples of the last minute from which on they are a profile.
const ENOUGH_OF_MINUTE: u64 = 50;
/// Shares of a shorter phase explain nothing.
const SHORT_NS: u64 = 200_000;
/// A part with less than one of so many samples is left out.
const SMALL: u64 = 200;
/// Parts of a phase.
const MAX_SHARES: usize = 12;
/// Samples remembered for phases that have not ended: of 16 CPUs for ten seconds.
const MAX_RECENT: usize = 32_768;
const MINUTE: u64 = 60;
/// Combinations of phase and plugin in a second. A scheduler has about 60; a recording may have any.
const MAX_PAIRS: usize = 512;

type Pair = (Arc<str>, Option<Arc<str>>);

/// The samples of one process.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Samples of phases, oldest first.
    recent: VecDeque<(u64, Pair)>,
    /// Numbers of samples by second, oldest first.
    seconds: VecDeque<(u64, BTreeMap<Pair, u64>)>,
    /// The sum of these: each attempt asks for it.
    minute: BTreeMap<Pair, u64>,
    /// The last window of the process.
    pub(super) window: Last,
    /// CPU time of all samples, nanoseconds.
    pub(super) total_ns: BTreeMap<Pair, u64>,
}

impl Samples {
    pub(super) fn add(&mut self, sample: Sampled) {
        let Sampled { target: _, time_ns, period_ns, whole, part } = sample;
        let pair = (whole, part);
        bounded(&mut self.total_ns, &pair, period_ns);
        let second = second(time_ns);
        if self.seconds.back().is_none_or(|(newest, _)| *newest < second) {
            self.seconds.push_back((second, BTreeMap::new()));
            self.forget_before_minute(second);
        }
        if let Some((_, counts)) = self.seconds.back_mut()
            && bounded(counts, &pair, 1)
        {
            *self.minute.entry(pair.clone()).or_default() += 1;
        }
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((time_ns, pair));
    }

    /// The shares of a call's plugins, if the call is a phase that runs its plugins on many Nodes and there are enough
    /// samples. No earlier call will be asked for.
    pub(super) fn shares(&mut self, call: &Call) -> Option<Shares> {
        if !matches!(call.function, Function::Filter | Function::Score) {
            return None;
        }
        let Part::Phase(phase, _) = call.function.about() else { return None };
        while self.recent.front().is_some_and(|(time_ns, _)| *time_ns < call.start_ns) {
            self.recent.pop_front();
        }
        self.forget_before_minute(second(call.end_ns));
        if call.end_ns - call.start_ns < SHORT_NS {
            return None;
        }
        let within = self.recent.iter().filter(|(time_ns, _)| *time_ns <= call.end_ns);
        let mut own = BTreeMap::new();
        within.for_each(|(_, pair)| *own.entry(pair.clone()).or_default() += 1);
        let counted = |counts: &BTreeMap<Pair, u64>, basis, enough| {
            // The workers of another phase are in no call of this one.
            let workers = basis == Basis::Attempt;
            let of_phase = |whole: &str| whole == phase.name() || workers && whole == WORKERS;
            let counts = counts.iter().filter(|((whole, _), _)| of_phase(whole));
            let samples: u64 = counts.clone().map(|(_, count)| count).sum();
            if samples < enough {
                return None;
            }
            let share = |((_, part), count): (&Pair, &u64)| {
                let plugin = Arc::clone(part.as_ref()?);
                (count * SMALL >= samples).then_some(Share { plugin, amount: *count, calls: None })
            };
            let mut plugins: Vec<_> = counts.filter_map(share).collect();
            plugins.sort_by(|one, other| {
                other.amount.cmp(&one.amount).then_with(|| one.plugin.cmp(&other.plugin))
            });
            plugins.truncate(MAX_SHARES);
            let (function, start_ns) = (call.function, call.start_ns);
            Some(Shares { function, start_ns, basis, amount: samples, plugins })
        };
        counted(&own, Basis::Attempt, ENOUGH)
            .or_else(|| counted(&self.minute, Basis::LastMinute, ENOUGH_OF_MINUTE))
    }

    /// Forgets the seconds that are not of the minute that ends with this one.
    fn forget_before_minute(&mut self, last: u64) {
        while self.seconds.front().is_some_and(|(oldest, _)| oldest + MINUTE <= last) {
            for (pair, count) in self.seconds.pop_front().into_iter().flat_map(|(_, counts)| counts) {
                if let Entry::Occupied(mut sum) = self.minute.entry(pair) {
                    *sum.get_mut() -= count;
                    if *sum.get() == 0 {
                        sum.remove();
                    }
                }
            }
        }
    }
}

const fn second(time_ns: u64) -> u64 {
    time_ns / 1_000_000_000
}

/// Adds to the count of a pair, unless there are too many pairs. Returns whether it did.
pub(super) fn bounded(counts: &mut BTreeMap<Pair, u64>, pair: &Pair, more: u64) -> bool {
    if let Some(count) = counts.get_mut(pair) {
        *count = count.saturating_add(more);
        return true;
    }
    let has_room = counts.len() < MAX_PAIRS;
    if has_room {
        counts.insert(pair.clone(), more);
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::tests::call;

    const MS: u64 = 1_000_000;

    fn sampled(time_ns: u64, whole: &str, part: &str) -> Sampled {
        let part = (!part.is_empty()).then(|| part.into());
        Sampled { target: 0, time_ns, period_ns: 5 * MS, whole: whole.into(), part }
    }

    /// Basis, samples of the phase, and samples by plugin.
    type Shown = (Basis, u64, Vec<(String, u64)>);

    fn shown(shares: Option<Shares>) -> Option<Shown> {
        let Shares { basis, amount: samples, plugins, .. } = shares?;
        let plugin = |share: &Share| (share.plugin.to_string(), share.amount);
        Some((basis, samples, plugins.iter().map(plugin).collect()))
    }

    #[test]
    fn a_long_phase_has_shares_of_its_own_samples() {
        let mut samples = Samples::default();
        for n in 0..100 {
            let (whole, part) = match n % 10 {
                0..6 => ("filter", "Affinity"),
                6 => ("filter", "Fit"),
                7 => ("filter", ""),
                8 => ("workers", ""),
                _ => ("bindingCycle", "Binder"),
            };
            samples.add(sampled(n * MS, whole, part));
        }
        // The first 40 are before the phase, the last 20 after it.
        let shares = samples.shares(&call(Function::Filter, 40 * MS, 80 * MS - 1));
        let wanted = vec![("Affinity".to_owned(), 24), ("Fit".to_owned(), 4)];
        assert_eq!(shown(shares), Some((Basis::Attempt, 36, wanted)));
        assert_eq!(shown(samples.shares(&call(Function::PreFilter, 80 * MS, 90 * MS))), None);
    }

    #[test]
    fn a_short_phase_has_those_of_the_last_minute() {
        let mut samples = Samples::default();
        for n in 0..100 {
            samples.add(sampled(n * 1_000 * MS, "score", if n % 4 == 0 { "Fit" } else { "Image" }));
        }
        let shares = samples.shares(&call(Function::Score, 99_500 * MS, 99_501 * MS));
        let wanted = vec![("Image".to_owned(), 45), ("Fit".to_owned(), 15)];
        assert_eq!(shown(shares), Some((Basis::LastMinute, 60, wanted)));
        // A phase that is over at once, one without samples, and a minute that is over.
        assert_eq!(samples.shares(&call(Function::Score, 99_600 * MS, 99_600 * MS + 1)), None);
        assert_eq!(samples.shares(&call(Function::Filter, 99_600 * MS, 99_700 * MS)), None);
        assert_eq!(samples.shares(&call(Function::Score, 300_000 * MS, 300_001 * MS)), None);
    }

    #[test]
    fn the_sum_of_the_minute_is_that_of_its_seconds() {
        let mut samples = Samples::default();
        for n in 0..3_000 {
            // Most seconds have many samples, some minutes have none.
            let time_ns = (n * 40 + n / 500 * 45_000) * MS;
            samples.add(sampled(time_ns, "filter", &format!("plugin-{}", n % 7 + n / 900)));
            if n % 11 == 0 {
                samples.shares(&call(Function::Filter, time_ns, time_ns + n * MS));
            }
            let mut sum = BTreeMap::<Pair, u64>::new();
            for (pair, count) in samples.seconds.iter().flat_map(|(_, counts)| counts) {
                *sum.entry(pair.clone()).or_default() += count;
            }
            assert_eq!(samples.minute, sum);
            assert!(samples.seconds.len() <= MINUTE as usize);
        }
        assert!(samples.minute.len() < 10, "pairs that are over are gone");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut samples = Samples::default();
        for n in 0..2 * MAX_RECENT as u64 {
            samples.add(sampled(n * 1_000 * MS, "filter", &format!("plugin-{n}")));
        }
        assert_eq!((samples.recent.len(), samples.seconds.len()), (MAX_RECENT, MINUTE as usize));
        assert_eq!(samples.minute.len(), MINUTE as usize);
        assert_eq!(samples.total_ns.len(), MAX_PAIRS);
    }
}
