//! Clients that hold the webhook's connections, and certificates that it does not make itself.

use std::{
    collections::VecDeque,
    fs,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, ToSocketAddrs as _},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, pod},
    http::agent,
    stage::Stage,
    wait::wait_until,
    webhook::{Webhook, bundle, register},
};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use xtask::process;

use crate::{
    checks::text,
    export::certificates::{Files, LATER, Server},
};

/// More than the webhook takes.
const IDLE: usize = 600;
/// New ones of them in each pause.
const MORE: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// Idle after their handshake.
const IDLE_TLS: usize = 150;
const PODS: usize = 100;
/// Another one than the API server's, as in a cluster.
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const TIMEOUT: Duration = Duration::from_secs(20);
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const ANNOTATION: &str = "/metadata/annotations/tracing.k8s.io~1traceparent";

pub(crate) fn run(stage: &mut Stage) -> Result<()> {
    super::many_descriptors()?;
    let api = stage.cluster.api()?;
    let mut webhook = Webhook::start(stage, "webhook", &[])?;
    register(&api, &webhook, &[])?;
    webhook.wait()?;
    let traced = api.with("traceparent", PARENT);
    wait_until("the API server to call the webhook", TIMEOUT, || {
        let created = traced.post("/api/v1/namespaces/default/pods?dryRun=All", &pod("trial", "1"))?;
        Ok((!text(&created, ANNOTATION).is_empty()).then_some(()))
    })?;
    held(stage, &api, &traced, &webhook).context("connections")?;
    webhook.stop()?;
    own_certificate(stage).context("a certificate of its own")
}

/// While others hold its connections, no Pod misses its context: the API server waits for one second.
fn held(stage: &Stage, api: &Api, traced: &Api, webhook: &Webhook) -> Result<()> {
    let trusted = stage.cluster.dir().join("bundle.pem");
    fs::write(&trusted, bundle(api)?)?;
    let (over, opened) = (AtomicBool::new(false), AtomicUsize::new(0));
    let attacked = thread::scope(|scope| {
        scope.spawn(|| hold(webhook, &over, &opened));
        let attacked = (|| {
            wait_until("connections to be held", TIMEOUT, || {
                Ok((opened.load(Ordering::Relaxed) > IDLE).then_some(()))
            })?;
            let mut idle = Vec::new();
            for _ in 0..IDLE_TLS {
                let agent = agent(&trusted)?;
                // The connection of an answer stays open in its agent. Some are refused.
                let _ = agent.get(webhook.url()).call();
                idle.push(agent);
            }
            let mut took = Vec::new();
            for number in 0..PODS {
                let start = Instant::now();
                let created = traced.create_pod("default", &pod(&format!("held-{number}"), "10m"))?;
                took.push(start.elapsed());
                ensure!(!text(&created, ANNOTATION).is_empty(), "Pod {number} was created without a context");
            }
            took.sort_unstable();
            anyhow::Ok(took)
        })();
        over.store(true, Ordering::Relaxed);
        attacked
    });
    let took = attacked?;
    let refused = webhook.metrics()?.sum("schedspan_webhook_connections_refused_total", &[]);
    ensure!(refused > 0.0, "no connection was refused: were there enough?");
    println!(
        "         {PODS} Pods with a context while {} connections were held; {refused} were refused; a creation with its review took {:.1?}, \
         p99 {:.1?}",
        opened.load(Ordering::Relaxed),
        took[PODS / 2],
        took[PODS * 99 / 100]
    );
    Ok(())
}

/// Holds connections that never finish their handshake, and opens others for those that were closed.
fn hold(webhook: &Webhook, over: &AtomicBool, opened: &AtomicUsize) {
    let url = webhook.url();
    let address = url.trim_start_matches("https://").trim_end_matches("/inject");
    let Some(address) = address.to_socket_addrs().ok().and_then(|mut all| all.next()) else { return };
    let mut held = VecDeque::new();
    while !over.load(Ordering::Relaxed) {
        for number in 0..MORE {
            let Ok(mut stream) = attacker(address) else { continue };
            // The beginning of a handshake.
            if number % 2 == 0 {
                let _ = stream.write_all(&[0x16, 3, 1, 2]);
            }
            held.push_back(stream);
            opened.fetch_add(1, Ordering::Relaxed);
        }
        held.drain(..held.len().saturating_sub(IDLE));
        thread::sleep(PAUSE);
    }
}

/// A connection from the attacker's address.
fn attacker(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddrV4::new(ATTACKER, 0))?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

/// With a certificate from a file it asks the API server nothing, and with authorities of clients it answers only theirs.
fn own_certificate(stage: &Stage) -> Result<()> {
    let dir = stage.cluster.dir().join("certificates");
    fs::create_dir_all(&dir)?;
    let files = Files::in_dir(&dir);
    files.renew(Server { name: "127.0.0.1", ends: LATER })?;
    let path = |path: &Path| path.display().to_string();
    let Files { authority, server, server_key, client, client_key } = &files;
    let arguments = [
        "--certificate",
        &path(server),
        "--certificate-key",
        &path(server_key),
        "--client-ca",
        &path(authority),
    ];
    let mut webhook = Webhook::start(stage, "own-certificate", &arguments)?;
    webhook.wait()?;
    let ask = |more: &[&str]| -> Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--noproxy", "*", "--max-time", "10", "--write-out", "%{http_code}"]);
        curl.args(["--output", "/dev/null", "--cacert", &path(authority)]).args(more).arg(webhook.url());
        Ok(String::from_utf8_lossy(&curl.output()?.stdout).into_owned())
    };
    let with = ask(&["--cert", &path(client), "--key", &path(client_key)])?;
    // A review is a POST.
    ensure!(with == "405", "a client of the authority gets {with}");
    let without = ask(&[])?;
    ensure!(without == "000", "a client without a certificate gets {without}");
    let metrics = webhook.metrics()?;
    let writes = metrics.sum("schedspan_webhook_configuration_writes_total", &[]);
    ensure!(writes == 0.0, "it wrote to its configuration");
    let expiry = metrics.sum("schedspan_webhook_certificate_expiry_seconds", &[]);
    ensure!(expiry == end(server)?, "{expiry} is not the end of its certificate");
    // The certificate is renewed in place, by another authority.
    files.renew(Server { name: "127.0.0.1", ends: LATER + 1 })?;
    wait_until("the renewed certificate", TIMEOUT, || {
        let log = webhook.log()?;
        Ok(log.contains("another certificate is served").then_some(()))
    })?;
    let (renewed, said) =
        (end(server)?, webhook.metrics()?.sum("schedspan_webhook_certificate_expiry_seconds", &[]));
    ensure!(said == renewed, "{said} is not the end of the renewed certificate, {renewed}");
    wait_until("the clients of the renewed authority to be answered", TIMEOUT, || {
        Ok((ask(&["--cert", &path(client), "--key", &path(client_key)])? == "405").then_some(()))
    })?;
    webhook.stop()
}

/// When a certificate ends, seconds since 1970, as openssl says it.
fn end(certificate: &Path) -> Result<f64> {
    let mut openssl = Command::new("openssl");
    openssl.args(["x509", "-noout", "-enddate", "-dateopt", "iso_8601", "-in"]).arg(certificate);
    let said = process::output(&mut openssl)?;
    let date = said.trim().strip_prefix("notAfter=").context("openssl says no date")?.to_owned();
    Ok(process::output(Command::new("date").args(["--utc", "--date", &date, "+%s"]))?.trim().parse()?)
}
