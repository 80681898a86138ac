//! Runs a program and measures its time and its peak memory.

use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use xtask::process;

/// Interval of the readings. Each returns the peak so far, so only what grows in a program's last millisecond is missed.
const INTERVAL: Duration = Duration::from_millis(1);

/// A program's output and cost.
pub(crate) struct Measured {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) milliseconds: f64,
    pub(crate) peak_mib: f64,
}

/// Runs `command` to its end and measures it.
///
/// # Errors
///
/// If it cannot be started. A failure of the program is not an error.
pub(crate) fn run(command: &mut Command) -> Result<Measured> {
    let start = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let pid = child.id();
    let waiter = thread::spawn(move || (child.wait_with_output(), start.elapsed()));
    let mut peak_bytes = 0;
    while !waiter.is_finished() {
        peak_bytes = process::peak(pid).unwrap_or_default().max(peak_bytes);
        thread::sleep(INTERVAL);
    }
    let (output, elapsed) = waiter.join().expect("waiting for a program does not panic");
    let output = output?;
    Ok(Measured {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        milliseconds: elapsed.as_secs_f64() * 1e3,
        peak_mib: peak_bytes as f64 / f64::from(1 << 20),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_peak_are_those_of_the_program() {
        // dd reads into a buffer of one block.
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "of=/dev/null", "bs=64M", "count=4"]);
        let Measured { success, stdout, stderr, peak_mib, .. } = run(&mut dd).unwrap();
        assert!(success && stdout.is_empty() && stderr.starts_with("4+0 records in"), "{stdout}{stderr}");
        assert!(peak_mib >= 64.0, "{peak_mib}");
    }

    #[test]
    fn a_program_that_fails_is_measured() {
        let Measured { success, stdout, stderr, .. } =
            run(Command::new("sh").args(["-c", "echo done; echo why >&2; exit 3"])).unwrap();
        assert!(!success);
        assert_eq!((stdout.as_str(), stderr.as_str()), ("done\n", "why\n"));
    }
}
