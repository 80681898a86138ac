//! Places in a map whose entries stay where they are, because the eBPF programs refer to them.

/// Who uses each place. The lowest free place is taken first, so that the programs find an entry early.
#[derive(Debug)]
pub(super) struct Places<T>(Vec<Option<T>>);

impl<T> Places<T> {
    pub(super) fn new(number: u32) -> Self {
        Self((0..number).map(|_| None).collect())
    }

    /// The first free place.
    pub(super) fn free(&self) -> Option<u32> {
        self.place(Option::is_none)
    }

    /// The place of the entry that this is true for.
    pub(super) fn find(&self, is: impl Fn(&T) -> bool) -> Option<u32> {
        self.place(|entry| entry.as_ref().is_some_and(&is))
    }

    pub(super) fn get(&self, place: u32) -> Option<&T> {
        self.0.get(place as usize)?.as_ref()
    }

    pub(super) fn put(&mut self, place: u32, entry: T) {
        self.0[place as usize] = Some(entry);
    }

    pub(super) fn take(&mut self, place: u32) -> Option<T> {
        self.0.get_mut(place as usize)?.take()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.0).filter_map(|(place, entry)| Some((place, entry.as_ref()?)))
    }

    pub(super) fn len(&self) -> usize {
        self.all().count()
    }

    fn place(&self, is: impl Fn(&Option<T>) -> bool) -> Option<u32> {
        (0..).zip(&self.0).find_map(|(place, entry)| is(entry).then_some(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_its_place_and_a_free_one_is_used_again() {
        let mut places = Places::new(3);
        for (place, entry) in (0..).zip(["a", "b", "c"]) {
            assert_eq!(places.free(), Some(place));
            places.put(place, entry);
        }
        assert_eq!((places.free(), places.len()), (None, 3));
        assert_eq!(places.take(1), Some("b"));
        assert_eq!(places.find(|entry| *entry == "c"), Some(2));
        assert_eq!((places.free(), places.len(), places.get(1)), (Some(1), 2, None));
        assert_eq!((places.get(2), places.get(3)), (Some(&"c"), None));
        assert_eq!(places.all().collect::<Vec<_>>(), [(0, &"a"), (2, &"c")]);
    }
}
