//! Traces any Go program that is described to it.
//!
//! # Layout
//!
//! * [`program`]: what a program supplies. [`values`](mod@values): what its probes read.
//! * [`discover`]: which processes run it.
//! * [`plan`]: which sites of an executable to probe, and what to read there.
//! * [`probe`]: the eBPF programs in the kernel.
//! * [`decode`]: what they sent, as events in the program's terms.
//! * [`assemble`]: what makes traces of events. Pure; each program has its own.
//! * [`pipeline`]: what follows upon an event, live or replayed.
//! * [`metrics`]: what all this counts.
//! * [`worker`]: one program at work, as the supervisor runs it.
//! * [`recording`]: events in a file, to be replayed elsewhere.
//!
//! # Design constraints
//!
//! * No word of any program: what is particular to one is data that the program hands over.
//! * The traced program is never harmed: nothing is written to it, and it does not wait for a reader of the records.
//! * Everything read from a process or a file is bounded and checked.
//! * Every loss has a cause and a counter.

#![forbid(unsafe_code)]

// The macros name this crate as the programs do, and the fixture of the tests is a program.
#[cfg(test)]
extern crate self as gotrace;

pub mod assemble;
pub mod decode;
pub mod discover;
#[cfg(test)]
mod fixture;
pub mod metrics;
pub mod pipeline;
pub mod plan;
pub mod probe;
pub mod program;
pub mod recording;
pub mod values;
pub mod worker;

#[doc(hidden)]
pub use serde;

pub use self::{
    decode::Event,
    plan::{Plan, Role},
    program::{Detail, Program},
    values::Values,
};
