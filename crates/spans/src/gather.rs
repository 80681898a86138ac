use std::collections::HashMap;

use crate::Trace;

/// Most spans that wait for the root of their group. Larger groups leave in parts.
const MAX_SPANS: usize = 65_536;

/// Joins the attempts of a group's Pods with that of the group, so that sampling and outputs see complete traces.
#[derive(Debug, Default)]
pub struct Gatherer {
    parts: HashMap<[u8; 16], Vec<Trace>>,
    spans: usize,
}

impl Gatherer {
    /// Takes a trace, or a part of one. Returns complete traces: the part with the root comes last.
    pub fn take(&mut self, mut trace: Trace) -> Vec<Trace> {
        if trace.root().parent_id.is_some() {
            if self.spans + trace.spans.len() > MAX_SPANS {
                let mut parts = self.rest();
                parts.push(trace);
                return parts;
            }
            self.spans += trace.spans.len();
            self.parts.entry(trace.trace_id).or_default().push(trace);
            return Vec::new();
        }
        let mut parts = self.parts.remove(&trace.trace_id).unwrap_or_default();
        parts.sort_by_key(|part| part.root().start_unix_ns);
        for part in parts {
            self.spans -= part.spans.len();
            trace.selected = match (trace.selected, part.selected) {
                (Some(one), Some(other)) => Some(one | other),
                (one, other) => one.or(other),
            };
            trace.spans.extend(part.spans);
        }
        vec![trace]
    }

    /// Returns the parts whose root does not come.
    pub fn rest(&mut self) -> Vec<Trace> {
        self.spans = 0;
        let mut parts: Vec<_> = self.parts.drain().flat_map(|(_, parts)| parts).collect();
        parts.sort_by_key(|part| part.root().start_unix_ns);
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{scheduled, unschedulable};

    /// A part of the group's trace that begins at this time.
    fn part(start_unix_ns: u64, selected: Option<u64>) -> Trace {
        let mut trace = scheduled();
        trace.spans[0].parent_id = Some([9; 8]);
        trace.spans[0].start_unix_ns = start_unix_ns;
        trace.selected = selected;
        trace
    }

    #[test]
    fn a_trace_of_no_group_goes_on_at_once() {
        let mut gatherer = Gatherer::default();
        assert_eq!(gatherer.take(scheduled()), [scheduled()]);
        assert!(gatherer.rest().is_empty());
    }

    #[test]
    fn parts_wait_for_their_root_and_are_in_its_trace_in_order() {
        let mut gatherer = Gatherer::default();
        let other = Trace { trace_id: [1; 16], ..part(5, None) };
        assert!(gatherer.take(part(20, Some(0b10))).is_empty());
        assert!(gatherer.take(other.clone()).is_empty());
        assert!(gatherer.take(part(10, Some(0b11))).is_empty());
        let root = Trace { selected: Some(0b100), ..unschedulable() };
        let whole = gatherer.take(root.clone());
        let [whole] = &whole[..] else { panic!("{} traces", whole.len()) };
        assert_eq!(whole.selected, Some(0b111));
        let parts = [root.spans, part(10, None).spans, part(20, None).spans].concat();
        assert_eq!(whole.spans, parts);
        assert_eq!(gatherer.rest(), [other]);
        assert_eq!(gatherer.spans, 0);
    }

    #[test]
    fn a_group_may_fill_the_room() {
        let mut gatherer = Gatherer::default();
        let mut whole = part(0, None);
        whole.spans.resize(MAX_SPANS, whole.spans[1].clone());
        assert!(gatherer.take(whole).is_empty());
        assert_eq!(gatherer.take(part(0, None)).len(), 2);
    }

    #[test]
    fn a_group_that_is_too_large_leaves_in_parts_and_room_is_used_again() {
        let mut gatherer = Gatherer::default();
        let most = MAX_SPANS / scheduled().spans.len();
        for number in 0..most {
            assert!(gatherer.take(part(number as u64, None)).is_empty());
        }
        let left = gatherer.take(part(0, None));
        assert_eq!(left.len(), most + 1);
        assert!(left[..most].is_sorted_by_key(|part| part.root().start_unix_ns));
        assert!(gatherer.take(part(0, None)).is_empty(), "there is room again");
        assert_eq!(gatherer.take(unschedulable()).len(), 1);
        assert_eq!(gatherer.spans, 0);
    }
}
