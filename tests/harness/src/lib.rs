//! What tests, benchmarks and the demo stand on: a real control plane on this machine, the daemon as a child, and what both of
//! them say.
//!
//! # Layout
//!
//! - `cluster`: the control plane; `api`, `metrics`, `audit`: its objects, its figures, and who changes what
//! - `processes`, `guard`: what runs, and its end; `wait`, `interrupt`, `http`, `proxy`: small tools for these
//! - `schedspan`, `webhook`, `server`: the daemon, the webhook and other servers as children; `browser`: one that shows the page
//! - `stage`: a cluster and the daemon's executable
//! - `spans`, `figures`: the spans that the Collector received, and the scheduler's own metrics beside them
//! - `cost`: rounds of a traced and an untraced program in turn, and what their figures say; `calibration`: how fast the machine is meanwhile
//! - `controllers`: kube-controller-managers of other versions, and one in a process with a scheduler; `operators`: operators with old and new controller-runtime
//! - `kubelets`: kubelets of other versions; `versions`: how a person names one
//! - `schedulers`, `peer`: schedulers of other versions, with plugins that make trouble, with spans of their own
#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "names say what fields and short functions are")]

pub mod api;
pub mod audit;
pub mod browser;
pub mod calibration;
pub mod cluster;
pub mod controllers;
pub mod cost;
pub mod figures;
pub mod guard;
pub mod http;
pub mod interrupt;
pub mod kubelets;
pub mod metrics;
pub mod operators;
pub mod peer;
pub mod processes;
pub mod proxy;
pub mod schedspan;
pub mod schedulers;
pub mod server;
pub mod spans;
pub mod stage;
mod versions;
pub mod wait;
pub mod webhook;
