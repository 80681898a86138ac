//! What a process may read, decided as the kernel decides it.
//!
//! The kernel itself is not asked: to take on the credentials of another user the daemon would need `CAP_SETUID`, a right that it does not
//! have, and with which it could become anybody.

use std::{fs, io, os::fd::AsRawFd};

use rustix::{
    fs::{Stat, getxattr, getxattr_query},
    io::Errno,
};

/// Permission bits, of any class.
pub(super) const SEARCH: u32 = 0o1;
pub(super) const READ: u32 = 0o4;
/// The bits of the group's class. If there are none, a list is not looked at.
const OF_GROUP: u32 = 0o070;
/// Capabilities that override permissions: `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH`.
const OVERRIDE: u64 = 1 << 1 | 1 << 2;

/// The attribute with a file's access control list, and its form.
/// <https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/posix_acl_xattr.h>
const LIST: &str = "system.posix_acl_access";
const VERSION: u32 = 2;
const ENTRY: usize = 8;
/// Bytes of a list: a file system has some hundred entries at most.
const MAX_LIST: usize = 64 << 10;
/// Lists that a server decides by, or that this does not know.
const OTHER_LISTS: [&str; 3] = ["system.nfs4_acl", "system.richacl", "system.cifs_acl"];

/// Where security modules say how a process is confined: the one that is in charge, and those that may be beside it.
const LABELS: [&str; 3] = ["attr/current", "attr/apparmor/current", "attr/smack/current"];
/// Labels, or types in labels of SELinux, of processes that may read all that their user may read.
const UNCONFINED: [&str; 3] = ["unconfined", "unconfined_t", "spc_t"];
/// Beginnings of the profiles that container runtimes give to containers: they allow all files but some of `/proc` and `/sys`.
/// <https://github.com/containerd/containerd/blob/v2.2.0/contrib/apparmor/template.go>
const OF_RUNTIMES: [&str; 4] =
    ["cri-containerd.apparmor.d", "docker-default", "crio-default", "containers-default-"];

/// The user and groups with which a process reads files, and how it is confined.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: u32,
    pub(super) groups: Vec<u32>,
    /// Permissions do not bind it.
    pub(super) overrides: bool,
}

/// An entry of an access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    whose: Whose,
    allows: u32,
}

/// Who an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Owner,
    User(u32),
    OwnersGroup,
    Group(u32),
    /// The most that users, groups and the owner's group get.
    Mask,
    Other,
}

impl Credentials {
    /// Those of a process.
    ///
    /// # Errors
    ///
    /// When they are not known, or a security module confines the process in another way than this one.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let pid = pid.to_string();
        for name in LABELS {
            let theirs = label(&pid, name)?;
            if is_confined(&theirs, &label("thread-self", name)?) {
                let why = format!(
                    "a security module confines the process by `{}`: it may not be allowed to read it",
                    text(&theirs)
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        // Capabilities of another user namespace are none here.
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
        let own = namespace(&pid);
        let here = own.is_some() && own == namespace("self");
        Self::parse(&status, here)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its user is not known"))
    }

    /// From the text of `/proc/PID/status`.
    fn parse(status: &str, capable: bool) -> Option<Self> {
        let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
        // Real, effective, saved, and that for files.
        let of_files = |key| line(key)?.split_ascii_whitespace().nth(3)?.parse().ok();
        let mut groups = vec![of_files("Gid:")?];
        for group in line("Groups:")?.split_ascii_whitespace() {
            groups.push(group.parse().ok()?);
        }
        let effective = u64::from_str_radix(line("CapEff:")?.trim(), 16).ok()?;
        Some(Self { user: of_files("Uid:")?, groups, overrides: capable && effective & OVERRIDE != 0 })
    }

    /// Checks that an open file or folder grants what is needed: [`READ`] or [`SEARCH`].
    ///
    /// # Errors
    ///
    /// When it does not, or its list cannot be read.
    pub(super) fn check(&self, file: &impl AsRawFd, stat: &Stat, needed: u32) -> io::Result<()> {
        let refused = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        // The descriptor may not be open for reading.
        let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
        if OTHER_LISTS.iter().any(|list| getxattr_query(&*itself, *list).is_ok()) {
            return refused("it has an access control list of a kind that schedspan does not read");
        }
        if self.overrides || self.may(stat, || list(&itself), needed)? {
            return Ok(());
        }
        refused("the process itself may not read it")
    }

    /// As the kernel does it.
    /// <https://github.com/torvalds/linux/blob/v6.18/fs/namei.c>, `acl_permission_check`
    fn may(
        &self,
        stat: &Stat,
        list: impl FnOnce() -> io::Result<Option<Vec<Entry>>>,
        needed: u32,
    ) -> io::Result<bool> {
        let grants = |bits: u32| bits & needed == needed;
        if stat.st_uid == self.user {
            return Ok(grants(stat.st_mode >> 6));
        }
        if stat.st_mode & OF_GROUP != 0
            && let Some(list) = list()?
        {
            return Ok(self.is_granted(&list, stat.st_gid, needed));
        }
        let class = if self.groups.contains(&stat.st_gid) { 3 } else { 0 };
        Ok(grants(stat.st_mode >> class))
    }

    /// What a list grants to one who is not the owner.
    /// <https://github.com/torvalds/linux/blob/v6.18/fs/posix_acl.c>, `posix_acl_permission`
    fn is_granted(&self, list: &[Entry], group: u32, needed: u32) -> bool {
        let allowed = |whose| list.iter().find(|entry| entry.whose == whose).map(|entry| entry.allows);
        let mask = allowed(Whose::Mask).unwrap_or(u32::MAX);
        let grants = |bits: u32| bits & needed == needed;
        if let Some(bits) = allowed(Whose::User(self.user)) {
            return grants(bits & mask);
        }
        let mut of_groups = list
            .iter()
            .filter(|entry| match entry.whose {
                Whose::OwnersGroup => self.groups.contains(&group),
                Whose::Group(other) => self.groups.contains(&other),
                Whose::Owner | Whose::User(_) | Whose::Mask | Whose::Other => false,
            })
            .peekable();
        if of_groups.peek().is_some() {
            return of_groups.any(|entry| grants(entry.allows & mask));
        }
        allowed(Whose::Other).is_some_and(grants)
    }
}

/// The list of a file, if it has one.
fn list(path: &str) -> io::Result<Option<Vec<Entry>>> {
    let mut bytes = vec![0; MAX_LIST];
    match getxattr(path, LIST, &mut bytes[..]) {
        Ok(length) => {
            let malformed =
                || io::Error::new(io::ErrorKind::InvalidData, "its access control list is malformed");
            entries(&bytes[..length]).map(Some).ok_or_else(malformed)
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn entries(list: &[u8]) -> Option<Vec<Entry>> {
    let (version, rest) = list.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || rest.len() % ENTRY != 0 {
        return None;
    }
    rest.chunks_exact(ENTRY)
        .map(|entry| {
            let (tag, entry) = entry.split_first_chunk()?;
            let (allows, id) = entry.split_first_chunk()?;
            let id = u32::from_le_bytes(id.try_into().ok()?);
            let whose = match u16::from_le_bytes(*tag) {
                0x01 => Whose::Owner,
                0x02 => Whose::User(id),
                0x04 => Whose::OwnersGroup,
                0x08 => Whose::Group(id),
                0x10 => Whose::Mask,
                0x20 => Whose::Other,
                _ => return None,
            };
            Some(Entry { whose, allows: u16::from_le_bytes(*allows).into() })
        })
        .collect()
}

/// How a process is confined; empty if no security module says it there.
fn label(pid: &str, name: &str) -> io::Result<Vec<u8>> {
    match fs::read(format!("/proc/{pid}/{name}")) {
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::InvalidInput].contains(&error.kind()) => {
            Ok(Vec::new())
        }
        label => label,
    }
}

/// Whether a security module may refuse to a process with this label what it allows one with the other label.
fn is_confined(theirs: &[u8], ours: &[u8]) -> bool {
    let (theirs, ours) = (text(theirs), text(ours));
    // AppArmor has a mode behind the name, and only notes what a profile would refuse in this one.
    let (name, mode) = theirs.split_once(' ').unwrap_or((&theirs, ""));
    // A label of SELinux is user, role, type and level.
    let kind = name.split(':').nth(2).unwrap_or(name);
    let free = UNCONFINED.contains(&kind) || ["(complain)", "(unconfined)"].contains(&mode);
    !(name.is_empty() || theirs == ours || free || OF_RUNTIMES.iter().any(|begin| name.starts_with(begin)))
}

fn text(label: &[u8]) -> String {
    String::from_utf8_lossy(label).trim_end_matches(['\0', '\n']).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWNER: u32 = 1000;
    const GROUP: u32 = 2000;

    fn written(list: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, allows, id) in list {
            bytes.extend([tag.to_le_bytes(), allows.to_le_bytes()].concat());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn file(mode: u32) -> Stat {
        let mut stat = rustix::fs::stat("/").unwrap();
        (stat.st_uid, stat.st_gid, stat.st_mode) = (OWNER, GROUP, mode);
        stat
    }

    /// Whether a reader may read a file of this mode with this list.
    fn reads(user: u32, groups: &[u32], mode: u32, list: &[(u16, u16, u32)]) -> bool {
        let reader = Credentials { user, groups: groups.to_vec(), overrides: false };
        let list = entries(&written(list)).expect("it is well formed");
        reader.may(&file(mode), || Ok(Some(list)), READ).unwrap()
    }

    #[test]
    fn credentials_are_those_for_files() {
        let status =
            "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapEff:\t0000000000000002\n";
        let expected = Credentials { user: 4, groups: vec![8, 9, 10], overrides: true };
        assert_eq!(Credentials::parse(status, true), Some(expected));
        assert!(!Credentials::parse(status, false).unwrap().overrides);
        let none = status.replace("0002", "0008");
        assert!(!Credentials::parse(&none, true).unwrap().overrides);
        for cut in 0..status.len() - 1 {
            let _ = Credentials::parse(&status[..cut], true);
        }
        assert_eq!(Credentials::parse("", true), None);
        assert!(Credentials::of(std::process::id()).is_ok());
    }

    #[test]
    fn a_list_refuses_and_grants_as_in_the_kernel() {
        // Owner, a user, the owner's group, a group, the mask, others.
        let list = [
            (0x01, 6, u32::MAX),
            (0x02, 0, 7),
            (0x02, 4, 8),
            (0x04, 0, u32::MAX),
            (0x08, 4, 3000),
            (0x10, 4, u32::MAX),
            (0x20, 4, u32::MAX),
        ];
        assert!(!reads(7, &[], 0o644, &list), "the list refuses this user, whatever others may");
        assert!(!reads(7, &[3000], 0o644, &list), "a group does not help a user who has an entry");
        assert!(reads(8, &[], 0o640, &list));
        assert!(!reads(9, &[GROUP], 0o644, &list), "the bits of the group's class are the mask");
        assert!(reads(9, &[GROUP, 3000], 0o644, &list), "any of its groups");
        assert!(reads(9, &[], 0o644, &list), "others");
        assert!(
            reads(OWNER, &[], 0o600, &list) && !reads(OWNER, &[], 0o044, &list),
            "the owner's bits alone"
        );
        assert!(reads(7, &[], 0o604, &list), "without bits of the group's class no list counts");
        let masked = [(0x02, 4, 8), (0x04, 4, 0), (0x10, 0, 0), (0x20, 4, 0)];
        assert!(!reads(8, &[], 0o644, &masked) && !reads(9, &[GROUP], 0o644, &masked));
        assert!(reads(9, &[], 0o644, &masked), "others have no mask");
    }

    #[test]
    fn a_list_of_another_form_is_none() {
        assert_eq!(entries(&written(&[(0x03, 4, 0)])), None);
        assert_eq!(entries(&[1, 0, 0, 0]), None);
        assert_eq!(entries(&written(&[(0x20, 4, 0)])[..11]), None);
        assert_eq!(entries(&written(&[])), Some(Vec::new()));
    }

    #[test]
    fn labels_that_differ_may_hide_a_refusal() {
        let confined = |theirs: &str, ours: &str| is_confined(theirs.as_bytes(), ours.as_bytes());
        let container = "system_u:system_r:container_t:s0:c1,c2\0";
        for (theirs, ours) in [
            ("", ""),
            ("unconfined\n", "schedspan (enforce)\n"),
            ("cri-containerd.apparmor.d (enforce)\n", "unconfined\n"),
            ("scheduler (enforce)\n", "scheduler (enforce)\n"),
            ("scheduler (complain)\n", "unconfined\n"),
            ("system_u:system_r:spc_t:s0\0", container),
            (container, container),
        ] {
            assert!(!confined(theirs, ours), "{theirs} of {ours}");
        }
        for (theirs, ours) in [
            ("scheduler (enforce)\n", "unconfined\n"),
            ("unconfined_scheduler (enforce)\n", "unconfined\n"),
            (container, "system_u:system_r:spc_t:s0\0"),
            ("a:unconfined_t:b", ""),
        ] {
            assert!(confined(theirs, ours), "{theirs} of {ours}");
        }
    }

    proptest! {
        #[test]
        fn no_list_makes_it_panic_and_more_rights_never_take_any(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            mut list in proptest::collection::vec((prop::sample::select(&[0x01_u16, 0x02, 0x04, 0x08, 0x10, 0x20][..]), 0..8_u16, 0..4_u32), 0..8),
            user in 0..4_u32,
            group in 0..4_u32,
        ) {
            let _ = entries(&bytes);
            let before = reads(user, &[group], 0o770, &list);
            list.iter_mut().for_each(|(_, allows, _)| *allows = 7);
            prop_assert!(!before || reads(user, &[group], 0o770, &list));
        }
    }
}
