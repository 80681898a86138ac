//! Pods of the API server: which trace contexts they carry, how they become Ready, and the context that is written back.
//!
//! # Layout
//!
//! * [`api`]: how the API server is reached.
//! * [`context`]: the trace contexts of Pods, by a watch of Pods without a Node.
//! * [`node`]: the namespaces of the Pods on this node.
//! * [`lifecycle`]: each Pod until it is Ready, as a trace.
//! * [`reinject`]: writes the context of its attempt into a bound Pod.
//! * [`Metrics`]: what all this counts.
//!
//! # Design constraints
//!
//! * Memory is bounded, whatever the number and the content of Pods.
//! * Reading needs `list` and `watch` of Pods only; each further right belongs to an option.
//! * Nothing waits for the API server without a limit.

#![forbid(unsafe_code)]

pub mod api;
pub mod context;
pub mod lifecycle;
mod metrics;
pub mod node;
pub mod reinject;

pub use self::metrics::{LifecycleEnd, Lookup, Loss, Metrics, Write};
