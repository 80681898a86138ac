//! Decodes records of the eBPF programs into events of a program.

pub(crate) mod lists;
#[cfg(test)]
mod tests;

use std::{collections::hash_map::Entry, ops::Range, sync::Arc};

use foldhash::fast::RandomState;
use interned::Interner;
use wire::{
    Hit, LONG_TEXT_LEN, LongTextHit, MAX_TARGETS, MAX_TEXTS, MAX_WORDS, MapChunk, MapHit, TEXT_LEN, TextHit,
    TopHit,
};

use self::lists::Walk;
pub use self::lists::{Element, Entries, Group, Listed, Top};
use crate::{
    plan::{
        row::{Held, Role},
        site::{PlannedSite, Reading, Slot},
    },
    program::{Event, Named, Program},
    values::{Datum, Kind, Value as _, Values},
};

/// Seconds from year 1 to 1885 (the zero of a `time.Time` with a monotonic reading) and to 1970.
/// <https://github.com/golang/go/blob/go1.26.5/src/time/time.go#L504-L514>
const GO_WALL_ZERO: i64 = (1884 * 365 + 1884 / 4 - 1884 / 100 + 1884 / 400) * 86_400;
const UNIX_ZERO: i64 = (1969 * 365 + 1969 / 4 - 1969 / 100 + 1969 / 400) * 86_400;

/// Longest plausible time between Go's readings of the two clocks.
const MAX_BETWEEN_CLOCKS_NS: i64 = 10_000_000;

/// Why a record cannot be decoded. This does not happen with the eBPF object of the same build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    /// The length matches no kind of record.
    #[error("a record of {0} bytes")]
    Length(usize),
    /// The site is detached, or was never attached.
    #[error("a record of site {0}, which is not attached")]
    Site(u32),
}

/// For keys that are addresses and numbers. Randomly seeded, and quicker than the standard hash.
type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// Decodes records: maps site numbers to functions, and addresses in each process to names and error types.
#[derive(Debug)]
pub struct Decoder<P: Program> {
    /// Sites by number.
    sites: Vec<Option<Meaning<P>>>,
    /// Names by process and address, of a type descriptor or of the name itself.
    names: HashMap<(u32, u64), Arc<str>>,
    /// Names of error types by process and address of their descriptor.
    errors: HashMap<(u32, u64), Arc<str>>,
    /// Names of types that begin like one that the program names, by process and address of their descriptor.
    alike: HashMap<(u32, u64), Arc<str>>,
    /// Load bias of the executable, by process.
    biases: HashMap<u32, u64>,
    /// Unix time at `CLOCK_MONOTONIC` 0, nanoseconds.
    unix_ns_at_zero: u64,
    /// `CLOCK_MONOTONIC` at the zero of Go's monotonic clock, by process.
    zeros: HashMap<u32, i64>,
    /// The map that each process is walking.
    walks: HashMap<u32, Walk>,
    /// The keys of maps.
    keys: Interner<str>,
}

#[derive(Debug)]
struct Meaning<P: Program> {
    function: P::Function,
    role: Role,
    stack_depth: i64,
    called_by: Option<Range<u64>>,
    values: Vec<(Reading<P::Value>, Slot)>,
    list: Option<P::Value>,
}

/// Reads of a site that are only meaningful in combination.
#[derive(Default)]
struct Together {
    start_wall: Option<u64>,
    start_monotonic: Option<i64>,
    result: Option<u64>,
    result_length: Option<u64>,
    /// `Some` for an error that is not nil, or was not readable, with the name of its type if known.
    error: Option<Option<Arc<str>>>,
    /// Whether an interface holds a type that begins like one that the program names.
    is_alike: bool,
    /// Whether what was hit returns elsewhere: a closure that the runtime has called after a panic, or a function whose caller keeps no
    /// start.
    is_elsewhere: bool,
}

impl<P: Program> Default for Decoder<P> {
    fn default() -> Self {
        Self {
            sites: Vec::new(),
            names: HashMap::default(),
            errors: HashMap::default(),
            alike: HashMap::default(),
            biases: HashMap::default(),
            unix_ns_at_zero: 0,
            zeros: HashMap::default(),
            walks: HashMap::default(),
            keys: Interner::default(),
        }
    }
}

impl<P: Program> Decoder<P> {
    /// Assigns this number to a site.
    pub fn add(&mut self, number: u32, site: &PlannedSite<P>) {
        let PlannedSite { function, role, stack_depth, called_by, values, list, .. } = site.clone();
        let meaning = Meaning { function, role, stack_depth, called_by, values, list };
        let number = number as usize;
        if self.sites.len() <= number {
            self.sites.resize_with(number + 1, || None);
        }
        self.sites[number] = Some(meaning);
    }

    /// Forgets the site with this number.
    pub fn remove(&mut self, number: u32) {
        if let Some(meaning) = self.sites.get_mut(number as usize) {
            *meaning = None;
        }
    }

    /// Adds the names of a process. `bias` is the load bias of its executable.
    pub fn add_names(&mut self, target: u32, names: &[Named], bias: u64) {
        self.biases.insert(target, bias);
        for Named { name, descriptor, constant, .. } in names {
            let name: Arc<str> = name.as_str().into();
            for address in constant.iter().chain([descriptor]) {
                self.names.insert((target, address.wrapping_add(bias)), Arc::clone(&name));
            }
        }
    }

    /// Adds the error types of a process, by the address of their descriptors. `bias` is the load bias of its
    /// executable.
    pub fn add_errors(&mut self, target: u32, errors: &[(u64, String)], bias: u64) {
        self.errors.extend(types(target, errors, bias));
    }

    /// Adds the types of a process that begin like one that the program names, as [`Self::add_errors`].
    pub fn add_alike(&mut self, target: u32, alike: &[(u64, String)], bias: u64) {
        self.alike.extend(types(target, alike, bias));
    }

    /// Sets the Unix time at `CLOCK_MONOTONIC` 0, nanoseconds.
    pub fn set_clock(&mut self, unix_ns_at_zero: u64) {
        self.unix_ns_at_zero = unix_ns_at_zero;
    }

    /// The name at an address in a process.
    pub(crate) fn name(&self, target: u32, address: u64) -> Option<Arc<str>> {
        self.names.get(&(target, address)).cloned()
    }

    /// Forgets the names of a process that has ended.
    pub fn remove_names(&mut self, target: u32) {
        self.zeros.remove(&target);
        self.walks.remove(&target);
        self.biases.remove(&target);
        self.names.retain(|(of, _), _| *of != target);
        self.errors.retain(|(of, _), _| *of != target);
        self.alike.retain(|(of, _), _| *of != target);
    }

    /// Whether this decoder has a site with this number.
    #[must_use]
    pub fn knows(&self, number: u32) -> bool {
        self.sites.get(number as usize).is_some_and(Option::is_some)
    }

    /// Whether a record is part of the next one of its process, for [`Self::add_part`].
    #[must_use]
    pub fn is_part(record: &[u8]) -> bool {
        record.len() == size_of::<MapChunk>()
    }

    /// Keeps a part until the record that it belongs to is decoded.
    ///
    /// # Errors
    ///
    /// When it is not whole.
    pub fn add_part(&mut self, record: &[u8]) -> Result<(), Undecodable> {
        let (Self { walks, keys, names, .. }, target) = (self, target_of(record)?);
        if walks.len() >= MAX_TARGETS as usize && !walks.contains_key(&target) {
            // Of processes that ended within a walk.
            walks.clear();
        }
        let name = |address| names.get(&(target, address)).cloned();
        let added = walks.entry(target).or_default().add(record, keys, name);
        added.ok_or(Undecodable::Length(record.len()))
    }

    /// Decodes one record of the ring buffer that [is no part](Self::is_part).
    ///
    /// # Errors
    ///
    /// When its length matches no kind of record, or its site is not attached.
    pub fn decode(&mut self, record: &[u8]) -> Result<Event<P>, Undecodable> {
        // Lengths of the strings, the strings, and the capacity of each.
        let texts = match record.len() {
            length if [size_of::<Hit>(), size_of::<TopHit>(), size_of::<MapHit>()].contains(&length) => None,
            length if length == size_of::<TextHit>() => {
                Some((record[size_of::<Hit>()..].split_at(4 * MAX_TEXTS), TEXT_LEN))
            }
            length if length == size_of::<LongTextHit>() => {
                Some((record[size_of::<Hit>()..].split_at(8), LONG_TEXT_LEN))
            }
            length => return Err(Undecodable::Length(length)),
        };
        let long = |at: usize| u64::from_ne_bytes(record[at..at + 8].try_into().unwrap_or_default());
        let int = |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().unwrap_or_default());
        let site = site_of(record)?;
        let Meaning { function, role, stack_depth, called_by, values, list } =
            self.sites.get(site as usize).and_then(Option::as_ref).ok_or(Undecodable::Site(site))?;
        let (target, faults) = (target_of(record)?, int(32));
        let mut read = Values::default();
        read.reserve(values.len());
        let mut together = Together::default();
        // For an interface: the value that receives its strings, and their number.
        let mut held = None;
        for (index, (reading, slot)) in values.iter().enumerate() {
            if faults >> index & 1 != 0 {
                match reading {
                    // The read failed: the place stays empty.
                    Reading::TextAt(value, place) => read.set_text_at(*value, (*place).into(), None),
                    // The read failed: an error of an unknown type, or nil.
                    Reading::Failure(_) => together.error = Some(None),
                    Reading::Value(_)
                    | Reading::MessageOf(..)
                    | Reading::Holds(..)
                    | Reading::NameOfLike(_)
                    | Reading::Like(_)
                    | Reading::StartWall
                    | Reading::StartMonotonic
                    | Reading::Result
                    | Reading::ResultLength
                    | Reading::ReturnAddress => {}
                }
                continue;
            }
            match *slot {
                Slot::Word(number) if number < MAX_WORDS => {
                    let word = long(48 + 8 * number);
                    match reading {
                        Reading::Value(value) => match value.kind() {
                            Kind::Number | Kind::Signed => read.set(*value, word),
                            Kind::Flag => read.set(*value, word & 0xff != 0),
                            Kind::Time => read.set(*value, unix_ns(word)),
                            Kind::Name => read.set(*value, self.names.get(&(target, word)).cloned()),
                            // Unreachable: these kinds are read as strings or lists.
                            Kind::Text | Kind::LongText | Kind::Texts | Kind::Top | Kind::Entries => {}
                        },
                        Reading::Failure(value) => {
                            read.set(*value, u64::from(word != 0));
                            together.error = (word != 0).then(|| self.errors.get(&(target, word)).cloned());
                        }
                        Reading::StartWall => together.start_wall = unix_ns(word),
                        Reading::StartMonotonic => together.start_monotonic = Some(word.cast_signed()),
                        Reading::Result => together.result = Some(word),
                        Reading::ResultLength => together.result_length = Some(word),
                        Reading::ReturnAddress => {
                            let bias = self.biases.get(&target).copied().unwrap_or_default();
                            let address = word.wrapping_sub(bias);
                            together.is_elsewhere =
                                called_by.as_ref().is_some_and(|function| !function.contains(&address));
                            if let (Role::Metric, Some(metric)) = (role, P::METRIC) {
                                read.set(metric.panics, together.is_elsewhere);
                            }
                        }
                        Reading::Holds(value, types) => {
                            let name = self.errors.get(&(target, word));
                            let count =
                                types.iter().find(|Held(held, _)| name.is_some_and(|name| **name == **held));
                            held = Some((*value, count.map_or(0, |Held(_, count)| (*count).into())));
                        }
                        Reading::NameOfLike(value) => {
                            let name = self.alike.get(&(target, word));
                            together.is_alike |= name.is_some();
                            read.set(*value, name.cloned());
                        }
                        Reading::Like(value) => read.set(*value, word),
                        // Unreachable: these are read as strings.
                        Reading::TextAt(..) | Reading::MessageOf(..) => {}
                    }
                }
                Slot::Text(number) => {
                    let Some(text) =
                        texts.and_then(|((lengths, texts), room)| text(lengths, texts, room, number))
                    else {
                        continue;
                    };
                    match reading {
                        Reading::Value(value) | Reading::MessageOf(value, _) | Reading::Like(value) => {
                            read.set(*value, P::keep(*value, text));
                        }
                        Reading::TextAt(value, place) => {
                            read.set_text_at(*value, (*place).into(), Some(text));
                        }
                        // Unreachable: these are read as words.
                        Reading::Failure(_)
                        | Reading::Holds(..)
                        | Reading::NameOfLike(_)
                        | Reading::StartWall
                        | Reading::StartMonotonic
                        | Reading::Result
                        | Reading::ResultLength
                        | Reading::ReturnAddress => {}
                    }
                }
                Slot::Word(_) => {}
            }
        }
        if let (true, Role::Metric, Some(metric)) = (together.is_elsewhere, role, P::METRIC) {
            // The arguments of the function are somewhere else then.
            read = Values::default().with(metric.panics, true);
        }
        if let Some(error) = &together.error {
            for (reading, _) in values {
                // Of another error type, the bytes have no meaning.
                if let Reading::MessageOf(value, types) = reading
                    && !error.as_ref().is_some_and(|error| types.contains(&error.as_ref()))
                {
                    read.set(*value, error.as_ref().map(ToString::to_string));
                }
            }
        }
        if !together.is_alike {
            // Of another type, the bytes have no meaning.
            for (reading, _) in values {
                if let Reading::Like(value) = reading {
                    read.take(*value);
                }
            }
        }
        if let Some((value, strings)) = held {
            let mut texts = read.take_texts(value);
            texts.truncate(strings);
            read.set(value, Some(Datum::Texts(texts)).filter(|_| strings > 0));
        }
        if let Some(list) = list.filter(|_| faults & 1 == 0) {
            let length = record.len();
            match list.kind() {
                Kind::Top => {
                    if length == size_of::<TopHit>() {
                        read.set(list, lists::top(record));
                    }
                }
                Kind::Entries => {
                    if length == size_of::<MapHit>() {
                        let name = |address| self.names.get(&(target, address)).cloned();
                        let walk = self.walks.remove(&target).unwrap_or_default();
                        read.set(list, walk.end(record, name));
                    }
                }
                // Not lists.
                Kind::Number
                | Kind::Signed
                | Kind::Flag
                | Kind::Time
                | Kind::Text
                | Kind::LongText
                | Kind::Texts
                | Kind::Name => {}
            }
        }
        if let (Some(metric), Some(begins), Some(length)) =
            (P::METRIC, together.result, together.result_length)
        {
            read.set(metric.result, result(metric.results, begins, length));
        }
        let start = P::METRIC.map(|metric| metric.started).or(P::TIMED);
        if let (false, Some(value), Some(wall), Some(monotonic)) =
            (together.is_elsewhere, start, together.start_wall, together.start_monotonic)
        {
            let zero = self.zeros.entry(target);
            read.set(value, started(zero, self.unix_ns_at_zero, wall, monotonic));
        }
        Ok(Event {
            target,
            time_ns: long(0),
            took_ns: int(36).into(),
            goroutine: long(8),
            depth: long(16).wrapping_sub(stack_depth.cast_unsigned()),
            function: *function,
            role: *role,
            last_loss: long(40),
            values: read,
        })
    }
}

/// Names of types by process and address: those that an executable has, at the addresses that a process has them.
fn types(target: u32, all: &[(u64, String)], bias: u64) -> impl Iterator<Item = ((u32, u64), Arc<str>)> + '_ {
    all.iter().map(move |(descriptor, name)| ((target, descriptor.wrapping_add(bias)), name.as_str().into()))
}

/// The number of a record's process.
fn target_of(record: &[u8]) -> Result<u32, Undecodable> {
    let bytes = record.get(28..32).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_ne_bytes).ok_or(Undecodable::Length(record.len()))
}

/// The site number of a record.
///
/// # Errors
///
/// When it is too short for a record.
pub fn site_of(record: &[u8]) -> Result<u32, Undecodable> {
    let bytes = record.get(24..28).and_then(|bytes| bytes.try_into().ok());
    bytes.map(u32::from_ne_bytes).ok_or(Undecodable::Length(record.len()))
}

/// `CLOCK_MONOTONIC` at a `time.Time`; `zero` is the entry of its process. Go reads both clocks one after the other,
/// and counts the monotonic one from the start of the process
/// (<https://github.com/golang/go/blob/go1.26.5/src/time/time.go#L1325-L1345>). The zero is estimated best by the pair
/// of readings with the least time between them.
fn started(zero: Entry<'_, u32, i64>, unix_ns_at_zero: u64, wall: u64, monotonic: i64) -> Option<u64> {
    let by_wall = i64::try_from(wall).ok()?.checked_sub_unsigned(unix_ns_at_zero)?;
    let seen = by_wall.checked_sub(monotonic)?;
    let zero = zero.or_insert(seen);
    // A larger difference means that the wall clock was set.
    if (0..MAX_BETWEEN_CLOCKS_NS).contains(&seen.saturating_sub(*zero)) {
        *zero = seen;
    }
    u64::try_from(monotonic.checked_add(*zero)?).ok()
}

/// Index of a label in `results`, by its first bytes and its length.
fn result(results: &[&str], begins: u64, length: u64) -> Option<u64> {
    let begins = begins.to_ne_bytes();
    let is = |name: &&str| {
        name.len() as u64 == length && name.bytes().zip(begins).all(|(byte, read)| byte == read)
    };
    results.iter().position(is).map(|place| place as u64)
}

/// Decodes a string. A truncated one ends in `…`.
fn text(lengths: &[u8], texts: &[u8], room: usize, number: usize) -> Option<String> {
    let length = lengths.get(4 * number..4 * number + 4)?;
    let length = u32::from_ne_bytes(length.try_into().ok()?) as usize;
    let text = texts.get(number * room..number * room + length.min(room))?;
    let mut text = String::from_utf8_lossy(text).into_owned();
    if length > room {
        text.push('…');
    }
    Some(text)
}

/// Unix time, nanoseconds, from the first word of a `time.Time`, which `time.Now` fills with seconds since 1885 and
/// nanoseconds. `None` for a time that did not come from the clock.
fn unix_ns(wall: u64) -> Option<u64> {
    const HAS_MONOTONIC: u64 = 1 << 63;
    if wall & HAS_MONOTONIC == 0 {
        return None;
    }
    let seconds = (wall << 1 >> 31).cast_signed() + GO_WALL_ZERO - UNIX_ZERO;
    u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(wall & ((1 << 30) - 1))
}
