//! Opens a file that a process names, if that process itself may read it.
//!
//! The daemon is root, or nearly so: a user who starts a process must not make it read what the process cannot.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Component, Path},
};

use gotrace::discover::ProcessId;
use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, fstat, fstatfs, openat, readlinkat};

use super::credentials::{Credentials, READ, SEARCH};

/// Symbolic links of a path, as in the kernel.
const MAX_LINKS: usize = 40;
/// <https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/magic.h>, `SYSFS_MAGIC`
const SYSFS: i64 = 0x6265_6572;

/// Opens a regular file as the process would: an absolute path from its root, a relative one from its working directory. Symbolic links never
/// leave that root.
///
/// # Errors
///
/// When the file cannot be opened, or the process could not read it.
pub(super) fn open_as(process: ProcessId, path: &Path) -> io::Result<File> {
    let ProcessId { pid, .. } = process;
    let within = if path.is_absolute() {
        path.to_owned()
    } else {
        fs::read_link(format!("/proc/{pid}/cwd"))?.join(path)
    };
    let reader = Credentials::of(pid)?;
    let root = openat(CWD, format!("/proc/{pid}/root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // Its number may belong to another process by now, with another root and other credentials.
    if ProcessId::of(pid) != Some(process) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the process has ended"));
    }
    open_below(root, &within, &reader)
}

fn open_below(root: OwnedFd, path: &Path, reader: &Credentials) -> io::Result<File> {
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    let file = walk(root, path, reader)?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(invalid("it is no regular file"));
    }
    // Such files say something else to each reader: `/proc/self/environ` would be the daemon's own. Of some, permissions are not all that counts.
    if [PROC_SUPER_MAGIC, SYSFS].contains(&fstatfs(&file)?.f_type) {
        return Err(invalid("it is a file of /proc or /sys"));
    }
    reader.check(&file, &stat, READ)?;
    // The same file: what was checked is what is opened.
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(openat(CWD, itself, flags, Mode::empty())?))
}

/// Follows a path, and checks that the reader may search each folder on it.
fn walk(root: OwnedFd, path: &Path, reader: &Credentials) -> io::Result<OwnedFd> {
    let mut folders = vec![root];
    let mut rest = parts(path);
    let mut links = 0;
    loop {
        let Some(name) = rest.pop_front() else {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        };
        let here = &folders[folders.len() - 1];
        reader.check(here, &fstat(here)?, SEARCH)?;
        if name == ".." {
            if folders.len() > 1 {
                folders.pop();
            }
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = openat(here, &name, flags, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&next)?.st_mode) {
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::other("it has too many symbolic links"));
                }
                let target = OsString::from_vec(readlinkat(&next, "", Vec::new())?.into_bytes());
                let target = Path::new(&target);
                if target.is_absolute() {
                    folders.truncate(1);
                }
                let mut more = parts(target);
                more.append(&mut rest);
                rest = more;
            }
            FileType::Directory => folders.push(next),
            FileType::RegularFile
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => {
                if rest.is_empty() {
                    return Ok(next);
                }
                return Err(io::Error::new(io::ErrorKind::NotADirectory, "a part of the path is no folder"));
            }
        }
    }
}

fn parts(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt as _, symlink},
        path::PathBuf,
        process::Command,
    };

    use super::*;

    fn this() -> ProcessId {
        ProcessId::of(std::process::id()).expect("it runs")
    }

    /// A directory for one test, which the test removes.
    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("schedspan-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn everything() -> Credentials {
        Credentials { overrides: true, ..Credentials::default() }
    }

    fn root(directory: &Path) -> OwnedFd {
        openat(CWD, directory, OFlags::PATH, Mode::empty()).unwrap()
    }

    #[test]
    fn rejects_a_pipe_without_blocking() {
        let directory = directory("pipe");
        let path = directory.join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = open_as(this(), &path).unwrap_err().to_string();
        fs::remove_dir_all(&directory).unwrap();
        assert!(error.ends_with("it is no regular file"), "{error}");
    }

    #[test]
    fn links_resolve_within_the_process_root() {
        // A process whose root is a directory: absolute links resolve within it.
        let directory = directory("root");
        fs::create_dir_all(directory.join("etc/static")).unwrap();
        fs::write(directory.join("etc/static/s.yaml"), "inside").unwrap();
        symlink("/etc/static/s.yaml", directory.join("etc/s.yaml")).unwrap();
        symlink("../../../etc/./static/../s.yaml", directory.join("etc/relative")).unwrap();
        symlink("/etc/passwd", directory.join("etc/host")).unwrap();
        symlink("loop", directory.join("etc/loop")).unwrap();
        let inside = |path: &str| {
            open_below(root(&directory), Path::new(path), &everything()).and_then(io::read_to_string)
        };
        for path in ["/etc/s.yaml", "/../../etc/static/s.yaml", "etc/relative"] {
            assert_eq!(inside(path).unwrap(), "inside", "{path}");
        }
        assert_eq!(inside("/etc/host").unwrap_err().kind(), io::ErrorKind::NotFound);
        for path in ["/etc/loop", "/etc", "/", "", "/etc/static/s.yaml/x"] {
            assert!(inside(path).is_err(), "{path}");
        }
        fs::remove_dir_all(&directory).unwrap();
        // A relative path is resolved from the working directory of the process.
        assert!(open_as(this(), Path::new("Cargo.toml")).is_ok());
    }

    #[test]
    fn a_path_has_as_many_links_as_in_the_kernel() {
        let directory = directory("links");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("0"), "at the end").unwrap();
        for number in 0..=MAX_LINKS {
            symlink(number.to_string(), directory.join((number + 1).to_string())).unwrap();
        }
        let read = |links: usize| open_below(root(&directory), Path::new(&links.to_string()), &everything());
        assert_eq!(read(MAX_LINKS).and_then(io::read_to_string).unwrap(), "at the end");
        let error = read(MAX_LINKS + 1).unwrap_err().to_string();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(error, "it has too many symbolic links");
    }

    #[test]
    fn what_the_process_itself_may_not_read_stays_unread() {
        let directory = directory("permissions");
        let allow = |path: &str, mode| {
            fs::set_permissions(directory.join(path), fs::Permissions::from_mode(mode)).unwrap();
        };
        fs::create_dir_all(directory.join("open")).unwrap();
        fs::create_dir_all(directory.join("closed")).unwrap();
        for file in ["open/all", "open/group", "open/owner", "closed/all"] {
            fs::write(directory.join(file), "x").unwrap();
        }
        symlink("/closed/all", directory.join("open/link")).unwrap();
        for (path, mode) in [
            (".", 0o755),
            ("open", 0o755),
            ("open/all", 0o604),
            ("open/group", 0o640),
            ("open/owner", 0o600),
            ("closed", 0o700),
            ("closed/all", 0o644),
        ] {
            allow(path, mode);
        }
        let stat = fstat(root(&directory)).unwrap();
        let (owner, group) = (stat.st_uid, stat.st_gid);
        let reads = |reader: &Credentials| -> Vec<&str> {
            let can = |path: &&str| open_below(root(&directory), Path::new(path), reader).is_ok();
            ["open/all", "open/group", "open/owner", "open/link", "closed/all"]
                .into_iter()
                .filter(can)
                .collect()
        };
        let reader = |user, group| Credentials { user, groups: vec![group], overrides: false };
        assert_eq!(reads(&reader(owner + 1, group + 1)), ["open/all"]);
        // Its class is that of the group, whatever others may.
        assert_eq!(reads(&reader(owner + 1, group)), ["open/group"]);
        let all = ["open/all", "open/group", "open/owner", "open/link", "closed/all"];
        assert_eq!(reads(&reader(owner, group)), all);
        assert_eq!(reads(&everything()), all);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn files_of_proc_are_refused() {
        for path in ["/proc/self/environ", "/proc/thread-self/environ", "/sys/kernel/uevent_seqnum"] {
            let error = open_as(this(), Path::new(path)).unwrap_err().to_string();
            assert!(error.contains("/proc"), "{error}");
        }
    }

    #[test]
    fn another_process_with_the_same_number_is_not_read() {
        let process = ProcessId { start_ticks: this().start_ticks + 1, ..this() };
        let error = open_as(process, Path::new("Cargo.toml")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
