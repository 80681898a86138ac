//! Finds the processes on this node that may run a described program, and which files they execute.
//!
//! Nothing here asks a file system that a process may have brought along: its server could let the answer wait for ever.
//! Links in `/proc` and what the kernel has of a file's attributes suffice. A file is opened once, as a [`Handle`]: plans and
//! probes refer to that one. What is in it is read by [`foreign`](crate::foreign).

use std::{
    collections::{BTreeMap, HashSet},
    fs, io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    str::SplitAsciiWhitespace,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Statx, StatxFlags, makedev, open, statx},
    io::read,
    time::{ClockId, clock_gettime},
};
use wire::{INITIAL_PID_NAMESPACE, PidNamespace};

/// Maximum size of an executable. The largest known one, k3s with all its components, has 80 MB.
pub const MAX_EXECUTABLE: u64 = 512 << 20;
/// Minimum size of an executable: Go's runtime and the Kubernetes libraries alone are larger.
const MIN_EXECUTABLE: u64 = 8 << 20;

/// Names an executable file as it is now. A new name or other rights, which are new change times, make it no other file; other
/// contents do. The same file can have several of these: each container sees it through an overlay with a device number of its
/// own. So it decides what is read again, and not what is attached: that the memory of a process has our breakpoints does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device number.
    pub device: u64,
    /// An overlay reports the inode number of the lower file if all its layers are on one file system:
    /// <https://docs.kernel.org/filesystems/overlayfs.html#inode-properties>.
    pub inode: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// When the contents were last written, seconds and nanoseconds.
    pub written: (i64, u32),
}

impl FileId {
    /// The file that a process executes; `None` if it has ended, is not accessible, or executes no regular file.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Some(Contents::of(pid)?.file)
    }

    /// Whether a file is so large that it can be of interest, and not too large to be read.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        (MIN_EXECUTABLE..=MAX_EXECUTABLE).contains(&self.bytes)
    }
}

/// An executable file as long as nothing is written to it. Its owner can set back the time of writing, and the number of a file
/// that was removed is used again, but the time of the last change only moves on. So what was found in it holds for all of its
/// processes, and for those to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contents {
    /// The file.
    pub file: FileId,
    /// When its contents, names or rights were last changed, seconds and nanoseconds.
    pub changed: (i64, u32),
}

impl Contents {
    fn of(pid: u32) -> Option<Self> {
        Self::at(CWD, &format!("/proc/{pid}/exe"), AtFlags::empty())
    }

    fn at(fd: impl AsFd, path: &str, flags: AtFlags) -> Option<Self> {
        let flags = flags | AtFlags::STATX_DONT_SYNC;
        let Statx { stx_mode, stx_dev_major, stx_dev_minor, stx_ino, stx_size, stx_mtime, stx_ctime, .. } =
            statx(fd, path, flags, StatxFlags::BASIC_STATS).ok()?;
        let file = FileId {
            device: makedev(stx_dev_major, stx_dev_minor),
            inode: stx_ino,
            bytes: stx_size,
            written: (stx_mtime.tv_sec, stx_mtime.tv_nsec),
        };
        let is_regular = FileType::from_raw_mode(stx_mode.into()) == FileType::RegularFile;
        is_regular.then_some(Self { file, changed: (stx_ctime.tv_sec, stx_ctime.tv_nsec) })
    }
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

/// An executable file that is held, whatever becomes of its name, but not open for reading: to hold it, or to let it go, asks
/// no file system.
#[derive(Debug)]
pub struct Handle {
    file: OwnedFd,
    /// Which file it is, as it was when it was opened.
    pub contents: Contents,
    /// Its path in the mount namespace of the process that runs it.
    pub path: PathBuf,
}

impl Handle {
    /// The file that a process executes now.
    ///
    /// # Errors
    ///
    /// When the process has ended, is not accessible, or executes no regular file.
    pub fn of(pid: u32) -> io::Result<Self> {
        let link = format!("/proc/{pid}/exe");
        let file = open(&link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let contents = Contents::at(&file, "", AtFlags::EMPTY_PATH);
        let contents = contents.ok_or_else(|| io::Error::other("it is not a regular file"))?;
        Ok(Self { file, contents, path: fs::read_link(&link)? })
    }

    /// Whether the file is still what it was.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        Contents::at(&self.file, "", AtFlags::EMPTY_PATH).is_some_and(|now| now.file == self.contents.file)
    }

    /// A path that leads to this very file, for this process.
    #[must_use]
    pub fn own_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Looks after which a process that was of no interest is left alone, until the next full look. One that executes the program
/// does so soon after it was forked.
const YOUNG: u32 = 10;
/// Age at which a process that is there at the first look is not young, in clock ticks: ten seconds.
const OLD_TICKS: u64 = 10 * TICKS_PER_SECOND;
/// The kernel reports times in hundredths of a second whatever its clock is.
const TICKS_PER_SECOND: u64 = 100;

/// Most executables that are ignored at the same time.
const MAX_IGNORED: usize = 1_024;

/// Whether a process may be looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Admitted,
    /// It may not, as long as it executes the same file.
    Refused,
    /// It may not, and perhaps it may a moment later.
    #[default]
    Unknown,
}

/// Which processes a search looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// All.
    Full,
    /// Young ones, those that were listed, and new ones.
    New,
    /// The same without new ones: no program was executed since the look before.
    Known,
}

/// A search for processes that is repeated.
#[derive(Debug, Default)]
pub struct Search {
    seen: BTreeMap<u32, Seen>,
    /// Executables of no interest, whether a process runs them now or not: a runtime of containers is executed several times for
    /// each of them, and never for long.
    ignored: HashSet<Contents>,
}

/// What was seen of a process.
#[derive(Clone, Debug, Default)]
struct Seen {
    looks: u32,
    /// The name of what it executes; `None` for a thread of the kernel.
    link: Option<PathBuf>,
    /// Whether it may be looked at while it executes that.
    verdict: Verdict,
    found: Option<Contents>,
    /// The process that was judged last, if it was listed at the look before.
    judged: Option<ProcessId>,
}

impl Search {
    /// Lists the running processes with a plausible executable that is not ignored. `admits` decides by pid and the name of the
    /// executable whether a process may be looked at: of others not even the attributes of their executable are read.
    ///
    /// A node has hundreds of processes, and each takes several system calls; the list alone takes a millisecond if the kernel's
    /// memory about them is not in the CPU's caches. In a look that is not full, a process is judged again only if it executes another file, or is
    /// another process with the same pid: user, namespaces and cgroup of a program are set before it is executed. A full look judges each
    /// again, except those that may be looked at and whose executable is still of no interest.
    ///
    /// # Errors
    ///
    /// When `/proc` cannot be listed. A process that ends meanwhile, or is not accessible, is skipped.
    pub fn look(
        &mut self,
        look: Look,
        mut admits: impl FnMut(u32, &Path) -> Verdict,
    ) -> io::Result<Vec<(u32, Contents)>> {
        let full = look == Look::Full;
        let is_first = self.seen.is_empty();
        let pids = match look {
            Look::Full | Look::New => pids()?,
            Look::Known => self.seen.keys().copied().collect(),
        };
        self.seen.retain(|pid, _| pids.binary_search(pid).is_ok());
        for pid in pids {
            let Self { seen, ignored } = self;
            let seen = seen.entry(pid).or_insert_with(|| {
                let looks = if is_first && is_old(pid) { YOUNG } else { 0 };
                Seen { looks, ..Seen::default() }
            });
            let is_listed = !is_dull(ignored, seen.found);
            if full || is_listed || seen.looks < YOUNG {
                // To ask for the link alone is not to ask the file system. If it changes from here on, the next look sees it.
                let link = fs::read_link(format!("/proc/{pid}/exe")).ok();
                let is_same = seen.link == link
                    && (!is_listed || seen.judged == ProcessId::of(pid) && seen.found == plausible(pid));
                let is_judged = match seen.verdict {
                    Verdict::Unknown => true,
                    Verdict::Refused => full || !is_same,
                    // Who may be looked at does not matter where nothing is to be seen.
                    Verdict::Admitted => !is_same || full && !is_dull(ignored, plausible(pid)),
                };
                if is_judged {
                    seen.judged = if is_listed { ProcessId::of(pid) } else { None };
                    seen.verdict = link.as_deref().map_or(Verdict::Refused, |link| admits(pid, link));
                    seen.found = if seen.verdict == Verdict::Admitted { plausible(pid) } else { None };
                    seen.link = link;
                }
            }
            seen.looks = seen.looks.saturating_add(1);
        }
        let listed = self.seen.iter().filter(|(_, seen)| !is_dull(&self.ignored, seen.found));
        Ok(listed.filter_map(|(pid, seen)| Some((*pid, seen.found?))).collect())
    }

    /// From here on, an executable is of no interest as long as nothing is written to it.
    pub fn ignore(&mut self, contents: Contents) {
        if self.ignored.len() >= MAX_IGNORED {
            // Those that still run are looked at again.
            self.ignored.clear();
        }
        self.ignored.insert(contents);
    }
}

/// Whether an executable is not plausible, or ignored.
fn is_dull(ignored: &HashSet<Contents>, found: Option<Contents>) -> bool {
    found.is_none_or(|found| ignored.contains(&found))
}

fn plausible(pid: u32) -> Option<Contents> {
    Contents::of(pid).filter(|contents| contents.file.is_plausible())
}

fn is_old(pid: u32) -> bool {
    let now = u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or_default() * TICKS_PER_SECOND;
    ProcessId::of(pid).is_some_and(|id| now.saturating_sub(id.start_ticks) >= OLD_TICKS)
}

/// The pids in `/proc`, in order.
fn pids() -> io::Result<Vec<u32>> {
    let folder = open("/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut room = [MaybeUninit::uninit(); 4 << 10];
    let mut entries = RawDir::new(folder, &mut room);
    let mut pids = Vec::new();
    while let Some(entry) = entries.next() {
        pids.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()));
    }
    pids.sort_unstable();
    Ok(pids)
}

/// Other processes that run an executable of this one's name and have eBPF programs loaded: other instances, by their pids.
#[must_use]
pub fn namesakes() -> Vec<u32> {
    let name = |pid: &str| Some(fs::read_link(format!("/proc/{pid}/exe")).ok()?.file_name()?.to_owned());
    let own = name("self");
    let has_programs = |pid: u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        files
            .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
            .any(|target| target.to_str().is_some_and(|target| target.starts_with("anon_inode:bpf")))
    };
    let others = pids().unwrap_or_default().into_iter().filter(|pid| *pid != std::process::id());
    others.filter(|pid| own.is_some() && name(&pid.to_string()) == own && has_programs(*pid)).collect()
}

impl Process {
    /// The process with this pid, if it executes this file; `None` if it has ended or is not accessible.
    #[must_use]
    pub fn of(pid: u32, file: FileId) -> Option<Self> {
        let id = ProcessId::of(pid)?;
        let (namespace, namespaced_pid) = namespace(pid)?;
        Some(Self { id, file, namespace, namespaced_pid })
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

impl ProcessId {
    /// The process with this pid now; `None` if it does not exist or is not accessible.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start_ticks: start_ticks(&stat(pid)?)? })
    }
}

/// CPU time of a process so far, nanoseconds; `None` if it does not exist.
#[must_use]
pub fn cpu_ns(pid: u32) -> Option<u64> {
    of_cpu(&stat(pid)?)
}

fn stat(pid: u32) -> Option<String> {
    let file = open(format!("/proc/{pid}/stat"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // The kernel writes the line at one read. It has 52 fields; none after the 22nd is used, so it may be cut.
    let mut stat = vec![0; 1 << 10];
    let length = read(file, &mut stat).ok()?;
    stat.truncate(length);
    String::from_utf8(stat).ok()
}

/// The fields of `/proc/PID/stat` from the third on: the second, the name in parentheses, may contain spaces and parentheses.
fn fields(stat: &str) -> Option<SplitAsciiWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

/// Of `/proc/PID/stat`: `utime` and `stime`.
fn of_cpu(stat: &str) -> Option<u64> {
    const TICK_NS: u64 = 1_000_000_000 / TICKS_PER_SECOND;
    let mut fields = fields(stat)?.skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    next()?.checked_add(next()?)?.checked_mul(TICK_NS)
}

fn start_ticks(stat: &str) -> Option<u64> {
    fields(stat)?.nth(19)?.parse().ok()
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
    fn the_cpu_time_is_that_of_user_and_kernel() {
        let stat = format!("42 (a) b) (c) S {} 7 5 0 0", "0 ".repeat(10).trim());
        assert_eq!(of_cpu(&stat), Some(120_000_000));
        assert_eq!(of_cpu("42 (cut off"), None);
        assert!(cpu_ns(std::process::id()).is_some());
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

    fn contents(path: &Path) -> Contents {
        Contents::at(CWD, path.to_str().expect("it is text"), AtFlags::empty()).expect("it is a file")
    }

    fn id(path: &Path) -> FileId {
        contents(path).file
    }

    #[test]
    fn names_and_rights_make_no_other_file_and_contents_do() {
        let path = |name: &str| std::env::temp_dir().join(format!("schedspan-{name}-{}", std::process::id()));
        let [file, link, copy] = ["file", "link", "copy"].map(path);
        fs::write(&file, "text").unwrap();
        let before = id(&file);
        fs::hard_link(&file, &link).unwrap();
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        fs::copy(&file, &copy).unwrap();
        assert_eq!((id(&file), id(&link)), (before, before));
        assert_ne!(id(&copy), before);
        fs::write(&file, "other text").unwrap();
        assert_ne!(id(&file), before);
        for path in [file, link, copy] {
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn contents_that_are_written_again_are_others_whatever_their_owner_says_of_them() {
        let path = std::env::temp_dir().join(format!("schedspan-contents-{}", std::process::id()));
        fs::write(&path, "text").unwrap();
        let (before, written) = (contents(&path), fs::metadata(&path).unwrap().modified().unwrap());
        assert_eq!(contents(&path), before);
        // The kernel's clock of files may tick once in 10 ms.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while contents(&path).changed == before.changed {
            assert!(std::time::Instant::now() < end, "the time of the change stands still");
            fs::write(&path, "else").unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
        }
        assert_eq!(id(&path), before.file);
        assert_ne!(contents(&path), before);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_handle_notices_that_its_file_is_written_to() {
        let path = std::env::temp_dir().join(format!("schedspan-sleep-{}", std::process::id()));
        fs::copy("/bin/sleep", &path).unwrap();
        let mut sleep = std::process::Command::new(&path).arg("60").spawn().unwrap();
        let handle = Handle::of(sleep.id()).expect("it runs");
        assert_eq!((handle.path.as_path(), handle.is_unchanged()), (path.as_path(), true));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        fs::write(&path, "text").unwrap();
        assert!(!handle.is_unchanged());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_process_that_has_long_run_at_the_first_look_is_left_alone_after_it() {
        let mut search = Search::default();
        let mut looked_at = |look| judged(&mut search, look);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let young = child.id();
        let old = std::os::unix::process::parent_id();
        assert_eq!((is_old(young), looked_at(Look::Full).contains(&young)), (false, true));
        assert!(looked_at(Look::New).contains(&young));
        assert_eq!(looked_at(Look::New).contains(&old), !is_old(old));
        assert!(looked_at(Look::Full).contains(&old));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_old(u32::MAX));
    }

    #[test]
    fn a_young_process_is_judged_again_if_it_executes_another_file_or_was_not_known() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "read line; exec sleep 60"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = shell.id();
        let wait_for = |name: &str| {
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|runs| runs.trim_end() != name) {
                assert!(std::time::Instant::now() < end, "it does not execute {name}");
                std::thread::yield_now();
            }
        };
        let mut search = not_the_first();
        let mut is_judged = |look, verdict| {
            let mut is_judged = false;
            let admits = |judged, _: &Path| {
                is_judged |= judged == pid;
                verdict
            };
            search.look(look, admits).expect("/proc is there");
            is_judged
        };
        wait_for("sh");
        assert!(is_judged(Look::New, Verdict::Unknown));
        assert!(is_judged(Look::New, Verdict::Refused));
        assert!(!is_judged(Look::New, Verdict::Refused), "it executes the same file");
        assert!(is_judged(Look::Full, Verdict::Refused));
        io::Write::write_all(&mut shell.stdin.take().unwrap(), b"\n").unwrap();
        wait_for("sleep");
        assert!(is_judged(Look::New, Verdict::Admitted));
        assert!(!is_judged(Look::New, Verdict::Admitted));
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn where_no_program_was_executed_no_new_process_is_looked_for() {
        let mut search = not_the_first();
        let mut judged = |look| judged(&mut search, look);
        judged(Look::New);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert!(!judged(Look::Known).contains(&pid));
        assert!(judged(Look::New).contains(&pid));
        assert!(judged(Look::Known).contains(&pid), "it is young, and nobody has decided about it");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!judged(Look::Known).contains(&pid));
    }

    /// The processes that a look asks about, of which nothing is decided.
    fn judged(search: &mut Search, look: Look) -> Vec<u32> {
        let mut pids = Vec::new();
        let admits = |pid, _: &Path| {
            pids.push(pid);
            Verdict::Unknown
        };
        search.look(look, admits).expect("/proc is there");
        pids
    }

    /// A search whose next look is not the first one, at which this test may have run for long.
    fn not_the_first() -> Search {
        Search { seen: BTreeMap::from([(u32::MAX, Seen::default())]), ..Search::default() }
    }

    #[test]
    fn only_who_is_admitted_is_listed_with_the_file_that_it_runs() {
        let own = std::process::id();
        let mut search = not_the_first();
        let mut asked = None;
        let admits = |pid, link: &Path| {
            if pid == own {
                asked = Some(link.to_owned());
                Verdict::Admitted
            } else {
                Verdict::Refused
            }
        };
        let running = search.look(Look::Full, admits).expect("/proc is there");
        assert_eq!(asked, Some(std::env::current_exe().expect("this test runs")));
        let handle = Handle::of(own).expect("this test runs");
        assert_eq!(contents(&handle.own_path()), handle.contents);
        let contents = handle.contents;
        assert!(handle.is_unchanged());
        // A test's executable may be too large or too small for a program that is traced.
        assert_eq!(running, if contents.file.is_plausible() { vec![(own, contents)] } else { vec![] });
        let process = Process::of(own, contents.file).expect("this test runs");
        assert_eq!(process.id.pid, own);
        assert_eq!(Some(process.namespace), pid_namespace("self"));
        assert_eq!(Process::of(u32::MAX, contents.file).map(|process| process.id), None);
        // No other program has this test's name, and eBPF programs.
        assert_eq!(namesakes(), [0; 0]);
    }

    #[test]
    fn what_is_ignored_is_ignored_for_processes_to_come_until_it_changes() {
        let path = std::env::temp_dir().join(format!("schedspan-ignored-{}", std::process::id()));
        // Another process writes it: this one may fork meanwhile, and what is open for writing cannot be executed.
        let copy = format!("cp /bin/sleep \"$0\" && truncate -s {MIN_EXECUTABLE} \"$0\"");
        let copied = std::process::Command::new("sh").args(["-c", &copy]).arg(&path).status().unwrap();
        assert!(copied.success());
        let start = || std::process::Command::new(&path).arg("60").spawn().unwrap();
        let end = |mut sleep: std::process::Child| {
            sleep.kill().unwrap();
            sleep.wait().unwrap();
        };
        let mut search = not_the_first();
        let look = |search: &mut Search| {
            let mut judged = 0;
            let admits = |_, link: &Path| {
                let is_it = link == path;
                judged += u32::from(is_it);
                if is_it { Verdict::Admitted } else { Verdict::Refused }
            };
            let running = search.look(Look::New, admits).expect("/proc is there");
            let running: Vec<_> = running.into_iter().map(|(pid, _)| pid).collect();
            (running, judged)
        };
        let first = start();
        for number in 0..=YOUNG {
            let judged = u32::from(number < 2);
            assert_eq!(
                look(&mut search),
                (vec![first.id()], judged),
                "it is of interest, and the same process"
            );
        }
        let judged = search.seen.get_mut(&first.id()).and_then(|seen| seen.judged.as_mut());
        judged.expect("it was judged").start_ticks -= 1;
        assert_eq!(look(&mut search), (vec![first.id()], 1), "another process had its pid");
        search.ignore(contents(&path));
        assert_eq!(look(&mut search), (vec![], 0));
        end(first);
        let second = start();
        assert_eq!(look(&mut search), (vec![], 1));
        end(second);
        // Names and rights make the same file one that is looked at again.
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let third = start();
        assert_eq!(look(&mut search), (vec![third.id()], 1));
        // There is room for only so many.
        for inode in 0..=MAX_IGNORED as u64 {
            let file = FileId { device: 0, inode, bytes: 0, written: (0, 0) };
            search.ignore(Contents { file, changed: (0, 0) });
        }
        assert!(search.ignored.len() <= MAX_IGNORED);
        end(third);
        fs::remove_file(&path).unwrap();
    }
}
