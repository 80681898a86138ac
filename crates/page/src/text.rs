//! Text and numbers in the page: the one way in which foreign text gets in.

use std::fmt::Write as _;

use maud::{Escaper, Render};
use spans::figures;

/// Characters shown of a foreign text.
const MAX: usize = 2_048;

/// Foreign text. Markup is escaped; what is invisible or changes the direction of text is shown as `�`.
pub(crate) struct Foreign<'a>(pub(crate) &'a str);

impl Render for Foreign<'_> {
    fn render_to(&self, out: &mut String) {
        let mut escaper = Escaper::new(out);
        for c in self.0.chars().take(MAX) {
            // Writing into a string does not fail.
            let _ = escaper.write_char(if is_hidden(c) { '\u{fffd}' } else { c });
        }
        if self.0.chars().nth(MAX).is_some() {
            let _ = escaper.write_char('…');
        }
    }
}

/// Characters that no reader sees, and that change what he sees.
fn is_hidden(c: char) -> bool {
    let invisible = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    invisible || (c.is_control() && c != '\n' && c != '\t')
}

/// A link's path to a Pod. Its names are of a traced process, so they are encoded.
pub(crate) fn pod_path(namespace: &str, pod: &str) -> String {
    let mut path = String::from("/pod");
    for name in [namespace, pod] {
        path.push('/');
        for byte in name.bytes() {
            if byte.is_ascii_alphanumeric() || b"-.".contains(&byte) {
                path.push(char::from(byte));
            } else {
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
    path
}

/// A duration, with `µs` as people write it.
pub(crate) fn duration(ns: u64) -> String {
    figures::duration(ns).replace(" us", " µs")
}

/// `1 Pod`, `2 Pods`.
pub(crate) fn count(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A number with a thin space before each three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// How long ago, roughly.
pub(crate) fn ago(now_unix_us: u64, then_unix_us: u64) -> String {
    match now_unix_us.saturating_sub(then_unix_us) / 1_000_000 {
        0 => "now".to_owned(),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// The time of day, UTC.
pub(crate) fn time_of_day(unix_us: u64) -> String {
    let seconds = unix_us / 1_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A part of a whole as a percentage of an SVG's width.
pub(crate) fn percent(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { part / whole * 100.0 } else { 0.0 };
    format!("{:.2}%", share.clamp(0.0, 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_escaped_bounded_and_visible() {
        let rendered = |text: &str| Foreign(text).render().into_string();
        assert_eq!(rendered("<b a='\"'>&"), "&lt;b a='&quot;'&gt;&amp;");
        assert_eq!(rendered("a\u{202e}b\u{0}\u{200b}\u{7f}c\nd"), "a\u{fffd}b\u{fffd}\u{fffd}\u{fffd}c\nd");
        assert_eq!(rendered(&"x".repeat(MAX + 1)).chars().count(), MAX + 1);
    }

    #[test]
    fn a_path_stays_a_path() {
        assert_eq!(pod_path("default", "web-0.a"), "/pod/default/web-0.a");
        assert_eq!(pod_path("a/..", "?x#\"ä"), "/pod/a%2F../%3Fx%23%22%C3%A4");
    }

    #[test]
    fn figures_are_as_people_write_them() {
        assert_eq!(
            (duration(1_500), count(1, "Pod"), count(12_345, "Pod")),
            ("1.50 µs".into(), "1 Pod".into(), "12\u{202f}345 Pods".into())
        );
        assert_eq!(
            ["now", "59 s", "3 min", "2 h"],
            [0, 59, 200, 7_300].map(|seconds| ago(seconds * 1_000_000, 0)).each_ref().map(String::as_str)
        );
        assert_eq!(
            (percent(1.0, 3.0), percent(5.0, 0.0), percent(9.0, 3.0)),
            ("33.33%".into(), "0.00%".into(), "100.00%".into())
        );
    }
}
