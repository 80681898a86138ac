//! Records as the eBPF programs write them, and what is made of them.

mod every_kind;

use std::mem::offset_of;

use goexe::Class;
use proptest::{collection::vec, option, prelude::*};
use wire::{MAX_READS, Site};

use super::*;
use crate::{
    fixture::{Function, Kitchen, METRIC, SECRET, VALUES, Value},
    program::Detail,
    values::Datum,
};

const SITE: u32 = 7;
const TARGET: u32 = 3;

type Planned = PlannedSite<Kitchen>;

fn site(role: Role, values: &[(Reading<Value>, Slot)]) -> Planned {
    Planned {
        function: Function::Take,
        role,
        detail: Detail::Phases,
        address: 0,
        file_offset: 0,
        class: Class::Emulated,
        stack_depth: if role == Role::ReturnSite { -8 } else { 0 },
        symbol: String::new(),
        called_by: Some(0x1000..0x2000),
        spec: Site::default(),
        values: values.to_vec(),
        list: None,
    }
}

fn decoder(role: Role, values: &[(Reading<Value>, Slot)]) -> Decoder<Kitchen> {
    let mut decoder = Decoder::default();
    decoder.add(SITE, &site(role, values));
    decoder
}

/// A value that is read into the word of this number.
fn word(value: Value, number: usize) -> (Reading<Value>, Slot) {
    (Reading::Value(value), Slot::Word(number))
}

/// A value that is read into the string of this number.
fn string(value: Value, number: usize) -> (Reading<Value>, Slot) {
    (Reading::Value(value), Slot::Text(number))
}

fn hit(site: u32, faults: u32, words: [u64; MAX_WORDS]) -> Vec<u8> {
    let longs = [1_000u64, 42, 512];
    let ints = [site, TARGET, faults, 9];
    let mut bytes: Vec<u8> = longs.iter().flat_map(|long| long.to_ne_bytes()).collect();
    bytes.extend(ints.iter().flat_map(|int| int.to_ne_bytes()));
    bytes.extend(0u64.to_ne_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

/// A record with strings, of which it has room for the beginnings.
fn text_hit(faults: u32, words: [u64; MAX_WORDS], texts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = hit(SITE, faults, words);
    let text = |number: usize| texts.get(number).copied().unwrap_or_default();
    for number in 0..MAX_TEXTS {
        bytes.extend(u32::try_from(text(number).len()).expect("it is short").to_ne_bytes());
    }
    for number in 0..MAX_TEXTS {
        let text = text(number);
        let kept = &text[..text.len().min(TEXT_LEN)];
        bytes.extend(kept);
        bytes.extend(vec![b'?'; TEXT_LEN - kept.len()]);
    }
    bytes
}

fn words(first: &[u64]) -> [u64; MAX_WORDS] {
    std::array::from_fn(|place| first.get(place).copied().unwrap_or_default())
}

fn decode(decoder: &mut Decoder<Kitchen>, record: &[u8]) -> Values<Value> {
    decoder.decode(record).expect("it is well-formed").values
}

fn named(name: &str, descriptor: u64, constant: Option<u64>) -> Named {
    Named {
        name: name.into(),
        typ: String::new(),
        extension_points: Vec::new(),
        module: None,
        descriptor,
        constant,
    }
}

#[test]
fn a_flag_is_the_lowest_byte_of_its_word() {
    let mut decoder = decoder(Role::Entry, &[word(Value::Paid, 0)]);
    let mut read = |first| decode(&mut decoder, &hit(SITE, 0, words(&[first]))).flag(Value::Paid);
    // What is beside a bool in memory is read with it.
    assert_eq!([0, 1, 0xab00, 0xab01].map(&mut read), [Some(false), Some(true), Some(false), Some(true)]);
}

#[test]
fn a_hit_carries_what_its_site_reads() {
    let mut decoder = decoder(Role::Entry, &[word(Value::Orders, 0), word(Value::Change, 1)]);
    let mut record = hit(SITE, 0, words(&[0xc000, 2]));
    record[offset_of!(Hit, last_loss)..][..8].copy_from_slice(&77u64.to_ne_bytes());
    let event = decoder.decode(&record).expect("it is well-formed");
    assert_eq!((event.target, event.time_ns, event.goroutine, event.depth), (TARGET, 1_000, 42, 512));
    assert_eq!((event.function, event.role), (Function::Take, Role::Entry));
    assert_eq!((event.took_ns, event.last_loss), (9, 77));
    assert_eq!(
        (event.values.number(Value::Orders), event.values.signed(Value::Change)),
        (Some(0xc000), Some(2))
    );
    assert_eq!(event.values.number(Value::Started), None);
}

#[test]
fn a_value_that_could_not_be_read_is_absent() {
    let mut decoder = decoder(Role::Entry, &[word(Value::Orders, 0), word(Value::Change, 1)]);
    let values = decode(&mut decoder, &hit(SITE, 0b01, words(&[0, 2])));
    assert_eq!((values.number(Value::Orders), values.signed(Value::Change)), (None, Some(2)));
}

#[test]
fn a_return_site_has_the_depth_of_the_call_that_returned() {
    let event =
        decoder(Role::ReturnSite, &[]).decode(&hit(SITE, 0, [0; MAX_WORDS])).expect("it is well-formed");
    assert_eq!(event.depth, 520);
}

#[test]
fn a_string_longer_than_its_slot_is_marked_as_cut() {
    let mut decoder = decoder(Role::Entry, &[string(Value::Dish, 1)]);
    let mut dish = |length| {
        let text = vec![b'x'; length];
        decode(&mut decoder, &text_hit(0, [0; MAX_WORDS], &[b"", &text])).take_text(Value::Dish)
    };
    assert_eq!(dish(300), Some(format!("{}…", "x".repeat(TEXT_LEN))));
    assert_eq!(dish(TEXT_LEN), Some("x".repeat(TEXT_LEN)));
}

#[test]
fn what_a_program_does_not_keep_of_a_text_is_absent() {
    let mut decoder = decoder(Role::Entry, &[string(Value::Dish, 0)]);
    let mut read = |text: &str| {
        let values = decode(&mut decoder, &text_hit(0, [0; MAX_WORDS], &[text.as_bytes()]));
        values.text(Value::Dish).map(str::to_owned)
    };
    assert_eq!(["soup", SECRET].map(&mut read), [Some("soup".to_owned()), None]);
}

#[test]
fn a_long_string_has_a_record_of_its_own() {
    let mut decoder = decoder(Role::Entry, &[string(Value::Recipe, 0)]);
    let mut bytes = hit(SITE, 0, [0; MAX_WORDS]);
    for word in [1_000u32, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend([b'x'; LONG_TEXT_LEN]);
    assert_eq!(decode(&mut decoder, &bytes).take_text(Value::Recipe), Some("x".repeat(1_000)));
}

#[test]
fn strings_that_the_record_has_no_room_for_are_absent() {
    let mut decoder =
        decoder(Role::Entry, &[word(Value::Orders, 0), string(Value::Dish, 0), string(Value::Dish, 4)]);
    let expected = Values::default().with(Value::Orders, 5u64);
    // The first value said that no strings are wanted.
    assert_eq!(decode(&mut decoder, &hit(SITE, 0, words(&[5]))), expected);
    let both = decode(&mut decoder, &text_hit(0, words(&[5]), &[b"soup"]));
    assert_eq!(both, expected.with(Value::Dish, "soup"));
}

#[test]
fn strings_of_a_list_keep_their_places() {
    let guests =
        [0u8, 2].map(|place| (Reading::TextAt(Value::Guests, place), Slot::Text(usize::from(place))));
    let mut decoder = decoder(Role::Entry, &guests);
    let mut read = |faults| {
        decode(&mut decoder, &text_hit(faults, [0; MAX_WORDS], &[b"a", b"b", b"c"])).take_texts(Value::Guests)
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(read(0), [text("a"), None, text("c")]);
    assert_eq!(read(0b01), [None, None, text("c")]);
    assert_eq!(read(0b10), [text("a"), None, None]);
    assert_eq!(read(0b11), [None, None, None]);
}

#[test]
fn a_name_is_found_by_its_address_in_each_process() {
    let mut decoder = decoder(Role::Entry, &[word(Value::Cook, 0)]);
    let cook = named("Anna", 0x1000, None);
    // `hit` is of process 3.
    decoder.add_names(TARGET, std::slice::from_ref(&cook), 0x40_0000);
    decoder.add_names(TARGET + 1, &[cook], 0);
    let name = |decoder: &mut Decoder<Kitchen>, address| {
        decode(decoder, &hit(SITE, 0, words(&[address]))).take_name(Value::Cook)
    };
    assert_eq!(name(&mut decoder, 0x40_1000).as_deref(), Some("Anna"));
    assert_eq!(name(&mut decoder, 0x1000), None);
    decoder.remove_names(TARGET + 1);
    assert_eq!(name(&mut decoder, 0x40_1000).as_deref(), Some("Anna"));
    decoder.remove_names(TARGET);
    assert_eq!(name(&mut decoder, 0x40_1000), None);
}

#[test]
fn a_name_is_found_by_its_type_and_its_address() {
    let mut decoder = decoder(Role::Entry, &[word(Value::Cook, 0), word(Value::Orders, 1)]);
    decoder.add_names(TARGET, &[named("Anna", 0x1000, Some(0x2000)), named("Bert", 0x3000, None)], 0x10);
    let mut name = |address| decode(&mut decoder, &hit(SITE, 0, words(&[address]))).take_name(Value::Cook);
    let names = [0x1010, 0x2010, 0x3010, 0x3000].map(|address| name(address).map(|name| name.to_string()));
    assert_eq!(names.each_ref().map(Option::as_deref), [Some("Anna"), Some("Anna"), Some("Bert"), None]);
}

#[test]
fn records_of_another_length_or_site_are_refused() {
    let mut decoder = decoder(Role::Entry, &[]);
    assert_eq!(decoder.decode(&[0; 71]), Err(Undecodable::Length(71)));
    assert_eq!(decoder.decode(&hit(SITE + 1, 0, [0; MAX_WORDS])), Err(Undecodable::Site(SITE + 1)));
    assert_eq!(site_of(&hit(SITE, 0, [0; MAX_WORDS])), Ok(SITE));
    assert_eq!((site_of(&[0; 28]), site_of(&[0; 27])), (Ok(0), Err(Undecodable::Length(27))));
}

#[test]
fn a_removed_site_is_unknown() {
    let mut decoder = decoder(Role::Entry, &[]);
    decoder.add(SITE + 2, &site(Role::Ret, &[]));
    assert_eq!(
        [SITE, SITE + 1, SITE + 2, SITE + 3].map(|number| decoder.knows(number)),
        [true, false, true, false]
    );
    decoder.remove(SITE);
    decoder.remove(SITE + 3);
    assert!(!decoder.knows(SITE) && decoder.knows(SITE + 2));
    assert_eq!(decoder.decode(&hit(SITE, 0, [0; MAX_WORDS])), Err(Undecodable::Site(SITE)));
    let event = decoder.decode(&hit(SITE + 2, 0, [0; MAX_WORDS])).expect("it is attached");
    assert_eq!(event.role, Role::Ret);
}

/// A whole second of 2026-01-01.
const UNIX_SECONDS: u64 = 1_767_225_600;
const SECOND: u64 = 1_000_000_000;

/// As `time.Now()` would store it.
fn wall(unix_ns: u64) -> u64 {
    let seconds = (unix_ns / SECOND).cast_signed() + UNIX_ZERO - GO_WALL_ZERO;
    (1 << 63) | (seconds.cast_unsigned() << 30) | (unix_ns % SECOND)
}

#[test]
fn a_metric_site_has_the_start_of_its_call() {
    let mut decoder = decoder(
        Role::Metric,
        &[(Reading::StartWall, Slot::Word(0)), (Reading::StartMonotonic, Slot::Word(1))],
    );
    decoder.set_clock(UNIX_SECONDS * SECOND);
    // The process began at 5 s, and at 7 s it took 100 ns from one clock to the other.
    let mut started = |wall_ns: u64, monotonic_ns: u64| {
        let record = hit(SITE, 0, words(&[wall(UNIX_SECONDS * SECOND + wall_ns), monotonic_ns]));
        decode(&mut decoder, &record).number(Value::Started)
    };
    assert_eq!(started(7 * SECOND, 2 * SECOND + 100), Some(7 * SECOND));
    // It is known better as soon as it took less, and stays so.
    assert_eq!(started(8 * SECOND, 3 * SECOND), Some(8 * SECOND));
    assert_eq!(started(9 * SECOND, 4 * SECOND + 100), Some(9 * SECOND + 100));
    // The wall clock is set.
    assert_eq!(started(3_600 * SECOND, 5 * SECOND), Some(10 * SECOND));
    assert_eq!(started(0, 6 * SECOND), Some(11 * SECOND));
    // A new process with the same number has a clock of its own.
    decoder.remove_names(TARGET);
    let record = hit(SITE, 0, words(&[wall(UNIX_SECONDS * SECOND + 20 * SECOND), SECOND]));
    assert_eq!(decode(&mut decoder, &record).number(Value::Started), Some(20 * SECOND));
}

#[test]
fn the_start_of_a_call_uses_both_clocks() {
    let both = [(Reading::StartWall, Slot::Word(0)), (Reading::StartMonotonic, Slot::Word(1))];
    let mut decoder = decoder(Role::Metric, &both);
    let mut read = |faults, first| decode(&mut decoder, &hit(SITE, faults, words(&[first, SECOND])));
    assert_eq!(read(0b01, wall(UNIX_SECONDS * SECOND)), Values::default());
    assert_eq!(read(0b10, wall(UNIX_SECONDS * SECOND)), Values::default());
    // It did not come from the clock.
    assert_eq!(read(0, 5), Values::default());
}

#[test]
fn a_closure_that_does_not_return_into_its_function_is_run_by_a_panic() {
    let mut decoder = decoder(Role::Metric, &[(Reading::ReturnAddress, Slot::Word(0))]);
    // `hit` is of process 3.
    decoder.add_names(TARGET, &[], 0x40_0000);
    let mut panics = |address| decode(&mut decoder, &hit(SITE, 0, words(&[address]))).flag(Value::Panics);
    assert_eq!(panics(0x40_1800), Some(false));
    assert_eq!(panics(0x40_2000), Some(true));
    assert_eq!(panics(0x1800), Some(true));

    // Its caller's arguments are somewhere else then.
    let both = [(Reading::Value(Value::Orders), Slot::Word(0)), (Reading::ReturnAddress, Slot::Word(1))];
    let mut decoder = self::decoder(Role::Metric, &both);
    let mut number =
        |address| decode(&mut decoder, &hit(SITE, 0, words(&[7, address]))).number(Value::Orders);
    assert_eq!([number(0x1800), number(0x2000)], [Some(7), None]);
}

#[test]
fn a_start_in_the_frame_of_a_caller_is_that_of_one_caller_only() {
    let reads = [
        (Reading::StartWall, Slot::Word(0)),
        (Reading::StartMonotonic, Slot::Word(1)),
        (Reading::ReturnAddress, Slot::Word(2)),
        (Reading::Value(Value::Orders), Slot::Word(3)),
    ];
    let mut decoder = decoder(Role::Entry, &reads);
    let mut read = |address| {
        let words = words(&[wall(UNIX_SECONDS * SECOND), SECOND, address, 7]);
        let values = decode(&mut decoder, &hit(SITE, 0, words));
        (values.number(Value::Started).is_some(), values.number(Value::Orders), values.flag(Value::Panics))
    };
    assert_eq!(read(0x1800), (true, Some(7), None));
    assert_eq!(read(0x2000), (false, Some(7), None));
}

#[test]
fn a_result_is_the_label_of_the_metric() {
    let code = |read: &[u8; 8], length| result(METRIC.results, u64::from_ne_bytes(*read), length);
    assert_eq!(code(b"SuccessE", 7), Some(0));
    assert_eq!(code(b"ErrorSuc", 5), Some(1));
    assert_eq!(code(b"Unschedu", 13), Some(2));
    assert_eq!(code(b"Unschedu", 28), Some(3));
    assert_eq!(code(b"WaitSkip", 4), Some(4));
    assert_eq!(code(b"SkipWait", 4), Some(5));
    assert_eq!(code(b"PendingS", 7), Some(6));
    assert_eq!(code(b"SuccessE", 8), None);
    assert_eq!(code(&[0; 8], 0), None);
}

#[test]
fn a_result_takes_the_label_and_its_length() {
    let both = [(Reading::Result, Slot::Word(0)), (Reading::ResultLength, Slot::Word(1))];
    let mut decoder = decoder(Role::Metric, &both);
    let mut read = |faults| {
        let record = hit(SITE, faults, words(&[u64::from_ne_bytes(*b"SkipWait"), 4]));
        decode(&mut decoder, &record).signed(Value::Result)
    };
    assert_eq!([0, 0b01, 0b10].map(&mut read), [Some(5), None, None]);
}

#[test]
fn a_go_time_is_read_in_unix_nanoseconds() {
    let unix = UNIX_SECONDS * SECOND + 5;
    assert_eq!(unix_ns(wall(unix)), Some(unix));
    assert_eq!(unix_ns(5), None);
    assert_eq!(unix_ns(wall(unix) & !(1 << 63)), None, "it is not from the clock");
    // `time.wallToInternal` and `time.unixToInternal` are so far apart.
    let seconds = 62_135_596_800 - 59_453_308_800;
    assert_eq!(unix_ns((1 << 63) | (seconds << 30)), Some(0));
    assert_eq!(unix_ns((1 << 63) | ((seconds - 1) << 30)), None, "before 1970");
    assert_eq!(unix_ns((1 << 63) | ((seconds + 3) << 30) | 999_999_999), Some(3_999_999_999));
}

/// The types of errors whose message is where it is read.
const TYPES: &[&str] = &["*errors.errorString", "*fmt.wrapError"];

/// An error by its type's address and what lies where the message would be.
fn failure(faults: u32, typ: u64, message: &[u8]) -> (Option<u64>, Option<String>) {
    let reads = [
        (Reading::Failure(Value::Orders), Slot::Word(0)),
        (Reading::MessageOf(Value::Dish, TYPES), Slot::Text(0)),
    ];
    let mut decoder = decoder(Role::ReturnSite, &reads);
    let types = [(0x1000, "*fmt.wrapError".to_owned()), (0x2000, "*fs.PathError".to_owned())];
    decoder.add_errors(TARGET, &types, 0x40_0000);
    decoder.add_errors(TARGET + 1, &[(0x3000, "*fmt.wrapError".to_owned())], 0x40_0000);
    let mut values = decode(&mut decoder, &text_hit(faults, words(&[typ]), &[message]));
    (values.number(Value::Orders), values.take_text(Value::Dish))
}

#[test]
fn an_error_is_a_failure_with_its_message() {
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(failure(0, 0, b""), (Some(0), text("")), "nil is none");
    assert_eq!(failure(0, 0x40_1000, b"no salt"), (Some(1), text("no salt")));
    // What lies there is another field.
    assert_eq!(failure(0, 0x40_2000, b"open"), (Some(1), text("*fs.PathError")));
    assert_eq!(failure(0, 0x40_3000, b"open"), (Some(1), None), "the type is another process's");
    assert_eq!(failure(0, 0x1000, b"open"), (Some(1), None), "it is loaded elsewhere");
}

#[test]
fn an_error_that_could_not_be_read_has_no_message() {
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(failure(0b10, 0x40_1000, b"no salt"), (Some(1), None));
    assert_eq!(failure(0b10, 0x40_2000, b"open"), (Some(1), text("*fs.PathError")), "the type is known");
    assert_eq!(failure(0b01, 0x40_1000, b"no salt"), (None, None), "what lies there may be anything");
    assert_eq!(failure(0b11, 0x40_1000, b"no salt"), (None, None));
}

#[test]
fn an_ended_process_has_no_types_of_errors() {
    let mut decoder = decoder(
        Role::Ret,
        &[
            (Reading::Failure(Value::Orders), Slot::Word(0)),
            (Reading::MessageOf(Value::Dish, TYPES), Slot::Text(0)),
        ],
    );
    decoder.add_errors(TARGET, &[(0x1000, "*fmt.wrapError".to_owned())], 0);
    decoder.remove_names(TARGET + 1);
    let record = text_hit(0, words(&[0x1000]), &[b"no salt"]);
    assert_eq!(decode(&mut decoder, &record).text(Value::Dish), Some("no salt"));
    decoder.remove_names(TARGET);
    assert_eq!(decode(&mut decoder, &record).text(Value::Dish), None);
}

#[test]
fn a_field_is_read_only_of_a_type_that_begins_like_the_named_one() {
    let mut decoder = decoder(
        Role::ReturnSite,
        &[
            (Reading::NameOfLike(Value::Cook), Slot::Word(0)),
            (Reading::Like(Value::Dish), Slot::Text(0)),
            (Reading::Like(Value::Orders), Slot::Word(1)),
        ],
    );
    decoder.add_alike(TARGET, &[(0x1000, "*main.chef".to_owned())], 0x40_0000);
    decoder.add_errors(TARGET, &[(0x2000, "*fmt.wrapError".to_owned())], 0x40_0000);
    let mut read = |faults, typ| {
        let mut values = decode(&mut decoder, &text_hit(faults, words(&[typ, 7]), &[b"soup"]));
        let name = values.take_name(Value::Cook);
        (name, values.number(Value::Orders), values.take_text(Value::Dish))
    };
    let known = (Some(Arc::from("*main.chef")), Some(7), Some("soup".to_owned()));
    assert_eq!(read(0, 0x40_1000), known);
    for (faults, typ) in [(0, 0x40_2000), (0, 0x1000), (0, 0), (0b001, 0x40_1000)] {
        assert_eq!(read(faults, typ), (None, None, None), "{faults:b} {typ:#x}");
    }
    decoder.remove_names(TARGET);
    let record = text_hit(0, words(&[0x40_1000, 7]), &[b"soup"]);
    assert_eq!(decode(&mut decoder, &record), Values::default());
}

fn value() -> impl Strategy<Value = Value> {
    (0..VALUES.len()).prop_map(|number| VALUES[number])
}

fn reading() -> impl Strategy<Value = Reading<Value>> {
    prop_oneof![
        6 => value().prop_map(Reading::Value),
        1 => (value(), any::<u8>()).prop_map(|(value, place)| Reading::TextAt(value, place)),
        1 => value().prop_map(Reading::Failure),
        1 => value().prop_map(Reading::NameOfLike),
        1 => value().prop_map(Reading::Like),
        1 => value().prop_map(|value| Reading::MessageOf(value, TYPES)),
        1 => Just(Reading::StartWall),
        1 => Just(Reading::StartMonotonic),
        1 => Just(Reading::Result),
        1 => Just(Reading::ResultLength),
        1 => Just(Reading::ReturnAddress),
    ]
}

/// Slots that no record has are among them.
fn slot() -> impl Strategy<Value = Slot> {
    prop_oneof![(0..MAX_WORDS + 2).prop_map(Slot::Word), (0..MAX_TEXTS + 2).prop_map(Slot::Text)]
}

fn planned() -> impl Strategy<Value = Planned> {
    let values = vec((reading(), slot()), 0..=MAX_READS);
    (values, option::of(value()), any::<i64>(), option::of(any::<Range<u64>>())).prop_map(
        |(values, list, stack_depth, called_by)| Planned {
            list,
            stack_depth,
            called_by,
            ..site(Role::Metric, &values)
        },
    )
}

/// Of every length that a record has; only the number of the site is what it must be.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let lengths = [
        size_of::<Hit>(),
        size_of::<TextHit>(),
        size_of::<LongTextHit>(),
        size_of::<TopHit>(),
        size_of::<MapHit>(),
        size_of::<MapChunk>(),
    ];
    (0..lengths.len()).prop_flat_map(move |number| vec(any::<u8>(), lengths[number])).prop_map(|mut bytes| {
        bytes[offset_of!(Hit, site)..][..4].copy_from_slice(&SITE.to_ne_bytes());
        bytes
    })
}

proptest! {
    #[test]
    fn no_record_and_no_site_make_it_panic(
        site in planned(), records in vec(bytes(), 1..4), clock in any::<u64>(), bias in any::<u64>(),
    ) {
        let mut decoder = Decoder::default();
        decoder.add(SITE, &site);
        decoder.set_clock(clock);
        decoder.add_names(TARGET, &[named("Anna", 0x1000, Some(u64::MAX))], bias);
        decoder.add_errors(TARGET, &[(u64::MAX, "*fmt.wrapError".to_owned())], bias);
        for record in records {
            if Decoder::<Kitchen>::is_part(&record) {
                // Few bytes are as many entries as they claim to be.
                let _whole = decoder.add_part(&record);
            } else {
                prop_assert!(decoder.decode(&record).is_ok());
            }
        }
    }

    #[test]
    fn no_bytes_of_any_length_make_it_panic(record in vec(any::<u8>(), 0..200)) {
        let _event = decoder(Role::Entry, &[word(Value::Orders, 0)]).decode(&record);
    }

    #[test]
    fn a_fault_removes_its_value_and_no_other(read in vec(any::<u64>(), MAX_WORDS), faults in any::<u8>()) {
        let kinds = [Value::Orders, Value::Change, Value::Paid, Value::Ordered, Value::Cook, Value::Started];
        let reads: Vec<_> = kinds.iter().enumerate().map(|(number, value)| word(*value, number)).collect();
        let mut decoder = decoder(Role::Entry, &reads);
        decoder.add_names(TARGET, &[named("Anna", read[4], None)], 0);
        let mut expected = decode(&mut decoder, &hit(SITE, 0, words(&read)));
        for (number, value) in kinds.into_iter().enumerate().filter(|(number, _)| faults >> number & 1 != 0) {
            expected.set(value, None::<Datum>);
            prop_assert!(number < 6);
        }
        prop_assert_eq!(decode(&mut decoder, &hit(SITE, faults.into(), words(&read))), expected);
    }
}
