//! `cargo xtask bench-read`: measures each step of reading an executable.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use xtask::{
    build::OBJECT_VARIABLE,
    build_ebpf,
    components::SCHEDULER,
    paths, setup,
    toolchain::{Rustc, run},
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The executable to read [default: the test cluster's kube-scheduler]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn main(Options { file }: &Options) -> Result<()> {
    setup::ensure()?;
    let file = match file {
        Some(file) => std::path::absolute(file)?,
        None => SCHEDULER.executable()?,
    };
    ensure!(file.is_file(), "no such file: {}", file.display());
    let mut cargo = Rustc::installed()?.cargo("bench");
    cargo.args(["--package", "tracer", "--bench", "read"]).env(OBJECT_VARIABLE, build_ebpf::build()?);
    run(cargo.env("SCHEDSPAN_BENCH_FILE", file).current_dir(paths::repository()))
}
