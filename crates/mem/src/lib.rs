//! Replaces musl's `memcpy`, `memmove`, `memcmp` and `bcmp` in the image's executable on x86-64.
//!
//! musl copies with `rep movsq`, which needs tens of cycles to start, and copies the bytes before and after whole words one by one
//! (<https://git.musl-libc.org/cgit/musl/tree/src/string/x86_64/memcpy.s?h=v1.2.5>). It compares byte by byte
//! (<https://git.musl-libc.org/cgit/musl/tree/src/string/memcmp.c?h=v1.2.5>). Most copies of the daemon are short: these functions
//! took more than a fifth of its CPU time. On arm64, musl's `memcpy` is fast.
//!
//! An executable links these functions with `use mem as _;`.
//!
//! # Design constraints
//!
//! * Only SSE2, which every x86-64 processor has.
//! * A copy of up to 128 bytes has no loop: it reads all bytes, in pieces that may overlap, and then writes them.

#![no_std]
// Otherwise the compiler may replace the loops by calls of these functions.
#![no_builtins]

#[cfg(test)]
extern crate std;

#[cfg(all(target_arch = "x86_64", any(target_env = "musl", test)))]
mod x86_64;

/// The functions under the names of the C library.
#[cfg(all(target_arch = "x86_64", target_env = "musl", not(test)))]
mod exported {
    use core::ffi::{c_int, c_void};

    use crate::x86_64::{compare, copy};

    /// <https://pubs.opengroup.org/onlinepubs/9799919799/functions/memcpy.html>
    // SAFETY: the function behaves as C requires. The linker takes musl's own from its archive only if this one is missing.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void {
        // SAFETY: the caller's promises are the same.
        unsafe { copy(to.cast(), from.cast(), length) };
        to
    }

    /// <https://pubs.opengroup.org/onlinepubs/9799919799/functions/memmove.html>
    // SAFETY: as above.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void {
        // SAFETY: as above.
        unsafe { copy(to.cast(), from.cast(), length) };
        to
    }

    /// <https://pubs.opengroup.org/onlinepubs/9799919799/functions/memcmp.html>
    // SAFETY: as above.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(one: *const c_void, other: *const c_void, length: usize) -> c_int {
        // SAFETY: as above.
        unsafe { compare(one.cast(), other.cast(), length) }
    }

    /// The same as `memcmp`: callers only compare the result with 0.
    // SAFETY: as above.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(one: *const c_void, other: *const c_void, length: usize) -> c_int {
        // SAFETY: as above.
        unsafe { compare(one.cast(), other.cast(), length) }
    }
}
