//! `memcpy`, `memmove`, `memcmp` and `bcmp` for the image's executable, in place of those of musl on x86-64.
//!
//! musl copies with `rep movsq`, which takes tens of cycles before the first byte, and the bytes before and behind whole words one by one
//! (<https://git.musl-libc.org/cgit/musl/tree/src/string/x86_64/memcpy.s?h=v1.2.5>); it compares byte by byte
//! (<https://git.musl-libc.org/cgit/musl/tree/src/string/memcmp.c?h=v1.2.5>). Most copies of the daemon are short: these two took a
//! quarter of its CPU time. On arm64, musl has a quick `memcpy`.
//!
//! A crate that depends on this one says `use mem as _;`.
//!
//! # Design constraints
//!
//! * Nothing but SSE2, which every x86-64 has.
//! * A copy of up to 128 bytes has no loop: it reads all, in pieces that may overlap, and then writes all.

#![no_std]
// The compiler would replace the loops by calls of these very functions.
#![no_builtins]

#[cfg(test)]
extern crate std;

#[cfg(all(target_arch = "x86_64", any(target_env = "musl", test)))]
mod x86_64;

/// The C library's names.
#[cfg(all(target_arch = "x86_64", target_env = "musl", not(test)))]
mod exported {
    use core::ffi::{c_int, c_void};

    use crate::x86_64::{compare, copy};

    /// <https://pubs.opengroup.org/onlinepubs/9799919799/functions/memcpy.html>
    // SAFETY: the C library's function of this name is in an archive, from which the linker takes only what nobody else has.
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

    /// As `memcmp`, which says more.
    // SAFETY: as above.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(one: *const c_void, other: *const c_void, length: usize) -> c_int {
        // SAFETY: as above.
        unsafe { compare(one.cast(), other.cast(), length) }
    }
}
