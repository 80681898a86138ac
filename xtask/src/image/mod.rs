//! `cargo xtask image`: makes the container image without a container engine.
//!
//! The single layer contains a static executable, the certificates of public authorities, and the licences. Rust's own linker
//! links the executable with Rust's own C library. No path of this machine and no time gets into the image, so two builds of one
//! commit have the same digest. A document beside the image, `sbom`, lists the packages that are compiled into it.

pub mod archive;
mod sbom;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use self::archive::{File, Image};
use crate::{
    build::OBJECT_VARIABLE,
    build_ebpf,
    machine::{self, Machine},
    paths, process, setup,
    toolchain::{Rustc, run},
};

/// The name of the image. No registry is called `localhost`, so it is never pulled.
pub const NAME: &str = concat!("localhost/schedspan:", env!("CARGO_PKG_VERSION"));
/// What a document with the image's packages ends with, instead of the archive's `tar`.
const SBOM: &str = "spdx.json";
/// The path where TLS libraries look for authorities on Debian.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
const EXECUTABLE: &str = "usr/bin/schedspan";
/// Root, because only its owner can read a scheduler's `/proc/PID/auxv`, which has the executable's address.
const USER: &str = "0";
/// File capabilities, which any user of the executable gets if the container has them: CAP_SYS_PTRACE (19), CAP_SYS_ADMIN (21,
/// for older kernels), CAP_PERFMON (38) and CAP_BPF (39). `no_new_privs` does not forbid them, because the runtime has the same
/// before it executes this. A `vfs_cap_data` of version 2, with permitted and inheritable words, lower bits first:
/// <https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/capability.h#L60-L81>.
pub const CAPABILITIES: &[u8] = &[
    0,
    0,
    0,
    2, // Version 2, not effective by themselves.
    0,
    0,
    0b0010_1000,
    0,
    0,
    0,
    0,
    0, // Bits 0 to 31.
    0b1100_0000,
    0,
    0,
    0,
    0,
    0,
    0,
    0, // Bits 32 to 63.
];
/// The limit for the archive.
const MAX_BYTES: usize = 20_000_000;
const BASE64_LINE: usize = 64;

#[derive(clap::Args)]
pub struct Options {
    /// For machines of this architecture [default: this machine's]
    #[arg(long, value_enum)]
    arch: Option<&'static Machine>,
    /// Where the archive goes [default: a file in cargo's target folder]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Store the archive's size in docs/figures.tsv, which tests compare with what README and documents say
    #[arg(long)]
    store: bool,
}

pub fn main(options: &Options) -> Result<()> {
    let machine = match options.arch {
        Some(machine) => machine,
        None => machine::own()?,
    };
    let archive = image(machine, options.output.as_deref())?;
    if options.store {
        let megabytes = fs::metadata(&archive)?.len() as f64 / 1e6;
        facts::store(&[("image.megabytes", format!("{megabytes:.0}"))])?;
    }
    println!("{}", archive.display());
    Ok(())
}

/// Makes the image for this machine and returns the path of its archive. The folder with its files stays for
/// `deploy/Dockerfile`.
pub fn image(machine: &'static Machine, output: Option<&Path>) -> Result<PathBuf> {
    let copied = |path: &str, from: &str| -> Result<File> {
        Ok(File::plain(path, fs::read(paths::repository().join(from))?))
    };
    let executable = File::plain(EXECUTABLE, fs::read(executable(machine)?)?);
    let files = [
        File { mode: 0o755, capabilities: Some(CAPABILITIES), ..executable },
        File::plain(CERTIFICATES, certificates().into_bytes()),
        copied("usr/share/doc/schedspan/LICENSE", "LICENSE")?,
        copied("usr/share/doc/schedspan/LICENSE-GPL-2.0", "tracer-ebpf/LICENSE-GPL-2.0")?,
    ];
    let folder = paths::target().join("oci").join(machine.arch);
    let _ = fs::remove_dir_all(&folder);
    for File { path, mode, content, .. } in &files {
        write(&folder.join(path), content, *mode)?;
    }

    let created = created()?;
    let (archive, digest) = Image {
        name: NAME,
        platform: machine.platform,
        created: &created,
        entrypoint: &format!("/{EXECUTABLE}"),
        labels: &labels()?,
        user: USER,
        files: &files,
    }
    .archive()?;
    let output = output.map_or_else(|| folder.with_extension("tar"), Path::to_owned);
    fs::write(&output, &archive).with_context(|| format!("cannot write `{}`", output.display()))?;
    let packages = sbom::document(machine, NAME, &digest, &created)?;
    fs::write(output.with_extension(SBOM), serde_json::to_vec_pretty(&packages)?)?;
    eprintln!("{NAME}, {} bytes, {digest}", archive.len());
    ensure!(archive.len() < MAX_BYTES, "the image has {} bytes, more than {MAX_BYTES}", archive.len());
    Ok(output)
}

/// Builds the static executable for this machine and returns its path.
///
/// # Errors
///
/// If a tool is missing and cannot be installed, or the build fails.
pub fn executable(machine: &'static Machine) -> Result<PathBuf> {
    setup::ensure_static(machine)?;
    let Machine { arch, target, cc, .. } = machine;
    let rustc = Rustc::installed()?;
    let mut flags = rustc.remapped()?;
    flags.push("-Clinker=rust-lld".to_owned());
    // The list of what moves with the executable's address is read whole at each start: packed, it has a few pages. musl
    // reads it since 1.2.4: <https://git.musl-libc.org/cgit/musl/tree/WHATSNEW?h=v1.2.5>.
    flags.push("-Clink-arg=--pack-dyn-relocs=relr".to_owned());
    // Equal functions become one.
    flags.push("-Clink-arg=--icf=all".to_owned());
    let mut cargo = rustc.cargo_with("build", &flags);
    cargo
        .current_dir(paths::repository())
        .args(["--package=tracer", "--profile=image", "--target", target])
        .env(format!("CC_{}", target.replace('-', "_")), cc)
        .env(OBJECT_VARIABLE, build_ebpf::build_for(arch)?);
    run(&mut cargo)?;
    Ok(paths::target().join(target).join("image/schedspan"))
}

/// Mozilla's list of authorities, in the version of `Cargo.lock`. The API server's authority comes from the ServiceAccount instead.
fn certificates() -> String {
    let pem = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|certificate| {
        let text = STANDARD.encode(certificate);
        let lines: Vec<_> =
            text.as_bytes().chunks(BASE64_LINE).map(|line| String::from_utf8_lossy(line)).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    });
    pem.collect()
}

/// The creation time: `SOURCE_DATE_EPOCH`, or the time of the commit. See
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
fn created() -> Result<String> {
    let seconds = match env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => seconds,
        Err(_) => git(&["log", "-1", "--format=%ct"])?,
    };
    process::output(Command::new("date").args(["--utc", &format!("--date=@{seconds}"), "+%FT%TZ"]))
        .with_context(|| format!("SOURCE_DATE_EPOCH={seconds} is not a number of seconds"))
}

/// See <https://github.com/opencontainers/image-spec/blob/v1.1.1/annotations.md>.
fn labels() -> Result<Vec<(&'static str, String)>> {
    let revision = git(&["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"])?;
    Ok(vec![
        ("title", "schedspan".to_owned()),
        ("description", "Traces an unmodified kube-scheduler with eBPF".to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("revision", revision),
        ("source", env!("CARGO_PKG_REPOSITORY").to_owned()),
        ("url", env!("CARGO_PKG_REPOSITORY").to_owned()),
        ("licenses", "Apache-2.0 AND (Apache-2.0 OR GPL-2.0-only)".to_owned()),
    ])
}

fn git(args: &[&str]) -> Result<String> {
    process::output(Command::new("git").args(args).current_dir(paths::repository()))
}

fn write(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(path.parent().context("a file of the image has no folder")?)?;
    fs::write(path, content).with_context(|| format!("cannot write `{}`", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}
