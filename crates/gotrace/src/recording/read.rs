//! Reads recordings, and replays them.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, Read as _},
    marker::PhantomData,
};

use telemetry::Label as _;

use super::{End, FORMAT, Header, Line, MAX_LINE, MAX_TARGETS, MAX_TIME_NS};
use crate::{
    metrics::RecordLoss,
    pipeline::{Clocks, Found, Output, Pipeline},
    program::Program,
    window::Window,
};

/// A fault in a file, with its line.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Error {
    /// The line's number, from 1.
    pub line: u64,
    /// The fault.
    pub what: Fault,
}

/// Faults of a line.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file cannot be read.
    #[error("cannot read further: {0}")]
    Io(#[from] io::Error),
    /// Longer than any line that schedspan writes.
    #[error("it is longer than {MAX_LINE} bytes")]
    TooLong,
    /// The line or the recording has no end.
    #[error("the recording is cut off here")]
    CutOff,
    /// Not JSON, or not of this form.
    #[error("{0}")]
    Form(String),
    /// Not a recording.
    #[error("this is not a recording: it does not begin with a header; `schedspan record` makes one")]
    NoHeader,
    /// The format belongs to another version of schedspan.
    #[error("format {format} of schedspan {schedspan}; this schedspan reads format {FORMAT}")]
    Format {
        /// The file's format.
        format: u32,
        /// Version of the schedspan that wrote it.
        schedspan: String,
    },
    /// A line that is not allowed at this place.
    #[error("{0}")]
    Order(&'static str),
    /// An event or the end of a process without a `found` line.
    #[error("process {0} was not found before")]
    Unknown(u32),
    /// A second `found` line with the same target number.
    #[error("process {0} was found before")]
    Again(u32),
    /// More processes than [`MAX_TARGETS`].
    #[error("more than {MAX_TARGETS} processes")]
    TooMany,
    /// A time beyond [`MAX_TIME_NS`].
    #[error("{0} nanoseconds are more than a machine runs")]
    Time(u64),
}

/// Reads a recording line by line.
#[derive(Debug)]
pub struct Reader<R, P> {
    input: R,
    /// Number of the last line read.
    number: u64,
    buffer: Vec<u8>,
    header: Header,
    found: BTreeSet<u32>,
    state: State,
    program: PhantomData<P>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The `end` line was read.
    Ended,
    /// The input has ended, or is faulty.
    Over,
}

impl<R: BufRead, P: Program> Reader<R, P> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// When the input does not begin with a header, or the header has another format.
    pub fn new(mut input: R) -> Result<Self, Error> {
        let mut buffer = Vec::new();
        let first = |what| Error { line: 1, what };
        let header = match read(&mut input, &mut buffer) {
            Ok(true) => match serde_json::from_slice::<Line<'_, P>>(&buffer) {
                Ok(Line::Header(header)) => header,
                _ => return Err(first(Fault::NoHeader)),
            },
            Ok(false) | Err(Fault::TooLong) => return Err(first(Fault::NoHeader)),
            Err(what) => return Err(first(what)),
        };
        if header.format != FORMAT {
            let Header { format, schedspan, .. } = header;
            return Err(first(Fault::Format { format, schedspan }));
        }
        Ok(Self {
            input,
            number: 1,
            buffer,
            header,
            found: BTreeSet::new(),
            state: State::Open,
            program: PhantomData,
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn line(&mut self) -> Result<Option<Line<'static, P>>, Fault> {
        self.number += 1;
        match (read(&mut self.input, &mut self.buffer)?, self.state) {
            (false, State::Open) => return Err(Fault::CutOff),
            (false, _) => return Ok(None),
            (true, State::Open) => {}
            (true, _) => return Err(Fault::Order("there is something after the end")),
        }
        let line = serde_json::from_slice(&self.buffer).map_err(|error| Fault::Form(form(&error)))?;
        match &line {
            Line::Header(_) => return Err(Fault::Order("a second header")),
            Line::Found(_) if self.found.len() >= MAX_TARGETS => return Err(Fault::TooMany),
            Line::Found(found) if !self.found.insert(found.target) => return Err(Fault::Again(found.target)),
            Line::Found(_) => {}
            Line::Clocks(clocks) => time(clocks.monotonic_ns)?,
            Line::Event(event) => {
                time(event.time_ns)?;
                self.known(event.target)?;
            }
            Line::Sample(sample) => {
                time(sample.time_ns)?;
                time(sample.period_ns)?;
                self.known(sample.target)?;
            }
            Line::Window(window) => {
                let Window { target, begin_ns, end_ns, complete: _, phases } = &**window;
                let ends = phases.iter().map(|phase| phase.end_ns);
                let sums = phases.iter().flat_map(|phase| &phase.calls).map(|calls| calls.total_ns);
                [*begin_ns, *end_ns].into_iter().chain(ends).chain(sums).try_for_each(time)?;
                self.known(*target)?;
            }
            Line::Cut { target, time_ns, cut: _ } => {
                time(*time_ns)?;
                self.known(*target)?;
            }
            Line::Gone { target } => self.known(*target)?,
            Line::End(_) => self.state = State::Ended,
        }
        Ok(Some(line))
    }

    fn known(&self, target: u32) -> Result<(), Fault> {
        if self.found.contains(&target) { Ok(()) } else { Err(Fault::Unknown(target)) }
    }
}

impl<R: BufRead, P: Program> Iterator for Reader<R, P> {
    type Item = Result<Line<'static, P>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Over {
            return None;
        }
        let result = self.line();
        if !matches!(result, Ok(Some(_))) {
            self.state = State::Over;
        }
        result.map_err(|what| Error { line: self.number, what }).transpose()
    }
}

/// Reads a line, without its line feed; `false` at the end of the input.
fn read(input: &mut impl BufRead, buffer: &mut Vec<u8>) -> Result<bool, Fault> {
    buffer.clear();
    input.take(MAX_LINE as u64 + 1).read_until(b'\n', buffer)?;
    match buffer.pop() {
        None => Ok(false),
        Some(b'\n') => Ok(true),
        Some(_) if buffer.len() >= MAX_LINE => Err(Fault::TooLong),
        Some(_) => Err(Fault::CutOff),
    }
}

fn time(ns: u64) -> Result<(), Fault> {
    if ns <= MAX_TIME_NS { Ok(()) } else { Err(Fault::Time(ns)) }
}

/// Message of serde_json without its line, which is always 1.
fn form(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("column {}: {what}", error.column())
}

/// A result of a replay, in the order of the daemon.
#[derive(Clone, Debug)]
pub enum Step<T> {
    /// Tracing of a process starts.
    Found(Box<Found>),
    /// A finished output, and the clocks that date it.
    Finished(T, Clocks),
    /// A process has ended.
    Gone(u32),
}

/// Replays a recording: hands its lines to the pipeline, and returns what the daemon would have sent.
#[derive(Debug)]
pub struct Replay<R, P: Program> {
    reader: Reader<R, P>,
    pipeline: Pipeline<P>,
    targets: BTreeSet<u32>,
    events: u64,
    /// Results to return before the next line is read, in reverse order.
    ready: Vec<Step<Output<P>>>,
    end: Option<End>,
}

impl<R: BufRead, P: Program> Replay<R, P> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// Those of [`Reader::new`].
    pub fn new(input: R) -> Result<Self, Error> {
        Ok(Self {
            reader: Reader::new(input)?,
            pipeline: Pipeline::default(),
            targets: BTreeSet::new(),
            events: 0,
            ready: Vec::new(),
            end: None,
        })
    }

    /// Number of events read.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The `end` line, once it was read. It has the losses before decoding, which a replay cannot reproduce.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Losses by cause: those before decoding from the recording, the others from the replay.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let recorded = |cause: &RecordLoss| {
            let lost = self.end.as_ref().and_then(|end| end.losses.get(cause.label())).copied();
            (cause.label(), lost.unwrap_or_default())
        };
        let again = self.pipeline.stats().each().map(|(cause, lost)| (cause.label(), lost));
        RecordLoss::ALL.iter().map(recorded).chain(again)
    }

    /// The pipeline that handles the events.
    pub fn pipeline(&self) -> &Pipeline<P> {
        &self.pipeline
    }

    fn take(&mut self, line: Line<'static, P>) {
        // A process is removed after its last traces, and added before its first.
        let mut gone = None;
        match line {
            Line::Header(_) => {}
            Line::Found(found) => {
                self.targets.insert(found.target);
                self.ready.push(Step::Found(found.into_owned().into()));
            }
            Line::Clocks(clocks) => self.pipeline.look(clocks),
            Line::Event(event) => {
                self.events += 1;
                self.pipeline.event(event.into_owned());
            }
            Line::Sample(sample) => self.pipeline.sample(sample.into_owned()),
            Line::Window(window) => self.pipeline.window(window.into_owned()),
            Line::Cut { target, time_ns, cut } => self.pipeline.cut(target, time_ns, cut),
            Line::Gone { target } => {
                self.targets.remove(&target);
                self.pipeline.exit(target);
                gone = Some(Step::Gone(target));
            }
            Line::End(end) => {
                for target in std::mem::take(&mut self.targets) {
                    self.pipeline.exit(target);
                }
                self.end = Some(end);
            }
        }
        let clocks = self.pipeline.clocks();
        self.ready
            .extend(self.pipeline.take_finished().into_iter().map(|output| Step::Finished(output, clocks)));
        self.ready.extend(gone);
        self.ready.reverse();
    }
}

impl<R: BufRead, P: Program> Iterator for Replay<R, P> {
    type Item = Result<Step<Output<P>>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(message) = self.ready.pop() {
                return Some(Ok(message));
            }
            match self.reader.next() {
                Some(Ok(line)) => self.take(line),
                Some(Err(error)) => return Some(Err(error)),
                None => return None,
            }
        }
    }
}
