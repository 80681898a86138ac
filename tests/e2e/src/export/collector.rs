//! A Collector of a test's own, which the test ends and starts again.

use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Result, bail};
use harness::{
    processes::{Ports, free_ports},
    spans,
    wait::wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use xtask::components::COLLECTOR;

use super::certificates::Files;

/// The limit for a Collector to start or to end.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How it is secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Security {
    Plain,
    Tls,
    /// It wants a certificate of its clients.
    Mutual,
}

/// A place for Collectors: the same ports and the same file for one after the other.
pub(super) struct Place {
    ports: Ports,
    dir: PathBuf,
}

/// A running Collector. It is killed when it is dropped.
pub(super) struct Collector(Child);

impl Place {
    pub(super) fn new(dir: PathBuf) -> Result<Self> {
        fs::create_dir_all(&dir)?;
        Ok(Self { ports: free_ports(&["grpc", "http"])?, dir })
    }

    /// The endpoint of a protocol, by a name of this machine.
    pub(super) fn endpoint(&self, protocol: &str, host: &str, security: Security) -> String {
        let scheme = if security == Security::Plain { "http" } else { "https" };
        let name = if protocol == "grpc" { "grpc" } else { "http" };
        format!("{scheme}://{host}:{}", self.ports[name])
    }

    /// Starts a Collector that stores what it accepts before it answers. `further` settings are those of its gRPC server.
    pub(super) fn start(&self, security: Security, files: &Files, further: &Value) -> Result<Collector> {
        let mut tls = json!({ "cert_file": files.server, "key_file": files.server_key });
        if security == Security::Mutual {
            tls["client_ca_file"] = json!(files.authority);
        }
        let server = |name: &str| {
            let mut server = json!({ "endpoint": format!("127.0.0.1:{}", self.ports[name]) });
            if security != Security::Plain {
                server["tls"] = tls.clone();
            }
            server
        };
        let mut grpc = server("grpc");
        if let (Some(grpc), Some(further)) = (grpc.as_object_mut(), further.as_object()) {
            grpc.extend(further.clone());
        }
        let configuration = json!({
            "receivers": { "otlp": { "protocols": { "grpc": grpc, "http": server("http") } } },
            "exporters": { "file": { "path": self.file(), "append": true, "flush_interval": "100ms" } },
            "service": {
                "telemetry": { "metrics": { "level": "none" } },
                "pipelines": { "traces": { "receivers": ["otlp"], "exporters": ["file"] } },
            },
        });
        let log = fs::File::options().create(true).append(true).open(self.dir.join("collector.log"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(COLLECTOR.executable()?);
        command.arg(format!("--config=yaml:{configuration}"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        let mut collector = Collector(child);
        wait_until("a Collector", TIMEOUT, || {
            if let Some(status) = collector.0.try_wait()? {
                bail!("the Collector ended with {status}: {}", self.dir.join("collector.log").display());
            }
            let open = |port: &u16| TcpStream::connect(("127.0.0.1", *port)).is_ok();
            Ok(self.ports.values().all(open).then_some(()))
        })?;
        Ok(collector)
    }

    /// How many spans its Collectors have stored. To be asked when none runs.
    pub(super) fn stored(&self) -> Result<u64> {
        Ok(spans::read(&self.file(), 0)?.len() as u64)
    }

    /// Removes what is stored.
    pub(super) fn clear(&self) -> Result<()> {
        Ok(fs::write(self.file(), "")?)
    }

    fn file(&self) -> PathBuf {
        self.dir.join("spans.jsonl")
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Collector {
    /// Ends it, so that all that it accepted is stored.
    pub(super) fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        wait_until("the end of a Collector", TIMEOUT, || Ok(self.0.try_wait()?))?;
        Ok(())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.0.kill(); // It may have ended.
        let _ = self.0.wait(); // The wait for our own child does not fail.
    }
}
