//! Architectures that images are made for.

use std::env::consts::ARCH;

use anyhow::{Context as _, Result};
use clap::{ValueEnum, builder::PossibleValue};

/// An architecture that images are made for.
#[derive(Clone, Copy)]
pub struct Machine {
    /// Rust's name.
    pub arch: &'static str,
    /// The name in images.
    pub platform: &'static str,
    /// The Rust target with a static C library.
    pub target: &'static str,
    /// The C compiler for the cryptography.
    pub cc: &'static str,
    /// The Debian packages of the compiler.
    pub packages: &'static [&'static str],
}

pub static MACHINES: [Machine; 2] = [
    Machine {
        arch: "x86_64",
        platform: "amd64",
        target: "x86_64-unknown-linux-musl",
        cc: "x86_64-linux-gnu-gcc",
        packages: &["gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"],
    },
    Machine {
        arch: "aarch64",
        platform: "arm64",
        target: "aarch64-unknown-linux-musl",
        cc: "aarch64-linux-gnu-gcc",
        packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
    },
];

/// This machine's architecture.
///
/// # Errors
///
/// If there are no images for it.
pub fn own() -> Result<&'static Machine> {
    machine(ARCH).context("give --arch")
}

/// The architecture with this Rust name.
///
/// # Errors
///
/// If there are no images for it.
pub fn machine(arch: &str) -> Result<&'static Machine> {
    let machine = MACHINES.iter().find(|machine| machine.arch == arch);
    machine.with_context(|| format!("no image is made for {arch}"))
}

impl ValueEnum for &'static Machine {
    fn value_variants<'a>() -> &'a [Self] {
        static VARIANTS: [&Machine; 2] = [&MACHINES[0], &MACHINES[1]];
        &VARIANTS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.arch).alias(self.platform))
    }
}
