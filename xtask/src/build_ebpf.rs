//! `cargo xtask build-ebpf`: the eBPF object.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    paths,
    toolchain::{Rustc, run},
};

/// The object's place below `target/`, for the architecture of this machine.
const OUTPUT: &str = "target/bpf";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out the log points that `schedspan run --log trace` shows
    #[arg(long)]
    release: bool,
}

pub(crate) fn main(options: &Options) -> Result<()> {
    let object = build(options.release)?;
    println!("{}", object.display());
    Ok(())
}

/// Builds the eBPF object for this machine's architecture and says where it is.
pub(crate) fn build(release: bool) -> Result<PathBuf> {
    let rustc = Rustc::installed()?;
    let llvm = PathBuf::from(format!("/usr/lib/llvm-{}/bin", rustc.llvm));
    let path = match env::var_os("PATH") {
        Some(path) => env::join_paths(std::iter::once(llvm).chain(env::split_paths(&path)))?,
        None => OsString::from(llvm),
    };
    let arch = env::consts::ARCH;
    let root = paths::repository();
    let target = root.join("target/ebpf-build");
    let mut cargo = rustc.cargo_bpf("build", arch);
    cargo.current_dir(&root).env("PATH", path).env("CARGO_TARGET_DIR", &target);
    if !release {
        cargo.arg("--features=log");
    }
    run(&mut cargo).context("the eBPF object does not build; `cargo xtask setup` checks what it needs")?;
    let built = target.join("bpfel-unknown-none/release/tracer-ebpf");
    let output = root.join(OUTPUT).join(arch).join("tracer-ebpf.o");
    install(&built, &output)?;
    Ok(output)
}

/// Copies the object only when it differs: what embeds it need not be built again.
fn install(built: &Path, output: &Path) -> Result<()> {
    let object = fs::read(built).with_context(|| format!("cannot read `{}`", built.display()))?;
    ensure!(!object.is_empty(), "`{}` is empty", built.display());
    if fs::read(output).is_ok_and(|existing| existing == object) {
        return Ok(());
    }
    fs::create_dir_all(output.parent().context("the object's folder has no name")?)?;
    fs::write(output, object).with_context(|| format!("cannot write `{}`", output.display()))
}
