//! Two profiles as text: what has become more, and what less.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use gotrace::profiler::Stack;
use spans::text::clean;

use crate::{FUNCTIONS, Taken, class, own, share};

/// Standard errors within which a difference is taken for chance, which exceeds them in one of twenty comparisons.
const CHANCE: f64 = 2.0;

/// How the shares of the CPU time have changed since an earlier profile: by phase and plugin, then by function. What has changed
/// most comes first.
#[must_use]
pub fn difference(taken: &Taken, base: &Taken) -> String {
    let about = |taken: &Taken| {
        let samples = taken.profile.samples();
        let (cpu, duration) = (taken.seconds(samples), taken.duration.as_secs_f64());
        format!("{cpu:.1} s of CPU time in {duration:.1} s, {samples} samples")
    };
    let mut out = format!("then: {}\nnow:  {}\n", about(base), about(taken));
    let _ = writeln!(out, "Shares of the CPU time. A difference below ± may be chance.\n");
    let _ = writeln!(out, "   then      now   points      ±  phase and plugin");
    for ([whole, part], row) in rows(taken, base, |stack| Some(class(stack))) {
        row.write(&mut out, &format!("{whole:<18} {part}"));
    }
    let _ = writeln!(out, "\n   then      now   points      ±  function, without its callees");
    for (name, row) in rows(taken, base, own).into_iter().take(FUNCTIONS) {
        row.write(&mut out, name);
    }
    out
}

/// Shares of the CPU time, percent, and how much of their difference may be chance, points.
struct Row {
    then: f64,
    now: f64,
    chance: f64,
}

impl Row {
    fn points(&self) -> f64 {
        self.now - self.then
    }

    fn write(&self, out: &mut String, words: &str) {
        let Self { then, now, chance } = self;
        let (points, words) = (self.points(), clean(words));
        let _ = writeln!(out, "{then:5.1} %  {now:5.1} %  {points:+7.1}  {chance:5.1}  {}", words.trim_end());
    }
}

/// What either has by this key, the greatest difference first.
fn rows<'a, K: Ord + Copy>(
    taken: &'a Taken,
    base: &'a Taken,
    key: impl Fn(&'a Stack) -> Option<K>,
) -> Vec<(K, Row)> {
    let (of_now, of_then): (BTreeMap<K, u64>, BTreeMap<K, u64>) = (taken.sums(&key), base.sums(&key));
    let keys: BTreeSet<K> = of_now.keys().chain(of_then.keys()).copied().collect();
    let totals = [taken, base].map(|taken| taken.profile.samples());
    let per_sample: f64 = totals.iter().map(|total| 1.0 / (*total).max(1) as f64).sum();
    let row = |key: K| {
        let of = |sums: &BTreeMap<K, u64>, total| share(sums.get(&key).copied().unwrap_or_default(), total);
        let (now, then) = (of(&of_now, totals[0]), of(&of_then, totals[1]));
        let both = f64::midpoint(now, then);
        (key, Row { then, now, chance: CHANCE * (both * (100.0 - both) * per_sample).sqrt() })
    };
    let mut rows: Vec<_> = keys.into_iter().map(row).collect();
    // Stable: equal ones stay in the order of their names.
    rows.sort_by(|(_, one), (_, other)| other.points().abs().total_cmp(&one.points().abs()));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::taken;

    /// The fixture with twice as much garbage collection and nothing outside: of 138 samples.
    fn grown() -> Taken {
        let mut taken = taken();
        taken.profile.stacks.retain(|stack, _| &*stack.whole != "outside");
        for (stack, count) in &mut taken.profile.stacks {
            *count *= if &*stack.whole == "garbageCollector" { 2 } else { 1 };
        }
        taken
    }

    #[test]
    fn what_has_changed_most_comes_first() {
        let text = difference(&grown(), &taken());
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "then: 1.0 s of CPU time in 2.0 s, 100 samples");
        assert_eq!(lines[1], "now:  1.4 s of CPU time in 2.0 s, 138 samples");
        assert_eq!(
            lines[5..9],
            [
                "39.0 %   56.5 %    +17.5   13.1  garbageCollector",
                "50.0 %   36.2 %    -13.8   13.0  filter             Fit",
                "10.0 %    7.2 %     -2.8    7.4  filter",
                "1.0 %    0.0 %     -1.0    1.9  outside",
            ]
        );
        assert_eq!(lines[11], "39.0 %   56.5 %    +17.5   13.1  runtime.scanobject");
    }

    #[test]
    fn the_same_has_no_difference_and_nothing_has_no_share() {
        let points = |taken: &Taken, base: &Taken| -> Vec<f64> {
            rows(taken, base, own).into_iter().map(|(_, row)| row.points()).collect()
        };
        assert_eq!(points(&taken(), &taken()), [0.0; 4]);
        let nothing = Taken { profile: gotrace::profiler::Profile::default(), ..taken() };
        assert_eq!(points(&nothing, &taken()), [-39.0, -30.0, -20.0, -10.0]);
        assert!(points(&nothing, &nothing).is_empty());
    }
}
