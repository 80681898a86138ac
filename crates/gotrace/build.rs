//! Puts the eBPF object where `probe` includes it from.
//!
//! `cargo xtask build` makes the object and names it in `TRACER_EBPF_OBJECT`. Without it the library builds all the
//! same, and says at run time what it lacks.

use std::{env, fs, path::PathBuf};

const VARIABLE: &str = "TRACER_EBPF_OBJECT";

fn main() {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("tracer-ebpf.o");
    let object = match env::var_os(VARIABLE) {
        Some(path) => {
            let path = PathBuf::from(path);
            println!("cargo::rerun-if-changed={}", path.display());
            fs::read(&path).unwrap_or_else(|error| panic!("{VARIABLE}={}: {error}", path.display()))
        }
        None => Vec::new(),
    };
    fs::write(out, object).expect("OUT_DIR can be written");
}
