//! The files that may state a figure.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

/// Folders and files, from the root of the repository.
const PLACES: [&str; 9] = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "VERSIONING.md",
    "docs",
    "deploy",
    "examples",
    // The help of the command line.
    "tracer/src/cli",
    "crates/spans/src/export/mod.rs",
];
/// Ends of names of files with text.
const TEXTS: [&str; 8] = [".md", ".yaml", ".yml", ".json", ".tpl", ".txt", ".rs", ".svg"];
/// Marks at the beginning of a line that belong to the language, not to the sentence.
const LINE_MARKS: [&str; 6] = ["//!", "///", "//", "#", ">", "-"];

/// A file that may state a figure.
#[derive(Clone, Debug)]
pub struct Document {
    /// From the root of the repository.
    pub path: String,
    /// In one line, without marks.
    pub text: String,
}

impl Document {
    /// A document of a file's text.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        let mut plain = String::with_capacity(text.len());
        for line in text.lines() {
            let mut line = line.trim();
            while let Some(rest) = LINE_MARKS.iter().find_map(|mark| line.strip_prefix(mark)) {
                line = rest.trim_start();
            }
            plain += line;
            plain.push(' ');
        }
        if path.ends_with(".svg") {
            plain = without_tags(&plain);
        }
        plain.retain(|c| c != '*' && c != '`');
        let words: Vec<_> = plain.split_whitespace().collect();
        Self { path: path.to_owned(), text: words.join(" ") }
    }
}

/// All that there are.
///
/// # Errors
///
/// If one cannot be read.
pub(crate) fn all(root: &Path) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for place in PLACES {
        if root.join(place).exists() {
            add(root, place, &mut documents)?;
        }
    }
    Ok(documents)
}

fn add(root: &Path, path: &str, documents: &mut Vec<Document>) -> Result<()> {
    let full = root.join(path);
    if full.is_dir() {
        let mut names: Vec<_> = fs::read_dir(&full)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        names.sort();
        return names.iter().try_for_each(|name| add(root, &format!("{path}/{name}"), documents));
    }
    if TEXTS.iter().any(|end| path.ends_with(end)) {
        let text = fs::read_to_string(&full).with_context(|| format!("cannot read `{path}`"))?;
        documents.push(Document::new(path, &text));
    }
    Ok(())
}

fn without_tags(text: &str) -> String {
    let mut parts = text.split('<');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + " " + part.split_once('>').map_or(part, |(_, after)| after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_one_line_whatever_the_language() {
        for (path, text) in [
            ("a.md", "It **makes** `51`\nhits."),
            ("a.yaml", "# It makes\n#   51 hits."),
            ("a.rs", "    /// It makes 51\n    /// hits."),
            ("a.svg", "<text x=\"1\">It makes</text>\n<text>51 hits.</text>"),
        ] {
            assert_eq!(Document::new(path, text).text, "It makes 51 hits.");
        }
    }

    #[test]
    fn documents_of_every_kind_are_read() {
        let documents = all(&crate::repository()).unwrap();
        for path in [
            "README.md",
            "docs/cost.svg",
            "deploy/chart/schedspan/values.yaml",
            "deploy/chart/schedspan/dashboard.json",
            "tracer/src/cli/run.rs",
        ] {
            assert!(documents.iter().any(|document| document.path == path), "{path}");
        }
    }
}
