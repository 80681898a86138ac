//! Metrics that a schedspan process exports about itself, as OpenMetrics text.
//!
//! # Layout
//!
//! * [`Label`], [`labels!`]: closed sets of label values.
//! * [`Registry`]: where each crate registers the metrics that it owns, and the text that all of them become.
//! * [`Counters`], [`Gauges`]: a metric with a closed label. [`Labelled`]: counters with open labels.
//! * [`Durations`]: histograms whose buckets name a trace.
//! * `process`: CPU time, memory and files of this process.
//!
//! # Design constraints
//!
//! * A crate owns its metrics: it defines a struct of them and registers it. Nothing here knows any feature.
//! * All losses are one family, `schedspan_losses_total`: a crate registers its own closed set of causes with
//!   [`Registry::losses`].
//! * A closed label is exported with all its values from the start, zeros included.

#![forbid(unsafe_code)]

mod label;
mod process;
mod registry;

pub use prometheus_client::metrics::{counter::Counter, gauge::Gauge, histogram::Histogram};

pub use self::{
    label::Label,
    registry::{
        Buckets, CONTENT_TYPE, Counters, Duration, Durations, Gauges, Labelled, Ratio, Registry, Seconds,
        SecondsInAll, Totals,
    },
};
