//! `cargo xtask release`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    release::main()
}
