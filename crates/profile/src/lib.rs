//! Shows where a traced program's CPU time goes. A profile in, text or bytes out.
//!
//! Each form has the program's own words first, such as phase and plugin, and functions below them.

#![forbid(unsafe_code)]

mod flame;
mod options;
mod pprof;
mod text;

use std::{collections::BTreeMap, time::Duration};

use gotrace::profiler::{Profile, Stack};

pub use self::{flame::flame, options::Options, pprof::pprof, text::text};

/// A profile, and how long it was taken.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The samples.
    pub profile: Profile,
    /// How long they were taken.
    pub duration: Duration,
    /// When that began, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
}

impl Taken {
    /// CPU time of so many samples, seconds.
    fn seconds(&self, samples: u64) -> f64 {
        samples as f64 * self.profile.period_ns as f64 / 1e9
    }

    /// Samples by whole and part, most first.
    fn classes(&self) -> Vec<((&str, &str), u64)> {
        let mut sums: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (Stack { whole, part, .. }, count) in &self.profile.stacks {
            *sums.entry((whole, part.as_deref().unwrap_or_default())).or_default() += count;
        }
        most_first(sums)
    }
}

fn most_first<K: Ord>(sums: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut list: Vec<_> = sums.into_iter().collect();
    // Stable: equal ones stay in the order of their names.
    list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    list
}

#[cfg(test)]
mod fixture {
    use super::*;

    /// Of 100 samples in the classes of a scheduler, 50 are of one plugin.
    pub(crate) fn taken() -> Taken {
        let stack = |whole: &str, part: &str, functions: &[&str]| Stack {
            whole: whole.into(),
            part: (!part.is_empty()).then(|| part.into()),
            functions: functions.iter().map(|name| (*name).into()).collect(),
        };
        let stacks = [
            (
                stack(
                    "filter",
                    "Fit",
                    &["noderesources.fitsRequest", "noderesources.(*Fit).Filter", "main.main"],
                ),
                30,
            ),
            (stack("filter", "Fit", &["noderesources.(*Fit).Filter", "main.main"]), 20),
            (stack("filter", "", &["runtime.mallocgc", "main.main"]), 10),
            (stack("garbageCollector", "", &["runtime.scanobject", "runtime.gcBgMarkWorker"]), 39),
            (stack("outside", "", &[]), 1),
        ];
        let profile = Profile { stacks: stacks.into_iter().collect(), period_ns: 10_000_000, pids: vec![7] };
        Taken { profile, duration: Duration::from_secs(2), start_unix_ns: 1_795_219_200_000_000_000 }
    }
}
