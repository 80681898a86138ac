//! Traces as plain data, which of them are kept, and where they are exported to. Knows no program that is traced.
//!
//! # Layout
//!
//! * [`Trace`], [`Span`]: the data. [`attributes`]: all attribute keys. [`names`]: names of spans. [`identity`]: ids of
//!   traces and spans.
//! * [`Story`]: what becomes a trace.
//! * [`Gatherer`]: puts the traces of a group of Pods together.
//! * [`sample`]: which traces are kept.
//! * [`export`]: OTLP, waterfalls in a terminal, JSON lines; the filter and the resource of a trace.
//! * [`Metrics`]: what all this counts.
//! * [`figures`], [`text`]: durations and foreign text for people. [`environment`]: OpenTelemetry's variables.
//! * [`wakeups`]: batches the wake-ups of a runtime.
//! * `fixtures`: example traces for tests, behind the feature of this name.
//!
//! # Design constraints
//!
//! * Exporting never blocks the sender: what a queue cannot hold is a counted loss.
//! * Text of a traced process is cleaned before a terminal shows it.

#![forbid(unsafe_code)]

pub mod attributes;
pub mod environment;
pub mod export;
pub mod figures;
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;
mod gather;
pub mod identity;
mod metrics;
pub mod names;
pub mod sample;
mod span;
pub mod story;
pub mod text;
pub mod wakeups;

pub use self::{
    gather::Gatherer,
    metrics::{Dropped, Exported, Loss, Metrics},
    span::{AttributeValue, Event, Link, Origin, Relation, Span, Status, TARGET, Trace},
    story::{Anchor, Story},
};
