//! kube-scheduler, described to `gotrace`.
//!
//! # Layout
//!
//! * [`table`]: the functions that are probed. [`values`]: what is read there. [`plugins`]: whose names an executable has.

#![forbid(unsafe_code)]

pub mod plugins;
pub mod table;
pub mod values;
