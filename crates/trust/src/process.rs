//! What `/proc` says of a process. Each file here is written by the kernel alone, at once.

use std::{ffi::CString, fs::File, io::Read as _, path::Path};

use rustix::fs::readlink;

use crate::cgroup::Bases;

/// Longest file that is read: 16 hierarchies with paths of 4 KiB do not occur.
const MAX_FILE: u64 = 64 << 10;
/// Room for what is usual. Without it, a file is read in pieces, of 32 bytes at first, and each is a system call.
const USUAL: usize = 4 << 10;
/// Written by the kubelet for each container with a ServiceAccount.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Who runs a process, and who started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its user; for a process with several, as of a program with the set-user-ID bit, the one with the fewest rights.
    pub user: u32,
    /// The process that started it, or took it over.
    pub parent: u32,
}

impl Credentials {
    /// Those of a process; `None` if it has ended.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        // The owner of /proc/PID is not asked: a process can make that root.
        Self::parse(&read(format!("/proc/{pid}/status"))?)
    }

    /// Reads `/proc/PID/status`.
    pub(crate) fn parse(status: &str) -> Option<Self> {
        let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
        let users: Vec<u32> =
            field("Uid:")?.split_ascii_whitespace().map(|user| user.parse().ok()).collect::<Option<_>>()?;
        Some(Self { user: users.into_iter().max()?, parent: field("PPid:")?.trim().parse().ok()? })
    }
}

/// The lines of `/proc/PID/cgroup`; `None` if the process has ended, or is a thread of the kernel.
pub(crate) fn cgroup(pid: u32) -> Option<String> {
    read(format!("/proc/{pid}/cgroup"))
}

/// Where the host's cgroups begin.
pub(crate) fn bases() -> Bases {
    cgroup(1).map(|text| Bases::of(&text)).unwrap_or_default()
}

/// The daemon's own namespace in the cluster.
pub(crate) fn own_namespace() -> Option<String> {
    read(NAMESPACE_FILE).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The namespaces of the host's processes, which stay the same: those of users and PIDs are the daemon's, which sees the host's
/// processes because it shares these; files are seen as the daemon or process 1 sees them.
#[derive(Debug, Default)]
pub(crate) struct Host {
    user: Option<CString>,
    pid: Option<CString>,
    mounts: [Option<CString>; 2],
}

impl Host {
    /// As it is now.
    pub(crate) fn of_now() -> Self {
        let mounts = ["self", "1"].map(|process| namespace(process, "mnt"));
        Self { user: namespace("self", "user"), pid: namespace("self", "pid"), mounts }
    }

    /// Whether a process is outside of containers.
    pub(crate) fn has(&self, pid: u32) -> bool {
        let pid = pid.to_string();
        let shares = |kind, with: &[Option<CString>]| {
            let of_process = namespace(&pid, kind);
            of_process.is_some() && with.contains(&of_process)
        };
        let one = std::slice::from_ref;
        shares("user", one(&self.user)) && shares("pid", one(&self.pid)) && shares("mnt", &self.mounts)
    }
}

fn namespace(process: &str, kind: &str) -> Option<CString> {
    readlink(format!("/proc/{process}/ns/{kind}"), Vec::new()).ok()
}

/// The name of a process's executable, as the kernel says it without asking the file system; `None` for a thread of the
/// kernel, or without the right to know it. The user who starts a program chooses its name, so a name proves nothing.
#[must_use]
pub fn file_name(pid: u32) -> Option<String> {
    Some(name_of(readlink(format!("/proc/{pid}/exe"), Vec::new()).ok()?.as_bytes()))
}

/// The name of a file in the link `/proc/PID/exe`.
#[must_use]
pub fn name_of(link: &[u8]) -> String {
    let path = String::from_utf8_lossy(link);
    // Of a file that has been removed.
    let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    let mut bytes = Vec::with_capacity(USUAL);
    File::open(path).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
