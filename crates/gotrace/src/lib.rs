//! Traces any Go program that is described to it.
//!
//! # Layout
//!
//! * [`program`]: the description of a program. [`values`](mod@values): what its probes read.
//! * [`discover`]: finds processes. [`foreign`]: reads their files and memory. [`memory`]: whether their code is that of the plan.
//! * [`plan`]: chooses the sites of an executable to probe, and what to read there.
//! * [`probe`]: loads the eBPF programs and attaches them.
//! * [`decode`]: turns records into events of the program. [`code`]: which code belongs to what, for samples.
//! * [`account`]: what becomes of each event. Each program has its own assembler, which makes traces of them.
//! * [`pipeline`]: from events to finished traces, live or replayed.
//! * [`metrics`]: the metrics of all this.
//! * [`worker`]: plan, decoder and assembler of one program, as the supervisor runs them.
//! * [`governor`]: what tracing costs, and what is cut so that it stays within a budget.
//! * [`window`]: calls that are timed one by one, for one turn of a process.
//! * [`profiler`]: a worker that collects whole stacks instead.
//! * [`recording`]: events in a file, to be replayed elsewhere.
//!
//! # Design constraints
//!
//! * No knowledge of any program: everything specific is data that the program supplies.
//! * The traced program is never harmed: nothing is written to it, and it never waits for a reader of the records.
//! * Everything read from a process or a file is bounded and checked.
//! * Every loss has a cause and a counter.

#![forbid(unsafe_code)]

// The macros refer to this crate by name, also for the tests' fixture program.
#[cfg(test)]
extern crate self as gotrace;

pub mod account;
pub mod code;
pub mod decode;
pub mod discover;
#[cfg(test)]
mod fixture;
pub mod foreign;
pub mod governor;
pub mod memory;
pub mod metrics;
pub mod pipeline;
pub mod plan;
pub mod probe;
pub mod profiler;
pub mod program;
pub mod recording;
pub mod values;
pub mod window;
pub mod worker;

#[doc(hidden)]
pub use serde;

pub use self::{
    plan::{Plan, Role},
    program::{Detail, Event, Program},
    values::Values,
};
