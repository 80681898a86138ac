use super::{schema::Trace as File, *};
use crate::{
    export::tests::item,
    fixtures::{scheduled, unschedulable},
};

/// A file of these traces.
fn file(traces: &[Trace]) -> File {
    let mut perfetto = Perfetto::default();
    let mut bytes = Vec::new();
    for trace in traces {
        bytes.extend(perfetto.trace(trace, &item(trace.clone()).resource));
    }
    bytes.extend(perfetto.end());
    File::decode(&*bytes).expect("it is a file of Perfetto")
}

fn tracks(file: &File) -> HashMap<u64, &TrackDescriptor> {
    let described = file.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    described.map(|track| (track.uuid.expect("each track has an id"), track)).collect()
}

/// The slices on a track, as `name begin-end` in microseconds since the first trace began, each below those that hold it.
fn slices(file: &File, name: &str) -> Vec<String> {
    let tracks = tracks(file);
    let start = scheduled().root().start_unix_ns;
    let (mut open, mut all): (HashMap<u64, Vec<usize>>, Vec<String>) = (HashMap::new(), Vec::new());
    for packet in &file.packet {
        let Some(event) = &packet.track_event else { continue };
        let uuid = event.track_uuid.expect("each event is on a track");
        if tracks[&uuid].name.as_deref() != Some(name) {
            continue;
        }
        let us = (packet.timestamp.expect("each event has a time") - start) / 1000;
        let open = open.entry(uuid).or_default();
        match event.r#type() {
            Type::SliceBegin => {
                open.push(all.len());
                all.push(format!("{}{} {us}-", "  ".repeat(open.len() - 1), event.name()));
            }
            Type::SliceEnd => all[open.pop().expect("what ends has begun")] += &us.to_string(),
            Type::Instant | Type::Counter | Type::Unspecified => {}
        }
    }
    assert!(open.values().all(Vec::is_empty), "what begins has ended");
    all
}

#[test]
fn the_loop_is_one_track_and_a_binding_cycle_another() {
    let file = file(&[scheduled()]);
    let expected = [
        "SchedulePod default/web-0 0-1905",
        "  schedulingCycle 5-1905",
        "    preFilter 60-203",
        "    filter 210-879",
        "    preScore 900-1013",
        "    score 1020-1687",
        "    reserve 1800-1825",
        "    permit 1830-1833",
    ];
    assert_eq!(slices(&file, "scheduling loop"), expected);
    let expected = [
        "bindingCycle 1910-5110",
        "  preBindPreFlight 1915-1919",
        "  preBind 1930-1938",
        "  bind 1950-4950",
        "  postBind 4960-4969",
    ];
    assert_eq!(slices(&file, "binding cycles"), expected);
}

#[test]
fn an_attempt_without_a_binding_cycle_is_in_the_loop_to_its_end() {
    let file = file(&[unschedulable()]);
    assert_eq!(slices(&file, "scheduling loop")[0], "SchedulePod default/big 0-820");
    assert!(slices(&file, "binding cycles").is_empty());
}

#[test]
fn an_incomplete_attempt_is_not_in_the_loop() {
    let mut trace = scheduled();
    trace.spans[0].attributes.push((attributes::INCOMPLETE, AttributeValue::Bool(true)));
    let file = file(&[trace]);
    assert!(slices(&file, "scheduling loop").is_empty());
    assert_eq!(slices(&file, "attempts").len(), 8);
}

#[test]
fn spans_at_the_same_time_are_on_tracks_of_their_own() {
    let mut trace = scheduled();
    let mut beside = trace.spans[2].clone();
    beside.span_id = [9; 8];
    beside.start_unix_ns += 1000;
    trace.spans.push(beside);
    assert_eq!(slices(&file(&[trace]), "parallel calls"), ["preFilter 61-203"]);
}

#[test]
fn a_flow_leads_from_the_loop_to_the_binding_cycle_and_to_the_next_attempt() {
    let first = scheduled();
    let mut next = unschedulable();
    let root = first.root().span_id;
    let context = tracecontext::RemoteContext {
        trace_id: first.trace_id,
        span_id: root,
        flags: 1,
        trace_state: String::new(),
    };
    next.spans[0].span_id = [7; 8];
    next.spans[0].links.push(Link { context, relation: Relation::PreviousAttempt });
    let file = file(&[first, next]);
    let flows = file.packet.iter().filter_map(|packet| packet.track_event.as_ref());
    let with: Vec<_> = flows
        .filter(|event| event.flow_ids.contains(&u64::from_be_bytes(root)))
        .map(TrackEvent::name)
        .collect();
    assert_eq!(with, ["SchedulePod default/web-0", "bindingCycle", "SchedulePod default/big"]);
}

#[test]
fn slices_carry_attributes_errors_and_who_created_the_pod() {
    let mut failed = unschedulable();
    failed.source = Source::Process(8);
    let file = file(&[scheduled(), failed]);
    let note = |slice: &str, name: &str| {
        let events = file.packet.iter().filter_map(|packet| packet.track_event.as_ref());
        let mut notes =
            events.filter(|event| event.name() == slice).flat_map(|event| &event.debug_annotations);
        notes.find(|note| note.name() == name).cloned().expect(name)
    };
    let web = "SchedulePod default/web-0";
    assert_eq!(note(web, attributes::SELECTED_NODE).string_value(), "node-3");
    assert_eq!(note(web, attributes::ATTEMPT).int_value(), 1);
    assert_eq!(note(web, attributes::QUEUE_WAIT_MS).double_value(), 12.25);
    assert_eq!(note(web, "created by").string_value(), format!("{}/{}", "cd".repeat(16), "ef".repeat(8)));
    assert_eq!(note("postFilter", "error").string_value(), "no victims");
}

#[test]
fn each_scheduler_is_a_process_and_described_once() {
    let mut other = unschedulable();
    other.source = Source::Process(8);
    let file = file(&[scheduled(), other, scheduled()]);
    let described = file.packet.iter().filter_map(|packet| packet.track_descriptor.as_ref());
    let processes: Vec<_> = described.filter_map(|track| track.process.as_ref()).collect();
    assert_eq!(processes.len(), 2);
    assert_eq!((processes[0].pid(), processes[0].process_name()), (42, "kube-scheduler"));
    let tracks = tracks(&file);
    for track in tracks.values() {
        assert!(track.parent_uuid.is_none_or(|parent| tracks.contains_key(&parent)), "{track:?}");
    }
}

#[test]
fn stays_in_a_queue_are_a_counter() {
    let mut trace = scheduled();
    let start = trace.root().start_unix_ns;
    for (number, (from, to)) in [(0, 30), (10, 20), (20, 30)].into_iter().enumerate() {
        trace.spans.push(Span {
            kind: SpanKind::QueueStay,
            span_id: [100 + number as u8; 8],
            parent_id: None,
            name: "queue: active".into(),
            start_unix_ns: start + from,
            end_unix_ns: start + to,
            attributes: crate::Attributes::new(),
            events: Vec::new(),
            links: Vec::new(),
            status: Status::Unset,
        });
    }
    let file = file(&[trace]);
    let tracks = tracks(&file);
    let counted: Vec<_> = file
        .packet
        .iter()
        .filter_map(|packet| Some((packet.timestamp(), packet.track_event.as_ref()?)))
        .filter(|(_, event)| event.r#type() == Type::Counter)
        .map(|(ns, event)| (tracks[&event.track_uuid()].name(), ns - start, event.counter_value()))
        .collect();
    let of = |ns, pods| ("Pods in the active queue", ns, pods);
    assert_eq!(counted, [of(0, 1), of(10, 2), of(20, 2), of(30, 0)]);
}

#[test]
fn the_times_are_the_time_of_day() {
    let file = file(&[scheduled()]);
    let clocks = file.packet[0].clock_snapshot.clone().expect("it comes first");
    let start = scheduled().root().start_unix_ns;
    assert!(clocks.clocks.iter().all(|clock| clock.timestamp() == start));
    let ids: Vec<_> = clocks.clocks.iter().map(Clock::clock_id).collect();
    assert_eq!(ids, [REALTIME, BOOTTIME]);
}

#[test]
fn each_process_each_loop_and_each_queue_has_a_track_of_its_own() {
    let (mut one, mut other) = (scheduled(), scheduled());
    other.source = Source::Process(8);
    for trace in [&mut one, &mut other] {
        for queue in ["queue: active", "queue: backoff"] {
            let stay = Span { kind: SpanKind::QueueStay, name: queue.into(), ..trace.spans[1].clone() };
            trace.spans.push(stay);
        }
    }
    let file = file(&[one, other]);
    let described = file.packet.iter().filter(|packet| packet.track_descriptor.is_some()).count();
    // Both binding cycles are the same span.
    assert_eq!((tracks(&file).len(), described), (2 * 4 + 1, 2 * 4 + 2));
    let sequences = file.packet.iter().map(|packet| packet.trusted_packet_sequence_id);
    assert!(sequences.into_iter().all(|sequence| sequence == Some(SEQUENCE)));
}

#[test]
fn an_event_is_an_instant_within_its_slice() {
    let mut trace = scheduled();
    let root = &mut trace.spans[0];
    let rejected = vec![
        (attributes::NODE, AttributeValue::from("node-1")),
        (attributes::PREEMPTION_VICTIM_NAMES, AttributeValue::Strings(vec!["low-1".to_owned()])),
        (attributes::INCOMPLETE, AttributeValue::Bool(false)),
    ];
    let times = [root.start_unix_ns - 1, root.start_unix_ns + 1_000, root.end_unix_ns + 1];
    root.events =
        times.map(|unix_ns| crate::Event { name: "rejected", unix_ns, attributes: rejected.clone() }).into();
    let begin = root.start_unix_ns;
    let file = file(&[trace]);
    let of_loop = loop_track(scheduled().source);
    let instants: Vec<_> = file
        .packet
        .iter()
        .filter_map(|packet| Some((packet.timestamp(), packet.track_event.as_ref()?)))
        .filter(|(_, event)| event.r#type() == Type::Instant)
        .map(|(ns, event)| (ns - begin, event.name(), event.track_uuid()))
        .collect();
    // An attempt's turn in the loop ends with its scheduling cycle.
    assert_eq!(instants, [0, 1_000, 1_905_000].map(|ns| (ns, "rejected", of_loop)));
    let instant = file.packet.iter().filter_map(|packet| packet.track_event.as_ref());
    let instant = instant.filter(|event| event.r#type() == Type::Instant).collect::<Vec<_>>()[0];
    let [node, names, flag] = &instant.debug_annotations[..] else { panic!("{instant:?}") };
    assert_eq!((node.name(), node.string_value()), (attributes::NODE, "node-1"));
    assert_eq!(names.array_values[0].string_value(), "low-1");
    assert_eq!(flag.bool_value, Some(false));
}

#[test]
fn what_does_not_fit_shares_a_track_if_it_is_one_after_the_other() {
    let mut trace = scheduled();
    for (number, (start, end)) in [(61, 100), (100, 140), (130, 150)].into_iter().enumerate() {
        let mut beside = trace.spans[2].clone();
        beside.span_id = [90 + number as u8; 8];
        beside.end_unix_ns = trace.root().start_unix_ns + end * 1_000;
        beside.start_unix_ns = trace.root().start_unix_ns + start * 1_000;
        trace.spans.push(beside);
    }
    let file = file(&[trace]);
    let expected = ["preFilter 61-100", "preFilter 100-140", "preFilter 130-150"];
    assert_eq!(slices(&file, "parallel calls"), expected);
    let parallel = tracks(&file).into_values().filter(|track| track.name() == "parallel calls").count();
    assert_eq!(parallel, 2);
}

#[test]
fn stays_beyond_the_bound_are_not_counted() {
    let mut trace = scheduled();
    let stay = Span { kind: SpanKind::QueueStay, name: "queue: active".into(), ..trace.spans[1].clone() };
    trace.spans.push(stay);
    let mut perfetto = Perfetto { steps: MAX_STEPS - 3, ..Perfetto::default() };
    let mut steps = || {
        perfetto.packets(&trace, &[]);
        (perfetto.steps, perfetto.queues.values().map(Vec::len).sum::<usize>())
    };
    assert_eq!([steps(), steps()], [(MAX_STEPS - 1, 2); 2]);
    let mut perfetto = Perfetto { steps: MAX_STEPS - 2, ..Perfetto::default() };
    perfetto.packets(&trace, &[]);
    assert_eq!(perfetto.steps, MAX_STEPS, "the last place is used");
}
