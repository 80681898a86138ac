//! Tests of schedspan on real clusters.
//!
//! # Layout
//!
//! - `suite`: the table of tests, and `cargo xtask e2e`, which runs them; each test is a module
//! - `checks`: what several tests check; `mounts`: file systems of a test's own
//! - `compare`: `cargo xtask compare`, and the test of this name
//! - `kind`: `cargo xtask kind`, a cluster of containers
//! - `demo`, `picture`: the commands of these names; `svg` draws
#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "names say what fields and short functions are")]

mod api_calls;
mod apiserver;
mod batching;
pub mod checks;
pub mod compare;
mod configuration;
mod context;
mod controllers;
mod creations;
mod decision;
pub mod demo;
mod deploy;
mod errors;
mod export;
mod extenders;
mod faults;
mod governor;
mod groups;
mod hostile;
mod inject;
mod inspect;
mod jaeger;
pub mod kind;
mod kubectl;
mod lifecycle;
mod link;
mod load;
mod mounts;
mod moves;
mod one_process;
mod operators;
mod outside;
mod page;
pub mod picture;
mod plugins;
mod profile;
mod prometheus;
mod queue;
mod requests;
mod sampling;
mod slow;
pub mod suite;
mod svg;
mod truth;
pub mod versions;
mod viewers;
