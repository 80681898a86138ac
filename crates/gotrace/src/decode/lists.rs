//! Decodes records of slices and maps.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    mem::offset_of,
    sync::Arc,
};

use interned::Interner;
use serde::{Deserialize, Serialize};
use wire::{
    MAX_PARTS, MAX_TOP, MAX_VALUE_TEXTS, MapChunk, MapEntry, MapHit, PART_NAME_LEN, PART_SIZE, TEXT_LEN,
    TopElement, TopHit, ValueText,
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

/// The values of a map, counted by equality, and its keys.
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
    /// The keys that were read, by value and texts. There are none after a map that took long, or from recordings of
    /// earlier versions.
    #[serde(default, rename = "byReason", skip_serializing_if = "Vec::is_empty")]
    pub listed: Vec<Listed>,
}

/// Keys with equal values and texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Listed {
    /// [`Group::name`].
    #[serde(rename = "plugin")]
    pub name: Option<Arc<str>>,
    /// [`Group::code`].
    pub code: i64,
    /// The value's texts, such as reasons.
    #[serde(rename = "reasons")]
    pub texts: Vec<Arc<str>>,
    /// The keys, such as names of Nodes, in alphabetical order.
    #[serde(rename = "nodes")]
    pub keys: Vec<Arc<str>>,
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

/// Placeholder for an unknown name of a score's part, and for a text that was not read.
const UNKNOWN: &str = "?";

/// Texts of a map that are told apart: keys of further ones are listed without. A text may be that of many keys.
const MAX_LISTED: usize = 128;

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

    fn text(&self, at: usize, length: u32, room: usize) -> Option<Cow<'a, str>> {
        let kept = (length as usize).min(room);
        let text = String::from_utf8_lossy(self.bytes(at, kept)?);
        Some(if length as usize > room { text + "…" } else { text })
    }
}

/// All of the items, or none. To collect them as an `Option` would not reserve room.
fn all<T>(items: impl ExactSizeIterator<Item = Option<T>>) -> Option<Vec<T>> {
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        all.push(item?);
    }
    Some(all)
}

/// Decodes a [`TopHit`].
pub(super) fn top(record: &[u8]) -> Option<Top> {
    let fields = Fields(record);
    // Only the first candidate's names are in the record. Other candidates may have other parts, or another order: an
    // extender need not score every Node. Equal names have equal addresses, so parts are matched by address.
    let first = offset_of!(TopHit, top) + offset_of!(TopElement, parts);
    let scored = fields.int(offset_of!(TopHit, top) + offset_of!(TopElement, parts_len))? as usize;
    let named = |number: usize| {
        let length = fields.int(offset_of!(TopHit, name_lengths) + 4 * number)?;
        let at = offset_of!(TopHit, names) + PART_NAME_LEN * number;
        let name: Arc<str> = fields.text(at, length, PART_NAME_LEN)?.into();
        Some((fields.long(first + PART_SIZE * number)?, name))
    };
    let names = all((0..scored.min(MAX_PARTS)).map(named))?;
    let name_at = |address| {
        let known = names.iter().find(|(known, _)| *known == address);
        known.map_or_else(|| UNKNOWN.into(), |(_, name)| Arc::clone(name))
    };
    let count = fields.int(offset_of!(TopHit, top_len))? as usize;
    let candidate = |number: usize| {
        let start = offset_of!(TopHit, top) + size_of::<TopElement>() * number;
        let length = fields.int(start + offset_of!(TopElement, label_length))?;
        let plugins = fields.int(start + offset_of!(TopElement, parts_len))? as usize;
        let score = |number: usize| {
            let at = start + offset_of!(TopElement, parts) + PART_SIZE * number;
            Some((name_at(fields.long(at)?), fields.long(at + 16)?.cast_signed()))
        };
        Some(Element {
            label: fields.text(start + offset_of!(TopElement, label), length, TEXT_LEN)?.into_owned(),
            key: fields.long(start + offset_of!(TopElement, key))?.cast_signed(),
            parts: all((0..plugins.min(MAX_PARTS)).map(score))?,
            cut: plugins > MAX_PARTS,
        })
    };
    Some(Top {
        elements: fields.int(offset_of!(TopHit, len))?.into(),
        looked_at: fields.int(offset_of!(TopHit, compared))?.into(),
        ties: fields.int(offset_of!(TopHit, ties))?.into(),
        best: all((0..count.min(MAX_TOP)).map(candidate))?,
    })
}

/// What is known of a map's value: name, number and texts.
type Value = (Option<Arc<str>>, i64, Vec<Arc<str>>);

/// Entries of the map that a process is walking, from the [`MapChunk`]s in front of its [`MapHit`].
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// [`MapHit::walk`].
    id: u64,
    looked_at: u64,
    /// By name and number.
    counts: BTreeMap<(Option<Arc<str>>, i64), u64>,
    listed: BTreeMap<Value, Vec<Arc<str>>>,
    /// By address and length.
    texts: HashMap<(u64, u32), Arc<str>>,
}

impl Walk {
    /// Adds the entries of a [`MapChunk`], as far as they are whole. `keys` are those of all walks, which are mostly the same; `name`
    /// resolves the address of a name.
    pub(super) fn add(
        &mut self,
        record: &[u8],
        keys: &mut Interner<str>,
        name: impl Fn(u64) -> Option<Arc<str>>,
    ) -> Option<()> {
        let fields = Fields(record);
        let id = fields.long(offset_of!(MapChunk, walk))?;
        if self.id != id {
            *self = Self { id, ..Self::default() };
        }
        let mut at = offset_of!(MapChunk, data);
        for _ in 0..fields.int(offset_of!(MapChunk, len))? {
            let code = fields.long(at + offset_of!(MapEntry, first))?.cast_signed();
            let name = name(fields.long(at + offset_of!(MapEntry, second))?);
            let length = fields.int(at + offset_of!(MapEntry, key_len))?;
            let number = fields.int(at + offset_of!(MapEntry, texts))? as usize;
            at += size_of::<MapEntry>();
            let key = fields.text(at, length, TEXT_LEN)?;
            at += (length as usize).min(TEXT_LEN).next_multiple_of(8);
            let mut texts = Vec::with_capacity(number.min(MAX_VALUE_TEXTS));
            for _ in 0..number.min(MAX_VALUE_TEXTS) {
                let address = fields.long(at + offset_of!(ValueText, address))?;
                let length = fields.int(at + offset_of!(ValueText, length))?;
                let kept = (fields.int(at + offset_of!(ValueText, kept))? as usize).min(TEXT_LEN);
                at += size_of::<ValueText>();
                if kept > 0 {
                    let text = fields.text(at, length, kept)?;
                    self.texts.insert((address, length), text.into());
                }
                at += kept.next_multiple_of(8);
                let text = self.texts.get(&(address, length)).map(Arc::clone);
                texts.push(text.unwrap_or_else(|| if length == 0 { "".into() } else { UNKNOWN.into() }));
            }
            self.looked_at += 1;
            *self.counts.entry((name.clone(), code)).or_default() += 1;
            if length > 0 {
                let mut value = (name, code, texts);
                if self.listed.len() >= MAX_LISTED && !self.listed.contains_key(&value) {
                    value.2.clear();
                }
                self.listed.entry(value).or_default().push(keys.intern(&*key));
            }
        }
        Some(())
    }

    /// The whole, with a [`MapHit`].
    pub(super) fn end(self, record: &[u8], name: impl Fn(u64) -> Option<Arc<str>>) -> Option<Entries> {
        let fields = Fields(record);
        // Chunks of a walk whose own record was lost.
        let of_another = fields.long(offset_of!(MapHit, walk))? != self.id;
        let Self { looked_at, counts, listed, .. } = if of_another { Self::default() } else { self };
        let mut groups: Vec<_> =
            counts.into_iter().map(|((name, code), keys)| Group { name, code, keys }).collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.keys));
        let mut listed: Vec<_> = listed
            .into_iter()
            .map(|((name, code, texts), mut keys)| {
                keys.sort();
                Listed { name, code, texts, keys }
            })
            .collect();
        listed.sort_by_key(|listed| std::cmp::Reverse(listed.keys.len()));
        Some(Entries {
            keys: fields.long(offset_of!(MapHit, entries_in_map))?,
            looked_at,
            groups,
            others: name(fields.long(offset_of!(MapHit, absent) + offset_of!(MapEntry, second))?),
            listed,
        })
    }
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

    /// A text of a value: its address, and whether its bytes are kept.
    type Text = (u64, &'static str, bool);
    /// An entry: number, address of the name, key, and texts.
    type Raw = (i64, u64, &'static str, &'static [Text]);

    fn chunk(walk: u64, entries: &[Raw]) -> Vec<u8> {
        let mut record = vec![0; size_of::<MapChunk>()];
        put(&mut record, offset_of!(MapChunk, walk), &walk.to_ne_bytes());
        put(&mut record, offset_of!(MapChunk, len), &(entries.len() as u32).to_ne_bytes());
        let mut data = Vec::new();
        let text = |data: &mut Vec<u8>, text: &str| {
            data.extend(text.as_bytes());
            data.resize(data.len().next_multiple_of(8), 0);
        };
        for (code, name, key, texts) in entries {
            data.extend(code.to_ne_bytes());
            data.extend(name.to_ne_bytes());
            data.extend([key.len() as u32, texts.len() as u32].map(u32::to_ne_bytes).as_flattened());
            text(&mut data, key);
            for (address, words, kept) in *texts {
                data.extend(address.to_ne_bytes());
                let kept = if *kept { words } else { "" };
                data.extend([words.len() as u32, kept.len() as u32].map(u32::to_ne_bytes).as_flattened());
                text(&mut data, kept);
            }
        }
        put(&mut record, offset_of!(MapChunk, data), &data);
        record
    }

    fn map_hit(walk: u64, keys: u64, others: u64) -> Vec<u8> {
        let mut record = vec![0; size_of::<MapHit>()];
        put(&mut record, offset_of!(MapHit, entries_in_map), &keys.to_ne_bytes());
        put(&mut record, offset_of!(MapHit, walk), &walk.to_ne_bytes());
        put(&mut record, offset_of!(MapHit, absent) + offset_of!(MapEntry, second), &others.to_ne_bytes());
        record
    }

    fn plugin(address: u64) -> Option<Arc<str>> {
        (address == 0x10).then(|| Arc::from("Fit"))
    }

    #[test]
    fn keys_are_listed_by_value_and_texts_and_counted_by_value() {
        let cpu: &[_] = &[(0x100, "Insufficient cpu", true)];
        let again: &[_] = &[(0x100, "Insufficient cpu", false)];
        let both: &[_] = &[(0x100, "Insufficient cpu", false), (0x200, "Too many pods", true)];
        let lost: &[_] = &[(0x300, "its text was in a chunk that was lost", false)];
        let (mut walk, mut keys) = (Walk::default(), Interner::default());
        walk.add(&chunk(7, &[(2, 0x10, "b", cpu), (2, 0x10, "c", both)]), &mut keys, plugin)
            .expect("it is whole");
        walk.add(
            &chunk(7, &[(2, 0x10, "a", again), (3, 0x20, "d", lost), (3, 0x20, "", &[])]),
            &mut keys,
            plugin,
        )
        .expect("it is whole");
        let found = walk.end(&map_hit(7, 9, 0x10), plugin).expect("it is whole");
        let groups = vec![
            Group { name: Some("Fit".into()), code: 2, keys: 3 },
            Group { name: None, code: 3, keys: 2 },
        ];
        assert_eq!(
            (found.keys, found.looked_at, found.groups, found.others),
            (9, 5, groups, Some("Fit".into()))
        );
        let listed: Vec<_> = found
            .listed
            .iter()
            .map(|listed| {
                (listed.name.as_deref(), listed.code, listed.texts.join("+"), listed.keys.join("+"))
            })
            .collect();
        assert_eq!(
            listed,
            [
                (Some("Fit"), 2, "Insufficient cpu".to_owned(), "a+b".to_owned()),
                (None, 3, "?".to_owned(), "d".to_owned()),
                (Some("Fit"), 2, "Insufficient cpu+Too many pods".to_owned(), "c".to_owned()),
            ]
        );
    }

    #[test]
    fn chunks_of_another_walk_are_not_of_this_one() {
        let (mut walk, mut keys) = (Walk::default(), Interner::default());
        walk.add(&chunk(7, &[(2, 0x10, "old", &[])]), &mut keys, plugin).expect("it is whole");
        walk.add(&chunk(8, &[(2, 0x10, "new", &[])]), &mut keys, plugin).expect("it is whole");
        assert_eq!(walk.looked_at, 1);
        let found = walk.end(&map_hit(9, 3, 0), plugin).expect("it is whole");
        assert_eq!(found, Entries { keys: 3, ..Entries::default() });
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let bytes = |length: usize| proptest::collection::vec(proptest::num::u8::ANY, length);
        proptest::proptest!(|(one in bytes(size_of::<TopHit>()), other in bytes(size_of::<MapHit>()), more in bytes(size_of::<MapChunk>()))| {
            let _any = top(&one);
            let (mut walk, mut keys) = (Walk::default(), Interner::default());
            let _any = walk.add(&more, &mut keys, |_| None);
            let _any = walk.end(&other, |_| None);
        });
    }
}
