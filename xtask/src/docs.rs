//! The commands in `docs/`. A tag after `sh` in the first line of each shell block says which test runs it.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::paths;

/// A shell block.
pub struct Block {
    /// Such as `docs/install.md:12`.
    pub place: String,
    tag: String,
    pub script: String,
}

impl Block {
    /// Runs it in a shell that stops at the first failure.
    ///
    /// # Errors
    ///
    /// If a command fails: its place and its output.
    pub fn run(&self, shell: &mut Command) -> Result<()> {
        let output = shell.args(["-euc", &self.script]).current_dir(paths::repository()).output()?;
        ensure!(
            output.status.success(),
            "{}: {}: {}{}",
            self.place,
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}

/// The shell blocks with this tag, in the order of the files' names.
///
/// # Errors
///
/// If a file cannot be read.
pub fn blocks(tag: &str) -> Result<Vec<Block>> {
    Ok(all()?.into_iter().filter(|block| block.tag == tag).collect())
}

fn all() -> Result<Vec<Block>> {
    let docs = paths::repository().join("docs");
    let mut files = Vec::new();
    let mut folders = vec![docs.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                files.push(path);
            }
        }
    }
    files.sort();
    let mut blocks = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let name = path.strip_prefix(&docs).unwrap_or(&path).display().to_string();
        blocks.append(&mut of_text(&name, &text));
    }
    Ok(blocks)
}

fn of_text(name: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let script = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim_start() != "```");
        let script = script.map(|line| format!("{line}\n")).collect();
        let (language, tag) = info.split_once(' ').unwrap_or((info, ""));
        // Output and files are not commands.
        if language != "text" && language != "yaml" {
            let place = format!("docs/{name}:{}", number + 1);
            blocks.push(Block { place, tag: tag.to_owned(), script });
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The tags, and their meaning.
    const TAGS: [(&str, &str); 9] = [
        ("chore", "a chore that takes minutes: `cargo xtask e2e` runs the same with fewer Pods"),
        ("here", "`cargo xtask e2e deploy` runs it, in the repository, with a control plane and the daemon"),
        ("pod", "no test runs it: it is about a Pod, process or file of the reader's"),
        ("api", "`cargo xtask e2e inject` runs it, with an administrator's token"),
        ("cluster", "the test of a real cluster runs it, with kubectl and Helm"),
        ("uninstall", "the same, at its end"),
        ("engine", "no test runs it: it takes a container engine or a registry of the reader's"),
        (
            "release",
            "a chore that takes an hour: `cargo xtask release --check` runs it without the key, which a unit test has",
        ),
        ("openshift", "no test runs it: it takes OpenShift"),
    ];

    #[test]
    fn every_block_of_commands_has_a_known_tag() {
        let known: BTreeSet<_> = TAGS.iter().map(|(tag, _)| *tag).collect();
        let blocks = all().unwrap();
        let unknown: Vec<_> = blocks
            .iter()
            .filter(|block| !known.contains(block.tag.as_str()))
            .map(|block| block.place.as_str())
            .collect();
        assert!(unknown.is_empty(), "none of {TAGS:?}: {unknown:?}");
        assert!(!blocks.is_empty());
    }

    #[test]
    fn a_block_has_a_tag_and_its_commands() {
        let text = "a\n```sh here\none\n two\n```\n```text\nout\n```\n```\nthree\n```\n";
        let blocks: Vec<_> = of_text("x.md", text)
            .into_iter()
            .map(|Block { place, tag, script }| (place, tag, script))
            .collect();
        let block = |place: &str, tag: &str, script: &str| (place.into(), tag.into(), script.into());
        assert_eq!(
            blocks,
            [block("docs/x.md:2", "here", "one\n two\n"), block("docs/x.md:9", "", "three\n")]
        );
    }
}
