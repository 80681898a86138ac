use proptest::{collection::vec, prelude::*};

use super::*;

fn site(texts: u32, reads: &[Read]) -> Site {
    let mut site =
        Site { goid_offset: 152, reads_len: reads.len() as u32, texts, time: LAST, ..Site::default() };
    site.reads[..reads.len()].copy_from_slice(reads);
    site
}

#[test]
fn a_cookie_holds_what_most_hits_need() {
    let word = Read { base: 3, steps: 1, ..Read::default() };
    assert_eq!(
        Cookie::of(&site(NO_TEXTS, &[word]), MAX_SITES - 1).unwrap(),
        Cookie { site: 4095, goid_offset: 152, reads_len: 1, texts: 0, time: 1, pointer: 3 }
    );
}

#[test]
fn a_cookie_has_a_pointer_only_if_all_reads_follow_it() {
    let pointer = |site: Site| Cookie::of(&site, 0).unwrap().pointer;
    let word = Read { base: 3, steps: 1, ..Read::default() };
    let text = Read { base: 3, steps: 2, kind: READ_TEXT, ..Read::default() };
    assert_eq!(pointer(Site { unless: 0b10_0001, ..site(TEXTS_UNLESS, &[word, text]) }), 3);
    // The strings are wanted if the first word is 0.
    assert_eq!(pointer(Site { unless: 0b10_0000, ..site(TEXTS_UNLESS, &[word, text]) }), NO_POINTER);
    assert_eq!(pointer(site(TEXTS, &[word, text])), NO_POINTER);
    assert_eq!(pointer(site(NO_TEXTS, &[word, Read { base: 4, ..word }])), NO_POINTER);
    // The value of the register itself.
    assert_eq!(pointer(site(NO_TEXTS, &[word, Read { steps: 0, ..word }])), NO_POINTER);
    assert_eq!(pointer(site(NO_TEXTS, &[])), NO_POINTER);
}

#[test]
fn a_cookie_is_refused_if_a_number_does_not_fit() {
    let fits = site(NO_TEXTS, &[]);
    assert_eq!(Cookie::of(&Site { goid_offset: 1 << 16, ..fits }, 0), None);
    assert_eq!(Cookie::of(&Site { reads_len: MAX_READS as u32 + 1, ..fits }, 0), None);
    assert_eq!(Cookie::of(&fits, 1 << 16), None);
}

#[test]
fn a_counter_is_its_index() {
    for (index, counter) in Counter::ALL.into_iter().enumerate() {
        assert_eq!(counter as usize, index);
    }
}

/// Words of a record without strings; `None` if a read follows a pointer that is not null.
fn words(site: &Site, registers: &[u64]) -> Option<[u64; MAX_WORDS]> {
    let mut words = [0; MAX_WORDS];
    for read in &site.reads[..site.reads_len as usize] {
        let value = registers[usize::from(read.base)];
        if read.steps > 0 && value != 0 {
            return None;
        }
        if read.kind == READ_WORD {
            words[usize::from(read.slot)] = value;
        }
    }
    Some(words)
}

/// Few registers, so that reads often have the same one.
fn read() -> impl Strategy<Value = Read> {
    (2..4_u8, 0..=MAX_STEPS as u8, READ_WORD..=READ_TEXT, 0..MAX_WORDS as u8)
        .prop_map(|(base, steps, kind, slot)| Read { base, steps, kind, slot, ..Read::default() })
}

proptest! {
    #[test]
    fn any_cookie_survives_its_word(bytes: [u8; 8]) {
        let word = u64::from_ne_bytes(bytes);
        prop_assert_eq!(u64::from(Cookie::from(word)), word);
    }

    #[test]
    fn no_two_processes_have_the_same_key(
        [one, other] in proptest::array::uniform2((0..MAX_PID_NAMESPACES, 1..1_u32 << 22)),
    ) {
        prop_assert!(![0, FREE].contains(&Target::key(one.0, one.1)));
        prop_assert_eq!(Target::key(one.0, one.1) == Target::key(other.0, other.1), one == other);
    }

    #[test]
    fn any_layout_survives_its_numbers(numbers: [u32; LAYOUT_LEN]) {
        prop_assert_eq!(<[u32; LAYOUT_LEN]>::from(MapLayout::from(numbers)), numbers);
        let top = TopLayout::from(numbers);
        prop_assert_eq!(TopLayout::from(<[u32; LAYOUT_LEN]>::from(top)), top);
    }

    #[test]
    fn where_the_pointer_is_null_all_reads_give_0(
        reads in vec(read(), 0..=MAX_READS),
        texts in NO_TEXTS..=MAP_WALK,
        unless: u32,
        mut registers in vec(1_u64.., 16),
    ) {
        let site = Site { unless, ..site(texts, &reads) };
        let Cookie { pointer, .. } = Cookie::of(&site, 0).unwrap();
        if pointer != NO_POINTER {
            registers[usize::from(pointer)] = 0;
            prop_assert_eq!(words(&site, &registers), Some([0; MAX_WORDS]));
            prop_assert!(texts == NO_TEXTS || texts == TEXTS_UNLESS && unless & 1 != 0);
        }
    }
}

proptest! {
    #[test]
    fn any_site_of_a_window_survives_its_word(site: u16, function: u8, number: u8, above: u8) {
        let of = |kind| window::TimedSite { site, function, kind, above };
        for (place, kind) in (0..).zip(window::Kind::ALL) {
            prop_assert_eq!(kind as u8, place);
            prop_assert_eq!(window::TimedSite::of(of(kind).into()), Some(of(kind)));
        }
        let word = u64::from(of(window::Kind::TurnBegins)) | u64::from(number) << 24;
        prop_assert_eq!(window::TimedSite::of(word).is_some(), usize::from(number) < window::Kind::ALL.len());
    }
}
