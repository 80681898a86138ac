//! The daemon's allocator: dlmalloc behind the standard library's lock.
//!
//! musl's own allocator, which the image would use, takes more CPU time; mimalloc takes as much (0.99 ± 0.02 of it) and a quarter more memory.
//! The lock that dlmalloc brings along is the C library's, and takes as long as the work under it. `cargo xtask bench --executable FILE
//! --against FILE` compares two builds.

use std::{
    alloc::{GlobalAlloc, Layout},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use dlmalloc::Dlmalloc;

/// The allocator.
pub struct Allocator(Mutex<Dlmalloc>);

// SAFETY: what dlmalloc points to is its own memory, and it is reached under the lock alone.
unsafe impl Sync for Allocator {}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").finish_non_exhaustive()
    }
}

impl Allocator {
    /// An allocator without memory.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "there is one, in a static")]
    pub const fn new() -> Self {
        Self(Mutex::new(Dlmalloc::new()))
    }

    fn locked(&self) -> MutexGuard<'_, Dlmalloc> {
        // Nothing panics under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: dlmalloc gives out memory that nobody has, and does not unwind. The lock takes no memory.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that dlmalloc asks for.
        unsafe { self.locked().malloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.locked().calloc(layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        unsafe { self.locked().realloc(place, layout.size(), layout.align(), size) }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.locked().free(place, layout.size(), layout.align()) }
    }
}
