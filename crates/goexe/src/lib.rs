//! Reads Go executables, stripped or not: build information, functions, type layouts, and the cheapest sites for
//! probes.
//!
//! # Layout
//!
//! * [`File`]: a mapped file; [`Executable`]: its contents, the entry point to everything else.
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
