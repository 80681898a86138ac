//! `cargo xtask build-ebpf`: builds the eBPF object.

use std::{
    env::{self, consts::ARCH},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    paths, process,
    toolchain::{Rustc, run},
};

/// The folder of objects below cargo's target folder.
const OUTPUT: &str = "bpf";

pub fn main() -> Result<()> {
    println!("{}", build()?.display());
    Ok(())
}

/// Builds the eBPF object for this machine's architecture and returns its path.
pub fn build() -> Result<PathBuf> {
    build_for(ARCH)
}

/// Builds the eBPF object for this architecture and returns its path.
pub fn build_for(arch: &str) -> Result<PathBuf> {
    let rustc = Rustc::installed()?;
    run(&mut cargo(&rustc, "build", arch)?)
        .context("the eBPF object does not build; `cargo xtask setup` checks what it needs")?;
    let built = target().join("bpfel-unknown-none/release/tracer-ebpf");
    // The kernel takes types (BTF), but no debug information, which is most of the object: the daemon would hold it in memory.
    let stripped = built.with_extension("stripped");
    let strip = format!("/usr/lib/llvm-{}/bin/llvm-strip", rustc.llvm);
    process::output(Command::new(strip).arg("-g").arg(&built).arg("-o").arg(&stripped))?;
    let output = paths::target().join(OUTPUT).join(arch).join("tracer-ebpf.o");
    install(&stripped, &output)?;
    Ok(output)
}

/// `cargo` for the eBPF crate, with bpf-linker's LLVM on `PATH`.
///
/// # Errors
///
/// Those of [`Rustc::cargo_bpf`].
pub fn cargo(rustc: &Rustc, subcommand: &str, arch: &str) -> Result<Command> {
    let mut path = OsString::from(format!("/usr/lib/llvm-{}/bin:", rustc.llvm));
    path.push(env::var_os("PATH").unwrap_or_default());
    let mut cargo = rustc.cargo_bpf(subcommand, arch)?;
    cargo.current_dir(paths::repository()).env("PATH", path).env("CARGO_TARGET_DIR", target());
    Ok(cargo)
}

/// A target folder of its own, because its flags differ from those of the other crates.
fn target() -> PathBuf {
    paths::target().join("ebpf-build")
}

/// Copies the object only if it differs, so that the daemon is not rebuilt without need.
fn install(built: &Path, output: &Path) -> Result<()> {
    let object = fs::read(built).with_context(|| format!("cannot read `{}`", built.display()))?;
    ensure!(!object.is_empty(), "`{}` is empty", built.display());
    if fs::read(output).is_ok_and(|existing| existing == object) {
        return Ok(());
    }
    fs::create_dir_all(output.parent().context("the object's folder has no name")?)?;
    fs::write(output, object).with_context(|| format!("cannot write `{}`", output.display()))
}
