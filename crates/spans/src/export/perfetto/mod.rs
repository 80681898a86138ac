//! Traces as a file of Perfetto, in its native format: <https://perfetto.dev/docs/reference/synthetic-track-event>.
//!
//! Each scheduler is a process. Its loop, which schedules one Pod at a time, is one track; a binding cycle outlasts its turn in the loop, so
//! it has a track of its own, and Perfetto shows tracks of one name as one. Flows lead from the loop to the binding cycle, and from one
//! attempt of a Pod to the next. Stays in queues become counters: how many Pods are there, of those whose attempts are traced.

pub mod schema;

use std::collections::{BTreeMap, HashMap, HashSet};

use opentelemetry_proto::tonic::{common::v1::any_value::Value, trace::v1::ResourceSpans};
use prost::Message as _;

use self::schema::{
    Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, ProcessDescriptor, TracePacket,
    TrackDescriptor, TrackEvent, Type,
};
use crate::{
    AttributeValue, Cycle, Link, Relation, Source, Span, SpanKind, Status, Trace, TraceKind, attributes,
    identity, names, text::hex,
};

/// Perfetto's clock of a trace, and the one that is shown as the time of day. Both have the same time in our files, which is why the
/// times of spans need no conversion: <https://perfetto.dev/docs/concepts/clock-sync>.
const BOOTTIME: u32 = 6;
const REALTIME: u32 = 1;
/// All packets are of one sequence.
const SEQUENCE: u32 = 1;
/// Processes whose tracks are known to be described. With more, they are described again, which does no harm.
const MAX_DESCRIBED: usize = 4096;
/// Entries into queues and exits that are kept for the counters, 16 bytes each.
const MAX_STEPS: usize = 1 << 20;

/// Name of the loop's track.
const LOOP: &str = "scheduling loop";

/// Makes packets of traces, one after the other.
#[derive(Debug, Default)]
pub struct Perfetto {
    began: bool,
    described: HashSet<Source>,
    queues: BTreeMap<(Source, String), Vec<Step>>,
    steps: usize,
}

/// A Pod enters a queue (1) or leaves it (-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    unix_ns: u64,
    by: i64,
}

/// The spans of a trace that have packets, and where.
struct Tracks<'a> {
    children: HashMap<[u8; 8], Vec<&'a Span>>,
    process: u64,
    packets: Vec<TracePacket>,
}

/// A track, and until when it is taken.
struct Track {
    uuid: u64,
    busy_until: u64,
    end: u64,
}

impl Perfetto {
    /// The packets of a trace; `resource` is [`Resource::encode`](super::Resource::encode)'s.
    #[must_use]
    pub fn trace(&mut self, trace: &Trace, resource: &[u8]) -> Vec<u8> {
        bytes(self.packets(trace, resource))
    }

    /// [`Self::trace`] before it is bytes.
    pub(super) fn packets(&mut self, trace: &Trace, resource: &[u8]) -> Vec<TracePacket> {
        let process = process_track(trace.source);
        let mut packets = Vec::new();
        if !self.began {
            self.began = true;
            packets.push(clocks(trace.root().start_unix_ns));
        }
        if self.described.len() >= MAX_DESCRIBED {
            self.described.clear();
        }
        if self.described.insert(trace.source) {
            packets.extend(process_packets(trace.source, resource));
        }
        let mut tracks = Tracks { children: HashMap::new(), process, packets };
        let mut tops = Vec::new();
        for span in &trace.spans {
            match (span.kind, span.parent_id) {
                (SpanKind::QueueStay, _) => self.stay(trace.source, span),
                (_, Some(parent)) => tracks.children.entry(parent).or_default().push(span),
                (_, None) => tops.push(span),
            }
        }
        for span in tops {
            let is_whole = span.attribute(attributes::INCOMPLETE).is_none();
            let on_loop = matches!(
                span.kind,
                SpanKind::Root(TraceKind::Attempt | TraceKind::GroupAttempt) if is_whole
            );
            let mut track = Track { uuid: loop_track(trace.source), busy_until: 0, end: u64::MAX };
            if !on_loop {
                track.uuid = tracks.describe(span);
            }
            tracks.put(span, &mut track);
        }
        tracks.packets
    }

    /// The packets after the last trace: the counters, which need all traces.
    #[must_use]
    pub fn end(&mut self) -> Vec<u8> {
        bytes(self.rest())
    }

    /// [`Self::end`] before it is bytes.
    pub(super) fn rest(&mut self) -> Vec<TracePacket> {
        let mut packets = Vec::new();
        for ((source, queue), mut steps) in std::mem::take(&mut self.queues) {
            let uuid = track(&format!("{source:?} queue {queue}"));
            packets.push(described(TrackDescriptor {
                uuid: Some(uuid),
                name: Some(format!("Pods in the {queue} queue")),
                parent_uuid: Some(process_track(source)),
                counter: Some(CounterDescriptor { unit_name: Some("Pods".into()) }),
                process: None,
            }));
            // Of one time, exits come first.
            steps.sort_unstable();
            let mut pods = 0;
            for of_one_time in steps.chunk_by(|one, next| one.unix_ns == next.unix_ns) {
                pods += of_one_time.iter().map(|step| step.by).sum::<i64>();
                let event = TrackEvent {
                    r#type: Some(Type::Counter.into()),
                    track_uuid: Some(uuid),
                    counter_value: Some(pods),
                    ..TrackEvent::default()
                };
                packets.push(at(of_one_time[0].unix_ns, event));
            }
        }
        self.steps = 0;
        packets
    }

    /// Whether a track is of one span, and those below it: not of a process, nor of its loop.
    pub(super) fn is_of_one_span(track: &TrackDescriptor) -> bool {
        track.name() != LOOP
    }

    /// Counts a stay in a queue, as long as there is room.
    fn stay(&mut self, source: Source, span: &Span) {
        if self.steps + 2 > MAX_STEPS {
            return;
        }
        self.steps += 2;
        let name = span.name.as_str();
        let queue = span.name.after(names::QUEUE).unwrap_or(&name);
        self.queues.entry((source, queue.to_owned())).or_default().extend([
            Step { unix_ns: span.start_unix_ns, by: 1 },
            Step { unix_ns: span.end_unix_ns, by: -1 },
        ]);
    }
}

impl Tracks<'_> {
    /// When a span's turn ends, and when the binding cycle begins, if it has one. An attempt's turn in the loop ends with its scheduling
    /// cycle, and that of a group with those of its Pods.
    fn turn(&self, span: &Span) -> (u64, Option<u64>) {
        let children = self.children.get(&span.span_id).map(Vec::as_slice).unwrap_or_default();
        let binds = |child: &&&Span| child.kind == SpanKind::Cycle(Cycle::Binding);
        let binding = children.iter().find(binds).map(|binding| binding.start_unix_ns);
        let before = children.iter().filter(|child| binding.is_none_or(|start| child.start_unix_ns < start));
        let mut ends = binding.is_some();
        let mut end = span.start_unix_ns;
        for child in before {
            let is_root = matches!(child.kind, SpanKind::Root(_));
            let own = if is_root { self.turn(child).0 } else { child.end_unix_ns };
            ends |= own < child.end_unix_ns;
            end = end.max(own);
        }
        (if ends { end.min(span.end_unix_ns) } else { span.end_unix_ns }, binding)
    }

    /// Writes a span and those below it.
    fn put(&mut self, span: &Span, track: &mut Track) {
        let (own, binding) = self.turn(span);
        let end = own.min(track.end);
        let children = self.children.remove(&span.span_id).unwrap_or_default();
        track.busy_until = end;
        self.packets.push(at(span.start_unix_ns, begin(span, track.uuid)));
        for event in &span.events {
            let instant = TrackEvent {
                r#type: Some(Type::Instant.into()),
                track_uuid: Some(track.uuid),
                name: Some(event.name.to_owned()),
                debug_annotations: annotations(&event.attributes),
                ..TrackEvent::default()
            };
            // Not after the end of its slice.
            self.packets.push(at(event.unix_ns.clamp(span.start_unix_ns, end), instant));
        }
        let mut below = Track { uuid: track.uuid, busy_until: span.start_unix_ns, end };
        let mut elsewhere = Vec::new();
        for child in children {
            let is_bound_later = binding.is_some_and(|start| child.start_unix_ns >= start);
            let fits = child.start_unix_ns >= below.busy_until && self.turn(child).0 <= end;
            if fits && !is_bound_later {
                self.put(child, &mut below);
            } else {
                elsewhere.push(child);
            }
        }
        self.packets.push(at(
            end,
            TrackEvent {
                r#type: Some(Type::SliceEnd.into()),
                track_uuid: Some(track.uuid),
                ..TrackEvent::default()
            },
        ));
        // The binding cycle, and what follows it; others that are at the same time as one of their siblings.
        let mut own: Option<Track> = None;
        for child in elsewhere {
            match &mut own {
                Some(track) if track.busy_until <= child.start_unix_ns => self.put(child, track),
                Some(_) | None => {
                    let uuid = self.describe(child);
                    let mut track = Track { uuid, busy_until: 0, end: u64::MAX };
                    self.put(child, &mut track);
                    own = Some(track);
                }
            }
        }
    }

    /// A track of a span's own, in the process.
    fn describe(&mut self, span: &Span) -> u64 {
        let uuid = u64::from_be_bytes(span.span_id);
        self.packets.push(described(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(track_name(span.kind).to_owned()),
            parent_uuid: Some(self.process),
            process: None,
            counter: None,
        }));
        uuid
    }
}

/// What tracks of spans that do not fit on their parent's are called.
fn track_name(kind: SpanKind) -> &'static str {
    match kind {
        SpanKind::Root(TraceKind::Attempt | TraceKind::GroupAttempt) => "attempts",
        SpanKind::Root(TraceKind::Configuration) => "configurations",
        SpanKind::Root(TraceKind::Lifecycle) | SpanKind::Stage(_) => "Pod lifecycles",
        SpanKind::Root(TraceKind::PodStart) | SpanKind::Node(_) => "starts of Pods",
        SpanKind::Root(TraceKind::PodStorage) | SpanKind::Api(_) => "stored Pods",
        SpanKind::Root(TraceKind::PodCreation) => "creations of Pods",
        SpanKind::Root(TraceKind::PodDeletion | TraceKind::PodEviction) => "deletions of Pods",
        SpanKind::Root(TraceKind::Reconcile) => "reconciles",
        SpanKind::Root(TraceKind::Command) => "commands",
        SpanKind::Cycle(Cycle::Binding) => "binding cycles",
        SpanKind::Cycle(Cycle::Scheduling) => "scheduling cycles",
        SpanKind::ApiCall => "API calls",
        SpanKind::Request => "requests",
        SpanKind::Victim => "preemptions",
        SpanKind::QueueStay => "queues",
        SpanKind::Share => "shares of plugins",
        SpanKind::Phase(_)
        | SpanKind::Plugin
        | SpanKind::Extender
        | SpanKind::Placement
        | SpanKind::Trial
        | SpanKind::Other => "parallel calls",
    }
}

fn begin(span: &Span, track: u64) -> TrackEvent {
    let pod = [attributes::POD_NAMESPACE, attributes::POD_NAME, attributes::POD_GROUP]
        .map(|key| span.attribute(key).map(ToString::to_string));
    let name = match pod {
        // Roots alone name the namespace.
        [Some(namespace), Some(name), _] | [Some(namespace), None, Some(name)] => {
            format!("{} {namespace}/{name}", span.name)
        }
        [Some(_), None, None] | [None, ..] => span.name.to_string(),
    };
    let mut notes = annotations(&span.attributes);
    if let Status::Error(message) = &span.status {
        notes.push(annotation("error", &AttributeValue::from(message.as_str())));
    }
    let mut flows = Vec::new();
    match span.kind {
        SpanKind::Root(_) => flows.push(u64::from_be_bytes(span.span_id)),
        SpanKind::Cycle(Cycle::Binding) => flows.extend(span.parent_id.map(u64::from_be_bytes)),
        SpanKind::Cycle(Cycle::Scheduling)
        | SpanKind::Phase(_)
        | SpanKind::Plugin
        | SpanKind::Share
        | SpanKind::Extender
        | SpanKind::ApiCall
        | SpanKind::Victim
        | SpanKind::Placement
        | SpanKind::Trial
        | SpanKind::QueueStay
        | SpanKind::Stage(_)
        | SpanKind::Node(_)
        | SpanKind::Api(_)
        | SpanKind::Request
        | SpanKind::Other => {}
    }
    for Link { context, relation } in &span.links {
        match relation {
            Relation::PreviousAttempt
            | Relation::Attempt
            | Relation::Configuration
            | Relation::Pod(_)
            | Relation::Creator(_)
            | Relation::Writer(_) => {
                flows.push(u64::from_be_bytes(context.span_id));
            }
            // That one has the arrow.
            Relation::Request(_) => {}
            Relation::Cause { annotation: _, owner: _ } => {
                let of = format!("{}/{}", hex(&context.trace_id), hex(&context.span_id));
                notes.push(annotation("created by", &AttributeValue::from(of.as_str())));
            }
        }
    }
    TrackEvent {
        r#type: Some(Type::SliceBegin.into()),
        track_uuid: Some(track),
        name: Some(name),
        debug_annotations: notes,
        flow_ids: flows,
        counter_value: None,
    }
}

fn annotations(list: &[(&'static str, AttributeValue)]) -> Vec<DebugAnnotation> {
    list.iter().map(|(key, value)| annotation(key, value)).collect()
}

fn annotation(key: &str, value: &AttributeValue) -> DebugAnnotation {
    let mut note = DebugAnnotation { name: Some(key.to_owned()), ..DebugAnnotation::default() };
    let text =
        |text: &str| DebugAnnotation { string_value: Some(text.to_owned()), ..DebugAnnotation::default() };
    match value {
        AttributeValue::String(value) => note.string_value = Some(value.to_string()),
        AttributeValue::Int(value) => note.int_value = Some(*value),
        AttributeValue::Double(value) => note.double_value = Some(*value),
        AttributeValue::Bool(value) => note.bool_value = Some(*value),
        AttributeValue::Strings(values) => {
            note.array_values = values.iter().map(|value| text(value)).collect();
        }
    }
    note
}

/// The process and its loop. The resource has its name and process id.
fn process_packets(source: Source, resource: &[u8]) -> Vec<TracePacket> {
    let resource = ResourceSpans::decode(resource).ok().and_then(|spans| spans.resource).unwrap_or_default();
    let mut values = HashMap::new();
    for attribute in resource.attributes {
        values.extend(attribute.value.and_then(|value| value.value).map(|value| (attribute.key, value)));
    }
    let name = match values.remove("service.name") {
        Some(Value::StringValue(name)) => name,
        Some(_) | None => "schedspan".to_owned(),
    };
    let pid = match values.remove("process.pid") {
        Some(Value::IntValue(pid)) => i32::try_from(pid).ok(),
        Some(_) | None => None,
    };
    let process = described(TrackDescriptor {
        uuid: Some(process_track(source)),
        // Without a process it is a group of tracks.
        name: pid.is_none().then(|| name.clone()),
        process: pid.map(|pid| ProcessDescriptor { pid: Some(pid), process_name: Some(name) }),
        parent_uuid: None,
        counter: None,
    });
    let of_loop = described(TrackDescriptor {
        uuid: Some(loop_track(source)),
        name: Some(LOOP.to_owned()),
        parent_uuid: Some(process_track(source)),
        process: None,
        counter: None,
    });
    vec![process, of_loop]
}

fn process_track(source: Source) -> u64 {
    track(&format!("{source:?}"))
}

fn loop_track(source: Source) -> u64 {
    track(&format!("{source:?} loop"))
}

fn track(of: &str) -> u64 {
    u64::from_be_bytes(identity::span_id(&identity::trace_id(of, 0, 0), 0))
}

/// Says that the clock of the trace is the time of day.
fn clocks(unix_ns: u64) -> TracePacket {
    let clock = |id| Clock { clock_id: Some(id), timestamp: Some(unix_ns) };
    let snapshot = ClockSnapshot { clocks: vec![clock(REALTIME), clock(BOOTTIME)] };
    TracePacket { clock_snapshot: Some(snapshot), ..packet() }
}

fn described(track: TrackDescriptor) -> TracePacket {
    TracePacket { track_descriptor: Some(track), ..packet() }
}

fn at(unix_ns: u64, event: TrackEvent) -> TracePacket {
    TracePacket { timestamp: Some(unix_ns), track_event: Some(event), ..packet() }
}

fn packet() -> TracePacket {
    TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..TracePacket::default() }
}

fn bytes(packets: Vec<TracePacket>) -> Vec<u8> {
    schema::Trace { packet: packets }.encode_to_vec()
}

#[cfg(test)]
mod tests;
