//! A profile as text.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use spans::text::clean;

use crate::{FUNCTIONS, Groups, Taken, by::NO_ATTEMPT, class, most_first, own, share};

/// Where the CPU time goes: by group if there are some, by phase and plugin, then by function.
#[must_use]
pub fn text(taken: &Taken) -> String {
    let total = taken.profile.samples();
    let pids: Vec<_> = taken.profile.pids.iter().map(ToString::to_string).collect();
    let mut out = format!(
        "{:.1} s of CPU time in {:.1} s: {total} samples{}\n\n",
        taken.seconds(total),
        taken.duration.as_secs_f64(),
        match pids.len() {
            // A file does not say of which.
            0 if total > 0 => String::new(),
            0 => " of no process".to_owned(),
            _ => format!(" of pid {}", pids.join(", ")),
        },
    );
    match &taken.groups {
        Some(groups) => by_group(&mut out, taken, groups, total),
        None => classes(&mut out, taken, None, total),
    }
    functions(&mut out, taken, total);
    out
}

/// Phases and plugins, of all samples or of a group.
fn classes(out: &mut String, taken: &Taken, of: Option<Option<&str>>, total: u64) {
    let is_of = |group: Option<&str>| of.is_none_or(|of| of == group);
    let sums = taken.sums(|stack| is_of(stack.group.as_deref()).then(|| class(stack)));
    for ([whole, part], count) in most_first(sums) {
        let words = format!("{whole:<18} {part}");
        let (seconds, part) = (taken.seconds(count), share(count, total));
        let _ = writeln!(out, "{seconds:8.2} s  {part:5.1} %  {}", clean(&words).trim_end());
    }
}

/// The groups, then the phases and plugins of each.
fn by_group(out: &mut String, taken: &Taken, groups: &Groups, total: u64) {
    let Groups { by, attempts, left_out: _ } = groups;
    let _ = writeln!(out, "  CPU time        %   samples  attempts  per attempt  {}", by.name());
    let mut sums = taken.by_group();
    // A group may have had no sample.
    for group in attempts.keys() {
        sums.entry(Some(group)).or_default();
    }
    let sums = most_first(sums);
    for (group, count) in &sums {
        let (seconds, part) = (taken.seconds(*count), share(*count, total));
        let made = group.and_then(|group| attempts.get(group));
        let each = |made: u64| format!("{:.3} ms", 1e3 * seconds / made.max(1) as f64);
        let (made, each) = made.map(|made| (made.to_string(), each(*made))).unwrap_or_default();
        let name = clean(group.unwrap_or(NO_ATTEMPT));
        let _ = writeln!(out, "{seconds:8.2} s  {part:5.1} %  {count:8}  {made:>8}  {each:>11}  {name}");
    }
    if let Some(left_out) = groups.left_out() {
        let _ = writeln!(out, "{left_out}");
    }
    for (group, _) in sums.iter().filter(|(_, count)| *count > 0) {
        let _ = writeln!(out, "\n{}", clean(group.unwrap_or(NO_ATTEMPT)));
        classes(out, taken, Some(*group), total);
    }
}

fn functions(out: &mut String, taken: &Taken, total: u64) {
    let mut with_callees = BTreeMap::new();
    for (stack, count) in &taken.profile.stacks {
        let each: BTreeSet<&str> = stack.functions.iter().map(|name| &**name).collect();
        each.into_iter().for_each(|name| *with_callees.entry(name).or_default() += count);
    }
    let _ = writeln!(out, "\n     own      %    with callees     %  function");
    for (name, count) in most_first(taken.sums(own)).into_iter().take(FUNCTIONS) {
        let all: u64 = with_callees.get(name).copied().unwrap_or_default();
        let _ = writeln!(
            out,
            "{:6.2} s  {:5.1}        {:6.2} s  {:5.1}  {}",
            taken.seconds(count),
            share(count, total),
            taken.seconds(all),
            share(all, total),
            clean(name)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{by_result, taken};

    fn lines(taken: &Taken) -> Vec<String> {
        text(taken).lines().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn phases_come_first_and_functions_below() {
        let lines = lines(&taken());
        assert_eq!(lines[0], "1.0 s of CPU time in 2.0 s: 100 samples of pid 7");
        assert_eq!(lines[2], "0.50 s   50.0 %  filter             Fit");
        assert_eq!(lines[3], "0.39 s   39.0 %  garbageCollector");
        let wanted = "0.20 s   20.0          0.50 s   50.0  noderesources.(*Fit).Filter";
        assert!(lines.iter().any(|line| line == wanted), "{lines:?}");
    }

    #[test]
    fn groups_come_before_their_phases_and_plugins() {
        let lines = lines(&by_result());
        assert_eq!(
            lines[2..16],
            [
                "CPU time        %   samples  attempts  per attempt  result",
                "0.40 s   40.0 %        40                         no attempt",
                "0.40 s   40.0 %        40        80     5.000 ms  Success",
                "0.20 s   20.0 %        20         5    40.000 ms  Unschedulable",
                "0.00 s    0.0 %         0         1     0.000 ms  Error",
                "",
                "no attempt",
                "0.39 s   39.0 %  garbageCollector",
                "0.01 s    1.0 %  outside",
                "",
                "Success",
                "0.30 s   30.0 %  filter             Fit",
                "0.10 s   10.0 %  filter",
                "",
            ]
        );
        assert_eq!(lines[16..18], ["Unschedulable", "0.20 s   20.0 %  filter             Fit"]);
    }

    #[test]
    fn what_was_too_much_is_said() {
        let mut taken = by_result();
        taken.groups.iter_mut().for_each(|groups| groups.left_out = [3, 5]);
        let said = "5 samples and 3 attempts were too many to be matched, and are in `no attempt`";
        assert!(text(&taken).contains(said), "{}", text(&taken));
    }

    #[test]
    fn nothing_is_a_profile_too() {
        let nothing = Taken { profile: gotrace::profiler::Profile::default(), ..taken() };
        assert!(text(&nothing).starts_with("0.0 s of CPU time in 2.0 s: 0 samples of no process\n"));
    }
}
