//! A canary in places of a scheduler's configuration that may hold a secret, and in a file that a process names and may not read itself: it
//! leaves by no way. A file that never answers is given up. And strings that a terminal would obey.

use std::{
    fs::{self, File, Permissions},
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    process::{Command, Stdio},
    thread,
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
use rustix::fs::{XattrFlags, setxattr};
use serde_json::{Value, json};

use super::{
    fakes::{Does, Model, UNPRIVILEGED},
    fuse::Fuse,
};
use crate::checks;

const CANARY: &str = "can4ry";
const TIMEOUT: Duration = Duration::from_secs(30);
const ROOT: &str = "0";
/// In parts of an access control list that are about no user.
const NO_ID: u32 = u32::MAX;
/// Changes a terminal's title, clears it, and does so by the second set of control characters.
const ESCAPES: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{202e}";

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    settings(stage).context("settings")?;
    files(stage).context("files")?;
    silent(stage).context("a file system that never answers")?;
    escapes(stage).context("escapes")?;
    binary(stage).context("what is not text")?;
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

/// A file is read for a scheduler that may read it itself, by its permissions and its access control list, and for no other.
fn files(stage: &Stage) -> Result<()> {
    let model = Model::of(&stage.cluster.scheduler()?.executable, &stage.executable)?;
    let user = UNPRIVILEGED.parse()?;
    // Owner, this user, the owner's group, the mask, others.
    let list = |own, others| {
        [(0x01, 6, NO_ID), (0x02, own, user), (0x04, 4, NO_ID), (0x10, 4, NO_ID), (0x20, others, NO_ID)]
    };
    let cases = [
        ("of-root", UNPRIVILEGED, 0o600, None, false),
        ("of-root-for-root", ROOT, 0o600, None, true),
        ("of-all", UNPRIVILEGED, 0o644, None, true),
        ("of-all-but-one", UNPRIVILEGED, 0o644, Some(list(0, 4)), false),
        ("of-one", UNPRIVILEGED, 0o640, Some(list(4, 0)), true),
    ];
    let mut fakes = Vec::new();
    for (name, user, mode, list, may) in cases {
        let file = model.dir().join(format!("{name}.yaml"));
        // Not YAML: an error must not quote it.
        fs::write(&file, format!("{CANARY}: [{CANARY}"))?;
        fs::set_permissions(&file, Permissions::from_mode(mode))?;
        if let Some(list) = list {
            setxattr(&file, "system.posix_acl_access", &written(&list), XattrFlags::empty())?;
        }
        let mut cat = Command::new("setpriv");
        cat.args(["--reuid", user, "--clear-groups", "cat"]).arg(&file);
        ensure!(cat.output()?.status.success() == may, "{name}: the kernel decides otherwise");
        let argument = format!("--config={}", file.display());
        fakes.push((model.start_with(name, Does::Waits, user, &[&argument])?, may));
    }
    let schedspan = stage.trace()?;
    for (fake, may) in &fakes {
        let reason = if *may { "is not YAML" } else { "may not read it" };
        let pid = format!("pid={}", fake.pid());
        wait_until(&format!("the log to say `{reason}` of {}", fake.executable.display()), TIMEOUT, || {
            let log = schedspan.log()?;
            let is =
                |line: &str| line.contains("configuration") && line.contains(&pid) && line.contains(reason);
            Ok(log.lines().any(is).then_some(()))
        })?;
    }
    hidden(stage, &schedspan)?;
    println!("         {} files are read as the kernel lets each process, and not quoted", fakes.len());
    schedspan.stop()
}

/// A part of an access control list: whose, what it allows, and the user.
type Entry = (u16, u16, u32);

/// <https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/posix_acl_xattr.h>
fn written(list: &[Entry]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (whose, allows, id) in list {
        bytes.extend([whose.to_le_bytes(), allows.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
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
    let hostile = escaping()?;
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
        &["trace", "--server", &server],
        &["queue", "--server", &server],
        &["ui", "--server", &server],
        &["traced", "--kubectl", ESCAPES, "--", "get", ESCAPES],
        &["trace", "--server", &hostile],
        &["trace", "--server", &hostile, "--output", "json"],
        &["trace", "--server", &hostile, "--output", "mermaid"],
        &["explain", "--server", &hostile, "pod"],
        &["queue", "--server", &hostile],
        &["top", "--server", &hostile],
    ] {
        let output = Command::new(&stage.executable).args(arguments).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(!said.is_empty() && !output.status.success(), "{arguments:?} says nothing");
        let obeyed = said.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
        ensure!(obeyed.is_none(), "{arguments:?} prints {obeyed:?}: {said:?}");
    }
    Ok(())
}

/// A server that answers each request with what a terminal would obey, as a refusal of one question and as events of another.
fn escaping() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that has gone is none.
            let _ = escape(stream);
        }
    });
    Ok(format!("http://{address}"))
}

fn escape(mut stream: TcpStream) -> Result<()> {
    let mut request = [0; 4096];
    let length = stream.read(&mut request)?;
    let (status, body) = if request[..length].starts_with(b"GET /api/v1/traces") {
        (
            "200 OK",
            format!(
                "event: lost\ndata: {ESCAPES}\n\nevent: {ESCAPES}\ndata: {ESCAPES}\n\ndata: {ESCAPES}\n\n"
            ),
        )
    } else {
        ("503 Service Unavailable", format!("{ESCAPES}\n"))
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    Ok(stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?)
}

/// What is not text never goes to a terminal.
fn binary(stage: &Stage) -> Result<()> {
    let program = stage.executable.display();
    let refused = [
        ("record -", "terminal"),
        ("replay --output perfetto tests/streams/1.36.jsonl", "redirect standard output"),
    ];
    for (arguments, why) in refused {
        // It has a terminal of its own.
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &format!("{program} {arguments}"), "/dev/null"]);
        let output = script.current_dir(xtask::paths::repository()).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(!output.status.success() && said.contains(why) && said.len() < 1000, "{arguments}: {said}");
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
