//! `cargo xtask peer`: builds schedulers that make spans themselves.

use anyhow::Result;
use xtask::{components::SCHEDULER, setup};

use crate::schedulers::{all_woven, woven};

#[derive(clap::Args)]
pub struct Options {
    /// Which version, such as 1.33
    #[arg(default_value = SCHEDULER.version)]
    version: String,
    /// All versions
    #[arg(long, conflicts_with = "version")]
    all: bool,
}

pub fn main(options: &Options) -> Result<()> {
    setup::ensure()?;
    let Options { version, all } = options;
    let components: Vec<_> = if *all { all_woven().collect() } else { vec![woven(version)?.0] };
    for component in components {
        println!("{:<8} {}", component.version, component.executable()?.display());
    }
    Ok(())
}
