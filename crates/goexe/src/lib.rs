//! Reads Go executables, stripped or not: build information, functions, type layouts, and the cheapest sites for
//! probes.
//!
//! # Layout
//!
//! * [`File`]: a file that is read as far as it is asked about; [`Executable`]: its contents, the entry point to everything
//!   else.
//! * [`BuildInfo`]: the Go version and the modules.
//! * [`Functions`]: the function table, which every executable has, because the runtime needs it.
//! * [`Types`]: runtime type descriptors: struct layouts, interface methods, signatures; [`Location`]: the location of
//!   parameters and results in the calling convention.
//! * [`DebugInfo`]: a second source of layouts, addresses and parameters, in builds that are not stripped.
//! * [`Site`], [`Call`]: instructions to probe, with the cost of a hit.
//!
//! # Design constraints
//!
//! * No table of offsets: everything is read from the executable itself.
//! * No index: a query takes a binary search, or one pass over one table.
//! * The file is hostile: it is never mapped, every read is bounded, every count is checked, errors name the address.

#![forbid(unsafe_code)]

mod abi;
mod build_info;
mod bytes;
mod code;
mod dwarf;
mod error;
mod executable;
mod functions;
mod image;
mod module_data;
mod source;
mod types;

pub use crate::{
    abi::Location,
    build_info::{BuildInfo, Module},
    code::{Call, Callee, Class, Instruction, Operation, Site, instructions},
    dwarf::{DebugFunction, DebugInfo},
    error::Error,
    executable::Executable,
    functions::{Argument, Function, Functions, Inlined},
    image::{LinkMode, Machine},
    source::{File, ReadAt, Source},
    types::{Field, Itab, Kind, Method, Path, Signature, Step, Type, Types},
};
