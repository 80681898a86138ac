//! What tests, benchmarks and the demo stand on: a real control plane on this machine, the daemon as a child, and what both of
//! them say.
//!
//! # Layout
//!
//! - `cluster`: the control plane, its API and its metrics; what ends it
//! - `schedulers`, `peer`: schedulers of other versions, with plugins that make trouble, with spans of their own
//! - `schedspan`, `webhook`: the daemon and the webhook as children
//! - `stage`: a cluster and the daemon's executable
//! - `spans`: what the Collector received
//! - `compare`: spans beside the scheduler's own metrics
//! - `proxy`, `interrupt`: connections that can be cut; Ctrl-C
#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "names say what fields and short functions are")]

pub mod cluster;
pub mod compare;
pub mod interrupt;
pub mod peer;
pub mod proxy;
pub mod schedspan;
pub mod schedulers;
pub mod spans;
pub mod stage;
pub mod webhook;
