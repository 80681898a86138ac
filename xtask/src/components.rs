//! Go programs of the test cluster and other tools. Each is built from its Go module once and kept in the cache folder.

use std::{
    collections::hash_map::DefaultHasher,
    fs::{self, File},
    hash::{Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{go::Go, paths, process};

/// The variables besides the version that Kubernetes' release script sets at link time, with the values of a clean tree.
const KUBERNETES_TREE: [(&str, &str); 3] = [
    ("buildDate", "2026-08-20T11:51:43Z"),
    ("gitCommit", "0000000000000000000000000000000000000000"),
    ("gitTreeState", "clean"),
];

/// The environment of every build.
const ENVIRONMENT: [(&str, &str); 4] =
    [("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local"), ("GOWORK", "off"), ("GOFLAGS", "-mod=mod")];

/// Without symbol table and DWARF, like released builds.
pub const STRIPPED: Kind = Kind {
    name: "stripped",
    before: &[],
    flags: &[],
    link: "-s -w",
    environment: &[],
    strip: false,
    tools: &[],
};
/// Position-independent.
pub const PIE: Kind = Kind { name: "pie", flags: &["-buildmode=pie"], ..STRIPPED };
/// With C code, linked by the C toolchain.
pub const CGO: Kind = Kind {
    name: "cgo",
    link: "-linkmode=external",
    environment: &[("CGO_ENABLED", "1"), ("CC", "gcc")],
    strip: true,
    tools: &[("gcc", "gcc libc6-dev"), ("strip", "binutils")],
    ..STRIPPED
};
/// With symbol table and DWARF.
pub const DWARF: Kind = Kind { name: "dwarf", link: "", ..STRIPPED };
/// With calls that `weave.go` of its module weaves into its functions.
pub const WOVEN: Kind =
    Kind { name: "woven", before: &["run", "weave.go"], flags: &["-overlay=overlay.json"], ..STRIPPED };
/// For arm64 on any machine.
pub const ARM64: Kind = Kind { name: "arm64", environment: &[("GOARCH", "arm64")], ..STRIPPED };

pub const ETCD: Component = Component {
    name: "etcd",
    version: "3.6.12",
    module: "cluster/etcd",
    package: "go.etcd.io/etcd/server/v3",
    ..PLAIN
};
pub const APISERVER: Component =
    Component { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver", ..KUBERNETES };
pub const SCHEDULER: Component =
    Component { name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler", ..KUBERNETES };
pub const CONTROLLER_MANAGER: Component = Component {
    name: "kube-controller-manager",
    package: "k8s.io/kubernetes/cmd/kube-controller-manager",
    ..KUBERNETES
};
pub const KUBELET: Component =
    Component { name: "kubelet", package: "k8s.io/kubernetes/cmd/kubelet", ..KUBERNETES };
pub const KUBEADM: Component =
    Component { name: "kubeadm", package: "k8s.io/kubernetes/cmd/kubeadm", ..KUBERNETES };
pub const KUBECTL: Component =
    Component { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl", ..KUBERNETES };
pub const PROXY: Component =
    Component { name: "kube-proxy", package: "k8s.io/kubernetes/cmd/kube-proxy", ..KUBERNETES };
pub const KIND: Component =
    Component { name: "kind", version: "0.33.0", module: "kind/kind", package: "sigs.k8s.io/kind", ..PLAIN };
pub const COLLECTOR: Component =
    Component { name: "otelcol", version: "0.161.0", module: "cluster/otelcol", package: ".", ..PLAIN };
pub const JAEGER: Component = Component {
    name: "jaeger",
    version: "1.76.0",
    module: "cluster/jaeger",
    package: "github.com/jaegertracing/jaeger/cmd/all-in-one",
    ..PLAIN
};

pub const PROMETHEUS: Component = Component {
    name: "prometheus",
    version: "3.15.0",
    module: "cluster/prometheus",
    package: "github.com/prometheus/prometheus/cmd/prometheus",
    // Without the clients of clouds: its targets are given.
    tags: "remove_all_sd",
    ..PLAIN
};

pub const HELM: Component = Component {
    name: "helm",
    version: "3.22.0",
    module: "tools/helm",
    package: "helm.sh/helm/v3/cmd/helm",
    ..PLAIN
};
pub const KUSTOMIZE: Component = Component {
    name: "kustomize",
    version: "5.8.2",
    module: "tools/kustomize",
    package: "sigs.k8s.io/kustomize/kustomize/v5",
    ..PLAIN
};

/// What most programs have in common.
pub const PLAIN: Component = Component {
    name: "",
    version: "",
    module: "",
    shared: &[],
    package: "",
    tags: "",
    version_packages: &[],
    go: Go::Machine,
    kind: STRIPPED,
};
const KUBERNETES: Component = Component {
    version: "1.36.4",
    module: "cluster/kubernetes",
    tags: "selinux,notest,grpcnotrace",
    version_packages: &["k8s.io/client-go/pkg/version", "k8s.io/component-base/version"],
    ..PLAIN
};

/// A program and the Go module that it is built from.
#[derive(Clone, Copy)]
pub struct Component {
    /// The name of the program and its executable.
    pub name: &'static str,
    pub version: &'static str,
    /// The folder of its Go module under `tests`.
    pub module: &'static str,
    /// Other folders under `tests` whose files are added to the module, shared with other modules.
    pub shared: &'static [&'static str],
    pub package: &'static str,
    pub tags: &'static str,
    /// The packages in which the linker sets the version, like Kubernetes' release script.
    pub version_packages: &'static [&'static str],
    pub go: Go,
    pub kind: Kind,
}

/// A way to build a program.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    /// Arguments of a `go` command that runs in the module before the build.
    before: &'static [&'static str],
    /// Flags of `go build`.
    flags: &'static [&'static str],
    /// Flags of the linker.
    link: &'static str,
    /// Variables that override [`ENVIRONMENT`].
    environment: &'static [(&'static str, &'static str)],
    /// Whether binutils' `strip` runs over the executable.
    strip: bool,
    /// Programs that the build needs besides Go, and their Debian packages.
    tools: &'static [(&'static str, &'static str)],
}

impl Component {
    /// The path of its executable. It is built if the cache folder does not have it.
    ///
    /// # Errors
    ///
    /// If a tool is missing or the build fails.
    pub fn executable(&self) -> Result<PathBuf> {
        let sources = self.sources()?;
        let (cache, dir) = (cache()?, self.folder(&sources)?);
        let executable = dir.join(self.name);
        if executable.exists() {
            return Ok(executable);
        }

        fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
        // Another process waits here, and then finds the executable.
        let lock = File::create(cache.join("lock"))?;
        lock.lock()?;
        if executable.exists() {
            return Ok(executable);
        }
        self.kind.check_tools()?;
        let partial = cache.join("partial");
        let _ = fs::remove_dir_all(&partial); // An interrupted build leaves one.
        fs::create_dir(&partial)?;
        // Builds in a copy: -mod=mod, which a module without own sources needs, lets Go write to go.mod and go.sum.
        for (name, content) in &sources {
            fs::write(partial.join(name), content)?;
        }
        let built = partial.join(self.name);
        let go = self.go.executable()?;
        let go = || {
            let mut go = Command::new(&go);
            go.current_dir(&partial).env_remove("GOARCH").env_remove("GOOS").env_remove("GOROOT");
            go.envs(ENVIRONMENT);
            go
        };
        let what = format!("{} {} {} {}", self.name, self.version, self.go.version()?, self.kind.name);
        if !self.kind.before.is_empty() {
            process::run(&format!("prepare {what}"), go().args(self.kind.before))?;
        }
        let mut build = go();
        build.envs(self.kind.environment.iter().copied());
        build.args(self.build_args()).arg("-o").arg(&built).arg(self.package);
        process::run(&format!("build {what}"), &mut build)?;
        if self.kind.strip {
            process::run(&format!("strip {what}"), Command::new("strip").arg(&built))?;
        }
        fs::create_dir_all(&dir)?;
        fs::rename(built, &executable)?;
        fs::remove_dir_all(&partial)?;
        Ok(executable)
    }

    /// The path of its executable if the cache folder has it.
    ///
    /// # Errors
    ///
    /// If there is no cache folder, or no Go that a key could be made of.
    pub fn built(&self) -> Result<Option<PathBuf>> {
        let executable = self.folder(&self.sources()?)?.join(self.name);
        Ok(Some(executable).filter(|executable| executable.exists()))
    }

    /// The folder that its executable is in, or will be.
    fn folder(&self, sources: &[(String, Vec<u8>)]) -> Result<PathBuf> {
        let key = self.key(&self.go.description()?, sources);
        Ok(cache()?.join(format!("{}-{}-{key}", self.name, self.version)))
    }

    /// The folder of a dependency, in the version that its module requires.
    ///
    /// # Errors
    ///
    /// If the dependency cannot be downloaded, or does not match `go.sum`.
    pub fn module_folder(&self, module: &str) -> Result<PathBuf> {
        let mut download = Command::new(self.go.executable()?);
        download.args(["mod", "download", "-json", module]).envs(ENVIRONMENT);
        download.current_dir(paths::repository().join("tests").join(self.module));
        let module: serde_json::Value = serde_json::from_str(&process::output(&mut download)?)?;
        module["Dir"].as_str().map(PathBuf::from).context("`go mod download` names no folder")
    }

    /// The files of its module by name.
    fn sources(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut sources = Vec::new();
        for folder in [&self.module].into_iter().chain(self.shared) {
            sources.append(&mut files(&paths::repository().join("tests").join(folder))?);
        }
        Ok(sources)
    }

    fn build_args(&self) -> Vec<String> {
        let mut numbers = self.version.split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let version = format!("v{}", self.version);
        let version = [("gitVersion", version.as_str()), ("gitMajor", major), ("gitMinor", minor)];
        let mut link = String::from("-ldflags=all=");
        for (variable, value) in KUBERNETES_TREE.into_iter().chain(version) {
            for package in self.version_packages {
                link += &format!("-X {package}.{variable}={value} ");
            }
        }
        link += self.kind.link;
        let args = ["build", "-v", "-trimpath", "-buildvcs=false", "-tags", self.tags, &link];
        args.iter().chain(self.kind.flags).map(|&arg| arg.to_owned()).collect()
    }

    /// A hash of everything that determines the executable, except the C toolchain.
    fn key(&self, go: &str, sources: &[(String, Vec<u8>)]) -> String {
        let mut recipe = self.build_args();
        recipe.extend(self.kind.before.iter().map(|&arg| arg.to_owned()));
        recipe.extend(self.kind.environment.iter().map(|(variable, value)| format!("{variable}={value}")));
        recipe.extend(self.kind.strip.then(|| "strip".to_owned()));
        let mut hasher = DefaultHasher::new();
        (go, self.package, recipe, sources).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

impl Kind {
    pub fn check_tools(&self) -> Result<()> {
        let is_missing = |tool: &&(&str, &str)| Command::new(tool.0).arg("--version").output().is_err();
        let (missing, packages): (Vec<_>, Vec<_>) = self.tools.iter().filter(is_missing).copied().unzip();
        ensure!(
            missing.is_empty(),
            "not on PATH: {}; `sudo apt-get install {}` installs what is missing",
            missing.join(", "),
            packages.join(" ")
        );
        Ok(())
    }
}

fn cache() -> Result<PathBuf> {
    Ok(paths::cache()?.join("components"))
}

/// The files of a folder by name, in order.
fn files(dir: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let entry = entry?;
        files.push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_follows_the_go_version_the_flags_the_kind_and_the_sources() {
        let sources = |text: &str| vec![("go.sum".to_owned(), text.as_bytes().to_owned())];
        let key = SCHEDULER.key("go1.26.8", &sources("a"));
        assert_eq!(key, SCHEDULER.key("go1.26.8", &sources("a")));
        assert_ne!(key, SCHEDULER.key("go1.26.9", &sources("a")));
        assert_ne!(key, SCHEDULER.key("go1.26.8", &sources("b")));
        let others = [
            Component { tags: "", ..SCHEDULER },
            Component { version: "1.36.3", ..SCHEDULER },
            Component { kind: ARM64, ..SCHEDULER },
            Component { kind: Kind { strip: true, ..STRIPPED }, ..SCHEDULER },
            Component { kind: Kind { before: &["run"], ..STRIPPED }, ..SCHEDULER },
        ];
        for other in others {
            assert_ne!(key, other.key("go1.26.8", &sources("a")));
        }
    }

    #[test]
    fn the_scheduler_is_linked_with_the_release_scripts_flags() {
        let args = SCHEDULER.build_args().join(" ");
        assert!(args.contains("-tags selinux,notest,grpcnotrace"), "{args}");
        assert!(args.contains("-X k8s.io/component-base/version.gitVersion=v1.36.4 "), "{args}");
        assert!(args.contains("-X k8s.io/client-go/pkg/version.gitMinor=36 "), "{args}");
        assert!(args.ends_with("-s -w"), "{args}");
    }

    #[test]
    fn a_missing_tool_is_named_with_its_package() {
        let kind = Kind { tools: &[("sh", "dash"), ("no-such-tool", "its-package")], ..STRIPPED };
        let error = kind.check_tools().unwrap_err().to_string();
        assert!(error.contains("not on PATH: no-such-tool;"), "{error}");
        assert!(error.contains("apt-get install its-package`"), "{error}");
    }
}
