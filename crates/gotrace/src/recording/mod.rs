//! Events in a file: what a user attaches to a report, and what tests replay.
//!
//! # Format
//!
//! One JSON object a line, each with one key that says what it is; see [`Line`].
//!
//! * `header`, first: the format's version and schedspan's.
//! * `found`, `event`, `clocks`, `gone`: what goes into the [pipeline](crate::pipeline), in its order. What was not read
//!   is absent.
//! * `end`, last: what was lost, by cause, and what the assembler counted. A file without it was cut off.
//!
//! What the daemon learns elsewhere, such as trace contexts from the API server, is not recorded: a replayed trace is linked to
//! traces of the same recording alone.
//!
//! # Redaction
//!
//! The program says which values name objects of users. They become pseudonyms of the same kind (`pod-1`, `node-3`), equal names
//! equal ones; text that quotes anything keeps nothing but which texts are equal (`message-2`). Of the executable's path the
//! file's name stays. Names of functions, codes, numbers, times and addresses are kept: they are what a report is about.
//!
//! # Design constraints
//!
//! * A file comes from anywhere: lines, times and the number of processes are bounded, unknown keys refused, and an
//!   error names the line.
//! * The engine waits while a line is written, so nothing is written but into a buffer and a file of bounded size.

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
    assemble::{Account, Stats},
    decode::Event,
    pipeline::{Clocks, Found},
    program::Program,
};

/// Version of the format. A file of another one is refused.
pub const FORMAT: u32 = 1;
/// Bytes of a line. The longest text has some 2,000, each of which JSON may write as six.
pub const MAX_LINE: usize = 64 << 10;
/// Processes in a file, one after the other.
const MAX_TARGETS: usize = 4_096;
/// No machine runs for 18 years; sums of some such times still fit into 64 bits.
pub const MAX_TIME_NS: u64 = 1 << 59;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "")]
pub enum Line<'a, P: Program> {
    /// What the file is.
    Header(Header),
    /// A process is traced from now on.
    Found(Cow<'a, Found>),
    /// The clocks were compared, and what was silent for too long was given up.
    Clocks(Clocks),
    /// A hit of a probe.
    Event(Cow<'a, Event<P>>),
    /// A process has ended.
    Gone {
        /// Its number.
        target: u32,
    },
    /// The recording was ended in order.
    End(End),
}

/// What a file is. Unknown keys are none of a reader's business until it knows the format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// The schedspan that wrote it.
    pub schedspan: String,
    /// Whether names were replaced.
    pub redacted: bool,
}

/// What became of what is not in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct End {
    /// Losses by cause, zeros too.
    pub losses: BTreeMap<String, u64>,
    /// What the assembler counted.
    pub stats: Stats,
    /// What became of each event.
    pub account: Account,
    /// Events that came when the file was full. The figures above count them, too.
    pub left_out: u64,
}
