//! What a person sees: the one place that writes to standard output and standard error.
//!
//! Recordings, servers, executables and Pods are foreign, and a terminal obeys what is in their names. So no control character but the
//! newline passes, whatever made the text. `clippy.toml` of the crates that print forbids other ways.

use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Stderr, Stdout, Write},
};

/// Prints text. It is no error if the reader, such as `head`, has closed the pipe.
///
/// # Errors
///
/// When standard output cannot be written to.
pub fn print(text: &str) -> io::Result<()> {
    until_closed(stdout().write_all(printable(text).as_bytes()))
}

/// Prints a JSON document, with what a terminal obeys in the form of escapes. A closed pipe is no error.
///
/// # Errors
///
/// When standard output cannot be written to.
pub fn print_json(text: &str) -> io::Result<()> {
    until_closed(stdout().write_all(printable_json(text).as_bytes()))
}

/// Prints text in colours, such as a waterfall. A closed pipe is no error.
///
/// # Errors
///
/// When standard output cannot be written to.
pub fn print_coloured(text: &str) -> io::Result<()> {
    until_closed(stdout().write_all(printable_in_colour(text).as_bytes()))
}

/// Prints a part of a stream of JSON documents. Returns whether it still has a reader.
///
/// # Errors
///
/// When standard output cannot be written to.
pub fn stream_json(text: &str) -> io::Result<bool> {
    has_reader(stdout().write_all(printable_json(text).as_bytes()))
}

/// Prints a part of a stream of texts in colours. Returns whether it still has a reader.
///
/// # Errors
///
/// When standard output cannot be written to.
pub fn stream_coloured(text: &str) -> io::Result<bool> {
    has_reader(stdout().write_all(printable_in_colour(text).as_bytes()))
}

/// Prints a line on standard error, where nothing can be done about an error.
pub fn complain(text: &str) {
    let _ = stderr().write_all(format!("{}\n", printable(text)).as_bytes());
}

/// Whether standard output is a terminal.
#[must_use]
pub fn is_terminal() -> bool {
    stdout().is_terminal()
}

/// Whether standard error is a terminal.
#[must_use]
pub fn is_error_terminal() -> bool {
    stderr().is_terminal()
}

/// Standard error for the log.
#[derive(Debug)]
pub struct Log;

impl Write for Log {
    /// Takes whole lines.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        stderr().write_all(printable_in_colour(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Text without characters that a terminal obeys, except for newlines.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, |c| if c == '\t' { ' ' } else { '?' }.to_string())
}

/// [`printable`], with changes of colour.
pub(crate) fn printable_in_colour(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut out = printable(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(part.len());
        out += if part[end..].starts_with('m') { "\x1b[" } else { "?[" };
        out += &printable(part);
    }
    out
}

/// A JSON document in which strings have escapes for characters that a terminal obeys.
pub(crate) fn printable_json(text: &str) -> Cow<'_, str> {
    // Below 0x20 they are escaped already.
    replaced(text, |c| format!("\\u{:04x}", u32::from(c)))
}

pub(crate) fn stdout() -> Stdout {
    #[expect(clippy::disallowed_methods, reason = "what is written to it goes through this module")]
    io::stdout()
}

fn stderr() -> Stderr {
    #[expect(clippy::disallowed_methods, reason = "what is written to it goes through this module")]
    io::stderr()
}

fn until_closed(result: io::Result<()>) -> io::Result<()> {
    has_reader(result).map(drop)
}

fn has_reader(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true),
    }
}

fn replaced(text: &str, replacement: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_obeyed(c) {
            out += &replacement(c);
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Control characters of both sets, and those that change the direction of the text after them.
fn is_obeyed(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\n') || turns
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        env,
        process::{Command, Output, Stdio},
    };

    use proptest::prelude::*;

    use super::*;

    /// Runs an ignored test in a process of its own, with these variables and no others: what it writes is the output's.
    pub(crate) fn child(test: &str, variables: &[(&str, &str)]) -> Output {
        let mut child = Command::new(env::current_exe().expect("it has a path"));
        child.args(["--exact", test, "--ignored", "--nocapture"]).env_clear().envs(variables.iter().copied());
        child.stdin(Stdio::null()).output().expect("it runs")
    }

    #[test]
    #[ignore = "the next test runs it as a process"]
    fn a_child_prints() {
        print("plain \x1b[31m\n").unwrap();
        print_json("\"json \u{9b}\"\n").unwrap();
        print_coloured("red \x1b[31m\x1b[2J\n").unwrap();
        assert!(stream_json("\"stream \u{9b}\"\n").unwrap());
        assert!(stream_coloured("stream \x1b[32m\n").unwrap());
        complain("complaint \x07");
        Log.write_all(b"log \x1b[33m\xff\n").unwrap();
        print(&format!("terminals: {} {}\n", is_terminal(), is_error_terminal())).unwrap();
    }

    #[test]
    fn what_is_printed_has_no_control_characters() {
        let Output { status, stdout, stderr } = child("screen::tests::a_child_prints", &[]);
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{stdout}{stderr}");
        let printed =
            "plain ?[31m\n\"json \\u009b\"\nred \x1b[31m?[2J\n\"stream \\u009b\"\nstream \x1b[32m\n";
        assert!(stdout.contains(printed), "{stdout}");
        assert!(stdout.contains("terminals: false false\n"), "{stdout}");
        assert_eq!(stderr, "complaint ?\nlog \x1b[33m\u{fffd}\n");
    }

    #[test]
    fn what_has_no_reader_says_so() {
        assert!(has_reader(Ok(())).is_ok_and(|has_reader| has_reader));
        assert!(has_reader(Err(io::ErrorKind::BrokenPipe.into())).is_ok_and(|has_reader| !has_reader));
    }

    fn obeyed(text: &str) -> Option<char> {
        text.chars().find(|c| {
            let code = u32::from(*c);
            (code < 0x20 && *c != '\n') || (0x7f..0xa0).contains(&code)
        })
    }

    /// Texts with many control characters and parts of escape sequences.
    fn hostile() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            any::<char>().prop_map(String::from),
            (0..0xa0_u8).prop_map(|code| char::from(code).to_string()),
            "\\PC{0,8}",
            Just("\x1b[".to_owned()),
            Just("\x1b]0;owned\x07".to_owned()),
            Just("\u{9b}31m".to_owned()),
            Just("\x1b[2J".to_owned()),
            Just("\x1b[1;31m".to_owned()),
            Just("m".to_owned()),
        ];
        proptest::collection::vec(part, 0..20).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn no_control_character_but_the_newline_passes(text in hostile()) {
            prop_assert_eq!(obeyed(&printable(&text)), None);
            prop_assert_eq!(printable(&text).matches('\n').count(), text.matches('\n').count());
        }

        #[test]
        fn nothing_but_colours_passes(text in hostile()) {
            let shown = printable_in_colour(&text);
            for (index, part) in shown.split("\x1b[").enumerate() {
                prop_assert_eq!(obeyed(part), None);
                let code = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
                prop_assert!(index == 0 || code.starts_with('m'), "{:?}", part);
            }
        }

        #[test]
        fn json_stays_what_it_was(text in hostile()) {
            let document = serde_json::to_string(&text).unwrap();
            let shown = printable_json(&document);
            prop_assert_eq!(obeyed(&shown), None);
            prop_assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        }

        #[test]
        fn bytes_that_are_no_text_do_not_pass(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let text = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(obeyed(&printable(&text)), None);
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_others_are() {
        assert!(until_closed(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        assert!(until_closed(Err(io::ErrorKind::StorageFull.into())).is_err());
        assert!(until_closed(Ok(())).is_ok());
    }

    #[test]
    fn plain_text_stays() {
        let text = "1 ▏████ × Äö…\n-> {\"a\": 1}\n";
        assert_eq!(printable(text), text);
        assert_eq!(printable_in_colour("\x1b[31mred\x1b[0m\n"), "\x1b[31mred\x1b[0m\n");
        assert_eq!(printable("a\tb\u{202e}c\r\n"), "a b?c?\n");
    }
}
