//! The Go program that tests read, built as they ask.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Builds it under this name for a `GOARCH`, with further arguments of `go build`; `None`, with a word why, where there is
/// no Go.
pub(crate) fn build(name: &str, architecture: &str, arguments: &[&str]) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = Command::new("go")
        .args(["build", "-trimpath"])
        .args(arguments)
        .arg("-o")
        .arg(&path)
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture"))
        .envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=mod"), ("GOARCH", architecture)])
        .status();
    match status {
        Ok(status) => assert!(status.success(), "the program does not build: {status}"),
        Err(error) => {
            eprintln!("skipped: the program needs Go, and `go` does not start: {error}");
            return None;
        }
    }
    Some(path)
}
