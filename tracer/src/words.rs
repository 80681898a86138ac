//! Figures and the words of the traced process, as a person reads them in a terminal.

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

/// Three digits and a unit.
pub(crate) fn duration(ns: u64) -> String {
    let ns = ns as f64;
    let (scale, unit) = match ns {
        ..999.5 => return format!("{ns} ns"),
        ..999.5e3 => (1e3, "us"),
        ..999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let number = ns / scale;
    let decimals = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    format!("{number:.decimals$} {unit}")
}

/// Milliseconds, as attributes hold them.
pub(crate) fn milliseconds(milliseconds: f64) -> String {
    duration((milliseconds * 1e6) as u64)
}

/// Words of the traced process go to a terminal: no control characters, and nothing of unknown width.
pub(crate) fn clean(text: &str) -> String {
    let safe = |c: char| if c.is_whitespace() { ' ' } else { '?' };
    text.chars().map(|c| if c.is_ascii_graphic() { c } else { safe(c) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_and_a_unit() {
        for (ns, expected) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_996, "10.0 us"),
            (143_200, "143 us"),
            (999_600, "1.00 ms"),
            (5_110_000, "5.11 ms"),
            (61_500_000_000, "61.5 s"),
            (1_234_000_000_000, "1234 s"),
        ] {
            assert_eq!(duration(ns), expected);
        }
    }
}
