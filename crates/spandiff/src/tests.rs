//! Small sets of spans, and their reports.

use std::io::Cursor;

use opentelemetry_proto::tonic::trace::v1::TracesData;
use prost::Message as _;

use super::{
    Clock, Counts, Error, Limits, Quantiles, Report, compare, figures, page, read, span::Span, table,
};
use spans::attributes;

/// A span of the trace `trace`, by both clocks: the wall clock is a million ahead.
fn span(trace: u8, id: u8, parent: u8, name: &str, [start, end]: [u64; 2]) -> Span {
    Span {
        trace_id: vec![trace; 16],
        span_id: vec![id; 8],
        parent_id: if parent == 0 { Vec::new() } else { vec![parent; 8] },
        name: name.to_owned(),
        wall: [start + 1_000_000, end + 1_000_000],
        monotonic: Some([start, end]),
        ..Span::default()
    }
}

fn root(trace: u8, pod: &str, attempt: &str, times: [u64; 2]) -> Span {
    let mut root = span(trace, 1, 0, "SchedulePod", times);
    root.attributes.insert(attributes::POD_UID.to_owned(), pod.to_owned());
    root.attributes.insert(attributes::ATTEMPT.to_owned(), attempt.to_owned());
    root
}

/// One attempt: a root, a cycle and two filters. B's, with `inner`, lie that far inside of A's.
fn attempt(trace: u8, pod: &str, inner: u64) -> Vec<Span> {
    let within = |start: u64, end: u64| [start + inner, end - inner];
    vec![
        root(trace, pod, "1", within(1_000, 9_000)),
        span(trace, 2, 1, "schedulingCycle", within(2_000, 8_000)),
        span(trace, 3, 2, "filter", within(3_000, 4_000)),
        span(trace, 4, 2, "filter", within(5_000, 6_000)),
    ]
}

fn missing(report: &Report) -> Vec<(&str, &str)> {
    report.missing.iter().map(|missing| (missing.side, missing.kind.as_str())).collect()
}

#[test]
fn twins_are_found_by_pod_attempt_and_name_whatever_their_identities() {
    let a = [attempt(1, "x", 0), attempt(2, "y", 0)].concat();
    let b = [attempt(7, "y", 10), attempt(8, "x", 10)].concat();
    let report = compare(&a, &b);
    assert_eq!(report.a, Counts { spans: 8, attempts: 2, orphans: 0 });
    assert_eq!((report.clock, report.all.twins, report.all.outside), (Clock::Monotonic, 8, 0));
    assert_eq!(report.kinds["filter"].twins, 4);
    assert_eq!((report.all.start.p50, report.all.end.max, report.all.duration.p99), (10, 10, 20));
    assert_eq!(missing(&report), []);
    let strict = Limits {
        missing: Some(0),
        parents: Some(0),
        status: Some(0),
        attributes: Some(0),
        outside: Some(0),
        start_p50: Some(10),
        end_p50: Some(10),
        duration_p50: Some(20),
        duration_p99: Some(20),
    };
    assert_eq!(report.failures(&strict), Vec::<String>::new());
    let stricter = Limits { duration_p50: Some(19), ..strict };
    assert_eq!(report.failures(&stricter), ["20 nanoseconds between the durations (p50), 19 at most"]);
}

#[test]
fn a_span_without_a_twin_is_named() {
    let a = attempt(1, "x", 0);
    let mut b = attempt(2, "x", 10);
    // Which of the two filters is missing follows from the times.
    b.remove(2);
    let report = compare(&a, &b);
    assert_eq!(missing(&report), [("b", "filter")]);
    let filter = &report.kinds["filter"];
    assert_eq!((filter.twins, filter.missing_in_a, filter.missing_in_b), (1, 0, 1));
    assert_eq!((filter.start.max, filter.outside), (10, 0), "the second is the twin of the second");
    assert_eq!(
        report.failures(&Limits { missing: Some(0), ..Limits::default() }),
        ["1 spans without a twin, 0 at most"]
    );
    let report = compare(&b, &a);
    assert_eq!(missing(&report), [("a", "filter")]);
}

#[test]
fn an_attempt_that_one_side_lacks_is_missing_with_all_its_spans() {
    let a = [attempt(1, "x", 0), attempt(2, "y", 0)].concat();
    let report = compare(&a, &attempt(3, "x", 0));
    assert_eq!((report.all.twins, report.all.missing_in_b), (4, 4));
    assert!(report.missing.iter().all(|missing| missing.pod == "y"));
}

#[test]
fn a_kind_that_one_side_never_makes_is_not_missing() {
    let a = attempt(1, "x", 0);
    let mut b = attempt(2, "x", 0);
    b.push(span(2, 9, 2, "snapshot", [2_100, 2_200]));
    let report = compare(&a, &b);
    assert_eq!((report.all.missing_in_a, report.only_b.get("snapshot")), (0, Some(&1)));
    assert!(table(&report, ["a", "b"]).contains("Only B makes: snapshot 1"));
}

#[test]
fn a_pod_with_the_same_attempt_twice_is_matched_by_time() {
    let later = |spans: Vec<Span>| -> Vec<Span> {
        let move_by = |[start, end]: [u64; 2]| [start + 50_000, end + 50_000];
        let moved =
            |span: Span| Span { wall: move_by(span.wall), monotonic: span.monotonic.map(move_by), ..span };
        spans.into_iter().map(moved).collect()
    };
    let a = [attempt(1, "x", 0), later(attempt(2, "x", 0))].concat();
    let b = later(attempt(3, "x", 10));
    let report = compare(&a, &b);
    assert_eq!((report.all.twins, report.all.missing_in_b, report.all.start.max), (4, 4, 10));
}

#[test]
fn other_parents_statuses_and_values_are_counted() {
    let mut a = attempt(1, "x", 0);
    let mut b = attempt(2, "x", 0);
    b[3].parent_id = vec![1; 8];
    b[1].failed = true;
    for (side, profile) in [(&mut a, "one"), (&mut b, "other")] {
        side[2].attributes.insert(attributes::PROFILE.to_owned(), profile.to_owned());
    }
    b[0].attributes.insert("only.b".to_owned(), "1".to_owned());
    let report = compare(&a, &b);
    let all = &report.all;
    assert_eq!((all.parents_differ, all.status_differs, all.attributes_differ), (1, 1, 1));
    let found: Vec<_> =
        report.attributes.iter().map(|attribute| (attribute.key.as_str(), attribute.only_b)).collect();
    assert_eq!(found, [("only.b", 1), (attributes::PROFILE, 0)]);
    assert_eq!(report.attributes[1].example, Some(["one".to_owned(), "other".to_owned()]));
}

#[test]
fn an_interval_that_is_not_inside_of_its_twin_is_counted() {
    let mut b = attempt(2, "x", 0);
    b[2].monotonic = Some([2_999, 3_900]);
    let report = compare(&attempt(1, "x", 0), &b);
    assert_eq!((report.all.outside, report.kinds["filter"].start.min), (1, -1));
}

#[test]
fn without_the_monotonic_clock_a_constant_difference_of_the_wall_clocks_is_taken_off() {
    let mut b = [attempt(4, "x", 10), attempt(5, "y", 10), attempt(6, "z", 10)].concat();
    for span in &mut b {
        span.monotonic = None;
        span.wall = span.wall.map(|time| time + 5_000_000);
    }
    let a = [attempt(1, "x", 0), attempt(2, "y", 0), attempt(3, "z", 0)].concat();
    let report = compare(&a, &b);
    assert_eq!(report.clock, Clock::Wall { offset: 5_000_010 });
    assert_eq!((report.all.start.p50, report.all.duration.p50), (0, 20));
}

#[test]
fn spans_without_an_attempt_are_counted_and_no_twins_are_a_failure() {
    let mut nameless = attempt(1, "x", 0);
    nameless[0].attributes.clear();
    let report = compare(&nameless, &attempt(2, "x", 0));
    assert_eq!((report.a.orphans, report.all.twins), (4, 0));
    assert_eq!(report.failures(&Limits::default()), ["no span of A has a twin in B"]);
    assert!(compare(&[], &[]).failures(&Limits::default()).len() == 1);
}

#[test]
fn quantiles_are_readings_and_zero_without_any() {
    let mut readings: Vec<i64> = (1..=200).rev().collect();
    let expected = Quantiles { min: 1, p50: 100, p90: 180, p99: 198, max: 200 };
    assert_eq!(Quantiles::of(&mut readings), expected);
    assert_eq!(Quantiles::of(&mut [7]), Quantiles { min: 7, p50: 7, p90: 7, p99: 7, max: 7 });
    assert_eq!(Quantiles::of(&mut []), Quantiles::default());
}

#[test]
fn times_that_make_no_sense_are_no_panic() {
    let mut a = attempt(1, "x", 0);
    a[1].monotonic = Some([u64::MAX, 0]);
    let report = compare(&a, &attempt(2, "x", 0));
    assert_eq!((report.all.twins, report.all.outside), (4, 1));
    assert!(page(&report, ["a", "b"], &[]).contains("<svg"));
}

/// As the Collector writes it: what is empty is left out, and 64 bits are text.
const LINE: &str = r#"{"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{"name":"inproc"},"spans":[{"traceId":"01010101010101010101010101010101","spanId":"0101010101010101","parentSpanId":"","flags":256,"name":"SchedulePod","kind":5,"startTimeUnixNano":"1000","endTimeUnixNano":"3000","attributes":[{"key":"k8s.pod.uid","value":{"stringValue":"x"}},{"key":"k8s.scheduler.attempt","value":{"intValue":"2"}},{"key":"schedspan.monotonic.start_ns","value":{"intValue":"10"}},{"key":"schedspan.monotonic.end_ns","value":{"intValue":"2010"}},{"key":"none","value":{"arrayValue":{}}}],"status":{"code":2}},{"traceId":"01010101010101010101010101010101","spanId":"0201010101010101","parentSpanId":"0101010101010101","name":"filter","startTimeUnixNano":"1500","endTimeUnixNano":"2000","status":{}}]}]}]}"#;

#[test]
fn a_line_of_the_collector_becomes_spans() {
    let spans = read(Cursor::new(format!("{LINE}\n\n{LINE}")), "f", None).unwrap();
    let [root, filter, ..] = &spans[..] else { panic!("{} spans", spans.len()) };
    assert_eq!((spans.len(), root.wall, root.monotonic), (4, [1_000, 3_000], Some([10, 2_010])));
    assert_eq!((root.attribute(attributes::ATTEMPT), root.failed, filter.failed), ("2", true, false));
    assert_eq!((filter.parent_id.clone(), filter.monotonic), (root.span_id.clone(), None));
    assert!(read(Cursor::new(LINE), "f", Some("schedspan")).unwrap().is_empty());
    assert_eq!(read(Cursor::new(LINE), "f", Some("inproc")).unwrap().len(), 2);
}

#[test]
fn a_share_of_a_plugin_has_no_twin_and_is_not_read() {
    let share = format!(r#"{{"key":"{}","value":{{"doubleValue":0.5}}}}"#, attributes::SHARE);
    let line =
        LINE.replace(r#""name":"filter","#, &format!(r#""name":"plugin: Fit","attributes":[{share}],"#));
    let spans = read(Cursor::new(line), "f", None).unwrap();
    assert_eq!(spans.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["SchedulePod"]);
}

#[test]
fn protobuf_is_read_bare_and_framed() {
    let value: serde_json::Value =
        serde_json::from_str(&LINE.replace(r#""arrayValue":{}"#, r#""boolValue":true"#)).unwrap();
    let message = serde_json::from_value::<TracesData>(value).unwrap().encode_to_vec();
    assert_eq!(read(Cursor::new(&message), "f", None).unwrap().len(), 2);
    let frame = [&(message.len() as u32).to_be_bytes()[..], &message].concat();
    assert_eq!(read(Cursor::new([&frame[..], &frame].concat()), "f", None).unwrap().len(), 4);
}

#[test]
fn a_malformed_file_is_an_error_with_its_position() {
    let error = |bytes: &[u8]| read(Cursor::new(bytes), "f", None).unwrap_err();
    let lines = format!("{LINE}\n{{\"resourceSpans\":");
    assert!(matches!(error(lines.as_bytes()), Error::Line { number: 2, .. }));
    assert!(error(b"[1]").to_string().starts_with("`f`, line 1: "));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(error(deep.as_bytes()), Error::Line { number: 1, .. }));
    assert!(matches!(error(b"\x0a\xff\xff"), Error::Message { offset: 0, .. }));
    // An oversized frame, a truncated one, and a good one followed by a malformed one.
    assert!(error(b"\x08\xff\xff\xff").to_string().contains("above"));
    assert!(error(b"\x00\x00\x00\x09\x0a").to_string().contains("breaks off"));
    assert!(matches!(error(b"\x00\x00\x00\x00\x00\x00\x00\x01\xff"), Error::Message { offset: 4, .. }));
    assert_eq!(read(Cursor::new(b""), "f", None).unwrap(), []);
}

#[test]
fn a_page_escapes_what_spans_are_called() {
    let named = |trace, inner| {
        let mut spans = attempt(trace, "x", inner);
        spans[2].name = "<script>".to_owned();
        spans
    };
    let report = compare(&named(1, 0), &named(2, 10));
    let page = page(&report, ["<a>", "b"], &["<no>".to_owned()]);
    assert!(page.contains("&lt;script&gt;") && page.contains("&lt;a&gt;") && page.contains("&lt;no&gt;"));
    assert!(!page.contains("<script"));
}

const METRICS: &str = r#"# HELP
scheduler_schedule_attempts_total{profile="p",result="scheduled"} 3
scheduler_schedule_attempts_total{profile="q",result="scheduled"} 1
scheduler_framework_extension_point_duration_seconds_bucket{extension_point="Filter",le="1"} 9
scheduler_framework_extension_point_duration_seconds_sum{extension_point="Filter",status="Success"} 2e-06
scheduler_framework_extension_point_duration_seconds_count{extension_point="Filter",status="Success"} 5
go_threads 7
"#;

#[test]
fn spans_are_counted_next_to_what_the_scheduler_counts() {
    let mut spans = attempt(1, "x", 0);
    spans[0].attributes.insert(attributes::RESULT.to_owned(), "Success".to_owned());
    let before = METRICS.replace("} 5", "} 3").replace("} 3\nscheduler_sch", "} 1\nscheduler_sch");
    let found = figures(&spans, ("m", METRICS), Some(("n", &before))).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|figure| (figure.name.as_str(), figure.spans, figure.metric, figure.metric_seconds))
        .collect();
    assert_eq!(found[0], ("SchedulePod", 1.0, 2.0, None));
    assert_eq!(found[3], ("filter", 2.0, 2.0, Some(0.0)));
    let wrong = figures(&spans, ("m", "scheduler_schedule_attempts_total{result=\"error\"} many"), None);
    assert!(wrong.unwrap_err().to_string().starts_with("`m`, line 1 is not a sample"));
}
