//! The flags with which the installed Rust builds this workspace.
//!
//! aya 0.16 requires Rust 1.98. It also builds with 1.95 and later if one unstable feature of the compiler is enabled. The same
//! stable compiler builds the eBPF object, with `core` from source.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};

use crate::{paths, process};

/// The oldest minor release that builds the workspace, and the oldest that does without the feature.
const OLDEST: u32 = 95;
const UNAIDED: u32 = 98;

/// The installed Rust compiler.
pub struct Rustc {
    /// 95 for Rust 1.95.
    pub minor: u32,
    /// The release, such as `1.95.0`.
    pub release: String,
    /// The commit of the compiler's sources.
    commit: String,
    /// The major version of its LLVM. bpf-linker must have the same.
    pub llvm: u32,
}

impl Rustc {
    /// The compiler on PATH.
    pub fn installed() -> Result<Self> {
        let output = Command::new("rustc")
            .arg("-vV")
            .output()
            .context("no rustc on PATH: install Rust with rustup, https://rustup.rs")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let release = line("release:").context("`rustc -vV` prints no release")?.to_owned();
        let number = |text: &str| text.split('.').next().and_then(|part| part.parse().ok());
        let minor = release
            .strip_prefix("1.")
            .and_then(number)
            .with_context(|| format!("`{release}` is not a release of Rust 1"))?;
        let llvm = line("LLVM version:").and_then(number).context("`rustc -vV` prints no LLVM version")?;
        if minor < OLDEST {
            bail!("Rust {release} is too old: 1.{OLDEST} is needed; run `rustup update stable`");
        }
        let commit = line("commit-hash:").unwrap_or("unknown").to_owned();
        Ok(Self { minor, release, commit, llvm })
    }

    /// `cargo` for all crates but the eBPF crate.
    pub fn cargo(&self, subcommand: &str) -> Command {
        self.cargo_with(subcommand, &[])
    }

    /// [`cargo`](Self::cargo) with flags for the compiler.
    pub fn cargo_with(&self, subcommand: &str, flags: &[String]) -> Command {
        let mut flags = flags.to_vec();
        let mut cargo = cargo();
        cargo.arg(subcommand).arg("--locked");
        if self.minor < UNAIDED {
            flags.push("-Zcrate-attr=feature(result_option_map_or_default)".to_owned());
            cargo.env("RUSTC_BOOTSTRAP", "1").arg("--ignore-rust-version");
        }
        if !flags.is_empty() {
            cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        }
        cargo
    }

    /// `cargo` for the eBPF crate, for traced programs of this architecture.
    ///
    /// # Errors
    ///
    /// Those of [`remapped`](Self::remapped).
    pub fn cargo_bpf(&self, subcommand: &str, arch: &str) -> Result<Command> {
        let mut flags = vec![format!("--cfg=bpf_target_arch=\"{arch}\""), "-Cdebuginfo=2".to_owned()];
        flags.push("-Clink-arg=--btf".to_owned());
        // BTF has the path of each source file, and the object must be the same on every machine.
        flags.append(&mut self.remapped()?);
        let mut cargo = cargo();
        cargo
            .args([subcommand, "--locked", "--package=tracer-ebpf", "--release"])
            .args(["--target=bpfel-unknown-none", "-Zbuild-std=core"])
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        if self.minor < UNAIDED {
            cargo.arg("--ignore-rust-version");
        }
        Ok(cargo)
    }

    /// Flags that keep this machine's paths out of the output: of the repository, the target folder, the dependencies' and the
    /// standard library's sources.
    ///
    /// # Errors
    ///
    /// If a folder is not known.
    pub fn remapped(&self) -> Result<Vec<String>> {
        let cargo_home = cargo_home().context("no folder of cargo: set HOME or CARGO_HOME")?;
        let folders = [
            (paths::repository().to_owned(), "/schedspan".to_owned()),
            (paths::target(), "/schedspan/target".to_owned()),
            (cargo_home, "/cargo".to_owned()),
            // The compiler's own path for them if rust-src is not installed.
            (rust_src()?, format!("/rustc/{}", self.commit)),
        ];
        Ok(folders.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())).to_vec())
    }
}

/// The folder of the standard library's sources, where cargo expects them.
///
/// # Errors
///
/// If there is no rustc.
pub fn rust_src() -> Result<PathBuf> {
    Ok(sysroot()?.join("lib/rustlib/src/rust"))
}

/// # Errors
///
/// If there is no rustc.
pub fn sysroot() -> Result<PathBuf> {
    process::output(Command::new("rustc").args(["--print", "sysroot"])).map(PathBuf::from)
}

/// The folder of cargo's downloads and installed programs.
pub fn cargo_home() -> Option<PathBuf> {
    env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| env::home_dir().map(|home| home.join(".cargo")))
}

/// `cargo` without the variables that `cargo xtask` sets for xtask itself. Build scripts such as ring's read them, and would run
/// again after every cargo that was not started by xtask.
fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    for (key, _) in env::vars_os() {
        if ["CARGO_MANIFEST_", "CARGO_PKG_"]
            .iter()
            .any(|of| key.as_encoded_bytes().starts_with(of.as_bytes()))
        {
            cargo.env_remove(key);
        }
    }
    cargo
}

/// Runs a command with its output on the terminal.
pub fn run(command: &mut Command) -> Result<()> {
    let name = [command.get_program(), command.get_args().next().unwrap_or_default()]
        .map(|part| part.display().to_string())
        .join(" ");
    let status = command.status().with_context(|| format!("cannot run `{name}`"))?;
    if !status.success() {
        bail!("`{name}` failed: {status}");
    }
    Ok(())
}
