//! The trace contexts in an object's annotations. Pure: annotations in, contexts and refusals out.
//!
//! A list of keys says which annotations are read; the encoding follows from the value. A key that ends in `traceparent` has
//! companions, as a propagator writes them: the same key with `tracestate` and `baggage` at its end, and all three with a number
//! appended where there are several causes.

mod baggage;
mod carrier;

use std::{collections::BTreeMap, ops::Bound};

use crate::{Refusal, RemoteContext, traceparent, tracestate};

/// KEP-5915's key, which is written as well: <https://github.com/kubernetes/enhancements/pull/5916>.
pub const TRACEPARENT_KEY: &str = "tracing.k8s.io/traceparent";
/// The companion of [`TRACEPARENT_KEY`].
pub const TRACESTATE_KEY: &str = "tracing.k8s.io/tracestate";

/// The default keys, in order of preference.
pub const KEYS: [&str; 7] = [
    TRACEPARENT_KEY,
    // The propagator's own keys: <https://github.com/kubernetes/kubernetes/pull/124133>
    TRACEPARENT,
    "tekton.dev/traceparent",
    // <https://github.com/tektoncd/pipeline/blob/v1.6.0/pkg/reconciler/taskrun/tracing.go>
    "tekton.dev/taskrunSpanContext",
    "tekton.dev/pipelinerunSpanContext",
    // KEP #650 and those who built it.
    "trace.kubernetes.io/context",
    INITIAL,
];
/// What names a trace, or a request, and no span: <https://github.com/zhijianli88/mutating-trace-admission-controller>
const INITIAL: &str = "trace.kubernetes.io/initial";
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
const BAGGAGE: &str = "baggage";

/// Most contexts of one object. OpenTelemetry's own limit is 128 links per span.
pub const MAX_CAUSES: usize = 8;
/// Most keys, and most members of baggage, that can be selected.
const MAX_ASKED: usize = 16;
/// Most bytes of a key: the longest domain, a slash and the longest name. Also the limit of members of baggage.
const MAX_KEY_BYTES: usize = 253 + 1 + 63;

/// Which annotations are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carriers {
    keys: Vec<String>,
    baggage: Vec<String>,
}

/// A context, and the annotation that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The context.
    pub context: RemoteContext,
    key: u8,
    number: Option<u8>,
}

/// The content of an object's annotations. Thousands are kept, so the lists have no spare room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Contexts by preference; no two of the same span.
    pub causes: Box<[Cause]>,
    /// Selected members of baggage: their positions in the list, and their values.
    pub baggage: Box<[(u8, String)]>,
    /// The trace or the request that the object began with.
    pub initial: Option<Box<str>>,
}

/// A refused annotation.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Why.
    pub reason: Refusal,
}

/// Most characters of a refused value that are kept.
const SHOWN: usize = 64;

impl Default for Carriers {
    fn default() -> Self {
        Self { keys: KEYS.map(str::to_owned).into(), baggage: Vec::new() }
    }
}

impl Carriers {
    /// Reads these keys, in order of preference, and these members of baggage.
    ///
    /// # Errors
    ///
    /// When there are too many keys, or one is not valid.
    pub fn new(keys: Vec<String>, baggage: Vec<String>) -> Result<Self, String> {
        for list in [&keys, &baggage] {
            let invalid = |key: &&String| {
                key.is_empty()
                    || key.len() > MAX_KEY_BYTES
                    || !key.bytes().all(|byte| byte.is_ascii_graphic())
            };
            if let Some(key) = list.iter().find(invalid) {
                return Err(format!("`{key}` is not a key; give one such as {}", KEYS[0]));
            }
            if list.len() > MAX_ASKED {
                return Err(format!("{} keys are too many; give {MAX_ASKED} at most", list.len()));
            }
        }
        Ok(Self { keys, baggage })
    }

    /// The selected members of baggage.
    #[must_use]
    pub fn baggage(&self) -> &[String] {
        &self.baggage
    }

    /// Reads an object's annotations. Returns what is valid, and the refusals.
    pub fn recover(&self, annotations: &BTreeMap<String, String>) -> (Recovered, Vec<Refused>) {
        let (causes, baggage, initial, refused) = Default::default();
        let mut reader = Reader { carriers: self, annotations, causes, baggage, initial, refused };
        for (index, key) in self.keys.iter().enumerate() {
            reader.key(index as u8, key);
        }
        let Reader { carriers: _, annotations: _, causes, baggage, initial, refused } = reader;
        (Recovered { causes: causes.into(), baggage: baggage.into(), initial }, refused)
    }

    /// The key of the annotation that carries a cause.
    #[must_use]
    pub fn key(&self, cause: &Cause) -> String {
        let key = &self.keys[usize::from(cause.key)];
        cause.number.map_or_else(|| key.clone(), |number| format!("{key}.{number}"))
    }
}

struct Reader<'a> {
    carriers: &'a Carriers,
    annotations: &'a BTreeMap<String, String>,
    causes: Vec<Cause>,
    baggage: Vec<(u8, String)>,
    initial: Option<Box<str>>,
    refused: Vec<Refused>,
}

impl Reader<'_> {
    fn key(&mut self, index: u8, key: &str) {
        let value = self.annotations.get(key);
        if key == INITIAL {
            let initial = value.and_then(|value| self.accept(key, value, carrier::initial(value)));
            self.initial = self.initial.take().or(initial.map(String::into));
            return;
        }
        let Some(stem) = key.strip_suffix(TRACEPARENT) else {
            if let Some(carried) = value.and_then(|value| self.accept(key, value, carrier::read(value))) {
                let carrier::Carried { context, state, baggage } = carried;
                self.cause(index, None, context, (key, &state), (key, &baggage));
            }
            return;
        };
        // Its numbered ones follow in the order of keys. Most Pods have none, and to make their names would take most of the time.
        let mut from_here = self.annotations.range::<str, _>((Bound::Included(key), Bound::Unbounded));
        if !from_here.next().is_some_and(|(found, _)| found.starts_with(key)) {
            return;
        }
        let numbered = (0..=MAX_CAUSES as u8).map(Some);
        for number in [None].into_iter().chain(numbered) {
            let numbered = |name: &str| match number {
                Some(number) => format!("{stem}{name}.{number}"),
                None => format!("{stem}{name}"),
            };
            let key = numbered(TRACEPARENT);
            let Some(value) = self.annotations.get(&key) else { continue };
            let Some(context) = self.accept(&key, value, traceparent(value)) else { continue };
            let [state, baggage] = [TRACESTATE, BAGGAGE].map(numbered);
            let text = |key: &str| self.annotations.get(key).map_or("", String::as_str);
            let (state, baggage) = ((&*state, text(&state)), (&*baggage, text(&baggage)));
            self.cause(index, number, context, state, baggage);
        }
    }

    fn cause(
        &mut self,
        key: u8,
        number: Option<u8>,
        mut context: RemoteContext,
        (state_key, state): (&str, &str),
        (baggage_key, baggage): (&str, &str),
    ) {
        if !self.carriers.baggage.is_empty() {
            for (index, value) in baggage::members(baggage, &self.carriers.baggage) {
                let known = self.baggage.iter().any(|(known, _)| *known == index);
                if let Some(value) = self.accept(baggage_key, baggage, value).filter(|_| !known) {
                    self.baggage.push((index, value));
                }
            }
        }
        let same = |known: &Cause| {
            (known.context.trace_id, known.context.span_id) == (context.trace_id, context.span_id)
        };
        if self.causes.iter().any(same) {
            return;
        }
        // A context is valid without `tracestate`.
        context.trace_state = self.accept(state_key, state, tracestate(state)).unwrap_or_default();
        if self.causes.len() == MAX_CAUSES {
            let key = self.carriers.key(&Cause { context, key, number });
            self.refuse(&key, "", Refusal::TooMany);
        } else {
            self.causes.push(Cause { context, key, number });
        }
    }

    fn accept<T>(&mut self, key: &str, value: &str, read: Result<T, Refusal>) -> Option<T> {
        read.map_err(|reason| self.refuse(key, value, reason)).ok()
    }

    fn refuse(&mut self, key: &str, value: &str, reason: Refusal) {
        let value = value.chars().take(SHOWN).collect();
        self.refused.push(Refused { key: key.to_owned(), value, reason });
    }
}

#[cfg(test)]
mod tests;
