//! Free blocks that a thread keeps, by size. Neither to take one nor to keep one needs a lock.

use std::{
    alloc::Layout,
    cell::Cell,
    ptr::{self, NonNull},
};

/// dlmalloc aligns each block to this.
pub(crate) const ALIGN: usize = 2 * size_of::<usize>();
/// dlmalloc's smallest block, without the size in front of it. The next ones are larger by [`ALIGN`] each.
const SMALLEST: usize = 3 * size_of::<usize>();
const CLASSES: usize = 32;
/// Most bytes of a class that a thread keeps.
const MOST_BYTES: usize = 2 << 10;
/// Most blocks of a class that a thread keeps.
const MOST_BLOCKS: usize = 32;

/// The size of a block that can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(usize);

impl Class {
    /// The class of a block with this layout; `None` if it is too large, or aligned otherwise.
    #[inline]
    pub(crate) const fn of(layout: Layout) -> Option<Self> {
        let number = layout.size().saturating_sub(SMALLEST).div_ceil(ALIGN);
        if layout.align() <= ALIGN && number < CLASSES { Some(Self(number)) } else { None }
    }

    /// Bytes of each block of the class, whether it is kept or not.
    pub(crate) const fn size(self) -> usize {
        SMALLEST + ALIGN * self.0
    }

    /// Most blocks of the class that a thread keeps.
    const fn most(self) -> usize {
        let most = MOST_BYTES / self.size();
        if most < MOST_BLOCKS { most } else { MOST_BLOCKS }
    }
}

/// What a thread keeps. It is not freed when the thread ends.
#[derive(Debug)]
pub(crate) struct Kept {
    is_on: Cell<bool>,
    lists: [List; CLASSES],
}

/// Blocks of one size; each begins with the address of the next one.
#[derive(Debug)]
struct List {
    first: Cell<*mut u8>,
    blocks: Cell<usize>,
}

impl List {
    const fn new() -> Self {
        Self { first: Cell::new(ptr::null_mut()), blocks: Cell::new(0) }
    }
}

impl Kept {
    /// Keeps nothing until it is turned on.
    pub(crate) const fn new() -> Self {
        Self { is_on: Cell::new(false), lists: [const { List::new() }; CLASSES] }
    }

    /// From here on, blocks are kept.
    pub(crate) fn turn_on(&self) {
        self.is_on.set(true);
    }

    /// Takes a block of this class.
    #[inline]
    pub(crate) fn take(&self, class: Class) -> Option<NonNull<u8>> {
        let list = &self.lists[class.0];
        let block = NonNull::new(list.first.get())?;
        // SAFETY: a block in a list has no other user, and begins with the address of the next one, which `keep` wrote.
        list.first.set(unsafe { block.cast::<*mut u8>().read() });
        list.blocks.set(list.blocks.get() - 1);
        Some(block)
    }

    /// Keeps a block, unless this thread keeps none, or enough of its class.
    ///
    /// # Safety
    ///
    /// The block has the size of the class, is aligned to [`ALIGN`], and has no other user.
    #[inline]
    pub(crate) unsafe fn keep(&self, class: Class, block: NonNull<u8>) -> bool {
        let list = &self.lists[class.0];
        let is_kept = self.is_on.get() && list.blocks.get() < class.most();
        if is_kept {
            // SAFETY: the block is the caller's, and its size and alignment are at least those of an address.
            unsafe { block.cast::<*mut u8>().write(list.first.get()) };
            list.first.set(block.as_ptr());
            list.blocks.set(list.blocks.get() + 1);
        }
        is_kept
    }

    /// How many blocks of a class are allocated or freed at a time, under one lock.
    pub(crate) fn at_a_time(&self, class: Class) -> usize {
        if self.is_on.get() { class.most().div_ceil(2) } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("it is valid")
    }

    #[test]
    fn a_block_of_a_class_has_room_for_each_layout_of_it() {
        for size in 0..=SMALLEST + ALIGN * CLASSES {
            let class = Class::of(layout(size, 1));
            assert_eq!(class.is_some(), size <= SMALLEST + ALIGN * (CLASSES - 1), "{size}");
            let Some(class) = class else { continue };
            let waste = class.size() - size;
            assert!(waste < ALIGN || class.size() == SMALLEST, "{size}");
            assert_eq!(Class::of(layout(class.size(), ALIGN)), Some(class));
            assert_eq!(Class::of(layout(size, 2 * ALIGN)), None);
        }
        assert_eq!(Class::of(layout(isize::MAX as usize, 1)), None);
    }

    #[test]
    fn a_thread_keeps_blocks_of_each_class_up_to_a_bound_and_takes_each_once() {
        let kept = Kept::new();
        for size in [1, SMALLEST, 100, SMALLEST + ALIGN * (CLASSES - 1)] {
            let class = Class::of(layout(size, 1)).expect("it is small");
            let mut room: Vec<Vec<u128>> =
                (0..=class.most()).map(|_| vec![0; class.size().div_ceil(ALIGN)]).collect();
            let mut keep = |number: usize| {
                let block = NonNull::new(room[number].as_mut_ptr().cast()).expect("it is there");
                // SAFETY: it is large enough, and aligned to 16 bytes.
                unsafe { kept.keep(class, block) }
            };
            kept.is_on.set(false);
            assert!(!keep(0) && kept.take(class).is_none());
            assert_eq!(kept.at_a_time(class), 1);
            kept.turn_on();
            assert!((0..class.most()).all(&mut keep) && !keep(class.most()));
            assert!((1..=class.most()).contains(&kept.at_a_time(class)));
            let taken: HashSet<_> = std::iter::from_fn(|| kept.take(class)).collect();
            assert_eq!(taken.len(), class.most());
        }
    }

    #[test]
    fn what_a_thread_keeps_is_less_than_64_kib() {
        let bytes = |number| Class(number).most() * (Class(number).size() + size_of::<usize>());
        assert!((0..CLASSES).map(bytes).sum::<usize>() <= 64 << 10);
    }
}
