//! A Debian in a folder: the environment of container engines on machines without one, and the file system of nodes.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use xtask::{debian, process, setup};

use super::cache::cached;

/// The Debian release, on every machine. Its systemd starts with control groups of version 1, unlike that of the next release.
const SUITE: &str = "bookworm";
/// The packages of kind's own Dockerfile, those for Kubernetes' network and containers, and the engines.
const PACKAGES: &str = "systemd,conntrack,iptables,nftables,iproute2,ethtool,mount,kmod,procps,pigz,ca-certificates,curl,jq,\
    containerd,runc,containernetworking-plugins,docker.io,podman,netavark,aardvark-dns";
/// Replaces runc.
const RUNC: &str = include_str!("../../../kind/runc");
/// podman's configuration: without limits that require CAP_SYS_RESOURCE, and without systemd.
const CONTAINERS: &str = r#"[containers]
default_ulimits = ["nofile=20000:20000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_backend = "netavark"
"#;
/// Folders to leave out.
const USELESS: [&str; 5] =
    ["var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"];

/// The folder in the cache folder. It is made of Debian packages if it is missing.
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
