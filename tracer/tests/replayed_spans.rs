//! What the recorded streams become, span by span: `schedspan replay -o json` next to the files in the tree.
//!
//! `tests/streams/VERSION.spans.jsonl` holds one span per line, with its resource on the line that begins a batch. Trace and span
//! ids are replaced by the order in which they appear: which span belongs to which counts, the numbers do not.
//!
//! `UPDATE_SPANS=1 cargo test --test replayed_spans` writes the files again, for a change that is meant.

use std::{
    collections::HashMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

const STREAMS: [&str; 5] = ["1.29", "1.33", "1.34", "1.36", "1.37"];
/// Keys of OTLP JSON whose values are ids.
const IDS: [&str; 3] = ["traceId", "spanId", "parentSpanId"];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/streams").join(name)
}

/// Replaces each id by the number of ids that came before it.
fn number_ids(value: &mut Value, seen: &mut HashMap<String, usize>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(id) if IDS.contains(&key.as_str()) && !id.is_empty() => {
                        let next = seen.len();
                        *id = format!("#{}", seen.entry(id.clone()).or_insert(next));
                    }
                    other => number_ids(other, seen),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| number_ids(value, seen)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The spans of one stream, a line each, behind the resource and the scope that they have in common.
fn replayed(version: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_schedspan"))
        .arg("replay")
        .arg(file(&format!("{version}.jsonl")))
        .args(["-o", "json"])
        .env_remove("OTEL_RESOURCE_ATTRIBUTES")
        .env_remove("OTEL_SERVICE_NAME")
        .output()
        .expect("schedspan is built with this test");
    assert!(output.status.success(), "{version}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let (mut lines, mut seen) = (Vec::new(), HashMap::new());
    for line in text.lines() {
        let mut batch: Value = serde_json::from_str(line).expect("each line is JSON");
        number_ids(&mut batch, &mut seen);
        for resource in batch["resourceSpans"].as_array_mut().expect("OTLP has a list of resources") {
            for scope in resource["scopeSpans"].as_array_mut().expect("OTLP has a list of scopes") {
                let spans = scope["spans"].take();
                let spans = spans.as_array().expect("OTLP has a list of spans").clone();
                lines.push(serde_json::json!({ "scope": scope["scope"] }).to_string());
                lines.extend(spans.iter().map(Value::to_string));
            }
            // Its order is that of a hash table.
            if let Some(attributes) = resource["resource"]["attributes"].as_array_mut() {
                attributes.sort_by_key(|attribute| attribute["key"].to_string());
            }
            lines.push(serde_json::json!({ "resource": resource["resource"] }).to_string());
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn each_stream_gives_the_spans_that_are_in_the_tree() {
    for version in STREAMS {
        let spans = replayed(version);
        assert!(spans.lines().count() > 250, "{version}: the stream gives {} lines", spans.lines().count());
        let file = file(&format!("{version}.spans.jsonl"));
        if env::var_os("UPDATE_SPANS").is_some() {
            fs::write(&file, &spans).expect("the tree can be written");
        }
        let expected = fs::read_to_string(&file).expect("the spans are in the tree");
        for (number, (found, expected)) in spans.lines().zip(expected.lines()).enumerate() {
            assert_eq!(found, expected, "{version}: line {}", number + 1);
        }
        assert_eq!(
            spans.lines().count(),
            expected.lines().count(),
            "{version}: spans are missing or too many"
        );
    }
}
