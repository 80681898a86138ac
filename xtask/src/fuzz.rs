//! `cargo xtask fuzz`: runs the parsers on millions of damaged executables, records, recordings and events, and hostile annotations.
//!
//! The libFuzzer targets are in fuzz/. cargo-fuzz cannot pass `--ignore-rust-version`, and its sanitizers are not needed: the
//! code is safe, and several times as fast without.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use xtask::{
    go::Go,
    paths, process,
    tally::Tally,
    toolchain::{self, Rustc},
};

/// Counters at every edge, from which libFuzzer recognizes new behaviour.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=3",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Ccodegen-units=1",
];
/// The variable with the paths of the seeds.
const SEEDS_VARIABLE: &str = "FUZZ_SEEDS";
/// The limits of a case. The time is wall time: where other work shares the machine, it is longer.
const SECONDS: u32 = 1;
const SHARED_SECONDS: u32 = 20;
const MEBIBYTES: u32 = 256;
/// The length of a case that damages an executable: a head, and 16 edits of 12 bytes.
const EDITS_LENGTH: usize = 3 + 16 * 12;
/// The Go release whose type descriptors are contiguous, which are read in another way.
const SIDE_BY_SIDE: Go = Go::Release("1.27.3");

/// Go, `GOARCH` and `-buildmode` of the seeds. Cases refer to seeds by their position. There are few position-independent ones,
/// because relocations make them slow.
const SEEDS: [(Go, &str, &str); 8] = [
    (Go::Machine, "amd64", "exe"),
    (Go::Machine, "arm64", "exe"),
    (Go::Machine, "amd64", "exe"),
    (Go::Machine, "arm64", "exe"),
    (SIDE_BY_SIDE, "amd64", "exe"),
    (SIDE_BY_SIDE, "arm64", "exe"),
    (Go::Machine, "amd64", "pie"),
    (Go::Machine, "arm64", "pie"),
];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Cases in total
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    cases: u64,
    /// Instead, how long each target runs, such as 20s, 10m or 1h
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "cases")]
    time: Option<Duration>,
    /// Only these targets
    #[arg(value_name = "TARGET")]
    targets: Vec<Target>,
}

/// A part of the code under test.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    /// ELF headers, build information, the runtime's directory
    Elf,
    /// The function table and machine code
    Functions,
    /// Type descriptors
    Types,
    /// The plan for a scheduler
    Plan,
    /// Records of the ring buffer
    Record,
    /// Recorded streams
    Recording,
    /// Events of an API server
    Apiserver,
    /// Files of spans and metrics
    Otlp,
    /// Trace contexts in annotations
    Context,
    /// Command lines and configurations of schedulers
    Configuration,
    /// Requests to the admission webhook
    Review,
}

/// When a target has run for long enough.
#[derive(Clone, Copy)]
enum Until {
    Cases(u64),
    Time(Duration),
}

impl Target {
    const ALL: [Self; 11] = [
        Self::Elf,
        Self::Functions,
        Self::Types,
        Self::Plan,
        Self::Record,
        Self::Recording,
        Self::Apiserver,
        Self::Otlp,
        Self::Context,
        Self::Configuration,
        Self::Review,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Elf => "elf",
            Self::Functions => "functions",
            Self::Types => "types",
            Self::Plan => "plan",
            Self::Record => "record",
            Self::Recording => "recording",
            Self::Apiserver => "apiserver",
            Self::Otlp => "otlp",
            Self::Context => "context",
            Self::Configuration => "configuration",
            Self::Review => "review",
        }
    }

    /// Its share of the cases: fast targets get more.
    fn share(self) -> u64 {
        match self {
            Self::Elf | Self::Types | Self::Record | Self::Otlp | Self::Context | Self::Review => 4,
            Self::Functions | Self::Plan | Self::Recording | Self::Apiserver | Self::Configuration => 1,
        }
    }

    /// The folder of the program to damage; `None` if the input is not an executable.
    fn program(self) -> Option<&'static str> {
        match self {
            Self::Plan => Some("fuzz/scheduler"),
            Self::Elf | Self::Functions | Self::Types => Some("crates/goexe/tests/fixture"),
            Self::Record
            | Self::Recording
            | Self::Apiserver
            | Self::Otlp
            | Self::Context
            | Self::Configuration
            | Self::Review => None,
        }
    }

    /// The length of a case.
    fn case_length(self) -> usize {
        match self {
            Self::Record | Self::Recording | Self::Context => 600,
            Self::Apiserver | Self::Otlp | Self::Configuration | Self::Review => 2000,
            Self::Elf | Self::Functions | Self::Types | Self::Plan => EDITS_LENGTH,
        }
    }
}

/// Runs one target after the other, each on all processors.
///
/// # Errors
///
/// If the seeds or the targets cannot be built.
pub(crate) fn main(Options { cases, time, targets }: &Options) -> Result<ExitCode> {
    let targets = if targets.is_empty() { &Target::ALL } else { targets.as_slice() };
    let shares: u64 = targets.iter().map(|target| target.share()).sum();
    let until = |target: Target| time.map_or(Until::Cases(cases * target.share() / shares), Until::Time);
    let mut tally = Tally::default();
    each(targets, &mut tally, until, SECONDS)?;
    Ok(tally.end())
}

/// Runs each target for this time, on a machine that may have other work.
///
/// # Errors
///
/// If the seeds or the targets cannot be built.
pub(crate) fn all_for(time: Duration, tally: &mut Tally) -> Result<()> {
    each(&Target::ALL, tally, |_| Until::Time(time), SHARED_SECONDS)
}

fn each(targets: &[Target], tally: &mut Tally, until: impl Fn(Target) -> Until, seconds: u32) -> Result<()> {
    let bin = build()?;
    for target in targets {
        let seeds = target.program().map(seeds).transpose()?.unwrap_or_default();
        tally.run(&format!("fuzz {}", target.name()), || run(*target, until(*target), seconds, &bin, &seeds));
    }
    Ok(())
}

/// Parses a whole number of seconds, minutes or hours.
fn duration(text: &str) -> Result<Duration, String> {
    let unit = |(end, seconds)| Some((text.strip_suffix(end)?.parse::<u32>().ok()?, seconds));
    let found = [('s', 1), ('m', 60), ('h', 3600)].into_iter().find_map(unit);
    let (number, seconds) = found.ok_or("give a whole number with a unit, such as 20s, 10m or 1h")?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

fn folder() -> PathBuf {
    paths::target().join("fuzz")
}

fn workspace() -> PathBuf {
    paths::repository().join("fuzz")
}

/// Builds the targets and returns their folder.
fn build() -> Result<PathBuf> {
    let version = process::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`rustc -vV` prints no host")?;
    let mut cargo = Rustc::installed()?.cargo_with("build", &COVERAGE.map(str::to_owned));
    // An explicit target keeps the counters out of build scripts, which could not link them.
    cargo.args(["--release", "--target", host, "--target-dir"]).arg(folder()).current_dir(workspace());
    process::run("building the fuzz targets", &mut cargo)?;
    Ok(folder().join(host).join("release"))
}

/// Checks that the targets compile without warnings.
///
/// # Errors
///
/// If they do not.
pub(crate) fn clippy() -> Result<()> {
    let mut cargo = Rustc::installed()?.cargo("clippy");
    // Without libFuzzer, which is C++.
    cargo.args(["--no-default-features", "--target-dir"]).arg(folder());
    toolchain::run(cargo.args(["--all-targets", "--", "-Dwarnings"]).current_dir(workspace()))
}

/// Builds a Go program as each of the seeds, and returns their paths in the targets' format.
fn seeds(program: &str) -> Result<String> {
    let source = paths::repository().join(program);
    let name = Path::new(program).file_name().unwrap_or_default();
    let folder = folder().join("seeds").join(name);
    fs::create_dir_all(&folder)?;
    let mut seeds = Vec::new();
    for (go, architecture, mode) in SEEDS {
        let seed = folder.join(format!("{}-{architecture}-{mode}", go.version()?));
        process::output(
            Command::new(go.executable()?)
                .args(["build", "-trimpath", "-ldflags=-s -w", "-buildmode", mode, "-o"])
                .arg(&seed)
                .arg(".")
                .current_dir(&source)
                .envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=mod"), ("GOTOOLCHAIN", "local")])
                .env("GOARCH", architecture)
                .env("GOOS", "linux"),
        )?;
        seeds.push(seed.display().to_string());
    }
    Ok(seeds.join(":"))
}

/// The final statistics of a libFuzzer process.
#[derive(Default)]
struct Figures {
    cases: u64,
    peak_mib: u64,
    slowest_seconds: u64,
}

impl Figures {
    fn of(log: &str) -> Self {
        let figure = |name: &str| {
            let line = log.lines().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name));
            line.and_then(|rest| rest.trim_start_matches(':').trim().parse().ok()).unwrap_or_default()
        };
        Self {
            cases: figure("number_of_executed_units"),
            peak_mib: figure("peak_rss_mb"),
            slowest_seconds: figure("slowest_unit_time_sec"),
        }
    }

    fn add(self, other: &Self) -> Self {
        Self {
            cases: self.cases + other.cases,
            peak_mib: self.peak_mib.max(other.peak_mib),
            slowest_seconds: self.slowest_seconds.max(other.slowest_seconds),
        }
    }
}

/// Runs cases of a target and prints the statistics. Fails if one crashes, takes longer than `seconds`, or uses too much memory.
fn run(target: Target, until: Until, seconds: u32, bin: &Path, seeds: &str) -> Result<()> {
    let name = target.name();
    let (corpus, found, logs) =
        (folder().join("corpus").join(name), folder().join("found"), folder().join("logs"));
    for folder in [&corpus, &found, &logs] {
        fs::create_dir_all(folder)?;
    }
    let processes = thread::available_parallelism().map_or(1, usize::from) as u64;
    let limit = match until {
        Until::Cases(cases) => {
            eprintln!("{name}: {cases} cases in {processes} processes ...");
            format!("-runs={}", cases.div_ceil(processes))
        }
        Until::Time(time) => {
            eprintln!("{name}: {} s in {processes} processes ...", time.as_secs());
            format!("-max_total_time={}", time.as_secs())
        }
    };
    let start = Instant::now();
    let mut running: Vec<(Child, PathBuf)> = Vec::new();
    for process in 0..processes {
        let log = logs.join(format!("{name}-{process}.log"));
        let mut fuzzer = Command::new(bin.join(name));
        fuzzer
            .arg(&limit)
            .arg(format!("-timeout={seconds}"))
            .arg(format!("-rss_limit_mb={MEBIBYTES}"))
            .arg(format!("-max_len={}", target.case_length()))
            .arg(format!("-artifact_prefix={}/{name}-", found.display()))
            .arg("-print_final_stats=1")
            .arg(&corpus)
            // Stored cases run first. Each target has some: without their folder it does not start.
            .arg(workspace().join("regressions").join(name))
            .env(SEEDS_VARIABLE, seeds)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?);
        running.push((fuzzer.spawn().with_context(|| format!("cannot start {name}"))?, log));
    }
    let (mut figures, mut failed) = (Figures::default(), Vec::new());
    for (mut child, log) in running {
        let status = child.wait()?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        figures = figures.add(&Figures::of(&text));
        if !status.success() {
            failed.push(reason(&text, &log));
        }
    }
    let Figures { cases, peak_mib, slowest_seconds } = figures;
    let speed = cases as f64 / start.elapsed().as_secs_f64();
    println!(
        "{name}: {cases} cases, {speed:.0} a second, {peak_mib} MiB at most, the slowest case {}",
        if slowest_seconds == 0 { "below 1 s".to_owned() } else { format!("{slowest_seconds} s") }
    );
    if !failed.is_empty() {
        bail!("{}", failed.join("; "));
    }
    ensure!(cases > 0, "no case ran: {} says why", logs.join(format!("{name}-0.log")).display());
    Ok(())
}

/// The reason why a libFuzzer process ended, and the file of the case.
fn reason(log: &str, path: &Path) -> String {
    let line = |part: &str| log.lines().position(|line| line.contains(part));
    let panic = line("panicked at").and_then(|at| log.lines().nth(at + 1));
    let summary = log.lines().find_map(|line| line.strip_prefix("SUMMARY: "));
    let case = log.lines().find_map(|line| line.split("Test unit written to ").nth(1));
    format!(
        "{}: {} ({})",
        panic.or(summary).unwrap_or("it ended early"),
        case.unwrap_or("no case was written"),
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stored_case_is_of_a_target_and_each_target_has_one() {
        let stored = fs::read_dir(workspace().join("regressions")).unwrap();
        let mut stored: Vec<_> = stored.map(|folder| folder.unwrap().path()).collect();
        assert!(stored.iter().all(|folder| fs::read_dir(folder).unwrap().next().is_some()));
        stored.sort();
        let mut targets = Target::ALL.map(|target| workspace().join("regressions").join(target.name()));
        targets.sort();
        assert_eq!(stored, targets);
    }

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(duration("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        assert!(duration("20").is_err() && duration("s").is_err() && duration("1.5h").is_err());
    }

    #[test]
    fn the_figures_of_a_run_are_read_from_its_log() {
        let log = "#8\tDONE\nstat::number_of_executed_units: 20756\nstat::average_exec_per_sec:     798\n\
                   stat::slowest_unit_time_sec:    0\nstat::peak_rss_mb:              39\n";
        let Figures { cases, peak_mib, slowest_seconds } = Figures::of(log).add(&Figures::default());
        assert_eq!((cases, peak_mib, slowest_seconds), (20_756, 39, 0));
    }

    #[test]
    fn a_crash_is_reported_with_its_panic_and_its_case() {
        let log = "thread '<unnamed>' panicked at src/abi.rs:1:2:\nattempt to add with overflow\n\
                   SUMMARY: libFuzzer: deadly signal\nTest unit written to found/types-crash-1\n";
        assert_eq!(
            reason(log, Path::new("types-0.log")),
            "attempt to add with overflow: found/types-crash-1 (types-0.log)"
        );
    }

    #[test]
    fn a_hang_is_reported_with_its_summary() {
        let log = "SUMMARY: libFuzzer: timeout\n";
        assert!(reason(log, Path::new("elf-0.log")).starts_with("libFuzzer: timeout: no case"));
    }
}
