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
//! * [`context`]: the trace contexts that Pods carry.
//! * [`lifecycle`]: the lives of Pods as spans. Pure but for its watch.
//! * [`sample`]: which traces are kept. Pure.
//! * [`export`]: OTLP, terminal, JSON.
//! * [`recording`]: records in a file, to be replayed elsewhere.
//! * [`history`], [`explain`]: the attempts of the last minutes, and what they say of a Pod.
//! * [`recent`], [`top`]: the figures of the last minute, and how they look.
//! * [`reinject`]: the attempts' own contexts, for those who come after.
//! * [`webhook`]: the contexts of requests, for Pods that carry none.
//! * [`serve`], [`metrics`]: the daemon's own health and figures.
//! * [`compare`]: spans next to those of another witness. Pure but for files.
//! * [`doctor`]: whether all this can work here.
//! * `words`: figures and foreign words as people read them; [`environment`]: variables that are not ours.
//! * [`engine`], [`daemon`]: the thread and the tasks that run all this; [`leisure`]: how often they wake up; [`cli`]: the
//!   command line.
//!
//! # Design constraints
//!
//! * The scheduler is never harmed: nothing is written to it, and it does not wait for whoever reads the records.
//! * Everything read from a process, a file or the network is bounded and checked.
//! * Every loss has a cause and a counter.

#![forbid(unsafe_code)]

pub mod attempt;
pub mod cli;
pub mod compare;
pub mod context;
pub mod daemon;
pub mod doctor;
pub mod engine;
pub mod environment;
pub mod explain;
pub mod export;
pub mod history;
pub mod leisure;
pub mod lifecycle;
pub mod metrics;
pub mod pipeline;
pub mod plan;
pub mod probe;
pub mod recent;
pub mod record;
pub mod recording;
pub mod reinject;
pub mod sample;
pub mod serve;
pub mod target;
pub mod top;
pub mod trace;
pub mod webhook;
mod words;
