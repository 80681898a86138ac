//! The programs of the test cluster: built from their Go modules once, kept in the cache folder.

use std::{
    collections::hash_map::DefaultHasher,
    fs::{self, File},
    hash::{Hash as _, Hasher as _},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{paths, process, setup};

/// What Kubernetes' release script writes into its programs, here with the fixed values of a clean tree.
const KUBERNETES_VERSION: &[(&str, &str)] = &[
    ("buildDate", "2026-08-20T11:51:43Z"),
    ("gitCommit", "0000000000000000000000000000000000000000"),
    ("gitTreeState", "clean"),
    ("gitVersion", "v1.36.4"),
    ("gitMajor", "1"),
    ("gitMinor", "36"),
];
const KUBERNETES_VERSION_PACKAGES: [&str; 2] =
    ["k8s.io/client-go/pkg/version", "k8s.io/component-base/version"];

pub(crate) const ETCD: Component = Component {
    name: "etcd",
    version: "3.6.12",
    module: "etcd",
    package: "go.etcd.io/etcd/server/v3",
    ..PLAIN
};
pub(crate) const APISERVER: Component =
    Component { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver", ..KUBERNETES };
pub(crate) const SCHEDULER: Component =
    Component { name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler", ..KUBERNETES };
pub(crate) const CONTROLLER_MANAGER: Component = Component {
    name: "kube-controller-manager",
    package: "k8s.io/kubernetes/cmd/kube-controller-manager",
    ..KUBERNETES
};
pub(crate) const COLLECTOR: Component =
    Component { name: "otelcol", version: "0.161.0", module: "otelcol", package: ".", ..PLAIN };

const PLAIN: Component =
    Component { name: "", version: "", module: "", package: "", tags: "", version_variables: &[] };
const KUBERNETES: Component = Component {
    version: "1.36.4",
    module: "kubernetes",
    tags: "selinux,notest,grpcnotrace",
    version_variables: KUBERNETES_VERSION,
    ..PLAIN
};

/// A program of the test cluster.
#[derive(Clone, Copy)]
pub(crate) struct Component {
    /// Its name, and the name of its executable.
    pub(crate) name: &'static str,
    version: &'static str,
    /// The folder of its Go module under `tests/cluster`.
    module: &'static str,
    package: &'static str,
    tags: &'static str,
    /// Set by the linker in [`KUBERNETES_VERSION_PACKAGES`].
    version_variables: &'static [(&'static str, &'static str)],
}

impl Component {
    /// The path of its executable, which is built if the cache folder does not hold it: stripped, as users run it.
    ///
    /// # Errors
    ///
    /// If there is no Go, or the build fails.
    pub(crate) fn executable(&self) -> Result<PathBuf> {
        let go = setup::go().context("no Go that is new enough: `cargo xtask setup` installs one")?;
        let go_version = process::output(Command::new(&go).arg("version"))?;
        let module = paths::repository().join("tests/cluster").join(self.module);
        let sources = files(&module)?;
        let cache = paths::cache()?.join("components");
        let dir = cache.join(format!("{}-{}-{}", self.name, self.version, self.key(&go_version, &sources)));
        let executable = dir.join(self.name);
        if executable.exists() {
            return Ok(executable);
        }

        fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
        // Held until the end: another xtask waits here, and then finds the executable.
        let lock = File::create(cache.join("lock"))?;
        lock.lock()?;
        if executable.exists() {
            return Ok(executable);
        }
        let partial = cache.join("partial");
        let _ = fs::remove_dir_all(&partial); // What an interrupted build left.
        fs::create_dir(&partial)?;
        // In a copy: with -mod=mod, which a module without sources of its own needs, Go may write to go.mod and go.sum.
        for (name, content) in &sources {
            fs::write(partial.join(name), content)?;
        }
        let mut build = Command::new(go);
        build.args(self.build_args()).arg("-o").arg(partial.join(self.name)).arg(self.package);
        build.envs([
            ("CGO_ENABLED", "0"),
            ("GOTOOLCHAIN", "local"),
            ("GOWORK", "off"),
            ("GOFLAGS", "-mod=mod"),
        ]);
        process::run(
            &format!("build {} {}", self.name, self.version),
            build.env_remove("GOARCH").env_remove("GOOS").current_dir(&partial),
        )?;
        fs::create_dir_all(&dir)?;
        fs::rename(partial.join(self.name), &executable)?;
        fs::remove_dir_all(&partial)?;
        Ok(executable)
    }

    fn build_args(&self) -> Vec<String> {
        let mut link = String::from("-ldflags=all=");
        for (variable, value) in self.version_variables {
            for package in KUBERNETES_VERSION_PACKAGES {
                link += &format!("-X {package}.{variable}={value} ");
            }
        }
        link += "-s -w";
        ["build", "-v", "-trimpath", "-buildvcs=false", "-tags", self.tags, &link].map(str::to_owned).into()
    }

    /// Changes whenever the executable would.
    fn key(&self, go_version: &str, sources: &[(String, Vec<u8>)]) -> String {
        let mut hasher = DefaultHasher::new();
        (go_version, self.package, self.build_args(), sources).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
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
    fn the_key_follows_the_go_version_the_flags_and_the_sources() {
        let sources = |text: &str| vec![("go.sum".to_owned(), text.as_bytes().to_owned())];
        let key = SCHEDULER.key("go1.26.8", &sources("a"));
        assert_eq!(key, SCHEDULER.key("go1.26.8", &sources("a")));
        assert_ne!(key, SCHEDULER.key("go1.26.9", &sources("a")));
        assert_ne!(key, SCHEDULER.key("go1.26.8", &sources("b")));
        assert_ne!(key, Component { tags: "", ..SCHEDULER }.key("go1.26.8", &sources("a")));
    }

    #[test]
    fn the_scheduler_is_linked_with_the_release_scripts_flags() {
        let args = SCHEDULER.build_args().join(" ");
        assert!(args.contains("-tags selinux,notest,grpcnotrace"), "{args}");
        assert!(args.contains("-X k8s.io/component-base/version.gitVersion=v1.36.4 "), "{args}");
        assert!(args.ends_with("-s -w"), "{args}");
    }
}
