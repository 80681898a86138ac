//! Counts checks that pass and fail, with a line for each.

use std::{process::ExitCode, time::Instant};

use anyhow::Result;

/// The counts so far.
#[derive(Default)]
pub struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    /// Runs a check and prints its line.
    pub fn run(&mut self, name: &str, what: impl FnOnce() -> Result<()>) {
        let start = Instant::now();
        let result = what();
        let seconds = start.elapsed().as_secs_f32();
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("ok       {name:<24} {seconds:>6.1} s");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED   {name:<24} {seconds:>6.1} s: {error:#}");
            }
        }
    }

    /// Parses the last line of another program, as [`end`](Self::end) prints it.
    pub fn of_line(line: &str) -> Option<Self> {
        let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
        Some(Self { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
    }

    pub fn add(&mut self, Self { passed, failed }: &Self) {
        self.passed += passed;
        self.failed += failed;
    }

    pub fn has_failures(&self) -> bool {
        self.failed > 0
    }

    /// Prints the counts. No check at all is not a success.
    pub fn end(self) -> ExitCode {
        let Self { passed, failed } = self;
        println!("{passed} passed, {failed} failed");
        if passed > 0 && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_another_program_are_added() {
        let mut tally = Tally { passed: 1, failed: 0 };
        tally.add(&Tally::of_line("18 passed, 2 failed").unwrap());
        assert_eq!((tally.passed, tally.failed), (19, 2));
        assert!(tally.has_failures());
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in ["", "ok       e2e link", "x passed, 2 failed", "1 passed, 2 failed; 3 ignored"] {
            assert!(Tally::of_line(line).is_none(), "{line}");
        }
    }
}
