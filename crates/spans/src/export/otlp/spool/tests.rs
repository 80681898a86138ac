use std::{
    collections::VecDeque,
    env, process,
    sync::atomic::{AtomicU64, Ordering},
};

use proptest::{collection::vec, prelude::*};

use super::*;

const LIMIT: u64 = 64 << 10;
/// An entry of so many bytes fills a quarter of a segment.
const QUARTER: usize = (LIMIT / SEGMENTS / 4) as usize - HEAD;

/// A directory that is removed with its contents.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(env::temp_dir().join(format!("schedspan-spool-{}-{number}", process::id())))
    }

    fn open(&self) -> Spool {
        Spool::open(&self.0, LIMIT).unwrap()
    }

    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let mut segments: Vec<_> =
            files.filter(|path| path.extension().is_some_and(|extension| extension == "spool")).collect();
        segments.sort();
        segments
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Takes and settles everything: the entries, and the spans of damaged places.
fn drain(spool: &mut Spool) -> (Vec<Vec<u8>>, Vec<u64>) {
    let (mut entries, mut damaged) = (Vec::new(), Vec::new());
    loop {
        match spool.next().unwrap() {
            Next::Entry(entry) => {
                entries.push(entry);
                spool.settle().unwrap();
            }
            Next::Damaged { spans, .. } => damaged.push(spans),
            Next::Nothing => return (entries, damaged),
        }
    }
}

#[test]
fn entries_that_did_not_arrive_are_there_after_a_restart_in_order() {
    let directory = Directory::new();
    let mut spool = directory.open();
    for entry in [&b"first"[..], b"second", b"third"] {
        assert_eq!(spool.append(entry, 2).unwrap(), 0);
    }
    assert_eq!(spool.next().unwrap(), Next::Entry(b"first".to_vec()));
    spool.settle().unwrap();
    assert_eq!(spool.next().unwrap(), Next::Entry(b"second".to_vec()), "taken, and not settled");
    drop(spool);
    let mut spool = directory.open();
    assert_eq!(spool.spans(), 4);
    assert_eq!(drain(&mut spool), (vec![b"second".to_vec(), b"third".to_vec()], vec![]));
    assert_eq!(spool.spans(), 0);
    drop(spool);
    let mut spool = directory.open();
    assert_eq!(spool.next().unwrap(), Next::Nothing);
}

#[test]
fn a_full_spool_loses_its_oldest_segment_and_says_how_many_spans() {
    let directory = Directory::new();
    let mut spool = directory.open();
    let (entry, mut lost) = (vec![7; 1_000], 0);
    for _ in 0..100 {
        lost += spool.append(&entry, 3).unwrap();
        assert!(spool.bytes() <= LIMIT);
    }
    assert!(lost > 0);
    assert_eq!(spool.spans() + lost, 300);
    let (entries, damaged) = drain(&mut spool);
    assert_eq!((entries.len() as u64 * 3 + lost, damaged), (300, vec![]));
    assert_eq!(directory.segments().len(), 1);
}

#[test]
fn an_entry_on_its_way_is_kept_when_its_segment_goes_and_is_there_after_a_restart() {
    let directory = Directory::new();
    let mut spool = directory.open();
    let on_its_way = vec![1; 1_000];
    spool.append(&on_its_way, 3).unwrap();
    assert_eq!(spool.next().unwrap(), Next::Entry(on_its_way.clone()));
    let (mut lost, mut appended) = (0, 1);
    // Its own segment and the next one go.
    while lost < 3 * 6 {
        lost += spool.append(&[7; 1_000], 3).unwrap();
        appended += 1;
        assert!(spool.bytes() <= LIMIT);
        assert_eq!(spool.spans() + lost, 3 * appended);
    }
    drop(spool);
    let (entries, damaged) = drain(&mut directory.open());
    assert_eq!(entries[0], on_its_way);
    assert_eq!((entries.len() as u64 * 3 + lost, damaged), (3 * appended, vec![]));
}

#[test]
fn a_segment_and_the_spool_are_full_at_their_last_byte() {
    let directory = Directory::new();
    let mut spool = directory.open();
    for number in 1..=64_usize {
        assert_eq!(spool.append(&[7; QUARTER], 3).unwrap(), 0);
        assert_eq!(directory.segments().len(), number.div_ceil(4));
    }
    assert_eq!(spool.bytes(), LIMIT);
    assert_eq!(spool.append(&[7; QUARTER], 3).unwrap(), 4 * 3, "the oldest segment goes");
}

#[test]
fn what_is_behind_an_entry_on_its_way_is_the_oldest_and_goes_first() {
    let directory = Directory::new();
    let mut spool = directory.open();
    let mut lost = 0;
    for number in 0..100 {
        lost += spool.append(&[number; QUARTER], 1).unwrap();
        if number == 0 {
            assert_eq!(spool.next().unwrap(), Next::Entry(vec![0; QUARTER]));
        }
    }
    let (entries, damaged) = drain(&mut spool);
    let numbers: Vec<_> = entries.iter().map(|entry| entry[0]).collect();
    let expected: Vec<_> = [0].into_iter().chain(1 + lost as u8..100).collect();
    assert_eq!((numbers, damaged), (expected, vec![]));
}

#[test]
fn beside_a_large_entry_on_its_way_the_segment_that_is_written_is_kept() {
    let directory = Directory::new();
    let mut spool = directory.open();
    let entries = [vec![1; LIMIT as usize - 3_500], vec![2; 1_000], vec![3; 3_000]];
    for entry in &entries {
        assert_eq!(spool.append(entry, 1).unwrap(), 0);
        assert_eq!(spool.next().unwrap(), Next::Entry(entries[0].clone()));
    }
    assert!(spool.bytes() > LIMIT, "the test does not test");
    assert_eq!(drain(&mut spool), (entries.to_vec(), vec![]));
}

#[test]
fn an_entry_that_is_larger_than_the_spool_is_kept_until_there_is_another() {
    let directory = Directory::new();
    let mut spool = directory.open();
    assert_eq!(spool.append(&vec![1; LIMIT as usize], 3).unwrap(), 0);
    assert_eq!(spool.spans(), 3);
    assert_eq!(spool.append(b"second", 1).unwrap(), 3);
    assert_eq!(drain(&mut spool), (vec![b"second".to_vec()], vec![]));
}

#[test]
fn an_entry_may_be_empty() {
    let directory = Directory::new();
    directory.open().append(b"", 1).unwrap();
    assert_eq!(drain(&mut directory.open()), (vec![vec![]], vec![]));
}

#[test]
fn the_number_of_a_segment_that_is_gone_is_not_used_again() {
    let directory = Directory::new();
    let mut spool = directory.open();
    spool.append(b"first", 1).unwrap();
    drain(&mut spool);
    drop(spool);
    fs::remove_file(&directory.segments()[0]).unwrap();
    // The position is still behind an entry of this length.
    directory.open().append(b"later", 1).unwrap();
    assert_eq!(drain(&mut directory.open()), (vec![b"later".to_vec()], vec![]));
}

/// Everything in a spool whose only segment has these bytes before an entry.
fn behind(damage: &[u8]) -> (Vec<Vec<u8>>, Vec<u64>) {
    let directory = Directory::new();
    directory.open().append(b"whole", 2).unwrap();
    let segment = &directory.segments()[0];
    let bytes = [damage, &fs::read(segment).unwrap()].concat();
    fs::write(segment, bytes).unwrap();
    let mut spool = directory.open();
    assert_eq!(spool.spans(), 2);
    drain(&mut spool)
}

#[test]
fn damage_that_looks_like_entries_is_one_place() {
    assert_eq!(behind(&MAGIC.repeat(30)), (vec![b"whole".to_vec()], vec![0]));
}

/// A segment is searched in blocks of 64 KiB.
#[test]
fn an_entry_behind_damage_is_found_across_the_edge_of_a_block() {
    for length in (64 << 10) - 5..(64 << 10) + 5 {
        assert_eq!(behind(&vec![0; length]), (vec![b"whole".to_vec()], vec![0]), "{length}");
    }
}

#[test]
fn a_damaged_entry_is_skipped_and_its_spans_are_counted() {
    let directory = Directory::new();
    let mut spool = directory.open();
    for entry in [&b"first"[..], b"second", b"third"] {
        spool.append(entry, 5).unwrap();
    }
    drop(spool);
    let segment = &directory.segments()[0];
    let mut bytes = fs::read(segment).unwrap();
    let at = bytes.windows(6).position(|window| window == b"second").unwrap();
    bytes[at] ^= 1;
    fs::write(segment, &bytes).unwrap();
    assert_eq!(drain(&mut directory.open()), (vec![b"first".to_vec(), b"third".to_vec()], vec![5]));
}

#[test]
fn a_second_process_is_refused() {
    let directory = Directory::new();
    let _first = directory.open();
    let refusal = Spool::open(&directory.0, LIMIT).unwrap_err();
    assert!(refusal.contains("another process uses it"), "{refusal}");
}

#[test]
fn a_segment_that_is_cut_while_it_is_used_is_damaged_and_new_entries_are_kept() {
    let directory = Directory::new();
    let mut spool = directory.open();
    spool.append(b"first", 1).unwrap();
    File::options().write(true).open(&directory.segments()[0]).unwrap().set_len(10).unwrap();
    assert!(matches!(spool.next().unwrap(), Next::Damaged { .. }));
    spool.append(b"second", 1).unwrap();
    let (entries, _) = drain(&mut spool);
    assert_eq!(entries, [b"second"]);
}

#[test]
fn a_size_has_a_unit_and_bounds() {
    assert_eq!(size("256MiB"), Ok(256 << 20));
    assert_eq!(size("1048576"), Ok(1 << 20));
    for bad in ["", "1MB", "1023KiB", "2048GiB", "-1", "99999999999999999999GiB"] {
        assert!(size(bad).is_err(), "{bad}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    /// Takes an entry.
    Take,
    /// Takes and settles an entry.
    Arrive,
    /// Takes an entry, and starts again without settling it.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_usize..6_000).prop_map(Step::Append),
        1 => Just(Step::Take),
        3 => Just(Step::Arrive),
        1 => Just(Step::Restart),
    ];
    vec(step, 0..120)
}

proptest! {
    #[test]
    fn every_entry_arrives_in_order_or_is_counted_as_lost(steps in steps()) {
        let directory = Directory::new();
        let mut spool = directory.open();
        let mut waiting = VecDeque::new();
        // Those that are not lost any more.
        let mut taken = 0;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Append(length) => {
                    let entry = [&(number as u64).to_le_bytes()[..], &vec![number as u8; length]].concat();
                    let lost = spool.append(&entry, 1).unwrap();
                    waiting.push_back(entry);
                    waiting.drain(taken..taken + usize::try_from(lost).unwrap());
                }
                Step::Take => {
                    spool.next().unwrap();
                    taken = waiting.len().min(1);
                }
                Step::Arrive => match spool.next().unwrap() {
                    Next::Entry(entry) => {
                        prop_assert_eq!(Some(entry), waiting.pop_front());
                        spool.settle().unwrap();
                        taken = 0;
                    }
                    Next::Nothing => prop_assert!(waiting.is_empty()),
                    Next::Damaged { place, .. } => panic!("{place}"),
                },
                Step::Restart => {
                    spool.next().unwrap();
                    drop(spool);
                    spool = directory.open();
                    taken = 0;
                }
            }
            prop_assert_eq!(spool.spans(), waiting.len() as u64);
        }
        prop_assert_eq!(drain(&mut spool), (Vec::from(waiting), vec![]));
    }

    #[test]
    fn whatever_is_in_the_files_whole_entries_behind_it_arrive(
        garbage in vec(any::<u8>(), 0..200),
        position in vec(any::<u8>(), 0..24),
        flipped in any::<prop::sample::Index>(),
    ) {
        let directory = Directory::new();
        let mut spool = directory.open();
        spool.append(b"first", 1).unwrap();
        drop(spool);
        let segment = &directory.segments()[0];
        let mut bytes = fs::read(segment).unwrap();
        let at = flipped.index(bytes.len());
        bytes[at] ^= 0x55;
        bytes.extend(garbage);
        fs::write(segment, &bytes).unwrap();
        fs::write(directory.0.join(POSITION), position).unwrap();
        let mut spool = directory.open();
        spool.append(b"second", 1).unwrap();
        let (entries, damaged) = drain(&mut spool);
        prop_assert_eq!(entries, [b"second"]);
        prop_assert!(!damaged.is_empty());
    }
}
