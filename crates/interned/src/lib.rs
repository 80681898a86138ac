//! Values that many have in common, kept once: the same message of thousands of Pods, the names of Nodes in each attempt.

#![forbid(unsafe_code)]

use std::{borrow::Borrow, collections::HashSet, hash::Hash, sync::Arc};

use foldhash::fast::RandomState;

/// Values up to which none is dropped.
const FEW: usize = 64;

/// One copy of each value.
#[derive(Debug)]
pub struct Interner<T: ?Sized> {
    all: HashSet<Arc<T>, RandomState>,
    /// With so many, those that are not in use are dropped.
    full: usize,
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { all: HashSet::default(), full: FEW }
    }
}

impl<T: ?Sized + Eq + Hash> Interner<T> {
    /// The copy of this value. It is kept for as long as someone has it.
    pub fn intern<V: Borrow<T> + Into<Arc<T>>>(&mut self, value: V) -> Arc<T> {
        if let Some(known) = self.all.get(value.borrow()) {
            return Arc::clone(known);
        }
        if self.all.len() >= self.full {
            self.all.retain(|value| Arc::strong_count(value) > 1);
            self.full = (2 * self.all.len()).max(FEW);
        }
        let new = value.into();
        self.all.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_kept_once_and_no_longer_than_someone_has_them() {
        let mut texts = Interner::<str>::default();
        let kept = texts.intern("kept");
        for number in 0..10 * FEW {
            texts.intern(&*number.to_string());
        }
        assert!(Arc::ptr_eq(&kept, &texts.intern("kept")));
        assert!(texts.all.len() <= FEW, "{}", texts.all.len());
    }

    #[test]
    fn all_that_are_in_use_are_kept() {
        let mut numbers = Interner::<usize>::default();
        let kept: Vec<_> = (0..10 * FEW).map(|number| numbers.intern(number)).collect();
        assert!((0..10 * FEW).all(|number| Arc::ptr_eq(&kept[number], &numbers.intern(number))));
    }
}
