//! A case is a recorded stream with a few changes to its lines.

use std::{hint::black_box, sync::LazyLock};

use arbitrary::{Result, Unstructured};
use gotrace::recording::{MAX_TIME_NS, Replay, Step};
use kube_scheduler::{KubeScheduler, attempt_log::AttemptLog, explain, last_minute::Window};
use serde_json::{Value, json};
use spans::{
    Anchor, Origin, Story as _, Trace,
    export::{Style, waterfall},
    story::Extras,
};

/// Changes of a case.
const MAX_EDITS: usize = 24;
/// Lines that every recording begins with.
const HEAD: usize = 3;

pub(crate) const STYLE: Style = Style { width: 100, colour: true, plugins: true };

/// What schedulers of several versions did.
static STREAMS: LazyLock<[Vec<Value>; 5]> = LazyLock::new(|| {
    [
        include_str!("../../tests/streams/1.29.jsonl"),
        include_str!("../../tests/streams/1.33.jsonl"),
        include_str!("../../tests/streams/1.34.jsonl"),
        include_str!("../../tests/streams/1.36.jsonl"),
        include_str!("../../tests/streams/1.37.jsonl"),
    ]
    .map(|stream| stream.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect())
});

/// Replays the stream, and makes of its attempts whatever the daemon makes of them.
///
/// # Panics
///
/// If a trace is not well formed.
pub fn run(case: &[u8]) {
    let Ok(stream) = stream(&mut Unstructured::new(case)) else { return };
    let Ok(replay) = Replay::<_, KubeScheduler>::new(stream.as_slice()) else { return };
    let (log, mut window, mut pods) = (AttemptLog::new(8), Window::default(), Vec::new());
    for step in replay {
        let Ok(Step::Finished(attempt, clocks)) = step else { continue };
        let anchor = Anchor { unix_ns_at_zero: clocks.unix_ns_at_zero };
        let trace = attempt.trace(
            anchor,
            Origin::default(),
            Extras { queue_spans: true, monotonic: true, ..Extras::default() },
        );
        check(&trace);
        black_box(waterfall(&trace, &STYLE));
        log.add(&trace);
        window.trace(0, "Success", &trace);
        pods.push(attempt.pod);
    }
    black_box(window.figures(0));
    pods.dedup();
    for pod in pods {
        black_box(explain::text(&log.report(&pod.namespace, &pod.name, true, u64::MAX), 100));
    }
}

/// Every span ends after its beginning, and its parent is in the trace; a member of a group has its root in the group's trace.
pub(crate) fn check(trace: &Trace) {
    for (number, span) in trace.spans.iter().enumerate() {
        assert!(span.start_unix_ns <= span.end_unix_ns, "{span:?}");
        let is_parent = |parent| trace.spans.iter().any(|other| other.span_id == parent);
        assert!(number == 0 || span.parent_id.is_none_or(is_parent), "{span:?} has no parent");
    }
}

/// The lines of a file.
fn stream(case: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let stream = case.choose(&*STREAMS)?;
    let start = case.int_in_range(HEAD..=stream.len())?;
    // A short stream is quick, and most changes need no other lines.
    let end = match case.arbitrary::<u8>()? {
        u8::MAX => stream.len(),
        count => stream.len().min(start + 64 + usize::from(count)),
    };
    let mut lines: Vec<_> = stream[..HEAD].iter().chain(&stream[start..end]).cloned().collect();
    if end < stream.len() {
        lines.extend(stream.last().cloned());
    }
    for _ in 0..MAX_EDITS {
        if case.is_empty() || lines.is_empty() {
            break;
        }
        edit(&mut lines, case)?;
    }
    let mut file: Vec<u8> = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
    // 0 where the case is over.
    if case.int_in_range(0..=15)? > 14 && !file.is_empty() {
        let at = case.choose_index(file.len())?;
        file[at] = case.arbitrary()?;
    }
    Ok(file)
}

/// Changes a line.
fn edit(lines: &mut Vec<Value>, case: &mut Unstructured<'_>) -> Result<()> {
    let (at, other) = (case.choose_index(lines.len())?, case.choose_index(lines.len())?);
    match case.int_in_range(0..=7)? {
        0 => drop(lines.remove(at)),
        1 => lines.insert(other, lines[at].clone()),
        2 => lines.swap(at, other),
        3 => {
            let gone = json!({ "gone": { "target": case.int_in_range(0..=1)? } });
            lines.insert(at, gone);
        }
        4 => {
            let clocks = json!({ "monotonicNs": number(case)?, "unixNsAtZero": number(case)? });
            lines.insert(at, json!({ "clocks": clocks }));
        }
        // An event becomes that of another goroutine or function.
        5 => {
            let key =
                *case.choose(&["goroutine", "function", "role", "depth", "timeNs", "lastLoss", "values"])?;
            if let Some(value) = lines[other].pointer(&format!("/event/{key}")).cloned()
                && let Some(place) = lines[at].pointer_mut(&format!("/event/{key}"))
            {
                *place = value;
            }
        }
        _ => {
            let number = number(case)?;
            let mut places = Vec::new();
            numbers(&mut lines[at], &mut places);
            if !places.is_empty() {
                let place = case.choose_index(places.len())?;
                *places[place] = number;
            }
        }
    }
    Ok(())
}

/// A number at a limit, or any.
fn number(case: &mut Unstructured<'_>) -> Result<Value> {
    Ok(match case.int_in_range(0..=7)? {
        0 => u64::MAX.into(),
        1 => i64::MAX.into(),
        2 => i64::MIN.into(),
        3 => MAX_TIME_NS.into(),
        4 => case.arbitrary::<u8>()?.into(),
        5 => case.arbitrary::<u32>()?.into(),
        _ => case.arbitrary::<u64>()?.into(),
    })
}

/// All numbers in a line.
fn numbers<'a>(line: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    match line {
        Value::Number(_) => found.push(line),
        Value::Array(values) => values.iter_mut().for_each(|value| numbers(value, found)),
        Value::Object(values) => values.values_mut().for_each(|value| numbers(value, found)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
