//! Annotations as they are found, and hostile ones.

use std::fmt::Write as _;

use base64::prelude::{BASE64_STANDARD, Engine as _};

use super::*;

const TRACE_ID: [u8; 16] = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
const SPAN_ID: [u8; 8] = 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes();
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const K8S: &str = "tracing.k8s.io/traceparent";
const OLD: &str = "trace.kubernetes.io/context";
const TEKTON: &str = "tekton.dev/taskrunSpanContext";

fn context() -> RemoteContext {
    RemoteContext::sampled(TRACE_ID, SPAN_ID)
}

fn annotations(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn reasons(refused: &[Refused]) -> Vec<(&str, Refusal)> {
    refused.iter().map(|refused| (refused.key.as_str(), refused.reason)).collect()
}

/// Jaeger's binary form, with baggage.
fn jaeger(members: &[(&str, &str)]) -> Vec<u8> {
    let length = |length: usize| (length as i32).to_be_bytes();
    let mut bytes = [&TRACE_ID[..], &SPAN_ID, &[0; 8], &[3], &length(members.len())].concat();
    for text in members.iter().flat_map(|(key, value)| [key, value]) {
        bytes.extend(length(text.len()));
        bytes.extend(text.as_bytes());
    }
    bytes
}

fn opencensus() -> Vec<u8> {
    [&[0, 0][..], &TRACE_ID, &[1], &SPAN_ID, &[2, 1]].concat()
}

#[test]
fn every_key_and_every_encoding_is_read() {
    let base64 = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    let state = |state: &str| RemoteContext { trace_state: state.to_owned(), ..context() };
    let header = format!(r#"{{"Traceparent":["{PARENT}"],"Tracestate":["a=1","b=2"],"User-Agent":["x"]}}"#);
    for (list, expected) in [
        (&[(K8S, PARENT)][..], context()),
        (&[(K8S, PARENT), ("tracing.k8s.io/tracestate", "a=1")], state("a=1")),
        (&[("traceparent", PARENT), ("tracestate", "a=1")], state("a=1")),
        (&[("tekton.dev/traceparent", PARENT)], context()),
        (&[(TEKTON, &format!(r#"{{"traceparent":"{PARENT}","tracestate":"a=1"}}"#))], state("a=1")),
        (&[("tekton.dev/pipelinerunSpanContext", &format!(r#"{{"traceparent":"{PARENT}"}}"#))], context()),
        (&[(TEKTON, &format!(r#"{{"traceparent":"{PARENT}","other":{{"deep":[1]}}}}"#))], context()),
        (&[(OLD, &base64(&opencensus()))], context()),
        (&[(OLD, &base64(&[&TRACE_ID[..], &SPAN_ID, &[1]].concat()))], context()),
        (&[(OLD, &base64(&jaeger(&[])))], context()),
        (&[(OLD, &base64(&jaeger(&[("user", "ann"), ("", "")])))], context()),
        (&[(OLD, &base64(header.as_bytes()))], state("a=1,b=2")),
        // Not what the key is for, and clear all the same.
        (&[(OLD, PARENT)], context()),
        (&[(OLD, &format!(r#" {{"traceparent":"{PARENT}"}} "#))], context()),
    ] {
        let (found, refused) = Carriers::default().recover(&annotations(list));
        assert_eq!(refused, [], "{list:?}");
        let causes: Vec<_> = found.causes.iter().map(|cause| &cause.context).collect();
        assert_eq!(causes, [&expected], "{list:?}");
        assert_eq!(Carriers::default().key(&found.causes[0]), list[0].0);
    }
}

/// <https://github.com/kubernetes/enhancements/pull/2312>, but for the ids that its own text decodes wrongly.
#[test]
fn the_example_of_kep_1668_is_read() {
    let (found, refused) =
        Carriers::default().recover(&annotations(&[(OLD, "0/3kO3imLJzu3N54RTuOEUDbc2C0poIMAA==")]));
    assert_eq!(refused, []);
    let RemoteContext { trace_id, span_id, flags, .. } = &found.causes[0].context;
    assert_eq!(u128::from_be_bytes(*trace_id), 0xd3fd_e43b_78a6_2c9c_eedc_de78_453b_8e11);
    assert_eq!((u64::from_be_bytes(*span_id), *flags), (0x40db_7360_b4a6_820c, 0));
}

#[test]
fn several_contexts_are_found_in_the_order_of_the_keys() {
    let numbered = |digit: char| PARENT.replace("4bf9", &format!("4bf{digit}"));
    let list = [
        ("traceparent", numbered('1')),
        ("tracing.k8s.io/traceparent.1", numbered('2')),
        ("tracing.k8s.io/traceparent.0", numbered('3')),
        ("tracing.k8s.io/tracestate.1", "a=1".to_owned()),
        // The same span once more.
        (OLD, BASE64_STANDARD.encode(opencensus())),
        (K8S, PARENT.to_owned()),
    ];
    let list: Vec<_> = list.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let (found, refused) = Carriers::default().recover(&annotations(&list));
    assert_eq!(refused, []);
    let keys: Vec<_> = found.causes.iter().map(|cause| Carriers::default().key(cause)).collect();
    assert_eq!(keys, [K8S, "tracing.k8s.io/traceparent.0", "tracing.k8s.io/traceparent.1", "traceparent"]);
    assert_eq!(found.causes[2].context.trace_state, "a=1");

    let reversed = Carriers::new(vec!["traceparent".into(), "example.com/mine".into(), K8S.into()], vec![]);
    let reversed = reversed.unwrap();
    let (found, _) = reversed.recover(&annotations(&[&list[..], &[("example.com/mine", PARENT)]].concat()));
    let keys: Vec<_> = found.causes.iter().map(|cause| reversed.key(cause)).collect();
    let numbered = |number: u8| format!("{K8S}.{number}");
    assert_eq!(keys, ["traceparent", "example.com/mine", &numbered(0), &numbered(1)]);
}

#[test]
fn the_number_of_contexts_is_bounded() {
    let parent = |number: u32| PARENT.replace("4bf9", &format!("4bf{number}"));
    let annotations: BTreeMap<_, _> =
        (0..10).map(|number| (format!("{K8S}.{number}"), parent(number))).collect();
    let (found, refused) = Carriers::default().recover(&annotations);
    assert_eq!(found.causes.len(), MAX_CAUSES);
    assert_eq!(reasons(&refused), [("tracing.k8s.io/traceparent.8", Refusal::TooMany)]);
}

#[test]
fn selected_members_of_baggage_are_found_and_others_are_not() {
    let carriers =
        Carriers::new(KEYS.map(str::to_owned).into(), vec!["user".into(), "team".into(), "job".into()])
            .unwrap();
    let json = format!(r#"{{"traceparent":"{PARENT}","baggage":"job=7,user=other"}}"#);
    let (found, refused) = carriers.recover(&annotations(&[
        (K8S, PARENT),
        ("tracing.k8s.io/baggage", "secret=1 , team=a%2Fb%20c;property=x , user = ann"),
        (TEKTON, &json),
    ]));
    assert_eq!(refused, []);
    assert_eq!(*found.baggage, [(0, "ann".to_owned()), (1, "a/b c".to_owned()), (2, "7".to_owned())]);

    let (found, _) =
        Carriers::default().recover(&annotations(&[(K8S, PARENT), ("tracing.k8s.io/baggage", "a=1")]));
    assert_eq!(*found.baggage, [], "none is selected by default");

    for (baggage, reason) in [
        ("user=%ff", Refusal::NotUtf8),
        ("user=a b", Refusal::BaggageSyntax),
        ("user=\u{1b}[31m", Refusal::BaggageSyntax),
        (&format!("user={}", "x".repeat(257)), Refusal::BaggageTooLarge),
        (&format!("a={},user=1", "x".repeat(8192)), Refusal::BaggageTooLarge),
        (&"a=1,".repeat(65), Refusal::BaggageTooLarge),
    ] {
        let (found, refused) =
            carriers.recover(&annotations(&[(K8S, PARENT), ("tracing.k8s.io/baggage", baggage)]));
        assert_eq!(reasons(&refused), [("tracing.k8s.io/baggage", reason)], "{baggage:?}");
        assert_eq!((found.causes.len(), found.baggage.len()), (1, 0), "the context stays");
    }
}

#[test]
fn a_context_is_of_a_trace_or_of_a_request() {
    let initial = |value: &str| {
        let (found, refused) = Carriers::default().recover(&annotations(&[(INITIAL, value)]));
        assert!(found.causes.is_empty());
        (found.initial, refused.into_iter().map(|refused| refused.reason).next())
    };
    for good in ["0af7651916cd43dd8448eb211c80319c", "705ab4f5-6393-11e8-b7cc-42010a800002"] {
        assert_eq!(initial(good), (Some(good.into()), None));
    }
    for bad in ["", "0af7", "0af7651916cd43dd8448eb211c80319g", "------------------------------------", "é"]
    {
        assert_eq!(initial(bad), (None, Some(Refusal::Syntax)), "{bad:?}");
    }
}

/// Hostile annotations: key, value, and why it is refused.
#[test]
fn hostile_values_are_refused_with_a_reason() {
    let base64 = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    let megabyte = "A".repeat(1 << 20);
    let json = |parent: &str| format!(r#"{{"traceparent":"{parent}"}}"#);
    let zero_trace = PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
    let zero_span = PARENT.replace("00f067aa0ba902b7", &"0".repeat(16));
    let mut deep = String::new();
    write!(deep, "{{\"traceparent\":{}1{}}}", "[".repeat(4_000), "]".repeat(4_000)).unwrap();
    let mut many_members = jaeger(&[]);
    many_members[33..37].copy_from_slice(&i32::MAX.to_be_bytes());
    let mut negative_length = jaeger(&[("a", "b")]);
    negative_length[37..41].copy_from_slice(&(-1_i32).to_be_bytes());
    let unknown_field = [&[0, 0][..], &TRACE_ID, &[7], &SPAN_ID, &[2, 1]].concat();
    for (key, value, reason) in [
        (K8S, String::new(), Refusal::Syntax),
        (K8S, "junk".to_owned(), Refusal::Syntax),
        (K8S, PARENT.replace("4bf9", "4BF9"), Refusal::Syntax),
        (K8S, PARENT.replace("4bf9", "4bfg"), Refusal::Syntax),
        (K8S, PARENT[..54].to_owned(), Refusal::Syntax),
        (K8S, format!("{PARENT}-more"), Refusal::Syntax),
        (K8S, PARENT.replace('-', "\u{0}"), Refusal::Syntax),
        (K8S, PARENT.replace("00-", "ff-"), Refusal::Version),
        (K8S, zero_trace.clone(), Refusal::ZeroTraceId),
        (K8S, zero_span.clone(), Refusal::ZeroParentId),
        (K8S, format!("cc-{}", PARENT[3..].repeat(20)), Refusal::TooLong),
        (K8S, megabyte.clone(), Refusal::TooLong),
        ("traceparent", json(PARENT), Refusal::Syntax),
        (TEKTON, megabyte.clone(), Refusal::TooLong),
        (TEKTON, "{".repeat(10_000), Refusal::Json),
        (TEKTON, deep, Refusal::Json),
        (TEKTON, "{}".to_owned(), Refusal::Json),
        (TEKTON, r#"{"traceparent":7}"#.to_owned(), Refusal::Json),
        (TEKTON, r#"{"traceparent":[7]}"#.to_owned(), Refusal::Json),
        (TEKTON, json(PARENT) + "x", Refusal::Json),
        (TEKTON, json("\\ud800"), Refusal::Json),
        (TEKTON, json(&zero_trace), Refusal::ZeroTraceId),
        (TEKTON, json(""), Refusal::Syntax),
        (OLD, megabyte, Refusal::TooLong),
        (OLD, "!".to_owned(), Refusal::Base64),
        (OLD, "A".to_owned(), Refusal::Base64),
        (OLD, "é".repeat(40), Refusal::Base64),
        (OLD, base64(&opencensus()).replace('=', ""), Refusal::Base64),
        (OLD, String::new(), Refusal::Encoding),
        (OLD, base64(&unknown_field), Refusal::Encoding),
        (OLD, base64(&[7; 24]), Refusal::Encoding),
        (OLD, base64(&[7; 1000]), Refusal::Encoding),
        (OLD, base64(&many_members), Refusal::Encoding),
        (OLD, base64(&negative_length), Refusal::Encoding),
        (OLD, base64(&[jaeger(&[]), vec![0]].concat()), Refusal::Encoding),
        (OLD, base64(&[0; 25]), Refusal::ZeroTraceId),
        (OLD, base64(&[&[1; 16][..], &[0; 9]].concat()), Refusal::ZeroParentId),
        (OLD, base64(b"{\"traceparent\":\"\xff\xfe\"}"), Refusal::NotUtf8),
        (OLD, base64(b"{\"Traceparent\":[]}"), Refusal::Syntax),
        (OLD, base64(json(&zero_span).as_bytes()), Refusal::ZeroParentId),
    ] {
        let (found, refused) = Carriers::default().recover(&annotations(&[(key, &value)]));
        assert_eq!(found, Recovered::default(), "{key}: {value:.80}");
        assert_eq!(reasons(&refused), [(key, reason)], "{key}: {value:.80}");
        assert!(refused[0].value.chars().count() <= SHOWN);
    }
}

#[test]
fn a_refused_value_does_not_keep_another_from_being_found() {
    let (found, refused) = Carriers::default().recover(&annotations(&[
        (K8S, "junk"),
        ("tracing.k8s.io/traceparent.0", PARENT),
        ("tracing.k8s.io/tracestate.0", "Upper=1"),
        (OLD, "junk"),
    ]));
    assert_eq!(found.causes.iter().map(|cause| &cause.context).collect::<Vec<_>>(), [&context()]);
    assert_eq!(
        reasons(&refused),
        [
            (K8S, Refusal::Syntax),
            ("tracing.k8s.io/tracestate.0", Refusal::TraceStateSyntax),
            (OLD, Refusal::Encoding)
        ]
    );
}

#[test]
fn a_list_of_keys_that_cannot_be_keys_is_refused() {
    let list = |keys: &[&str]| Carriers::new(keys.iter().map(|key| (*key).to_owned()).collect(), Vec::new());
    assert!(list(&["a/traceparent", "b"]).is_ok());
    for wrong in [&[""][..], &["a b"], &["é"], &[&"x".repeat(318)], &["x"; 17]] {
        let error = list(wrong).unwrap_err();
        assert!(error.contains("give"), "{error}");
    }
}
