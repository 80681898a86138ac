//! Builds a release twice, from two clones, and compares.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use xtask::{paths, process};

use crate::CHECKSUMS;

/// Folders of the clones. Their lengths differ, so that a path in a file would change its size.
const CLONES: [&str; 2] = ["one", "the-other-one"];

/// Fails if the two releases differ.
pub(crate) fn twice() -> Result<()> {
    let folder = paths::target().join("release-check");
    // The branch may move while the first is built.
    let commit =
        process::output(Command::new("git").args(["rev-parse", "HEAD"]).current_dir(paths::repository()))?;
    let sums: Vec<_> = CLONES.iter().map(|name| build(&folder.join(name), &commit)).collect::<Result<_>>()?;
    let differing = differing(&sums[0], &sums[1]);
    ensure!(differing.is_empty(), "two builds of one commit differ:\n{}", differing.join("\n"));
    print!("{}", sums[0]);
    Ok(())
}

/// The checksums of a release that a clone in this folder makes of this commit.
fn build(folder: &Path, commit: &str) -> Result<String> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    let (clone, output) = (folder.join("clone"), folder.join("release"));
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--no-hardlinks"]).arg(paths::repository()).arg(&clone);
    process::run("clone the repository", &mut git)?;
    let mut git = Command::new("git");
    git.args(["checkout", "--quiet", "--detach", commit]).current_dir(&clone);
    process::run("check out the commit", &mut git)?;
    let mut cargo = Command::new("cargo");
    cargo
        .args(["xtask", "release", "--output"])
        .arg(&output)
        .current_dir(&clone)
        .env_remove("CARGO_TARGET_DIR");
    process::run("build a release in the clone", &mut cargo)?;
    let sums: PathBuf = output.join(CHECKSUMS);
    fs::read_to_string(&sums).with_context(|| format!("cannot read `{}`", sums.display()))
}

/// The lines of either that the other does not have.
fn differing(one: &str, other: &str) -> Vec<String> {
    let only = |ours: &str, theirs: &str, sign: &str| -> Vec<String> {
        let ours = ours.lines().filter(|line| !theirs.lines().any(|their| their == *line));
        ours.map(|line| format!("{sign} {line}")).collect()
    };
    [only(one, other, "-"), only(other, one, "+")].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_differ_are_named() {
        assert!(differing("1 a\n2 b\n", "1 a\n2 b\n").is_empty());
        assert_eq!(differing("1 a\n2 b\n", "1 a\n3 b\n"), ["- 2 b", "+ 3 b"]);
        assert_eq!(differing("1 a\n", "1 a\n3 c\n"), ["+ 3 c"]);
    }
}
