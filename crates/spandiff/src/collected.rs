//! The spans of one Pod among those of a file. Pure.

use std::collections::{BTreeSet, HashMap, HashSet};

use spans::attributes;

use crate::{Shown, Span as Read};

/// Trace and span.
pub(crate) type Id<'a> = (&'a [u8], &'a [u8]);

pub(crate) fn id(span: &Read) -> Id<'_> {
    (&span.trace_id, &span.span_id)
}

/// The last lifecycle of a Pod.
pub(crate) fn lifecycle<'a>(spans: &'a [Read], namespace: &str, pod: &str) -> Option<&'a Read> {
    let of_pod = |span: &&Read| {
        span.shows() == Shown::LIFECYCLE
            && span.attribute(attributes::POD_NAMESPACE) == namespace
            && span.attribute(attributes::POD_NAME) == pod
    };
    spans.iter().filter(of_pod).max_by_key(|span| span.wall[1])
}

/// The Pods with a lifecycle, as `namespace/name`, without control characters.
#[must_use]
pub fn pods(spans: &[Read]) -> BTreeSet<String> {
    let lifecycles = spans.iter().filter(|span| span.shows() == Shown::LIFECYCLE);
    let text = |span: &Read, key| span.attribute(key).escape_debug().to_string();
    lifecycles
        .map(|span| [attributes::POD_NAMESPACE, attributes::POD_NAME].map(|key| text(span, key)).join("/"))
        .collect()
}

/// The spans of a Pod.
pub(crate) struct Collected<'a> {
    /// Its lifecycle.
    pub(crate) lifecycle: &'a Read,
    /// Other spans with its UID, in the order of their starts.
    pub(crate) about: Vec<&'a Read>,
    by_id: HashMap<Id<'a>, &'a Read>,
    below: HashMap<Id<'a>, Vec<&'a Read>>,
}

impl<'a> Collected<'a> {
    /// Those of a Pod whose lifecycle this is.
    pub(crate) fn of(spans: &'a [Read], lifecycle: &'a Read) -> Self {
        let uid = lifecycle.attribute(attributes::POD_UID);
        let is_about = |span: &&Read| {
            !uid.is_empty() && span.attribute(attributes::POD_UID) == uid && id(span) != id(lifecycle)
        };
        let mut about: Vec<_> = spans.iter().filter(is_about).collect();
        about.sort_by_key(|span| (span.wall, &*span.name));
        let traces: HashSet<_> =
            about.iter().copied().chain([lifecycle]).map(|span| span.trace_id.as_slice()).collect();
        let within = || spans.iter().filter(|span| traces.contains(span.trace_id.as_slice()));
        let by_id = within().map(|span| (id(span), span)).collect();
        let mut below: HashMap<_, Vec<_>> = HashMap::new();
        for span in within().filter(|span| !span.parent_id.is_empty()) {
            below.entry((&*span.trace_id, &*span.parent_id)).or_default().push(span);
        }
        below.values_mut().for_each(|spans| spans.sort_by_key(|span| (span.wall, &*span.name)));
        Self { lifecycle, about, by_id, below }
    }

    /// The span above this one, if it was collected.
    pub(crate) fn parent(&self, span: &'a Read) -> Option<&'a Read> {
        self.by_id.get(&(&*span.trace_id, &*span.parent_id)).copied()
    }

    /// The spans right below this one, in the order of their starts.
    pub(crate) fn below(&self, span: &'a Read) -> &[&'a Read] {
        self.below.get(&id(span)).map_or(&[], Vec::as_slice)
    }

    /// All spans below this one, each with its parent, and after it.
    pub(crate) fn descendants(&self, span: &'a Read) -> Vec<(&'a Read, &'a Read)> {
        let (mut all, mut next) = (Vec::new(), vec![span]);
        // In a file two spans may be each other's parents.
        let mut seen = HashSet::from([id(span)]);
        while let Some(parent) = next.pop() {
            for child in self.below(parent).iter().copied().filter(|child| seen.insert(id(child))) {
                all.push((child, parent));
                next.push(child);
            }
        }
        all
    }
}
