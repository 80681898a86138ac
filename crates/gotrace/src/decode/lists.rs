//! Decodes records of slices and maps.

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

/// The elements of a slice with the highest keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Top {
    /// Length of the slice.
    #[serde(rename = "nodes")]
    pub elements: u64,
    /// Number of elements examined; less than [`Top::elements`] for a very long slice.
    pub looked_at: u64,
    /// Number of examined elements that share the highest key.
    pub ties: u64,
    /// The best elements, highest key first. A recording omits an empty list.
    #[serde(default)]
    pub best: Vec<Element>,
}

/// An element of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Element {
    /// The element's label, such as a Node's name.
    #[serde(rename = "node")]
    pub label: String,
    /// The sort key, such as a score.
    #[serde(rename = "total")]
    pub key: i64,
    /// Named parts of the key, in the slice's order.
    #[serde(default, rename = "scores")]
    pub parts: Vec<(Arc<str>, i64)>,
    /// Whether parts are omitted from the list.
    pub cut: bool,
}

/// The values of a map, counted by equality.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entries {
    /// Number of keys in the map.
    #[serde(rename = "nodes")]
    pub keys: u64,
    /// Number of keys examined.
    pub looked_at: u64,
    /// Groups of equal values, the most frequent first.
    #[serde(default, rename = "rejections")]
    pub groups: Vec<Group>,
    /// Name in the value that applies to all keys outside the map, if there is one.
    pub others: Option<Arc<str>>,
}

/// A group of keys with equal values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Group {
    /// Name in the value; `None` if its address is unknown.
    #[serde(rename = "plugin")]
    pub name: Option<Arc<str>>,
    /// Number in the value.
    pub code: i64,
    /// Number of keys in the group.
    #[serde(rename = "nodes")]
    pub keys: u64,
}

/// Placeholder for an unknown name of a score's part.
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

/// Decodes a [`TopHit`].
pub(super) fn top(record: &[u8]) -> Option<Top> {
    let fields = Fields(record);
    // Only the first candidate's names are in the record. Other candidates may have other parts, or another order: an
    // extender need not score every Node. Equal names have equal addresses, so parts are matched by address.
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

/// Decodes a [`MapHit`]. `name` resolves the address of a name.
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
    fn scores_are_matched_to_plugins_by_the_address_of_the_name_not_by_position() {
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
