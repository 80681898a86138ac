//! `schedspan inspect` on schedulers and on other programs.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::stage::Stage;
use serde_json::Value;
use xtask::{components::ETCD, process};

/// Far above the usual time: this is not a benchmark.
const TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let scheduler = stage.cluster.scheduler()?;
    let executable = scheduler.executable.display().to_string();
    let inspect = |what: &str, output: &str| {
        let mut command = Command::new(&stage.executable);
        command.args(["inspect", "--output", output, what]);
        command
    };
    for what in [&scheduler.pid.to_string(), &executable] {
        let start = Instant::now();
        let text = process::output(&mut inspect(what, "json"))?;
        let took = start.elapsed();
        println!("         inspect {what}: {} ms", took.as_millis());
        ensure!(took < TIMEOUT, "it took longer than {} s", TIMEOUT.as_secs());
        let plan: Value = serde_json::from_str(&text).context("not JSON")?;
        ensure!(plan["complete"] == true && plan["missing"] == Value::Array(vec![]), "not complete: {text}");
        ensure!(plan["sites"].as_array().is_some_and(|sites| sites.len() > 30), "hardly any site: {text}");
        ensure!(process::output(&mut inspect(what, "text"))?.contains("Everything can be traced."));
    }

    let whole = fs::read(&scheduler.executable)?;
    let cut = stage.cluster.dir().join("cut");
    fs::write(&cut, &whole[..whole.len() / 2])?;
    let none = [
        ("a program that is not Go's", "/bin/ls".to_owned(), "not a Go executable"),
        ("half a scheduler", cut.display().to_string(), "not a readable ELF file"),
        ("another Go program", ETCD.executable()?.display().to_string(), "not kube-scheduler"),
        // Above every pid of the kernel.
        ("no process", "4194305".to_owned(), "4194305"),
        ("no file", "/nonexistent".to_owned(), "/nonexistent"),
    ];
    for (kind, what, says) in none {
        let output = inspect(&what, "text").output()?;
        let (code, stdout) = (output.status.code(), String::from_utf8_lossy(&output.stdout));
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(code == Some(2) && stdout.is_empty(), "{kind}: ended with {code:?} and printed {stdout:?}");
        ensure!(stderr.lines().count() == 1, "{kind}: not one line: {stderr}");
        ensure!(stderr.contains(says) && !stderr.contains("panicked"), "{kind}: {stderr:?} has no {says:?}");
    }
    Ok(())
}
