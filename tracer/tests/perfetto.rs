//! What the recorded streams become as files of Perfetto.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    process::Command,
};

use prost::Message as _;
use serde_json::Value;
use spans::export::perfetto::schema::{Trace, Type};

const STREAMS: [&str; 5] = ["1.29", "1.33", "1.34", "1.36", "1.37"];

fn replayed(version: &str, further: &[&str]) -> Vec<u8> {
    let stream = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/streams").join(version);
    let output = Command::new(env!("CARGO_BIN_EXE_schedspan"))
        .arg("replay")
        .arg(stream.with_added_extension("jsonl"))
        .args(further)
        .output()
        .expect("schedspan is built with this test");
    assert!(output.status.success(), "{version}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// How many spans of each name there are in OTLP, without stays in queues.
fn spans(version: &str) -> BTreeMap<String, usize> {
    let text = String::from_utf8(replayed(version, &["-o", "json"])).expect("JSON is UTF-8");
    let mut names = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("each line is JSON");
        let spans = line["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("it has spans");
        for span in spans {
            *names.entry(span["name"].as_str().expect("a span has a name").to_owned()).or_default() += 1;
        }
    }
    names
}

#[test]
fn each_span_is_a_slice_that_lies_within_the_one_above_it() {
    for version in STREAMS {
        let file = replayed(version, &["-o", "perfetto", "--queue-spans"]);
        let file = Trace::decode(&*file).expect("it is a file of Perfetto");
        let names: HashMap<_, _> = file
            .packet
            .iter()
            .filter_map(|packet| packet.track_descriptor.as_ref())
            .map(|track| (track.uuid(), track.name()))
            .collect();
        // As Perfetto does, by time, and in the file's order where times are equal.
        let mut events: Vec<_> = file
            .packet
            .iter()
            .filter_map(|packet| Some((packet.timestamp(), packet.track_event.as_ref()?)))
            .collect();
        events.sort_by_key(|(time, _)| *time);
        let mut open: HashMap<u64, Vec<&str>> = HashMap::new();
        let mut slices: BTreeMap<String, usize> = BTreeMap::new();
        let (mut counters, mut in_loop) = (HashMap::new(), 0);
        for (_, event) in events {
            let track = event.track_uuid();
            let above = open.entry(track).or_default();
            match event.r#type() {
                Type::SliceBegin => {
                    let name = event.name();
                    let plain = name.strip_prefix("SchedulePod").map_or(name, |rest| {
                        let group = rest.strip_prefix("Group").map(|_| "SchedulePodGroup");
                        group.unwrap_or("SchedulePod")
                    });
                    let is_attempt = plain != name;
                    *slices.entry(plain.to_owned()).or_default() += 1;
                    if names[&track] == "scheduling loop" {
                        in_loop += usize::from(is_attempt);
                        let in_group = above.first().is_some_and(|top| top.contains("Group"));
                        assert!(in_group || above.is_empty() == is_attempt, "{version}: {name} in {above:?}");
                    }
                    above.push(name);
                }
                Type::SliceEnd => assert!(above.pop().is_some(), "{version}: an end without its begin"),
                Type::Counter => {
                    assert!(event.counter_value() >= 0, "{version}");
                    counters.insert(track, event.counter_value());
                }
                Type::Instant => {}
                Type::Unspecified => panic!("{version}: {event:?}"),
            }
        }
        assert!(open.values().all(Vec::is_empty), "{version}: a slice has no end");
        assert_eq!(slices, spans(version), "{version}");
        assert!(in_loop > 0 && !counters.is_empty(), "{version}");
        assert!(counters.values().all(|pods| *pods == 0), "{version}: {counters:?}");
    }
}
