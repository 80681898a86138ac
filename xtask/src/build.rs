//! `cargo xtask build`: the eBPF object, and the daemon with the object inside.

use std::path::PathBuf;

use anyhow::Result;

use crate::{
    build_ebpf, paths,
    toolchain::{Rustc, run},
};

/// Names the object for the daemon's build script.
pub(crate) const OBJECT_VARIABLE: &str = "TRACER_EBPF_OBJECT";

pub(crate) fn main() -> Result<()> {
    println!("{}", build()?.display());
    Ok(())
}

/// Builds everything and says where the daemon is.
pub(crate) fn build() -> Result<PathBuf> {
    let object = build_ebpf::build()?;
    let mut cargo = Rustc::installed()?.cargo("build");
    cargo
        .current_dir(paths::repository())
        .args(["--release", "--package=tracer"])
        .env(OBJECT_VARIABLE, object);
    run(&mut cargo)?;
    Ok(paths::target().join("release/schedspan"))
}
