//! The API server's audit log: who changes what, in the API server's own words.

use std::{fs, ops::Range, path::Path};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::json;

const LOG: &str = "audit.jsonl";
/// What may change something, by HTTP method.
const WRITES: [(&str, &str); 5] = [
    ("create", "POST"),
    ("update", "PUT"),
    ("patch", "PATCH"),
    ("delete", "DELETE"),
    ("deletecollection", "DELETE"),
];

/// A request that may have changed something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    pub method: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    /// Empty for what is to be created.
    pub name: String,
    /// HTTP status of the answer.
    pub code: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    verb: String,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    response_status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    code: u32,
}

/// Writes the policy, and gives the API server's flags.
pub(crate) fn arguments(dir: &Path) -> Result<[String; 3]> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "Metadata", "verbs": WRITES.map(|(verb, _)| verb) },
            { "level": "None" },
        ],
    });
    let path = dir.join("audit-policy.json");
    fs::write(&path, serde_json::to_vec_pretty(&policy)?)?;
    Ok([
        format!("--audit-policy-file={}", path.display()),
        format!("--audit-log-path={}", dir.join(LOG).display()),
        // Each line is written before its request is answered.
        "--audit-log-mode=blocking".into(),
    ])
}

/// How long the log of a cluster in this folder is: there is a line for each request that has been answered.
///
/// # Errors
///
/// If there is no log.
pub fn length(dir: &Path) -> Result<usize> {
    let log = fs::metadata(dir.join(LOG)).context("the API server writes no audit log")?;
    Ok(usize::try_from(log.len())?)
}

/// The writes in a part of the log, of clients with such a user agent.
///
/// # Errors
///
/// If the log cannot be read.
pub fn writes(dir: &Path, part: Range<usize>, is_of: impl Fn(&str) -> bool) -> Result<Vec<Write>> {
    let log = fs::read(dir.join(LOG)).context("cannot read the audit log")?;
    let part = log.get(part).context("the audit log has become shorter")?;
    let mut writes = Vec::new();
    for line in str::from_utf8(part)?.lines() {
        let event: Event = serde_json::from_str(line).with_context(|| format!("no audit event: {line}"))?;
        let method = WRITES.into_iter().find(|(verb, _)| *verb == event.verb);
        let Some((_, method)) = method.filter(|_| is_of(&event.user_agent)) else { continue };
        let ObjectRef { resource, subresource, namespace, name } = event.object_ref;
        let name = if method == "POST" { String::new() } else { name };
        let (method, code) = (method.to_owned(), event.response_status.code.to_string());
        writes.push(Write { method, resource, subresource, namespace, name, code });
    }
    Ok(writes)
}
