//! Writes the man pages of all verbs into a folder: `cargo run -p tracer --example man -- FOLDER`.

use std::{env, io, path::PathBuf};

use clap::CommandFactory as _;

fn main() -> io::Result<()> {
    let folder: PathBuf = env::args_os().nth(1).ok_or_else(|| io::Error::other("give a folder"))?.into();
    std::fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(tracer::cli::Cli::command(), folder)
}
