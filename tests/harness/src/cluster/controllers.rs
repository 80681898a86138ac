//! kube-controller-manager, with the controllers that tests need.

use std::path::{Path, PathBuf};

use anyhow::Result;
use xtask::components::CONTROLLER_MANAGER;

use super::{access, members::Members, options::Options, scheduler::changed_arguments};
use crate::processes::Environment;

const CONTROLLERS: &str = "deployment-controller,replicaset-controller,job-controller,garbage-collector-controller,\
    namespace-controller,persistentvolume-binder-controller";

/// # Errors
///
/// If it does not become ready.
pub(super) fn start(members: &mut Members, options: &Options) -> Result<()> {
    let dir = members.dir.clone();
    let executable = match &options.controllers {
        Some(other) => other.clone(),
        None => CONTROLLER_MANAGER.executable()?,
    };
    let name = CONTROLLER_MANAGER.name;
    let copy = members.copy(&executable)?;
    members.launch_executable(name, &copy, &Environment::new(), &["https"], |ports| {
        let port = ports["https"];
        (arguments(&dir, options, port), format!("https://127.0.0.1:{port}/healthz"))
    })
}

/// Starts one more, which runs these controllers.
///
/// # Errors
///
/// If the cluster has none, or this one does not become ready.
pub(super) fn start_beside(members: &mut Members, name: &str, controllers: &str) -> Result<()> {
    let own = members.state.process(CONTROLLER_MANAGER.name)?.argv.clone();
    members.launch_executable(name, &PathBuf::from(&own[0]), &Environment::new(), &["https"], |ports| {
        let port = ports["https"];
        let changed = [("--controllers", controllers.to_owned()), ("--secure-port", port.to_string())];
        (changed_arguments(&own, &changed), format!("https://127.0.0.1:{port}/healthz"))
    })
}

/// Its arguments, with which it serves on this port.
pub(super) fn arguments(dir: &Path, options: &Options, port: u16) -> Vec<String> {
    let mut own = vec![
        format!("--kubeconfig={}", access::kubeconfig_path(dir, CONTROLLER_MANAGER.name).display()),
        "--leader-elect=false".into(),
        format!("--service-account-private-key-file={}", access::key(dir).display()),
        // The roles of the controllers' own accounts are those of the API server's version.
        format!("--use-service-account-credentials={}", options.controllers.is_none()),
        format!("--controllers={CONTROLLERS}"),
    ];
    if let Some(qps) = options.controllers_qps {
        own.extend([format!("--kube-api-qps={qps}"), format!("--kube-api-burst={qps}")]);
    }
    [&own[..], &access::serving_arguments(dir, port)].concat()
}
