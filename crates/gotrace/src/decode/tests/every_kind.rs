//! A value of every kind: from the record to its datum, and through a recording.

use std::{borrow::Cow, collections::BTreeMap};

use wire::{MAX_PARTS, MAX_TOP, MapEntry, PART_NAME_LEN, PART_SIZE, TopElement};

use super::*;
use crate::{
    pipeline::Found,
    recording::{End, Line, Reader, Recorder},
};

/// What a text is in a process, and what is known of it.
fn text(longest: usize, room: usize) -> impl Strategy<Value = (Vec<u8>, String)> {
    // Characters of two bytes are cut in the middle, too.
    let text =
        prop_oneof!["[a-z\u{e4}\"\\\\\n\u{0}]*", (0..longest).prop_map(|length| "\u{e4}".repeat(length))];
    text.prop_map(move |text| {
        let bytes = text.into_bytes();
        let cut = if bytes.len() > room { "…" } else { "" };
        let known = String::from_utf8_lossy(&bytes[..bytes.len().min(room)]).into_owned() + cut;
        (bytes, known)
    })
}

fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_int(record: &mut [u8], at: usize, number: usize) {
    put(record, at, &u32::try_from(number).expect("it is small").to_ne_bytes());
}

/// What a recording makes of an event: the same, or it is not written as it can be read.
fn through_a_recording(event: &Event<Kitchen>) -> Event<Kitchen> {
    let mut file = Vec::new();
    let mut recorder = Recorder::<_, Kitchen>::new(&mut file, u64::MAX / 2, false).expect("memory takes it");
    recorder.take(Line::Found(Cow::Owned(Found { target: event.target, ..Found::default() })));
    recorder.take(Line::Event(Cow::Borrowed(event)));
    recorder.take(Line::End(End::default()));
    recorder.finish().expect("memory takes it");
    let lines = Reader::<_, Kitchen>::new(file.as_slice()).expect("it has a header");
    let lines: Vec<_> = lines.collect::<Result<_, _>>().expect("it can be read again");
    match &lines[1] {
        Line::Event(event) => event.clone().into_owned(),
        other => panic!("the event is {other:?}"),
    }
}

/// The event of a record, which a recording leaves as it is.
fn event(decoder: &mut Decoder<Kitchen>, record: &[u8]) -> Event<Kitchen> {
    let event = decoder.decode(record).expect("it is well-formed");
    assert_eq!(through_a_recording(&event), event);
    event
}

/// The site of a list, as it is planned: nothing else is read there.
fn of_list(list: Value) -> Decoder<Kitchen> {
    let mut decoder = Decoder::default();
    decoder.add(SITE, &Planned { list: Some(list), ..site(Role::Entry, &[]) });
    decoder
}

/// An entry of a map: number, address of the name, key, and a text.
type RawEntry = (i64, u64, (Vec<u8>, String), (Vec<u8>, String));

/// An element: label, key, and parts by their place in the pool of names, with their values.
type Raw = ((Vec<u8>, String), i64, Vec<(usize, i64)>);

/// The address of a name in the pool.
fn address(place: usize) -> u64 {
    0x5000 + place as u64
}

fn top_record(counts: [u32; 3], elements: &[Raw], pool: &[(Vec<u8>, String)]) -> Vec<u8> {
    let mut record = hit(SITE, 0, [0; MAX_WORDS]);
    record.resize(size_of::<TopHit>(), 0);
    for (at, count) in [offset_of!(TopHit, len), offset_of!(TopHit, compared), offset_of!(TopHit, ties)]
        .into_iter()
        .zip(counts)
    {
        put(&mut record, at, &count.to_ne_bytes());
    }
    put_int(&mut record, offset_of!(TopHit, top_len), elements.len());
    for (number, ((label, _), key, parts)) in elements.iter().take(MAX_TOP).enumerate() {
        let start = offset_of!(TopHit, top) + size_of::<TopElement>() * number;
        put(&mut record, start + offset_of!(TopElement, key), &key.to_ne_bytes());
        put_int(&mut record, start + offset_of!(TopElement, label_length), label.len());
        put(&mut record, start + offset_of!(TopElement, label), &label[..label.len().min(TEXT_LEN)]);
        put_int(&mut record, start + offset_of!(TopElement, parts_len), parts.len());
        for (number, (name, value)) in parts.iter().take(MAX_PARTS).enumerate() {
            let at = start + offset_of!(TopElement, parts) + PART_SIZE * number;
            put(&mut record, at, &address(*name).to_ne_bytes());
            put(&mut record, at + 16, &value.to_ne_bytes());
        }
    }
    for (number, (name, _)) in
        elements.iter().take(1).flat_map(|(.., parts)| parts).take(MAX_PARTS).enumerate()
    {
        let name = &pool[*name].0;
        put_int(&mut record, offset_of!(TopHit, name_lengths) + 4 * number, name.len());
        put(
            &mut record,
            offset_of!(TopHit, names) + PART_NAME_LEN * number,
            &name[..name.len().min(PART_NAME_LEN)],
        );
    }
    record
}

fn top_of(counts: [u32; 3], elements: &[Raw], pool: &[(Vec<u8>, String)]) -> Top {
    let kept = |parts: &[(usize, i64)]| parts.iter().take(MAX_PARTS).copied().collect::<Vec<_>>();
    // Names are those of the first element's parts.
    let known: Vec<usize> = elements
        .first()
        .map(|(.., parts)| kept(parts))
        .unwrap_or_default()
        .iter()
        .map(|(name, _)| *name)
        .collect();
    let element = |((_, label), key, parts): &Raw| Element {
        label: label.clone(),
        key: *key,
        parts: kept(parts)
            .into_iter()
            .map(|(name, value)| {
                let name = if known.contains(&name) { pool[name].1.as_str() } else { "?" };
                (name.into(), value)
            })
            .collect(),
        cut: parts.len() > MAX_PARTS,
    };
    let [all, looked_at, ties] = counts.map(u64::from);
    Top { elements: all, looked_at, ties, best: elements.iter().take(MAX_TOP).map(element).collect() }
}

/// The chunk with the entries (number, address of the name, key, text) and the record of a map.
fn map_records(keys: u64, entries: &[RawEntry], others: u64) -> [Vec<u8>; 2] {
    let walk = 5u64.to_ne_bytes();
    let mut chunk = hit(SITE, 0, [0; MAX_WORDS]);
    chunk.resize(size_of::<MapChunk>(), 0);
    put(&mut chunk, offset_of!(MapChunk, walk), &walk);
    put_int(&mut chunk, offset_of!(MapChunk, len), entries.len());
    let mut data = Vec::new();
    for (code, name, (key, _), (text, _)) in entries {
        let mut add = |bytes: &[u8]| {
            data.extend(bytes);
            data.resize(data.len().next_multiple_of(8), 0);
        };
        add(&code.to_ne_bytes());
        add(&name.to_ne_bytes());
        add([key.len() as u32, 1].map(u32::to_ne_bytes).as_flattened());
        add(&key[..key.len().min(TEXT_LEN)]);
        // Of each text, another address.
        add(&text.as_ptr().addr().to_ne_bytes());
        let kept = &text[..text.len().min(TEXT_LEN)];
        add([text.len() as u32, kept.len() as u32].map(u32::to_ne_bytes).as_flattened());
        add(kept);
    }
    put(&mut chunk, offset_of!(MapChunk, data), &data);
    let mut record = hit(SITE, 0, [0; MAX_WORDS]);
    record.resize(size_of::<MapHit>(), 0);
    put(&mut record, offset_of!(MapHit, entries_in_map), &keys.to_ne_bytes());
    put(&mut record, offset_of!(MapHit, walk), &walk);
    put(&mut record, offset_of!(MapHit, absent) + offset_of!(MapEntry, second), &others.to_ne_bytes());
    [chunk, record]
}

/// The cook at an address, of whom there are two.
fn cook(address: u64) -> Option<Arc<str>> {
    [(0x1000, "Anna"), (0x2000, "Bert")]
        .into_iter()
        .find(|(at, _)| *at == address)
        .map(|(_, name)| name.into())
}

fn cooks(decoder: &mut Decoder<Kitchen>) {
    decoder.add_names(TARGET, &[named("Anna", 0x1000, None), named("Bert", 0x2000, None)], 0);
}

fn any_cook() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0x1000), Just(0x2000), Just(0), Just(0x3000)]
}

proptest! {
    #[test]
    fn words_and_texts(
        (orders, change, paid) in any::<(u64, i64, u64)>(), ordered in option::of(0..5_000_000_000 * SECOND),
        cook_at in any_cook(), dish in text(200, TEXT_LEN), guests in vec(text(200, TEXT_LEN), 3),
        places in proptest::array::uniform3(0u8..6),
    ) {
        let mut reads = vec![
            word(Value::Orders, 7),
            word(Value::Change, 0),
            word(Value::Paid, 2),
            word(Value::Ordered, 3),
            word(Value::Cook, 1),
            string(Value::Dish, 3),
        ];
        reads.extend((0..3).map(|number| {
            (Reading::TextAt(Value::Guests, places[number]), Slot::Text(number))
        }));
        let mut decoder = decoder(Role::Entry, &reads);
        cooks(&mut decoder);
        // Before 2033, so that the seconds since 1885 fit; a time that is not the clock's has no bit for it.
        let ordered = ordered.map(|unix_ns| unix_ns % (2_000_000_000 * SECOND));
        let ordered_word = ordered.map_or(12_345, wall);
        let words = [change.cast_unsigned(), cook_at, paid, ordered_word, 0, 0, 0, orders];
        let texts = [&*guests[0].0, &*guests[1].0, &*guests[2].0, &*dish.0];
        let values = event(&mut decoder, &text_hit(0, words, &texts)).values;
        let mut in_places = BTreeMap::new();
        for (place, (_, guest)) in places.iter().zip(&guests) {
            in_places.insert(*place, guest.clone());
        }
        let last = *in_places.keys().last().expect("there are three");
        let guests: Vec<_> = (0..=last).map(|place| in_places.get(&place).cloned()).collect();
        let expected = Values::default()
            .with(Value::Guests, Datum::Texts(guests))
            .with(Value::Dish, dish.1)
            .with(Value::Cook, cook(cook_at).map(Datum::Name))
            .with(Value::Ordered, ordered)
            .with(Value::Paid, paid % 256 != 0)
            .with(Value::Change, change)
            .with(Value::Orders, orders);
        prop_assert_eq!(values.signed(Value::Change), Some(change));
        prop_assert_eq!(values, expected);
    }

    #[test]
    fn long_texts((recipe, known) in text(1_500, LONG_TEXT_LEN)) {
        let mut record = hit(SITE, 0, [0; MAX_WORDS]);
        record.resize(size_of::<LongTextHit>(), 0);
        put_int(&mut record, offset_of!(LongTextHit, length), recipe.len());
        put(&mut record, offset_of!(LongTextHit, text), &recipe[..recipe.len().min(LONG_TEXT_LEN)]);
        let values = event(&mut decoder(Role::Entry, &[string(Value::Recipe, 0)]), &record).values;
        prop_assert_eq!(values, Values::default().with(Value::Recipe, known));
    }

    #[test]
    fn tops(
        counts in any::<[u32; 3]>(), pool in vec(text(30, PART_NAME_LEN), 8),
        elements in vec((text(200, TEXT_LEN), any::<i64>(), vec((0usize..8, any::<i64>()), 0..MAX_PARTS + 3)), 0..MAX_TOP + 2),
    ) {
        let mut decoder = of_list(Value::Tips);
        let mut record = top_record(counts, &elements, &pool);
        let expected = Values::default().with(Value::Tips, top_of(counts, &elements, &pool));
        prop_assert_eq!(event(&mut decoder, &record).values, expected);
        // Where the list could not be read, nothing is known of it.
        put_int(&mut record, offset_of!(Hit, faults), 1);
        prop_assert_eq!(event(&mut decoder, &record).values, Values::default());
        record.truncate(size_of::<Hit>());
        prop_assert_eq!(event(&mut decoder, &record).values, Values::default());
    }

    #[test]
    fn maps(
        keys in any::<u64>(), others in any_cook(),
        entries in vec((0i64..3, any_cook(), text(200, TEXT_LEN), text(200, TEXT_LEN)), 0..12),
    ) {
        let mut decoder = of_list(Value::Complaints);
        cooks(&mut decoder);
        let [chunk, record] = map_records(keys, &entries, others);
        decoder.add_part(&chunk).expect("it is well-formed");
        let Some(Datum::Entries(read)) = event(&mut decoder, &record).values.take(Value::Complaints) else {
            panic!("it was read")
        };
        prop_assert_eq!((read.keys, read.looked_at, read.others), (keys, entries.len() as u64, cook(others)));
        let count = |group: &Group| entries.iter().filter(|(code, at, ..)| (*code, cook(*at)) == (group.code, group.name.clone())).count();
        for group in &read.groups {
            prop_assert_eq!(group.keys, count(group) as u64);
        }
        prop_assert_eq!(read.groups.iter().map(|group| group.keys).sum::<u64>(), entries.len() as u64);
        prop_assert!(read.groups.is_sorted_by_key(|group| std::cmp::Reverse(group.keys)));
        let distinct: std::collections::BTreeSet<_> = read.groups.iter().map(|group| (&group.name, group.code)).collect();
        prop_assert_eq!(distinct.len(), read.groups.len());
        let mut listed: Vec<_> = read
            .listed
            .iter()
            .flat_map(|listed| listed.keys.iter().map(|key| {
                (listed.code, listed.name.clone(), key.to_string(), listed.texts[0].to_string())
            }))
            .collect();
        let mut expected: Vec<_> = entries
            .iter()
            // An empty key is one that was not read.
            .filter(|(_, _, (key, _), _)| !key.is_empty())
            .map(|(code, at, (_, key), (_, text))| (*code, cook(*at), key.clone(), text.clone()))
            .collect();
        listed.sort();
        expected.sort();
        prop_assert_eq!(listed, expected);
        // A process that is walking no map has no entries.
        let Some(Datum::Entries(read)) = event(&mut decoder, &record).values.take(Value::Complaints) else {
            panic!("it was read")
        };
        prop_assert_eq!((read.looked_at, read.listed), (0, Vec::new()));
    }
}
