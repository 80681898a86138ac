//! schedspan: traces an unmodified kube-scheduler, as OpenTelemetry spans.
//!
//! # Layout
//!
//! * [`programs`]: the traced programs.
//! * [`supervisor`]: the thread that owns the probes and hands records to the programs' workers.
//! * [`admission`], [`refusals`]: who is traced, and who cannot be.
//! * [`daemon`]: the tasks that turn its messages into exported spans.
//! * [`serve`], [`metrics`]: the daemon's own health and metrics.
//! * [`discovery`]: looks at executables and memory, beside the supervisor. [`doctor`]: checks of the host.
//! * [`cli`]: the command line.
//!
//! The crates below: `gotrace` (any Go program), `programs/*` (descriptions of single programs), `spans` (sampling and
//! export), `pods` (contexts and lifecycles of Pods), `webhook`, `spandiff` (compares exported spans).
//!
//! # Design constraints
//!
//! * The scheduler is never harmed: nothing is written to it, and it never waits for a reader of the records.
//! * Everything read from a process, a file or the network is bounded and checked.
//! * Every loss has a cause and a counter.

#![forbid(unsafe_code)]

pub mod admission;
pub mod cli;
pub mod daemon;
pub mod discovery;
pub mod doctor;
pub mod metrics;
pub mod programs;
pub mod refusals;
pub mod serve;
pub mod supervisor;
