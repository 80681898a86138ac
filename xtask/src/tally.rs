//! A line for each thing that passes or fails, and how many did.

use std::{process::ExitCode, time::Instant};

use anyhow::Result;

/// What passed and what failed so far.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    /// Does `what` and prints a line about it.
    pub(crate) fn run(&mut self, name: &str, what: impl FnOnce() -> Result<()>) {
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

    /// Prints how many passed and failed. Nothing done at all is no success.
    pub(crate) fn end(self) -> ExitCode {
        let Self { passed, failed } = self;
        println!("{passed} passed, {failed} failed");
        if passed > 0 && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
