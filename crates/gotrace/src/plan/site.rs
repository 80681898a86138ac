//! An instruction to probe, and what its reads mean.

use std::ops::Range;

use goexe::Class;
use serde::Serialize;
use wire::Site;

use super::row::{Held, Role};
use crate::{
    program::{Detail, Program},
    values::name,
};

/// Part of a record that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Index in the words.
    Word(usize),
    /// Index in the strings.
    Text(usize),
}

/// Interpretation of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<V> {
    /// A value of its [kind](crate::values::Kind).
    Value(V),
    /// One element of a list of strings, by index.
    TextAt(V, u8),
    /// Type descriptor in an error: the value is 0 for nil, else 1.
    Failure(V),
    /// First field of what an error holds: its message, if its type is one of these; else the value is the type's name.
    MessageOf(V, &'static [&'static str]),
    /// Type descriptor in an interface: the value is read if the type is one of these, with that number of strings.
    Holds(V, &'static [Held]),
    /// Type descriptor in an interface: the value is its name, if it begins like the struct that the row names.
    NameOfLike(V),
    /// Field of such a struct: read only if the type of the same site has a name.
    Like(V),
    /// First word of the `time.Time` at the start of the call.
    StartWall,
    /// Second word of that `time.Time`: nanoseconds since about the start of the process.
    StartMonotonic,
    /// First eight bytes of the result's label. A shorter label is followed by unrelated bytes.
    Result,
    /// Length of that label.
    ResultLength,
    /// Return address: of a closure in the enclosing function, unless a panic runs the closure; of another function in the caller whose
    /// frame has the start of the call.
    ReturnAddress,
}

impl<V: Serialize> Reading<V> {
    /// Name in the output of `schedspan inspect`: the value's serialized name, or its own.
    pub fn name(&self) -> String {
        match self {
            Self::Value(value) | Self::MessageOf(value, _) | Self::NameOfLike(value) | Self::Like(value) => {
                name(value)
            }
            Self::TextAt(value, place) => format!("{}[{place}]", name(value)),
            Self::Failure(value) => format!("{} of an error", name(value)),
            Self::Holds(value, _) => format!("type of {}", name(value)),
            Self::StartWall => "start".to_owned(),
            Self::StartMonotonic => "start (monotonic)".to_owned(),
            Self::Result => "result".to_owned(),
            Self::ResultLength => "length of the result".to_owned(),
            Self::ReturnAddress => "return address".to_owned(),
        }
    }
}

/// An instruction to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSite<P: Program> {
    /// The function that a hit refers to.
    pub function: P::Function,
    /// What a hit means.
    pub role: Role,
    /// The lowest level of detail that has it; [`Detail::Attempts`] if it is needed for whole traces.
    pub detail: Detail,
    /// Virtual address in the executable.
    pub address: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Cost class of a hit.
    pub class: Class,
    /// Bytes from the stack pointer here up to its value at the call's entry; negative if it is above that.
    pub stack_depth: i64,
    /// Symbol of the function that contains the instruction.
    pub symbol: String,
    /// Where it returns to, if that is read: for a closure, the range of the enclosing function.
    pub called_by: Option<Range<u64>>,
    /// The site's reads, for the eBPF program.
    pub spec: Site,
    /// The interpretation of each read, by index.
    pub values: Vec<(Reading<P::Value>, Slot)>,
    /// The value that receives the list or map, if the site reads one.
    pub list: Option<P::Value>,
}

/// A function that cannot be traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// Serialized name of the function.
    pub function: String,
    /// What was searched for and not found.
    pub why: String,
    /// What is missing from the traces.
    pub without: String,
}
