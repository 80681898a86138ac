//! Phases, and plugins by extension point, under numbers. Their names come from the traced process, so number and length are bounded.

use std::{borrow::Cow, sync::Arc};

use spans::{AttributeValue, Span, SpanKind, attributes, names::PLUGIN};

use crate::HashMap;

/// The name of all that is beyond the bounds.
pub(crate) const OTHER: &str = "other";
/// Characters of a name: of a Pod's or a Node's as well.
pub(crate) const MAX_TEXT: usize = 253;

/// A phase, or a plugin at an extension point.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) name: Arc<str>,
    /// Empty for a phase.
    pub(crate) point: Arc<str>,
}

/// Keys, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    keys: Vec<Key>,
    /// Indices into `keys`, by name and extension point. Each span of an attempt is looked up twice.
    numbers: HashMap<Arc<str>, Vec<(Arc<str>, usize)>>,
}

impl Keys {
    /// The number of a key; that of [`OTHER`] if there are `most` others, or the name is too long.
    pub(crate) fn number(&mut self, name: &str, point: &str, most: usize) -> usize {
        let known = self.numbers.get(name).and_then(|points| points.iter().find(|(of, _)| **of == *point));
        if let Some((_, number)) = known {
            return *number;
        }
        if self.keys.len() >= most || name.len().max(point.len()) > MAX_TEXT {
            let other = Key { name: OTHER.into(), point: if point.is_empty() { "" } else { OTHER }.into() };
            return self.keys.iter().position(|key| *key == other).unwrap_or_else(|| self.add(other));
        }
        self.add(Key { name: name.into(), point: point.into() })
    }

    /// All keys, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter()
    }

    fn add(&mut self, key: Key) -> usize {
        let number = self.keys.len();
        self.numbers.entry(Arc::clone(&key.name)).or_default().push((Arc::clone(&key.point), number));
        self.keys.push(key);
        number
    }
}

/// Name of a span, and the extension point of a plugin's.
pub(crate) fn names(span: &Span) -> (Cow<'_, str>, &str) {
    if !matches!(span.kind, SpanKind::Plugin | SpanKind::Share) {
        return (span.name.as_str(), "");
    }
    let name = span.name.after(PLUGIN).map_or_else(|| span.name.as_str(), Cow::Borrowed);
    match span.attribute(attributes::EXTENSION_POINT) {
        Some(AttributeValue::String(point)) => (name, point),
        Some(_) | None => (name, "?"),
    }
}
