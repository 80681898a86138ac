//! The rejected Nodes of many attempts in little memory: the name of a Node is kept once, and each attempt has its number.

use std::{ops::Range, sync::Arc};

use crate::{
    HashMap,
    explain::{RejectedGroup, RejectedNodes},
};

/// Bytes of all names, those of the table included. Clusters have up to 5,000 Nodes, and a name up to 253 bytes.
const MAX_BYTES: usize = 2 << 20;

/// The names, by number.
#[derive(Debug, Default)]
pub(super) struct NodeNames {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u16>,
    bytes: usize,
}

/// An attempt's [`RejectedNodes`], whose names are in a [`NodeNames`].
#[derive(Debug)]
pub(super) struct Numbered {
    /// As JSON, without names.
    rest: Box<str>,
    /// Of each group, [packed](pack).
    nodes: Box<[Box<[u8]>]>,
}

impl NodeNames {
    /// Replaces names by numbers; `None` if the table has no room for them.
    pub(super) fn number(&mut self, rejected: &RejectedNodes) -> Option<Numbered> {
        let RejectedNodes { groups, left_out, others } = rejected;
        let packed = |group: &RejectedGroup| {
            let numbers = group.nodes.iter().map(|name| self.number_of(name));
            Some(pack(numbers.collect::<Option<_>>()?))
        };
        let nodes = groups.iter().map(packed).collect::<Option<_>>()?;
        let without = |group: &RejectedGroup| {
            let RejectedGroup { plugin, result, reasons, nodes: _ } = group;
            RejectedGroup {
                plugin: plugin.clone(),
                result: result.clone(),
                reasons: reasons.clone(),
                nodes: Vec::new(),
            }
        };
        let rest = RejectedNodes {
            groups: groups.iter().map(without).collect(),
            left_out: *left_out,
            others: others.clone(),
        };
        Some(Numbered { rest: serde_json::to_string(&rest).ok()?.into(), nodes })
    }

    fn number_of(&mut self, name: &Arc<str>) -> Option<u16> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = u16::try_from(self.names.len()).ok()?;
        // The table of the map has some room more.
        let bytes =
            name.len() + 2 * size_of::<usize>() + 2 * size_of::<(Arc<str>, u16)>() + size_of::<Arc<str>>();
        self.bytes = Some(self.bytes + bytes).filter(|bytes| *bytes <= MAX_BYTES)?;
        self.names.push(Arc::clone(name));
        self.numbers.insert(Arc::clone(name), number);
        Some(number)
    }

    /// What [`Self::number`] was given.
    pub(super) fn named(&self, Numbered { rest, nodes }: &Numbered) -> Option<RejectedNodes> {
        let mut rejected: RejectedNodes = serde_json::from_str(rest).ok()?;
        for (group, packed) in rejected.groups.iter_mut().zip(nodes) {
            let names = unpack(packed).into_iter().flatten().filter_map(|number| self.names.get(number));
            group.nodes = names.cloned().collect();
            group.nodes.sort();
        }
        Some(rejected)
    }
}

/// Numbers as runs: the gap before a run and its length, each with seven bits a byte, lowest first. A plugin often rejects Nodes that
/// follow each other.
fn pack(mut numbers: Vec<u16>) -> Box<[u8]> {
    numbers.sort_unstable();
    numbers.dedup();
    let mut bytes = Vec::new();
    let mut end = 0;
    for run in numbers.chunk_by(|one, other| one.checked_add(1) == Some(*other)) {
        let start = usize::from(run[0]);
        for mut number in [start - end, run.len()] {
            while number > 0x7f {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        end = start + run.len();
    }
    bytes.into()
}

/// The runs of [`pack`].
fn unpack(packed: &[u8]) -> Vec<Range<usize>> {
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f));
    let numbers: Vec<_> = packed.split_inclusive(|byte| *byte < 0x80).map(number).collect();
    let mut end = 0;
    let run = |pair: &[usize]| {
        let start = end + pair[0];
        end = start + pair[1];
        start..end
    };
    numbers.chunks_exact(2).map(run).collect()
}

impl Numbered {
    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let numbers = self.nodes.iter().map(|group| size_of_val(group) + size_of_val(&**group));
        size_of::<Self>() + self.rest.len() + numbers.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    fn rejected(groups: &[&[&str]]) -> RejectedNodes {
        let group = |(number, names): (usize, &&[&str])| RejectedGroup {
            plugin: Some(format!("Plugin{number}").into()),
            nodes: names.iter().map(|name| Arc::from(*name)).collect(),
            ..RejectedGroup::default()
        };
        RejectedNodes { groups: groups.iter().enumerate().map(group).collect(), ..RejectedNodes::default() }
    }

    #[test]
    fn each_attempt_has_its_names_back() {
        let mut names = NodeNames::default();
        let all = [rejected(&[&["a", "b"], &["c"]]), rejected(&[]), rejected(&[&["a", "c"], &[], &["d"]])];
        let numbered: Vec<_> = all.iter().map(|one| names.number(one).unwrap()).collect();
        assert_eq!(names.names.len(), 4);
        for (one, numbered) in all.into_iter().zip(numbered) {
            assert_eq!(names.named(&numbered), Some(one));
        }
    }

    #[test]
    fn nodes_that_follow_each_other_take_a_few_bytes_together() {
        assert_eq!(pack((100..5_100).collect()).len(), 3);
        assert_eq!(pack((0..1_000).map(|number| 2 * number).collect()).len(), 2_000);
    }

    proptest! {
        #[test]
        fn numbers_are_the_same_when_unpacked(numbers in btree_set(prop_oneof![0..50_u16, any::<u16>()], 0..200)) {
            let packed = pack(numbers.iter().rev().copied().collect());
            let unpacked: Vec<_> = unpack(&packed).into_iter().flatten().collect();
            prop_assert_eq!(unpacked, numbers.into_iter().map(usize::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_full_table_takes_the_names_that_it_knows() {
        let mut names = NodeNames::default();
        let long = |number: u32| format!("{number:0250}");
        let fits = (0..).position(|number| names.number(&rejected(&[&[&long(number)]])).is_none()).unwrap();
        assert!((5_000..=usize::from(u16::MAX)).contains(&fits), "{fits}");
        assert!(names.bytes <= MAX_BYTES);
        assert!(names.number(&rejected(&[&[&long(7)]])).is_some());
        let short = |number: u32| rejected(&[&[&format!("{number}")]]);
        let mut names = NodeNames::default();
        assert!((0..=u32::from(u16::MAX) + 1).any(|number| names.number(&short(number)).is_none()));
    }
}
