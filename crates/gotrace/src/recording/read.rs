//! Lines out of a file, and what the daemon would have made of them.

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
};

/// What is wrong with a file, and where.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct Error {
    /// The line's number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub what: Fault,
}

/// What can be wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The system does not read on.
    #[error("cannot read on: {0}")]
    Io(#[from] io::Error),
    /// Nothing that schedspan writes is so long.
    #[error("it is longer than {MAX_LINE} bytes")]
    TooLong,
    /// No end of the line, or none of the recording.
    #[error("the recording is cut off here")]
    CutOff,
    /// No JSON, or not of this form.
    #[error("{0}")]
    Form(String),
    /// Another kind of file.
    #[error("this is no recording: it does not begin with a header; `schedspan record` makes one")]
    NoHeader,
    /// From another schedspan.
    #[error("format {format} of schedspan {schedspan}; this schedspan reads format {FORMAT}")]
    Format {
        /// The file's format.
        format: u32,
        /// Who wrote it.
        schedspan: String,
    },
    /// A line where it cannot be.
    #[error("{0}")]
    Order(&'static str),
    /// An event or an end of a process that was not found before.
    #[error("process {0} was not found before")]
    Unknown(u32),
    /// The same number again.
    #[error("process {0} was found before")]
    Again(u32),
    /// More than a machine runs.
    #[error("more than {MAX_TARGETS} processes")]
    TooMany,
    /// After the end of the world.
    #[error("{0} nanoseconds are more than a machine runs")]
    Time(u64),
}

/// Reads a recording, line by line.
#[derive(Debug)]
pub struct Reader<R, P> {
    input: R,
    /// The line that was read last.
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
    /// The last line was read.
    Ended,
    /// There is nothing more to read: the input is over, or wrong.
    Over,
}

impl<R: BufRead, P: Program> Reader<R, P> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// When the input does not begin with one, or with one of another format.
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

    /// What the file is.
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

/// Reads a line, without its end; `false` if there is none.
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

/// What serde_json says; its line is the first of one.
fn form(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("column {}: {what}", error.column())
}

/// What a replay gives, in the order in which the daemon gave it.
#[derive(Clone, Debug)]
pub enum Step<T> {
    /// A process is traced from now on.
    Found(Box<Found>),
    /// Something has ended, and the clocks by which it is dated.
    Finished(T, Clocks),
    /// A process has ended.
    Gone(u32),
}

/// What the daemon gave its outputs: the lines of a recording, gone through the pipeline.
#[derive(Debug)]
pub struct Replay<R, P: Program> {
    reader: Reader<R, P>,
    pipeline: Pipeline<P>,
    targets: BTreeSet<u32>,
    events: u64,
    /// What comes before the next line is read, the last first.
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

    /// How many events have been read.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The last line, once it was read: what was lost before there was an event, a replay cannot find again.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Losses by cause: those before there was an event as the recording says, the others as they came about again.
    pub fn losses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let recorded = |cause: &RecordLoss| {
            let lost = self.end.as_ref().and_then(|end| end.losses.get(cause.label())).copied();
            (cause.label(), lost.unwrap_or_default())
        };
        let again = self.pipeline.stats().each().map(|(cause, lost)| (cause.label(), lost));
        RecordLoss::ALL.iter().map(recorded).chain(again)
    }

    /// What follows upon the events.
    pub fn pipeline(&self) -> &Pipeline<P> {
        &self.pipeline
    }

    fn take(&mut self, line: Line<'static, P>) {
        // An ended process is forgotten after its last traces, a found one known before its first.
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
