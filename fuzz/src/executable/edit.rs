//! A change of a few bytes at a place of a seed.

use super::Seed;

/// The most bytes that an edit changes.
const MAX_LENGTH: usize = 64;

/// What was there before an edit: where, the bytes, how many of them.
pub(super) type Undo = (usize, [u8; MAX_LENGTH], usize);

/// One edit, as a case spells it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edit {
    /// Number of the place.
    place: u8,
    /// Offset in it.
    offset: u16,
    /// What is written.
    what: u8,
    value: u64,
}

impl Edit {
    /// Bytes of an edit in a case.
    pub(super) const SIZE: usize = 12;

    /// From as many bytes.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut value = [0; 8];
        value.copy_from_slice(&bytes[4..Self::SIZE]);
        Self {
            place: bytes[0],
            offset: u16::from_le_bytes([bytes[1], bytes[2]]),
            what: bytes[3],
            value: u64::from_le_bytes(value),
        }
    }

    /// Writes it; `None` when the file ends there.
    pub(super) fn apply(self, seed: &mut Seed) -> Option<Undo> {
        let place = seed.place(self.place);
        let at = place.start + usize::from(self.offset) % place.len();
        let [low, second, ..] = self.value.to_le_bytes();
        // Where another place is, and a little further: this makes cycles and overlaps.
        let elsewhere = || seed.address(seed.place(low).start).map(|address| address + u64::from(second));
        let number = |at: usize| {
            let bytes = seed.data.get(at..at + 4)?;
            Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        };
        match self.what % 8 {
            0 => seed.write(at, &[low]),
            1 => seed.write(at, &self.value.to_le_bytes()[..2]),
            2 => seed.write(at, &self.value.to_le_bytes()[..4]),
            3 => seed.write(at, &self.value.to_le_bytes()),
            // A pointer, which in a position-independent executable is the loader's to write.
            4 => {
                let target = elsewhere()?.to_le_bytes();
                let word = at & !7;
                seed.write(seed.relocation(word).unwrap_or(word), &target)
            }
            // The offset of a type or name.
            5 => {
                let target = elsewhere()?.wrapping_sub(seed.types) as u32;
                seed.write(at & !3, &target.to_le_bytes())
            }
            6 => {
                let changed = number(at & !3)?.wrapping_add_signed(i32::from(low.cast_signed()));
                seed.write(at & !3, &changed.to_le_bytes())
            }
            _ => seed.write(at, &[low; MAX_LENGTH][..usize::from(second) % (MAX_LENGTH + 1)]),
        }
    }
}

impl Seed {
    fn write(&mut self, at: usize, bytes: &[u8]) -> Option<Undo> {
        let there = self.data.get_mut(at..at + bytes.len())?;
        let mut before = [0; MAX_LENGTH];
        before[..bytes.len()].copy_from_slice(there);
        there.copy_from_slice(bytes);
        Some((at, before, bytes.len()))
    }
}
