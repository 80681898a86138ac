//! A case is a request of an API server: lines of headers, an empty line, and a review.

use admission_review::{Context, Verdict, answer, context};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

/// Answers the review.
///
/// # Panics
///
/// If the answer does not admit the object, or has a patch that is not due, or that changes anything but the annotations of a
/// context.
pub fn run(case: &[u8]) {
    let (head, review) = parts(case);
    let context = context(&headers(head), false);
    let Ok((answer, verdict)) = answer(review, &context) else { return };
    let answer: Value = serde_json::from_str(&answer).expect("an answer is JSON");
    let response = &answer["response"];
    assert_eq!(response["allowed"], true, "it forbids");
    let patch = response["patch"].as_str();
    assert_eq!(patch.is_some(), verdict == Verdict::Injected, "{answer}");
    let Some(patch) = patch else { return };
    assert!(matches!(context, Context::Wanted(_)), "{answer}");
    let patch = BASE64_STANDARD.decode(patch).expect("a patch is base64");
    let steps: Vec<Value> = serde_json::from_slice(&patch).expect("a patch is a list");
    for step in steps {
        let path = step["path"].as_str().expect("a step has a path");
        let (_, of_template) = path.rsplit_once("/metadata").expect("a step is about metadata");
        let value = &step["value"];
        let added: Vec<&str> = match of_template {
            "" => keys(&value["annotations"]),
            "/annotations" => keys(value),
            key => vec![key.strip_prefix("/annotations/").expect("a step is about annotations")],
        };
        assert!(added.iter().all(|key| key.starts_with("tracing.k8s.io")), "{step}");
        assert_eq!(step["op"], "add", "{step}");
    }
}

/// What is before the first empty line, and what is behind it.
fn parts(case: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memmem::find(case, b"\n\n") {
        Some(end) => (&case[..end], &case[end + 2..]),
        None => (&[], case),
    }
}

/// The lines that are headers.
fn headers(head: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in head.split(|byte| *byte == b'\n').take(64) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().expect("annotations are an object").keys().map(String::as_str).collect()
}
