//! OCI image layouts, each as one tar file: <https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md>.

use std::{collections::BTreeMap, io::Read as _};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use xtask::image::archive::{File, digest, tar};

/// Media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of a manifest.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// What a layout holds, by digest.
#[derive(Debug, Default)]
pub struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Adds content, and returns its descriptor.
    pub fn add(&mut self, media: &str, content: Vec<u8>) -> Value {
        let (digest, size) = (digest(&content), content.len());
        self.0.insert(digest.clone(), content);
        json!({ "mediaType": media, "digest": digest, "size": size })
    }

    /// The layout, in which this descriptor is what the name leads to.
    ///
    /// # Errors
    ///
    /// If the tar file cannot be written.
    pub fn layout(self, mut descriptor: Value, name: &str, tag: &str) -> Result<Vec<u8>> {
        descriptor["annotations"] = json!({
            // The name for containerd, and for podman and skopeo.
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor] });
        let mut files = vec![
            File::plain("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string().into_bytes()),
            File::plain("index.json", index.to_string().into_bytes()),
        ];
        files.extend(self.0.into_iter().map(|(digest, content)| File::plain(&path(&digest), content)));
        tar(&files)
    }

    /// Adds the content of an image's layout, and returns the descriptor of its manifest.
    ///
    /// # Errors
    ///
    /// If it is not a layout of one image.
    pub fn merge(&mut self, layout: &[u8]) -> Result<Value> {
        let mut index = None;
        for entry in tar::Archive::new(layout).entries()? {
            let mut entry = entry?;
            let path = entry.path()?.display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            if path == "index.json" {
                index = Some(serde_json::from_slice::<Value>(&content)?);
            } else if path.starts_with("blobs/") && !content.is_empty() {
                self.0.insert(digest(&content), content);
            }
        }
        let mut descriptor = index.context("it has no index.json")?["manifests"][0].take();
        descriptor.as_object_mut().context("it has no manifest")?.remove("annotations");
        Ok(descriptor)
    }
}

fn path(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The files of a tar file.
    pub(crate) fn files(tar: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 0);
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        };
        tar::Archive::new(tar).entries().unwrap().map(read).collect()
    }

    /// What a descriptor leads to, after a check of its digest and its size.
    pub(crate) fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
        let named = descriptor["digest"].as_str().unwrap();
        let content = &files[&path(named)];
        assert_eq!(digest(content), named);
        assert_eq!(descriptor["size"], content.len());
        content
    }

    #[test]
    fn a_layout_resolves_from_its_index_to_its_blobs_and_is_the_same_every_time() {
        let make = || {
            let mut blobs = Blobs::default();
            let layer = blobs.add("layer", b"content".to_vec());
            let manifest = json!({ "layers": [layer] }).to_string().into_bytes();
            let manifest = blobs.add(MANIFEST, manifest);
            blobs.layout(manifest, "localhost/program:1.0", "1.0").unwrap()
        };
        let files = files(&make());
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let descriptor = &index["manifests"][0];
        assert_eq!(descriptor["annotations"]["org.opencontainers.image.ref.name"], "1.0");
        let manifest: Value = serde_json::from_slice(blob(&files, descriptor)).unwrap();
        assert_eq!(blob(&files, &manifest["layers"][0]), b"content");
        assert_eq!(make(), make());
    }
}
