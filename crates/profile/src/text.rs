//! A profile as text.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use gotrace::profiler::Stack;
use spans::text::clean;

use crate::{Taken, most_first};

/// Functions that are listed.
const FUNCTIONS: usize = 25;

/// Where the CPU time goes: by phase and plugin, then by function.
#[must_use]
pub fn text(taken: &Taken) -> String {
    let total = taken.profile.samples();
    let share = |count: u64| 100.0 * count as f64 / total.max(1) as f64;
    let pids: Vec<_> = taken.profile.pids.iter().map(ToString::to_string).collect();
    let mut out = format!(
        "{:.1} s of CPU time in {:.1} s: {total} samples of {}\n\n",
        taken.seconds(total),
        taken.duration.as_secs_f64(),
        if pids.is_empty() { "no process".to_owned() } else { format!("pid {}", pids.join(", ")) },
    );
    let mut line = |seconds: f64, share: f64, words: &str| {
        let _ = writeln!(out, "{seconds:8.2} s  {share:5.1} %  {}", clean(words).trim_end());
    };
    for ((whole, part), count) in taken.classes() {
        line(taken.seconds(count), share(count), &format!("{whole:<18} {part}"));
    }
    let (mut own, mut with_callees) = (BTreeMap::new(), BTreeMap::new());
    for (Stack { functions, .. }, count) in &taken.profile.stacks {
        functions.first().into_iter().for_each(|name| *own.entry(&**name).or_default() += count);
        let each: BTreeSet<&str> = functions.iter().map(|name| &**name).collect();
        each.into_iter().for_each(|name| *with_callees.entry(name).or_default() += count);
    }
    let _ = writeln!(out, "\n     own      %    with callees     %  function");
    for (name, count) in most_first(own).into_iter().take(FUNCTIONS) {
        let all: u64 = with_callees.get(name).copied().unwrap_or_default();
        let _ = writeln!(
            out,
            "{:6.2} s  {:5.1}        {:6.2} s  {:5.1}  {}",
            taken.seconds(count),
            share(count),
            taken.seconds(all),
            share(all),
            clean(name)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::taken;

    #[test]
    fn phases_come_first_and_functions_below() {
        let text = text(&taken());
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines[0], "1.0 s of CPU time in 2.0 s: 100 samples of pid 7");
        assert_eq!(lines[2], "0.50 s   50.0 %  filter             Fit");
        assert_eq!(lines[3], "0.39 s   39.0 %  garbageCollector");
        assert!(
            lines.contains(&"0.20 s   20.0          0.50 s   50.0  noderesources.(*Fit).Filter"),
            "{text}"
        );
    }

    #[test]
    fn nothing_is_a_profile_too() {
        let nothing = Taken { profile: gotrace::profiler::Profile::default(), ..taken() };
        assert!(text(&nothing).starts_with("0.0 s of CPU time in 2.0 s: 0 samples of no process\n"));
    }
}
