//! kube-scheduler: the cluster's own, and others beside it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::{Value, json};
use xtask::components::SCHEDULER;

use super::{
    access, collector, controllers,
    members::Members,
    options::{Options, OwnSpans},
};
use crate::processes::{Environment, Process};

/// The configuration of the cluster's own scheduler, in the cluster's folder.
const CONFIGURATION: &str = "scheduler.json";

/// The port of kube-controller-manager, if it runs in the same process.
const CONTROLLERS: &str = "controllers";

/// A running scheduler.
pub struct Scheduler {
    pub pid: i32,
    pub executable: PathBuf,
    /// Its output, over all restarts.
    pub log: PathBuf,
    pub metrics_url: String,
}

impl Scheduler {
    /// # Errors
    ///
    /// If the cluster has no scheduler of this name.
    pub(super) fn named(members: &Members, name: &str) -> Result<Self> {
        let Process { pid, argv, log, .. } = members.state.process(name)?;
        Ok(Self {
            pid: *pid,
            executable: PathBuf::from(&argv[0]),
            log: log.clone(),
            metrics_url: format!("https://127.0.0.1:{}/metrics", members.port(name, "https")?),
        })
    }
}

/// Starts the cluster's own scheduler.
///
/// # Errors
///
/// If it does not become ready.
pub(super) fn start(members: &mut Members, options: &Options) -> Result<()> {
    let dir = members.dir.clone();
    let configuration = members.path(CONFIGURATION);
    fs::write(&configuration, serde_json::to_vec_pretty(&self::configuration(&dir, options))?)?;
    let mut own = vec![format!("--config={configuration}")];
    own.extend(options.scheduler_verbosity.iter().map(|verbosity| format!("--v={verbosity}")));
    let groups = options.groups().map(|groups| groups.gates);
    let gates = options.scheduler_feature_gates.as_deref().into_iter().chain(groups);
    own.extend(gates.map(|gates| format!("--feature-gates={gates}")));
    let executable = match options.one_process.as_ref().or(options.scheduler.as_ref()) {
        Some(executable) => executable.clone(),
        None => SCHEDULER.executable()?,
    };
    let copy = members.copy(&executable)?;
    let environment = environment(members, options.own_spans)?;
    let with_controllers = options.one_process.is_some();
    let ports: &[&str] = if with_controllers { &["https", CONTROLLERS] } else { &["https"] };
    members.launch_executable(SCHEDULER.name, &copy, &environment, ports, |ports| {
        let port = ports["https"];
        let mut arguments = [&own[..], &access::serving_arguments(&dir, port)].concat();
        if with_controllers {
            arguments.push("--".into());
            arguments.extend(controllers::arguments(&dir, options, ports[CONTROLLERS]));
        }
        (arguments, format!("https://127.0.0.1:{port}/healthz"))
    })
}

/// Starts a scheduler beside the cluster's own, for Pods whose `schedulerName` is this name.
///
/// # Errors
///
/// If it does not become ready.
pub(super) fn start_beside(
    members: &mut Members,
    name: &str,
    executable: &Path,
    own_spans: OwnSpans,
) -> Result<()> {
    let configuration = configuration_beside(members, name)?;
    start_with(members, name, executable, own_spans, &configuration)
}

/// Starts another process of the cluster's own scheduler, with the same configuration.
///
/// # Errors
///
/// If it does not become ready.
pub(super) fn start_standby(members: &mut Members, name: &str) -> Result<()> {
    let executable = PathBuf::from(&members.state.process(SCHEDULER.name)?.argv[0]);
    start_with(members, name, &executable, OwnSpans::None, &members.path(CONFIGURATION))
}

/// Starts a scheduler with this configuration, and the other arguments of the cluster's own one.
fn start_with(
    members: &mut Members,
    name: &str,
    executable: &Path,
    own_spans: OwnSpans,
    configuration: &str,
) -> Result<()> {
    let own = members.state.process(SCHEDULER.name)?.argv.clone();
    let environment = environment(members, own_spans)?;
    members.launch_executable(name, executable, &environment, &["https"], |ports| {
        let port = ports["https"];
        let changed = [("--config", configuration.to_owned()), ("--secure-port", port.to_string())];
        (changed_arguments(&own, &changed), format!("https://127.0.0.1:{port}/healthz"))
    })
}

/// The arguments of the cluster's own scheduler, changed for one on another machine: for Pods whose `schedulerName` is this
/// name, on this port of all addresses.
///
/// # Errors
///
/// If the configuration cannot be read or written.
pub(super) fn arguments_elsewhere(members: &Members, name: &str, port: u16) -> Result<Vec<String>> {
    let changed = [
        ("--config", configuration_beside(members, name)?),
        ("--secure-port", port.to_string()),
        ("--bind-address", "0.0.0.0".to_owned()),
    ];
    Ok(changed_arguments(&members.state.process(SCHEDULER.name)?.argv, &changed))
}

/// Changes the configuration of the cluster's own scheduler, which reads it when it starts.
///
/// # Errors
///
/// If the configuration cannot be read or written.
pub(super) fn configure(members: &Members, change: impl FnOnce(&mut Value)) -> Result<()> {
    write_configuration(members, CONFIGURATION, change).map(drop)
}

fn configuration(dir: &Path, options: &Options) -> Value {
    let mut connection = json!({ "kubeconfig": access::kubeconfig_path(dir, SCHEDULER.name) });
    if let Some(qps) = options.scheduler_qps {
        connection["qps"] = qps.into();
        connection["burst"] = qps.into();
    }
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": connection,
        "profiles": options.scheduler_profiles,
        "leaderElection": { "leaderElect": false },
    })
}

/// Writes the configuration of a scheduler for Pods whose `schedulerName` is this name.
fn configuration_beside(members: &Members, name: &str) -> Result<String> {
    let only = |configuration: &mut Value| configuration["profiles"] = json!([{ "schedulerName": name }]);
    write_configuration(members, &format!("{name}.json"), only)
}

/// Writes a changed copy of the own scheduler's configuration and returns its path.
fn write_configuration(members: &Members, name: &str, change: impl FnOnce(&mut Value)) -> Result<String> {
    let mut configuration = serde_json::from_slice(&fs::read(members.dir.join(CONFIGURATION))?)?;
    change(&mut configuration);
    let path = members.path(name);
    fs::write(&path, serde_json::to_vec_pretty(&configuration)?)?;
    Ok(path)
}

/// The environment of a scheduler that makes spans itself.
fn environment(members: &Members, own_spans: OwnSpans) -> Result<Environment> {
    if own_spans == OwnSpans::None {
        return Ok(Environment::new());
    }
    let list = own_spans.environment(&collector::endpoint(members, "grpc")?);
    Ok(list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The arguments of a command line, with other values for these flags.
pub(super) fn changed_arguments(argv: &[String], changed: &[(&str, String)]) -> Vec<String> {
    let argument = |argument: &String| {
        let flag = argument.split_once('=').map_or(argument.as_str(), |(flag, _)| flag);
        let value = changed.iter().find(|(name, _)| *name == flag);
        value.map_or_else(|| argument.clone(), |(_, value)| format!("{flag}={value}"))
    };
    argv[1..].iter().map(argument).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_get_other_values_and_the_program_is_left_out() {
        let argv = ["kube-scheduler", "--config=a", "--v=3"].map(str::to_owned);
        assert_eq!(changed_arguments(&argv, &[("--config", "b".to_owned())]), ["--config=b", "--v=3"]);
    }
}
