//! Compares the code in a process's memory with the plan: whether it is the code that was planned for, and whether it has
//! breakpoints.

use std::io;

use crate::program::Detail;

/// Bytes that are compared at each site: an instruction and what follows it.
pub const CODE: usize = 8;
/// `int3`, which the kernel puts in the place of an instruction's first byte.
const INT3: u8 = 0xcc;
/// `brk #5`, `UPROBES_BRK_IMM`, in the place of an instruction.
const BRK: [u8; 4] = 0xd420_00a0_u32.to_le_bytes();

/// A planned site, and the code that the file has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Virtual address in the executable.
    pub address: u64,
    /// What the file has there.
    pub code: [u8; CODE],
    /// The level of detail of the site.
    pub detail: Detail,
}

/// What a process has at the places of a plan. The numbers add up to that of the places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// What the file has.
    pub same: usize,
    /// The same, with a breakpoint.
    pub probed: usize,
    /// Something else.
    pub other: usize,
}

impl Compared {
    /// Reads the code at each place, which is `bias` from where the file says, and compares it.
    ///
    /// # Errors
    ///
    /// When a read fails.
    pub fn of<'a>(
        places: impl IntoIterator<Item = &'a Place>,
        bias: u64,
        mut read: impl FnMut(&mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut compared = Self::default();
        for Place { address, code, detail: _ } in places {
            let mut there = [0; CODE];
            read(&mut there, address.wrapping_add(bias))?;
            let is_probed = (there[0] == INT3 && code[0] != INT3) || (there[..4] == BRK && code[..4] != BRK);
            *if !is_alike(&there, code) {
                &mut compared.other
            } else if is_probed {
                &mut compared.probed
            } else {
                &mut compared.same
            } += 1;
        }
        Ok(compared)
    }

    /// Number of all places.
    #[must_use]
    pub const fn places(self) -> usize {
        self.same + self.probed + self.other
    }
}

/// Whether code is the same but for breakpoints. Another site can be within these bytes.
fn is_alike(there: &[u8; CODE], code: &[u8; CODE]) -> bool {
    let by_bytes = there.iter().zip(code).all(|(there, code)| there == code || *there == INT3);
    let by_words = there.chunks(4).zip(code.chunks(4)).all(|(there, code)| there == code || *there == BRK);
    by_bytes || by_words
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE_THERE: [u8; 8] = [0x55, 0x48, 0x89, 0xe5, 0x90, 0x91, 0x92, 0x93];

    fn compared(there: [u8; 8]) -> Compared {
        let place = Place { address: 0x1000, code: CODE_THERE, detail: Detail::Full };
        Compared::of(&[place], 0x500, |buffer, address| {
            assert_eq!(address, 0x1500);
            buffer.copy_from_slice(&there);
            Ok(())
        })
        .expect("nothing fails")
    }

    #[test]
    fn code_is_the_same_or_has_a_breakpoint_or_is_something_else() {
        let with = |at: usize, bytes: &[u8]| {
            let mut code = CODE_THERE;
            code[at..at + bytes.len()].copy_from_slice(bytes);
            code
        };
        let (same, probed, other) = (
            Compared { same: 1, ..Compared::default() },
            Compared { probed: 1, ..Compared::default() },
            Compared { other: 1, ..Compared::default() },
        );
        assert_eq!(compared(CODE_THERE), same);
        assert_eq!(compared(with(0, &[INT3])), probed);
        assert_eq!(compared(with(0, &BRK)), probed);
        // The next site.
        assert_eq!(compared(with(3, &[INT3])), same);
        assert_eq!(compared(with(4, &BRK)), same);
        for (at, bytes) in [(0, &[0x56][..]), (7, &[0]), (0, &[INT3, 0x49]), (2, &BRK)] {
            assert_eq!(compared(with(at, bytes)), other, "{bytes:x?} at {at}");
        }
    }

    #[test]
    fn all_places_are_compared() {
        let places =
            [0, 1, 2, 3, 4, 5].map(|address| Place { address, code: CODE_THERE, detail: Detail::Full });
        let compared = Compared::of(&places, 0, |buffer, address| {
            buffer.copy_from_slice(&CODE_THERE);
            match address {
                0 => buffer[0] = INT3,
                1 | 2 => buffer[1] = 0,
                3.. => {}
            }
            Ok(())
        });
        let compared = compared.expect("nothing fails");
        assert_eq!(compared, Compared { same: 3, probed: 1, other: 2 });
        assert_eq!(compared.places(), 6);
    }

    #[test]
    fn a_read_that_fails_is_no_comparison() {
        let place = Place { address: 0, code: CODE_THERE, detail: Detail::Full };
        assert!(Compared::of(&[place], 0, |_, _| Err(io::ErrorKind::NotFound.into())).is_err());
    }
}
