//! Reviews as API servers send them, and hostile ones.

use proptest::prelude::{Just, Strategy as _, any, prop_oneof, proptest};

use http::{HeaderName, HeaderValue};

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn context(trace_state: &str) -> Context {
    let context = traceparent(PARENT).unwrap();
    Context::Wanted(RemoteContext { trace_state: trace_state.to_owned(), ..context })
}

fn review(group: &str, kind: &str, object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5",
            "kind": { "group": group, "version": "v1", "kind": kind },
            "operation": "CREATE",
            "userInfo": { "username": "admin" },
            "object": object,
            "oldObject": null,
            "dryRun": false,
        },
    })
}

/// What the object becomes, and what it comes to.
fn answered(review: &Value, context: &Context) -> (Value, Verdict) {
    let (text, verdict) = answer(review.to_string().as_bytes(), context).unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
    assert_eq!(answer["response"]["allowed"], true);
    let mut object = review["request"]["object"].clone();
    let patch = answer["response"]["patch"].as_str();
    assert_eq!(patch.is_some(), verdict == Verdict::Injected, "{text}");
    if let Some(patch) = patch {
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
        let patch: Vec<Value> = serde_json::from_slice(&BASE64_STANDARD.decode(patch).unwrap()).unwrap();
        patch.iter().for_each(|step| apply(&mut object, step));
    }
    (object, verdict)
}

/// `add` of RFC 6902, to an object that is there.
fn apply(object: &mut Value, step: &Value) {
    assert_eq!(step["op"], "add");
    let (parent, last) = step["path"].as_str().unwrap().rsplit_once('/').unwrap();
    let parent =
        object.pointer_mut(parent).and_then(Value::as_object_mut).expect("what is added to is there");
    parent.insert(last.replace("~1", "/").replace("~0", "~"), step["value"].clone());
}

fn with(path: &str, metadata: &Value) -> Value {
    match path.split_once('/') {
        None if path.is_empty() => json!({ "metadata": metadata, "spec": { "containers": [] } }),
        None => json!({ "metadata": { "name": "x" }, "spec": { path: with("", metadata) } }),
        Some((first, rest)) => {
            json!({ "metadata": { "name": "x" }, "spec": { first: with(rest, metadata) } })
        }
    }
}

#[test]
fn every_workload_gets_the_context_in_its_pod_template() {
    for (group, kind, path) in [
        ("", "Pod", ""),
        ("apps", "Deployment", "template"),
        ("apps", "StatefulSet", "template"),
        ("apps", "DaemonSet", "template"),
        ("apps", "ReplicaSet", "template"),
        ("batch", "Job", "template"),
        ("batch", "CronJob", "jobTemplate/template"),
    ] {
        for (state, annotations) in [
            ("", json!({ TRACEPARENT_KEY: PARENT })),
            ("a=1", json!({ TRACEPARENT_KEY: PARENT, TRACESTATE_KEY: "a=1" })),
        ] {
            for metadata in [
                json!({}),
                json!({ "labels": { "a": "b" } }),
                json!({ "annotations": null }),
                json!({ "annotations": {} }),
            ] {
                let object = with(path, &metadata);
                let (changed, verdict) = answered(&review(group, kind, &object), &context(state));
                assert_eq!(verdict, Verdict::Injected, "{kind} {metadata}");
                let mut expected = metadata.clone();
                expected["annotations"] = annotations.clone();
                assert_eq!(changed, with(path, &expected), "{kind} {metadata}");
            }
            let others = json!({ "annotations": { "traceparent": "x", "a/b~c": "d" } });
            let (changed, _) = answered(&review(group, kind, &with(path, &others)), &context(state));
            let mut expected = others.clone();
            for (key, value) in annotations.as_object().unwrap() {
                expected["annotations"][key] = value.clone();
            }
            assert_eq!(changed, with(path, &expected), "{kind}");

            let (changed, verdict) =
                answered(&review(group, kind, &with(path, &Value::Null)), &context(state));
            assert_eq!(
                (changed, verdict),
                (with(path, &json!({ "annotations": annotations })), Verdict::Injected)
            );
        }
    }
}

#[test]
fn an_existing_annotation_stays() {
    for annotations in [
        json!({ TRACEPARENT_KEY: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" }),
        json!({ TRACEPARENT_KEY: "junk" }),
        json!({ TRACEPARENT_KEY: "" }),
        json!({ TRACESTATE_KEY: "a=1" }),
    ] {
        for (group, kind, path) in [("", "Pod", ""), ("apps", "Deployment", "template")] {
            let object = with(path, &json!({ "annotations": annotations }));
            assert_eq!(answered(&review(group, kind, &object), &context("b=2")), (object, Verdict::Present));
        }
    }
}

#[test]
fn objects_without_pods_and_updates_pass_unchanged() {
    let pod = with("", &json!({}));
    let changed = |pointer: &str, value: Value| {
        let mut review = review("", "Pod", &pod);
        match review.pointer_mut(pointer) {
            Some(old) => *old = value,
            None => review["request"]["subResource"] = value,
        }
        review
    };
    for review in [
        review("apps", "Pod", &pod),
        review("", "ConfigMap", &json!({ "metadata": {} })),
        review("apps", "Deployment", &json!({ "metadata": {} })),
        review("apps", "Deployment", &json!({ "metadata": {}, "spec": {} })),
        review("batch", "CronJob", &with("template", &json!({}))),
        changed("/request/operation", "UPDATE".into()),
        changed("/request/operation", "DELETE".into()),
        changed("/request/object", Value::Null),
        changed("/request/subResource", "binding".into()),
    ] {
        let (_, verdict) = answered(&review, &context(""));
        assert_eq!(verdict, Verdict::NotConcerned, "{review}");
    }
}

#[test]
fn without_a_wanted_context_a_pod_passes_unchanged() {
    let pod = with("", &json!({}));
    for verdict in [Verdict::NoContext, Verdict::NotSampled, Verdict::InvalidContext] {
        assert_eq!(answered(&review("", "Pod", &pod), &Context::Unwanted(verdict)), (pod.clone(), verdict));
    }
}

/// Hostile reviews, and the message of the refusal.
#[test]
fn hostile_reviews_are_refused_with_a_reason() {
    let good = review("", "Pod", &with("", &json!({})));
    let changed = |pointer: &str, value: Value| {
        let mut review = good.clone();
        *review.pointer_mut(pointer).unwrap() = value;
        review.to_string()
    };
    let nested = r#"{"spec":{"template":"#.repeat(10_000);
    for (body, reason) in [
        (String::new(), "not a review: EOF"),
        ("null".into(), "not a review"),
        ("[]".into(), "not a review"),
        ("{".into(), "not a review: EOF"),
        ("{}".into(), "missing field `apiVersion`"),
        (good.to_string() + "x", "trailing characters"),
        (good.to_string()[..100].to_owned(), "EOF"),
        (
            changed("/apiVersion", "admission.k8s.io/v1beta1".into()),
            "`AdmissionReview` of `admission.k8s.io/v1beta1` is not served",
        ),
        (changed("/apiVersion", 1.into()), "invalid type"),
        (
            changed("/kind", "ConversionReview".into()),
            "`ConversionReview` of `admission.k8s.io/v1` is not served",
        ),
        (changed("/request", Value::Null), "no request"),
        (changed("/request", json!([])), "not a review"),
        (changed("/request/uid", "".into()), "no uid"),
        (changed("/request/uid", 7.into()), "invalid type"),
        (changed("/request/kind", "Pod".into()), "invalid type"),
        (changed("/request/object", "x".into()), "invalid type"),
        (changed("/request/object/metadata", json!([1])), "invalid type"),
        (changed("/request/object/spec", 7.into()), "invalid type"),
        (changed("/request/object/metadata", json!({ "annotations": "x" })), "invalid type"),
        (good.to_string().replace(r#""uid":"705ab4f5""#, r#""other":"""#), "no uid"),
        (good.to_string().replace(r#""operation":"CREATE","#, ""), "missing field `operation`"),
        (good.to_string().replace(r#""uid":"705ab4f5""#, r#""uid":"a","uid":"b""#), "duplicate field"),
        (good.to_string().replace("705ab4f5", "\\ud800"), "not a review"),
        (changed("/request/object", "OBJECT".into()).replace("\"OBJECT\"", &nested), "recursion limit"),
    ] {
        let refused = answer(body.as_bytes(), &context("")).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused:?} does not say {reason:?}: {body:.200}");
        assert!(refused.len() < 300, "{refused}");
    }
    let mut broken = good.to_string().into_bytes();
    let last = broken.len() - 3;
    broken[last] = 0xff;
    let refused = answer(&broken, &context("")).unwrap_err().to_string();
    assert!(refused.contains("invalid utf-8"), "{refused}");
}

#[test]
fn ignored_fields_may_have_any_depth() {
    let good = review("", "Pod", &with("", &json!({}))).to_string();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let inner = if open == "[" { "" } else { "1" };
        let deep = good.replace("[]", &format!("{}{inner}{}", open.repeat(100_000), close.repeat(100_000)));
        assert!(matches!(answer(deep.as_bytes(), &context("")), Ok((_, Verdict::Injected))));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in any::<Vec<u8>>()) {
        let _ = answer(&bytes, &context(""));
    }

    /// A review with some bytes changed is refused, or answered with what can be applied.
    #[test]
    fn damaged_reviews_are_refused_or_answered(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4)) {
        let mut body = review("apps", "Deployment", &with("template", &json!({ "annotations": { "a": "b" } }))).to_string().into_bytes();
        for (at, byte) in changes {
            let at = at % body.len();
            body[at] = byte;
        }
        if let Ok((_, Verdict::Injected)) = answer(&body, &context("a=1")) {
            // What was not read need not be JSON to a stricter reader.
            let Ok(review) = serde_json::from_slice(&body) else { return Ok(()) };
            answered(&review, &context("a=1"));
        }
    }

    /// Whatever annotations there are, they are there afterwards, with ours unless one of those was there.
    #[test]
    fn nothing_that_was_there_is_lost(
        annotations in proptest::collection::btree_map(
            prop_oneof![Just(TRACEPARENT_KEY.to_owned()), Just(TRACESTATE_KEY.to_owned()), "[a-z~/.]{1,8}".boxed()],
            ".{0,10}",
            0..5,
        ),
        state in prop_oneof![Just(""), Just("a=1")],
    ) {
        let before = json!({ "metadata": { "annotations": annotations } });
        let (after, verdict) = answered(&review("", "Pod", &before), &context(state));
        let ours = [TRACEPARENT_KEY, TRACESTATE_KEY];
        let present = ours.iter().any(|key| annotations.contains_key(*key));
        assert_eq!(verdict, if present { Verdict::Present } else { Verdict::Injected });
        let after = after["metadata"]["annotations"].as_object().unwrap();
        for (key, value) in &annotations {
            assert_eq!(after[key], *value);
        }
        let added = if present { 0 } else { 1 + usize::from(!state.is_empty()) };
        assert_eq!(after.len(), annotations.len() + added);
    }
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let value = |value: &str| HeaderValue::from_bytes(value.as_bytes()).unwrap();
    list.iter().map(|(name, text)| (HeaderName::from_static(name), value(text))).collect()
}

#[test]
fn headers_hold_a_context_that_is_wanted_or_not() {
    let wanted = |trace_state: &str| {
        let context = traceparent(PARENT).unwrap();
        Context::Wanted(RemoteContext { trace_state: trace_state.to_owned(), ..context })
    };
    let unsampled = PARENT.replace("-01", "-00");
    for (list, expected) in [
        (&[][..], Context::Unwanted(Verdict::NoContext)),
        (&[("tracestate", "a=1")], Context::Unwanted(Verdict::NoContext)),
        (&[("traceparent", PARENT)], wanted("")),
        (&[("traceparent", PARENT), ("tracestate", "a=1")], wanted("a=1")),
        (&[("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")], wanted("a=1,b=2")),
        (&[("traceparent", PARENT), ("tracestate", "Upper=1")], wanted("")),
        (&[("traceparent", PARENT), ("tracestate", "é=1")], wanted("")),
        (&[("traceparent", &unsampled)], Context::Unwanted(Verdict::NotSampled)),
        (&[("traceparent", "")], Context::Unwanted(Verdict::InvalidContext)),
        (&[("traceparent", "é")], Context::Unwanted(Verdict::InvalidContext)),
        (&[("traceparent", &PARENT[1..])], Context::Unwanted(Verdict::InvalidContext)),
        (&[("traceparent", PARENT), ("traceparent", PARENT)], Context::Unwanted(Verdict::InvalidContext)),
    ] {
        assert_eq!(super::context(&headers(list), false), expected, "{list:?}");
    }
    let Context::Wanted(found) = super::context(&headers(&[("traceparent", &unsampled)]), true) else {
        panic!()
    };
    assert_eq!(found.traceparent(), unsampled);
}
