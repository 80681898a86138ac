//! A cluster and the daemon's executable, for demo, tests and benchmarks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow, ensure};
use xtask::process;

use crate::{
    cluster::{self, Cluster},
    schedspan::{Options, Schedspan},
};

pub struct Stage {
    pub cluster: Cluster,
    /// The daemon's executable.
    pub executable: PathBuf,
}

impl Stage {
    /// Starts a cluster, runs `play` on it, and ends it.
    ///
    /// # Errors
    ///
    /// Those of `play`, with the end of schedspan's and the scheduler's log; if a process of the cluster ended by itself.
    pub fn play(
        options: &cluster::Options,
        executable: &Path,
        play: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        ensure!(rustix::process::geteuid().is_root(), "probes need root: run it as root");
        let mut stage = Self { cluster: Cluster::fresh(options)?, executable: executable.to_owned() };
        play(&mut stage).or_else(|error| Err(anyhow!("{error:#}{}", stage.logs()?)))?;
        stage.cluster.check()?;
        stage.cluster.down()
    }

    /// The daemon's options for this cluster.
    ///
    /// # Errors
    ///
    /// If it runs without Collector.
    pub fn options(&self) -> Result<Options<'_>> {
        Ok(Options {
            executable: &self.executable,
            kubeconfig: self.cluster.schedspan_kubeconfig(),
            endpoint: self.cluster.otlp_grpc()?,
            protocol: "grpc",
            waterfalls: false,
            log: self.cluster.dir().join("schedspan.log"),
            rights: &[],
            arguments: &[],
            environment: &[],
        })
    }

    /// Starts the daemon on this cluster.
    ///
    /// # Errors
    ///
    /// Those of [`Schedspan::start`].
    pub fn trace(&self) -> Result<Schedspan> {
        Schedspan::start(&self.options()?)
    }

    /// The end of schedspan's and the scheduler's log.
    fn logs(&self) -> Result<String> {
        let mut text = String::new();
        for path in [self.options()?.log, self.cluster.scheduler()?.log] {
            // It may have ended before it logged anything.
            if let Ok(log) = fs::read(&path) {
                let name = path.file_name().unwrap_or_default().display();
                text += &format!("\n--- {name}:\n{}", process::tail(&String::from_utf8_lossy(&log)));
            }
        }
        Ok(text)
    }
}
