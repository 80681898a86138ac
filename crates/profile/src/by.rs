//! Divides samples by what they were taken for: the result, or the scheduler's profile, of an attempt.
//!
//! Scheduling cycles are serial in a process. So a sample between the start and the end of one, on any goroutine, is of that
//! attempt if its stack says that it is of a scheduling cycle. An attempt is known only after its end, when its samples are
//! long taken: both are remembered with their times, and are matched once, at the end of the profile. The samples are counted
//! by then, and matching only moves them to a group: whatever is left out or lost, their sum stays.

use std::{collections::BTreeMap, sync::Arc};

use gotrace::profiler::{Moment, Profile, Stack};
use spans::{Anchor, AttributeValue, Cycle, Phase, Source, SpanKind, Trace, TraceKind, attributes};

/// Attempts that are remembered: of 300 a second, for almost half an hour.
const MAX_ATTEMPTS: usize = 500_000;
/// Different groups. There are four results; the scheduler's profiles are as many as it is configured to have.
const MAX_GROUPS: usize = 32;
/// The group of further ones.
const OTHER: &str = "other";
/// The group of attempts whose end was not seen: most of them had not ended when the profile did.
const UNKNOWN: &str = "unknown";
/// What is shown for samples without a group.
pub(crate) const NO_ATTEMPT: &str = "no attempt";

/// What samples are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Result of the attempt: `Success`, `Unschedulable` or `Error`
    Result,
    /// Profile of the scheduler: the Pod's `schedulerName`
    Profile,
}

impl By {
    /// Name of the label that samples have in pprof's form.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::Profile => "profile",
        }
    }

    const fn attribute(self) -> &'static str {
        match self {
            Self::Result => attributes::RESULT,
            Self::Profile => attributes::PROFILE,
        }
    }
}

/// Ends and groups of what is serial in a process, by target number and start.
type Intervals = BTreeMap<(u32, u64), (u64, Arc<str>)>;

/// The scheduling cycles of attempts.
#[derive(Debug)]
pub struct Cycles {
    by: By,
    cycles: Intervals,
    /// Where victims are evicted beside the next attempts, that is code of the same class.
    post_filters: Intervals,
    attempts: BTreeMap<Arc<str>, u64>,
    room: usize,
    left_out: u64,
}

/// What samples are divided into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// What they are divided by.
    pub by: By,
    /// Number of attempts of each group.
    pub attempts: BTreeMap<Arc<str>, u64>,
    /// Attempts, and samples, that were too many to be remembered. They are in no group.
    pub left_out: [u64; 2],
}

impl Cycles {
    /// Remembers attempts, to divide samples by this.
    #[must_use]
    pub fn new(by: By) -> Self {
        Self {
            by,
            cycles: Intervals::new(),
            post_filters: Intervals::new(),
            attempts: BTreeMap::new(),
            room: MAX_ATTEMPTS,
            left_out: 0,
        }
    }

    /// Remembers the attempt that a trace is about. Its times are those of `CLOCK_MONOTONIC` by this anchor.
    pub fn add(&mut self, trace: &Trace, anchor: Anchor) {
        let (TraceKind::Attempt, Source::Process(target)) = (trace.kind, trace.source) else { return };
        // A Pod of a group has no cycle of its own, but trials in that of the group.
        let is_cycle = |kind: SpanKind| matches!(kind, SpanKind::Cycle(Cycle::Scheduling) | SpanKind::Trial);
        if !trace.spans.iter().any(|span| is_cycle(span.kind)) {
            return;
        }
        if self.cycles.len() >= self.room {
            self.left_out += 1;
            return;
        }
        let name = match trace.root().attribute(self.by.attribute()) {
            Some(AttributeValue::String(name)) if !name.is_empty() => name,
            Some(_) | None => UNKNOWN,
        };
        let is_known = self.attempts.contains_key(name);
        let name = if self.attempts.len() < MAX_GROUPS || is_known { name } else { OTHER };
        let known = self.attempts.get_key_value(name).map(|(known, _)| Arc::clone(known));
        let group = known.unwrap_or_else(|| name.into());
        let monotonic = |unix_ns: u64| unix_ns.saturating_sub(anchor.unix_ns_at_zero);
        let intervals = |is: fn(SpanKind) -> bool| {
            trace.spans.iter().filter(move |span| is(span.kind)).map(|span| {
                let [start, end] = [span.start_unix_ns, span.end_unix_ns].map(monotonic);
                ((target, start), (end, Arc::clone(&group)))
            })
        };
        self.cycles.extend(intervals(is_cycle));
        self.post_filters.extend(intervals(|kind| kind == SpanKind::Phase(Phase::PostFilter)));
        *self.attempts.entry(group).or_default() += 1;
    }

    /// Moves samples of scheduling cycles to the groups of their attempts. `is_of_cycle` says whether the whole of a stack is of
    /// a scheduling cycle.
    #[must_use]
    pub fn divide(self, profile: &mut Profile, is_of_cycle: impl Fn(&str) -> bool) -> Groups {
        let Self { by, cycles, post_filters, attempts, room: _, left_out } = self;
        let (moments, untimed) = profile.moments.take().unwrap_or_default().into_list();
        let mut moved: BTreeMap<(Arc<Stack>, &Arc<str>), u64> = BTreeMap::new();
        for Moment { target, time_ns, stack } in moments.into_iter().filter(|of| is_of_cycle(&of.stack.whole))
        {
            let within = if *stack.whole == *Phase::PostFilter.name() { &post_filters } else { &cycles };
            if let Some(group) = at(within, target, time_ns) {
                *moved.entry((stack, group)).or_default() += 1;
            }
        }
        for ((stack, group), count) in moved {
            let Some(left) = profile.stacks.get_mut(&stack) else { continue };
            *left -= count;
            if *left == 0 {
                profile.stacks.remove(&stack);
            }
            let stack = Stack { group: Some(Arc::clone(group)), ..Stack::clone(&stack) };
            *profile.stacks.entry(stack.into()).or_default() += count;
        }
        Groups { by, attempts, left_out: [left_out, untimed] }
    }
}

/// The group of what was under way in a process at this time.
fn at(intervals: &Intervals, target: u32, time_ns: u64) -> Option<&Arc<str>> {
    let ((of, _), (end_ns, group)) = intervals.range(..=(target, time_ns)).next_back()?;
    (*of == target && time_ns <= *end_ns).then_some(group)
}

impl Groups {
    /// What was left out, if anything was.
    #[must_use]
    pub fn left_out(&self) -> Option<String> {
        let [attempts, samples] = self.left_out;
        (attempts + samples > 0).then(|| {
            format!(
                "{samples} samples and {attempts} attempts were too many to be matched, and are in `{NO_ATTEMPT}`: take a shorter profile"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use gotrace::profiler::Moments;
    use proptest::prelude::*;
    use spans::fixtures::{scheduled, unschedulable};

    use super::*;

    /// An attempt of this process, whose scheduling cycle and `PostFilter` are between these times.
    fn attempt(target: u32, result: &'static str, cycle: [u64; 2], post_filter: Option<[u64; 2]>) -> Trace {
        let mut trace = scheduled();
        trace.source = Source::Process(target);
        let with = |kind, [start_unix_ns, end_unix_ns]: [u64; 2]| spans::Span {
            kind,
            start_unix_ns,
            end_unix_ns,
            ..trace.spans[1].clone()
        };
        let cycle = with(SpanKind::Cycle(Cycle::Scheduling), cycle);
        let post_filter = post_filter.map(|times| with(SpanKind::Phase(Phase::PostFilter), times));
        trace.spans.truncate(1);
        trace.spans.extend([cycle].into_iter().chain(post_filter));
        for (key, value) in &mut trace.spans[0].attributes {
            if *key == attributes::RESULT {
                *value = AttributeValue::String(result.into());
            }
        }
        trace
    }

    fn profile() -> Profile {
        Profile { moments: Some(Moments::default()), ..Profile::default() }
    }

    fn add(profile: &mut Profile, target: u32, time_ns: u64, whole: &str) {
        let functions = vec!["runtime.mallocgc".into()];
        profile.add(target, time_ns, Stack { group: None, whole: whole.into(), part: None, functions });
    }

    fn is_of_cycle(whole: &str) -> bool {
        ["filter", "postFilter"].contains(&whole)
    }

    fn divided(cycles: Cycles, profile: &mut Profile) -> (Groups, Vec<(String, u64)>) {
        let groups = cycles.divide(profile, is_of_cycle);
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (stack, count) in &profile.stacks {
            assert!(*count > 0 && !stack.functions.is_empty());
            let group = stack.group.as_deref().unwrap_or(NO_ATTEMPT);
            *sums.entry(format!("{group}: {}", stack.whole)).or_default() += count;
        }
        (groups, sums.into_iter().collect())
    }

    fn own(list: &[(&str, u64)]) -> Vec<(String, u64)> {
        list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn a_sample_of_a_scheduling_cycle_is_of_the_attempt_that_ran() {
        let mut cycles = Cycles::new(By::Result);
        cycles.add(&attempt(7, "Unschedulable", [300, 400], Some([350, 360])), Anchor::default());
        cycles.add(&attempt(7, "Success", [100, 200], None), Anchor::default());
        let mut profile = profile();
        // Before, at the start, in, at the end, between, in the next one, and after it.
        for time_ns in [99, 100, 150, 200, 201, 299, 300, 400, 401] {
            add(&mut profile, 7, time_ns, "filter");
        }
        let (groups, sums) = divided(cycles, &mut profile);
        assert_eq!(
            sums,
            own(&[("Success: filter", 3), ("Unschedulable: filter", 2), ("no attempt: filter", 4)])
        );
        assert_eq!(groups.attempts, [("Success".into(), 1), ("Unschedulable".into(), 1)].into());
        assert_eq!((profile.samples(), groups.left_out()), (9, None));
    }

    #[test]
    fn processes_have_cycles_of_their_own() {
        let mut cycles = Cycles::new(By::Result);
        cycles.add(&attempt(7, "Success", [100, 200], None), Anchor::default());
        cycles.add(&attempt(8, "Error", [150, 250], None), Anchor::default());
        let mut profile = profile();
        for (target, time_ns) in [(7, 160), (8, 160), (8, 120), (7, 220), (6, 160), (9, 160)] {
            add(&mut profile, target, time_ns, "filter");
        }
        let (_, sums) = divided(cycles, &mut profile);
        assert_eq!(sums, own(&[("Error: filter", 1), ("Success: filter", 1), ("no attempt: filter", 4)]));
    }

    #[test]
    fn what_runs_beside_a_cycle_is_in_no_group() {
        let mut cycles = Cycles::new(By::Result);
        cycles.add(&attempt(7, "Success", [100, 200], None), Anchor::default());
        cycles.add(&attempt(7, "Unschedulable", [300, 400], Some([350, 360])), Anchor::default());
        let mut profile = profile();
        for whole in ["bindingCycle", "garbageCollector"] {
            add(&mut profile, 7, 150, whole);
        }
        // The victims of an earlier attempt are evicted during the next ones.
        for time_ns in [150, 320, 355] {
            add(&mut profile, 7, time_ns, "postFilter");
        }
        let (_, sums) = divided(cycles, &mut profile);
        let none = [
            ("no attempt: bindingCycle", 1),
            ("no attempt: garbageCollector", 1),
            ("no attempt: postFilter", 2),
        ];
        assert_eq!(sums, own(&[&[("Unschedulable: postFilter", 1)], &none[..]].concat()));
    }

    #[test]
    fn a_trace_of_the_tracer_says_what_is_needed() {
        let mut cycles = Cycles::new(By::Profile);
        let start = scheduled().root().start_unix_ns;
        let anchor = Anchor { unix_ns_at_zero: start - 1_000_000 };
        for trace in [scheduled(), Trace { kind: TraceKind::GroupAttempt, ..scheduled() }] {
            cycles.add(&trace, anchor);
        }
        let mut profile = profile();
        // Of a binding cycle, and in the filter phase: microseconds after the start of `CLOCK_MONOTONIC`.
        for time_us in [1_000, 1_300, 4_000] {
            add(&mut profile, 7, time_us * 1_000, "filter");
        }
        let (groups, sums) = divided(cycles, &mut profile);
        assert_eq!(sums, own(&[("default-scheduler: filter", 1), ("no attempt: filter", 2)]));
        assert_eq!(groups.attempts, [("default-scheduler".into(), 1)].into());
        let mut cycles = Cycles::new(By::Result);
        cycles.add(&unschedulable(), anchor);
        assert_eq!(cycles.attempts, [("Unschedulable".into(), 1)].into());
    }

    #[test]
    fn pods_of_a_group_have_trials_instead() {
        let mut member = attempt(7, "Success", [100, 200], None);
        member.spans[1].kind = SpanKind::Trial;
        let second = spans::Span { start_unix_ns: 300, end_unix_ns: 400, ..member.spans[1].clone() };
        member.spans.push(second);
        let mut cycles = Cycles::new(By::Result);
        cycles.add(&member, Anchor::default());
        let mut profile = profile();
        [150, 250, 350].into_iter().for_each(|time_ns| add(&mut profile, 7, time_ns, "filter"));
        let (groups, sums) = divided(cycles, &mut profile);
        assert_eq!(sums, own(&[("Success: filter", 2), ("no attempt: filter", 1)]));
        assert_eq!(groups.attempts, [("Success".into(), 1)].into());
    }

    #[test]
    fn an_attempt_whose_end_was_not_seen_is_unknown() {
        let mut open = attempt(7, "Success", [100, 200], None);
        open.spans[0].attributes.retain(|(key, _)| *key != attributes::RESULT);
        let mut cycles = Cycles::new(By::Result);
        cycles.add(&open, Anchor::default());
        open.spans.truncate(1);
        cycles.add(&open, Anchor::default());
        assert_eq!(cycles.attempts, [("unknown".into(), 1)].into());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_is_left_out_is_counted() {
        let mut cycles = Cycles { room: 2, ..Cycles::new(By::Result) };
        for start in [100, 200, 300] {
            cycles.add(&attempt(7, "Success", [start, start + 50], None), Anchor::default());
        }
        let mut profile = Profile { moments: Some(Moments::with_room(3)), ..Profile::default() };
        for time_ns in [120, 220, 320, 130] {
            add(&mut profile, 7, time_ns, "filter");
        }
        let (groups, sums) = divided(cycles, &mut profile);
        assert_eq!(sums, own(&[("Success: filter", 2), ("no attempt: filter", 2)]));
        assert_eq!((groups.left_out, groups.attempts["Success"]), ([1, 1], 2));
        let says = groups.left_out().expect("something was left out");
        assert!(says.starts_with("1 samples and 1 attempts were too many"), "{says}");
    }

    #[test]
    fn the_number_of_groups_is_bounded() {
        let mut cycles = Cycles::new(By::Profile);
        for number in 0..100_u64 {
            let mut trace = attempt(7, "Success", [number * 10, number * 10 + 5], None);
            trace.spans[0].attributes.retain(|(key, _)| *key != attributes::PROFILE);
            trace.spans[0]
                .attributes
                .push((attributes::PROFILE, format!("profile-{number}").as_str().into()));
            cycles.add(&trace, Anchor::default());
        }
        assert_eq!(cycles.attempts.len(), MAX_GROUPS + 1);
        assert_eq!(cycles.attempts[OTHER], 100 - MAX_GROUPS as u64);
    }

    /// A scheduling cycle of a process: its pause before, its length, and which result. Samples are taken in the pause and in the
    /// cycle.
    type Step = (u64, u64, usize, Vec<u64>, Vec<u64>);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let times = || proptest::collection::vec(any::<u64>(), 0..4);
        proptest::collection::vec((1..100_u64, 0..100_u64, 0..3_usize, times(), times()), 0..30)
    }

    const RESULTS: [&str; 3] = ["Success", "Unschedulable", "Error"];

    proptest! {
        #[test]
        fn each_sample_is_of_the_cycle_in_which_it_was_taken(processes in [steps(), steps()], is_reversed: bool) {
            let (mut traces, mut wanted) = (Vec::new(), BTreeMap::<String, u64>::new());
            let mut profile = profile();
            for (target, steps) in (7..).zip(&processes) {
                let mut now = 1_000;
                for (pause, length, result, outside, inside) in steps {
                    let start = now + pause;
                    for at in outside {
                        add(&mut profile, target, now + 1 + at % pause, "filter");
                        // The last moment of the pause is the first of the cycle.
                        let group = if 1 + at % pause == *pause { RESULTS[*result] } else { NO_ATTEMPT };
                        *wanted.entry(format!("{group}: filter")).or_default() += 1;
                    }
                    for at in inside {
                        let time_ns = start + at % (length + 1);
                        add(&mut profile, target, time_ns, "filter");
                        *wanted.entry(format!("{}: filter", RESULTS[*result])).or_default() += 1;
                        add(&mut profile, target, time_ns, "binding");
                        *wanted.entry(format!("{NO_ATTEMPT}: binding")).or_default() += 1;
                    }
                    traces.push(attempt(target, RESULTS[*result], [start, start + length], None));
                    now = start + length;
                }
            }
            if is_reversed {
                traces.reverse();
            }
            let mut cycles = Cycles::new(By::Result);
            traces.iter().for_each(|trace| cycles.add(trace, Anchor::default()));
            let before = profile.samples();
            let (groups, sums) = divided(cycles, &mut profile);
            prop_assert_eq!(profile.samples(), before);
            prop_assert_eq!(sums, wanted.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(groups.attempts.values().sum::<u64>(), traces.len() as u64);
        }

        #[test]
        fn whatever_comes_no_sample_is_lost(
            intervals in proptest::collection::vec((0..3_u32, 0..100_u64, 0..100_u64, 0..3_usize), 0..20),
            samples in proptest::collection::vec((0..3_u32, 0..200_u64, any::<bool>()), 0..40),
            rooms in (0..20_usize, 0..40_usize),
        ) {
            let mut cycles = Cycles { room: rooms.0, ..Cycles::new(By::Result) };
            for (target, start, length, result) in &intervals {
                let trace = attempt(*target, RESULTS[*result], [*start, start + length], None);
                cycles.add(&trace, Anchor::default());
            }
            let mut profile = Profile { moments: Some(Moments::with_room(rooms.1)), ..Profile::default() };
            for (target, time_ns, is_filter) in &samples {
                add(&mut profile, *target, *time_ns, if *is_filter { "filter" } else { "gc" });
            }
            let (groups, _) = divided(cycles, &mut profile);
            prop_assert_eq!(profile.samples(), samples.len() as u64);
            prop_assert_eq!(groups.left_out[1], samples.len().saturating_sub(rooms.1) as u64);
            let known: u64 = groups.attempts.values().sum();
            prop_assert_eq!(known + groups.left_out[0], intervals.len() as u64);
        }
    }
}
