//! A server of a test's own, beside the cluster.

use std::{
    fs::File,
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use xtask::components::Component;

use crate::{processes::Ports, wait::wait_until};

/// The limit for a server to start or to end.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A running server. It is killed when it is dropped and when this process ends.
pub struct Server {
    child: Child,
    name: &'static str,
}

impl Server {
    /// Starts a component and waits until it listens on all of these ports. All starts append to the log.
    ///
    /// # Errors
    ///
    /// If it cannot be built or started, ends, or does not listen in time.
    pub fn start(
        component: Component,
        arguments: &[String],
        environment: &[(&str, &str)],
        ports: &Ports,
        log: &Path,
    ) -> Result<Self> {
        let Component { name, .. } = component;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(component.executable()?).args(arguments);
        command.envs(environment.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(File::options().create(true).append(true).open(log)?).spawn()?;
        let mut server = Self { child, name };
        wait_until(&format!("the ports of {name}"), TIMEOUT, || {
            if let Some(status) = server.child.try_wait()? {
                bail!("{name} ended with {status}: {}", log.display());
            }
            let open = |port: &u16| TcpStream::connect(("127.0.0.1", *port)).is_ok();
            Ok(ports.values().all(open).then_some(()))
        })?;
        Ok(server)
    }

    /// Ends it, so that all that it accepted is stored.
    ///
    /// # Errors
    ///
    /// If it does not end in time.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        wait_until(&format!("the end of {}", self.name), TIMEOUT, || Ok(self.child.try_wait()?))?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended.
        let _ = self.child.wait(); // The wait for our own child does not fail.
    }
}
