//! schedspan: what an unmodified kube-scheduler does, as OpenTelemetry traces.
//!
//! # Layout
//!
//! One direction, no cycles; each stage knows the type that the one before it hands over, and nothing else of it.
//!
//! * [`target`]: which processes are schedulers.
//! * [`plan`]: which sites of an executable to probe, and what to read there.
//! * [`probe`]: the eBPF programs in the kernel.
//! * [`record`]: what they sent, in the scheduler's terms.
//! * [`pipeline`]: what follows upon a record, live or replayed.
//! * [`attempt`]: which calls make up which attempt. Pure.
//! * [`trace`]: attempts as spans. Pure.
//! * [`recording`]: records in a file, to be replayed elsewhere.
//! * [`history`], [`explain`]: the attempts of the last minutes, and what they say of a Pod.
//! * [`recent`], [`top`]: the figures of the last minute, and how they look.
//! * [`serve`], [`metrics`]: the daemon's own health and figures.
//! * [`doctor`]: whether all this can work here.
//! * [`engine`], [`daemon`]: the thread and the tasks that run all this; [`cli`]: the command line.
//!
//! The crates below: `spans` (sampling and export), `pods` (trace contexts and lifecycles of Pods), `webhook`, `spandiff`
//! (compares and joins exported spans).
//!
//! # Design constraints
//!
//! * The scheduler is never harmed: nothing is written to it, and it does not wait for whoever reads the records.
//! * Everything read from a process, a file or the network is bounded and checked.
//! * Every loss has a cause and a counter.

#![forbid(unsafe_code)]

pub mod attempt;
pub mod cli;
pub mod daemon;
pub mod doctor;
pub mod engine;
pub mod explain;
pub mod history;
pub mod metrics;
pub mod pipeline;
pub mod plan;
pub mod probe;
pub mod recent;
pub mod record;
pub mod recording;
pub mod serve;
pub mod target;
pub mod top;
pub mod trace;
