//! What the eBPF program found out about Nodes.

use std::{
    collections::{BTreeMap, HashMap},
    mem::offset_of,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use wire::{
    MAX_MAP_ENTRIES, MAX_PARTS, MAX_TOP, MapEntry, MapHit, PART_NAME_LEN, PART_SIZE, TEXT_LEN, TopElement,
    TopHit,
};

/// The scores of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scores {
    /// How many Nodes were scored.
    pub nodes: u64,
    /// How many of them were looked at here; fewer than all of a very large cluster.
    pub looked_at: u64,
    /// How many of these have the highest total.
    pub ties: u64,
    /// The best of them, the highest total first.
    pub best: Vec<Candidate>,
}

/// A Node that would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Candidate {
    /// The Node's name.
    pub node: String,
    /// The sum of the scores.
    pub total: i64,
    /// The weighted score of each plugin, in the order of the profile.
    pub scores: Vec<(Arc<str>, i64)>,
    /// Whether there are more plugins than are listed.
    pub cut: bool,
}

/// Why Nodes would not do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Statuses {
    /// How many Nodes were rejected by name.
    pub nodes: u64,
    /// How many of them were looked at here.
    pub looked_at: u64,
    /// By whom.
    pub rejections: Vec<Rejection>,
    /// Who rejected all other Nodes, where somebody did.
    pub others: Option<Arc<str>>,
}

/// Nodes that one plugin rejected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rejection {
    /// The plugin; `None` where its name is not known.
    pub plugin: Option<Arc<str>>,
    /// The code of the status, such as `UnschedulableAndUnresolvable`.
    pub code: i64,
    /// How many Nodes.
    pub nodes: u64,
}

/// Stands for who gave a score and is not known.
const UNKNOWN: &str = "?";

/// Reads fields at their offsets; `None` beyond the end.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&self, at: usize, length: usize) -> Option<&'a [u8]> {
        self.0.get(at..at.checked_add(length)?)
    }

    fn int(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(at, 4)?.try_into().ok()?))
    }

    fn long(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(at, 8)?.try_into().ok()?))
    }

    fn text(&self, at: usize, length: u32, room: usize) -> Option<String> {
        let kept = (length as usize).min(room);
        let mut text = String::from_utf8_lossy(self.bytes(at, kept)?).into_owned();
        if length as usize > room {
            text.push('…');
        }
        Some(text)
    }
}

/// Reads a [`TopHit`].
pub(super) fn scores(record: &[u8]) -> Option<Scores> {
    let fields = Fields(record);
    // The names that were read are those of the first candidate, and others may have other scores, or in another order: not
    // every extender has one for every Node. But a name is at the same address everywhere.
    let first = offset_of!(TopHit, top) + offset_of!(TopElement, parts);
    let scored = fields.int(offset_of!(TopHit, top) + offset_of!(TopElement, parts_len))? as usize;
    let names = (0..scored.min(MAX_PARTS))
        .map(|number| {
            let length = fields.int(offset_of!(TopHit, name_lengths) + 4 * number)?;
            let at = offset_of!(TopHit, names) + PART_NAME_LEN * number;
            Some((fields.long(first + PART_SIZE * number)?, fields.text(at, length, PART_NAME_LEN)?.into()))
        })
        .collect::<Option<HashMap<u64, Arc<str>>>>()?;
    let count = fields.int(offset_of!(TopHit, top_len))? as usize;
    let candidate = |number: usize| {
        let start = offset_of!(TopHit, top) + size_of::<TopElement>() * number;
        let length = fields.int(start + offset_of!(TopElement, label_length))?;
        let plugins = fields.int(start + offset_of!(TopElement, parts_len))? as usize;
        let score = |number: usize| {
            let at = start + offset_of!(TopElement, parts) + PART_SIZE * number;
            let name = names.get(&fields.long(at)?).map_or_else(|| UNKNOWN.into(), Arc::clone);
            Some((name, fields.long(at + 16)?.cast_signed()))
        };
        Some(Candidate {
            node: fields.text(start + offset_of!(TopElement, label), length, TEXT_LEN)?,
            total: fields.long(start + offset_of!(TopElement, key))?.cast_signed(),
            scores: (0..plugins.min(MAX_PARTS)).map(score).collect::<Option<_>>()?,
            cut: plugins > MAX_PARTS,
        })
    };
    Some(Scores {
        nodes: fields.int(offset_of!(TopHit, len))?.into(),
        looked_at: fields.int(offset_of!(TopHit, compared))?.into(),
        ties: fields.int(offset_of!(TopHit, ties))?.into(),
        best: (0..count.min(MAX_TOP)).map(candidate).collect::<Option<_>>()?,
    })
}

/// Reads a [`MapHit`]; `plugin` knows the plugin by the address of its name.
pub(super) fn statuses(record: &[u8], plugin: impl Fn(u64) -> Option<Arc<str>>) -> Option<Statuses> {
    let fields = Fields(record);
    let status = |at: usize| {
        let code = fields.long(at + offset_of!(MapEntry, first))?.cast_signed();
        Some((plugin(fields.long(at + offset_of!(MapEntry, second))?), code))
    };
    let count = (fields.int(offset_of!(MapHit, len))? as usize).min(MAX_MAP_ENTRIES);
    let mut counts = BTreeMap::<_, u64>::new();
    for number in 0..count {
        let at = offset_of!(MapHit, entries) + size_of::<MapEntry>() * number;
        *counts.entry(status(at)?).or_default() += 1;
    }
    let mut rejections: Vec<_> =
        counts.into_iter().map(|((plugin, code), nodes)| Rejection { plugin, code, nodes }).collect();
    rejections.sort_by_key(|rejection| std::cmp::Reverse(rejection.nodes));
    Some(Statuses {
        nodes: fields.long(offset_of!(MapHit, entries_in_map))?,
        looked_at: count as u64,
        rejections,
        others: status(offset_of!(MapHit, absent))?.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
        record[at..at + bytes.len()].copy_from_slice(bytes);
    }

    #[test]
    fn the_best_nodes_come_with_each_plugins_score() {
        let mut record = vec![0; size_of::<TopHit>()];
        for (at, value) in [
            (offset_of!(TopHit, len), 900u32),
            (offset_of!(TopHit, compared), 800),
            (offset_of!(TopHit, ties), 2),
            (offset_of!(TopHit, top_len), 1),
            (offset_of!(TopHit, name_lengths), 3),
            (offset_of!(TopHit, top) + offset_of!(TopElement, label_length), 6),
            (offset_of!(TopHit, top) + offset_of!(TopElement, parts_len), 1),
        ] {
            put(&mut record, at, &value.to_ne_bytes());
        }
        let best = offset_of!(TopHit, top);
        put(&mut record, best + offset_of!(TopElement, key), &(-7i64).to_ne_bytes());
        put(&mut record, best + offset_of!(TopElement, label), b"node-1");
        put(&mut record, best + offset_of!(TopElement, parts), &0x10u64.to_ne_bytes());
        put(&mut record, best + offset_of!(TopElement, parts) + 16, &(-7i64).to_ne_bytes());
        put(&mut record, offset_of!(TopHit, names), b"Fit");
        let candidate =
            Candidate { node: "node-1".into(), total: -7, scores: vec![("Fit".into(), -7)], cut: false };
        let expected = Scores { nodes: 900, looked_at: 800, ties: 2, best: vec![candidate] };
        assert_eq!(scores(&record), Some(expected));
    }

    #[test]
    fn who_scored_is_known_by_the_address_of_the_name_and_not_by_the_place_in_the_list() {
        let mut record = vec![0; size_of::<TopHit>()];
        put(&mut record, offset_of!(TopHit, top_len), &2u32.to_ne_bytes());
        for (place, scored) in [&[(0x10u64, 1u64), (0x20, 2)][..], &[(0x20, 3), (0x30, 4)]].iter().enumerate()
        {
            let start = offset_of!(TopHit, top) + size_of::<TopElement>() * place;
            put(&mut record, start + offset_of!(TopElement, parts_len), &2u32.to_ne_bytes());
            for (number, (name, score)) in scored.iter().enumerate() {
                let at = start + offset_of!(TopElement, parts) + PART_SIZE * number;
                put(&mut record, at, &name.to_ne_bytes());
                put(&mut record, at + 16, &score.to_ne_bytes());
            }
        }
        for (number, name) in [b"one", b"two"].iter().enumerate() {
            put(&mut record, offset_of!(TopHit, name_lengths) + 4 * number, &3u32.to_ne_bytes());
            put(&mut record, offset_of!(TopHit, names) + PART_NAME_LEN * number, *name);
        }
        let best = scores(&record).expect("it is whole").best;
        let told: Vec<_> =
            best.iter().flat_map(|candidate| &candidate.scores).map(|(name, _)| &**name).collect();
        assert_eq!(told, ["one", "two", "two", "?"]);
    }

    #[test]
    fn rejections_are_counted_by_plugin_and_code() {
        let mut record = vec![0; size_of::<MapHit>()];
        put(&mut record, offset_of!(MapHit, entries_in_map), &4u64.to_ne_bytes());
        put(&mut record, offset_of!(MapHit, len), &3u32.to_ne_bytes());
        for (number, (code, name)) in [(2u64, 0x10u64), (3, 0x20), (2, 0x10)].into_iter().enumerate() {
            let at = offset_of!(MapHit, entries) + size_of::<MapEntry>() * number;
            put(&mut record, at + offset_of!(MapEntry, first), &code.to_ne_bytes());
            put(&mut record, at + offset_of!(MapEntry, second), &name.to_ne_bytes());
        }
        let plugin = |address| (address == 0x10).then(|| Arc::from("Fit"));
        let found = statuses(&record, plugin).expect("it is whole");
        let rejections = vec![
            Rejection { plugin: Some("Fit".into()), code: 2, nodes: 2 },
            Rejection { plugin: None, code: 3, nodes: 1 },
        ];
        assert_eq!(found, Statuses { nodes: 4, looked_at: 3, rejections, others: None });
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let bytes = |length| proptest::collection::vec(proptest::arbitrary::any::<u8>(), length);
        proptest::proptest!(|(top in bytes(size_of::<TopHit>()), map in bytes(size_of::<MapHit>()))| {
            let _any = scores(&top);
            let _any = statuses(&map, |_| None);
        });
    }
}
