//! The manifest for krew, kubectl's manager of plugins: the one in the tree, with version and checksums of this release.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use xtask::{image::archive::digest, paths};

/// The manifest in the tree, in which checksums are zeros.
const MANIFEST: &str = "deploy/krew/schedspan.yaml";
/// What a line with a checksum begins with.
const CHECKSUM: &str = "sha256: ";

/// The manifest with the checksums of these archives, by the ends of their addresses.
///
/// # Errors
///
/// If it is of another version, or names an archive that is not one of these.
pub(crate) fn manifest(version: &str, archives: &[(String, &[u8])]) -> Result<String> {
    let path = paths::repository().join(MANIFEST);
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{MANIFEST}`"))?;
    filled(&text, version, archives)
}

fn filled(text: &str, version: &str, archives: &[(String, &[u8])]) -> Result<String> {
    ensure!(text.contains(&format!("\n  version: v{version}\n")), "`{MANIFEST}` is not of version {version}");
    let (mut out, mut of) = (String::new(), None);
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(address) = trimmed.strip_prefix("uri: ") {
            let named = archives.iter().find(|(name, _)| address.ends_with(&format!("/v{version}/{name}")));
            of = Some(named.with_context(|| {
                format!("`{MANIFEST}` names `{address}`, which the release does not have")
            })?);
        }
        if trimmed.starts_with(CHECKSUM) {
            let (_, content) =
                of.take().with_context(|| format!("`{MANIFEST}` has a checksum without an address"))?;
            let sum = digest(content);
            out += &format!(
                "{}{CHECKSUM}\"{}\"\n",
                &line[..line.len() - trimmed.len()],
                sum.trim_start_matches("sha256:")
            );
        } else {
            out += line;
            out.push('\n');
        }
    }
    ensure!(of.is_none(), "`{MANIFEST}` has an address without a checksum");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_the_checksum_of_its_archive() {
        let text = "a:\n  version: v1.0\n      uri: https://host/v1.0/one.tar.gz\n      sha256: \"0\"\n      bin: b\n";
        let made =
            filled(text, "1.0", &[("two.tar.gz".into(), b"2"), ("one.tar.gz".into(), b"one")]).unwrap();
        let sum = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
        assert_eq!(made, text.replace("sha256: \"0\"", &format!("sha256: \"{sum}\"")));
        for (version, name) in [("2.0", "one.tar.gz"), ("1.0", "two.tar.gz")] {
            assert!(filled(text, version, &[(name.into(), b"one")]).is_err(), "{version} {name}");
        }
    }

    #[test]
    fn the_manifest_in_the_tree_names_the_archives_of_a_release() {
        let version = env!("CARGO_PKG_VERSION");
        let archives = ["amd64", "arm64"]
            .map(|platform| (format!("schedspan-{version}-linux-{platform}.tar.gz"), &b"content"[..]));
        let made = manifest(version, &archives).unwrap();
        assert!(!made.contains("0000000000000000"), "{made}");
    }
}
