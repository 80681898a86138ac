//! Which processes on this node run a program that is described.
//!
//! What its executable holds decides, not its name. Executables are told apart by their inode: one look at a file serves all its
//! processes, in whatever container. A file is opened once, here; what is planned and attached later is what was opened.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use goexe::File;
use wire::{INITIAL_PID_NAMESPACE, PidNamespace};

/// Larger files are not read: the largest known, k3s with everything inside, has 80 MB.
pub const MAX_EXECUTABLE: u64 = 512 << 20;
/// Smaller files are not read: Go's runtime and the libraries of Kubernetes alone are larger.
const MIN_EXECUTABLE: u64 = 8 << 20;
/// Executables remembered, with whether they are of interest.
const MAX_KNOWN_FILES: usize = 4096;

/// An executable file, however many containers see it. Each has an overlay of its own over the layers of its image, and so a
/// device number of its own, but the kernel attaches to the inode below: attached once for each of them, every hit of all of
/// them would come twice. So the device is not asked, and what could tell two files of one inode number apart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// An overlay passes on that of the file below, if all its layers are on one file system:
    /// <https://docs.kernel.org/filesystems/overlayfs.html#inode-properties>.
    pub inode: u64,
    /// Its length.
    pub bytes: u64,
    /// Seconds and nanoseconds of the last change of the inode: a file written anew is another one.
    pub changed: (i64, i64),
}

/// A process, named so that a later one with the same number is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// As `/proc` numbers it for the daemon.
    pub pid: u32,
    /// In clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

/// A running process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Which process.
    pub id: ProcessId,
    /// Which executable.
    pub file: FileId,
    /// The PID namespace that its id is known in.
    pub namespace: PidNamespace,
    /// Its process id in that namespace.
    pub namespaced_pid: u32,
}

/// An executable that is open.
#[derive(Debug)]
pub struct Opened {
    /// The open file: it stays the same whatever becomes of its path.
    handle: fs::File,
    /// Its contents.
    data: File,
    /// Which file.
    pub id: FileId,
    /// Its path as the process that runs it has it, or as it was named.
    pub path: PathBuf,
}

impl Opened {
    /// Opens an executable, within bounds.
    ///
    /// # Errors
    ///
    /// When it cannot be opened or mapped, or is larger than [`MAX_EXECUTABLE`].
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = fs::File::open(path)?;
        let (data, id) = (File::of(&handle, MAX_EXECUTABLE)?, file_id(&handle.metadata()?));
        Ok(Self { handle, data, id, path: fs::read_link(path).unwrap_or_else(|_| path.into()) })
    }

    /// Its contents.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The handle alone: to attach to what was planned.
    #[must_use]
    pub fn into_handle(self) -> fs::File {
        self.handle
    }
}

/// Looks for processes of interest, and remembers which files are not.
#[derive(Debug, Default)]
pub struct Finder {
    files: HashMap<FileId, bool>,
}

impl Finder {
    /// The processes of interest that run now. `judge` decides about an executable that was not seen before, and keeps what it
    /// wants of it.
    ///
    /// Of a process that is of no interest, nothing is asked but which file it runs, every time: it may replace its executable, as
    /// a container's first process does.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be listed. A process that ends meanwhile, or may not be looked at, is skipped.
    pub fn look(&mut self, mut judge: impl FnMut(Opened) -> bool) -> io::Result<Vec<Process>> {
        let mut running = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            running.extend(self.process(pid, &mut judge));
        }
        running.sort_by_key(|process| process.id.pid);
        Ok(running)
    }

    /// Judges a file anew when a process runs it next.
    pub fn forget(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    fn process(&mut self, pid: u32, judge: &mut impl FnMut(Opened) -> bool) -> Option<Process> {
        let path = PathBuf::from(format!("/proc/{pid}/exe"));
        let meta = fs::metadata(&path).ok()?;
        let file = file_id(&meta);
        if self.files.len() >= MAX_KNOWN_FILES {
            self.files.clear();
        }
        let plausible = (MIN_EXECUTABLE..=MAX_EXECUTABLE).contains(&meta.len());
        let of_interest = *self.files.entry(file).or_insert_with(|| {
            // What is open may be another file by now: then this one is not judged.
            let opened = Opened::open(&path).ok().filter(|opened| plausible && opened.id == file);
            opened.is_some_and(judge)
        });
        if !of_interest {
            return None;
        }
        let id = ProcessId::of(pid)?;
        let (namespace, namespaced_pid) = namespace(pid)?;
        Some(Process { id, file, namespace, namespaced_pid })
    }
}

/// How far from its own addresses a process has loaded its executable, whose first instruction is at `entry_point`: the
/// kernel tells the process where it put that one. Zero for executables that are not position-independent.
///
/// # Errors
///
/// When the process has ended or may not be looked at.
pub fn load_bias(pid: u32, entry_point: u64) -> io::Result<u64> {
    let vector = fs::read(format!("/proc/{pid}/auxv"))?;
    let loaded = entry_of(&vector)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an auxiliary vector without entry"))?;
    Ok(loaded.wrapping_sub(entry_point))
}

/// `AT_ENTRY` in an auxiliary vector: pairs of words.
fn entry_of(vector: &[u8]) -> Option<u64> {
    const AT_ENTRY: u64 = 9;
    let (pairs, _) = vector.as_chunks::<16>();
    pairs.iter().find_map(|pair| {
        let (key, value) = pair.split_at(8);
        let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_ne_bytes);
        if word(key)? == AT_ENTRY { word(value) } else { None }
    })
}

fn file_id(meta: &fs::Metadata) -> FileId {
    FileId { inode: meta.ino(), bytes: meta.len(), changed: (meta.ctime(), meta.ctime_nsec()) }
}

impl ProcessId {
    /// The process that has this number now; `None` where there is none, or it may not be looked at.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { pid, start_ticks: start_ticks(&stat)? })
    }
}

/// The command name, in parentheses, may hold anything: fields are counted after the last one.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The host's namespace, where the daemon lives in it and so sees the kernel's own ids; else that of the process.
fn namespace(pid: u32) -> Option<(PidNamespace, u32)> {
    let own = pid_namespace("self")?;
    if own.inode == INITIAL_PID_NAMESPACE {
        return Some((own, pid));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some((pid_namespace(&pid.to_string())?, innermost_pid(&status)?))
}

fn pid_namespace(process: &str) -> Option<PidNamespace> {
    let meta = fs::metadata(format!("/proc/{process}/ns/pid")).ok()?;
    let device = meta.dev();
    // The kernel's own encoding of a device number.
    let device = u64::from(rustix::fs::major(device)) << 20 | u64::from(rustix::fs::minor(device));
    Some(PidNamespace { device, inode: meta.ino() })
}

/// `NSpid:` lists the ids from the reader's namespace to the process's own.
fn innermost_pid(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_a_name_with_parentheses() {
        let stat = format!("42 (a) b) (c) S 1 {} 777 8", "0 ".repeat(17).trim());
        assert_eq!(start_ticks(&stat), Some(777));
        assert_eq!(start_ticks("42 (cut off"), None);
    }

    #[test]
    fn the_process_id_of_a_container_is_the_last_one() {
        assert_eq!(innermost_pid("Name:\tx\nNSpid:\t4321\t17\t1\nTgid:\t1\n"), Some(1));
        assert_eq!(innermost_pid("Name:\tx\n"), None);
    }

    #[test]
    fn the_entry_point_is_found_in_an_auxiliary_vector() {
        let vector: Vec<u8> =
            [3u64, 64, 9, 0x40_1000, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(entry_of(&vector), Some(0x40_1000));
        assert_eq!(entry_of(&vector[..16]), None);
    }

    #[test]
    fn a_copy_is_another_file_and_a_link_is_not() {
        let path = |name: &str| std::env::temp_dir().join(format!("schedspan-{name}-{}", std::process::id()));
        let [file, link, copy] = ["file", "link", "copy"].map(path);
        fs::write(&file, "text").unwrap();
        fs::hard_link(&file, &link).unwrap();
        fs::copy(&file, &copy).unwrap();
        let [file_id, link_id, copy_id] =
            [&file, &link, &copy].map(|path| file_id(&fs::metadata(path).unwrap()));
        assert_eq!(file_id, link_id);
        assert_ne!(file_id, copy_id);
        for path in [file, link, copy] {
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_file_is_judged_once_and_its_processes_follow_from_that() {
        let own = fs::metadata("/proc/self/exe").map(|meta| file_id(&meta)).expect("this test runs");
        let mut finder = Finder::default();
        let mut judged = 0;
        for _ in 0..2 {
            let running = finder.look(|opened| {
                judged += usize::from(opened.id == own);
                opened.id == own
            });
            let running = running.expect("/proc is there");
            assert!(running.iter().any(|process| process.id.pid == std::process::id()));
            assert!(running.iter().all(|process| process.file == own));
        }
        assert_eq!(judged, 1);
    }
}
