//! `cargo xtask bench pipeline`: measures each step from record to bytes.

use anyhow::Result;
use xtask::{
    build::OBJECT_VARIABLE,
    build_ebpf, paths,
    toolchain::{Rustc, run},
};

/// # Errors
///
/// If the benchmark cannot be built, or fails.
pub(super) fn main() -> Result<()> {
    let mut cargo = Rustc::installed()?.cargo("bench");
    cargo.args(["--package", "tracer", "--bench", "pipeline"]).env(OBJECT_VARIABLE, build_ebpf::build()?);
    run(cargo.current_dir(paths::repository()))
}
