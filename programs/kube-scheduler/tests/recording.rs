//! Recordings round-trip, and errors name the broken line.

use std::{borrow::Cow, io, sync::Arc};

use gotrace::{
    Role,
    decode::{Element, Entries, Listed, Top},
    pipeline::{Clocks, Found},
    plan::Identity,
    recording::{
        self, End, Error, FORMAT, Header, MAX_LINE, MAX_TIME_NS, Reader, Recorder, Replay, Step, Summary,
    },
    window::{Calls, Phase, Window},
};
use kube_scheduler::{Event, KubeScheduler, Values, table::Function, values::Value};
use proptest::{collection::vec, option, prelude::*};

type Line<'a> = recording::Line<'a, KubeScheduler>;

const NO_LIMIT: u64 = u64::MAX / 2;
/// Text that no redacted file may contain.
const SECRET: &str = "s3cret";

fn write(lines: &[Line<'_>], max_size: u64, redact: bool) -> (String, Summary) {
    let mut out = Vec::new();
    let mut recorder = Recorder::new(&mut out, max_size, redact).expect("memory takes everything");
    for line in lines {
        recorder.take(line.clone());
    }
    recorder.take(Line::End(End::default()));
    let summary = recorder.finish().expect("memory takes everything");
    (String::from_utf8(out).expect("JSON is text"), summary)
}

fn read(text: &str) -> Result<Vec<Line<'static>>, Error> {
    Reader::new(text.as_bytes())?.collect()
}

/// Writes lines and reads them back, without header and end.
fn read_again(lines: &[Line<'_>], redact: bool) -> Vec<Line<'static>> {
    let mut read = read(&write(lines, NO_LIMIT, redact).0).expect("it is whole");
    assert_eq!(read.pop(), Some(Line::End(End::default())));
    read
}

fn found(target: u32) -> Line<'static> {
    let identity = Identity {
        kubernetes_version: Some("v1.36.4".into()),
        go_version: "go1.26.5".into(),
        build_id: None,
        machine: "amd64".into(),
        link_mode: "static".into(),
        stripped: true,
        entry_point: 0,
    };
    let executable = format!("/opt/{SECRET}/kube-scheduler").into();
    Line::Found(Cow::Owned(Found { target, pid: 42, executable, identity, ..Found::default() }))
}

fn hit(target: u32, function: Function, role: Role, values: Values) -> Event {
    let (time_ns, goroutine, depth, last_loss) = (7, 1, 100, 0);
    Event { target, time_ns, took_ns: 0, goroutine, depth, function, role, last_loss, values }
}

fn event(target: u32, function: Function, role: Role, values: Values) -> Line<'static> {
    Line::Event(Cow::Owned(hit(target, function, role, values)))
}

/// Texts that JSON must escape.
fn any_text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..8).prop_map(String::from_iter)
}

fn secret() -> impl Strategy<Value = String> {
    (0..4u8).prop_map(|number| format!("{SECRET}{number}"))
}

fn values(name: impl Strategy<Value = String>) -> impl Strategy<Value = Values> {
    let names = vec(option::of(name), 21);
    let texts = vec(option::of(any_text()), 4);
    (names, texts, vec(option::of(any::<u64>()), 16), option::of(any::<i64>())).prop_map(
        |(mut names, mut texts, mut numbers, status_code)| {
            let mut name = || names.pop().flatten();
            let mut text = || texts.pop().flatten();
            let mut number = || numbers.pop().flatten();
            Values::default()
                .with(Value::CycleState, number())
                .with(Value::Pod, number())
                .with(Value::QueuedPodInfo, number())
                .with(Value::PodName, name())
                .with(Value::PodNamespace, name())
                .with(Value::PodUid, name())
                .with(Value::Profile, name())
                .with(Value::Attempts, number())
                .with(Value::QueueTimestamp, number())
                .with(Value::NodeName, name())
                .with(Value::StatusCode, status_code)
                .with(Value::StatusReason, name())
                .with(Value::StatusPlugin, text())
                .with(Value::Plugin, text().map(Arc::<str>::from))
                .with(Value::FirstAttempt, number())
                .with(Value::Queue, name())
                .with(Value::QueueEvent, name())
                .with(Value::Gate, text())
                .with(Value::Labels, number())
                .with(Value::HintLength, number())
                .with(
                    Value::Scores,
                    name().map(|node| Top {
                        elements: 3,
                        looked_at: 3,
                        ties: 1,
                        best: vec![Element {
                            parts: vec![("Fit".into(), 7), (format!("http://{node}").into(), 1)],
                            label: node,
                            key: 8,
                            cut: false,
                        }],
                    }),
                )
                .with(
                    Value::Statuses,
                    name().map(|node| {
                        let (texts, keys) = (vec![format!("no {node}").into()], vec![node.into()]);
                        let listed = vec![Listed { name: Some("Fit".into()), code: 2, texts, keys }];
                        Entries { keys: 1, looked_at: 1, listed, ..Entries::default() }
                    }),
                )
                .with(Value::EvaluatedNodes, number())
                .with(Value::FeasibleNodes, number())
                .with(Value::RestrictedTo, number())
                .with(Value::Message, name())
                .with(Value::PreemptionNode, name())
                .with(Value::Victims, 2)
                .with(Value::VictimNames, [name(), name(), name()])
                .with(Value::GroupName, name())
                .with(Value::GroupNamespace, name())
                .with(Value::GroupSize, number())
                .with(Value::PlacementName, name())
                .with(Value::ConditionReason, text())
                .with(Value::ExtenderUrl, name())
                .with(Value::ExtenderVerb, text())
                .with(Value::Ignorable, status_code.map(|code| code > 0))
                .with(Value::Nodes, number())
                .with(Value::ApiCall, number())
                .with(Value::PreemptionCandidate, number())
                .with(Value::StartedNs, number())
                .with(Value::Panics, status_code.map(|code| code < 0))
        },
    )
}

fn events(name: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<Line<'static>>> {
    let functions = prop_oneof![
        Just(Function::Pop),
        Just(Function::PreBindPlugin),
        Just(Function::QueueMove),
        Just(Function::HandleFailure)
    ];
    let roles = prop_oneof![
        Just(Role::Entry),
        Just(Role::ReturnSite),
        Just(Role::NextEntry),
        Just(Role::Ret),
        Just(Role::InTurn),
        Just(Role::Metric)
    ];
    let numbers = (0..=MAX_TIME_NS, any::<u64>(), any::<u64>(), any::<u64>());
    let one = (functions, roles, numbers, values(name)).prop_map(
        |(function, role, (time_ns, goroutine, depth, last_loss), values)| {
            let hit = hit(3, function, role, values);
            let event = Event { time_ns, took_ns: depth, goroutine, depth, last_loss, ..hit };
            Line::Event(Cow::Owned(event))
        },
    );
    vec(one, 0..8)
}

/// So many cases in a release build, and a tenth of them in a debug build, which is to be quick; `PROPTEST_CASES` sets
/// another number for both.
fn config(cases: u32) -> ProptestConfig {
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return ProptestConfig::default();
    }
    ProptestConfig::with_cases(if cfg!(debug_assertions) { cases / 10 } else { cases })
}

fn names(line: &Line<'_>) -> Option<String> {
    let Line::Event(event) = line else { return None };
    event.values.text(Value::PodName).map(str::to_owned)
}

#[test]
fn a_window_comes_back_as_it_was_if_its_times_are_possible() {
    let window = |total_ns| {
        let calls = Calls {
            name: Some("NodeResourcesFit".into()),
            count: 2,
            total_ns,
            results: [(0, 1), (2, 1)].into(),
            unwound: 1,
            slots: vec![0, 2],
        };
        let phases = vec![Phase { function: Function::Filter, end_ns: 5, calls: vec![calls] }];
        let window = Window { target: 3, begin_ns: 1, end_ns: 9, complete: true, phases };
        Line::Window(Cow::Owned(window))
    };
    let lines = [found(3), window(70)];
    assert_eq!(read_again(&lines, true)[1], lines[1]);
    let unknown = write(&[found(4), window(70)], NO_LIMIT, false).0;
    assert!(read(&unknown).is_err(), "its process was not found");
    let impossible = write(&[found(3), window(MAX_TIME_NS + 1)], NO_LIMIT, false).0;
    assert!(read(&impossible).is_err(), "nothing runs for so long");
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn recordings_round_trip(events in events(any_text()), monotonic_ns in 0..=MAX_TIME_NS) {
        let clocks = Clocks { monotonic_ns, unix_ns_at_zero: u64::MAX };
        let mut lines = vec![found(3), Line::Clocks(clocks)];
        lines.extend(events);
        lines.push(Line::Gone { target: 3 });
        prop_assert_eq!(read_again(&lines, false), lines);
    }

    #[test]
    fn redaction_leaves_no_name_and_keeps_equal_ones_equal(events in events(secret())) {
        let mut lines = vec![found(3)];
        lines.extend(events);
        let (text, _) = write(&lines, NO_LIMIT, true);
        prop_assert!(!text.contains(SECRET), "{}", text);
        let redacted = read_again(&lines, true);
        prop_assert_eq!(lines.len(), redacted.len());
        for (line, other) in lines.iter().zip(&redacted) {
            for (second, other_second) in lines.iter().zip(&redacted) {
                prop_assert_eq!(names(line) == names(second), names(other) == names(other_second));
            }
        }
    }
}

#[test]
fn redaction_keeps_what_a_report_needs() {
    let values = Values::default()
        .with(Value::PodName, "web")
        .with(Value::NodeName, "web")
        .with(Value::StatusPlugin, "NodeResourcesFit")
        .with(Value::StatusCode, 2)
        .with(Value::Message, String::new())
        .with(Value::Queue, "backoff")
        .with(Value::QueueEvent, "NodeAdd")
        .with(Value::Labels, 2)
        .with(Value::VictimNames, [None, Some("web".into()), None]);
    let redacted = read_again(&[found(0), event(0, Function::Pop, Role::Ret, values.clone())], true);
    let expected = values
        .with(Value::PodName, "pod-1")
        .with(Value::NodeName, "node-1")
        .with(Value::VictimNames, [None, Some("pod-1".into()), None]);
    assert_eq!(redacted[1], event(0, Function::Pop, Role::Ret, expected));
    let Line::Found(found) = &redacted[0] else { panic!("{redacted:?}") };
    assert_eq!(found.executable.to_str(), Some("kube-scheduler"));
}

#[test]
fn the_first_line_says_what_the_file_is() {
    for redacted in [false, true] {
        let (text, _) = write(&[], NO_LIMIT, redacted);
        let reader = Reader::<_, KubeScheduler>::new(text.as_bytes()).expect("it has a header");
        let schedspan = env!("CARGO_PKG_VERSION").to_owned();
        assert_eq!(reader.header(), &Header { format: FORMAT, schedspan, redacted });
    }
}

#[test]
fn absent_values_take_no_space() {
    let (text, _) =
        write(&[found(0), event(0, Function::Pop, Role::Ret, Values::default())], NO_LIMIT, false);
    let line = text.lines().nth(2).expect("it is the third");
    assert_eq!(
        line,
        r#"{"event":{"depth":100,"function":"pop","goroutine":1,"lastLoss":0,"role":"ret","target":0,"timeNs":7,"values":{}}}"#
    );
}

/// A short recording with every kind of line.
fn recording() -> String {
    let values = Values::default().with(Value::PodName, "web\n\"1\"");
    let lines = [
        found(0),
        Line::Clocks(Clocks { monotonic_ns: 5, unix_ns_at_zero: 9 }),
        event(0, Function::Pop, Role::ReturnSite, values),
        Line::Gone { target: 0 },
    ];
    write(&lines, NO_LIMIT, false).0
}

#[test]
fn truncated_file_names_its_last_line() {
    let whole = recording();
    assert!(read(&whole).is_ok());
    for length in 0..whole.len() {
        let cut = &whole[..length];
        let error = read(cut).expect_err("something is missing");
        assert_eq!(error.line, cut.matches('\n').count() as u64 + 1, "{error} in {cut}");
        // What is empty is no recording at all.
        let is_cut_off = error.to_string().contains("cut off");
        assert_eq!(is_cut_off, !cut.is_empty(), "{error} in {cut}");
    }
}

#[test]
fn broken_line_is_named() {
    let whole = recording();
    let lines: Vec<&str> = whole.lines().collect();
    let overlong = format!("{{\"gone\":{{\"target\":{}0}}}}", " ".repeat(MAX_LINE));
    for (broken, what) in [
        ("", "column 0: EOF while parsing a value"),
        ("{\"event\":{\"target\":0,", "EOF while parsing"),
        ("{\"event\":{\"target\":\"x\"}}", "invalid type"),
        ("{\"event\":{\"target\":4294967296}}", "invalid value"),
        ("{\"wish\":{}}", "unknown variant `wish`"),
        ("{\"clocks\":{\"monotonicNs\":1,\"unixNsAtZero\":1,\"more\":1}}", "unknown field `more`"),
        (
            "{\"clocks\":{\"monotonicNs\":18446744073709551615,\"unixNsAtZero\":1}}",
            "more than a machine runs",
        ),
        ("{\"gone\":{\"target\":8}}", "process 8 was not found before"),
        (lines[0], "a second header"),
        (overlong.as_str(), "longer than"),
        ("\u{1}", "expected value"),
    ] {
        for number in 2..=lines.len() {
            let mut lines = lines.clone();
            lines[number - 1] = broken;
            let error = read(&(lines.join("\n") + "\n")).expect_err(what);
            assert_eq!(error.line, number as u64, "{error}");
            assert!(error.to_string().contains(what), "{error} does not say {what}");
        }
    }
}

#[test]
fn rejects_other_files() {
    for other in ["", "\n", "hello\n", "{}\n", "{\"resourceSpans\":[]}\n"] {
        let error = read(other).expect_err("it has no header");
        assert_eq!(error.line, 1);
    }
    let newer = "{\"header\":{\"format\":2,\"schedspan\":\"9.0\",\"redacted\":false,\"colour\":\"red\"}}\n";
    let error = read(newer).expect_err("the format is newer");
    assert_eq!(error.to_string(), "line 1: format 2 of schedspan 9.0; this schedspan reads format 1");
}

#[test]
fn rejects_duplicate_processes_and_lines_after_the_end() {
    let twice = write(&[found(0), found(0)], NO_LIMIT, false).0;
    assert_eq!(read(&twice).expect_err("twice").to_string(), "line 3: process 0 was found before");
    let more = recording() + "\n";
    assert_eq!(read(&more).expect_err("more").to_string(), "line 7: there is something after the end");
}

#[test]
fn full_file_is_complete_and_counts_omissions() {
    let mut lines = vec![found(0)];
    lines.extend((0..1_000).map(|_| event(0, Function::Pop, Role::Ret, Values::default())));
    let (text, summary) = write(&lines, 64 << 10, false);
    assert!(text.len() <= 64 << 10, "{}", text.len());
    assert_eq!(summary.bytes, text.len() as u64);
    assert_eq!(summary.events + summary.left_out, 1_000);
    let mut read = read(&text).expect("it is whole");
    assert_eq!(read.pop(), Some(Line::End(End { left_out: summary.left_out, ..End::default() })));
    assert_eq!(read.len() as u64, summary.events + 1);
}

/// A disk with room for this many bytes.
struct Disk(usize);

impl io::Write for Disk {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self.0.checked_sub(data.len()) {
            Some(left) => {
                self.0 = left;
                Ok(data.len())
            }
            None => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn full_disk_ends_the_recording_with_an_error() {
    assert!(Recorder::<_, KubeScheduler>::new(Disk(10), NO_LIMIT, false).is_err());
    let mut recorder =
        Recorder::<_, KubeScheduler>::new(Disk(1_000), NO_LIMIT, false).expect("the header fits");
    assert!(recorder.take(found(0)));
    let more = (0..100).take_while(|_| recorder.take(event(0, Function::Pop, Role::Ret, Values::default())));
    assert!((1..10).contains(&more.count()));
    recorder.take(Line::End(End::default()));
    let recording::WriteError::Io(error) = recorder.finish().expect_err("it was full") else {
        panic!("it was ended")
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
}

#[test]
fn a_replay_and_the_daemon_make_the_same_of_events() {
    let popped = Values::default().with(Value::QueuedPodInfo, 1).with(Value::PodUid, "u");
    let failed = Values::default().with(Value::StatusCode, 2);
    let lines = [
        Line::Clocks(Clocks { monotonic_ns: 5, unix_ns_at_zero: 9 }),
        found(0),
        event(0, Function::Pop, Role::ReturnSite, popped),
        event(0, Function::SchedulingCycle, Role::Entry, Values::default()),
        event(0, Function::SchedulingCycle, Role::ReturnSite, Values::default()),
        event(0, Function::HandleFailure, Role::Entry, failed),
        event(0, Function::HandleFailure, Role::Ret, Values::default()),
        event(0, Function::Bind, Role::Ret, Values::default()),
        Line::Gone { target: 0 },
    ];
    let (mut text, _) = write(&lines, NO_LIMIT, false);
    text = text.replace("\"losses\":{}", "\"losses\":{\"ring_full\":3,\"orphan_call\":9}");
    let mut replay = Replay::<_, KubeScheduler>::new(text.as_bytes()).expect("it has a header");
    let steps: Vec<String> = replay
        .by_ref()
        .map(|step| match step.expect("it is whole") {
            Step::Found(found) => format!("found {}", found.target),
            Step::Finished(attempt, clocks) => {
                format!("{:?} of {} by {}", attempt.outcome, attempt.pod.uid, clocks.unix_ns_at_zero)
            }
            Step::Gone(target) => format!("gone {target}"),
        })
        .collect();
    let failed = "Failed { code: Some(Code(2)), reason: \"\", plugin: \"\" } of u by 9";
    assert_eq!(steps, ["found 0", failed, "gone 0"]);
    assert_eq!((replay.events(), replay.pipeline().stats().stray_ends), (6, 1));
    // Losses before the first event come from the recording; later ones are detected again.
    let lost: Vec<_> = replay.losses().filter(|(_, lost)| *lost > 0).collect();
    assert_eq!(lost, [("ring_full", 3)]);
    assert_eq!(replay.end().map(|end| end.losses["orphan_call"]), Some(9));
}
