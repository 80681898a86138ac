//! What takes something down when xtask cannot: a second xtask at the other end of a pipe.
//!
//! The kernel closes the pipe however xtask ends, by `kill -9` too, from whichever thread the cluster was started.

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

/// Takes it down when it is dropped or when xtask ends.
pub struct Guard(Child);

impl Guard {
    /// Watches, as an xtask with these arguments, which calls [`run`].
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(arguments: &[impl AsRef<OsStr>]) -> Result<Self> {
        let mut command = process::Command::new(env::current_exe()?);
        command.args(arguments);
        // In a process group of its own: Ctrl-C must not reach it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("cannot start the cluster's guard")?))
    }

    /// Lets it live on.
    ///
    /// # Errors
    ///
    /// If the guard is gone.
    pub fn release(mut self) -> Result<()> {
        let mut pipe = self.0.stdin.take().context("the guard's pipe is open until here")?;
        pipe.write_all(b"release").context("the cluster's guard is gone")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait(); // It is a child of ours: there is no other outcome.
    }
}

/// The command of a process that is a cluster's guard: every program that starts clusters has it.
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

/// The guard's own life: waits for the end of the pipe.
///
/// # Errors
///
/// If it cannot be taken down.
pub fn run(down: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut message = Vec::new();
    stdin().read_to_end(&mut message)?;
    if message.is_empty() { down() } else { Ok(()) }
}
