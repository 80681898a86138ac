//! A Debian in a folder: what container engines run on where the machine has none, and what nodes are made of.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use xtask::{debian, process, setup};

use super::cache::cached;

/// One release whatever the machine has: its systemd, unlike the next one's, starts on control groups of version 1.
const SUITE: &str = "bookworm";
/// Those of kind's own Dockerfile, what Kubernetes' network and containers take, and the engines.
const PACKAGES: &str = "systemd,conntrack,iptables,nftables,iproute2,ethtool,mount,kmod,procps,pigz,ca-certificates,curl,jq,\
    containerd,runc,containernetworking-plugins,docker.io,podman,netavark,aardvark-dns";
/// Stands in for runc.
const RUNC: &str = include_str!("../../../kind/runc");
/// For podman: no limit that only CAP_SYS_RESOURCE may set, and no systemd.
const CONTAINERS: &str = r#"[containers]
default_ulimits = ["nofile=20000:20000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_backend = "netavark"
"#;
/// What nobody reads there.
const USELESS: [&str; 5] =
    ["var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"];

/// The folder, which is made of Debian packages if the cache folder does not hold it.
///
/// # Errors
///
/// If debootstrap cannot be installed, or fails.
pub(super) fn root() -> Result<PathBuf> {
    cached("root", &(SUITE, PACKAGES, RUNC, CONTAINERS, USELESS), |path| {
        setup::ensure_debootstrap()?;
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", &format!("--include={PACKAGES}"), SUITE]);
        process::run("debootstrap", debootstrap.arg(path).arg(debian::mirror()?))?;
        for useless in USELESS {
            fs::remove_dir_all(path.join(useless))?;
        }
        fs::write(path.join("etc/containers/containers.conf"), CONTAINERS)?;
        wrap_runc(path)
    })
}

fn wrap_runc(root: &Path) -> Result<()> {
    let runc = root.join("usr/sbin/runc");
    fs::rename(&runc, root.join("usr/sbin/runc.debian"))?;
    fs::write(&runc, RUNC)?;
    Ok(fs::set_permissions(&runc, fs::Permissions::from_mode(0o755))?)
}
