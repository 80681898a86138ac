//! Traces in the Trace Event Format, which `chrome://tracing`, Perfetto and other viewers open:
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>. A file is an array of events, whose end may be missing.
//!
//! What is where is decided for [`Perfetto`]: each of its packets becomes events. The format has threads instead of tracks, and in a thread
//! no two slices overlap, so tracks of one name share as many threads as are needed.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::perfetto::{
    Perfetto,
    schema::{DebugAnnotation, TracePacket, TrackDescriptor, TrackEvent, Type},
};
use crate::{Trace, screen::printable_json};

/// Beginnings of arrows that are known, and threads of one name. With more, the arrows of earlier slices are missing.
const MAX_KNOWN: usize = 50_000;
const DAY_NS: u64 = 86_400_000_000_000;

/// Makes events of traces, one after the other.
#[derive(Debug, Default)]
pub(super) struct Chrome {
    perfetto: Perfetto,
    /// Times are counted from here, in nanoseconds since the Unix epoch. A time is a number of microseconds, which has no room for those since then
    /// and for nanoseconds.
    origin_ns: Option<u64>,
    began: bool,
    /// Processes by their track.
    processes: HashMap<u64, u64>,
    /// When the last slice of each thread ends: by process and name.
    threads: HashMap<(u64, String), Vec<(u64, u64)>>,
    last_thread: u64,
    /// Tracks that stay: the loops.
    tracks: HashMap<u64, Place>,
    /// Where arrows begin.
    sources: HashMap<u64, (Place, u64)>,
    arrows: u64,
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    process: u64,
    thread: u64,
}

impl Chrome {
    /// The events of a trace; `resource` is [`Resource::encode`](super::Resource::encode)'s.
    #[must_use]
    pub(super) fn trace(&mut self, trace: &Trace, resource: &[u8]) -> String {
        let start_ns = trace.root().start_unix_ns;
        // Stays in queues and other traces begin earlier.
        self.origin_ns.get_or_insert((start_ns / DAY_NS).saturating_sub(1) * DAY_NS);
        let packets = self.perfetto.packets(trace, resource);
        self.events(&packets)
    }

    /// The events after the last trace.
    #[must_use]
    pub(super) fn end(&mut self) -> String {
        let packets = self.perfetto.rest();
        let events = self.events(&packets);
        if self.began { events + "\n]\n" } else { "[]\n".to_owned() }
    }

    fn events(&mut self, packets: &[TracePacket]) -> String {
        if self.sources.len() > MAX_KNOWN {
            self.sources.clear();
        }
        let mut events = Vec::new();
        let mut times: HashMap<u64, (u64, u64)> = HashMap::new();
        for packet in packets {
            if let (Some(time), Some(event)) = (packet.timestamp, &packet.track_event) {
                let (start, end) = times.entry(event.track_uuid()).or_insert((time, time));
                (*start, *end) = ((*start).min(time), (*end).max(time));
            }
        }
        // Counters, and tracks of one span.
        let (mut counters, mut here) = (HashMap::new(), HashMap::new());
        for packet in packets {
            let (of, event) = (&packet.track_descriptor, &packet.track_event);
            if let Some(track) = of {
                match (track.parent_uuid, &track.counter) {
                    (None, _) => self.process(track, &mut events),
                    (Some(process), Some(_)) => {
                        let process = self.processes.get(&process).copied();
                        counters.insert(track.uuid(), (process, track.name()));
                    }
                    (Some(process), None) => {
                        let process = self.processes.get(&process).copied().unwrap_or_default();
                        let place = match times.get(&track.uuid()) {
                            Some(times) if Perfetto::is_of_one_span(track) => {
                                self.thread(process, track.name(), *times, &mut events)
                            }
                            Some(_) | None => {
                                let place = self.new_thread(process, track.name(), &mut events);
                                self.tracks.insert(track.uuid(), place);
                                place
                            }
                        };
                        here.insert(track.uuid(), place);
                    }
                }
            }
            let (Some(event), Some(time)) = (event, packet.timestamp) else { continue };
            let place =
                here.get(&event.track_uuid()).or_else(|| self.tracks.get(&event.track_uuid())).copied();
            let Some(Place { process, thread }) = place else {
                if let Some((process, name)) = counters.get(&event.track_uuid()) {
                    events.push(
                        json!({ "ph": "C", "name": name, "pid": process, "tid": 0, "ts": self.time(time),
                                        "args": { "Pods": event.counter_value() } }),
                    );
                }
                continue;
            };
            let place = Place { process, thread };
            match event.r#type() {
                Type::SliceBegin => {
                    events.push(self.event("B", place, time, event));
                    for id in &event.flow_ids {
                        self.arrow(*id, place, time, &mut events);
                    }
                }
                Type::SliceEnd => {
                    events.push(json!({ "ph": "E", "pid": process, "tid": thread, "ts": self.time(time) }));
                }
                Type::Instant => {
                    let mut instant = self.event("i", place, time, event);
                    instant["s"] = "t".into();
                    events.push(instant);
                }
                Type::Counter | Type::Unspecified => {}
            }
        }
        let mut text = String::new();
        for event in events {
            text += if self.began { ",\n" } else { "[\n" };
            self.began = true;
            text += &printable_json(&event.to_string());
        }
        text
    }

    /// Microseconds since the origin, with nanoseconds.
    fn time(&self, unix_ns: u64) -> f64 {
        unix_ns.saturating_sub(self.origin_ns.unwrap_or_default()) as f64 / 1e3
    }

    fn event(&self, phase: &str, Place { process, thread }: Place, time: u64, event: &TrackEvent) -> Value {
        let mut arguments = Map::new();
        for note in &event.debug_annotations {
            arguments.insert(note.name().to_owned(), value(note));
        }
        json!({ "ph": phase, "cat": "schedspan", "name": event.name(), "pid": process, "tid": thread, "ts": self.time(time),
                "args": arguments })
    }

    fn process(&mut self, track: &TrackDescriptor, events: &mut Vec<Value>) {
        let number = self.processes.len() as u64 + 1;
        let number = *self.processes.entry(track.uuid()).or_insert(number);
        let name = match &track.process {
            Some(process) => format!("{} (process {})", process.process_name(), process.pid()),
            None => track.name().to_owned(),
        };
        let since = self.origin_ns.unwrap_or_default() / 1_000_000_000;
        for (what, arguments) in [
            ("process_name", json!({ "name": name })),
            ("process_labels", json!({ "labels": format!("times are since Unix second {since}") })),
        ] {
            events.push(json!({ "ph": "M", "name": what, "pid": number, "tid": 0, "args": arguments }));
        }
    }

    /// A thread of this name in which there is nothing at this time.
    fn thread(
        &mut self,
        process: u64,
        name: &str,
        (start, end): (u64, u64),
        events: &mut Vec<Value>,
    ) -> Place {
        let threads = self.threads.entry((process, name.to_owned())).or_default();
        if let Some((thread, busy_until)) = threads.iter_mut().find(|(_, busy_until)| *busy_until <= start) {
            *busy_until = end;
            return Place { process, thread: *thread };
        }
        let place = self.new_thread(process, name, events);
        if let Some(threads) = self.threads.get_mut(&(process, name.to_owned()))
            && threads.len() < MAX_KNOWN
        {
            threads.push((place.thread, end));
        }
        place
    }

    fn new_thread(&mut self, process: u64, name: &str, events: &mut Vec<Value>) -> Place {
        self.last_thread += 1;
        let thread = self.last_thread;
        for (what, arguments) in
            [("thread_name", json!({ "name": name })), ("thread_sort_index", json!({ "sort_index": thread }))]
        {
            events.push(json!({ "ph": "M", "name": what, "pid": process, "tid": thread, "args": arguments }));
        }
        Place { process, thread }
    }

    /// An arrow from the slice that had this id first.
    fn arrow(&mut self, id: u64, to: Place, time: u64, events: &mut Vec<Value>) {
        let Some((from, began)) = self.sources.get(&id).copied() else {
            self.sources.insert(id, (to, time));
            return;
        };
        if began > time {
            return;
        }
        self.arrows += 1;
        for (phase, Place { process, thread }, time) in [("s", from, began), ("f", to, time)] {
            events
                .push(json!({ "ph": phase, "bp": "e", "cat": "schedspan", "name": "then", "id": self.arrows,
                                "pid": process, "tid": thread, "ts": self.time(time) }));
        }
    }
}

fn value(note: &DebugAnnotation) -> Value {
    let DebugAnnotation { bool_value, int_value, double_value, string_value, name: _, array_values } = note;
    let one = bool_value.map(Value::from).or_else(|| int_value.map(Value::from));
    let one =
        one.or_else(|| double_value.map(Value::from)).or_else(|| string_value.as_deref().map(Value::from));
    one.unwrap_or_else(|| array_values.iter().map(value).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        export::tests::item,
        fixtures::{scheduled, unschedulable},
    };

    fn file(traces: &[Trace]) -> Vec<Value> {
        let mut chrome = Chrome::default();
        let mut text = String::new();
        for trace in traces {
            text += &chrome.trace(trace, &item(trace.clone()).resource);
        }
        serde_json::from_str(&(text + &chrome.end())).expect("it is an array of events")
    }

    fn of<'a>(events: &'a [Value], phase: &str) -> Vec<&'a Value> {
        events.iter().filter(|event| event["ph"] == phase).collect()
    }

    /// The slices of each thread, by its name and number; what begins ends, and within what is around it.
    fn slices(events: &[Value]) -> BTreeMap<(String, u64), Vec<String>> {
        let named = of(events, "M").into_iter().filter(|event| event["name"] == "thread_name");
        let names: HashMap<_, _> = named
            .map(|event| (event["tid"].as_u64(), event["args"]["name"].as_str().unwrap().to_owned()))
            .collect();
        let mut open: HashMap<Option<u64>, Vec<f64>> = HashMap::new();
        let mut slices: BTreeMap<_, Vec<String>> = BTreeMap::new();
        let mut timed: Vec<_> =
            events.iter().filter(|event| event["ph"] == "B" || event["ph"] == "E").collect();
        timed.sort_by(|one, other| one["ts"].as_f64().unwrap().total_cmp(&other["ts"].as_f64().unwrap()));
        for event in timed {
            let (thread, time) = (event["tid"].as_u64(), event["ts"].as_f64().unwrap());
            let open = open.entry(thread).or_default();
            if event["ph"] == "B" {
                let lead = "  ".repeat(open.len());
                let of = (names[&thread].clone(), thread.unwrap());
                slices.entry(of).or_default().push(format!("{lead}{}", event["name"].as_str().unwrap()));
                open.push(time);
            } else {
                assert!(open.pop().expect("what ends has begun") <= time);
            }
        }
        assert!(open.values().all(Vec::is_empty));
        slices
    }

    #[test]
    fn tracks_are_threads_and_spans_are_slices() {
        let events = file(&[scheduled()]);
        let slices = slices(&events);
        let threads: Vec<_> = slices.keys().map(|(name, _)| name.as_str()).collect();
        assert_eq!(threads, ["binding cycles", "scheduling loop"]);
        assert_eq!(slices.values().next().unwrap()[..2], ["bindingCycle", "  preBindPreFlight"]);
        let root = of(&events, "B")[0];
        assert_eq!(
            (&root["name"], &root["args"]["k8s.pod.name"]),
            (&"SchedulePod default/web-0".into(), &"web-0".into())
        );
        // The day before begins 86,400 s before this one.
        assert_eq!(root["ts"], 86_400_000_000.0);
        let arrows = [of(&events, "s"), of(&events, "f")].concat();
        assert_eq!(arrows.len(), 2, "from the loop to the binding cycle: {arrows:?}");
        assert_eq!(arrows[0]["id"], arrows[1]["id"]);
    }

    #[test]
    fn what_is_at_the_same_time_is_in_threads_of_its_own_and_others_share_one() {
        let (first, mut second, mut third) = (scheduled(), scheduled(), scheduled());
        for (trace, later) in [(&mut second, 2_000_000), (&mut third, 90_000_000)] {
            for span in &mut trace.spans {
                span.start_unix_ns += later;
                span.end_unix_ns += later;
            }
        }
        let slices = slices(&file(&[first, second, third]));
        let binding: Vec<_> = slices.iter().filter(|((name, _), _)| name == "binding cycles").collect();
        assert_eq!(binding.iter().map(|(_, slices)| slices.len()).collect::<Vec<_>>(), [10, 5]);
    }

    #[test]
    fn an_error_and_an_event_are_there() {
        let events = file(&[unschedulable()]);
        assert!(of(&events, "B").iter().any(|event| event["args"]["error"].is_string()), "{events:?}");
    }

    #[test]
    fn each_scheduler_is_a_process_and_says_since_when_times_are() {
        let mut other = scheduled();
        other.source = crate::Source::Process(8);
        let events = file(&[scheduled(), other]);
        let of_name = |name: &str| {
            let of_name = of(&events, "M").into_iter().filter(|event| event["name"] == name);
            of_name.map(|event| (event["pid"].clone(), event["args"].clone())).collect::<Vec<_>>()
        };
        let name = json!({ "name": "kube-scheduler (process 42)" });
        assert_eq!(of_name("process_name"), [(json!(1), name.clone()), (json!(2), name)]);
        let since = scheduled().root().start_unix_ns / 1_000_000_000 - 86_400;
        let since = json!({ "labels": format!("times are since Unix second {since}") });
        assert_eq!(of_name("process_labels"), [(json!(1), since.clone()), (json!(2), since)]);
        // A loop of each and their binding cycles.
        assert_eq!(of_name("thread_name").len(), 4);
    }

    #[test]
    fn a_thread_is_used_again_from_the_end_of_its_last_slice() {
        let mut chrome = Chrome::default();
        let mut thread = |from, to| chrome.thread(1, "calls", (from, to), &mut Vec::new()).thread;
        assert_eq!([thread(0, 10), thread(10, 20), thread(19, 30), thread(20, 21)], [1, 1, 2, 1]);
    }

    #[test]
    fn an_arrow_has_a_number_of_its_own_and_never_leads_back() {
        let mut chrome = Chrome::default();
        let place = Place { process: 1, thread: 1 };
        let mut arrows = |id, time| {
            let mut events = Vec::new();
            chrome.arrow(id, place, time, &mut events);
            events.iter().map(|event| event["id"].clone()).collect::<Vec<_>>()
        };
        assert!(arrows(7, 10).is_empty(), "this is where it begins");
        assert!(arrows(7, 9).is_empty(), "this is earlier");
        assert_eq!([arrows(7, 10), arrows(7, 11)], [[json!(1), json!(1)], [json!(2), json!(2)]]);
    }

    #[test]
    fn beginnings_of_arrows_are_forgotten_when_there_are_too_many() {
        let place = Place { process: 1, thread: 1 };
        for (more, left) in [(0, MAX_KNOWN), (1, 0)] {
            let sources = (0..(MAX_KNOWN + more) as u64).map(|id| (id, (place, 0))).collect();
            let mut chrome = Chrome { sources, ..Chrome::default() };
            chrome.events(&[]);
            assert_eq!(chrome.sources.len(), left);
        }
    }

    #[test]
    fn without_a_trace_it_is_an_empty_array() {
        assert_eq!(file(&[]), Vec::<Value>::new());
    }
}
