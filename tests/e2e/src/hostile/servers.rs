//! Clients that hold the daemon's servers, and an API server that falls silent.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{is_bound, pod},
    http::agent,
    schedspan::{Options, Schedspan},
    stage::Stage,
    wait::wait_until,
};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use crate::checks;

/// So many connections with large headers took all memory.
const LARGE: usize = 600;
/// A header that never ends.
const HEADER: usize = 1 << 20;
/// So many half-open requests took all descriptors, if the daemon had this many.
const HALF_OPEN: usize = 400;
const DESCRIPTORS: u64 = 300;
/// The container's limit is twice as much.
const MEMORY: f64 = 128e6;
const PROBES: usize = 20;
/// More Pods than the Node has room for.
const MANY: usize = 300;
/// Connections to each path, and requests over each.
const UNREAD: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(30);
/// An API server that does not answer is noticed within this time.
const SILENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    let mut schedspan = stage.trace()?;
    let all = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    prlimit(Some(pid(schedspan.pid())?), Resource::Nofile, all)?;
    super::many_descriptors()?;
    held(stage, &mut schedspan).context("connections")?;
    unread(stage, &mut schedspan).context("answers that are not read")?;
    names(&schedspan).context("names")?;
    taken(stage, &schedspan).context("a port that is taken")?;
    silent(stage, &mut schedspan).context("a silent API server")?;
    checks::nothing_lost(&schedspan.metrics()?)?;
    schedspan.stop()
}

/// Connections with large and with half headers on all servers: they answer, a new scheduler is found, and memory stays small.
fn held(stage: &mut Stage, schedspan: &mut Schedspan) -> Result<()> {
    let mut held = Vec::new();
    for server in ["metrics", "health", "debug"] {
        let address = schedspan.address(server);
        for number in 0..LARGE + HALF_OPEN {
            // One that is refused is closed at once.
            let Ok(mut stream) = TcpStream::connect(&address) else { continue };
            stream.set_write_timeout(Some(Duration::from_millis(1)))?;
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
            if number < LARGE {
                let _ = stream.write_all(&vec![b'x'; HEADER]);
            }
            held.push(stream);
        }
        answers(schedspan, server)?;
    }
    stage.cluster.restart_scheduler()?;
    checks::is_traced(stage, schedspan)?;
    let api = stage.cluster.api()?;
    api.create_pod("default", &pod("one", "10m"))?;
    api.wait_for_pods("the Pod to be bound", |pods| pods.iter().all(is_bound))?;
    schedspan.wait_for("its attempt", TIMEOUT, |metrics| {
        metrics.sum("schedspan_attempts_total", &[("result", "Success")]) == 1.0
    })?;
    let metrics = schedspan.metrics()?;
    let refused = metrics.sum("schedspan_connections_refused_total", &[]);
    ensure!(refused > 0.0, "no connection was refused: were there enough?");
    let memory = metrics.sum("process_resident_memory_bytes", &[]);
    ensure!(memory < MEMORY, "{memory} bytes of memory");
    println!(
        "         {} connections with headers that never end: {refused} refused, {} MB of memory",
        held.len(),
        (memory / 1e6).round()
    );
    Ok(())
}

/// Clients of `/api/v1` and of the page that ask for all there is, again and again, and read nothing: attempts are traced, other servers
/// answer, and memory stays small.
fn unread(stage: &Stage, schedspan: &mut Schedspan) -> Result<()> {
    let api = stage.cluster.api()?;
    for number in 0..MANY {
        api.create_pod("default", &pod(&format!("many-{number}"), "100m"))?;
    }
    // Those that the Node has no room for wait, with a reason each.
    schedspan.wait_for("attempts to be remembered", TIMEOUT, |metrics| {
        metrics.sum("schedspan_attempts_total", &[]) > MANY as f64
    })?;
    let address = schedspan.address("debug");
    let mut held = Vec::new();
    for path in [
        "api/v1/recent",
        "api/v1/queue",
        "api/v1/traces",
        "api/v1/changes",
        "attempts",
        "api/v1/openapi.json",
    ] {
        for _ in 0..UNREAD {
            let Ok(mut stream) = TcpStream::connect(&address) else { continue };
            stream.set_write_timeout(Some(Duration::from_millis(1)))?;
            for _ in 0..UNREAD {
                let _ =
                    stream.write_all(format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
            }
            held.push(stream);
        }
        answers(schedspan, "debug")?;
    }
    api.create_pod("default", &pod("unread", "10m"))?;
    let attempts = schedspan.metrics()?.sum("schedspan_attempts_total", &[]);
    schedspan.wait_for("further attempts", TIMEOUT, |metrics| {
        metrics.sum("schedspan_attempts_total", &[]) > attempts
    })?;
    let memory = schedspan.metrics()?.sum("process_resident_memory_bytes", &[]);
    ensure!(memory < MEMORY, "{memory} bytes of memory");
    println!(
        "         {} connections read none of their answers: {} MB of memory",
        held.len(),
        (memory / 1e6).round()
    );
    drop(held);
    // The page is there again.
    wait_until("the page", TIMEOUT, || {
        let answer = agent(Path::new(""))?.get(format!("http://{address}/attempts")).call();
        Ok(answer.is_ok_and(|answer| answer.status() == 200).then_some(()))
    })
}

/// Checks that kubelet and Prometheus get each answer while a peer holds connections to one server.
fn answers(schedspan: &Schedspan, held: &str) -> Result<()> {
    let agent = agent(Path::new(""))?;
    for _ in 0..PROBES {
        for (server, path) in [("health", "healthz"), ("health", "readyz"), ("metrics", "metrics")] {
            let url = format!("http://{}/{path}", schedspan.address(server));
            let answer = agent.get(&url).header("Connection", "close").call();
            let status = answer.with_context(|| format!("{path} while {held} is held"))?.status();
            ensure!(status == 200, "{path} says {status} while {held} is held");
        }
    }
    Ok(())
}

/// A web page whose name has got a local address does not see what Pods there are.
fn names(schedspan: &Schedspan) -> Result<()> {
    for (host, expected) in [("localhost:9091", "200"), ("127.0.0.1", "200"), ("page.example:9091", "421")] {
        let mut stream = TcpStream::connect(schedspan.address("debug"))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        write!(stream, "GET /api/v1/top HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        ensure!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{host}: {answer}");
    }
    Ok(())
}

/// A second daemon whose address for `explain` is taken traces all the same, and says what does not work.
fn taken(stage: &Stage, schedspan: &Schedspan) -> Result<()> {
    let address = schedspan.address("debug");
    let arguments = ["--debug-listen", address.as_str()];
    let log = stage.cluster.dir().join("second.log");
    let second = Schedspan::start(&Options { arguments: &arguments, log, ..stage.options()? })?;
    let said = second.log()?;
    let lines = said.lines().filter(|line| line.contains("WARN") && line.contains(&address)).count();
    ensure!(lines == 1, "not one line names the address: {said}");
    second.stop()
}

/// An API server that neither answers nor closes its connections is shown as such, and as answering when it does.
fn silent(stage: &Stage, schedspan: &mut Schedspan) -> Result<()> {
    let up = |expected: f64| {
        move |metrics: &harness::metrics::Metrics| metrics.sum("schedspan_context_watch_up", &[]) == expected
    };
    schedspan.wait_for("the watch of Pods", TIMEOUT, up(1.0))?;
    let apiserver = stage.cluster.processes().iter().find(|process| process.name.contains("apiserver"));
    let paused = Paused::new(Pid::from_raw(apiserver.context("no API server")?.pid).context("no pid")?)?;
    schedspan.wait_for("the silence to be noticed", SILENCE, up(0.0))?;
    drop(paused);
    schedspan.wait_for("the API server to be heard again", SILENCE, up(1.0))?;
    println!("         a silent API server is noticed");
    let api = stage.cluster.api()?;
    wait_until("the API server to go on", SILENCE, || Ok(api.pods("default").ok().map(drop)))
}

/// A stopped process, which goes on when this is dropped.
struct Paused(Pid);

impl Paused {
    fn new(pid: Pid) -> Result<Self> {
        kill_process(pid, Signal::STOP)?;
        Ok(Self(pid))
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT); // It may have ended.
    }
}

fn pid(pid: u32) -> Result<Pid> {
    Pid::from_raw(pid.cast_signed()).context("no pid")
}
