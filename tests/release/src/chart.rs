//! The Helm chart, as an archive and as an OCI artefact: <https://helm.sh/docs/topics/registries/>.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use xtask::{
    image::archive::{File, gzip, tar},
    paths,
};

use crate::layout::{Blobs, MANIFEST};

/// The chart's folder in the repository.
const FOLDER: &str = "deploy/chart/schedspan";
/// Its name, and its folder in the archive.
const NAME: &str = "schedspan";
/// Media types of Helm: <https://github.com/helm/helm/blob/v3.19.0/pkg/registry/constants.go>.
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The chart.
pub(crate) struct Chart {
    /// `Chart.yaml`.
    about: Value,
    /// As `helm package` makes it, but without times.
    pub(crate) archive: Vec<u8>,
}

impl Chart {
    /// Reads the chart of this version, as far as git knows its files.
    ///
    /// # Errors
    ///
    /// If it is of another version.
    pub(crate) fn read(version: &str) -> Result<Self> {
        let list =
            Command::new("git").args(["ls-files", "-z", FOLDER]).current_dir(paths::repository()).output()?;
        let names = String::from_utf8(list.stdout).context("git lists a file whose name is not UTF-8")?;
        let mut names: Vec<_> = names.split_terminator('\0').collect();
        names.sort_unstable();
        let read = |name: &&str| {
            let path = name.strip_prefix(FOLDER).unwrap_or(name);
            Ok(File::plain(&format!("{NAME}{path}"), fs::read(paths::repository().join(name))?))
        };
        let files: Vec<_> = names.iter().map(read).collect::<Result<_>>()?;
        Self::of(&files, version)
    }

    fn of(files: &[File], version: &str) -> Result<Self> {
        let about =
            files.iter().find(|file| file.path == format!("{NAME}/Chart.yaml")).context("no Chart.yaml")?;
        let about: Value = serde_saphyr::from_slice(&about.content).context("`Chart.yaml`")?;
        for key in ["version", "appVersion"] {
            ensure!(
                about[key] == version,
                "`{FOLDER}/Chart.yaml` has the {key} {}, not {version}",
                about[key]
            );
        }
        // Helm reads Chart.yaml first.
        let (first, rest): (Vec<_>, Vec<_>) =
            files.iter().partition(|file| file.path.ends_with("/Chart.yaml"));
        let ordered: Vec<_> = first.into_iter().chain(rest).map(copy).collect();
        Ok(Self { about, archive: gzip(&tar(&ordered)?)? })
    }

    /// The layout with the artefact, and the digest of its manifest.
    pub(crate) fn layout(&self) -> Result<(Vec<u8>, String)> {
        let mut blobs = Blobs::default();
        let config = blobs.add(CONFIG, self.about.to_string().into_bytes());
        let content = blobs.add(CONTENT, self.archive.clone());
        let text = |key: &str| self.about[key].as_str().unwrap_or_default().to_owned();
        let version = text("version");
        let annotations: Map<_, _> =
            [("title", "name"), ("version", "version"), ("description", "description"), ("url", "home")]
                .into_iter()
                .map(|(annotation, key)| {
                    (format!("org.opencontainers.image.{annotation}"), Value::from(text(key)))
                })
                .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config,
            "layers": [content],
            "annotations": annotations,
        });
        let descriptor = blobs.add(MANIFEST, manifest.to_string().into_bytes());
        let digest = descriptor["digest"].as_str().unwrap_or_default().to_owned();
        Ok((blobs.layout(descriptor, &format!("localhost/charts/{NAME}:{version}"), &version)?, digest))
    }
}

fn copy(File { path, mode, capabilities, content }: &File) -> File {
    File { path: path.clone(), mode: *mode, capabilities: *capabilities, content: content.clone() }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::layout::tests::{blob, files};

    fn chart(version: &str) -> Result<Chart> {
        let about =
            "apiVersion: v2\nname: schedspan\nversion: 1.0.0\nappVersion: \"1.0.0\"\ndescription: A chart\n";
        let file = |path: &str, text: &str| File::plain(path, text.as_bytes().to_vec());
        Chart::of(
            &[
                file("schedspan/.helmignore", "x"),
                file("schedspan/Chart.yaml", about),
                file("schedspan/templates/a.yaml", "a: b"),
            ],
            version,
        )
    }

    #[test]
    fn the_artefact_is_what_helm_pulls() {
        let (layout, digest) = chart("1.0.0").unwrap().layout().unwrap();
        let files_of = files(&layout);
        let index: Value = serde_json::from_slice(&files_of["index.json"]).unwrap();
        assert_eq!(index["manifests"][0]["digest"], digest.as_str());
        let manifest: Value = serde_json::from_slice(blob(&files_of, &index["manifests"][0])).unwrap();
        assert_eq!(manifest["config"]["mediaType"], CONFIG);
        assert_eq!(manifest["layers"][0]["mediaType"], CONTENT);
        assert_eq!(manifest["annotations"]["org.opencontainers.image.version"], "1.0.0");
        let config: Value = serde_json::from_slice(blob(&files_of, &manifest["config"])).unwrap();
        assert_eq!(config["name"], "schedspan");
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(blob(&files_of, &manifest["layers"][0])).read_to_end(&mut tar).unwrap();
        let names: Vec<_> =
            files(&tar).into_keys().filter(|name| !name.ends_with('s') || name.contains('.')).collect();
        assert_eq!(
            names,
            ["schedspan", "schedspan/.helmignore", "schedspan/Chart.yaml", "schedspan/templates/a.yaml"]
        );
    }

    #[test]
    fn a_chart_of_another_version_is_refused() {
        let error = chart("1.0.1").err().unwrap().to_string();
        assert!(error.contains("not 1.0.1"), "{error}");
    }

    #[test]
    fn the_chart_in_the_tree_is_of_the_version_of_the_workspace() {
        assert!(!Chart::read(env!("CARGO_PKG_VERSION")).unwrap().archive.is_empty());
    }
}
