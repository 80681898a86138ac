//! The project's chores. `cargo xtask` lists them.
#![forbid(unsafe_code)]

mod bench_read;
mod fuzz;
mod miri;
mod suite;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use xtask::{build, build_ebpf, image, manifests, setup};

/// schedspan's chores
///
/// Each has its own `--help`. Go and the components of the test cluster, which take long to build, are kept in
/// $XDG_CACHE_HOME/schedspan or ~/.cache/schedspan.
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
    /// LLVM with headers, of rustc's major version; rust-src; bpf-linker; Go; clippy and rustfmt. Installed items stay as they
    /// are. Debian packages need root. For an item that cannot be installed a line says how to install it by hand, and the exit
    /// code is 1.
    Setup,
    /// Build the eBPF object
    ///
    /// For this machine's architecture, with the same stable Rust as all other crates. Prints the path of the object, for
    /// `schedspan run --ebpf-object FILE`.
    BuildEbpf,
    /// Build the eBPF object, and schedspan, which contains it
    ///
    /// Prints the path of the executable.
    Build,
    /// Build the container image
    ///
    /// Packs a static executable and the certificates of public authorities, without a container engine. docker load, podman
    /// load, ctr images import and kind load image-archive read the archive. The same commit and tools result in the same digest
    /// on every machine. Prints the path of the archive.
    Image(image::Options),
    /// Render the plain manifests from the Helm chart
    ///
    /// With Helm and kustomize, which are built once from their Go modules. Lints the chart, and checks that base and overlays
    /// equal the chart with the same values.
    Manifests(manifests::Options),
    /// Run all checks and tests, as CI does
    ///
    /// The last line has the numbers of passes and failures. With a failure the exit code is 1. Needs root.
    Test,
    /// Measure the reading of an executable
    ///
    /// Time and memory of each step of `schedspan inspect`, up to the complete plan.
    BenchRead(bench_read::Options),
    /// Look for undefined behaviour in code that is marked unsafe
    ///
    /// Runs its tests in Miri, which comes with a nightly toolchain of Rust: rustup installs it beside the one that builds.
    Miri,
    /// Damage executables and annotations, and report crashes, hangs and excessive memory
    ///
    /// Changes a few bytes of real Go programs in the parts that schedspan reads: headers, function table, types, code. Also
    /// makes hostile annotations of Pods. A line for each target has the number of cases, their rate and the peak memory. With a
    /// case that panics, takes longer than 1 s or more than 256 MiB, the exit code is 1. Needs Go and pip: `cargo xtask setup`.
    Fuzz(fuzz::Options),
}

fn main() -> ExitCode {
    xtask::exit_code(suite::exec_requested().unwrap_or_else(|| run(Options::parsed().command)))
}

impl Options {
    fn parsed() -> Self {
        let command = Self::command().subcommands(suite::listed());
        Self::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Setup => setup::ensure_for_tests()?,
        Command::BuildEbpf => build_ebpf::main()?,
        Command::Build => build::main()?,
        Command::Image(options) => image::main(&options)?,
        Command::Manifests(options) => manifests::main(&options)?,
        Command::Test => return test::main(),
        Command::BenchRead(options) => bench_read::main(&options)?,
        Command::Miri => miri::main()?,
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
