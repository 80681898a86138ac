//! Images of the cluster's programs and nodes, made of components built here.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use xtask::{
    components::{
        APISERVER, CGO, COLLECTOR, CONTROLLER_MANAGER, Component, ETCD, KIND, KUBEADM, KUBECTL, KUBELET,
        PROXY, SCHEDULER,
    },
    image::archive::{File, Image},
    machine, paths, process,
};

use super::{cache::cached, root};

/// The registry in the names of images that are not pulled.
pub(super) const REPOSITORY: &str = "schedspan.test";
/// The tags that this version of kubeadm expects: `kubeadm config images list`.
const ETCD_TAG: &str = "3.6.8-0";
const PAUSE_TAG: &str = "3.10.2";
/// The script that assembles a node: its path and text.
const NODE: (&str, &str) = ("tests/kind/node.sh", include_str!("../../../kind/node.sh"));
/// The path of kube-proxy in kubeadm's manifest, and of nft.
const PROXY_PATH: &str = "usr/local/bin/kube-proxy";
const NFT: &str = "usr/sbin/nft";

/// The name of a component's image.
pub(super) fn name(component: &str, tag: &str) -> String {
    format!("{REPOSITORY}/{component}:{tag}")
}

pub(super) fn pause_name() -> String {
    name("pause", PAUSE_TAG)
}

/// The archive of the Collector's image.
///
/// # Errors
///
/// If the Collector cannot be built, as for the functions below.
pub(super) fn collector() -> Result<PathBuf> {
    of_component(&COLLECTOR, COLLECTOR.version)
}

/// The archive of Kubernetes' pause image.
pub(super) fn pause() -> Result<PathBuf> {
    let source = SCHEDULER.module_folder("k8s.io/kubernetes")?.join("build/pause/linux/pause.c");
    let code = fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
    let executable = cached("pause", &code, |path| {
        CGO.check_tools()?;
        let mut gcc = Command::new("gcc");
        gcc.args(["-Os", "-static", "-s", &format!("-DVERSION=v{PAUSE_TAG}"), "-o"]).arg(path).arg(&source);
        process::run("build pause", &mut gcc)
    })?;
    archive(&pause_name(), "usr/bin/pause", &[("usr/bin/pause".to_owned(), executable)])
}

/// The tar of a node's file system, with everything that kubeadm needs.
pub(super) fn node() -> Result<PathBuf> {
    let root = root::root()?;
    let tag = format!("v{}", SCHEDULER.version);
    let mut archives = vec![of_component(&ETCD, ETCD_TAG)?, pause()?, proxy(&root, &tag)?];
    for component in [APISERVER, CONTROLLER_MANAGER, SCHEDULER] {
        archives.push(of_component(&component, &tag)?);
    }
    let executables = [KUBELET, KUBEADM, KUBECTL]
        .map(|component| component.executable())
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let base = KIND.module_folder(KIND.package)?.join("images/base");
    cached("node", &(NODE, &root, &base, &tag, &executables, &archives), |path| {
        let dir = path.with_extension("work");
        let _ = fs::remove_dir_all(&dir); // What an interrupted xtask left.
        let mut make = Command::new("unshare");
        make.args(["--mount", "--pid", "--fork", "--kill-child", "sh"]);
        make.arg(paths::repository().join(NODE.0)).arg(&root).arg(&dir).arg(&base).arg(&tag).arg(path);
        make.args(&executables).arg("--").args(&archives);
        process::run("make the node image", &mut make)?;
        Ok(fs::remove_dir_all(dir)?)
    })
}

/// kube-proxy with nft and its libraries.
fn proxy(root: &Path, tag: &str) -> Result<PathBuf> {
    let libraries = process::output(Command::new("chroot").arg(root).args(["ldd", &format!("/{NFT}")]))?;
    let libraries = libraries.split_whitespace().filter_map(|word| word.strip_prefix('/'));
    let mut files: Vec<_> = libraries.map(|path| (path.to_owned(), root.join(path))).collect();
    files.push(("usr/bin/nft".to_owned(), root.join(NFT)));
    files.push((PROXY_PATH.to_owned(), PROXY.executable()?));
    archive(&name(PROXY.name, tag), PROXY_PATH, &files)
}

fn of_component(component: &Component, tag: &str) -> Result<PathBuf> {
    let path = format!("usr/bin/{}", component.name);
    archive(&name(component.name, tag), &path, &[(path.clone(), component.executable()?)])
}

/// An image of these files: the path of each in the image, and here.
fn archive(name: &str, entrypoint: &str, files: &[(String, PathBuf)]) -> Result<PathBuf> {
    let short = name.rsplit('/').next().unwrap_or(name).replace(':', "-");
    cached(&format!("image-{short}"), &(name, entrypoint, files), |path| {
        let mut contents = Vec::new();
        for (path, file) in files {
            let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            contents.push(File { path: path.clone(), mode: 0o755, capabilities: None, content });
        }
        let (archive, _) = Image {
            name,
            platform: machine::own()?.platform,
            created: "1970-01-01T00:00:00Z",
            entrypoint: &format!("/{entrypoint}"),
            labels: &[],
            user: "0",
            files: &contents,
        }
        .archive()?;
        Ok(fs::write(path, archive)?)
    })
}
