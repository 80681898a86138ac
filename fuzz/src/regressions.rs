//! Replays the stored cases, without libFuzzer.

use std::{env, fs, path::Path, process::Command};

use crate::{
    apiserver, configuration, context,
    executable::{self, Seed, questions},
    otlp, record, recording, review,
};

/// What a target does with the bytes of a case.
type Target = fn(&[u8]);

/// `GOARCH` and `-buildmode` of the seeds, in the order of `cargo xtask fuzz`. All are built by one Go.
const SEEDS: [(&str, &str); 8] = [
    ("amd64", "exe"),
    ("arm64", "exe"),
    ("amd64", "exe"),
    ("arm64", "exe"),
    ("amd64", "exe"),
    ("arm64", "exe"),
    ("amd64", "pie"),
    ("arm64", "pie"),
];
const PARSERS: [(&str, Target); 7] = [
    ("record", record::run),
    ("recording", recording::run),
    ("apiserver", apiserver::run),
    ("otlp", otlp::run),
    ("context", context::run),
    ("configuration", configuration::run),
    ("review", review::run),
];
/// Targets that damage executables, and the program that they damage.
const EXECUTABLES: [(&str, &str, Target); 4] = [
    ("elf", FIXTURE, questions::elf),
    ("functions", FIXTURE, questions::functions),
    ("types", FIXTURE, questions::types),
    ("plan", "scheduler", questions::plan),
];
const FIXTURE: &str = "../crates/goexe/tests/fixture";

/// Runs the stored cases of a target.
fn replay(target: &str, mut run: impl FnMut(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions").join(target);
    let cases = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut ran = 0;
    for case in cases {
        let case = case.expect("the folder can be read").path();
        eprintln!("{}", case.display());
        run(&fs::read(case).expect("it can be read"));
        ran += 1;
    }
    assert!(ran > 0, "no cases in {}", folder.display());
    eprintln!("{target}: {ran} cases");
}

/// Builds a program for each of the seeds. `None` if there is no Go.
fn seeds(program: &str) -> Option<Vec<Seed>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = env::temp_dir().join(format!("schedspan-fuzz-{}", std::process::id()));
    let mut seeds = Vec::new();
    for (architecture, mode) in SEEDS {
        let path = folder.join(architecture).join(mode);
        let status = Command::new("go")
            .args(["build", "-trimpath", "-ldflags=-s -w", "-buildmode", mode, "-o"])
            .arg(&path)
            .arg(".")
            .current_dir(root.join(program))
            .envs([
                ("CGO_ENABLED", "0"),
                ("GOFLAGS", "-mod=mod"),
                ("GOARCH", architecture),
                ("GOOS", "linux"),
            ])
            .status();
        match status {
            Ok(status) => assert!(status.success(), "{program} does not build: {status}"),
            Err(error) => {
                eprintln!("skipped: the cases of executables need Go, and `go` does not start: {error}");
                return None;
            }
        }
        seeds.push(Seed::new(fs::read(&path).expect("it was just built")));
    }
    fs::remove_dir_all(&folder).expect("it was just made");
    Some(seeds)
}

// One test: memory is limited for the process.
#[test]
fn stored_cases_pass() {
    let mut of_executables: Vec<(&str, Vec<Seed>)> = Vec::new();
    for program in [FIXTURE, "scheduler"] {
        let Some(seeds) = seeds(program) else { break };
        of_executables.push((program, seeds));
    }
    crate::start();
    for (target, run) in PARSERS {
        replay(target, run);
    }
    for (program, seeds) in &mut of_executables {
        for (target, _, ask) in EXECUTABLES.iter().filter(|(_, of, _)| of == program) {
            replay(target, |case| executable::run_on(seeds, case, *ask));
        }
    }
}

#[test]
fn every_stored_case_is_of_a_target() {
    let targets: Vec<_> =
        PARSERS.iter().map(|(name, _)| *name).chain(EXECUTABLES.iter().map(|(name, ..)| *name)).collect();
    for folder in
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions")).expect("it is there")
    {
        let name = folder.expect("it can be read").file_name();
        assert!(targets.iter().any(|target| name == **target), "{}", name.display());
    }
}
