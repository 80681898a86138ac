//! Go toolchains: the machine's, and releases next to it.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use crate::{process, setup};

/// The toolchain that a program is built with.
#[derive(Clone, Copy)]
pub enum Go {
    /// The one that `cargo xtask setup` finds or installs.
    Machine,
    /// This release, whatever the machine has.
    Release(&'static str),
}

impl Go {
    /// Its `go`. A release is installed if the cache folder does not hold it.
    ///
    /// # Errors
    ///
    /// If the machine has none, or the release cannot be installed.
    pub fn executable(self) -> Result<PathBuf> {
        match self {
            Self::Machine => {
                setup::go().context("no Go that is new enough: `cargo xtask setup` installs one")
            }
            Self::Release(version) => setup::go_release(version),
        }
    }

    /// What `go version` says; of a release without the machine, because that need not be installed yet.
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

    /// Its version, such as `go1.26.8`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_a_version_without_being_installed() {
        assert_eq!(Go::Release("1.24.11").version().unwrap(), "go1.24.11");
    }
}
