//! `cargo xtask peak`: how long another program ran and how much memory it had resident at most.
//!
//! A process of its own for each measurement: the kernel keeps one peak for all the children that a process has had, and
//! a child's begins with what its parent holds, which in here is little.

use std::{
    env,
    ffi::OsString,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use xtask::process;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// What a program printed and took.
#[derive(Deserialize, Serialize)]
pub(crate) struct Measured {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) milliseconds: f64,
    pub(crate) peak_mib: f64,
}

/// Runs `command` below an xtask that measures it.
///
/// # Errors
///
/// If it cannot be started; not if it fails.
pub(crate) fn run(command: &Command) -> Result<Measured> {
    let mut xtask = Command::new(env::current_exe()?);
    xtask.args(["peak", "--"]).arg(command.get_program()).args(command.get_args());
    xtask.current_dir(command.get_current_dir().unwrap_or(".".as_ref()));
    serde_json::from_str(&process::output(&mut xtask)?).context("`xtask peak` printed no measurement")
}

/// The measuring xtask's own life.
///
/// # Errors
///
/// If the program cannot be started.
pub(crate) fn main(Options { command }: &Options) -> Result<()> {
    let mut words = command.iter();
    let program = words.next().context("no program to measure")?;
    println!("{}", serde_json::to_string(&measure(Command::new(program).args(words))?)?);
    Ok(())
}

fn measure(command: &mut Command) -> Result<Measured> {
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output();
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    let output = output.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let peak_kib = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
    Ok(Measured {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        milliseconds,
        peak_mib: peak_kib as f64 / 1024.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_holds_what_a_program_has_given_back_since() {
        // `tail` keeps what it may have to print.
        let script = "head -c 100M /dev/zero | tail -c 64M >/dev/null; echo done; echo why >&2; exit 3";
        let Measured { success, stdout, stderr, peak_mib, .. } =
            measure(Command::new("sh").args(["-c", script])).unwrap();
        assert!(!success);
        assert_eq!((stdout.as_str(), stderr.as_str()), ("done\n", "why\n"));
        assert!(peak_mib >= 64.0, "{peak_mib}");
    }
}
