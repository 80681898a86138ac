//! `cargo xtask build`: builds the eBPF object and the daemon, which contains it.

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    build_ebpf, paths,
    toolchain::{Rustc, run},
};

/// The variable by which the daemon's build script finds the object.
pub const OBJECT_VARIABLE: &str = "TRACER_EBPF_OBJECT";

pub fn main() -> Result<()> {
    println!("{}", build()?.display());
    Ok(())
}

/// Builds everything and returns the path of the daemon.
pub fn build() -> Result<PathBuf> {
    let object = build_ebpf::build()?;
    let mut cargo = Rustc::installed()?.cargo("build");
    // Not `--package`: with the features that a few packages ask for, tokio, hyper and others would be built twice.
    cargo
        .current_dir(paths::repository())
        .args(["--release", "--bin=schedspan"])
        .env(OBJECT_VARIABLE, object);
    run(&mut cargo)?;
    Ok(paths::target().join("release/schedspan"))
}
