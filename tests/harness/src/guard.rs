//! A second process that ends what this process started, if this process cannot.
//!
//! It waits at the other end of a pipe, which the kernel closes however this process ends, `kill -9` included. Unlike a signal on
//! the parent's death, that does not depend on the thread that started it.

use std::{
    env,
    ffi::OsStr,
    io::{Read as _, Write as _, stdin},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{self, Child, Stdio},
};

use anyhow::{Context as _, Result};

use crate::processes;

/// The guard, which acts when it is dropped or this process ends.
pub struct Guard(Child);

impl Guard {
    /// Starts this executable with these arguments, which must lead to [`run`].
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(arguments: &[impl AsRef<OsStr>]) -> Result<Self> {
        let mut command = process::Command::new(env::current_exe()?);
        command.args(arguments);
        // Ctrl-C must not reach it, so it gets its own process group.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot start the cluster's guard")?))
    }

    /// Ends the guard without action.
    ///
    /// # Errors
    ///
    /// If the guard has ended.
    pub fn release(mut self) -> Result<()> {
        let mut pipe = self.0.stdin.take().context("the guard has no pipe")?;
        pipe.write_all(b"release").context("the guard has ended")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait(); // The wait for our own child does not fail.
    }
}

/// The hidden command of a cluster's guard. Every program that starts clusters has it.
#[derive(clap::Subcommand)]
pub enum Command {
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        dir: PathBuf,
    },
}

impl Command {
    /// # Errors
    ///
    /// If the cluster cannot be taken down.
    pub fn run(&self) -> Result<()> {
        let Self::Guard { dir } = self;
        run(|| processes::down(dir))
    }
}

/// Waits for the end of the pipe, and calls `down` unless the guard was released.
///
/// # Errors
///
/// Those of `down`.
pub fn run(down: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut message = Vec::new();
    stdin().read_to_end(&mut message)?;
    if message.is_empty() { down() } else { Ok(()) }
}
