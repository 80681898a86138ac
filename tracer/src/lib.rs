//! schedspan: what an unmodified kube-scheduler does, as OpenTelemetry traces.
//!
//! # Layout
//!
//! * [`programs`]: which programs are traced.
//! * [`supervisor`]: the thread that owns the probes and hands records to the programs' workers.
//! * [`daemon`]: the tasks that turn what it finds into exported spans.
//! * [`serve`], [`metrics`]: the daemon's own health and figures.
//! * [`doctor`]: whether all this can work here.
//! * [`top`]: how `schedspan top` looks. [`cli`]: the command line.
//!
//! The crates below: `gotrace` (any Go program), `programs/*` (what is particular to one), `spans` (sampling and export), `pods`
//! (contexts and lifecycles of Pods), `webhook`, `spandiff` (compares exported spans).
//!
//! # Design constraints
//!
//! * The scheduler is never harmed: nothing is written to it, and it does not wait for whoever reads the records.
//! * Everything read from a process, a file or the network is bounded and checked.
//! * Every loss has a cause and a counter.

#![forbid(unsafe_code)]

pub mod cli;
pub mod daemon;
pub mod doctor;
pub mod metrics;
pub mod programs;
pub mod serve;
pub mod supervisor;
pub mod top;
