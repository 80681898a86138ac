//! etcd, without fsync: a test cluster does not outlive a crash.

use anyhow::Result;
use xtask::components::ETCD;

use super::members::Members;

/// # Errors
///
/// If it does not become ready.
pub(super) fn start(members: &mut Members) -> Result<()> {
    let data = members.path("etcd");
    members.launch(ETCD, &["client", "peer"], |ports| {
        let [client, peer] = ["client", "peer"].map(|name| format!("http://127.0.0.1:{}", ports[name]));
        let arguments = vec![
            format!("--data-dir={data}"),
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
        ];
        (arguments, format!("{client}/health"))
    })
}

/// The URL for clients.
///
/// # Errors
///
/// If it does not run.
pub(super) fn url(members: &Members) -> Result<String> {
    Ok(format!("http://127.0.0.1:{}", members.port(ETCD.name, "client")?))
}
