//! Encoded traces on disk until the Collector has them: they survive an outage of the Collector that is longer than the memory
//! lasts, and the end of this process, however it ends.
//!
//! A spool is a directory of segments, files of entries. Entries are appended to the last segment and read from the first one;
//! a file beside them holds the position of the first entry that has not arrived. It is written after the Collector's answer, so
//! that an entry may be sent twice when the process ends between the two, and is never skipped. Nothing is synchronized with
//! the disk: a crash of the machine may damage the last entries. Damaged entries are skipped, and counted.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::figures::parse_bytes;

/// First bytes of an entry. The digit is the version of the format.
const MAGIC: [u8; 4] = *b"ssp1";
/// What stands before the bytes of an entry: magic, their length, spans, their checksum, the checksum of these four.
const HEAD: usize = 20;
/// Most bytes of an entry: a batch has at most one trace more than a request.
const MAX_ENTRY: u32 = 64 << 20;
/// Segments that fill the spool: when it is full, the oldest one goes.
const SEGMENTS: u64 = 16;
const POSITION: &str = "position";
const LOCK: &str = "lock";
const SUFFIX: &str = ".spool";

/// Where a spool is, and how large it may become.
#[derive(clap::Args, Clone, Debug, Default)]
// A command flattens several structs of this name.
#[group(skip)]
pub struct Options {
    /// Directory in which spans wait for the Collector, so that they survive long outages and restarts; one for each daemon
    #[arg(long, env = "SCHEDSPAN_SPOOL", value_name = "DIR")]
    pub spool: Option<PathBuf>,
    /// With --spool: most bytes of its files, at least 1MiB; the oldest spans go when it is full
    #[arg(long, env = "SCHEDSPAN_SPOOL_SIZE", default_value = "256MiB", value_name = "SIZE", value_parser = size)]
    pub spool_size: u64,
}

/// Parses the size of a spool.
fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text)?
        .filter(|bytes| (1 << 20..=1 << 40).contains(bytes))
        .ok_or_else(|| "a size from 1MiB to 1024GiB is needed, such as 256MiB".to_owned())
}

/// A spool that this process has locked.
#[derive(Debug)]
pub(super) struct Spool {
    directory: PathBuf,
    /// Most bytes of all segments.
    limit: u64,
    /// From the oldest to the one that is written.
    segments: VecDeque<Segment>,
    /// Where the next entry begins in the oldest segment.
    offset: u64,
    /// The entry that was read last and has not been settled.
    taken: Option<Taken>,
    position: File,
    /// Holds the lock.
    _lock: File,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    file: File,
    bytes: u64,
    /// Of the entries that have not been settled; of a damaged segment, as far as they are known.
    spans: u64,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    segment: u64,
    end: u64,
    spans: u64,
}

/// The next thing in a spool.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// An entry, to be settled when it has arrived.
    Entry(Vec<u8>),
    /// Bytes that are no entry, or a damaged one, which are skipped. Spans of an entry whose number is damaged are not known.
    Damaged { place: String, spans: u64 },
    /// There is none.
    Nothing,
}

/// The numbers before the bytes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    length: u32,
    spans: u32,
    checksum: u32,
}

impl Head {
    fn bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.spans.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.checksum.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..16]);
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None` if they are damaged.
    fn of(bytes: &[u8; HEAD]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let head = Self { length: number(4), spans: number(8), checksum: number(12) };
        (head.bytes() == *bytes && head.length <= MAX_ENTRY).then_some(head)
    }

    /// Of an entry with all its bytes.
    fn size(self) -> u64 {
        HEAD as u64 + u64::from(self.length)
    }
}

impl Segment {
    fn path(directory: &Path, number: u64) -> PathBuf {
        directory.join(format!("{number:016x}{SUFFIX}"))
    }

    fn open(directory: &Path, number: u64) -> io::Result<Self> {
        let file = private().create(true).open(Self::path(directory, number))?;
        let bytes = file.metadata()?.len();
        Ok(Self { number, file, bytes, spans: 0 })
    }

    /// The entry that begins here; `None` if its numbers are damaged or some of its bytes are not there.
    fn head(&self, offset: u64) -> io::Result<Option<Head>> {
        let mut bytes = [0; HEAD];
        if offset + HEAD as u64 > self.bytes {
            return Ok(None);
        }
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(Head::of(&bytes).filter(|head| offset + head.size() <= self.bytes))
    }

    /// Adds up the spans from here on.
    fn count(&mut self, mut offset: u64) -> io::Result<()> {
        while offset < self.bytes {
            match self.head(offset)? {
                Some(head) => {
                    self.spans += u64::from(head.spans);
                    offset += head.size();
                }
                None => offset = self.resume(offset + 1)?,
            }
        }
        Ok(())
    }

    /// Where the first entry at or after this offset begins; the end of the segment if there is none.
    fn resume(&self, mut offset: u64) -> io::Result<u64> {
        const BLOCK: usize = 64 << 10;
        let mut block = vec![0; BLOCK];
        while offset + HEAD as u64 <= self.bytes {
            let length = BLOCK.min(usize::try_from(self.bytes - offset).unwrap_or(BLOCK));
            self.file.read_exact_at(&mut block[..length], offset)?;
            for at in 0..=length - MAGIC.len() {
                if block[at..].starts_with(&MAGIC) && self.head(offset + at as u64)?.is_some() {
                    return Ok(offset + at as u64);
                }
            }
            // The magic may be in two blocks.
            offset += (length - MAGIC.len() + 1) as u64;
        }
        Ok(self.bytes)
    }
}

/// Files of a spool are for its user alone: names of Pods are in them.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

impl Spool {
    /// Opens a spool, and locks it.
    ///
    /// # Errors
    ///
    /// When its files cannot be made or read, or another process has it: the message says what to do.
    pub(super) fn open(directory: &Path, limit: u64) -> Result<Self, String> {
        let failed = |error: io::Error| {
            format!("`{}` of --spool: {error}; name a directory that can be written", directory.display())
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let lock = private().create(true).open(directory.join(LOCK)).map_err(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let directory = directory.display();
            return Err(format!("`{directory}` of --spool: another process uses it; name another directory"));
        }
        Self::read(directory, limit, lock).map_err(failed)
    }

    fn read(directory: &Path, limit: u64, lock: File) -> io::Result<Self> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            numbers.extend(number.and_then(|number| u64::from_str_radix(number, 16).ok()));
        }
        numbers.sort_unstable();
        let position = private().create(true).open(directory.join(POSITION))?;
        let (first, offset) = saved(&position).unwrap_or_default();
        let mut spool = Self {
            directory: directory.to_owned(),
            limit,
            segments: VecDeque::new(),
            offset: 0,
            taken: None,
            position,
            _lock: lock,
        };
        for number in numbers {
            if number < first {
                fs::remove_file(Segment::path(directory, number))?;
                continue;
            }
            let mut segment = Segment::open(directory, number)?;
            let start = if number == first { offset.min(segment.bytes) } else { 0 };
            if spool.segments.is_empty() {
                spool.offset = start;
            }
            segment.count(start)?;
            spool.segments.push_back(segment);
        }
        if spool.segments.is_empty() {
            // A number that was used is not used again: the position would be about it.
            spool.segments.push_back(Segment::open(directory, first + 1)?);
        }
        Ok(spool)
    }

    /// Spans that wait.
    pub(super) fn spans(&self) -> u64 {
        self.segments.iter().map(|segment| segment.spans).sum()
    }

    /// Bytes of its segments.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Appends an entry. Returns the number of older spans for which there is no room any more.
    ///
    /// # Errors
    ///
    /// When it cannot be written. Then the entry is not in the spool.
    pub(super) fn append(&mut self, entry: &[u8], spans: u32) -> io::Result<u64> {
        let length = u32::try_from(entry.len()).ok().filter(|length| *length <= MAX_ENTRY);
        let Some(length) = length else { return Err(io::ErrorKind::FileTooLarge.into()) };
        let head = Head { length, spans, checksum: crc32fast::hash(entry) };
        let most = self.limit / SEGMENTS;
        let last = self.last();
        if last.bytes > 0 && last.bytes + head.size() > most {
            let number = last.number + 1;
            let segment = Segment::open(&self.directory, number)?;
            self.segments.push_back(segment);
        }
        let mut lost = 0;
        while self.bytes() + head.size() > self.limit
            && let Some(dropped) = self.make_room()?
        {
            lost += dropped;
        }
        let bytes = [&head.bytes(), entry].concat();
        let last = self.last();
        if let Err(error) = last.file.write_all_at(&bytes, last.bytes) {
            // What is there of it would be a damaged entry.
            last.file.set_len(last.bytes)?;
            return Err(error);
        }
        last.bytes += head.size();
        last.spans += u64::from(spans);
        Ok(lost)
    }

    fn last(&mut self) -> &mut Segment {
        self.segments.back_mut().expect("there is always a segment")
    }

    /// Drops the oldest segment, except an entry in it that has been taken, which may be arriving, and the segment that is written.
    /// Returns the spans that are lost; `None` if there is no more to drop.
    fn make_room(&mut self) -> io::Result<Option<u64>> {
        let older = self.segments.len() - 1;
        let first = &mut self.segments[0];
        match self.taken.filter(|taken| taken.segment == first.number) {
            Some(Taken { end, spans, .. }) if older > 0 && first.bytes > end => {
                first.file.set_len(end)?;
                first.bytes = end;
                let lost = first.spans.saturating_sub(spans);
                first.spans = spans;
                Ok(Some(lost))
            }
            Some(_) if older > 1 => self.remove(1).map(Some),
            None if older > 0 => self.remove(0).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    /// Removes a segment. Returns its spans.
    fn remove(&mut self, index: usize) -> io::Result<u64> {
        let Segment { number, spans, .. } = self.segments[index];
        fs::remove_file(Segment::path(&self.directory, number))?;
        self.segments.remove(index);
        // Only where another program has cut its file.
        self.taken.take_if(|taken| taken.segment == number);
        if index == 0 {
            self.offset = 0;
            self.save()?;
        }
        Ok(spans)
    }

    /// The oldest entry. Without [`Self::settle`], the same one the next time.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        let next = self.oldest();
        if !next.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof) {
            return next;
        }
        // Another program has cut the file.
        let segment = &mut self.segments[0];
        (segment.bytes, segment.spans) = (segment.file.metadata()?.len(), 0);
        self.offset = self.offset.min(segment.bytes);
        segment.count(self.offset)?;
        let place = Segment::path(&self.directory, segment.number).display().to_string();
        Ok(Next::Damaged { place, spans: 0 })
    }

    fn oldest(&mut self) -> io::Result<Next> {
        loop {
            let (segment, offset) = (&mut self.segments[0], self.offset);
            if offset >= segment.bytes {
                if self.segments.len() == 1 {
                    return Ok(Next::Nothing);
                }
                self.remove(0)?;
                continue;
            }
            let place =
                || format!("{}, byte {offset}", Segment::path(&self.directory, segment.number).display());
            let Some(head) = segment.head(offset)? else {
                let next = Next::Damaged { place: place(), spans: 0 };
                self.offset = segment.resume(offset + 1)?;
                self.save()?;
                return Ok(next);
            };
            let (spans, end) = (u64::from(head.spans), offset + head.size());
            let mut entry = vec![0; head.length as usize];
            segment.file.read_exact_at(&mut entry, offset + HEAD as u64)?;
            if crc32fast::hash(&entry) != head.checksum {
                segment.spans = segment.spans.saturating_sub(spans);
                let next = Next::Damaged { place: place(), spans };
                self.offset = end;
                self.save()?;
                return Ok(next);
            }
            self.taken = Some(Taken { segment: segment.number, end, spans });
            return Ok(Next::Entry(entry));
        }
    }

    /// Removes the entry that was read last: it has arrived, or it never will.
    ///
    /// # Errors
    ///
    /// When this cannot be written. Then the entry is sent again after a restart, and not before.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        // Its file may have been cut by another program.
        let Some(Taken { end, spans, .. }) = self.taken.take() else { return Ok(()) };
        let segment = &mut self.segments[0];
        segment.spans = segment.spans.saturating_sub(spans);
        self.offset = end;
        self.save()
    }

    /// Writes the position.
    fn save(&self) -> io::Result<()> {
        let number = self.segments.front().map_or(0, |segment| segment.number);
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..16]);
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        self.position.write_all_at(&bytes, 0)
    }
}

/// The saved position: number of a segment, and offset; `None` if it is damaged, as in a new spool.
fn saved(position: &File) -> Option<(u64, u64)> {
    let mut bytes = [0; 20];
    position.read_exact_at(&mut bytes, 0).ok()?;
    let number = |at: usize| Some(u64::from_le_bytes(bytes[at..at + 8].try_into().ok()?));
    let checksum = crc32fast::hash(&bytes[..16]).to_le_bytes();
    (checksum == bytes[16..]).then_some(())?;
    Some((number(0)?, number(8)?))
}

#[cfg(test)]
pub(super) mod tests;
