//! Which code belongs to what: classes of functions, for samples of where a process spends its time.
//!
//! A program names a class for the functions that say something about a stack ([`Program::class`]). Neighbours of one class
//! become one range, so that a table of some hundred ranges describes 100,000 functions, and the eBPF program finds the
//! class of a frame by a binary search.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use goexe::{Executable, Functions, LinkMode};
use serde::{Deserialize, Serialize};
use wire::{
    CUT, Code, CodeRange, HINT, MAX_FRAMES, NO_CLASS, NO_SITE, OUTSIDE, PART, RANGES_PER_TABLE, Sample,
    StackSample, UNREADABLE, WHOLE,
};

use crate::program::{Named, Program};

/// The whole of a sample in code that is not Go's, or on a stack whose frames are not believed.
pub const NOT_GO: &str = "outside";
/// The whole of a sample whose stack cannot be read, or is too long to find its class.
pub const UNKNOWN: &str = "unknown";
/// The whole of a sample without a class.
pub const REST: &str = "other";

/// What a class says about the stacks that have its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// One part of a whole, such as a plugin. Of several the outermost within the whole counts.
    Part,
    /// A whole, such as a phase. The innermost counts.
    Whole,
    /// A whole where the stack has no other. The innermost counts.
    Hint,
}

impl Rank {
    fn wire(self) -> u16 {
        match self {
            Self::Part => PART,
            Self::Whole => WHOLE,
            Self::Hint => HINT,
        }
    }
}

/// A sample of a traced process, by the classes of its stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sampled {
    /// Target number of the process.
    pub target: u32,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time_ns: u64,
    /// The CPU time that it stands for, nanoseconds.
    pub period_ns: u64,
    /// The whole; [`REST`], [`NOT_GO`] or [`UNKNOWN`] where there is none.
    pub whole: Arc<str>,
    /// The part of it, if there is one.
    #[serde(default)]
    pub part: Option<Arc<str>>,
}

/// The classes of an executable's code.
#[derive(Clone, Debug, Default)]
pub struct CodeMap {
    /// Virtual addresses of the Go code in the file.
    text: Range<u64>,
    /// Sorted; they do not overlap.
    ranges: Vec<CodeRange>,
    /// Names of the classes. Class n is at n - 1.
    classes: Vec<Arc<str>>,
    believes_outside: bool,
}

impl CodeMap {
    /// Finds the classes of a program in an executable.
    #[must_use]
    pub fn of<P: Program>(executable: &Executable<'_>, functions: &Functions<'_>, names: &[Named]) -> Self {
        let class = |name: &[u8]| P::class(str::from_utf8(name).ok()?, names);
        let found = functions.matching(|name| class(name).is_some());
        let pieces = found.iter().filter_map(|function| {
            let (rank, name) = P::class(function.name, names)?;
            Some((function.range.clone(), rank, name))
        });
        Self::new(functions.text(), executable.link_mode() == LinkMode::Static, pieces)
    }

    /// Makes a table of ranges with their classes. Where they overlap, or are outside `text`, they are left out; so are the
    /// shortest hints where there are too many ranges. `believes_outside` if code outside `text` keeps frame pointers.
    pub fn new<'a>(
        text: Range<u64>,
        believes_outside: bool,
        pieces: impl IntoIterator<Item = (Range<u64>, Rank, &'a str)>,
    ) -> Self {
        let mut numbers: BTreeMap<(Rank, &str), u16> = BTreeMap::new();
        let mut classes = Vec::new();
        let mut ranges: Vec<CodeRange> = Vec::new();
        let mut pieces: Vec<_> = pieces.into_iter().collect();
        pieces.sort_by_key(|(range, ..)| range.start);
        for (range, rank, name) in pieces {
            let offset = |address: u64| u32::try_from(address.checked_sub(text.start)?).ok();
            let (Some(start), Some(end)) = (offset(range.start), offset(range.end.min(text.end))) else {
                continue;
            };
            let next = u16::try_from(classes.len() + 1).unwrap_or(u16::MAX);
            if start >= end || ranges.last().is_some_and(|last| start < last.end) || next == u16::MAX {
                continue;
            }
            let class = *numbers.entry((rank, name)).or_insert_with(|| {
                classes.push(Arc::from(name));
                next
            });
            match ranges.last_mut().filter(|last| last.end == start && last.class == class) {
                Some(last) => last.end = end,
                None => ranges.push(CodeRange { start, end, class, rank: rank.wire() }),
            }
        }
        let room = RANGES_PER_TABLE as usize;
        if ranges.len() > room {
            let mut kept: Vec<_> = ranges
                .iter()
                .map(|range| (range.rank == HINT, u32::MAX - (range.end - range.start), range.start))
                .collect();
            kept.sort_unstable();
            kept.truncate(room);
            let kept: std::collections::BTreeSet<u32> = kept.into_iter().map(|(.., start)| start).collect();
            ranges.retain(|range| kept.contains(&range.start));
        }
        Self { text, ranges, classes, believes_outside }
    }

    /// The ranges, for the eBPF program.
    #[must_use]
    pub fn ranges(&self) -> &[CodeRange] {
        &self.ranges
    }

    /// The code of a process with this load bias, whose ranges begin at this place of the map.
    #[must_use]
    pub fn code(&self, bias: u64, first: u32) -> Code {
        Code {
            text: self.text.start.wrapping_add(bias),
            text_len: u32::try_from(self.text.end - self.text.start).unwrap_or(u32::MAX),
            first,
            len: self.ranges.len() as u32,
            believes_outside: self.believes_outside.into(),
        }
    }

    /// What a sample says, by the names of its classes.
    #[must_use]
    pub fn named(&self, sample: &Sample, period_ns: u64) -> Sampled {
        let Sample { time_ns, target, whole, part, flags, frames: _, site: _, reserved: _, caller: _ } =
            *sample;
        let name = |class: u16| self.classes.get(usize::from(class).checked_sub(1)?).cloned();
        let without = || {
            if flags & OUTSIDE != 0 {
                NOT_GO
            } else if flags != 0 {
                UNKNOWN
            } else {
                REST
            }
        };
        Sampled {
            target,
            time_ns,
            period_ns,
            whole: name(whole).unwrap_or_else(|| without().into()),
            part: name(part),
        }
    }

    /// Finds the classes of a stack, innermost frame first, as the eBPF program does. `bias` is the load bias of the
    /// process.
    #[must_use]
    pub fn fold(&self, mut sample: Sample, stack: &[u64], bias: u64) -> Sample {
        let (mut part, mut hint) = (NO_CLASS, NO_CLASS);
        for (index, address) in addresses(sample.caller, stack).enumerate() {
            let address = address.wrapping_sub(bias);
            if !self.text.contains(&address) {
                if index == 0 && !self.believes_outside {
                    sample.flags |= OUTSIDE;
                    return sample;
                }
                continue;
            }
            let Ok(offset) = u32::try_from(address - self.text.start) else { continue };
            let at = self.ranges.partition_point(|range| range.end <= offset);
            let Some(range) = self.ranges.get(at).filter(|range| range.start <= offset) else { continue };
            match range.rank {
                PART => part = range.class,
                HINT if hint != NO_CLASS => {}
                HINT => hint = range.class,
                _ => {
                    (sample.whole, sample.part) = (range.class, part);
                    return sample;
                }
            }
        }
        sample.whole = hint;
        sample.flags |= if stack.len() >= MAX_FRAMES { CUT } else { 0 };
        sample
    }
}

/// Addresses of instructions of a stack, innermost first, with the caller that a function without a frame hides. A return
/// address may be behind the last instruction of its function: that of the call is before it.
pub(crate) fn addresses(caller: u64, stack: &[u64]) -> impl Iterator<Item = u64> {
    let (leaf, callers) = stack.split_at(stack.len().min(1));
    let hidden = (caller != 0).then_some(caller).filter(|_| !leaf.is_empty());
    let callers = hidden.into_iter().chain(callers.iter().copied()).map(|address| address.wrapping_sub(1));
    leaf.iter().copied().chain(callers)
}

/// A record of the eBPF program that takes samples; `None` for records of probes, and where the length fits neither kind.
#[must_use]
pub fn sample(record: &[u8]) -> Option<(Sample, Vec<u64>)> {
    let word = |at: usize| record.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let half = |at: usize| record.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
    let long = |at: usize| record.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    if word(24)? != NO_SITE {
        return None;
    }
    let sample = Sample {
        time_ns: long(0)?,
        target: word(8)?,
        whole: half(12)?,
        part: half(14)?,
        flags: word(16)?,
        frames: word(20)?,
        site: NO_SITE,
        reserved: 0,
        caller: long(32)?,
    };
    let stack = match record.len() {
        len if len == size_of::<Sample>() => Vec::new(),
        len if len == size_of::<StackSample>() && sample.flags & UNREADABLE == 0 => (0..MAX_FRAMES)
            .take(sample.frames as usize)
            .filter_map(|frame| long(size_of::<Sample>() + 8 * frame))
            .collect(),
        len if len == size_of::<StackSample>() => Vec::new(),
        _ => return None,
    };
    Some((sample, stack))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: Range<u64> = 0x1000..0x9000;

    fn map(pieces: &[(Range<u64>, Rank, &'static str)]) -> CodeMap {
        CodeMap::new(TEXT, false, pieces.iter().cloned())
    }

    fn scheduler() -> CodeMap {
        map(&[
            (0x2000..0x2100, Rank::Whole, "filter"),
            (0x3000..0x3100, Rank::Part, "Fit"),
            (0x3100..0x3200, Rank::Part, "Fit"),
            (0x4000..0x4100, Rank::Part, "Mine"),
            (0x5000..0x5100, Rank::Hint, "json"),
            (0x6000..0x6100, Rank::Hint, "client"),
        ])
    }

    /// Whole and part of a stack, with 1 added to the addresses of callers as a return address has it.
    fn folded(stack: &[u64]) -> (String, Option<String>) {
        let bias = 0x10_0000;
        let map = scheduler();
        let stack: Vec<u64> = stack.iter().map(|address| address + bias).collect();
        let Sampled { whole, part, .. } = map.named(&map.fold(Sample::default(), &stack, bias), 1);
        (whole.to_string(), part.map(|part| part.to_string()))
    }

    #[test]
    fn neighbours_of_one_class_are_one_range() {
        assert_eq!(scheduler().ranges().len(), 5);
    }

    #[test]
    fn the_outermost_part_within_the_innermost_whole_counts() {
        let some = |part: &str| Some(part.to_owned());
        assert_eq!(folded(&[0x8000, 0x3010, 0x4010, 0x2010, 0x3010]), ("filter".into(), some("Mine")));
        assert_eq!(folded(&[0x3010, 0x2010, 0x6010]), ("filter".into(), some("Fit")));
        // A hint gives way to a whole, and a part without a whole is none.
        assert_eq!(folded(&[0x5010, 0x2010]), ("filter".into(), None));
        assert_eq!(folded(&[0x8000, 0x5010, 0x6010]), ("json".into(), None));
        assert_eq!(folded(&[0x3010]), (REST.into(), None));
        assert_eq!(folded(&[0x8000]), (REST.into(), None));
    }

    #[test]
    fn a_return_address_belongs_to_the_call_before_it() {
        assert_eq!(folded(&[0x8000, 0x2100]).0, "filter");
        assert_eq!(folded(&[0x2100]).0, REST);
        assert_eq!(folded(&[0x8000, 0x2000]).0, REST);
    }

    #[test]
    fn a_stack_that_begins_outside_the_code_of_go_is_not_believed() {
        assert_eq!(folded(&[0xf_0000, 0x2010]).0, NOT_GO);
        let map = CodeMap { believes_outside: true, ..scheduler() };
        assert_eq!(map.fold(Sample::default(), &[0xf_0000, 0x2010], 0).whole, 1);
    }

    #[test]
    fn the_caller_of_a_function_without_a_frame_is_on_the_stack() {
        let sample = Sample { caller: 0x3010, ..Sample::default() };
        let map = scheduler();
        let Sampled { part, .. } = map.named(&map.fold(sample, &[0x8000, 0x2010], 0), 1);
        assert_eq!(part.as_deref(), Some("Fit"));
        assert_eq!(addresses(sample.caller, &[]).count(), 0);
    }

    #[test]
    fn a_stack_without_an_end_is_unknown() {
        assert_eq!(folded(&[0x8000; MAX_FRAMES]).0, UNKNOWN);
        assert_eq!(folded(&[0x8000; MAX_FRAMES - 1]).0, REST);
    }

    #[test]
    fn of_too_many_ranges_the_shortest_hints_are_left_out() {
        let many = u64::from(RANGES_PER_TABLE) + 10;
        let names = ["a", "b"];
        let pieces = (0..many).map(|n| {
            let rank = if n < 20 { Rank::Hint } else { Rank::Part };
            (4 * n..4 * n + if n < 10 { 1 } else { 2 }, rank, names[(n % 2) as usize])
        });
        let map = CodeMap::new(0..1 << 20, false, pieces);
        assert_eq!(map.ranges().len() as u32, RANGES_PER_TABLE);
        assert_eq!(map.ranges()[0].start, 40);
    }

    #[test]
    fn a_record_of_a_probe_is_no_sample() {
        assert_eq!(sample(&[0; size_of::<wire::Hit>()]), None);
        let mut record = vec![0; size_of::<Sample>()];
        record[24..28].fill(0xff);
        assert_eq!(sample(&record).map(|(sample, stack)| (sample.site, stack)), Some((NO_SITE, Vec::new())));
        assert_eq!(sample(&record[..38]), None);
        record.resize(size_of::<StackSample>(), 1);
        record[20..24].copy_from_slice(&2_u32.to_ne_bytes());
        assert_eq!(sample(&record).map(|(_, stack)| stack), Some(vec![0x0101_0101_0101_0101; 2]));
    }

    proptest! {
        #[test]
        fn ranges_are_sorted_and_within_the_text(
            pieces in proptest::collection::vec((0..0xa000_u64, 0..0x800_u64, 0..3_usize, 0..4_usize), 0..200),
        ) {
            let pieces = pieces.into_iter().map(|(start, len, rank, name)| {
                let rank = [Rank::Part, Rank::Whole, Rank::Hint][rank];
                (start..start + len, rank, ["a", "b", "c", "d"][name])
            });
            let map = CodeMap::new(TEXT, false, pieces);
            prop_assert!(map.ranges().iter().all(|range| range.start < range.end && range.end <= 0x8000));
            prop_assert!(map.ranges().windows(2).all(|two| two[0].end <= two[1].start));
            prop_assert!(map.ranges().iter().all(|range| usize::from(range.class) <= map.classes.len()));
        }

        #[test]
        fn no_bytes_make_it_panic(record in proptest::collection::vec(any::<u8>(), 0..700)) {
            let _ = sample(&record);
        }
    }
}
