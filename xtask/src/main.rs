//! The project's chores: `cargo xtask` lists them.
#![forbid(unsafe_code)]

mod bench_read;
mod fuzz;
mod suite;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use xtask::{build, build_ebpf, image, manifests, setup};

/// schedspan's chores
///
/// Each has a `--help` of its own. What takes long to make (Go, the components of the test cluster) is made once
/// and kept in $XDG_CACHE_HOME/schedspan, or ~/.cache/schedspan.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check and install what a build needs
    ///
    /// LLVM with headers, of the major version that rustc has; rust-src; bpf-linker; Go; clippy and rustfmt. What is
    /// there stays as it is: a second run only prints what it found. Debian packages need root. What cannot be
    /// installed is named together with what to do by hand, and the exit code is 1.
    Setup,
    /// Build the eBPF object
    ///
    /// With the same stable Rust as everything else, for this machine's architecture. Prints where the object is:
    /// `schedspan run --ebpf-object FILE` takes it.
    BuildEbpf(build_ebpf::Options),
    /// Build everything: the eBPF object, and schedspan with the object inside
    ///
    /// Prints where the executable is.
    Build,
    /// Build the container image
    ///
    /// One static executable and the certificates of public authorities, packed without a container engine: docker load,
    /// podman load, ctr images import and kind load image-archive take the archive. The same commit and tools make the
    /// same digest, wherever they lie. Prints where the archive is.
    Image(image::Options),
    /// Render the plain manifests from the Helm chart
    ///
    /// With Helm and kustomize, which are built from their Go modules, once. Lints the chart, and checks that base and
    /// overlays are what the chart makes of the same values.
    Manifests(manifests::Options),
    /// Run all checks and tests, as CI does
    ///
    /// The last line says how many passed and failed; with a failure the exit code is 1. Needs root.
    Test,
    /// Measure what reading an executable takes
    ///
    /// Time and memory of each step of what `schedspan inspect` does, down to the whole plan.
    BenchRead(bench_read::Options),
    /// Damage executables and annotations, and look for what crashes, hangs or swells
    ///
    /// Real Go programs with a few bytes changed where they are read: headers, function table, types, code; and annotations
    /// of Pods as somebody might write them to do harm. A line for
    /// each target says how many cases ran, how fast, and how much memory they took; with a case that panics, takes
    /// longer than 1 s or more than 256 MiB the exit code is 1. Needs Go and pip: `cargo xtask setup`.
    Fuzz(fuzz::Options),
}

fn main() -> ExitCode {
    xtask::exit_code(suite::become_asked().unwrap_or_else(|| run(Options::parsed().command)))
}

impl Options {
    fn parsed() -> Self {
        let command = Self::command().subcommands(suite::listed());
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Setup => setup::ensure()?,
        Command::BuildEbpf(options) => build_ebpf::main(&options)?,
        Command::Build => build::main()?,
        Command::Image(options) => image::main(&options)?,
        Command::Manifests(options) => manifests::main(&options)?,
        Command::Test => return test::main(),
        Command::BenchRead(options) => bench_read::main(&options)?,
        Command::Fuzz(options) => return fuzz::main(&options),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Options::command().subcommands(suite::listed()).debug_assert();
    }
}
