//! kube-controller-manager, with the controllers that tests need.

use anyhow::Result;
use xtask::components::CONTROLLER_MANAGER;

use super::{access, members::Members};

const CONTROLLERS: &str = "deployment-controller,replicaset-controller,job-controller,garbage-collector-controller,\
    namespace-controller,persistentvolume-binder-controller";

/// # Errors
///
/// If it does not become ready.
pub(super) fn start(members: &mut Members) -> Result<()> {
    let dir = members.dir.clone();
    let own = [
        format!("--kubeconfig={}", access::kubeconfig_path(&dir, CONTROLLER_MANAGER.name).display()),
        "--leader-elect=false".into(),
        format!("--service-account-private-key-file={}", access::key(&dir).display()),
        "--use-service-account-credentials=true".into(),
        format!("--controllers={CONTROLLERS}"),
    ];
    members.launch(CONTROLLER_MANAGER, &["https"], |ports| {
        let port = ports["https"];
        let arguments = [&own[..], &access::serving_arguments(&dir, port)].concat();
        (arguments, format!("https://127.0.0.1:{port}/healthz"))
    })
}
