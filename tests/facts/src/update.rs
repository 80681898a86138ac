//! Writes new results into the texts.

use std::fs;

use anyhow::{Context as _, Result};

use crate::{FILE, Figures, Wrong, documents, repository};

/// Writes the stored numbers wherever a text has others, and prints on stderr where a person has to.
///
/// # Errors
///
/// If a file cannot be read or written, or the file of figures is malformed.
pub fn update() -> Result<()> {
    let root = repository();
    let text = fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read `{FILE}`"))?;
    let (figures, documents) = (Figures::read(&text)?, documents::all(&root)?);
    for Wrong { document, written, right, .. } in figures.wrong(&documents, &mut Vec::new())? {
        let path = root.join(&document.path);
        let text = fs::read_to_string(&path)?;
        match replaced(&text, &written, &right) {
            Some(text) => fs::write(&path, text)?,
            None => eprintln!("by hand  {}: `{written}` is now `{right}`", document.path),
        }
    }
    Ok(())
}

/// The text with other words: where it breaks a line between them, it still does. `None` if it has marks between the words, or if the numbers of
/// words differ.
fn replaced(text: &str, written: &str, right: &str) -> Option<String> {
    let (written, right): (Vec<_>, Vec<_>) = (written.split(' ').collect(), right.split(' ').collect());
    if written.len() != right.len() {
        return None;
    }
    let first = *written.first()?;
    for (start, _) in text.match_indices(first) {
        let (mut at, mut made) = (start, String::new());
        let fits = written.iter().zip(&right).enumerate().all(|(number, (written, right))| {
            let rest = &text[at..];
            let space = rest.len() - rest.trim_start().len();
            if (number > 0) != (space > 0) && !written.is_empty() || !rest[space..].starts_with(written) {
                return false;
            }
            made += &rest[..space];
            made += right;
            at += space + written.len();
            true
        });
        if fits {
            return Some(text[..start].to_owned() + &made + &text[at..]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn numbers_are_replaced_across_lines() {
        let text = "It makes 51\nhits, and makes 51 more.";
        assert_eq!(
            replaced(text, "makes 51 hits", "makes 55 hits").as_deref(),
            Some("It makes 55\nhits, and makes 51 more.")
        );
        assert_eq!(
            replaced("| a | 4.81 (3.66 to 5.49) |", "| 4.81 (3.66 to 5.49) |", "| 4.9 (4 to 5) |").as_deref(),
            Some("| a | 4.9 (4 to 5) |")
        );
        assert_eq!(replaced(text, "makes 52 hits", "makes 55 hits"), None);
        assert_eq!(replaced("It **makes** 51 hits", "It makes 51 hits", "It makes 55 hits"), None);
        assert_eq!(replaced(text, "makes 51", "makes 55 or so"), None);
    }
}
