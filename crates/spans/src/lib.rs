//! Traces as plain data, which of them are kept, and where they are exported to. Knows no program that is traced.
//!
//! # Layout
//!
//! * [`Trace`], [`Span`]: the data. [`TraceKind`], [`SpanKind`]: what they are about. [`Source`]: which process a trace is of.
//! * [`attributes`]: all attribute keys. [`names`]: names of spans. [`identity`]: ids of traces and spans.
//! * [`Story`]: what becomes a trace. [`terms`]: what a Pod asks of a scheduler's plugins. [`Pending`]: a Pod without a Node.
//! * [`Gatherer`]: puts the traces of a group of Pods together.
//! * [`Owners`]: bounds the traces that the Pods of an owner share.
//! * [`sample`]: which traces are kept.
//! * [`export`]: OTLP, waterfalls in a terminal, JSON lines; the filter and the resource of a trace.
//! * [`Metrics`]: what all this counts.
//! * [`screen`]: standard output and standard error, for people.
//! * [`figures`], [`text`]: durations and foreign text for people. [`environment`]: OpenTelemetry's variables.
//! * [`wakeups`]: batches the wake-ups of a runtime.
//! * `fixtures`: example traces, for tests. Not behind a feature: with one, a test run would compile all crates above this one twice.
//!
//! # Design constraints
//!
//! * Readers ask for kinds, never for names of spans, and match them without a catch-all arm: a new kind does not compile
//!   until each reader has decided.
//! * Exporting never blocks the sender: what a queue cannot hold is a counted loss.
//! * Text of a traced process is cleaned before a terminal shows it, and again where it is written: in [`screen`].

#![forbid(unsafe_code)]

pub mod attributes;
pub mod environment;
pub mod export;
pub mod figures;
#[doc(hidden)]
pub mod fixtures;
mod gather;
pub mod identity;
mod kind;
mod metrics;
pub mod names;
mod owners;
mod pending;
pub mod sample;
pub mod screen;
mod span;
pub mod story;
pub mod terms;
pub mod text;
pub mod wakeups;

pub use self::{
    gather::Gatherer,
    kind::{ApiStep, Cycle, NodeStep, Phase, SpanKind, Stage, TraceKind},
    metrics::{Dropped, Exported, LeftOut, Loss, Metrics},
    owners::Owners,
    pending::{Condition, Pending},
    span::{
        AttributeValue, Attributes, Event, Evidence, Link, NameList, Names, Origin, Relation, Source, Span,
        Status, Trace,
    },
    story::{Anchor, Story},
};
