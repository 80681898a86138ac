//! Foreign text as people read it: errors of libraries, names of traced processes.

/// An error and its causes; libraries that repeat the cause in their own words are not repeated once more.
#[must_use]
pub fn sentence(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Words of the traced process go to a terminal: no control characters, and nothing of unknown width.
#[must_use]
pub fn clean(text: &str) -> String {
    let safe = |c: char| if c.is_whitespace() { ' ' } else { '?' };
    text.chars().map(|c| if c.is_ascii_graphic() { c } else { safe(c) }).collect()
}
