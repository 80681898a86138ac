//! Writes recordings.

use std::io::{self, Write};

use serde_json::Value;
use tracing::warn;

use super::{End, FORMAT, Header, Line, redact::Redactor};
use crate::program::Program;

/// Bytes reserved for the last line.
const END_ROOM: u64 = 16 << 10;

/// Writes a recording.
#[derive(Debug)]
pub struct Recorder<W, P> {
    out: W,
    redactor: Option<Redactor<P>>,
    /// Remaining bytes.
    room: u64,
    full: bool,
    summary: Summary,
    failed: Option<io::Error>,
    ended: bool,
}

/// Counts of a written file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of processes.
    pub processes: u64,
    /// Number of events.
    pub events: u64,
    /// Number of events dropped because the file was full.
    pub left_out: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// Why a recording is not complete.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A write failed.
    #[error("cannot write the recording")]
    Io(#[from] io::Error),
    /// The `end` line is missing.
    #[error("the recording was not ended: the thread that records has panicked")]
    NotEnded,
}

impl<W: Write, P: Program> Recorder<W, P> {
    /// Begins a recording of at most `max_size` bytes. `redact` replaces names by pseudonyms.
    ///
    /// # Errors
    ///
    /// When the header cannot be written.
    pub fn new(out: W, max_size: u64, redact: bool) -> Result<Self, WriteError> {
        let mut recorder = Self {
            out,
            redactor: redact.then(Redactor::default),
            room: max_size.saturating_sub(END_ROOM),
            full: false,
            summary: Summary::default(),
            failed: None,
            ended: false,
        };
        let schedspan = env!("CARGO_PKG_VERSION").to_owned();
        recorder.take(Line::Header(Header { format: FORMAT, schedspan, redacted: redact }));
        recorder.out.flush()?;
        match recorder.failed.take() {
            Some(error) => Err(error.into()),
            None => Ok(recorder),
        }
    }

    /// Writes a line. Returns whether further lines can be written. There is always room for the `end` line.
    pub fn take(&mut self, line: Line<'_, P>) -> bool {
        let line = match &mut self.redactor {
            Some(redactor) => redactor.line(line),
            None => line,
        };
        let summary = &mut self.summary;
        let (processes, events, last, flush) = match &line {
            Line::Found(_) => (1, 0, false, false),
            Line::Event(_) => (0, 1, false, false),
            // Flushes once a second, so that a crash loses little.
            Line::Clocks(_) => (0, 0, false, true),
            Line::Sample(_) | Line::Window(_) | Line::Cut { .. } | Line::Header(_) | Line::Gone { .. } => {
                (0, 0, false, false)
            }
            Line::End(_) => (0, 0, true, true),
        };
        if last {
            self.room += END_ROOM;
            self.ended = true;
        } else if self.full || self.failed.is_some() {
            summary.left_out += events;
            return false;
        }
        let text = match line {
            Line::End(end) => text(&Line::<P>::End(End { left_out: summary.left_out, ..end })),
            line => text(&line),
        };
        let length = text.len() as u64;
        if length > self.room {
            self.full = true;
            summary.left_out += events;
            return false;
        }
        let mut written = self.out.write_all(text.as_bytes());
        if flush {
            written = written.and_then(|()| self.out.flush());
        }
        if let Err(error) = written {
            warn!("cannot write the recording: {error}");
            self.failed.get_or_insert(error);
            return false;
        }
        self.room -= length;
        summary.bytes += length;
        summary.processes += processes;
        summary.events += events;
        true
    }

    /// Counts of the file, after the `end` line.
    ///
    /// # Errors
    ///
    /// When a write has failed, or the `end` line is missing.
    pub fn finish(&mut self) -> Result<Summary, WriteError> {
        match self.failed.take() {
            Some(error) => Err(error.into()),
            None if !self.ended => Err(WriteError::NotEnded),
            None => Ok(self.summary),
        }
    }
}

/// Serializes a line without its `None` fields. Serde has no attribute for all fields at once.
fn text<P: Program>(line: &Line<'_, P>) -> String {
    // A line has only strings and numbers, which JSON can represent.
    let mut value = serde_json::to_value(line).expect("a line becomes JSON");
    prune(&mut value);
    format!("{value}\n")
}

/// Removes null values. Elements of a list stay, unless all are empty.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|_, value| !matches!(value, Value::Null) && value != &Value::Array(Vec::new()));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(prune);
            if items.iter().all(Value::is_null) {
                items.clear();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::Kitchen;

    #[test]
    fn what_is_absent_takes_no_space_and_the_rest_stays() {
        let mut value =
            json!({"a": null, "b": [], "c": [null, 1], "d": [null, null], "e": {"f": null}, "g": 0});
        prune(&mut value);
        assert_eq!(value, json!({"c": [null, 1], "e": {}, "g": 0}));
    }

    #[test]
    fn a_file_is_full_when_the_next_line_does_not_fit_to_the_byte() {
        let gone = || -> Line<'static, Kitchen> { Line::Gone { target: 0 } };
        let mut header = Vec::new();
        Recorder::<_, Kitchen>::new(&mut header, u64::MAX, false).expect("it is memory");
        let needed = header.len() as u64 + text(&gone()).len() as u64 + END_ROOM;
        for (room, fits) in [(needed, true), (needed - 1, false)] {
            let mut recorder = Recorder::<_, Kitchen>::new(Vec::new(), room, false).expect("it is memory");
            assert_eq!(recorder.take(gone()), fits);
            assert!(!recorder.take(gone()), "it is full");
            assert!(recorder.take(Line::End(End::default())), "there is always room for the end");
            let bytes = recorder.finish().expect("it has ended").bytes;
            assert_eq!(bytes, recorder.out.len() as u64);
        }
    }
}
