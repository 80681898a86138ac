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

/// The allocator. All of them have the same memory.
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

/// From here on, the calling thread keeps some of the small blocks that it frees, up to 64 KiB, and takes them again without the
/// lock. For a thread that runs as long as the process: what it keeps is lost with it.
pub fn keep_blocks() {
    KEPT.with(Kept::turn_on);
}

fn locked() -> MutexGuard<'static, Dlmalloc> {
    // Nothing panics under the lock.
    HEAP.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new block, and some more of its class to keep; null if there is no memory.
#[cold]
#[inline(never)]
fn refill(class: Class) -> *mut u8 {
    KEPT.with(|kept| {
        let mut heap = locked();
        // SAFETY: the size is not 0, and the alignment is a power of two.
        let mut new = || unsafe { heap.malloc(class.size(), ALIGN) };
        for _ in 1..kept.at_a_time(class) {
            let Some(block) = NonNull::new(new()) else { break };
            // SAFETY: it was allocated for this class, and nobody has it.
            let is_kept = unsafe { kept.keep(class, block) };
            debug_assert!(is_kept, "there was none of the class, and half of the bound is added");
        }
        new()
    })
}

/// Gives a block back, and some of those of its class that are kept.
///
/// # Safety
///
/// It was allocated for this class, and nothing uses it any more.
#[cold]
#[inline(never)]
unsafe fn flush(class: Class, block: NonNull<u8>) {
    KEPT.with(|kept| {
        let mut heap = locked();
        // SAFETY: the caller promises it for the block, and those that are kept are of the same class.
        let mut free = |block: NonNull<u8>| unsafe { heap.free(block.as_ptr(), class.size(), ALIGN) };
        free(block);
        for _ in 1..kept.at_a_time(class) {
            let Some(block) = kept.take(class) else { break };
            free(block);
        }
    });
}

// SAFETY: a block is dlmalloc's, or kept by one thread, until it is returned, and then the caller's. A block of a class has its size
// from the start. Nothing here unwinds, and locking does not allocate.
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
            // SAFETY: it has this size, and nobody else has it.
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
                    // SAFETY: they are different blocks, the old one has as many bytes, and nothing uses it any more.
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
                // SAFETY: its size is that of the class, and the caller does not use it any more.
                if !KEPT.with(|kept| unsafe { kept.keep(class, block) }) {
                    // SAFETY: the same, and it is not kept.
                    unsafe { flush(class, block) };
                }
            }
            // SAFETY: dlmalloc has the same requirements as `GlobalAlloc`.
            (None, Some(block)) => unsafe { locked().free(block.as_ptr(), layout.size(), layout.align()) },
            (_, None) => {}
        }
    }
}
