//! kube-apiserver, and the objects that a cluster begins with.

use std::{fs, path::Path};

use anyhow::Result;
use serde_json::json;
use xtask::components::APISERVER;

use super::{
    access, collector, etcd,
    members::{Members, READY_TIMEOUT},
    options::{Groups, Options},
};
use crate::{
    api::{Api, objects},
    audit,
    http::agent,
    processes::Environment,
    wait::wait_until,
};

/// Starts the API server, writes the kubeconfigs, and grants what the manifests in deploy/ grant.
///
/// # Errors
///
/// If it does not become ready, or refuses the manifest.
pub(super) fn start(members: &mut Members, options: &Options) -> Result<()> {
    let dir = members.dir.clone();
    let users = access::users(&dir, options)?;
    let etcd = etcd::url(members)?;
    let tracing = if options.apiserver_tracing { Some(tracing(members)?) } else { None };
    let audit = if options.audit { audit::arguments(&dir)?.into() } else { Vec::new() };
    let executable = match &options.apiserver {
        Some((executable, _)) => executable.clone(),
        None => APISERVER.executable()?,
    };
    members.launch_executable(APISERVER.name, &executable, &Environment::new(), &["https"], |ports| {
        let port = ports["https"];
        let mut arguments = arguments(&dir, &etcd, port);
        arguments.extend(tracing.clone());
        arguments.extend(audit.clone());
        if let Some(Groups { gates, apis }) = options.groups() {
            arguments.push(format!("--feature-gates={gates}"));
            arguments.extend(apis.iter().map(|api| format!("--runtime-config={api}=true")));
        }
        (arguments, format!("https://127.0.0.1:{port}/readyz"))
    })?;
    access::write_kubeconfigs(&dir, &users, &url(members)?)?;
    let api = client(members, &access::kubeconfig_path(&dir, "admin"))?;
    // Only an administrator gets answers before the built-in roles exist, which all other users need.
    wait_until("the API server's own objects", READY_TIMEOUT, || {
        let objects = ["/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system"]
            .map(|path| api.get(path));
        Ok(objects.iter().all(Result::is_ok).then_some(()))
    })?;
    let rbac = objects(include_str!("../../../../deploy/kustomize/base/rbac.yaml"));
    rbac.iter().try_for_each(|object| api.apply(object, false))
}

/// # Errors
///
/// If the API server does not run.
pub(super) fn url(members: &Members) -> Result<String> {
    Ok(format!("https://127.0.0.1:{}", members.port(APISERVER.name, "https")?))
}

/// A client with the rights of this kubeconfig's user.
///
/// # Errors
///
/// If the certificates or the kubeconfig cannot be read.
pub(super) fn client(members: &Members, kubeconfig: &Path) -> Result<Api> {
    let token = access::token(kubeconfig)?;
    Ok(Api::new(agent(&access::certificates(&members.dir))?, url(members)?, &token))
}

fn arguments(dir: &Path, etcd: &str, port: u16) -> Vec<String> {
    // The API server makes this key for itself.
    let key = access::key(dir).display().to_string();
    vec![
        format!("--etcd-servers={etcd}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", dir.display()),
        format!("--token-auth-file={}", access::tokens(dir).display()),
        "--authorization-mode=RBAC".into(),
        // As in every installation.
        "--allow-privileged".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={key}"),
        format!("--service-account-signing-key-file={key}"),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        // These need controllers that do not run: no Pod would be admitted, and every new Node would be tainted.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
        "--endpoint-reconciler-type=none".into(),
        // Under load the API server must not be the limit.
        "--enable-priority-and-fairness=false".into(),
        "--max-requests-inflight=0".into(),
        "--max-mutating-requests-inflight=0".into(),
    ]
}

/// Writes the configuration by which the API server sends spans to the Collector: only of sampled requests.
fn tracing(members: &Members) -> Result<String> {
    let endpoint = collector::endpoint(members, "grpc")?;
    let configuration = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "TracingConfiguration",
        "endpoint": endpoint.trim_start_matches("http://"),
        "samplingRatePerMillion": 0,
    });
    let path = members.path("tracing.json");
    fs::write(&path, serde_json::to_vec_pretty(&configuration)?)?;
    Ok(format!("--tracing-config-file={path}"))
}
