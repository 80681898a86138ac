//! Another process reads a configuration: this executable again.
//!
//! A file system can let its readers wait for ever, and not even a signal ends such a wait: a process with such a thread cannot end.

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};

use gotrace::discover::ProcessId;

use super::Configuration;

/// First argument of the process that reads. The pid and the start of the process follow whose configuration it is.
const ARGUMENT: &str = "read-configuration-for-schedspan";
/// Bytes of an answer. The settings of the largest file, with each of their characters escaped, have fewer.
pub const MAX_ANSWER: u64 = 16 << 20;

/// The arguments that let this executable write the configuration of a process to its standard output, for [`answer`].
#[must_use]
pub fn arguments(process: ProcessId) -> [String; 3] {
    let ProcessId { pid, start_ticks } = process;
    [ARGUMENT.to_owned(), pid.to_string(), start_ticks.to_string()]
}

/// Whether this process was started with [`arguments`]: then this is all that it does, and its exit code.
#[must_use]
pub fn serve(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if arguments.nth(1)? != ARGUMENT {
        return None;
    }
    let mut number = || arguments.next()?.into_string().ok();
    let (pid, start_ticks) = (number()?.parse().ok()?, number()?.parse().ok()?);
    let read = Configuration::of(ProcessId { pid, start_ticks }).map_err(|error| error.to_string());
    let written = serde_json::to_vec(&read).map_err(io::Error::from);
    // An error is the end of the process that asks.
    let _ = written.and_then(|json| io::stdout().write_all(&json));
    Some(ExitCode::SUCCESS)
}

/// The configuration in what the process wrote, or why it could not be read.
///
/// # Errors
///
/// When it could not be read.
pub fn answer(written: &[u8]) -> Result<Configuration, String> {
    serde_json::from_slice(written)
        .unwrap_or_else(|error| Err(format!("the process that reads it has ended: {error}")))
}
