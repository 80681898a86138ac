//! Waterfalls of traces that a daemon shows as OTLP are those that it draws itself: `schedspan trace --server` next to `replay`.

use std::{path::Path, process::Command};

use spans::export::{Style, waterfall};

fn replayed(output: &str) -> String {
    let stream = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/streams/1.36.jsonl");
    let mut replay = Command::new(env!("CARGO_BIN_EXE_schedspan"));
    let replay =
        replay.arg("replay").arg(stream).args(["-o", output]).env("COLUMNS", "120").env("NO_COLOR", "1");
    let output = replay.output().expect("schedspan is built with this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is UTF-8")
}

#[test]
fn a_waterfall_of_a_trace_that_was_exported_is_the_same() {
    let style = Style { width: 120, colour: false, plugins: false };
    let (json, drawn) = (replayed("json"), replayed("terminal"));
    let mut again = String::new();
    for line in json.lines() {
        for trace in spandiff::whole::traces(line).expect("it is a trace") {
            again += &waterfall(&trace, &style);
            again.push('\n');
        }
    }
    assert!(drawn.lines().count() > 100, "{drawn}");
    for (number, (ours, its)) in again.lines().zip(drawn.lines()).enumerate() {
        assert_eq!(ours, its, "line {number}");
    }
    assert_eq!(again.lines().count(), drawn.lines().count());
}
