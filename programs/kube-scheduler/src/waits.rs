//! What Pods waited for outside of schedulers in the last minute: keys in work queues, and pulls of images. Bounded, and pure.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use spans::{AttributeValue, NodeStep, Span, SpanKind, Trace, attributes, text::cut};

use crate::keys::{MAX_TEXT, OTHER};

/// Most names of a second, and of a minute.
const MAX_NAMES: usize = 64;
/// What a wait may be in.
const QUEUE: &str = "work queue";
const IMAGE: &str = "image";

/// Waits of the same kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Wait {
    /// What they were in: `work queue`, of keys whose reconcile has a trace, or `image`, of pulls.
    pub what: String,
    /// Name of the queue or the image; `other` for those beyond the bound.
    pub name: String,
    /// How many there were.
    pub count: u64,
    /// Their sum, nanoseconds.
    pub total_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
}

/// Waits by what they were in, and its name.
#[derive(Debug, Default)]
pub(crate) struct Waits(BTreeMap<(&'static str, String), Wait>);

impl Waits {
    /// Takes those of a trace.
    pub(crate) fn trace(&mut self, trace: &Trace) {
        let root = trace.root();
        if let Some(AttributeValue::Double(ms)) = root.attribute(attributes::WORKQUEUE_WAIT_MS) {
            self.add(QUEUE, &text(root, attributes::WORKQUEUE), (ms * 1e6) as u64);
        }
        for pull in trace.spans.iter().filter(|span| span.kind == SpanKind::Node(NodeStep::PullImage)) {
            let image = trace.spans.iter().find(|span| Some(span.span_id) == pull.parent_id);
            self.add(IMAGE, &text(image.unwrap_or(pull), attributes::IMAGE), pull.duration_ns());
        }
    }

    fn add(&mut self, what: &'static str, name: &str, ns: u64) {
        let one = Wait { what: what.to_owned(), name: name.to_owned(), count: 1, total_ns: ns, max_ns: ns };
        self.put((what, name.to_owned()), &one);
    }

    /// Adds those of another second.
    pub(crate) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(key, wait)| self.put(key.clone(), wait));
    }

    fn put(&mut self, mut key: (&'static str, String), wait: &Wait) {
        if self.0.len() >= MAX_NAMES && !self.0.contains_key(&key) {
            key.1 = OTHER.to_owned();
        }
        let none = Wait { what: key.0.to_owned(), name: key.1.clone(), ..Wait::default() };
        self.0.entry(key).or_insert(none).merge(wait);
    }

    /// All of them, the longest first.
    pub(crate) fn list(&self) -> Vec<Wait> {
        let mut list: Vec<_> = self.0.values().cloned().collect();
        Wait::sort(&mut list);
        list
    }
}

impl Wait {
    pub(crate) fn merge(&mut self, other: &Self) {
        let Self { what: _, name: _, count, total_ns, max_ns } = other;
        self.count = self.count.saturating_add(*count);
        self.total_ns = self.total_ns.saturating_add(*total_ns);
        self.max_ns = self.max_ns.max(*max_ns);
    }

    pub(crate) fn sort(list: &mut [Self]) {
        list.sort_by(|a, b| {
            (Reverse(a.max_ns), &a.what, &a.name).cmp(&(Reverse(b.max_ns), &b.what, &b.name))
        });
    }

    /// The mean, nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.total_ns / self.count.max(1)
    }
}

fn text(span: &Span, key: &str) -> String {
    let text = span.attribute(key).map(ToString::to_string).unwrap_or_default();
    cut(&text, MAX_TEXT).to_owned()
}

#[cfg(test)]
mod tests {
    use spans::fixtures::scheduled;

    use super::*;
    use crate::last_minute::{LastMinute, WINDOW, Window};

    fn reconcile(queue: &str, ms: f64) -> Trace {
        let mut trace = scheduled();
        let wait = (attributes::WORKQUEUE_WAIT_MS, AttributeValue::Double(ms));
        trace.spans[0].attributes = [(attributes::WORKQUEUE, queue.into()), wait].into_iter().collect();
        trace
    }

    /// A start that pulled an image for so many milliseconds.
    fn start(image: &str, ms: u64) -> Trace {
        let mut trace = scheduled();
        trace.spans[0].attributes = [(attributes::IMAGE, image.into())].into_iter().collect();
        let pull = &mut trace.spans[1];
        (pull.kind, pull.end_unix_ns) =
            (SpanKind::Node(NodeStep::PullImage), pull.start_unix_ns + ms * 1_000_000);
        trace
    }

    fn shown(list: &[Wait]) -> Vec<(&str, &str, u64, u64, u64)> {
        list.iter()
            .map(|wait| {
                (&*wait.what, &*wait.name, wait.count, wait.mean_ns() / 1_000_000, wait.max_ns / 1_000_000)
            })
            .collect()
    }

    #[test]
    fn those_of_the_last_minute_are_listed_the_longest_first() {
        let mut window = Window::default();
        window.elsewhere(0, &start("nginx:1.29", 9_000));
        for (second, trace) in
            [(50, start("nginx:1.29", 300)), (51, reconcile("job", 10.0)), (52, reconcile("job", 30.0))]
        {
            window.elsewhere(second, &trace);
        }
        let expected = [("image", "nginx:1.29", 2, 4_650, 9_000), ("work queue", "job", 2, 20, 30)];
        assert_eq!(shown(&window.figures(52).waits), expected);
        let later = window.figures(WINDOW).waits;
        assert_eq!(shown(&later)[0], ("image", "nginx:1.29", 1, 300, 300));

        let one = LastMinute { waits: later, ..LastMinute::default() };
        let merged = LastMinute::merged(vec![one.clone(), one]).unwrap_or_default().waits;
        assert_eq!(shown(&merged), [("image", "nginx:1.29", 2, 300, 300), ("work queue", "job", 4, 20, 30)]);
    }

    #[test]
    fn names_are_bounded_in_number_and_length() {
        let mut waits = Waits::default();
        for number in 0..2 * MAX_NAMES as u64 {
            waits.trace(&start(&format!("image-{number}"), number));
        }
        let list = waits.list();
        assert_eq!(
            (list.len(), list[0].name.as_str(), list[0].count),
            (MAX_NAMES + 1, OTHER, MAX_NAMES as u64)
        );
        waits = Waits::default();
        waits.trace(&reconcile(&"x".repeat(10_000), f64::MAX));
        assert_eq!((waits.list()[0].name.len(), waits.list()[0].max_ns), (MAX_TEXT, u64::MAX));
    }
}
