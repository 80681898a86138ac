//! Shows where a traced program's CPU time goes. A profile in, text or bytes out.
//!
//! Each form has the program's own words first, such as phase and plugin, and functions below them.

#![forbid(unsafe_code)]

mod by;
mod difference;
mod flame;
mod options;
mod pprof;
mod text;

use std::{collections::BTreeMap, time::Duration};

use gotrace::profiler::{Profile, Stack};

pub use self::{
    by::{By, Cycles, Groups},
    difference::difference,
    flame::flame,
    options::{Earlier, Options},
    pprof::{Error, pprof, read},
    text::text,
};

/// Functions that are listed.
const FUNCTIONS: usize = 25;

/// A profile, and how long it was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The samples.
    pub profile: Profile,
    /// How long they were taken.
    pub duration: Duration,
    /// When that began, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// What the samples are divided into, if they are.
    pub groups: Option<Groups>,
}

impl Taken {
    /// CPU time of so many samples, seconds.
    fn seconds(&self, samples: u64) -> f64 {
        samples as f64 * self.profile.period_ns as f64 / 1e9
    }

    /// Samples by group.
    fn by_group(&self) -> BTreeMap<Option<&str>, u64> {
        self.sums(|stack| Some(stack.group.as_deref()))
    }

    /// Samples of stacks for which there is a key, by this key.
    fn sums<'a, K: Ord>(&'a self, key: impl Fn(&'a Stack) -> Option<K>) -> BTreeMap<K, u64> {
        let mut sums = BTreeMap::new();
        for (stack, count) in &self.profile.stacks {
            if let Some(key) = key(stack) {
                *sums.entry(key).or_default() += count;
            }
        }
        sums
    }
}

/// A part of all samples, percent.
fn share(samples: u64, total: u64) -> f64 {
    100.0 * samples as f64 / total.max(1) as f64
}

/// The whole of a stack, and the part of it.
fn class(stack: &Stack) -> [&str; 2] {
    [&stack.whole, stack.part.as_deref().unwrap_or_default()]
}

/// The function that was running.
fn own(stack: &Stack) -> Option<&str> {
    stack.functions.first().map(|name| &**name)
}

fn most_first<K: Ord>(sums: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut list: Vec<_> = sums.into_iter().collect();
    // Stable: equal ones stay in the order of their names.
    list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    list
}

#[cfg(test)]
mod fixture {
    use std::sync::Arc;

    use super::*;

    /// Of 100 samples in the classes of a scheduler, 50 are of one plugin.
    pub(crate) fn taken() -> Taken {
        let stack = |whole: &str, part: &str, functions: &[&str]| Stack {
            group: None,
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
        let stacks = stacks.into_iter().map(|(stack, count)| (stack.into(), count)).collect();
        let profile = Profile { stacks, moments: None, period_ns: 10_000_000, pids: vec![7] };
        let start_unix_ns = 1_795_219_200_000_000_000;
        Taken { profile, duration: Duration::from_secs(2), start_unix_ns, groups: None }
    }

    /// The same by result. Of the samples of filter, 40 are of `Success`, the others of `Unschedulable`.
    pub(crate) fn by_result() -> Taken {
        let mut taken = taken();
        let stacks = std::mem::take(&mut taken.profile.stacks);
        for (stack, count) in stacks {
            let with = |group: &str| Arc::new(Stack { group: Some(group.into()), ..Stack::clone(&stack) });
            let parts = match count {
                20 => vec![(with("Unschedulable"), 20)],
                10 | 30 => vec![(with("Success"), count)],
                _ => vec![(stack, count)],
            };
            taken.profile.stacks.extend(parts);
        }
        let attempts = [("Success".into(), 80), ("Unschedulable".into(), 5), ("Error".into(), 1)];
        let groups = Groups { by: By::Result, attempts: attempts.into(), left_out: [0, 0] };
        Taken { groups: Some(groups), ..taken }
    }
}
