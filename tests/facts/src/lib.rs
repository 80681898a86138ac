//! Figures that commands make, such as hits per attempt, and every place that states one.
//!
//! `docs/figures.tsv` holds the last result of each: [`store`] writes it, for commands with the option `--store`. Behind the results it has
//! the statements that use them, such as `makes {bench.hits} hits`. Wherever README, documents, chart, dashboard or help have the words of a
//! statement, they must have its numbers, and each figure must be in a statement: [`problems`]. After a new result, [`update`] writes the
//! numbers into the texts. A test looks for each test that a document names.

#![forbid(unsafe_code)]

mod documents;
#[cfg(test)]
mod keepers;
mod statement;
mod update;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use self::statement::Statement;
pub use self::{documents::Document, update::update};

/// The file of figures, from the root of the repository.
const FILE: &str = "docs/figures.tsv";
/// A figure: the last result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Figure {
    name: String,
    value: String,
    /// The day of the result, as `2026-11-24`.
    day: String,
    command: String,
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Comment(String),
    Figure(Figure),
    Statement(String),
    /// What a command printed that has no `--store`, or what is a limit and no result: documents have it word by word.
    Fixed(String),
}

/// What begins a line of [`Line::Fixed`].
const FIXED: &str = "= ";

/// A text that has other numbers than the stored ones.
struct Wrong<'a> {
    document: &'a Document,
    written: String,
    right: String,
    command: &'a str,
    day: &'a str,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Figures(Vec<Line>);

/// The root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes results of a command, as a name and a value each, and prints on stderr what changed.
///
/// # Errors
///
/// If a name is not in the file, or the file cannot be read or written. Nothing is written then.
pub fn store(results: &[(&str, String)]) -> Result<()> {
    let output = Command::new("date").args(["--utc", "+%F"]).output().context("cannot run `date`")?;
    let day = String::from_utf8(output.stdout)?;
    let file = repository().join(FILE);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read `{FILE}`"))?;
    let mut figures = Figures::read(&text)?;
    let changed = figures.set(day.trim(), results)?;
    fs::write(&file, figures.text()).with_context(|| format!("cannot write `{FILE}`"))?;
    for line in changed {
        eprintln!("stored   {line}");
    }
    Ok(())
}

/// Every place that states another number than the stored one, and every phrase that stands nowhere.
///
/// # Errors
///
/// If a file cannot be read, or the file of figures is malformed.
pub fn problems() -> Result<Vec<String>> {
    let root = repository();
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read `{FILE}`"))?;
    Figures::read(&text)?.problems(&documents::all(&root)?)
}

impl Figures {
    fn read(text: &str) -> Result<Self> {
        let line = |line: &str| {
            let cells: Vec<_> = line.split('\t').map(str::to_owned).collect();
            Ok(match <[String; 4]>::try_from(cells) {
                Ok([name, value, day, command]) => {
                    ensure!(!value.is_empty(), "`{FILE}`: {name} has no value");
                    Line::Figure(Figure { name, value, day, command })
                }
                Err(cells) => {
                    ensure!(
                        cells.len() == 1,
                        "`{FILE}` has a line of {} cells, not 4 or 1: {line}",
                        cells.len()
                    );
                    if line.starts_with('#') {
                        Line::Comment(line.to_owned())
                    } else if let Some(words) = line.strip_prefix(FIXED) {
                        Line::Fixed(words.to_owned())
                    } else {
                        Line::Statement(line.to_owned())
                    }
                }
            })
        };
        let read = Self(text.lines().map(line).collect::<Result<_>>()?);
        let names: Vec<_> = read.figures().map(|figure| &figure.name).collect();
        for (number, name) in names.iter().enumerate() {
            ensure!(!names[..number].contains(name), "`{FILE}` has {name} twice");
        }
        Ok(read)
    }

    fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.0.iter().filter_map(|line| match line {
            Line::Figure(figure) => Some(figure),
            Line::Comment(_) | Line::Statement(_) | Line::Fixed(_) => None,
        })
    }

    fn fixed(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|line| match line {
            Line::Fixed(words) => Some(words.as_str()),
            Line::Comment(_) | Line::Figure(_) | Line::Statement(_) => None,
        })
    }

    fn statements(&self) -> impl Iterator<Item = Result<Statement<'_>>> {
        self.0.iter().filter_map(|line| match line {
            Line::Statement(text) => Some(Statement::read(text)),
            Line::Comment(_) | Line::Figure(_) | Line::Fixed(_) => None,
        })
    }

    fn text(&self) -> String {
        let line = |line: &Line| match line {
            Line::Comment(text) | Line::Statement(text) => format!("{text}\n"),
            Line::Fixed(words) => format!("{FIXED}{words}\n"),
            Line::Figure(Figure { name, value, day, command }) => {
                format!("{name}\t{value}\t{day}\t{command}\n")
            }
        };
        self.0.iter().map(line).collect()
    }

    fn set(&mut self, day: &str, results: &[(&str, String)]) -> Result<Vec<String>> {
        let mut changed = Vec::new();
        for (name, value) in results {
            let mut figures = self.0.iter_mut().filter_map(|line| match line {
                Line::Figure(figure) => Some(figure),
                Line::Comment(_) | Line::Statement(_) | Line::Fixed(_) => None,
            });
            let Some(figure) = figures.find(|figure| figure.name == *name) else {
                bail!("`{FILE}` has no line for {name}: add one, and the statements that use it");
            };
            if figure.value != *value {
                changed.push(format!("{name}: {} is now {value}", figure.value));
                figure.value.clone_from(value);
            }
            day.clone_into(&mut figure.day);
        }
        Ok(changed)
    }

    /// Every text that has other numbers than the stored ones. Adds a problem for each statement that stands nowhere, each figure without a
    /// statement, and each number in a document that is in no statement.
    fn wrong<'a>(&'a self, documents: &'a [Document], problems: &mut Vec<String>) -> Result<Vec<Wrong<'a>>> {
        let by_name: BTreeMap<_, _> = self.figures().map(|figure| (figure.name.as_str(), figure)).collect();
        let (mut all, mut used) = (Vec::new(), BTreeSet::new());
        let mut covered = vec![Vec::new(); documents.len()];
        for statement in self.statements() {
            let statement = statement?;
            used.extend(statement.names().iter().copied());
            let figure = |name: &&str| {
                by_name
                    .get(name)
                    .copied()
                    .with_context(|| format!("`{FILE}` has a statement of {name}, which has no line"))
            };
            let figures: Vec<_> = statement.names().iter().map(figure).collect::<Result<_>>()?;
            let values: Vec<_> = figures.iter().map(|figure| figure.value.as_str()).collect();
            let right = statement.with(&values);
            let Figure { command, day, .. } = figures[0];
            let mut stated = false;
            for (document, covered) in documents.iter().zip(&mut covered) {
                let found = statement.find(&document.text, &values);
                stated |= found.right + found.wrong.len() > 0;
                covered.extend(found.places);
                let wrong = |written| Wrong { document, written, right: right.clone(), command, day };
                all.extend(found.wrong.into_iter().map(wrong));
            }
            if !stated {
                problems
                    .push(format!("`{right}` stands nowhere: change the text, or the statement in {FILE}"));
            }
        }
        let unused = by_name.keys().filter(|name| !used.contains(*name));
        problems.extend(unused.map(|name| format!("no statement in {FILE} uses {name}")));
        for words in self.fixed() {
            let mut stated = false;
            for (document, covered) in documents.iter().zip(&mut covered) {
                let places = document.text.match_indices(words).map(|(start, _)| start..start + words.len());
                let before = covered.len();
                covered.extend(places);
                stated |= covered.len() > before;
            }
            if !stated {
                problems.push(format!("`{words}` stands nowhere: change the text, or its line in {FILE}"));
            }
        }
        for (document, covered) in documents.iter().zip(&covered) {
            let uncovered = document.uncovered(covered).into_iter();
            problems.extend(uncovered.map(|words| {
                format!(
                    "{} says `{words}`: no statement in {FILE} has this figure; add one, or a line `{FIXED}WORDS` if no command stores it",
                    document.path
                )
            }));
        }
        Ok(all)
    }

    fn problems(&self, documents: &[Document]) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        let wrong = self.wrong(documents, &mut problems)?;
        let says = |Wrong { document, written, right, command, day }: &Wrong<'_>| {
            format!("{} says `{written}`, but by `{command}` of {day} it is `{right}`", document.path)
        };
        Ok(wrong.iter().map(says).chain(problems).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Comment.\nhits\t51\t2026-11-23\tcargo xtask bench\nfew\t21\t2026-11-23\tcargo xtask bench\nmakes {hits} hits\nwithout detail {few}.\n";

    fn found(documents: &[(&str, &str)]) -> Vec<String> {
        let documents: Vec<_> = documents.iter().map(|(path, text)| Document::new(path, text)).collect();
        Figures::read(TABLE).unwrap().problems(&documents).unwrap()
    }

    const GOOD: (&str, &str) = ("README.md", "An attempt makes **51**\nhits, without detail 21.");

    /// `UPDATE_DOCS=1 cargo test -p facts` writes the stored ones.
    #[test]
    fn every_place_that_states_a_figure_states_the_stored_one() {
        if std::env::var_os("UPDATE_DOCS").is_some() {
            update().unwrap();
        }
        let problems = problems().unwrap();
        assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    }

    #[test]
    fn a_figure_that_is_changed_by_hand_is_a_problem_wherever_it_stands() {
        assert_eq!(found(&[GOOD]), [""; 0]);
        let yaml = ("values.yaml", "# An attempt makes 82\n# hits.\na: b\n");
        let expected = "values.yaml says `makes 82 hits`, but by `cargo xtask bench` of 2026-11-23 it is `makes 51 hits`";
        assert_eq!(found(&[GOOD, yaml]), [expected]);
    }

    #[test]
    fn a_new_result_makes_what_documents_say_a_problem() {
        let mut figures = Figures::read(TABLE).unwrap();
        assert_eq!(figures.set("2026-11-24", &[("hits", "49".to_owned())]).unwrap(), ["hits: 51 is now 49"]);
        let problems = figures.problems(&[Document::new(GOOD.0, GOOD.1)]).unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("of 2026-11-24 it is `makes 49 hits`"), "{problems:?}");
    }

    #[test]
    fn a_statement_that_stands_nowhere_is_a_problem_and_a_figure_without_a_statement() {
        let problems = found(&[("README.md", "It makes 51 hits.")]);
        assert_eq!(
            problems,
            ["`without detail 21.` stands nowhere: change the text, or the statement in docs/figures.tsv"]
        );
        let figures = Figures::read("a\t1\tday\tcommand\n").unwrap();
        assert_eq!(figures.problems(&[]).unwrap(), ["no statement in docs/figures.tsv uses a"]);
    }

    #[test]
    fn a_number_that_no_statement_has_is_a_problem_unless_a_line_fixes_its_words() {
        let other = ("docs/a.md", "A failed one has 70 hits.");
        let found = found(&[GOOD, other]);
        assert!(
            found[0].starts_with("docs/a.md says `A failed one has 70 hits.`: no statement"),
            "{found:?}"
        );
        let figures = Figures::read(&format!("{TABLE}= failed one has 70 hits\n")).unwrap();
        let problems = |text| {
            figures.problems(&[GOOD, ("docs/a.md", text)].map(|(path, text)| Document::new(path, text)))
        };
        assert_eq!(problems(other.1).unwrap(), [""; 0]);
        assert_eq!(problems("A failed one has 71 hits.").unwrap().len(), 2);
    }

    #[test]
    fn the_file_survives_a_result_that_is_the_same() {
        let mut figures = Figures::read(TABLE).unwrap();
        assert!(figures.set("2026-11-23", &[("hits", "51".to_owned())]).unwrap().is_empty());
        assert_eq!(figures.text(), TABLE);
        let fixed = "= makes 70 hits\n";
        assert_eq!(Figures::read(fixed).unwrap().text(), fixed);
    }

    #[test]
    fn unknown_names_and_malformed_lines_are_errors() {
        let mut figures = Figures::read(TABLE).unwrap();
        let error = figures.set("2026-11-24", &[("some", "1".to_owned())]).unwrap_err().to_string();
        assert!(error.contains("no line for some"), "{error}");
        for malformed in ["a\t1\n", "a\t\tday\tcommand\n", "a\t1\td\tc\na\t2\td\tc\n"] {
            assert!(Figures::read(malformed).is_err(), "{malformed}");
        }
        let unknown = Figures::read("makes {some} hits\n").unwrap();
        assert!(unknown.problems(&[]).unwrap_err().to_string().contains("statement of some"));
    }
}
