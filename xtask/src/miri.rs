//! `cargo xtask miri`: runs the tests of code that is marked `unsafe` in Miri, where undefined behaviour is an error.
//!
//! That is what the daemon promises of the tables that it hands to the kernel, how the image copies bytes, and what a thread keeps of the
//! blocks that it frees. The eBPF programs call the kernel, which Miri does not have. dlmalloc reads the header before a block through
//! the block's pointer, which Miri's rules of aliasing forbid: the calls of dlmalloc in `crates/allocator` are tested without Miri.

use std::process::Command;

use anyhow::Result;
use xtask::{paths, setup, toolchain::run};

/// Cases of each property: Miri needs some 100 times as long for one.
const CASES: &str = "4";

pub(crate) fn main() -> Result<()> {
    setup::ensure_miri()?;
    run(Command::new("rustup")
        .args(["run", setup::MIRI, "cargo", "miri", "test"])
        .args([
            "--locked",
            "--package=wire",
            "--package=mem",
            "--package=allocator",
            "--features=wire/user",
            "--lib",
        ])
        .arg("--target-dir")
        .arg(paths::target().join("miri"))
        // A property test looks for the file with the cases that once failed.
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("PROPTEST_CASES", CASES)
        .current_dir(paths::repository()))
}
