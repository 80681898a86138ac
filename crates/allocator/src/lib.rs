//! The daemon's allocator: dlmalloc behind the standard library's lock.
//!
//! musl's allocator, the default in the image, takes more CPU time. mimalloc took as much as dlmalloc with the C library's lock
//! (0.99 ± 0.02 of it), and a quarter more memory. That lock, dlmalloc's default, took as long as the allocations under it.
//! `cargo xtask bench --executable FILE --against FILE` compares two builds.

use std::{
    alloc::{GlobalAlloc, Layout},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use dlmalloc::Dlmalloc;

/// The allocator.
pub struct Allocator(Mutex<Dlmalloc>);

// SAFETY: dlmalloc's pointers lead to its own memory, which is only accessed under the lock.
unsafe impl Sync for Allocator {}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").finish_non_exhaustive()
    }
}

impl Allocator {
    /// An allocator that has taken no memory from the kernel yet.
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

// SAFETY: dlmalloc returns only memory that is not in use, and it does not unwind. Locking does not allocate.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: dlmalloc has the same requirements as `GlobalAlloc`.
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
