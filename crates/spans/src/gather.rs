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
