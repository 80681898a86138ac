//! Whether this host lets probes in: rights and kernel.

use std::{fs, path::Path};

/// Where the kernel describes its own types.
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Bits of `CapEff`, by <https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/capability.h>.
const SYS_PTRACE: Capability =
    Capability { bit: 19, name: "CAP_SYS_PTRACE", what: "open a scheduler's executable" };
const SYS_ADMIN: Capability =
    Capability { bit: 21, name: "CAP_SYS_ADMIN", what: "attach uprobes on a kernel before 6.6" };
const PERFMON: Capability = Capability { bit: 38, name: "CAP_PERFMON", what: "attach uprobes" };
const BPF: Capability = Capability { bit: 39, name: "CAP_BPF", what: "load eBPF programs" };

struct Capability {
    bit: u32,
    name: &'static str,
    what: &'static str,
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
    /// `/proc` is not what it should be.
    #[error("cannot read `/proc/self/status`: {0}; mount /proc")]
    Proc(std::io::Error),
}

pub(super) fn check_rights() -> Result<(), Unfit> {
    check(&[BPF, PERFMON, SYS_PTRACE])
}

pub(super) fn check_kernel(multi: bool) -> Result<(), Unfit> {
    if !Path::new(BTF).exists() {
        return Err(Unfit::NoBtf);
    }
    if multi { Ok(()) } else { check(&[SYS_ADMIN]) }
}

fn check(needed: &[Capability]) -> Result<(), Unfit> {
    let status = fs::read_to_string("/proc/self/status").map_err(Unfit::Proc)?;
    let effective = effective_capabilities(&status).unwrap_or(0);
    // CAP_SYS_ADMIN includes what CAP_BPF and CAP_PERFMON were split from.
    let has = |bit: u32| effective >> bit & 1 != 0;
    for Capability { bit, name, what } in needed {
        let implied = *bit != SYS_PTRACE.bit && has(SYS_ADMIN.bit);
        if !has(*bit) && !implied {
            return Err(Unfit::Capability { name, what });
        }
    }
    Ok(())
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_capabilities_are_read_as_hexadecimal() {
        assert_eq!(effective_capabilities("CapPrm:\t0\nCapEff:\t000001ffffffffff\n"), Some(0x1ff_ffff_ffff));
        assert_eq!(effective_capabilities("no such line"), None);
    }
}
