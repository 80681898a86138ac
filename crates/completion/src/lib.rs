//! Completions of a command line: scripts for shells, and kubectl's own completion of plugins.

#![forbid(unsafe_code)]

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::{Shell, generate};
use spans::screen;

/// What kubectl takes as the end of the list: files are not completed.
///
/// <https://github.com/spf13/cobra/blob/v1.10.2/completions.go#L59-L63>
const NO_FILES: &str = ":4";

/// Options of `completion`.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Options {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Options of the verb that kubectl_complete-schedspan calls.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Words {
    /// The words after `kubectl schedspan`, the last one of which is not complete
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Prints the script of a shell for this program.
///
/// # Errors
///
/// When standard output cannot be written to.
pub fn script(Options { shell }: &Options, mut program: Command) -> Result<()> {
    let (mut script, name) = (Vec::new(), program.get_name().to_owned());
    generate(*shell, &mut program, name, &mut script);
    screen::print(&String::from_utf8_lossy(&script)).context("cannot write to stdout")
}

/// Prints candidates for the last word, a line each, as cobra's `__complete` does.
///
/// # Errors
///
/// When standard output cannot be written to.
pub fn candidates(Words { words }: &Words, program: &Command) -> Result<()> {
    let lines = lines(program, words).join("\n");
    screen::print(&format!("{lines}\n{NO_FILES}\n")).context("cannot write to stdout")
}

fn lines(command: &Command, words: &[String]) -> Vec<String> {
    let Some((last, before)) = words.split_last() else { return Vec::new() };
    let mut at = command;
    for word in before {
        at = at.find_subcommand(word).unwrap_or(at);
    }
    let flags = at.get_arguments().filter(|flag| !flag.is_hide_set());
    let flags = flags.filter_map(|flag| Some(format!("--{}", flag.get_long()?)));
    let verbs = at.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs = verbs.map(|verb| verb.get_name().to_owned());
    let all: Vec<_> = if last.starts_with('-') { flags.collect() } else { verbs.collect() };
    all.into_iter().filter(|name| name.starts_with(last.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        let explain = Command::new("explain").arg(Arg::new("selector").long("selector"));
        let program =
            Command::new("kubectl-x").subcommand(explain).subcommand(Command::new("run").hide(true));
        let words: Vec<_> = words.iter().map(ToString::to_string).collect();
        lines(&program, &words)
    }

    #[test]
    fn verbs_and_flags_are_completed_and_hidden_ones_are_not() {
        assert_eq!(names(&["ex"]), ["explain"]);
        assert_eq!(names(&["explain", "--sel"]), ["--selector"]);
        for none in [&["explain", "we"][..], &["ru"], &[]] {
            assert_eq!(names(none), [""; 0], "{none:?}");
        }
    }
}
