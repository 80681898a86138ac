//! Packs an image as a tar file in two formats at once: an OCI image layout
//! (<https://github.com/opencontainers/image-spec/blob/v1.1.1/image-layout.md>) for containerd, kind and podman, and the format of
//! `docker save` for Docker, by its `manifest.json`.

use std::{collections::BTreeSet, io::Write as _, path::Path};

use anyhow::Result;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// The content of an image.
pub struct Image<'a> {
    pub name: &'a str,
    /// Such as `amd64`.
    pub platform: &'a str,
    /// In RFC 3339.
    pub created: &'a str,
    pub entrypoint: &'a str,
    /// Without their prefix `org.opencontainers.image.`.
    pub labels: &'a [(&'static str, String)],
    pub user: &'a str,
    pub files: &'a [File],
}

/// A file of an image, or of a tar file.
pub struct File {
    pub path: String,
    pub mode: u32,
    /// The kernel's extended attribute.
    pub capabilities: Option<&'static [u8]>,
    pub content: Vec<u8>,
}

/// Content that is addressed by its digest.
struct Blob {
    media: &'static str,
    digest: String,
    content: Vec<u8>,
}

impl Image<'_> {
    /// The tar file and the image's digest. Both depend only on this content.
    pub fn archive(&self) -> Result<(Vec<u8>, String)> {
        let content = tar(self.files)?;
        let diff = digest(&content);
        let layer = Blob::new("layer.v1.tar+gzip", gzip(&content)?);
        let labels: Map<_, _> = self
            .labels
            .iter()
            .map(|(key, value)| (format!("org.opencontainers.image.{key}"), Value::from(value.as_str())))
            .collect();
        let config = Blob::json(
            "config.v1+json",
            &json!({
                "architecture": self.platform,
                "os": "linux",
                "created": self.created,
                "config": {
                    "User": self.user,
                    "Entrypoint": [self.entrypoint],
                    "Cmd": ["run"],
                    "Env": ["PATH=/usr/bin"],
                    "Labels": labels,
                },
                "rootfs": { "type": "layers", "diff_ids": [diff] },
                "history": [{ "created": self.created, "created_by": "cargo xtask image" }],
            }),
        );
        let manifest = Blob::json(
            "manifest.v1+json",
            &json!({
                "schemaVersion": 2,
                "mediaType": Blob::media("manifest.v1+json"),
                "config": config.descriptor(),
                "layers": [layer.descriptor()],
                "annotations": labels,
            }),
        );
        let mut described = manifest.descriptor();
        described["platform"] = json!({ "architecture": self.platform, "os": "linux" });
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        described["annotations"] = json!({
            // The image's name for containerd, and for podman.
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({ "schemaVersion": 2, "manifests": [described] });
        let docker = json!([{ "Config": config.path(), "RepoTags": [self.name], "Layers": [layer.path()] }]);

        let text = |path: &str, content: &Value| File::plain(path, content.to_string().into_bytes());
        let mut files = vec![
            text("oci-layout", &json!({ "imageLayoutVersion": "1.0.0" })),
            text("index.json", &index),
            text("manifest.json", &docker),
        ];
        let digest = manifest.digest.clone();
        files.extend([manifest, config, layer].map(|blob| File::plain(&blob.path(), blob.content)));
        Ok((tar(&files)?, digest))
    }
}

impl File {
    pub fn plain(path: &str, content: Vec<u8>) -> Self {
        Self { path: path.to_owned(), mode: 0o644, capabilities: None, content }
    }
}

impl Blob {
    fn new(media: &'static str, content: Vec<u8>) -> Self {
        Self { media, digest: digest(&content), content }
    }

    fn json(media: &'static str, content: &Value) -> Self {
        Self::new(media, content.to_string().into_bytes())
    }

    fn media(kind: &str) -> String {
        format!("application/vnd.oci.image.{kind}")
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": Self::media(self.media), "digest": self.digest, "size": self.content.len() })
    }

    fn path(&self) -> String {
        format!("blobs/{}", self.digest.replace(':', "/"))
    }
}

/// The digest as OCI names content.
pub fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Without name and time, so that the output is the same for one version of the library.
///
/// # Errors
///
/// Those of the library; none is known.
pub fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(content)?;
    Ok(gzip.finish()?)
}

/// A tar file with these files and their parent folders, owned by root, with modification time 0.
///
/// # Errors
///
/// If a path is too long.
pub fn tar(files: &[File]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    let mut folders = BTreeSet::new();
    for File { path, mode, capabilities, content } in files {
        let mut above: Vec<_> = Path::new(path).ancestors().skip(1).collect();
        above.pop(); // The root.
        for folder in above.into_iter().rev() {
            if folders.insert(folder) {
                tar.append_data(&mut header(EntryType::Directory, 0o755, 0), folder, &[][..])?;
            }
        }
        // As GNU tar and Docker's own tar write it.
        tar.append_pax_extensions(capabilities.map(|value| ("SCHILY.xattr.security.capability", value)))?;
        tar.append_data(&mut header(EntryType::Regular, *mode, content.len()), path, content.as_slice())?;
    }
    Ok(tar.into_inner()?)
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, io::Read as _};

    use flate2::read::GzDecoder;
    use tar::Archive;

    use super::*;

    fn archive() -> (Vec<u8>, String) {
        Image {
            name: "localhost/program:1.0",
            platform: "amd64",
            created: "2026-01-01T00:00:00Z",
            entrypoint: "/usr/bin/program",
            labels: &[("version", "1.0".to_owned())],
            user: "1",
            files: &[
                File {
                    mode: 0o755,
                    capabilities: Some(&[1, 0, 2]),
                    ..File::plain("usr/bin/program", b"code".to_vec())
                },
                File::plain("etc/file", b"text".to_vec()),
            ],
        }
        .archive()
        .unwrap()
    }

    fn files(tar: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 0);
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().display().to_string(), content)
        };
        Archive::new(tar).entries().unwrap().map(read).collect()
    }

    #[test]
    fn blobs_are_named_by_digest_and_every_reference_resolves() {
        let (tar, digest) = archive();
        let files = files(&tar);
        let json = |path: &str| serde_json::from_slice::<Value>(&files[path]).unwrap();
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let path = format!("blobs/{}", digest.replace(':', "/"));
            let content = &files[&path];
            assert_eq!(Blob::new("", content.clone()).digest, digest);
            assert_eq!(descriptor["size"], content.len());
            path
        };
        let index = &json("index.json")["manifests"][0];
        assert_eq!(index["digest"], digest.as_str());
        assert_eq!(index["annotations"]["io.containerd.image.name"], "localhost/program:1.0");
        let manifest = json(&blob(index));
        let (config, layer) = (blob(&manifest["config"]), blob(&manifest["layers"][0]));
        let docker = json("manifest.json");
        assert_eq!(docker[0]["RepoTags"][0], "localhost/program:1.0");
        assert_eq!(docker[0]["Config"], config.as_str());
        assert_eq!(docker[0]["Layers"], json!([layer]));
        assert_eq!(json(&config)["config"]["Labels"]["org.opencontainers.image.version"], "1.0");
    }

    #[test]
    fn the_layer_has_the_files_and_their_parent_folders() {
        let (tar, _) = archive();
        let packed = files(&tar).into_values().find(|content| content.starts_with(&[0x1f, 0x8b])).unwrap();
        let mut layer = Vec::new();
        GzDecoder::new(packed.as_slice()).read_to_end(&mut layer).unwrap();
        let mut entries = Archive::new(layer.as_slice());
        let mut program = entries.entries().unwrap().find_map(|entry| {
            entry.ok().filter(|entry| entry.path().is_ok_and(|path| path.ends_with("program")))
        });
        let extensions = program.as_mut().unwrap().pax_extensions().unwrap().unwrap();
        let values: Vec<_> = extensions.map(|pax| pax.unwrap().value_bytes().to_owned()).collect();
        assert_eq!(values, [[1, 0, 2]]);
        let layer = files(&layer);
        let paths: Vec<_> = layer.keys().collect();
        assert_eq!(paths, ["etc", "etc/file", "usr", "usr/bin", "usr/bin/program"]);
        assert_eq!(layer["usr/bin/program"], b"code");
    }

    #[test]
    fn the_same_content_results_in_the_same_bytes() {
        assert_eq!(archive(), archive());
    }
}
