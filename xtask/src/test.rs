//! `cargo xtask test`: runs every check and test, as CI does.

use std::{
    env::consts::ARCH,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::Result;
use xtask::{
    build::OBJECT_VARIABLE,
    build_ebpf, machine, manifests, paths, process, setup,
    tally::Tally,
    toolchain::{Rustc, run},
};

use crate::{fuzz, miri, suite};

/// How long each fuzz target looks for new cases.
const FUZZING: Duration = Duration::from_secs(10);

/// No test of a cluster begins after it, or a new machine, which builds everything first, would need more than CI's 90 minutes.
const LAST_BEGIN: Duration = Duration::from_secs(75 * 60);

pub(crate) fn main() -> Result<ExitCode> {
    let start = Instant::now();
    setup::ensure_for_tests()?;
    let rustc = Rustc::installed()?;
    // Profile and flags are those of `build`, so dependencies are built once.
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
        machine::MACHINES.iter().try_for_each(|machine| {
            run(build_ebpf::cargo(&rustc, "clippy", machine.arch)?.args(["--", "-Dwarnings"]))
        })
    });
    tally.run("eBPF of each architecture", || {
        machine::MACHINES.iter().try_for_each(|machine| build_ebpf::build_for(machine.arch).map(drop))
    });
    tally.run("clippy of the fuzz targets", fuzz::clippy);
    tally.run("doc", || cargo("doc", &["--no-deps"]));
    tally.run("test", || cargo("test", &["--no-fail-fast"]));
    if process::first_line("rustup", &["--version"]).is_some() {
        tally.run("Miri", miri::main);
    } else {
        println!("skipped  Miri: rustup, which installs it, is not here");
    }
    fuzz::all_for(FUZZING, &mut tally)?;
    let deny = |arguments: &[&str]| {
        let mut deny = Command::new("cargo");
        deny.arg("deny").args(arguments).current_dir(paths::repository());
        deny
    };
    tally.run("deny", || run(&mut deny(&["check", "bans", "licenses", "sources"])));
    if deny(&["fetch", "db"]).output()?.status.success() {
        tally.run("deny advisories", || run(&mut deny(&["check", "advisories"])));
    } else {
        println!("skipped  deny advisories: their database cannot be fetched");
    }
    tally.run("manifests", || manifests::main(&manifests::Options { check: true }));
    tally.run("matrix", || suite::run_to_end(&["matrix", "schedulers", "--few"]));
    // On a new machine "test" has skipped them: the matrix has just built the executables.
    tally.run("plans", || cargo("test", &["--test", "plans", "--", "--nocapture"]));
    if ARCH == "x86_64" {
        count(&mut tally, "kernel 6.1", &["matrix", "kernels", "6.1"]);
    } else {
        println!("skipped  kernel 6.1: the one that is booted is for x86_64");
    }
    tally.run("demo", || suite::run_to_end(&["demo", "--once"]));
    let left = LAST_BEGIN.saturating_sub(start.elapsed()).as_secs().to_string();
    count(&mut tally, "e2e", &["e2e", "--begin-within", &left]);
    Ok(tally.end())
}

/// Adds the counts of a command of another crate. A command without counts is a failure.
fn count(tally: &mut Tally, name: &str, arguments: &[&str]) {
    match suite::count(arguments) {
        Ok(counted) => tally.add(&counted),
        Err(error) => tally.run(name, || Err(error)),
    }
}
