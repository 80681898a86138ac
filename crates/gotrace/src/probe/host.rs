//! Checks whether this host allows probes: capabilities and kernel.

use std::{io, path::Path};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// BTF of the kernel's own types.
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

/// A required capability, and whether this process has it.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// Such as `CAP_BPF`.
    pub name: &'static str,
    /// Purpose, in the infinitive, for messages.
    pub what: &'static str,
    held: bool,
}

impl Right {
    /// # Errors
    ///
    /// When the capability is missing.
    pub fn check(self) -> Result<(), Unfit> {
        let Self { name, what, held } = self;
        if held { Ok(()) } else { Err(Unfit::Capability { name, what }) }
    }
}

/// Why this host does not allow probes.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// A capability is missing.
    #[error(
        "capability {name} is missing, which is needed to {what}: run schedspan as root, or grant it {name}"
    )]
    Capability {
        /// Such as `CAP_BPF`.
        name: &'static str,
        /// Purpose, in the infinitive.
        what: &'static str,
    },
    /// The kernel was built without BTF.
    #[error(
        "the kernel has no BTF (`{BTF}` is not there): boot one that is built with CONFIG_DEBUG_INFO_BTF=y, as distributions do"
    )]
    NoBtf,
    /// The capabilities of this process cannot be read.
    #[error("cannot ask for this process's capabilities: {0}; run schedspan as root")]
    Unknown(io::Error),
}

/// Makes the permitted capabilities of this process effective, also for threads that it starts later. The executable in
/// the image permits capabilities to users other than root, but does not make them effective: the kernel would refuse
/// to start such an executable if one of them is withheld.
///
/// # Errors
///
/// When the capabilities cannot be read or set.
pub fn raise() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.effective = sets.permitted;
    Ok(set_capabilities(None, sets)?)
}

/// The required capabilities, with those for attaching uprobes one by one if `one_by_one`, and whether this process has
/// them.
///
/// # Errors
///
/// When the capabilities of this process cannot be read.
pub fn rights(one_by_one: bool) -> Result<Vec<Right>, Unfit> {
    let effective = capabilities(None).map_err(|error| Unfit::Unknown(error.into()))?.effective;
    let needed = [BPF, PERFMON, SYS_PTRACE].into_iter().chain(one_by_one.then_some(SYS_ADMIN));
    // CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON, which were split from it.
    let held = |bit| effective.contains(bit) || bit != SYS_PTRACE.bit && effective.contains(SYS_ADMIN.bit);
    Ok(needed.map(|Capability { bit, name, what }| Right { name, what, held: held(bit) }).collect())
}

/// # Errors
///
/// When the kernel has no BTF.
pub fn check_btf() -> Result<(), Unfit> {
    if Path::new(BTF).exists() { Ok(()) } else { Err(Unfit::NoBtf) }
}

pub(super) fn check_rights(one_by_one: bool) -> Result<(), Unfit> {
    rights(one_by_one)?.into_iter().try_for_each(Right::check)
}
