//! A case is a file of spans, a file of metrics, or a description of spans: the first byte says which.

use std::{fmt::Write as _, hint::black_box};

use arbitrary::{Result, Unstructured};
use spandiff::{
    Limits, Span, compare, explained::explained, figures, joined::joined, metrics_table, owned::owned, page,
    read, table,
};
use spans::{attributes, export::Pods};

const NAMES: [&str; 12] = [
    "SchedulePod",
    "schedulingCycle",
    "filter",
    "PodLifecycle",
    "Create etcd3",
    "syncPod",
    "queued",
    "StartPod",
    "create Pod",
    "container: a",
    "image",
    "kubelet",
];
const SERVICES: [&str; 2] = ["kube-scheduler", "kubelet"];
const KEYS: [&str; 9] = [
    attributes::POD_UID,
    attributes::POD_NAME,
    attributes::POD_NAMESPACE,
    attributes::ATTEMPT,
    attributes::RESULT,
    attributes::EXTENSION_POINT,
    attributes::MONOTONIC_START,
    attributes::MONOTONIC_END,
    "key",
];
const VALUES: [&str; 8] = ["p", "1", "2", "Success", "Filter", "18446744073709551615", "/pods/p/p", ""];

/// Reads the file and compares what it holds.
pub fn run(case: &[u8]) {
    let Some((&[kind, split], file)) = case.split_first_chunk::<2>() else { return };
    let split = file.len() * usize::from(split) / 256;
    match kind % 3 {
        0 => {
            let Ok(spans) = read(file, "a", None) else { return };
            all(&spans, spans.len() / 2);
        }
        1 => {
            let (before, after) = file.split_at(split);
            let [before, after] = [before, after].map(String::from_utf8_lossy);
            if let Ok(figures) = figures(&[], ("after", &after), Some(("before", &before))) {
                black_box(metrics_table(&figures));
            }
        }
        _ => {
            let Ok(text) = text(&mut Unstructured::new(file)) else { return };
            let spans = read(text.as_bytes(), "a", None).expect("this is OTLP");
            all(&spans, spans.len() * usize::from(case[1]) / 256);
        }
    }
}

/// Everything that is made of spans; those from here on are the other side's.
fn all(spans: &[Span], from: usize) {
    let (a, b) = spans.split_at(from);
    for (a, b) in [(a, b), (spans, spans)] {
        let report = compare(a, b);
        black_box((page(&report, ["a", "b"], &[]), table(&report, ["a", "b"])));
        black_box(report.failures(&Limits::default()));
    }
    black_box(figures(spans, ("after", ""), None).is_ok());
    black_box(joined(spans, "p", "p"));
    let explained = explained(spans, "p", "p");
    for explained in explained
        .iter()
        .chain(owned(spans, "p", &Pods::Prefixed(String::new())).iter().flat_map(|owned| &owned.pods))
    {
        assert_eq!(explained.parts.iter().map(|part| part.ns).sum::<u64>(), explained.total_ns);
    }
}

/// Spans as OTLP JSON.
fn text(case: &mut Unstructured<'_>) -> Result<String> {
    let mut text = String::new();
    while !case.is_empty() {
        let (trace, span, parent) =
            (case.int_in_range(1..=2)?, case.int_in_range(1..=9)?, case.int_in_range(0..=9)?);
        let (name, service) = (case.choose(&NAMES)?, case.choose(&SERVICES)?);
        let (start, end) = (time(case)?, time(case)?);
        let parent = if parent == 0 { String::new() } else { format!("{parent:016x}") };
        let mut attributes = Vec::new();
        for _ in 0..case.int_in_range(0..=5)? {
            let (key, value) = (case.choose(&KEYS)?, case.choose(&VALUES)?);
            attributes.push(format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#));
        }
        let attributes = attributes.join(",");
        let _ = writeln!(
            text,
            r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"{service}"}}}}]}},"scopeSpans":[{{"spans":[{{"traceId":"{trace:032x}","spanId":"{span:016x}","parentSpanId":"{parent}","name":"{name}","startTimeUnixNano":"{start}","endTimeUnixNano":"{end}","attributes":[{attributes}]}}]}}]}}]}}"#
        );
    }
    Ok(text)
}

/// Most moments are near each other.
fn time(case: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match case.int_in_range(0..=7)? {
        0 => case.arbitrary()?,
        1 => u64::MAX,
        _ => case.arbitrary::<u16>()?.into(),
    })
}
