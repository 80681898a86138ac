//! Terms of Pods: each root says those that the test has put into its Pod's spec, and `top` has them.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use harness::{http::agent, schedspan::Schedspan, spans::Span};
use serde_json::Value;

/// Terms of the Pods whose names begin like this. All others have none.
const TERMS: [(&str, &[&str]); 7] = [
    ("low-", &["node selector"]),
    ("high-", &["node selector"]),
    ("volume-", &["volume claims"]),
    ("never-volume-", &["volume claims"]),
    ("affinity-", &["required Node affinity", "preferred Node affinity"]),
    ("together-", &["required Pod affinity"]),
    ("apart-", &["required Pod anti-affinity"]),
];
/// The term of the Pods that are created last: their attempts are in the last minute.
const LAST: &str = "node selector";

/// What `top` knows of terms: a row for each.
pub(super) fn rows(schedspan: &Schedspan) -> Result<Vec<Value>> {
    let url = format!("http://{}/api/v1/top", schedspan.address("debug"));
    let answer = agent(Path::new(""))?.get(url).call()?.body_mut().read_to_string()?;
    let top: Value = serde_json::from_str(&answer)?;
    Ok(top["terms"].as_array().cloned().unwrap_or_default())
}

pub(super) fn check(spans: &[Span], rows: &[Value]) -> Result<()> {
    let mut with = 0;
    for root in spans.iter().filter(|span| span.is_root()) {
        let pod = root.pod();
        let wanted = TERMS.iter().find(|(name, _)| pod.starts_with(name)).map_or(&[][..], |(_, terms)| terms);
        let said = root.list("k8s.pod.scheduling_terms");
        ensure!(said == wanted, "the root of {pod} says the terms {said:?} instead of {wanted:?}");
        with += usize::from(!wanted.is_empty());
    }
    let Some(row) = rows.iter().find(|row| row["term"] == LAST) else {
        bail!("top has no row for `{LAST}`: {rows:?}")
    };
    let number = |of: &str| row.pointer(of).and_then(Value::as_u64).unwrap_or_default();
    let (attempts, without) = (number("/with/attempts"), number("/without/attempts"));
    ensure!(attempts >= 10 && number("/with/filterNs") > 0, "too little of `{LAST}`: {row}");
    println!(
        "         {with} attempts say the terms of their Pods; top has {} of them, `{LAST}` with {attempts} attempts beside {without}",
        rows.len()
    );
    Ok(())
}
