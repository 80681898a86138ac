//! Users of the cluster: their tokens and kubeconfigs, and the certificates that all components serve with.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use xtask::components::{CONTROLLER_MANAGER, SCHEDULER};

use super::options::Options;

/// The user of the chart's webhook.
pub(super) const WEBHOOK: &str = "schedspan-webhook";
/// The group of administrators.
const MASTERS: &str = "system:masters";
/// In the cluster's folder.
const TOKENS: &str = "tokens.csv";
const CERTIFICATE: &str = "apiserver.crt";
const KEY: &str = "apiserver.key";

/// A user with a kubeconfig.
pub(super) struct User {
    name: &'static str,
    /// The API server's name for the user.
    identity: &'static str,
    group: Option<&'static str>,
    token: String,
}

/// Creates the users and writes their tokens for the API server. A scheduler or kube-controller-manager that is not the
/// cluster's own may be newer, and watch more than the API server's role permits: it becomes an administrator.
///
/// # Errors
///
/// If the tokens cannot be made or written.
pub(super) fn users(dir: &Path, options: &Options) -> Result<Vec<User>> {
    let user = |name, identity, group| Ok(User { name, identity, group, token: random_token()? });
    let users = [
        user("admin", "admin", Some(MASTERS)),
        user(SCHEDULER.name, "system:kube-scheduler", options.scheduler.as_ref().map(|_| MASTERS)),
        user(
            CONTROLLER_MANAGER.name,
            "system:kube-controller-manager",
            options.controllers.as_ref().map(|_| MASTERS),
        ),
        // These have only the rights that the manifests in deploy/ grant.
        user("schedspan", "system:serviceaccount:kube-system:schedspan", None),
        user(WEBHOOK, "system:serviceaccount:kube-system:schedspan-webhook", None),
    ];
    let users = users.into_iter().collect::<Result<Vec<_>>>()?;
    let rows = users.iter().map(|User { name, identity, group, token }| match group {
        None => format!("{token},{identity},{name}\n"),
        Some(group) => format!("{token},{identity},{name},{group}\n"),
    });
    fs::write(tokens(dir), rows.collect::<String>())?;
    Ok(users)
}

/// Writes a kubeconfig for each user.
///
/// # Errors
///
/// If one cannot be written.
pub(super) fn write_kubeconfigs(dir: &Path, users: &[User], server: &str) -> Result<()> {
    let name = "schedspan";
    let certificates = certificates(dir);
    users.iter().try_for_each(|user| {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                { "name": name, "cluster": { "server": server, "certificate-authority": certificates } },
            ],
            "users": [{ "name": user.name, "user": { "token": user.token } }],
            "contexts": [{ "name": name, "context": { "cluster": name, "user": user.name } }],
            "current-context": name,
        });
        Ok(fs::write(kubeconfig_path(dir, user.name), serde_json::to_vec_pretty(&kubeconfig)?)?)
    })
}

/// The token in a kubeconfig.
///
/// # Errors
///
/// If the kubeconfig cannot be read or has none.
pub(super) fn token(kubeconfig: &Path) -> Result<String> {
    let kubeconfig: Value = serde_json::from_slice(&fs::read(kubeconfig)?)?;
    let token = kubeconfig["users"][0]["user"]["token"].as_str();
    token.map(str::to_owned).context("no token in the kubeconfig")
}

pub(super) fn kubeconfig_path(dir: &Path, user: &str) -> PathBuf {
    dir.join(format!("{user}.kubeconfig"))
}

/// The certificate that the API server makes for itself, with its authority. All components serve with it, so a client
/// trusts one file.
pub(super) fn certificates(dir: &Path) -> PathBuf {
    dir.join(CERTIFICATE)
}

/// The key of [`certificates`]. It also signs tokens.
pub(super) fn key(dir: &Path) -> PathBuf {
    dir.join(KEY)
}

/// The API server's list of tokens.
pub(super) fn tokens(dir: &Path) -> PathBuf {
    dir.join(TOKENS)
}

/// Arguments by which a component serves with the API server's certificate, on this port.
pub(super) fn serving_arguments(dir: &Path, port: u16) -> Vec<String> {
    vec![
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", certificates(dir).display()),
        format!("--tls-private-key-file={}", key(dir).display()),
        "--authentication-skip-lookup".into(),
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics,/debug/pprof/*".into(),
    ]
}

/// 128 random bits in hexadecimal.
fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
