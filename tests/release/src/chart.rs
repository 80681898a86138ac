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
/// What Helm leaves out of an archive: <https://helm.sh/docs/chart_template_guide/helm_ignore_file/>.
const IGNORED: &str = ".helmignore";
/// Its name, and its folder in the archive.
const NAME: &str = "schedspan";
/// Media types of Helm: <https://github.com/helm/helm/blob/v3.19.0/pkg/registry/constants.go>.
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The chart.
pub struct Chart {
    /// `Chart.yaml`.
    about: Value,
    /// As `helm package` makes it, but without times.
    pub archive: Vec<u8>,
}

impl Chart {
    /// Reads the chart of this version, as far as git knows its files.
    ///
    /// # Errors
    ///
    /// If it is of another version.
    pub fn read(version: &str) -> Result<Self> {
        let list =
            Command::new("git").args(["ls-files", "-z", FOLDER]).current_dir(paths::repository()).output()?;
        let names = String::from_utf8(list.stdout).context("git lists a file whose name is not UTF-8")?;
        let mut names: Vec<_> = names.split_terminator('\0').collect();
        names.sort_unstable();
        let patterns = fs::read_to_string(paths::repository().join(FOLDER).join(IGNORED))?;
        let mut files = Vec::new();
        for name in names {
            let path = name.strip_prefix(FOLDER).unwrap_or(name);
            if !is_ignored(&patterns, path.trim_start_matches('/'))? {
                files.push(File::plain(&format!("{NAME}{path}"), fs::read(paths::repository().join(name))?));
            }
        }
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
    ///
    /// # Errors
    ///
    /// If the archive cannot be written.
    pub fn layout(&self) -> Result<(Vec<u8>, String)> {
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

/// Whether one of these patterns names the file with this path in the chart, or a folder above it.
///
/// # Errors
///
/// If a pattern is of a kind that the chart does not have.
fn is_ignored(patterns: &str, path: &str) -> Result<bool> {
    let lines = patterns.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut is_ignored = false;
    for line in lines {
        let folders_alone = line.ends_with('/');
        let pattern = line.trim_end_matches('/');
        let (at_root, pattern) = pattern.strip_prefix('/').map_or((false, pattern), |rest| (true, rest));
        ensure!(
            !pattern.is_empty() && !pattern.contains(['/', '!', '?', '[', '\\']),
            "`{IGNORED}` has `{line}`, which the release does not read: it knows `name`, `*` in a name, `/` before and after it"
        );
        let names: Vec<_> = path.split('/').collect();
        is_ignored |= names.iter().enumerate().any(|(place, name)| {
            let is_folder = place + 1 < names.len();
            (is_folder || !folders_alone) && (place == 0 || !at_root) && matches(pattern, name)
        });
    }
    Ok(is_ignored)
}

/// Whether a name is that of a pattern, in which each `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(before) else { return false };
    let starts = rest.char_indices().map(|(place, _)| place).chain([rest.len()]);
    starts.into_iter().any(|start| matches(after, &rest[start..]))
}

fn copy(File { path, mode, capabilities, content }: &File) -> File {
    File { path: path.clone(), mode: *mode, capabilities: *capabilities, content: content.clone() }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io::Read as _};

    use xtask::components::HELM;

    use super::*;
    use crate::layout::tests::{blob, files};

    fn chart(version: &str) -> Result<Chart> {
        let about =
            "apiVersion: v2\nname: schedspan\nversion: 1.0.0\nappVersion: \"1.0.0\"\ndescription: A chart\n";
        let file = |path: &str, text: &str| File::plain(path, text.as_bytes().to_vec());
        Chart::of(&[file("schedspan/Chart.yaml", about), file("schedspan/templates/a.yaml", "a: b")], version)
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
        assert_eq!(names, ["schedspan", "schedspan/Chart.yaml", "schedspan/templates/a.yaml"]);
    }

    #[test]
    fn the_patterns_of_helmignore_name_files_and_folders() {
        let patterns = "# Comment\n\n.*\n*.orig\n/variants/\nx*y*z\n";
        for path in [".helmignore", "a/.b/c", "templates/a.orig", "variants/a.yaml", "xyz", "x-y-z"] {
            assert!(is_ignored(patterns, path).unwrap(), "{path}");
        }
        for path in ["Chart.yaml", "templates/variants/a.yaml", "variants", "a.orig.yaml", "xz", "xyz-"] {
            assert!(!is_ignored(patterns, path).unwrap(), "{path}");
        }
        for unknown in ["!a", "a/b", "a?", "[a]", "/"] {
            assert!(is_ignored(unknown, "a").is_err(), "{unknown}");
        }
    }

    #[test]
    fn the_archive_has_the_files_that_helm_packs() {
        let Some(helm) = HELM.built().unwrap() else {
            println!("skipped: Helm is not built");
            return;
        };
        let folder = std::env::temp_dir().join(format!("schedspan-chart-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut package = Command::new(helm);
        package.arg("package").arg(paths::repository().join(FOLDER)).arg("--destination").arg(&folder);
        assert!(package.output().unwrap().status.success());
        let version = env!("CARGO_PKG_VERSION");
        let names = |archive: &[u8]| -> BTreeSet<String> {
            let mut tar = Vec::new();
            flate2::read::GzDecoder::new(archive).read_to_end(&mut tar).unwrap();
            let mut tar = tar::Archive::new(tar.as_slice());
            let entries = tar.entries().unwrap().map(Result::unwrap);
            let files = entries.filter(|entry| entry.header().entry_type().is_file());
            files.map(|entry| entry.path().unwrap().display().to_string()).collect()
        };
        let packed = fs::read(folder.join(format!("{NAME}-{version}.tgz"))).unwrap();
        fs::remove_dir_all(folder).unwrap();
        assert_eq!(names(&Chart::read(version).unwrap().archive), names(&packed));
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
