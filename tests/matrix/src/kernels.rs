//! `cargo xtask matrix kernels`: runs schedspan on other kernels, each in an emulated machine.
//!
//! The guest boots a kernel of Debian with only a scheduler and schedspan, and uses the cluster of its host. It measures nothing,
//! because an emulator's times are meaningless.

use std::{
    collections::BTreeMap,
    env::consts::ARCH,
    fs::{self, File},
    io::Write as _,
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread::sleep,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{
    checks::nothing_lost,
    versions::{self, Load},
};
use harness::{
    api::pod,
    cluster::{self, Cluster},
    figures::Observed,
    http::agent,
    metrics::Metrics,
    spans,
    wait::wait_until,
};
use serde_json::Value;
use xtask::{
    build,
    components::{self, Component, SCHEDULER},
    debian::Suite,
    image, machine, paths, process, setup,
    tally::Tally,
};

/// A kernel and its Debian suite.
struct Kernel {
    name: &'static str,
    suite: &'static str,
    architecture: &'static Architecture,
    /// Further parameters of its command line.
    parameters: &'static str,
    /// What distinguishes it.
    has: &'static str,
}

/// The emulation of an architecture.
struct Architecture {
    /// Rust's name.
    name: &'static str,
    /// Debian's name.
    debian: &'static str,
    emulator: &'static str,
    /// The Debian package of the emulator.
    package: &'static str,
    /// Arguments of the emulator.
    arguments: &'static [&'static str],
    console: &'static str,
    /// The Debian package that depends on the newest kernel for virtual machines.
    kernel: &'static str,
    scheduler: Component,
}

const X86_64: Architecture = Architecture {
    name: "x86_64",
    debian: "amd64",
    emulator: "qemu-system-x86_64",
    package: "qemu-system-x86",
    arguments: &["-cpu", "max"],
    console: "ttyS0",
    kernel: "linux-image-cloud-amd64",
    scheduler: SCHEDULER,
};
const AARCH64: Architecture = Architecture {
    name: "aarch64",
    debian: "arm64",
    emulator: "qemu-system-aarch64",
    package: "qemu-system-arm",
    arguments: &["-machine", "virt", "-cpu", "neoverse-n1"],
    console: "ttyAMA0",
    kernel: "linux-image-cloud-arm64",
    scheduler: Component { kind: components::ARM64, ..SCHEDULER },
};
const KERNEL: Kernel =
    Kernel { name: "6.12", suite: "trixie", architecture: &X86_64, parameters: "", has: "`uprobe.multi`" };
const KERNELS: [Kernel; 5] = [
    Kernel { name: "6.1", suite: "bookworm", has: "uprobes are attached one by one", ..KERNEL },
    KERNEL,
    Kernel {
        name: "6.12-lockdown",
        parameters: "lockdown=integrity",
        has: "root may not change the kernel, as with Secure Boot",
        ..KERNEL
    },
    Kernel { name: "newest", suite: "sid", has: "what Debian has last", ..KERNEL },
    Kernel { name: "6.12-arm64", architecture: &AARCH64, has: "the other architecture", ..KERNEL },
];
/// Prefixes of a kernel's packages: up to 6.12 one package has both kernel and modules.
const PARTS: [&str; 3] = ["linux-image-", "linux-binary-", "linux-modules-"];
/// The package of the guest's commands.
const BUSYBOX: &str = "busybox-static";
/// Modules for the network. Some kernels have one built in, and no file.
const MODULES: [&str; 8] = [
    "failover",
    "net_failover",
    "virtio",
    "virtio_net",
    "virtio_pci",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_ring",
];
/// The host's address in the guest, which leads to ports of its 127.0.0.1.
const HOST: &str = "10.0.2.2";
/// The ports of the scheduler and schedspan in the guest.
const SCHEDULER_PORT: u16 = 10259;
const SCHEDSPAN_PORT: u16 = 9090;
/// Of a server that sets the guest's clock.
const CLOCK_PORT: u16 = 9099;
/// The `schedulerName` of the guest's scheduler.
const GUEST: &str = "guest";
const NODES: u32 = 20;
const LOAD: Load<'_> = Load { scheduler: Some(GUEST), placed: 40, never: 5 };
/// Pods that are created after a step of the guest's clock, and the clock's offset then, in seconds. Its certificates are an hour old.
const STEPS: [(&str, i64); 3] = [("an-hour-later", 3600), ("earlier", -3000), ("in-time", 0)];
/// How much the clocks of guest and host may differ, in seconds: far less than a step.
const TOLERANCE: i64 = 60;
const INIT: &str = include_str!("kernels/init.sh");
/// The limit for schedspan to trace the scheduler after that is ready. Reading an executable of 50 MB is slow in an emulator.
const TRACED_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Which kernels [default: all]
    #[arg(value_name = "KERNEL", value_parser = clap::builder::PossibleValuesParser::new(KERNELS.map(|kernel| kernel.name)))]
    names: Vec<String>,
}

/// The kernels as the page about support lists them: name, Debian suite, architecture, and what distinguishes it.
pub(crate) fn rows() -> impl Iterator<Item = [&'static str; 4]> {
    KERNELS.into_iter().map(|Kernel { name, suite, architecture, parameters: _, has }| {
        [name, suite, architecture.debian, has]
    })
}

pub(crate) fn main(Options { names }: &Options) -> Result<ExitCode> {
    let chosen = |kernel: &&Kernel| names.is_empty() || names.iter().any(|name| name == kernel.name);
    let mut tally = Tally::default();
    for kernel in KERNELS.iter().filter(chosen) {
        tally.run(&format!("kernel {}", kernel.name), || check(kernel));
    }
    Ok(tally.end())
}

fn check(kernel: &Kernel) -> Result<()> {
    ensure!(ARCH == "x86_64", "the scheduler that is booted is built on x86_64, and this is {ARCH}");
    let Architecture { name, emulator, package, scheduler, .. } = kernel.architecture;
    setup::ensure_emulator(emulator, package)?;
    let files = kernel.files()?;
    // For another architecture: a static executable.
    let schedspan = if *name == ARCH { build::build()? } else { image::executable(machine::machine(name)?)? };
    let scheduler = scheduler.executable()?;
    let options = cluster::Options { nodes: NODES, no_controllers: true, ..cluster::Options::default() };
    let cluster = Cluster::fresh(&options)?;
    let guest = Guest::start(cluster, kernel, &files, &[&scheduler, &schedspan])?;
    let checked = guest.traces().and_then(|()| {
        versions::check(&guest.cluster, &guest, &LOAD)?;
        STEPS.into_iter().try_for_each(|(name, seconds)| guest.steps(name, seconds))?;
        nothing_lost(&guest.schedspan()?)?;
        guest.is_content()
    });
    checked.or_else(|error| {
        bail!("{error:#}\n--- the guest's console:\n{}", process::tail(&guest.console()?));
    })?;
    println!("         Linux {}, {}", guest.release()?, kernel.has);
    guest.cluster.down()
}

impl Kernel {
    /// The folder with its files. It is filled if it is missing; remove it to get the suite's current kernel.
    fn files(&self) -> Result<PathBuf> {
        let Architecture { debian, kernel, .. } = self.architecture;
        let dir = paths::cache()?.join(format!("kernel-{}-{debian}", self.suite));
        if dir.exists() {
            return Ok(dir);
        }
        let partial = dir.with_extension("partial");
        let _ = fs::remove_dir_all(&partial); // An interrupted download leaves one.
        let work = partial.join("apt");
        let suite = Suite::read(self.suite, Some(debian), &work)?;
        let mut packages = suite.needed(kernel, &PARTS)?;
        packages.push(BUSYBOX.to_owned());
        suite.unpack(&packages, &partial)?;
        fs::remove_dir_all(work)?;
        fs::rename(&partial, &dir)?;
        Ok(dir)
    }
}

/// A running machine.
struct Guest {
    /// The cluster of its scheduler.
    cluster: Cluster,
    /// The log of its console.
    console: PathBuf,
}

impl Guest {
    /// Starts a guest with this kernel, and waits until its scheduler is ready.
    ///
    /// # Errors
    ///
    /// If the scheduler does not become ready.
    fn start(
        mut cluster: Cluster,
        Kernel { architecture, parameters, .. }: &Kernel,
        files: &Path,
        programs: &[&Path],
    ) -> Result<Self> {
        let dir = cluster.dir().join(GUEST);
        let archive = dir.with_extension("cpio");
        lay_out(&dir, &cluster, files, programs)?;
        // Not compressed: in the emulator unpacking would be slower than reading.
        let pack = "find . | cpio --create --format newc --quiet > \"$0\"";
        let mut shell = Command::new("sh");
        process::run("pack the guest's files", shell.args(["-c", pack]).arg(&archive).current_dir(&dir))?;
        let image = find(files, |name| name.starts_with("vmlinuz"))?.context("there is no vmlinuz")?;
        let Architecture { emulator, arguments: own, console, .. } = architecture;
        let ports = &["https", "metrics", "clock"];
        cluster.launch_executable(GUEST, emulator.as_ref(), &BTreeMap::new(), ports, |ports| {
            let forward = |port: &str, to| format!(",hostfwd=tcp:127.0.0.1:{}-:{to}", ports[port]);
            let network = [
                forward("https", SCHEDULER_PORT),
                forward("metrics", SCHEDSPAN_PORT),
                forward("clock", CLOCK_PORT),
            ]
            .concat();
            let arguments = [
                own,
                &["-accel", "tcg,thread=multi", "-smp", "2", "-m", "3072", "-no-reboot"][..],
                &["-display", "none", "-monitor", "none", "-serial", "stdio"],
                &["-kernel", &image.display().to_string(), "-initrd", &archive.display().to_string()],
                &["-append", &format!("console={console} quiet panic=-1 {parameters}")],
                &["-netdev", &format!("user,id=net{network}")],
                // Without a boot ROM.
                &["-device", "virtio-net-pci,netdev=net,romfile="],
            ];
            let arguments = arguments.concat().into_iter().map(str::to_owned).collect();
            (arguments, format!("https://127.0.0.1:{}/healthz", ports["https"]))
        })?;
        let console = cluster.scheduler_named(GUEST)?.log;
        Ok(Self { cluster, console })
    }

    /// Waits until schedspan traces the scheduler.
    fn traces(&self) -> Result<()> {
        wait_until("schedspan to trace the scheduler", TRACED_TIMEOUT, || {
            let traced = self.schedspan().is_ok_and(|metrics| metrics.sum("schedspan_schedulers", &[]) > 0.0);
            Ok((traced && self.pid().is_ok()).then_some(()))
        })
    }

    /// schedspan's metrics.
    fn schedspan(&self) -> Result<Metrics> {
        let port = self.cluster.port(GUEST, "metrics")?;
        Metrics::read(&agent(Path::new(""))?, &format!("http://127.0.0.1:{port}/metrics"))
    }

    /// Sets the clock, and checks that the next attempt has the new time and its real duration.
    fn steps(&self, name: &str, seconds: i64) -> Result<()> {
        let now = || -> Result<i64> {
            Ok(i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())?)
        };
        let port = self.cluster.port(GUEST, "clock")?;
        writeln!(TcpStream::connect(("127.0.0.1", port))?, "{}", now()? + seconds)?;
        // schedspan compares the clocks once a second.
        sleep(Duration::from_secs(3));
        let mut pod = pod(name, "100m");
        pod["spec"]["schedulerName"] = GUEST.into();
        self.cluster.api()?.create_pod("default", &pod)?;
        let root = wait_until("the span after a step of the clock", TRACED_TIMEOUT, || {
            let spans = spans::read(&self.spans(), 0)?;
            Ok(spans.into_iter().find(|span| span.is_root() && span.pod() == name))
        })?;
        let second = |nanoseconds: u64| i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX);
        let [start, end] = [root.start_time_unix_nano, root.end_time_unix_nano].map(second);
        let late = start - (now()? + seconds);
        ensure!(late.abs() < TOLERANCE, "with the clock {seconds} s off, {name} is {late} s off that");
        ensure!((0..TOLERANCE).contains(&(end - start)), "{name} takes from {start} to {end}");
        Ok(())
    }

    /// Checks that neither `schedspan doctor` nor the daemon reported a problem.
    fn is_content(&self) -> Result<()> {
        let console = self.console()?;
        ensure!(console.contains("doctor ended with 0"), "`schedspan doctor` misses something");
        ensure!(
            console.contains("lockdown"),
            "`schedspan doctor` does not say whether the kernel is locked down"
        );
        ensure!(
            console.contains("samples") && console.contains("samples the clock of each CPU"),
            "`schedspan doctor` does not say whether samples are taken"
        );
        // In emulation, reading an executable may take longer than a real machine is given. It is tried again, until it is traced.
        let slow = |line: &&str| line.contains("is too slow; tried again in");
        let mut lines = console.lines().filter(|line| !slow(line));
        let warning = lines.find(|line| ["WARN", " ERROR "].iter().any(|word| line.contains(word)));
        warning.map_or(Ok(()), |line| bail!("schedspan reported a problem: {line}"))
    }

    fn console(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.console)?).into_owned())
    }

    /// The word on the console after this text.
    fn said(&self, words: &str) -> Result<String> {
        let console = self.console()?;
        let said = console.split_once(words).and_then(|(_, rest)| rest.split_whitespace().next());
        said.map(str::to_owned).with_context(|| format!("the guest does not say `{words}`"))
    }

    fn release(&self) -> Result<String> {
        self.said("running Linux ")
    }
}

impl Observed for Guest {
    fn metrics(&self) -> Result<Metrics> {
        self.cluster.metrics_of(&self.cluster.scheduler_named(GUEST)?)
    }

    fn pid(&self) -> Result<i32> {
        Ok(self.said(" pid=")?.parse()?)
    }

    fn spans(&self) -> PathBuf {
        self.cluster.spans_file()
    }
}

/// Fills a folder with the guest's files.
fn lay_out(dir: &Path, cluster: &Cluster, kernel: &Path, programs: &[&Path]) -> Result<()> {
    for folder in ["bin", "dev", "etc", "modules", "proc", "sys", "tmp"] {
        fs::create_dir_all(dir.join(folder))?;
    }
    // Files have the same paths in the guest as here.
    let place = |outside: &Path| -> Result<PathBuf> {
        let inside = dir.join(outside.strip_prefix("/")?);
        fs::create_dir_all(inside.parent().context("a file has a folder")?)?;
        Ok(inside)
    };
    let busybox = find(kernel, |name| name == "busybox")?.context("there is no busybox")?;
    for program in programs.iter().copied().chain([busybox.as_path()]) {
        let name = program.file_name().context("a program has a name")?;
        fs::copy(program, dir.join("bin").join(name))
            .with_context(|| format!("cannot copy {}", program.display()))?;
        // ldd fails for static executables.
        let libraries = process::output(Command::new("ldd").arg(program)).unwrap_or_default();
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            fs::copy(library, place(Path::new(library))?)?;
        }
    }
    for module in MODULES {
        let file = find(kernel, |name| [".ko", ".ko.xz"].iter().any(|end| name == format!("{module}{end}")))?;
        let Some(file) = file else { continue };
        let plain = dir.join("modules").join(format!("{module}.ko"));
        if file.extension().is_some_and(|extension| extension == "xz") {
            let mut unpack = Command::new("xz");
            unpack.args(["--decompress", "--stdout"]).arg(file).stdout(File::create(plain)?);
            let status = unpack.status()?;
            ensure!(status.success(), "xz ended with {status}");
        } else {
            fs::copy(file, plain)?;
        }
    }
    let arguments = cluster.arguments_elsewhere(GUEST, SCHEDULER_PORT)?;
    for name in ["apiserver.crt", "apiserver.key", &format!("{GUEST}.json")] {
        let outside = cluster.dir().join(name);
        fs::copy(&outside, place(&outside)?)?;
    }
    for user in [SCHEDULER.name, "schedspan"] {
        let outside = cluster.dir().join(format!("{user}.kubeconfig"));
        let mut kubeconfig: Value = serde_json::from_slice(&fs::read(&outside)?)?;
        let server = &mut kubeconfig["clusters"][0]["cluster"];
        server["server"] = server["server"].as_str().unwrap_or_default().replace("127.0.0.1", HOST).into();
        // The certificate is issued for this address.
        server["tls-server-name"] = "127.0.0.1".into();
        fs::write(place(&outside)?, serde_json::to_vec(&kubeconfig)?)?;
    }
    let environment = [
        ("KUBECONFIG", cluster.schedspan_kubeconfig().display().to_string()),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", cluster.otlp_grpc()?.replace("127.0.0.1", HOST)),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc".to_owned()),
        ("NO_COLOR", "1".to_owned()),
    ];
    let environment = environment.map(|(name, value)| format!("export {name}='{value}'\n")).concat();
    let arguments: String = arguments.iter().map(|argument| format!(" '{argument}'")).collect();
    fs::write(dir.join("etc/environment"), format!("{environment}set --{arguments}\n"))?;
    let init = dir.join("init");
    fs::write(&init, INIT)?;
    Ok(fs::set_permissions(init, fs::Permissions::from_mode(0o755))?)
}

/// The first file below a folder with a matching name.
fn find(dir: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Option<PathBuf>> {
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if entry.file_name().to_str().is_some_and(&is_wanted) {
                return Ok(Some(entry.path()));
            }
        }
    }
    Ok(None)
}
