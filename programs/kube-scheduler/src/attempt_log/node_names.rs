//! The rejected Nodes of many attempts in little memory: the name of a Node is kept once, and each attempt has its number.

use std::sync::Arc;

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
    /// Of each group.
    nodes: Box<[Box<[u16]>]>,
}

impl NodeNames {
    /// Replaces names by numbers; `None` if the table has no room for them.
    pub(super) fn number(&mut self, rejected: &RejectedNodes) -> Option<Numbered> {
        let RejectedNodes { groups, left_out, others } = rejected;
        let nodes = groups
            .iter()
            .map(|group| group.nodes.iter().map(|name| self.number_of(name)).collect())
            .collect::<Option<_>>()?;
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
        for (group, numbers) in rejected.groups.iter_mut().zip(nodes) {
            group.nodes =
                numbers.iter().filter_map(|number| self.names.get(usize::from(*number)).cloned()).collect();
        }
        Some(rejected)
    }
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
        let all = [rejected(&[&["a", "b"], &["c"]]), rejected(&[]), rejected(&[&["c", "a"], &[], &["d"]])];
        let numbered: Vec<_> = all.iter().map(|one| names.number(one).unwrap()).collect();
        assert_eq!(names.names.len(), 4);
        for (one, numbered) in all.into_iter().zip(numbered) {
            assert_eq!(names.named(&numbered), Some(one));
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
