//! Damaged executables, records, recordings, spans and reviews, and hostile annotations: whatever the input says, an answer or an error
//! comes back, soon and with little memory.
//!
//! # Layout
//!
//! * [`executable`]: a case damages a Go program. Targets `elf`, `functions`, `types` and `plan`.
//! * [`record`]: a case describes probe sites and what the eBPF program sends from there.
//! * [`recording`]: a case damages a recorded stream.
//! * [`apiserver`]: a case is what the eBPF program sends of an API server.
//! * [`otlp`]: a case is a file of spans or metrics.
//! * [`context`]: a case is a list of annotations.
//! * [`configuration`]: a case is a scheduler's command line and its configuration.
//! * [`review`]: a case is a request of an API server to the admission webhook.
//! * [`memory`]: an allocator that ends the process where a case asks for too much.
//! * `targets/`: one libFuzzer target each.
//! * `regressions/`: cases that once failed, and one or more for each target to begin with, which each run of a target replays first.
//!
//! `cargo xtask fuzz` builds the Go programs and runs the targets, `cargo xtask test` runs them for a short time.

pub mod apiserver;
pub mod configuration;
pub mod context;
pub mod executable;
pub mod memory;
pub mod otlp;
pub mod record;
pub mod recording;
pub mod review;

use std::sync::Once;

#[global_allocator]
static ALLOCATOR: memory::Bounded = memory::Bounded::new();

/// Limits memory from here on.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| ALLOCATOR.start());
}
