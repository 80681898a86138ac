//! The packages that are compiled into the executable, as a document of SPDX 2.3 in JSON
//! (<https://spdx.github.io/spdx-spec/v2.3/>).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{machine::Machine, paths, process};

/// The packages of the workspace that become the executable: the daemon, and the eBPF object in it.
const ROOTS: [&str; 2] = ["tracer", "tracer-ebpf"];

/// The document of an image with this digest, made at this time in RFC 3339.
///
/// # Errors
///
/// If cargo does not describe the packages, or `Cargo.lock` is out of date.
pub(super) fn document(machine: &Machine, name: &str, digest: &str, created: &str) -> Result<Value> {
    let mut metadata = Command::new("cargo");
    metadata.args(["metadata", "--locked", "--format-version=1", "--filter-platform", machine.target]);
    let metadata = process::output(metadata.current_dir(paths::repository()))?;
    let lock = fs::read_to_string(paths::repository().join("Cargo.lock"))?;
    of(&serde_json::from_str(&metadata)?, &checksums(&lock), name, digest, created)
}

fn of(
    metadata: &Value,
    checksums: &BTreeMap<(&str, &str), &str>,
    name: &str,
    digest: &str,
    created: &str,
) -> Result<Value> {
    let list =
        |value: &'static str| metadata[value].as_array().with_context(|| format!("cargo lists no {value}"));
    let packages: BTreeMap<_, _> =
        list("packages")?.iter().map(|package| (text(package, "id"), package)).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().context("cargo has resolved nothing")?;
    let nodes: BTreeMap<_, _> = nodes.iter().map(|node| (text(node, "id"), node)).collect();

    let is_root = |id: &&str| packages.get(id).is_some_and(|package| ROOTS.contains(&text(package, "name")));
    let mut open: Vec<&str> = nodes.keys().copied().filter(is_root).collect();
    let mut relations: Vec<_> =
        open.iter().map(|id| relation("SPDXRef-DOCUMENT", "DESCRIBES", &identifier(packages[id]))).collect();
    let mut compiled = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !compiled.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
        for dependency in dependencies.filter(|dependency| is_linked(dependency)) {
            let on = text(dependency, "pkg");
            let package = packages.get(on).with_context(|| format!("cargo does not describe `{on}`"))?;
            relations.push(relation(&identifier(packages[id]), "DEPENDS_ON", &identifier(package)));
            open.push(on);
        }
    }
    let packages: Vec<_> = compiled.iter().map(|id| package(packages[id], checksums)).collect();
    Ok(json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": format!("{}/sbom/{}", env!("CARGO_PKG_REPOSITORY"), digest.replace(':', "-")),
        "creationInfo": { "created": created, "creators": ["Tool: cargo xtask image"] },
        "packages": packages,
        "relationships": relations,
    }))
}

/// Whether a dependency is compiled into what depends on it: not one of tests, and not one of a build script.
fn is_linked(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
}

fn package(package: &Value, checksums: &BTreeMap<(&str, &str), &str>) -> Value {
    let (name, version) = (text(package, "name"), text(package, "version"));
    // Before SPDX expressions, a slash stood for `OR`.
    let license =
        package["license"].as_str().map_or("NOASSERTION".to_owned(), |text| text.replace('/', " OR "));
    let checksum = checksums.get(&(name, version));
    let checksums: Vec<_> =
        checksum.iter().map(|sum| json!({ "algorithm": "SHA256", "checksumValue": sum })).collect();
    let mut described = json!({
        "SPDXID": identifier(package),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": license,
        "copyrightText": "NOASSERTION",
        "checksums": checksums,
    });
    // Those of this workspace are in no registry.
    if checksum.is_some() {
        described["externalRefs"] = json!([{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")),
        }]);
    }
    described
}

/// Of a package: letters, digits, dots and hyphens only.
fn identifier(package: &Value) -> String {
    let plain =
        |text: &str| text.replace(|symbol: char| !symbol.is_ascii_alphanumeric() && symbol != '.', "-");
    format!("SPDXRef-{}-{}", plain(text(package, "name")), plain(text(package, "version")))
}

fn relation(from: &str, kind: &str, to: &str) -> Value {
    json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to })
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The checksums in a `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let packages = lock.split("[[package]]").skip(1).filter_map(|package| {
        let value = |key: &str| {
            let mut lines = package.lines();
            lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    });
    packages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"tracer\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"aya\"\nversion = \"1.0.0+x\"\n\
        source = \"registry\"\nchecksum = \"abc\"\n";

    fn dependency(id: &str, kind: Option<&str>) -> Value {
        json!({ "pkg": id, "dep_kinds": [{ "kind": kind, "target": null }] })
    }

    #[test]
    fn what_is_linked_is_listed_with_its_checksum_and_nothing_else_is() {
        let package = |id: &str, name: &str, version: &str, license: Option<&str>| json!({ "id": id, "name": name, "version": version, "license": license });
        let metadata = json!({
            "packages": [
                package("t", "tracer", "0.1.0", Some("Apache-2.0")),
                package("a", "aya", "1.0.0+x", Some("MIT/Apache-2.0")),
                package("p", "proptest", "1.0.0", None),
                package("x", "xtask", "0.1.0", None),
            ],
            "resolve": { "nodes": [
                { "id": "t", "deps": [dependency("a", None), dependency("p", Some("dev"))] },
                { "id": "a", "deps": [dependency("p", Some("build"))] },
                { "id": "p", "deps": [] },
                { "id": "x", "deps": [dependency("p", None)] },
            ] },
        });
        let document = of(&metadata, &checksums(LOCK), "image", "sha256:1", "2026-01-01T00:00:00Z").unwrap();
        let packages = document["packages"].as_array().unwrap();
        assert_eq!(
            packages.iter().map(|package| text(package, "name")).collect::<Vec<_>>(),
            ["aya", "tracer"]
        );
        assert_eq!(packages[0]["licenseDeclared"], "MIT OR Apache-2.0");
        assert_eq!(packages[0]["checksums"][0]["checksumValue"], "abc");
        assert_eq!(packages[0]["externalRefs"][0]["referenceLocator"], "pkg:cargo/aya@1.0.0%2Bx");
        assert!(packages[1]["externalRefs"].is_null());
        assert_eq!(
            document["relationships"],
            json!([
                relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-tracer-0.1.0"),
                relation("SPDXRef-tracer-0.1.0", "DEPENDS_ON", "SPDXRef-aya-1.0.0-x"),
            ])
        );
    }
}
