//! Machine code: what an instruction costs under a probe, where calls return to.

mod amd64;
mod arm64;

use crate::Machine;

/// What the kernel does with an instruction that carries a uprobe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Carried out by the kernel itself: cheap.
    Emulated,
    /// Copied aside and single-stepped, with a second trap: 2 to 20 times as dear.
    SingleStepped,
}

/// An instruction to put a probe on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Virtual address in the file.
    pub address: u64,
    /// What a hit there costs.
    pub class: Class,
}

/// What a call instruction calls, as far as its surroundings tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callee {
    /// The function at this address.
    Direct(u64),
    /// What a word in memory points to.
    Indirect {
        /// Offset of that word from its base: 24 + 8 × slot for an itab, 0 for a closure.
        offset: u64,
        /// Offset of the word that the base itself came from, where it was loaded: a closure's field.
        base: Option<u64>,
    },
}

/// A call, and the cheapest place that sees its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is called.
    pub callee: Callee,
    /// The call instruction itself: emulated when the callee is direct.
    pub site: Site,
    /// Address of the instruction after the call.
    pub resume: u64,
    /// The first emulated instruction in straight line after the call: always carried out when the call has
    /// returned. `None` when a return or an indirect jump comes first.
    pub return_site: Option<u64>,
    /// Bit n is set when the n-th integer register of Go's sequence was overwritten before `return_site`.
    pub overwritten: u16,
    /// The lowest place above the stack pointer that was written to before `return_site`, in bytes: what the callee kept of
    /// its arguments below it is still there. `u64::MAX` if there is none.
    pub stored: u64,
}

/// What there is in a straight line after a call.
struct Return {
    site: Option<u64>,
    overwritten: u16,
    stored: u64,
}

impl Return {
    const NONE: Self = Self { site: None, overwritten: 0, stored: u64::MAX };
}

/// An instruction of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its address in the file.
    pub address: u64,
    /// What it does, as an assembler writes it.
    pub text: String,
    /// What a probe on it costs.
    pub class: Class,
    /// Where it branches to or what it calls, when it says so itself.
    pub target: Option<u64>,
}

/// Straight lines longer than this after a call are given up.
const MAX_STRAIGHT_LINE: usize = 48;

/// Every instruction of a function, as far as they decode.
pub(crate) fn listing(machine: Machine, code: &[u8], address: u64) -> Vec<Instruction> {
    match machine {
        Machine::Amd64 => amd64::listing(code, address),
        Machine::Arm64 => arm64::listing(code, address),
    }
}

/// The class of the instruction that `code` begins with; `None` if it is none.
pub(crate) fn first(machine: Machine, code: &[u8], address: u64) -> Option<Class> {
    match machine {
        Machine::Amd64 => amd64::first(code, address),
        Machine::Arm64 => arm64::first(code),
    }
}

/// How many bytes the instruction has that `code` ends with, if it is one that sets up a frame; else what is wrong.
pub(crate) fn frame_set_up(machine: Machine, code: &[u8]) -> Result<u64, &'static str> {
    match machine {
        Machine::Amd64 => amd64::frame_set_up(code),
        Machine::Arm64 => arm64::frame_set_up(code),
    }
}

/// The `ret` instructions of a function; `Err` holds the address of what is no instruction.
pub(crate) fn returns(machine: Machine, code: &[u8], address: u64) -> Result<Vec<Site>, u64> {
    match machine {
        Machine::Amd64 => {
            let site = |address| Site { address, class: Class::SingleStepped };
            Ok(amd64::returns(code, address)?.into_iter().map(site).collect())
        }
        Machine::Arm64 => Ok(arm64::returns(code, address)),
    }
}

/// The calls that a function makes; `Err` holds the address of what is no instruction.
pub(crate) fn calls(machine: Machine, code: &[u8], address: u64) -> Result<Vec<Call>, u64> {
    match machine {
        Machine::Amd64 => amd64::calls(code, address),
        Machine::Arm64 => Ok(arm64::calls(code, address)),
    }
}

/// How far above the stack pointer an integer register of Go's sequence points at the call at `call`, in bytes, where the code
/// before it says so.
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

/// The address and length of the string constant that a function returns.
pub(crate) fn constant_string(machine: Machine, code: &[u8], address: u64) -> Option<(u64, u64)> {
    match machine {
        Machine::Amd64 => amd64::constant_string(code, address),
        Machine::Arm64 => arm64::constant_string(code, address),
    }
}
