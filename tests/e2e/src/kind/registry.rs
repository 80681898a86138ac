//! The chart as a release publishes it: an OCI layout, which a registry answers from, and `helm pull`.

use std::{
    fs,
    future::IntoFuture as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use release::chart::Chart;
use serde_json::Value;
use tokio::{net, runtime::Runtime};
use xtask::{components::HELM, process};

use super::cluster::Cluster;

const CHART: &str = "charts/schedspan";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const BYTES: &str = "application/octet-stream";

/// Pulls the chart from the release's OCI layout, in the cluster's shared folder. Returns the archive's path.
///
/// # Errors
///
/// If the layout cannot be made, or Helm does not take it.
pub(super) fn pull(cluster: &Cluster) -> Result<(String, String)> {
    let (archive, digest) = pull_into(&cluster.shared().join("registry"), &HELM.executable()?)?;
    Ok((archive.display().to_string(), digest))
}

fn pull_into(folder: &Path, helm: &Path) -> Result<(PathBuf, String)> {
    let layout = folder.join("layout");
    let (tar, digest) = Chart::read(VERSION)?.layout()?;
    unpack(&tar, &layout)?;
    let registry = Registry::start(layout)?;
    let mut pull = Command::new(helm);
    let chart = format!("oci://{}/{CHART}", registry.address);
    pull.args(["pull", &chart, "--version", VERSION, "--plain-http", "--destination"]).arg(folder);
    // Nothing goes into the user's own folders.
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        pull.env(variable, folder.join("helm"));
    }
    process::output(&mut pull)?;
    let archive = folder.join(format!("schedspan-{VERSION}.tgz"));
    ensure!(archive.exists(), "helm pull has not written {}", archive.display());
    Ok((archive, digest))
}

/// Unpacks a layout into a new folder.
fn unpack(tar: &[u8], layout: &Path) -> Result<()> {
    fs::create_dir_all(layout)?;
    let file = layout.with_extension("tar");
    fs::write(&file, tar)?;
    let mut extract = Command::new("tar");
    process::output(extract.arg("--extract").arg("--file").arg(&file).arg("--directory").arg(layout))?;
    Ok(fs::remove_file(file)?)
}

/// A registry that has one layout, on 127.0.0.1, until it is dropped.
///
/// <https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md#pull>
struct Registry {
    address: String,
    _runtime: Runtime,
}

impl Registry {
    fn start(layout: PathBuf) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on 127.0.0.1")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let router = Router::new().fallback(answer).with_state(layout);
        let runtime = Runtime::new()?;
        let listener = {
            let _entered = runtime.enter();
            net::TcpListener::from_std(listener)?
        };
        drop(runtime.spawn(axum::serve(listener, router).into_future()));
        Ok(Self { address, _runtime: runtime })
    }
}

async fn answer(State(layout): State<PathBuf>, uri: Uri) -> Response {
    match content(&layout, uri.path()) {
        Some((media, content)) => ([(CONTENT_TYPE, media)], content).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// The media type and the bytes of what a path names.
fn content(layout: &Path, path: &str) -> Option<(String, Vec<u8>)> {
    let path = path.strip_prefix("/v2/")?;
    if path.is_empty() {
        return Some((BYTES.to_owned(), Vec::new()));
    }
    let (what, name) = path.strip_prefix(CHART)?.strip_prefix('/')?.split_once('/')?;
    let blob = |digest: &str| {
        let (algorithm, hash) = digest.split_once(':')?;
        let is_hash = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        (algorithm == "sha256" && is_hash).then_some(())?;
        fs::read(layout.join("blobs/sha256").join(hash)).ok()
    };
    match what {
        "manifests" => {
            let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).ok()?).ok()?;
            let is_named = |manifest: &&Value| {
                manifest["digest"] == name
                    || manifest["annotations"]["org.opencontainers.image.ref.name"] == name
            };
            let manifest = index["manifests"].as_array()?.iter().find(is_named)?;
            Some((manifest["mediaType"].as_str()?.to_owned(), blob(manifest["digest"].as_str()?)?))
        }
        "blobs" => Some((BYTES.to_owned(), blob(name)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("schedspan-{name}-{}", std::process::id()))
    }

    #[test]
    fn helm_pulls_the_chart() {
        let Some(helm) = HELM.built().unwrap() else {
            println!("skipped: Helm is not built, `cargo xtask manifests` builds it");
            return;
        };
        let folder = folder("helm");
        let (archive, _) = pull_into(&folder, &helm).unwrap();
        assert!(fs::read(archive).unwrap() == Chart::read(VERSION).unwrap().archive, "another archive");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_chart_is_found_by_its_tag_its_digest_and_the_digest_of_its_archive() {
        let layout = folder("layout");
        let chart = Chart::read(VERSION).unwrap();
        let (tar, digest) = chart.layout().unwrap();
        unpack(&tar, &layout).unwrap();
        let get = |path: &str| content(&layout, &format!("/v2/{CHART}/{path}"));
        let manifest = get(&format!("manifests/{VERSION}")).unwrap();
        assert_eq!(manifest.0, release::layout::MANIFEST);
        assert_eq!(get(&format!("manifests/{digest}")), Some(manifest.clone()));
        let manifest: Value = serde_json::from_slice(&manifest.1).unwrap();
        let archive = manifest["layers"][0]["digest"].as_str().unwrap();
        assert_eq!(get(&format!("blobs/{archive}")), Some((BYTES.to_owned(), chart.archive)));
        for wrong in ["manifests/0.0.0", "blobs/sha256:00", "blobs/sha256:../../index.json", "tags/list"] {
            assert_eq!(get(wrong), None, "{wrong}");
        }
        assert_eq!(content(&layout, "/v1/"), None);
        fs::remove_dir_all(layout).unwrap();
    }
}
