//! A statement of figures, such as `makes {bench.hits} hits`, and where it stands.

use std::ops::Range;

use anyhow::{Context as _, Result, ensure};

/// Numbers that are written as words; the first is one.
const WORDS: [&str; 20] = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
];

/// Units after a number. The first [`MEASURED`] are those of measurements alone.
const UNITS: [&str; 8] = [" ±", " hits", " ms", " us", " kB", " MB", " MiB", " spans"];
const MEASURED: usize = 2;

/// Text around figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement<'a> {
    /// One more than there are names.
    texts: Vec<&'a str>,
    names: Vec<&'a str>,
}

/// Where a statement stands.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// How often with the stored values.
    pub(crate) right: usize,
    /// With others.
    pub(crate) wrong: Vec<String>,
    /// All of them.
    pub(crate) places: Vec<Range<usize>>,
}

impl<'a> Statement<'a> {
    /// Reads a line of the file.
    ///
    /// # Errors
    ///
    /// If it names no figure, or has no text beside them.
    pub(crate) fn read(line: &'a str) -> Result<Self> {
        let mut parts = line.split('{');
        let (mut texts, mut names) = (vec![parts.next().unwrap_or_default()], Vec::new());
        for part in parts {
            let (name, text) = part.split_once('}').with_context(|| format!("`{line}` lacks a bracket"))?;
            names.push(name);
            texts.push(text);
        }
        ensure!(!names.is_empty(), "`{line}` names no figure");
        let inner = texts.iter().skip(1).rev().skip(1).all(|text| !text.is_empty());
        ensure!(inner && texts.concat().trim().len() > 2, "`{line}` would be found everywhere");
        Ok(Self { texts, names })
    }

    pub(crate) fn names(&self) -> &[&'a str] {
        &self.names
    }

    /// The statement with these values in the order of the names.
    pub(crate) fn with(&self, values: &[&str]) -> String {
        let mut parts = self.texts.iter();
        let first = parts.next().copied().unwrap_or_default().to_owned();
        parts.zip(values).fold(first, |text, (part, value)| text + value + part)
    }

    /// Finds the statement in a text, with these values and with others. What stands for `19` may be `nineteen`.
    pub(crate) fn find(&self, text: &str, values: &[&str]) -> Found {
        let mut found = Found::default();
        let mut last = 0..0;
        for Range { start, end: _ } in numbers(text) {
            // A later number of a statement that is found already, such as the second of `0.3 to 0.4`.
            if last.contains(&start) || !text[..start].ends_with(self.texts[0]) {
                continue;
            }
            let mut written = Vec::new();
            let Some(end) = self.read_values(text, start, 0, &mut written) else { continue };
            last = start..end;
            found.places.push(start - self.texts[0].len()..end);
            if written.iter().zip(values).all(|(written, value)| says(written, value)) {
                found.right += 1;
            } else {
                found.wrong.push(text[start - self.texts[0].len()..end].to_owned());
            }
        }
        found
    }

    /// The end of the statement, whose value of this number begins here, and its values.
    fn read_values<'t>(
        &self,
        text: &'t str,
        start: usize,
        number: usize,
        values: &mut Vec<&'t str>,
    ) -> Option<usize> {
        let Some(after) = self.texts.get(number + 1) else { return Some(start) };
        for end in ends(text, start) {
            if text[end..].starts_with(after) {
                values.push(&text[start..end]);
                let next = end + after.len();
                let is_last = number + 1 == self.names.len();
                let read =
                    if is_last { Some(next) } else { self.read_values(text, next, number + 1, values) };
                if read.is_some() {
                    return read;
                }
                values.pop();
            }
        }
        None
    }
}

/// Whether what is written is the value.
fn says(written: &str, value: &str) -> bool {
    let word = WORDS.iter().position(|word| written.eq_ignore_ascii_case(word));
    written == value || word.is_some_and(|place| (place + 1).to_string() == value)
}

/// Where a value that begins here may end, the longest first: `4.81 (3.66 to 5.49)`, `1.051 ± 0.014`, `0.3 to 0.4`, `51`, `nineteen`.
fn ends(text: &str, start: usize) -> Vec<usize> {
    let token =
        |at: usize| numbers(&text[at..]).next().filter(|range| range.start == 0).map(|range| at + range.end);
    let Some(mut end) = token(start) else { return Vec::new() };
    let mut ends = vec![end];
    for joint in [" (", " to ", " ± "] {
        let next = text[end..].strip_prefix(joint).and_then(|_| token(end + joint.len()));
        if let Some(next) = next {
            end = next;
            // A bracket is closed.
            if text[start..end].contains('(') && text[end..].starts_with(')') {
                end += 1;
            }
            ends.push(end);
        }
    }
    ends.reverse();
    ends
}

/// Numbers, with a unit that only what is measured has, and with any unit.
pub(crate) fn measured(text: &str, any: bool) -> Vec<Range<usize>> {
    let units = if any { &UNITS[..] } else { &UNITS[..MEASURED] };
    let unit = |end: usize| {
        let found = units.iter().find(|unit| text[end..].starts_with(**unit))?;
        let after = text[end + found.len()..].chars().next();
        (!after.is_some_and(char::is_alphanumeric)).then_some(end + found.len())
    };
    numbers(text).filter_map(|Range { start, end }| Some(start..unit(end)?)).collect()
}

/// Where numbers stand, in digits (`1,000`, `4.81`) or as words.
fn numbers(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + text[from..].find(|c: char| c.is_ascii_alphanumeric())?;
            let rest = &text[start..];
            let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
            let is_end = |&(place, c): &(usize, char)| {
                let joins = [',', '.'].contains(&c)
                    && digit(rest[..place].chars().next_back())
                    && digit(rest[place + 1..].chars().next());
                !c.is_ascii_alphanumeric() && !joins
            };
            let length = rest.char_indices().find(is_end).map_or(rest.len(), |(place, _)| place);
            from = start + length;
            let token = &text[start..from];
            let is_number = token.chars().all(|c| c.is_ascii_digit() || [',', '.'].contains(&c));
            if is_number || WORDS.iter().any(|word| token.eq_ignore_ascii_case(word)) {
                return Some(start..from);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(statement: &str, text: &str, values: &[&str]) -> (usize, Vec<String>) {
        let Found { right, wrong, places: _ } = Statement::read(statement).unwrap().find(text, values);
        (right, wrong)
    }

    #[test]
    fn a_number_is_digits_or_a_word() {
        let text = "It makes 51 hits; nineteen builds. Of 1,000 Nodes, 4.81 ms, x2 and none.";
        let found: Vec<_> = numbers(text).map(|range| &text[range]).collect();
        assert_eq!(found, ["51", "nineteen", "1,000", "4.81"]);
    }

    #[test]
    fn a_statement_is_right_with_its_value_and_wrong_with_others() {
        assert_eq!(find("{a} hits", "51 hits, and 22 hits", &["51"]), (1, vec!["22 hits".into()]));
        assert_eq!(find("makes {a} h", "makes 151 hits", &["51"]), (0, vec!["makes 151 h".into()]));
        assert_eq!(find("in {a} builds", "in nineteen builds", &["19"]), (1, vec![]));
        assert_eq!(
            find("in {a} builds", "in eighteen builds", &["19"]),
            (0, vec!["in eighteen builds".into()])
        );
        assert_eq!(find("in {a} builds", "in some builds", &["19"]), (0, vec![]));
    }

    #[test]
    fn a_statement_may_have_several_values() {
        let row = "| hits | {a} | {b} |";
        assert_eq!(find(row, "| hits | 51 | 21 |", &["51", "21"]), (1, vec![]));
        assert_eq!(find(row, "| hits | 51 | 22 |", &["51", "21"]), (0, vec!["| hits | 51 | 22 |".into()]));
    }

    #[test]
    fn a_value_may_have_more_than_one_number() {
        let range = ["0.3 to 0.4"];
        assert_eq!(find("{a} ms of CPU", "some 0.3 to 0.4 ms of CPU", &range), (1, vec![]));
        assert_eq!(
            find("{a} ms of CPU", "some 0.3 to 0.5 ms of CPU", &range),
            (0, vec!["0.3 to 0.5 ms of CPU".into()])
        );
        let spread = ["4.81 (3.66 to 5.49)", "1.051 ± 0.014"];
        assert_eq!(find("| {a} | {b} |", "| 4.81 (3.66 to 5.49) | 1.051 ± 0.014 |", &spread), (1, vec![]));
        assert_eq!(find("| {a} | {b} |", "| 4.81 (3.66 to 5.49) | 1.051 ± 0.015 |", &spread).1.len(), 1);
    }

    #[test]
    fn a_number_with_a_unit_is_a_figure() {
        let text = "Of 51 hits, 1.05 ± 0.01, and 3 hitsx, 0.4 ms.";
        let found = |any| measured(text, any).into_iter().map(|range| &text[range]).collect::<Vec<_>>();
        assert_eq!(found(false), ["51 hits", "1.05 ±"]);
        assert_eq!(found(true), ["51 hits", "1.05 ±", "0.4 ms"]);
    }

    #[test]
    fn a_statement_names_figures_and_has_text_beside_them() {
        for wrong in ["hits", "{a}{b} hits", "{a}", "{a} a", "{a hits"] {
            assert!(Statement::read(wrong).is_err(), "{wrong}");
        }
        let statement = Statement::read("makes {a} of {b}").unwrap();
        assert_eq!(
            (statement.names(), statement.with(&["1", "2"]).as_str()),
            (&["a", "b"][..], "makes 1 of 2")
        );
    }
}
