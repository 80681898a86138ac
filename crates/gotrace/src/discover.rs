//! Finds the processes on this node that run a described program.
//!
//! The contents of the executable decide, not its name. Executables are identified by inode: one inspection of a file
//! serves all its processes, in any container. A file is opened once, here; plans and probes refer to that open file.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use goexe::File;
use wire::{INITIAL_PID_NAMESPACE, PidNamespace};

/// Maximum size of an executable. The largest known one, k3s with all its components, has 80 MB.
pub const MAX_EXECUTABLE: u64 = 512 << 20;
/// Minimum size of an executable: Go's runtime and the Kubernetes libraries alone are larger.
const MIN_EXECUTABLE: u64 = 8 << 20;
/// Maximum number of remembered executables.
const MAX_KNOWN_FILES: usize = 4096;

/// Identifies an executable file across containers. Each container sees it through an overlay with a device number of
/// its own, but the kernel attaches to the inode below: attaching once per overlay would report every hit several
/// times. So the device is ignored, and length and change time distinguish files with equal inode numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// An overlay reports the inode number of the lower file if all its layers are on one file system:
    /// <https://docs.kernel.org/filesystems/overlayfs.html#inode-properties>.
    pub inode: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Change time of the inode, seconds and nanoseconds: a rewritten file is another one.
    pub changed: (i64, i64),
}

/// Identifies a process, even if its pid is reused later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// Its pid in the daemon's `/proc`.
    pub pid: u32,
    /// Start time in clock ticks since boot: field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
}

/// A running process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its identity.
    pub id: ProcessId,
    /// The executable that it runs.
    pub file: FileId,
    /// The PID namespace of [`Process::namespaced_pid`].
    pub namespace: PidNamespace,
    /// Its pid in that namespace.
    pub namespaced_pid: u32,
}

/// An open executable.
#[derive(Debug)]
pub struct Opened {
    /// The open file, independent of later changes to its path.
    handle: fs::File,
    /// The mapped contents.
    data: File,
    /// Its identity.
    pub id: FileId,
    /// Its path in the mount namespace of the process that runs it, or as given by the user.
    pub path: PathBuf,
}

impl Opened {
    /// Opens and maps an executable.
    ///
    /// # Errors
    ///
    /// When it cannot be opened or mapped, or is larger than [`MAX_EXECUTABLE`].
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = fs::File::open(path)?;
        let (data, id) = (File::of(&handle, MAX_EXECUTABLE)?, file_id(&handle.metadata()?));
        Ok(Self { handle, data, id, path: fs::read_link(path).unwrap_or_else(|_| path.into()) })
    }

    /// The mapped contents.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The open file alone, to attach probes to.
    #[must_use]
    pub fn into_handle(self) -> fs::File {
        self.handle
    }
}

/// Searches for processes of interest, and remembers the judgement of each file.
#[derive(Debug, Default)]
pub struct Finder {
    files: HashMap<FileId, bool>,
}

impl Finder {
    /// Lists the running processes of interest. `admits` decides by pid whether a process may be looked at: of others
    /// nothing is opened. `judge` decides about an executable that was not seen before, and keeps what it needs of it.
    ///
    /// For other processes, only the identity of the executable is read on each call, because a process may replace its
    /// executable, as the first process of a container does.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be listed. A process that ends meanwhile, or is not accessible, is skipped.
    pub fn look(
        &mut self,
        mut admits: impl FnMut(u32) -> bool,
        mut judge: impl FnMut(Opened) -> bool,
    ) -> io::Result<Vec<Process>> {
        let mut running = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A thread of the kernel has no executable; to ask for the link alone is not to ask the file system.
            if fs::read_link(format!("/proc/{pid}/exe")).is_ok() && admits(pid) {
                running.extend(self.process(pid, &mut judge));
            }
        }
        running.sort_by_key(|process| process.id.pid);
        Ok(running)
    }

    /// Discards the judgement of a file: the next process that runs it is judged again.
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
            // The path may lead to another file by now: then that file is not judged.
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

/// Load bias of an executable in a process: the difference between the address of the first instruction in the
/// auxiliary vector and `entry_point`. Zero for executables that are not position-independent.
///
/// # Errors
///
/// When the process has ended or is not accessible.
pub fn load_bias(pid: u32, entry_point: u64) -> io::Result<u64> {
    let vector = fs::read(format!("/proc/{pid}/auxv"))?;
    let loaded = entry_of(&vector)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an auxiliary vector without entry"))?;
    Ok(loaded.wrapping_sub(entry_point))
}

/// `AT_ENTRY` in an auxiliary vector, which is a list of pairs of words.
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
    /// The process with this pid now; `None` if it does not exist or is not accessible.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { pid, start_ticks: start_ticks(&stat)? })
    }
}

/// The command name, in parentheses, may contain spaces and parentheses: fields are counted after the last one.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// The initial PID namespace if the daemon runs in it and therefore sees the kernel's own pids; else the namespace of
/// the process.
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
    // The kernel's encoding of a device number.
    let device = u64::from(rustix::fs::major(device)) << 20 | u64::from(rustix::fs::minor(device));
    Some(PidNamespace { device, inode: meta.ino() })
}

/// `NSpid:` lists the pids from the reader's namespace to the process's own.
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
            let admits = |pid| pid == std::process::id();
            let running = finder.look(admits, |opened| {
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
