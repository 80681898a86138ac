use telemetry::Registry;

use super::*;
use crate::{fixtures::scheduled, screen::tests::child};

pub(super) fn item(trace: Trace) -> Item {
    let resource =
        Resource::of_process(7, 42, "/usr/local/bin/kube-scheduler".as_ref(), "go1.26.4", Some("v1.36.4"));
    Item { resource: resource.encode(), trace: Arc::new(trace) }
}

/// One output, with what is sent to it.
pub(super) fn sinks(open: impl FnOnce(&Metrics) -> Sink) -> (Sinks, Registry) {
    let registry = Registry::default();
    let metrics = Metrics::new(&registry);
    let sink = open(&metrics);
    let sinks = Sinks {
        sinks: RwLock::new(Some(vec![sink])),
        resources: RwLock::default(),
        live: Live::default(),
        metrics,
    };
    (sinks, registry)
}

pub(crate) fn lost(registry: &Registry) -> Vec<(&'static str, u64)> {
    registry.lost().into_iter().filter(|(_, lost)| *lost > 0).collect()
}

/// An output from which a test takes the items itself.
fn manual(capacity: u64) -> (Sinks, Registry, Queue) {
    let mut queue = None;
    let (sinks, registry) = sinks(|metrics| {
        Sink::Text(Text::open(capacity, stdout::CAUSES, metrics, |receiving| {
            queue = Some(receiving);
            tokio::spawn(std::future::pending())
        }))
    });
    (sinks, registry, queue.expect("it is opened at once"))
}

#[tokio::test]
async fn a_trace_has_the_resource_that_its_source_has_when_it_is_sent() {
    let (sinks, _, mut queue) = manual(u64::MAX);
    let own = Resource::of_process(7, 42, "/kube-scheduler".as_ref(), "go1.26.4", None);
    let unknown = Resource::unknown(scheduled().source).encode();
    assert_ne!(own.encode(), unknown);
    sinks.register(&own);
    sinks.send(scheduled());
    sinks.forget(own.source);
    sinks.send(scheduled());
    let mut resource = || queue.receiver.try_recv().map(|item| item.resource).ok();
    assert_eq!([resource(), resource(), resource()], [Some(own.encode()), Some(unknown), None]);
}

#[tokio::test]
async fn a_replay_waits_while_a_queue_is_more_than_half_full() {
    let spans = scheduled().spans.len() as u64;
    let (sinks, _, mut queue) = manual(4 * spans);
    let has_room =
        async || timeout_at(Instant::now() + Duration::from_millis(20), sinks.room()).await.is_ok();
    for expected in [true, true, false, false] {
        sinks.send(scheduled());
        assert_eq!(has_room().await, expected);
    }
    for expected in [false, true] {
        let item = queue.receiver.try_recv().expect("it was sent");
        queue.settle(item.spans(), true);
        assert_eq!(has_room().await, expected);
    }
}

#[tokio::test]
async fn outputs_have_ended_when_nothing_reads_them_any_more() {
    let spans = scheduled().spans.len() as u64;
    let (sinks, registry, queue) = manual(2 * spans);
    assert!(!sinks.ended());
    drop(queue);
    assert!(sinks.ended());
    for _ in 0..5 {
        sinks.send(scheduled());
    }
    // What is not taken does not fill the queue.
    assert_eq!(lost(&registry), [("output_failed", 5 * spans)]);
}

#[test]
fn a_queue_has_room_for_65536_spans_unless_a_variable_says_otherwise() {
    assert_eq!(queue_size().ok(), Some(65_536));
}

#[tokio::test]
async fn spans_beyond_the_queue_and_spans_left_at_the_end_are_lost() {
    let spans = scheduled().spans.len() as u64;
    let (sinks, registry) = sinks(|metrics| {
        Sink::Text(Text::open(2 * spans + 1, stdout::CAUSES, metrics, |queue| {
            tokio::spawn(async move {
                let _queue = queue;
                std::future::pending::<()>().await;
            })
        }))
    });
    for _ in 0..5 {
        sinks.send(scheduled());
    }
    assert_eq!(lost(&registry), [("output_queue_full", 3 * spans)]);
    sinks.shutdown(Duration::ZERO).await;
    sinks.send(scheduled());
    assert_eq!(lost(&registry), [("output_queue_full", 3 * spans), ("shutdown", 3 * spans)]);
}

#[test]
fn outputs_for_readers_are_those_on_standard_output_and_two_of_them_are_files() {
    let of = |output: Output| (output.is_for_reader(), output.file());
    for (output, expected) in [
        (Output::Terminal, (true, None)),
        (Output::Json, (true, None)),
        (Output::Mermaid, (true, None)),
        (Output::Perfetto, (true, Some("perfetto"))),
        (Output::Chrome, (true, Some("chrome"))),
        (Output::Otlp, (false, None)),
    ] {
        assert_eq!(of(output), expected, "{output:?}");
    }
}

/// Opens the outputs that a variable names.
fn open() -> Result<Sinks, Error> {
    let names = variable("OUTPUTS").unwrap_or_default();
    let output = |name: &str| <Output as clap::ValueEnum>::from_str(name, false).expect(name);
    let outputs: Vec<_> = names.split(',').map(output).collect();
    let spool = SpoolOptions { spool: None, spool_size: 1 << 20 };
    Sinks::start(&outputs, false, &spool, Metrics::new(&Registry::default()))
}

#[tokio::test]
#[ignore = "the next test runs it as a process"]
async fn a_child_sends_a_trace() {
    let sinks = match open() {
        Ok(sinks) => sinks,
        Err(error) => return screen::print(&format!("{error}\n")).unwrap(),
    };
    screen::print(&format!("ended: {}\n", sinks.ended())).unwrap();
    sinks.register(&Resource::unknown(scheduled().source));
    if !sinks.ended() {
        sinks.send(scheduled());
        sinks.shutdown(Duration::from_secs(60)).await;
    }
}

#[test]
fn outputs_write_to_standard_output_and_a_file_is_alone_there() {
    let printed = |outputs: &str, variable: (&str, &str)| {
        let output = child("export::tests::a_child_sends_a_trace", &[("OUTPUTS", outputs), variable]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let none = ("OTEL_SDK_DISABLED", "true");
    for (outputs, text) in [
        ("terminal", "default/web-0  Success  on node-3"),
        ("json", "{\"resourceSpans\":"),
        ("mermaid", "```mermaid\ngantt\n"),
        ("perfetto", "SchedulePod default/web-0"),
        ("chrome", "[\n{\"args\":"),
        ("chrome,otlp", "[\n{\"args\":"),
        ("perfetto,json", "`--output perfetto` is a file: give it alone"),
        ("json,chrome", "`--output chrome` is a file: give it alone"),
        ("otlp", "ended: true"),
    ] {
        let printed = printed(outputs, none);
        assert!(printed.contains(text), "{outputs}: {printed}");
    }
    for (outputs, texts) in [
        ("json,terminal", ["{\"resourceSpans\":", "default/web-0  Success"]),
        ("json,json", ["ended: false", "{\"resourceSpans\":"]),
    ] {
        let printed = printed(outputs, none);
        assert!(texts.iter().all(|text| printed.contains(text)), "{outputs}: {printed}");
    }
    assert!(printed("otlp", ("OTEL_TRACES_EXPORTER", "none")).contains("ended: true"));
    let error = printed("json", ("OTEL_BSP_MAX_QUEUE_SIZE", "many"));
    assert!(error.contains("OTEL_BSP_MAX_QUEUE_SIZE is `many`"), "{error}");
}

#[tokio::test]
async fn those_who_watch_see_what_is_shown() {
    let (sinks, _, _queue) = manual(u64::MAX);
    let mut watcher = sinks.live().watch(Filter::default());
    sinks.show(&scheduled());
    let seen = watcher.next().await;
    assert!(format!("{seen:?}").contains("web-0"), "{seen:?}");
}
