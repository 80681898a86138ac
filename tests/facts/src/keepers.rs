//! Tests that documents name: they must be there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// The document with the table of attacks, whose last column names what keeps each line.
const ATTACKS: &str = "SECURITY.md";
/// The head of that column.
const COLUMN: &str = "kept by";
/// What keeps a line besides tests of this repository.
const OTHERS: [&str; 1] = ["cargo deny"];
/// Lines that tools keep, with checksums of their own.
const BY_TOOLS: [&str; 1] = ["the checksums of `Cargo.lock` and `go.sum`"];
/// Documents in which a file and the names of its tests stand together, as `FILE`: `TEST`, `TEST`.
const TOGETHER: [&str; 4] = [ATTACKS, "docs/security.md", "docs/architecture.md", "CONTRIBUTING.md"];
/// The commands, and the tests of `cargo xtask e2e`.
const COMMANDS: [&str; 2] = ["xtask/src/main.rs", "tests/e2e/src/main.rs"];
const SUITE: &str = "tests/e2e/src/suite.rs";
/// Folders that hold no source of this repository.
const FOREIGN: [&str; 3] = ["target", ".git", "node_modules"];

/// What is in the tree.
struct Tree {
    root: PathBuf,
    /// Names of files, without folders.
    files: BTreeSet<String>,
    /// Names of functions that are tests.
    tests: BTreeSet<String>,
    commands: String,
    suite: String,
}

/// Every name of a test, file or command in the documents that is not in the tree.
fn missing(root: &Path) -> Result<Vec<String>> {
    let tree = Tree::read(root)?;
    let read =
        |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read `{path}`"));
    let mut missing = tree.of_attacks(&read(ATTACKS)?);
    for path in TOGETHER {
        missing.extend(tree.of_files(&read(path)?).into_iter().map(|what| format!("{path}: {what}")));
    }
    Ok(missing)
}

impl Tree {
    fn read(root: &Path) -> Result<Self> {
        let (mut files, mut tests) = (BTreeSet::new(), BTreeSet::new());
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
                let name = name.to_string_lossy().into_owned();
                if entry.is_dir() && !entry.is_symlink() {
                    if !FOREIGN.contains(&&*name) {
                        folders.push(entry);
                    }
                } else {
                    if name.ends_with(".rs") {
                        tests.extend(tests_in(&fs::read_to_string(&entry)?));
                    }
                    files.insert(name);
                }
            }
        }
        let text =
            |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read `{path}`"));
        Ok(Self {
            root: root.to_owned(),
            files,
            tests,
            commands: COMMANDS.map(text).into_iter().collect::<Result<Vec<_>>>()?.concat(),
            suite: text(SUITE)?,
        })
    }

    /// What is wrong with the last column of the tables of attacks.
    fn of_attacks(&self, text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut of_attacks = false;
        for line in text.lines() {
            let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
                of_attacks = false;
                continue;
            };
            let cells: Vec<_> = cells.split('|').map(str::trim).collect();
            let [attack, .., keeper] = &cells[..] else { continue };
            if *keeper == COLUMN {
                of_attacks = true;
            } else if of_attacks && !attack.starts_with("---") && !BY_TOOLS.contains(&cells[1]) {
                let names: Vec<_> = quoted(keeper).collect();
                if names.is_empty() {
                    wrong.push(format!("{ATTACKS}: no test keeps the line `{attack}`"));
                }
                let absent = names.into_iter().filter(|name| !self.has(name));
                wrong.extend(
                    absent.map(|name| format!("{ATTACKS}: `{name}` is not there, of the line `{attack}`")),
                );
            }
        }
        wrong
    }

    /// Tests that are not in the file before them.
    fn of_files(&self, text: &str) -> Vec<String> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut wrong = Vec::new();
        let parts: Vec<_> = text.split('`').collect();
        // Every second part is in backticks.
        let (mut file, mut at) = (None, 1);
        while at < parts.len() {
            let (before, part) = (parts[at - 1], parts[at]);
            if part.ends_with(".rs") && part.contains('/') {
                file = Some(part);
            } else if let Some(path) = file
                && is_test(part)
                && [": ", ", ", " and ", ", and "].contains(&before)
            {
                match fs::read_to_string(self.root.join(path)) {
                    Ok(source) if source.contains(&format!("fn {part}(")) => {}
                    Ok(_) => wrong.push(format!("`{path}` has no test `{part}`")),
                    Err(_) => wrong.push(format!("`{path}` is not there")),
                }
            } else {
                file = None;
            }
            at += 2;
        }
        wrong
    }

    /// Whether a test, a file, a command or a test of `cargo xtask e2e` has this name.
    fn has(&self, name: &str) -> bool {
        if let Some(command) = name.strip_prefix("cargo xtask ") {
            let mut words = command.split(' ');
            let command = words.next().unwrap_or_default();
            return self.is_command(command) && words.all(|word| word.starts_with("--") || self.is_e2e(word));
        }
        OTHERS.contains(&name)
            || (name.contains('/') && self.root.join(name).exists())
            || self.files.contains(name)
            || self.tests.contains(name)
            || self.is_e2e(name)
    }

    fn is_command(&self, name: &str) -> bool {
        let mut letters = name.chars();
        let capital = letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters);
        let variant: String = capital.collect();
        let is = |line: &str| {
            line.trim().strip_prefix(&variant).is_some_and(|rest| rest.starts_with(['(', ',', '{', ' ']))
        };
        self.commands.lines().any(is)
    }

    fn is_e2e(&self, name: &str) -> bool {
        [format!("name: \"{name}\""), format!("name: \"{name}-")].iter().any(|text| self.suite.contains(text))
    }
}

/// What is in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether this is a sentence, as the names of tests are.
fn is_test(name: &str) -> bool {
    name.matches('_').count() > 1
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The names of functions with an attribute that makes them tests, or in a block of property tests.
fn tests_in(source: &str) -> Vec<String> {
    let mut tests = Vec::new();
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        let name =
            line.trim_start_matches("async ").strip_prefix("fn ").and_then(|line| line.split('(').next());
        match name {
            Some(name) if marked => {
                tests.push(name.to_owned());
                marked = false;
            }
            Some(_) => marked = false,
            None => marked |= ["#[test]", "#[tokio::test"].iter().any(|mark| line.starts_with(mark)),
        }
    }
    tests
}

mod tests {
    use super::*;
    use crate::repository;

    #[test]
    fn tests_that_documents_name_are_there() {
        let missing = missing(&repository()).unwrap();
        assert!(missing.is_empty(), "{}", missing.join("\n"));
    }

    #[test]
    fn a_line_without_a_test_or_with_another_name_is_found() {
        let tree = Tree::read(&repository()).unwrap();
        let table = |keeper: &str| {
            format!("| attempt | what happens | kept by |\n|---|---|---|\n| a | b | {keeper} |\n")
        };
        for keeper in [
            "`cargo xtask e2e hostile-trust`; `crates/trust/src/tests.rs`",
            "`cargo xtask e2e faults`, `hostile-files`",
            "`tests_that_documents_name_are_there`; `cargo deny` in `cargo xtask test`",
        ] {
            assert_eq!(tree.of_attacks(&table(keeper)), [""; 0], "{keeper}");
        }
        for keeper in [
            "someone",
            "`cargo xtask e2e hostile-nothing`",
            "`cargo xtask nothing`",
            "`crates/trust/src/none.rs`",
            "`a_test_that_was_renamed`",
            // A function, and no test.
            "`of_attacks`",
        ] {
            assert_eq!(tree.of_attacks(&table(keeper)).len(), 1, "{keeper}");
        }
        let file = "tests/facts/src/keepers.rs";
        let of = |name: &str| {
            tree.of_files(&format!("See `{file}`: `tests_that_documents_name_are_there`,\n`{name}`."))
        };
        assert_eq!(of("a_line_without_a_test_or_with_another_name_is_found"), [""; 0]);
        assert_eq!(of("a_test_that_was_renamed").len(), 1);
    }

    #[test]
    fn tests_of_each_kind_are_found() {
        let source = "#[test]\nfn one_of_them() {}\n#[tokio::test(start_paused = true)]\nasync fn another_of_them() {}\nfn none() {}";
        assert_eq!(tests_in(source), ["one_of_them", "another_of_them"]);
    }
}
