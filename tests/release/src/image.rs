//! The image for both architectures, and the executables in it.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use xtask::{
    image::{
        self as one,
        archive::{File, gzip, tar},
    },
    machine::{MACHINES, Machine},
    paths,
};

use crate::layout::{Blobs, INDEX};

/// What the build of all architectures makes.
pub(crate) struct Built {
    /// The layout with an image for each.
    pub(crate) index: Vec<u8>,
    /// Of the index.
    pub(crate) digest: String,
    pub(crate) machines: Vec<OfMachine>,
}

/// What the build for an architecture makes.
pub(crate) struct OfMachine {
    pub(crate) platform: &'static str,
    /// An archive with the static executable and its licences.
    pub(crate) program: Vec<u8>,
    /// The packages that are compiled into it, as SPDX.
    pub(crate) packages: Value,
}

/// Builds everything for all architectures, one after the other.
pub(crate) fn build(version: &str) -> Result<Built> {
    let (mut layouts, mut machines) = (Vec::new(), Vec::new());
    for machine in &MACHINES {
        let archive = one::image(machine, None)?;
        layouts.push(fs::read(&archive)?);
        let packages = fs::read(archive.with_extension("spdx.json"))?;
        machines.push(OfMachine {
            platform: machine.platform,
            program: program(machine)?,
            packages: serde_json::from_slice(&packages).context("the list of packages is not JSON")?,
        });
    }
    let (index, digest) = index(&layouts, version)?;
    Ok(Built { index, digest, machines })
}

/// One layout of the layouts of images, and the digest of the index in it.
fn index(images: &[Vec<u8>], version: &str) -> Result<(Vec<u8>, String)> {
    let mut blobs = Blobs::default();
    let manifests: Vec<_> = images.iter().map(|image| blobs.merge(image)).collect::<Result<_>>()?;
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let descriptor = blobs.add(INDEX, index.to_string().into_bytes());
    let digest = descriptor["digest"].as_str().unwrap_or_default().to_owned();
    Ok((blobs.layout(descriptor, one::NAME, version)?, digest))
}

/// The archive with the executable that the image of this machine has, in the folder that the build of the image leaves.
fn program(machine: &Machine) -> Result<Vec<u8>> {
    let built = paths::target().join("oci").join(machine.arch);
    let file = |name: &str, from: &str, mode: u32| -> Result<File> {
        let path = built.join(from);
        let content = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        Ok(File { mode, ..File::plain(name, content) })
    };
    gzip(&tar(&[
        file("schedspan", "usr/bin/schedspan", 0o755)?,
        file("LICENSE", "usr/share/doc/schedspan/LICENSE", 0o644)?,
        file("LICENSE-GPL-2.0", "usr/share/doc/schedspan/LICENSE-GPL-2.0", 0o644)?,
    ])?)
}

#[cfg(test)]
mod tests {
    use xtask::image::archive::Image;

    use super::*;
    use crate::layout::tests::{blob, files};

    fn image(platform: &str) -> Vec<u8> {
        let files = [File::plain("usr/bin/program", platform.as_bytes().to_vec())];
        let image = Image {
            name: "localhost/program:1.0",
            platform,
            created: "2026-01-01T00:00:00Z",
            entrypoint: "/usr/bin/program",
            labels: &[],
            user: "0",
            files: &files,
        };
        image.archive().unwrap().0
    }

    #[test]
    fn the_index_leads_to_the_image_of_each_architecture() {
        let (layout, digest) = index(&[image("amd64"), image("arm64")], "1.0").unwrap();
        let files = files(&layout);
        let top: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        assert_eq!(top["manifests"][0]["digest"], digest.as_str());
        let index: Value = serde_json::from_slice(blob(&files, &top["manifests"][0])).unwrap();
        let platforms: Vec<_> = index["manifests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|manifest| {
                let content: Value = serde_json::from_slice(blob(&files, manifest)).unwrap();
                let config: Value = serde_json::from_slice(blob(&files, &content["config"])).unwrap();
                assert!(!blob(&files, &content["layers"][0]).is_empty());
                assert_eq!(manifest["platform"]["architecture"], config["architecture"]);
                config["architecture"].as_str().unwrap().to_owned()
            })
            .collect();
        assert_eq!(platforms, ["amd64", "arm64"]);
    }
}
