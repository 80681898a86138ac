//! Values that many have in common, kept once.

use std::{borrow::Borrow, collections::HashSet, hash::Hash, sync::Arc};

/// Values up to which none is dropped.
const FEW: usize = 64;

/// One copy of each value, such as the same message of thousands of Pods.
#[derive(Debug)]
pub struct Shared<T: ?Sized> {
    all: HashSet<Arc<T>>,
    /// With so many, those that are not in use are dropped.
    full: usize,
}

impl<T: ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self { all: HashSet::new(), full: FEW }
    }
}

impl<T: ?Sized + Eq + Hash> Shared<T> {
    /// The copy of this value. It is kept for as long as someone has it.
    pub fn of<V: Borrow<T> + Into<Arc<T>>>(&mut self, value: V) -> Arc<T> {
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
        let mut texts = Shared::<str>::default();
        let kept = texts.of("kept");
        for number in 0..10 * FEW {
            texts.of(&*number.to_string());
        }
        assert!(Arc::ptr_eq(&kept, &texts.of("kept")));
        assert!(texts.all.len() <= FEW, "{}", texts.all.len());
    }

    #[test]
    fn all_that_are_in_use_are_kept() {
        let mut numbers = Shared::<usize>::default();
        let kept: Vec<_> = (0..10 * FEW).map(|number| numbers.of(number)).collect();
        assert!((0..10 * FEW).all(|number| Arc::ptr_eq(&kept[number], &numbers.of(number))));
    }
}
