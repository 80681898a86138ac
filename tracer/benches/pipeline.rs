//! What an attempt takes on its way from record to bytes, step by step: `cargo xtask bench pipeline`.
//!
//! The events are those of a recorded stream, at all levels of detail. The first lines are the allocations of each step, divided by the
//! spans that come of it: they are the same in every run. The times follow.

use std::{
    alloc::{GlobalAlloc, Layout},
    fs::File,
    io::BufReader,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use divan::{AllocProfiler, Bencher, counter::ItemsCount};
use goexe::Class;
use gotrace::{
    Detail,
    decode::Decoder,
    pipeline::Pipeline,
    plan::{PlannedSite, Role},
    program::Event,
    recording::{Line, Reader},
};
use kube_scheduler::{KubeScheduler, attempt::Attempt, attempt_log::AttemptLog, table::Function};
use spans::{
    Anchor, Origin, Source, Story as _, Trace,
    export::{Resource, encode},
    story::Extras,
};
use wire::{Hit, Site};

#[global_allocator]
static ALLOCATOR: Counted = Counted(AllocProfiler::system());
/// Allocations so far. Growing in place counts: it is a call as well.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counted(AllocProfiler);

// SAFETY: each call is handed on as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that the inner allocator asks for.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { self.0.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { self.0.dealloc(place, layout) }
    }
}

const STREAM: &str = "../tests/streams/1.37.jsonl";
/// The stream's process.
const TARGET: u32 = 0;

#[expect(clippy::disallowed_macros, reason = "a benchmark prints its own figures")]
fn main() {
    let (events, attempts, traces) = (events(), attempts(), traces());
    let spans = spans(&traces);
    println!("{} events, {} attempts, {spans} spans", events.len(), attempts.len());
    println!("allocations a span");
    let log = AttemptLog::new(attempts.len());
    let resource = Resource::unknown(Source::Process(TARGET)).encode();
    let mut room = 0;
    for (step, allocations) in [
        // A recording has no records of the kernel, but what was decoded from them: a copy takes as many.
        ("decode", counted(|| events.iter().cloned().for_each(drop))),
        ("assemble", counted(|| drop(assembled(events)))),
        ("build", counted(|| attempts.iter().map(trace).for_each(drop))),
        ("encode", counted(|| traces.iter().map(|trace| encode(trace, &resource, &mut room)).for_each(drop))),
        ("keep for explain", counted(|| traces.iter().for_each(|trace| log.add(trace)))),
    ] {
        println!("  {step:<18}{:>8.2}", allocations as f64 / spans as f64);
    }
    divan::main();
}

/// The allocations that `work` makes.
fn counted(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    work();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

fn events() -> Vec<Event<KubeScheduler>> {
    let file =
        File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(STREAM)).expect("the stream is in the tree");
    let reader = Reader::new(BufReader::new(file)).expect("a recording");
    let event = |line| match line {
        Line::Event(event) => Some(event.into_owned()),
        Line::Header(_)
        | Line::Found(_)
        | Line::Clocks(_)
        | Line::Sample(_)
        | Line::Window(_)
        | Line::Cut { .. }
        | Line::Gone { .. }
        | Line::End(_) => None,
    };
    reader.filter_map(|line| event(line.expect("a valid line"))).collect()
}

fn assembled(events: Vec<Event<KubeScheduler>>) -> Vec<Attempt> {
    let mut pipeline = Pipeline::<KubeScheduler>::default();
    for event in events {
        pipeline.event(event);
    }
    pipeline.exit(TARGET);
    pipeline.take_finished()
}

fn attempts() -> Vec<Attempt> {
    assembled(events())
}

fn trace(attempt: &Attempt) -> Trace {
    attempt.trace(Anchor::default(), Origin::default(), Extras::default())
}

fn traces() -> Vec<Trace> {
    attempts().iter().map(trace).collect()
}

fn spans(traces: &[Trace]) -> usize {
    traces.iter().map(|trace| trace.spans.len()).sum()
}

/// What the daemon keeps of each attempt for `schedspan explain`.
#[divan::bench]
fn keep_attempts(bencher: Bencher<'_, '_>) {
    let traces = traces();
    let log = AttemptLog::new(traces.len());
    let count = ItemsCount::new(spans(&traces));
    bencher.counter(count).bench_local(|| traces.iter().for_each(|trace| log.add(trace)));
}

/// The hit of a phase's entry, which reads nothing.
#[divan::bench]
fn decode_a_hit(bencher: Bencher<'_, '_>) {
    let site = PlannedSite {
        function: Function::Filter,
        role: Role::Entry,
        detail: Detail::Full,
        address: 0,
        file_offset: 0,
        class: Class::Emulated,
        stack_depth: 0,
        symbol: String::new(),
        called_by: None,
        spec: Site::default(),
        values: Vec::new(),
        list: None,
    };
    let mut decoder = Decoder::<KubeScheduler>::default();
    decoder.add(1, &site);
    let mut record = vec![0; size_of::<Hit>()];
    record[std::mem::offset_of!(Hit, site)] = 1;
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| decoder.decode(divan::black_box(&record)));
}

#[divan::bench]
fn assemble_events(bencher: Bencher<'_, '_>) {
    let events = events();
    let count = ItemsCount::new(events.len());
    bencher.counter(count).with_inputs(|| events.clone()).bench_local_values(assembled);
}

#[divan::bench]
fn build_spans(bencher: Bencher<'_, '_>) {
    let attempts = attempts();
    let count = ItemsCount::new(spans(&traces()));
    bencher.counter(count).bench_local(|| attempts.iter().map(trace).collect::<Vec<_>>());
}

#[divan::bench]
fn encode_spans(bencher: Bencher<'_, '_>) {
    let traces = traces();
    let resource = Resource::unknown(Source::Process(TARGET)).encode();
    let count = ItemsCount::new(spans(&traces));
    let mut room = 0;
    bencher
        .counter(count)
        .bench_local(|| traces.iter().map(|trace| encode(trace, &resource, &mut room).len()).sum::<usize>());
}
