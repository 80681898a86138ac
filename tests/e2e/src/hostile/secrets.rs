//! A canary in places of a scheduler's configuration that may hold a secret, and in a file that a process names and may not read itself: it
//! leaves by no way. A file that never answers is given up. And strings that a terminal would obey.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, pod},
    http::agent,
    schedspan::Schedspan,
    spans::{self, CONFIGURATION},
    stage::Stage,
    wait::wait_until,
};
use serde_json::{Value, json};

use super::{
    fakes::{Does, Model, UNPRIVILEGED},
    fuse::Fuse,
};
use crate::checks;

const CANARY: &str = "can4ry";
const TIMEOUT: Duration = Duration::from_secs(30);
/// Changes a terminal's title, clears it, and does so by the second set of control characters.
const ESCAPES: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{202e}";

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    settings(stage).context("settings")?;
    files(stage).context("files")?;
    silent(stage).context("a file system that never answers")?;
    escapes(stage).context("escapes")?;
    full(stage).context("a full device")
}

/// What a real scheduler takes besides its own settings appears nowhere.
fn settings(stage: &mut Stage) -> Result<()> {
    let schedspan = stage.trace()?;
    scheduled(stage, "before")?;
    let change = |configuration: &mut Value| {
        configuration["parallelism"] = 8.into();
        configuration["extenders"] = json!([{
            "urlPrefix": format!("http://{CANARY}:{CANARY}@127.0.0.1:1/path?token={CANARY}#{CANARY}"),
            "filterVerb": format!("filter?token={CANARY}"),
            "weight": 1,
            "ignorable": true,
        }]);
    };
    stage.cluster.configure_scheduler(change)?;
    checks::is_traced(stage, &schedspan)?;
    scheduled(stage, "after")?;
    let told = wait_until("the span of the configuration", TIMEOUT, || {
        Ok(spans::read(&stage.cluster.spans_file(), 0)?.into_iter().find(|span| span.name == CONFIGURATION))
    })?;
    let difference = told.list("k8s.scheduler.config.difference");
    let has = |line: &str| difference.iter().any(|found| found == line);
    ensure!(
        has("+parallelism=8")
            && has("+extenders[0].urlPrefix=http://(not shown)@127.0.0.1:1/path?(not shown)"),
        "the difference is {difference:?}"
    );
    hidden(stage, &schedspan)?;
    schedspan.stop()?;
    println!("         {} settings reported, none with the canary", difference.len());
    Ok(())
}

/// A file that only root can read is read for a scheduler that is root, and for no other.
fn files(stage: &Stage) -> Result<()> {
    let model = Model::of(&stage.cluster.scheduler()?.executable, &stage.executable)?;
    let file = std::env::temp_dir().join(format!("schedspan-secret-{}.yaml", std::process::id()));
    // Not YAML: an error must not quote it.
    fs::write(&file, format!("{CANARY}: [{CANARY}"))?;
    fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    let argument = format!("--config={}", file.display());
    let fakes = [UNPRIVILEGED, "0"]
        .map(|user| model.start_with(&format!("config-{user}"), Does::Waits, user, &[&argument]));
    let schedspan = stage.trace()?;
    let checked = fakes.into_iter().zip(["may not read it", "is not YAML"]).try_for_each(|(fake, reason)| {
        let fake = fake?;
        let pid = format!("pid={}", fake.pid());
        wait_until(&format!("the log to say `{reason}` of {pid}"), TIMEOUT, || {
            let log = schedspan.log()?;
            let is =
                |line: &str| line.contains("configuration") && line.contains(&pid) && line.contains(reason);
            Ok(log.lines().any(is).then_some(()))
        })
    });
    fs::remove_file(&file)?;
    checked?;
    hidden(stage, &schedspan)?;
    println!("         a file of root is read for root only, and not quoted");
    schedspan.stop()
}

/// A configuration that never answers is given up, and the scheduler is traced meanwhile.
fn silent(stage: &Stage) -> Result<()> {
    let model = Model::of(&stage.cluster.scheduler()?.executable, &stage.executable)?;
    let fuse = Fuse::mount(model.dir(), b"kind: KubeSchedulerConfiguration".to_vec())?;
    fuse.fall_silent();
    let argument = format!("--config={}", fuse.file().display());
    let fake = model.start_with("config-silent", Does::Waits, "0", &[&argument])?;
    let schedspan = stage.trace()?;
    // The fake may be the first that is traced.
    checks::is_traced(stage, &schedspan)?;
    scheduled(stage, "silent")?;
    let pid = format!("pid={}", fake.pid());
    wait_until("the file to be given up", TIMEOUT, || {
        let log = schedspan.log()?;
        let is = |line: &str| line.contains("its file does not answer") && line.contains(&pid);
        Ok(log.lines().any(is).then_some(()))
    })?;
    ensure!(schedspan.says("healthz")?.contains("ok"), "schedspan says that it is not healthy");
    schedspan.stop()
}

/// Escapes in a recording, in an executable's path and in a server's answer do not reach a terminal.
fn escapes(stage: &Stage) -> Result<()> {
    let recording = stage.cluster.dir().join("escapes.jsonl");
    let header = json!({ "header": { "version": ESCAPES, "field": ESCAPES } });
    fs::write(&recording, format!("{header}\n{ESCAPES}\n"))?;
    let recording = recording.display().to_string();
    let server = format!("http://{ESCAPES}");
    for arguments in [
        &["replay", recording.as_str()][..],
        &["inspect", ESCAPES],
        &["inspect", recording.as_str()],
        &["explain", ESCAPES],
        &["queue", ESCAPES],
        &["explain", "--server", &server, "pod"],
        &["top", "--server", &server],
        &["compare", recording.as_str(), ESCAPES],
        &["lifecycle", ESCAPES, recording.as_str()],
    ] {
        let output = Command::new(&stage.executable).args(arguments).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(!said.is_empty() && !output.status.success(), "{arguments:?} says nothing");
        let obeyed = said.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        ensure!(obeyed.is_none(), "{arguments:?} prints {obeyed:?}: {said:?}");
    }
    Ok(())
}

/// A replay onto a full device fails.
fn full(stage: &Stage) -> Result<()> {
    let recording = xtask::paths::repository().join("tests/streams/1.36.jsonl");
    for format in ["json", "terminal"] {
        let mut replay = Command::new(&stage.executable);
        replay.arg("replay").arg(&recording).args(["--output", format]);
        let output = replay.stdout(File::options().write(true).open("/dev/full")?).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(2) && said.contains("output_failed"),
            "{}: {said}",
            output.status
        );
    }
    Ok(())
}

/// Neither spans nor log nor any server has the canary.
fn hidden(stage: &Stage, schedspan: &Schedspan) -> Result<()> {
    let agent = agent(std::path::Path::new(""))?;
    let get = |server: &str, path: &str| -> Result<String> {
        let url = format!("http://{}/{path}", schedspan.address(server));
        Ok(agent.get(&url).call()?.body_mut().read_to_string()?)
    };
    let places = [
        ("the spans", String::from_utf8_lossy(&fs::read(stage.cluster.spans_file())?).into_owned()),
        ("the log", schedspan.log()?),
        ("/metrics", get("metrics", "metrics")?),
        ("/readyz", get("health", "readyz")?),
        ("/api/v1/top", get("debug", "api/v1/top")?),
        ("/api/v1/attempts", get("debug", "api/v1/attempts?namespace=default&pod=after")?),
    ];
    for (place, text) in places {
        ensure!(!text.contains(CANARY), "the canary is in {place}");
    }
    Ok(())
}

/// Schedules a Pod, and waits for its attempt.
fn scheduled(stage: &Stage, name: &str) -> Result<()> {
    let api = stage.cluster.api()?;
    api.create_pod("default", &pod(name, "10m"))?;
    api.wait_for_pods("the Pod to be bound", |pods| pods.iter().all(is_bound))?;
    wait_until(&format!("the attempt of {name}"), TIMEOUT, || {
        let spans = spans::read(&stage.cluster.spans_file(), 0)?;
        Ok(spans.iter().any(|span| span.is_root() && span.pod() == name).then_some(()))
    })
}
