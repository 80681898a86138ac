//! An allocator that refuses what a case must not need.
//!
//! A table that claims a billion entries may be reserved and never touched: the resident memory, which the fuzzer looks at
//! once a second, does not show that.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

/// What one case may hold at a time, beside the seeds.
const LIMIT: usize = 192 << 20;

/// Counts what is allocated. Beyond the limit an allocation fails, which ends the process.
#[derive(Debug)]
pub struct Bounded {
    live: AtomicUsize,
    limit: AtomicUsize,
}

impl Bounded {
    /// Without a limit as yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { live: AtomicUsize::new(0), limit: AtomicUsize::new(usize::MAX) }
    }

    /// From now on nothing may take more than the limit beside what is held already.
    pub fn start(&self) {
        self.limit.store(self.live.load(Ordering::Relaxed).saturating_add(LIMIT), Ordering::Relaxed);
    }
}

impl Default for Bounded {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: all memory is the system allocator's; beside it there is only counting.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = self.live.fetch_add(layout.size(), Ordering::Relaxed).saturating_add(layout.size());
        if live > self.limit.load(Ordering::Relaxed) {
            self.live.fetch_sub(layout.size(), Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are those that the system allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.live.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
