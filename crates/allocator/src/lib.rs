//! The daemon's allocator: dlmalloc behind the standard library's lock, and small blocks that its two threads keep.
//!
//! musl's allocator, the default in the image, takes more CPU time. mimalloc took as much as dlmalloc with the C library's lock
//! (0.99 ± 0.02 of it), and a quarter more memory. That lock, dlmalloc's default, took as long as the allocations under it.
//! `cargo xtask bench --executable FILE --against FILE` compares two builds.

mod kept;

use std::{
    alloc::{GlobalAlloc, Layout},
    ptr::{self, NonNull},
    sync::{Mutex, MutexGuard, PoisonError},
};

use dlmalloc::Dlmalloc;

use self::kept::{ALIGN, Class, Kept};

/// The allocator. All values of this type share one heap.
#[derive(Clone, Copy, Debug)]
pub struct Allocator;

struct Heap(Mutex<Dlmalloc>);

// SAFETY: dlmalloc's pointers lead to its own memory, which is only accessed under the lock.
unsafe impl Sync for Heap {}

static HEAP: Heap = Heap(Mutex::new(Dlmalloc::new()));

thread_local! {
    // Without a destructor, it is there as long as the thread is, and allocates nothing.
    static KEPT: Kept = const { Kept::new() };
}

/// From here on, the calling thread keeps up to 64 KiB of the small blocks that it frees, and reuses them without the lock. Only for a
/// thread that runs until the process ends: the blocks that a thread keeps are never freed.
pub fn keep_blocks() {
    KEPT.with(Kept::turn_on);
}

fn locked() -> MutexGuard<'static, Dlmalloc> {
    // Nothing panics under the lock.
    HEAP.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates a block, and a few more of its class that the thread keeps. Returns null if there is no memory.
#[cold]
#[inline(never)]
fn refill(class: Class) -> *mut u8 {
    KEPT.with(|kept| {
        let mut heap = locked();
        // SAFETY: the size is not 0, and the alignment is a power of two.
        let mut new = || unsafe { heap.malloc(class.size(), ALIGN) };
        for _ in 1..kept.at_a_time(class) {
            let Some(block) = NonNull::new(new()) else { break };
            // SAFETY: the block was just allocated with the size of this class, and has no other user.
            let is_kept = unsafe { kept.keep(class, block) };
            debug_assert!(is_kept, "the list was empty, and gets at most half of its bound");
        }
        new()
    })
}

/// Frees a block, and a few of its class that the thread has kept.
///
/// # Safety
///
/// The block was allocated with the size of this class, and has no user any more.
#[cold]
#[inline(never)]
unsafe fn flush(class: Class, block: NonNull<u8>) {
    KEPT.with(|kept| {
        let mut heap = locked();
        // SAFETY: the caller's block and those in this list were allocated with this size, and have no user any more.
        let mut free = |block: NonNull<u8>| unsafe { heap.free(block.as_ptr(), class.size(), ALIGN) };
        free(block);
        for _ in 1..kept.at_a_time(class) {
            let Some(block) = kept.take(class) else { break };
            free(block);
        }
    });
}

// SAFETY: a block belongs to dlmalloc, to the list of one thread, or to the caller, and only to one of them. Each block of a class is
// allocated with the size of the class. Nothing here unwinds, and locking does not allocate.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match Class::of(layout) {
            Some(class) => KEPT.with(|kept| kept.take(class)).map_or_else(|| refill(class), NonNull::as_ptr),
            // SAFETY: dlmalloc has the same requirements as `GlobalAlloc`.
            None => unsafe { locked().malloc(layout.size(), layout.align()) },
        }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Class::of(layout).is_none() {
            // SAFETY: as above.
            return unsafe { locked().calloc(layout.size(), layout.align()) };
        }
        // SAFETY: the caller's promises are the same.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block is new, and has at least the size of the layout.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the new size is valid with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (Class::of(layout), Class::of(new)) {
            // SAFETY: dlmalloc has the same requirements as `GlobalAlloc`.
            (None, None) => unsafe { locked().realloc(block, layout.size(), layout.align(), size) },
            (from, to) if from == to => block,
            (_, _) => {
                // SAFETY: the caller promises that the new size is not 0.
                let moved = unsafe { self.alloc(new) };
                if !moved.is_null() {
                    // SAFETY: these are two blocks, both have at least so many bytes, and the caller does not use the old one any more.
                    unsafe {
                        ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                }
                moved
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match (Class::of(layout), NonNull::new(block)) {
            (Some(class), Some(block)) => {
                // SAFETY: the block has the size of its class, and the caller does not use it any more.
                if !KEPT.with(|kept| unsafe { kept.keep(class, block) }) {
                    // SAFETY: as above, and the thread did not keep it.
                    unsafe { flush(class, block) };
                }
            }
            // SAFETY: dlmalloc has the same requirements as `GlobalAlloc`.
            (None, Some(block)) => unsafe { locked().free(block.as_ptr(), layout.size(), layout.align()) },
            (_, None) => {}
        }
    }
}
