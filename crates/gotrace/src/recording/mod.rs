//! Recordings: events in a file, for bug reports, tests and replays.
//!
//! # Format
//!
//! One JSON object a line, each with one key for its kind; see [`Line`].
//!
//! * `header`, first: the version of the format and of schedspan.
//! * `found`, `event`, `sample`, `window`, `cut`, `clocks`, `gone`: the input of the [pipeline](crate::pipeline), in order. Values that were not
//!   read are absent.
//! * `end`, last: the losses by cause, and the assembler's counts. A file without it was cut off.
//!
//! Data from other sources, such as trace contexts from the API server, is not recorded: a replayed trace only links to
//! traces of the same recording.
//!
//! # Redaction
//!
//! The program defines which values name objects of users. They become pseudonyms of the same kind (`pod-1`, `node-3`),
//! equal for equal names. Free text is replaced completely (`message-2`), equal for equal texts. Only the file name of
//! the executable's path is kept. Names of functions, codes, numbers, times and addresses are kept: a report needs
//! them.
//!
//! # Design constraints
//!
//! * A file is untrusted: lines, times and the number of processes are bounded, unknown keys are refused, and errors
//!   name the line.
//! * The supervisor waits while a line is written, so lines only go to a buffer and a file of bounded size.

mod read;
mod redact;
mod write;

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};

pub use self::{
    read::{Error, Reader, Replay, Step},
    write::{Recorder, Summary, WriteError},
};
use crate::{
    account::{Account, Stats},
    code::Sampled,
    governor::Cut,
    pipeline::{Clocks, Found},
    program::Event,
    program::Program,
    window::Window,
};

/// Version of the format. Files of other versions are refused.
pub const FORMAT: u32 = 1;
/// Maximum length of a line, in bytes. The keys of a map have some 100,000 bytes, and their texts about as many; JSON may
/// escape each as six.
pub const MAX_LINE: usize = 2 << 20;
/// Maximum number of processes in a file.
const MAX_TARGETS: usize = 4_096;
/// 18 years, longer than any uptime. Sums of a few such times fit into 64 bits.
pub const MAX_TIME_NS: u64 = 1 << 59;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "")]
pub enum Line<'a, P: Program> {
    /// Version and properties of the file.
    Header(Header),
    /// Tracing of a process starts.
    Found(Cow<'a, Found>),
    /// A tick: readings of the clocks. What has had no event for too long expires.
    Clocks(Clocks),
    /// A hit of a probe.
    Event(Cow<'a, Event<P>>),
    /// Where a process was at one moment.
    Sample(Cow<'a, Sampled>),
    /// The calls of one turn of a process.
    Window(Cow<'a, Window<P::Function>>),
    /// What is cut of the tracing of a process from here on.
    Cut {
        /// Its target number.
        target: u32,
        /// When that was decided, `CLOCK_MONOTONIC`, nanoseconds.
        time_ns: u64,
        /// What is cut.
        cut: Cut,
    },
    /// A process has ended.
    Gone {
        /// Its target number.
        target: u32,
    },
    /// The regular end of the recording.
    End(End),
}

/// Version and properties of a file. Unknown keys are allowed: they are judged by the format's version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the schedspan that wrote it.
    pub schedspan: String,
    /// Whether names are replaced by pseudonyms.
    pub redacted: bool,
}

/// Losses and counts at the end of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct End {
    /// Losses by cause, including zeros.
    pub losses: BTreeMap<String, u64>,
    /// The assembler's losses.
    pub stats: Stats,
    /// Fates of all events.
    pub account: Account,
    /// Events dropped because the file was full. The other counts include them.
    pub left_out: u64,
}
