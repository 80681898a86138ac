//! Memory-mapped files.

use std::{fs, io, ops::Deref, path::Path};

use memmap2::Mmap;

/// An executable file, mapped into memory: only the accessed parts are read.
///
/// The kernel refuses writes to a file that is being executed. If another file is truncated while it is mapped, an
/// access ends this process, as with every tool that maps files.
#[derive(Debug)]
pub struct File(Mmap);

impl File {
    /// Maps a file of at most `max_len` bytes.
    ///
    /// # Errors
    ///
    /// When it cannot be opened or mapped, is not a regular file, or is larger.
    pub fn open(path: &Path, max_len: u64) -> io::Result<Self> {
        Self::of(&fs::File::open(path)?, max_len)
    }

    /// Maps an open file of at most `max_len` bytes, independent of later changes to its path.
    ///
    /// # Errors
    ///
    /// When it cannot be mapped, is not a regular file, or is larger.
    pub fn of(file: &fs::File, max_len: u64) -> io::Result<Self> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        if meta.len() > max_len {
            return Err(io::Error::other(format!("it has {} bytes, more than {max_len}", meta.len())));
        }
        // SAFETY: the bytes are plain data, checked wherever they are used; nothing relies on them staying the same.
        #[expect(unsafe_code, reason = "the only way to map a file")]
        let map = unsafe { Mmap::map(file)? };
        Ok(Self(map))
    }
}

impl Deref for File {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_seen_whole_and_a_larger_one_is_refused() {
        let path = std::env::current_exe().expect("this test runs");
        let file = File::open(&path, u64::MAX).expect("it can be read");
        assert_eq!(*file, *fs::read(&path).expect("it can be read"));
        let error = File::open(&path, 10).expect_err("it is larger");
        assert!(error.to_string().contains("more than 10"), "{error}");
        assert!(File::open(Path::new("/"), 10).is_err());
    }
}
