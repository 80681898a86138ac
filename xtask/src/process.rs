//! Runs other programs, with a progress line or for their output.

use std::{
    fs,
    io::{BufRead as _, BufReader, IsTerminal as _, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// Lines of a log in an error.
const TAIL_LINES: usize = 20;
/// Interval of progress lines that cannot overwrite each other.
const PLAIN_INTERVAL: Duration = Duration::from_secs(15);
/// Interval of progress lines on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(250);
/// Columns of a progress line: it must not wrap on a common terminal.
const LINE_WIDTH: usize = 78;

/// Runs `command` to its end. A progress line on stderr has `what`, the elapsed seconds and the last line of output. A terminal
/// shows one line that is overwritten.
///
/// # Errors
///
/// If the program cannot be started or fails: the error ends with its last lines of output.
pub fn run(what: &str, command: &mut Command) -> Result<()> {
    let (output, writer) = std::io::pipe()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    // Closes the writing end in `command`, or the output would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let mut progress = Progress::new(what);
    let mut log = Vec::new();
    loop {
        match lines.recv_timeout(progress.interval) {
            Ok(line) => log.push(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        progress.show(log.last().map_or("", String::as_str));
    }
    let status = child.wait()?;
    progress.end();
    if !status.success() {
        bail!("{} ended with {status}:\n{}", command.get_program().display(), tail(&log.join("\n")));
    }
    Ok(())
}

/// The standard output of a program, without the line end.
///
/// # Errors
///
/// If it cannot be started or fails: the error has its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        bail!("{program} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// The first line that a program prints, if it exists and succeeds.
pub fn first_line(program: impl AsRef<Path>, args: &[&str]) -> Option<String> {
    let output = output(Command::new(program.as_ref()).args(args)).ok()?;
    output.lines().next().map(str::to_owned)
}

/// The resident memory of a process, in bytes.
pub fn resident(pid: u32) -> Option<u64> {
    memory(pid, "VmRSS:")
}

/// The most memory that a process has had resident so far, in bytes.
pub fn peak(pid: u32) -> Option<u64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix(field)?.strip_suffix("kB"))?;
    Some(kib.trim().parse::<u64>().ok()? * 1024)
}

/// The last lines of a log.
pub fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

struct Progress<'a> {
    what: &'a str,
    start: Instant,
    shown: Instant,
    terminal: bool,
    interval: Duration,
}

impl<'a> Progress<'a> {
    fn new(what: &'a str) -> Self {
        let (start, terminal) = (Instant::now(), std::io::stderr().is_terminal());
        if !terminal {
            eprintln!("{what} ...");
        }
        let interval = if terminal { TERMINAL_INTERVAL } else { PLAIN_INTERVAL };
        Self { what, start, shown: start, terminal, interval }
    }

    fn show(&mut self, last: &str) {
        if self.shown.elapsed() < self.interval {
            return;
        }
        self.shown = Instant::now();
        let line = format!("{}: {} s, {}", self.what, self.start.elapsed().as_secs(), last.trim());
        let line: String = line.chars().take(LINE_WIDTH).collect();
        if self.terminal {
            eprint!("\r{line}\x1b[K");
            let _ = std::io::stderr().flush(); // A progress line that cannot be shown is not an error.
        } else {
            eprintln!("{line}");
        }
    }

    fn end(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_short_log_is_all_of_it() {
        assert_eq!(tail("one\ntwo\n"), "one\ntwo");
    }

    #[test]
    fn the_tail_of_a_long_log_is_its_last_lines() {
        let log: Vec<_> = (0..100).map(|n| n.to_string()).collect();
        assert_eq!(tail(&log.join("\n")).lines().next(), Some("80"));
    }

    #[test]
    fn a_failing_program_is_reported_with_its_output() {
        let error = run("test", Command::new("sh").args(["-c", "echo the reason; exit 3"])).unwrap_err();
        assert!(error.to_string().ends_with("the reason"), "{error}");
    }
}
