//! Machine code: cost of an instruction under a probe, calls, and where they return.

mod amd64;
mod arm64;

use crate::Machine;

/// How the kernel executes an instruction under a uprobe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Emulated: cheap.
    Emulated,
    /// Copied and single-stepped, with a second trap: 2 to 20 times the cost.
    SingleStepped,
}

/// An instruction to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Virtual address in the file.
    pub address: u64,
    /// Cost class of a hit.
    pub class: Class,
}

/// The target of a call instruction, as far as the code around it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// The function at this address.
    Direct(u64),
    /// The function whose address is in a word in memory.
    Indirect {
        /// Offset of that word from its base: 24 + 8 × slot for an itab, 0 for a closure.
        offset: u64,
        /// Offset that the base was loaded from, if it was loaded: a closure's field.
        base: Option<u64>,
    },
}

/// A call, and the cheapest site that sees its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The called function.
    pub callee: Callee,
    /// The call instruction: emulated if the call is direct.
    pub site: Site,
    /// Address of the instruction after the call.
    pub resume: u64,
    /// The first emulated instruction in straight line after the call, which every return of the call executes. `None`
    /// if a return or an indirect jump comes first.
    pub return_site: Option<u64>,
    /// Bit n is set if the n-th integer register of Go's sequence is overwritten before `return_site`.
    pub overwritten: u16,
    /// Lowest offset from the stack pointer that is written before `return_site`, in bytes: arguments that the callee
    /// spilled below it are intact. `u64::MAX` if there is none.
    pub stored: u64,
}

/// The straight line after a call.
struct Return {
    site: Option<u64>,
    overwritten: u16,
    stored: u64,
}

impl Return {
    const NONE: Self = Self { site: None, overwritten: 0, stored: u64::MAX };
}

/// A disassembled instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Virtual address in the file.
    pub address: u64,
    /// What it does.
    pub operation: Operation,
    /// Cost class of a probe on it.
    pub class: Class,
    /// Target of a direct branch or call.
    pub target: Option<u64>,
}

/// What an instruction does, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It calls a function.
    Call,
    /// It continues elsewhere, perhaps.
    Jump,
    /// It returns to the caller.
    Return,
    /// It pushes a value on the stack, and does nothing else.
    Push,
    /// It does anything else.
    Other,
}

/// Maximum number of instructions searched in straight line after a call.
const MAX_STRAIGHT_LINE: usize = 48;

/// All instructions in `code`, which begins at this address, as far as they decode.
#[must_use]
pub fn instructions(machine: Machine, code: &[u8], address: u64) -> Vec<Instruction> {
    match machine {
        Machine::Amd64 => amd64::list(code, address),
        Machine::Arm64 => arm64::list(code, address),
    }
}

/// The assembler texts of [`instructions`].
pub(crate) fn texts(machine: Machine, code: &[u8], address: u64) -> Vec<String> {
    match machine {
        Machine::Amd64 => amd64::texts(code, address),
        Machine::Arm64 => arm64::texts(code, address),
    }
}

/// Class of the first instruction in `code`; `None` if it does not decode.
pub(crate) fn first(machine: Machine, code: &[u8], address: u64) -> Option<Class> {
    match machine {
        Machine::Amd64 => amd64::first(code, address),
        Machine::Arm64 => arm64::first(code),
    }
}

/// Length of the instruction at the end of `code`, if it sets up a frame; else a description of the mismatch.
pub(crate) fn frame_set_up(machine: Machine, code: &[u8]) -> Result<u64, &'static str> {
    match machine {
        Machine::Amd64 => amd64::frame_set_up(code),
        Machine::Arm64 => arm64::frame_set_up(code),
    }
}

/// The `ret` instructions of a function; `Err` holds the address that did not decode.
pub(crate) fn returns(machine: Machine, code: &[u8], address: u64) -> Result<Vec<Site>, u64> {
    match machine {
        Machine::Amd64 => {
            let site = |address| Site { address, class: Class::SingleStepped };
            Ok(amd64::returns(code, address)?.into_iter().map(site).collect())
        }
        Machine::Arm64 => Ok(arm64::returns(code, address)),
    }
}

/// The calls in a function; `Err` holds the address that did not decode.
pub(crate) fn calls(machine: Machine, code: &[u8], address: u64) -> Result<Vec<Call>, u64> {
    match machine {
        Machine::Amd64 => amd64::calls(code, address),
        Machine::Arm64 => Ok(arm64::calls(code, address)),
    }
}

/// Offset in bytes from the stack pointer of the address in an integer register of Go's sequence, at the call at
/// `call`; `None` if the preceding code does not show it.
pub(crate) fn stack_argument(
    machine: Machine,
    code: &[u8],
    address: u64,
    call: u64,
    register: usize,
) -> Option<u64> {
    let code = code.get(..usize::try_from(call.checked_sub(address)?).ok()?)?;
    match machine {
        Machine::Amd64 => amd64::stack_argument(code, address, register),
        Machine::Arm64 => arm64::stack_argument(code, address, register),
    }
}

/// Offsets from the stack pointer at which the code from `resume` on, where a call returns, keeps the call's first two results.
pub(crate) fn stored_results(machine: Machine, code: &[u8], address: u64, resume: u64) -> Option<[u64; 2]> {
    let code = code.get(usize::try_from(resume.checked_sub(address)?).ok()?..)?;
    match machine {
        Machine::Amd64 => amd64::stored_results(code, resume),
        Machine::Arm64 => arm64::stored_results(code, resume),
    }
}

/// Whether no store but one touches each of these words.
fn are_kept(words: [u64; 2], stores: &[(u64, u64)]) -> bool {
    let touches = |word: u64| {
        let touch = |(offset, size): &&(u64, u64)| *offset < word + 8 && word < offset.saturating_add(*size);
        stores.iter().filter(touch).count()
    };
    words.map(touches) == [1, 1]
}

/// Address and length of the string constant that a function returns.
pub(crate) fn constant_string(machine: Machine, code: &[u8], address: u64) -> Option<(u64, u64)> {
    match machine {
        Machine::Amd64 => amd64::constant_string(code, address),
        Machine::Arm64 => arm64::constant_string(code, address),
    }
}
