use proptest::{collection::vec, prelude::*};
use std::vec::Vec;

use super::*;

/// Every length that is copied without a loop, and some that need one.
const LENGTHS: core::ops::Range<usize> = 0..260;

/// Bytes that are all different from their neighbours.
fn numbered(length: usize) -> Vec<u8> {
    (0..length).map(|number| (number * 7 % 251) as u8).collect()
}

#[test]
fn a_copy_writes_what_it_is_to_write_and_nothing_beside_it() {
    let from = numbered(LENGTHS.end);
    for length in LENGTHS {
        for start in [0, 15] {
            let mut to = std::vec![255; start + LENGTHS.end + 1];
            // SAFETY: both have more bytes.
            unsafe { copy(to[start..].as_mut_ptr(), from.as_ptr(), length) };
            let (before, rest) = to.split_at(start);
            let (copied, after) = rest.split_at(length);
            assert_eq!(copied, &from[..length], "{length} bytes to {start}");
            assert!(before.iter().chain(after).all(|byte| *byte == 255), "{length} bytes to {start}");
        }
    }
}

proptest! {
    #[test]
    fn places_that_overlap_are_copied_as_if_they_did_not(
        (start, target) in (0..300_usize, 0..300_usize),
        length in LENGTHS,
    ) {
        let mut bytes = numbered(300 + LENGTHS.end);
        let mut expected = bytes.clone();
        expected.copy_within(start..start + length, target);
        let all = bytes.as_mut_ptr();
        // SAFETY: there are so many bytes behind both places.
        unsafe { copy(all.add(target), all.add(start), length) };
        prop_assert_eq!(bytes, expected);
    }

    #[test]
    fn bytes_are_compared_as_slices_are(
        bytes in vec(any::<u8>(), LENGTHS),
        change in prop::option::of((any::<prop::sample::Index>(), any::<u8>(), any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut other = bytes.clone();
        if let (Some((first, one, second, two)), false) = (change, bytes.is_empty()) {
            other[first.index(bytes.len())] = one;
            other[second.index(bytes.len())] = two;
        }
        // SAFETY: both have so many bytes.
        let order = unsafe { compare(bytes.as_ptr(), other.as_ptr(), bytes.len()) };
        prop_assert_eq!(order.cmp(&0), bytes.cmp(&other));
    }
}
