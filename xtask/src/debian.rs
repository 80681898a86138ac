//! Packages of any Debian suite. Lists and sources are kept apart from the machine's own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::process;

/// The keys that Debian signs all its suites with.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A suite whose lists have been read.
pub struct Suite {
    work: PathBuf,
    name: &'static str,
    /// Debian's name; this machine's own if there is none.
    architecture: Option<&'static str>,
}

impl Suite {
    /// Reads the lists of this suite into the empty folder `work`, for this machine's or another architecture.
    ///
    /// # Errors
    ///
    /// If this machine does not run Debian, or its mirror does not have the suite.
    pub fn read(name: &'static str, architecture: Option<&'static str>, work: &Path) -> Result<Self> {
        fs::create_dir_all(work.join("lists"))?;
        let mirror = mirror()?;
        fs::write(work.join("sources.list"), format!("deb [signed-by={KEYS}] {mirror} {name} main\n"))?;
        let suite = Self { work: work.to_owned(), name, architecture };
        process::run(&format!("apt-get update for {name}"), suite.command("apt-get").arg("update"))?;
        Ok(suite)
    }

    /// The direct and indirect dependencies of a package whose names have one of these prefixes.
    ///
    /// # Errors
    ///
    /// If there is no such package, or it has no such dependency.
    pub fn needed(&self, package: &str, prefixes: &[&str]) -> Result<Vec<String>> {
        let mut command = self.command("apt-cache");
        command.args(["depends", "--recurse", "--important", package]);
        let lines = process::output(&mut command)?;
        let begins = |line: &&str| prefixes.iter().any(|prefix| line.starts_with(prefix));
        let found: Vec<_> =
            lines.lines().filter(begins).filter(|line| *line != package).map(str::to_owned).collect();
        ensure!(!found.is_empty(), "{package} of {} needs no {}", self.name, prefixes.join(", "));
        Ok(found)
    }

    /// Downloads packages, each a name with an optional version in apt's syntax, and unpacks them into `dir`.
    ///
    /// # Errors
    ///
    /// If one does not exist or cannot be unpacked.
    pub fn unpack(&self, packages: &[String], dir: &Path) -> Result<()> {
        let what = packages.join(" ");
        process::run(&format!("download {what}"), self.command("apt-get").arg("download").args(packages))?;
        let mut unpacked = 0;
        for entry in fs::read_dir(&self.work)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                let name = path.file_name().unwrap_or_default().display().to_string();
                let mut unpack = Command::new("dpkg-deb");
                process::run(&format!("unpack {name}"), unpack.arg("--extract").arg(&path).arg(dir))?;
                fs::remove_file(path)?;
                unpacked += 1;
            }
        }
        ensure!(unpacked == packages.len(), "apt-get downloaded {unpacked} packages for {what}");
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.arg("-o").arg(format!("Dir::Etc::SourceList={}", self.work.join("sources.list").display()));
        command.arg("-o").arg(format!("Dir::State::Lists={}", self.work.join("lists").display()));
        // The machine's installed packages are ignored: they may not satisfy those of the suite.
        command.args([
            "-o",
            "Dir::Etc::SourceParts=-",
            "-o",
            "Dir::Cache::PkgCache=",
            "-o",
            "Dir::Cache::SrcPkgCache=",
        ]);
        for option in ["APT::Architecture", "APT::Architectures"] {
            command.args(self.architecture.map(|name| format!("-o{option}={name}")));
        }
        command.args(["-o", "APT::Sandbox::User=root"]).current_dir(&self.work);
        command
    }
}

/// The URL of this machine's Debian mirror.
///
/// # Errors
///
/// If the machine does not run Debian.
pub fn mirror() -> Result<String> {
    let uris = process::output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
    ]))?;
    let mirror = uris.lines().find(|uri| uri.trim_end_matches('/').ends_with("/debian"));
    mirror.map(str::to_owned).context("apt's sources name no Debian mirror")
}
