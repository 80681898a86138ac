//! A file system of one file, whose server can stop answering: each request is taken, and none is answered any more.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    thread,
};

use anyhow::Result;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Name of the file.
const NAME: &str = "kube-scheduler-on-fuse";
const ROOT: u64 = 1;
const NODE: u64 = 2;
/// `fuse_in_header` and `fuse_out_header`.
const HEADER: usize = 40;
const OUT_HEADER: usize = 16;
/// The longest request: a page and the headers, more than the kernel requires.
const MAX_REQUEST: usize = 1 << 17;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const RELEASEDIR: u32 = 29;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

/// What the server does with requests.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Mood {
    Answers,
    /// The file ends in its middle.
    Cuts,
    IsSilent,
}

/// A mounted file system. It is unmounted when it is dropped, which ends all waiting for it.
pub(super) struct Fuse {
    dir: PathBuf,
    mood: Arc<AtomicU8>,
    cut_reads: Arc<AtomicU64>,
}

impl Fuse {
    /// Mounts a file with these contents in a new folder.
    ///
    /// # Errors
    ///
    /// If the kernel has no FUSE, or this process may not mount.
    pub(super) fn mount(dir: &Path, contents: Vec<u8>) -> Result<Self> {
        let dir = dir.join("fuse");
        fs::create_dir(&dir)?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other\0", device.as_raw_fd());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes())?;
        mount("hostile", &dir, "fuse", MountFlags::empty(), options)?;
        let mood = Arc::new(AtomicU8::new(Mood::Answers as u8));
        let cut_reads = Arc::new(AtomicU64::new(0));
        let server = Server { device, contents, mood: Arc::clone(&mood), cut_reads: Arc::clone(&cut_reads) };
        drop(thread::spawn(move || server.run()));
        // Requests before the server's first answer are not sent, and a signal ends their wait.
        fs::metadata(&dir)?;
        Ok(Self { dir, mood, cut_reads })
    }

    pub(super) fn file(&self) -> PathBuf {
        self.dir.join(NAME)
    }

    /// From now on no request is answered.
    pub(super) fn fall_silent(&self) {
        self.mood.store(Mood::IsSilent as u8, Ordering::Relaxed);
    }

    /// From now on the file ends in its middle.
    pub(super) fn cut(&self) {
        self.mood.store(Mood::Cuts as u8, Ordering::Relaxed);
    }

    /// How often it was read since then.
    pub(super) fn cut_reads(&self) -> u64 {
        self.cut_reads.load(Ordering::Relaxed)
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // It is mounted for this test alone.
        let _ = unmount(&self.dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.dir);
    }
}

struct Server {
    device: File,
    contents: Vec<u8>,
    mood: Arc<AtomicU8>,
    cut_reads: Arc<AtomicU64>,
}

impl Server {
    fn run(mut self) {
        let mut request = vec![0; MAX_REQUEST];
        // An error is the end of the mount.
        while let Ok(length) = self.device.read(&mut request) {
            if self.mood.load(Ordering::Relaxed) == Mood::IsSilent as u8 {
                continue;
            }
            let Some((unique, answer)) = self.answer(&request[..length]) else { continue };
            let (error, body) = match answer {
                Ok(body) => (0, body),
                Err(error) => (-error, Vec::new()),
            };
            let mut out = ((OUT_HEADER + body.len()) as u32).to_le_bytes().to_vec();
            out.extend(error.to_le_bytes());
            out.extend(unique.to_le_bytes());
            out.extend(body);
            // The request may have been interrupted.
            let _ = self.device.write(&out);
        }
    }

    /// The number of a request and the answer to it; `None` if it gets none.
    fn answer(&self, request: &[u8]) -> Option<(u64, Result<Vec<u8>, i32>)> {
        let word = |at: usize| Some(u32::from_le_bytes(request.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(request.get(at..at + 8)?.try_into().ok()?));
        let (code, unique, node) = (word(4)?, long(8)?, long(16)?);
        let answer = match code {
            FORGET | BATCH_FORGET | INTERRUPT => return None,
            INIT => {
                // Version 7.31, then `max_readahead`, flags, queues and the longest write.
                let words = [7, 31, word(HEADER + 8)?, 0, 0, 4096, 1];
                let mut out: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
                out.resize(64, 0);
                Ok(out)
            }
            LOOKUP
                if node == ROOT
                    && request[HEADER..].split(|byte| *byte == 0).next() == Some(NAME.as_bytes()) =>
            {
                // No validity: the kernel asks again for each name and for attributes.
                let longs = [NODE, 0, 0, 0, 0];
                Ok([longs.iter().flat_map(|long: &u64| long.to_le_bytes()).collect(), self.attributes(NODE)]
                    .concat())
            }
            LOOKUP => Err(ENOENT),
            GETATTR => Ok([vec![0; 16], self.attributes(node)].concat()),
            OPEN | OPENDIR => Ok(vec![0; 16]),
            READ => {
                let is_cut = self.mood.load(Ordering::Relaxed) == Mood::Cuts as u8;
                self.cut_reads.fetch_add(u64::from(is_cut), Ordering::Relaxed);
                let contents = &self.contents[..self.contents.len() / if is_cut { 2 } else { 1 }];
                let start = (long(HEADER + 8)? as usize).min(contents.len());
                let end = (start + word(HEADER + 16)? as usize).min(contents.len());
                Ok(contents[start..end].to_vec())
            }
            FLUSH | RELEASE | RELEASEDIR | DESTROY => Ok(Vec::new()),
            _ => Err(ENOSYS),
        };
        Some((unique, answer))
    }

    /// `fuse_attr`.
    fn attributes(&self, node: u64) -> Vec<u8> {
        let (size, mode) =
            if node == ROOT { (0, 0o040_755) } else { (self.contents.len() as u64, 0o100_755) };
        let longs = [node, size, size.div_ceil(512), 1, 1, 1];
        let words: [u32; 10] = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
        let longs = longs.iter().flat_map(|long| long.to_le_bytes());
        longs.chain(words.iter().flat_map(|word| word.to_le_bytes())).collect()
    }
}
