//! An undamaged executable, and what a case has to know about it.

use std::{collections::BTreeMap, ops::Range};

use goexe::Executable;

use super::places;

/// An executable to damage.
#[derive(Debug)]
pub struct Seed {
    pub(super) data: Vec<u8>,
    /// What is read of it: offsets in the file.
    places: Vec<Range<usize>>,
    /// Where type and name offsets count from.
    pub(super) types: u64,
    /// Offsets in the file, and the offsets of what the loader writes there.
    relocations: BTreeMap<usize, usize>,
    /// Addresses by offsets in the file.
    segments: Vec<(Range<usize>, u64)>,
}

impl Seed {
    /// Looks through an executable that Go 1.26 or later has built.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[must_use]
    pub fn new(data: Vec<u8>) -> Self {
        let executable = Executable::parse(&data).expect("a seed is an executable");
        let segments = places::segments(&data);
        let types = places::types(&data, &executable).expect("a seed has types");
        let places = places::all(&data, &executable, types);
        let relocations = places::relocations(&data, &segments);
        Self { data, places, types, relocations, segments }
    }

    /// A place, by any number.
    pub(super) fn place(&self, number: u8) -> Range<usize> {
        self.places[usize::from(number) % self.places.len()].clone()
    }

    /// The address of a byte of the file.
    pub(super) fn address(&self, offset: usize) -> Option<u64> {
        places::address(&self.segments, offset)
    }

    /// Where the file keeps what the loader writes at an offset.
    pub(super) fn relocation(&self, offset: usize) -> Option<usize> {
        self.relocations.get(&offset).copied()
    }
}
