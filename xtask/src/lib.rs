//! Builds schedspan: tools, toolchains, the eBPF object, the daemon, the image, and the Go programs of the tests.
#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "names say what fields and short functions are")]

pub mod build;
pub mod build_ebpf;
pub mod components;
pub mod debian;
pub mod docs;
pub mod go;
pub mod image;
pub mod machine;
pub mod manifests;
pub mod paths;
pub mod process;
pub mod setup;
pub mod tally;
pub mod toolchain;

use std::process::ExitCode;

use anyhow::Result;

/// Prints an error and returns the exit code, the same way in all commands of `cargo xtask`.
pub fn exit_code(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
