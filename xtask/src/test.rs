//! `cargo xtask test`: every check and every test, as CI runs them.

use std::{
    env::consts::ARCH,
    process::{Command, ExitCode},
};

use anyhow::Result;

use crate::{
    build::OBJECT_VARIABLE,
    build_ebpf, demo, e2e, fuzz, image, manifests, matrix, paths, setup,
    tally::Tally,
    toolchain::{Rustc, run},
};

pub(crate) fn main() -> Result<ExitCode> {
    setup::ensure()?;
    let rustc = Rustc::installed()?;
    // One profile and the same flags everywhere, as in `build`: dependencies are built once.
    let cargo = |subcommand: &str, args: &[&str]| -> Result<()> {
        let mut cargo = rustc.cargo(subcommand);
        cargo.args(["--release"]).args(args).env(OBJECT_VARIABLE, build_ebpf::build()?);
        run(cargo.env("RUSTDOCFLAGS", "-Dwarnings").current_dir(paths::repository()))
    };
    let mut tally = Tally::default();
    tally.run("fmt", || {
        run(Command::new("cargo").args(["fmt", "--all", "--check"]).current_dir(paths::repository()))
    });
    tally.run("clippy", || cargo("clippy", &["--all-targets", "--", "-Dwarnings"]));
    tally.run("clippy of the eBPF crate", || {
        run(build_ebpf::cargo(&rustc, "clippy", ARCH)?.args(["--", "-Dwarnings"]))
    });
    tally.run("eBPF of each architecture", || {
        image::MACHINES.iter().try_for_each(|machine| build_ebpf::build_for(machine.arch).map(drop))
    });
    tally.run("clippy of the fuzz targets", fuzz::clippy);
    tally.run("doc", || cargo("doc", &["--no-deps"]));
    tally.run("test", || cargo("test", &[]));
    let deny = || {
        run(Command::new("cargo")
            .args(["deny", "check", "bans", "licenses", "sources"])
            .current_dir(paths::repository()))
    };
    match Command::new("cargo").args(["deny", "--version"]).output() {
        Ok(output) if output.status.success() => tally.run("deny", deny),
        _ => println!("skipped  deny: there is no cargo-deny, `cargo install cargo-deny` makes one"),
    }
    tally.run("manifests", || manifests::main(&manifests::Options { check: true }));
    tally.run("matrix", matrix::schedulers::check_few);
    if ARCH == "x86_64" {
        tally.run("kernel 6.1", matrix::kernels::check_oldest);
    } else {
        println!("skipped  kernel 6.1: the one that is booted is for x86_64");
    }
    tally.run("demo", || demo::main(&demo::Options { once: true }));
    e2e::run(&[], None, &mut tally)?;
    Ok(tally.end())
}
