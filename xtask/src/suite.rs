//! The commands of the crates under `tests`: builds a crate and runs its program.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Error, Result, ensure};
use xtask::{
    paths,
    tally::Tally,
    toolchain::{Rustc, run},
};

/// A command: its name, its crate, and its line in `cargo xtask --help`.
type Row = (&'static str, &'static str, &'static str);

const COMMANDS: [Row; 11] = [
    ("cluster", "harness", "Start, show and end a real control plane on this machine"),
    ("demo", "e2e", "Show what schedspan does: a real scheduler at work, each attempt a waterfall"),
    ("picture", "e2e", "Make the pictures of the documentation: what schedspan prints, as SVG"),
    ("bench", "bench", "Measure what tracing costs the scheduler"),
    ("compare", "e2e", "Compare schedspan's spans with those that the scheduler makes itself"),
    ("e2e", "e2e", "Run the tests that need a real scheduler, each on a cluster of its own"),
    ("kind", "e2e", "Start, use and end a kind cluster, and test schedspan in it"),
    ("schedulers", "harness", "Build schedulers of many versions, with many Go releases, in several ways"),
    ("peer", "harness", "Build a scheduler with OpenTelemetry spans of its own, to compare schedspan's with"),
    ("matrix", "matrix", "Check many variants of what schedspan reads"),
    ("release", "release", "Make everything that a release publishes, as files"),
];

/// The commands as `cargo xtask --help` lists them.
pub(crate) fn listed() -> impl Iterator<Item = clap::Command> {
    COMMANDS.into_iter().map(|(name, _, about)| clap::Command::new(name).about(about))
}

/// If xtask's arguments name one of these commands, replaces this process by the command's program. So arguments, standard
/// streams, signals and exit code are the program's own.
pub(crate) fn exec_requested() -> Option<Result<ExitCode>> {
    let arguments = help_last(env::args_os().skip(1).collect());
    package(arguments.first()?)?;
    let mut program = match program(&arguments) {
        Ok(program) => program,
        Err(error) => return Some(Err(error)),
    };
    Some(Err(Error::new(program.exec()).context("cannot run what was built")))
}

/// Runs a command to its end.
///
/// # Errors
///
/// If it cannot be built or run, or fails.
pub(crate) fn run_to_end(arguments: &[&str]) -> Result<()> {
    let status = child(arguments)?.status()?;
    ensure!(status.success(), "`{}` ended with {status}", arguments.join(" "));
    Ok(())
}

/// Runs a command whose last line has the numbers of passes and failures. Returns them instead of printing the line.
///
/// # Errors
///
/// If it cannot be built or run, ends without that line, or fails with a line that counts no failure.
pub(crate) fn count(arguments: &[&str]) -> Result<Tally> {
    let mut child = child(arguments)?.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("its standard output is a pipe")?;
    let counted = counts(BufReader::new(output).lines(), |line| println!("{line}"))?;
    let status = child.wait()?;
    let tally =
        counted.with_context(|| format!("`{}` ended with {status} and no counts", arguments.join(" ")))?;
    ensure!(status.success() || tally.has_failures(), "`{}` ended with {status}", arguments.join(" "));
    Ok(tally)
}

/// Prints lines as they come, except for the counts in the last one.
fn counts(
    lines: impl Iterator<Item = io::Result<String>>,
    mut print: impl FnMut(&str),
) -> Result<Option<Tally>> {
    let mut held = None::<String>;
    for line in lines {
        let line = line?;
        if let Some(earlier) = held.take() {
            print(&earlier);
        }
        if Tally::of_line(&line).is_some() {
            held = Some(line);
        } else {
            print(&line);
        }
    }
    Ok(held.and_then(|line| Tally::of_line(&line)))
}

/// The program of a command, which gets SIGTERM when xtask ends.
fn child(arguments: &[&str]) -> Result<Command> {
    let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
    let program = program(&arguments)?;
    let mut child = Command::new("setpriv");
    child.args(["--pdeathsig", "TERM"]).arg(program.get_program()).args(program.get_args());
    Ok(child)
}

/// Builds the crate of a command.
fn program(arguments: &[OsString]) -> Result<Command> {
    let package = arguments.first().and_then(|name| package(name)).context("no such command")?;
    let executable = paths::target().join("release").join(package);
    if !executable.exists() {
        eprintln!("building tests/{package} for the first time ...");
    }
    let mut cargo = Rustc::installed()?.cargo("build");
    cargo.args(["--quiet", "--release", "--bin", package]);
    run(cargo.current_dir(paths::repository()))?;
    let mut program = Command::new(executable);
    program.args(arguments);
    Ok(program)
}

fn package(name: &OsStr) -> Option<&'static str> {
    COMMANDS.into_iter().find(|(known, ..)| name == *known).map(|(_, package, _)| package)
}

/// `help NAME ...` as `NAME ... --help`.
fn help_last(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.len() > 1 && arguments[0] == "help" {
        arguments.remove(0);
        arguments.push("--help".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_a_command_comes_from_its_program() {
        let arguments = ["help", "kind", "up"].map(OsString::from).to_vec();
        assert_eq!(help_last(arguments), ["kind", "up", "--help"]);
        assert_eq!(help_last(vec!["help".into()]), ["help"]);
    }

    #[test]
    fn the_counts_of_the_last_line_are_not_printed() {
        let run = |lines: &[&str]| {
            let mut printed = Vec::new();
            let lines = lines.iter().map(|&line| Ok(line.to_owned()));
            let tally = counts(lines, |line| printed.push(line.to_owned())).unwrap();
            (printed.join("\n"), tally.map(|tally| tally.has_failures()))
        };
        assert_eq!(run(&["ok       a", "1 passed, 0 failed"]), ("ok       a".into(), Some(false)));
        assert_eq!(run(&["1 passed, 1 failed", "more"]), ("1 passed, 1 failed\nmore".into(), None));
        assert_eq!(run(&[]), (String::new(), None));
    }

    #[test]
    fn every_command_belongs_to_a_crate_under_tests() {
        for (name, package, _) in COMMANDS {
            assert!(paths::repository().join("tests").join(package).join("Cargo.toml").is_file(), "{name}");
        }
    }
}
