//! The files that may state a figure.

use std::{fs, ops::Range, path::Path};

use anyhow::{Context as _, Result};

use crate::statement::measured;

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

/// Pages whose figures are all results: each number with a unit is in a statement. Elsewhere this holds for hits and ratios alone, because
/// other numbers are limits and defaults.
const OF_RESULTS: [&str; 6] =
    ["README.md", "docs/performance.md", "docs/compare.md", "docs/operate.md", "docs/install.md", "deploy/"];
/// Pictures and pages that show recorded attempts, as they were printed.
const RECORDED: [&str; 7] = [
    "docs/waterfall.svg",
    "docs/preemption.svg",
    "docs/plugins.svg",
    "docs/flame.svg",
    "docs/lifecycle.svg",
    "docs/workload.svg",
    "docs/tutorials/",
];

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
        let (mut plain, mut is_output) = (String::with_capacity(text.len()), false);
        for line in text.lines() {
            let mut line = line.trim();
            // What a command printed once.
            if line.starts_with("```") {
                is_output = line == "```text";
            }
            if is_output {
                continue;
            }
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

impl Document {
    /// Where it has a figure that no statement covers.
    pub(crate) fn uncovered(&self, covered: &[Range<usize>]) -> Vec<&str> {
        let Self { path, text } = self;
        if RECORDED.iter().any(|place| path.starts_with(place)) || path.ends_with(".rs") {
            return Vec::new();
        }
        let any = OF_RESULTS.iter().any(|place| path.starts_with(place));
        let is_covered = |figure: &Range<usize>| {
            covered.iter().any(|place| place.start <= figure.start && figure.start < place.end)
        };
        let figures = measured(text, any).into_iter().filter(|figure| !is_covered(figure));
        figures.map(|Range { start, end }| &text[around(text, start, end)]).collect()
    }
}

/// The place with some words before and after it.
fn around(text: &str, start: usize, end: usize) -> Range<usize> {
    let before = text[..start].char_indices().rev().filter(|(_, c)| *c == ' ').nth(4);
    let after = text[end..].char_indices().filter(|(_, c)| *c == ' ').nth(3);
    before.map_or(0, |(place, _)| place + 1)..after.map_or(text.len(), |(place, _)| end + place)
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
    fn a_figure_outside_of_statements_is_named_with_its_words() {
        let text = "It takes 4 kB. So an attempt makes 51 hits, or so it seems to me.";
        let found = |path: &str, covered: &[Range<usize>]| {
            let document = Document::new(path, text);
            document.uncovered(covered).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let hits = "So an attempt makes 51 hits, or so it";
        assert_eq!(found("docs/a.md", &[]), [hits]);
        assert_eq!(found("README.md", &[]), ["It takes 4 kB. So an attempt", hits]);
        assert_eq!(found("docs/a.md", &[0..2, 28..42]), [""; 0]);
        assert_eq!(found("docs/tutorials/a.md", &[]), [""; 0]);
    }

    #[test]
    fn what_a_command_printed_is_not_a_statement() {
        let text = "One.\n```text\n51 hits\n```\nTwo.\n```sh here\necho 4\n```\n";
        assert_eq!(Document::new("a.md", text).text, "One. Two. sh here echo 4");
    }

    #[test]
    fn the_readme_has_at_most_600_words() {
        let text = fs::read_to_string(crate::repository().join("README.md")).unwrap();
        let words = text.split_whitespace().count();
        assert!(words <= 600, "{words}");
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
