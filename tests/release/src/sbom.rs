//! The packages that are compiled into an executable, as CycloneDX 1.6: <https://cyclonedx.org/docs/1.6/json/>.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use xtask::image::archive::digest;

/// The same as a document of SPDX, which lies beside the image.
pub(crate) fn cyclonedx(spdx: &Value, version: &str) -> Result<Value> {
    let list = |key: &'static str| {
        spdx[key].as_array().with_context(|| format!("the list of packages has no {key}"))
    };
    let components: Vec<_> = list("packages")?.iter().map(component).collect();
    let mut dependencies: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut described = Vec::new();
    for relation in list("relationships")? {
        let end = |key: &str| relation[key].as_str().unwrap_or_default();
        let (from, to) = (end("spdxElementId"), end("relatedSpdxElement"));
        match end("relationshipType") {
            "DEPENDS_ON" => dependencies.entry(from).or_default().push(to),
            "DESCRIBES" => described.push(to),
            other => anyhow::bail!("the list of packages has a relation `{other}`"),
        }
    }
    let dependencies = std::iter::once(json!({ "ref": "schedspan", "dependsOn": described }))
        .chain(dependencies.into_iter().map(|(of, on)| json!({ "ref": of, "dependsOn": on })));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": serial(&spdx["documentNamespace"]),
        "version": 1,
        "metadata": {
            "timestamp": spdx["creationInfo"]["created"],
            "tools": { "components": [{ "type": "application", "name": "cargo xtask release" }] },
            "component": {
                "type": "application",
                "bom-ref": "schedspan",
                "name": "schedspan",
                "version": version,
                "licenses": [{ "expression": env!("CARGO_PKG_LICENSE") }],
            },
        },
        "components": components,
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

fn component(package: &Value) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": package["SPDXID"],
        "name": package["name"],
        "version": package["versionInfo"],
    });
    if package["licenseDeclared"] != "NOASSERTION" {
        component["licenses"] = json!([{ "expression": package["licenseDeclared"] }]);
    }
    if let Some(sum) = package["checksums"][0]["checksumValue"].as_str() {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if let Some(purl) = package["externalRefs"][0]["referenceLocator"].as_str() {
        component["purl"] = purl.into();
    }
    component
}

/// A UUID that follows from what the document is about: version 8 of <https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-8>.
fn serial(of: &Value) -> String {
    let digest = digest(of.to_string().as_bytes());
    let hex = digest.trim_start_matches("sha256:");
    format!("urn:uuid:{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_keep_licence_checksum_and_relations() {
        let relation = |from: &str, kind: &str, to: &str| json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to });
        let spdx = json!({
            "documentNamespace": "x",
            "creationInfo": { "created": "2026-01-01T00:00:00Z" },
            "packages": [
                { "SPDXID": "SPDXRef-aya", "name": "aya", "versionInfo": "1.0.0", "licenseDeclared": "MIT OR Apache-2.0",
                  "checksums": [{ "checksumValue": "abc" }], "externalRefs": [{ "referenceLocator": "pkg:cargo/aya@1.0.0" }] },
                { "SPDXID": "SPDXRef-tracer", "name": "tracer", "versionInfo": "0.1.0", "licenseDeclared": "NOASSERTION", "checksums": [] },
            ],
            "relationships": [
                relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-tracer"),
                relation("SPDXRef-tracer", "DEPENDS_ON", "SPDXRef-aya"),
            ],
        });
        let bom = cyclonedx(&spdx, "1.0").unwrap();
        assert_eq!(
            bom["components"],
            json!([
                { "type": "library", "bom-ref": "SPDXRef-aya", "name": "aya", "version": "1.0.0", "purl": "pkg:cargo/aya@1.0.0",
                  "licenses": [{ "expression": "MIT OR Apache-2.0" }], "hashes": [{ "alg": "SHA-256", "content": "abc" }] },
                { "type": "library", "bom-ref": "SPDXRef-tracer", "name": "tracer", "version": "0.1.0" },
            ])
        );
        assert_eq!(
            bom["dependencies"],
            json!([
                { "ref": "schedspan", "dependsOn": ["SPDXRef-tracer"] },
                { "ref": "SPDXRef-tracer", "dependsOn": ["SPDXRef-aya"] },
            ])
        );
        let serial = bom["serialNumber"].as_str().unwrap();
        assert_eq!(serial.len(), "urn:uuid:00000000-0000-8000-8000-000000000000".len());
        assert_eq!(bom, cyclonedx(&spdx, "1.0").unwrap());
    }
}
