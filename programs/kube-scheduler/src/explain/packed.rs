//! The parts of an attempt's trace from which its [`Account`] is made, as bytes. They take a fraction of the memory of the spans. To make
//! them takes a fraction of the time of an account, and few accounts are ever asked for.

use smallvec::SmallVec;
use spans::{
    AttributeValue, Attributes, Source, Span, SpanKind, Status, Trace, TraceKind, attributes, names::PLUGIN,
    text::Name,
};

use super::{Account, is_phase};

/// The attributes of a root that an account reads, besides the Pod's namespace and name. Those of successful attempts come first.
const OF_ROOTS: [&str; 25] = [
    attributes::POD_UID,
    attributes::PROFILE,
    attributes::RESULT,
    attributes::SELECTED_NODE,
    attributes::ATTEMPT,
    attributes::EVALUATED_NODES,
    attributes::FEASIBLE_NODES,
    attributes::CANDIDATES,
    attributes::CANDIDATE_TIES,
    attributes::QUEUE_WAIT_MS,
    attributes::QUEUE_TOTAL_WAIT_MS,
    attributes::QUEUE_MOVES,
    attributes::POD_TERMS,
    attributes::RESTRICTED_TO_NODES,
    attributes::REJECTIONS,
    attributes::REJECTED_OTHERS,
    attributes::QUEUE_BACKOFF_MS,
    attributes::QUEUE_UNSCHEDULABLE_MS,
    attributes::QUEUE_MOVES_LEFT_OUT,
    attributes::GATED_MS,
    attributes::GATED_BY,
    attributes::PREEMPTION_NODE,
    attributes::PREEMPTION_VICTIMS,
    attributes::PREEMPTION_VICTIM_NAMES,
    attributes::INCOMPLETE,
];
/// The attributes of a plugin's span that an account reads.
const OF_PLUGINS: [&str; 8] = [
    attributes::RESULT,
    attributes::MESSAGE,
    attributes::SHARE,
    attributes::SHARE_SAMPLES,
    attributes::SHARE_SAMPLES_OF_PHASE,
    attributes::SHARE_BASIS,
    attributes::CALLS,
    attributes::REJECTED_NODES,
];
/// Phases of a usual attempt.
const USUAL_PHASES: usize = 24;

/// What stands before each span.
const PHASE: u8 = 0;
const CALL: u8 = 1;
const SHARE: u8 = 2;

/// What stands before each value.
const STRING: u8 = 0;
const INT: u8 = 1;
const DOUBLE: u8 = 2;
const FALSE: u8 = 3;
const TRUE: u8 = 4;
const STRINGS: u8 = 5;
/// Stands for the key behind the last attribute of a span.
const NO_KEY: u8 = u8::MAX;
/// Different texts of an attempt that are written once. Plugins and their results come again and again.
const MAX_SEEN: usize = 48;

/// The parts of an attempt's trace from which its account is made.
#[derive(Debug)]
pub(crate) struct Packed(Box<[u8]>);

impl Packed {
    /// Packs the trace of an attempt. `buffer` is cleared; it is there to be reused.
    pub(crate) fn of(trace: &Trace, buffer: &mut Vec<u8>) -> Self {
        buffer.clear();
        let mut out = Writer { out: buffer, seen: SmallVec::new() };
        let root = trace.root();
        for key in [attributes::POD_NAMESPACE, attributes::POD_NAME] {
            let name = if let Some(AttributeValue::String(name)) = root.attribute(key) { name } else { "" };
            out.text(name);
        }
        out.number(root.start_unix_ns);
        out.number(root.duration_ns());
        out.bytes(&trace.trace_id);
        match &root.status {
            Status::Unset => out.byte(0),
            Status::Error(message) => {
                out.byte(1);
                out.text(message);
            }
        }
        out.attributes(&root.attributes, &OF_ROOTS);
        let mut phases = SmallVec::<[[u8; 8]; USUAL_PHASES]>::new();
        for span in trace.spans.iter().skip(1) {
            let is_share = span.kind == SpanKind::Share;
            let times = [span.start_unix_ns.saturating_sub(root.start_unix_ns), span.duration_ns()];
            if is_share || span.kind == SpanKind::Plugin {
                let of = phases.iter().rposition(|phase| Some(*phase) == span.parent_id);
                // That of a phase which is not shown is not told.
                let Some(of) = of else { continue };
                out.byte(if is_share { SHARE } else { CALL });
                times.into_iter().chain([of as u64]).for_each(|number| out.number(number));
                out.name(span.name.after(PLUGIN).unwrap_or_default());
                out.attributes(&span.attributes, &OF_PLUGINS);
            } else if is_phase(span.kind) {
                out.byte(PHASE);
                times.into_iter().for_each(|number| out.number(number));
                out.text(&span.name.as_str());
                phases.push(span.span_id);
            }
        }
        Self(out.out.as_slice().into())
    }

    /// Its account. Names of Nodes are not in it.
    pub(crate) fn account(&self) -> Account {
        // What was packed can be read.
        Reader::new(&self.0).trace().as_ref().map(Account::of).unwrap_or_default()
    }

    /// The Pod's namespace and name.
    pub(crate) fn pod(&self) -> (&str, &str) {
        let mut from = Reader::new(&self.0);
        (from.text().unwrap_or_default(), from.text().unwrap_or_default())
    }

    /// Bytes on the heap.
    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Texts that are written already.
    seen: SmallVec<[&'a str; MAX_SEEN]>,
}

impl<'a> Writer<'a> {
    fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Seven bits a byte, the lowest first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    /// A text that may come again: twice its place among those that were seen, or twice its length and one.
    fn name(&mut self, text: &'a str) {
        if let Some(place) = self.seen.iter().position(|seen| *seen == text) {
            return self.number(2 * place as u64);
        }
        self.number(2 * text.len() as u64 + 1);
        self.bytes(text.as_bytes());
        if self.seen.len() < MAX_SEEN {
            self.seen.push(text);
        }
    }

    /// Those with these keys.
    fn attributes(&mut self, all: &'a Attributes, keys: &[&str]) {
        for (key, value) in all {
            let Some(place) = keys.iter().position(|known| known == key) else { continue };
            self.byte(place as u8);
            match value {
                AttributeValue::String(text) => {
                    self.byte(STRING);
                    self.name(text);
                }
                AttributeValue::Int(number) => {
                    self.byte(INT);
                    self.number(number.cast_unsigned());
                }
                AttributeValue::Double(number) => {
                    self.byte(DOUBLE);
                    self.bytes(&number.to_le_bytes());
                }
                AttributeValue::Bool(is) => self.byte(if *is { TRUE } else { FALSE }),
                AttributeValue::Strings(texts) => {
                    self.byte(STRINGS);
                    self.number(texts.len() as u64);
                    texts.iter().for_each(|text| self.text(text));
                }
            }
        }
        self.byte(NO_KEY);
    }
}

/// Reads what a [`Writer`] wrote; `None` if that is something else.
struct Reader<'a> {
    bytes: &'a [u8],
    seen: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, seen: Vec::new() }
    }

    fn trace(&mut self) -> Option<Trace> {
        let pod = [attributes::POD_NAMESPACE, attributes::POD_NAME];
        let pod = pod.map(|key| Some((key, AttributeValue::from(self.text()?))));
        let (begin, duration_ns) = (self.number()?, self.number()?);
        let trace_id = *self.array()?;
        let status = if self.byte()? == 0 { Status::Unset } else { Status::Error(self.text()?.to_owned()) };
        let mut attributes: Attributes = pod.into_iter().collect::<Option<_>>()?;
        attributes.extend(self.attributes(&OF_ROOTS)?);
        let kind = TraceKind::Attempt;
        let span = |kind, number: usize, name: Name, [after_ns, duration_ns]: [u64; 2]| {
            let start_unix_ns = begin.saturating_add(after_ns);
            Span {
                kind,
                span_id: number.to_be_bytes(),
                parent_id: None,
                name,
                start_unix_ns,
                end_unix_ns: start_unix_ns.saturating_add(duration_ns),
                attributes: Attributes::new(),
                events: Vec::new(),
                links: Vec::new(),
                status: Status::Unset,
            }
        };
        let root = span(SpanKind::Root(kind), 0, kind.name().into(), [0, duration_ns]);
        let mut spans = vec![Span { attributes, status, ..root }];
        let mut phases = Vec::new();
        while !self.bytes.is_empty() {
            let (what, times) = (self.byte()?, [self.number()?, self.number()?]);
            let number = spans.len();
            let next = if what == PHASE {
                phases.push(number);
                // What kind of phase it is does not matter to an account.
                span(SpanKind::Other, number, self.text()?.to_owned().into(), times)
            } else {
                let of = *phases.get(usize::try_from(self.number()?).ok()?)?;
                let kind = if what == SHARE { SpanKind::Share } else { SpanKind::Plugin };
                let plugin = span(kind, number, Name::new(PLUGIN, self.name()?.to_owned()), times);
                let attributes = self.attributes(&OF_PLUGINS)?;
                Span { parent_id: Some(of.to_be_bytes()), attributes, ..plugin }
            };
            spans.push(next);
        }
        let source = Source::Schedspan;
        let (parent, selected, names, beside) = (None, None, None, Vec::new());
        Some(Trace { kind, source, trace_id, parent, selected, spans, names, beside })
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]: &[u8; 1]| *byte)
    }

    fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (array, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(array)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        self.text_of(length)
    }

    fn text_of(&mut self, length: u64) -> Option<&'a str> {
        let (text, rest) = self.bytes.split_at_checked(length.try_into().ok()?)?;
        self.bytes = rest;
        str::from_utf8(text).ok()
    }

    fn name(&mut self) -> Option<&'a str> {
        let number = self.number()?;
        if number % 2 == 0 {
            return self.seen.get(usize::try_from(number / 2).ok()?).copied();
        }
        let text = self.text_of(number / 2)?;
        if self.seen.len() < MAX_SEEN {
            self.seen.push(text);
        }
        Some(text)
    }

    fn attributes(&mut self, keys: &[&'static str]) -> Option<Attributes> {
        let mut all = Attributes::new();
        loop {
            let place = self.byte()?;
            if place == NO_KEY {
                return Some(all);
            }
            let value = match self.byte()? {
                STRING => self.name()?.into(),
                INT => AttributeValue::Int(self.number()?.cast_signed()),
                DOUBLE => AttributeValue::Double(f64::from_le_bytes(*self.array()?)),
                FALSE => AttributeValue::Bool(false),
                TRUE => AttributeValue::Bool(true),
                STRINGS => {
                    let count = self.number()?;
                    let texts = (0..count).map(|_| self.text().map(str::to_owned));
                    AttributeValue::Strings(texts.collect::<Option<_>>()?)
                }
                _ => return None,
            };
            all.push((keys.get(usize::from(place))?, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};
    use spans::fixtures::{scheduled, unschedulable, with_plugins};

    use super::*;

    fn tells_the_same(trace: &Trace) -> Packed {
        let packed = Packed::of(trace, &mut vec![7; 3]);
        assert_eq!(packed.account(), Account { rejected_nodes: None, ..Account::of(trace) });
        packed
    }

    #[test]
    fn what_is_packed_tells_the_same() {
        for trace in [scheduled(), unschedulable(), with_plugins(40), with_plugins(2 * MAX_SEEN)] {
            let packed = tells_the_same(&trace);
            let account = Account::of(&trace);
            assert_eq!(packed.pod(), (account.namespace.as_str(), account.pod.as_str()));
            let bytes = packed.bytes();
            assert!(bytes < 24 * trace.spans.len() + 200, "{bytes} bytes of {} spans", trace.spans.len());
        }
    }

    #[test]
    fn a_text_that_comes_again_takes_a_byte() {
        let mut trace = with_plugins(2);
        let bytes = |trace: &Trace| tells_the_same(trace).bytes();
        let [first, second] = [1, 2].map(|from_last| trace.spans[trace.spans.len() - from_last].name.clone());
        assert_ne!(first, second);
        let different = bytes(&trace);
        trace.spans.last_mut().unwrap().name = second.clone();
        let length = first.after(PLUGIN).unwrap().len();
        assert_eq!(bytes(&trace), different - length);
    }

    #[test]
    fn what_is_cut_anywhere_is_read_without_a_panic() {
        let Packed(bytes) = Packed::of(&with_plugins(2), &mut Vec::new());
        for end in 0..bytes.len() {
            let cut = Packed(bytes[..end].into());
            let (_, _) = (cut.account(), cut.pod());
        }
    }

    fn value() -> impl Strategy<Value = AttributeValue> {
        prop_oneof![
            ".{0,200}".prop_map(|text| AttributeValue::from(text.as_str())),
            any::<i64>().prop_map(AttributeValue::Int),
            prop::num::f64::NORMAL.prop_map(AttributeValue::Double),
            any::<bool>().prop_map(AttributeValue::Bool),
            vec("[a-z]{0,9}(: [a-z]{0,9})?", 0..4).prop_map(AttributeValue::Strings),
        ]
    }

    proptest! {
        /// Whatever a traced process says, and whatever keys the spans have.
        #[test]
        fn any_trace_tells_the_same(
            of_root in vec((0..attributes::ALL.len(), value()), 0..40),
            of_plugins in vec(vec((0..attributes::ALL.len(), value()), 0..6), 3),
            times in vec((0..1_u64 << 62, 0..1_u64 << 62), 20),
            message in option::of(".{0,99}"),
        ) {
            let mut trace = with_plugins(of_plugins.len());
            let keyed = |all: Vec<(usize, AttributeValue)>| -> Attributes {
                all.into_iter().map(|(place, value)| (attributes::ALL[place].key, value)).collect()
            };
            for (span, (start, end)) in trace.spans.iter_mut().zip(times) {
                (span.start_unix_ns, span.end_unix_ns) = (start.min(end), start.max(end));
            }
            let first = trace.spans.len() - of_plugins.len();
            for ((place, span), attributes) in trace.spans[first..].iter_mut().enumerate().zip(of_plugins) {
                span.attributes = keyed(attributes);
                span.kind = if place == 0 { SpanKind::Share } else { SpanKind::Plugin };
            }
            let root = &mut trace.spans[0];
            root.attributes.extend(keyed(of_root));
            root.status = message.map_or(Status::Unset, Status::Error);
            tells_the_same(&trace);
        }
    }
}
