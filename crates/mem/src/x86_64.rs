//! Copies and compares by words of 8 and 16 bytes.

use core::{arch::x86_64::__m128i, cmp::Ordering, ffi::c_int};

#[cfg(test)]
mod tests;

/// Bytes that one step of a loop copies.
const STEP: usize = 64;

/// Reads the first and the last `N` values of these bytes, and then writes both. They may overlap.
///
/// # Safety
///
/// As [`copy`], and `length` is from `N * size_of::<T>()` to twice that.
#[inline(always)]
unsafe fn copy_ends<T: Copy, const N: usize>(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller promises that both places have `length` bytes, and that they are enough for `N` values.
    unsafe {
        let last = length - N * size_of::<T>();
        let head = from.cast::<[T; N]>().read_unaligned();
        let tail = from.add(last).cast::<[T; N]>().read_unaligned();
        to.cast::<[T; N]>().write_unaligned(head);
        to.add(last).cast::<[T; N]>().write_unaligned(tail);
    }
}

/// Copies bytes; the two places may overlap.
///
/// # Safety
///
/// `from` can be read and `to` be written for `length` bytes.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller's promises, with the length that each needs.
    unsafe {
        match length {
            0 => {}
            1 => to.write(from.read()),
            2..4 => copy_ends::<u16, 1>(to, from, length),
            4..8 => copy_ends::<u32, 1>(to, from, length),
            8..16 => copy_ends::<u64, 1>(to, from, length),
            16..=32 => copy_ends::<__m128i, 1>(to, from, length),
            33..=64 => copy_ends::<__m128i, 2>(to, from, length),
            65..=128 => copy_ends::<__m128i, 4>(to, from, length),
            // Forward is right if `to` is before `from`, too: each step overwrites only bytes that are already read.
            129.. if to.addr().wrapping_sub(from.addr()) >= length => copy_forward(to, from, length),
            129.. => copy_backward(to, from, length),
        }
    }
}

type Step = [__m128i; STEP / size_of::<__m128i>()];

/// # Safety
///
/// As [`copy`]; there is more than one step, and `to` is not within the bytes that are read.
#[inline(always)]
unsafe fn copy_forward(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: each step begins at least `STEP` bytes before the end.
    unsafe {
        let last = length - STEP;
        // Read first, because a step may overwrite it.
        let tail = from.add(last).cast::<Step>().read_unaligned();
        let mut place = 0;
        while place < last {
            to.add(place).cast::<Step>().write_unaligned(from.add(place).cast::<Step>().read_unaligned());
            place += STEP;
        }
        to.add(last).cast::<Step>().write_unaligned(tail);
    }
}

/// # Safety
///
/// As [`copy`]; there is more than one step.
#[inline(always)]
unsafe fn copy_backward(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: each step begins within the bytes, and ends where the one before it began.
    unsafe {
        let head = from.cast::<Step>().read_unaligned();
        let mut place = length;
        while place > STEP {
            place -= STEP;
            to.add(place).cast::<Step>().write_unaligned(from.add(place).cast::<Step>().read_unaligned());
        }
        to.cast::<Step>().write_unaligned(head);
    }
}

/// Compares bytes: negative, 0 or positive by the first pair that differs.
///
/// # Safety
///
/// Both can be read for `length` bytes.
#[inline(always)]
pub(crate) unsafe fn compare(one: *const u8, other: *const u8, length: usize) -> c_int {
    const WORD: usize = size_of::<u64>();
    // Big-endian words compare as their bytes do.
    let word = |bytes: *const u8, place| {
        // SAFETY: each place below is at least a word before the end.
        u64::from_be(unsafe { bytes.add(place).cast::<u64>().read_unaligned() })
    };
    let order = if length < WORD {
        (0..length)
            // SAFETY: the caller's promise.
            .map(|place| unsafe { (one.add(place).read(), other.add(place).read()) })
            .find(|(one, other)| one != other)
            .map_or(Ordering::Equal, |(one, other)| one.cmp(&other))
    } else {
        let last = length - WORD;
        let mut place = 0;
        while place < last && word(one, place) == word(other, place) {
            place += WORD;
        }
        let place = place.min(last);
        word(one, place).cmp(&word(other, place))
    };
    order as c_int
}
