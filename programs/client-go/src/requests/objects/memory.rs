//! What is known of objects, by process and by what they are called. The oldest make room for others.

use std::collections::BTreeMap;

use super::Subject;

/// What is known of objects.
#[derive(Debug)]
pub(super) struct Memory<T> {
    by_process: BTreeMap<u32, Known<T>>,
    /// How many there were in all.
    remembered: u64,
    /// How many made room for others.
    forgotten: u64,
}

#[derive(Debug)]
struct Known<T> {
    /// Number of the last one that was put there.
    last: u64,
    objects: BTreeMap<Subject, (u64, T)>,
    /// By number: the oldest first.
    order: BTreeMap<u64, Subject>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { last: 0, objects: BTreeMap::new(), order: BTreeMap::new() }
    }
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self { by_process: BTreeMap::new(), remembered: 0, forgotten: 0 }
    }
}

impl<T> Memory<T> {
    pub(super) fn get(&self, target: u32, subject: &Subject) -> Option<&T> {
        self.by_process.get(&target)?.objects.get(subject).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, target: u32, subject: &Subject) -> Option<&mut T> {
        self.by_process.get_mut(&target)?.objects.get_mut(subject).map(|(_, value)| value)
    }

    /// Puts in what is known of an object as the newest. The process has room for so many.
    pub(super) fn put(&mut self, target: u32, subject: Subject, value: T, room: usize) {
        let Known { last, objects, order } = self.by_process.entry(target).or_default();
        *last += 1;
        order.insert(*last, subject.clone());
        match objects.insert(subject, (*last, value)) {
            Some((before, _)) => drop(order.remove(&before)),
            None => self.remembered += 1,
        }
        while objects.len() > room.max(1) {
            let Some((_, oldest)) = order.pop_first() else { break };
            objects.remove(&oldest);
            self.forgotten += 1;
        }
    }

    pub(super) fn remove(&mut self, target: u32, subject: &Subject) {
        let Some(Known { objects, order, .. }) = self.by_process.get_mut(&target) else { return };
        if let Some((number, _)) = objects.remove(subject) {
            order.remove(&number);
        }
    }

    /// A process has ended.
    pub(super) fn exit(&mut self, target: u32) {
        self.by_process.remove(&target);
    }

    /// How many objects were remembered, and how many of them made room for others: by the label `fate`.
    pub(super) const fn fates(&self) -> [(&'static str, u64); 2] {
        [("remembered", self.remembered), ("forgotten", self.forgotten)]
    }
}
