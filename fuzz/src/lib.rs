//! Damaged executables for goexe and for the tracer's plan, and annotations for its reader of trace contexts: whatever a
//! file or a Pod says, an answer or an error comes back, soon and with little memory.
//!
//! # Layout
//!
//! * [`cases`]: seeds, the places in them that are read, and a case: a short list of edits there.
//! * [`memory`]: an allocator that ends the process where a case asks for too much.
//! * [`plan`]: that part of the tracer, compiled in: the tracer itself brings half the world.
//! * `targets/`: one fuzz target each.
//!
//! `cargo xtask fuzz` builds the seeds and runs the targets.

#[path = "cases/mod.rs"]
pub mod cases;
pub mod memory;
// Some of it serves only what is not compiled in here.
#[allow(dead_code, unused_imports)]
#[path = "../../tracer/src/plan/mod.rs"]
pub mod plan;

use std::{
    env,
    path::Path,
    sync::{Mutex, Once},
};

use cases::Seed;

/// Lists the seeds: paths with a colon between them.
const SEEDS: &str = "GOEXE_FUZZ_SEEDS";

#[global_allocator]
static ALLOCATOR: memory::Bounded = memory::Bounded::new();

static SEED_FILES: Mutex<Vec<Seed>> = Mutex::new(Vec::new());

/// Holds memory to its bounds from here on, for targets without seeds.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| ALLOCATOR.start());
}

/// Runs one case: the seed that it names, damaged as it says, with every question of a target.
///
/// # Panics
///
/// When there are no seeds: `cargo xtask fuzz` makes them.
pub fn run(case: &[u8], ask: fn(&[u8])) {
    let mut seeds = SEED_FILES.lock().expect("a panic has ended the process");
    if seeds.is_empty() {
        let paths = env::var(SEEDS).unwrap_or_else(|_| panic!("{SEEDS} names no seeds"));
        seeds.extend(paths.split(':').map(|path| {
            let seed = std::fs::read(Path::new(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            Seed::new(seed)
        }));
        start();
    }
    cases::run(&mut seeds, case, ask);
}
