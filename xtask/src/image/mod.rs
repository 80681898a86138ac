//! `cargo xtask image`: the container image, made without a container engine.
//!
//! One layer holds a static executable, the certificates of public authorities, and the licences. The executable is
//! linked by Rust's own linker against Rust's own C library, and no path of this machine and no time gets into it, so
//! that two builds of one commit have one digest.

pub(crate) mod archive;

use std::{
    env::{self, consts::ARCH},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{ValueEnum, builder::PossibleValue};

use self::archive::{File, Image};
use crate::{
    build::OBJECT_VARIABLE,
    build_ebpf, paths, process, setup,
    toolchain::{Rustc, run},
};

/// What the image is called. It comes from no registry: `localhost` is what none is called.
pub(crate) const NAME: &str = concat!("localhost/schedspan:", env!("CARGO_PKG_VERSION"));
/// Where TLS looks for authorities on a machine of Debian's kind, and so in the image.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
const EXECUTABLE: &str = "usr/bin/schedspan";
/// Root: `/proc/PID/auxv` of a scheduler, which says where its executable lies, is for its owner alone.
const USER: &str = "0";
/// What the kernel permits the executable as far as the container has it, whoever the user is: CAP_SYS_PTRACE (19),
/// CAP_SYS_ADMIN (21, of older kernels), CAP_PERFMON (38) and CAP_BPF (39). `no_new_privs` does not forbid it, because the
/// runtime had the same itself just before. A `vfs_cap_data` of version 2 with words for permitted and inheritable, the
/// lower bits first:
/// <https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/capability.h#L60-L81>.
pub(crate) const CAPABILITIES: &[u8] = &[
    0,
    0,
    0,
    2, // Version 2, and not in effect by themselves.
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
/// What more is not small.
const MAX_BYTES: usize = 20_000_000;
const BASE64_LINE: usize = 64;

/// An architecture that images are made for.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    /// As Rust calls it.
    pub(crate) arch: &'static str,
    /// As images call it.
    pub(crate) platform: &'static str,
    /// Linux with a C library that is linked statically.
    pub(crate) target: &'static str,
    /// The C compiler, for the cryptography.
    pub(crate) cc: &'static str,
    /// The Debian packages that have it.
    pub(crate) packages: &'static [&'static str],
}

pub(crate) static MACHINES: [Machine; 2] = [
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

#[derive(clap::Args)]
pub(crate) struct Options {
    /// For machines of this architecture [default: this machine's]
    #[arg(long, value_enum)]
    arch: Option<&'static Machine>,
    /// Where the archive goes [default: a file in cargo's target folder]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn main(options: &Options) -> Result<()> {
    let machine = match options.arch {
        Some(machine) => machine,
        None => own()?,
    };
    println!("{}", image(machine, options.output.as_deref())?.display());
    Ok(())
}

/// This machine's architecture.
///
/// # Errors
///
/// If there are no images for it.
pub(crate) fn own() -> Result<&'static Machine> {
    machine(ARCH).context("give --arch")
}

/// That of this name, as Rust has it.
///
/// # Errors
///
/// If there are no images for it.
pub(crate) fn machine(arch: &str) -> Result<&'static Machine> {
    let machine = MACHINES.iter().find(|machine| machine.arch == arch);
    machine.with_context(|| format!("no image is made for {arch}"))
}

/// Makes the image for this machine, and says where its archive is. The folder that it was made of stays for
/// `deploy/Dockerfile`.
pub(crate) fn image(machine: &'static Machine, output: Option<&Path>) -> Result<PathBuf> {
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

    let (archive, digest) = Image {
        name: NAME,
        platform: machine.platform,
        created: &created()?,
        entrypoint: &format!("/{EXECUTABLE}"),
        labels: &labels()?,
        user: USER,
        files: &files,
    }
    .archive()?;
    let output = output.map_or_else(|| folder.with_extension("tar"), Path::to_owned);
    fs::write(&output, &archive).with_context(|| format!("cannot write `{}`", output.display()))?;
    eprintln!("{NAME}, {} bytes, {digest}", archive.len());
    ensure!(archive.len() < MAX_BYTES, "the image has {} bytes, more than {MAX_BYTES}", archive.len());
    Ok(output)
}

/// Builds the static executable for this machine, and says where it is.
///
/// # Errors
///
/// If something that the build takes is missing and cannot be installed, or the build fails.
pub(crate) fn executable(machine: &'static Machine) -> Result<PathBuf> {
    setup::ensure_static(machine)?;
    let Machine { arch, target, cc, .. } = machine;
    let rustc = Rustc::installed()?;
    let mut flags = rustc.remapped()?;
    flags.push("-Clinker=rust-lld".to_owned());
    let mut cargo = rustc.cargo_with("build", &flags);
    cargo
        .current_dir(paths::repository())
        .args(["--package=tracer", "--profile=image", "--target", target])
        .env(format!("CC_{}", target.replace('-', "_")), cc)
        .env(OBJECT_VARIABLE, build_ebpf::build_for(arch)?);
    run(&mut cargo)?;
    Ok(paths::target().join(target).join("image/schedspan"))
}

/// Mozilla's list of authorities, as `Cargo.lock` has it. The API server's own is not among them: that one is a file
/// of the ServiceAccount.
fn certificates() -> String {
    let pem = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|certificate| {
        let text = STANDARD.encode(certificate);
        let lines: Vec<_> =
            text.as_bytes().chunks(BASE64_LINE).map(|line| String::from_utf8_lossy(line)).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    });
    pem.collect()
}

/// When the image was made: `SOURCE_DATE_EPOCH`, or the time of the commit. See
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
fn created() -> Result<String> {
    let seconds = match env::var("SOURCE_DATE_EPOCH") {
        Ok(seconds) => seconds,
        Err(_) => git(&["log", "-1", "--format=%ct"])?,
    };
    process::output(Command::new("date").args(["--utc", &format!("--date=@{seconds}"), "+%FT%TZ"]))
        .with_context(|| format!("SOURCE_DATE_EPOCH={seconds} is no number of seconds"))
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

impl ValueEnum for &'static Machine {
    fn value_variants<'a>() -> &'a [Self] {
        static VARIANTS: [&Machine; 2] = [&MACHINES[0], &MACHINES[1]];
        &VARIANTS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.arch).alias(self.platform))
    }
}
