//! Whether this host lets probes in: rights and kernel.

use std::{io, path::Path};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Where the kernel describes its own types.
const BTF: &str = "/sys/kernel/btf/vmlinux";
const SYS_PTRACE: Capability = Capability {
    bit: CapabilitySet::SYS_PTRACE,
    name: "CAP_SYS_PTRACE",
    what: "open the executable of a traced process",
};
const SYS_ADMIN: Capability = Capability {
    bit: CapabilitySet::SYS_ADMIN,
    name: "CAP_SYS_ADMIN",
    what: "attach uprobes on a kernel before 6.6",
};
const PERFMON: Capability =
    Capability { bit: CapabilitySet::PERFMON, name: "CAP_PERFMON", what: "attach uprobes" };
const BPF: Capability = Capability { bit: CapabilitySet::BPF, name: "CAP_BPF", what: "load eBPF programs" };

struct Capability {
    bit: CapabilitySet,
    name: &'static str,
    what: &'static str,
}

/// A right that is needed, and whether it is there.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// Such as `CAP_BPF`.
    pub name: &'static str,
    /// What it is for.
    pub what: &'static str,
    held: bool,
}

impl Right {
    /// # Errors
    ///
    /// If it is missing.
    pub fn check(self) -> Result<(), Unfit> {
        let Self { name, what, held } = self;
        if held { Ok(()) } else { Err(Unfit::Capability { name, what }) }
    }
}

/// What keeps probes out.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// A right is missing.
    #[error(
        "capability {name} is missing, which is needed to {what}: run schedspan as root, or grant it {name}"
    )]
    Capability {
        /// Such as `CAP_BPF`.
        name: &'static str,
        /// What it is for.
        what: &'static str,
    },
    /// The kernel was built without type information.
    #[error(
        "the kernel has no BTF (`{BTF}` is not there): boot one that is built with CONFIG_DEBUG_INFO_BTF=y, as distributions do"
    )]
    NoBtf,
    /// The kernel does not say what is allowed.
    #[error("cannot ask for this process's capabilities: {0}; run schedspan as root")]
    Unknown(io::Error),
}

/// Puts to use what this process, and every thread that it starts, may have: the capabilities that the image's executable
/// carries are permitted to a user who is not root, and not in effect. They are not in effect by themselves because then
/// the kernel would refuse to start it where one of them is withheld.
///
/// # Errors
///
/// If the kernel does not say what is allowed.
pub fn raise() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.effective = sets.permitted;
    Ok(set_capabilities(None, sets)?)
}

/// What is needed, where uprobes can only be attached one by one too, and whether it is there.
///
/// # Errors
///
/// If the kernel does not say.
pub fn rights(one_by_one: bool) -> Result<Vec<Right>, Unfit> {
    let effective = capabilities(None).map_err(|error| Unfit::Unknown(error.into()))?.effective;
    let needed = [BPF, PERFMON, SYS_PTRACE].into_iter().chain(one_by_one.then_some(SYS_ADMIN));
    // CAP_SYS_ADMIN includes what CAP_BPF and CAP_PERFMON were split from.
    let held = |bit| effective.contains(bit) || bit != SYS_PTRACE.bit && effective.contains(SYS_ADMIN.bit);
    Ok(needed.map(|Capability { bit, name, what }| Right { name, what, held: held(bit) }).collect())
}

/// # Errors
///
/// If the kernel has no BTF.
pub fn check_btf() -> Result<(), Unfit> {
    if Path::new(BTF).exists() { Ok(()) } else { Err(Unfit::NoBtf) }
}

pub(super) fn check_rights(one_by_one: bool) -> Result<(), Unfit> {
    rights(one_by_one)?.into_iter().try_for_each(Right::check)
}
