//! A case is a real executable with a few edits where it is read.
//!
//! A case is short, so that a fuzzer can work on it: which seed, where the file ends, and up to [`MAX_EDITS`] edits. Places
//! have meanings (the descriptor of a type, the stack table of a function), not offsets: a case stays what it is
//! when another Go builds the seeds.

mod edit;
mod places;
pub mod questions;
mod seed;

use std::{env, fs, sync::Mutex};

use self::{edit::Edit, seed::Seed};

/// The variable with the paths of the seeds, separated by colons.
const SEEDS: &str = "FUZZ_SEEDS";
/// The most edits of a case.
const MAX_EDITS: usize = 16;
/// Seed, cut.
const HEADER: usize = 3;

static SEED_FILES: Mutex<Vec<Seed>> = Mutex::new(Vec::new());

/// Runs one case on the seeds that [`SEEDS`] names.
///
/// # Panics
///
/// If there are no seeds: `cargo xtask fuzz` builds them.
pub fn run(case: &[u8], ask: fn(&[u8])) {
    let mut seeds = SEED_FILES.lock().expect("a panic has ended the process");
    if seeds.is_empty() {
        let paths = env::var(SEEDS).unwrap_or_else(|_| panic!("{SEEDS} names no seeds"));
        seeds.extend(
            paths
                .split(':')
                .map(|path| Seed::new(fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}")))),
        );
        crate::start();
    }
    run_on(&mut seeds, case, ask);
}

/// Damages the seed that the case names, asks, and repairs the seed.
fn run_on(seeds: &mut [Seed], case: &[u8], ask: fn(&[u8])) {
    let Some((&[number, cut_low, cut_high], edits)) = case.split_first_chunk::<HEADER>() else { return };
    let count = seeds.len();
    let seed = &mut seeds[usize::from(number) % count];
    let undo: Vec<_> = edits
        .chunks_exact(Edit::SIZE)
        .take(MAX_EDITS)
        .filter_map(|bytes| Edit::read(bytes).apply(seed))
        .collect();
    let length = match u16::from_le_bytes([cut_low, cut_high]) {
        0 => seed.data.len(),
        cut => (seed.data.len() * usize::from(cut)) >> 16,
    };
    ask(&seed.data[..length]);
    for (at, bytes, length) in undo.into_iter().rev() {
        seed.data[at..at + length].copy_from_slice(&bytes[..length]);
    }
}
