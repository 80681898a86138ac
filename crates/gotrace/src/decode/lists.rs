//! What the eBPF program found in a list or a map.

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

/// The elements of a slice that have the highest keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Top {
    /// Elements of the slice.
    #[serde(rename = "nodes")]
    pub elements: u64,
    /// How many of them were looked at; fewer than all of a very long slice.
    pub looked_at: u64,
    /// How many of these have the highest key.
    pub ties: u64,
    /// The best of them, the highest key first. A recording leaves an empty list out.
    #[serde(default)]
    pub best: Vec<Element>,
}

/// An element of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Element {
    /// Its label.
    #[serde(rename = "node")]
    pub label: String,
    /// Its key.
    #[serde(rename = "total")]
    pub key: i64,
    /// What the key is made of, by name, in the slice's order.
    #[serde(default, rename = "scores")]
    pub parts: Vec<(Arc<str>, i64)>,
    /// Whether there are more parts than are listed.
    pub cut: bool,
}

/// The values of a map, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entries {
    /// Keys in the map.
    #[serde(rename = "nodes")]
    pub keys: u64,
    /// How many of them were looked at.
    pub looked_at: u64,
    /// Equal values, the most frequent first.
    #[serde(default, rename = "rejections")]
    pub groups: Vec<Group>,
    /// The name in the value of all keys that are not in the map, where there is one.
    pub others: Option<Arc<str>>,
}

/// Keys that have equal values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Group {
    /// The value's name; `None` where it is not known.
    #[serde(rename = "plugin")]
    pub name: Option<Arc<str>>,
    /// The value's number.
    pub code: i64,
    /// How many keys.
    #[serde(rename = "nodes")]
    pub keys: u64,
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
pub(super) fn top(record: &[u8]) -> Option<Top> {
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
        Some(Element {
            label: fields.text(start + offset_of!(TopElement, label), length, TEXT_LEN)?,
            key: fields.long(start + offset_of!(TopElement, key))?.cast_signed(),
            parts: (0..plugins.min(MAX_PARTS)).map(score).collect::<Option<_>>()?,
            cut: plugins > MAX_PARTS,
        })
    };
    Some(Top {
        elements: fields.int(offset_of!(TopHit, len))?.into(),
        looked_at: fields.int(offset_of!(TopHit, compared))?.into(),
        ties: fields.int(offset_of!(TopHit, ties))?.into(),
        best: (0..count.min(MAX_TOP)).map(candidate).collect::<Option<_>>()?,
    })
}

/// Reads a [`MapHit`]; `name` knows a name by its address.
pub(super) fn entries(record: &[u8], name: impl Fn(u64) -> Option<Arc<str>>) -> Option<Entries> {
    let fields = Fields(record);
    let status = |at: usize| {
        let code = fields.long(at + offset_of!(MapEntry, first))?.cast_signed();
        Some((name(fields.long(at + offset_of!(MapEntry, second))?), code))
    };
    let count = (fields.int(offset_of!(MapHit, len))? as usize).min(MAX_MAP_ENTRIES);
    let mut counts = BTreeMap::<_, u64>::new();
    for number in 0..count {
        let at = offset_of!(MapHit, entries) + size_of::<MapEntry>() * number;
        *counts.entry(status(at)?).or_default() += 1;
    }
    let mut groups: Vec<_> =
        counts.into_iter().map(|((name, code), keys)| Group { name, code, keys }).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.keys));
    Some(Entries {
        keys: fields.long(offset_of!(MapHit, entries_in_map))?,
        looked_at: count as u64,
        groups,
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
            Element { label: "node-1".into(), key: -7, parts: vec![("Fit".into(), -7)], cut: false };
        let expected = Top { elements: 900, looked_at: 800, ties: 2, best: vec![candidate] };
        assert_eq!(top(&record), Some(expected));
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
        let best = top(&record).expect("it is whole").best;
        let told: Vec<_> =
            best.iter().flat_map(|candidate| &candidate.parts).map(|(name, _)| &**name).collect();
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
        let found = entries(&record, plugin).expect("it is whole");
        let groups = vec![
            Group { name: Some("Fit".into()), code: 2, keys: 2 },
            Group { name: None, code: 3, keys: 1 },
        ];
        assert_eq!(found, Entries { keys: 4, looked_at: 3, groups, others: None });
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let bytes = |length: usize| proptest::collection::vec(proptest::num::u8::ANY, length);
        proptest::proptest!(|(one in bytes(size_of::<TopHit>()), other in bytes(size_of::<MapHit>()))| {
            let _any = top(&one);
            let _any = entries(&other, |_| None);
        });
    }
}
