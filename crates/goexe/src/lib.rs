//! Reads Go executables, stripped or not: what was built, which functions there are, how types are laid out, and
//! where a probe costs least.
//!
//! # Layout
//!
//! * [`File`]: a file, mapped; [`Executable`]: what it holds; everything else hangs off it.
//! * [`BuildInfo`]: the Go version and the modules.
//! * [`Functions`]: the function table that the runtime itself needs, and so every executable has.
//! * [`Types`]: runtime type descriptors: struct layouts, interface methods, signatures; [`Location`]: where the
//!   calling convention puts what they describe.
//! * [`DebugInfo`]: a second source of layouts, addresses and parameters, from builds that are not stripped.
//! * [`Site`], [`Call`]: instructions to probe, with what a hit costs.
//!
//! # Design constraints
//!
//! * No table of offsets: what is said about a program comes out of the program.
//! * Nothing is indexed: a question costs a binary search, or one pass over one table.
//! * The file is hostile: every read is bounded, every count is checked, errors name the address.

#![deny(unsafe_code)]

mod abi;
mod build_info;
mod bytes;
mod code;
mod dwarf;
mod error;
mod executable;
mod file;
mod functions;
mod image;
mod module_data;
mod types;

pub use crate::{
    abi::Location,
    build_info::{BuildInfo, Module},
    code::{Call, Callee, Class, Instruction, Site},
    dwarf::{DebugFunction, DebugInfo},
    error::Error,
    executable::Executable,
    file::File,
    functions::{Argument, Function, Functions, Inlined},
    image::{LinkMode, Machine},
    types::{Field, Itab, Kind, Method, Path, Signature, Step, Type, Types},
};
