//! A Collector of a test's own, which the test ends and starts again.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use harness::{
    processes::{Ports, free_ports},
    server::Server,
    spans,
};
use serde_json::{Value, json};
use xtask::components::COLLECTOR;

use super::certificates::Files;

/// How it is secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Security {
    Plain,
    Tls,
    /// It wants a certificate of its clients.
    Mutual,
}

/// A place for Collectors: the same ports and the same file for one after the other.
pub(crate) struct Place {
    ports: Ports,
    dir: PathBuf,
}

impl Place {
    pub(crate) fn new(dir: PathBuf) -> Result<Self> {
        fs::create_dir_all(&dir)?;
        Ok(Self { ports: free_ports(&["grpc", "http"])?, dir })
    }

    /// The endpoint of a protocol, by a name of this machine.
    pub(crate) fn endpoint(&self, protocol: &str, host: &str, security: Security) -> String {
        let scheme = if security == Security::Plain { "http" } else { "https" };
        format!("{scheme}://{host}:{}", self.port(protocol))
    }

    /// The port of a protocol.
    pub(crate) fn port(&self, protocol: &str) -> u16 {
        self.ports[if protocol == "grpc" { "grpc" } else { "http" }]
    }

    /// Starts a Collector that stores what it accepts before it answers.
    pub(crate) fn start(&self, security: Security, files: &Files) -> Result<Server> {
        self.start_with(security, files, &json!({}))
    }

    /// Starts one with further settings, which are merged into its configuration.
    pub(crate) fn start_with(&self, security: Security, files: &Files, further: &Value) -> Result<Server> {
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
        let mut configuration = json!({
            "receivers": { "otlp": { "protocols": { "grpc": server("grpc"), "http": server("http") } } },
            "exporters": { "file": { "path": self.file(), "append": true, "flush_interval": "100ms" } },
            "service": {
                "telemetry": { "metrics": { "level": "none" } },
                "pipelines": { "traces": { "receivers": ["otlp"], "exporters": ["file"] } },
            },
        });
        merge(&mut configuration, further);
        let arguments = [format!("--config=yaml:{configuration}")];
        Server::start(COLLECTOR, &arguments, &[], &self.ports, &self.dir.join("collector.log"))
    }

    /// How many spans its Collectors have stored. To be asked when none runs.
    pub(crate) fn stored(&self) -> Result<u64> {
        spans::count(&self.file())
    }

    /// Removes what is stored.
    pub(crate) fn clear(&self) -> Result<()> {
        Ok(fs::write(self.file(), "")?)
    }

    /// What is stored: OTLP as JSON, a request per line.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.join("spans.jsonl")
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Adds `further` to a configuration, whose objects keep what is not in it.
fn merge(configuration: &mut Value, further: &Value) {
    let (Some(object), Some(members)) = (configuration.as_object_mut(), further.as_object()) else {
        *configuration = further.clone();
        return;
    };
    for (name, value) in members {
        merge(object.entry(name).or_insert_with(|| json!({})), value);
    }
}
