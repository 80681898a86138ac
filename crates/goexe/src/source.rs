//! Where an executable is read from: bytes in memory, or a file, of which only the parts that are asked for are read.

use std::{
    borrow::Cow,
    cell::{Cell, OnceCell},
    fmt, fs, io,
    os::unix::fs::FileExt as _,
    path::Path,
};

use memmap2::MmapMut;

use crate::{Error, bytes};

/// A file is read in chunks of this size, which are kept. Each has pages of its own: in the heap, small things that live longer
/// would keep the allocator from returning them.
const CHUNK: u64 = 64 << 10;
/// Each chunk goes on into the next one by this many bytes, so that what is not longer stands in one piece.
const OVERLAP: u64 = 16 << 10;
/// The longest piece that is kept.
pub(crate) const MAX_PIECE: u64 = OVERLAP;
/// What a search looks at in one step. It is not kept.
const SEARCHED: u64 = 256 << 10;

/// Something that can be read at any place, such as a file.
pub trait ReadAt {
    /// Fills a buffer with the bytes from this offset on.
    ///
    /// # Errors
    ///
    /// When they cannot be read, or there are not as many: [`io::ErrorKind::UnexpectedEof`].
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for fs::File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

/// An executable file. It is never mapped into memory: a file that is truncated or changes while it is read ends in an
/// error. The first read that fails fails all later ones, and [`File::intact`] says why.
pub struct File {
    reader: Box<dyn ReadAt + Send>,
    len: u64,
    chunks: Box<[OnceCell<MmapMut>]>,
    /// Bytes that may still be read.
    left: Cell<u64>,
    failure: OnceCell<String>,
}

impl File {
    /// Opens a file of at most `max_len` bytes.
    ///
    /// # Errors
    ///
    /// When it cannot be opened, is not a regular file, or is larger.
    pub fn open(path: &Path, max_len: u64) -> io::Result<Self> {
        let file = fs::File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        if meta.len() > max_len {
            return Err(io::Error::other(format!("it has {} bytes, more than {max_len}", meta.len())));
        }
        Ok(Self::by(Box::new(file), meta.len(), u64::MAX))
    }

    /// A file of `len` bytes, of which at most `budget` are read: more is an error.
    #[must_use]
    pub fn by(reader: Box<dyn ReadAt + Send>, len: u64, budget: u64) -> Self {
        let chunks = (0..len.div_ceil(CHUNK)).map(|_| OnceCell::new()).collect();
        Self { reader, len, chunks, left: Cell::new(budget), failure: OnceCell::new() }
    }

    /// # Errors
    ///
    /// When a read has failed: whatever was found in this file is incomplete.
    pub fn intact(&self) -> Result<(), Error> {
        self.failure.get().map_or(Ok(()), |why| Err(Error::Read(why.clone())))
    }

    /// Reads `len` bytes into what `room` makes for them.
    fn fill<R: AsMut<[u8]>>(
        &self,
        offset: u64,
        len: u64,
        room: impl FnOnce(usize) -> io::Result<R>,
    ) -> Option<R> {
        if self.failure.get().is_some() {
            return None;
        }
        let read = || {
            let left = self.left.get().checked_sub(len).ok_or("more of it would be read than is allowed")?;
            self.left.set(left);
            let len = usize::try_from(len).map_err(|error| error.to_string())?;
            let mut buffer = room(len).map_err(|error| error.to_string())?;
            match self.reader.read_at(buffer.as_mut(), offset) {
                Ok(()) => Ok(buffer),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Err(format!("it had {} bytes and was cut off while it was read", self.len))
                }
                Err(error) => Err(format!("at {offset:#x}: {error}")),
            }
        };
        read().map_err(|why| self.failure.get_or_init(|| why)).ok()
    }

    fn chunk(&self, number: u64) -> Option<&[u8]> {
        let chunk = self.chunks.get(usize::try_from(number).ok()?)?;
        if chunk.get().is_none() {
            let start = number * CHUNK;
            // Nothing else fills it meanwhile: a file is not shared between threads.
            let len = (CHUNK + OVERLAP).min(self.len - start);
            let _ = chunk.set(self.fill(start, len, MmapMut::map_anon)?);
        }
        chunk.get().map(|bytes| &**bytes)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("len", &self.len).finish_non_exhaustive()
    }
}

/// What an executable is read from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// All its bytes.
    Memory(&'a [u8]),
    /// A file.
    File(&'a File),
}

impl<'a> From<&'a [u8]> for Source<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Memory(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Source<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Memory(bytes)
    }
}

impl<'a> From<&'a File> for Source<'a> {
    fn from(file: &'a File) -> Self {
        Self::File(file)
    }
}

impl<'a> Source<'a> {
    pub(crate) fn len(self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(file) => file.len,
        }
    }

    /// All of it.
    pub(crate) fn all(self) -> Bytes<'a> {
        Bytes { source: self, start: 0, len: self.len() }
    }

    /// # Errors
    ///
    /// When a read has failed.
    pub(crate) fn intact(self) -> Result<(), Error> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::File(file) => file.intact(),
        }
    }

    /// A result that does not rest on reads that have failed: their error explains all others.
    pub(crate) fn unless_it_failed<T>(self, result: Result<T, Error>) -> Result<T, Error> {
        self.intact().and(result)
    }

    fn piece(self, offset: u64, len: u64) -> Option<&'a [u8]> {
        match self {
            Self::Memory(bytes) => slice(bytes, offset, len),
            Self::File(file) if len <= MAX_PIECE => slice(file.chunk(offset / CHUNK)?, offset % CHUNK, len),
            Self::File(_) => None,
        }
    }

    fn read(self, offset: u64, len: u64) -> Option<Cow<'a, [u8]>> {
        match self {
            Self::Memory(bytes) => slice(bytes, offset, len).map(Cow::Borrowed),
            Self::File(file) => {
                offset.checked_add(len).filter(|end| *end <= file.len)?;
                Some(Cow::Owned(file.fill(offset, len, |len| Ok(vec![0; len]))?))
            }
        }
    }
}

/// For headers, which are short.
impl<'a> object::ReadRef<'a> for Source<'a> {
    fn len(self) -> Result<u64, ()> {
        Ok(Source::len(self))
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.piece(offset, size).ok_or(())
    }

    fn read_bytes_at_until(self, range: std::ops::Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let most = range.end.checked_sub(range.start).ok_or(())?;
        let piece = self.all().from(range.start).and_then(|rest| rest.begin(most)).ok_or(())?;
        memchr::memchr(delimiter, piece).and_then(|end| piece.get(..end)).ok_or(())
    }
}

fn slice(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}

/// A range of a source. Nothing is read before it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    source: Source<'a>,
    start: u64,
    len: u64,
}

impl<'a> Bytes<'a> {
    pub(crate) fn len(self) -> u64 {
        self.len
    }

    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }

    /// From here to the end.
    pub(crate) fn from(self, at: u64) -> Option<Self> {
        self.part(at, self.len.checked_sub(at)?)
    }

    pub(crate) fn part(self, at: u64, len: u64) -> Option<Self> {
        at.checked_add(len).filter(|end| *end <= self.len)?;
        Some(Self { start: self.start.checked_add(at)?, len, ..self })
    }

    /// A piece, of at most [`MAX_PIECE`] bytes.
    pub(crate) fn get(self, at: u64, len: u64) -> Option<&'a [u8]> {
        let Self { source, start, len } = self.part(at, len)?;
        source.piece(start, len)
    }

    /// The first bytes: at most so many, and at most [`MAX_PIECE`].
    pub(crate) fn begin(self, most: u64) -> Option<&'a [u8]> {
        self.get(0, self.len.min(most).min(MAX_PIECE))
    }

    /// Bytes of any number. They are read again each time.
    pub(crate) fn read(self, at: u64, len: u64) -> Option<Cow<'a, [u8]>> {
        let Self { source, start, len } = self.part(at, len)?;
        source.read(start, len)
    }

    pub(crate) fn u32(self, at: u64) -> Option<u32> {
        bytes::u32_at(self.get(at, 4)?, 0)
    }

    pub(crate) fn i32(self, at: u64) -> Option<i32> {
        bytes::i32_at(self.get(at, 4)?, 0)
    }

    /// A number as in [`bytes::varint`].
    pub(crate) fn varint(self, at: u64) -> Option<(u32, u64)> {
        /// A varint of 32 bits is not longer.
        const LONGEST: u64 = 5;
        let (value, used) = bytes::varint(self.from(at)?.begin(LONGEST)?, 0)?;
        Some((value, used as u64))
    }

    /// The first places of these bytes that pass `fits`.
    pub(crate) fn places(self, needle: &[u8], most: usize, fits: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = 0;
        while at + needle.len() as u64 <= self.len && found.len() < most {
            let step = match self.source {
                Source::Memory(_) => self.len,
                Source::File(_) => SEARCHED,
            };
            let len = (step + needle.len() as u64 - 1).min(self.len - at);
            let Some(looked_at) = self.read(at, len) else { break };
            let places = memchr::memmem::find_iter(&looked_at, needle).map(|place| at + place as u64);
            found.extend(places.filter(|place| fits(*place)).take(most - found.len()));
            at += step;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that differ from place to place.
    fn sample() -> Vec<u8> {
        (0u32..200_000).flat_map(|word| word.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
    }

    /// Ends before its length.
    struct Cut(Vec<u8>, u64);

    impl ReadAt for Cut {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            let Self(bytes, end) = self;
            let wanted =
                slice(bytes, offset, buffer.len() as u64).filter(|_| offset + buffer.len() as u64 <= *end);
            buffer.copy_from_slice(wanted.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
    }

    fn file(bytes: Vec<u8>, end: u64, budget: u64) -> File {
        let len = bytes.len() as u64;
        File::by(Box::new(Cut(bytes, end)), len, budget)
    }

    #[test]
    fn a_file_and_its_bytes_are_the_same_wherever_they_are_read() {
        let bytes = sample();
        let file = file(bytes.clone(), u64::MAX, u64::MAX);
        let (here, there) = (Source::from(&bytes).all(), Source::from(&file).all());
        for at in [0, 1, CHUNK - 3, CHUNK, CHUNK + OVERLAP - 1, 3 * CHUNK - 8, here.len() - 8, here.len()] {
            for len in [0, 1, 8, 4_000, MAX_PIECE] {
                assert_eq!(here.get(at, len), there.get(at, len), "{len} bytes at {at}");
                assert_eq!(here.read(at, len), there.read(at, len), "{len} bytes at {at}");
            }
        }
        assert_eq!(there.read(5, 500_000).as_deref(), Some(&bytes[5..500_005]));
        // Also where two steps of a search meet.
        for at in [0, SEARCHED - 2, SEARCHED, 2 * SEARCHED - 4, here.len() - 8] {
            let needle = here.get(at, 8).expect("it is inside");
            assert_eq!(there.places(needle, 9, |_| true), [at]);
            assert_eq!(here.places(needle, 9, |_| true), [at]);
            assert_eq!(there.places(needle, 9, |place| place != at), []);
        }
        file.intact().expect("nothing went wrong");
    }

    #[test]
    fn a_file_that_is_cut_while_it_is_read_ends_in_an_error() {
        let file = file(sample(), 100_000, u64::MAX);
        let all = Source::from(&file).all();
        assert!(all.get(0, 8).is_some());
        file.intact().expect("that is there");
        assert_eq!(all.get(200_000, 8), None);
        let error = file.intact().expect_err("that is not").to_string();
        assert!(error.contains("had 800000 bytes and was cut off"), "{error}");
        assert_eq!(all.read(0, 100), None, "nothing more is read of it");
    }

    #[test]
    fn no_more_is_read_than_allowed() {
        let file = file(sample(), u64::MAX, 2 * (CHUNK + OVERLAP));
        let all = Source::from(&file).all();
        assert!(all.get(0, 8).is_some() && all.get(8, 8).is_some() && all.get(CHUNK, 8).is_some());
        file.intact().expect("a chunk counts once");
        assert_eq!(all.places(b"what is not in it", 1, |_| true), []);
        let error = file.intact().expect_err("a search would need more").to_string();
        assert!(error.contains("more of it would be read than is allowed"), "{error}");
    }

    #[test]
    fn a_larger_file_and_what_is_no_file_are_refused() {
        let path = std::env::current_exe().expect("this test runs");
        let error = File::open(&path, 10).expect_err("it is larger");
        assert!(error.to_string().contains("more than 10"), "{error}");
        assert!(File::open(Path::new("/"), 10).is_err());
    }
}
